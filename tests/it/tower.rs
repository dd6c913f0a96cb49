//! Tower stacks under an operation and around one, of tower's own layers.

use std::cell::Cell;
use std::future::{Pending, pending};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use ::tower::buffer::Buffer;
use ::tower::load_shed::error::Overloaded;
use ::tower::timeout::error::Elapsed;
use ::tower::{BoxError, Service, ServiceBuilder, ServiceExt, retry, service_fn};
use reqwest::header::HeaderValue;
use reqwest::{Method, Request, Response};
use steadfast::tower::{SteadfastLayer, sender};
use steadfast::{
    AttemptError, Attempts, Backoff, Client, Delivery, Error, ErrorKind, Outcome, PolicyBuilder, ResponseExt,
    StopReason, scope,
};
use tokio::time::timeout;

use crate::server::{Reply, Server};
use crate::transport::{Transport, URL, after, answer, client, fail, fail_with, hang, no_backoff, secs};
use crate::wire;

/// A service by script.
fn service(
    transport: &Transport,
) -> impl Service<Request, Response = Response, Error = AttemptError, Future: Send> + Clone + Send + 'static + use<> {
    let send = Arc::new(transport.send());
    service_fn(move |request| send(request))
}

/// A POST that nothing makes harmless to repeat.
fn keyless(client: &Client) -> steadfast::RequestBuilder {
    client.post(URL).body("amount=1").without_idempotency_key()
}

fn post(url: impl reqwest::IntoUrl) -> Request {
    Request::new(Method::POST, url.into_url().unwrap())
}

fn mark(mut request: Request) -> Request {
    let headers = request.headers_mut();
    headers.append("x-stack", HeaderValue::from_static("here"));
    request
}

fn endings(attempts: &Attempts) -> Vec<(Option<ErrorKind>, Delivery)> {
    attempts.iter().map(|a| (a.failure(), a.delivery())).collect()
}

/// A constant wait between attempts, so that every time is exact.
fn every(secs_between: u64) -> PolicyBuilder {
    no_backoff().backoff(Backoff::constant(secs(secs_between)))
}

// tower
#[tokio::test(start_paused = true)]
async fn each_attempt_goes_through_the_layers_inside_with_the_one_key() {
    let transport = Transport::new([answer(503), fail(io::ErrorKind::ConnectionReset), answer(200)]);
    let mut stack = ServiceBuilder::new()
        .layer(SteadfastLayer::new(client(no_backoff())))
        .map_request(mark)
        .service(service(&transport));
    let response = stack.ready().await.unwrap().call(post(URL)).await.unwrap();
    assert_eq!(response.attempts().unwrap().len(), 3);
    let seen = transport.seen();
    assert_eq!(seen.len(), 3);
    for request in &seen {
        assert_eq!(request.key(), seen[0].key());
        assert_eq!(request.header("x-stack"), ["here"]);
    }
}

// tower
#[tokio::test(start_paused = true)]
async fn each_attempt_goes_through_a_service_given_to_send_with() {
    let transport = Transport::new([answer(503), answer(200)]);
    let stack = ServiceBuilder::new().map_request(mark).service(service(&transport));
    let client = client(no_backoff());
    let sent = client.post(URL).max_attempts(2).send_with(sender(stack)).await;
    assert_eq!(sent.unwrap().status(), 200);
    let seen = transport.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].key(), seen[1].key());
    assert!(seen.iter().all(|request| request.header("x-stack") == ["here"]));
}

// tower
#[tokio::test(start_paused = true)]
async fn an_elapsed_timeout_of_a_layer_is_repeated_with_a_key() {
    let transport = Transport::new([hang(), answer(200)]);
    let stack = ServiceBuilder::new().timeout(secs(1)).service(service(&transport));
    let response = client(no_backoff()).execute_with(post(URL), sender(stack)).await;
    let unknown = (Some(ErrorKind::Timeout), Delivery::Unknown);
    let response = response.unwrap();
    assert_eq!(
        endings(response.attempts().unwrap()),
        [unknown, (None, Delivery::Answered)]
    );
    assert_eq!(transport.times(), [secs(0), secs(1)]);
}

// tower
#[tokio::test(start_paused = true)]
async fn an_elapsed_timeout_of_a_layer_ends_a_keyless_post_as_unknown() {
    let transport = Transport::new([hang()]);
    let stack = ServiceBuilder::new().timeout(secs(1)).service(service(&transport));
    let error = keyless(&client(no_backoff()))
        .send_with(sender(stack))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(transport.elapsed(), secs(1));
}

// tower
#[tokio::test(start_paused = true)]
async fn an_attempt_that_a_load_shed_refused_was_not_sent_and_is_repeated_for_a_keyless_post() {
    let transport = Transport::always(after(secs(1), answer(200)));
    let stack = ServiceBuilder::new()
        .load_shed()
        .concurrency_limit(1)
        .service(service(&transport));
    let client = client(every(2));
    let first = client.execute_with(post(URL), sender(stack.clone()));
    let second = keyless(&client).send_with(sender(stack));
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.unwrap().attempts().unwrap().len(), 1);
    let second = second.unwrap();
    let attempts = second.attempts().unwrap();
    let shed = (Some(ErrorKind::Other), Delivery::NotSent);
    assert_eq!(endings(attempts), [shed, (None, Delivery::Answered)]);
    assert!(attempts.exactly_once());
    assert_eq!(transport.times(), [secs(0), secs(2)]);
}

/// Says that it failed because of another error.
#[derive(Debug, thiserror::Error)]
#[error("a layer of somebody's own")]
struct Because(#[source] BoxError);

// tower
#[tokio::test(start_paused = true)]
async fn the_errors_of_layers_are_found_in_whatever_wraps_them() {
    type Wrap = fn(BoxError) -> BoxError;
    let wraps: [Wrap; 4] = [
        |error| error,
        |error| Because(error).into(),
        |error| io::Error::other(error).into(),
        |error| Because(io::Error::other(Because(error)).into()).into(),
    ];
    for wrap in wraps {
        for (error, kind) in [
            ((|| Elapsed::new().into()) as fn() -> BoxError, ErrorKind::Timeout),
            (|| Overloaded::new().into(), ErrorKind::Other),
        ] {
            let transport = Transport::new([fail_with(move || wrap(error())), answer(200)]);
            let response = client(no_backoff()).execute_with(post(URL), transport.send()).await;
            let failed = response.unwrap().attempts().unwrap().iter().next().unwrap().clone();
            assert_eq!(failed.failure(), Some(kind));
            // It may be that of another request which a layer made.
            let is_itself = wrap(Overloaded::new().into()).is::<Overloaded>();
            if kind == ErrorKind::Other && is_itself {
                assert_eq!(failed.delivery(), Delivery::NotSent);
            } else {
                assert_eq!(failed.delivery(), Delivery::Unknown);
            }
        }
    }
}

// tower: no catch-all that retries.
#[tokio::test(start_paused = true)]
async fn the_error_of_a_buffer_that_is_closed_is_unknown_and_final() {
    let transport = Transport::new([]);
    let (buffer, worker) = Buffer::pair(service(&transport), 1);
    drop(worker);
    let error = client(no_backoff()).execute_with(post(URL), sender(buffer)).await;
    let error = error.unwrap_err();
    assert_eq!(endings(error.attempts()), [(Some(ErrorKind::Other), Delivery::Unknown)]);
    assert_eq!(error.stop_reason(), StopReason::NotRetryable);
    assert_eq!(error.outcome(), Outcome::Unknown);
}

/// Refuses to be called before it is ready, and is not `Sync`, as services may be.
struct Strict<S> {
    inner: S,
    ready: Cell<bool>,
    polls: Arc<AtomicUsize>,
}

impl<S: Clone> Clone for Strict<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            ready: Cell::new(false),
            polls: self.polls.clone(),
        }
    }
}

impl<S: Service<Request>> Service<Request> for Strict<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // Not at once, as where a permit has to be waited for.
        if self.polls.fetch_add(1, Relaxed) % 2 == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.ready.set(true);
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> S::Future {
        assert!(self.ready.take(), "called before it was ready");
        self.inner.call(request)
    }
}

// tower
#[tokio::test(start_paused = true)]
async fn each_attempt_makes_its_own_clone_ready_first() {
    let transport = Transport::new([answer(503), answer(503), answer(200)]);
    let polls = Arc::new(AtomicUsize::new(0));
    let strict = Strict {
        inner: service(&transport),
        ready: Cell::new(false),
        polls: polls.clone(),
    };
    let stack = ServiceBuilder::new()
        .layer(SteadfastLayer::new(client(no_backoff())))
        .service(strict);
    let response = stack.oneshot(post(URL)).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(transport.seen().len(), 3);
    assert_eq!(polls.load(Relaxed), 6);
}

/// Is never ready.
#[derive(Clone)]
struct Busy;

impl Service<Request> for Busy {
    type Response = Response;
    type Error = AttemptError;
    type Future = Pending<Result<Response, AttemptError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AttemptError>> {
        Poll::Pending
    }

    fn call(&mut self, _: Request) -> Self::Future {
        pending()
    }
}

// tower
#[tokio::test(start_paused = true)]
async fn the_wait_for_a_service_to_be_ready_is_part_of_the_attempt() {
    let transport = Transport::new([]);
    let policy = no_backoff().attempt_timeout(secs(3));
    let stack = SteadfastLayer::new(client(policy));
    let stack = ServiceBuilder::new().layer(stack).service(Busy);
    let error = stack.oneshot(post(URL)).await.unwrap_err();
    let unknown = (Some(ErrorKind::Timeout), Delivery::Unknown);
    assert_eq!(endings(error.attempts()), [unknown; 3]);
    assert_eq!(transport.elapsed(), secs(9));
}

// tower
#[tokio::test(start_paused = true)]
async fn an_operation_that_waits_holds_no_place_of_a_concurrency_limit_inside() {
    let steps = [answer(503), answer(200), answer(200)];
    let transport = Transport::new(steps.map(|step| after(secs(1), step)));
    let stack = ServiceBuilder::new()
        .layer(SteadfastLayer::new(client(every(7))))
        .concurrency_limit(1)
        .service(service(&transport));
    let (first, second) = tokio::join!(stack.clone().oneshot(post(URL)), stack.oneshot(post(URL)));
    assert_eq!(first.unwrap().attempts().unwrap().len(), 2);
    assert_eq!(second.unwrap().attempts().unwrap().len(), 1);
    assert_eq!(transport.times(), [secs(0), secs(1), secs(8)]);
}

// tower
#[tokio::test(start_paused = true)]
async fn a_rate_limit_inside_spaces_the_attempts() {
    let transport = Transport::new([answer(503), answer(503), answer(200)]);
    let stack = ServiceBuilder::new()
        .layer(SteadfastLayer::new(client(no_backoff())))
        .buffer(8)
        .rate_limit(1, secs(5))
        .service(service(&transport));
    assert_eq!(stack.oneshot(post(URL)).await.unwrap().status(), 200);
    let seen: Vec<_> = transport.times().iter().map(|time| time.as_secs()).collect();
    assert_eq!(seen, [0, 5, 10]);
}

// tower
#[tokio::test(start_paused = true)]
async fn dropping_the_future_makes_no_further_attempt() {
    for first in [answer(503), hang()] {
        let transport = Transport::new([first, answer(200)]);
        let mut stack = ServiceBuilder::new()
            .layer(SteadfastLayer::new(client(every(5))))
            .buffer(8)
            .service(service(&transport));
        let call = stack.ready().await.unwrap().call(post(URL));
        assert!(timeout(secs(1), call).await.is_err());
        tokio::time::sleep(secs(60)).await;
        assert_eq!(transport.seen().len(), 1);
    }
}

/// Repeats what a server failed at, and every error, so many times.
#[derive(Clone)]
struct Repeat(usize);

impl<E> retry::Policy<Request, Response, E> for Repeat {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut Request, result: &mut Result<Response, E>) -> Option<Self::Future> {
        let failed = result
            .as_ref()
            .map_or(true, |response| response.status().is_server_error());
        self.0 = self.0.checked_sub(usize::from(failed))?;
        failed.then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &Request) -> Option<Request> {
        request.try_clone()
    }
}

// tower
#[tokio::test(start_paused = true)]
async fn a_retry_layer_around_an_operation_does_not_multiply_in_the_scope_that_says_so() {
    let transport = Transport::always(answer(503));
    let stack = ServiceBuilder::new()
        .retry(Repeat(2))
        .layer(SteadfastLayer::new(client(no_backoff().max_attempts(3))))
        .service(service(&transport));
    let mut request = post(URL);
    let key = HeaderValue::from_static("order-4711");
    request.headers_mut().insert("idempotency-key", key);
    let response = scope::without_retries(stack.oneshot(request)).await.unwrap();
    assert_eq!(response.attempts().unwrap().stop_reason(), StopReason::Scope);
    let seen = transport.seen();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|request| request.key() == "order-4711"));
}

// tower
#[tokio::test(start_paused = true)]
async fn a_retry_layer_inside_an_attempt_does_not_repeat_what_nothing_makes_harmless() {
    let transport = Transport::new([answer(500)]);
    let stack = ServiceBuilder::new().retry(Repeat(5)).service(service(&transport));
    let sent = keyless(&client(no_backoff())).send_with(sender(stack)).await;
    let attempts = sent.unwrap().attempts().unwrap().clone();
    assert_eq!(endings(&attempts), [(None, Delivery::Unknown)]);
    assert_eq!(transport.seen().len(), 1);
}

// tower
#[tokio::test]
async fn a_client_as_the_service_inside_a_client_makes_one_attempt_of_each() {
    let server = Server::repeat(Reply::status(503)).await;
    let inner = wire::client(wire::quick());
    let stack = ServiceBuilder::new()
        .layer(SteadfastLayer::new(wire::client(wire::quick())))
        .timeout(secs(5))
        .service(inner);
    let response = stack.oneshot(post(server.url("/pay"))).await.unwrap();
    assert_eq!(response.attempts().unwrap().len(), 3);
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    let key = |index: usize| requests[index].header("idempotency-key").unwrap();
    assert!((1..3).all(|index| key(index) == key(0)));
}

/// Answers a 503 once, and then a 200.
async fn shaky() -> Server {
    Server::start([Reply::status(503), Reply::ok("paid")]).await
}

fn assert_one_operation(server: &Server, response: &Response) {
    let attempts = response.attempts().unwrap();
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts.outcome(), Outcome::Completed);
    wire::assert_same_bytes(server, 2);
    assert_eq!(server.requests()[0].headers_named("idempotency-key").len(), 1);
}

// tower
#[tokio::test]
async fn a_client_is_the_innermost_service_of_a_stack() {
    let server = shaky().await;
    let mut stack = ServiceBuilder::new()
        .load_shed()
        .buffer(8)
        .rate_limit(10, secs(1))
        .concurrency_limit(1)
        .timeout(secs(5))
        .map_request(mark)
        .service(wire::client(wire::quick()));
    let sent = stack.ready().await.unwrap().call(post(server.url("/pay"))).await;
    assert_one_operation(&server, &sent.unwrap());
    assert_eq!(server.requests()[0].headers_named("x-stack"), ["here"]);
}

// tower
#[tokio::test]
async fn a_borrowed_client_is_a_service_too() {
    let server = shaky().await;
    let client = wire::client(wire::quick());
    let sent: Result<_, Error> = client.clone().oneshot(post(server.url("/pay"))).await;
    assert_one_operation(&server, &sent.unwrap());
}

// tower
#[tokio::test]
async fn an_error_of_the_client_goes_through_the_layers_around_it() {
    let refusing = wire::Refusing::new();
    let stack = ServiceBuilder::new()
        .timeout(secs(5))
        .service(wire::client(wire::quick()));
    let url = format!("http://{}/pay", refusing.addr());
    let error = stack
        .oneshot(post(&url))
        .await
        .unwrap_err()
        .downcast::<Error>()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert_eq!(error.outcome(), Outcome::NotDone);
    assert_eq!(error.attempts().len(), 3);
}

//! The client above and below real services of tower.

use std::io::ErrorKind::ConnectionReset;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll};

use reqwest::{Method, Request, Response};
use steadfast::tower::{SteadfastLayer, sender};
use steadfast::{Client, Delivery, Error, ErrorKind, Outcome, ResponseExt, StopReason};
use tokio::time::sleep;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::timeout::TimeoutLayer;
use tower::util::BoxCloneService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::server::{Reply, Server};
use crate::transport::{Seen, Step, Transport, URL, after, answer, client, fail, hang, millis, no_backoff, secs};
use crate::wire::{http, quick};

type Leaf = BoxCloneService<Request, Response, BoxError>;

/// The scripted service at the bottom of a stack.
fn leaf(transport: &Transport) -> Leaf {
    let send = Arc::new(transport.send());
    service_fn(move |request| {
        let sending = send(request);
        async { sending.await.map_err(BoxError::from) }
    })
    .boxed_clone()
}

fn post() -> Request {
    Request::new(Method::POST, URL.parse().unwrap())
}

fn keyless(client: &Client) -> steadfast::RequestBuilder {
    client.post(URL).body("x").without_idempotency_key()
}

fn one_key(seen: &[Seen]) -> bool {
    seen.iter().all(|other| other.key() == seen[0].key())
}

// tower: a stack beneath a client.
#[tokio::test(start_paused = true)]
async fn every_attempt_goes_through_the_layers_beneath() {
    let transport = Transport::new([answer(503), fail(ConnectionReset), answer(201)]);
    let stamped = Arc::new(AtomicU32::new(0));
    let stamps = Arc::clone(&stamped);
    let mut stack = ServiceBuilder::new()
        .layer(SteadfastLayer::new(client(no_backoff())))
        .map_request(move |mut request: Request| {
            let stamp = stamps.fetch_add(1, Relaxed) + 1;
            request.headers_mut().insert("x-stamp", stamp.into());
            request
        })
        .service(leaf(&transport));
    let response = stack.ready().await.unwrap().call(post()).await.unwrap();
    assert_eq!(response.attempts().unwrap().len(), 3);
    let seen = transport.seen();
    let stamps: Vec<_> = seen.iter().map(|seen| seen.header("x-stamp")[0]).collect();
    assert_eq!(stamps, ["1", "2", "3"]);
    assert!(one_key(&seen));
}

// tower: a client beneath a stack.
#[tokio::test]
async fn a_client_is_the_service_at_the_bottom_of_a_stack() {
    let server = Server::start([Reply::status(503), Reply::ok("done")]).await;
    let policy = quick().build().unwrap();
    let client = Client::builder(http().build().unwrap()).policy(policy).build();
    let request = Request::new(Method::POST, server.url("/").parse().unwrap());
    let mut stack = ServiceBuilder::new()
        .layer(TimeoutLayer::new(secs(10)))
        .layer(ConcurrencyLimitLayer::new(1))
        .service(client.clone());
    let response = stack.ready().await.unwrap().call(request).await.unwrap();
    assert_eq!(response.attempts().unwrap().outcome(), Outcome::Completed);
    assert_eq!(response.text().await.unwrap(), "done");
    assert_eq!(server.requests().len(), 2);
    // By reference too.
    let request = Request::new(Method::GET, server.url("/").parse().unwrap());
    assert_eq!((&client).oneshot(request).await.unwrap().status(), 500);
}

#[tokio::test(start_paused = true)]
async fn the_error_of_an_operation_comes_through_the_stack_above() {
    let transport = Transport::new([fail(ConnectionReset)]);
    let policy = no_backoff().max_attempts(1);
    let stack = ServiceBuilder::new()
        .layer(TimeoutLayer::new(secs(10)))
        .layer(SteadfastLayer::new(client(policy)))
        .service(leaf(&transport));
    let error = stack.oneshot(post()).await.unwrap_err();
    let error = error.downcast_ref::<Error>().unwrap();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Reset, Outcome::Unknown));
}

// tower: a timeout of a layer beneath is one, by its type.
#[tokio::test(start_paused = true)]
async fn a_timeout_of_a_layer_is_repeated_where_a_repeat_is_safe() {
    let client = client(no_backoff());
    let stack = |transport: &Transport| {
        let layers = ServiceBuilder::new().layer(TimeoutLayer::new(secs(1)));
        sender(layers.service(leaf(transport)))
    };
    let transport = Transport::new([hang(), answer(201)]);
    let response = client.post(URL).send_with(stack(&transport)).await.unwrap();
    let first = response.attempts().unwrap().iter().next().unwrap().clone();
    assert_eq!(
        (first.failure(), first.delivery()),
        (Some(ErrorKind::Timeout), Delivery::Unknown)
    );
    assert_eq!(first.took(), secs(1));
    assert!(one_key(&transport.seen()));

    let transport = Transport::new([hang()]);
    let error = keyless(&client).send_with(stack(&transport)).await.unwrap_err();
    assert_eq!(
        (error.stop_reason(), error.outcome()),
        (StopReason::NotReplaySafe, Outcome::Unknown)
    );
    assert_eq!(transport.seen().len(), 1);
}

// tower: what was shed was not sent.
#[tokio::test(start_paused = true)]
async fn a_request_that_a_layer_sheds_is_repeated_whatever_the_method() {
    let client = client(no_backoff().backoff(steadfast::Backoff::constant(secs(2))));
    let transport = Transport::new([after(secs(1), answer(200)), answer(201)]);
    let stack = ServiceBuilder::new()
        .layer(LoadShedLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(leaf(&transport))
        .boxed_clone();
    let busy = tokio::spawn(client.get(URL).send_with(sender(stack.clone())));
    sleep(millis(500)).await;
    let response = keyless(&client).send_with(sender(stack)).await.unwrap();
    let attempts = response.attempts().unwrap();
    let deliveries: Vec<_> = attempts.iter().map(|attempt| attempt.delivery()).collect();
    assert_eq!(deliveries, [Delivery::NotSent, Delivery::Answered]);
    assert!(attempts.exactly_once());
    assert_eq!(transport.times(), [secs(0), millis(2_500)]);
    assert_eq!(busy.await.unwrap().unwrap().status(), 200);
}

/// Counts how often it was made ready and called, and is ready only after a while.
#[derive(Clone)]
struct Slow {
    inner: Leaf,
    ready: Option<Arc<()>>,
    timer: Option<Arc<tokio::sync::Mutex<Pin<Box<tokio::time::Sleep>>>>>,
}

impl Slow {
    fn new(inner: Leaf) -> Self {
        let (ready, timer) = (None, None);
        Self { inner, ready, timer }
    }
}

impl Service<Request> for Slow {
    type Response = Response;
    type Error = BoxError;
    type Future = <Leaf as Service<Request>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let timer = self
            .timer
            .get_or_insert_with(|| Arc::new(tokio::sync::Mutex::new(Box::pin(sleep(millis(300))))));
        let mut timer = timer.try_lock().unwrap();
        std::task::ready!(timer.as_mut().poll(cx));
        self.ready = Some(Arc::default());
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        assert!(self.ready.take().is_some(), "called without being ready");
        self.inner.call(request)
    }
}

use std::future::Future;

#[tokio::test(start_paused = true)]
async fn each_attempt_waits_for_the_service_to_be_ready_inside_its_time() {
    let transport = Transport::new([answer(503), answer(200)]);
    let slow = sender(Slow::new(leaf(&transport)));
    client(no_backoff()).get(URL).send_with(slow).await.unwrap();
    assert_eq!(transport.times(), [millis(300), millis(600)]);

    let transport = Transport::new([]);
    let slow = sender(Slow::new(leaf(&transport)));
    let policy = no_backoff().attempt_timeout(millis(200)).max_attempts(1);
    let error = client(policy).get(URL).send_with(slow).await.unwrap_err();
    assert_eq!((error.kind(), transport.elapsed()), (ErrorKind::Timeout, millis(200)));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_makes_no_further_attempt() {
    let transport = Transport::new([hang(), answer(200)]);
    let layer = SteadfastLayer::new(client(no_backoff().attempt_timeout(secs(1))));
    let call = ServiceBuilder::new()
        .layer(layer)
        .service(leaf(&transport))
        .oneshot(post());
    tokio::time::timeout(millis(500), call).await.unwrap_err();
    sleep(secs(60)).await;
    assert_eq!(transport.seen().len(), 1);
}

// tower: a layer that fails in a way nobody knows is final, and its cause is kept.
#[tokio::test(start_paused = true)]
async fn a_failure_of_a_layer_that_is_not_recognised_is_final() {
    let failing = service_fn(|_: Request| async { Err::<Response, BoxError>("a layer".into()) });
    let error = client(no_backoff())
        .get(URL)
        .send_with(sender(failing))
        .await
        .unwrap_err();
    assert_eq!((error.kind(), error.attempts().len()), (ErrorKind::Other, 1));
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "a layer");
}

// tower: retries of a layer above do not change the key of an operation; each call of it is one.
#[tokio::test(start_paused = true)]
async fn a_buffer_of_tower_can_be_shared_by_many_operations() {
    let steps: Vec<Step> = (0..5).flat_map(|_| [answer(503), answer(200)]).collect();
    let transport = Transport::new(steps);
    let stack = ServiceBuilder::new()
        .buffer(8)
        .concurrency_limit(1)
        .service(leaf(&transport));
    let client = client(no_backoff());
    for _ in 0..5 {
        client.post(URL).send_with(sender(stack.clone())).await.unwrap();
    }
    let seen = transport.seen();
    assert_eq!(seen.len(), 10);
    for (first, second) in (0..10).step_by(2).map(|at| (&seen[at], &seen[at + 1])) {
        assert_eq!(first.key(), second.key());
    }
}

//! A client inside a client: the outer operation counts the inner one as one attempt, and believes what it says.
//!
//! Inside an attempt the inner operation makes one attempt itself. In a task of its own it is out of that scope, and may
//! make more.

use std::future::Future;
use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
use std::pin::Pin;
use std::sync::Mutex;

use reqwest::{Method, Request, Response};
use steadfast::{
    AttemptError, CircuitBreaker, CircuitState, Client, Delivery, ErrorKind, Outcome, RequestBuilder, ResponseExt,
    RetryBudget, StopReason, scope,
};
use tokio::time::sleep;

use crate::transport::{
    Part, Step, Transport, URL, answer, client, data, fail, fail_with, hang, millis, no_backoff, refused, secs,
};

/// Sends an outer operation of one client, each attempt of it an operation of another.
async fn nested(
    outer: &Client,
    inner: &Client,
    transport: &Transport,
    method: Method,
) -> Result<Response, steadfast::Error> {
    let attempt = |request: Request| {
        let inner = inner.execute_with(request, transport.send());
        async move { inner.await?.into_result() }
    };
    outer.request(method, URL).send_with(attempt).await
}

/// In a task of its own, and so out of the scope of the attempt.
async fn elsewhere<F: Future<Output: Send> + Send + 'static>(future: F) -> F::Output {
    tokio::spawn(future).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_inner_client_keeps_its_own_limits() {
    let inner = client(no_backoff().max_attempts(1).attempt_timeout(secs(2)).deadline(secs(3)));
    let transport = Transport::always(hang());
    let error = nested(&client(no_backoff()), &inner, &transport, Method::GET)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(transport.times(), [secs(0), secs(2), secs(4)]);
}

// R28: the wait the server asked for reaches the outer operation.
#[tokio::test(start_paused = true)]
async fn a_wait_the_inner_client_did_not_make_is_made_by_the_outer_one() {
    let inner = client(no_backoff().max_attempts(1));
    let transport = Transport::new([answer(429).header("retry-after", "5"), answer(200)]);
    nested(&client(no_backoff()), &inner, &transport, Method::POST)
        .await
        .unwrap();
    assert_eq!(transport.times(), [secs(0), secs(5)]);
}

// R32
#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_for_the_inner_client_is_not_undercut_by_the_outer_one() {
    let transport = Transport::always(answer(429).header("retry-after", "120"));
    let [outer, inner] = [client(no_backoff()), client(no_backoff())];
    let error = nested(&outer, &inner, &transport, Method::GET).await.unwrap_err();
    assert_eq!(transport.seen().len(), 1);
    assert_eq!(error.stop_reason(), StopReason::RetryAfter { asked: secs(120) });
    assert_eq!(error.status().map(|status| status.as_u16()), Some(429));
    assert_eq!(error.retry_after(), Some(secs(120)));
    assert_eq!(error.outcome(), Outcome::NotDone);
}

// field 26
#[tokio::test(start_paused = true)]
async fn what_the_inner_operation_completed_is_completed() {
    let cut = answer(201).announced(100, [data("half"), Part::Cut(UnexpectedEof)]);
    let transport = Transport::always(cut);
    let inner = client(no_backoff());
    let attempt = |request: Request| inner.execute_with(request, transport.send());
    let request = client(no_backoff()).post(URL).without_idempotency_key();
    let error = request.send_with(attempt).await.unwrap_err();
    assert_eq!(transport.seen().len(), 1);
    assert_eq!(error.outcome(), Outcome::Completed);
    assert_eq!(error.kind(), ErrorKind::Body);
    assert_eq!(error.status().map(|status| status.as_u16()), Some(201));
}

// R10
#[tokio::test(start_paused = true)]
async fn what_the_inner_operation_left_unknown_is_unknown() {
    let transport = Transport::always(fail(ConnectionReset));
    let inner = client(no_backoff());
    let attempt = |request: Request| inner.execute_with(request, transport.send());
    let request = client(no_backoff()).post(URL).without_idempotency_key();
    let error = request.send_with(attempt).await.unwrap_err();
    assert_eq!(transport.seen().len(), 1);
    assert_eq!(error.outcome(), Outcome::Unknown);
    let deliveries: Vec<_> = error.attempts().iter().map(|attempt| attempt.delivery()).collect();
    assert_eq!(deliveries, [Delivery::Unknown]);
}

#[tokio::test(start_paused = true)]
async fn one_key_goes_through_both() {
    let transport = Transport::new([answer(502), answer(502), answer(201)]);
    let inner = client(no_backoff().max_attempts(2).min_attempt_time(millis(1)));
    nested(&client(no_backoff()), &inner, &transport, Method::POST)
        .await
        .unwrap();
    let seen = transport.seen();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|request| request.key() == seen[0].key()));
}

#[tokio::test(start_paused = true)]
async fn the_attempts_of_the_inner_operation_count_by_what_the_outer_one_knows_of_the_key() {
    // The key is the outer client's own: that the service looks at it is an assumption.
    let transport = Transport::new([answer(500), answer(200)]);
    let attempt = |request: Request| client(no_backoff()).execute_with(request, transport.send());
    let request = client(no_backoff()).post(URL);
    let response = request.send_with(attempt).await.unwrap();
    assert_eq!(response.outcome(), Some(Outcome::Completed));
    assert!(!response.attempts().unwrap().exactly_once());

    for refusal in [422, 403] {
        let transport = Transport::new([fail(ConnectionReset), answer(refusal)]);
        let attempt = |request: Request| client(no_backoff()).execute_with(request, transport.send());
        let response = client(no_backoff()).post(URL).send_with(attempt).await.unwrap();
        assert_eq!(response.outcome(), Some(Outcome::Unknown), "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_inner_answer_that_was_led_astray_confirms_nothing() {
    let transport = Transport::always(answer(200).url("https://api.example.com/receipt"));
    let attempt = |request: Request| client(no_backoff()).execute_with(request, transport.send());
    let response = client(no_backoff()).post(URL).send_with(attempt).await.unwrap();
    assert_eq!(response.outcome(), Some(Outcome::Unknown));

    let transport = Transport::always(answer(302));
    let attempt = |request: Request| client(no_backoff()).execute_with(request, transport.send());
    let response = client(no_backoff()).post(URL).send_with(attempt).await.unwrap();
    assert_eq!(response.outcome(), Some(Outcome::NotDone));
}

// R42: a safe method is not done, and may have been received all the same.
#[tokio::test(start_paused = true)]
async fn an_inner_get_that_may_have_been_received_is_not_repeated_where_that_is_forbidden() {
    let transport = Transport::always(fail(ConnectionReset));
    let inner = client(no_backoff().max_attempts(1));
    let attempt = |request: Request| inner.execute_with(request, transport.send());
    let forbidden = client(no_backoff()).get(URL).replay_safe(false);
    let error = forbidden.send_with(attempt).await.unwrap_err();
    assert_eq!(transport.seen().len(), 1);
    assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
    assert_eq!(error.outcome(), Outcome::Unknown);
}

// field 27
#[tokio::test(start_paused = true)]
async fn an_inner_error_is_recognised_in_what_wraps_it() {
    let transport = Transport::new([fail(ConnectionReset), refused(), refused()]);
    let inner = client(no_backoff());
    let attempt = |request: Request| {
        let inner = elsewhere(inner.execute_with(request, transport.send()));
        async move { inner.await.map_err(std::io::Error::other) }
    };
    let request = client(no_backoff().max_attempts(1)).post(URL);
    let error = request.send_with(attempt).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(error.kind(), ErrorKind::Connect);
}

// R10: the last answer does not speak for the attempts before it.
#[tokio::test(start_paused = true)]
async fn a_refusal_after_an_inner_attempt_that_may_have_acted_is_not_repeated_without_protection() {
    for first in [answer(500), answer(200).announced(9, [Part::Cut(UnexpectedEof)])] {
        let transport = Transport::new([first, answer(429)]);
        let attempt = |_| {
            let send = transport.send();
            elsewhere(async { client(no_backoff().max_attempts(2)).post(URL).send_with(send).await })
        };
        let request = client(no_backoff()).post(URL).without_idempotency_key();
        let response = request.send_with(attempt).await.unwrap();
        assert_eq!(transport.seen().len(), 2);
        let attempts = response.attempts().unwrap();
        assert_eq!(attempts.stop_reason(), StopReason::NotReplaySafe);
        assert_ne!(attempts.outcome(), Outcome::NotDone);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_body_keeps_the_record_of_the_inner_operation() {
    let cut = answer(200).chunked([data("event"), Part::Cut(UnexpectedEof)]);
    let flowing = cut.header("content-type", "text/event-stream");
    let transport = Transport::new([answer(500), flowing]);
    let attempt = |request: Request| elsewhere(client(no_backoff()).execute_with(request, transport.send()));
    let request = client(no_backoff().max_attempts(1)).post(URL).buffered();
    let error = request.send_with(attempt).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Body);
    assert_eq!(error.outcome(), Outcome::Completed);
    assert!(!error.attempts().exactly_once());
}

// R2: the inner client says that its request was not sent, and it had the body in its own hands.
#[tokio::test(start_paused = true)]
async fn what_the_inner_operation_never_sent_is_repeated_whatever_the_method() {
    let unsent = fail_with(|| AttemptError::not_sent("a full queue"));
    let transport = Transport::new([unsent, answer(200)]);
    let inner = client(no_backoff().max_attempts(1));
    let attempt = |request: Request| inner.execute_with(request, transport.send());
    let request = client(no_backoff()).post(URL).without_idempotency_key().body("x");
    let response = request.send_with(attempt).await.unwrap();
    assert_eq!(transport.seen().len(), 2);
    assert_eq!(response.outcome(), Some(Outcome::Completed));
    assert!(response.attempts().unwrap().exactly_once());
}

// R39: the attempts of both are one, and take one place of a probe.
#[tokio::test(start_paused = true)]
async fn a_client_inside_itself_counts_each_attempt_once_and_recovers_with_one_probe() {
    let circuit = CircuitBreaker::default().minimum_throughput(2).half_open_probes(1);
    let client = client(no_backoff().max_attempts(1).circuit_breaker(circuit));
    let transport = Transport::new([answer(500), answer(500), answer(200)]);
    let send = || {
        let inner = |request: Request| client.execute_with(request, transport.send());
        client.get(URL).send_with(inner)
    };
    let status = || client.circuits().get("https://api.example.com").unwrap();
    send().await.unwrap();
    assert_eq!((status().calls(), status().state()), (1, CircuitState::Closed));
    send().await.unwrap();
    assert_eq!(status().state(), CircuitState::Open);
    sleep(secs(5)).await;
    assert_eq!(send().await.unwrap().status(), 200);
    assert_eq!(status().state(), CircuitState::Closed);
}

// field 41
#[tokio::test(start_paused = true)]
async fn a_client_inside_itself_deposits_once() {
    let client = client(no_backoff().max_attempts(2).budget(RetryBudget::new(0.5, 2)));
    let send = async |steps: [Step; 2]| {
        let transport = Transport::new(steps);
        let inner = |request: Request| client.execute_with(request, transport.send());
        client.get(URL).send_with(inner).await.unwrap();
        client.circuits().get("https://api.example.com").unwrap().tokens()
    };
    assert_eq!(send([answer(503), answer(503)]).await, Some(1.0));
    assert_eq!(send([answer(503), answer(200)]).await, Some(0.5));
}

// R37
#[tokio::test(start_paused = true)]
async fn the_circuit_of_an_inner_client_counts_where_the_outer_one_has_none() {
    let outer = client(no_backoff().max_attempts(1));
    let circuit = CircuitBreaker::default().minimum_throughput(2);
    let policy = no_backoff().circuit_breaker(circuit).build().unwrap();
    let inner = Client::builder(reqwest::Client::new()).policy(policy);
    let inner = inner.pipeline(outer.pipeline().clone()).build();
    let transport = Transport::always(answer(500));
    let send = || {
        outer
            .get(URL)
            .send_with(|request: Request| inner.execute_with(request, transport.send()))
    };
    send().await.unwrap();
    send().await.unwrap();
    let error = send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    assert_eq!(transport.seen().len(), 2);
}

// R39: whatever is between them.
#[tokio::test(start_paused = true)]
async fn a_group_inside_another_inside_itself_recovers_with_one_probe() {
    let circuit = CircuitBreaker::default().minimum_throughput(1).half_open_probes(1);
    let client = client(no_backoff().max_attempts(1).circuit_breaker(circuit));
    let failing = Transport::always(answer(500));
    client.get(URL).circuit("a").send_with(failing.send()).await.unwrap();
    sleep(secs(5)).await;
    let healthy = Transport::always(answer(200));
    let (client, healthy) = (&client, &healthy);
    let response = client.get(URL).circuit("a").send_with(move |_: Request| {
        let inner = move |_: Request| client.get(URL).circuit("a").send_with(healthy.send());
        client.get(URL).circuit("b").send_with(inner)
    });
    assert_eq!(response.await.unwrap().status(), 200);
    assert_eq!(client.circuits().get("a").unwrap().state(), CircuitState::Closed);
}

// R37
#[tokio::test(start_paused = true)]
async fn a_task_that_outlives_its_attempt_is_guarded_like_any_other() {
    let circuit = CircuitBreaker::default().minimum_throughput(1);
    let client = client(no_backoff().max_attempts(1).circuit_breaker(circuit));
    let kept = Mutex::new(None);
    let failing = Transport::always(answer(500));
    let keeping = |request: Request| {
        *kept.lock().unwrap() = Some(scope::current());
        failing.send()(request)
    };
    client.get(URL).send_with(keeping).await.unwrap();
    let scope = kept.lock().unwrap().take().unwrap();
    let healthy = Transport::always(answer(200));
    let error = scope
        .enter(client.get(URL).send_with(healthy.send()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
}

#[tokio::test(start_paused = true)]
async fn an_operator_also_stops_what_waits_inside_an_attempt() {
    let client = client(no_backoff().max_attempts(1));
    let transport = Transport::always(answer(200));
    let (client, sent) = (&client, &transport);
    let queued = client.get(URL).send_with(move |request: Request| async move {
        sleep(secs(2)).await;
        client.execute_with(request, sent.send()).await
    });
    let (result, ()) = tokio::join!(queued, async {
        sleep(secs(1)).await;
        client.circuits().force_open("https://api.example.com");
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::CircuitOpen);
    assert_eq!(transport.seen().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_service_is_told_the_number_of_the_attempt_it_gets_through_both() {
    let client = client(no_backoff().scope_headers(true));
    let transport = Transport::always(answer(503));
    nested(&client, &client, &transport, Method::GET).await.unwrap_err();
    let numbers: Vec<_> = transport
        .seen()
        .iter()
        .map(|seen| seen.header("steadfast-attempt").concat())
        .collect();
    assert_eq!(numbers, ["1", "2", "3"]);
}

// R39
#[tokio::test(start_paused = true)]
async fn the_scope_of_an_attempt_that_is_over_does_not_hide_the_one_under_way() {
    let circuit = CircuitBreaker::default().minimum_throughput(1).half_open_probes(1);
    let client = client(no_backoff().max_attempts(1).circuit_breaker(circuit));
    let kept = Mutex::new(None);
    let failing = Transport::always(answer(500));
    let keeping = |request: Request| {
        *kept.lock().unwrap() = Some(scope::current());
        failing.send()(request)
    };
    client.get(URL).send_with(keeping).await.unwrap();
    sleep(secs(5)).await;
    let over = kept.lock().unwrap().take().unwrap();
    let healthy = Transport::always(answer(200));
    let entering = |request: Request| over.clone().enter(client.execute_with(request, healthy.send()));
    let response = client.get(URL).send_with(entering).await.unwrap();
    assert_eq!(response.status(), 200);
}

/// What is told of a payment that was made, by a sender that then fails over something else. The number of payments comes with it.
async fn after_paying(
    request: RequestBuilder,
    fail: impl Fn() -> BoxFuture<AttemptError> + Send + Sync,
) -> (usize, Outcome) {
    let service = Transport::always(answer(201));
    let error = request
        .send_with(|paid: Request| {
            let (paying, failing) = (service.send()(paid), fail());
            async move {
                paying.await?;
                Err::<Response, _>(failing.await)
            }
        })
        .await
        .unwrap_err();
    (service.seen().len(), error.outcome())
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The ways in which another request fails without anything being done.
fn failures_of_another_request() -> [fn() -> BoxFuture<AttemptError>; 4] {
    const OTHER: &str = "https://audit.example.com/";
    async fn audit(client: &Client, step: Step) -> AttemptError {
        let audit = client.post(OTHER).send_with(Transport::always(step).send());
        audit.await.and_then(ResponseExt::into_result).unwrap_err().into()
    }
    [
        || Box::pin(async { audit(&client(no_backoff()), refused()).await }),
        || Box::pin(async { audit(&client(no_backoff()), answer(404).url(OTHER)).await }),
        || {
            Box::pin(async {
                let client = client(no_backoff());
                client.circuits().force_open("https://audit.example.com");
                audit(&client, answer(200)).await
            })
        },
        // Nobody listens at port 0.
        || {
            Box::pin(async {
                let http = reqwest::Client::builder().no_proxy().build().unwrap();
                http.post("http://127.0.0.1:0/").send().await.unwrap_err().into()
            })
        },
    ]
}

// R10
#[tokio::test]
async fn a_failure_of_another_request_does_not_unmake_what_this_one_did() {
    for fail in failures_of_another_request() {
        let client = client(no_backoff());
        let (payments, outcome) = after_paying(client.post(URL).without_idempotency_key(), fail).await;
        assert_eq!((payments, outcome), (1, Outcome::Unknown));
        let (_, outcome) = after_paying(client.post(URL), fail).await;
        assert_eq!(outcome, Outcome::Unknown);
    }
}

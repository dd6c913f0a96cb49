//! The limits around a call, kept by everything inside: a caller's deadline, and who repeats what.

use std::io::ErrorKind::ConnectionReset;
use std::sync::{Mutex, OnceLock};

use reqwest::{Body, Request, Response};
use steadfast::{
    Attempts, Backoff, Client, Error, ErrorKind, Operation, Outcome, Policy, RequestBuilder, ResponseExt, StopReason,
    scope,
};
use tokio::time::{Instant, sleep};

use crate::transport::{
    Part, Seen, Step, Transport, URL, after, answer, client, data, fail, hang, key, millis, no_backoff, pause, secs,
};

async fn get(client: &Client, transport: &Transport) -> Result<Response, Error> {
    client.get(URL).send_with(transport.send()).await
}

fn stop_reason(result: &Result<Response, Error>) -> StopReason {
    match result {
        Ok(response) => response.attempts().unwrap().stop_reason(),
        Err(error) => error.stop_reason(),
    }
}

// R32
#[tokio::test(start_paused = true)]
async fn a_schedule_is_no_longer_than_what_the_caller_has_left() {
    let client = client(no_backoff());
    let transport = Transport::always(hang());
    let deadline = Instant::now() + secs(2);
    let error = scope::with_deadline(deadline, get(&client, &transport))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.stop_reason(), StopReason::Deadline);
    assert_eq!(transport.times(), [secs(0)]);
    assert_eq!(transport.elapsed(), secs(2));
}

// R32
#[tokio::test(start_paused = true)]
async fn a_wait_longer_than_what_the_caller_has_left_is_not_made() {
    let client = client(no_backoff());
    let transport = Transport::always(answer(429).header("retry-after", "20"));
    let deadline = Instant::now() + secs(10);
    let result = scope::with_deadline(deadline, get(&client, &transport)).await;
    assert_eq!(stop_reason(&result), StopReason::RetryAfter { asked: secs(20) });
    assert_eq!(result.unwrap().status(), 429);
    assert_eq!(transport.elapsed(), secs(0));
}

// R32
#[tokio::test(start_paused = true)]
async fn a_wait_of_its_own_that_is_longer_than_what_the_caller_has_left_is_not_made_either() {
    let client = client(Policy::builder().backoff(Backoff::constant(secs(3))));
    let transport = Transport::always(answer(503).body("busy"));
    let deadline = Instant::now() + secs(2);
    let result = scope::with_deadline(deadline, get(&client, &transport)).await;
    assert_eq!(stop_reason(&result), StopReason::Deadline);
    assert_eq!(result.unwrap().text().await.unwrap(), "busy");
    assert_eq!((transport.seen().len(), transport.elapsed()), (1, secs(0)));
}

// R32
#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_passed_lets_no_attempt_begin() {
    let client = client(no_backoff());
    let transport = Transport::always(answer(200));
    let deadline = Instant::now();
    sleep(millis(1)).await;
    let error = scope::with_deadline(deadline, get(&client, &transport))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadline);
    assert_eq!(error.outcome(), Outcome::NotDone);
    assert_eq!(transport.seen().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_scope_does_not_lengthen_the_deadline_of_a_policy() {
    let client = client(no_backoff().deadline(secs(3)));
    let transport = Transport::always(hang());
    let deadline = Instant::now() + secs(60);
    scope::with_deadline(deadline, get(&client, &transport))
        .await
        .unwrap_err();
    assert_eq!(transport.elapsed(), secs(3));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_scope_is_one_for_all_calls_inside() {
    let client = client(no_backoff());
    let transport = Transport::always(after(secs(2), answer(200)));
    let calls = async {
        get(&client, &transport).await.unwrap();
        get(&client, &transport).await.unwrap();
        get(&client, &transport).await.unwrap_err()
    };
    scope::with_deadline(Instant::now() + secs(5), calls).await;
    assert_eq!(transport.times(), [secs(0), secs(2), secs(4)]);
    assert_eq!(transport.elapsed(), secs(5));
}

// R31
#[tokio::test(start_paused = true)]
async fn where_something_else_repeats_the_call_there_is_one_attempt() {
    let client = client(no_backoff());
    let transport = Transport::always(answer(503).header("retry-after", "7").body("busy"));
    let result = scope::without_retries(get(&client, &transport)).await;
    assert_eq!(stop_reason(&result), StopReason::Scope);
    let response = result.unwrap();
    // What it asked for is for the one who repeats.
    let asked = response.attempts().unwrap().iter().next().unwrap().retry_after();
    assert_eq!(asked, Some(secs(7)));
    assert_eq!(response.text().await.unwrap(), "busy");
    assert_eq!(transport.seen().len(), 1);

    let transport = Transport::always(fail(ConnectionReset));
    let error = scope::without_retries(get(&client, &transport)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.stop_reason()),
        (ErrorKind::Reset, StopReason::Scope)
    );
    assert_eq!(transport.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_final_anyway_says_so_in_a_scope_too() {
    let [client, once] = [client(no_backoff()), client(no_backoff().max_attempts(1))];
    let transport = Transport::new([answer(200), answer(404), answer(503)]);
    let results = async {
        let [done, refused] = [get(&client, &transport).await, get(&client, &transport).await];
        [done, refused, get(&once, &transport).await]
    };
    let stops = scope::without_retries(results).await.map(|result| stop_reason(&result));
    assert_eq!(
        stops,
        [StopReason::Done, StopReason::NotRetryable, StopReason::MaxAttempts]
    );
}

// R31
#[tokio::test(start_paused = true)]
async fn layers_do_not_multiply() {
    let [outer, middle, inner] = [client(no_backoff()), client(no_backoff()), client(no_backoff())];
    let transport = Transport::always(answer(503));
    let (inner, sent) = (&inner, &transport);
    let result = outer.get(URL).send_with(|request: Request| {
        middle.execute_with(request, move |request| inner.execute_with(request, sent.send()))
    });
    assert_eq!(result.await.unwrap().status(), 503);
    assert_eq!(transport.seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_inner_operation_is_over_with_the_attempt_around_it() {
    let outer = client(no_backoff().max_attempts(1).attempt_timeout(secs(2)));
    let inner = client(no_backoff().attempt_timeout(secs(9)));
    let transport = Transport::always(hang());
    let remaining = Mutex::new(None);
    let error = outer.get(URL).send_with(|request: Request| {
        *remaining.lock().unwrap() = scope::remaining();
        inner.execute_with(request, transport.send())
    });
    error.await.unwrap_err();
    assert_eq!(*remaining.lock().unwrap(), Some(secs(2)));
    assert_eq!(transport.elapsed(), secs(2));
    assert_eq!(scope::remaining(), None);
}

/// An event each five seconds, for half a minute.
fn events() -> Step {
    let event = [pause(secs(5)), data("event")];
    let events: Vec<Part> = event.into_iter().cycle().take(12).collect();
    answer(200).header("content-type", "text/event-stream").chunked(events)
}

// field 16
#[tokio::test(start_paused = true)]
async fn the_end_of_an_attempt_does_not_cut_the_body_that_an_inner_client_hands_over() {
    let [outer, inner] = [client(no_backoff()), client(no_backoff())];
    let transport = Transport::always(events());
    let nested = |request: Request| inner.execute_with(request, transport.send());
    let response = outer.get(URL).send_with(nested).await.unwrap();
    assert_eq!(response.text().await.unwrap(), "event".repeat(6));
    assert_eq!(transport.elapsed(), secs(30));
}

// field 16
#[tokio::test(start_paused = true)]
async fn a_deadline_somebody_set_cuts_a_body_that_was_handed_over() {
    let [outer, inner] = [client(no_backoff()), client(no_backoff())];
    let send = async |request: RequestBuilder| {
        let transport = Transport::always(events());
        let nested = |request: Request| inner.execute_with(request, transport.send());
        let response = request.send_with(nested).await.unwrap();
        assert!(response.text().await.unwrap_err().is_timeout());
        transport.elapsed()
    };
    let deadline = Instant::now() + secs(12);
    assert_eq!(scope::with_deadline(deadline, send(outer.get(URL))).await, secs(12));
    assert_eq!(send(outer.get(URL).deadline(secs(12))).await, secs(12));
}

#[tokio::test(start_paused = true)]
async fn a_task_takes_the_scope_along_if_it_is_told_to() {
    let client = client(no_backoff());
    let transport = Transport::always(answer(503));
    let call = || {
        let (client, send) = (client.clone(), transport.send());
        async move { client.get(URL).send_with(send).await }
    };
    scope::without_retries(async {
        tokio::spawn(call()).await.unwrap().unwrap();
        assert_eq!(transport.seen().len(), 3);
        let inside = tokio::spawn(scope::current().enter(call())).await.unwrap();
        assert_eq!(stop_reason(&inside), StopReason::Scope);
        assert_eq!(transport.seen().len(), 4);
    })
    .await;
}

/// What an inner client makes of an answer under the key it is given, after an attempt that may have acted.
async fn inside(request: RequestBuilder, last: Step) -> Attempts {
    let inner = client(no_backoff());
    let transport = Transport::new([fail(ConnectionReset), answer(404)]);
    let (inner, sent, kept) = (&inner, &transport, &OnceLock::<Operation>::new());
    let nested = |request: Request| {
        let operation = kept.get_or_init(|| inner.operation(request).unwrap());
        operation.send_with(sent.send())
    };
    request.send_with(nested).await.unwrap();
    let operation = kept.get().unwrap();
    let response = operation.send_with(Transport::always(last).send()).await.unwrap();
    response.attempts().unwrap().clone()
}

// R10: that the service honours the key is no better known inside than outside.
#[tokio::test(start_paused = true)]
async fn an_inner_client_does_not_take_an_assumed_key_for_a_declared_one() {
    let outer = client(no_backoff());
    let declared = || outer.post(URL).idempotency_key(key("order-4711"));
    assert_eq!(inside(outer.post(URL), answer(404)).await.outcome(), Outcome::Unknown);
    assert_eq!(inside(declared(), answer(404)).await.outcome(), Outcome::NotDone);
    assert!(!inside(outer.post(URL), answer(200)).await.exactly_once());
    assert!(inside(declared(), answer(200)).await.exactly_once());
}

fn told(transport: &Transport, name: &str) -> Vec<Vec<String>> {
    let lines = |seen: &Seen| seen.header(name).iter().map(ToString::to_string).collect();
    transport.seen().iter().map(lines).collect()
}

#[tokio::test(start_paused = true)]
async fn a_service_is_told_of_the_attempt_if_the_policy_says_so() {
    let client = client(
        no_backoff()
            .attempt_timeout(secs(4))
            .deadline(secs(6))
            .scope_headers(true),
    );
    let transport = Transport::always(after(secs(2), answer(503)));
    let by_hand = client.get(URL).header("steadfast-attempt", "99");
    let by_hand = by_hand
        .header("steadfast-remaining-ms", "99")
        .header("steadfast-no-retry", "0");
    by_hand.send_with(transport.send()).await.unwrap();
    assert_eq!(told(&transport, scope::ATTEMPT.as_str()), [["1"], ["2"], ["3"]]);
    assert_eq!(
        told(&transport, scope::REMAINING_MS.as_str()),
        [["4000"], ["4000"], ["2000"]]
    );
    assert_eq!(told(&transport, scope::NO_RETRY.as_str()), [["1"], ["1"], ["1"]]);
}

#[tokio::test(start_paused = true)]
async fn a_service_is_told_not_to_repeat_only_where_somebody_before_it_does() {
    let once = client(no_backoff().max_attempts(1).scope_headers(true));
    let transport = Transport::always(answer(200));
    get(&once, &transport).await.unwrap();
    scope::without_retries(get(&once, &transport)).await.unwrap();
    let none: [&str; 0] = [];
    // A stream is sent once, whatever the policy says.
    let stream = Body::wrap(http_body_util::Full::new(bytes::Bytes::from("x")));
    let client = client(no_backoff().scope_headers(true));
    client.post(URL).body(stream).send_with(transport.send()).await.unwrap();
    let told = told(&transport, scope::NO_RETRY.as_str());
    assert_eq!(told[0], none);
    assert_eq!(told[1], ["1"]);
    assert_eq!(told[2], none);
}

#[tokio::test(start_paused = true)]
async fn by_default_a_service_is_told_nothing() {
    let transport = Transport::always(answer(503));
    get(&client(no_backoff()), &transport).await.unwrap();
    for seen in transport.seen() {
        let names = seen.headers.keys().map(|name| name.as_str());
        assert_eq!(names.filter(|name| name.starts_with("steadfast")).count(), 0);
    }
}

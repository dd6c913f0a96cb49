//! Answers by their status, and the waits they ask for.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use steadfast::{Backoff, Delivery, Outcome, ResponseExt, StopReason};
use tokio::time::Instant;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::server::{Reply, Server};
use crate::wire::{Call, client, ms, quick};

const SECOND: Duration = Duration::from_secs(1);

/// Answers with the status that the path names, such as `/503`.
async fn mirror() -> MockServer {
    let server = MockServer::start().await;
    let answer = |request: &wiremock::Request| ResponseTemplate::new(named(request));
    Mock::given(any()).respond_with(answer).mount(&server).await;
    server
}

fn named(request: &wiremock::Request) -> u16 {
    request.url.path()[1..].parse().unwrap()
}

async fn count_by_status(server: &MockServer) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for request in server.received_requests().await.unwrap() {
        *counts.entry(named(&request)).or_default() += 1;
    }
    counts
}

/// Sends the call to every status and counts the requests of each that reached the server.
async fn sweep(call: Call, retried: &[u16]) {
    let server = mirror().await;
    let client = client(quick());
    for status in 200..=599 {
        let url = format!("{}/{status}", server.uri());
        let response = call.to(&client, url).send().await.unwrap();
        assert_eq!(response.status(), status);
        let expected = if retried.contains(&status) {
            StopReason::MaxAttempts
        } else if status < 400 {
            StopReason::Done
        } else if call == Call::Keyless && [500, 502, 503, 504].contains(&status) {
            StopReason::NotReplaySafe
        } else {
            StopReason::NotRetryable
        };
        assert_eq!(response.attempts().unwrap().stop_reason(), expected, "{status}");
    }
    let requests = |status| if retried.contains(&status) { 3 } else { 1 };
    let expected: BTreeMap<_, _> = (200..=599).map(|status| (status, requests(status))).collect();
    assert_eq!(count_by_status(&server).await, expected);
}

// R1, R7, R27
#[tokio::test]
async fn a_get_is_repeated_after_429_500_502_503_and_504_only() {
    sweep(Call::Get, &[429, 500, 502, 503, 504]).await;
}

// R5, R9, R27
#[tokio::test]
async fn a_keyed_post_is_repeated_after_429_500_502_503_and_504_only() {
    sweep(Call::Keyed, &[429, 500, 502, 503, 504]).await;
}

// R2, R9, R27, field 22
#[tokio::test]
async fn a_keyless_post_is_repeated_after_429_only() {
    sweep(Call::Keyless, &[429]).await;
}

// R5
#[tokio::test]
async fn a_success_after_502_503_and_504_ends_the_operation() {
    for status in [502, 503, 504] {
        let server = Server::start([Reply::status(status), Reply::ok("done")]).await;
        let response = client(quick()).get(server.url("/")).send().await.unwrap();
        assert_eq!(response.outcome(), Some(Outcome::Completed));
        assert_eq!(response.text().await.unwrap(), "done");
        assert_eq!(server.requests().len(), 2, "{status}");
    }
}

// R8: an auth provider is not hammered with a refused token.
#[tokio::test]
async fn a_401_is_asked_once_whatever_the_method() {
    let server = Server::repeat(Reply::status(401).header("Retry-After", "0")).await;
    for call in Call::ALL {
        let request = call.to(&client(quick()), server.url("/")).bearer_auth("token");
        let response = request.send().await.unwrap();
        assert_eq!(response.outcome(), Some(Outcome::NotDone), "{call:?}");
    }
    assert_eq!(server.requests().len(), 3);
}

async fn requests_of(method: Method, replay_safe: Option<bool>) -> usize {
    let server = Server::repeat(Reply::status(500)).await;
    let mut request = client(quick())
        .request(method, server.url("/"))
        .without_idempotency_key();
    if let Some(safe) = replay_safe {
        request = request.replay_safe(safe);
    }
    request.send().await.unwrap();
    server.requests().len()
}

// R42
#[tokio::test]
async fn idempotent_methods_are_repeated_without_a_key() {
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE] {
        assert_eq!(requests_of(method.clone(), None).await, 3, "{method}");
    }
}

// R43
#[tokio::test]
async fn post_and_patch_are_not_repeated_without_a_key() {
    for method in [Method::POST, Method::PATCH] {
        assert_eq!(requests_of(method.clone(), None).await, 1, "{method}");
    }
}

// R43: a PUT with a counter in it.
#[tokio::test]
async fn a_put_the_caller_calls_unsafe_is_not_repeated() {
    assert_eq!(requests_of(Method::PUT, Some(false)).await, 1);
}

// R43
#[tokio::test]
async fn a_keyless_post_the_caller_vouches_for_is_repeated() {
    assert_eq!(requests_of(Method::POST, Some(true)).await, 3);
}

/// A refusal with these header lines, then a success.
async fn refusing_once(status: u16, lines: &[(&str, &str)]) -> Server {
    let refusal = lines
        .iter()
        .fold(Reply::status(status), |reply, (name, value)| reply.header(name, value));
    Server::start([refusal, Reply::ok("done")]).await
}

/// How long after the first request the second one came.
fn gap(server: &Server) -> Duration {
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    requests[1].at - requests[0].at
}

// R6, R28, field 3, field 8: exactly `max_retry_after` is allowed, and the jitter comes on top.
#[tokio::test]
async fn retry_after_seconds_are_waited_for() {
    let server = refusing_once(429, &[("Retry-After", "1")]).await;
    let jitter = Backoff::full_jitter(ms(50), ms(50));
    let client = client(quick().backoff(jitter).max_retry_after(SECOND));
    let response = client.get(server.url("/")).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(gap(&server) >= SECOND);
    let attempts = response.attempts().unwrap();
    let first = attempts.iter().next().unwrap();
    assert_eq!(first.retry_after(), Some(SECOND));
    assert!(first.waited() >= Some(SECOND));
}

// R6, field 6: what the clock of this machine says does not matter beside the answer's own `Date`.
#[tokio::test]
async fn a_retry_after_date_is_measured_from_the_date_of_the_answer() {
    let now = ("Date", "Sun, 06 Nov 1994 12:00:00 GMT");
    let then = ("Retry-After", "Sun, 06 Nov 1994 12:00:01 GMT");
    let server = refusing_once(503, &[now, then]).await;
    client(quick()).get(server.url("/")).send().await.unwrap();
    assert!(gap(&server) >= SECOND);
}

// field 9
#[tokio::test]
async fn retry_after_ms_wins_over_retry_after() {
    let server = refusing_once(503, &[("Retry-After", "60"), ("retry-after-ms", "300")]).await;
    client(quick()).get(server.url("/")).send().await.unwrap();
    assert!(gap(&server) >= ms(300));
}

// field 1, field 5, field 7: nothing is asked for, so only the (zero) backoff counts.
#[tokio::test]
async fn zero_past_and_malformed_retry_after_ask_for_no_wait() {
    let past = "Sun, 06 Nov 1994 12:00:00 GMT";
    for value in ["0", past, "-3", "0x10", "1e3", "inf", "nan", "", "10, 20"] {
        let server = refusing_once(503, &[("Retry-After", value)]).await;
        let response = client(quick()).get(server.url("/")).send().await.unwrap();
        let attempts = response.attempts().unwrap();
        assert_eq!(
            attempts.iter().next().unwrap().waited(),
            Some(Duration::ZERO),
            "{value:?}"
        );
        assert_eq!(server.requests().len(), 2, "{value:?}");
    }
}

/// The answer is given back at once, and its record says what was asked for.
async fn assert_not_waited_for(value: &str, asked: Duration) {
    let server = refusing_once(503, &[("Retry-After", value)]).await;
    let started = Instant::now();
    let client = client(quick().max_retry_after(Duration::MAX));
    let response = client.post(server.url("/")).send().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(10), "{value}");
    assert_eq!(response.status(), 503);
    let attempts = response.attempts().unwrap();
    assert_eq!(attempts.stop_reason(), StopReason::RetryAfter { asked });
    assert_eq!(attempts.outcome(), Outcome::NotDone);
    assert_eq!(server.requests().len(), 1, "{value}");
}

// field 2
#[tokio::test]
async fn a_wait_of_the_whole_deadline_or_longer_is_not_begun() {
    for seconds in [30, 60] {
        assert_not_waited_for(&seconds.to_string(), Duration::from_secs(seconds)).await;
    }
}

// field 4
#[tokio::test]
async fn a_retry_after_of_any_size_stops_without_an_overflow() {
    assert_not_waited_for("9999999999", Duration::from_secs(9_999_999_999)).await;
    assert_not_waited_for(&"9".repeat(30), Duration::from_secs(u64::MAX)).await;
}

// field 3: the caller learns the value, not the cap.
#[tokio::test]
async fn a_retry_after_above_the_cap_is_told_uncapped() {
    let server = refusing_once(429, &[("Retry-After", "2")]).await;
    let client = client(quick().max_retry_after(SECOND));
    let error = client
        .get(server.url("/"))
        .send()
        .await
        .unwrap()
        .into_result()
        .unwrap_err();
    assert_eq!(error.retry_after(), Some(SECOND * 2));
    assert_eq!(error.stop_reason(), StopReason::RetryAfter { asked: SECOND * 2 });
    assert_eq!(server.requests().len(), 1);
}

// field 10
#[tokio::test]
async fn retry_after_on_200_301_and_400_changes_nothing() {
    for status in [200, 301, 400] {
        let server = refusing_once(status, &[("Retry-After", "0")]).await;
        let response = client(quick()).get(server.url("/")).send().await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(server.requests().len(), 1, "{status}");
    }
}

// R6, field 22: who says when to come back has not acted.
#[tokio::test]
async fn a_503_with_retry_after_lets_a_keyless_post_repeat() {
    let server = refusing_once(503, &[("Retry-After", "0")]).await;
    let response = Call::Keyless
        .to(&client(quick()), server.url("/"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let attempts = response.attempts().unwrap();
    assert_eq!(attempts.iter().next().unwrap().delivery(), Delivery::Rejected);
    assert!(attempts.exactly_once());
    assert_eq!(server.requests().len(), 2);
}

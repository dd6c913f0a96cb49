//! httpbin: many statuses, late and slow answers, redirects, and an echo. It closes each connection after its answer.

use reqwest::StatusCode;
use serde_json::Value;
use steadfast::{Delivery, ErrorKind, Outcome, ResponseExt, StopReason};
use tokio::time::{Instant, timeout};

use super::{LONG, Service, marked, new_tag};
use crate::wire::{Call, client, ms, quick};

/// Always this status: so many attempts of each call.
async fn assert_attempts(statuses: &[u16], calls: [(Call, usize); 3]) {
    let Some(httpbin) = Service::httpbin() else { return };
    for &status in statuses {
        for (call, count) in calls {
            let tag = new_tag();
            let request = call.to(&client(quick()), httpbin.url(&format!("/status/{status}"), &tag));
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), status);
            let attempts = response.attempts().unwrap();
            assert_eq!(attempts.len(), count, "{status} {call:?}");
            httpbin.assert_logged(&tag, call, attempts).await;
        }
    }
}

// R7, R8, R27
#[tokio::test]
async fn answers_of_httpbin_that_are_final_are_asked_for_once() {
    let once = Call::ALL.map(|call| (call, 1));
    assert_attempts(&[200, 201, 204, 304, 400, 401, 404, 409, 418, 422, 501], once).await;
}

// R5, R9, R27
#[tokio::test]
async fn failures_of_httpbin_are_repeated_where_a_repeat_is_safe() {
    let calls = [(Call::Get, 3), (Call::Keyed, 3), (Call::Keyless, 1)];
    assert_attempts(&[500, 502, 503, 504], calls).await;
}

// R6
#[tokio::test]
async fn a_429_of_httpbin_is_repeated_for_every_method() {
    assert_attempts(&[429], Call::ALL.map(|call| (call, 3))).await;
}

// R29
#[tokio::test]
async fn a_late_answer_of_httpbin_is_cut_by_the_attempt_timeout_and_asked_for_again() {
    let Some(httpbin) = Service::httpbin() else { return };
    let tag = new_tag();
    let request = client(quick()).get(httpbin.url("/delay/2", &tag));
    let error = request
        .attempt_timeout(ms(800))
        .max_attempts(2)
        .send()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.stop_reason(), StopReason::MaxAttempts);
    assert_eq!(error.outcome(), Outcome::NotDone);
    assert!(error.attempts().iter().all(|a| a.delivery() == Delivery::Unknown));
    assert_eq!(httpbin.logged(&tag, 2).await.len(), 2);
}

const SLOW: &str = "/drip?duration=2&numbytes=10";

// R29
#[tokio::test]
async fn a_slow_body_of_httpbin_is_read_inside_its_attempt() {
    let Some(httpbin) = Service::httpbin() else { return };
    let tag = new_tag();
    let started = Instant::now();
    let request = client(quick()).get(httpbin.url(SLOW, &tag));
    let response = request.send().await.unwrap();
    assert!(started.elapsed() > ms(1_500));
    assert_eq!(response.bytes().await.unwrap(), "**********");
    assert_eq!(httpbin.logged(&tag, 1).await.len(), 1);
}

// field 16
#[tokio::test]
async fn a_slow_body_of_httpbin_that_was_handed_over_outlives_the_limits_of_the_policy() {
    let Some(httpbin) = Service::httpbin() else { return };
    let tag = new_tag();
    let policy = quick().attempt_timeout(ms(1_000)).deadline(ms(1_500));
    let started = Instant::now();
    let request = client(policy).get(httpbin.url(SLOW, &tag)).streamed();
    let response = request.send().await.unwrap();
    assert_eq!(response.bytes().await.unwrap(), "**********");
    assert!(started.elapsed() > ms(1_500));
    assert_eq!(httpbin.logged(&tag, 1).await.len(), 1);
}

// field 16
#[tokio::test]
async fn a_slow_body_of_httpbin_that_was_handed_over_ends_at_the_deadline_of_its_request() {
    let Some(httpbin) = Service::httpbin() else { return };
    let url = httpbin.url("/drip?duration=5&numbytes=50", &new_tag());
    let request = client(quick()).get(url).streamed().deadline(ms(1_000));
    let response = request.send().await.unwrap();
    let error = timeout(LONG, response.bytes()).await.unwrap().unwrap_err();
    assert!(error.is_timeout());
}

// R45, field 15
#[tokio::test]
async fn a_slow_body_of_httpbin_that_is_read_inside_its_attempt_ends_it_at_the_deadline() {
    let Some(httpbin) = Service::httpbin() else { return };
    let tag = new_tag();
    let request = client(quick()).get(httpbin.url("/drip?duration=5&numbytes=50", &tag));
    let error = request.deadline(ms(1_000)).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Body);
    assert!(error.is_timeout());
    assert_eq!(error.status(), Some(StatusCode::OK));
    assert_eq!(error.stop_reason(), StopReason::Deadline);
    assert_eq!(httpbin.logged(&tag, 1).await.len(), 1);
}

#[tokio::test]
async fn redirects_of_httpbin_are_followed_inside_one_attempt() {
    let Some(httpbin) = Service::httpbin() else { return };
    let tag = new_tag();
    let url = httpbin.base.join("/redirect/3").unwrap();
    let response = marked(&client(quick()), url, &tag).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.url().path(), "/get");
    let attempts = response.attempts().unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts.outcome(), Outcome::Completed);
    let lines = httpbin.logged(&tag, 4).await;
    let statuses: Vec<_> = lines.iter().map(|line| line.status).collect();
    assert_eq!(statuses, [302, 302, 302, 200]);
}

/// A redirect to the echo, which gets the tag too.
fn redirect(httpbin: &Service, status: u16, tag: &str) -> String {
    httpbin.url(
        &format!("/redirect-to?status_code={status}&url=/anything?to={tag}"),
        tag,
    )
}

#[tokio::test]
async fn a_post_that_httpbin_turns_into_a_get_by_a_302_has_an_unknown_outcome() {
    let Some(httpbin) = Service::httpbin() else { return };
    let tag = new_tag();
    let request = Call::Keyed.to(&client(quick()), redirect(&httpbin, 302, &tag));
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.outcome(), Some(Outcome::Unknown));
    assert_eq!(response.attempts().unwrap().len(), 1);
    let lines = httpbin.logged(&tag, 2).await;
    let seen: Vec<_> = lines.iter().map(|line| (line.method.as_str(), line.status)).collect();
    assert_eq!(seen, [("POST", 302), ("GET", 200)]);
}

// R12
#[tokio::test]
async fn a_keyed_post_that_httpbin_sends_on_by_a_307_arrives_with_its_key_and_body() {
    let Some(httpbin) = Service::httpbin() else { return };
    let tag = new_tag();
    let request = Call::Keyed.to(&client(quick()), redirect(&httpbin, 307, &tag));
    let response = request.send().await.unwrap();
    let key = response.attempts().unwrap().idempotency_key().unwrap().clone();
    let lines = httpbin.logged(&tag, 2).await;
    let seen: Vec<_> = lines.iter().map(|l| (l.status, l.key.as_deref())).collect();
    assert_eq!(seen, [(307, Some(key.as_str())), (200, Some(key.as_str()))]);
    let echo: Value = response.json().await.unwrap();
    assert_eq!(echo["data"], "amount=1");
}

// R75
#[tokio::test]
async fn the_echo_of_httpbin_has_the_key_and_the_body_of_the_operation() {
    let Some(httpbin) = Service::httpbin() else { return };
    let tag = new_tag();
    let request = Call::Keyed.to(&client(quick()), httpbin.url("/anything", &tag));
    let response = request.send().await.unwrap();
    let attempts = response.attempts().unwrap().clone();
    httpbin.assert_logged(&tag, Call::Keyed, &attempts).await;
    let echo: Value = response.json().await.unwrap();
    assert_eq!(echo["method"], "POST");
    assert_eq!(echo["data"], "amount=1");
    let key = attempts.idempotency_key().unwrap();
    assert_eq!(echo["headers"]["Idempotency-Key"], key.as_str());
}

// field 16
#[tokio::test]
async fn a_chunked_stream_of_httpbin_is_read_line_by_line_to_its_end() {
    let Some(httpbin) = Service::httpbin() else { return };
    let tag = new_tag();
    let request = client(quick()).get(httpbin.url("/stream/20", &tag)).streamed();
    let text = request.send().await.unwrap().text().await.unwrap();
    let ids: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids, (0..20).collect::<Vec<_>>());
    assert_eq!(httpbin.logged(&tag, 1).await.len(), 1);
}

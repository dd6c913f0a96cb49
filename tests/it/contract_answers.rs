//! What a contract makes of answers that are long, slow, cut, or another request's.

use std::io::ErrorKind::ConnectionReset;

use reqwest::{Method, StatusCode};
use steadfast::{IdempotencyContract, Outcome, PolicyBuilder, ResponseExt, Sign, StopReason};

use crate::transport::{Part, Step, URL, answer, client, data, fail, no_backoff, pause, secs, sent, stop};

fn contract() -> IdempotencyContract {
    IdempotencyContract::header("x-request-id").unwrap()
}

fn policy() -> PolicyBuilder {
    no_backoff().attempt_timeout(secs(1))
}

fn cut(status: u16) -> Step {
    answer(status).announced(9, [data("half"), Part::Cut(ConnectionReset)])
}

// R65: what the head says does not depend on whether the body arrives.
#[tokio::test(start_paused = true)]
async fn an_answer_that_loses_its_body_means_what_its_head_says() {
    let progress = contract().with_in_progress(Sign::status(StatusCode::ACCEPTED));
    let request = client(policy()).post(URL).contract(progress.clone());
    let (result, _) = sent(request.max_attempts(1), vec![cut(202)]).await;
    assert_eq!(result.unwrap_err().outcome(), Outcome::Unknown);
    let request = client(policy()).post(URL).contract(progress);
    let (result, transport) = sent(request, vec![cut(202), answer(201)]).await;
    assert_eq!((result.unwrap().status().as_u16(), transport.seen().len()), (201, 2));

    let mismatch = contract().with_mismatch(Sign::header("x-conflict", "1").unwrap());
    let request = client(policy()).post(URL).contract(mismatch);
    let (result, transport) = sent(request, vec![cut(200).header("x-conflict", "1")]).await;
    assert_eq!(
        (result.unwrap_err().stop_reason(), transport.seen().len()),
        (StopReason::KeyConflict, 1)
    );
}

// R29, field 26
#[tokio::test(start_paused = true)]
async fn a_long_success_is_handed_over_though_a_sign_could_be_in_its_body() {
    let replay = contract().with_replay(Sign::field("/replay", true).unwrap());
    let request = client(policy().response_buffer(8)).post(URL).contract(replay);
    let slow = answer(200).announced(10, [pause(secs(3)), data("0123456789")]);
    let (result, transport) = sent(request, vec![slow]).await;
    let response = result.unwrap();
    assert_eq!(
        (transport.elapsed(), response.attempts().unwrap().replayed()),
        (secs(0), None)
    );
    assert_eq!(response.text().await.unwrap(), "0123456789");
}

// R29
#[tokio::test(start_paused = true)]
async fn a_refusal_too_long_for_a_sign_is_not_waited_for() {
    let mismatch = contract().with_mismatch(Sign::field("/code", "conflict").unwrap());
    let request = client(policy().response_buffer(8)).post(URL).contract(mismatch);
    let huge = answer(400).announced(1 << 30, [Part::Stall]);
    let (result, transport) = sent(request, vec![huge]).await;
    assert_eq!(
        (stop(&result.unwrap()), transport.elapsed()),
        (StopReason::NotRetryable, secs(0))
    );
}

// R68: how much of a success is held does not change what a refusal means.
#[tokio::test(start_paused = true)]
async fn a_sign_in_the_body_of_a_refusal_is_found_where_nothing_is_buffered() {
    let mismatch = contract().with_mismatch(Sign::field("/code", "conflict").unwrap());
    let request = client(policy().response_buffer(0)).post(URL).contract(mismatch);
    let refusal = answer(409).body(r#"{"code":"conflict"}"#);
    let (result, transport) = sent(request, vec![fail(ConnectionReset), refusal]).await;
    let response = result.unwrap();
    assert_eq!((stop(&response), transport.seen().len()), (StopReason::KeyConflict, 2));
    assert_eq!(response.text().await.unwrap(), r#"{"code":"conflict"}"#);
}

// R10
#[tokio::test(start_paused = true)]
async fn the_answer_of_another_request_says_nothing_of_the_key() {
    let mismatch = contract()
        .with_mismatch(Sign::status(StatusCode::NOT_FOUND))
        .with_replay(Sign::status(StatusCode::NOT_FOUND));
    let request = client(policy()).request(Method::POST, URL).contract(mismatch);
    let astray = answer(404).url("https://www.example.com/gone");
    let (result, _) = sent(request, vec![astray]).await;
    let response = result.unwrap();
    assert_eq!(
        (stop(&response), response.outcome()),
        (StopReason::NotRetryable, Some(Outcome::Unknown))
    );
    assert_eq!(response.attempts().unwrap().replayed(), None);
}

// R56: what lost the key of one attempt may have lost that of another.
#[tokio::test(start_paused = true)]
async fn a_missing_key_does_not_settle_what_came_before() {
    let missing = contract().with_missing(Sign::status(StatusCode::BAD_REQUEST));
    for (steps, outcome) in [
        (vec![answer(400)], Outcome::NotDone),
        (vec![fail(ConnectionReset), answer(400)], Outcome::Unknown),
    ] {
        let request = client(policy()).post(URL).contract(missing.clone());
        let (result, _) = sent(request, steps).await;
        assert_eq!(result.unwrap().outcome(), Some(outcome));
    }
}

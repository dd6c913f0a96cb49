//! Bodies of answers: read inside the attempt, or handed over.

use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt;
use reqwest::Response;
use steadfast::{Client, Delivery, ErrorKind, Outcome, ResponseExt, StopReason};
use tokio::time::{Instant, timeout};

use crate::transport::{Part, Step, Transport, URL, answer, client, data, hang, millis, no_backoff, pause, secs};

/// A 2xx whose body ends before its end.
fn cut(status: u16) -> Step {
    answer(status).announced(100, [data("0123456789"), Part::Cut(UnexpectedEof)])
}

fn patient() -> Client {
    client(no_backoff())
}

/// A body that says something each second, so many times.
fn ticking(times: usize) -> Step {
    answer(200).chunked(std::iter::repeat_n([pause(secs(1)), data("tick")], times).flatten())
}

/// Reads to the end or to the failure: what came, and how it ended.
async fn read(mut response: Response) -> (Bytes, Option<reqwest::Error>) {
    let mut read = Vec::new();
    loop {
        let chunk = timeout(secs(86_400), response.chunk()).await;
        match chunk.expect("a body that ends within a day") {
            Ok(Some(chunk)) => read.extend_from_slice(&chunk),
            Ok(None) => return (read.into(), None),
            Err(error) => return (read.into(), Some(error)),
        }
    }
}

/// The response of a GET, and after how long it was handed over.
async fn handed_over(client: &Client, step: Step) -> (Response, Duration) {
    let transport = Transport::new([step]);
    let response = client.get(URL).send_with(transport.send()).await.unwrap();
    (response, transport.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_success_whose_body_is_cut_is_tried_again() {
    let transport = Transport::new([cut(200), answer(200).body("whole")]);
    let response = patient().get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(transport.seen().len(), 2);
    let lost = response.attempts().unwrap().iter().next().unwrap();
    assert_eq!(lost.failure(), Some(ErrorKind::Body));
    assert_eq!(lost.status().unwrap(), 200);
    assert_eq!(lost.delivery(), Delivery::Answered);
    assert_eq!(response.text().await.unwrap(), "whole");
}

// field 26, in the loop
#[tokio::test(start_paused = true)]
async fn a_write_without_a_key_whose_answer_is_cut_is_done_and_not_repeated() {
    let transport = Transport::new([cut(201)]);
    let request = patient().post(URL).without_idempotency_key();
    let error = request.send_with(transport.send()).await.unwrap_err();
    assert_eq!(transport.seen().len(), 1);
    assert_eq!(error.kind(), ErrorKind::Body);
    assert_eq!(error.status().unwrap(), 201);
    assert_eq!(error.outcome(), Outcome::Completed);
    assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
    let message = error.to_string();
    assert!(
        message.ends_with("(not replay-safe; outcome completed): body failure of 201 Created"),
        "{message}"
    );
}

// A 2xx once received stays, whatever a later attempt says.
#[tokio::test(start_paused = true)]
async fn what_was_confirmed_once_stays_confirmed() {
    let transport = Transport::new([cut(201), answer(500), hang()]);
    let error = patient().post(URL).send_with(transport.send()).await.unwrap_err();
    assert_eq!(transport.seen().len(), 3);
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.outcome(), Outcome::Completed);
}

// field 15
#[tokio::test(start_paused = true)]
async fn a_body_that_never_comes_is_a_failed_attempt() {
    let client = client(no_backoff().attempt_timeout(secs(2)));
    for stalled in [
        answer(200).announced(5, [data("01"), Part::Stall]),
        answer(200).chunked([Part::Stall]),
        answer(200).chunked([data(""), pause(secs(1)), data(""), Part::Stall]),
    ] {
        let transport = Transport::new([stalled, answer(200).body("whole")]);
        let response = client.get(URL).send_with(transport.send()).await.unwrap();
        assert_eq!(transport.times(), [0, 2].map(secs));
        assert_eq!(response.text().await.unwrap(), "whole");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_until_the_deadline_is_a_timeout_of_the_body() {
    let transport = Transport::new([answer(200).announced(5, [Part::Stall])]);
    let request = patient().get(URL).deadline(secs(3));
    let error = request.send_with(transport.send()).await.unwrap_err();
    assert_eq!(transport.elapsed(), secs(3));
    assert_eq!(error.kind(), ErrorKind::Body);
    assert!(error.is_timeout());
    assert_eq!(error.status().unwrap(), 200);
    assert_eq!(error.stop_reason(), StopReason::Deadline);
}

// The status decides before the body does.
#[tokio::test(start_paused = true)]
async fn a_final_answer_with_a_failing_body_is_handed_over_with_what_came() {
    for status in [301, 404, 501] {
        let transport = Transport::new([cut(status)]);
        let response = patient().get(URL).send_with(transport.send()).await.unwrap();
        assert_eq!(transport.seen().len(), 1);
        assert_eq!(response.status(), status);
        let (came, end) = read(response).await;
        assert_eq!(came, "0123456789");
        assert!(end.is_some(), "{status}");
    }
    let transport = Transport::always(cut(503));
    let response = patient().get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(response.attempts().unwrap().stop_reason(), StopReason::MaxAttempts);
    let (came, end) = read(response).await;
    assert_eq!(came, "0123456789");
    assert!(end.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_final_answer_whose_body_stalls_is_handed_over_at_the_end_of_its_attempt() {
    let client = client(no_backoff().attempt_timeout(secs(2)));
    let stalled = answer(404).announced(5, [data("01"), Part::Stall]);
    let (response, at) = handed_over(&client, stalled).await;
    assert_eq!(at, secs(2));
    assert_eq!(response.status(), 404);
    let (came, end) = read(response).await;
    assert_eq!(came, "01");
    assert!(end.unwrap().is_timeout());
}

#[tokio::test(start_paused = true)]
async fn a_body_of_known_length_is_read_to_its_end() {
    let slow = answer(200).announced(2, [data("a"), pause(secs(5)), data("b")]);
    let (response, at) = handed_over(&patient(), slow).await;
    assert_eq!(at, secs(5));
    assert_eq!(response.content_length(), Some(2));
    assert_eq!(response.text().await.unwrap(), "ab");
}

#[tokio::test(start_paused = true)]
async fn a_body_of_unknown_length_that_ends_in_a_second_is_read_to_its_end() {
    let quick = answer(200).chunked([data("a"), pause(millis(900)), data("b")]);
    let (response, at) = handed_over(&patient(), quick).await;
    assert_eq!(at, millis(900));
    assert_eq!(response.content_length(), Some(2));
    assert_eq!(response.text().await.unwrap(), "ab");
}

#[tokio::test(start_paused = true)]
async fn a_body_of_unknown_length_is_handed_over_after_a_second_with_what_came_in_front() {
    let started = Instant::now();
    let slow = answer(200).chunked([data("a"), pause(secs(5)), data("b")]);
    let (mut response, at) = handed_over(&patient(), slow).await;
    assert_eq!(at, secs(1));
    assert_eq!(response.chunk().await.unwrap().unwrap(), "a");
    assert_eq!(started.elapsed(), secs(1));
    assert_eq!(response.chunk().await.unwrap().unwrap(), "b");
    assert_eq!(started.elapsed(), secs(5));
    assert_eq!(response.chunk().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_body_of_unknown_length_of_which_nothing_came_is_waited_for() {
    let late = answer(200).chunked([pause(secs(3)), data("a"), pause(secs(60)), data("b")]);
    let client = client(no_backoff().stall_timeout(secs(70)));
    let (response, at) = handed_over(&client, late).await;
    assert_eq!(at, secs(3));
    assert_eq!(response.text().await.unwrap(), "ab");
}

#[tokio::test(start_paused = true)]
async fn a_body_longer_than_the_buffer_is_handed_over() {
    let client = client(no_backoff().response_buffer(4));
    let long = answer(200).announced(6, [data("abc"), pause(secs(5)), data("def")]);
    let (response, at) = handed_over(&client, long).await;
    assert_eq!(at, secs(0));
    assert_eq!(response.content_length(), Some(6));
    assert_eq!(response.text().await.unwrap(), "abcdef");

    let long = answer(200).chunked([data("abc"), data("def"), pause(secs(5)), data("ghi")]);
    let (response, at) = handed_over(&client, long).await;
    assert_eq!(at, secs(0));
    assert_eq!(response.text().await.unwrap(), "abcdefghi");

    let whole = answer(200).announced(4, [data("ab"), pause(secs(5)), data("cd")]);
    assert_eq!(handed_over(&client, whole).await.1, secs(5));
}

#[tokio::test(start_paused = true)]
async fn types_that_flow_are_handed_over_at_the_headers() {
    for content_type in [
        "text/event-stream",
        "Text/Event-Stream; charset=utf-8",
        "application/x-ndjson",
        "application/json-seq",
        "multipart/x-mixed-replace;boundary=x",
        "application/grpc",
        "application/grpc-web+proto",
        "application/vnd.amazon.eventstream",
    ] {
        let flowing = ticking(3).header("content-type", content_type);
        let (response, at) = handed_over(&patient(), flowing).await;
        assert_eq!(at, secs(0), "{content_type}");
        assert_eq!(response.text().await.unwrap(), "ticktickticktick".get(..12).unwrap());
    }
    let json = ticking(1).header("content-type", "application/json");
    assert_eq!(handed_over(&patient(), json).await.1, secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_streamed_body_is_handed_over_at_the_headers() {
    let transport = Transport::always(answer(200).announced(2, [data("a"), pause(secs(5)), data("b")]));
    let response = patient().get(URL).streamed().send_with(transport.send()).await.unwrap();
    assert_eq!(transport.elapsed(), secs(0));
    assert_eq!(response.text().await.unwrap(), "ab");
    let without_buffer = client(no_backoff().response_buffer(0));
    let (_, at) = handed_over(&without_buffer, ticking(2)).await;
    assert_eq!(at, secs(0));
}

#[tokio::test(start_paused = true)]
async fn a_buffered_body_is_read_to_its_end_whatever_its_length_and_type() {
    let transport = Transport::new([ticking(5).header("content-type", "text/event-stream")]);
    let response = patient().get(URL).buffered().send_with(transport.send()).await.unwrap();
    assert_eq!(transport.elapsed(), secs(5));
    assert_eq!(response.content_length(), Some(20));

    let transport = Transport::new([ticking(5)]);
    let small = client(no_backoff().response_buffer(8));
    let response = small.get(URL).buffered().send_with(transport.send()).await.unwrap();
    // The third tick is over the buffer.
    assert_eq!(transport.elapsed(), secs(3));
    assert_eq!(response.text().await.unwrap().len(), 20);
}

// field 16
#[tokio::test(start_paused = true)]
async fn a_body_that_flows_outlives_the_attempt_timeout_and_the_policys_deadline() {
    let started = Instant::now();
    let policy = no_backoff().attempt_timeout(secs(2)).deadline(secs(5));
    let policy = policy.stall_timeout(millis(1_500));
    let (response, at) = handed_over(&client(policy), ticking(60)).await;
    assert_eq!(at, secs(1));
    let (came, end) = read(response).await;
    assert_eq!(came.len(), 60 * 4);
    assert!(end.is_none());
    assert_eq!(started.elapsed(), secs(60));
}

// field 16
#[tokio::test(start_paused = true)]
async fn a_body_that_falls_silent_ends_as_a_timeout() {
    let started = Instant::now();
    let client = client(no_backoff().stall_timeout(secs(7)));
    // Empty frames are no sign of life.
    let silent = [
        data("a"),
        pause(secs(4)),
        data("b"),
        pause(secs(5)),
        data(""),
        Part::Stall,
    ];
    let (response, _) = handed_over(&client, answer(200).chunked(silent)).await;
    let (came, end) = read(response).await;
    assert_eq!(came, "ab");
    assert!(end.unwrap().is_timeout());
    assert_eq!(started.elapsed(), secs(4 + 7));
}

#[tokio::test(start_paused = true)]
async fn a_body_nobody_reads_is_not_silent() {
    let client = client(no_backoff().stall_timeout(secs(7)));
    let (mut response, at) = handed_over(&client, ticking(2)).await;
    assert_eq!(at, secs(1));
    assert_eq!(response.chunk().await.unwrap().unwrap(), "tick");
    tokio::time::sleep(secs(600)).await;
    assert_eq!(response.chunk().await.unwrap().unwrap(), "tick");
    assert_eq!(response.chunk().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_the_request_ends_a_body_that_was_handed_over() {
    let transport = Transport::new([ticking(60)]);
    let request = patient().get(URL).streamed().deadline(millis(3_500));
    let response = request.send_with(transport.send()).await.unwrap();
    let (came, end) = read(response).await;
    assert_eq!(came, "tickticktick");
    assert!(end.unwrap().is_timeout());
    assert_eq!(transport.elapsed(), millis(3_500));
}

#[tokio::test(start_paused = true)]
async fn trailers_survive() {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", "4711".parse().unwrap());
    let step = answer(200).chunked([data("ab"), pause(millis(10)), Part::Trailers(trailers.clone())]);
    let transport = Transport::always(step);
    let client = patient();
    for request in [client.get(URL), client.get(URL).streamed(), client.get(URL).buffered()] {
        let response = request.send_with(transport.send()).await.unwrap();
        let body = http::Response::from(response).into_body();
        let collected = body.collect().await.unwrap();
        assert_eq!(collected.trailers(), Some(&trailers));
        assert_eq!(collected.to_bytes(), "ab");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_is_the_same_read_or_handed_over() {
    let client = patient();
    let step = answer(202).header("x-a", "1").header("x-a", "2").body("ab");
    let transport = Transport::always(step.url("https://api.example.com/final?q=1"));
    for request in [client.get(URL), client.get(URL).streamed()] {
        let response = request.send_with(transport.send()).await.unwrap();
        assert_eq!(response.status(), 202);
        assert_eq!(response.url().as_str(), "https://api.example.com/final?q=1");
        let lines: Vec<_> = response.headers().get_all("x-a").iter().collect();
        assert_eq!(lines, ["1", "2"]);
        assert_eq!(response.content_length(), Some(2));
        assert_eq!(response.text().await.unwrap(), "ab");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_was_handed_over_fails_as_it_would_without_us() {
    let (response, _) = handed_over(
        &patient(),
        answer(200).chunked([data("a"), pause(secs(2)), Part::Cut(ConnectionReset)]),
    )
    .await;
    let (came, end) = read(response).await;
    assert_eq!(came, "a");
    assert!(!end.unwrap().is_timeout());
}

#[tokio::test(start_paused = true)]
async fn small_pieces_are_joined_and_none_is_lost() {
    let pieces = (0..3_000).map(|_| data("x")).chain([data("end")]);
    let transport = Transport::always(answer(200).chunked(pieces));
    let mut response = patient().get(URL).send_with(transport.send()).await.unwrap();
    let mut chunks = Vec::new();
    while let Some(chunk) = response.chunk().await.unwrap() {
        chunks.push(chunk);
    }
    assert!(chunks.len() <= 2, "{}", chunks.len());
    assert_eq!(chunks.concat(), [&b"x".repeat(3_000)[..], b"end"].concat());
}

//! Bodies of answers: read inside the attempt, or handed over to the caller.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Response, StatusCode};
use steadfast::{Delivery, Error, ErrorKind, Outcome, PolicyBuilder, ResponseExt, StopReason};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::server::{Reply, Server};
use crate::wire::{Call, assert_healed, assert_same_bytes, client, ms, quick};

/// Longer than anything here takes, shorter than the patience of a person.
const LONG: Duration = Duration::from_secs(10);

async fn get(server: &Server, policy: PolicyBuilder) -> Result<Response, Error> {
    client(policy).get(server.url("/")).send().await
}

/// A body of 100 bytes of which 10 come.
fn cut(status: u16) -> Reply {
    Reply::status(status).cut_body(100, b"0123456789")
}

/// The head at once, with a length or of unknown length, and then nothing.
fn without_its_body(framing: &str) -> Reply {
    Reply::new()
        .send(format!("HTTP/1.1 201 Created\r\n{framing}\r\n\r\n"))
        .stall()
}

const KNOWN: &str = "Content-Length: 100";
const UNKNOWN: &str = "Transfer-Encoding: chunked";

async fn heals(policy: PolicyBuilder, failing: Reply) {
    for call in Call::REPLAY_SAFE {
        let server = Server::start([failing.clone(), Reply::ok("done")]).await;
        let request = call.to(&client(policy.clone()), server.url("/"));
        let response = request.send().await.unwrap();
        assert_healed(&response, ErrorKind::Body, Delivery::Answered);
        assert_eq!(response.text().await.unwrap(), "done");
        assert_same_bytes(&server, 2);
    }
}

/// The effect is known although the body is not.
async fn ends_completed(policy: PolicyBuilder, failing: Reply) -> Error {
    let server = Server::start([failing, Reply::ok("done")]).await;
    let request = Call::Keyless.to(&client(policy), server.url("/"));
    let error = request.send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Body);
    assert_eq!(error.status(), Some(StatusCode::CREATED));
    assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
    assert_eq!(error.outcome(), Outcome::Completed);
    assert_eq!(server.requests().len(), 1);
    error
}

// field 26
#[tokio::test]
async fn a_success_cut_in_its_body_heals_where_a_repeat_is_safe() {
    heals(quick(), cut(200)).await;
}

// field 26
#[tokio::test]
async fn a_success_cut_in_its_body_ends_a_keyless_post_as_completed() {
    let error = ends_completed(quick(), cut(201)).await;
    assert!(!error.is_timeout());
}

// field 26
#[tokio::test]
async fn a_chunked_body_without_its_end_heals_where_a_repeat_is_safe() {
    let open = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    heals(quick(), Reply::new().send(open).close()).await;
}

// R29, field 15
#[tokio::test]
async fn headers_without_their_body_time_the_attempt_out() {
    for framing in [KNOWN, UNKNOWN] {
        heals(quick().attempt_timeout(ms(500)), without_its_body(framing)).await;
    }
}

// field 15: as long as nothing of it has come, a body of unknown length has the time of any other.
#[tokio::test]
async fn a_chunked_body_that_begins_late_is_waited_for() {
    let head = Reply::new().send(format!("HTTP/1.1 200 OK\r\n{UNKNOWN}\r\n\r\n"));
    let server = Server::start([head.pause(ms(1_200)).send("4\r\nlate\r\n0\r\n\r\n")]).await;
    let response = get(&server, quick()).await.unwrap();
    assert_eq!(response.text().await.unwrap(), "late");
    assert_eq!(server.requests().len(), 1);
}

// R29, field 15
#[tokio::test]
async fn headers_without_their_body_end_a_keyless_post_as_completed() {
    let policy = quick().attempt_timeout(ms(300));
    let error = ends_completed(policy, without_its_body(KNOWN)).await;
    assert!(error.is_timeout());
}

// R45, field 15
#[tokio::test]
async fn a_body_that_stalls_until_the_deadline_says_so() {
    let server = Server::repeat(without_its_body(KNOWN)).await;
    let error = get(&server, quick().deadline(ms(300))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Body);
    assert!(error.is_timeout());
    assert_eq!(error.stop_reason(), StopReason::Deadline);
    assert_eq!(server.requests().len(), 1);
}

// R7, field 26: the status of a refusal is final, and its body is given for what it is.
#[tokio::test]
async fn a_refusal_cut_in_its_body_is_handed_over_with_what_came() {
    let server = Server::repeat(cut(404)).await;
    let mut response = get(&server, quick()).await.unwrap();
    assert_eq!(response.status(), 404);
    assert_eq!(response.attempts().unwrap().stop_reason(), StopReason::NotRetryable);
    assert_eq!(response.chunk().await.unwrap().unwrap(), "0123456789");
    response.chunk().await.unwrap_err();
    assert_eq!(server.requests().len(), 1);
}

/// So many pieces of 100 bytes, each after a pause.
fn slow(pieces: usize, pause: Duration) -> Reply {
    let length = (pieces * 100).to_string();
    let head = Reply::status(200).header("Content-Length", &length);
    let piece = Reply::new().pause(pause).send([b'x'; 100]);
    iter::repeat_n(piece, pieces).fold(head, Reply::then)
}

// field 16
#[tokio::test]
async fn a_body_that_flows_outlives_the_attempt_timeout_and_the_deadline() {
    let server = Server::start([slow(8, ms(200))]).await;
    let policy = quick()
        .response_buffer(100)
        .attempt_timeout(ms(1_000))
        .deadline(ms(1_000));
    let started = Instant::now();
    let response = get(&server, policy).await.unwrap();
    assert_eq!(response.bytes().await.unwrap().len(), 800);
    assert!(started.elapsed() > ms(1_000));
    assert_eq!(server.requests().len(), 1);
}

// field 16
#[tokio::test]
async fn a_body_that_falls_silent_ends_as_a_timeout() {
    let half = Reply::status(200).header("Content-Length", "200").body([b'x'; 100]);
    let server = Server::start([half.stall()]).await;
    let policy = quick().response_buffer(100).stall_timeout(ms(300));
    let mut response = get(&server, policy).await.unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap().len(), 100);
    let silence = Instant::now();
    let error = timeout(LONG, response.chunk()).await.unwrap().unwrap_err();
    assert!(error.is_timeout());
    assert!(silence.elapsed() >= ms(290));
}

// field 16
#[tokio::test]
async fn a_deadline_of_the_request_ends_a_body_that_flows() {
    let server = Server::start([slow(1_000, ms(50))]).await;
    let started = Instant::now();
    let request = client(quick()).get(server.url("/")).streamed().deadline(ms(500));
    let response = request.send().await.unwrap();
    let error = timeout(LONG, response.bytes()).await.unwrap().unwrap_err();
    assert!(error.is_timeout());
    assert!(started.elapsed() >= ms(490));
}

/// The client has the answer before the server sends any of its body.
async fn is_handed_over_at_once(content_type: &str) {
    let gate = Arc::new(Notify::new());
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n{UNKNOWN}\r\n\r\n");
    let event = "d\r\ndata: hello\n\n\r\n0\r\n\r\n";
    let server = Server::start([Reply::new().send(head).hold(gate.clone()).send(event)]).await;
    let response = timeout(LONG, get(&server, quick().attempt_timeout(ms(2_000)))).await;
    let response = response.unwrap().unwrap();
    gate.notify_one();
    assert_eq!(response.text().await.unwrap(), "data: hello\n\n");
    assert_eq!(server.requests().len(), 1);
}

// field 16
#[tokio::test]
async fn an_event_stream_is_handed_over_at_once() {
    is_handed_over_at_once("text/event-stream").await;
}

// field 16
#[tokio::test]
async fn a_flowing_type_is_known_in_any_case_and_with_parameters() {
    for content_type in [
        "Text/Event-Stream; charset=utf-8",
        "application/x-ndjson",
        "application/grpc+proto",
    ] {
        is_handed_over_at_once(content_type).await;
    }
}

// field 16
#[tokio::test]
async fn an_event_stream_is_read_to_its_end_where_the_caller_asks_for_it() {
    let open = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let server = Server::start([Reply::new().send(open).close(), Reply::ok("done")]).await;
    let request = client(quick()).get(server.url("/")).buffered();
    let response = request.send().await.unwrap();
    assert_healed(&response, ErrorKind::Body, Delivery::Answered);
    assert_eq!(server.requests().len(), 2);
}

// field 16, field 26: what the caller reads is the caller's, failures included.
#[tokio::test]
async fn a_streamed_body_that_is_cut_is_not_repeated() {
    let server = Server::repeat(cut(200)).await;
    let request = client(quick()).get(server.url("/")).streamed();
    let response = request.send().await.unwrap();
    response.bytes().await.unwrap_err();
    assert_eq!(server.requests().len(), 1);
}

// field 16
#[tokio::test]
async fn a_chunked_body_not_over_after_a_second_is_handed_over_with_what_came() {
    let gate = Arc::new(Notify::new());
    let begun = Reply::new().send(format!("HTTP/1.1 200 OK\r\n{UNKNOWN}\r\n\r\n5\r\nhello\r\n"));
    let server = Server::start([begun.hold(gate.clone()).send("6\r\n world\r\n0\r\n\r\n")]).await;
    let started = Instant::now();
    let policy = quick().attempt_timeout(LONG * 2);
    let response = timeout(LONG, get(&server, policy)).await.unwrap().unwrap();
    assert!(started.elapsed() >= ms(1_000));
    gate.notify_one();
    assert_eq!(response.text().await.unwrap(), "hello world");
}

// field 16: only a body that is here has a length that the head did not give.
#[tokio::test]
async fn a_chunked_body_is_read_inside_the_attempt() {
    let body = "chunk ".repeat(1_000);
    let server = Server::start([Reply::ok(body.clone()).chunked()]).await;
    let response = get(&server, quick()).await.unwrap();
    assert_eq!(response.content_length(), Some(6_000));
    assert_eq!(response.text().await.unwrap(), body);
}

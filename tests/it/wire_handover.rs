//! Answers that are more than a head and a body of moderate length: heads before the head, bodies without an end, and
//! connections that become something else.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Response, StatusCode};
use steadfast::{ErrorKind, Outcome, RequestBuilder, ResponseExt, StopReason};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::server::{Reply, Server};
use crate::wire::{Call, client, ms, quick};

/// Longer than anything here takes, shorter than the patience of a person.
const LONG: Duration = Duration::from_secs(10);

const EARLY: &str = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n";

/// The answer to a GET, in one attempt that has all the time it needs.
async fn get(server: &Server, buffer: usize) -> Response {
    let policy = quick().attempt_timeout(LONG).response_buffer(buffer);
    let request = client(policy).get(server.url("/")).send();
    let response = timeout(LONG, request).await.unwrap().unwrap();
    assert_eq!(response.attempts().unwrap().len(), 1);
    response
}

#[tokio::test]
async fn early_hints_are_not_the_answer() {
    for call in Call::ALL {
        let hints = Reply::new().send(EARLY).send(EARLY);
        let server = Server::start([hints.then(Reply::ok("done"))]).await;
        let request = call.to(&client(quick()), server.url("/"));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.outcome(), Some(Outcome::Completed));
        assert_eq!(response.text().await.unwrap(), "done");
        assert_eq!(server.requests().len(), 1, "{call:?}");
    }
}

// R10: whoever sends hints has the request.
#[tokio::test]
async fn early_hints_without_an_answer_end_a_keyless_post_as_unknown() {
    let server = Server::start([Reply::new().send(EARLY).close(), Reply::ok("done")]).await;
    let request = Call::Keyless.to(&client(quick()), server.url("/"));
    let error = request.send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reset);
    assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(server.requests().len(), 1);
}

// field 26: where nothing says how long a body is, its end is the end of the connection.
#[tokio::test]
async fn a_body_that_ends_with_its_connection_is_whole() {
    for version in ["1.0", "1.1"] {
        for call in Call::ALL {
            let head = format!("HTTP/{version} 200 OK\r\nContent-Type: text/plain\r\n\r\n");
            let answer = Reply::new().send(head).send("one ").send("two").close();
            let server = Server::start([answer, Reply::ok("done")]).await;
            let request = call.to(&client(quick()), server.url("/"));
            let response = request.send().await.unwrap();
            assert_eq!(response.outcome(), Some(Outcome::Completed));
            assert_eq!(response.attempts().unwrap().len(), 1);
            assert_eq!(response.text().await.unwrap(), "one two");
            assert_eq!(server.requests().len(), 1, "{version} {call:?}");
        }
    }
}

/// The connection that was upgraded is the caller's, with both its directions.
async fn is_upgraded(way: fn(RequestBuilder) -> RequestBuilder) {
    for call in Call::ALL {
        let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        let server = Server::start([Reply::new().send(switch), Reply::new().send("and back").close()]).await;
        let request = call.to(&client(quick()), server.url("/"));
        let request = way(request).header("Connection", "upgrade").header("Upgrade", "echo");
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(response.headers()["upgrade"], "echo");
        assert_eq!(response.outcome(), Some(Outcome::Completed));
        assert_eq!(response.attempts().unwrap().stop_reason(), StopReason::Done);
        let mut connection = response.upgrade().await.unwrap();
        connection.write_all(b"there\r\n\r\n").await.unwrap();
        let mut back = String::new();
        connection.read_to_string(&mut back).await.unwrap();
        assert_eq!(back, "and back");
        let requests = server.requests();
        assert_eq!(requests.len(), 2, "{call:?}");
        assert_eq!(requests[1].raw, b"there\r\n\r\n");
        assert_eq!(requests[1].connection, 0);
    }
}

#[tokio::test]
async fn an_upgraded_connection_is_handed_over() {
    is_upgraded(|request| request).await;
}

#[tokio::test]
async fn an_upgraded_connection_is_handed_over_whatever_is_said_of_bodies() {
    is_upgraded(RequestBuilder::buffered).await;
    is_upgraded(RequestBuilder::streamed).await;
}

// field 16: the rest of the body is sent only after the caller has the answer.
#[tokio::test]
async fn a_known_body_larger_than_the_buffer_is_handed_over() {
    let gate = Arc::new(Notify::new());
    let body = Vec::from_iter((0..3000).map(|i| (i % 251) as u8));
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n";
    let answer = Reply::new().send(head).hold(gate.clone()).send(body.clone());
    let server = Server::start([answer]).await;
    let response = get(&server, 2999).await;
    gate.notify_one();
    assert_eq!(response.content_length(), Some(3000));
    assert!(response.bytes().await.unwrap() == body);
}

// field 16
#[tokio::test]
async fn a_known_body_that_fills_the_buffer_is_read_inside_the_attempt() {
    let cut = Reply::status(200).cut_body(3000, &[7; 2000]);
    let server = Server::start([cut, Reply::ok([7; 3000])]).await;
    let policy = quick().response_buffer(3000);
    let response = client(policy).get(server.url("/")).send().await.unwrap();
    assert_eq!(response.attempts().unwrap().len(), 2);
    assert!(response.bytes().await.unwrap() == [7; 3000][..]);
}

// field 16: without a length, what has come is put in front of what still comes.
#[tokio::test]
async fn a_body_of_unknown_length_is_handed_over_as_soon_as_it_is_larger_than_the_buffer() {
    let gate = Arc::new(Notify::new());
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let (first, second) = ("a".repeat(1001), "b".repeat(500));
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let begun = Reply::new().send(head).send(chunk(&first)).hold(gate.clone());
    let server = Server::start([begun.send(chunk(&second)).send("0\r\n\r\n")]).await;
    let response = get(&server, 1000).await;
    gate.notify_one();
    assert_eq!(response.text().await.unwrap(), first + &second);
}

// field 16: a stream of events that its type does not tell from a document, such as a watch of Kubernetes.
#[tokio::test]
async fn endless_json_is_handed_over_after_a_second_and_goes_on() {
    let gate = Arc::new(Notify::new());
    let event = |name: &str| format!("{{\"type\":\"ADDED\",\"object\":\"{name}\"}}\n");
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let begun = Reply::new().send(head).send(chunk(&event("a"))).hold(gate.clone());
    let server = Server::start([begun.send(chunk(&event("b"))).stall()]).await;
    let started = Instant::now();
    let mut response = get(&server, 1 << 20).await;
    assert!(started.elapsed() >= ms(1_000));
    assert_eq!(response.chunk().await.unwrap().unwrap(), event("a"));
    gate.notify_one();
    assert_eq!(response.chunk().await.unwrap().unwrap(), event("b"));
    assert_eq!(response.outcome(), Some(Outcome::Completed));
    assert_eq!(server.requests().len(), 1);
}

/// Lines that are sent one by one are not waited for at all, so the first comes before the server sends another.
#[tokio::test]
async fn lines_of_json_are_handed_over_one_by_one() {
    let gate = Arc::new(Notify::new());
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n";
    let begun = Reply::new().send(head).hold(gate.clone());
    let first = begun.send("4\r\n{}\n\n\r\n").hold(gate.clone());
    let server = Server::start([first.send("4\r\n[]\n\n\r\n0\r\n\r\n")]).await;
    let mut response = get(&server, 1 << 20).await;
    for line in ["{}\n\n", "[]\n\n"] {
        gate.notify_one();
        assert_eq!(response.chunk().await.unwrap().unwrap(), line);
    }
    assert!(response.chunk().await.unwrap().is_none());
}

// field 26: a body that is decoded has no length, and its end is checked all the same.
#[tokio::test]
async fn a_gzip_body_cut_in_the_middle_heals_where_a_repeat_is_safe() {
    let head = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xcb\x48";
    for call in Call::REPLAY_SAFE {
        let cut = Reply::ok(*head).header("Content-Encoding", "gzip");
        let server = Server::start([cut, Reply::ok("done")]).await;
        let request = call.to(&client(quick()), server.url("/"));
        let response = request.send().await.unwrap();
        let first = response.attempts().unwrap().iter().next().unwrap();
        assert_eq!(first.failure(), Some(ErrorKind::Body));
        assert_eq!(first.status(), Some(StatusCode::OK));
        assert_eq!(response.text().await.unwrap(), "done");
        assert_eq!(server.requests().len(), 2);
    }
}

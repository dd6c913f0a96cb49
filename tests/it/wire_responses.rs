//! The response as the caller gets it: a plain one of reqwest, whatever was done with its body before.

use std::time::Duration;

use reqwest::{Method, Response, Version};
use serde_json::{Value, json};
use steadfast::{Delivery, ErrorKind, Outcome, RequestBuilder, ResponseExt};
use tokio::time::Instant;

use crate::server::{Reply, Server};
use crate::wire::{assert_healed, client, http, ms, over, quick};

/// How the body gets to the caller.
const WAYS: [fn(RequestBuilder) -> RequestBuilder; 3] = [|r| r, RequestBuilder::buffered, RequestBuilder::streamed];

/// The answer to a GET, once for each way, and the server that may still be sending it.
async fn answers(reply: Reply) -> (Server, Vec<Response>) {
    let server = Server::repeat(reply).await;
    let mut responses = Vec::new();
    for way in WAYS {
        let request = client(quick()).get(server.url("/"));
        responses.push(way(request).send().await.unwrap());
    }
    assert_eq!(server.requests().len(), WAYS.len());
    (server, responses)
}

#[tokio::test]
async fn a_response_keeps_its_head() {
    let moved = Reply::status(302).header("Location", "/there?page=2");
    let found = Reply::status(203)
        .header("X-One", "1")
        .header("x-two", "a")
        .header("x-two", "b")
        .body("found");
    for way in WAYS {
        let server = Server::start([moved.clone(), found.clone()]).await;
        let request = client(quick()).get(server.url("/here"));
        let response = way(request).send().await.unwrap();
        assert_eq!(response.status(), 203);
        assert_eq!(response.url().as_str(), server.url("/there?page=2"));
        assert_eq!(response.version(), Version::HTTP_11);
        assert_eq!(response.headers()["x-one"], "1");
        let twice: Vec<_> = response.headers().get_all("X-Two").iter().collect();
        assert_eq!(twice, ["a", "b"]);
        assert_eq!(response.headers()["content-length"], "5");
        assert_eq!(response.content_length(), Some(5));
        assert_eq!(response.remote_addr(), Some(server.addr()));
        assert_eq!(response.outcome(), Some(Outcome::Completed));
        // The extensions and the URL survive the way through `http` as those of any response of reqwest do.
        let again = Response::from(http::Response::from(response));
        assert_eq!(again.attempts().unwrap().len(), 1);
        assert_eq!(again.text().await.unwrap(), "found");
    }
}

#[tokio::test]
async fn a_response_keeps_its_http_version() {
    let old = "HTTP/1.0 200 OK\r\n\r\nold";
    let server = Server::repeat(Reply::new().send(old).close()).await;
    let response = client(quick()).get(server.url("/")).send().await.unwrap();
    assert_eq!(response.version(), Version::HTTP_10);
    assert_eq!(response.text().await.unwrap(), "old");
}

#[tokio::test]
async fn a_body_can_be_read_as_json() {
    let (_server, responses) = answers(Reply::ok(r#"{"amount": 1}"#)).await;
    for response in responses {
        assert_eq!(response.json::<Value>().await.unwrap(), json!({"amount": 1}));
    }
}

#[tokio::test]
async fn a_body_can_be_read_as_text() {
    let (_server, responses) = answers(Reply::ok("grüezi")).await;
    for response in responses {
        assert_eq!(response.text().await.unwrap(), "grüezi");
    }
}

#[tokio::test]
async fn a_body_can_be_read_as_bytes() {
    let body = vec![7; 100_000];
    let (_server, responses) = answers(Reply::ok(body.clone())).await;
    for response in responses {
        assert!(response.bytes().await.unwrap() == body);
    }
}

#[tokio::test]
async fn a_body_can_be_read_in_chunks() {
    let body = vec![7; 100_000];
    let (_server, responses) = answers(Reply::ok(body.clone()).chunked()).await;
    for mut response in responses {
        let mut read = Vec::new();
        while let Some(chunk) = response.chunk().await.unwrap() {
            read.extend(chunk);
        }
        assert!(read == body);
    }
}

#[tokio::test]
async fn a_failing_status_becomes_an_error_that_keeps_its_body() {
    let server = Server::repeat(Reply::status(422).body("no such account")).await;
    let response = client(quick()).post(server.url("/")).send().await.unwrap();
    let error = response.into_result().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Status);
    assert_eq!(error.outcome(), Outcome::NotDone);
    assert_eq!(error.into_response().unwrap().text().await.unwrap(), "no such account");
}

/// "hello hello hello hello"
const GZIPPED: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x27\x01\xe3\x51\x3d\x8d\
    \x17\x00\x00\x00";

fn gzip(body: impl Into<Vec<u8>>) -> Reply {
    Reply::ok(body).header("Content-Encoding", "gzip")
}

#[tokio::test]
async fn a_gzip_body_is_decoded() {
    let (_server, responses) = answers(gzip(GZIPPED)).await;
    for response in responses {
        assert_eq!(response.text().await.unwrap(), "hello hello hello hello");
    }
}

// field 26: every byte of it came, and they are wrong.
#[tokio::test]
async fn a_corrupt_gzip_body_heals_where_a_repeat_is_safe() {
    let mut corrupt = GZIPPED.to_vec();
    corrupt[12] ^= 0xff;
    let server = Server::start([gzip(corrupt), gzip(GZIPPED)]).await;
    let response = client(quick()).get(server.url("/")).send().await.unwrap();
    assert_healed(&response, ErrorKind::Body, Delivery::Answered);
    assert_eq!(response.text().await.unwrap(), "hello hello hello hello");
    assert_eq!(server.requests().len(), 2);
}

/// An answer that ends with its head comes back at once, and its connection serves the next one.
async fn ends_with_its_head(method: Method, status: u16, length: Option<&str>) {
    let line = length.map(|length| format!("Content-Length: {length}\r\n"));
    let head = format!("HTTP/1.1 {status} Status\r\n{}\r\n", line.unwrap_or_default());
    let server = Server::repeat(Reply::new().send(head)).await;
    let client = client(quick());
    for way in WAYS {
        let request = client.request(method.clone(), server.url("/"));
        let response = way(request).send().await.unwrap();
        assert_eq!(response.status(), status);
        let shown = response
            .headers()
            .get("content-length")
            .map(|value| value.to_str().unwrap());
        assert_eq!(shown, length);
        assert_eq!(response.outcome(), Some(Outcome::Completed));
        assert!(response.bytes().await.unwrap().is_empty());
    }
    assert_eq!(server.requests().len(), WAYS.len());
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn the_length_in_an_answer_to_head_is_not_waited_for() {
    ends_with_its_head(Method::HEAD, 200, Some("100")).await;
}

#[tokio::test]
async fn a_204_has_no_body_to_wait_for() {
    ends_with_its_head(Method::DELETE, 204, None).await;
}

#[tokio::test]
async fn a_304_has_no_body_whatever_its_length_says() {
    ends_with_its_head(Method::GET, 304, Some("100")).await;
}

// field 19
#[tokio::test]
async fn a_shorter_timeout_of_the_inner_client_gives_way_to_ours() {
    let server = Server::start([Reply::new().pause(ms(600)).then(Reply::ok("late"))]).await;
    let client = over(http().timeout(ms(200)), quick());
    let response = client.get(server.url("/")).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "late");
    assert_eq!(server.requests().len(), 1);
}

// field 19
#[tokio::test]
async fn a_longer_timeout_of_the_inner_client_gives_way_to_ours() {
    let server = Server::start([Reply::new().stall(), Reply::ok("done")]).await;
    let client = over(
        http().timeout(Duration::from_secs(60)),
        quick().attempt_timeout(ms(500)),
    );
    let response = client.get(server.url("/")).send().await.unwrap();
    assert_healed(&response, ErrorKind::Timeout, Delivery::Unknown);
    assert_eq!(server.requests().len(), 2);
}

// field 19
#[tokio::test]
async fn a_timeout_of_the_inner_client_does_not_end_a_body_that_was_handed_over() {
    let head = Reply::status(200).header("Content-Length", "4");
    let server = Server::start([head.pause(ms(600)).send("late")]).await;
    let client = over(http().timeout(ms(200)), quick());
    let started = Instant::now();
    let response = client.get(server.url("/")).streamed().send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "late");
    assert!(started.elapsed() >= ms(600));
}

// field 19: reqwest's own setting on the request means the attempt.
#[tokio::test]
async fn a_timeout_on_the_request_is_one_of_the_attempt() {
    let server = Server::start([Reply::new().stall(), Reply::ok("done")]).await;
    let request = client(quick()).get(server.url("/")).timeout(ms(500));
    let response = request.send().await.unwrap();
    assert_healed(&response, ErrorKind::Timeout, Delivery::Unknown);
    assert_eq!(server.requests().len(), 2);
}

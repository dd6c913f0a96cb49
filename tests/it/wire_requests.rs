//! What goes over the wire: the same bytes and the same key in every attempt.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http_body_util::{BodyExt, Full};
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Body, Method, multipart};
use steadfast::{IdempotencyKey, Outcome, RequestBuilder, ResponseExt, StopReason};

use crate::server::{Recorded, Reply, Server};
use crate::wire::{Call, assert_same_bytes, client, quick};

const KEY: &str = "idempotency-key";

/// Fails an attempt with 503 and one with a reset, then succeeds.
async fn failing_twice() -> Server {
    Server::start([Reply::status(503), Reply::new().reset(), Reply::ok("done")]).await
}

/// The request of every attempt, all three the same byte for byte.
async fn repeated(
    url: impl FnOnce(&Server) -> String,
    build: impl FnOnce(RequestBuilder) -> RequestBuilder,
) -> Recorded {
    let server = failing_twice().await;
    let request = build(client(quick()).post(url(&server)));
    let response = request.send().await.unwrap();
    assert_eq!(response.outcome(), Some(Outcome::Completed));
    assert_same_bytes(&server, 3);
    server.requests().remove(0)
}

fn charge(server: &Server) -> String {
    server.url("/charges")
}

// R12, R75, field 31
#[tokio::test]
async fn a_body_in_memory_is_sent_again_byte_for_byte() {
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let request = repeated(charge, |request| request.body(bytes.clone())).await;
    assert_eq!((request.method(), request.path()), ("POST", "/charges"));
    assert!(request.body() == bytes);
}

// R75, field 31
#[cfg(feature = "json")]
#[tokio::test]
async fn json_is_sent_again_with_its_content_type() {
    let request = repeated(charge, |request| request.json(&serde_json::json!({"amount": 1}))).await;
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.body(), br#"{"amount":1}"#);
}

// R75, field 31
#[cfg(feature = "form")]
#[tokio::test]
async fn a_form_is_sent_again_with_its_content_type() {
    let request = repeated(charge, |request| request.form(&[("amount", "1"), ("to", "a b")])).await;
    assert_eq!(
        request.header("content-type"),
        Some("application/x-www-form-urlencoded")
    );
    assert_eq!(request.body(), b"amount=1&to=a+b");
}

// R75, field 31
#[cfg(feature = "query")]
#[tokio::test]
async fn a_query_is_sent_again() {
    let request = repeated(|s| s.url("/charges?dry=1"), |request| request.query(&[("page", "a b")])).await;
    assert_eq!(request.path(), "/charges?dry=1&page=a+b");
}

// R75, field 31
#[tokio::test]
async fn headers_are_sent_again_in_their_order() {
    let mut headers = HeaderMap::new();
    headers.append("x-twice", HeaderValue::from_static("1"));
    headers.append("x-twice", HeaderValue::from_static("2"));
    let request = repeated(charge, |request| request.header("X-One", "one").headers(headers)).await;
    assert_eq!(request.header("x-one"), Some("one"));
    assert_eq!(request.headers_named("X-Twice"), ["1", "2"]);
}

const BASIC: Option<&str> = Some("Basic YWxpY2U6c2VjcmV0");

// R75, field 31
#[tokio::test]
async fn basic_authentication_is_sent_again() {
    let request = repeated(charge, |request| request.basic_auth("alice", Some("secret"))).await;
    assert_eq!(request.header("authorization"), BASIC);
}

// R75, field 31
#[tokio::test]
async fn bearer_authentication_is_sent_again() {
    let request = repeated(charge, |request| request.bearer_auth("token")).await;
    assert_eq!(request.header("authorization"), Some("Bearer token"));
}

// R75, field 31
#[tokio::test]
async fn user_info_of_the_url_is_sent_again_as_a_header() {
    let with_user = |server: &Server| server.url("/charges").replace("://", "://alice:secret@");
    let request = repeated(with_user, |request| request).await;
    assert_eq!(request.header("authorization"), BASIC);
    assert_eq!(request.path(), "/charges");
}

/// A body that reqwest cannot copy, of a known length.
fn stream(bytes: impl Into<bytes::Bytes>) -> Body {
    Body::wrap(Full::new(bytes.into()))
}

// R75, field 31
#[tokio::test]
async fn a_stream_made_anew_for_each_attempt_is_sent_again() {
    let request = repeated(charge, |request| request.body_with(|| Ok(stream("amount=1")))).await;
    assert_eq!(request.body(), b"amount=1");
}

// R75, field 31
#[tokio::test]
async fn a_multipart_form_made_anew_for_each_attempt_is_sent_again() {
    let form = multipart::Form::new().text("amount", "1").text("to", "bob");
    let content_type = format!("multipart/form-data; boundary={}", form.boundary());
    let bytes = Body::wrap_stream(form.into_stream())
        .collect()
        .await
        .unwrap()
        .to_bytes();
    let make = {
        let bytes = bytes.clone();
        move || Ok(stream(bytes.clone()))
    };
    let request = repeated(charge, |r| r.header("Content-Type", &content_type).body_with(make)).await;
    assert_eq!(request.header("content-type"), Some(&*content_type));
    assert_eq!(request.body(), bytes);
}

/// Sends a POST whose bodies are counted, and returns how many were made.
async fn bodies_made(server: &Server) -> usize {
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let body = move || {
        count.fetch_add(1, Relaxed);
        Ok(stream("amount=1"))
    };
    let request = client(quick()).post(server.url("/")).body_with(body);
    request.send().await.unwrap();
    made.load(Relaxed)
}

// field 30
#[tokio::test]
async fn a_body_is_made_once_for_each_attempt() {
    let server = failing_twice().await;
    assert_eq!(bodies_made(&server).await, 3);
    assert_same_bytes(&server, 3);
}

// field 30
#[tokio::test]
async fn a_body_is_made_once_where_the_first_attempt_succeeds() {
    let server = Server::start([Reply::ok("done")]).await;
    assert_eq!(bodies_made(&server).await, 1);
    assert_eq!(server.requests().len(), 1);
}

// field 30
#[tokio::test]
async fn a_body_that_cannot_be_made_sends_nothing() {
    let server = Server::repeat(Reply::ok("done")).await;
    let request = client(quick())
        .post(server.url("/"))
        .body_with(|| Err(io::Error::other("no such file")));
    let error = request.send().await.unwrap_err();
    assert_eq!(error.kind(), steadfast::ErrorKind::Request);
    assert_eq!(error.outcome(), Outcome::NotDone);
    assert!(server.requests().is_empty());
}

/// Sent once: what the attempt brought is the result, and the record says why there was no other.
async fn is_sent_once(build: impl FnOnce(RequestBuilder) -> RequestBuilder) -> Recorded {
    let server = Server::start([Reply::status(503).body("try again"), Reply::ok("done")]).await;
    let request = build(client(quick()).post(server.url("/")));
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 503);
    let attempts = response.attempts().unwrap();
    assert_eq!(attempts.stop_reason(), StopReason::BodyNotReplayable);
    assert_eq!(attempts.outcome(), Outcome::Unknown);
    assert_eq!(response.text().await.unwrap(), "try again");
    assert_eq!(server.requests().len(), 1);
    server.requests().remove(0)
}

// field 30
#[tokio::test]
async fn a_stream_is_sent_once_and_its_answer_given_back() {
    let request = is_sent_once(|request| request.body(stream("amount=1"))).await;
    assert_eq!(request.body(), b"amount=1");
}

// field 30
#[cfg(feature = "multipart")]
#[tokio::test]
async fn a_multipart_form_is_a_stream() {
    let form = multipart::Form::new().text("amount", "1");
    let request = is_sent_once(|request| request.multipart(form)).await;
    assert!(
        request
            .header("content-type")
            .unwrap()
            .starts_with("multipart/form-data")
    );
}

// field 30
#[tokio::test]
async fn a_stream_whose_connection_is_lost_gives_that_failure() {
    let server = Server::start([Reply::new().reset(), Reply::ok("done")]).await;
    let request = client(quick()).post(server.url("/")).body(stream("amount=1"));
    let error = request.send().await.unwrap_err();
    assert_eq!(error.kind(), steadfast::ErrorKind::Reset);
    assert_eq!(error.stop_reason(), StopReason::BodyNotReplayable);
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(server.requests().len(), 1);
}

/// The keys of a single request.
async fn keys_sent(method: Method, build: impl FnOnce(RequestBuilder) -> RequestBuilder) -> Vec<String> {
    let server = Server::start([Reply::ok("done")]).await;
    build(client(quick()).request(method, server.url("/")))
        .send()
        .await
        .unwrap();
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    requests[0].headers_named(KEY).into_iter().map(Into::into).collect()
}

// R11, field 23
#[tokio::test]
async fn the_first_attempt_of_a_post_or_patch_has_a_random_uuid_as_its_key() {
    for method in [Method::POST, Method::PATCH] {
        let keys = keys_sent(method, |request| request).await;
        let [key] = &keys[..] else { panic!("{keys:?}") };
        let uuid = uuid::Uuid::parse_str(key).unwrap();
        assert_eq!(uuid.get_version_num(), 4);
    }
}

// R42
#[tokio::test]
async fn other_methods_have_no_key_of_their_own() {
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE] {
        assert!(keys_sent(method, |request| request).await.is_empty());
    }
}

// R43
#[tokio::test]
async fn a_put_has_the_key_it_is_given() {
    let key = IdempotencyKey::parse("mine").unwrap();
    assert_eq!(
        keys_sent(Method::PUT, |request| request.idempotency_key(key)).await,
        ["mine"]
    );
}

#[tokio::test]
async fn a_post_told_to_go_without_a_key_has_none() {
    assert!(
        keys_sent(Method::POST, RequestBuilder::without_idempotency_key)
            .await
            .is_empty()
    );
}

// field 35
#[tokio::test]
async fn the_callers_header_wins_in_any_letter_case_and_is_sent_once() {
    for name in [
        "Idempotency-Key",
        "idempotency-key",
        "IDEMPOTENCY-KEY",
        "iDEMPOTENCY-kEY",
    ] {
        let keys = keys_sent(Method::POST, |request| request.header(name, "mine")).await;
        assert_eq!(keys, ["mine"], "{name}");
    }
}

// field 35
#[tokio::test]
async fn the_callers_key_is_the_same_in_every_attempt() {
    let key = IdempotencyKey::parse("order-4711").unwrap();
    let request = repeated(charge, |request| request.idempotency_key(key)).await;
    assert_eq!(request.headers_named(KEY), ["order-4711"]);
}

// R12, R41, field 37
#[tokio::test]
async fn two_operations_with_equal_bodies_have_two_keys() {
    let server = Server::repeat(Reply::ok("done")).await;
    let client = client(quick());
    let request = client.post(server.url("/")).body("amount=1");
    request.try_clone().unwrap().send().await.unwrap();
    request.send().await.unwrap();
    let requests = server.requests();
    assert_eq!(requests[0].body(), requests[1].body());
    assert_ne!(requests[0].header(KEY), requests[1].header(KEY));
}

// R46, R75, field 36, field 39
#[tokio::test]
async fn an_operation_sent_again_has_the_same_bytes_and_key() {
    let server = Server::repeat(Reply::new().reset()).await;
    let request = Call::Keyed.to(&client(quick()), server.url("/"));
    let operation = request.into_operation().unwrap();
    for _ in 0..2 {
        let error = operation.send().await.unwrap_err();
        assert_eq!(error.idempotency_key(), operation.idempotency_key());
    }
    assert_same_bytes(&server, 6);
    let key = operation.idempotency_key().map(IdempotencyKey::as_str);
    assert_eq!(server.requests()[5].header(KEY), key);
}

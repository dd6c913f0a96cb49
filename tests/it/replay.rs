//! What is repeated, and what is not.

use std::io::{self, ErrorKind::*};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use http_body_util::Full;
use reqwest::{Body, Method};
use steadfast::{AttemptError, ErrorKind, Outcome, Policy, RequestBuilder, ResponseExt, StopReason, UnknownRetries};

use crate::transport::{Step, Transport, URL, answer, client, fail, fail_with, hang, key, no_backoff, refused, secs};

fn request(method: Method) -> RequestBuilder {
    client(no_backoff().attempt_timeout(secs(1))).request(method, URL)
}

fn keyless_post() -> RequestBuilder {
    request(Method::POST).without_idempotency_key()
}

/// The requests made when the first of them meets this step, and a second one would succeed.
async fn requests_after(step: Step, request: RequestBuilder) -> usize {
    let transport = Transport::new([step, answer(200)]);
    // What it came to is the business of other tests.
    let _ = request.send_with(transport.send()).await;
    transport.seen().len()
}

// R1, R30
#[tokio::test(start_paused = true)]
async fn no_more_requests_are_made_than_attempts_are_allowed() {
    for (policy, allowed) in [
        (Policy::builder(), 3),
        (Policy::builder().max_attempts(1), 1),
        (Policy::builder().max_attempts(7), 7),
    ] {
        let transport = Transport::always(answer(503));
        let response = client(policy).get(URL).send_with(transport.send()).await.unwrap();
        assert_eq!(response.status(), 503);
        assert_eq!(transport.seen().len(), allowed);
        assert_eq!(response.attempts().unwrap().len(), allowed);
        assert_eq!(response.attempts().unwrap().stop_reason(), StopReason::MaxAttempts);
    }
    let transport = Transport::always(fail(ConnectionReset));
    let one = request(Method::GET).max_attempts(2);
    let error = one.send_with(transport.send()).await.unwrap_err();
    assert_eq!(error.stop_reason(), StopReason::MaxAttempts);
    assert_eq!(transport.seen().len(), 2);
}

// R2: before a connection there was nothing to send on.
#[tokio::test(start_paused = true)]
async fn a_refused_connection_is_tried_again_whatever_the_method() {
    assert_eq!(requests_after(refused(), keyless_post().body("x")).await, 2);
    assert_eq!(requests_after(refused(), request(Method::GET)).await, 2);
}

// R2, field 22: behind a redirect, or in a stack of the caller's, another connection may have carried it before.
#[tokio::test(start_paused = true)]
async fn a_refused_connection_proves_nothing_once_the_body_was_read() {
    let transport = Transport::new([fail(ConnectionRefused), answer(200)]);
    let request = keyless_post().body("x");
    let error = request.send_with(transport.send()).await.unwrap_err();
    assert_eq!(transport.seen().len(), 1);
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert_eq!(error.outcome(), Outcome::Unknown);
}

// R2, R9
#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_repeated_only_where_that_is_harmless() {
    for kind in [
        ConnectionReset,
        ConnectionAborted,
        BrokenPipe,
        NotConnected,
        UnexpectedEof,
        TimedOut,
    ] {
        assert_eq!(requests_after(fail(kind), keyless_post()).await, 1, "{kind:?}");
        assert_eq!(requests_after(fail(kind), request(Method::POST)).await, 2, "{kind:?}");
        assert_eq!(requests_after(fail(kind), request(Method::GET)).await, 2, "{kind:?}");
    }
}

// R2
#[tokio::test(start_paused = true)]
async fn a_failure_nobody_recognises_is_final() {
    let unheard_of = || -> Box<dyn std::error::Error + Send + Sync> { "the dog ate it".into() };
    for step in [fail_with(unheard_of), fail(PermissionDenied), fail(InvalidData)] {
        let transport = Transport::new([step]);
        let error = request(Method::POST).send_with(transport.send()).await.unwrap_err();
        assert_eq!(transport.seen().len(), 1);
        assert_eq!(error.kind(), ErrorKind::Other);
        assert_eq!(error.stop_reason(), StopReason::NotRetryable);
        assert_eq!(error.outcome(), Outcome::Unknown);
    }
}

// R2
#[tokio::test(start_paused = true)]
async fn a_transport_can_say_what_became_of_a_request() {
    let not_sent = || AttemptError::not_sent(io::Error::from(PermissionDenied));
    let unknown = || AttemptError::unknown(io::Error::from(PermissionDenied));
    assert_eq!(requests_after(fail_with(not_sent), keyless_post()).await, 2);
    assert_eq!(requests_after(fail_with(unknown), keyless_post()).await, 1);
    assert_eq!(requests_after(fail_with(unknown), request(Method::POST)).await, 2);
}

// R5
#[tokio::test(start_paused = true)]
async fn a_gateway_error_is_repeated() {
    for status in [502, 503, 504] {
        let transport = Transport::new([answer(status), answer(200)]);
        let response = request(Method::GET).send_with(transport.send()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(transport.seen().len(), 2, "{status}");
    }
}

// R8
#[tokio::test(start_paused = true)]
async fn a_refusal_that_will_not_change_is_not_repeated() {
    for status in [400, 401, 403, 404, 405, 409, 410, 422, 501, 505] {
        let transport = Transport::new([answer(status).body("no")]);
        let response = request(Method::GET).send_with(transport.send()).await.unwrap();
        assert_eq!(transport.seen().len(), 1, "{status}");
        assert_eq!(response.status(), status);
        assert_eq!(response.attempts().unwrap().stop_reason(), StopReason::NotRetryable);
        assert_eq!(response.text().await.unwrap(), "no");
    }
}

// R9
#[tokio::test(start_paused = true)]
async fn an_ambiguous_write_is_repeated_with_a_key_and_only_with_one() {
    for step in [answer(500), answer(502), answer(503), answer(504), hang()] {
        let transport = Transport::new([step.clone(), answer(200)]);
        let response = request(Method::POST).send_with(transport.send()).await.unwrap();
        assert_eq!(response.status(), 200);
        let seen = transport.seen();
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0].key(), seen[1].key());

        assert_eq!(requests_after(step, keyless_post()).await, 1);
    }
}

// R10
#[tokio::test(start_paused = true)]
async fn an_ambiguous_write_without_a_key_is_neither_repeated_nor_called_failed() {
    let transport = Transport::new([hang()]);
    let error = keyless_post().send_with(transport.send()).await.unwrap_err();
    assert_eq!(transport.seen().len(), 1);
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
    assert_eq!(error.outcome(), Outcome::Unknown);

    let transport = Transport::new([answer(500)]);
    let response = keyless_post().send_with(transport.send()).await.unwrap();
    assert_eq!(transport.seen().len(), 1);
    assert_eq!(response.attempts().unwrap().stop_reason(), StopReason::NotReplaySafe);
    assert_eq!(response.outcome(), Some(Outcome::Unknown));
}

// R42
#[tokio::test(start_paused = true)]
async fn idempotent_methods_are_repeated_without_a_key() {
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE] {
        let transport = Transport::new([fail(ConnectionReset), answer(200)]);
        let response = request(method.clone()).send_with(transport.send()).await.unwrap();
        assert_eq!(response.status(), 200);
        let seen = transport.seen();
        assert_eq!(seen.len(), 2, "{method}");
        assert!(seen.iter().all(|seen| seen.method == method));
        assert!(seen.iter().all(|seen| seen.header("idempotency-key").is_empty()));
    }
}

// R43
#[tokio::test(start_paused = true)]
async fn a_patch_needs_its_key_and_a_put_can_be_made_to() {
    let patch = || request(Method::PATCH);
    assert_eq!(requests_after(answer(500), patch()).await, 2);
    assert_eq!(requests_after(answer(500), patch().without_idempotency_key()).await, 1);
    let counter = || request(Method::PUT).replay_safe(false);
    assert_eq!(requests_after(answer(500), counter()).await, 1);
    assert_eq!(requests_after(answer(429), counter()).await, 2);
    assert_eq!(requests_after(answer(500), keyless_post().replay_safe(true)).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_policy_says_which_keys_count_when_nothing_is_known() {
    let counts = async |allowed, method: Method, own_key: bool| {
        let client = client(no_backoff().unknown_retries(allowed));
        let request = client.request(method, URL);
        let request = if own_key {
            request.idempotency_key(key("k1"))
        } else {
            request
        };
        requests_after(fail(ConnectionReset), request).await
    };
    assert_eq!(counts(UnknownRetries::Keyed, Method::POST, false).await, 2);
    assert_eq!(counts(UnknownRetries::Declared, Method::POST, false).await, 1);
    assert_eq!(counts(UnknownRetries::Declared, Method::POST, true).await, 2);
    assert_eq!(counts(UnknownRetries::Declared, Method::GET, false).await, 2);
    assert_eq!(counts(UnknownRetries::Never, Method::POST, true).await, 1);
    assert_eq!(counts(UnknownRetries::Never, Method::GET, false).await, 1);
    let never = client(no_backoff().unknown_retries(UnknownRetries::Never));
    assert_eq!(requests_after(answer(429), never.post(URL)).await, 2);
}

// field 30
#[tokio::test(start_paused = true)]
async fn a_stream_is_sent_once_and_its_real_result_returned() {
    let stream = || Body::wrap(Full::new(Bytes::from_static(b"once")));

    let transport = Transport::new([answer(503).body("busy")]);
    let sent = request(Method::POST).body(stream()).send_with(transport.send());
    let response = sent.await.unwrap();
    assert_eq!(response.status(), 503);
    let stop = response.attempts().unwrap().stop_reason();
    assert_eq!(stop, StopReason::BodyNotReplayable);
    assert_eq!(response.text().await.unwrap(), "busy");
    let seen = transport.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].body, "once");

    let transport = Transport::new([fail(ConnectionReset)]);
    let sent = request(Method::PUT).body(stream()).send_with(transport.send());
    let error = sent.await.unwrap_err();
    assert_eq!(transport.seen().len(), 1);
    assert_eq!(error.kind(), ErrorKind::Reset);
    assert_eq!(error.stop_reason(), StopReason::BodyNotReplayable);
}

// field 30
#[tokio::test(start_paused = true)]
async fn a_body_is_made_once_for_each_attempt() {
    for (steps, attempts) in [
        (vec![answer(200)], 1),
        (vec![answer(503), fail(ConnectionReset), answer(200)], 3),
    ] {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&made);
        let transport = Transport::new(steps);
        let request = request(Method::POST).body_with(move || {
            counted.fetch_add(1, Relaxed);
            Ok(Body::wrap(Full::new(Bytes::from_static(b"fresh"))))
        });
        request.send_with(transport.send()).await.unwrap();
        assert_eq!(made.load(Relaxed), attempts);
        let bodies: Vec<_> = transport.seen().into_iter().map(|seen| seen.body).collect();
        assert_eq!(bodies, vec![&b"fresh"[..]; attempts]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_made_is_not_sent() {
    let transport = Transport::new([]);
    let request = request(Method::POST).body_with(|| Err(NotFound.into()));
    let error = request.send_with(transport.send()).await.unwrap_err();
    assert_eq!(transport.seen().len(), 0);
    assert_eq!(error.kind(), ErrorKind::Request);
    assert_eq!(error.outcome(), Outcome::NotDone);
}

// field 31
#[cfg(all(feature = "json", feature = "query"))]
#[tokio::test(start_paused = true)]
async fn attempt_two_is_attempt_one_byte_for_byte() {
    let transport = Transport::new([answer(500), hang(), answer(200)]);
    let request = request(Method::POST)
        .query(&[("expand", "customer")])
        .header("x-tenant", "acme")
        .header("x-tenant", "again")
        .bearer_auth("token")
        .json(&serde_json::json!({"amount": 100, "currency": "EUR"}));
    request.send_with(transport.send()).await.unwrap();
    let seen = transport.seen();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0].method, Method::POST);
    assert_eq!(seen[0].url.as_str(), "https://api.example.com/charges?expand=customer");
    assert_eq!(seen[0].header("x-tenant"), ["acme", "again"]);
    assert_eq!(seen[0].header("authorization"), ["Bearer token"]);
    assert_eq!(seen[0].header("content-type"), ["application/json"]);
    assert_eq!(seen[0].body, r#"{"amount":100,"currency":"EUR"}"#);
    for later in &seen[1..] {
        assert_eq!(later.method, seen[0].method);
        assert_eq!(later.url, seen[0].url);
        assert_eq!(later.headers, seen[0].headers);
        assert_eq!(later.body, seen[0].body);
    }
    assert_eq!(transport.times(), [0, 0, 1_000].map(crate::transport::millis));
}

// field 22: a sender that makes errors of statuses says by their URL that it was redirected.
#[tokio::test(start_paused = true)]
async fn the_status_error_of_another_url_does_not_speak_for_the_request() {
    for status in [429, 404] {
        let transport = Transport::always(answer(status).url("https://api.example.com/receipt"));
        let attempt = |request| {
            let answer = transport.send()(request);
            async move { Ok::<_, AttemptError>(answer.await?.error_for_status()?) }
        };
        let error = keyless_post().send_with(attempt).await.unwrap_err();
        assert_eq!(transport.seen().len(), 1, "{status}");
        assert_eq!(error.kind(), ErrorKind::Status);
        assert_eq!(error.status().map(|status| status.as_u16()), Some(status));
        assert_eq!(error.outcome(), Outcome::Unknown);
    }
    let transport = Transport::new([answer(429).url(URL), answer(200).url(URL)]);
    let attempt = |request| {
        let answer = transport.send()(request);
        async move { Ok::<_, AttemptError>(answer.await?.error_for_status()?) }
    };
    keyless_post().send_with(attempt).await.unwrap();
    assert_eq!(transport.seen().len(), 2);
}

// field 30
#[tokio::test(start_paused = true)]
async fn a_body_that_is_made_anew_takes_the_place_of_a_stream() {
    let stream = Body::wrap(Full::new(Bytes::from_static(b"stream")));
    let request = client(no_backoff()).put(URL).body(stream);
    let request = request.body_with(|| Ok(Body::from("made")));
    let copy = request.try_clone().expect("a copy");
    for request in [request, copy] {
        let transport = Transport::new([answer(503), answer(200)]);
        request.send_with(transport.send()).await.unwrap();
        let bodies: Vec<_> = transport.seen().into_iter().map(|seen| seen.body).collect();
        assert_eq!(bodies, ["made", "made"]);
    }
}

// R10: whoever forbids repeating a GET says that it does something, and that the answer of another URL is not its own.
#[tokio::test(start_paused = true)]
async fn a_redirected_get_that_must_not_be_repeated_is_not() {
    let transport = Transport::always(answer(429).url("https://api.example.com/status"));
    let forbidden = request(Method::GET).replay_safe(false);
    let response = forbidden.send_with(transport.send()).await.unwrap();
    assert_eq!(transport.seen().len(), 1);
    assert_eq!(response.attempts().unwrap().stop_reason(), StopReason::NotReplaySafe);
    assert_eq!(response.outcome(), Some(Outcome::Unknown));

    let transport = Transport::new([answer(429).url("https://api.example.com/status"), answer(200)]);
    request(Method::GET).send_with(transport.send()).await.unwrap();
    assert_eq!(transport.seen().len(), 2);
}

//! One key for one operation, on every attempt of it and on no other's.

use std::io::ErrorKind::ConnectionReset;

use reqwest::Method;
use steadfast::{Client, ErrorKind, Outcome, ResponseExt, StopReason};

use crate::transport::{Seen, Transport, URL, answer, client, fail, hang, key, no_backoff, secs};

fn plain() -> Client {
    client(no_backoff().attempt_timeout(secs(1)))
}

fn keys(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(Seen::key).collect()
}

// R11
#[tokio::test(start_paused = true)]
async fn a_write_carries_a_uuid_of_version_4_from_its_first_attempt() {
    for method in [Method::POST, Method::PATCH] {
        let transport = Transport::new([answer(200)]);
        let request = plain().request(method, URL);
        let response = request.send_with(transport.send()).await.unwrap();
        let seen = transport.seen();
        let key = uuid::Uuid::parse_str(seen[0].key()).unwrap();
        assert_eq!(key.get_version_num(), 4);
        assert_eq!(key.hyphenated().to_string(), seen[0].key());
        let recorded = response.attempts().unwrap().idempotency_key().unwrap();
        assert_eq!(recorded.as_str(), seen[0].key());
    }
}

// R12, R13, R95: after answers, failures and timeouts alike.
#[tokio::test(start_paused = true)]
async fn every_attempt_carries_the_one_key() {
    let transport = Transport::new([answer(503), fail(ConnectionReset), hang(), answer(429), answer(200)]);
    let request = plain().post(URL).body("x").max_attempts(5);
    request.send_with(transport.send()).await.unwrap();
    let seen = transport.seen();
    assert_eq!(seen.len(), 5);
    assert_eq!(keys(&seen), [seen[0].key(); 5]);
}

// R41, field 37
#[tokio::test(start_paused = true)]
async fn two_equal_bodies_are_two_operations_with_two_keys() {
    let client = plain();
    let transport = Transport::always(answer(200));
    for _ in 0..2 {
        let request = client.post(URL).body("the same");
        request.send_with(transport.send()).await.unwrap();
    }
    let seen = transport.seen();
    assert_eq!(seen[0].body, seen[1].body);
    assert_ne!(seen[0].key(), seen[1].key());
}

// R41
#[tokio::test(start_paused = true)]
async fn a_copied_builder_is_a_second_operation() {
    let first = plain().post(URL).body("x");
    let second = first.try_clone().unwrap();
    let transport = Transport::always(answer(200));
    first.send_with(transport.send()).await.unwrap();
    second.send_with(transport.send()).await.unwrap();
    let seen = transport.seen();
    assert_eq!(seen.len(), 2);
    assert_ne!(seen[0].key(), seen[1].key());
}

// R41: one request, copied by its owner.
#[tokio::test(start_paused = true)]
async fn executing_a_request_twice_makes_two_operations() {
    let client = plain();
    let request = client.post(URL).body("x").build().unwrap();
    let transport = Transport::always(answer(200));
    let copy = request.try_clone().unwrap();
    client.execute_with(request, transport.send()).await.unwrap();
    client.execute_with(copy, transport.send()).await.unwrap();
    let seen = transport.seen();
    assert_eq!(seen.len(), 2);
    assert_ne!(seen[0].key(), seen[1].key());
}

// field 36, R46
#[tokio::test(start_paused = true)]
async fn after_exhaustion_the_caller_goes_on_with_the_key_from_the_error() {
    let client = plain();
    let transport = Transport::new([
        fail(ConnectionReset),
        fail(ConnectionReset),
        fail(ConnectionReset),
        answer(200),
    ]);
    let first = client.post(URL).body("x").send_with(transport.send()).await;
    let error = first.unwrap_err();
    assert_eq!(error.stop_reason(), StopReason::MaxAttempts);
    let key = error.idempotency_key().unwrap().clone();
    let again = client.post(URL).body("x").idempotency_key(key);
    again.send_with(transport.send()).await.unwrap();
    let seen = transport.seen();
    assert_eq!(seen.len(), 4);
    assert_eq!(keys(&seen), [seen[0].key(); 4]);
}

// field 36
#[tokio::test(start_paused = true)]
async fn after_exhaustion_an_answer_gives_the_key_too() {
    let transport = Transport::always(answer(503));
    let response = plain().post(URL).send_with(transport.send()).await.unwrap();
    let error = response.into_result().unwrap_err();
    let seen = transport.seen();
    assert_eq!(error.idempotency_key().unwrap().as_str(), seen[0].key());
}

// field 35
#[tokio::test(start_paused = true)]
async fn the_callers_header_wins_in_any_letter_case_and_stands_once() {
    for name in ["idempotency-key", "Idempotency-Key", "IDEMPOTENCY-KEY"] {
        let transport = Transport::new([fail(ConnectionReset), answer(200)]);
        let request = plain().post(URL).header(name, "order-4711");
        let response = request.send_with(transport.send()).await.unwrap();
        assert_eq!(keys(&transport.seen()), ["order-4711"; 2]);
        // A key of the caller is the caller's word that the service honours it.
        assert!(response.attempts().unwrap().exactly_once());
    }
}

// field 35: also where both ways are used.
#[tokio::test(start_paused = true)]
async fn a_key_given_twice_is_sent_once_and_two_keys_not_at_all() {
    let given = || plain().post(URL).header("Idempotency-Key", "a");
    let transport = Transport::new([answer(200)]);
    let request = given().idempotency_key(key("a"));
    request.send_with(transport.send()).await.unwrap();
    assert_eq!(keys(&transport.seen()), ["a"]);

    let transport = Transport::new([]);
    let request = given().idempotency_key(key("b"));
    let error = request.send_with(transport.send()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Request);
    assert_eq!(error.outcome(), Outcome::NotDone);
    assert_eq!(transport.seen().len(), 0);
}

// R46
#[tokio::test(start_paused = true)]
async fn a_key_that_was_given_is_on_every_attempt_of_any_method() {
    for method in [Method::POST, Method::PUT, Method::GET] {
        let transport = Transport::new([answer(500), answer(200)]);
        let request = plain().request(method, URL).idempotency_key(key("intent-1"));
        request.send_with(transport.send()).await.unwrap();
        assert_eq!(keys(&transport.seen()), ["intent-1"; 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_can_go_without_a_key() {
    let transport = Transport::new([answer(429), answer(200)]);
    let request = plain().post(URL).without_idempotency_key();
    let response = request.send_with(transport.send()).await.unwrap();
    let seen = transport.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|seen| seen.header("idempotency-key").is_empty()));
    assert_eq!(response.attempts().unwrap().idempotency_key(), None);
}

// R49
#[tokio::test(start_paused = true)]
async fn an_answer_about_the_key_never_brings_another_key() {
    for status in [400, 409, 422] {
        let transport = Transport::new([answer(status)]);
        let response = plain().post(URL).send_with(transport.send()).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(transport.seen().len(), 1);
        assert_eq!(response.attempts().unwrap().stop_reason(), StopReason::NotRetryable);
    }
}

// field 38
#[tokio::test(start_paused = true)]
async fn a_conflict_with_our_own_first_try_is_waited_out_under_the_same_key() {
    let transport = Transport::new([hang(), answer(409), answer(201)]);
    let response = plain().post(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(response.status(), 201);
    let seen = transport.seen();
    assert_eq!(seen.len(), 3);
    assert_eq!(keys(&seen), [seen[0].key(); 3]);
}

// field 38: a refusal leaves nothing running that a 409 could speak of.
#[tokio::test(start_paused = true)]
async fn a_conflict_with_nothing_of_ours_is_final() {
    let transport = Transport::new([answer(429), answer(409)]);
    let response = plain().post(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(response.status(), 409);
    assert_eq!(transport.seen().len(), 2);
    assert_eq!(response.outcome(), Some(Outcome::NotDone));

    let transport = Transport::new([hang(), answer(409)]);
    let keyless = plain().put(URL);
    let response = keyless.send_with(transport.send()).await.unwrap();
    assert_eq!(response.status(), 409);
    assert_eq!(transport.seen().len(), 2);
    assert_eq!(response.outcome(), Some(Outcome::Unknown));
}

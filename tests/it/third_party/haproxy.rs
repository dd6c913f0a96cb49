//! HAProxy with nobody behind it, and with connections that it closes.

use std::collections::HashSet;
use std::{iter, thread};

use reqwest::Response;
use steadfast::{Delivery, Error, ErrorKind, Outcome, ResponseExt, StopReason};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use super::{LONG, Service, new_tag};
use crate::wire::{Call, assert_healed, client, ms, quick};

// R5, R9
#[tokio::test]
async fn a_503_of_haproxy_with_no_server_up_is_repeated_where_a_repeat_is_safe() {
    let Some(haproxy) = Service::haproxy() else { return };
    for (call, count, outcome) in [
        (Call::Get, 3, Outcome::NotDone),
        (Call::Keyed, 3, Outcome::Unknown),
        (Call::Keyless, 1, Outcome::Unknown),
    ] {
        let tag = new_tag();
        let request = call.to(&client(quick()), haproxy.url("/down", &tag));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 503);
        let attempts = response.attempts().unwrap();
        assert_eq!(attempts.len(), count, "{call:?}");
        assert_eq!(attempts.outcome(), outcome, "{call:?}");
        assert!(attempts.iter().all(|attempt| attempt.delivery() == Delivery::Unknown));
        haproxy.assert_logged(&tag, call, attempts).await;
    }
}

// R29, field 23
#[tokio::test]
async fn a_silent_haproxy_times_the_attempts_out_and_sees_the_same_key_in_each() {
    let Some(haproxy) = Service::haproxy() else { return };
    for (call, count, stop_reason) in [
        (Call::Get, 3, StopReason::MaxAttempts),
        (Call::Keyed, 3, StopReason::MaxAttempts),
        (Call::Keyless, 1, StopReason::NotReplaySafe),
    ] {
        let tag = new_tag();
        let request = call.to(&client(quick().attempt_timeout(ms(500))), haproxy.url("/slow", &tag));
        let error = request.send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert_eq!(error.stop_reason(), stop_reason);
        assert_eq!(error.attempts().len(), count);
        let lines = haproxy.logged(&tag, count).await;
        assert_eq!(lines.len(), count, "{lines:?}");
        let key = error.idempotency_key().map(|key| key.as_str());
        assert!(lines.iter().all(|line| line.key.as_deref() == key), "{lines:?}");
    }
}

// field 25
#[tokio::test]
async fn connections_that_haproxy_closes_after_each_answer_cost_no_attempt() {
    let Some(haproxy) = Service::haproxy() else { return };
    for call in Call::ALL {
        let (client, tag) = (client(quick()), new_tag());
        for _ in 0..10 {
            let request = call.to(&client, haproxy.url("/closing", &tag));
            let response = request.send().await.unwrap();
            assert_eq!(response.attempts().unwrap().len(), 1);
            assert_eq!(response.text().await.unwrap(), "closing");
        }
        let lines = haproxy.logged(&tag, 10).await;
        assert_eq!(lines.len(), 10, "{lines:?}");
        let ports: HashSet<_> = lines.iter().map(|line| &line.port).collect();
        assert_eq!(ports.len(), 10, "{lines:?}");
    }
}

/// One operation after the other, each at a moment of its own around the one when HAProxy closes the idle
/// connection, which is 100 ms after its last answer.
async fn meet_the_closing(haproxy: &Service, call: Call) {
    let client = client(quick());
    let mut met = Vec::new();
    for offset in 0..12 {
        let tag = new_tag();
        let request = call.to(&client, haproxy.url("/", &tag));
        met.push((tag, request.send().await));
        sleep(ms(94 + offset)).await;
    }
    for (tag, result) in met {
        let attempts = match &result {
            Ok(response) => response.attempts().unwrap(),
            Err(error) => error.attempts(),
        };
        let lines = haproxy.logged(&tag, usize::from(result.is_ok())).await;
        assert!(lines.len() <= attempts.len(), "{lines:?}, {attempts:?}");
        let key = attempts.idempotency_key().map(|key| key.as_str());
        assert!(lines.iter().all(|line| line.key.as_deref() == key), "{lines:?}");
        // Sent once, and nobody knows whether it was read.
        if let Err(error) = result {
            assert_eq!(call, Call::Keyless, "{error}");
            assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
            assert_eq!(error.stop_reason(), StopReason::NotReplaySafe, "{error}");
        }
    }
}

async fn meet_the_closing_on_many_connections(call: Call) {
    let Some(haproxy) = Service::haproxy() else { return };
    let lanes = iter::repeat_n(haproxy, 8).map(|haproxy| async move { meet_the_closing(&haproxy, call).await });
    lanes.collect::<JoinSet<_>>().join_all().await;
}

// field 25
#[tokio::test]
async fn a_get_loses_nothing_on_connections_that_haproxy_closes_when_idle() {
    meet_the_closing_on_many_connections(Call::Get).await;
}

// field 25
#[tokio::test]
async fn a_keyed_post_loses_nothing_on_connections_that_haproxy_closes_when_idle() {
    meet_the_closing_on_many_connections(Call::Keyed).await;
}

// field 25
#[tokio::test]
async fn a_keyless_post_is_never_sent_twice_on_connections_that_haproxy_closes_when_idle() {
    meet_the_closing_on_many_connections(Call::Keyless).await;
}

/// An operation on a connection that HAProxy has closed, which the client was too busy to notice; with its tag.
async fn on_a_stale_connection(haproxy: &Service, call: Call) -> (String, Result<Response, Error>) {
    let tries = async {
        loop {
            let client = client(quick());
            let first = client.get(haproxy.url("/", &new_tag())).send().await.unwrap();
            assert_eq!(first.text().await.unwrap(), "haproxy");
            // The connection goes back to the pool.
            for _ in 0..10 {
                yield_now().await;
            }
            // The one thread of the test does nothing else.
            thread::sleep(ms(300));
            let tag = new_tag();
            let result = call.to(&client, haproxy.url("/", &tag)).send().await;
            let attempts = match &result {
                Ok(response) => response.attempts().unwrap(),
                Err(error) => error.attempts(),
            };
            if attempts.iter().any(|attempt| attempt.failure().is_some()) {
                return (tag, result);
            }
        }
    };
    timeout(LONG, tries).await.expect("a connection to be stale")
}

// field 23, field 25
#[tokio::test]
async fn a_connection_that_haproxy_closed_unnoticed_heals_where_a_repeat_is_safe() {
    let Some(haproxy) = Service::haproxy() else { return };
    for call in Call::REPLAY_SAFE {
        let (tag, result) = on_a_stale_connection(&haproxy, call).await;
        let response = result.unwrap();
        assert_healed(&response, ErrorKind::Reset, Delivery::Unknown);
        let lines = haproxy.logged(&tag, 1).await;
        let seen: Vec<_> = lines.iter().map(|l| (l.status, l.key.as_deref())).collect();
        let key = response.attempts().unwrap().idempotency_key().map(|key| key.as_str());
        assert_eq!(seen, [(200, key)]);
    }
}

// R10, field 22, field 25: HAProxy never read it, and nobody can know.
#[tokio::test]
async fn a_keyless_post_on_a_connection_that_haproxy_closed_unnoticed_is_unknown() {
    let Some(haproxy) = Service::haproxy() else { return };
    let (tag, result) = on_a_stale_connection(&haproxy, Call::Keyless).await;
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reset);
    assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(error.attempts().len(), 1);
    assert!(haproxy.logged(&tag, 0).await.is_empty());
}

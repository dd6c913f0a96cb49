//! HAProxy with nobody behind it, and with connections that it closes.

use std::collections::HashSet;

use steadfast::{Delivery, ErrorKind, Outcome, ResponseExt, StopReason};
use tokio::time::sleep;

use super::{Service, new_tag};
use crate::wire::{Call, client, ms, quick};

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
        let request = call.to(&client(quick().attempt_timeout(ms(300))), haproxy.url("/slow", &tag));
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

/// How many operations meet a connection at about the time when HAProxy closes it, which is 100 ms after its last answer.
const MEETINGS: usize = 40;

/// One operation after the other, each at a moment of its own around the closing.
async fn meet_the_closing(haproxy: &Service, call: Call) {
    let client = client(quick());
    for meeting in 0..MEETINGS {
        let tag = new_tag();
        let request = call.to(&client, haproxy.url("/", &tag));
        let result = request.send().await;
        let attempts = match &result {
            Ok(response) => response.attempts().unwrap().clone(),
            Err(error) => error.attempts().clone(),
        };
        let lines = haproxy.logged(&tag, usize::from(result.is_ok())).await;
        let key = attempts.idempotency_key().map(|key| key.as_str());
        assert!(lines.iter().all(|line| line.key.as_deref() == key), "{lines:?}");
        assert!(lines.len() <= attempts.len(), "{lines:?}, {attempts:?}");
        match result {
            Ok(response) => assert_eq!(response.text().await.unwrap(), "haproxy"),
            // Sent once, and nobody knows whether it was read.
            Err(error) => {
                assert_eq!(call, Call::Keyless, "{error}");
                assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
                assert_eq!(error.stop_reason(), StopReason::NotReplaySafe, "{error}");
            }
        }
        if call == Call::Keyless {
            assert!(lines.len() <= 1, "{lines:?}");
        }
        sleep(ms(95 + meeting as u64 % 10)).await;
    }
}

// field 25
#[tokio::test]
async fn a_get_loses_nothing_on_connections_that_haproxy_closes_when_idle() {
    let Some(haproxy) = Service::haproxy() else { return };
    meet_the_closing(&haproxy, Call::Get).await;
}

// field 25
#[tokio::test]
async fn a_keyed_post_loses_nothing_on_connections_that_haproxy_closes_when_idle() {
    let Some(haproxy) = Service::haproxy() else { return };
    meet_the_closing(&haproxy, Call::Keyed).await;
}

// field 25
#[tokio::test]
async fn a_keyless_post_is_never_sent_twice_on_connections_that_haproxy_closes_when_idle() {
    let Some(haproxy) = Service::haproxy() else { return };
    meet_the_closing(&haproxy, Call::Keyless).await;
}

//! nginx as a proxy in trouble: what it answers for others, and what it refuses itself.

use std::time::Duration;

use reqwest::Response;
use steadfast::{Delivery, Outcome, PolicyBuilder, ResponseExt, StopReason};

use super::{Service, new_tag};
use crate::wire::{Call, client, http, quick};

/// The answer to one operation, its attempts being those in the log.
async fn send(nginx: &Service, call: Call, path: &str, tag: &str, policy: PolicyBuilder) -> Response {
    let request = call.to(&client(policy), nginx.url(path, tag));
    let response = request.send().await.unwrap();
    nginx.assert_logged(tag, call, response.attempts().unwrap()).await;
    response
}

/// Always answered so: repeated to the end where a repeat is safe, and only there.
async fn assert_repeated_where_safe(nginx: &Service, call: Call, path: &str, status: u16, tag: &str) {
    let response = send(nginx, call, path, tag, quick()).await;
    assert_eq!(response.status(), status);
    let attempts = response.attempts().unwrap();
    let (count, stop_reason, outcome) = match call {
        Call::Get => (3, StopReason::MaxAttempts, Outcome::NotDone),
        Call::Keyed => (3, StopReason::MaxAttempts, Outcome::Unknown),
        Call::Keyless => (1, StopReason::NotReplaySafe, Outcome::Unknown),
    };
    assert_eq!(attempts.len(), count, "{call:?}");
    assert_eq!(attempts.stop_reason(), stop_reason, "{call:?}");
    assert_eq!(attempts.outcome(), outcome, "{call:?}");
    assert!(attempts.iter().all(|attempt| attempt.delivery() == Delivery::Unknown));
}

/// Refused each time: nothing was done, and every method was repeated. These are the waits that followed.
async fn refused(nginx: &Service, call: Call, path: &str, status: u16) -> Vec<Duration> {
    let response = send(nginx, call, path, &new_tag(), quick()).await;
    assert_eq!(response.status(), status);
    let attempts = response.attempts().unwrap();
    assert_eq!(attempts.len(), 3, "{call:?}");
    assert_eq!(attempts.stop_reason(), StopReason::MaxAttempts);
    assert_eq!(attempts.outcome(), Outcome::NotDone);
    assert!(attempts.iter().all(|attempt| attempt.delivery() == Delivery::Rejected));
    attempts.iter().filter_map(|attempt| attempt.waited()).collect()
}

// R5, R9
#[tokio::test]
async fn a_502_of_nginx_before_a_dead_upstream_is_repeated_where_a_repeat_is_safe() {
    let Some(nginx) = Service::nginx() else { return };
    for call in Call::ALL {
        assert_repeated_where_safe(&nginx, call, "/dead", 502, &new_tag()).await;
    }
}

// R5, R9
#[tokio::test]
async fn a_504_of_nginx_before_a_slow_upstream_is_repeated_where_a_repeat_is_safe() {
    let Some(nginx) = Service::nginx() else { return };
    for call in Call::ALL {
        assert_repeated_where_safe(&nginx, call, "/slow", 504, &new_tag()).await;
    }
}

// R12: nginx gave up on a request that its upstream has.
#[tokio::test]
async fn every_attempt_reaches_the_slow_upstream_of_nginx_with_the_same_key() {
    let (Some(nginx), Some(upstream)) = (Service::nginx(), Service::haproxy()) else {
        return;
    };
    let tag = new_tag();
    let response = send(&nginx, Call::Keyed, "/slow", &tag, quick()).await;
    let key = response.attempts().unwrap().idempotency_key().unwrap();
    let requests = upstream.logged(&tag, 3).await;
    assert_eq!(requests.len(), 3, "{requests:?}");
    assert!(requests.iter().all(|line| line.key.as_deref() == Some(key.as_str())));
}

// R9, R27
#[tokio::test]
async fn a_503_of_nginx_without_retry_after_is_repeated_where_a_repeat_is_safe() {
    let Some(nginx) = Service::nginx() else { return };
    for call in Call::ALL {
        assert_repeated_where_safe(&nginx, call, "/maintenance", 503, &new_tag()).await;
    }
}

// R6, R28
#[tokio::test]
async fn a_503_of_nginx_with_retry_after_is_waited_out_for_every_method() {
    let Some(nginx) = Service::nginx() else { return };
    let path = "/maintenance?after=1";
    let all = tokio::join!(
        refused(&nginx, Call::Get, path, 503),
        refused(&nginx, Call::Keyed, path, 503),
        refused(&nginx, Call::Keyless, path, 503),
    );
    for waits in [all.0, all.1, all.2] {
        assert_eq!(waits, [Duration::from_secs(1); 2]);
    }
}

// R32
#[tokio::test]
async fn a_503_of_nginx_that_asks_for_too_long_a_wait_is_given_back_at_once() {
    let Some(nginx) = Service::nginx() else { return };
    for call in Call::ALL {
        let response = send(&nginx, call, "/maintenance?after=3600", &new_tag(), quick()).await;
        assert_eq!(response.status(), 503);
        let attempts = response.attempts().unwrap();
        assert_eq!(attempts.len(), 1);
        let asked = Duration::from_secs(3_600);
        assert_eq!(attempts.stop_reason(), StopReason::RetryAfter { asked });
        assert_eq!(attempts.outcome(), Outcome::NotDone);
        assert_eq!(response.text().await.unwrap(), "closed\n");
    }
}

/// Takes the one request in two seconds, so that the next one is over the limit.
async fn use_up_the_limit(nginx: &Service, tag: &str) {
    let request = http().build().unwrap().get(nginx.url("/limited", tag));
    assert_eq!(request.send().await.unwrap().status(), 200);
}

// R6, R28
#[tokio::test]
async fn a_429_of_the_rate_limit_of_nginx_heals_for_every_method() {
    async fn heals(nginx: &Service, call: Call) {
        let tag = new_tag();
        use_up_the_limit(nginx, &tag).await;
        let url = nginx.url("/limited?after=2", &tag);
        let response = call.to(&client(quick()), url).send().await.unwrap();
        let attempts = response.attempts().unwrap();
        let told: Vec<_> = attempts.iter().map(|a| a.status().unwrap().as_u16()).collect();
        assert_eq!(told, [429, 200], "{call:?}");
        assert_eq!(attempts.outcome(), Outcome::Completed);
        let lines = nginx.logged(&tag, 3).await;
        let key = attempts.idempotency_key().map(|key| key.as_str());
        // The first one used up the limit.
        let seen: Vec<_> = lines[1..].iter().map(|l| (l.status, l.key.as_deref())).collect();
        assert_eq!(seen, [(429, key), (200, key)]);
        assert_eq!(response.text().await.unwrap(), "passed\n");
    }
    let Some(nginx) = Service::nginx() else { return };
    tokio::join!(
        heals(&nginx, Call::Get),
        heals(&nginx, Call::Keyed),
        heals(&nginx, Call::Keyless),
    );
}

// R6, R27
#[tokio::test]
async fn a_429_of_nginx_that_stays_has_done_nothing_whatever_the_method() {
    let Some(nginx) = Service::nginx() else { return };
    for call in Call::ALL {
        let tag = new_tag();
        use_up_the_limit(&nginx, &tag).await;
        let url = nginx.url("/limited", &tag);
        let response = call.to(&client(quick()), url).send().await.unwrap();
        assert_eq!(response.status(), 429);
        let attempts = response.attempts().unwrap();
        assert_eq!(attempts.stop_reason(), StopReason::MaxAttempts);
        assert_eq!(attempts.outcome(), Outcome::NotDone);
        let lines = nginx.logged(&tag, 4).await;
        let seen: Vec<_> = lines.iter().map(|line| line.status).collect();
        assert_eq!(seen, [200, 429, 429, 429], "{call:?}");
    }
}

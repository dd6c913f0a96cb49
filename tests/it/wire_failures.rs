//! Attempts without an answer: what each failure of the network lets us repeat.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use steadfast::{Delivery, ErrorKind, Outcome, PolicyBuilder, ResponseExt, StopReason};
use tokio::time::Instant;

use crate::server::{Reply, Server};
use crate::wire::{
    BlackHole, Call, Lookups, Refusing, assert_healed, assert_same_bytes, client, http, ms, over, quick,
};

/// Attempts that are given up soon.
fn impatient() -> PolicyBuilder {
    quick().attempt_timeout(ms(500))
}

/// Attempt 1 never reaches a server, attempt 2 does: so for every kind of operation.
async fn heals_unsent(http: fn() -> reqwest::ClientBuilder, first: Option<SocketAddr>, kind: ErrorKind) {
    for call in Call::ALL {
        let server = Server::start([Reply::ok("done")]).await;
        let http = http().dns_resolver(Lookups::of([first, Some(server.addr())]));
        let request = call.to(&over(http, quick()), Lookups::URL.into());
        let response = request.send().await.unwrap();
        assert_healed(&response, kind, Delivery::NotSent);
        assert!(response.attempts().unwrap().exactly_once(), "{call:?}");
        assert_eq!(server.requests().len(), 1, "{call:?}");
    }
}

// R3, field 22
#[tokio::test]
async fn a_refused_connection_is_repeated_for_every_method() {
    let refusing = Refusing::new();
    heals_unsent(http, Some(refusing.addr()), ErrorKind::Connect).await;
}

// R4, field 22
#[tokio::test]
async fn a_dns_failure_is_repeated_for_every_method() {
    heals_unsent(http, None, ErrorKind::Dns).await;
}

// R3, field 22
#[tokio::test]
async fn a_connect_timeout_is_repeated_for_every_method() {
    let black_hole = BlackHole::new().await;
    let http = || http().connect_timeout(ms(300));
    heals_unsent(http, Some(black_hole.addr()), ErrorKind::Connect).await;
}

// field 22: nothing of the request was touched while its connect hung.
#[tokio::test]
async fn an_attempt_timeout_that_cuts_a_connect_is_repeated_for_every_method() {
    let black_hole = BlackHole::new().await;
    for call in Call::ALL {
        let server = Server::start([Reply::ok("done")]).await;
        let lookups = Lookups::of([Some(black_hole.addr()), Some(server.addr())]);
        let client = over(http().dns_resolver(lookups), impatient());
        let response = call.to(&client, Lookups::URL.into()).send().await.unwrap();
        // Where a repeat is safe anyway, nobody looks.
        let unsafe_to_repeat = call == Call::Keyless;
        let delivery = if unsafe_to_repeat {
            Delivery::NotSent
        } else {
            Delivery::Unknown
        };
        assert_healed(&response, ErrorKind::Timeout, delivery);
        assert_eq!(server.requests().len(), 1, "{call:?}");
    }
}

// field 22: what was redirected may have been acted on, whatever becomes of the connection after it.
#[tokio::test]
async fn a_refused_connection_behind_a_303_ends_a_keyless_post_as_unknown() {
    let refusing = Refusing::new();
    let location = format!("http://{}/", refusing.addr());
    for body in ["amount=1", ""] {
        let see_other = Reply::status(303).header("Location", &location);
        let server = Server::start([see_other, Reply::ok("done")]).await;
        let request = Call::Keyless.to(&client(quick()), server.url("/pay")).body(body);
        let error = request.send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect);
        assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
        assert_eq!(error.outcome(), Outcome::Unknown);
        assert_eq!(server.requests().len(), 1, "{body:?}");
    }
}

// R1, R3
#[tokio::test]
async fn a_closed_port_ends_after_all_attempts_as_not_done() {
    let refusing = Refusing::new();
    for call in Call::ALL {
        let url = format!("http://{}/", refusing.addr());
        let error = call.to(&client(quick()), url).send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect, "{call:?}");
        assert!(error.is_connect());
        assert_eq!(error.stop_reason(), StopReason::MaxAttempts);
        assert_eq!(error.outcome(), Outcome::NotDone);
        assert_eq!(error.attempts().len(), 3);
        assert!(error.attempts().exactly_once());
    }
}

// R4
#[tokio::test]
async fn a_name_that_never_resolves_ends_as_a_dns_failure() {
    let http = http().dns_resolver(Lookups::of([None]));
    let request = Call::Keyless.to(&over(http, quick()), Lookups::URL.into());
    let error = request.send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Dns);
    assert!(error.is_connect());
    assert_eq!(error.outcome(), Outcome::NotDone);
    assert_eq!(error.attempts().len(), 3);
}

/// Where a repeat is safe, a second request with the same bytes heals it.
async fn heals(policy: PolicyBuilder, failing: Reply, kind: ErrorKind) {
    for call in Call::REPLAY_SAFE {
        let server = Server::start([failing.clone(), Reply::ok("done")]).await;
        let request = call.to(&client(policy.clone()), server.url("/pay"));
        let response = request.send().await.unwrap();
        assert_healed(&response, kind, Delivery::Unknown);
        // A GET has no effect to have twice; a key the service never promised to honour proves nothing.
        let once = response.attempts().unwrap().exactly_once();
        assert_eq!(once, call == Call::Get);
        assert_same_bytes(&server, 2);
    }
}

/// A keyless POST is neither repeated nor called failed.
async fn ends_unknown(policy: PolicyBuilder, failing: Reply, kind: ErrorKind) {
    let server = Server::start([failing, Reply::ok("done")]).await;
    let request = Call::Keyless.to(&client(policy), server.url("/pay"));
    let error = request.send().await.unwrap_err();
    assert_eq!(error.kind(), kind);
    assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
    assert_eq!(error.outcome(), Outcome::Unknown);
    let deliveries: Vec<_> = error.attempts().iter().map(|a| a.delivery()).collect();
    assert_eq!(deliveries, [Delivery::Unknown]);
    assert!(error.attempts().exactly_once());
    assert_eq!(server.requests().len(), 1);
}

// R3, R75, field 23
#[tokio::test]
async fn a_reset_after_the_request_heals_where_a_repeat_is_safe() {
    heals(quick(), Reply::new().reset(), ErrorKind::Reset).await;
}

// R2, R10, field 22
#[tokio::test]
async fn a_reset_after_the_request_ends_a_keyless_post_as_unknown() {
    ends_unknown(quick(), Reply::new().reset(), ErrorKind::Reset).await;
}

// R3, R75, field 23
#[tokio::test]
async fn an_end_of_file_after_the_request_heals_where_a_repeat_is_safe() {
    heals(quick(), Reply::new().close(), ErrorKind::Reset).await;
}

// R2, R10, field 22
#[tokio::test]
async fn an_end_of_file_after_the_request_ends_a_keyless_post_as_unknown() {
    ends_unknown(quick(), Reply::new().close(), ErrorKind::Reset).await;
}

// R3, R29, R75, field 23
#[tokio::test]
async fn an_attempt_timeout_heals_where_a_repeat_is_safe() {
    heals(impatient(), Reply::new().stall(), ErrorKind::Timeout).await;
}

// R9, R10, R82, field 22
#[tokio::test]
async fn an_attempt_timeout_ends_a_keyless_post_as_unknown() {
    ends_unknown(impatient(), Reply::new().stall(), ErrorKind::Timeout).await;
}

// R3: part of the head of an answer is no answer.
#[tokio::test]
async fn an_answer_cut_in_its_head_heals_where_a_repeat_is_safe() {
    let cut = Reply::new().send("HTTP/1.1 200 OK\r\nContent-").close();
    heals(quick(), cut, ErrorKind::Reset).await;
}

// R3: the connection is there, and gone. Whether any byte left is known to the client only; where it may have, a
// keyless POST is not repeated.
#[tokio::test]
async fn a_reset_on_accept_is_repeated_unless_the_request_may_have_left() {
    for call in Call::ALL {
        let server = Server::start([Reply::reset_on_accept(), Reply::ok("done")]).await;
        let result = call.to(&client(quick()), server.url("/")).send().await;
        match result {
            Ok(response) => {
                let attempts = response.attempts().unwrap();
                let first = attempts.iter().next().unwrap();
                // Gone before the request was given to it, the connection was never made.
                let unsent = (Some(ErrorKind::Connect), Delivery::NotSent);
                let lost = (Some(ErrorKind::Reset), Delivery::Unknown);
                let seen = (first.failure(), first.delivery());
                assert!(seen == unsent || seen == lost && call != Call::Keyless, "{seen:?}");
                assert_eq!((attempts.len(), server.requests().len()), (2, 1));
            }
            Err(error) => {
                assert_eq!((call, error.kind()), (Call::Keyless, ErrorKind::Reset));
                assert_eq!(error.outcome(), Outcome::Unknown);
                assert_eq!((error.attempts().len(), server.requests().len()), (1, 0));
            }
        }
    }
}

// R3, R75: the reset comes while most of the body is still to be sent.
#[tokio::test]
async fn a_reset_in_the_middle_of_the_request_body_heals_with_a_key() {
    let server = Server::start([Reply::reset_after_head(), Reply::ok("done")]).await;
    let body = vec![b'x'; 8 << 20];
    let request = client(quick()).post(server.url("/")).body(body.clone());
    let response = request.send().await.unwrap();
    assert_healed(&response, ErrorKind::Reset, Delivery::Unknown);
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(
        requests[0].header("idempotency-key"),
        requests[1].header("idempotency-key")
    );
    assert!(requests[1].body() == body);
}

// R3, R10
#[tokio::test]
async fn a_reset_in_the_middle_of_the_request_body_ends_a_keyless_post_as_unknown() {
    let server = Server::start([Reply::reset_after_head(), Reply::ok("done")]).await;
    let request = Call::Keyless.to(&client(quick()), server.url("/"));
    let error = request.body(vec![b'x'; 8 << 20]).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reset);
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(server.requests().len(), 1);
}

// field 25: the server closes the idle connection just as the next request arrives on it.
#[tokio::test]
async fn a_stale_connection_heals_where_a_repeat_is_safe() {
    for call in Call::ALL {
        let server = Server::start([Reply::ok("first"), Reply::new().close(), Reply::ok("done")]).await;
        let client = client(quick());
        let first = client.get(server.url("/")).send().await.unwrap();
        assert_eq!(first.text().await.unwrap(), "first");
        let result = call.to(&client, server.url("/pay")).send().await;
        if call == Call::Keyless {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Reset);
            assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
            assert_eq!(error.outcome(), Outcome::Unknown);
        } else {
            assert_healed(&result.unwrap(), ErrorKind::Reset, Delivery::Unknown);
        }
        let used: Vec<_> = server.requests().iter().map(|r| r.connection).collect();
        let expected: &[_] = if call == Call::Keyless { &[0, 0] } else { &[0, 0, 1] };
        assert_eq!(used, expected, "{call:?}");
    }
}

// R139, field 28: the effect happens, then the answer is lost or says 500. A service that honours keys acts once.
#[tokio::test]
async fn a_lost_confirmation_has_one_effect_with_a_key() {
    for lost in [Reply::new().reset(), Reply::status(500)] {
        let server = Server::start([lost, Reply::ok("done")]).await;
        let request = Call::Keyed.to(&client(quick()), server.url("/pay"));
        let response = request.send().await.unwrap();
        assert_eq!(response.outcome(), Some(Outcome::Completed));
        let requests = server.requests();
        assert_eq!(requests.len(), 2);
        let keys = requests
            .iter()
            .map(|request| request.header("idempotency-key").unwrap());
        assert_eq!(keys.collect::<BTreeSet<_>>().len(), 1);
    }
}

// field 28
#[tokio::test]
async fn a_500_ends_a_keyless_post_as_unknown_with_its_answer() {
    let server = Server::start([Reply::status(500).body("committed, then failed"), Reply::ok("twice")]).await;
    let request = Call::Keyless.to(&client(quick()), server.url("/pay"));
    let response = request.send().await.unwrap();
    assert_eq!(response.outcome(), Some(Outcome::Unknown));
    assert_eq!(response.attempts().unwrap().stop_reason(), StopReason::NotReplaySafe);
    assert_eq!(response.text().await.unwrap(), "committed, then failed");
    assert_eq!(server.requests().len(), 1);
}

// R1, R29
#[tokio::test]
async fn a_server_that_never_answers_is_asked_as_often_as_allowed() {
    let server = Server::repeat(Reply::new().stall()).await;
    let error = client(impatient()).get(server.url("/")).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.is_timeout());
    assert_eq!(error.stop_reason(), StopReason::MaxAttempts);
    assert!(error.attempts().iter().all(|attempt| attempt.took() >= ms(500)));
    assert_eq!(server.requests().len(), 3);
}

// R45
#[tokio::test]
async fn attempts_that_hang_end_with_the_deadline() {
    let server = Server::repeat(Reply::new().stall()).await;
    let policy = quick().max_attempts(1000).attempt_timeout(ms(200)).deadline(ms(500));
    let started = Instant::now();
    let error = client(policy).get(server.url("/")).send().await.unwrap_err();
    assert!(started.elapsed() >= ms(490));
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.stop_reason(), StopReason::Deadline);
    assert!(server.requests().len() <= 3);
}

// R29: a timeout of the inner client that cannot be replaced is one of the attempt.
#[tokio::test]
async fn the_read_timeout_of_the_inner_client_heals_where_a_repeat_is_safe() {
    let server = Server::start([Reply::new().stall(), Reply::ok("done")]).await;
    let client = over(http().read_timeout(ms(300)), quick());
    let response = client.post(server.url("/")).send().await.unwrap();
    assert_healed(&response, ErrorKind::Timeout, Delivery::Unknown);
    assert_same_bytes(&server, 2);
}

//! HTTP/2: what a server takes back, one request of many on a connection, lets us repeat.

use http_body_util::BodyExt;
use reqwest::{StatusCode, Version};
use steadfast::{Client, Delivery, ErrorKind, Outcome, ResponseExt, StopReason};

use crate::frames::{CANCEL, DONE, Http2, INTERNAL_ERROR, NO_ERROR, Part, REFUSED_STREAM};
use crate::wire::{Call, assert_healed, http, over, quick};

/// Speaks HTTP/2 from the first byte, and repeats nothing on its own.
fn http2() -> reqwest::ClientBuilder {
    http().http2_prior_knowledge().retry(reqwest::retry::never())
}

fn assert_same_bodies(server: &Http2, count: usize) {
    let bodies = server.bodies();
    assert_eq!(bodies.len(), count);
    assert!(bodies.iter().all(|body| *body == bodies[0]));
}

// field 29
#[tokio::test]
async fn a_refused_stream_is_repeated_for_every_method() {
    for call in Call::ALL {
        let server = Http2::start([&[Part::Reset(REFUSED_STREAM)], DONE]).await;
        let request = call.to(&over(http2(), quick()), server.url());
        let response = request.send().await.unwrap();
        assert_healed(&response, ErrorKind::Reset, Delivery::NotSent);
        let attempts = response.attempts().unwrap();
        assert!(attempts.exactly_once());
        assert_eq!(attempts.idempotency_key().is_some(), call == Call::Keyed);
        assert_eq!(response.version(), Version::HTTP_2);
        assert_eq!(response.text().await.unwrap(), "done");
        assert_same_bodies(&server, 2);
    }
}

// field 29: reqwest repeats a refusal itself, below an attempt; a request it cannot repeat is repeated by us.
#[tokio::test]
async fn a_stream_refused_to_a_plain_client_is_repeated_for_every_method() {
    for call in Call::ALL {
        let server = Http2::start([&[Part::Reset(REFUSED_STREAM)], DONE]).await;
        let client = over(http().http2_prior_knowledge(), quick());
        let response = call.to(&client, server.url()).send().await.unwrap();
        assert_eq!(response.outcome(), Some(Outcome::Completed));
        assert!(response.attempts().unwrap().exactly_once());
        assert_same_bodies(&server, 2);
    }
}

// field 29
#[tokio::test]
async fn a_stream_that_is_always_refused_ends_as_not_done() {
    for call in Call::ALL {
        let server = Http2::start([&[Part::Reset(REFUSED_STREAM)][..]]).await;
        let request = call.to(&over(http2(), quick()), server.url());
        let error = request.send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Reset, "{call:?}");
        assert_eq!(error.stop_reason(), StopReason::MaxAttempts);
        assert_eq!(error.outcome(), Outcome::NotDone);
        assert_same_bodies(&server, 3);
    }
}

// field 22, field 29: the refusal is that of the GET, and the POST before it was acted on.
#[tokio::test]
async fn a_stream_refused_behind_a_303_never_repeats_a_keyless_post_where_redirects_are_told() {
    let server = Http2::start([&[Part::SeeOther], &[Part::Reset(REFUSED_STREAM)][..], DONE]).await;
    let client = Client::from_builder(http().http2_prior_knowledge()).unwrap().build();
    let request = Call::Keyless.to(&client, server.url());
    let error = request.send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reset);
    assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
    assert_eq!(error.outcome(), Outcome::Completed);
    assert_eq!(server.bodies(), [&b"amount=1"[..], b""]);
}

/// Where a repeat is safe it heals, and a keyless POST is neither repeated nor called failed.
async fn is_unknown(failing: &'static [Part]) {
    for call in Call::ALL {
        let server = Http2::start([failing, DONE]).await;
        let result = call.to(&over(http2(), quick()), server.url()).send().await;
        if call == Call::Keyless {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Reset, "{error}");
            assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
            assert_eq!(error.outcome(), Outcome::Unknown);
            assert_same_bodies(&server, 1);
        } else {
            assert_healed(&result.unwrap(), ErrorKind::Reset, Delivery::Unknown);
            assert_same_bodies(&server, 2);
        }
    }
}

// R3, R10
#[tokio::test]
async fn a_stream_that_fails_in_the_server_may_have_acted() {
    is_unknown(&[Part::Reset(INTERNAL_ERROR)]).await;
}

// R3, R10
#[tokio::test]
async fn a_stream_that_the_server_cancels_may_have_acted() {
    is_unknown(&[Part::Reset(CANCEL)]).await;
}

const GONE: [&[Part]; 2] = [&[Part::GoAway(NO_ERROR)], &[Part::GoAway(INTERNAL_ERROR)]];

/// A client that is told its redirects.
fn told() -> Client {
    let http = http().http2_prior_knowledge();
    Client::from_builder(http)
        .unwrap()
        .policy(quick().build().unwrap())
        .build()
}

// R3: its body was read and nothing was followed, so that the stream is one the GOAWAY does not spare.
#[tokio::test]
async fn a_request_that_a_server_going_away_did_not_look_at_is_repeated_where_redirects_are_told() {
    for gone in GONE {
        for call in Call::ALL {
            let server = Http2::start([gone, DONE]).await;
            let response = call.to(&told(), server.url()).send().await.unwrap();
            let known = if call == Call::Keyless {
                Delivery::NotSent
            } else {
                Delivery::Unknown
            };
            assert_healed(&response, ErrorKind::Reset, known);
            assert_same_bodies(&server, 2);
        }
    }
}

// R10: it might be the GET of a redirect that was not looked at.
#[tokio::test]
async fn a_server_that_goes_away_may_have_acted_where_redirects_are_not_told() {
    for gone in GONE {
        is_unknown(gone).await;
    }
}

// field 22: the GOAWAY is that of the GET, and the POST before it was acted on.
#[tokio::test]
async fn a_goaway_behind_a_303_never_repeats_a_keyless_post() {
    for client in [told(), over(http2(), quick())] {
        let server = Http2::start([&[Part::SeeOther], &[Part::GoAway(INTERNAL_ERROR)][..], DONE]).await;
        let error = Call::Keyless.to(&client, server.url()).send().await.unwrap_err();
        assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
        assert_ne!(error.outcome(), Outcome::NotDone);
        assert_eq!(server.bodies(), [&b"amount=1"[..], b""]);
    }
}

// R10: without a body to be read, a stream that was looked at fails no differently where the GOAWAY crosses it.
#[tokio::test]
async fn a_request_without_a_body_may_have_been_looked_at_by_a_server_going_away() {
    let server = Http2::start([&[Part::GoAway(NO_ERROR)][..], DONE]).await;
    let request = told().post(server.url()).without_idempotency_key();
    let error = request.send().await.unwrap_err();
    assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(server.bodies().len(), 1);
}

// R3, R10
#[tokio::test]
async fn a_request_that_a_server_going_away_looked_at_may_have_acted() {
    is_unknown(&[Part::GoAwayAfter(NO_ERROR), Part::Close]).await;
    is_unknown(&[Part::GoAwayAfter(INTERNAL_ERROR), Part::Close]).await;
}

// R3, R10
#[tokio::test]
async fn a_connection_dropped_under_a_stream_may_have_acted() {
    is_unknown(&[Part::Close]).await;
}

/// The server has answered, so a success is known although its body is not.
async fn is_answered(failing: &'static [Part]) {
    for call in Call::ALL {
        let server = Http2::start([failing, DONE]).await;
        let result = call.to(&over(http2(), quick()), server.url()).send().await;
        if call == Call::Keyless {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Body, "{error}");
            assert_eq!(error.status(), Some(StatusCode::OK));
            assert_eq!(error.stop_reason(), StopReason::NotReplaySafe);
            assert_eq!(error.outcome(), Outcome::Completed);
            assert_same_bodies(&server, 1);
        } else {
            assert_healed(&result.unwrap(), ErrorKind::Body, Delivery::Answered);
            assert_same_bodies(&server, 2);
        }
    }
}

// field 26, field 29: who has begun to answer can no longer say that nothing was done.
#[tokio::test]
async fn a_stream_refused_after_its_head_was_answered() {
    is_answered(&[Part::Head, Part::Data("do"), Part::Reset(REFUSED_STREAM)]).await;
    is_answered(&[Part::Head, Part::Reset(REFUSED_STREAM)]).await;
}

// field 26
#[tokio::test]
async fn a_connection_dropped_in_the_middle_of_a_body_was_answered() {
    is_answered(&[Part::Head, Part::Data("do"), Part::Close]).await;
}

/// What a caller finds behind the bytes of the body.
async fn trailers_survive(buffer: usize) {
    let server = Http2::start([&[Part::Head, Part::Data("done"), Part::Trailers][..]]).await;
    let client = over(http2(), quick().response_buffer(buffer));
    let response = client.get(server.url()).send().await.unwrap();
    let body = http::Response::from(response).into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-sum"], "42");
    assert_eq!(body.to_bytes(), "done");
}

#[tokio::test]
async fn trailers_survive_a_body_that_is_read_inside_the_attempt() {
    trailers_survive(1 << 20).await;
}

#[tokio::test]
async fn trailers_survive_a_body_that_is_handed_over() {
    trailers_survive(0).await;
    trailers_survive(2).await;
}

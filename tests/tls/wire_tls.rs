//! TLS: its verdict on a server is final, a handshake that is cut is not.

use steadfast::{Client, Delivery, ErrorKind, Outcome, ResponseExt, StopReason};

use crate::front::{Certificate, Front, HOST, Meet, trusting};
use crate::server::{Reply, Server};
use crate::wire::{Call, Lookups, assert_healed, http, over, quick};

async fn in_front_of(server: &Server, first: Meet) -> (Front, Client) {
    let front = Front::start(server.addr(), first, Meet::Tls(Certificate::Good)).await;
    let http = http().dns_resolver(Lookups::of([Some(front.addr())]));
    (front, over(trusting(http), quick()))
}

fn url() -> String {
    format!("https://{HOST}/pay")
}

#[tokio::test]
async fn a_good_certificate_is_accepted() {
    for call in Call::ALL {
        let server = Server::start([Reply::ok("done")]).await;
        let (front, client) = in_front_of(&server, Meet::Tls(Certificate::Good)).await;
        let response = call.to(&client, url()).send().await.unwrap();
        assert_eq!(response.attempts().unwrap().len(), 1);
        assert_eq!(response.outcome(), Some(Outcome::Completed));
        assert_eq!(response.text().await.unwrap(), "done");
        assert_eq!((front.connections(), server.requests().len()), (1, 1), "{call:?}");
    }
}

/// One attempt, although the next connection would find a good certificate.
async fn is_final(verdict: Meet) {
    for call in Call::ALL {
        let server = Server::start([Reply::ok("done")]).await;
        let (front, client) = in_front_of(&server, verdict).await;
        let error = call.to(&client, url()).send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Tls, "{call:?}: {error}");
        assert!(error.is_connect());
        assert_eq!(error.stop_reason(), StopReason::NotRetryable);
        assert_eq!(error.outcome(), Outcome::NotDone);
        let deliveries: Vec<_> = error.attempts().iter().map(|a| a.delivery()).collect();
        assert_eq!(deliveries, [Delivery::NotSent]);
        assert_eq!((front.connections(), server.requests().len()), (1, 0), "{call:?}");
    }
}

// field 24
#[tokio::test]
async fn a_self_signed_certificate_ends_every_operation_at_once() {
    is_final(Meet::Tls(Certificate::SelfSigned)).await;
}

// field 24
#[tokio::test]
async fn an_expired_certificate_ends_every_operation_at_once() {
    is_final(Meet::Tls(Certificate::Expired)).await;
}

// field 24
#[tokio::test]
async fn a_certificate_of_another_host_ends_every_operation_at_once() {
    is_final(Meet::Tls(Certificate::OfAnotherHost)).await;
}

// field 24
#[tokio::test]
async fn a_server_without_a_common_version_of_tls_ends_every_operation_at_once() {
    is_final(Meet::NoCommonVersion).await;
}

/// Nothing was sent, so another attempt is made whatever the method.
async fn heals(cut: Meet) {
    for call in Call::ALL {
        let server = Server::start([Reply::ok("done")]).await;
        let (front, client) = in_front_of(&server, cut).await;
        let response = call.to(&client, url()).send().await.unwrap();
        assert_healed(&response, ErrorKind::Connect, Delivery::NotSent);
        assert!(response.attempts().unwrap().exactly_once());
        assert_eq!((front.connections(), server.requests().len()), (2, 1), "{call:?}");
    }
}

// field 24
#[tokio::test]
async fn a_handshake_cut_by_an_end_of_file_is_repeated_for_every_method() {
    heals(Meet::Fin).await;
}

// field 24
#[tokio::test]
async fn a_handshake_cut_by_a_reset_is_repeated_for_every_method() {
    heals(Meet::Rst).await;
}

// field 28: TLS is no different once the request is on its way.
#[tokio::test]
async fn a_connection_lost_under_tls_ends_a_keyless_post_as_unknown() {
    let server = Server::start([Reply::new().close(), Reply::ok("done")]).await;
    let (_front, client) = in_front_of(&server, Meet::Tls(Certificate::Good)).await;
    let error = Call::Keyless.to(&client, url()).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reset);
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(server.requests().len(), 1);
}

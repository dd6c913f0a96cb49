//! A proxy that opens no tunnel: nothing of the request was sent.

use reqwest::Proxy;
use steadfast::{Delivery, ErrorKind, Outcome, ResponseExt, StopReason};

use crate::front::{Front, HOST, Meet, trusting};
use crate::server::{Reply, Server};
use crate::wire::{Call, assert_healed, over, quick};

pub(crate) const FORBIDDEN: Meet = Meet::Refusal("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
pub(crate) const AUTHENTICATE: Meet =
    Meet::Refusal("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
pub(crate) const BAD_GATEWAY: Meet = Meet::Refusal("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");

/// A client that reaches every server through this proxy.
pub(crate) fn through(proxy: &Front) -> reqwest::ClientBuilder {
    let proxy = Proxy::all(format!("http://{}", proxy.addr())).unwrap();
    trusting(reqwest::Client::builder().proxy(proxy))
}

/// The proxy opens a tunnel the second time.
async fn heals(refusal: Meet) {
    for call in Call::ALL {
        let server = Server::start([Reply::ok("done")]).await;
        let proxy = Front::start(server.addr(), refusal, Meet::Tunnel).await;
        let client = over(through(&proxy), quick());
        let request = call.to(&client, format!("https://{HOST}/pay"));
        let response = request.send().await.unwrap();
        assert_healed(&response, ErrorKind::Connect, Delivery::NotSent);
        assert!(response.attempts().unwrap().exactly_once());
        assert_eq!((proxy.connections(), server.requests().len()), (2, 1), "{call:?}");
    }
}

// R3
#[tokio::test]
async fn a_proxy_that_forbids_the_tunnel_is_asked_again_for_every_method() {
    heals(FORBIDDEN).await;
}

// R3
#[tokio::test]
async fn a_proxy_that_wants_a_login_is_asked_again_for_every_method() {
    heals(AUTHENTICATE).await;
}

// R3
#[tokio::test]
async fn a_proxy_that_cannot_reach_the_server_is_asked_again_for_every_method() {
    heals(BAD_GATEWAY).await;
}

// R3
#[tokio::test]
async fn a_proxy_that_closes_its_connection_is_asked_again_for_every_method() {
    heals(Meet::Fin).await;
}

// R3
#[tokio::test]
async fn a_proxy_that_resets_its_connection_is_asked_again_for_every_method() {
    heals(Meet::Rst).await;
}

// R10: not even a write without a key is unsure.
#[tokio::test]
async fn a_proxy_that_never_opens_the_tunnel_leaves_every_operation_not_done() {
    for call in Call::ALL {
        let server = Server::start([Reply::ok("done")]).await;
        let proxy = Front::start(server.addr(), FORBIDDEN, FORBIDDEN).await;
        let client = over(through(&proxy), quick());
        let request = call.to(&client, format!("https://{HOST}/pay"));
        let error = request.send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect, "{call:?}");
        assert_eq!(error.stop_reason(), StopReason::MaxAttempts);
        assert_eq!(error.outcome(), Outcome::NotDone);
        assert_eq!((proxy.connections(), server.requests().len()), (3, 0), "{call:?}");
    }
}

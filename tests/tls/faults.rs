//! The faults of the matrix: how a server, or what stands before it, misbehaves once and then no more.

use std::any::Any;

use reqwest::ClientBuilder;
use steadfast::{Client, ResponseExt};

use crate::frames::{DONE, Http2, Part};
use crate::front::{Certificate, Front, HOST, Meet, trusting};
use crate::server::{Reply, Server};
use crate::wire::{BlackHole, Lookups, Refusing, http, ms, quick};
use crate::wire_proxy::through;

/// What happens to the first attempt. The second finds everything in order.
pub(crate) enum Fault {
    NoName,
    Refused,
    /// The inner client has a connect timeout, or has none.
    ConnectHangs {
        connect_timeout: bool,
    },
    Tls(Meet),
    Proxy(Meet),
    /// The answer to the request; with nothing of an answer in it, the lack of one.
    Answer(Reply),
    /// The same on a connection that has served a request before.
    Stale(Reply),
    Http2(&'static [Part]),
    /// The same to a client that is told its redirects.
    Http2Told(&'static [Part]),
    /// A redirect to where there is an answer, or nobody; to a plain client, or to one that is told of it.
    Redirect {
        status: u16,
        answer: Option<u16>,
        told: bool,
    },
    RedirectLoop,
}

/// A fault ready to happen.
pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) url: String,
    server: Host,
    _keep: Vec<Box<dyn Any + Send>>,
}

enum Host {
    Http1(Server),
    Http2(Http2),
}

/// The path of every operation: requests to another one are not counted.
const PATH: &str = "/pay";

impl Stage {
    /// The requests of the operation that came to the server, byte for byte; of HTTP/2 only their bodies.
    pub(crate) fn requests(&self) -> Vec<Vec<u8>> {
        match &self.server {
            Host::Http1(server) => {
                let requests = server.requests();
                let own = requests.into_iter().filter(|request| request.path() == PATH);
                own.map(|request| request.raw).collect()
            }
            Host::Http2(server) => server.bodies(),
        }
    }
}

/// An attempt that hangs is given up after a time in which a good one is over, however busy the machine is.
fn client(http: ClientBuilder, told: bool) -> Client {
    let policy = quick().attempt_timeout(ms(2_000)).build().unwrap();
    let http = trusting(http);
    let builder = if told {
        Client::from_builder(http).unwrap()
    } else {
        Client::builder(http.build().unwrap())
    };
    builder.policy(policy).build()
}

async fn http2(reply: &'static [Part], told: bool) -> Stage {
    let server = Http2::start([reply, DONE]).await;
    let http = http().http2_prior_knowledge().retry(reqwest::retry::never());
    Stage {
        client: client(http, told),
        url: server.url(),
        server: Host::Http2(server),
        _keep: Vec::new(),
    }
}

impl Fault {
    pub(crate) async fn stage(self) -> Stage {
        match self {
            Self::NoName => found([None], http(), ()).await,
            Self::Refused => {
                let nobody = Refusing::new();
                found([Some(nobody.addr())], http(), nobody).await
            }
            Self::ConnectHangs { connect_timeout } => {
                let hole = BlackHole::new().await;
                let http = if connect_timeout {
                    http().connect_timeout(ms(300))
                } else {
                    http()
                };
                found([Some(hole.addr())], http, hole).await
            }
            Self::Tls(first) => {
                let server = Server::repeat(Reply::ok("done")).await;
                let front = Front::start(server.addr(), first, Meet::Tls(Certificate::Good)).await;
                let http = http().dns_resolver(Lookups::of([Some(front.addr())]));
                stage(client(http, false), format!("https://{HOST}{PATH}"), server, front)
            }
            Self::Proxy(first) => {
                let server = Server::repeat(Reply::ok("done")).await;
                let proxy = Front::start(server.addr(), first, Meet::Tunnel).await;
                let client = client(through(&proxy), false);
                stage(client, format!("https://{HOST}{PATH}"), server, proxy)
            }
            Self::Answer(reply) => {
                let server = Server::start([reply, Reply::ok("done")]).await;
                let url = server.url(PATH);
                stage(client(http(), false), url, server, ())
            }
            Self::Stale(reply) => {
                let server = Server::start([Reply::ok("first"), reply, Reply::ok("done")]).await;
                let client = client(http(), false);
                let first = client.get(server.url("/first")).send().await.unwrap();
                assert_eq!(first.attempts().unwrap().len(), 1);
                let url = server.url(PATH);
                stage(client, url, server, ())
            }
            Self::Http2(reply) => http2(reply, false).await,
            Self::Http2Told(reply) => http2(reply, true).await,
            Self::Redirect { status, answer, told } => {
                let nobody = Refusing::new();
                let (location, answer) = match answer {
                    Some(answer) => ("/there".to_owned(), Reply::status(answer)),
                    None => (format!("http://{}/", nobody.addr()), Reply::ok("done")),
                };
                let redirect = Reply::status(status).header("Location", &location);
                let server = Server::start([redirect, answer]).await;
                let url = server.url(PATH);
                stage(client(http(), told), url, server, nobody)
            }
            Self::RedirectLoop => {
                let server = Server::repeat(Reply::status(302).header("Location", "/there")).await;
                let url = server.url(PATH);
                stage(client(http(), false), url, server, ())
            }
        }
    }
}

fn stage(client: Client, url: String, server: Server, keep: impl Any + Send) -> Stage {
    Stage {
        client,
        url,
        server: Host::Http1(server),
        _keep: vec![Box::new(keep)],
    }
}

/// Lookups find this first, and then a server that is in order.
async fn found(first: [Option<std::net::SocketAddr>; 1], http: ClientBuilder, keep: impl Any + Send) -> Stage {
    let server = Server::repeat(Reply::ok("done")).await;
    let lookups = Lookups::of(first.into_iter().chain([Some(server.addr())]));
    let client = client(http.dns_resolver(lookups), false);
    stage(client, Lookups::URL.into(), server, keep)
}

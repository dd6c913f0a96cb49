//! What the tests on real sockets share: the clients, the kinds of operation, and addresses where nobody answers.

use std::collections::VecDeque;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use reqwest::Response;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use steadfast::{
    Backoff, Client, Delivery, ErrorKind, Outcome, Policy, PolicyBuilder, RequestBuilder, ResponseExt, StopReason,
};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::server::Server;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An inner client that knows nothing of the proxies of the environment.
pub(crate) fn http() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy()
}

/// Three attempts without a wait between them.
pub(crate) fn quick() -> PolicyBuilder {
    Policy::builder().backoff(Backoff::none())
}

pub(crate) fn client(policy: PolicyBuilder) -> Client {
    over(http(), policy)
}

pub(crate) fn over(http: reqwest::ClientBuilder, policy: PolicyBuilder) -> Client {
    let policy = policy.build().unwrap();
    Client::builder(http.build().unwrap()).policy(policy).build()
}

/// The kinds of operation that differ in what may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Get,
    Keyed,
    Keyless,
}

impl Call {
    pub(crate) const ALL: [Self; 3] = [Self::Get, Self::Keyed, Self::Keyless];
    /// Those that may be repeated when nobody knows whether the server acted.
    pub(crate) const REPLAY_SAFE: [Self; 2] = [Self::Get, Self::Keyed];

    pub(crate) fn to(self, client: &Client, url: String) -> RequestBuilder {
        let charge = |url| client.post(url).body("amount=1");
        match self {
            Self::Get => client.get(url),
            Self::Keyed => charge(url),
            Self::Keyless => charge(url).without_idempotency_key(),
        }
    }
}

/// The first attempt failed so, the second was answered, and that was all.
pub(crate) fn assert_healed(response: &Response, failure: ErrorKind, delivery: Delivery) {
    let attempts = response.attempts().unwrap();
    let seen: Vec<_> = attempts.iter().map(|a| (a.failure(), a.delivery())).collect();
    assert_eq!(seen, [(Some(failure), delivery), (None, Delivery::Answered)]);
    assert_eq!(attempts.stop_reason(), StopReason::Done);
    assert_eq!(attempts.outcome(), Outcome::Completed);
}

/// So many requests came, each byte for byte the first.
pub(crate) fn assert_same_bytes(server: &Server, count: usize) {
    let requests = server.requests();
    let texts: Vec<_> = requests.iter().map(|r| String::from_utf8_lossy(&r.raw)).collect();
    assert_eq!(texts.len(), count, "{texts:#?}");
    assert!(requests.iter().all(|r| r.raw == requests[0].raw), "{texts:#?}");
}

/// What each lookup of a name finds; `None` is a failure, and the last one stays.
pub(crate) struct Lookups(Mutex<VecDeque<Option<SocketAddr>>>);

impl Lookups {
    /// The URL has to be without a port, so that the one of the address counts.
    pub(crate) const URL: &str = "http://service.test/pay";

    pub(crate) fn of(found: impl IntoIterator<Item = Option<SocketAddr>>) -> Self {
        Self(Mutex::new(found.into_iter().collect()))
    }
}

impl Resolve for Lookups {
    fn resolve(&self, _: Name) -> Resolving {
        let mut found = self.0.lock().unwrap();
        let next = found.pop_front().unwrap();
        if found.is_empty() {
            found.push_back(next);
        }
        let no_such_name = || io::Error::other("no such name").into();
        let addr = next.ok_or_else(no_such_name);
        Box::pin(ready(addr.map(|addr| Box::new([addr].into_iter()) as Addrs)))
    }
}

/// A port that nobody else is given while it refuses all connections.
pub(crate) struct Refusing(TcpSocket);

impl Refusing {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        Self(socket)
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

/// A port where a connection is neither made nor refused: its queue is full and nobody takes from it.
pub(crate) struct BlackHole {
    listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl BlackHole {
    pub(crate) async fn new() -> Self {
        let Refusing(socket) = Refusing::new();
        let listener = socket.listen(0).unwrap();
        let addr = listener.local_addr().unwrap();
        let mut queue = Vec::new();
        while let Ok(stream) = timeout(ms(300), TcpStream::connect(addr)).await {
            queue.push(stream.unwrap());
        }
        Self {
            listener,
            _queue: queue,
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }
}

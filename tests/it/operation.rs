//! The operation as a thing: dropped, sent again, sent twice at once.

use std::io::ErrorKind::ConnectionReset;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use http_body_util::Full;
use reqwest::Body;
use reqwest::dns::{Name, Resolve, Resolving};
use steadfast::{Attempts, Backoff, Client, ErrorKind, Operation, Outcome, Policy, ResponseExt, StopReason};
use tokio::time::{sleep, timeout};

use crate::server::{Reply, Server};
use crate::transport::{Transport, URL, answer, client, fail, hang, no_backoff, secs};

/// Where the inner client gets as far as the name.
const NAMED: &str = "http://api.example.com/charges";

/// Stands where an operation leaves for the network, and lets none through: each name is looked up without an end
/// until so many lookups have hung, then without success.
struct NoNames {
    hang: usize,
    lookups: AtomicUsize,
}

impl Resolve for NoNames {
    fn resolve(&self, _: Name) -> Resolving {
        let hangs = self.lookups.fetch_add(1, Relaxed) < self.hang;
        Box::pin(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Err("no such name".into())
        })
    }
}

fn without_network(hang: usize) -> (Client, Arc<NoNames>) {
    let lookups = AtomicUsize::new(0);
    let names = Arc::new(NoNames { hang, lookups });
    let http = reqwest::Client::builder().no_proxy().dns_resolver(Arc::clone(&names));
    let policy = no_backoff().max_attempts(2).build().unwrap();
    let client = Client::builder(http.build().unwrap()).policy(policy).build();
    (client, names)
}

/// Sends nothing of an operation but its first request, then gives it up.
async fn dropped_after_a_second(client: &Client, transport: &Transport) {
    let call = client.get(URL).send_with(transport.send());
    timeout(secs(1), call).await.unwrap_err();
    sleep(secs(3_600)).await;
}

// R26, field 21
#[tokio::test(start_paused = true)]
async fn an_operation_that_is_dropped_in_its_wait_makes_no_further_attempt() {
    let client = client(Policy::builder().backoff(Backoff::constant(secs(2))));
    let transport = Transport::new([fail(ConnectionReset)]);
    dropped_after_a_second(&client, &transport).await;
    assert_eq!(transport.times(), [secs(0)]);
}

// R26
#[tokio::test(start_paused = true)]
async fn an_operation_that_is_dropped_in_an_attempt_makes_no_further_one() {
    let transport = Transport::new([hang()]);
    dropped_after_a_second(&client(no_backoff()), &transport).await;
    assert_eq!(transport.times(), [secs(0)]);
}

// R26: a future that nobody polls does nothing.
#[tokio::test(start_paused = true)]
async fn an_operation_that_is_not_awaited_sends_nothing() {
    let transport = Transport::new([]);
    drop(client(no_backoff()).post(URL).send_with(transport.send()));
    assert_eq!(transport.seen().len(), 0);
}

// R26
#[tokio::test(start_paused = true)]
async fn a_dropped_answer_lets_its_body_go() {
    let transport = Transport::new([answer(200).chunked([])]);
    let request = client(no_backoff()).get(URL).streamed();
    let response = request.send_with(transport.send()).await.unwrap();
    assert_eq!(transport.open_bodies(), 1);
    drop(response);
    assert_eq!(transport.open_bodies(), 0);
}

// field 39, R46
#[tokio::test]
async fn an_operation_sent_again_has_the_same_bytes_and_the_same_key() {
    let server = Server::start([Reply::status(500), Reply::ok(""), Reply::ok("")]).await;
    let client = client(no_backoff().max_attempts(1));
    let request = || client.post(server.url("/charges")).body("[4711]");
    let operation = request().into_operation().unwrap();
    let key = operation.idempotency_key().unwrap().clone();

    let first = operation.send().await.unwrap();
    assert_eq!(first.status(), 500);
    assert_eq!(first.outcome(), Some(Outcome::Unknown));
    let second = operation.send().await.unwrap();
    assert_eq!(second.status(), 200);
    assert_eq!(second.outcome(), Some(Outcome::Completed));
    // Both may have acted, and nobody declared that the service looks at the key.
    assert!(!second.attempts().unwrap().exactly_once());
    request().send().await.unwrap();

    let seen = server.requests();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0].raw, seen[1].raw);
    assert_eq!(seen[0].body(), b"[4711]");
    assert_eq!(seen[0].headers_named("idempotency-key"), [key.as_str()]);
    // Another operation of the same bytes is another intent.
    assert_eq!(seen[2].body(), b"[4711]");
    assert_ne!(seen[2].header("idempotency-key").unwrap(), key.as_str());
}

// field 39
#[tokio::test(start_paused = true)]
async fn each_send_has_its_own_attempts_and_its_own_deadline() {
    let (client, names) = without_network(1);
    let request = client.post(NAMED).deadline(secs(5));
    let operation = request.into_operation().unwrap();
    let first = operation.send().await.unwrap_err();
    assert_eq!(first.kind(), ErrorKind::Timeout);
    assert_eq!(first.stop_reason(), StopReason::Deadline);
    assert_eq!(first.attempts().elapsed(), secs(5));

    let second = operation.send().await.unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Dns);
    assert_eq!(second.stop_reason(), StopReason::MaxAttempts);
    assert_eq!(second.attempts().len(), 2);
    assert_eq!(second.attempts().elapsed(), secs(0));
    assert_eq!(names.lookups.load(Relaxed), 3);
    // What the first one left open, failures to connect do not settle.
    assert_eq!(second.outcome(), Outcome::Unknown);
}

#[tokio::test(start_paused = true)]
async fn two_sends_at_once_are_refused() {
    let (client, names) = without_network(1);
    let operation = client.post(NAMED).into_operation().unwrap();
    let (first, second) = tokio::join!(operation.send(), operation.send());
    assert_eq!(first.unwrap_err().kind(), ErrorKind::Dns);
    let refused = second.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Request);
    assert_eq!(refused.attempts().len(), 0);
    // The first is still under way, and its attempt may act.
    assert_eq!(refused.outcome(), Outcome::Unknown);
    assert_eq!(refused.idempotency_key(), operation.idempotency_key());
    assert_eq!(names.lookups.load(Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_send_leaves_the_operation_free_and_its_effect_unknown() {
    let (client, names) = without_network(1);
    let operation = client.post(NAMED).into_operation().unwrap();
    timeout(secs(1), operation.send()).await.unwrap_err();
    assert_eq!(names.lookups.load(Relaxed), 1);

    let error = operation.send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Dns);
    assert_eq!(error.attempts().len(), 2);
    assert_eq!(error.outcome(), Outcome::Unknown);
}

// R2, R10: the other side of it.
#[tokio::test(start_paused = true)]
async fn an_operation_that_was_never_sent_is_not_done_however_often_it_is_tried() {
    let (client, names) = without_network(0);
    let request = client.post(NAMED).without_idempotency_key();
    let operation = request.into_operation().unwrap();
    for _ in 0..2 {
        let error = operation.send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Dns);
        assert!(error.is_connect());
        assert_eq!(error.outcome(), Outcome::NotDone);
    }
    assert_eq!(names.lookups.load(Relaxed), 4);
}

// field 30
#[tokio::test(start_paused = true)]
async fn a_stream_that_was_sent_cannot_be_sent_again() {
    let (client, names) = without_network(0);
    let stream = Body::wrap(Full::new(Bytes::from_static(b"once")));
    let operation = client.post(NAMED).body(stream).into_operation().unwrap();
    let first = operation.send().await.unwrap_err();
    assert_eq!(first.stop_reason(), StopReason::BodyNotReplayable);
    let second = operation.send().await.unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Request);
    assert_eq!(second.attempts().len(), 0);
    assert_eq!(names.lookups.load(Relaxed), 1);
}

#[test]
fn an_operation_says_what_it_is() {
    let (client, _) = without_network(0);
    let operation = client.delete(NAMED).into_operation().unwrap();
    assert_eq!(operation.method(), "DELETE");
    assert_eq!(operation.url().as_str(), NAMED);
    assert_eq!(operation.idempotency_key(), None);
    let request = client.post(NAMED).build().unwrap();
    let operation = client.operation(request).unwrap();
    assert_eq!(operation.idempotency_key().unwrap().as_str().len(), 36);
}

#[test]
fn a_request_that_cannot_be_built_is_an_error_before_anything_is_sent() {
    let (client, names) = without_network(0);
    for request in [
        client.get("not a url"),
        client.get(NAMED).header("a b", "c"),
        client.get(NAMED).max_attempts(0),
        client.get(NAMED).attempt_timeout(secs(2)).deadline(secs(1)),
        client.post(NAMED).header("idempotency-key", "a b"),
    ] {
        let error = request.into_operation().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request);
        assert_eq!(error.outcome(), Outcome::NotDone);
        assert!(std::error::Error::source(&error).is_some());
    }
    assert_eq!(names.lookups.load(Relaxed), 0);
}

#[test]
fn the_future_of_a_send_is_small_and_can_be_spawned() {
    fn size_of_spawnable<F: Future + Send>(future: F) -> usize {
        size_of_val(&future)
    }
    let (client, _) = without_network(0);
    let request = client.get(NAMED).build().unwrap();
    let operation = client.get(NAMED).into_operation().unwrap();
    let sizes = [
        size_of_spawnable(client.get(NAMED).send()),
        size_of_spawnable(client.execute(request)),
        size_of_spawnable(operation.send()),
    ];
    assert!(sizes.iter().all(|size| *size <= 3 * 1024), "{sizes:?}");
}

#[test]
fn what_outlives_a_call_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Client>();
    shared::<Operation>();
    shared::<Attempts>();
    shared::<Policy>();
}

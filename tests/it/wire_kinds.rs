//! Failures that no server takes part in, and the one that every server can cause. All other kinds are in the matrix.

use steadfast::{Client, ErrorKind, Outcome, RequestBuilder, ResponseExt, StopReason};

use crate::server::{Reply, Server};
use crate::wire::{Call, client, ms, quick};

/// Nothing reaches the server, not even a connection.
async fn is_never_sent(kind: ErrorKind, make: fn(&Client, &Server) -> RequestBuilder) -> StopReason {
    let server = Server::repeat(Reply::ok("done")).await;
    let error = make(&client(quick()), &server).send().await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(error.outcome(), Outcome::NotDone);
    assert_eq!((server.connections(), server.requests().len()), (0, 0));
    error.stop_reason()
}

// R2
#[tokio::test]
async fn what_cannot_be_a_request_is_one_of_the_kind_request() {
    let makes: [fn(&Client, &Server) -> RequestBuilder; 4] = [
        |client, _| client.post("no url"),
        |client, server| client.post(server.url("/").replace("http", "ftp")),
        |client, server| client.post(server.url("/")).header("no name", "value"),
        |client, server| client.post(server.url("/")).header("Idempotency-Key", "no\nkey"),
    ];
    for make in makes {
        let stop = is_never_sent(ErrorKind::Request, make).await;
        assert_eq!(stop, StopReason::NotRetryable);
    }
}

// R45, field 18
#[tokio::test]
async fn a_deadline_that_leaves_no_time_for_an_attempt_is_one_of_the_kind_deadline() {
    let stop = is_never_sent(ErrorKind::Deadline, |client, server| {
        client.post(server.url("/")).deadline(ms(0))
    });
    assert_eq!(stop.await, StopReason::Deadline);
}

// R2: an answer is no failure until the caller says so.
#[tokio::test]
async fn a_refusal_is_one_of_the_kind_status_once_it_is_made_an_error() {
    for call in Call::ALL {
        let server = Server::repeat(Reply::status(403).body("no")).await;
        let request = call.to(&client(quick()), server.url("/"));
        let error = request.send().await.unwrap().into_result().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Status);
        assert_eq!(error.stop_reason(), StopReason::NotRetryable);
        assert_eq!(error.outcome(), Outcome::NotDone);
        assert_eq!(error.attempts().len(), 1);
        assert_eq!(error.into_response().unwrap().text().await.unwrap(), "no");
        assert_eq!(server.requests().len(), 1);
    }
}

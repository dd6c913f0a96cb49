//! What becomes of an answer that is not given back: its connection, its bytes, and the time it takes.

use std::time::Duration;

use reqwest::Response;
use steadfast::{Backoff, Client, PolicyBuilder, ResponseExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use crate::server::{Reply, Server};
use crate::wire::{Call, client, http, ms, over, quick};

/// Longer than anything here takes, shorter than the patience of a person.
const LONG: Duration = Duration::from_secs(10);

/// So patient that the operation sleeps until the end of the test.
fn asleep() -> PolicyBuilder {
    let hour = Duration::from_secs(3_600);
    quick().backoff(Backoff::constant(hour)).deadline(hour * 2)
}

/// Five failures with this body, then a success, over a pool of one connection.
async fn connections_for(failure: Reply) -> usize {
    let replies = vec![failure; 5].into_iter().chain([Reply::ok("done")]);
    let server = Server::start(replies).await;
    // The 100 ms that reading an answer may take, and a moment for its connection to go back to the pool.
    let policy = quick().max_attempts(6).backoff(Backoff::constant(ms(200)));
    let client = over(http().pool_max_idle_per_host(1), policy);
    let response = client.get(server.url("/")).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "done");
    assert_eq!(server.requests().len(), 6);
    server.connections()
}

// field 32
#[tokio::test]
async fn retried_answers_with_small_bodies_leave_their_connection_in_use() {
    assert_eq!(connections_for(Reply::status(503).body("no")).await, 1);
}

// field 32
#[tokio::test]
async fn retried_answers_of_64_kib_leave_their_connection_in_use() {
    assert_eq!(connections_for(Reply::status(503).body(vec![b'x'; 64 << 10])).await, 1);
}

// field 32
#[tokio::test]
async fn retried_chunked_answers_leave_their_connection_in_use() {
    assert_eq!(
        connections_for(Reply::status(503).body(vec![b'x'; 10_000]).chunked()).await,
        1
    );
}

// field 33
#[tokio::test]
async fn retried_answers_that_are_too_long_to_read_give_their_connection_up() {
    assert_eq!(connections_for(Reply::status(503).body(vec![b'x'; 1 << 20])).await, 6);
}

/// A 503 whose body has no end, in pieces of 1 KiB.
fn endless_503() -> Reply {
    let head = "HTTP/1.1 503 Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n";
    let piece = format!("400\r\n{}\r\n", "x".repeat(1024));
    Reply::new().send(head).endless(piece)
}

/// The answer of an operation that may take as long as a test may, with how many bytes without an end were written.
async fn within_bounds(replies: impl IntoIterator<Item = Reply>, client: &Client) -> (Response, u64) {
    let server = Server::start(replies).await;
    let sent = timeout(LONG, Call::Get.to(client, server.url("/")).send()).await;
    let response = sent.expect("to end in time").unwrap();
    (response, server.written())
}

/// The 64 KiB that may be read of an answer, and with them what fits into the buffers of its sockets.
const MOST: u64 = 1 << 20;

// field 33
#[tokio::test]
async fn an_endless_body_of_a_retried_answer_is_bounded_in_bytes_and_time() {
    let replies = [endless_503(), endless_503(), Reply::ok("done")];
    let (response, written) = within_bounds(replies, &client(quick())).await;
    assert_eq!(response.text().await.unwrap(), "done");
    assert!(written < 2 * MOST, "{written}");
}

// field 33
#[tokio::test]
async fn an_endless_body_of_the_last_answer_is_handed_over() {
    let policy = quick().max_attempts(1);
    let buffer = policy.clone().build().unwrap().response_buffer();
    let (mut response, written) = within_bounds([endless_503()], &client(policy)).await;
    assert_eq!(response.status(), 503);
    assert!(written < buffer as u64 + MOST, "{written}");
    // It flows on, now at the caller's pace; the server is gone, so that it ends with an error.
    let mut read = 0;
    while let Ok(Some(chunk)) = timeout(LONG, response.chunk()).await.unwrap() {
        read += chunk.len();
    }
    assert!(read > buffer, "{read}");
}

// field 33
#[tokio::test]
async fn a_retried_answer_that_announces_a_gigabyte_is_bounded_in_bytes_and_time() {
    let head = Reply::status(503).header("Content-Length", "1000000000");
    let replies = [head.endless([b'x'; 1024]), Reply::ok("done")];
    let (response, written) = within_bounds(replies, &client(quick())).await;
    assert_eq!(response.attempts().unwrap().len(), 2);
    assert!(written < MOST, "{written}");
}

// field 33: never more than a few bytes at a time, for hours.
#[tokio::test]
async fn a_body_that_drips_is_bounded_in_time() {
    let drip = Reply::new().pause(ms(20)).send("1\r\nx\r\n");
    let head = Reply::new().send("HTTP/1.1 503 Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n");
    let dripping = std::iter::repeat_n(drip, 5_000).fold(head, Reply::then);
    let started = Instant::now();
    let (response, _) = within_bounds([dripping, Reply::ok("done")], &client(quick())).await;
    assert_eq!(response.attempts().unwrap().len(), 2);
    assert!(started.elapsed() < LONG);
}

// field 34
#[tokio::test]
async fn the_connection_of_a_retried_answer_is_free_while_the_operation_sleeps() {
    // All but the first answer close their connection, so that only the first one is ever free for another request.
    let other = Reply::ok("other").header("Connection", "close").close();
    let replies = vec![other; 1_000].into_iter();
    let server = Server::start([Reply::status(503).body("no")].into_iter().chain(replies)).await;
    let inner = http().build().unwrap();
    let client = Client::builder(inner.clone()).policy(asleep().build().unwrap()).build();
    let operation = tokio::spawn(client.get(server.url("/")).send());
    server.received(1).await;
    let reused = async {
        loop {
            inner.get(server.url("/other")).send().await.unwrap();
            if server.requests().last().unwrap().connection == 0 {
                return;
            }
        }
    };
    timeout(LONG, reused).await.expect("the connection to be free");
    assert!(!operation.is_finished());
    operation.abort();
}

// field 34
#[tokio::test]
async fn the_connection_of_an_answer_too_long_to_read_is_closed_while_the_operation_sleeps() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let operation = tokio::spawn(client(asleep()).get(url).send());
    let (mut stream, _) = listener.accept().await.unwrap();
    let read = stream.read(&mut [0; 4096]).await.unwrap();
    assert!(read > 0);
    let head = b"HTTP/1.1 503 Unavailable\r\nContent-Length: 1000000\r\n\r\npart";
    stream.write_all(head).await.unwrap();
    let closed = timeout(LONG, stream.read(&mut [0]))
        .await
        .expect("the client to let go");
    assert!(matches!(closed, Ok(0) | Err(_)));
    assert!(!operation.is_finished());
    operation.abort();
}

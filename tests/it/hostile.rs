//! Requests that are none and servers that lie: always a clear error, never a panic, a hang or a secret given away.

use std::error::Error as _;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use reqwest::{Response, redirect};
use steadfast::{
    Delivery, Error, ErrorKind, IdempotencyKey, KeyErrorKind, Outcome, Policy, RequestBuilder, ResponseExt, StopReason,
};
use tokio::time::timeout;

use crate::server::{Reply, Server};
use crate::wire::{Call, Refusing, client, http, ms, over, quick};

/// No test here may hang.
const LONG: Duration = Duration::from_secs(20);

const SECRET: &str = "hunter2";

/// A URL with a secret in every place that has to be kept quiet.
fn secret_url(server: &Server) -> String {
    let url = server.url("/pay?token=hunter2#hunter2");
    url.replace("://", "://alice:hunter2@")
}

/// The sentence of the error, having looked for the secret in it and in everything behind it.
fn sentence(error: &Error) -> String {
    let mut texts = vec![error.to_string(), format!("{error:?}")];
    let mut cause = error.source();
    while let Some(error) = cause {
        texts.extend([error.to_string(), format!("{error:?}")]);
        cause = error.source();
    }
    assert!(!texts.concat().contains(SECRET), "{texts:#?}");
    texts.swap_remove(0)
}

async fn send(request: RequestBuilder) -> Result<Response, Error> {
    let request = request.header("X-Api-Key", SECRET).bearer_auth(SECRET).body(SECRET);
    timeout(LONG, request.send()).await.expect("an end in time")
}

/// Refused before anything is sent.
async fn is_refused(build: impl FnOnce(RequestBuilder) -> RequestBuilder) -> String {
    let server = Server::repeat(Reply::ok("done")).await;
    let request = client(quick()).post(secret_url(&server));
    let error = send(build(request)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Request);
    assert_eq!(error.stop_reason(), StopReason::NotRetryable);
    assert_eq!(error.outcome(), Outcome::NotDone);
    assert_eq!(server.connections(), 0);
    sentence(&error)
}

#[tokio::test]
async fn a_url_that_is_none_is_refused() {
    for url in [
        "",
        "hunter2",
        "/relative/hunter2",
        "http://",
        "http://[::hunter2/",
        "http://a b/hunter2",
    ] {
        let error = send(client(quick()).get(url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request, "{url}");
        assert!(error.attempts().is_empty(), "{url}");
        assert_eq!(error.outcome(), Outcome::NotDone);
        let text = sentence(&error);
        assert!(text.starts_with("request was not sent: "), "{text}");
    }
}

#[tokio::test]
async fn a_scheme_that_is_not_of_http_is_refused() {
    for url in [
        "ftp://localhost/?hunter2",
        "file:///hunter2",
        "data:text/plain,hunter2",
        "mailto:hunter2@localhost",
    ] {
        let error = send(client(quick()).post(url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request, "{url}");
        assert_eq!(error.stop_reason(), StopReason::NotRetryable);
        assert_eq!(error.outcome(), Outcome::NotDone, "{url}");
        assert!(error.attempts().len() <= 1, "{url}");
        // What follows the scheme of a file is a path, which is shown; what follows the others may be anything.
        if !url.starts_with("file") {
            sentence(&error);
        }
    }
}

#[tokio::test]
async fn a_header_name_that_is_none_is_refused() {
    for name in ["", "two words", "new\nline", "naïve", "colon:"] {
        is_refused(|request| request.header(name, "value")).await;
    }
}

#[tokio::test]
async fn a_header_value_that_is_none_is_refused() {
    for value in ["hunter2\r\nx-injected: 1", "hunter2\0", "hunter2\n"] {
        is_refused(|request| request.header("x-value", value)).await;
    }
}

#[tokio::test]
async fn a_header_that_is_no_key_is_refused() {
    let too_long = "hunter2".repeat(100);
    for value in ["", "two words hunter2", "hunter2\u{e9}", &*too_long] {
        let text = is_refused(|request| request.header("Idempotency-Key", value)).await;
        assert!(text.contains("/pay was not sent: idempotency key "), "{text}");
    }
}

// R54, R55
#[test]
fn a_text_that_is_no_key_is_refused_without_being_shown() {
    let kind = |text: &str| {
        let error = IdempotencyKey::parse(text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(SECRET));
        error.kind().clone()
    };
    assert_eq!(kind(""), KeyErrorKind::Empty);
    assert_eq!(kind("hunter2\n"), KeyErrorKind::Character { at: 7 });
    assert_eq!(kind("hunter2é"), KeyErrorKind::Character { at: 7 });
    assert_eq!(kind(&"k".repeat(256)), KeyErrorKind::TooLong { len: 256 });
    assert!(IdempotencyKey::parse("k".repeat(255)).is_ok());
}

// field 35: two keys that differ, or a key in a request that must have none.
#[tokio::test]
async fn contradictory_keys_are_refused() {
    let with_header = |request: RequestBuilder| request.header("Idempotency-Key", SECRET);
    let other = IdempotencyKey::parse("other").unwrap();
    is_refused(|request| with_header(request).idempotency_key(other)).await;
    is_refused(|request| with_header(request).without_idempotency_key()).await;
    is_refused(|request| with_header(with_header(request))).await;
}

#[tokio::test]
async fn contradictory_limits_of_a_request_are_refused_with_both_numbers() {
    let server = Server::repeat(Reply::ok("done")).await;
    let request = client(quick()).get(secret_url(&server));
    let error = send(request.attempt_timeout(ms(5_000)).deadline(ms(1_000)))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Request);
    sentence(&error);
    let text = error.source().unwrap().to_string();
    assert!(text.contains("attempt_timeout 5s is longer than deadline 1s"), "{text}");
    assert!(server.requests().is_empty());
}

// R1
#[tokio::test]
async fn no_attempts_at_all_are_refused() {
    is_refused(|request| request.max_attempts(0)).await;
    let text = Policy::builder().max_attempts(0).build().unwrap_err().to_string();
    assert_eq!(text, "invalid policy: max_attempts 0 is less than 1");
}

// field 18: a deadline that has passed is no mistake, and no reason to send anything.
#[tokio::test]
async fn a_deadline_that_has_passed_sends_nothing() {
    let server = Server::repeat(Reply::ok("done")).await;
    let request = client(quick()).post(secret_url(&server)).deadline(Duration::ZERO);
    let error = send(request).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.stop_reason()),
        (ErrorKind::Deadline, StopReason::Deadline)
    );
    assert_eq!(error.outcome(), Outcome::NotDone);
    assert!(error.is_timeout());
    sentence(&error);
    assert_eq!(server.connections(), 0);
}

/// An answer that cannot be read: final, and nobody knows what it meant.
async fn is_unreadable(reply: Reply) {
    let server = Server::repeat(reply).await;
    for call in Call::ALL {
        let request = call.to(&client(quick()), secret_url(&server));
        let error = send(request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Other, "{call:?}");
        assert_eq!(error.stop_reason(), StopReason::NotRetryable);
        let unknown = if call == Call::Get {
            Outcome::NotDone
        } else {
            Outcome::Unknown
        };
        assert_eq!(error.outcome(), unknown);
        let deliveries: Vec<_> = error.attempts().iter().map(|a| a.delivery()).collect();
        assert_eq!(deliveries, [Delivery::Unknown]);
        let text = sentence(&error);
        assert!(text.contains("/pay failed after 1 attempt in "), "{text}");
        assert!(text.contains(" (not retryable; outcome "), "{text}");
        assert!(text.ends_with("): unrecognised failure"), "{text}");
    }
    assert_eq!(server.requests().len(), Call::ALL.len());
}

// R2
#[tokio::test]
async fn a_garbage_status_line_is_an_unreadable_answer() {
    for line in [
        "hunter2 garbage",
        "HTTP/1.1 abc OK",
        "HTTP/9.9 200 OK",
        "HTTP/1.1 20 OK",
        "\0\0\0\0",
    ] {
        is_unreadable(Reply::new().send(format!("{line}\r\n\r\n")).close()).await;
    }
}

// R2
#[tokio::test]
async fn a_thousand_headers_are_an_unreadable_answer() {
    let headers: String = (0..1_000).map(|n| format!("x-{n}: hunter2\r\n")).collect();
    is_unreadable(Reply::new().send(format!("HTTP/1.1 200 OK\r\n{headers}\r\n")).close()).await;
}

// R2
#[tokio::test]
async fn a_header_of_megabytes_is_an_unreadable_answer() {
    let value = "hunter2".repeat(1 << 20);
    is_unreadable(
        Reply::new()
            .send(format!("HTTP/1.1 200 OK\r\nx-long: {value}\r\n\r\n"))
            .close(),
    )
    .await;
}

// R2
#[tokio::test]
async fn a_header_without_an_end_is_an_unreadable_answer() {
    is_unreadable(Reply::new().send("HTTP/1.1 200 OK\r\nx-long: ").endless("hunter2")).await;
}

// R2
#[tokio::test]
async fn a_content_length_that_is_none_is_an_unreadable_answer() {
    for lines in ["-5", "abc", "99999999999999999999999", "5\r\nContent-Length: 6", ""] {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {lines}\r\n\r\nhello");
        is_unreadable(Reply::new().send(head).close()).await;
    }
}

// R2, field 26: the answer is a success, but its body cannot be read.
#[tokio::test]
async fn chunk_sizes_that_are_none_are_a_failed_body() {
    for size in ["-5", "hunter2", "", "ffffffffffffffffff", "5 6"] {
        let head = "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n";
        let server = Server::repeat(Reply::new().send(format!("{head}{size}\r\nhello\r\n")).close()).await;
        let error = send(Call::Get.to(&client(quick()), secret_url(&server)))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Body, "{size:?}");
        assert_eq!(error.stop_reason(), StopReason::MaxAttempts);
        assert_eq!(error.outcome(), Outcome::Completed);
        let text = sentence(&error);
        assert!(
            text.ends_with("(no attempts left; outcome completed): body failure of 201 Created"),
            "{text}"
        );
        assert_eq!(server.requests().len(), 3, "{size:?}");
    }
}

// R2: more bytes than announced are no part of this answer, and must be no part of the next.
#[tokio::test]
async fn a_content_length_that_is_too_short_does_not_leak_into_the_next_answer() {
    let long = Reply::new().send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 404 X\r\n\r\n");
    let server = Server::start([long, Reply::ok("next")]).await;
    let client = client(quick());
    let first = client.get(server.url("/")).send().await.unwrap();
    assert_eq!(first.text().await.unwrap(), "hello");
    let next = client.get(server.url("/")).send().await.unwrap();
    assert_eq!(
        (next.status().as_u16(), next.text().await.unwrap()),
        (200, "next".into())
    );
}

// R2: redirects are inside one attempt, and going round in circles will not end differently.
#[tokio::test]
async fn a_redirect_loop_is_final() {
    let server = Server::repeat(Reply::status(307).header("Location", "/pay?token=hunter2")).await;
    let http = http().redirect(redirect::Policy::limited(5));
    let error = send(Call::Keyed.to(&over(http, quick()), secret_url(&server)))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Other);
    assert_eq!(error.stop_reason(), StopReason::NotRetryable);
    assert_eq!(error.outcome(), Outcome::Unknown);
    sentence(&error);
    assert_eq!(server.requests().len(), 6);
}

// field 54: what an error shows of a URL when the network fails, not the server.
#[tokio::test]
async fn a_lost_network_gives_no_secret_away() {
    let refusing = Refusing::new();
    let url = format!("http://alice:hunter2@{}/pay?token=hunter2", refusing.addr());
    let error = send(client(quick()).post(url)).await.unwrap_err();
    let text = sentence(&error);
    let start = format!("POST http://{}/pay failed after 3 attempts in ", refusing.addr());
    assert!(text.starts_with(&start), "{text}");
    assert!(
        text.ends_with("(no attempts left; outcome not done): connect failure"),
        "{text}"
    );
}

// field 5: whatever stands in the header, the operation goes on or stops; it does not panic and does not wait.
#[tokio::test]
async fn retry_after_may_be_any_bytes() {
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..200 {
        let mut value = vec![0; random.random_range(0..20)];
        random.fill_bytes(&mut value);
        value.retain(|byte| *byte == b'\t' || (b' '..=0xff).contains(byte) && *byte != 0x7f);
        let head = [
            b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: ",
            &*value,
            b"\r\n\r\n",
        ]
        .concat();
        let server = Server::start([Reply::new().send(head), Reply::ok("done")]).await;
        let request = client(quick().max_retry_after(Duration::ZERO)).get(server.url("/"));
        let response = timeout(LONG, request.send()).await.expect("an end in time").unwrap();
        let attempts = response.attempts().unwrap();
        match attempts.stop_reason() {
            StopReason::Done => assert_eq!(response.status(), 200),
            StopReason::RetryAfter { asked } => assert!(asked > Duration::ZERO),
            other => panic!("{value:?}: {other:?}"),
        }
        assert_eq!(server.requests().len(), attempts.len());
    }
}

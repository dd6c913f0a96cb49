//! What an operation says of itself: the record, the error, the response.

use std::error::Error as _;
use std::io::{self, ErrorKind::*};

use reqwest::{Body, ResponseBuilderExt};
use steadfast::{Attempt, Delivery, Error, ErrorKind, Outcome, ResponseExt, StopReason};

use crate::transport::{
    Step, Transport, URL, after, answer, client, data, fail, hang, key, millis, no_backoff, pause, refused, secs,
};

/// A POST that meets these steps and ends in an error.
async fn error_of(steps: impl IntoIterator<Item = Step, IntoIter: Send + 'static>) -> Error {
    let transport = Transport::new(steps);
    let request = client(no_backoff()).post(URL).body("x");
    match request.send_with(transport.send()).await {
        Ok(response) => response.into_result().unwrap_err(),
        Err(error) => error,
    }
}

#[tokio::test(start_paused = true)]
async fn the_record_has_every_attempt() {
    let transport = Transport::new([
        after(secs(1), fail(ConnectionReset)),
        after(secs(2), answer(503).header("retry-after", "3")),
        after(secs(4), answer(201).chunked([pause(millis(500)), data("done")])),
    ]);
    let request = client(no_backoff()).post(URL).idempotency_key(key("order-4711"));
    let response = request.send_with(transport.send()).await.unwrap();
    let attempts = response.attempts().unwrap();

    assert_eq!(attempts.len(), 3);
    assert!(!attempts.is_empty());
    assert_eq!(attempts.stop_reason(), StopReason::Done);
    assert_eq!(attempts.outcome(), Outcome::Completed);
    assert_eq!(attempts.elapsed(), millis(10_500));
    assert_eq!(attempts.idempotency_key(), Some(&key("order-4711")));
    assert_eq!(attempts.replayed(), None);

    let each = |of: fn(&Attempt) -> String| attempts.iter().map(of).collect::<Vec<_>>();
    assert_eq!(each(|attempt| attempt.number().to_string()), ["1", "2", "3"]);
    assert_eq!(
        each(|attempt| format!("{:?} {:?}", attempt.started_after(), attempt.took())),
        ["0ns 1s", "1s 2s", "6s 4.5s"]
    );
    assert_eq!(
        each(|attempt| format!("{:?} {:?}", attempt.status(), attempt.failure())),
        ["None Some(Reset)", "Some(503) None", "Some(201) None"]
    );
    let deliveries: Vec<_> = attempts.into_iter().map(Attempt::delivery).collect();
    assert_eq!(deliveries, [Delivery::Unknown, Delivery::Rejected, Delivery::Answered]);
    assert_eq!(
        each(|attempt| format!("{:?} {:?}", attempt.retry_after(), attempt.waited())),
        ["None Some(0ns)", "Some(3s) Some(3s)", "None None"]
    );
}

// field 52
#[tokio::test(start_paused = true)]
async fn failed_after_three_and_failed_and_not_retried_are_told_apart_by_types() {
    let three = error_of([fail(ConnectionReset), fail(ConnectionReset), fail(ConnectionReset)]).await;
    assert_eq!(three.attempts().len(), 3);
    assert_eq!(three.stop_reason(), StopReason::MaxAttempts);

    let transport = Transport::new([fail(ConnectionReset)]);
    let request = client(no_backoff()).post(URL).without_idempotency_key();
    let one = request.send_with(transport.send()).await.unwrap_err();
    assert_eq!(one.attempts().len(), 1);
    assert_eq!(one.stop_reason(), StopReason::NotReplaySafe);
    assert_eq!(three.kind(), one.kind());
}

// field 53, field 20
#[tokio::test(start_paused = true)]
async fn the_guard_that_stopped_stands_beside_the_cause_and_not_in_its_place() {
    let asked = secs(3_600);
    let error = error_of([fail(ConnectionReset), answer(503).header("retry-after", "3600")]).await;
    assert_eq!(error.stop_reason(), StopReason::RetryAfter { asked });
    assert_eq!(error.kind(), ErrorKind::Status);
    assert_eq!(error.status().unwrap(), 503);
    assert_eq!(error.retry_after(), Some(asked));
    assert_eq!(
        error.source().unwrap().to_string(),
        "the server answered 503 Service Unavailable"
    );
}

#[tokio::test(start_paused = true)]
async fn the_source_of_an_error_is_the_last_failure_itself() {
    let error = error_of([fail(BrokenPipe), fail(ConnectionReset), fail(UnexpectedEof)]).await;
    let source: &io::Error = error.source().unwrap().downcast_ref().unwrap();
    assert_eq!(source.kind(), UnexpectedEof);
    assert_eq!(error.status(), None);
    assert_eq!(error.retry_after(), None);
    assert!(!error.is_timeout());
    assert!(!error.is_connect());
    assert!(error.into_response().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_error_reads_as_one_sentence() {
    let error = error_of([after(millis(2_400), fail(ConnectionReset)), fail(PermissionDenied)]).await;
    assert_eq!(
        error.to_string(),
        "POST https://api.example.com/charges failed after 2 attempts in 2.4s (not retryable; outcome unknown): unrecognised failure"
    );
    let error = error_of([after(secs(1), answer(402))]).await;
    assert_eq!(
        error.to_string(),
        "POST https://api.example.com/charges failed after 1 attempt in 1.0s (not retryable; outcome not done): 402 Payment Required"
    );
    let request = client(no_backoff()).get(URL).deadline(secs(0));
    let error = request.send_with(Transport::new([]).send()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "GET https://api.example.com/charges was not sent: deadline reached"
    );
}

#[tokio::test(start_paused = true)]
async fn timeouts_and_connect_failures_are_recognised() {
    let error = error_of([hang(), hang(), hang()]).await;
    assert!(error.is_timeout());
    let error = error_of([fail(TimedOut), fail(TimedOut), fail(TimedOut)]).await;
    assert!(error.is_timeout());
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let error = error_of([refused(), refused(), refused()]).await;
    assert!(error.is_connect());
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert_eq!(error.outcome(), Outcome::NotDone);
}

#[tokio::test(start_paused = true)]
async fn an_error_status_becomes_an_error_that_keeps_its_answer() {
    for status in [400, 404, 500, 599] {
        let transport = Transport::always(answer(status).header("x-request-id", "r1").body("why"));
        let request = client(no_backoff().max_attempts(1)).post(URL);
        let response = request.send_with(transport.send()).await.unwrap();
        let outcome = response.outcome();
        let error = response.into_result().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Status);
        assert_eq!(error.status().unwrap(), status);
        assert_eq!(Some(error.outcome()), outcome);
        assert_eq!(error.attempts().len(), 1);
        let response = error.into_response().unwrap();
        assert_eq!(response.headers()["x-request-id"], "r1");
        assert_eq!(response.text().await.unwrap(), "why");
    }
    for status in [200, 204, 301, 399] {
        let transport = Transport::new([answer(status)]);
        let request = client(no_backoff()).post(URL);
        let response = request.send_with(transport.send()).await.unwrap();
        assert_eq!(response.into_result().unwrap().status(), status);
    }
}

#[test]
fn a_response_of_another_client_has_no_record_and_still_a_result() {
    let foreign = |status: u16| {
        let response = http::Response::builder().status(status).url(URL.parse().unwrap());
        reqwest::Response::from(response.body("why").unwrap())
    };
    assert!(foreign(200).attempts().is_none());
    assert_eq!(foreign(200).outcome(), None);
    assert_eq!(foreign(200).into_result().unwrap().status(), 200);
    let error = foreign(404).into_result().unwrap_err();
    assert_eq!(error.status().unwrap(), 404);
    assert_eq!(error.outcome(), Outcome::NotDone);
    assert_eq!(foreign(500).into_result().unwrap_err().outcome(), Outcome::Unknown);
}

#[tokio::test(start_paused = true)]
async fn once_is_claimed_only_where_it_is_known() {
    let once = async |steps: Vec<Step>, own_key: bool| {
        let transport = Transport::new(steps);
        let request = client(no_backoff()).post(URL);
        let request = if own_key {
            request.idempotency_key(key("k"))
        } else {
            request
        };
        let response = request.send_with(transport.send()).await.unwrap();
        response.attempts().unwrap().exactly_once()
    };
    let refused_twice = || vec![refused(), answer(429), answer(200)];
    let lost_once = || vec![fail(ConnectionReset), answer(200)];
    assert!(once(refused_twice(), false).await);
    assert!(!once(lost_once(), false).await);
    assert!(once(lost_once(), true).await);
}

// A followed 301 or 302 makes a GET of a POST: its 200 is not the POST's.
#[tokio::test(start_paused = true)]
async fn the_answer_of_another_url_confirms_no_write() {
    let elsewhere = || answer(200).url("https://api.example.com/login");
    let transport = Transport::always(elsewhere());
    let client = client(no_backoff());
    let response = client.post(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(response.outcome(), Some(Outcome::Unknown));
    assert_eq!(response.url().path(), "/login");
    let response = client.get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(response.outcome(), Some(Outcome::Completed));
    // A response made by hand has no URL, and was not redirected.
    let nowhere = Transport::new([answer(200).url("http://no.url.provided.local")]);
    let response = client.post(URL).send_with(nowhere.send()).await.unwrap();
    assert_eq!(response.outcome(), Some(Outcome::Completed));
}

#[test]
fn an_error_is_one_pointer_wide_and_goes_anywhere() {
    fn goes_anywhere<T: std::error::Error + Send + Sync + 'static>() -> usize {
        size_of::<T>()
    }
    assert_eq!(goes_anywhere::<Error>(), size_of::<usize>());
    assert_eq!(size_of::<Option<Error>>(), size_of::<usize>());
}

// R10
#[tokio::test(start_paused = true)]
async fn an_operation_that_may_have_acted_never_reads_as_not_sent() {
    let operation = client(no_backoff()).post(URL).without_idempotency_key();
    let stream = Body::wrap(http_body_util::Full::new(bytes::Bytes::from_static(b"once")));
    let operation = operation.body(stream).into_operation().unwrap();
    let transport = Transport::new([fail(ConnectionReset)]);
    operation.send_with(transport.send()).await.unwrap_err();
    let error = operation.send_with(transport.send()).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    let text = error.to_string();
    assert!(text.contains(" was not sent again (outcome unknown): "), "{text}");
}

//! One deadline over everything, and one timeout over each attempt.

use std::io::ErrorKind::ConnectionReset;

use steadfast::{Attempt, Backoff, ErrorKind, Outcome, Policy, ResponseExt, StopReason};

use crate::transport::{Transport, URL, after, answer, client, fail, hang, millis, no_backoff, secs};

// R25
#[tokio::test(start_paused = true)]
async fn the_deadline_cuts_three_allowed_attempts_at_the_second() {
    let transport = Transport::always(hang());
    let policy = no_backoff().max_attempts(3).attempt_timeout(secs(6)).deadline(secs(10));
    let error = client(policy).get(URL).send_with(transport.send()).await.unwrap_err();
    assert_eq!(transport.elapsed(), secs(10));
    assert_eq!(transport.times(), [secs(0), secs(6)]);
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.stop_reason(), StopReason::Deadline);
    let took: Vec<_> = error.attempts().iter().map(Attempt::took).collect();
    assert_eq!(took, [secs(6), secs(4)]);
}

// R29
#[tokio::test(start_paused = true)]
async fn a_hung_attempt_leaves_the_time_for_another() {
    let transport = Transport::new([hang(), answer(200)]);
    let policy = no_backoff().attempt_timeout(secs(2));
    let response = client(policy).get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(transport.times(), [secs(0), secs(2)]);
    assert_eq!(transport.elapsed(), secs(2));
}

// R29: reqwest's own name for it.
#[tokio::test(start_paused = true)]
async fn a_timeout_on_the_request_is_that_of_each_attempt() {
    let client = client(no_backoff());
    for request in [
        client.get(URL).timeout(secs(3)),
        client.get(URL).attempt_timeout(secs(3)),
    ] {
        let transport = Transport::always(hang());
        request.send_with(transport.send()).await.unwrap_err();
        assert_eq!(transport.times(), [secs(0), secs(3), secs(6)]);
        assert_eq!(transport.elapsed(), secs(9));
    }
}

// R45: three attempts of 10 s and two waits, and yet 30 s.
#[tokio::test(start_paused = true)]
async fn attempts_and_waits_together_take_no_longer_than_the_default_deadline() {
    let transport = Transport::always(hang());
    let error = client(Policy::builder())
        .get(URL)
        .send_with(transport.send())
        .await
        .unwrap_err();
    assert_eq!(transport.elapsed(), secs(30));
    assert_eq!(error.attempts().elapsed(), secs(30));
}

// R32
#[tokio::test(start_paused = true)]
async fn a_deadline_of_the_request_bounds_its_attempts() {
    let transport = Transport::always(hang());
    let client = client(Policy::builder());
    let request = client.get(URL).deadline(secs(5));
    let error = request.send_with(transport.send()).await.unwrap_err();
    assert_eq!(error.stop_reason(), StopReason::Deadline);
    assert_eq!(transport.times(), [secs(0)]);
    assert_eq!(transport.elapsed(), secs(5));
}

// field 17
#[tokio::test(start_paused = true)]
async fn an_attempt_after_a_wait_has_what_the_wait_left() {
    let transport = Transport::new([fail(ConnectionReset), hang()]);
    let policy = Policy::builder().backoff(Backoff::constant(secs(4))).deadline(secs(10));
    let error = client(policy).get(URL).send_with(transport.send()).await.unwrap_err();
    assert_eq!(transport.times(), [secs(0), secs(4)]);
    assert_eq!(transport.elapsed(), secs(10));
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.stop_reason(), StopReason::Deadline);
}

// field 17
#[tokio::test(start_paused = true)]
async fn a_wait_that_reaches_the_deadline_is_not_begun() {
    let policy = Policy::builder().backoff(Backoff::constant(secs(1))).deadline(secs(3));
    let client = client(policy);

    let transport = Transport::new([after(secs(2), fail(ConnectionReset))]);
    let error = client.get(URL).send_with(transport.send()).await.unwrap_err();
    assert_eq!(transport.elapsed(), secs(2));
    assert_eq!(error.kind(), ErrorKind::Reset);
    assert_eq!(error.stop_reason(), StopReason::Deadline);

    let transport = Transport::new([after(secs(2), answer(503))]);
    let response = client.get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(transport.elapsed(), secs(2));
    assert_eq!(response.status(), 503);
    assert_eq!(response.attempts().unwrap().stop_reason(), StopReason::Deadline);
}

// field 18
#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_passed_sends_nothing() {
    let transport = Transport::new([]);
    let client = client(no_backoff());
    let request = client.post(URL).deadline(secs(0));
    let error = request.send_with(transport.send()).await.unwrap_err();
    assert_eq!(transport.seen().len(), 0);
    assert_eq!(transport.elapsed(), secs(0));
    assert_eq!(error.kind(), ErrorKind::Deadline);
    assert_eq!(error.stop_reason(), StopReason::Deadline);
    assert_eq!(error.outcome(), Outcome::NotDone);
    assert_eq!(error.attempts().len(), 0);
    assert!(error.is_timeout());
}

// field 18
#[tokio::test(start_paused = true)]
async fn failures_without_a_wait_end_at_the_deadline() {
    let transport = Transport::always(after(millis(300), fail(ConnectionReset)));
    let policy = no_backoff().max_attempts(u32::MAX).deadline(secs(1));
    let error = client(policy).get(URL).send_with(transport.send()).await.unwrap_err();
    assert_eq!(transport.times(), [0, 300, 600, 900].map(millis));
    assert_eq!(transport.elapsed(), secs(1));
    assert_eq!(error.stop_reason(), StopReason::Deadline);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_made_only_with_the_least_time_it_needs() {
    let policy = no_backoff().deadline(secs(1)).min_attempt_time(millis(10));
    let client = client(policy);

    let transport = Transport::new([after(millis(990), fail(ConnectionReset)), answer(200)]);
    let response = client.get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(transport.times(), [0, 990].map(millis));

    let transport = Transport::new([after(millis(991), fail(ConnectionReset))]);
    let error = client.get(URL).send_with(transport.send()).await.unwrap_err();
    assert_eq!(transport.elapsed(), millis(991));
    assert_eq!(error.kind(), ErrorKind::Reset);
    assert_eq!(error.stop_reason(), StopReason::Deadline);
}

// field 20
#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_too_late_gives_the_last_failure() {
    let policy = Policy::builder().backoff(Backoff::constant(secs(1))).deadline(secs(10));
    let client = client(policy);

    let transport = Transport::new([answer(503).header("retry-after", "2")]);
    let late = async {
        let call = client.get(URL).send_with(transport.send());
        // The machine was asleep: when the wait is over, so is the deadline.
        let (result, ()) = tokio::join!(call, tokio::time::advance(secs(60)));
        result.unwrap_err()
    };
    let error = late.await;
    assert_eq!(error.kind(), ErrorKind::Status);
    assert_eq!(error.status().unwrap(), 503);
    assert_eq!(error.retry_after(), Some(secs(2)));
    assert_eq!(error.stop_reason(), StopReason::Deadline);
    assert_eq!(error.attempts().len(), 1);

    let transport = Transport::new([fail(ConnectionReset)]);
    let call = client.get(URL).send_with(transport.send());
    let (result, ()) = tokio::join!(call, tokio::time::advance(secs(60)));
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reset);
    assert_eq!(error.stop_reason(), StopReason::Deadline);
    let source = std::error::Error::source(&error).unwrap();
    let source: &std::io::Error = source.downcast_ref().unwrap();
    assert_eq!(source.kind(), ConnectionReset);
}

//! How long an operation waits: its own jitter, and what the server asked for.

use std::collections::HashSet;
use std::io::ErrorKind::ConnectionReset;
use std::time::Duration;

use steadfast::{Attempt, Backoff, Client, Policy, ResponseExt, RetryBudget, StopReason};

use crate::transport::{
    Part, Step, Transport, URL, answer, client, data, fail, millis, no_backoff, pause, refused, secs,
};

fn busy(retry_after: &str) -> Step {
    answer(503).header("retry-after", retry_after)
}

/// A client that waits a second where the server asks for nothing.
fn patient() -> Client {
    client(Policy::builder().backoff(Backoff::constant(secs(1))))
}

/// One client for more failing operations than a retry budget allows.
fn seeded(backoff: Backoff, seed: u64) -> Client {
    let policy = Policy::builder().backoff(backoff).max_attempts(4);
    let policy = policy.budget(RetryBudget::unlimited()).build().unwrap();
    Client::builder(reqwest::Client::new())
        .policy(policy)
        .seed(seed)
        .build()
}

async fn waits(client: &Client, steps: impl IntoIterator<Item = Step, IntoIter: Send + 'static>) -> Vec<Duration> {
    let transport = Transport::new(steps);
    let response = client.get(URL).send_with(transport.send()).await.unwrap();
    let attempts = response.attempts().unwrap();
    attempts.iter().filter_map(Attempt::waited).collect()
}

/// The stop of an operation that gets one answer and must not wait for anything.
async fn stop_at_once(client: &Client, step: Step) -> StopReason {
    let transport = Transport::new([step]);
    let response = client.get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(transport.elapsed(), secs(0));
    assert_eq!(transport.seen().len(), 1);
    response.attempts().unwrap().stop_reason()
}

// R6
#[tokio::test(start_paused = true)]
async fn a_429_is_repeated_when_the_server_said() {
    let date = answer(429)
        .header("date", "Sun, 06 Nov 1994 12:00:00 GMT")
        .header("retry-after", "Sun, 06 Nov 1994 12:00:02 GMT");
    for refusal in [answer(429).header("retry-after", "2"), date] {
        let transport = Transport::new([refusal, answer(200)]);
        let client = client(no_backoff());
        let request = client.post(URL).without_idempotency_key();
        let response = request.send_with(transport.send()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(transport.times(), [secs(0), secs(2)]);
    }
}

// R28, field 8
#[tokio::test(start_paused = true)]
async fn a_thousand_clients_told_the_same_come_back_apart_and_none_early() {
    let client = seeded(Backoff::default(), 8);
    let mut times = HashSet::new();
    for _ in 0..1_000 {
        let transport = Transport::new([answer(429).header("retry-after", "2"), answer(200)]);
        client.get(URL).send_with(transport.send()).await.unwrap();
        let back = transport.times()[1];
        // Sleeps end on whole milliseconds, so a draw of a second may end one later.
        assert!((secs(2)..=millis(3_001)).contains(&back), "{back:?}");
        times.insert(back);
    }
    // A thousand uniform draws from a thousand milliseconds hit 632 of them.
    assert!(times.len() > 550, "{}", times.len());
}

// R28
#[tokio::test(start_paused = true)]
async fn jitter_is_added_to_what_was_asked() {
    let transport = Transport::new([busy("2"), answer(200)]);
    patient().get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(transport.times(), [secs(0), secs(3)]);
}

// R28
#[tokio::test(start_paused = true)]
async fn the_deadline_shortens_the_jitter_and_never_what_was_asked() {
    let policy = Policy::builder()
        .backoff(Backoff::constant(secs(10)))
        .min_attempt_time(millis(10))
        .deadline(secs(5));
    let transport = Transport::new([busy("2"), answer(200)]);
    client(policy).get(URL).send_with(transport.send()).await.unwrap();
    // The least time of an attempt is left, and 10 ms for timers that are late.
    assert_eq!(transport.times(), [secs(0), millis(4_980)]);
}

// R23
#[tokio::test(start_paused = true)]
async fn full_jitter_is_uniform_below_a_bound_that_doubles_to_its_cap() {
    let client = seeded(Backoff::full_jitter(millis(100), millis(250)), 23);
    let mut sums = [Duration::ZERO; 3];
    for _ in 0..500 {
        let failures = [fail(ConnectionReset), fail(ConnectionReset), fail(ConnectionReset)];
        let waits = waits(&client, failures.into_iter().chain([answer(200)])).await;
        assert_eq!(waits.len(), 3);
        for (wait, bound) in waits.iter().zip([100, 200, 250]) {
            assert!(*wait <= millis(bound), "{waits:?}");
        }
        sums.iter_mut().zip(waits).for_each(|(sum, wait)| *sum += wait);
    }
    for (sum, half) in sums.iter().zip([50, 100, 125]) {
        let mean = *sum / 500;
        assert!(
            (millis(half * 9 / 10)..=millis(half * 11 / 10)).contains(&mean),
            "{mean:?}"
        );
    }
}

// field 12
#[tokio::test(start_paused = true)]
async fn no_base_and_no_cap_makes_a_loop_that_outlives_its_attempts() {
    let (zero, second) = (Duration::ZERO, secs(1));
    for (base, cap) in [(zero, second), (second, zero), (zero, zero), (Duration::MAX, zero)] {
        let client = client(Policy::builder().backoff(Backoff::full_jitter(base, cap)));
        let transport = Transport::always(fail(ConnectionReset));
        let error = client.get(URL).send_with(transport.send()).await.unwrap_err();
        assert_eq!(transport.times(), [zero; 3]);
        assert_eq!(error.stop_reason(), StopReason::MaxAttempts);
    }
    let waits = waits(
        &seeded(Backoff::full_jitter(Duration::MAX, millis(5)), 12),
        [fail(ConnectionReset), answer(200)],
    )
    .await;
    assert!(waits.len() == 1 && waits[0] <= millis(5), "{waits:?}");
    let endless = client(Policy::builder().backoff(Backoff::constant(Duration::MAX)));
    assert_eq!(stop_at_once(&endless, answer(503)).await, StopReason::Deadline);
}

// field 13
#[tokio::test(start_paused = true)]
async fn a_seeded_client_repeats_its_waits_and_two_others_differ() {
    let failures = || [fail(ConnectionReset), fail(ConnectionReset), answer(200)];
    let first = waits(&seeded(Backoff::default(), 1), failures()).await;
    assert_eq!(first.len(), 2);
    assert_eq!(first, waits(&seeded(Backoff::default(), 1), failures()).await);
    assert_ne!(first, waits(&seeded(Backoff::default(), 2), failures()).await);
    let unseeded = || client(Policy::builder());
    assert_ne!(
        waits(&unseeded(), failures()).await,
        waits(&unseeded(), failures()).await
    );
}

// field 14
#[tokio::test(start_paused = true)]
async fn the_next_operation_starts_at_the_first_step() {
    let client = seeded(Backoff::equal_jitter(secs(1), secs(60)), 14);
    for _ in 0..3 {
        let waits = waits(&client, [fail(ConnectionReset), fail(ConnectionReset), answer(200)]).await;
        assert!((millis(500)..=secs(1)).contains(&waits[0]), "{waits:?}");
        assert!((secs(1)..=secs(2)).contains(&waits[1]), "{waits:?}");
    }
}

// R28
#[tokio::test(start_paused = true)]
async fn every_answer_that_is_repeated_may_ask_for_a_wait() {
    for status in [429, 500, 502, 503, 504] {
        let transport = Transport::new([answer(status).header("retry-after", "2"), answer(200)]);
        client(no_backoff()).get(URL).send_with(transport.send()).await.unwrap();
        assert_eq!(transport.times(), [secs(0), secs(2)], "{status}");
    }
}

// field 1
#[tokio::test(start_paused = true)]
async fn zero_asks_for_no_extra_wait_and_still_says_that_nothing_was_done() {
    let transport = Transport::new([busy("0"), answer(200)]);
    let request = patient().post(URL).without_idempotency_key();
    let response = request.send_with(transport.send()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(transport.times(), [secs(0), secs(1)]);
}

// field 2, R32
#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_more_than_is_left_is_not_waited_for() {
    let client = client(no_backoff().deadline(secs(30)));
    for asked in [30, 60] {
        let stop = stop_at_once(&client, busy(&asked.to_string())).await;
        assert_eq!(stop, StopReason::RetryAfter { asked: secs(asked) });
    }
    let transport = Transport::new([busy("29"), answer(200)]);
    client.get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(transport.times(), [secs(0), secs(29)]);
}

// field 3
#[tokio::test(start_paused = true)]
async fn the_longest_wait_is_allowed_and_a_second_more_is_not() {
    let client = client(no_backoff().max_retry_after(secs(5)));
    let transport = Transport::new([busy("5"), answer(200)]);
    client.get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(transport.times(), [secs(0), secs(5)]);

    let transport = Transport::new([busy("6")]);
    let response = client.get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(transport.elapsed(), secs(0));
    let error = response.into_result().unwrap_err();
    assert_eq!(error.retry_after(), Some(secs(6)));
    assert_eq!(error.stop_reason(), StopReason::RetryAfter { asked: secs(6) });
}

// field 4
#[tokio::test(start_paused = true)]
async fn a_number_beyond_all_bounds_stops_and_does_not_overflow() {
    // Either of the two bounds is enough.
    for policy in [
        no_backoff().deadline(Duration::MAX),
        no_backoff().max_retry_after(Duration::MAX),
    ] {
        let nines = busy(&"9".repeat(30)).header("retry-after", "3");
        let asked = secs(u64::MAX);
        let stop = stop_at_once(&client(policy), nines).await;
        assert_eq!(stop, StopReason::RetryAfter { asked });
    }
    let asked = secs(9_999_999_999);
    let stop = stop_at_once(&client(no_backoff()), busy("9999999999")).await;
    assert_eq!(stop, StopReason::RetryAfter { asked });
}

// field 5
#[tokio::test(start_paused = true)]
async fn what_is_no_number_leaves_the_own_backoff() {
    for malformed in ["-3", "0x10", "1e3", "inf", "nan", "", "10, 20"] {
        let transport = Transport::new([busy(malformed), answer(200)]);
        patient().get(URL).send_with(transport.send()).await.unwrap();
        assert_eq!(transport.times(), [secs(0), secs(1)], "{malformed:?}");
    }
}

// field 7
#[tokio::test(start_paused = true)]
async fn a_date_in_the_past_leaves_the_own_backoff() {
    let transport = Transport::new([busy("Sun, 06 Nov 1994 12:00:00 GMT"), answer(200)]);
    patient().get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(transport.times(), [secs(0), secs(1)]);
}

// field 9
#[tokio::test(start_paused = true)]
async fn milliseconds_win_over_seconds() {
    let transport = Transport::new([busy("20").header("retry-after-ms", "1500"), answer(200)]);
    client(no_backoff()).get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(transport.times(), [secs(0), millis(1_500)]);
}

// field 10
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_final_is_not_waited_for() {
    let client = client(no_backoff());
    for (status, expected) in [
        (200, StopReason::Done),
        (301, StopReason::Done),
        (400, StopReason::NotRetryable),
    ] {
        let stop = stop_at_once(&client, answer(status).header("retry-after", "2")).await;
        assert_eq!(stop, expected, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_zero_wait_does_not_sleep() {
    let transport = Transport::new([answer(503), fail(ConnectionReset), answer(200)]);
    client(no_backoff()).get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(transport.times(), [secs(0); 3]);
}

// field 33: the body of an answer nobody reads is part of the wait, and short.
#[tokio::test(start_paused = true)]
async fn an_endless_refusal_costs_a_tenth_of_a_second_at_most() {
    let endless = || {
        let drops = std::iter::repeat_n([pause(millis(7)), data("drop")], 1_000);
        answer(503).chunked(drops.flatten())
    };
    let client = client(no_backoff());
    let transport = Transport::new([endless(), answer(200)]);
    client.get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(transport.times(), [0, 100].map(millis));

    let asked = endless().header("retry-after", "2");
    let transport = Transport::new([asked, answer(200)]);
    client.get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(transport.times(), [secs(0), secs(2)]);
}

// field 34
#[tokio::test(start_paused = true)]
async fn nothing_of_a_refusal_is_held_through_the_wait() {
    let refusal = busy("20").announced(4, [data("wait")]);
    let stalled = busy("20").chunked([Part::Stall]);
    for refusal in [refusal, stalled] {
        let transport = Transport::new([refusal, answer(200)]);
        let client = client(no_backoff());
        let call = tokio::spawn(client.get(URL).send_with(transport.send()));
        tokio::time::sleep(secs(10)).await;
        assert_eq!(transport.seen().len(), 1);
        assert_eq!(transport.open_bodies(), 0);
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
}

// The same where timers are as late as they are: the wait leaves enough for the attempt it is made for.
#[tokio::test]
async fn a_wait_that_was_shortened_ends_in_an_attempt() {
    let policy = Policy::builder().deadline(secs(1)).attempt_timeout(millis(500));
    let transport = Transport::new([answer(429).header("retry-after-ms", "900"), answer(200)]);
    let response = client(policy).get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(response.status(), 200);
}

// field 34
#[tokio::test(start_paused = true)]
async fn an_answer_nobody_reads_leaves_the_time_of_another_attempt() {
    let policy = no_backoff().deadline(millis(105));
    let stalled = answer(503).announced(5, [Part::Stall]);
    let transport = Transport::new([stalled, answer(200)]);
    client(policy).get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(transport.times(), [secs(0), millis(85)]);
}

// R26
#[tokio::test]
async fn failures_without_a_wait_leave_the_thread_to_others() {
    let policy = no_backoff().max_attempts(u32::MAX).budget(RetryBudget::unlimited());
    let operation = client(policy).get(URL).into_operation().unwrap();
    let transport = Transport::always(refused());
    let started = std::time::Instant::now();
    let ended = tokio::time::timeout(millis(50), operation.send_with(transport.send())).await;
    assert!(ended.is_err());
    assert!(started.elapsed() < secs(10), "the deadline is 30 s");
}

// field 9: and each of them can be switched off.
#[tokio::test(start_paused = true)]
async fn a_header_that_is_switched_off_asks_for_nothing() {
    let both = || answer(503).header("retry-after", "4").header("retry-after-ms", "1500");
    for (policy, wait) in [
        (no_backoff().retry_after_ms(false), secs(4)),
        (no_backoff().retry_after(false), millis(1_500)),
        (no_backoff().retry_after(false).retry_after_ms(false), secs(0)),
    ] {
        let transport = Transport::new([both(), answer(200)]);
        client(policy).get(URL).send_with(transport.send()).await.unwrap();
        assert_eq!(transport.elapsed(), wait);
    }
}

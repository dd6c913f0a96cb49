//! The retry budget: what retries cost, who pays, and what is left when it is dry.

use std::error::Error as _;
use std::io;
use std::io::ErrorKind::ConnectionReset;

use reqwest::Body;
use steadfast::{
    Backoff, CircuitBreaker, Client, ErrorKind, Outcome, Policy, PolicyBuilder, ResponseExt, RetryBudget, StopReason,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::transport::{Step, Transport, URL, answer, client, fail, hang, millis, no_backoff, refused, secs};

fn with_budget(ratio: f64, burst: u32) -> PolicyBuilder {
    no_backoff().budget(RetryBudget::new(ratio, burst))
}

/// The requests of so many operations, one after the other.
async fn requests(client: &Client, operations: usize, step: Step) -> usize {
    let transport = Transport::always(step);
    for _ in 0..operations {
        let _ = client.get(URL).send_with(transport.send()).await;
    }
    transport.seen().len()
}

/// How many retries the budget of the client pays for now.
async fn retries_left(client: &Client) -> usize {
    requests(client, 200, answer(503)).await - 200
}

// field 40
#[tokio::test(start_paused = true)]
async fn the_default_client_runs_dry_at_a_dead_service() {
    for step in [answer(503), fail(ConnectionReset), refused()] {
        let client = client(no_backoff());
        assert_eq!(requests(&client, 1_000, step).await, 1_050);
    }
}

// field 40
#[tokio::test(start_paused = true)]
async fn in_an_outage_of_a_minute_there_are_six_more() {
    let client = client(no_backoff());
    let transport = Transport::always(answer(503));
    let started = Instant::now();
    while started.elapsed() < secs(61) {
        client.get(URL).send_with(transport.send()).await.unwrap();
        sleep(millis(100)).await;
    }
    assert_eq!(transport.seen().len(), 610 + 50 + 6);
}

// R31: whatever the number of attempts says.
#[tokio::test(start_paused = true)]
async fn more_attempts_make_no_more_requests_in_an_outage() {
    let client = client(no_backoff().max_attempts(10));
    assert_eq!(requests(&client, 1_000, answer(503)).await, 1_050);
}

#[tokio::test(start_paused = true)]
async fn without_a_budget_every_attempt_is_made() {
    let client = client(no_backoff().budget(RetryBudget::unlimited()));
    assert_eq!(requests(&client, 100, answer(503)).await, 300);
}

// field 53
#[tokio::test(start_paused = true)]
async fn a_dry_budget_gives_back_the_answer_it_stopped_at() {
    let client = client(with_budget(0.2, 1));
    retries_left(&client).await;
    let transport = Transport::always(answer(503).header("retry-after", "1").body("down"));
    let response = client.get(URL).send_with(transport.send()).await.unwrap();
    let attempts = response.attempts().unwrap().clone();
    assert_eq!(response.status(), 503);
    assert_eq!(attempts.stop_reason(), StopReason::Budget);
    assert_eq!(attempts.iter().next().unwrap().retry_after(), Some(secs(1)));
    assert_eq!(response.text().await.unwrap(), "down");
    assert_eq!(transport.elapsed(), secs(0));
}

// field 53
#[tokio::test(start_paused = true)]
async fn a_dry_budget_keeps_the_failure_it_stopped_at() {
    let client = client(with_budget(0.2, 1));
    retries_left(&client).await;
    let transport = Transport::always(fail(ConnectionReset));
    let error = client.post(URL).send_with(transport.send()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reset);
    assert_eq!(error.stop_reason(), StopReason::Budget);
    assert_eq!(error.outcome(), Outcome::Unknown);
    let source = error.source().unwrap().downcast_ref::<io::Error>();
    assert_eq!(source.map(io::Error::kind), Some(ConnectionReset));
}

// field 40, field 41
#[tokio::test(start_paused = true)]
async fn answered_operations_fill_a_dry_budget_by_the_ratio() {
    let client = client(with_budget(0.6, 50));
    retries_left(&client).await;
    requests(&client, 10, answer(200)).await;
    assert_eq!(retries_left(&client).await, 6);
}

// field 40
#[tokio::test(start_paused = true)]
async fn after_an_outage_the_default_client_gets_a_retry_for_five_answers() {
    let client = client(no_backoff());
    retries_left(&client).await;
    requests(&client, 4, answer(200)).await;
    assert_eq!(retries_left(&client).await, 0);
    requests(&client, 6, answer(200)).await;
    assert_eq!(retries_left(&client).await, 2);
}

// field 40
#[tokio::test(start_paused = true)]
async fn a_quiet_client_recovers_by_the_trickle() {
    let client = client(no_backoff());
    retries_left(&client).await;
    sleep(secs(30)).await;
    assert_eq!(retries_left(&client).await, 3);
    sleep(secs(10_000)).await;
    assert_eq!(retries_left(&client).await, 50);
}

#[tokio::test(start_paused = true)]
async fn an_answer_deposits_unless_its_status_is_one_that_is_retried() {
    for (status, deposits) in [
        (200, true),
        (302, true),
        (404, true),
        (501, true),
        (429, false),
        (500, false),
        (503, false),
    ] {
        let client = client(with_budget(1.0, 50).max_attempts(2));
        retries_left(&client).await;
        // Whether the operation may be repeated has no part in it.
        let keyless = client.post(URL).without_idempotency_key();
        keyless
            .send_with(Transport::always(answer(status)).send())
            .await
            .unwrap();
        assert_eq!(retries_left(&client).await, usize::from(deposits), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_was_repeated_deposits_once() {
    let client = client(with_budget(1.0, 50).max_attempts(2));
    retries_left(&client).await;
    requests(&client, 2, answer(200)).await;
    let transport = Transport::new([answer(503), answer(200)]);
    client.get(URL).send_with(transport.send()).await.unwrap();
    // Two deposits, less one retry, and one deposit.
    assert_eq!(retries_left(&client).await, 2);
}

// field 42
#[tokio::test(start_paused = true)]
async fn a_retry_that_waits_has_paid() {
    let policy = with_budget(0.2, 1).backoff(Backoff::constant(secs(5)));
    let client = client(policy);
    let transport = Transport::new([answer(503), answer(503), answer(200)]);
    let first = client.get(URL).send_with(transport.send());
    let second = client.get(URL).send_with(transport.send());
    let (first, second) = tokio::join!(first, async {
        let response = second.await;
        assert_eq!(transport.elapsed(), secs(0));
        response
    });
    let stops = [first, second].map(|result| result.unwrap().attempts().unwrap().stop_reason());
    assert_eq!(stops, [StopReason::Done, StopReason::Budget]);
}

// field 42
#[tokio::test(start_paused = true)]
async fn a_retry_that_is_not_made_gets_its_token_back() {
    let waiting = || with_budget(0.2, 1).backoff(Backoff::constant(secs(5)));
    let policy = waiting().build().unwrap();

    // The caller left in the wait.
    let client_of_one = client(with_budget(0.2, 1));
    let transport = Transport::always(answer(503));
    let operation = client_of_one
        .get(URL)
        .policy(policy.clone())
        .send_with(transport.send());
    timeout(secs(1), operation).await.unwrap_err();
    assert_eq!(retries_left(&client_of_one).await, 1);

    // The circuit was held open in the wait.
    let client_of_one = client(with_budget(0.2, 1));
    let operation = client_of_one
        .get(URL)
        .policy(policy.clone())
        .send_with(transport.send());
    let (result, ()) = tokio::join!(operation, async {
        sleep(secs(1)).await;
        client_of_one.circuits().force_open("https://api.example.com");
    });
    assert!(matches!(
        result.unwrap_err().stop_reason(),
        StopReason::CircuitOpen { .. }
    ));
    client_of_one.circuits().automatic("https://api.example.com");
    assert_eq!(retries_left(&client_of_one).await, 1);

    // There was no body for it.
    let client_of_one = client(with_budget(0.2, 1));
    let made = std::sync::atomic::AtomicU32::new(0);
    let body = move || match made.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => Ok(Body::from("x")),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let request = client_of_one.put(URL).body_with(body);
    let error = request.send_with(transport.send()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Request);
    assert_eq!(retries_left(&client_of_one).await, 1);
}

// field 42
#[tokio::test(start_paused = true)]
async fn a_retry_whose_wait_ended_too_late_gets_its_token_back() {
    let policy = with_budget(0.2, 1).backoff(Backoff::constant(millis(100)));
    let client = client(policy.deadline(millis(500)));
    let transport = Transport::always(answer(503));
    let call = client.get(URL).send_with(transport.send());
    // Late enough for the deadline, and far too soon for the trickle.
    let (result, ()) = tokio::join!(call, tokio::time::advance(secs(1)));
    assert_eq!(result.unwrap_err().stop_reason(), StopReason::Deadline);
    assert_eq!(transport.seen().len(), 1);
    assert_eq!(retries_left(&client).await, 1);
}

// field 42, field 47
#[tokio::test(start_paused = true)]
async fn a_retry_that_a_circuit_refuses_after_its_wait_gets_its_token_back() {
    let circuit = CircuitBreaker::default().minimum_throughput(2);
    let policy = with_budget(0.2, 1).backoff(Backoff::constant(secs(2)));
    let client = client(policy.circuit_breaker(circuit));
    let transport = Transport::always(answer(503));
    let (result, _) = tokio::join!(client.get(URL).send_with(transport.send()), async {
        sleep(secs(1)).await;
        let other = client.get(URL).max_attempts(1);
        other.send_with(Transport::always(refused()).send()).await
    });
    assert_eq!(
        result.unwrap_err().stop_reason(),
        StopReason::CircuitOpen { retry_in: secs(4) }
    );
    assert_eq!(transport.seen().len(), 1);
    let circuit = client.circuits().get("https://api.example.com").unwrap();
    assert_eq!(circuit.tokens(), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_hangs_has_spent_its_token() {
    let client = client(with_budget(0.2, 1));
    let transport = Transport::new([answer(503), hang()]);
    timeout(secs(1), client.get(URL).send_with(transport.send()))
        .await
        .unwrap_err();
    assert_eq!(transport.seen().len(), 2);
    assert_eq!(retries_left(&client).await, 0);
}

// R35, field 48
#[tokio::test(start_paused = true)]
async fn every_group_has_a_budget_of_its_own() {
    let client = client(with_budget(0.2, 3));
    retries_left(&client).await;
    let retries = async |request: steadfast::RequestBuilder| {
        let transport = Transport::always(answer(503));
        request.send_with(transport.send()).await.unwrap();
        transport.seen().len() - 1
    };
    assert_eq!(retries(client.get(URL)).await, 0);
    assert_eq!(retries(client.get("https://api.example.com/another/path?x")).await, 0);
    assert_eq!(retries(client.get("http://api.example.com/charges")).await, 2);
    assert_eq!(retries(client.get("http://api.example.com:443/charges")).await, 2);
    assert_eq!(retries(client.get("https://api.example.com:8443/charges")).await, 2);
    assert_eq!(retries(client.get("https://www.example.com/charges")).await, 2);
    assert_eq!(retries(client.get(URL).circuit("charges")).await, 2);
}

#[tokio::test(start_paused = true)]
async fn clones_share_their_budget_and_so_do_clients_of_one_pipeline() {
    let first = client(with_budget(0.2, 3));
    let policy = with_budget(0.2, 3).build().unwrap();
    let builder = || Client::builder(reqwest::Client::new()).policy(policy.clone());
    let sharing = builder().pipeline(first.pipeline().clone()).build();
    let apart = builder().build();
    assert_eq!(retries_left(&first.clone()).await, 3);
    assert_eq!(retries_left(&sharing).await, 0);
    assert_eq!(retries_left(&apart).await, 3);
}

// field 41
#[tokio::test(start_paused = true)]
async fn callers_at_the_same_time_share_what_there_is() {
    let client = client(Policy::builder());
    let transport = Transport::always(answer(503));
    let mut operations = JoinSet::new();
    for _ in 0..1_000 {
        operations.spawn(client.get(URL).send_with(transport.send()));
    }
    let mut dry = 0;
    while let Some(operation) = operations.join_next().await {
        let response = operation.unwrap().unwrap();
        let stop_reason = response.attempts().unwrap().stop_reason();
        dry += usize::from(stop_reason == StopReason::Budget);
    }
    assert_eq!(transport.seen().len(), 1_050);
    assert!(dry >= 950, "{dry}");
}

#[tokio::test(start_paused = true)]
async fn the_list_shows_the_tokens() {
    let client = client(with_budget(0.5, 4));
    requests(&client, 1, answer(503)).await;
    let circuit = client.circuits().get("https://api.example.com").unwrap();
    assert_eq!(circuit.tokens(), Some(2.0));
    requests(&client, 1, answer(200)).await;
    let circuit = client.circuits().get("https://api.example.com").unwrap();
    assert_eq!(circuit.tokens(), Some(2.5));
}

//! Circuits: when attempts are refused, what is told of it, and how a service that recovers gets its traffic back.

use std::error::Error as _;
use std::io;
use std::io::ErrorKind::{ConnectionReset, NotFound};

use reqwest::{Body, Request, Response};
use steadfast::{
    AttemptError, Backoff, CircuitBreaker, CircuitState, Client, Delivery, Error, ErrorKind, Outcome, Policy,
    PolicyBuilder, RequestBuilder, ResponseExt, RetryBudget, StopReason,
};
use tokio::time::{sleep, timeout};

use crate::transport::{Step, Transport, URL, answer, client, fail, fail_with, hang, no_backoff, refused, secs};

const GROUP: &str = "https://api.example.com:443";

/// Opens at four failures, for five seconds each time, and closes after one probe.
fn breaker() -> CircuitBreaker {
    CircuitBreaker::default()
        .minimum_throughput(4)
        .failure_ratio(1.0)
        .half_open_probes(1)
        .max_open_for(secs(5))
}

fn one_attempt() -> PolicyBuilder {
    no_backoff().max_attempts(1).circuit_breaker(breaker())
}

fn state(client: &Client) -> CircuitState {
    client.circuits().get(GROUP).expect("a group that was used").state()
}

async fn send(client: &Client, step: Step) -> Result<Response, Error> {
    client.get(URL).send_with(Transport::always(step).send()).await
}

/// A client whose circuit has just opened.
async fn tripped(policy: PolicyBuilder) -> Client {
    let client = client(policy);
    for _ in 0..4 {
        let _ = send(&client, fail(ConnectionReset)).await;
    }
    assert_eq!(state(&client), CircuitState::Open);
    client
}

fn refusal(result: Result<Response, Error>) -> Error {
    let error = result.expect_err("a refusal");
    assert!(matches!(error.stop_reason(), StopReason::CircuitOpen { .. }), "{error}");
    error
}

// R34, R39
#[tokio::test(start_paused = true)]
async fn a_service_that_recovers_has_its_traffic_back_after_the_open_time_and_one_probe() {
    let client = tripped(one_attempt()).await;
    sleep(secs(5)).await;
    send(&client, fail(ConnectionReset)).await.unwrap_err();
    assert_eq!(state(&client), CircuitState::Open);
    refusal(send(&client, answer(200)).await);
    sleep(secs(5)).await;
    assert_eq!(send(&client, answer(200)).await.unwrap().status(), 200);
    assert_eq!(state(&client), CircuitState::Closed);
    assert_eq!(send(&client, answer(200)).await.unwrap().status(), 200);
}

// R34
#[tokio::test(start_paused = true)]
async fn the_list_shows_every_state_and_the_time_until_the_probe() {
    let client = tripped(one_attempt()).await;
    let listed = || {
        let [circuit] = &client.circuits().list()[..] else {
            panic!("not one group")
        };
        (circuit.state(), circuit.retry_in(), circuit.calls())
    };
    assert_eq!(listed(), (CircuitState::Open, Some(secs(5)), 4));
    sleep(secs(3)).await;
    assert_eq!(listed(), (CircuitState::Open, Some(secs(2)), 4));
    // Until somebody asks, it is open.
    sleep(secs(3)).await;
    assert_eq!(listed(), (CircuitState::Open, Some(secs(0)), 4));
    let probe = |_: Request| async {
        assert_eq!(listed(), (CircuitState::HalfOpen, None, 0));
        Ok::<_, io::Error>(Response::from(http::Response::new("")))
    };
    client.get(URL).send_with(probe).await.unwrap();
    assert_eq!(listed(), (CircuitState::Closed, None, 0));
}

// R37, field 47
#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_error_at_once_that_names_the_circuit_and_the_time_left() {
    let client = tripped(no_backoff().max_attempts(3).circuit_breaker(breaker())).await;
    let tokens = || client.circuits().get(GROUP).unwrap().tokens();
    let before = tokens();
    sleep(secs(2)).await;
    let transport = Transport::always(answer(200));
    let error = refusal(client.post(URL).send_with(transport.send()).await);
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    assert_eq!(error.circuit(), Some(GROUP));
    assert_eq!(error.stop_reason(), StopReason::CircuitOpen { retry_in: secs(3) });
    assert_eq!(error.outcome(), Outcome::NotDone);
    assert!(error.attempts().is_empty());
    assert!(error.idempotency_key().is_some());
    assert!(error.source().is_none());
    assert!(!error.is_timeout() && !error.is_connect());
    assert_eq!((transport.seen().len(), transport.elapsed()), (0, secs(0)));
    // The trickle of two seconds, and nothing taken.
    assert_eq!(
        tokens()
            .zip(before)
            .map(|(now, before)| ((now - before) * 1000.0).round()),
        Some(200.0)
    );
    assert_eq!(
        error.to_string(),
        "POST https://api.example.com/charges was not sent: circuit open for another 3s (https://api.example.com:443)"
    );
}

// R40
#[tokio::test(start_paused = true)]
async fn without_being_asked_for_there_is_no_circuit() {
    let client = client(no_backoff());
    for _ in 0..1_000 {
        send(&client, refused()).await.unwrap_err();
    }
    assert_eq!(state(&client), CircuitState::Closed);
    assert!(Policy::default().circuit_breaker().is_none());
}

// R36
#[tokio::test(start_paused = true)]
async fn two_failures_of_two_calls_do_not_open_the_default_circuit() {
    let client = client(no_backoff().max_attempts(1).circuit_breaker(CircuitBreaker::default()));
    for failures in 1..20 {
        send(&client, answer(500)).await.unwrap();
        assert_eq!(state(&client), CircuitState::Closed, "{failures}");
    }
    send(&client, answer(500)).await.unwrap();
    assert_eq!(state(&client), CircuitState::Open);
}

// R35, field 48
#[tokio::test(start_paused = true)]
async fn the_circuit_of_one_group_says_nothing_of_another() {
    let client = tripped(one_attempt()).await;
    let transport = Transport::always(answer(200));
    refusal(
        client
            .get("https://api.example.com/other")
            .send_with(transport.send())
            .await,
    );
    for request in [
        client.get("http://api.example.com/charges"),
        client.get("http://api.example.com:443/charges"),
        client.get("https://api.example.com:8443/charges"),
        client.get("https://www.example.com/charges"),
        client.get(URL).circuit("charges"),
    ] {
        assert_eq!(request.send_with(transport.send()).await.unwrap().status(), 200);
    }
}

// field 53
#[tokio::test(start_paused = true)]
async fn a_circuit_that_opens_under_an_operation_gives_back_its_answer() {
    let client = client(no_backoff().max_attempts(10).circuit_breaker(breaker()));
    let transport = Transport::always(answer(502).body("down"));
    let response = client.get(URL).send_with(transport.send()).await.unwrap();
    let attempts = response.attempts().unwrap().clone();
    assert_eq!(attempts.len(), 4);
    assert_eq!(attempts.stop_reason(), StopReason::CircuitOpen { retry_in: secs(5) });
    assert_eq!(response.status(), 502);
    let error = response.into_result().unwrap_err();
    assert_eq!(error.circuit(), Some(GROUP));
    assert_eq!(error.into_response().unwrap().text().await.unwrap(), "down");
    assert_eq!(transport.elapsed(), secs(0));
}

// field 53
#[tokio::test(start_paused = true)]
async fn a_circuit_that_opens_under_an_operation_keeps_its_failure() {
    let client = client(no_backoff().max_attempts(10).circuit_breaker(breaker()));
    let error = refusal(send(&client, fail(ConnectionReset)).await);
    assert_eq!(error.kind(), ErrorKind::Reset);
    assert_eq!(error.attempts().len(), 4);
    assert_eq!(error.circuit(), Some(GROUP));
    let source = error.source().unwrap().downcast_ref::<io::Error>();
    assert_eq!(source.map(io::Error::kind), Some(ConnectionReset));
}

// field 53
#[tokio::test(start_paused = true)]
async fn a_circuit_that_others_opened_in_the_wait_keeps_the_last_answer_in_the_error() {
    let waits = Backoff::constant(secs(2));
    let client = client(Policy::builder().backoff(waits).circuit_breaker(breaker()));
    let transport = Transport::always(answer(503).header("retry-after", "1"));
    let first = client.get(URL).send_with(transport.send());
    let (first, ()) = tokio::join!(first, async {
        sleep(secs(1)).await;
        for _ in 0..3 {
            let other = client.get(URL).max_attempts(1);
            let _ = other.send_with(Transport::always(refused()).send()).await;
        }
    });
    let error = refusal(first);
    assert_eq!(error.kind(), ErrorKind::Status);
    assert_eq!(error.status().map(|status| status.as_u16()), Some(503));
    assert_eq!(error.retry_after(), Some(secs(1)));
    assert_eq!(error.circuit(), Some(GROUP));
    assert_eq!(transport.seen().len(), 1);
}

// field 53
#[tokio::test(start_paused = true)]
async fn a_circuit_that_others_opened_in_the_wait_keeps_the_last_failure_in_the_error() {
    let waits = Backoff::constant(secs(2));
    let client = client(Policy::builder().backoff(waits).circuit_breaker(breaker()));
    let (first, ()) = tokio::join!(send(&client, fail(ConnectionReset)), async {
        sleep(secs(1)).await;
        for _ in 0..3 {
            let other = client.get(URL).max_attempts(1);
            other.send_with(Transport::always(refused()).send()).await.unwrap_err();
        }
    });
    let error = refusal(first);
    assert_eq!(error.kind(), ErrorKind::Reset);
    assert_eq!(error.stop_reason(), StopReason::CircuitOpen { retry_in: secs(4) });
    let source = error.source().unwrap().downcast_ref::<io::Error>();
    assert_eq!(source.map(io::Error::kind), Some(ConnectionReset));
}

// R39: a wait that outlasts the open time ends in the probe.
#[tokio::test(start_paused = true)]
async fn an_operation_waits_for_a_circuit_that_will_let_it_through() {
    let waits = Backoff::constant(secs(6));
    let client = client(
        Policy::builder()
            .backoff(waits)
            .circuit_breaker(breaker().minimum_throughput(1)),
    );
    let transport = Transport::new([answer(503), answer(200)]);
    let response = client.get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(transport.times(), [secs(0), secs(6)]);
    assert_eq!(state(&client), CircuitState::Closed);
}

// field 46
#[tokio::test(start_paused = true)]
async fn a_thousand_callers_who_leave_do_not_open_a_circuit() {
    let client = client(one_attempt());
    let transport = Transport::always(hang());
    for _ in 0..1_000 {
        timeout(secs(1), client.get(URL).send_with(transport.send()))
            .await
            .unwrap_err();
    }
    assert_eq!(transport.seen().len(), 1_000);
    assert_eq!(state(&client), CircuitState::Closed);
    assert_eq!(client.circuits().get(GROUP).unwrap().calls(), 0);
}

// field 46, R37
#[tokio::test(start_paused = true)]
async fn attempt_timeouts_open_a_circuit_and_spare_the_others_the_wait() {
    let circuit = breaker().minimum_throughput(100).window(secs(3600));
    let client = client(no_backoff().max_attempts(1).circuit_breaker(circuit));
    for _ in 0..100 {
        send(&client, hang()).await.unwrap_err();
    }
    let transport = Transport::always(hang());
    refusal(client.get(URL).send_with(transport.send()).await);
    assert_eq!(transport.elapsed(), secs(0));
}

// field 46: who has less time than the service needs must not be the only one who cannot open it.
#[tokio::test(start_paused = true)]
async fn attempts_that_the_deadline_cuts_count_as_failures() {
    let client = client(one_attempt().deadline(secs(1)));
    for _ in 0..4 {
        send(&client, hang()).await.unwrap_err();
    }
    assert_eq!(state(&client), CircuitState::Open);
}

// field 47
#[tokio::test(start_paused = true)]
async fn refusals_of_the_service_never_open_a_circuit() {
    for status in [400, 401, 404, 409, 422, 429] {
        let client = client(one_attempt());
        for _ in 0..100 {
            send(&client, answer(status)).await.unwrap();
        }
        assert_eq!(state(&client), CircuitState::Closed, "{status}");
        let expected = if status == 429 { 0 } else { 100 };
        assert_eq!(client.circuits().get(GROUP).unwrap().calls(), expected, "{status}");
    }
}

// R34
#[tokio::test(start_paused = true)]
async fn every_failure_of_a_service_opens_a_circuit() {
    let cut = || answer(200).announced(9, [crate::transport::Part::Cut(io::ErrorKind::UnexpectedEof)]);
    for step in [
        answer(500),
        answer(501),
        answer(503).header("retry-after", "1"),
        refused(),
        cut(),
    ] {
        let client = client(one_attempt());
        for _ in 0..4 {
            let _ = send(&client, step.clone()).await;
        }
        assert_eq!(state(&client), CircuitState::Open, "{step:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_made_says_nothing_of_the_service() {
    let client = client(one_attempt());
    let transport = Transport::always(answer(200));
    for _ in 0..10 {
        let request = client.put(URL).body_with(|| Err(NotFound.into()));
        request.send_with(transport.send()).await.unwrap_err();
    }
    assert_eq!(client.circuits().get(GROUP).unwrap().calls(), 0);
    assert_eq!(transport.seen().len(), 0);
}

/// The circuit is half-open, and its only place is free again.
async fn assert_next_probe_closes(client: &Client, case: &str) {
    assert_eq!(state(client), CircuitState::HalfOpen, "{case}");
    assert_eq!(send(client, answer(200)).await.unwrap().status(), 200, "{case}");
    assert_eq!(state(client), CircuitState::Closed, "{case}");
}

// field 44
#[tokio::test(start_paused = true)]
async fn a_probe_that_ends_without_a_result_leaves_its_place_to_another() {
    let client = tripped(one_attempt()).await;
    sleep(secs(5)).await;
    let probe = client.get(URL).send_with(Transport::always(hang()).send());
    timeout(secs(1), probe).await.unwrap_err();
    assert_next_probe_closes(&client, "dropped").await;

    let client = tripped(one_attempt()).await;
    sleep(secs(5)).await;
    let panics = |_: Request| async { panic!("on purpose") as Result<Response, io::Error> };
    let probe = client.get(URL).send_with(panics);
    assert!(tokio::spawn(probe).await.unwrap_err().is_panic());
    assert_next_probe_closes(&client, "panicked").await;

    let client = tripped(one_attempt()).await;
    sleep(secs(5)).await;
    send(&client, answer(429)).await.unwrap();
    assert_next_probe_closes(&client, "ignored").await;

    let client = tripped(one_attempt()).await;
    sleep(secs(5)).await;
    let unmade = client.put(URL).body_with(|| Err::<Body, _>(NotFound.into()));
    unmade
        .send_with(Transport::always(answer(200)).send())
        .await
        .unwrap_err();
    assert_next_probe_closes(&client, "not made").await;
}

// field 45
#[tokio::test(start_paused = true)]
async fn an_answer_from_before_the_trip_changes_nothing_after_it() {
    let client = client(one_attempt());
    let slow = crate::transport::after(secs(4), answer(200));
    let before = client.get(URL).send_with(Transport::always(slow).send());
    let (before, ()) = tokio::join!(before, async {
        for _ in 0..4 {
            let _ = send(&client, refused()).await;
        }
    });
    assert_eq!(before.unwrap().status(), 200);
    assert_eq!(state(&client), CircuitState::Open);
    assert_eq!(client.circuits().get(GROUP).unwrap().late_results(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_operator_stops_a_group_under_every_policy() {
    let client = client(no_backoff());
    client.circuits().force_open(GROUP);
    let transport = Transport::always(answer(200));
    let error = refusal(client.get(URL).send_with(transport.send()).await);
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    sleep(secs(3600)).await;
    refusal(client.get(URL).send_with(transport.send()).await);
    assert_eq!(transport.seen().len(), 0);
    client.circuits().automatic(GROUP);
    client.get(URL).send_with(transport.send()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_operator_keeps_a_group_going() {
    let client = tripped(one_attempt()).await;
    client.circuits().force_closed(GROUP);
    for _ in 0..100 {
        assert_eq!(send(&client, answer(500)).await.unwrap().status(), 500);
    }
    let circuit = client.circuits().get(GROUP).unwrap();
    assert_eq!((circuit.state(), circuit.is_forced()), (CircuitState::Closed, true));
    assert_eq!((circuit.failure_ratio(), circuit.calls()), (Some(1.0), 100));
}

// R34
#[tokio::test(start_paused = true)]
async fn every_change_is_told_to_those_who_want_to_know() {
    let client = client(one_attempt());
    let mut changes = client.circuits().changes();
    for _ in 0..4 {
        let _ = send(&client, refused()).await;
    }
    let mut told = async || timeout(secs(1), changes.next()).await.expect("a change").unwrap();
    let opened = told().await;
    assert_eq!((opened.group(), opened.to()), (GROUP, CircuitState::Open));
    sleep(secs(5)).await;
    send(&client, answer(200)).await.unwrap();
    let rest = [told().await, told().await];
    let rest = rest.map(|change| (change.from(), change.to()));
    assert_eq!(
        rest,
        [
            (CircuitState::Open, CircuitState::HalfOpen),
            (CircuitState::HalfOpen, CircuitState::Closed)
        ]
    );
}

fn attempts(result: Result<Response, Error>) -> usize {
    result.unwrap().attempts().unwrap().len()
}

// R35
#[tokio::test(start_paused = true)]
async fn a_group_has_the_policy_that_was_made_for_it() {
    let policy = |attempts| {
        let policy = no_backoff().max_attempts(attempts).budget(RetryBudget::unlimited());
        policy.build().unwrap()
    };
    let client = Client::builder(reqwest::Client::new())
        .policy(policy(2))
        .policy_for("https://api.example.com", policy(3))
        .policy_for("https://api.example.com:8443", policy(6))
        .policy_for("http://api.example.com:80", policy(7))
        .policy_for("payments", policy(4))
        .build();
    let send = async |request: RequestBuilder| {
        let transport = Transport::always(answer(503));
        attempts(request.send_with(transport.send()).await)
    };
    assert_eq!(send(client.get("https://www.example.com/")).await, 2);
    assert_eq!(send(client.get(URL)).await, 3);
    assert_eq!(send(client.get("https://api.example.com:8443/charges")).await, 6);
    assert_eq!(send(client.get("http://api.example.com/charges")).await, 7);
    assert_eq!(send(client.get(URL).circuit("payments")).await, 4);
    assert_eq!(send(client.get(URL).circuit("https://api.example.com:443/")).await, 3);
    // The request's own word is the last.
    assert_eq!(send(client.get(URL).policy(policy(5))).await, 5);
    assert_eq!(send(client.get(URL).max_attempts(1)).await, 1);
}

#[tokio::test]
async fn a_circuit_without_a_name_is_refused() {
    let client = client(no_backoff());
    let error = client.get(URL).circuit("").into_operation().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Request);
    assert!(
        error.to_string().ends_with("the name of the circuit is empty"),
        "{error}"
    );
}

// field 47
#[tokio::test(start_paused = true)]
async fn the_open_circuit_of_a_nested_client_is_not_retried_and_no_failure_of_the_outer_one() {
    let inner = client(one_attempt());
    for _ in 0..4 {
        let failing = Transport::always(refused());
        inner
            .get(URL)
            .circuit("inner")
            .send_with(failing.send())
            .await
            .unwrap_err();
    }
    let outer = client(no_backoff().circuit_breaker(breaker()));
    let transport = Transport::always(answer(200));
    let nested = |request: Request| {
        RequestBuilder::from_parts(inner.clone(), request)
            .circuit("inner")
            .send_with(transport.send())
    };
    let error = outer.post(URL).send_with(nested).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    assert_eq!(error.stop_reason(), StopReason::CircuitOpen { retry_in: secs(5) });
    assert_eq!(error.circuit(), Some("inner"));
    assert_eq!(error.outcome(), Outcome::NotDone);
    let deliveries: Vec<_> = error.attempts().iter().map(|attempt| attempt.delivery()).collect();
    assert_eq!(deliveries, [Delivery::NotSent]);
    assert_eq!(outer.circuits().get(GROUP).unwrap().calls(), 0);
}

// R38, R49
#[tokio::test(start_paused = true)]
async fn an_operation_that_was_refused_is_sent_later_with_its_key() {
    let client = tripped(one_attempt()).await;
    let operation = client.post(URL).into_operation().unwrap();
    let transport = Transport::always(answer(201));
    refusal(operation.send_with(transport.send()).await);
    sleep(secs(5)).await;
    operation.send_with(transport.send()).await.unwrap();
    assert_eq!(
        Some(transport.seen()[0].key()),
        operation.idempotency_key().map(|key| key.as_str())
    );
}

// field 53: to wait for others' probes would most likely lose it.
#[tokio::test(start_paused = true)]
async fn the_answer_is_given_back_where_all_places_of_probes_are_taken() {
    let client = client(
        Policy::builder()
            .backoff(Backoff::constant(secs(1)))
            .circuit_breaker(breaker()),
    );
    let slow = crate::transport::after(secs(6), answer(503));
    let slow = client.get(URL).send_with(Transport::always(slow).send());
    let others = async {
        for _ in 0..4 {
            let other = client.get(URL).max_attempts(1);
            other.send_with(Transport::always(refused()).send()).await.unwrap_err();
        }
        sleep(secs(5)).await;
        let probe = client.get(URL).send_with(Transport::always(hang()).send());
        timeout(secs(4), probe).await.unwrap_err();
    };
    let (slow, ()) = tokio::join!(slow, others);
    let attempts = slow.unwrap().attempts().unwrap().clone();
    assert_eq!(attempts.stop_reason(), StopReason::CircuitOpen { retry_in: secs(5) });
}

// field 43
#[tokio::test(start_paused = true)]
async fn a_probe_that_has_ended_keeps_its_place_until_the_verdict() {
    let client = tripped(
        no_backoff()
            .max_attempts(1)
            .circuit_breaker(breaker().half_open_probes(2)),
    )
    .await;
    sleep(secs(5)).await;
    send(&client, answer(200)).await.unwrap();
    let probe = client.get(URL).send_with(Transport::always(hang()).send());
    let (probe, ()) = tokio::join!(timeout(secs(1), probe), async {
        refusal(send(&client, answer(200)).await);
    });
    probe.unwrap_err();
    assert_next_probe_closes(&client, "the second").await;
}

// field 44
#[tokio::test(start_paused = true)]
async fn a_probe_that_is_kept_and_not_polled_does_not_keep_the_circuit_from_closing() {
    let client = tripped(one_attempt()).await;
    sleep(secs(5)).await;
    let mut kept = Box::pin(client.get(URL).send_with(Transport::always(hang()).send()));
    timeout(secs(1), &mut kept).await.unwrap_err();
    // Ten seconds are the time of the attempt.
    sleep(secs(9)).await;
    refusal(send(&client, answer(200)).await);
    sleep(secs(2)).await;
    assert_next_probe_closes(&client, "kept").await;
    assert_eq!(kept.await.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(state(&client), CircuitState::Closed);
}

// field 46
#[tokio::test(start_paused = true)]
async fn what_a_sender_did_not_even_send_says_nothing_of_the_service() {
    let client = client(one_attempt());
    for _ in 0..10 {
        let full = fail_with(|| AttemptError::not_sent("a full queue"));
        send(&client, full).await.unwrap_err();
    }
    assert_eq!(client.circuits().get(GROUP).unwrap().calls(), 0);
}

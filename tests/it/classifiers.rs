//! What the caller knows of a service that the table of statuses does not.

use std::io;
use std::io::ErrorKind::ConnectionReset;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use reqwest::header::HeaderName;
use reqwest::{Method, Response, StatusCode};
use steadfast::classifier::{BareUnavailable, RetryStatuses, ShouldRetry, by_body};
use steadfast::{
    AttemptFacts, Classifier, Client, Delivery, ErrorKind, IdempotencyContract, Outcome, RequestBuilder, RequestFacts,
    ResponseExt, RetryBudget, StopReason, Verdict,
};

use crate::transport::{
    Part, Step, Transport, URL, answer, data, fail, fail_with, hang, millis, no_backoff, pause, secs, sent, stop,
};

fn client(classifiers: Vec<Box<dyn Classifier>>) -> Client {
    struct Boxed(Box<dyn Classifier>);

    impl Classifier for Boxed {
        fn classify(&self, request: &RequestFacts<'_>, attempt: &AttemptFacts<'_>) -> Verdict {
            self.0.classify(request, attempt)
        }

        fn needs_body(&self) -> bool {
            self.0.needs_body()
        }
    }

    let policy = no_backoff().attempt_timeout(secs(5)).response_buffer(1_000);
    let builder = Client::builder(reqwest::Client::new()).policy(policy.build().unwrap());
    classifiers
        .into_iter()
        .fold(builder, |builder, classifier| builder.classifier(Boxed(classifier)))
        .build()
}

fn one(classifier: impl Classifier + 'static) -> Client {
    client(vec![Box::new(classifier)])
}

/// How many requests a keyless POST, then a GET makes of these steps.
async fn requests(client: &Client, steps: &[Step]) -> [usize; 2] {
    let mut counts = [0; 2];
    for (count, method) in counts.iter_mut().zip([Method::POST, Method::GET]) {
        let transport = Transport::new([steps, &[answer(200)]].concat());
        let request = client.request(method, URL).without_idempotency_key();
        let _ = request.send_with(transport.send()).await;
        *count = transport.seen().len();
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn more_statuses_are_repeated_where_a_repeat_is_safe() {
    let plain = client(vec![]);
    let more = one(RetryStatuses::transient());
    for status in [408, 425] {
        assert_eq!(requests(&plain, &[answer(status)]).await, [1, 1], "{status}");
        assert_eq!(requests(&more, &[answer(status)]).await, [2, 2], "{status}");
    }
    // What is a failure of the server may have acted.
    for status in [520, 521, 522, 523, 524, 529] {
        assert_eq!(requests(&plain, &[answer(status)]).await, [1, 1], "{status}");
        assert_eq!(requests(&more, &[answer(status)]).await, [1, 2], "{status}");
    }
    let chosen = one(RetryStatuses::new([StatusCode::NOT_FOUND]));
    assert_eq!(requests(&chosen, &[answer(404)]).await, [2, 2]);
    assert_eq!(requests(&chosen, &[answer(408)]).await, [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn the_word_of_the_service_counts_where_it_gives_one() {
    let client = one(ShouldRetry::header(HeaderName::from_static("x-should-retry")));
    let says = |status, value| [answer(status).header("x-should-retry", value)];
    assert_eq!(requests(&client, &says(400, "true")).await, [2, 2]);
    assert_eq!(requests(&client, &says(429, "FALSE")).await, [1, 1]);
    assert_eq!(requests(&client, &says(429, "maybe")).await, [2, 2]);
    // A success is left alone, and a repeat that is not safe is not made.
    assert_eq!(requests(&client, &says(200, "true")).await, [1, 1]);
    assert_eq!(requests(&client, &says(500, "true")).await, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_bare_503_may_be_taken_for_a_refusal() {
    assert_eq!(requests(&client(vec![]), &[answer(503)]).await, [1, 2]);
    assert_eq!(requests(&one(BareUnavailable), &[answer(503)]).await, [2, 2]);
    assert_eq!(requests(&one(BareUnavailable), &[answer(502)]).await, [1, 2]);
}

// R77
#[tokio::test(start_paused = true)]
async fn a_code_in_the_body_ends_an_operation_whose_status_asks_for_more() {
    let client = one(by_body(|_, _, body| match body {
        body if body.starts_with(b"ERR_VALIDATION") || body.starts_with(b"ERR_CONFLICT") => Verdict::Final,
        body if body.starts_with(b"ERR_TIMEOUT") => Verdict::Retry,
        _ => Verdict::Default,
    }));
    for (code, count) in [
        ("ERR_VALIDATION", 1),
        ("ERR_CONFLICT", 1),
        ("ERR_TIMEOUT", 2),
        ("ERR_OTHER", 2),
    ] {
        let transport = Transport::new([answer(500).body(code), answer(201)]);
        let response = client.post(URL).send_with(transport.send()).await.unwrap();
        assert_eq!(transport.seen().len(), count, "{code}");
        if count == 1 {
            // What was looked at is still the caller's.
            assert_eq!(response.attempts().unwrap().stop_reason(), StopReason::NotRetryable);
            assert_eq!(response.text().await.unwrap(), code);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_that_says_to_wait_is_asked_for_again() {
    let client = one(by_body(|_, attempt, body| match attempt.status() {
        Some(StatusCode::OK) if body == b"pending" => Verdict::Retry,
        _ => Verdict::Default,
    }));
    let transport = Transport::new([answer(200).body("pending"), answer(200).body("ready")]);
    let response = client.get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!(response.text().await.unwrap(), "ready");
    // A write that was confirmed is confirmed.
    let transport = Transport::new([answer(200).body("pending")]);
    let request = client.post(URL).without_idempotency_key();
    let response = request.send_with(transport.send()).await.unwrap();
    assert_eq!(response.outcome(), Some(Outcome::Completed));
    assert_eq!(response.text().await.unwrap(), "pending");
}

#[tokio::test(start_paused = true)]
async fn final_beats_rejected_beats_retry() {
    let verdict = |verdict: Verdict| -> Box<dyn Classifier> {
        Box::new(
            move |_: &RequestFacts<'_>, attempt: &AttemptFacts<'_>| match attempt.status() {
                Some(StatusCode::NOT_IMPLEMENTED) => verdict,
                _ => Verdict::Default,
            },
        )
    };
    let all = [
        Verdict::Default,
        Verdict::Retry,
        Verdict::Rejected,
        Verdict::Refused,
        Verdict::Final,
    ];
    for (rank, first) in all.into_iter().enumerate() {
        for second in &all[..=rank] {
            for pair in [[first, *second], [*second, first]] {
                let client = client(pair.map(verdict).into());
                let expected = match first {
                    Verdict::Rejected => [2, 2],
                    Verdict::Retry => [1, 2],
                    _ => [1, 1],
                };
                assert_eq!(requests(&client, &[answer(501)]).await, expected, "{pair:?}");
            }
        }
    }
}

/// What a classifier is told of each attempt.
#[derive(Debug, PartialEq)]
struct Told {
    number: u32,
    status: Option<u16>,
    failure: Option<ErrorKind>,
    delivery: Delivery,
    body: Option<String>,
}

#[derive(Clone, Default)]
struct Listening {
    told: Arc<Mutex<Vec<Told>>>,
    reads: bool,
}

impl Classifier for Listening {
    fn classify(&self, request: &RequestFacts<'_>, attempt: &AttemptFacts<'_>) -> Verdict {
        assert_eq!((request.method(), request.url().as_str()), (&Method::POST, URL));
        assert!(request.is_keyed() && request.is_replay_safe());
        assert!(request.headers().contains_key("idempotency-key"));
        assert_eq!(attempt.error().is_some(), attempt.failure().is_some());
        assert_eq!(attempt.headers().is_some(), attempt.status().is_some());
        self.told.lock().unwrap().push(Told {
            number: attempt.number(),
            status: attempt.status().map(|status| status.as_u16()),
            failure: attempt.failure(),
            delivery: attempt.delivery(),
            body: attempt.body().map(|body| String::from_utf8_lossy(body).into_owned()),
        });
        Verdict::Default
    }

    fn needs_body(&self) -> bool {
        self.reads
    }
}

async fn heard(reads: bool, steps: Vec<Step>, streamed: bool) -> (Vec<Told>, Response) {
    let listening = Listening {
        reads,
        ..Listening::default()
    };
    let request = one(listening.clone()).post(URL).max_attempts(9);
    let request = if streamed { request.streamed() } else { request };
    let transport = Transport::new(steps);
    let response = request.send_with(transport.send()).await.unwrap();
    let told = std::mem::take(&mut *listening.told.lock().unwrap());
    (told, response)
}

#[tokio::test(start_paused = true)]
async fn a_classifier_is_told_of_every_attempt_once() {
    let cut = answer(201).announced(50, [data("half"), Part::Cut(ConnectionReset)]);
    let (told, _) = heard(
        false,
        vec![fail(ConnectionReset), answer(503).body("x"), cut, answer(200).body("y")],
        false,
    )
    .await;
    let of = |number, status, failure, delivery| Told {
        number,
        status,
        failure,
        delivery,
        body: None,
    };
    assert_eq!(
        told,
        [
            of(1, None, Some(ErrorKind::Reset), Delivery::Unknown),
            of(2, Some(503), None, Delivery::Unknown),
            of(3, Some(201), Some(ErrorKind::Body), Delivery::Answered),
            of(4, Some(200), None, Delivery::Answered),
        ]
    );
}

fn bodies(told: &[Told]) -> Vec<Option<&str>> {
    told.iter().map(|told| told.body.as_deref()).collect()
}

#[tokio::test(start_paused = true)]
async fn who_needs_the_body_sees_it_and_the_caller_has_it_still() {
    let parts = || [data("one, "), pause(millis(10)), data("two")];
    let steps = vec![
        answer(503).body("busy"),
        answer(500).chunked(parts()),
        answer(502),
        answer(200).chunked(parts()),
    ];
    let (told, response) = heard(true, steps, false).await;
    assert_eq!(
        bodies(&told),
        [Some("busy"), Some("one, two"), Some(""), Some("one, two")]
    );
    assert_eq!(response.text().await.unwrap(), "one, two");
}

#[tokio::test(start_paused = true)]
async fn of_a_long_body_it_sees_the_beginning_and_the_caller_has_all() {
    const LONG: &str =
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";
    for status in [404, 200] {
        let long = answer(status).announced(2_000, std::iter::repeat_n(data(LONG), 20));
        let (told, response) = heard(true, vec![long], false).await;
        assert_eq!(told[0].body.as_ref().unwrap().len(), 1_000, "{status}");
        assert_eq!(response.text().await.unwrap(), LONG.repeat(20), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_that_is_handed_over_at_its_headers_has_no_body_to_look_at() {
    let (told, response) = heard(true, vec![answer(500).body("busy"), answer(200).body("x")], true).await;
    assert_eq!(bodies(&told), [Some("busy"), None]);
    assert_eq!(response.text().await.unwrap(), "x");
    let stream = answer(200).header("content-type", "text/event-stream").body("data: x");
    let (told, _) = heard(true, vec![stream], false).await;
    assert_eq!(bodies(&told), [None]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_loses_its_body_is_judged_with_what_came() {
    let cut = answer(404).announced(50, [data("half"), Part::Cut(ConnectionReset)]);
    let (told, response) = heard(true, vec![cut], false).await;
    assert_eq!(bodies(&told), [Some("half")]);
    assert_eq!(response.status(), 404);
    assert!(response.text().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_nobody_else_knows_can_be_worth_another_attempt() {
    #[derive(Debug, thiserror::Error)]
    #[error("the queue of the sender is full")]
    struct Full;

    let client = one(|_: &RequestFacts<'_>, attempt: &AttemptFacts<'_>| {
        match attempt.error().is_some_and(|error| error.is::<Full>()) {
            true => Verdict::Rejected,
            false => Verdict::Default,
        }
    });
    let full = || fail_with(|| Box::<dyn std::error::Error + Send + Sync>::from(Full));
    let plain = || fail_with(|| io::Error::other("no idea"));
    assert_eq!(requests(&client, &[full(), full()]).await, [3, 3]);
    assert_eq!(requests(&client, &[plain()]).await, [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn what_a_classifier_has_repeated_fills_no_budget() {
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let policy = no_backoff().budget(RetryBudget::new(1.0, 2)).max_attempts(2);
    let client = Client::builder(reqwest::Client::new())
        .policy(policy.build().unwrap())
        .classifier(move |_: &RequestFacts<'_>, attempt: &AttemptFacts<'_>| {
            counted.fetch_add(1, Relaxed);
            match attempt.status() {
                Some(StatusCode::NOT_FOUND) => Verdict::Retry,
                _ => Verdict::Default,
            }
        })
        .build();
    let transport = Transport::always(answer(404));
    let mut reasons = Vec::new();
    for _ in 0..3 {
        let response = client.get(URL).send_with(transport.send()).await.unwrap();
        reasons.push(response.attempts().unwrap().stop_reason());
    }
    assert_eq!(
        reasons,
        [StopReason::MaxAttempts, StopReason::MaxAttempts, StopReason::Budget]
    );
    assert_eq!(asked.load(Relaxed) as usize, transport.seen().len());
}

// R10: where nothing was heard, nobody knows that nothing was done.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_no_refusal_whatever_a_classifier_says() {
    let client = one(|_: &RequestFacts<'_>, _: &AttemptFacts<'_>| Verdict::Rejected);
    for lost in [hang(), fail(ConnectionReset)] {
        let transport = Transport::new([lost]);
        let request = client.post(URL).without_idempotency_key();
        let error = request.send_with(transport.send()).await.unwrap_err();
        assert_eq!(
            (error.stop_reason(), error.outcome()),
            (StopReason::NotReplaySafe, Outcome::Unknown)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_buffered_there_is_no_body_to_look_at() {
    let client = one(by_body(|_, _, _| panic!("there is no body")));
    for mode in [RequestBuilder::buffered, |request| request] {
        let request = mode(
            client
                .post(URL)
                .policy(no_backoff().response_buffer(0).build().unwrap()),
        );
        let transport = Transport::new([answer(500).body("busy"), answer(200).chunked([data("x")])]);
        let response = request.send_with(transport.send()).await.unwrap();
        assert_eq!(response.text().await.unwrap(), "x");
    }
}

// R77: a word of the service that is neither a passing trouble nor a doubt.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_only_a_classifier_knows_settles_what_a_4xx_would() {
    let refuses = |_: &RequestFacts<'_>, attempt: &AttemptFacts<'_>| match attempt.status() {
        Some(StatusCode::INTERNAL_SERVER_ERROR) | None => Verdict::Refused,
        _ => Verdict::Default,
    };
    let client = one(refuses);
    for (request, outcome) in [
        // Without a declared contract an earlier attempt may have acted without its key.
        (client.post(URL), Outcome::Unknown),
        (client.post(URL).contract(IdempotencyContract::ietf()), Outcome::NotDone),
    ] {
        let (result, transport) = sent(request, [answer(503), answer(500)]).await;
        let response = result.unwrap();
        assert_eq!((stop(&response), transport.seen().len()), (StopReason::NotRetryable, 2));
        assert_eq!(response.outcome(), Some(outcome));
    }
    let (result, _) = sent(client.post(URL), [answer(500)]).await;
    assert_eq!(result.unwrap().outcome(), Some(Outcome::NotDone));
    // Where nothing was heard nobody knows that.
    let (result, _) = sent(client.post(URL), [hang()]).await;
    assert_eq!(result.unwrap_err().outcome(), Outcome::Unknown);
}

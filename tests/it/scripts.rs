//! What holds whatever a server does: properties over random scripts.

use std::io::ErrorKind::*;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use reqwest::{Method, Response};
use steadfast::{Attempts, Client, Error, Policy, ResponseExt};
use tokio::runtime::Builder;
use tokio::time::sleep;

use crate::transport::{Part, Seen, Step, Transport, URL, after, answer, data, fail, hang, millis, pause, secs};

fn any_body() -> impl Strategy<Value = Vec<Part>> {
    let part = prop_oneof![
        4 => Just(data("0123456789")),
        2 => (0..3_000_u64).prop_map(|time| pause(millis(time))),
        1 => Just(Part::Stall),
        1 => Just(Part::Cut(UnexpectedEof)),
    ];
    vec(part, 0..5)
}

fn any_answer() -> impl Strategy<Value = Step> {
    let status = prop_oneof![
        3 => prop::sample::select(vec![429, 500, 502, 503, 504]),
        1 => prop::sample::select(vec![200, 201, 204, 301, 303, 400, 401, 404, 409, 422, 501]),
    ];
    let asked = prop::option::of(prop_oneof![
        (0..40_u32).prop_map(|secs| secs.to_string()),
        Just("99999999999999999999".to_owned()),
        Just("-1".to_owned()),
    ]);
    (status, asked, any_body(), any::<bool>()).prop_map(|(status, asked, parts, known)| {
        let step = answer(status);
        let step = if known {
            step.announced(50, parts)
        } else {
            step.chunked(parts)
        };
        match asked {
            Some(asked) => step.header("retry-after", &asked),
            None => step,
        }
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let kinds = vec![
        ConnectionReset,
        ConnectionRefused,
        TimedOut,
        BrokenPipe,
        PermissionDenied,
    ];
    let at_once = prop_oneof![
        6 => any_answer(),
        3 => prop::sample::select(kinds).prop_map(fail),
        1 => Just(hang()),
    ];
    (0..4_000_u64, at_once).prop_map(|(delay, step)| after(millis(delay), step))
}

#[derive(Clone, Debug)]
struct Limits {
    max_attempts: u32,
    attempt_timeout: Duration,
    deadline: Duration,
}

fn any_limits() -> impl Strategy<Value = Limits> {
    (1..8_u32, 20..8_000_u64, 0..20_000_u64).prop_map(|(max_attempts, timeout, more)| Limits {
        max_attempts,
        attempt_timeout: millis(timeout),
        deadline: millis(timeout + more),
    })
}

impl Limits {
    fn client(&self, seed: u64) -> Client {
        let policy = Policy::builder()
            .max_attempts(self.max_attempts)
            .attempt_timeout(self.attempt_timeout)
            .deadline(self.deadline);
        Client::builder(reqwest::Client::new())
            .policy(policy.build().unwrap())
            .seed(seed)
            .build()
    }
}

/// One operation that came to its end, and an hour after that.
struct Run {
    result: Result<Response, Error>,
    elapsed: Duration,
    seen: Vec<Seen>,
    seen_an_hour_later: usize,
}

impl Run {
    fn of(client: &Client, method: Method, steps: Vec<Step>) -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let transport = Transport::new(steps.into_iter().cycle());
            let request = client.request(method, URL).body("the same bytes");
            let result = request.send_with(transport.send()).await;
            let elapsed = transport.elapsed();
            let seen = transport.seen();
            sleep(secs(3_600)).await;
            let seen_an_hour_later = transport.seen().len();
            Self {
                result,
                elapsed,
                seen,
                seen_an_hour_later,
            }
        })
    }

    fn attempts(&self) -> &Attempts {
        match &self.result {
            Ok(response) => response.attempts().unwrap(),
            Err(error) => error.attempts(),
        }
    }
}

proptest! {
    // R1, R25, R12, R13, R26, R45: whatever comes, in whatever order.
    #[test]
    fn an_operation_keeps_its_limits_and_its_key(
        steps in vec(any_step(), 1..8),
        limits in any_limits(),
        seed: u64,
        method in prop::sample::select(vec![Method::GET, Method::POST, Method::PUT, Method::PATCH]),
    ) {
        let keyed = method == Method::POST || method == Method::PATCH;
        let run = Run::of(&limits.client(seed), method, steps);

        prop_assert!(run.seen.len() as u64 <= u64::from(limits.max_attempts));
        prop_assert_eq!(run.attempts().len(), run.seen.len());
        prop_assert_eq!(run.seen_an_hour_later, run.seen.len());
        // Timers end on whole milliseconds.
        prop_assert!(run.elapsed <= limits.deadline + millis(1), "{:?}", run.elapsed);

        for seen in &run.seen {
            prop_assert_eq!(&seen.body[..], b"the same bytes");
            prop_assert_eq!(&seen.headers, &run.seen[0].headers);
            prop_assert_eq!(seen.header("idempotency-key").len(), usize::from(keyed));
        }
        for attempt in run.attempts() {
            prop_assert!(attempt.took() <= limits.attempt_timeout + millis(1), "{:?}", attempt.took());
        }
    }

    // R28: what a server asked for is never cut short.
    #[test]
    fn no_attempt_comes_before_the_server_asked(
        steps in vec(any_step(), 1..8),
        limits in any_limits(),
        seed: u64,
    ) {
        let run = Run::of(&limits.client(seed), Method::GET, steps);
        let attempts: Vec<_> = run.attempts().iter().collect();
        for pair in attempts.windows(2) {
            let ended = pair[0].started_after() + pair[0].took();
            let asked = pair[0].retry_after().unwrap_or_default();
            prop_assert!(pair[1].started_after() >= ended + asked, "{:?}", attempts);
        }
    }
}

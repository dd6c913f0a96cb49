//! The driver: sends, reads, waits and records, as [`crate::decision`] says.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Request, Response};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, Span};

use crate::attempts::{Attempt, Attempts, List, Record, StopReason};
use crate::body::discard::discard;
use crate::body::handed::Flow;
use crate::body::outgoing::NoBody;
use crate::body::read::Rules;
use crate::classifier::Verdict;
use crate::classify::attempt_error::AttemptError;
use crate::deadline::{Moment, after};
use crate::decision::{Judgement, Machine, Next};
use crate::error::{BoxError, Error, ErrorKind, StatusFailure};
use crate::guard::Guard;
use crate::held::{Held, attempt};
use crate::hook::BeforeAttempt;
#[cfg(feature = "metrics")]
use crate::metrics;
use crate::operation::{Operation, Turn};
use crate::scope::{self, Around, Scope};
use crate::telemetry;
use crate::watch::Watch;

/// Who sends the attempts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The inner client, and nothing between it and us.
    Inner,
    /// Something the caller brought.
    Caller,
}

/// One `send()` of an operation, each attempt by `send`, which gets the scope of the attempt if it is the caller's.
pub(crate) async fn run<F, Fut, E>(operation: &Operation, sender: Sender, send: F) -> Result<Response, Error>
where
    F: Fn(Request, Option<Scope>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Response, E>> + Send,
    E: Into<AttemptError>,
{
    let span = telemetry::operation_span(operation);
    // Pinned where it is: a future of this size would be copied by every layer around it.
    let drive = pin!(drive(operation, sender, &send));
    let result = drive.instrument(span.clone()).await;
    #[cfg(feature = "metrics")]
    metrics::operation_ended(operation, &result);
    telemetry::record_result(&span, &result);
    result
}

async fn drive<F, Fut, E>(operation: &Operation, sender: Sender, send: &F) -> Result<Response, Error>
where
    F: Fn(Request, Option<Scope>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Response, E>> + Send,
    E: Into<AttemptError>,
{
    let mut run = Run::begin(operation, operation.take_turn()?);
    loop {
        // A look at the clock is not for nothing, and the first attempt begins with the operation.
        let started = match run.machine.attempts() {
            0 => run.began,
            _ => run.began.now(),
        };
        let limit = match run.machine.begin(started.elapsed) {
            Ok(limit) => limit,
            Err(reason) => return Err(run.too_late(reason)),
        };
        if let Err(retry_in) = run.guard.admit(started.elapsed, limit) {
            return Err(run.not_begun(ErrorKind::CircuitOpen, StopReason::CircuitOpen { retry_in }));
        }
        let span = telemetry::attempt_span(operation, run.machine.attempts());
        let rules = run.body_rules(after(started.at, limit));
        let made = match operation.client().before_attempt() {
            None => run.request(limit).map(|request| (request, started)),
            // Boxed, so that operations without a hook do not have the size of one.
            Some(hook) => Box::pin(run.hooked(hook, limit, rules.attempt_ends, &span)).await,
        };
        let begun = made.and_then(|(mut request, sent)| {
            let (scope, watch) = run.begin_attempt(&mut request, sent, sender, &rules)?;
            Ok((span.in_scope(|| send(request, scope)), watch))
        });
        let (sending, watch) = match begun {
            Ok(begun) => begun,
            Err(unmade) => {
                telemetry::record_unmade(&span);
                return Err(run.without_request(unmade));
            }
        };
        let held = {
            let attempt = pin!(attempt(operation, sending, &rules));
            let attempt = attempt.instrument(span.clone());
            match watch.trail() {
                Some(trail) => trail.around(attempt).await,
                None => attempt.await,
            }
        };
        let held = watch.qualify(held);
        let judged = run.began.now();
        let (attempt, next) = run.judge(&held, &watch, started.elapsed, judged.elapsed);
        #[cfg(feature = "metrics")]
        metrics::attempt_ended(operation, &attempt);
        telemetry::record_attempt(&span, &attempt);
        drop(span);
        match next {
            // Boxed, as below: what is rare has no room in every operation.
            Next::Retry(wait) => Box::pin(run.wait(wait, attempt, held)).await,
            Next::Stop(reason) => {
                run.attempts.push(attempt);
                if held.is_settled() {
                    return run.end(reason, judged.elapsed, held);
                }
                let held = Box::pin(held.settle(&rules)).await;
                let settled = run.began.now().elapsed;
                run.attempts.last_took(settled.saturating_sub(started.elapsed));
                return run.end(reason, settled, held);
            }
        }
    }
}

/// The state of one `send()` that is not the machine's.
struct Run<'a> {
    operation: &'a Operation,
    turn: Turn<'a>,
    machine: Machine<'a>,
    guard: Guard<'a>,
    scope: Scope,
    began: Moment,
    attempts: List,
    last_failure: Option<(ErrorKind, BoxError)>,
    /// The group whose open circuit stopped the operation inside the last attempt.
    nested_circuit: Option<String>,
    /// Whether the last answer was a stored one, where the contract tells.
    replayed: Option<bool>,
}

/// Why there is no request to send.
enum Unmade {
    Failed { source: BoxError, reason: StopReason },
    TooLate(StopReason),
}

impl From<NoBody> for Unmade {
    fn from(error: NoBody) -> Self {
        Self::Failed {
            source: error.into(),
            reason: StopReason::NotRetryable,
        }
    }
}

impl<'a> Run<'a> {
    fn begin(operation: &'a Operation, turn: Turn<'a>) -> Self {
        let scope = scope::current();
        let began = Moment::first();
        let remaining = scope
            .deadline()
            .map(|deadline| deadline.saturating_duration_since(began.at));
        let machine = Machine::new(operation.policy(), operation.terms(), turn.evidence())
            .remembered_for(turn.remembered_for(began.at));
        let guard = Guard::new(operation, &scope, began.at);
        if operation.relies_on_assumption() && guard.is_first_assumption() {
            telemetry::contract_assumed(operation);
        }
        Self {
            operation,
            turn,
            machine: machine.within(remaining, scope.allows_retries()),
            guard,
            scope,
            began,
            attempts: List::None,
            last_failure: None,
            nested_circuit: None,
            replayed: None,
        }
    }

    /// The request of the next attempt.
    fn request(&self, limit: Duration) -> Result<Request, Unmade> {
        let mut request = self.operation.next_request()?;
        let policy = self.operation.policy();
        if policy.scope_headers() {
            let repeats = policy.max_attempts() > 1 && self.operation.terms().body_replayable;
            let repeated = repeats || !self.scope.allows_retries();
            let number = self.scope.number(self.machine.attempts());
            scope::tell(request.headers_mut(), number, limit, repeated);
        }
        Ok(request)
    }

    /// The request of the next attempt, as the caller's hook leaves it, and when that was. The time that the hook takes is the
    /// attempt's, and what it does is no attempt yet: nothing has been spent on it, and nothing may have acted.
    async fn hooked(
        &self,
        hook: &BeforeAttempt,
        limit: Duration,
        ends: Instant,
        span: &Span,
    ) -> Result<(Request, Moment), Unmade> {
        let request = self.request(limit)?;
        let number = self.machine.attempts();
        let prepared = span.in_scope(|| hook.prepare(self.operation, request, number, ends));
        let request = prepared.instrument(span.clone()).await;
        let request = request.map_err(|failure| Unmade::Failed {
            reason: match self.machine.ends_at_deadline() && failure.out_of_time {
                true => StopReason::Deadline,
                false => StopReason::NotRetryable,
            },
            source: failure.source,
        })?;
        Ok((request, self.began.now()))
    }

    /// What is the caller's own runs in the scope of the attempt. From here on the operation may have acted, dropped or not.
    fn begin_attempt(
        &mut self,
        request: &mut Request,
        sent: Moment,
        sender: Sender,
        rules: &Rules,
    ) -> Result<(Option<Scope>, Watch<'a>), Unmade> {
        let operation = self.operation;
        operation.lift_timeout(request, sender);
        self.machine.send(sent.elapsed).map_err(Unmade::TooLate)?;
        operation.put_stream(request)?;
        let scope = match sender {
            Sender::Inner => None,
            Sender::Caller => Some(self.scope_of_attempt(request, rules)),
        };
        let watch = Watch::over(request, operation, sender);
        self.turn
            .begin(sent.at, self.machine.evidence().with_attempt_under_way());
        self.guard.begin();
        #[cfg(feature = "metrics")]
        metrics::attempt_begins(operation, self.attempts.last());
        Ok((scope, watch))
    }

    fn body_rules(&self, attempt_ends: Instant) -> Rules {
        let policy = self.operation.policy();
        let deadline = self
            .operation
            .own_deadline()
            .map(|deadline| after(self.began.at, deadline));
        Rules {
            mode: self.operation.body_mode(),
            buffer: policy.response_buffer(),
            attempt_ends,
            flow: Flow {
                stall_timeout: policy.stall_timeout(),
                deadline: scope::earlier(deadline, self.scope.body_deadline()),
            },
            seen: false,
        }
    }

    fn scope_of_attempt(&mut self, request: &Request, rules: &Rules) -> Scope {
        Scope::of_attempt(Around {
            ends: rules.attempt_ends,
            body_deadline: rules.flow.deadline,
            number: self.scope.number(self.machine.attempts()),
            carried: Arc::new(self.operation.carried(request)),
            counted: self.guard.counted(&self.scope),
        })
    }

    /// What comes of an attempt that began and ended at these times.
    fn judge(&mut self, held: &Held, watch: &Watch, started: Duration, elapsed: Duration) -> (Attempt, Next) {
        let operation = self.operation;
        let ending = held.ending(operation, watch);
        let number = self.machine.attempts();
        let verdict = |delivery| match operation.client().classifiers() {
            classifiers if classifiers.is_empty() => Verdict::Default,
            classifiers => classifiers.verdict(&operation.facts(), &held.facts(number, &ending, delivery)),
        };
        let random = || operation.client().random();
        let Judgement {
            delivery,
            retryable,
            next,
        } = self.machine.judge(elapsed, &ending, verdict, random);
        let answer = held.as_answer(ending.redirect());
        self.replayed = answer.and_then(|answer| operation.replayed(&answer));
        self.turn.leave(self.machine.evidence());
        self.guard.record(held.health(), elapsed);
        self.nested_circuit = ending.nested().and_then(Attempts::circuit).map(str::to_owned);
        // What the guards refuse is refused while the answer is still in hand.
        let next = match next {
            Next::Retry(wait) => match self.guard.ask_retry(elapsed, wait) {
                Ok(()) => next,
                Err(reason) => Next::Stop(reason),
            },
            stop => stop,
        };
        if held.is_served() && !retryable && matches!(next, Next::Stop(_)) {
            self.guard.deposit(elapsed);
        }
        let attempt = Attempt {
            number,
            started_after: started,
            took: elapsed.saturating_sub(started),
            status: ending.status(),
            failure: held.failure(),
            delivery,
            retry_after: ending.retry_after(),
            waited: None,
        };
        (attempt, next)
    }

    /// Lets go of the attempt, then waits. The wait counts from the judgement: what is spent on the answer that is
    /// thrown away is part of it.
    async fn wait(&mut self, wait: Duration, mut attempt: Attempt, held: Held) {
        let until = after(Instant::now(), wait);
        attempt.waited = Some(wait);
        self.attempts.push(attempt.clone());
        #[cfg(feature = "metrics")]
        metrics::waiting(self.operation, wait);
        telemetry::waiting(&attempt, wait);
        let failure = match held.into_response() {
            Ok(response) => {
                let status = response.status();
                discard(response, after(self.began.at, self.machine.latest_begin())).await;
                (ErrorKind::Status, StatusFailure(status).into())
            }
            Err(failure) => failure,
        };
        self.last_failure = Some(failure);
        // A timer that is due already would still cost a turn of the clock, a millisecond.
        if until > Instant::now() {
            sleep_until(until).await;
        } else {
            // A sender that fails at once must not keep its thread from everybody else.
            yield_now().await;
        }
    }

    /// The end: a response in hand is given back, whatever its status.
    fn end(&mut self, reason: StopReason, elapsed: Duration, held: Held) -> Result<Response, Error> {
        match held.into_response() {
            Ok(mut response) => {
                response.extensions_mut().insert(self.record(reason, elapsed));
                Ok(response)
            }
            Err((kind, source)) => Err(self.error(kind, reason, Some(source))),
        }
    }

    /// There is no time for the next attempt, or the service may not know the key any more.
    fn too_late(&mut self, reason: StopReason) -> Error {
        match reason {
            StopReason::Retention if self.last_failure.is_none() => {
                self.error(ErrorKind::Request, reason, Some(Forgotten.into()))
            }
            reason => self.not_begun(ErrorKind::Deadline, reason),
        }
    }

    /// The next attempt was not begun: what failed before is the failure, if anything did.
    fn not_begun(&mut self, kind: ErrorKind, reason: StopReason) -> Error {
        match self.last_failure.take() {
            Some((kind, source)) => self.error(kind, reason, Some(source)),
            None => self.error(kind, reason, None),
        }
    }

    /// The next attempt has no request to send: that is the failure, and the status before it stays with the error.
    fn without_request(&mut self, unmade: Unmade) -> Error {
        match unmade {
            Unmade::Failed { source, reason } => self.error(ErrorKind::Request, reason, Some(source)),
            Unmade::TooLate(reason) => self.too_late(reason),
        }
    }

    fn error(&mut self, kind: ErrorKind, reason: StopReason, source: Option<BoxError>) -> Error {
        let target = self.operation.target();
        Error::new(kind, target, self.record(reason, self.began.now().elapsed), source)
    }

    fn record(&mut self, stop_reason: StopReason, elapsed: Duration) -> Attempts {
        let evidence = self.machine.evidence();
        Record {
            method: Some(self.operation.method().clone()),
            list: self.attempts.take(),
            stop_reason,
            outcome: evidence.outcome(),
            exactly_once: evidence.exactly_once(),
            watched: self.operation.is_unprotected(),
            elapsed,
            key: self.operation.idempotency_key().cloned(),
            replayed: self.replayed,
            circuit: match stop_reason {
                StopReason::CircuitOpen { .. } => {
                    let own = || self.operation.group().to_string();
                    Some(self.nested_circuit.take().unwrap_or_else(own))
                }
                _ => None,
            },
        }
        .into()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the service may have forgotten the idempotency key, and would act again")]
struct Forgotten;

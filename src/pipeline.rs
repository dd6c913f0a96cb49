//! The driver: sends, reads, waits and records, as [`crate::decision`] says.

use std::future::Future;
use std::time::{Duration, SystemTime};

use reqwest::{Request, Response, Url};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::Instrument;

use crate::attempts::{Attempt, Attempts, Record, StopReason};
use crate::body::discard::discard;
use crate::body::handed::Flow;
use crate::body::read::{self, LostBody, Rules};
use crate::body::touch::Touch;
use crate::circuit::breaker::Health;
use crate::classify::attempt_error::{AttemptError, Facts};
use crate::classify::failure::Failure;
use crate::classify::{health, status};
use crate::deadline::{after, out_of_time};
use crate::decision::{Ending, Judgement, Machine, Next};
use crate::error::{BoxError, Error, ErrorKind, StatusFailure};
use crate::guard::Guard;
use crate::operation::{Operation, Turn};
use crate::redirect::{Redirect, Trail};
use crate::response::ResponseExt;
use crate::retry_after;
use crate::scope::{self, Around, Scope};
use crate::telemetry;

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
    let result = drive(operation, sender, &send).instrument(span.clone()).await;
    telemetry::record_result(&span, &result);
    result
}

async fn drive<F, Fut, E>(operation: &Operation, sender: Sender, send: &F) -> Result<Response, Error>
where
    F: Fn(Request, Option<Scope>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Response, E>> + Send,
    E: Into<AttemptError>,
{
    let mut run = Run::begin(operation)?;
    loop {
        let started = Instant::now();
        let limit = match run.machine.begin(started.duration_since(run.started)) {
            Ok(limit) => limit,
            Err(reason) => return Err(run.not_begun(ErrorKind::Deadline, reason)),
        };
        if let Err(retry_in) = run.guard.admit(started, limit) {
            return Err(run.not_begun(ErrorKind::CircuitOpen, StopReason::CircuitOpen { retry_in }));
        }
        let request = match operation.next_request() {
            Ok(request) => request,
            Err(error) => return Err(run.without_request(error.into())),
        };
        let (request, watch) = Watch::over(run.with_scope_headers(request, limit), operation, sender);
        let span = telemetry::attempt_span(operation, run.machine.attempts());
        let rules = run.body_rules(after(started, limit));
        let scope = (sender == Sender::Caller).then(|| run.scope_of_attempt(&rules));
        // Dropped from here on, the operation may have acted.
        run.turn.leave(run.machine.evidence().with_attempt_under_way());
        run.guard.begin();
        let attempt = attempt(span.in_scope(|| send(request, scope)), &rules).instrument(span.clone());
        let held = watch.qualify(Trail::around(watch.trail.clone(), attempt).await);
        let (attempt, next) = run.judge(&held, &watch, started);
        telemetry::record_attempt(&span, &attempt);
        drop(span);
        match next {
            Next::Retry(wait) => run.wait(wait, attempt, held).await,
            Next::Stop(reason) => {
                let held = held.with_body(&rules).await;
                return run.end(reason, attempt, started, held);
            }
        }
    }
}

/// Waits for the answer and reads the body of a success: the time limit is over both (R29).
async fn attempt<Fut, E>(sending: Fut, rules: &Rules) -> Held
where
    Fut: Future<Output = Result<Response, E>> + Send,
    E: Into<AttemptError>,
{
    let answer = timeout_at(rules.attempt_ends, sending).await;
    match answer.map(|answer| answer.map_err(Into::into)) {
        Err(_) => Held::Failure {
            error: AttemptError::new(Failure::TIMEOUT, out_of_time("no answer until the end of the attempt")),
            out_of_time: true,
        },
        Ok(Err(error)) => Held::Failure {
            error,
            out_of_time: false,
        },
        // The status of any other answer decides before its body does.
        Ok(Ok(response)) if !response.status().is_success() => Held::Response(response),
        Ok(Ok(response)) => match read::read(response, rules).await {
            Ok(response) => Held::Response(response),
            Err(lost) => Held::Lost(lost),
        },
    }
}

/// What an attempt left in our hands.
enum Held {
    Response(Response),
    Lost(Box<LostBody>),
    Failure { error: AttemptError, out_of_time: bool },
}

impl Held {
    /// The answer that is given back, with its body: that of a success was read before it was judged.
    async fn with_body(self, rules: &Rules) -> Self {
        match self {
            Held::Response(response) if !response.status().is_success() => {
                let read = read::read(response, rules).await;
                Held::Response(read.unwrap_or_else(LostBody::into_response))
            }
            held => held,
        }
    }

    fn ending(&self, watch: &Watch) -> Ending<'_> {
        match self {
            Held::Response(response) => Ending::Answer {
                status: response.status(),
                retry_after: asked(response),
                redirect: watch.redirect(Some(response.url())),
                nested: response.attempts(),
            },
            Held::Lost(lost) => Ending::BodyLost {
                status: lost.status(),
                redirect: watch.redirect(Some(lost.url())),
                nested: lost.nested(),
                out_of_time: lost.out_of_time(),
            },
            Held::Failure { error, out_of_time } => Ending::Failure {
                finding: error.facts.failure.finding,
                status: error.facts.status,
                retry_after: error.facts.retry_after,
                redirect: watch.redirect(error.facts.answered.as_deref()),
                nested: error.facts.nested.as_ref(),
                out_of_time: *out_of_time,
            },
        }
    }

    /// What it says of the service.
    fn health(&self) -> Health {
        match self {
            Held::Response(response) => health::of_status(response.status()),
            Held::Lost(_) => Health::Failure,
            Held::Failure { error, .. } => {
                let Facts { failure, status, .. } = &error.facts;
                health::of_failure(failure.kind, failure.finding, *status)
            }
        }
    }

    /// The service gave an answer that nobody would ask for again, whatever the request.
    fn is_served(&self) -> bool {
        let answered = match self {
            Held::Response(response) => Some(response.status()),
            Held::Lost(_) => None,
            Held::Failure { error, .. } => error
                .facts
                .status
                .filter(|_| error.facts.failure.kind == ErrorKind::Status),
        };
        answered.is_some_and(|status| !status::is_retried(status))
    }

    fn failure(&self) -> Option<ErrorKind> {
        match self {
            Held::Response(_) => None,
            Held::Lost(_) => Some(ErrorKind::Body),
            Held::Failure { error, .. } => Some(error.facts.failure.kind),
        }
    }
}

/// What is noticed of an attempt besides its result.
struct Watch<'a> {
    operation: &'a Operation,
    sender: Sender,
    /// Only where nothing makes a repeat harmless.
    touch: Option<Touch>,
    /// Only of an unsafe request, through a client that tells.
    trail: Option<Trail>,
}

impl<'a> Watch<'a> {
    fn over(mut request: Request, operation: &'a Operation, sender: Sender) -> (Request, Self) {
        let method = operation.method();
        let told = sender == Sender::Inner && operation.client().tells_redirects() && !operation.is_safe();
        let watch = Self {
            operation,
            sender,
            touch: operation.is_unprotected().then(|| Touch::watch(&mut request)),
            trail: told.then(|| Trail::of(method)),
        };
        (request, watch)
    }

    fn redirect(&self, answered: Option<&Url>) -> Redirect {
        let Self { operation, trail, .. } = self;
        match (trail, answered) {
            (Some(trail), _) => trail.redirect(),
            (None, Some(answered)) if !operation.is_safe() => Redirect::seen(operation.url(), answered),
            (None, _) => Redirect::None,
        }
    }

    /// A sender may make other requests beside this one, and fail over them: they say nothing of it.
    fn disown(&self, facts: &mut Facts) {
        if facts.about.is_some() && facts.are_of_another(&self.operation.target()) {
            facts.forget_the_other();
        } else if self.redirect(facts.answered.as_deref()) == Redirect::Astray {
            facts.nested = None;
        }
    }

    fn qualify(&self, mut held: Held) -> Held {
        if let Held::Failure { error, .. } = &mut held {
            if self.sender == Sender::Caller && !error.facts.stated {
                self.disown(&mut error.facts);
            }
            let Facts {
                failure,
                answered,
                nested,
                stated,
                ..
            } = &mut error.facts;
            // Who was told what became of the request need not look for signs of it.
            let told = *stated || nested.is_some();
            let touched = self.touch.as_ref().filter(|_| !told).map(Touch::touched);
            if let Some(touched) = touched {
                *failure = failure.watched(touched, self.sender == Sender::Inner);
            }
            let followed = self.trail.as_ref().map(Trail::was_followed);
            match (followed, touched) {
                (Some(true), _) => *failure = failure.after_redirect(),
                (Some(false), Some(touched)) => *failure = failure.unredirected(touched),
                _ if self.redirect(answered.as_deref()) != Redirect::None => *failure = failure.after_redirect(),
                _ => {}
            }
        }
        held
    }
}

fn asked(response: &Response) -> Option<Duration> {
    let status = response.status();
    let refused = status.is_client_error() || status.is_server_error();
    if refused {
        retry_after::asked(response.headers(), SystemTime::now)
    } else {
        None
    }
}

/// The state of one `send()` that is not the machine's.
struct Run<'a> {
    operation: &'a Operation,
    turn: Turn<'a>,
    machine: Machine<'a>,
    guard: Guard<'a>,
    scope: Scope,
    started: Instant,
    attempts: Vec<Attempt>,
    last_failure: Option<(ErrorKind, BoxError)>,
    /// The group whose open circuit stopped the operation inside the last attempt.
    nested_circuit: Option<String>,
}

impl<'a> Run<'a> {
    fn begin(operation: &'a Operation) -> Result<Self, Error> {
        let turn = operation.take_turn()?;
        let scope = scope::current();
        let started = Instant::now();
        let remaining = scope
            .deadline()
            .map(|deadline| deadline.saturating_duration_since(started));
        let machine = Machine::new(operation.policy(), operation.terms(), turn.evidence());
        Ok(Self {
            operation,
            turn,
            machine: machine.within(remaining, scope.allows_retries()),
            guard: Guard::new(operation, &scope, started),
            scope,
            started,
            attempts: Vec::with_capacity(1),
            last_failure: None,
            nested_circuit: None,
        })
    }

    fn body_rules(&self, attempt_ends: Instant) -> Rules {
        let policy = self.operation.policy();
        let deadline = self
            .operation
            .own_deadline()
            .map(|deadline| after(self.started, deadline));
        Rules {
            mode: self.operation.body_mode(),
            buffer: policy.response_buffer(),
            attempt_ends,
            flow: Flow {
                stall_timeout: policy.stall_timeout(),
                deadline: scope::earlier(deadline, self.scope.body_deadline()),
            },
        }
    }

    fn with_scope_headers(&self, mut request: Request, limit: Duration) -> Request {
        let policy = self.operation.policy();
        if policy.scope_headers() {
            let repeats = policy.max_attempts() > 1 && self.operation.terms().body_replayable;
            let repeated = repeats || !self.scope.allows_retries();
            let number = self.scope.number(self.machine.attempts());
            scope::tell(request.headers_mut(), number, limit, repeated);
        }
        request
    }

    fn scope_of_attempt(&mut self, rules: &Rules) -> Scope {
        Scope::of_attempt(Around {
            ends: rules.attempt_ends,
            body_deadline: rules.flow.deadline,
            number: self.scope.number(self.machine.attempts()),
            assumed_key: self.operation.assumed_key().cloned(),
            counted: self.guard.counted(&self.scope),
        })
    }

    fn judge(&mut self, held: &Held, watch: &Watch, started: Instant) -> (Attempt, Next) {
        let ending = held.ending(watch);
        let now = Instant::now();
        let random = || self.operation.client().random();
        let Judgement { delivery, next } = self.machine.judge(now.duration_since(self.started), &ending, random);
        self.turn.leave(self.machine.evidence());
        self.guard.record(held.health(), now);
        self.nested_circuit = ending.nested().and_then(Attempts::circuit).map(str::to_owned);
        // What the guards refuse is refused while the answer is still in hand.
        let next = match next {
            Next::Retry(wait) => match self.guard.ask_retry(now, wait) {
                Ok(()) => next,
                Err(reason) => Next::Stop(reason),
            },
            stop => stop,
        };
        if held.is_served() && matches!(next, Next::Stop(_)) {
            self.guard.deposit(now);
        }
        let attempt = Attempt {
            number: self.machine.attempts(),
            started_after: started.duration_since(self.started),
            took: now.duration_since(started),
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
        telemetry::waiting(&attempt, wait);
        let (kind, source) = match held {
            Held::Response(response) => {
                let status = response.status();
                discard(response, after(self.started, self.machine.latest_begin())).await;
                (ErrorKind::Status, StatusFailure(status).into())
            }
            Held::Lost(lost) => (ErrorKind::Body, lost.into_error()),
            Held::Failure { error, .. } => (error.facts.failure.kind, error.source),
        };
        self.last_failure = Some((kind, source));
        // A timer that is due already would still cost a turn of the clock, a millisecond.
        if until > Instant::now() {
            sleep_until(until).await;
        } else {
            // A sender that fails at once must not keep its thread from everybody else.
            yield_now().await;
        }
    }

    /// The end: a response in hand is given back, whatever its status.
    fn end(
        mut self,
        reason: StopReason,
        mut attempt: Attempt,
        started: Instant,
        held: Held,
    ) -> Result<Response, Error> {
        attempt.took = started.elapsed();
        self.attempts.push(attempt);
        let (kind, source) = match held {
            Held::Response(mut response) => {
                response.extensions_mut().insert(self.record(reason));
                return Ok(response);
            }
            Held::Lost(lost) => (ErrorKind::Body, lost.into_error()),
            Held::Failure { error, .. } => (error.facts.failure.kind, error.source),
        };
        Err(self.error(kind, reason, Some(source)))
    }

    /// The next attempt was not begun: what failed before is the failure, if anything did.
    fn not_begun(mut self, kind: ErrorKind, reason: StopReason) -> Error {
        match self.last_failure.take() {
            Some((kind, source)) => self.error(kind, reason, Some(source)),
            None => self.error(kind, reason, None),
        }
    }

    /// The next attempt has no body to send: that is the failure, and the status before it stays with the error.
    fn without_request(self, source: BoxError) -> Error {
        self.error(ErrorKind::Request, StopReason::NotRetryable, Some(source))
    }

    fn error(self, kind: ErrorKind, reason: StopReason, source: Option<BoxError>) -> Error {
        let target = self.operation.target();
        Error::new(kind, target, self.record(reason), source)
    }

    fn record(self, stop_reason: StopReason) -> Attempts {
        let evidence = self.machine.evidence();
        Record {
            method: Some(self.operation.method().clone()),
            list: self.attempts,
            stop_reason,
            outcome: evidence.outcome(),
            exactly_once: evidence.exactly_once(),
            elapsed: self.started.elapsed(),
            key: self.operation.idempotency_key().cloned(),
            circuit: match stop_reason {
                StopReason::CircuitOpen { .. } => {
                    let own = || self.operation.group().to_string();
                    Some(self.nested_circuit.unwrap_or_else(own))
                }
                _ => None,
            },
        }
        .into()
    }
}

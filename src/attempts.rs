//! The record of an operation: what was tried, when, and what each attempt proved.

use std::fmt;
use std::mem;
use std::slice;
use std::time::Duration;

use http::{Method, StatusCode};

use crate::classify::Delivery;
use crate::error::ErrorKind;
use crate::idempotency::key::IdempotencyKey;
use crate::outcome::{Evidence, Outcome};

/// One attempt of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub(crate) number: u32,
    pub(crate) started_after: Duration,
    pub(crate) took: Duration,
    pub(crate) status: Option<StatusCode>,
    pub(crate) failure: Option<ErrorKind>,
    pub(crate) delivery: Delivery,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) waited: Option<Duration>,
}

impl Attempt {
    /// Its number, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// How long after the start of the `send()` it began.
    pub fn started_after(&self) -> Duration {
        self.started_after
    }

    /// How long it took, the part of the body that was read inside it included.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// The status of its answer, also where the body of that answer failed.
    pub fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// How it failed, where it brought no complete answer.
    pub fn failure(&self) -> Option<ErrorKind> {
        self.failure
    }

    /// What the server did with it.
    pub fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// The wait its answer asked for, also where the operation stopped instead.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The wait that followed it; `None` where the operation ended with it.
    pub fn waited(&self) -> Option<Duration> {
        self.waited
    }
}

/// Why an operation made no further attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The answer is final: 1xx, 2xx or 3xx.
    Done,
    /// Another attempt would not end differently, or nobody can say that it would.
    NotRetryable,
    /// The attempt may have acted, and nothing makes a repeat harmless.
    NotReplaySafe,
    /// The body was a stream, and it is used up. [`body_with`](crate::RequestBuilder::body_with) makes it replayable.
    BodyNotReplayable,
    /// All attempts the policy allows were made.
    MaxAttempts,
    /// The deadline cut the attempt, or leaves no time for the wait and another one.
    Deadline,
    /// The retry budget of the group is used up.
    Budget,
    /// The server asked for a wait longer than `max_retry_after`, or than what is left of the deadline.
    RetryAfter {
        /// The wait it asked for, uncapped.
        asked: Duration,
    },
    /// The circuit of the group is open.
    CircuitOpen {
        /// The time until the circuit lets a probe through. While its probes are under way, or somebody holds it open,
        /// nobody knows that time: then it is the shortest open time, as a time to ask again.
        retry_in: Duration,
    },
    /// The service knows the key from another operation. It stays so for this key, and a new key would act again.
    KeyConflict,
    /// The service no longer remembers the key.
    Retention,
    /// The caller's scope allows no retries.
    Scope,
}

impl StopReason {
    /// Whoever else asks, another attempt would not end differently.
    pub(crate) fn is_final(self) -> bool {
        matches!(
            self,
            Self::Done | Self::NotRetryable | Self::KeyConflict | Self::Retention
        )
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::RetryAfter { asked } => return f.pad(&format!("server asked to wait {asked:?}")),
            Self::CircuitOpen { retry_in } => return f.pad(&format!("circuit open for another {retry_in:?}")),
            Self::Done => "done",
            Self::NotRetryable => "not retryable",
            Self::NotReplaySafe => "not replay-safe",
            Self::BodyNotReplayable => "body not replayable",
            Self::MaxAttempts => "no attempts left",
            Self::Deadline => "deadline reached",
            Self::Budget => "retry budget used up",
            Self::KeyConflict => "idempotency key belongs to another operation, and a new one would act again",
            Self::Retention => "past the retention of the idempotency key",
            Self::Scope => "no retries in this scope",
        })
    }
}

/// What happened in one `send()` of an operation.
///
/// Every [`Error`](crate::Error) has one, and so has every response, in its extensions: see
/// [`ResponseExt`](crate::ResponseExt).
#[derive(Clone, Debug)]
pub struct Attempts {
    record: Record,
}

#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// A response does not know it, and an error made of one should say it.
    pub(crate) method: Option<Method>,
    pub(crate) list: List,
    pub(crate) stop_reason: StopReason,
    pub(crate) outcome: Outcome,
    pub(crate) exactly_once: bool,
    /// What it takes for not sent was watched, and not only assumed as where a key protects a repeat.
    pub(crate) watched: bool,
    pub(crate) elapsed: Duration,
    pub(crate) key: Option<IdempotencyKey>,
    pub(crate) replayed: Option<bool>,
    /// The group of the circuit that stopped the operation, if one did.
    pub(crate) circuit: Option<String>,
}

impl Record {
    /// Of an operation that stopped before its first attempt.
    pub(crate) fn without_attempts(
        method: Option<Method>,
        stop_reason: StopReason,
        evidence: Evidence,
        key: Option<IdempotencyKey>,
    ) -> Attempts {
        Self {
            method,
            list: List::None,
            stop_reason,
            outcome: evidence.outcome(),
            exactly_once: evidence.exactly_once(),
            watched: true,
            elapsed: Duration::ZERO,
            key,
            replayed: None,
            circuit: None,
        }
        .into()
    }
}

impl From<Record> for Attempts {
    fn from(record: Record) -> Self {
        Self { record }
    }
}

/// The attempts in their order. Most operations have one, and it takes no place of its own.
#[derive(Clone, Debug)]
pub(crate) enum List {
    None,
    One(Attempt),
    More(Vec<Attempt>),
}

impl List {
    pub(crate) fn push(&mut self, attempt: Attempt) {
        *self = match self.take() {
            Self::None => Self::One(attempt),
            Self::One(first) => Self::More(vec![first, attempt]),
            Self::More(mut all) => {
                all.push(attempt);
                Self::More(all)
            }
        };
    }

    pub(crate) fn take(&mut self) -> Self {
        mem::replace(self, Self::None)
    }

    /// The body of the last one's answer was read after it was judged.
    pub(crate) fn last_took(&mut self, took: Duration) {
        let last = match self {
            Self::None => None,
            Self::One(attempt) => Some(attempt),
            Self::More(all) => all.last_mut(),
        };
        if let Some(last) = last {
            last.took = took;
        }
    }

    pub(crate) fn as_slice(&self) -> &[Attempt] {
        match self {
            Self::None => &[],
            Self::One(attempt) => slice::from_ref(attempt),
            Self::More(all) => all,
        }
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn last(&self) -> Option<&Attempt> {
        self.as_slice().last()
    }
}

impl Attempts {
    /// How many attempts were made. 0 where the operation stopped before the first.
    pub fn len(&self) -> usize {
        self.record.list.as_slice().len()
    }

    /// Whether no attempt was made.
    pub fn is_empty(&self) -> bool {
        self.record.list.as_slice().is_empty()
    }

    /// The attempts in the order they were made.
    pub fn iter(&self) -> slice::Iter<'_, Attempt> {
        self.record.list.as_slice().iter()
    }

    pub(crate) fn circuit(&self) -> Option<&str> {
        self.record.circuit.as_deref()
    }

    pub(crate) fn watched(&self) -> bool {
        self.record.watched
    }

    pub(crate) fn method(&self) -> Option<&Method> {
        self.record.method.as_ref()
    }

    /// The last attempt.
    pub(crate) fn last(&self) -> Option<&Attempt> {
        self.record.list.as_slice().last()
    }

    /// Why no further attempt was made.
    pub fn stop_reason(&self) -> StopReason {
        self.record.stop_reason
    }

    /// What is known of the effect of the operation, earlier `send()`s of it included.
    pub fn outcome(&self) -> Outcome {
        self.record.outcome
    }

    /// Whether the operation can have acted at most once.
    ///
    /// That is so where at most one attempt can have acted, counting earlier `send()`s of the same operation, where the
    /// caller declared a contract or gave the key (which is the caller's word that the service honours it), and for safe methods,
    /// which do not act. A key this crate made under no declared contract is only as good as the service.
    pub fn exactly_once(&self) -> bool {
        self.record.exactly_once
    }

    /// The time from the start of the `send()` to its end.
    pub fn elapsed(&self) -> Duration {
        self.record.elapsed
    }

    /// The key all of them carried.
    pub fn idempotency_key(&self) -> Option<&IdempotencyKey> {
        self.record.key.as_ref()
    }

    /// Whether the answer is the stored one of an earlier request with the same key (R61, R64, R65). `None` where the contract of
    /// the service does not say how that shows, as the default does not, where no answer came, and where only a body that was
    /// handed over could tell. A replay that nothing marks is a success like any other (R66).
    pub fn replayed(&self) -> Option<bool> {
        self.record.replayed
    }
}

impl<'a> IntoIterator for &'a Attempts {
    type Item = &'a Attempt;
    type IntoIter = slice::Iter<'a, Attempt>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

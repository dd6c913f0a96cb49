//! The decision: after every attempt, stop or wait and try again.
//!
//! A state machine without I/O, clock or random source of its own. Time is the duration since the `send()` began, and
//! the random bits of a wait are an argument, so the same machine runs in unit tests, in simulations and in production.
//!
//! ```text
//! begin ──▶ an attempt of at most this long ──▶ judge ──▶ retry after this wait ──▶ begin
//!   └─────▶ stop: too late                         └────▶ stop, and why
//! ```

use std::time::Duration;

use http::StatusCode;

use crate::attempts::{Attempts, StopReason};
use crate::classifier::Verdict;
use crate::classify::status::{self, Circumstances};
use crate::classify::{Delivery, Finding};
use crate::idempotency::contract::Meaning;
use crate::outcome::{Evidence, Exhibit, Outcome};
use crate::policy::Policy;
use crate::redirect::Redirect;
use crate::replay::ReplaySafety;

/// How late a timer may be without harm.
const TIMER_SLACK: Duration = Duration::from_millis(10);

/// What an operation allows, whatever its policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) safety: ReplaySafety,
    /// Once its key is lost.
    pub(crate) safety_unkeyed: ReplaySafety,
    /// Another attempt can send the same body.
    pub(crate) body_replayable: bool,
    /// The request carries a key.
    pub(crate) keyed: bool,
    /// How long the service remembers it.
    pub(crate) retention: Option<Duration>,
}

/// How one attempt ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending<'a> {
    /// An answer whose body is here, handed over, or will not be read.
    Answer {
        status: StatusCode,
        retry_after: Option<Duration>,
        redirect: Redirect,
        /// What a nested client tried for it.
        nested: Option<&'a Attempts>,
        /// What the contract of the service makes of it.
        meaning: Option<Meaning>,
    },
    /// A 2xx whose body did not arrive.
    BodyLost {
        status: StatusCode,
        redirect: Redirect,
        nested: Option<&'a Attempts>,
        meaning: Option<Meaning>,
        out_of_time: bool,
    },
    /// No answer at all.
    Failure {
        finding: Finding,
        /// Of an answer that is behind the failure, as a nested client tells it.
        status: Option<StatusCode>,
        retry_after: Option<Duration>,
        redirect: Redirect,
        nested: Option<&'a Attempts>,
        out_of_time: bool,
    },
}

impl<'a> Ending<'a> {
    pub(crate) fn status(&self) -> Option<StatusCode> {
        match *self {
            Ending::Answer { status, .. } | Ending::BodyLost { status, .. } => Some(status),
            Ending::Failure { status, .. } => status,
        }
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match *self {
            Ending::Answer { retry_after, .. } | Ending::Failure { retry_after, .. } => retry_after,
            Ending::BodyLost { .. } => None,
        }
    }

    pub(crate) fn nested(&self) -> Option<&'a Attempts> {
        match *self {
            Ending::Answer { nested, .. } | Ending::BodyLost { nested, .. } | Ending::Failure { nested, .. } => nested,
        }
    }

    fn meaning(&self) -> Option<Meaning> {
        match *self {
            Ending::Answer { meaning, .. } | Ending::BodyLost { meaning, .. } => meaning,
            Ending::Failure { .. } => None,
        }
    }

    pub(crate) fn redirect(&self) -> Redirect {
        match *self {
            Ending::Answer { redirect, .. } | Ending::BodyLost { redirect, .. } | Ending::Failure { redirect, .. } => {
                redirect
            }
        }
    }

    /// The attempt was cut when its time was over.
    fn out_of_time(&self) -> bool {
        match *self {
            Ending::Answer { .. } => false,
            Ending::BodyLost { out_of_time, .. } | Ending::Failure { out_of_time, .. } => out_of_time,
        }
    }
}

/// What follows from the end of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) delivery: Delivery,
    /// Another attempt might end differently, whether one is allowed or not.
    pub(crate) retryable: bool,
    pub(crate) next: Next,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Stop(StopReason),
    /// Wait this long from now, then begin the next attempt.
    Retry(Duration),
}

/// The state of one `send()`.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    policy: &'a Policy,
    terms: Terms,
    evidence: Evidence,
    attempts: u32,
    deadline: Duration,
    /// Whether the scope allows to repeat an attempt.
    retries: bool,
    /// The last wait of our own, without what a server asked for.
    previous_draw: Option<Duration>,
    /// When the service may have forgotten the key.
    retention_ends: Option<Duration>,
    /// The attempt under way ends with the deadline, not with its own timeout.
    ends_at_deadline: bool,
}

impl<'a> Machine<'a> {
    /// `evidence` is what earlier `send()`s of the same operation left.
    pub(crate) fn new(policy: &'a Policy, terms: Terms, evidence: Evidence) -> Self {
        Self {
            policy,
            terms,
            evidence,
            attempts: 0,
            deadline: policy.deadline(),
            retries: true,
            previous_draw: None,
            retention_ends: None,
            ends_at_deadline: false,
        }
    }

    /// Within the limits of a scope: what it leaves of the time, and whether it allows retries.
    pub(crate) fn within(mut self, remaining: Option<Duration>, retries: bool) -> Self {
        self.deadline = remaining.map_or(self.deadline, |remaining| remaining.min(self.deadline));
        self.retries = retries;
        self
    }

    /// Of an operation that was sent before: what is left of the time in which the service remembers its key.
    pub(crate) fn remembered_for(mut self, left: Option<Duration>) -> Self {
        self.retention_ends = left;
        self
    }

    pub(crate) fn evidence(&self) -> Evidence {
        self.evidence
    }

    /// The number of the attempt under way, or of the last one.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The attempt under way has what is left of the deadline, which is no more than its timeout.
    pub(crate) fn ends_at_deadline(&self) -> bool {
        self.ends_at_deadline
    }

    /// The time the next attempt has, or why there is none.
    pub(crate) fn begin(&mut self, elapsed: Duration) -> Result<Duration, StopReason> {
        let remaining = self.remaining(elapsed);
        if remaining < self.least_time() {
            return Err(StopReason::Deadline);
        }
        if self.is_forgotten(elapsed) {
            return Err(StopReason::Retention);
        }
        let timeout = self.policy.attempt_timeout();
        self.ends_at_deadline = remaining <= timeout;
        self.attempts = self.attempts.saturating_add(1);
        Ok(timeout.min(remaining))
    }

    /// The request of the attempt is ready, which may have taken time: whether it may be sent still.
    pub(crate) fn send(&mut self, elapsed: Duration) -> Result<(), StopReason> {
        if self.ends_at_deadline && self.remaining(elapsed) < self.least_time() {
            return Err(StopReason::Deadline);
        }
        if self.is_forgotten(elapsed) {
            return Err(StopReason::Retention);
        }
        if self.retention_ends.is_none() {
            self.retention_ends = self.terms.retention.map(|retention| elapsed.saturating_add(retention));
        }
        Ok(())
    }

    /// What the attempt under way proved, and what comes next. `verdict` is what the caller's classifiers say to what it
    /// proved; `random` gives the bits of a wait if one is drawn.
    // Large, called once for an attempt, and counted alone by `benches/instructions.rs`.
    #[inline(never)]
    pub(crate) fn judge(
        &mut self,
        elapsed: Duration,
        ending: &Ending<'_>,
        verdict: impl FnOnce(Delivery) -> Verdict,
        random: impl FnOnce() -> u64,
    ) -> Judgement {
        let finding = self.finding(ending);
        let believed = Self::may_be_rejected(ending, finding);
        let verdict = verdict(finding.delivery);
        let finding = match verdict {
            Verdict::Default => finding,
            Verdict::Rejected if believed => Finding::retry(Delivery::Rejected),
            Verdict::Rejected | Verdict::Retry => Finding::retry(finding.delivery),
            Verdict::Refused if believed => Finding::last(Delivery::Rejected),
            Verdict::Refused | Verdict::Final => Finding::last(finding.delivery),
        };
        match ending.nested() {
            Some(attempts) => self.evidence.add_nested(attempts, finding.delivery),
            None => self.evidence.add(Exhibit {
                delivery: finding.delivery,
                status: ending.status(),
                redirect: ending.redirect(),
                settles: match ending.meaning() {
                    Some(Meaning::Mismatch) => Some(true),
                    // What lost the key of this attempt may have lost those of the earlier ones.
                    Some(Meaning::Missing) => Some(false),
                    _ if verdict == Verdict::Refused && believed => Some(true),
                    _ => None,
                },
                passing: finding.retry,
            }),
        }
        let next = if ending.out_of_time() && self.ends_at_deadline {
            Next::Stop(StopReason::Deadline)
        } else {
            match self.obstacle(finding, ending) {
                Some(reason) => Next::Stop(reason),
                None => self.wait(elapsed, ending, random),
            }
        };
        Judgement {
            delivery: finding.delivery,
            retryable: finding.retry,
            next,
        }
    }

    fn finding(&self, ending: &Ending<'_>) -> Finding {
        let known = ending.nested().map(Attempts::outcome);
        // The last answer of a nested operation does not speak for the attempts before it.
        let of_another = ending.redirect() != Redirect::None || known.is_some_and(|known| known != Outcome::NotDone);
        let meaning = ending.meaning();
        match meaning {
            Some(Meaning::InProgress) => return Finding::retry(Delivery::Unknown),
            Some(Meaning::Mismatch | Meaning::Missing) if of_another => return Finding::last(Delivery::Unknown),
            Some(Meaning::Mismatch | Meaning::Missing) => return Finding::last(Delivery::Rejected),
            Some(Meaning::Stored) => return Finding::last(Delivery::Unknown),
            Some(Meaning::Ordinary) | None => {}
        }
        match *ending {
            Ending::Answer {
                status,
                retry_after,
                nested,
                ..
            } => {
                let may_be_in_progress = meaning.is_none() && self.terms.keyed && self.evidence.is_open();
                // Of an earlier attempt of its own only this operation knows.
                let is_guessed = status == StatusCode::CONFLICT && may_be_in_progress;
                let told = nested.filter(|told| !is_guessed || told.stop_reason() == StopReason::KeyConflict);
                match told.and_then(|attempts| told_by(attempts, status)) {
                    Some(finding) => finding,
                    None => status::finding(
                        status,
                        Circumstances {
                            asks_to_wait: retry_after.is_some(),
                            may_be_in_progress,
                            of_another,
                        },
                    ),
                }
            }
            // The answer to a request that went astray says nothing of the one that was sent.
            Ending::BodyLost { redirect, .. } if redirect == Redirect::Astray || known == Some(Outcome::Unknown) => {
                Finding::retry(Delivery::Unknown)
            }
            Ending::BodyLost { .. } => Finding::retry(Delivery::Answered),
            Ending::Failure { finding, .. } => finding,
        }
    }

    /// Why no further attempt may be made, however much time is left.
    fn obstacle(&self, Finding { delivery, retry }: Finding, ending: &Ending<'_>) -> Option<StopReason> {
        let safety = match self.evidence.is_unkeyed() {
            true => self.terms.safety_unkeyed,
            false => self.terms.safety,
        };
        let repeatable = match delivery {
            Delivery::NotSent | Delivery::Rejected => true,
            Delivery::Answered => safety.answered,
            Delivery::Unknown => safety.unknown,
        };
        let nested = ending.nested().map(Attempts::stop_reason);
        match (delivery, retry) {
            // Whatever anybody else says: the same key brings the same answer, and another one a second effect.
            _ if ending.meaning() == Some(Meaning::Mismatch) => Some(StopReason::KeyConflict),
            (_, false) if matches!(nested, Some(StopReason::KeyConflict | StopReason::Retention)) => nested,
            (Delivery::Answered, false) => Some(StopReason::Done),
            (_, false) => Some(StopReason::NotRetryable),
            _ if !repeatable => Some(StopReason::NotReplaySafe),
            // An open circuit is not retried, however deep it is.
            _ if matches!(nested, Some(StopReason::CircuitOpen { .. })) => nested,
            _ if !self.terms.body_replayable => Some(StopReason::BodyNotReplayable),
            _ if self.attempts >= self.policy.max_attempts() => Some(StopReason::MaxAttempts),
            _ if !self.retries => Some(StopReason::Scope),
            _ => None,
        }
    }

    /// The wait before the next attempt, or the end if that attempt would come too late.
    fn wait(&mut self, elapsed: Duration, ending: &Ending<'_>, random: impl FnOnce() -> u64) -> Next {
        let asked = ending.retry_after();
        let throttled = ending.status() == Some(StatusCode::TOO_MANY_REQUESTS);
        let remaining = self.remaining(elapsed);
        let longest = remaining.checked_sub(self.time_after_wait());
        let too_long = |wait: Duration| match longest {
            _ if wait.is_zero() => remaining < self.least_time(),
            Some(longest) => wait > longest,
            None => true,
        };
        if let Some(asked) = asked {
            if asked > self.policy.max_retry_after() || too_long(asked) {
                return Next::Stop(StopReason::RetryAfter { asked });
            }
        }
        let backoff = self.policy.backoff();
        let draw = backoff.wait(self.attempts, self.previous_draw, throttled, random());
        let wait = match asked {
            // Jitter only ever adds to what the server asked for, and gives way to the deadline.
            Some(asked) => asked.saturating_add(draw).min(longest.unwrap_or(asked)),
            None => draw,
        };
        if too_long(wait) {
            return Next::Stop(StopReason::Deadline);
        }
        if self.is_forgotten(elapsed.saturating_add(wait)) {
            return Next::Stop(StopReason::Retention);
        }
        self.previous_draw = Some(draw);
        Next::Retry(wait)
    }

    /// Whether the service may have forgotten the key at this time.
    fn is_forgotten(&self, at: Duration) -> bool {
        self.retention_ends.is_some_and(|end| at >= end)
    }

    /// Whether a classifier may say that the service did nothing: not where it confirmed the effect, not where its answer was lost
    /// on the way, and not where the answer is another request's.
    fn may_be_rejected(ending: &Ending<'_>, finding: Finding) -> bool {
        let is_lost = ending.status().is_none() && finding == Finding::retry(Delivery::Unknown);
        let is_own = ending.redirect() == Redirect::None && ending.nested().is_none();
        finding.delivery != Delivery::Answered && !is_lost && is_own
    }

    /// The time since the start after which no attempt would be begun for sure.
    pub(crate) fn latest_begin(&self) -> Duration {
        self.deadline.saturating_sub(self.time_after_wait())
    }

    /// What must be left of the deadline after a wait, for the attempt that it is made for. Timers are late.
    fn time_after_wait(&self) -> Duration {
        self.least_time().saturating_add(TIMER_SLACK)
    }

    fn remaining(&self, elapsed: Duration) -> Duration {
        self.deadline.saturating_sub(elapsed)
    }

    /// The least time an attempt is made for: more than none, and not more than a whole attempt takes.
    fn least_time(&self) -> Duration {
        let wanted = self.policy.min_attempt_time();
        wanted.min(self.policy.attempt_timeout()).max(Duration::from_nanos(1))
    }
}

/// What a nested client made of the answer that it gives, by its own contract and classifiers.
fn told_by(attempts: &Attempts, status: StatusCode) -> Option<Finding> {
    let last = attempts.last().filter(|last| last.status() == Some(status))?;
    let delivery = match (last.delivery(), attempts.outcome()) {
        (Delivery::Rejected, Outcome::Unknown | Outcome::Completed) => Delivery::Unknown,
        (delivery, _) => delivery,
    };
    let retry = !attempts.stop_reason().is_final();
    Some(Finding { delivery, retry })
}

#[cfg(test)]
mod tests;

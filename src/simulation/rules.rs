//! The rules, held against every step of one operation.

use std::time::Duration;

use super::schedule::OperationPlan;
use super::service::Reply;
use super::table::{Proof, Reading, read};
use crate::attempts::StopReason;
use crate::classify::Delivery;
use crate::decision::{Judgement, Next};
use crate::idempotency::contract::Meaning;
use crate::outcome::{Evidence, Outcome};
use crate::redirect::Redirect;
use crate::replay::{KeyTrust, UnknownRetries};

/// How late a timer may be: an attempt after a wait needs that much more than its least time.
const TIMER_SLACK: Duration = Duration::from_millis(10);

/// What is known of an operation by the rules, over all of its sends.
#[derive(Debug, Default)]
pub(super) struct Rules {
    done: bool,
    unsure: bool,
    can_have_acted: u32,
    /// An attempt went on without the key.
    unkeyed: bool,
    first_sent: Option<Duration>,
    /// What was known before the attempt under way: whether one may have acted, and how many.
    before: Option<(bool, u32)>,
    /// Attempts that are under way, or were dropped then.
    unheard: u32,
    send: Send,
}

/// What is known of one send.
#[derive(Debug, Default)]
struct Send {
    deadline: Duration,
    repeats: bool,
    attempts: u32,
    /// What the service had done before it.
    effects: u32,
    /// The attempt under way ends with the deadline.
    at_deadline: bool,
    /// The wait drawn before, if there was one; the longest there is where nobody can know it.
    previous: Option<Duration>,
    may_begin: bool,
}

/// A moment of a send: on its own clock, and on everybody's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: Duration,
    pub(super) elapsed: Duration,
}

impl Rules {
    pub(super) fn send(&mut self, deadline: Duration, repeats: bool, effects: u32) {
        self.send = Send {
            deadline,
            repeats,
            effects,
            may_begin: true,
            ..Send::default()
        };
    }

    /// Leave that the deadline gives or refuses, before an attempt.
    pub(super) fn begin(&mut self, plan: &OperationPlan, at: Moment, answer: Result<Duration, StopReason>) {
        let timeout = plan.limits.policy.attempt_timeout();
        let left = self.send.deadline.saturating_sub(at.elapsed);
        let least = plan.limits.least_time();
        match answer {
            Ok(limit) => {
                assert!(self.send.may_begin, "R1: an attempt after a stop");
                assert!(
                    at.elapsed < self.send.deadline,
                    "R25: an attempt at or after the deadline"
                );
                assert!(left >= least, "field 18: an attempt of {left:?}, less than {least:?}");
                assert_eq!(
                    limit,
                    timeout.min(left),
                    "R29: its timeout, or what is left of the deadline"
                );
                assert!(
                    !self.is_forgotten(plan, at.now),
                    "an attempt after the retention of its key"
                );
                self.send.at_deadline = left <= timeout;
            }
            Err(StopReason::Deadline) => assert!(left < least, "stopped by a deadline that leaves {left:?}"),
            Err(StopReason::Retention) => assert!(self.is_forgotten(plan, at.now), "the key is remembered still"),
            Err(other) => panic!("no reason to begin no attempt: {other:?}"),
        }
        self.send.may_begin = false;
    }

    /// Whether the request may be sent that was made meanwhile.
    pub(super) fn sent(&mut self, plan: &OperationPlan, at: Moment, answer: Result<(), StopReason>) {
        let left = self.send.deadline.saturating_sub(at.elapsed);
        let in_time = !self.send.at_deadline || left >= plan.limits.least_time();
        match answer {
            Ok(()) => {
                assert!(in_time && !left.is_zero(), "R25: sent with {left:?} left");
                assert!(!self.is_forgotten(plan, at.now), "sent after the retention of its key");
                self.first_sent.get_or_insert(at.now);
                self.send.attempts += 1;
                let most = plan.limits.policy.max_attempts();
                assert!(self.send.attempts <= most, "R1: more than {most} attempts");
            }
            Err(StopReason::Deadline) => assert!(!in_time, "stopped by a deadline that leaves {left:?}"),
            Err(StopReason::Retention) => assert!(self.is_forgotten(plan, at.now), "the key is remembered still"),
            Err(other) => panic!("no reason to send nothing: {other:?}"),
        }
    }

    /// What was made of an attempt. `bits` are those of the wait, if one was drawn.
    pub(super) fn judged(
        &mut self,
        plan: &OperationPlan,
        at: Moment,
        reply: &Reply,
        judgement: Judgement,
        bits: Option<u64>,
    ) {
        if let Some((unsure, can_have_acted)) = self.before.take() {
            (self.unsure, self.can_have_acted) = (unsure, can_have_acted);
            self.unheard -= 1;
        }
        self.unkeyed |= reply.ending.redirect() == Redirect::Unkeyed;
        let reading = read(plan, reply, self.unsure && !self.done);
        assert_eq!(judgement.delivery, reading.delivery, "R2, R82: what {reply:?} proves");
        assert_eq!(
            judgement.retryable, reading.retry,
            "R27: whether another one may end differently"
        );
        if let Delivery::NotSent | Delivery::Rejected = judgement.delivery {
            assert!(
                !reply.acted,
                "R82: the service acted on what is called {}",
                judgement.delivery
            );
        }
        match reading.proof {
            Proof::Done => self.done = true,
            Proof::Unsure => self.unsure = true,
            Proof::NotDone if reading.settles && self.is_declared(plan) => self.unsure = false,
            Proof::NotDone => {}
        }
        self.can_have_acted += u32::from(reading.proof != Proof::NotDone);
        let cut = reply.is_out_of_time() && self.send.at_deadline;
        if cut {
            let stop = Next::Stop(StopReason::Deadline);
            assert_eq!(judgement.next, stop, "field 17: the deadline cut the attempt");
            return;
        }
        if reply.meaning() == Some(Meaning::Mismatch) {
            let stop = Next::Stop(StopReason::KeyConflict);
            assert_eq!(
                judgement.next, stop,
                "R68, R69: a key that belongs to another operation"
            );
            return;
        }
        match judgement.next {
            Next::Stop(reason) => self.stop(plan, at, reply, reading, reason, bits),
            Next::Retry(wait) => self.retry(plan, at, reply, reading, wait, bits),
        }
    }

    fn retry(
        &mut self,
        plan: &OperationPlan,
        at: Moment,
        reply: &Reply,
        reading: Reading,
        wait: Duration,
        bits: Option<u64>,
    ) {
        let policy = &plan.limits.policy;
        assert!(reading.retry, "R7, R27: another attempt after a final answer");
        assert!(
            self.may_repeat(plan, reading),
            "R9, R43: {} repeated, which is not safe",
            reading.delivery
        );
        assert!(plan.body_replayable, "field 30: a body that is used up is sent again");
        assert!(
            self.send.attempts < policy.max_attempts(),
            "R1: more attempts than allowed"
        );
        assert!(self.send.repeats, "R31: a repeat in a scope that allows none");
        let longest = self.longest_wait(plan, at);
        let left = self.send.deadline.saturating_sub(at.elapsed);
        match wait.is_zero() {
            true => assert!(left >= plan.limits.least_time(), "R32: no time for another attempt"),
            false => assert!(
                longest.is_some_and(|longest| wait <= longest),
                "R32: waits past the deadline"
            ),
        }
        assert!(
            !self.is_forgotten(plan, at.now.saturating_add(wait)),
            "the key is forgotten after the wait"
        );
        let Some(bits) = bits else {
            panic!("R23: a wait that was not drawn")
        };
        let (least, most) = self.bounds(plan, reply);
        let asked = reply.ending.retry_after();
        if let Some(asked) = asked {
            assert!(wait >= asked, "R28: waits {wait:?}, asked for {asked:?}");
            assert!(
                asked <= policy.max_retry_after(),
                "field 3: waits longer than max_retry_after"
            );
        }
        let give_way = |wait: Duration| match asked {
            Some(asked) => asked.saturating_add(wait).min(longest.unwrap_or(asked)),
            None => wait,
        };
        let bounds = give_way(least)..=give_way(most);
        assert!(bounds.contains(&wait), "R23, R24: waits {wait:?}, outside {bounds:?}");
        if bits == 0 {
            assert_eq!(wait, *bounds.start(), "R23: the least wait that can be drawn");
        }
        if bits == u64::MAX && self.send.previous != Some(Duration::MAX) {
            assert_eq!(wait, *bounds.end(), "R23: the longest wait that can be drawn");
        }
        let was_shortened = asked.is_some() && longest.is_none_or(|longest| wait >= longest);
        self.send.previous = Some(match was_shortened {
            true => Duration::MAX,
            false => wait - asked.unwrap_or_default(),
        });
        self.send.may_begin = true;
    }

    /// Every stop has a cause, by its name.
    fn stop(
        &self,
        plan: &OperationPlan,
        at: Moment,
        reply: &Reply,
        reading: Reading,
        reason: StopReason,
        bits: Option<u64>,
    ) {
        let left = self.send.deadline.saturating_sub(at.elapsed);
        let longest = self.longest_wait(plan, at);
        let too_long = |wait: Duration| match wait.is_zero() {
            true => left < plan.limits.least_time(),
            false => longest.is_none_or(|longest| wait > longest),
        };
        let (least, most) = self.bounds(plan, reply);
        // The wait that was drawn, as far as one can tell.
        let drawn = match bits {
            Some(0) => least,
            _ => most,
        };
        let has_cause = match reason {
            StopReason::Done => reading.delivery == Delivery::Answered && !reading.retry,
            StopReason::NotRetryable => reading.delivery != Delivery::Answered && !reading.retry,
            StopReason::NotReplaySafe => reading.retry && !self.may_repeat(plan, reading),
            StopReason::BodyNotReplayable => reading.retry && !plan.body_replayable,
            StopReason::MaxAttempts => reading.retry && self.send.attempts == plan.limits.policy.max_attempts(),
            StopReason::Scope => reading.retry && !self.send.repeats,
            StopReason::RetryAfter { asked } => {
                let is_asked = reply.ending.retry_after() == Some(asked);
                is_asked && (asked > plan.limits.policy.max_retry_after() || too_long(asked))
            }
            StopReason::Deadline => bits.is_some() && too_long(drawn),
            StopReason::Retention => {
                let asked = reply.ending.retry_after().unwrap_or_default();
                let wait = asked.saturating_add(drawn).min(longest.unwrap_or(asked));
                self.is_forgotten(plan, at.now.saturating_add(wait))
            }
            _ => false,
        };
        assert!(has_cause, "stopped by {reason:?} without a cause, after {reply:?}");
    }

    /// What is claimed of the operation, beside what the service did (R10, R139).
    pub(super) fn claims(&self, plan: &OperationPlan, evidence: Evidence, effects: u32) {
        let outcome = evidence.outcome();
        let expected = match (self.done, self.unsure && !plan.is_safe()) {
            (true, _) => Outcome::Completed,
            (false, true) => Outcome::Unknown,
            (false, false) => Outcome::NotDone,
        };
        assert_eq!(outcome, expected, "R10: what the attempts together prove");
        let once = plan.is_safe() || self.is_declared(plan) || self.can_have_acted <= 1;
        assert_eq!(
            evidence.exactly_once(),
            once,
            "whether it can have acted more than once"
        );
        // Of an attempt that was dropped nobody knows whether it lost its key, and it is taken for one that did not.
        if plan.is_safe() || (plan.may_lose_key && self.unheard > 0) {
            return;
        }
        match outcome {
            Outcome::Completed => assert!(effects > 0, "R139: completed, and the service did nothing"),
            Outcome::NotDone => assert_eq!(effects, 0, "R10: called not done"),
            Outcome::Unknown => {}
        }
        assert!(!once || effects <= 1, "R139: called once, and done {effects} times");
    }

    /// Nothing that is harmful twice is done twice in one send (R9, R10, R43).
    pub(super) fn effects(&self, plan: &OperationPlan, effects: u32, honoured: bool) {
        let by_nature = plan.vouched.unwrap_or(plan.method.is_idempotent());
        let trusts_in_vain = plan.trust == Some(KeyTrust::Assumed) && !honoured;
        if by_nature || (trusts_in_vain && self.key_counts(plan)) {
            return;
        }
        // A key that is lost on the way of a repeat is known to be lost when it is too late.
        let most = 1 + u32::from(self.unkeyed);
        let done = effects - self.send.effects;
        assert!(done <= most, "R43: done {done} times in one send");
    }

    /// While an attempt is under way, and for good if it is dropped then, it may have acted.
    pub(super) fn under_way(&mut self) {
        self.before = Some((self.unsure, self.can_have_acted));
        self.unheard += 1;
        self.unsure = true;
        self.can_have_acted += 1;
    }

    fn may_repeat(&self, plan: &OperationPlan, reading: Reading) -> bool {
        let allowed = plan.limits.policy.unknown_retries();
        let counts = !self.unkeyed && self.key_counts(plan);
        let harmless = plan.vouched.unwrap_or(plan.method.is_idempotent() || counts);
        match reading.delivery {
            Delivery::NotSent | Delivery::Rejected => true,
            Delivery::Answered => harmless,
            Delivery::Unknown => harmless && allowed != UnknownRetries::Never,
        }
    }

    /// Whether the key makes a repeat harmless, by the policy.
    fn key_counts(&self, plan: &OperationPlan) -> bool {
        match plan.limits.policy.unknown_retries() {
            UnknownRetries::Keyed => plan.trust.is_some(),
            UnknownRetries::Declared | UnknownRetries::Never => plan.is_declared(),
        }
    }

    fn is_declared(&self, plan: &OperationPlan) -> bool {
        plan.is_declared() && !self.unkeyed
    }

    /// The service may have forgotten the key.
    fn is_forgotten(&self, plan: &OperationPlan, now: Duration) -> bool {
        let known = self.first_sent.zip(plan.retention());
        known.is_some_and(|(first, retention)| now >= first.saturating_add(retention))
    }

    fn longest_wait(&self, plan: &OperationPlan, at: Moment) -> Option<Duration> {
        let left = self.send.deadline.saturating_sub(at.elapsed);
        left.checked_sub(plan.limits.least_time().saturating_add(TIMER_SLACK))
    }

    fn bounds(&self, plan: &OperationPlan, reply: &Reply) -> (Duration, Duration) {
        let throttled = reply.ending.status().is_some_and(|status| status.as_u16() == 429);
        let backoff = &plan.limits.backoff;
        backoff.bounds(self.send.attempts, self.send.previous, throttled)
    }
}

//! What the schedules have reached. What is never reached proves nothing.

use std::collections::BTreeMap;
use std::fmt;

use crate::attempts::StopReason;
use crate::outcome::Outcome;

#[derive(Debug, Default)]
pub(super) struct Coverage {
    counts: BTreeMap<&'static str, u64>,
}

/// What some schedule must reach, and what it would be called.
const WANTED: [&str; 49] = [
    "attempt",
    "attempt, number 4 or higher",
    "circuit closed again",
    "circuit held by an operator",
    "circuit opened",
    "circuit opened again by probes",
    "deposit",
    "drop while a hook runs",
    "drop while an attempt is under way",
    "drop while waiting",
    "effect, done again by a repeat",
    "hook failed",
    "lateness of a probe that lost its place",
    "operation",
    "outcome completed",
    "outcome not done",
    "outcome unknown",
    "outcome, claimed to be of one effect at most",
    "outcome, not claimed to be of one effect at most",
    "redirect astray",
    "redirect that lost the key",
    "redirect, see other",
    "refused by a circuit after a wait",
    "refused by a circuit before the first attempt",
    "refused by a circuit with the answer in hand",
    "schedule",
    "send",
    "send of an operation that was sent before",
    "stop before the first attempt: deadline",
    "stop before the first attempt: retention",
    "stop: body not replayable",
    "stop: budget",
    "stop: circuit open",
    "stop: deadline",
    "stop: done",
    "stop: key conflict",
    "stop: max attempts",
    "stop: not replay-safe",
    "stop: not retryable",
    "stop: retention",
    "stop: retry-after",
    "stop: scope",
    "token given back",
    "token spent",
    "verdict of a classifier",
    "wait of no time",
    "wait of our own",
    "wait that was asked for",
    "wait, shortened by the deadline",
];

impl Coverage {
    pub(super) fn note(&mut self, what: &'static str) {
        self.count(what, 1);
    }

    pub(super) fn count(&mut self, what: &'static str, times: u64) {
        *self.counts.entry(what).or_default() += times;
    }

    pub(super) fn add(&mut self, other: Self) {
        for (what, times) in other.counts {
            self.count(what, times);
        }
    }

    pub(super) fn assert_complete(&self) {
        let missing: Vec<_> = WANTED.iter().filter(|what| !self.counts.contains_key(*what)).collect();
        assert!(missing.is_empty(), "never reached: {missing:?}");
        let unknown: Vec<_> = self.counts.keys().filter(|what| !WANTED.contains(what)).collect();
        assert!(unknown.is_empty(), "reached and not wanted: {unknown:?}");
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, times) in &self.counts {
            writeln!(f, "{times:>12}  {what}")?;
        }
        Ok(())
    }
}

pub(super) fn stop(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Done => "stop: done",
        StopReason::NotRetryable => "stop: not retryable",
        StopReason::NotReplaySafe => "stop: not replay-safe",
        StopReason::BodyNotReplayable => "stop: body not replayable",
        StopReason::MaxAttempts => "stop: max attempts",
        StopReason::Deadline => "stop: deadline",
        StopReason::Budget => "stop: budget",
        StopReason::RetryAfter { .. } => "stop: retry-after",
        StopReason::CircuitOpen { .. } => "stop: circuit open",
        StopReason::KeyConflict => "stop: key conflict",
        StopReason::Retention => "stop: retention",
        StopReason::Scope => "stop: scope",
    }
}

pub(super) fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "outcome completed",
        Outcome::NotDone => "outcome not done",
        Outcome::Unknown => "outcome unknown",
    }
}

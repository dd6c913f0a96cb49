//! One circuit: a state machine without clock, lock or random source.
//!
//! ```text
//!            the failure ratio is reached                 open_for has passed
//!   closed ──────────────────────────────▶ open ────────────────────────────────▶ half-open
//!     ▲                                     ▲    and the next attempt is a probe      │
//!     │                                     └────────── the probes failed ────────────┤
//!     └──────────────────────────────────────────────── the probes succeeded ─────────┘
//! ```
//!
//! Each stay in a state is a *period* with a number of its own. A permit is good for the period it was given in: what
//! comes of it later counts for nothing, since it tells of a time before the one that is judged.

use std::fmt;
use std::time::Duration;

use super::settings::CircuitBreaker;
use super::window::{Counts, Window};
use crate::backoff::{doubled, uniform};

/// The state of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CircuitState {
    /// Attempts go through and are counted.
    Closed,
    /// Attempts are refused.
    Open,
    /// A few attempts go through, as probes; the others are refused.
    HalfOpen,
}

impl fmt::Display for CircuitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        })
    }
}

/// What an attempt says of the service it was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Success,
    Failure,
    /// Nothing: it was dropped, told to come later, or failed on our side.
    Ignored,
}

/// A period that ended and the one that began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) from: CircuitState,
    pub(crate) to: CircuitState,
    /// The number of the period that began.
    pub(crate) period: u64,
}

/// Leave to make one attempt, in the period of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leave(u64);

/// No leave, and the time until it is worth asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) retry_in: Duration,
}

/// What an operator said, above all that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forced {
    Open,
    Closed,
}

#[derive(Debug, Default)]
pub(crate) struct Breaker {
    phase: Phase,
    period: u64,
    /// How often probes have failed since the circuit was closed.
    failed_probes: u32,
    window: Window,
    forced: Option<Forced>,
    /// Results that came after the period of their permit.
    late: u64,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Closed,
    Open {
        until: Duration,
    },
    HalfOpen {
        /// How many probes this period has, by the settings that began it.
        probes: u32,
        /// Those that are under way or have ended with a result.
        admitted: u32,
        results: Counts,
        /// When the last of those under way is over, if anybody still polls it.
        over_at: Duration,
    },
}

impl Breaker {
    /// Asks for an attempt at this moment, which will be over at another. It may be the one that ends the open period.
    pub(crate) fn admit(
        &mut self,
        now: Duration,
        over_at: Duration,
        settings: &CircuitBreaker,
    ) -> (Result<Leave, Refused>, Option<Change>) {
        if self.forced == Some(Forced::Open) {
            return (Err(self.refusal(now, settings)), None);
        }
        let change = match self.phase {
            Phase::Open { until } if until <= now => Some(self.begin(Phase::HalfOpen {
                probes: settings.half_open_probes,
                admitted: 0,
                results: Counts::default(),
                over_at,
            })),
            _ => None,
        };
        self.drop_the_abandoned(now);
        let answer = match &mut self.phase {
            Phase::Closed => Ok(Leave(self.period)),
            Phase::HalfOpen {
                probes,
                admitted,
                over_at: latest,
                ..
            } if *admitted < *probes => {
                *admitted += 1;
                *latest = over_at.max(*latest);
                Ok(Leave(self.period))
            }
            Phase::HalfOpen { .. } | Phase::Open { .. } => Err(self.refusal(now, settings)),
        };
        (answer, change)
    }

    /// A probe that is over and has not ended is neither polled nor dropped by anybody. It must not keep its place for
    /// ever: the period begins anew with the results it has, and what comes of such a probe is late.
    fn drop_the_abandoned(&mut self, now: Duration) {
        if let Phase::HalfOpen {
            admitted,
            results,
            over_at,
            ..
        } = &mut self.phase
        {
            if *over_at < now && *admitted > results.calls() {
                *admitted = results.calls();
                self.period = self.period.wrapping_add(1);
            }
        }
    }

    /// What came of an attempt. `random` is asked for if the circuit opens.
    pub(crate) fn record(
        &mut self,
        leave: Leave,
        health: Health,
        now: Duration,
        settings: &CircuitBreaker,
        random: impl FnOnce() -> u64,
    ) -> Option<Change> {
        let success = match health {
            Health::Success => true,
            Health::Failure => false,
            Health::Ignored => {
                self.give_back(leave);
                return None;
            }
        };
        if leave.0 != self.period {
            self.late = self.late.saturating_add(1);
            return None;
        }
        match &mut self.phase {
            Phase::Closed => {
                self.window.add(now, settings.window, success);
                let counts = self.window.counts(now);
                let enough = counts.calls() >= settings.minimum_throughput;
                (enough && fails(counts, settings) && self.forced.is_none()).then(|| self.open(now, settings, random))
            }
            Phase::HalfOpen { probes, results, .. } => {
                results.add(success);
                let (probes, results) = (*probes, *results);
                if results.calls() < probes {
                    None
                } else if fails(results, settings) {
                    self.failed_probes = self.failed_probes.saturating_add(1);
                    Some(self.open(now, settings, random))
                } else {
                    Some(self.close())
                }
            }
            // No leave is given in an open period.
            Phase::Open { .. } => None,
        }
    }

    /// The attempt was not made, or nothing came of it: a probe leaves its place to another.
    pub(crate) fn give_back(&mut self, leave: Leave) {
        if let Phase::HalfOpen { admitted, .. } = &mut self.phase {
            if leave.0 == self.period {
                *admitted = admitted.saturating_sub(1);
            }
        }
    }

    /// Holds the circuit open or closed, or lets it go on by itself, closed and with nothing counted.
    pub(crate) fn force(&mut self, forced: Option<Forced>) -> Option<Change> {
        if forced == self.forced {
            return None;
        }
        let from = self.state();
        self.forced = forced;
        let change = self.close();
        let to = self.state();
        (from != to).then_some(Change { from, to, ..change })
    }

    /// How long attempts are refused, as far as one can tell, if they are.
    pub(crate) fn blocked_for(&self, now: Duration, settings: &CircuitBreaker) -> Option<Duration> {
        match self.phase {
            _ if self.forced == Some(Forced::Open) => Some(self.refusal(now, settings).retry_in),
            Phase::Open { until } => Some(until.saturating_sub(now)),
            Phase::HalfOpen {
                probes,
                admitted,
                over_at,
                ..
            } if admitted >= probes && over_at >= now => Some(self.refusal(now, settings).retry_in),
            Phase::HalfOpen { .. } | Phase::Closed => None,
        }
    }

    pub(crate) fn state(&self) -> CircuitState {
        match self.phase {
            _ if self.forced == Some(Forced::Open) => CircuitState::Open,
            Phase::Closed => CircuitState::Closed,
            Phase::Open { .. } => CircuitState::Open,
            Phase::HalfOpen { .. } => CircuitState::HalfOpen,
        }
    }

    pub(crate) fn forced(&self) -> Option<Forced> {
        self.forced
    }

    /// The time until the circuit lets a probe through, where it is open and nobody forces it to be.
    pub(crate) fn probe_in(&self, now: Duration) -> Option<Duration> {
        match self.phase {
            Phase::Open { until } => Some(until.saturating_sub(now)),
            _ => None,
        }
    }

    /// What the state is judged by: the window, or the probes.
    pub(crate) fn counts(&self, now: Duration) -> Counts {
        match self.phase {
            Phase::HalfOpen { results, .. } => results,
            _ => self.window.counts(now),
        }
    }

    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// There is nothing to remember of it.
    pub(crate) fn is_idle(&self, now: Duration) -> bool {
        let closed = matches!(self.phase, Phase::Closed) && self.forced.is_none();
        closed && self.window.counts(now).calls() == 0
    }

    fn refusal(&self, now: Duration, settings: &CircuitBreaker) -> Refused {
        let retry_in = match self.phase {
            Phase::Open { until } => until.saturating_sub(now),
            // Nobody knows when a probe under way will end, or an operator change his mind. To come back at once would
            // be to ask all the time.
            Phase::HalfOpen { .. } | Phase::Closed => settings.open_for,
        };
        Refused { retry_in }
    }

    /// Never shorter than `open_for`, and never longer than the longest: what the failed probes add is drawn at random.
    fn open(&mut self, now: Duration, settings: &CircuitBreaker, random: impl FnOnce() -> u64) -> Change {
        let longest = settings.longest();
        let bound = doubled(settings.open_for, self.failed_probes, longest);
        let time = settings
            .open_for
            .saturating_add(uniform(bound.saturating_sub(settings.open_for), random()));
        self.begin(Phase::Open {
            until: now.saturating_add(time),
        })
    }

    fn close(&mut self) -> Change {
        self.failed_probes = 0;
        self.window = Window::default();
        self.begin(Phase::Closed)
    }

    fn begin(&mut self, phase: Phase) -> Change {
        let from = self.state();
        self.phase = phase;
        self.period = self.period.wrapping_add(1);
        Change {
            from,
            to: self.state(),
            period: self.period,
        }
    }
}

fn fails(counts: Counts, settings: &CircuitBreaker) -> bool {
    counts
        .failure_ratio()
        .is_some_and(|ratio| ratio >= settings.failure_ratio)
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

//! A circuit as one would explain it: all results of a period in a list, all permits that are out in another.

use std::time::Duration;

use crate::circuit::breaker::{CircuitState, Forced, Health};
use crate::circuit::settings::CircuitBreaker;

#[derive(Debug)]
pub(super) struct Circuit {
    pub(super) state: CircuitState,
    /// How long the open period lasts, which is drawn at random within bounds that are checked.
    until: Duration,
    /// How many probes the half-open period began with.
    places: usize,
    results: Vec<(Duration, bool)>,
    out: Vec<u64>,
    /// When the last probe that was let through is over, if nobody drops it before.
    over_at: Duration,
    failed_probes: u32,
    forced: Option<Forced>,
    next_permit: u64,
    pub(super) late: u64,
    pub(super) opened: u64,
}

impl Circuit {
    pub(super) fn new() -> Self {
        Self {
            state: CircuitState::Closed,
            until: Duration::ZERO,
            places: 0,
            results: Vec::new(),
            out: Vec::new(),
            over_at: Duration::ZERO,
            failed_probes: 0,
            forced: None,
            next_permit: 0,
            late: 0,
            opened: 0,
        }
    }

    pub(super) fn is_held_open(&self) -> bool {
        self.forced == Some(Forced::Open)
    }

    /// The permit of an attempt, if one may be made.
    pub(super) fn admit(&mut self, now: Duration, over_at: Duration, settings: &CircuitBreaker) -> Option<u64> {
        if self.is_held_open() {
            return None;
        }
        if self.state == CircuitState::Open && self.until <= now {
            self.enter(CircuitState::HalfOpen);
            self.places = settings.half_open_probes as usize;
        }
        match self.state {
            CircuitState::Open => return None,
            CircuitState::Closed => {}
            CircuitState::HalfOpen => {
                if self.over_at < now {
                    self.out.clear();
                }
                if self.out.len() + self.results.len() >= self.places {
                    return None;
                }
                self.over_at = self.over_at.max(over_at);
            }
        }
        self.next_permit += 1;
        self.out.push(self.next_permit);
        Some(self.next_permit)
    }

    /// Whether the circuit opens. `opens_for` is what the real one has drawn, if it opened.
    pub(super) fn record(
        &mut self,
        permit: u64,
        health: Health,
        now: Duration,
        settings: &CircuitBreaker,
        opens_for: Option<Duration>,
    ) {
        if health == Health::Ignored {
            return self.give_back(permit);
        }
        let Some(known) = self.out.iter().position(|out| *out == permit) else {
            self.late += 1;
            return;
        };
        self.out.swap_remove(known);
        self.results.push((now, health == Health::Success));
        let (calls, failures, needed) = match self.state {
            CircuitState::HalfOpen => (self.results.len(), self.failures(), self.places),
            _ => {
                self.forget(now, settings.window);
                (
                    self.results.len(),
                    self.failures(),
                    settings.minimum_throughput as usize,
                )
            }
        };
        if calls < needed || self.forced.is_some() {
            return;
        }
        if failures as f64 / calls as f64 >= settings.failure_ratio {
            self.open(now, settings, opens_for);
        } else if self.state == CircuitState::HalfOpen {
            self.failed_probes = 0;
            self.enter(CircuitState::Closed);
        }
    }

    fn open(&mut self, now: Duration, settings: &CircuitBreaker, opens_for: Option<Duration>) {
        if self.state == CircuitState::HalfOpen {
            self.failed_probes += 1;
        }
        let least = settings.open_for;
        let longest = settings.max_open_for.unwrap_or(Duration::from_secs(60)).max(least);
        let most = (0..self.failed_probes).fold(least, |most, _| longest.min(most * 2));
        let time = opens_for.expect("R34: the failure ratio is reached, and the circuit stays closed");
        assert!(
            (least..=most).contains(&time),
            "R39: open for {time:?}, not {least:?} to {most:?}"
        );
        self.enter(CircuitState::Open);
        self.until = now + time;
        self.opened += 1;
    }

    pub(super) fn give_back(&mut self, permit: u64) {
        self.out.retain(|out| *out != permit);
    }

    /// How long attempts are refused, where one can know that more than one attempt is.
    pub(super) fn blocked_for(&self, now: Duration, settings: &CircuitBreaker) -> Option<Duration> {
        match self.state {
            _ if self.is_held_open() => Some(settings.open_for),
            CircuitState::Open => Some(self.until.saturating_sub(now)),
            CircuitState::HalfOpen => {
                let taken = self.out.len() + self.results.len() >= self.places;
                (taken && self.over_at >= now).then_some(settings.open_for)
            }
            CircuitState::Closed => None,
        }
    }

    pub(super) fn force(&mut self, forced: Option<Forced>) {
        if forced != self.forced {
            self.forced = forced;
            self.failed_probes = 0;
            self.enter(CircuitState::Closed);
        }
    }

    /// The places of a half-open period that are free once nobody holds a permit any more.
    pub(super) fn free_places(&self) -> Option<usize> {
        (self.state == CircuitState::HalfOpen).then(|| self.places - self.results.len())
    }

    fn failures(&self) -> usize {
        self.results.iter().filter(|(_, success)| !success).count()
    }

    /// The window rolls on by tenths.
    fn forget(&mut self, now: Duration, window: Duration) {
        let slice = (window.as_nanos() / 10).max(1);
        self.results
            .retain(|(at, _)| at.as_nanos() / slice + 10 > now.as_nanos() / slice);
    }

    fn enter(&mut self, state: CircuitState) {
        self.state = state;
        self.results.clear();
        self.out.clear();
        self.over_at = Duration::ZERO;
    }
}

//! A bucket as one would explain it: a count of what is missing from full, and of all that ever came and went.

use std::time::Duration;

use crate::budget::Limits;

const TOKEN: u128 = 1000;

#[derive(Debug, Default)]
pub(super) struct Count {
    /// In thousandths of a token.
    missing: u128,
    /// Up to when the trickle has been counted, in its steps of 10 ms.
    counted_to: u128,
    first: Option<u128>,
    largest_capacity: u128,
    capacity: u128,
    deposited: u128,
    pub(super) withdrawn: u128,
    pub(super) refunded: u128,
}

impl Count {
    fn trickle(&mut self, now: Duration) {
        let steps = now.as_millis() / 10;
        self.first.get_or_insert(steps);
        self.missing = self.missing.saturating_sub(steps - self.counted_to);
        self.counted_to = steps;
    }

    fn note(&mut self, now: Duration, limits: Limits) {
        self.trickle(now);
        self.capacity = u128::from(limits.burst) * TOKEN;
        self.largest_capacity = self.largest_capacity.max(self.capacity);
    }

    pub(super) fn withdraw(&mut self, now: Duration, limits: Limits) -> bool {
        self.note(now, limits);
        let paid = self.missing + TOKEN <= self.capacity;
        if paid {
            self.missing += TOKEN;
            self.withdrawn += 1;
        }
        paid
    }

    pub(super) fn deposit(&mut self, now: Duration, limits: Limits) {
        self.note(now, limits);
        let part = (limits.ratio * TOKEN as f64).round() as u128;
        self.deposited += part;
        self.missing = self.missing.saturating_sub(part);
    }

    pub(super) fn refund(&mut self, now: Duration) {
        self.trickle(now);
        self.refunded += 1;
        self.missing = self.missing.saturating_sub(TOKEN);
    }

    /// What the real bucket must say it holds.
    pub(super) fn level(&mut self, now: Duration) -> Option<f64> {
        self.trickle(now);
        let level = self.capacity.saturating_sub(self.missing);
        (self.capacity > 0).then(|| level as f64 / TOKEN as f64)
    }

    /// All the tokens there can have been: the burst, what was deposited, and the trickle.
    pub(super) fn supply(&self, now: Duration) -> u128 {
        let trickled = self.first.map_or(0, |first| now.as_millis() / 10 - first);
        self.largest_capacity + self.deposited + trickled
    }

    /// What the retries cost that were begun.
    pub(super) fn spent(&self) -> u128 {
        (self.withdrawn - self.refunded) * TOKEN
    }
}

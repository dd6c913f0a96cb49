//! What the operations of one group share: a circuit and a bucket of tokens.
//!
//! A permit to make an attempt and a token to repeat one are owned, and go back when they are dropped.

use std::time::Duration;

use super::breaker::{Breaker, Change, Forced, Health, Leave, Refused};
use super::settings::CircuitBreaker;
use crate::budget::{Bucket, Limits};
use crate::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};

/// The guards of one group.
#[derive(Debug)]
pub(crate) struct Group {
    bucket: Bucket,
    breaker: Mutex<Breaker>,
    /// A copy of what the breaker has, to be read where a policy has no circuit.
    forced_open: AtomicBool,
}

impl Group {
    pub(crate) fn new() -> Self {
        Self {
            bucket: Bucket::new(),
            breaker: Mutex::new(Breaker::default()),
            forced_open: AtomicBool::new(false),
        }
    }

    /// Asks for leave to make an attempt.
    pub(crate) fn admit(
        self: &Arc<Self>,
        now: Duration,
        settings: &CircuitBreaker,
    ) -> (Result<Permit, Refused>, Option<Change>) {
        let (answer, change) = self.breaker().admit(now, settings);
        let permit = answer.map(|leave| Permit {
            group: Arc::clone(self),
            leave: Some(leave),
        });
        (permit, change)
    }

    /// Pays for a retry, if there is a token left.
    pub(crate) fn withdraw(self: &Arc<Self>, now: Duration, limits: Limits) -> Option<Token> {
        let paid = self.bucket.withdraw(now, limits);
        paid.then(|| Token {
            group: Some(Arc::clone(self)),
        })
    }

    pub(crate) fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    pub(crate) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        // Counts and moments, each of which is whole after every assignment.
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn force(&self, forced: Option<Forced>) -> Option<Change> {
        let mut breaker = self.breaker();
        self.forced_open.store(forced == Some(Forced::Open), Ordering::Relaxed);
        breaker.force(forced)
    }

    pub(crate) fn is_forced_open(&self) -> bool {
        self.forced_open.load(Ordering::Relaxed)
    }

    /// To forget the group would lose nothing.
    pub(crate) fn is_idle(&self, now: Duration) -> bool {
        self.bucket.is_full(now) && self.breaker().is_idle(now)
    }
}

/// Leave to make one attempt. Dropped without a result, it counts as none and leaves its place to another.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back"]
pub(crate) struct Permit {
    group: Arc<Group>,
    leave: Option<Leave>,
}

impl Permit {
    /// What came of the attempt. `random` is asked for if the circuit opens.
    pub(crate) fn record(
        mut self,
        health: Health,
        now: Duration,
        settings: &CircuitBreaker,
        random: impl FnOnce() -> u64,
    ) -> Option<Change> {
        let leave = self.leave.take()?;
        self.group.breaker().record(leave, health, now, settings, random)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(leave) = self.leave.take() {
            self.group.breaker().give_back(leave);
        }
    }
}

/// The price of one retry. Dropped before the attempt begins, it goes back.
#[derive(Debug)]
#[must_use = "a token that is dropped goes back"]
pub(crate) struct Token {
    group: Option<Arc<Group>>,
}

impl Token {
    /// The attempt it was paid for begins.
    pub(crate) fn spend(mut self) {
        self.group = None;
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if let Some(group) = self.group.take() {
            group.bucket.refund();
        }
    }
}

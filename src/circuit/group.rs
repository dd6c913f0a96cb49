//! What the operations of one group share: a circuit and a bucket of tokens.
//!
//! Leave to make an attempt and the token of a retry are held by a [`Pass`], and go back when it is dropped.

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

/// What one `send()` holds of its group: leave for the attempt under way, and the token of the retry that is waited for.
/// Dropped at any point, it gives both back.
#[derive(Debug)]
pub(crate) struct Pass {
    group: Arc<Group>,
    leave: Option<Leave>,
    paid: bool,
}

impl Pass {
    pub(crate) fn new(group: Arc<Group>) -> Self {
        Self {
            group,
            leave: None,
            paid: false,
        }
    }

    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Asks for leave to make an attempt.
    pub(crate) fn admit(&mut self, now: Duration, settings: &CircuitBreaker) -> (Result<(), Refused>, Option<Change>) {
        let (answer, change) = self.group.breaker().admit(now, settings);
        (answer.map(|leave| self.leave = Some(leave)), change)
    }

    /// What came of the attempt. `random` is asked for if the circuit opens.
    pub(crate) fn record(
        &mut self,
        health: Health,
        now: Duration,
        settings: &CircuitBreaker,
        random: impl FnOnce() -> u64,
    ) -> Option<Change> {
        let leave = self.leave.take()?;
        self.group.breaker().record(leave, health, now, settings, random)
    }

    /// Pays for a retry, if there is a token left.
    pub(crate) fn pay(&mut self, now: Duration, limits: Limits) -> bool {
        self.paid = self.group.bucket.withdraw(now, limits);
        self.paid
    }

    /// The attempt that was paid for begins: there is nothing to give back.
    pub(crate) fn spend(&mut self) {
        self.paid = false;
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(leave) = self.leave.take() {
            self.group.breaker().give_back(leave);
        }
        if self.paid {
            self.group.bucket.refund();
        }
    }
}

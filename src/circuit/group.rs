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
    /// An operation has trusted a key that nobody declared.
    assumed: AtomicBool,
}

impl Group {
    pub(crate) fn new() -> Self {
        Self {
            bucket: Bucket::new(),
            breaker: Mutex::new(Breaker::default()),
            forced_open: AtomicBool::new(false),
            assumed: AtomicBool::new(false),
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

    /// Whether nobody asked before.
    pub(crate) fn is_first_assumption(&self) -> bool {
        // A look first: a line that is only read is not fought over by threads.
        !self.assumed.load(Ordering::Relaxed) && !self.assumed.swap(true, Ordering::Relaxed)
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

    /// Asks for leave to make an attempt, which will be over at a moment.
    pub(crate) fn admit(
        &mut self,
        now: Duration,
        over_at: Duration,
        settings: &CircuitBreaker,
    ) -> (Result<(), Refused>, Option<Change>) {
        let (answer, change) = self.group.breaker().admit(now, over_at, settings);
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(3600);

    fn settings() -> CircuitBreaker {
        CircuitBreaker::default().minimum_throughput(1).half_open_probes(2)
    }

    fn admit(group: &Arc<Group>, now: Duration) -> Option<Pass> {
        let mut pass = Pass::new(Arc::clone(group));
        let admitted = pass.admit(now, Duration::MAX, &settings()).0.is_ok();
        admitted.then_some(pass)
    }

    fn record(mut pass: Pass, health: Health, now: Duration) {
        pass.record(health, now, &settings(), || 0);
    }

    /// A group whose circuit has opened, and when it lets probes through.
    fn tripped() -> (Arc<Group>, Duration) {
        let group = Arc::new(Group::new());
        record(admit(&group, NOW).unwrap(), Health::Failure, NOW);
        (group, NOW + Duration::from_secs(5))
    }

    // field 43
    #[test]
    fn a_probe_that_had_a_result_keeps_its_place() {
        let (group, later) = tripped();
        let [first, _second] = [admit(&group, later), admit(&group, later)].map(Option::unwrap);
        record(first, Health::Success, later);
        assert!(admit(&group, later).is_none());
    }

    // field 44
    #[test]
    fn a_pass_that_is_dropped_gives_back_leave_and_token() {
        let limits = Limits { ratio: 0.2, burst: 1 };
        let (group, later) = tripped();
        let [mut first, _second] = [admit(&group, later), admit(&group, later)].map(Option::unwrap);
        assert!(first.pay(later, limits));
        drop(first);
        assert!(admit(&group, later).is_some());
        assert!(group.bucket().is_full(later));
    }

    // field 42
    #[test]
    fn a_token_that_is_spent_does_not_come_back() {
        let limits = Limits { ratio: 0.2, burst: 1 };
        let group = Arc::new(Group::new());
        let mut pass = Pass::new(Arc::clone(&group));
        assert!(pass.pay(NOW, limits));
        pass.spend();
        drop(pass);
        assert!(!Pass::new(group).pay(NOW, limits));
    }
}

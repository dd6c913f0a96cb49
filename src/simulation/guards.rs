//! The guards of one group, asked in the order in which `src/guard.rs` asks them, each beside its plain model.

use std::time::Duration;

use super::budget::Count;
use super::circuit::Circuit;
use super::coverage::Coverage;
use super::draw::Draw;
use super::schedule::GroupPlan;
use crate::attempts::StopReason;
use crate::circuit::breaker::{CircuitState, Forced, Health};
use crate::circuit::group::{Group, Pass};
use crate::circuit::settings::CircuitBreaker;
use crate::policy::Policy;
use crate::sync::Arc;

/// How much later than its time an attempt may end, as `src/guard.rs` has it.
const LATENESS: Duration = Duration::from_secs(1);

/// What the operations of a group share.
pub(super) struct Guards {
    group: Arc<Group>,
    circuit: Circuit,
    bucket: Count,
    sends: u128,
    attempts: u128,
    paid_retries: u128,
}

/// What one send holds of its group, on both books.
pub(super) struct Held {
    pass: Pass,
    permit: Option<u64>,
    paid: bool,
}

impl Guards {
    pub(super) fn new() -> Self {
        Self {
            group: Arc::new(Group::new()),
            circuit: Circuit::new(),
            bucket: Count::default(),
            sends: 0,
            attempts: 0,
            paid_retries: 0,
        }
    }

    pub(super) fn enter(&mut self) -> Held {
        self.sends += 1;
        Held {
            pass: Pass::new(Arc::clone(&self.group)),
            permit: None,
            paid: false,
        }
    }

    /// Leave for the next attempt, or the time until it is worth asking again.
    pub(super) fn admit(
        &mut self,
        held: &mut Held,
        policy: &Policy,
        now: Duration,
        limit: Duration,
    ) -> Result<(), Duration> {
        let Some(settings) = policy.circuit_breaker() else {
            return self.held_open().map_or(Ok(()), Err);
        };
        let over_at = now.saturating_add(limit).saturating_add(LATENESS);
        let (answer, _) = held.pass.admit(now, over_at, settings);
        held.permit = self.circuit.admit(now, over_at, settings);
        let state = self.circuit.state;
        match answer {
            Ok(()) => assert!(
                held.permit.is_some(),
                "R34, field 43: an attempt through a circuit that is {state}"
            ),
            Err(_) => assert!(
                held.permit.is_none(),
                "field 44: no place where the circuit is {state} and has one"
            ),
        }
        answer.map_err(|refused| refused.retry_in)
    }

    /// The attempt begins: what was paid for it is spent.
    pub(super) fn begin(&mut self, held: &mut Held) {
        self.attempts += 1;
        self.paid_retries += u128::from(held.paid);
        held.pass.spend();
        held.paid = false;
    }

    pub(super) fn record(
        &mut self,
        held: &mut Held,
        policy: &Policy,
        health: Health,
        now: Duration,
        draw: &mut Draw,
        seen: &mut Coverage,
    ) {
        let Some(settings) = policy.circuit_breaker() else {
            return;
        };
        let before = self.circuit.state;
        let change = held.pass.record(health, now, settings, || draw.jitter());
        let opened = change.filter(|change| change.to == CircuitState::Open);
        let opens_for = opened.and_then(|_| self.group.breaker().probe_in(now));
        let late = self.circuit.late;
        if let Some(permit) = held.permit.take() {
            self.circuit.record(permit, health, now, settings, opens_for);
        }
        if self.circuit.late > late && before == CircuitState::HalfOpen {
            seen.note("lateness of a probe that lost its place");
        }
        match (before, self.circuit.state) {
            (CircuitState::Closed, CircuitState::Open) => seen.note("circuit opened"),
            (CircuitState::HalfOpen, CircuitState::Open) => seen.note("circuit opened again by probes"),
            (CircuitState::HalfOpen, CircuitState::Closed) => seen.note("circuit closed again"),
            _ => {}
        }
    }

    /// Whether a retry may be made after a wait. If so, it is paid for.
    pub(super) fn ask_retry(
        &mut self,
        held: &mut Held,
        policy: &Policy,
        now: Duration,
        wait: Duration,
    ) -> Result<(), StopReason> {
        let blocked = match policy.circuit_breaker() {
            Some(settings) => {
                let blocked = self.group.breaker().blocked_for(now, settings);
                assert_eq!(
                    blocked,
                    self.circuit.blocked_for(now, settings),
                    "R34: how long the circuit refuses"
                );
                blocked
            }
            None => self.held_open(),
        };
        if let Some(retry_in) = blocked.filter(|retry_in| *retry_in > wait) {
            return Err(StopReason::CircuitOpen { retry_in });
        }
        if let Some(limits) = policy.budget().limits {
            let paid = held.pass.pay(now, limits);
            held.paid = self.bucket.withdraw(now, limits);
            assert_eq!(
                paid, held.paid,
                "field 41: a token where there is none, or none where there is one"
            );
            if !paid {
                return Err(StopReason::Budget);
            }
        }
        Ok(())
    }

    pub(super) fn deposit(&mut self, policy: &Policy, now: Duration) -> bool {
        let Some(limits) = policy.budget().limits else {
            return false;
        };
        self.group.bucket().deposit(now, limits);
        self.bucket.deposit(now, limits);
        true
    }

    /// The send is over, or was dropped.
    pub(super) fn leave(&mut self, held: Held, now: Duration, seen: &mut Coverage) {
        if let Some(permit) = held.permit {
            self.circuit.give_back(permit);
        }
        if held.paid {
            self.bucket.refund(now);
            seen.note("token given back");
        }
        drop(held.pass);
    }

    pub(super) fn force(&mut self, forced: Option<Forced>) {
        self.group.force(forced);
        self.circuit.force(forced);
    }

    fn held_open(&self) -> Option<Duration> {
        let held = self.group.is_forced_open();
        assert_eq!(held, self.circuit.is_held_open());
        held.then(|| CircuitBreaker::default().open_for)
    }

    /// Both books say the same.
    pub(super) fn compare(&mut self, now: Duration) {
        let state = match self.circuit.is_held_open() {
            true => CircuitState::Open,
            false => self.circuit.state,
        };
        let breaker = self.group.breaker();
        assert_eq!(breaker.state(), state, "R34, R36: the state of the circuit");
        assert_eq!(
            breaker.late(),
            self.circuit.late,
            "field 45: answers from before a change"
        );
        drop(breaker);
        let level = self.group.bucket().level(now);
        assert_eq!(level, self.bucket.level(now), "fields 41, 42: the tokens in the bucket");
    }

    /// Everybody is gone: what was lent is back.
    pub(super) fn close(mut self, plan: &GroupPlan, now: Duration, seen: &mut Coverage) {
        self.compare(now);
        let supply = self.bucket.supply(now);
        assert!(
            self.bucket.spent() <= supply,
            "section 6: more tokens spent than there were"
        );
        assert_eq!(
            self.bucket.spent(),
            self.paid_retries * 1000,
            "section 6: a token for each retry, and no other"
        );
        if plan.is_limited() {
            let most = self.sends + supply / 1000;
            assert!(
                self.attempts <= most,
                "section 6: {} attempts, at most {most}",
                self.attempts
            );
        }
        seen.count("token spent", self.paid_retries as u64);
        // After the longest open time, as many probes go through as have no result, and not one more.
        let Some(settings) = plan.circuits().next() else { return };
        if self.circuit.is_held_open() || self.circuit.state == CircuitState::Closed {
            return;
        }
        let later = now + Duration::from_secs(24 * 60 * 60);
        let mut held = Vec::new();
        loop {
            let mut next = self.enter();
            let admitted = next.pass.admit(later, later, settings).0.is_ok();
            assert_eq!(
                admitted,
                self.circuit.admit(later, later, settings).is_some(),
                "field 44: a place of a probe"
            );
            held.push(next);
            if !admitted {
                break;
            }
        }
        assert_eq!(
            held.len() - 1,
            self.circuit.free_places().unwrap(),
            "field 44: the places of the probes"
        );
    }
}

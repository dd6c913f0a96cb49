//! What stands between an operation and its attempts: the circuit and the retry budget of its group.
//!
//! The circuit is asked before each attempt, and after one that failed, while the answer is still in hand. The budget is asked
//! last, before the wait: a retry that waits has paid already (field case 42), and one that is not made gets its token back.

use std::iter;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::attempts::StopReason;
use crate::budget::Limits;
use crate::circuit::breaker::{Change, Health};
use crate::circuit::circuits::Circuits;
use crate::circuit::group::{Group, Pass};
use crate::circuit::settings::CircuitBreaker;
use crate::operation::Operation;
use crate::scope::Scope;

/// How much later than its time an attempt may end: timers are late, and threads busy.
const LATENESS: Duration = Duration::from_secs(1);

/// What clients can share: circuits and retry budgets.
///
/// A client has its own, which its clones share. To share them among clients of different policies, give one's to the other:
///
/// ```
/// # fn f(http: steadfast::reqwest::Client, policy: steadfast::Policy) {
/// let client = steadfast::Client::new(http.clone());
/// let patient = steadfast::Client::builder(http).policy(policy).pipeline(client.pipeline().clone()).build();
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Pipeline {
    circuits: Circuits,
}

impl Pipeline {
    /// One of its own, in which nothing has happened yet.
    pub fn new() -> Self {
        Self {
            circuits: Circuits::new(),
        }
    }

    /// The circuits and budgets, by group.
    pub fn circuits(&self) -> &Circuits {
        &self.circuits
    }
}

impl Default for Pipeline {
    fn default() -> Self {
        Self::new()
    }
}

/// The guards of one `send()`.
pub(crate) struct Guard<'a> {
    operation: &'a Operation,
    /// When the `send()` began, in the time of the groups.
    began: Duration,
    pass: Pass,
    /// The circuit that is asked, unless the operation around this one has asked it for both.
    circuit: Option<&'a CircuitBreaker>,
    /// The budget that is paid into, unless the operation around does that.
    deposits: Option<Limits>,
    /// As long as the attempt is under way.
    counted: Option<Arc<Counted>>,
}

/// What an operation has on its books for those inside its attempt, as long as that is under way. To ask a circuit again would
/// take two places of probes for one attempt, and where there is one place no attempt would ever get through.
pub(crate) struct Counted {
    group: Arc<Group>,
    circuit: bool,
    deposits: bool,
    /// That of the operation around this one.
    around: Option<Arc<Counted>>,
}

impl Counted {
    /// Those who count for this group, from the inside out.
    fn of<'a>(this: Option<&'a Arc<Self>>, group: &'a Arc<Group>) -> impl Iterator<Item = &'a Self> {
        let all = iter::successors(this, |counted| counted.around.as_ref());
        all.map(|counted| &**counted)
            .filter(|counted| Arc::ptr_eq(&counted.group, group))
    }
}

impl<'a> Guard<'a> {
    pub(crate) fn new(operation: &'a Operation, scope: &Scope, now: Instant) -> Self {
        let policy = operation.policy();
        let circuits = operation.circuits();
        let began = circuits.time(now);
        let group = circuits.group(&operation.group(), began);
        let around = scope.counted();
        let around = || Counted::of(around.as_ref(), &group);
        let circuit = policy
            .circuit_breaker()
            .filter(|_| !around().any(|around| around.circuit));
        let deposits = policy.budget().limits;
        let deposits = deposits.filter(|_| !around().any(|around| around.deposits));
        Self {
            operation,
            began,
            circuit,
            deposits,
            pass: Pass::new(group),
            counted: None,
        }
    }

    /// What operations inside the attempt need not count again.
    pub(crate) fn counted(&mut self, scope: &Scope) -> Weak<Counted> {
        let policy = self.operation.policy();
        let counted = Arc::new(Counted {
            group: Arc::clone(self.pass.group()),
            circuit: policy.circuit_breaker().is_some(),
            deposits: policy.budget().limits.is_some(),
            around: scope.counted(),
        });
        Arc::downgrade(self.counted.insert(counted))
    }

    /// Leave for the next attempt, which has so much time, or the time until it is worth asking again.
    pub(crate) fn admit(&mut self, elapsed: Duration, limit: Duration) -> Result<(), Duration> {
        let Some(settings) = self.circuit else {
            return match self.held_open() {
                Some(retry_in) => Err(retry_in),
                None => Ok(()),
            };
        };
        let now = self.time(elapsed);
        let over_at = now.saturating_add(limit).saturating_add(LATENESS);
        let (answer, change) = self.pass.admit(now, over_at, settings);
        self.tell(change);
        answer.map_err(|refused| refused.retry_in)
    }

    /// Whether this is the first operation of its group that trusts a key nobody declared.
    pub(crate) fn is_first_assumption(&self) -> bool {
        self.pass.group().is_first_assumption()
    }

    /// The attempt begins: what was paid for it is spent.
    pub(crate) fn begin(&mut self) {
        self.pass.spend();
    }

    /// What the attempt says of the service.
    pub(crate) fn record(&mut self, health: Health, elapsed: Duration) {
        self.counted = None;
        if let Some(settings) = self.circuit {
            let random = || self.operation.client().random();
            let change = self.pass.record(health, self.time(elapsed), settings, random);
            self.tell(change);
        }
    }

    /// Whether a retry may be made after a wait. If so, it is paid for.
    pub(crate) fn ask_retry(&mut self, elapsed: Duration, wait: Duration) -> Result<(), StopReason> {
        if let Some(retry_in) = self.blocked_for(elapsed).filter(|retry_in| *retry_in > wait) {
            return Err(StopReason::CircuitOpen { retry_in });
        }
        if let Some(limits) = self.operation.policy().budget().limits {
            if !self.pass.pay(self.time(elapsed), limits) {
                return Err(StopReason::Budget);
            }
        }
        Ok(())
    }

    /// The operation ended in an answer that says the service works.
    pub(crate) fn deposit(&self, elapsed: Duration) {
        if let Some(limits) = self.deposits {
            self.pass.group().bucket().deposit(self.time(elapsed), limits);
        }
    }

    fn blocked_for(&self, elapsed: Duration) -> Option<Duration> {
        match self.circuit {
            Some(settings) => self.pass.group().breaker().blocked_for(self.time(elapsed), settings),
            None => self.held_open(),
        }
    }

    /// An operator's word counts without a circuit too.
    fn held_open(&self) -> Option<Duration> {
        let retry_in = || CircuitBreaker::default().open_for;
        self.pass.group().is_forced_open().then(retry_in)
    }

    fn tell(&self, change: Option<Change>) {
        if let Some(change) = change {
            self.operation.circuits().tell(&self.operation.group(), change);
        }
    }

    fn time(&self, elapsed: Duration) -> Duration {
        self.began.saturating_add(elapsed)
    }
}

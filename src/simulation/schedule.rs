//! What a schedule begins with: groups with their policies, and the operations that are sent to them.

use std::time::Duration;

use http::Method;

use super::draw::{Draw, NANO};
use crate::backoff::Backoff;
use crate::budget::RetryBudget;
use crate::circuit::settings::CircuitBreaker;
use crate::decision::Terms;
use crate::policy::Policy;
use crate::replay::{KeyTrust, ReplaySafety, UnknownRetries};

/// How the service of a group is, for the time of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    Calm,
    Rough,
    /// It refuses most of what it is asked, and says when to come back.
    Throttled,
    /// Nothing is served at all.
    Outage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Full,
    Equal,
    Decorrelated,
    Constant,
}

/// A backoff, and the bounds of its waits by its documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackoffPlan {
    shape: Shape,
    base: Duration,
    throttled_base: Duration,
    cap: Duration,
}

impl BackoffPlan {
    fn draw(draw: &mut Draw) -> Self {
        let shape = draw.pick(&[
            Shape::Full,
            Shape::Full,
            Shape::Equal,
            Shape::Decorrelated,
            Shape::Constant,
        ]);
        let mut time = || match draw.below(3) {
            0 => draw.time(),
            _ => Duration::from_millis(draw.below(500)),
        };
        let (base, cap) = (time(), time());
        let throttled_base = match shape {
            Shape::Constant => base,
            _ if draw.percent(30) => draw.time(),
            _ => base.max(Duration::from_secs(1)),
        };
        Self {
            shape,
            base,
            throttled_base,
            cap,
        }
    }

    fn build(self) -> Backoff {
        let backoff = match self.shape {
            Shape::Full => Backoff::full_jitter(self.base, self.cap),
            Shape::Equal => Backoff::equal_jitter(self.base, self.cap),
            Shape::Decorrelated => Backoff::decorrelated_jitter(self.base, self.cap),
            Shape::Constant => Backoff::constant(self.base),
        };
        backoff.throttled_base(self.throttled_base)
    }

    /// The least and the longest wait before this retry (R23, R24). `previous` is the draw before it.
    pub(super) fn bounds(&self, retry: u32, previous: Option<Duration>, throttled: bool) -> (Duration, Duration) {
        let base = if throttled { self.throttled_base } else { self.base };
        let mut bound = base.min(self.cap);
        for _ in 1..retry.min(100) {
            bound = bound.saturating_mul(2).min(self.cap);
        }
        match self.shape {
            Shape::Full => (Duration::ZERO, bound),
            Shape::Equal => (bound / 2, bound),
            Shape::Decorrelated => {
                let least = base.min(self.cap);
                let most = previous.unwrap_or(base).saturating_mul(3).min(self.cap);
                (least, most.max(least))
            }
            Shape::Constant => (base, base),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct PolicyPlan {
    pub(super) policy: Policy,
    pub(super) backoff: BackoffPlan,
}

impl PolicyPlan {
    fn draw(draw: &mut Draw, window: Duration) -> Self {
        loop {
            let backoff = BackoffPlan::draw(draw);
            let mut builder = Policy::builder().backoff(backoff.build());
            if draw.percent(80) {
                builder = builder.max_attempts(draw.pick(&[1, 2, 3, 3, 4, 6, u32::MAX]));
            }
            if draw.percent(60) {
                builder = builder.attempt_timeout(draw.time());
            }
            if draw.percent(60) {
                builder = builder.deadline(draw.time());
            }
            if draw.percent(40) {
                let time = draw.time();
                builder = builder.min_attempt_time(draw.pick(&[Duration::ZERO, NANO, time]));
            }
            if draw.percent(60) {
                builder = builder.max_retry_after(draw.time());
            }
            if draw.percent(30) {
                builder = builder.unknown_retries(draw.pick(&[UnknownRetries::Declared, UnknownRetries::Never]));
            }
            builder = builder.budget(match draw.percent(20) {
                true => RetryBudget::unlimited(),
                false => RetryBudget::new(
                    draw.pick(&[0.001, 0.2, 0.6, 1.0, 1.001, 3.0]),
                    draw.pick(&[1, 1, 2, 3, 10, 50, u32::MAX]),
                ),
            });
            if draw.percent(60) {
                builder = builder.circuit_breaker(circuit(draw, window));
            }
            if let Ok(policy) = builder.build() {
                return Self { policy, backoff };
            }
        }
    }

    /// Under limits that the request sets for itself, if they do not contradict the policy.
    fn limited(mut self, draw: &mut Draw) -> Self {
        if draw.percent(20) {
            let attempts = draw.maybe(30, |draw| draw.pick(&[1, 2, 7]));
            let timeout = draw.maybe(30, Draw::time);
            let deadline = draw.maybe(60, Draw::time);
            self.policy = self.policy.limited(attempts, timeout, deadline).unwrap_or(self.policy);
        }
        self
    }

    pub(super) fn least_time(&self) -> Duration {
        let least = self.policy.min_attempt_time().min(self.policy.attempt_timeout());
        least.max(NANO)
    }
}

fn circuit(draw: &mut Draw, window: Duration) -> CircuitBreaker {
    let seconds = Duration::from_secs;
    let open_for = draw.pick(&[NANO, Duration::from_millis(10), seconds(1), seconds(5), seconds(90)]);
    let circuit = CircuitBreaker::default()
        .failure_ratio(draw.pick(&[0.1, 0.5, 0.5, 1.0]))
        .minimum_throughput(draw.pick(&[1, 1, 2, 5]))
        .window(window)
        .open_for(open_for)
        .half_open_probes(draw.pick(&[1, 1, 2, 3]));
    match draw.below(3) {
        0 => circuit,
        1 => circuit.max_open_for(open_for),
        _ => circuit.max_open_for(open_for.saturating_mul(5)),
    }
}

#[derive(Debug)]
pub(super) struct GroupPlan {
    pub(super) weather: Weather,
    /// Those of two clients that share a pipeline. They count over the same time.
    policies: [PolicyPlan; 2],
}

impl GroupPlan {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let weathers = [
            Weather::Calm,
            Weather::Rough,
            Weather::Rough,
            Weather::Throttled,
            Weather::Outage,
        ];
        let window = draw.pick(&[NANO, Duration::from_millis(100), Duration::from_secs(30)]);
        let first = PolicyPlan::draw(draw, window);
        let second = match draw.percent(20) {
            true => PolicyPlan::draw(draw, window),
            false => first.clone(),
        };
        Self {
            weather: draw.pick(&weathers),
            policies: [first, second],
        }
    }

    pub(super) fn circuits(&self) -> impl Iterator<Item = &CircuitBreaker> {
        self.policies.iter().filter_map(|plan| plan.policy.circuit_breaker())
    }

    pub(super) fn is_limited(&self) -> bool {
        self.policies.iter().all(|plan| plan.policy.budget().limits.is_some())
    }
}

/// What a contract has signs for.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContractPlan {
    pub(super) in_progress: bool,
    pub(super) mismatch: bool,
    pub(super) missing: bool,
    pub(super) stored_failures: bool,
}

#[derive(Debug)]
pub(super) struct OperationPlan {
    pub(super) group: usize,
    pub(super) limits: PolicyPlan,
    pub(super) method: Method,
    pub(super) trust: Option<KeyTrust>,
    pub(super) contract: Option<ContractPlan>,
    pub(super) vouched: Option<bool>,
    pub(super) body_replayable: bool,
    retention: Option<Duration>,
    /// The client tells of redirects, as one made by `Client::from_builder` does.
    pub(super) told: bool,
    /// The key stands where no redirect takes it along.
    pub(super) may_lose_key: bool,
    pub(super) hook: bool,
    pub(super) classifier: bool,
    pub(super) begins: Duration,
    pub(super) sends: u32,
}

impl OperationPlan {
    pub(super) fn draw(draw: &mut Draw, groups: &[GroupPlan], crowd: Duration) -> Self {
        let group = draw.below(groups.len() as u64) as usize;
        let limits = groups[group].policies[draw.below(2) as usize].clone();
        let limits = limits.limited(draw);
        let method = match draw.below(10) {
            0 => Method::GET,
            1 => Method::PUT,
            2 => Method::DELETE,
            3 => Method::PATCH,
            _ => Method::POST,
        };
        let trust = draw.pick(&[
            None,
            None,
            Some(KeyTrust::Assumed),
            Some(KeyTrust::Declared),
            Some(KeyTrust::Declared),
        ]);
        // Who declares a contract trusts its key. A key of the caller's own needs none.
        let declares = trust != Some(KeyTrust::Assumed) && draw.percent(60);
        let contract = declares.then(|| ContractPlan {
            in_progress: draw.percent(60),
            mismatch: draw.percent(60),
            missing: draw.percent(60),
            stored_failures: draw.percent(30),
        });
        let retention = match (trust, contract) {
            (Some(_), Some(_)) => draw.maybe(40, Draw::time),
            _ => None,
        };
        let told = draw.percent(50);
        let body_replayable = draw.percent(85);
        // A stream that is used up is not sent again by anybody.
        let sends = if body_replayable {
            draw.pick(&[1, 1, 1, 2, 3])
        } else {
            1
        };
        Self {
            group,
            limits,
            method,
            trust,
            contract,
            vouched: draw.maybe(15, |draw| draw.percent(50)),
            body_replayable,
            retention,
            told,
            may_lose_key: told && trust.is_some() && draw.percent(30),
            hook: draw.percent(15),
            classifier: draw.percent(25),
            begins: draw.within(crowd),
            sends,
        }
    }

    /// It has no effect to be unsure of.
    pub(super) fn is_safe(&self) -> bool {
        self.method.is_safe() && self.vouched != Some(false)
    }

    pub(super) fn is_declared(&self) -> bool {
        self.trust == Some(KeyTrust::Declared)
    }

    pub(super) fn terms(&self) -> Terms {
        let allowed = self.limits.policy.unknown_retries();
        let safety = |trust| ReplaySafety::of(&self.method, trust, self.vouched, allowed);
        Terms {
            safety: safety(self.trust),
            safety_unkeyed: safety(None),
            body_replayable: self.body_replayable,
            keyed: self.trust.is_some(),
            retention: self.retention,
        }
    }

    pub(super) fn retention(&self) -> Option<Duration> {
        self.retention
    }
}

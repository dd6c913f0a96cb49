//! When a circuit opens, for how long, and what closes it again.

use std::time::Duration;

use crate::violation::PolicyViolation;

const FAILURE_RATIO: f64 = 0.5;
const MINIMUM_THROUGHPUT: u32 = 20;
const WINDOW: Duration = Duration::from_secs(30);
const OPEN_FOR: Duration = Duration::from_secs(5);
const MAX_OPEN_FOR: Duration = Duration::from_secs(60);
const HALF_OPEN_PROBES: u32 = 3;
/// Whatever a circuit remembers or waits for longer than this is a mistake in the settings.
const LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The settings of the circuits of a [`Policy`](crate::Policy): one circuit for each group, off by default (R40).
///
/// A *closed* circuit counts the attempts of its group. When of those in the `window` the `failure_ratio` has failed, it
/// *opens*: attempts are refused at once. After `open_for` it is *half-open* and lets a few probes through; they close it,
/// or open it again for longer (R34).
///
/// A failure is an attempt that ended without a whole answer, or with a status from 500; the attempt timeout is one too, and
/// so is the deadline. A 429, an attempt that was dropped, and one that failed on our own side (a body that could not be
/// made or read, a sender that sent nothing, the open circuit of a client inside) count as nothing. Every other answer is
/// a success.
///
/// The settings are those of the policy that asks, and the circuit is the group's: give one group one policy, with
/// [`policy_for`](crate::ClientBuilder::policy_for).
///
/// ```
/// use std::time::Duration;
/// use steadfast::{CircuitBreaker, Policy};
///
/// let circuit = CircuitBreaker::default().failure_ratio(0.8).open_for(Duration::from_secs(2));
/// let policy = Policy::builder().circuit_breaker(circuit).build()?;
/// # Ok::<(), steadfast::PolicyError>(())
/// ```
///
/// | setting | default |
/// |---|---|
/// | `failure_ratio` | 0.5 |
/// | `minimum_throughput` | 20 |
/// | `window` | 30 s |
/// | `open_for` | 5 s |
/// | `max_open_for` | 60 s, or `open_for` where only that was set, and longer |
/// | `half_open_probes` | 3 |
///
/// Values that are not valid are named by the policy's `build()`.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a circuit breaker guards nothing until a policy has it"]
pub struct CircuitBreaker {
    pub(crate) failure_ratio: f64,
    pub(crate) minimum_throughput: u32,
    pub(crate) window: Duration,
    pub(crate) open_for: Duration,
    pub(crate) max_open_for: Option<Duration>,
    pub(crate) half_open_probes: u32,
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self {
            failure_ratio: FAILURE_RATIO,
            minimum_throughput: MINIMUM_THROUGHPUT,
            window: WINDOW,
            open_for: OPEN_FOR,
            max_open_for: None,
            half_open_probes: HALF_OPEN_PROBES,
        }
    }
}

impl CircuitBreaker {
    /// The part of the calls, above 0 and up to 1, whose failure opens the circuit; of the probes, whose failure keeps
    /// it open (R36).
    pub fn failure_ratio(mut self, ratio: f64) -> Self {
        self.failure_ratio = ratio;
        self
    }

    /// The calls that must be in the window before the ratio counts (R36).
    pub fn minimum_throughput(mut self, calls: u32) -> Self {
        self.minimum_throughput = calls;
        self
    }

    /// How far back calls count, up to one day. The window rolls on by tenths of it.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// How long the circuit stays open at first, up to one day. While probes fail the time doubles, with jitter.
    pub fn open_for(mut self, time: Duration) -> Self {
        self.open_for = time;
        self
    }

    /// The longest time the circuit stays open between probes, up to one day. That of `open_for` keeps it fixed (R39).
    pub fn max_open_for(mut self, time: Duration) -> Self {
        self.max_open_for = Some(time);
        self
    }

    /// How many attempts the half-open circuit lets through. Others are refused until all of these have ended.
    pub fn half_open_probes(mut self, probes: u32) -> Self {
        self.half_open_probes = probes;
        self
    }

    /// The longest open time while probes fail. Where it is not set, it does not shorten `open_for`.
    pub(crate) fn longest(&self) -> Duration {
        self.max_open_for.unwrap_or(MAX_OPEN_FOR)
    }

    pub(crate) fn check(&self, violations: &mut Vec<PolicyViolation>) {
        let Self {
            failure_ratio,
            minimum_throughput,
            window,
            open_for,
            max_open_for,
            half_open_probes,
        } = *self;
        // Written so that NaN is outside.
        if !(failure_ratio > 0.0 && failure_ratio <= 1.0) {
            violations.push(PolicyViolation::OutOfRange {
                setting: "circuit_breaker.failure_ratio",
                value: failure_ratio,
                range: "above 0 and at most 1",
            });
        }
        for (setting, count) in [
            ("circuit_breaker.minimum_throughput", minimum_throughput),
            ("circuit_breaker.half_open_probes", half_open_probes),
        ] {
            if count == 0 {
                violations.push(PolicyViolation::LessThanOne { setting });
            }
        }
        let mut longer = |setting, value, limited_by, limit| {
            if value > limit {
                violations.push(PolicyViolation::Longer {
                    setting,
                    value,
                    limited_by,
                    limit,
                });
            }
        };
        let times = [
            ("circuit_breaker.window", window),
            ("circuit_breaker.open_for", open_for),
        ];
        let times = times
            .into_iter()
            .chain(max_open_for.map(|time| ("circuit_breaker.max_open_for", time)));
        for (setting, value) in times.clone() {
            longer(setting, value, "the limit", LIMIT);
        }
        if let Some(longest) = max_open_for.filter(|longest| !longest.is_zero()) {
            longer(
                "circuit_breaker.open_for",
                open_for,
                "circuit_breaker.max_open_for",
                longest,
            );
        }
        for (setting, _) in times.filter(|(_, value)| value.is_zero()) {
            violations.push(PolicyViolation::Zero { setting });
        }
    }
}

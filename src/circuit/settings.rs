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
/// A failure is an attempt that ended without an answer, or with a status from 500; the attempt timeout is one too, and
/// so is the deadline. A 429 and an attempt that was dropped count as nothing. Every other answer is a success.
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

    /// The longest open time, set or not.
    pub(crate) fn longest(&self) -> Duration {
        self.max_open_for.unwrap_or_else(|| MAX_OPEN_FOR.max(self.open_for))
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
                setting: "failure_ratio",
                value: failure_ratio,
                range: "above 0 and at most 1",
            });
        }
        for (setting, count) in [
            ("minimum_throughput", minimum_throughput),
            ("half_open_probes", half_open_probes),
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
        let times = [("window", window), ("open_for", open_for)];
        let times = times.into_iter().chain(max_open_for.map(|time| ("max_open_for", time)));
        for (setting, value) in times.clone() {
            longer(setting, value, "the limit", LIMIT);
        }
        if let Some(longest) = max_open_for.filter(|longest| !longest.is_zero()) {
            longer("open_for", open_for, "max_open_for", longest);
        }
        for (setting, _) in times.filter(|(_, value)| value.is_zero()) {
            violations.push(PolicyViolation::Zero { setting });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::RetryBudget;
    use crate::policy::{Policy, PolicyBuilder};

    fn named(policy: PolicyBuilder) -> Vec<String> {
        let violations = policy
            .build()
            .map_or_else(|error| error.violations().to_vec(), |_| Vec::new());
        violations.iter().map(ToString::to_string).collect()
    }

    fn circuit(change: impl Fn(CircuitBreaker) -> CircuitBreaker) -> Vec<String> {
        named(Policy::builder().circuit_breaker(change(CircuitBreaker::default())))
    }

    fn budget(ratio: f64, burst: u32) -> Vec<String> {
        named(Policy::builder().budget(RetryBudget::new(ratio, burst)))
    }

    // field 50
    #[test]
    fn a_ratio_that_is_none_is_named_with_its_value() {
        for (ratio, text) in [
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (0.0, "0"),
            (-0.0, "-0"),
            (-0.5, "-0.5"),
        ] {
            let found = circuit(|circuit| circuit.failure_ratio(ratio));
            assert_eq!(found, [format!("failure_ratio {text} is not above 0 and at most 1")]);
            let found = budget(ratio, 50);
            assert_eq!(
                found,
                [format!("budget ratio {text} is not a finite number of at least 0.001")]
            );
        }
        let found = circuit(|circuit| circuit.failure_ratio(1.01));
        assert_eq!(found, ["failure_ratio 1.01 is not above 0 and at most 1"]);
    }

    // field 50
    #[test]
    fn a_count_of_none_is_named() {
        assert_eq!(budget(0.2, 0), ["budget burst 0 is less than 1"]);
        let found = circuit(|circuit| circuit.minimum_throughput(0));
        assert_eq!(found, ["minimum_throughput 0 is less than 1"]);
        let found = circuit(|circuit| circuit.half_open_probes(0));
        assert_eq!(found, ["half_open_probes 0 is less than 1"]);
    }

    // field 50
    #[test]
    fn a_time_of_none_and_one_without_end_are_named() {
        let setters: [(&str, fn(CircuitBreaker, Duration) -> CircuitBreaker); 3] = [
            ("window", CircuitBreaker::window),
            ("open_for", CircuitBreaker::open_for),
            ("max_open_for", CircuitBreaker::max_open_for),
        ];
        for (name, set) in setters {
            let found = circuit(|circuit| set(circuit, Duration::ZERO));
            assert_eq!(found, [format!("{name} 0s is not longer than 0s")]);
            let found = circuit(|circuit| set(circuit, Duration::MAX));
            let longest = Duration::MAX;
            assert_eq!(found, [format!("{name} {longest:?} is longer than the limit 86400s")]);
        }
    }

    #[test]
    fn an_open_time_longer_than_its_bound_is_named() {
        let second = Duration::from_secs(1);
        let found = circuit(|circuit| circuit.open_for(second * 9).max_open_for(second * 3));
        assert_eq!(found, ["open_for 9s is longer than max_open_for 3s"]);
    }

    // field 50
    #[test]
    fn all_that_is_wrong_is_named_at_once() {
        let circuit = CircuitBreaker::default().failure_ratio(2.0).window(Duration::ZERO);
        let policy = Policy::builder().max_attempts(0).budget(RetryBudget::new(f64::NAN, 0));
        assert_eq!(
            named(policy.circuit_breaker(circuit)),
            [
                "max_attempts 0 is less than 1",
                "budget ratio NaN is not a finite number of at least 0.001",
                "budget burst 0 is less than 1",
                "failure_ratio 2 is not above 0 and at most 1",
                "window 0s is not longer than 0s",
            ]
        );
    }

    #[test]
    fn the_ends_of_every_range_are_valid() {
        let day = LIMIT;
        let least = Duration::from_nanos(1);
        assert!(budget(0.001, 1).is_empty());
        assert!(budget(f64::MAX, u32::MAX).is_empty());
        assert!(named(Policy::builder().budget(RetryBudget::unlimited())).is_empty());
        let smallest = |circuit: CircuitBreaker| {
            let circuit = circuit.failure_ratio(f64::MIN_POSITIVE).minimum_throughput(1);
            circuit
                .window(least)
                .open_for(least)
                .max_open_for(least)
                .half_open_probes(1)
        };
        assert!(circuit(smallest).is_empty());
        let largest = |circuit: CircuitBreaker| {
            let circuit = circuit.failure_ratio(1.0).minimum_throughput(u32::MAX);
            circuit
                .window(day)
                .open_for(day)
                .max_open_for(day)
                .half_open_probes(u32::MAX)
        };
        assert!(circuit(largest).is_empty());
    }

    #[test]
    fn an_open_time_lifts_a_bound_that_was_not_set() {
        let circuit = CircuitBreaker::default().open_for(Duration::from_secs(90));
        assert_eq!(circuit.longest(), Duration::from_secs(90));
        assert_eq!(CircuitBreaker::default().longest(), Duration::from_secs(60));
    }
}

//! What a policy's guards may be set to, and how it is told what they may not.

use std::time::Duration;

use steadfast::{CircuitBreaker, Policy, PolicyBuilder, RetryBudget};

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
        assert_eq!(
            found,
            [format!(
                "circuit_breaker.failure_ratio {text} is not above 0 and at most 1"
            )]
        );
        let found = budget(ratio, 50);
        assert_eq!(
            found,
            [format!("budget.ratio {text} is not a finite number of at least 0.001")]
        );
    }
    assert_eq!(budget(0.0009, 50).len(), 1);
    let found = circuit(|circuit| circuit.failure_ratio(1.01));
    assert_eq!(
        found,
        ["circuit_breaker.failure_ratio 1.01 is not above 0 and at most 1"]
    );
}

// field 50
#[test]
fn a_count_of_none_is_named() {
    assert_eq!(budget(0.2, 0), ["budget.burst 0 is less than 1"]);
    let found = circuit(|circuit| circuit.minimum_throughput(0));
    assert_eq!(found, ["circuit_breaker.minimum_throughput 0 is less than 1"]);
    let found = circuit(|circuit| circuit.half_open_probes(0));
    assert_eq!(found, ["circuit_breaker.half_open_probes 0 is less than 1"]);
}

// field 50
#[test]
fn a_time_of_none_and_one_without_end_are_named() {
    type Setter = fn(CircuitBreaker, Duration) -> CircuitBreaker;
    let setters: [(&str, Setter); 3] = [
        ("window", CircuitBreaker::window),
        ("open_for", CircuitBreaker::open_for),
        ("max_open_for", CircuitBreaker::max_open_for),
    ];
    for (name, set) in setters {
        let found = circuit(|circuit| set(circuit, Duration::ZERO));
        assert_eq!(found, [format!("circuit_breaker.{name} 0s is not longer than 0s")]);
        let day = Duration::from_secs(24 * 60 * 60);
        for longer in [day + Duration::from_nanos(1), Duration::MAX] {
            let found = circuit(|circuit| set(circuit, longer));
            assert_eq!(
                found,
                [format!(
                    "circuit_breaker.{name} {longer:?} is longer than the limit 86400s"
                )]
            );
        }
    }
}

#[test]
fn an_open_time_longer_than_its_bound_is_named() {
    let second = Duration::from_secs(1);
    let found = circuit(|circuit| circuit.open_for(second * 9).max_open_for(second * 3));
    assert_eq!(
        found,
        ["circuit_breaker.open_for 9s is longer than circuit_breaker.max_open_for 3s"]
    );
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
            "budget.ratio NaN is not a finite number of at least 0.001",
            "budget.burst 0 is less than 1",
            "circuit_breaker.failure_ratio 2 is not above 0 and at most 1",
            "circuit_breaker.window 0s is not longer than 0s",
        ]
    );
}

#[test]
fn the_ends_of_every_range_are_valid() {
    let day = Duration::from_secs(24 * 60 * 60);
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
    let minutes = Duration::from_secs(600);
    assert!(circuit(|circuit| circuit.open_for(minutes)).is_empty());
}

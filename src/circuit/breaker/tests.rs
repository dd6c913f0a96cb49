//! The circuit by its rules.

use super::*;
use CircuitState::{Closed, HalfOpen, Open};
use Health::{Failure, Ignored, Success};

pub(super) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const NOW: Duration = secs(3600);
/// Longer than any of these tests goes on, but for those of abandoned attempts.
pub(super) const ATTEMPT: Duration = secs(1 << 40);

/// A circuit that opens at two failures of four.
fn settings() -> CircuitBreaker {
    CircuitBreaker::default().minimum_throughput(4)
}

/// One circuit under settings that stay the same, at a time that goes on.
pub(super) struct Walk {
    pub(super) breaker: Breaker,
    pub(super) settings: CircuitBreaker,
    pub(super) now: Duration,
}

impl Walk {
    pub(super) fn new(settings: CircuitBreaker) -> Self {
        Self {
            breaker: Breaker::default(),
            settings,
            now: NOW,
        }
    }

    pub(super) fn admit(&mut self) -> Result<Leave, Refused> {
        self.breaker.admit(self.now, self.now + ATTEMPT, &self.settings).0
    }

    fn record(&mut self, leave: Leave, health: Health) -> Option<Change> {
        self.record_at_random(leave, health, 0)
    }

    pub(super) fn record_at_random(&mut self, leave: Leave, health: Health, random: u64) -> Option<Change> {
        self.breaker.record(leave, health, self.now, &self.settings, || random)
    }

    fn call(&mut self, health: Health) -> Option<Change> {
        let leave = self.admit().expect("leave");
        self.record(leave, health)
    }

    fn calls(&mut self, healths: impl IntoIterator<Item = Health>) {
        for health in healths {
            self.call(health);
        }
    }

    fn trip(&mut self) {
        let calls = self.settings.minimum_throughput as usize;
        self.calls(std::iter::repeat_n(Failure, calls));
        assert_eq!(self.state(), Open);
    }

    pub(super) fn state(&self) -> CircuitState {
        self.breaker.state()
    }

    /// To the end of the open period.
    fn wait(&mut self) {
        let time = self.open_for();
        self.now += time;
    }

    /// How long attempts are refused from now on.
    fn open_for(&mut self) -> Duration {
        self.admit().expect_err("an open circuit").retry_in
    }
}

// R34
#[test]
fn a_circuit_opens_lets_probes_through_and_closes() {
    let mut walk = Walk::new(settings());
    walk.calls([Success, Success, Failure]);
    assert_eq!(walk.state(), Closed);
    let change = walk.call(Failure).unwrap();
    assert_eq!((change.from, change.to), (Closed, Open));

    walk.now += secs(5) - Duration::from_nanos(1);
    assert!(walk.admit().is_err());
    walk.now += Duration::from_nanos(1);
    let (leave, change) = walk.breaker.admit(walk.now, walk.now + ATTEMPT, &walk.settings);
    let change = change.unwrap();
    assert_eq!((change.from, change.to), (Open, HalfOpen));

    assert_eq!(walk.record(leave.unwrap(), Success), None);
    assert_eq!(walk.call(Success), None);
    let change = walk.call(Success).unwrap();
    assert_eq!((change.from, change.to), (HalfOpen, Closed));
    // What was counted before the circuit opened is forgotten.
    walk.calls([Failure, Failure, Failure]);
    assert_eq!(walk.state(), Closed);
}

// R36
#[test]
fn two_failures_of_two_calls_do_not_open() {
    let mut walk = Walk::new(CircuitBreaker::default());
    walk.calls([Failure, Failure]);
    assert_eq!(walk.state(), Closed);
}

// R36
#[test]
fn the_ratio_opens_at_its_bound_and_not_below() {
    let mut walk = Walk::new(settings().minimum_throughput(20));
    walk.calls(std::iter::repeat_n(Success, 11));
    walk.calls(std::iter::repeat_n(Failure, 10));
    assert_eq!(walk.state(), Closed);
    assert_eq!(walk.call(Failure).map(|change| change.to), Some(Open));
}

// R36: it is the number of calls that was missing, whatever the last one says.
#[test]
fn a_success_that_completes_the_minimum_can_open_it() {
    let mut walk = Walk::new(settings());
    walk.calls([Failure, Failure, Failure]);
    assert_eq!(walk.call(Success).map(|change| change.to), Some(Open));
}

// R36
#[test]
fn what_has_left_the_window_does_not_count() {
    let mut walk = Walk::new(settings());
    walk.calls([Failure, Failure, Failure]);
    walk.now += secs(30);
    walk.call(Failure);
    assert_eq!(walk.state(), Closed);
}

// field 46
#[test]
fn a_thousand_calls_that_are_dropped_or_ignored_open_nothing() {
    let mut walk = Walk::new(settings());
    for _ in 0..1_000 {
        let leave = walk.admit().unwrap();
        walk.breaker.give_back(leave);
        walk.call(Ignored);
    }
    assert_eq!(walk.state(), Closed);
    assert_eq!(walk.breaker.counts(walk.now).calls(), 0);
}

// field 43
#[test]
fn the_half_open_circuit_has_as_many_places_as_probes() {
    let mut walk = Walk::new(settings());
    walk.trip();
    walk.now += secs(5);
    let probes = (0..100).filter_map(|_| walk.admit().ok()).collect::<Vec<_>>();
    assert_eq!(probes.len(), 3);
    // A result is no place for another probe: the verdict waits for those that were let through.
    walk.record(probes[0], Success);
    assert!(walk.admit().is_err());
    assert_eq!(walk.state(), HalfOpen);
}

// field 44
#[test]
fn a_probe_that_is_dropped_or_ignored_leaves_its_place_to_another() {
    let mut walk = Walk::new(settings().half_open_probes(1));
    walk.trip();
    walk.now += secs(5);
    for _ in 0..10 {
        let leave = walk.admit().unwrap();
        assert!(walk.admit().is_err());
        walk.breaker.give_back(leave);
        walk.call(Ignored);
    }
    assert_eq!(walk.call(Success).map(|change| change.to), Some(Closed));
}

// field 44
#[test]
fn a_place_is_given_back_once_and_in_its_own_period_only() {
    let mut walk = Walk::new(settings().half_open_probes(1));
    let before = walk.admit().unwrap();
    walk.trip();
    walk.now += secs(5);
    let probe = walk.admit().unwrap();
    walk.breaker.give_back(before);
    assert!(walk.admit().is_err());
    walk.breaker.give_back(probe);
    assert!(walk.admit().is_ok());
    assert!(walk.admit().is_err());
}

// field 45
#[test]
fn a_result_from_before_the_trip_changes_nothing_and_is_counted_as_late() {
    let mut walk = Walk::new(settings().half_open_probes(1));
    let leaves: Vec<_> = (0..3).map(|_| walk.admit().unwrap()).collect();
    walk.trip();
    assert_eq!(walk.record(leaves[0], Success), None);
    assert_eq!(walk.state(), Open);
    walk.now += secs(5);
    let probe = walk.admit().unwrap();
    assert_eq!(walk.record(leaves[1], Failure), None);
    assert_eq!(walk.state(), HalfOpen);
    assert_eq!(walk.record(probe, Success).map(|change| change.to), Some(Closed));
    assert_eq!(walk.record(leaves[2], Failure), None);
    assert_eq!(walk.breaker.counts(walk.now).calls(), 0);
    assert_eq!(walk.breaker.late(), 3);
}

#[test]
fn the_probes_are_judged_by_their_ratio() {
    for (results, to) in [
        ([Failure, Success, Success], Closed),
        ([Success, Failure, Failure], Open),
        ([Failure, Failure, Failure], Open),
    ] {
        let mut walk = Walk::new(settings());
        walk.trip();
        walk.now += secs(5);
        let [first, second, third] = results;
        walk.calls([first, second]);
        assert_eq!(walk.call(third).map(|change| change.to), Some(to), "{results:?}");
    }
}

fn fail_a_probe(walk: &mut Walk, random: u64) {
    walk.wait();
    let probe = walk.admit().unwrap();
    assert_eq!(
        walk.record_at_random(probe, Failure, random).map(|change| change.to),
        Some(Open)
    );
}

// R39
#[test]
fn while_probes_fail_the_open_time_doubles_up_to_its_bound() {
    let mut walk = Walk::new(settings().half_open_probes(1));
    walk.trip();
    let mut times = vec![walk.open_for()];
    for _ in 0..5 {
        fail_a_probe(&mut walk, u64::MAX);
        times.push(walk.open_for());
    }
    assert_eq!(times, [5, 10, 20, 40, 60, 60].map(secs));
}

#[test]
fn what_failed_probes_add_is_drawn_above_the_shortest_time() {
    let mut walk = Walk::new(settings().half_open_probes(1));
    walk.trip();
    fail_a_probe(&mut walk, 0);
    assert_eq!(walk.open_for(), secs(5));
    fail_a_probe(&mut walk, u64::MAX / 2);
    // Half of what lies between 5 s and 20 s.
    assert_eq!(walk.open_for(), Duration::from_millis(12_500));
}

// R39
#[test]
fn an_open_time_whose_bounds_are_the_same_is_fixed() {
    let mut walk = Walk::new(settings().half_open_probes(1).max_open_for(secs(5)));
    walk.trip();
    for random in [0, u64::MAX / 2, u64::MAX] {
        fail_a_probe(&mut walk, random);
        assert_eq!(walk.open_for(), secs(5));
    }
}

#[test]
fn an_open_time_above_the_default_bound_stays_what_it_is() {
    let mut walk = Walk::new(settings().half_open_probes(1).open_for(secs(90)));
    walk.trip();
    fail_a_probe(&mut walk, u64::MAX);
    assert_eq!(walk.open_for(), secs(90));
}

// R39
#[test]
fn a_circuit_that_closed_starts_over_with_the_shortest_time() {
    let mut walk = Walk::new(settings().half_open_probes(1));
    walk.trip();
    fail_a_probe(&mut walk, u64::MAX);
    walk.wait();
    walk.call(Success);
    walk.trip();
    assert_eq!(walk.open_for(), secs(5));
}

// field 47
#[test]
fn a_refusal_tells_the_time_left() {
    let mut walk = Walk::new(settings());
    walk.trip();
    walk.now += secs(2);
    assert_eq!(walk.open_for(), secs(3));
    walk.now += secs(3);
    let _probes: Vec<_> = (0..3).map(|_| walk.admit().unwrap()).collect();
    // Nobody knows when they will end.
    assert_eq!(walk.open_for(), secs(5));
}

#[test]
fn what_an_operator_says_stands_above_what_is_counted() {
    let mut walk = Walk::new(settings());
    let change = walk.breaker.force(Some(Forced::Open)).unwrap();
    assert_eq!((change.from, change.to), (Closed, Open));
    walk.now += secs(3600);
    assert!(walk.admit().is_err());

    let change = walk.breaker.force(Some(Forced::Closed)).unwrap();
    assert_eq!((change.from, change.to), (Open, Closed));
    walk.calls(std::iter::repeat_n(Failure, 100));
    assert_eq!(walk.state(), Closed);
    assert_eq!(walk.breaker.counts(walk.now).failures, 100);

    assert_eq!(walk.breaker.force(None), None);
    walk.calls(std::iter::repeat_n(Failure, 3));
    assert_eq!(walk.state(), Closed);
    assert_eq!(walk.call(Failure).map(|change| change.to), Some(Open));
}

#[test]
fn what_was_under_way_when_an_operator_spoke_counts_for_nothing() {
    let mut walk = Walk::new(settings().minimum_throughput(1));
    let before = walk.admit().unwrap();
    walk.breaker.force(Some(Forced::Open));
    walk.breaker.force(None);
    assert_eq!(walk.record(before, Failure), None);
    assert_eq!(walk.state(), Closed);
}

#[test]
fn settings_may_change_from_call_to_call() {
    let mut walk = Walk::new(settings().minimum_throughput(100));
    walk.calls(std::iter::repeat_n(Failure, 50));
    assert_eq!(walk.state(), Closed);
    walk.settings = settings();
    assert_eq!(walk.call(Failure).map(|change| change.to), Some(Open));
}

// field 44
#[test]
fn a_probe_that_nobody_polls_or_drops_loses_its_place_when_its_time_is_over() {
    let mut walk = Walk::new(settings().half_open_probes(2));
    walk.trip();
    walk.now += secs(5);
    let over_at = walk.now + secs(10);
    let mut admit = || walk.breaker.admit(walk.now, over_at, &walk.settings).0.unwrap();
    let [ended, abandoned] = [admit(), admit()];
    walk.record(ended, Success);
    walk.now = over_at;
    assert!(walk.breaker.admit(walk.now, over_at, &walk.settings).0.is_err());
    assert!(walk.breaker.blocked_for(walk.now, &walk.settings).is_some());
    walk.now += Duration::from_nanos(1);
    assert_eq!(walk.breaker.blocked_for(walk.now, &walk.settings), None);
    let probe = walk.admit().unwrap();
    // It comes back after all: too late, and to no place.
    walk.record(abandoned, Failure);
    walk.breaker.give_back(abandoned);
    assert!(walk.admit().is_err());
    assert_eq!(walk.record(probe, Success).map(|change| change.to), Some(Closed));
}

#[test]
fn the_places_of_a_period_are_those_it_began_with() {
    let mut walk = Walk::new(settings());
    walk.trip();
    walk.now += secs(5);
    walk.call(Success);
    // A policy of fewer probes has come to a period of three, and then again one of three.
    walk.settings = settings().half_open_probes(1);
    walk.call(Success);
    assert_eq!(walk.state(), HalfOpen);
    walk.settings = settings().half_open_probes(9);
    assert_eq!(walk.call(Success).map(|change| change.to), Some(Closed));
}

// R36
#[test]
fn policies_of_different_windows_do_not_wipe_out_each_others_calls() {
    let mut walk = Walk::new(settings());
    for window in [30, 60, 30, 60] {
        walk.settings = settings().window(secs(window));
        walk.call(Failure);
    }
    assert_eq!(walk.state(), Open);
}

#[test]
fn the_counts_of_a_half_open_circuit_are_those_of_its_probes() {
    let mut walk = Walk::new(settings());
    walk.trip();
    walk.now += secs(5);
    walk.calls([Success, Failure]);
    let counts = walk.breaker.counts(walk.now);
    assert_eq!((counts.successes, counts.failures), (1, 1));
}

#[test]
fn only_an_open_circuit_has_a_time_until_its_probe() {
    let mut walk = Walk::new(settings());
    assert_eq!(walk.breaker.probe_in(walk.now), None);
    walk.trip();
    walk.now += secs(2);
    assert_eq!(walk.breaker.probe_in(walk.now), Some(secs(3)));
    walk.now += secs(60);
    assert_eq!(walk.breaker.probe_in(walk.now), Some(Duration::ZERO));
    walk.admit().unwrap();
    assert_eq!(walk.breaker.probe_in(walk.now), None);
}

#[test]
fn a_circuit_blocks_where_it_would_refuse() {
    let mut walk = Walk::new(settings().half_open_probes(1));
    let blocked = |walk: &Walk| walk.breaker.blocked_for(walk.now, &walk.settings);
    assert_eq!(blocked(&walk), None);
    walk.trip();
    assert_eq!(blocked(&walk), Some(secs(5)));
    walk.now += secs(5);
    assert_eq!(blocked(&walk), Some(Duration::ZERO));
    let probe = walk.admit().unwrap();
    assert_eq!(blocked(&walk), Some(secs(5)));
    walk.breaker.give_back(probe);
    assert_eq!(blocked(&walk), None);
    walk.breaker.force(Some(Forced::Open));
    assert_eq!(blocked(&walk), Some(secs(5)));
}

#[test]
fn to_say_the_same_again_changes_nothing() {
    let mut walk = Walk::new(settings());
    walk.breaker.force(Some(Forced::Closed));
    walk.call(Failure);
    assert_eq!(walk.breaker.force(Some(Forced::Closed)), None);
    assert_eq!(walk.breaker.counts(walk.now).failures, 1);
    walk.breaker.force(None);
    walk.trip();
    assert_eq!(walk.breaker.force(None), None);
    assert_eq!(walk.state(), Open);
}

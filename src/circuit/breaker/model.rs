//! The circuit beside a slow model that keeps a list of everything.

use proptest::prelude::*;

use super::tests::{ATTEMPT, Walk, secs};
use super::*;
use CircuitState::{Closed, HalfOpen, Open};
use Health::{Failure, Ignored, Success};

/// The circuit as one would explain it: all results of a state in a list, and everything computed from that.
struct Model {
    settings: CircuitBreaker,
    state: CircuitState,
    /// How long the open state lasts.
    until: u128,
    /// How many probes the half-open state began with.
    places: usize,
    /// The results of this state, with the time of each.
    results: Vec<(u128, bool)>,
    /// The permits of this state that are out.
    out: Vec<usize>,
    open_periods: u32,
    late: u64,
}

impl Model {
    fn slice(&self) -> u128 {
        self.settings.window.as_nanos() / 10
    }

    fn admit(&mut self, now: u128, permit: usize) -> bool {
        if self.state == Open && now >= self.until {
            self.enter(HalfOpen);
            self.places = self.settings.half_open_probes as usize;
        }
        let admitted = match self.state {
            Closed => true,
            Open => false,
            HalfOpen => self.out.len() + self.results.len() < self.places,
        };
        if admitted {
            self.out.push(permit);
        }
        admitted
    }

    fn end(&mut self, now: u128, permit: usize, health: Health, random: u64) {
        let known = self.out.iter().position(|out| *out == permit);
        let Some(known) = known else {
            self.late += u64::from(health != Ignored);
            return;
        };
        self.out.remove(known);
        if health == Ignored {
            return;
        }
        self.results.push((now, health == Success));
        let (lately, needed) = match self.state {
            Closed => (self.lately(now), self.settings.minimum_throughput as usize),
            _ => (self.results.iter().map(|(_, ok)| *ok).collect(), self.places),
        };
        if lately.len() < needed {
            return;
        }
        let failed = lately.iter().filter(|ok| !**ok).count();
        if failed as f64 / lately.len() as f64 >= self.settings.failure_ratio {
            self.open(now, random);
        } else if self.state == HalfOpen {
            self.open_periods = 0;
            self.enter(Closed);
        }
    }

    fn lately(&self, now: u128) -> Vec<bool> {
        let slice = self.slice();
        let lately = self.results.iter().filter(|(at, _)| at / slice + 10 > now / slice);
        lately.map(|(_, ok)| *ok).collect()
    }

    fn open(&mut self, now: u128, random: u64) {
        let least = self.settings.open_for.as_nanos();
        let most = self.settings.longest().as_nanos();
        let bound = most.min(least * (1 << self.open_periods.min(40)));
        let added = match random {
            u64::MAX => bound - least,
            _ => (bound - least + 1) * u128::from(random) / (1 << 64),
        };
        self.open_periods += 1;
        self.enter(Open);
        self.until = now + least + added;
    }

    fn enter(&mut self, state: CircuitState) {
        self.state = state;
        self.results.clear();
        self.out.clear();
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask,
    /// The permit of this number among all that were given out, whether it is still good or not.
    End(usize, Health, u64),
    Pass(u64),
    /// To the settings of the other policy.
    Change,
}

fn step() -> impl Strategy<Value = Step> {
    let health = prop_oneof![4 => Just(Failure), 3 => Just(Success), 1 => Just(Ignored)];
    let random = prop_oneof![Just(0), Just(u64::MAX), any::<u64>()];
    prop_oneof![
        5 => Just(Step::Ask),
        // The latest are numbered from the end, so that most of them are still good.
        5 => (0..6_usize, health, random).prop_map(|(n, health, random)| Step::End(n, health, random)),
        2 => (0..40_000_u64).prop_map(Step::Pass),
        1 => Just(Step::Change),
    ]
}

/// Those of two policies that share a circuit, and count over the same time.
fn two_settings() -> impl Strategy<Value = [CircuitBreaker; 2]> {
    let one = (1..=10_u32, 1..8_u32, 1..4_u32, 1..10_u64, 0..40_u64);
    ([one.clone(), one], 1..40_u64).prop_map(|(both, window)| {
        both.map(|(ratio, minimum, probes, open_for, longer)| {
            CircuitBreaker::default()
                .failure_ratio(f64::from(ratio) / 10.0)
                .minimum_throughput(minimum)
                .half_open_probes(probes)
                .window(secs(window))
                .open_for(secs(open_for))
                .max_open_for(secs(open_for + longer))
        })
    })
}

proptest! {
    // R34, R36, R39, field 43, field 44, field 45
    #[test]
    fn a_circuit_does_what_a_list_of_everything_says(
        steps in proptest::collection::vec(step(), 1..400), settings in two_settings(), changes in any::<bool>(),
    ) {
        let [settings, mut other] = settings;
        let mut model = Model {
            settings: settings.clone(),
            state: Closed,
            until: 0,
            places: 0,
            results: Vec::new(),
            out: Vec::new(),
            open_periods: 0,
            late: 0,
        };
        let mut walk = Walk::new(settings);
        let mut leaves: Vec<Option<Leave>> = Vec::new();
        for step in steps {
            let before = (walk.state(), walk.breaker.period);
            let mut change = None;
            match step {
                Step::Ask => {
                    let (answer, changed) = walk.breaker.admit(walk.now, walk.now + ATTEMPT, &walk.settings);
                    change = changed;
                    prop_assert_eq!(answer.is_ok(), model.admit(walk.now.as_nanos(), leaves.len()));
                    match answer {
                        Ok(leave) => leaves.push(Some(leave)),
                        Err(Refused { retry_in }) if model.state == Open => {
                            prop_assert_eq!(retry_in.as_nanos(), model.until - walk.now.as_nanos());
                        }
                        Err(_) => {}
                    }
                }
                Step::End(back, health, random) => {
                    let Some(number) = leaves.len().checked_sub(back + 1) else { continue };
                    let Some(leave) = leaves[number].take() else { continue };
                    change = walk.record_at_random(leave, health, random);
                    model.end(walk.now.as_nanos(), number, health, random);
                }
                Step::Pass(millis) => walk.now += Duration::from_millis(millis),
                Step::Change if changes => {
                    std::mem::swap(&mut walk.settings, &mut other);
                    model.settings = walk.settings.clone();
                }
                Step::Change => {}
            }
            prop_assert_eq!(walk.state(), model.state);
            prop_assert_eq!(walk.breaker.late(), model.late);
            if model.state != Open {
                let counted = match model.state {
                    HalfOpen => model.results.iter().map(|(_, ok)| *ok).collect(),
                    _ => model.lately(walk.now.as_nanos()),
                };
                let counts = walk.breaker.counts(walk.now);
                let successes = counted.iter().filter(|ok| **ok).count();
                prop_assert_eq!((counts.successes as usize, counts.calls() as usize), (successes, counted.len()));
            }
            let expected = (before.0 != walk.state()).then_some(Change {
                from: before.0,
                to: walk.state(),
                period: before.1 + 1,
            });
            prop_assert_eq!(change, expected);
        }
        // When nobody holds leave any more, the next one gets it, at the latest after the longest open time.
        for leave in leaves.into_iter().flatten() {
            walk.breaker.give_back(leave);
        }
        walk.now += walk.settings.longest().max(other.longest());
        for settings in [walk.settings, other] {
            let (answer, _) = walk.breaker.admit(walk.now, walk.now + ATTEMPT, &settings);
            prop_assert!(answer.is_ok());
            answer.into_iter().for_each(|leave| walk.breaker.give_back(leave));
        }
    }
}

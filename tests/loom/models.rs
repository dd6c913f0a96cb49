//! Every way in which threads can meet over a circuit or a bucket, tried one by one.
//!
//! `cargo run --release --manifest-path tests/loom/Cargo.toml`. The code is that of the crate; only its locks and atomics
//! are the model checker's.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use loom::thread;

use budget::{Bucket, Limits};
use circuit::breaker::{CircuitState, Forced, Health};
use circuit::group::{Group, Pass};
use circuit::settings::CircuitBreaker;
use sync::Arc;

#[allow(dead_code)]
#[path = "../../src/backoff.rs"]
mod backoff;
#[allow(dead_code)]
#[path = "../../src/budget.rs"]
mod budget;
#[allow(dead_code)]
#[path = "../../src/circuit"]
mod circuit {
    pub(crate) mod breaker;
    pub(crate) mod group;
    pub(crate) mod settings;
    mod window;
}
#[allow(dead_code)]
#[path = "../../src/violation.rs"]
mod violation;

/// In place of `src/sync.rs`.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
    pub(crate) use std::sync::PoisonError;
}

const NOW: Duration = Duration::from_secs(60);
const ONE: Limits = Limits { ratio: 0.5, burst: 1 };

fn main() {
    let models: [(&str, fn()); 10] = [
        ("one of two threads gets the last token", the_last_token),
        (
            "tokens that are given back are neither lost nor doubled",
            tokens_given_back,
        ),
        ("deposits never fill a bucket above its burst", deposits),
        (
            "withdrawal, refund and deposit add up, in any order",
            all_that_moves_tokens,
        ),
        (
            "at the end of the open period there are as many probes as places",
            probes,
        ),
        ("two places are two probes", two_places),
        ("a probe that had a result keeps its place", a_place_kept),
        ("a place that is given back is taken once", a_place_given_back),
        ("a result from before the trip changes nothing", a_late_result),
        ("an operator's word ends what was let through before it", forced_open),
    ];
    for (promise, model) in models {
        loom::model(model);
        println!("ok: {promise}");
    }
}

/// Runs two threads to their ends.
fn both<A: Send + 'static, B>(one: impl FnOnce() -> A + Send + 'static, other: impl FnOnce() -> B) -> (A, B) {
    let one = thread::spawn(one);
    let other = other();
    (one.join().unwrap(), other)
}

// field 41
fn the_last_token() {
    let bucket = Arc::new(Bucket::new());
    let shared = Arc::clone(&bucket);
    let (a, b) = both(move || shared.withdraw(NOW, ONE), || bucket.withdraw(NOW, ONE));
    assert!(a != b);
}

fn tokens_given_back() {
    let group = Arc::new(Group::new());
    let pay = |group| Pass::new(group).pay(NOW, ONE);
    let shared = Arc::clone(&group);
    // Each drops its pass at once, paid or not.
    both(move || pay(shared), || pay(Arc::clone(&group)));
    assert_eq!(group.bucket().level(NOW), Some(1.0));
}

fn deposits() {
    let bucket = Arc::new(Bucket::new());
    assert!(bucket.withdraw(NOW, ONE));
    let shared = Arc::clone(&bucket);
    let deposit = |bucket: &Bucket| {
        bucket.deposit(NOW, ONE);
        bucket.deposit(NOW, ONE);
    };
    both(move || deposit(&shared), || deposit(&bucket));
    assert_eq!(bucket.level(NOW), Some(1.0));
    assert!(bucket.withdraw(NOW, ONE) && !bucket.withdraw(NOW, ONE));
}

// field 41, field 42
fn all_that_moves_tokens() {
    let limits = Limits { ratio: 0.5, burst: 3 };
    let group = Arc::new(Group::new());
    for _ in 0..2 {
        assert!(group.bucket().withdraw(NOW, limits));
    }
    let [paying, depositing] = [(); 2].map(|()| Arc::clone(&group));
    let paying = thread::spawn(move || Pass::new(paying).pay(NOW, limits));
    let depositing = thread::spawn(move || depositing.bucket().deposit(NOW, limits));
    let spent = group.bucket().withdraw(NOW, limits);
    let refunded = paying.join().unwrap();
    depositing.join().unwrap();
    // One of the two gets the token that is left. Who gives it back in between leaves it to the other.
    assert!(spent || refunded);
    let left = if spent { 0.5 } else { 1.5 };
    assert_eq!(group.bucket().level(NOW), Some(left));
}

fn settings(places: u32) -> CircuitBreaker {
    CircuitBreaker::default().minimum_throughput(1).half_open_probes(places)
}

fn admit(group: &Arc<Group>, now: Duration) -> Option<Pass> {
    admit_to(group, now, 1)
}

fn admit_to(group: &Arc<Group>, now: Duration, places: u32) -> Option<Pass> {
    let mut pass = Pass::new(Arc::clone(group));
    let admitted = pass.admit(now, Duration::MAX, &settings(places)).0.is_ok();
    admitted.then_some(pass)
}

fn record(mut pass: Pass, health: Health, now: Duration) {
    pass.record(health, now, &settings(1), || 0);
}

/// A group whose circuit has opened, and when it lets a probe through.
fn tripped() -> (Arc<Group>, Duration) {
    let group = Arc::new(Group::new());
    record(admit(&group, NOW).unwrap(), Health::Failure, NOW);
    (group, NOW + Duration::from_secs(5))
}

// field 43
fn probes() {
    assert_eq!(admitted_of_three(1), 1);
}

// field 43
fn two_places() {
    assert_eq!(admitted_of_three(2), 2);
}

fn admitted_of_three(places: u32) -> usize {
    let (group, later) = tripped();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let group = Arc::clone(&group);
            thread::spawn(move || admit_to(&group, later, places))
        })
        .collect();
    let own = admit_to(&group, later, places);
    let passes = threads.into_iter().map(|thread| thread.join().unwrap()).chain([own]);
    // All are held until all have asked.
    let passes: Vec<_> = passes.collect();
    passes.iter().flatten().count()
}

// field 43
fn a_place_kept() {
    let (group, later) = tripped();
    let [mut first, second] = [(); 2].map(|()| admit_to(&group, later, 2).unwrap());
    let shared = Arc::clone(&group);
    let (_, other) = both(
        move || first.record(Health::Success, later, &settings(2), || 0),
        move || admit_to(&shared, later, 2),
    );
    assert!(other.is_none());
    assert_eq!(group.breaker().counts(later).successes, 1);
    drop(second);
    assert!(admit_to(&group, later, 2).is_some());
}

// field 44
fn a_place_given_back() {
    let (group, later) = tripped();
    let probe = admit(&group, later).unwrap();
    let shared = Arc::clone(&group);
    let (_, other) = both(move || drop(probe), move || admit(&shared, later));
    let another = admit(&group, later);
    assert!(other.is_some() != another.is_some());
}

// field 45
fn a_late_result() {
    let group = Arc::new(Group::new());
    let late = admit(&group, NOW).unwrap();
    record(admit(&group, NOW).unwrap(), Health::Failure, NOW);
    let later = NOW + Duration::from_secs(5);
    let shared = Arc::clone(&group);
    both(
        move || record(late, Health::Failure, later),
        || record(admit(&shared, later).unwrap(), Health::Success, later),
    );
    assert_eq!(group.breaker().state(), CircuitState::Closed);
    assert_eq!(group.breaker().counts(later).calls(), 0);
    assert_eq!(group.breaker().late(), 1);
}

fn forced_open() {
    let (group, later) = tripped();
    let shared = Arc::clone(&group);
    let (before, _) = both(
        move || admit(&shared, later),
        || {
            group.force(Some(Forced::Open));
            assert!(group.is_forced_open());
            assert!(admit(&group, later).is_none());
        },
    );
    // Who was let through before the word is of a period that has ended.
    if let Some(before) = before {
        record(before, Health::Failure, later);
        assert_eq!(group.breaker().late(), 1);
    }
    assert_eq!(group.breaker().state(), CircuitState::Open);
    group.force(None);
    assert_eq!(group.breaker().state(), CircuitState::Closed);
    assert!(admit(&group, later).is_some());
}

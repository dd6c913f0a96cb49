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
    let models: [(&str, fn()); 7] = [
        ("one of two threads gets the last token", the_last_token),
        (
            "tokens that are given back are neither lost nor doubled",
            tokens_given_back,
        ),
        ("deposits never fill a bucket above its burst", deposits),
        (
            "at the end of the open period there are as many probes as places",
            probes,
        ),
        ("a place that is given back is taken once", a_place_given_back),
        ("a result from before the trip changes nothing", a_late_result),
        ("who is refused by an operator's word holds no place", forced_open),
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

fn settings() -> CircuitBreaker {
    CircuitBreaker::default().minimum_throughput(1).half_open_probes(1)
}

fn admit(group: &Arc<Group>, now: Duration) -> Option<Pass> {
    let mut pass = Pass::new(Arc::clone(group));
    let admitted = pass.admit(now, &settings()).0.is_ok();
    admitted.then_some(pass)
}

fn record(mut pass: Pass, health: Health, now: Duration) {
    pass.record(health, now, &settings(), || 0);
}

/// A group whose circuit has opened, and when it lets a probe through.
fn tripped() -> (Arc<Group>, Duration) {
    let group = Arc::new(Group::new());
    record(admit(&group, NOW).unwrap(), Health::Failure, NOW);
    (group, NOW + Duration::from_secs(5))
}

// field 43
fn probes() {
    let (group, later) = tripped();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let group = Arc::clone(&group);
            thread::spawn(move || admit(&group, later))
        })
        .collect();
    let own = admit(&group, later);
    let passes = threads.into_iter().map(|thread| thread.join().unwrap()).chain([own]);
    // All are held until all have asked.
    let passes: Vec<_> = passes.collect();
    assert_eq!(passes.iter().flatten().count(), 1);
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
    let (asked, _) = both(
        move || admit(&shared, later).map(drop).is_some(),
        || {
            group.force(Some(Forced::Open));
            assert!(admit(&group, later).is_none());
            group.force(None);
        },
    );
    // Whoever was let through before or after: the circuit is closed and nobody holds anything.
    let _ = asked;
    assert_eq!(group.breaker().state(), CircuitState::Closed);
    assert!(admit(&group, later).is_some());
}

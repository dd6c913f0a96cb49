//! The whole client by schedules drawn from seeds: the pure parts in the order in which the driver calls them, in a time that
//! is a number, beside a service that keeps books of what it did.
//!
//! A schedule is what its seed says: policies, groups, operations that overlap, how each attempt ends and when, what a timer is
//! late by, and where a caller drops the future. At every step the rules are held against it: those of the deadline, attempts and
//! waits, of the tokens and permits of a group, and above all of the outcome, which is compared with what the service did.
//!
//! ```text
//! cargo test --lib simulation
//! STEADFAST_SCHEDULES=20000000 cargo test --release --lib simulation -- --nocapture
//! STEADFAST_SCHEDULE=4711 cargo test --lib simulation -- --nocapture
//! ```
//!
//! The first tries the schedules of the seeds below 50 000, the second those below that number, and says what they have reached;
//! the third tells one schedule step by step.

mod budget;
mod circuit;
mod coverage;
mod draw;
mod driver;
mod guards;
mod rules;
mod schedule;
mod service;
mod table;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use self::coverage::Coverage;
use self::draw::{Draw, NANO};
use self::driver::{Caller, World};
use self::guards::Guards;
use self::schedule::{GroupPlan, OperationPlan};
use crate::circuit::breaker::Forced;

const SCHEDULES: u64 = 50_000;
/// Nobody waits longer, and the numbers of a window end soon after.
const LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is {text:?}, and no number")),
    )
}

// R1, R9, R10, R23, R24, R25, R26, R28, R29, R32, R34, R36, R39, R43, R82, R139: under every schedule.
#[test]
fn every_schedule_keeps_the_rules() {
    if let Some(seed) = number("STEADFAST_SCHEDULE") {
        return run(seed, &mut Coverage::default(), true);
    }
    let schedules = number("STEADFAST_SCHEDULES").unwrap_or(SCHEDULES);
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let broken = AtomicU64::new(u64::MAX);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let seen = thread::scope(|scope| {
        let tried: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| some_of(&next, schedules, &broken)))
            .collect();
        let mut seen = Coverage::default();
        tried.into_iter().for_each(|tried| seen.add(tried.join().unwrap()));
        seen
    });
    let broken = broken.into_inner();
    if broken < u64::MAX {
        eprintln!("The schedule of the seed {broken}, alone by STEADFAST_SCHEDULE={broken}:");
        run(broken, &mut Coverage::default(), true);
    }
    println!(
        "{seen}{schedules:>12}  schedules in {:?} on {threads} threads",
        began.elapsed()
    );
    seen.assert_complete();
}

/// The schedules that nobody else has taken, up to the first that breaks a rule.
fn some_of(next: &AtomicU64, schedules: u64, broken: &AtomicU64) -> Coverage {
    let mut seen = Coverage::default();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= schedules.min(broken.load(Ordering::Relaxed)) {
            return seen;
        }
        if catch_unwind(AssertUnwindSafe(|| run(seed, &mut seen, false))).is_err() {
            broken.fetch_min(seed, Ordering::Relaxed);
        }
    }
}

fn run(seed: u64, seen: &mut Coverage, told: bool) {
    seen.note("schedule");
    let mut draw = Draw::new(seed);
    let epoch = draw.pick(&[
        Duration::ZERO,
        NANO,
        Duration::from_secs(3_600),
        Duration::from_secs(30 * 86_400),
    ]);
    let plans: Vec<_> = (0..draw.pick(&[1, 1, 2])).map(|_| GroupPlan::draw(&mut draw)).collect();
    let count = draw.pick(&[1, 1, 2, 3, 5, 8, 20]);
    let crowd = draw.pick(&[
        Duration::ZERO,
        Duration::from_millis(100),
        Duration::from_secs(20),
        Duration::from_secs(200),
    ]);
    let mut operations: Vec<_> = (0..count)
        .map(|_| OperationPlan::draw(&mut draw, &plans, crowd))
        .collect();
    for operation in &mut operations {
        operation.begins += epoch;
    }
    let mut orders = orders(&mut draw, plans.len(), epoch, crowd);
    let mut groups: Vec<_> = plans.iter().map(|_| Guards::new()).collect();
    let world = &mut World {
        draw: &mut draw,
        seen,
        told,
    };
    if told {
        plans.iter().for_each(|plan| eprintln!("{plan:?}"));
    }
    let callers = operations.iter().enumerate();
    let mut callers: Vec<_> = callers
        .map(|(number, plan)| (plan.group, Caller::new(number, plan, world)))
        .collect();
    let end = epoch + LIFETIME;
    let mut now = epoch;
    loop {
        let due = callers.iter().enumerate();
        let due = due.filter_map(|(index, (_, caller))| Some((caller.due()?, index)));
        let Some((at, index)) = due.min() else { break };
        if let Some((_, group, forced)) = orders.last().copied().filter(|(order, ..)| *order <= at) {
            orders.pop();
            world.seen.note("circuit held by an operator");
            groups[group].force(forced);
            continue;
        }
        // What would come after the end comes now, since it is dropped.
        now = if at > end { now } else { at.max(now) };
        let (group, caller) = &mut callers[index];
        caller.step(now, &mut groups[*group], plans[*group].weather, end, world);
    }
    for (guards, plan) in groups.into_iter().zip(&plans) {
        guards.close(plan, now, world.seen);
    }
}

/// What an operator says of the circuits, the last first.
fn orders(draw: &mut Draw, groups: usize, epoch: Duration, crowd: Duration) -> Vec<(Duration, usize, Option<Forced>)> {
    let count = if draw.percent(4) { draw.below(3) } else { 0 };
    let mut orders: Vec<_> = (0..count)
        .map(|_| {
            let forced = draw.pick(&[None, Some(Forced::Open), Some(Forced::Closed)]);
            let at = draw.within(crowd.max(Duration::from_secs(1)));
            (epoch + at, draw.below(groups as u64) as usize, forced)
        })
        .collect();
    orders.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
    orders
}

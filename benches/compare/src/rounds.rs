//! Rounds: every stack in each of them, in an order that rotates, and each compared with the first of its own round.

use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use stats_alloc::Region;
use tokio::runtime::Runtime;

use crate::ALLOCATOR;
use crate::stacks::{Call, Stack};

/// What one stack takes beside the first, for one kind of call.
pub struct Row {
    pub name: &'static str,
    pub wall: Ratio,
    pub cpu: Ratio,
    /// More than the first, for each call.
    pub allocations: f64,
    pub bytes: f64,
    /// Of one call, in microseconds.
    pub micros: f64,
}

/// The mean of the ratios of all rounds, and where it is with a probability of 95 %.
#[derive(Clone, Copy)]
pub struct Ratio {
    pub low: f64,
    pub mean: f64,
    pub high: f64,
}

impl Ratio {
    fn of(ratios: impl Iterator<Item = f64> + Clone) -> Self {
        let logs = ratios.map(f64::ln);
        let count = logs.clone().count() as f64;
        let mean = logs.clone().sum::<f64>() / count;
        let variance = logs.map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let half = 1.96 * (variance / count).sqrt();
        Self {
            low: (mean - half).exp(),
            mean: mean.exp(),
            high: (mean + half).exp(),
        }
    }
}

/// The time of one round of one stack, for each call.
#[derive(Clone, Copy, Default)]
pub struct Time {
    wall: f64,
    cpu: f64,
}

pub fn timed(calls: u32, run: impl FnOnce()) -> Time {
    let (wall, cpu) = (Instant::now(), ProcessTime::now());
    run();
    let per_call = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(calls);
    Time {
        wall: per_call(wall.elapsed()),
        cpu: per_call(cpu.elapsed()),
    }
}

/// Runs `count` rounds of all, in rotated order, after one that does not count.
pub fn interleaved(count: usize, stacks: usize, mut round: impl FnMut(usize) -> Time) -> Vec<Vec<Time>> {
    let mut times = vec![vec![Time::default(); stacks]; count];
    for stack in 0..stacks {
        round(stack);
    }
    for (number, times) in times.iter_mut().enumerate() {
        for place in 0..stacks {
            let stack = (number + place) % stacks;
            times[stack] = round(stack);
        }
    }
    times
}

pub fn ratios(times: &[Vec<Time>], stack: usize) -> (Ratio, Ratio, f64) {
    let wall = times.iter().map(|round| round[stack].wall / round[0].wall);
    let cpu = times.iter().map(|round| round[stack].cpu / round[0].cpu);
    let micros = times.iter().map(|round| round[stack].wall).sum::<f64>() / times.len() as f64;
    (Ratio::of(wall), Ratio::of(cpu), micros)
}

/// All stacks with one kind of call, one call after the other.
pub fn measure(runtime: &Runtime, stacks: &[Stack], call: &Call, rounds: usize, calls: u32) -> Vec<Row> {
    let many = |stack: &Stack, calls: u32| {
        let status = runtime.block_on(stack.calls(call, calls)).expect("an answer");
        assert!(status.is_success(), "{}: {status}", stack.name);
    };
    let times = interleaved(rounds, stacks.len(), |stack| {
        timed(calls, || many(&stacks[stack], calls))
    });
    let spent: Vec<_> = stacks
        .iter()
        .map(|stack| allocated(calls, || many(stack, calls)))
        .collect();
    let row = |(number, stack): (usize, &Stack)| {
        let (wall, cpu, micros) = ratios(&times, number);
        Row {
            name: stack.name,
            wall,
            cpu,
            allocations: spent[number].0 - spent[0].0,
            bytes: spent[number].1 - spent[0].1,
            micros,
        }
    };
    stacks.iter().enumerate().map(row).collect()
}

/// Allocations and bytes for each call.
fn allocated(calls: u32, run: impl Fn()) -> (f64, f64) {
    run();
    let region = Region::new(ALLOCATOR);
    run();
    let change = region.change();
    let per_call = |total: usize| total as f64 / f64::from(calls);
    (per_call(change.allocations), per_call(change.bytes_allocated))
}

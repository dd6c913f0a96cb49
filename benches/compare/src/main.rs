//! Steadfast beside what else sends requests again: time, allocations and behaviour, measured in one process.
//!
//! `cargo run --release --manifest-path benches/compare/Cargo.toml` writes `docs/benchmarks.md`.

mod bare_cpu;
mod probes;
mod report;
mod rounds;
mod server;
mod stacks;

use std::alloc::System;
use std::sync::Arc;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::runtime::{Builder, Runtime};

use rounds::{Row, interleaved, measure, ratios, timed};
use stacks::{Call, Settings, Stack};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ROUNDS: usize = 40;
const CALLS: u32 = 300;
const TASKS: u32 = 64;

fn main() -> std::io::Result<()> {
    server::pin(0);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut report = report::Report::new();
    for (place, core) in [("two cores", 1), ("one core", 0)] {
        let address = server::start(core);
        for (title, call, calls) in [
            ("GET", Call::get(format!("http://{address}/ok")), CALLS),
            (
                "POST of 1 KiB, without a key",
                Call::post(format!("http://{address}/ok"), false),
                CALLS,
            ),
            (
                "POST of 1 KiB, with a fresh key",
                Call::post(format!("http://{address}/ok"), true),
                CALLS,
            ),
        ] {
            let rows = measure(&runtime, &stacks::all(Settings::MEASURED), &call, ROUNDS, calls);
            report.calls(&format!("{title}, client and server on {place}"), &rows);
        }
    }
    let address = server::start(1);
    for (title, path) in [
        ("503, 503, 200 with bodies of 2 bytes", "heals"),
        ("503, 503, 200 with bodies of 64 KiB", "heals-large"),
    ] {
        let call = Call::get(format!("http://{address}/{path}"));
        report.retries(title, &retried(&runtime, &call));
    }
    report.tasks(&tasks(&Call::get(format!("http://{address}/ok"))));
    report.bare_cpu(&bare_cpu::measure(&runtime));
    report.probes(&probes::all());
    report.write()
}

/// A way of sending that repeats, beside a loop by hand that drains what failed; and the connections it makes for 200 calls.
fn retried(runtime: &Runtime, call: &Call) -> Vec<(Row, u64)> {
    use std::sync::atomic::Ordering::Relaxed;
    let repeats = |stack: &Stack| !stack.name.starts_with("bare") && !stack.name.contains(".timeout");
    let mut stacks = vec![stacks::by_hand()];
    stacks.extend(stacks::all(Settings::MEASURED).into_iter().filter(repeats));
    let rows = measure(runtime, &stacks, call, ROUNDS, 60);
    let connections = stacks.iter().map(|stack| {
        let before = server::CONNECTIONS.load(Relaxed);
        runtime.block_on(stack.calls(call, 200)).expect("an answer");
        server::CONNECTIONS.load(Relaxed) - before
    });
    let connections: Vec<_> = connections.collect();
    rows.into_iter().zip(connections).collect()
}

/// Sixty-four tasks on two threads.
fn tasks(call: &Call) -> Vec<Row> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let stacks: Vec<_> = stacks::all(Settings::MEASURED).into_iter().map(Arc::new).collect();
    let each = 20;
    let times = interleaved(ROUNDS, stacks.len(), |number| {
        timed(TASKS * each, || {
            runtime.block_on(async {
                let tasks = (0..TASKS).map(|_| {
                    let (stack, call) = (Arc::clone(&stacks[number]), call.clone());
                    tokio::spawn(async move { stack.calls(&call, each).await.expect("an answer") })
                });
                for task in tasks.collect::<Vec<_>>() {
                    task.await.expect("a task that ends");
                }
            });
        })
    });
    let row = |(number, stack): (usize, &Arc<Stack>)| {
        let (wall, cpu, micros) = ratios(&times, number);
        Row {
            name: stack.name,
            wall,
            cpu,
            allocations: 0.0,
            bytes: 0.0,
            micros,
        }
    };
    stacks.iter().enumerate().map(row).collect()
}

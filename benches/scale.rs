//! What many of everything cost: operations in flight, groups, threads.
//!
//! `cargo bench --bench scale` prints the table below and fails where a bound is broken. Bytes are exact; a time is the best
//! of interleaved rounds, and means something beside the other only.
//!
//! | what | bound |
//! |---|---|
//! | 100 000 operations in flight | 6 KiB each, all of it given back at their end |
//! | an operation where there are 100 000 groups | 1.5 times one where there is one |
//! | operations of two threads on one group | 1.5 times the time of one thread |
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, missing_docs)]

use std::alloc::System;
use std::future::{pending, ready};
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use reqwest::{Request, Response, ResponseBuilderExt};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use steadfast::{CircuitBreaker, Client, Policy};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, yield_now};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const URL: &str = "https://api.example.com/charges";
const IN_FLIGHT: usize = 100_000;
const GROUPS: usize = 100_000;
const ROUNDS: u32 = 40;
const CALLS: u32 = 2_000;

fn main() {
    let mut broken = false;
    let mut bound = |held: bool| {
        broken |= !held;
        if held { "" } else { "  <- BROKEN" }
    };

    let (bytes, kept) = in_flight();
    let mark = bound(bytes <= 6 * 1024 && kept * 100 < bytes);
    println!("{IN_FLIGHT} operations in flight: {bytes} bytes each, {kept} left of them at their end{mark}");

    let runtime = runtime();
    let [few, many] = [client(), client()];
    runtime.block_on(async {
        for number in 0..GROUPS {
            let request = many.get(URL).circuit(format!("tenant-{number}"));
            // What failed is remembered.
            let _ = request
                .max_attempts(1)
                .send_with(|_| ready(Err::<Response, _>(io::Error::from(io::ErrorKind::TimedOut))))
                .await;
        }
    });
    let mut best = [Duration::MAX; 3];
    for _ in 0..ROUNDS {
        best[0] = best[0].min(sent(&runtime, &few));
        best[1] = best[1].min(sent(&runtime, &many));
        best[2] = best[2].min(by_two_threads(&few));
    }
    let nanos = best.map(|time| time.as_secs_f64() * 1e9 / f64::from(CALLS));
    println!("an operation, one group:        {:>6.0} ns", nanos[0]);
    let groups = many.circuits().list().len();
    let mark = bound(groups > GROUPS && best[1] < best[0] * 3 / 2);
    println!("the same, {groups} groups:      {:>6.0} ns{mark}", nanos[1]);
    let mark = bound(best[2] < best[0] * 3 / 2);
    println!("of each of two threads:         {:>6.0} ns{mark}", nanos[2]);
    assert!(!broken, "a bound is broken");
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn client() -> Client {
    let policy = Policy::builder().circuit_breaker(CircuitBreaker::default());
    let client = Client::builder(reqwest::Client::new());
    client.policy(policy.build().expect("a policy")).build()
}

/// The bytes of one operation among many that wait for their answers, its task included; and what is left of it.
fn in_flight() -> (usize, usize) {
    let client = client();
    runtime().block_on(async {
        let begun = Arc::new(AtomicUsize::new(0));
        let mut operations = JoinSet::new();
        let region = Region::new(ALLOCATOR);
        for _ in 0..IN_FLIGHT {
            let (client, begun) = (client.clone(), Arc::clone(&begun));
            operations.spawn(async move {
                let silent = |_| {
                    begun.fetch_add(1, Relaxed);
                    pending::<io::Result<Response>>()
                };
                client.post(URL).body("amount=1").send_with(silent).await.is_ok()
            });
        }
        while begun.load(Relaxed) < IN_FLIGHT {
            yield_now().await;
        }
        let held = |change: stats_alloc::Stats| change.bytes_allocated.saturating_sub(change.bytes_deallocated);
        let bytes = held(region.change()) / IN_FLIGHT;
        operations.shutdown().await;
        (bytes, held(region.change()) / IN_FLIGHT)
    })
}

fn sent(runtime: &Runtime, client: &Client) -> Duration {
    let ok = |request: Request| {
        let response = http::Response::builder().url(request.url().clone());
        ready(Ok::<Response, io::Error>(
            response.body("ok").expect("a response").into(),
        ))
    };
    let begun = Instant::now();
    runtime.block_on(async {
        for _ in 0..CALLS {
            black_box(client.get(URL).send_with(ok).await.is_ok());
        }
    });
    begun.elapsed()
}

/// The longer of the times that two threads take for as many calls each.
fn by_two_threads(client: &Client) -> Duration {
    let run = || sent(&runtime(), client);
    thread::scope(|scope| {
        let other = scope.spawn(run);
        run().max(other.join().expect("the other thread"))
    })
}

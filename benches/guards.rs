//! What the guards cost: circuit, retry budget and the look-up of their group.
//!
//! `cargo bench --bench guards` prints the table below and fails where a bound is broken. Times are the best of many
//! interleaved rounds and mean something beside each other only; instructions are counted by valgrind, if it is installed.
//!
//! | what | bound |
//! |---|---|
//! | the guards of an attempt that succeeds | no allocation, and the time of one `Request::try_clone` |
//! | the same by two threads on one group | 3 times the time of one |
//! | a refusal, beside making the error of one alone | printed |
//! | 100 000 groups | kept, and under 64 MiB |
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub
)]

use std::alloc::System;
use std::borrow::Cow;
use std::error::Error;
use std::future::{Future, ready};
use std::hint::black_box;
use std::pin::pin;
use std::process::Command;
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use std::{env, fmt, io, thread};

use circuit::breaker::Health;
use circuit::group::Pass;
use circuit::name::GroupName;
use circuit::registry::Registry;
use circuit::settings::CircuitBreaker;
use reqwest::{Method, Request, Response, Url};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use steadfast::{Client, ErrorKind, Policy, RequestBuilder};

// The guards themselves, without the operation around them and without their tests.
#[allow(dead_code)]
#[path = "../src/backoff.rs"]
mod backoff;
#[allow(dead_code)]
#[path = "../src/budget.rs"]
mod budget;
#[allow(dead_code, unused_imports)]
#[path = "../src/circuit"]
mod circuit {
    pub(crate) mod breaker;
    pub(crate) mod group;
    pub(crate) mod name;
    pub(crate) mod registry;
    pub(crate) mod settings;
    mod window;
}
#[allow(dead_code, unused_imports)]
#[path = "../src/redacted.rs"]
mod redacted;
#[path = "../src/sync.rs"]
mod sync;
#[allow(dead_code)]
#[path = "../src/violation.rs"]
mod violation;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const URL: &str = "https://api.example.com/charges";
const ROUNDS: u32 = 60;
const CALLS: u32 = 20_000;
const GROUPS: usize = 100_000;

fn main() {
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    // Under valgrind: one path, so many times.
    if let [path, calls] = &arguments[..] {
        return play(path, calls.parse().expect("a number of calls"));
    }
    let mut broken = false;
    let mut bound = |held: bool| {
        broken |= !held;
        if held { "" } else { "  <- BROKEN" }
    };

    let guards = Guards::new();
    let request = request();
    let [clone, guarded, pair] = best([
        &|| per_call(CALLS, || drop(black_box(request.try_clone()))),
        &|| per_call(CALLS, || guards.of_a_success()),
        &|| by_two_threads(&guards),
    ]);
    println!("Request::try_clone                      {:>9.1} ns", nanos(clone));
    let held = bound(guarded <= clone);
    println!(
        "guards of an attempt that succeeds      {:>9.1} ns{held}",
        nanos(guarded)
    );
    let held = bound(pair <= guarded * 3);
    println!("  by two threads on one group           {:>9.1} ns{held}", nanos(pair));

    let region = Region::new(ALLOCATOR);
    guards.of_a_success();
    let allocations = region.change().allocations;
    let held = bound(allocations == 0);
    println!("  allocations                           {allocations:>9}{held}");

    let region = Region::new(ALLOCATOR);
    let many = registry_of(GROUPS);
    let change = region.change();
    let held = change.bytes_allocated.saturating_sub(change.bytes_deallocated);
    let mark = bound(many.all().len() == GROUPS && many.evicted() == 0 && held < 64 << 20);
    println!("{GROUPS} groups                           {:>9} bytes{mark}", held);

    println!("\ninstructions per call");
    for path in ["try_clone", "guards", "error", "refusal"] {
        match instructions(path) {
            Ok(count) => println!("  {path:<10} {count:>9}"),
            Err(error) => println!("  {path:<10} not counted: {error}"),
        }
    }
    assert!(!broken, "a bound is broken");
}

/// What an operation does with its guards when its only attempt succeeds.
struct Guards {
    registry: Registry,
    url: Url,
    settings: CircuitBreaker,
    limits: budget::Limits,
}

impl Guards {
    fn new() -> Self {
        Self {
            registry: Registry::new(),
            url: URL.parse().expect("a URL"),
            settings: CircuitBreaker::default(),
            limits: budget::RetryBudget::default().limits.expect("limits"),
        }
    }

    fn of_a_success(&self) {
        let now = self.registry.time(tokio::time::Instant::now());
        let mut pass = Pass::new(self.registry.group(&GroupName::of(&self.url), now));
        pass.admit(now, Duration::MAX, &self.settings)
            .0
            .expect("a closed circuit");
        black_box(pass.record(Health::Success, now, &self.settings, || 0));
        pass.group().bucket().deposit(now, self.limits);
    }
}

fn registry_of(groups: usize) -> Registry {
    let registry = Registry::new();
    let settings = CircuitBreaker::default();
    let now = Duration::from_secs(60);
    for number in 0..groups {
        let name = format!("https://tenant-{number}.api.example.com:443");
        let mut pass = Pass::new(registry.group(&GroupName::read(name), now));
        // Something to remember.
        pass.admit(now, Duration::MAX, &settings).0.expect("a closed circuit");
        pass.record(Health::Failure, now, &settings, || 0);
    }
    registry
}

fn request() -> Request {
    Request::new(Method::GET, URL.parse().expect("a URL"))
}

/// A client whose circuit is open.
fn refusing() -> Client {
    let policy = Policy::builder().circuit_breaker(steadfast::CircuitBreaker::default());
    let client = Client::builder(reqwest::Client::new());
    let client = client.policy(policy.build().expect("a policy")).build();
    client.circuits().force_open("payments");
    client
}

fn refuse(client: &Client, request: Request) {
    let request = RequestBuilder::from_parts(client.clone(), request).circuit("payments");
    let operation = request.into_operation().expect("an operation");
    let send = |_| ready(Err::<Response, io::Error>(io::ErrorKind::Other.into()));
    let mut sending = pin!(operation.send_with(send));
    match sending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(error)) => assert_eq!(error.kind(), ErrorKind::CircuitOpen),
        _ => panic!("not refused at once"),
    }
}

/// The least a refusal can be, which has the request to drop like ours: a boxed error that names its circuit and the time left.
#[derive(Debug)]
struct Broken {
    circuit: Cow<'static, str>,
    retry_in: Duration,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is open for another {:?}", self.circuit, self.retry_in)
    }
}

impl Error for Broken {}

fn make_error(request: Request) -> Box<dyn Error> {
    drop(request);
    Box::new(Broken {
        circuit: Cow::Owned("payments".to_owned()),
        retry_in: Duration::from_secs(5),
    })
}

fn play(path: &str, calls: u32) {
    let guards = Guards::new();
    let client = refusing();
    let template = request();
    for _ in 0..calls {
        match path {
            "try_clone" => drop(black_box(template.try_clone())),
            "guards" => guards.of_a_success(),
            "error" => drop(black_box(make_error(template.try_clone().expect("a request")))),
            "refusal" => refuse(&client, template.try_clone().expect("a request")),
            _ => panic!("no such path: {path}"),
        }
    }
}

/// By the difference of two runs, which leaves out what is done once.
fn instructions(path: &str) -> Result<u64, Box<dyn Error>> {
    let run = |calls: u64| -> Result<u64, Box<dyn Error>> {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(env::current_exe()?)
            .args([path, &calls.to_string()])
            .output()?;
        let report = String::from_utf8(output.stderr)?;
        let collected = report.lines().find_map(|line| line.split_once("Collected : "));
        let (_, count) = collected.ok_or_else(|| report.clone())?;
        Ok(count.trim().parse()?)
    };
    Ok((run(3_000)? - run(1_000)?) / 2_000)
}

/// The best round of each, all of them in turn.
fn best<const N: usize>(paths: [&dyn Fn() -> Duration; N]) -> [Duration; N] {
    let mut best = [Duration::MAX; N];
    for _ in 0..ROUNDS {
        for (best, path) in best.iter_mut().zip(paths) {
            *best = path().min(*best);
        }
    }
    best
}

/// The time of so many calls.
fn per_call(calls: u32, call: impl Fn()) -> Duration {
    let started = Instant::now();
    for _ in 0..calls {
        call();
    }
    started.elapsed()
}

/// The time in which each of two threads makes so many calls.
fn by_two_threads(guards: &Guards) -> Duration {
    let start = Barrier::new(2);
    let run = || {
        start.wait();
        per_call(CALLS, || guards.of_a_success())
    };
    thread::scope(|scope| {
        let other = scope.spawn(run);
        let own = run();
        own.max(other.join().expect("the other thread"))
    })
}

fn nanos(all: Duration) -> f64 {
    all.as_secs_f64() * 1e9 / f64::from(CALLS)
}

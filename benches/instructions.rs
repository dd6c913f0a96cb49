//! How many instructions each path takes, counted by valgrind: the same number on a busy machine and an idle one.
//!
//! `cargo bench --bench instructions` compares them with `benches/instructions.txt` and fails where one has grown by more
//! than 5 %. `cargo bench --bench instructions -- --write` writes the file anew: a change that is dearer says so there.
//!
//! An operation is sent over a transport that answers at once. Of its parts, those that stand alone are played alone, by the
//! source of the crate; the decision is counted inside an operation, from its call to its end.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use std::{env, fs, io};

use circuit::breaker::Health;
use circuit::group::Pass;
use circuit::name::GroupName;
use circuit::registry::Registry;
use http::HeaderMap;
use reqwest::{Request, Response, ResponseBuilderExt, Url};
use retry_after::Obeyed;
use steadfast::{Backoff, CircuitBreaker, Client, Policy, RequestBuilder};
use tokio::runtime::Builder;

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
#[allow(dead_code)]
#[path = "../src/retry_after.rs"]
mod retry_after;
#[path = "../src/sync.rs"]
mod sync;
#[allow(dead_code)]
#[path = "../src/violation.rs"]
mod violation;

const URL: &str = "https://api.example.com/charges";
/// A count may be so much above the one that is written down.
const TOLERANCE: f64 = 1.05;

/// A path, how it is played, and the function that is counted alone.
const PATHS: [(&str, &str, Option<&str>); 11] = [
    ("Request::try_clone", "clone", None),
    ("a GET that succeeds", "get", None),
    ("a POST with a key that succeeds", "post", None),
    ("a GET that is repeated once", "retry", None),
    ("a refusal by an open circuit", "refusal", None),
    (
        "the decision after an attempt",
        "get",
        Some("steadfast::decision::Machine::judge"),
    ),
    ("Retry-After", "retry_after", None),
    ("a wait with jitter", "backoff", None),
    ("a token of the budget and back", "budget", None),
    ("an attempt under a circuit", "circuit", None),
    ("the look-up of a group", "group", None),
];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match &arguments[..] {
        // Under valgrind.
        [operation, calls] => return play(operation, calls.parse()?),
        [write] if write == "--write" => {}
        [] => {}
        _ => return Err("the only argument is --write".into()),
    }
    let counted = PATHS.map(|(path, play, function)| (path, count(play, function)));
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.txt");
    let mut lines = String::new();
    let mut grown = Vec::new();
    let text = fs::read_to_string(&file).unwrap_or_default();
    let written = written(&text);
    for (path, count) in counted {
        let count = count?;
        let before = written.get(path).copied();
        let change = before.map_or(String::new(), |before| {
            format!("{:+.1} %", 100.0 * (ratio(count, before) - 1.0))
        });
        println!("{count:>7}  {path:<42} {change}");
        lines += &format!("{count} {path}\n");
        if before.is_none_or(|before| ratio(count, before) > TOLERANCE) {
            grown.push(path);
        }
    }
    if !arguments.is_empty() {
        fs::write(&file, lines)?;
    } else if !grown.is_empty() {
        return Err(format!("more than 5 % above {}: {}", file.display(), grown.join(", ")).into());
    }
    Ok(())
}

fn ratio(count: u64, before: u64) -> f64 {
    count as f64 / before as f64
}

fn written(lines: &str) -> BTreeMap<&str, u64> {
    lines
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(count, path)| Some((path, count.parse().ok()?)))
        .collect()
}

/// By the difference of two runs, which leaves out what is done once.
fn count(play: &str, function: Option<&str>) -> Result<u64, Box<dyn Error>> {
    const CALLS: [u64; 2] = [1_000, 3_000];
    let run = |calls: u64| -> Result<u64, Box<dyn Error>> {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        if let Some(function) = function {
            valgrind.arg(format!("--toggle-collect={function}*"));
        }
        let output = valgrind
            .arg(env::current_exe()?)
            .args([play, &calls.to_string()])
            .output()?;
        let report = String::from_utf8(output.stderr)?;
        let collected = report.lines().find_map(|line| line.split_once("Collected : "));
        let (_, count) = collected.ok_or_else(|| report.clone())?;
        Ok(count.trim().parse()?)
    };
    let count = (run(CALLS[1])? - run(CALLS[0])?) / (CALLS[1] - CALLS[0]);
    match count {
        0 => Err(format!("{function:?} is no function any more").into()),
        count => Ok(count),
    }
}

fn client() -> Client {
    let policy = Policy::builder()
        .max_attempts(2)
        .backoff(Backoff::none())
        .budget(steadfast::RetryBudget::new(1.0, 1_000_000))
        .circuit_breaker(CircuitBreaker::default().minimum_throughput(1_000_000));
    let client = Client::builder(reqwest::Client::new());
    client.policy(policy.build().expect("a policy")).seed(1).build()
}

fn answer(request: &Request, status: u16) -> Ready<io::Result<Response>> {
    let response = http::Response::builder().status(status).url(request.url().clone());
    // A date that is past asks for nothing.
    let response = response.header("retry-after", "Mon, 01 Jan 2024 00:00:00 GMT");
    ready(Ok(response.body("ok").expect("a response").into()))
}

fn play(operation: &str, calls: u32) -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let client = client();
    let template = client.get(URL).build()?;
    let backoff = Backoff::full_jitter(Duration::from_millis(100), Duration::from_secs(10));
    let attempts = AtomicU32::new(0);
    let ok = |request: Request| answer(&request, 200);
    let heals = |request: Request| {
        answer(
            &request,
            if attempts.fetch_add(1, Relaxed) % 2 == 0 {
                503
            } else {
                200
            },
        )
    };
    if operation == "refusal" {
        client.circuits().force_open("https://api.example.com");
    }
    let registry = Registry::new();
    let url: Url = URL.parse()?;
    let group = registry.group(&GroupName::of(&url), Duration::ZERO);
    let limits = budget::RetryBudget::default().limits.expect("limits");
    let settings = circuit::settings::CircuitBreaker::default();
    let obeyed = Obeyed {
        retry_after: true,
        retry_after_ms: true,
    };
    let mut asking = HeaderMap::new();
    asking.insert("retry-after", "Mon, 01 Jan 2024 00:00:00 GMT".parse()?);
    runtime.block_on(async {
        for number in 0..calls {
            let now = Duration::from_millis(u64::from(number));
            match operation {
                "clone" => drop(black_box(template.try_clone())),
                "get" => drop(black_box(client.get(URL).send_with(ok).await)),
                "post" => drop(black_box(client.post(URL).body("amount=1").send_with(ok).await)),
                "retry" => drop(black_box(client.get(URL).send_with(heals).await)),
                "refusal" => {
                    let request = template.try_clone().expect("a request");
                    let sent = RequestBuilder::from_parts(client.clone(), request).send_with(ok).await;
                    drop(black_box(sent));
                }
                "backoff" => drop(black_box(backoff.wait(2, None, false, u64::from(number)))),
                "retry_after" => drop(black_box(retry_after::asked(&asking, obeyed, SystemTime::now))),
                "budget" => {
                    black_box(group.bucket().withdraw(now, limits));
                    group.bucket().deposit(now, limits);
                }
                "circuit" => {
                    let mut pass = Pass::new(Arc::clone(&group));
                    pass.admit(now, Duration::MAX, &settings).0.expect("a closed circuit");
                    black_box(pass.record(Health::Success, now, &settings, || 0));
                }
                "group" => drop(black_box(registry.group(&GroupName::of(&url), now))),
                other => panic!("no such operation: {other}"),
            }
        }
    });
    Ok(())
}

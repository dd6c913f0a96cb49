//! What the stacks do where a server fails: each is asked in the same way.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::server;
use crate::stacks::{self, Call, Settings, Stack};

/// One line for each probe: what it asks, and what each stack does.
pub struct Probes {
    pub names: Vec<&'static str>,
    pub lines: Vec<(&'static str, Vec<String>)>,
}

const PATIENCE: Duration = Duration::from_secs(4);

pub fn all() -> Probes {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let stacks = || {
        let mut stacks = stacks::all(Settings::PROBED);
        stacks.retain(|stack| {
            !matches!(
                stack.name,
                "bare reqwest" | "bare reqwest, again" | "Steadfast by `from_builder`"
            )
        });
        stacks.push(stacks::with_circuit());
        stacks
    };
    let ask = |probe: fn(&Runtime, &Stack) -> String| -> Vec<String> {
        stacks().iter().map(|stack| probe(&runtime, stack)).collect()
    };
    Probes {
        names: stacks().iter().map(|stack| stack.name).collect(),
        lines: vec![
            (
                "a server that is silent",
                ask(|runtime, stack| stalled(runtime, stack, "silent")),
            ),
            (
                "a body that stalls in its middle",
                ask(|runtime, stack| stalled(runtime, stack, "half")),
            ),
            ("`Retry-After: 1`", ask(retry_after)),
            (
                "a keyless POST whose connection is closed without an answer",
                ask(keyless),
            ),
            ("a key on a POST that brings none", ask(keyed)),
            ("requests of 1 000 calls to a server that answers 503", ask(outage)),
        ],
    }
}

/// Requests that came while this was done.
fn requests(run: impl FnOnce()) -> u64 {
    let before = server::REQUESTS.load(Relaxed);
    run();
    server::REQUESTS.load(Relaxed) - before
}

fn stalled(runtime: &Runtime, stack: &Stack, path: &str) -> String {
    let call = Call::get(format!("http://{}/{path}", server::start(1)));
    let mut ended = false;
    let count = requests(|| {
        ended = runtime.block_on(async { timeout(PATIENCE, stack.call(&call)).await.is_ok() });
    });
    match (ended, count) {
        (false, _) => "hangs".to_owned(),
        (true, 1) => "cut".to_owned(),
        (true, _) => "cut, repeated".to_owned(),
    }
}

fn retry_after(runtime: &Runtime, stack: &Stack) -> String {
    server::REQUESTS.store(0, Relaxed);
    let call = Call::get(format!("http://{}/busy", server::start(1)));
    let begun = Instant::now();
    let answer = runtime.block_on(async { timeout(PATIENCE, stack.call(&call)).await });
    let healed = matches!(answer, Ok(Ok(status)) if status.is_success());
    match (healed, begun.elapsed() >= Duration::from_secs(1)) {
        (true, true) => "waited for",
        (true, false) => "not waited for",
        (false, _) => "not repeated",
    }
    .to_owned()
}

fn keyless(runtime: &Runtime, stack: &Stack) -> String {
    let mut call = Call::post(format!("http://{}/reset", server::start(1)), false);
    call.repeatable = false;
    let count = requests(|| {
        let _ = runtime.block_on(async { timeout(PATIENCE, stack.call(&call)).await });
    });
    format!("sent {count} times").replace("sent 1 times", "sent once")
}

fn keyed(runtime: &Runtime, stack: &Stack) -> String {
    let mut call = Call::post(format!("http://{}/keyed", server::start(1)), false);
    call.own_key = true;
    let answer = runtime.block_on(async { timeout(PATIENCE, stack.call(&call)).await });
    match answer {
        Ok(Ok(status)) if status.is_success() => "yes",
        _ => "no",
    }
    .to_owned()
}

fn outage(runtime: &Runtime, stack: &Stack) -> String {
    let call = Call::get(format!("http://{}/down", server::start(1)));
    let count = requests(|| {
        runtime.block_on(async {
            for _ in 0..1_000 {
                let _ = stack.call(&call).await;
            }
        });
    });
    format!("{count}")
}

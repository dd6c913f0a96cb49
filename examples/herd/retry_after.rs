//! Study 3: clients that are told `Retry-After: 2` at the same moment, and when they come back.
//!
//! What the server asked for is a floor, on which each client draws its jitter: up to 100 ms after a 503, up to 1 s after a 429.
//! Clients that obey to the letter come back together.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Request, Response};
use steadfast::{Client, Policy, PolicyError, RetryBudget};
use tokio::task::JoinSet;
use tokio::time::Instant;

const ASKED: Duration = Duration::from_secs(2);
pub(crate) const WINDOW: Duration = Duration::from_millis(20);

/// When the second requests came, in windows since the answer to the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrivals {
    pub(crate) windows: Vec<u32>,
    /// The first of them.
    pub(crate) first: Duration,
}

impl Arrivals {
    pub(crate) fn peak(&self) -> u32 {
        self.windows.iter().copied().max().unwrap_or(0)
    }
}

/// Plays so many clients against a server that answers their first requests with `status`. It needs a runtime whose clock is
/// paused.
pub(crate) async fn arrivals(status: u16, clients: u32, seed: u64) -> Result<Arrivals, PolicyError> {
    // Each of the clients is a process of its own with a budget of its own, of which it needs one token. They share one
    // here, since a hundred thousand budgets would prove no more.
    let policy = Policy::builder().budget(RetryBudget::unlimited()).build()?;
    let client = Client::builder(reqwest::Client::new())
        .policy(policy)
        .seed(seed)
        .build();
    let answered = Instant::now();
    let came = Arc::new(Mutex::new(Vec::new()));
    let mut fleet = JoinSet::new();
    for _ in 0..clients {
        let (client, came) = (client.clone(), Arc::clone(&came));
        fleet.spawn(async move {
            let send = |_: Request| {
                let since = answered.elapsed();
                let first = since.is_zero();
                if !first {
                    came.lock().unwrap_or_else(PoisonError::into_inner).push(since);
                }
                async move { answer(if first { status } else { 200 }) }
            };
            client.get("http://service.example.com/").send_with(send).await
        });
    }
    fleet.join_all().await;
    let came = came.lock().unwrap_or_else(PoisonError::into_inner);
    let mut windows = Vec::new();
    for since in came.iter() {
        let number = (since.as_nanos() / WINDOW.as_nanos()) as usize;
        if windows.len() <= number {
            windows.resize(number + 1, 0);
        }
        if let Some(window) = windows.get_mut(number) {
            *window += 1;
        }
    }
    let first = came.iter().min().copied().unwrap_or_default();
    Ok(Arrivals { windows, first })
}

fn answer(status: u16) -> io::Result<Response> {
    let response = http::Response::builder()
        .status(status)
        .header("retry-after", ASKED.as_secs());
    response.body("").map(Response::from).map_err(io::Error::other)
}

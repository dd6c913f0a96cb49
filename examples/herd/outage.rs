//! Study 2: a service falls silent for a while, and has to take up its work while everybody repeats.
//!
//! A fleet of clients, each with its own retry budget and circuits, makes a steady number of operations a second. The service
//! has room for a quarter more. What comes beyond that waits in its queue, and is worked on even when its caller has given
//! up: that is how retries keep a service down that is long since well. In the outage it accepts requests and never answers.
//!
//! A budget is each client's own. It adds its burst and its trickle to what the client does in the outage: little for one that
//! does thousands of operations, and for one that does a handful it is no limit at all.
//!
//! The clients are the crate's own, over `send_with`, under the paused clock of tokio: no time passes but what they wait for.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Request, Response};
use steadfast::{Backoff, CircuitBreaker, Client, Policy, PolicyError, RetryBudget};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// What the clients do about failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guards {
    /// The same wait each time, and no budget.
    FixedWaits,
    /// Full jitter, and no budget.
    Jitter,
    /// The default policy.
    Budget,
    /// The default policy and the default circuit.
    Circuit,
    /// The default policy and a circuit whose open time does not grow.
    FixedCircuit,
}

impl Guards {
    pub(crate) const ALL: [Self; 5] = [
        Self::FixedWaits,
        Self::Jitter,
        Self::Budget,
        Self::Circuit,
        Self::FixedCircuit,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FixedWaits => "fixed backoff",
            Self::Jitter => "full jitter",
            Self::Budget => "budget (default)",
            Self::Circuit => "budget, circuit",
            Self::FixedCircuit => "budget, circuit of 5 s",
        }
    }

    fn policy(self) -> Result<Policy, PolicyError> {
        let policy = Policy::builder().attempt_timeout(PATIENCE);
        let policy = match self {
            Self::FixedWaits => policy.backoff(Backoff::constant(Duration::from_millis(100))),
            _ => policy,
        };
        match self {
            Self::FixedWaits | Self::Jitter => policy.budget(RetryBudget::unlimited()),
            Self::Budget => policy,
            Self::Circuit => policy.circuit_breaker(CircuitBreaker::default()),
            Self::FixedCircuit => {
                let fixed = Duration::from_secs(5);
                policy.circuit_breaker(CircuitBreaker::default().open_for(fixed).max_open_for(fixed))
            }
        }
        .build()
    }
}

/// The time a client gives an attempt.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) clients: u32,
    /// The operations a second of all clients together.
    pub(crate) rate: u32,
    /// In seconds: the time before the outage, of it, and after it.
    pub(crate) before: u32,
    pub(crate) outage: u32,
    pub(crate) after: u32,
    pub(crate) seed: u64,
}

/// What the service and the callers saw, second by second.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Course {
    plan: [u32; 4],
    /// The requests that reached the service.
    pub(crate) arrivals: Vec<u32>,
    /// The operations that began in that second and succeeded.
    pub(crate) successes: Vec<u32>,
}

impl Course {
    /// The requests of the whole outage, over the operations that began in it.
    pub(crate) fn load_in_outage(&self) -> f64 {
        let [rate, before, outage, _] = self.plan;
        let seconds = self.arrivals.iter().skip(before as usize).take(outage as usize);
        f64::from(seconds.sum::<u32>()) / f64::from(rate * outage)
    }

    /// The highest load of any second after the outage, over the normal one.
    pub(crate) fn peak_after(&self) -> f64 {
        let [rate, before, outage, _] = self.plan;
        let seconds = self.arrivals.iter().skip((before + outage) as usize);
        f64::from(seconds.copied().max().unwrap_or(0)) / f64::from(rate)
    }

    /// The seconds after the outage until all operations succeed and go on doing so; `None` if that time does not come.
    pub(crate) fn recovery(&self) -> Option<usize> {
        let [rate, before, outage, after] = self.plan;
        let end = (before + outage) as usize;
        let well = |successes: &u32| f64::from(*successes) >= 0.99 * f64::from(rate);
        let last_bad = self.successes.iter().rposition(|successes| !well(successes));
        let recovered = last_bad.map_or(0, |second| (second + 1).saturating_sub(end));
        (recovered < after as usize).then_some(recovered)
    }
}

/// Plays a plan. It needs a runtime whose clock is paused.
pub(crate) async fn outage(guards: Guards, plan: Plan) -> Result<Course, PolicyError> {
    let Plan {
        clients,
        rate,
        before,
        outage,
        after,
        seed,
    } = plan;
    let seconds = before + outage + after;
    let started = Instant::now();
    let service = Arc::new(Service {
        started,
        silent: seconds_of(before)..seconds_of(before + outage),
        work: Duration::from_secs(1) * 4 / (rate * 5),
        state: Mutex::new(State {
            arrivals: vec![0; seconds as usize],
            free_at: started,
        }),
    });
    let successes = Arc::new(Mutex::new(vec![0; seconds as usize]));
    let http = reqwest::Client::new();
    let policy = guards.policy()?;
    let mut fleet = JoinSet::new();
    for number in 0..clients {
        let client = Client::builder(http.clone())
            .policy(policy.clone())
            .seed(seed.wrapping_add(u64::from(number)))
            .build();
        let (service, successes) = (Arc::clone(&service), Arc::clone(&successes));
        fleet.spawn(async move {
            let mut operations = JoinSet::new();
            // One after the other, and no two clients at the same time.
            for operation in (number..seconds * rate).step_by(clients as usize) {
                let begins = Duration::from_secs(1) * operation / rate;
                sleep_until(started + begins).await;
                while operations.try_join_next().is_some() {}
                let (client, service, successes) = (client.clone(), Arc::clone(&service), Arc::clone(&successes));
                operations.spawn(async move {
                    let send = |_: Request| Arc::clone(&service).serve();
                    let result = client.get("http://service.example.com/").send_with(send).await;
                    if result.is_ok_and(|response| response.status() == 200) {
                        count(&mut lock(&successes), begins);
                    }
                });
            }
            operations.join_all().await;
        });
    }
    fleet.join_all().await;
    let arrivals = lock(&service.state).arrivals.clone();
    let successes = lock(&successes).clone();
    Ok(Course {
        plan: [rate, before, outage, after],
        arrivals,
        successes,
    })
}

struct Service {
    started: Instant,
    silent: std::ops::Range<Duration>,
    /// What one request takes.
    work: Duration,
    state: Mutex<State>,
}

struct State {
    arrivals: Vec<u32>,
    /// When the queue will be empty.
    free_at: Instant,
}

impl Service {
    async fn serve(self: Arc<Self>) -> io::Result<Response> {
        let now = Instant::now();
        let since = now.duration_since(self.started);
        let done_at = {
            let mut state = lock(&self.state);
            count(&mut state.arrivals, since);
            if self.silent.contains(&since) {
                None
            } else {
                state.free_at = state.free_at.max(now) + self.work;
                Some(state.free_at)
            }
        };
        match done_at {
            Some(done_at) => sleep_until(done_at).await,
            // Longer than anybody waits.
            None => sleep(PATIENCE * 10).await,
        }
        Ok(http::Response::new("").into())
    }
}

fn seconds_of(count: u32) -> Duration {
    Duration::from_secs(count.into())
}

/// What happens after the last second is not counted.
fn count(seconds: &mut [u32], at: Duration) {
    if let Some(second) = usize::try_from(at.as_secs())
        .ok()
        .and_then(|second| seconds.get_mut(second))
    {
        *second += 1;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

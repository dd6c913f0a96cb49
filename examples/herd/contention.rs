//! Study 1: many clients want to write one row, and all but one of those who come together are refused.
//!
//! The model is the one AWS published with its comparison of jitter ("Exponential Backoff And Jitter", 2015): each client reads the
//! version of the row and writes under it, and the write is refused if another one came between. A way over the network takes
//! |Normal(10 ms, 2 ms)|, waits grow from 5 ms to 2 s, and each write is a call.
//!
//! Two things differ between model and crate. The model doubles the base before the first wait already, so its waits are those of
//! the crate from the second retry on; they are taken here, to be comparable. Its decorrelated waits are cut off at the cap after the
//! draw, the crate's are drawn below it: as many calls, and less time at the end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::f64::consts::TAU;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use steadfast::Backoff;

const BASE: Duration = Duration::from_millis(5);
const CAP: Duration = Duration::from_secs(2);
const WAY_MEAN: f64 = 10e-3;
const WAY_DEVIATION: f64 = 2e-3;

/// How a client waits that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The bound itself: the exponential schedule that everybody has who failed together.
    NoJitter,
    Equal,
    Full,
    Decorrelated,
}

impl Waits {
    pub(crate) const ALL: [Self; 4] = [Self::NoJitter, Self::Equal, Self::Full, Self::Decorrelated];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NoJitter => "no jitter",
            Self::Equal => "equal jitter",
            Self::Full => "full jitter",
            Self::Decorrelated => "decorrelated jitter",
        }
    }

    fn backoff(self) -> Backoff {
        match self {
            Self::NoJitter | Self::Full => Backoff::full_jitter(BASE, CAP),
            Self::Equal => Backoff::equal_jitter(BASE, CAP),
            Self::Decorrelated => Backoff::decorrelated_jitter(BASE, CAP),
        }
    }
}

/// The mean over some runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Contention {
    /// The writes that were tried, by all clients together.
    pub(crate) calls: f64,
    /// The time until the last client was done.
    pub(crate) seconds: f64,
}

pub(crate) fn contention(waits: Waits, clients: usize, runs: u32, seed: u64) -> Contention {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut calls, mut seconds) = (0, 0.0);
    for _ in 0..runs {
        let run = Run::new(waits, clients, &mut rng).finish();
        calls += run.0;
        seconds += run.1.as_secs_f64();
    }
    Contention {
        calls: f64::from(calls) / f64::from(runs),
        seconds: seconds / f64::from(runs),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The client begins: a read is on its way.
    Begin,
    ReadArrives,
    VersionArrives(u32),
    WriteArrives(u32),
    Refused,
    Done,
}

struct Client {
    refusals: u32,
    previous: Option<Duration>,
}

struct Run<'a> {
    rng: &'a mut StdRng,
    jitter: bool,
    backoff: Backoff,
    clients: Vec<Client>,
    /// Soonest first; the number of the client makes the order of events at the same time certain.
    events: BinaryHeap<Reverse<(Duration, usize, Event)>>,
    version: u32,
    calls: u32,
}

impl<'a> Run<'a> {
    fn new(waits: Waits, clients: usize, rng: &'a mut StdRng) -> Self {
        let events = (0..clients).map(|client| Reverse((Duration::ZERO, client, Event::Begin)));
        Self {
            rng,
            jitter: waits != Waits::NoJitter,
            backoff: waits.backoff(),
            events: events.collect(),
            clients: (0..clients)
                .map(|_| Client {
                    refusals: 0,
                    previous: None,
                })
                .collect(),
            version: 0,
            calls: 0,
        }
    }

    fn finish(mut self) -> (u32, Duration) {
        let mut last = Duration::ZERO;
        while let Some(Reverse((now, client, event))) = self.events.pop() {
            let next = match event {
                Event::Begin => Event::ReadArrives,
                Event::ReadArrives => Event::VersionArrives(self.version),
                Event::VersionArrives(version) => Event::WriteArrives(version),
                Event::WriteArrives(version) => {
                    self.calls += 1;
                    let current = version == self.version;
                    self.version += u32::from(current);
                    if current { Event::Done } else { Event::Refused }
                }
                Event::Refused => {
                    let wait = self.wait(client);
                    self.events.push(Reverse((now + wait, client, Event::Begin)));
                    continue;
                }
                Event::Done => {
                    last = now;
                    continue;
                }
            };
            let way = self.way();
            self.events.push(Reverse((now + way, client, next)));
        }
        (self.calls, last)
    }

    fn wait(&mut self, client: usize) -> Duration {
        let random = if self.jitter { self.rng.next_u64() } else { u64::MAX };
        let Some(client) = self.clients.get_mut(client) else {
            return Duration::ZERO;
        };
        client.refusals += 1;
        let wait = self.backoff.wait(client.refusals + 1, client.previous, false, random);
        client.previous = Some(wait);
        wait
    }

    /// Box and Muller's way from two uniform numbers to a normal one.
    fn way(&mut self) -> Duration {
        let mut uniform = || (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let (radius, angle) = ((-2.0 * (1.0 - uniform()).ln()).sqrt(), TAU * uniform());
        Duration::from_secs_f64((WAY_MEAN + WAY_DEVIATION * radius * angle.cos()).abs())
    }
}

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::BodyExt;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::{Body, Request, Response, ResponseBuilderExt};
use tokio::time::sleep;

use super::Sending;
use super::reply::Cut;
use crate::classify::attempt_error::AttemptError;

/// What is done to an attempt on its way to a real service and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// No connection is made.
    Refused,
    /// The connection is lost before the service has read the request.
    LostRequest,
    /// The service acts, and the connection is lost before its answer.
    LostAnswer,
    /// A proxy answers with this status, and the service gets nothing.
    Status(u16),
    /// The service acts, and a proxy answers with this status.
    StatusAfter(u16),
    /// The service acts, and the body of its answer is cut in the middle.
    CutBody,
    /// The service acts, and nothing is heard of it.
    Silence,
    /// The request is delivered twice; the second answer is the one that comes back.
    Twice,
    /// The request is under way for so long.
    Delay(Duration),
}

/// Faults at random, the same ones for the same seed, between a client and a real service.
///
/// ```
/// use steadfast::testing::{Fault, Faults};
/// use steadfast::{Client, reqwest};
///
/// let http = reqwest::Client::new();
/// let faults = Faults::seeded(42).with(Fault::LostAnswer, 0.2).with(Fault::Status(503), 0.1);
/// let client = Client::builder(http.clone()).transport(faults.over(http)).build();
/// ```
///
/// For the same seed and the same order of requests the faults are the same. Print the seed where a test fails.
#[derive(Clone)]
pub struct Faults {
    shares: Vec<(Fault, f64)>,
    state: Arc<Mutex<State>>,
}

struct State {
    rng: StdRng,
    injected: Vec<Option<Fault>>,
}

impl Faults {
    /// None yet.
    pub fn seeded(seed: u64) -> Self {
        Self {
            shares: Vec::new(),
            state: Arc::new(Mutex::new(State {
                rng: StdRng::seed_from_u64(seed),
                injected: Vec::new(),
            })),
        }
    }

    /// Adds a fault that meets this share of the attempts: 0.1 is one of ten. An attempt meets one fault at most, so shares add
    /// up; those beyond 1 never come to pass.
    pub fn with(mut self, fault: Fault, share: f64) -> Self {
        self.shares.push((fault, share));
        self
    }

    /// What sends by a client, with the faults in between: for [`ClientBuilder::transport`](crate::ClientBuilder::transport).
    pub fn over(&self, http: reqwest::Client) -> impl Fn(Request) -> Sending + Send + Sync + use<> {
        let faults = self.clone();
        move |request| Box::pin(inject(faults.draw(), http.clone(), request))
    }

    /// What each attempt so far met; `None` is nothing.
    pub fn injected(&self) -> Vec<Option<Fault>> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .injected
            .clone()
    }

    fn draw(&self) -> Option<Fault> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left: f64 = state.rng.random();
        let fault = self.shares.iter().find_map(|(fault, share)| {
            left -= share;
            (left < 0.0).then_some(*fault)
        });
        state.injected.push(fault);
        fault
    }
}

async fn inject(fault: Option<Fault>, http: reqwest::Client, request: Request) -> Result<Response, AttemptError> {
    let failure = |kind: io::ErrorKind| Err(AttemptError::from(io::Error::from(kind)));
    match fault {
        Some(Fault::Refused) => return failure(io::ErrorKind::ConnectionRefused),
        Some(Fault::LostRequest) => {
            touch(request).await?;
            return failure(io::ErrorKind::ConnectionReset);
        }
        Some(Fault::Status(status)) => {
            let url = request.url().clone();
            touch(request).await?;
            return proxied(status, url);
        }
        Some(Fault::Delay(time)) => sleep(time).await,
        Some(Fault::Twice) => {
            if let Some(first) = request.try_clone() {
                // What becomes of it is not this one's to tell.
                let _ = http.execute(first).await;
            }
        }
        _ => {}
    }
    let response = http.execute(request).await?;
    match fault {
        Some(Fault::LostAnswer) => failure(io::ErrorKind::ConnectionReset),
        Some(Fault::StatusAfter(status)) => proxied(status, response.url().clone()),
        Some(Fault::Silence) => std::future::pending().await,
        Some(Fault::CutBody) => cut(response).await,
        _ => Ok(response),
    }
}

/// As a connection does that begins to send it.
async fn touch(mut request: Request) -> Result<(), AttemptError> {
    if let Some(body) = request.body_mut().take() {
        body.collect().await?;
    }
    Ok(())
}

fn proxied(status: u16, url: reqwest::Url) -> Result<Response, AttemptError> {
    let response = http::Response::builder().status(status).url(url).body(Body::default());
    response
        .map(Response::from)
        .map_err(|error| AttemptError::unknown(Box::new(error)))
}

async fn cut(response: Response) -> Result<Response, AttemptError> {
    let url = response.url().clone();
    let (mut parts, body) = http::Response::from(response).into_parts();
    let body = body.collect().await?.to_bytes();
    let cut = http::Response::builder()
        .status(parts.status)
        .url(url)
        .body(Body::wrap(Cut::halfway(&body)));
    let mut cut = cut.map_err(|error| AttemptError::unknown(Box::new(error)))?;
    std::mem::swap(cut.headers_mut(), &mut parts.headers);
    Ok(cut.into())
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults")
            .field("shares", &self.shares)
            .finish_non_exhaustive()
    }
}

//! Makes an HTTP operation happen once, or says honestly that it does not know.
//!
//! Wrap the `reqwest::Client` you have in a [`Client`]. Each call is then one *operation*: what the caller wants done,
//! once. It is tried a few times (*attempts*), each within a timeout and all within one deadline, spaced by full
//! jitter and never before the server's `Retry-After` allows. A POST or PATCH carries one idempotency key on every
//! attempt.
//!
//! ```
//! use std::time::Duration;
//! use steadfast::{Backoff, Client, Outcome, Policy, ResponseExt, StopReason, reqwest};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = Policy::builder()
//!     .deadline(Duration::from_secs(5))
//!     .backoff(Backoff::full_jitter(Duration::from_millis(10), Duration::from_secs(1)))
//!     .build()?;
//! let client = Client::builder(reqwest::Client::new()).policy(policy).build();
//!
//! // A server that answers the first attempt with a 502. Without `_with`, the request goes to the inner client.
//! let served = std::sync::atomic::AtomicU32::new(0);
//! let server = |request: reqwest::Request| {
//!     assert!(request.headers().contains_key("idempotency-key"));
//!     let first = served.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
//!     let status = if first { 502 } else { 201 };
//!     async move { http::Response::builder().status(status).body("").map(reqwest::Response::from).map_err(other) }
//! };
//! # fn other(error: http::Error) -> std::io::Error { std::io::Error::other(error) }
//! let response = client.post("http://localhost/charges").body("{}").send_with(server).await?;
//!
//! assert_eq!(response.status(), 201);
//! let attempts = response.attempts().ok_or("the record of the operation")?;
//! assert_eq!(attempts.len(), 2);
//! assert_eq!(attempts.stop_reason(), StopReason::Done);
//! assert_eq!(attempts.outcome(), Outcome::Completed);
//! // The 502 may have followed an effect, and only the service knows whether it looks at keys.
//! assert!(!attempts.exactly_once());
//! # Ok(())
//! # }
//! ```
//!
//! # What is repeated
//!
//! Each attempt ends in a [`Delivery`], which is what we know the server did with it. What was not sent or was rejected
//! is repeated whatever the method. What may have acted is repeated only if the operation is *replay-safe*: its method
//! is idempotent, it carries a key, or the caller vouches for it. Otherwise it is returned at once, with
//! [`Outcome::Unknown`].
//!
//! # What the service promises
//!
//! Without being told otherwise a client *assumes* that the service honours the header `Idempotency-Key`, retries trust in that, and
//! [`exactly_once`](Attempts::exactly_once) does not. An [`IdempotencyContract`] *declares* what the service promises: where the
//! key stands, which keys it takes, how long it remembers them, and what its answers say about one. What else a service
//! says in ways of its own is a [`Classifier`].
//!
//! # What comes back
//!
//! `Ok` with a plain `reqwest::Response` wherever there is one to give, a 503 after the last attempt included;
//! [`ResponseExt`] reads the record it carries and turns a failing status into an [`Error`]. An `Error` says what
//! failed last ([`ErrorKind`]), why there was no further attempt ([`StopReason`]), what is known of the effect
//! ([`Outcome`]), and gives the key back.
//!
//! # What is read, what is handed over
//!
//! A short body is read inside the attempt, so that a cut is a failed attempt and not a surprise. A long, endless or
//! streaming one is handed over at the headers; from then on only silence ends it ([`PolicyBuilder::stall_timeout`]), or
//! a deadline set on the request itself.
//!
//! # In an outage
//!
//! Retries of all operations of a group draw on one [`RetryBudget`], so that an outage sees hardly more requests than
//! there are operations. A [`CircuitBreaker`], if a policy has one, refuses attempts at once where most have failed;
//! [`Client::circuits`] shows and forces its state. The limits of whoever calls are kept by [`scope`].
//!
//! # The guide
//!
//! [`guide`] has a chapter for each question that comes up in a service: timeouts, keys and contracts, jobs and queues, webhooks,
//! streams, rate limits, circuits, and moving from another library.
//!
//! # Features
//!
//! `json`, `query`, `form` (default) and `multipart` open the methods of these names, `stream` opens reqwest's own
//! streams. TLS is the choice of your own reqwest dependency.
//!
//! * `serde`: a [`Policy`] from configuration, an [`IdempotencyKey`] that is stored;
//! * `metrics`: numbers of what operations do, by the crate of this name;
//! * `tower`: a client as a service, and a stack as what sends its attempts;
//! * `middleware`: errors of `reqwest-middleware` for [`send_with`](RequestBuilder::send_with);
//! * `testing`: a scripted service and faults by seed for the tests of your own code.
//!
//! # Seeing it
//!
//! With [`tracing`](https://docs.rs/tracing), all of the target `steadfast::telemetry`:
//!
//! | span or event | level | fields, beside OpenTelemetry's `http.request.method`, `server.address`, `server.port`, `url.full`, `http.response.status_code`, `error.type` |
//! |---|---|---|
//! | span `operation` | info | `steadfast.circuit` (its group), `steadfast.attempts`, `steadfast.stop_reason`, `steadfast.outcome` |
//! | span `attempt` | info | `http.request.resend_count` from the second on, `steadfast.delivery` |
//! | waiting before the next attempt | debug | `steadfast.attempt`, `steadfast.wait_ms`, `steadfast.retry_after_ms` |
//! | operation ended | debug | `steadfast.attempts`, `steadfast.stop_reason`, `steadfast.outcome`, `steadfast.elapsed_ms` |
//! | circuit opened, circuit changed | warn, info | `steadfast.circuit`, `steadfast.from`, `steadfast.to` |
//! | keys are assumed to be honoured | warn | `steadfast.circuit`; once for each group |
//!
//! The values of `steadfast.stop_reason`, `steadfast.outcome` and `steadfast.delivery` are those of the metrics: `circuit_open`,
//! `not_done`, `not_sent`. Numbers such as R31 in these pages are rows of `docs/requirements.md`, each with its test.
//!
//! # Writes
//!
//! A finished `reqwest::Client` hides its redirects and its own repeats. [`Client::from_builder`] makes one that does
//! not; it is the client for writes.

mod attempts;
mod backoff;
mod body;
mod budget;
mod carried;
mod circuit;
pub mod classifier;
mod classify;
mod client;
#[cfg(feature = "serde")]
mod config;
mod deadline;
mod decision;
mod error;
mod guard;
pub mod guide;
mod held;
mod hook;
mod idempotency;
#[cfg(feature = "metrics")]
pub mod metrics;
mod operation;
mod outcome;
mod pipeline;
mod policy;
mod redacted;
mod redirect;
mod replay;
mod request;
mod response;
mod retry_after;
pub mod scope;
#[cfg(test)]
mod simulation;
mod sync;
mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "tower")]
pub mod tower;
mod violation;
mod watch;

pub use reqwest;

pub use crate::attempts::{Attempt, Attempts, StopReason};
pub use crate::backoff::Backoff;
pub use crate::budget::RetryBudget;
pub use crate::circuit::breaker::CircuitState;
pub use crate::circuit::circuits::{CircuitChange, CircuitChanges, CircuitStatus, Circuits};
pub use crate::circuit::settings::CircuitBreaker;
pub use crate::classifier::{AttemptFacts, Classifier, RequestFacts, Verdict};
pub use crate::classify::Delivery;
pub use crate::classify::attempt_error::AttemptError;
pub use crate::client::{Client, ClientBuilder};
pub use crate::error::{Error, ErrorKind};
pub use crate::guard::Pipeline;
pub use crate::idempotency::contract::{ContractError, IdempotencyContract};
pub use crate::idempotency::key::{IdempotencyKey, KeyError, KeyErrorKind};
pub use crate::idempotency::placement::KeyPlacement;
pub use crate::idempotency::sign::Sign;
pub use crate::operation::Operation;
pub use crate::outcome::Outcome;
pub use crate::policy::{Policy, PolicyBuilder};
pub use crate::replay::UnknownRetries;
pub use crate::request::RequestBuilder;
pub use crate::response::ResponseExt;
pub use crate::scope::Scope;
pub use crate::violation::{PolicyError, PolicyViolation};

/// The examples of the README compile.
#[cfg(all(doctest, feature = "json"))]
#[doc = include_str!("../README.md")]
struct Readme;

//! Tests of code that sends by a [`Client`](crate::Client): without a network, without waiting, with exact counts.
//!
//! Behind the feature `testing`, for dev-dependencies. A [`Script`] plays a service: each request meets its next reply, and
//! under tokio's paused clock every time is exact. [`Faults`] stands before a real service and loses what a network loses, the
//! same way each time for the same seed. [`expect`] checks the record of an operation.
//!
//! ```
//! use std::time::Duration;
//! use steadfast::testing::{Reply, Script, expect};
//! use steadfast::{Client, Outcome, ResponseExt, reqwest};
//!
//! // What is to be tested knows nothing of the test.
//! async fn charge(client: &Client) -> Result<reqwest::Response, steadfast::Error> {
//!     client.post("https://api.example.com/charges").body("{}").send().await
//! }
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
//! # runtime.block_on(async {
//! // In a test: #[tokio::test(start_paused = true)]
//! let service = Script::new([
//!     Reply::status(503).header("retry-after", "20"),
//!     Reply::reset(),
//!     Reply::status(201),
//! ]);
//! let client = Client::builder(reqwest::Client::new()).transport(service.sender()).build();
//! let response = charge(&client).await.unwrap();
//!
//! expect(&response).made(3).outcome(Outcome::Completed);
//! // All three came with one key, and the second not before it was asked to.
//! assert!(service.key().is_some());
//! assert!(service.requests()[1].came_after() >= Duration::from_secs(20));
//! # });
//! ```
//!
//! A service that is mocked on a socket, as by `wiremock`, needs none of this: the README has a chapter on it.

mod expect;
mod faults;
mod reply;
mod script;

pub use self::expect::{Expect, Recorded, expect};
pub use self::faults::{Fault, Faults};
pub use self::reply::Reply;
pub use self::script::{Received, Script};

use std::future::Future;
use std::pin::Pin;

use reqwest::Response;

use crate::classify::attempt_error::AttemptError;

/// An attempt under way.
pub type Sending = Pin<Box<dyn Future<Output = Result<Response, AttemptError>> + Send>>;

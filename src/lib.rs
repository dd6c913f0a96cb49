//! Makes an HTTP operation happen once, or says honestly that it does not know.

mod attempts;
mod backoff;
mod body;
mod classify;
mod client;
mod decision;
mod error;
mod idempotency;
mod operation;
mod outcome;
mod pipeline;
mod policy;
mod redacted;
mod replay;
mod request;
mod response;
mod retry_after;
mod telemetry;

pub use reqwest;

pub use crate::attempts::{Attempt, Attempts, StopReason};
pub use crate::backoff::Backoff;
pub use crate::classify::Delivery;
pub use crate::classify::failure::AttemptError;
pub use crate::client::{Client, ClientBuilder};
pub use crate::error::{Error, ErrorKind};
pub use crate::idempotency::key::{IdempotencyKey, KeyError, KeyErrorKind};
pub use crate::operation::Operation;
pub use crate::outcome::Outcome;
pub use crate::policy::{Policy, PolicyBuilder, PolicyError, PolicyViolation};
pub use crate::replay::UnknownRetries;
pub use crate::request::RequestBuilder;
pub use crate::response::ResponseExt;

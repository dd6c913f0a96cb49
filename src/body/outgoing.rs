//! The body of the request, once for each attempt.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use reqwest::{Body, Request};

use crate::classify::attempt_error::Withheld;
use crate::error::{BoxError, ErrorKind};

/// Makes a fresh body for each attempt.
#[derive(Clone)]
pub(crate) struct BodyFactory(Arc<dyn Fn() -> io::Result<Body> + Send + Sync>);

impl BodyFactory {
    pub(crate) fn new(make: impl Fn() -> io::Result<Body> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }
}

impl fmt::Debug for BodyFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyFactory")
    }
}

/// Where the bytes of an attempt come from.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// None, or bytes in memory: every copy of the request has them.
    InRequest,
    Factory {
        factory: BodyFactory,
        /// Of the first body it made, if that was bytes in memory.
        first: OnceLock<Option<u64>>,
    },
    /// A stream, good for one attempt; empty once it is used.
    Stream(Mutex<Option<Body>>),
}

/// Why an attempt has no body to send.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoBody {
    #[error("the body of the request could not be made")]
    Factory(#[source] BoxError),
    /// The same key with other bytes would be another operation (R147).
    #[error("the body of the request was made anew and is not the same")]
    Changed,
    #[error("the body of the request is a stream and was sent before")]
    Used,
}

impl NoBody {
    fn unmade(error: io::Error) -> Self {
        Self::Factory(Withheld::if_needed(ErrorKind::Request, error.into()))
    }
}

impl Outgoing {
    /// Takes a body that cannot be copied out of the request.
    pub(crate) fn of(request: &mut Request, factory: Option<BodyFactory>) -> Self {
        if let Some(factory) = factory {
            *request.body_mut() = None;
            let first = OnceLock::new();
            return Self::Factory { factory, first };
        }
        let is_stream = |body: &Body| body.as_bytes().is_none();
        match request.body_mut() {
            body if body.as_ref().is_some_and(is_stream) => Self::Stream(Mutex::new(body.take())),
            _ => Self::InRequest,
        }
    }

    pub(crate) fn is_replayable(&self) -> bool {
        !matches!(self, Self::Stream(_))
    }

    /// The body made for the next attempt; `None` where the request has it already, or it is a stream.
    pub(crate) fn made(&self) -> Result<Option<Body>, NoBody> {
        let Self::Factory { factory, first } = self else {
            return Ok(None);
        };
        let body = (factory.0)().map_err(NoBody::unmade)?;
        let print = body.as_bytes().map(fingerprint);
        match (first.get_or_init(|| print), print) {
            (Some(first), Some(print)) if *first != print => Err(NoBody::Changed),
            _ => Ok(Some(body)),
        }
    }

    /// The stream, for the one attempt that it is good for.
    pub(crate) fn stream(&self) -> Result<Option<Body>, NoBody> {
        match self {
            Self::Stream(body) => lock(body).take().map(Some).ok_or(NoBody::Used),
            Self::InRequest | Self::Factory { .. } => Ok(None),
        }
    }
}

fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn lock(body: &Mutex<Option<Body>>) -> std::sync::MutexGuard<'_, Option<Body>> {
    // Taking a value out cannot leave it half changed.
    body.lock().unwrap_or_else(PoisonError::into_inner)
}

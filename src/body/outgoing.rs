//! The body of the request, once for each attempt.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Body as _;
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
    /// None, or bytes in memory.
    Bytes(Option<Bytes>),
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
    /// Takes the body out of the request.
    pub(crate) fn of(request: &mut Request, factory: Option<BodyFactory>) -> Self {
        if let Some(factory) = factory {
            *request.body_mut() = None;
            let first = OnceLock::new();
            return Self::Factory { factory, first };
        }
        match request.body_mut().take() {
            Some(body) if body.as_bytes().is_none() => Self::Stream(Mutex::new(Some(body))),
            body => Self::Bytes(body.map(in_memory)),
        }
    }

    pub(crate) fn is_replayable(&self) -> bool {
        !matches!(self, Self::Stream(_))
    }

    /// The body of the next attempt; `None` where there is none, or it is a stream.
    pub(crate) fn made(&self) -> Result<Option<Body>, NoBody> {
        let (factory, first) = match self {
            Self::Bytes(bytes) => return Ok(bytes.clone().map(Body::from)),
            Self::Stream(_) => return Ok(None),
            Self::Factory { factory, first } => (factory, first),
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
            Self::Bytes(_) | Self::Factory { .. } => Ok(None),
        }
    }
}

/// The bytes of a body that is in memory: its one frame, which is there at the first look.
fn in_memory(mut body: Body) -> Bytes {
    let mut context = Context::from_waker(Waker::noop());
    let frame = match Pin::new(&mut body).poll_frame(&mut context) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
        _ => None,
    };
    frame.unwrap_or_default()
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

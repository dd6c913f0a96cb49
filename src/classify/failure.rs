//! Everything that is not an answer: the error of an attempt to a kind and a [`Finding`].
//!
//! Classified from types alone, along `source()` and through `io::Error::get_ref()`, never from the text of a message.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::iter;

use super::{Delivery, Finding};
use crate::attempts::StopReason;
use crate::error::{Error, ErrorKind};
use crate::outcome::Outcome;

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// Why an attempt brought no answer, and what that proves.
///
/// The error type of whatever sends for [`execute_with`](crate::Client::execute_with) converts into it. A
/// `reqwest::Error` and an `io::Error` are looked into; what is not recognised has the kind `Other`, the delivery
/// `Unknown`, and is final. [`not_sent`](AttemptError::not_sent) and [`unknown`](AttemptError::unknown) say it
/// explicitly.
#[derive(Debug)]
pub struct AttemptError {
    pub(crate) failure: Failure,
    pub(crate) source: BoxError,
}

/// The kind of a failed attempt and what it proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) finding: Finding,
}

impl Failure {
    /// The time of the attempt was over before an answer came.
    pub(crate) const TIMEOUT: Self = Self::unknown(ErrorKind::Timeout);

    const UNRECOGNISED: Self = Self::last(ErrorKind::Other, Delivery::Unknown);

    const fn not_sent(kind: ErrorKind) -> Self {
        Self {
            kind,
            finding: Finding::retry(Delivery::NotSent),
        }
    }

    const fn unknown(kind: ErrorKind) -> Self {
        Self {
            kind,
            finding: Finding::retry(Delivery::Unknown),
        }
    }

    const fn last(kind: ErrorKind, delivery: Delivery) -> Self {
        Self {
            kind,
            finding: Finding::last(delivery),
        }
    }
}

impl AttemptError {
    /// No byte of the request left: another attempt is made whatever the method.
    pub fn not_sent(error: impl Into<BoxError>) -> Self {
        Self::with_delivery(error.into(), Delivery::NotSent)
    }

    /// The server may have acted: another attempt is made if the operation is replay-safe.
    pub fn unknown(error: impl Into<BoxError>) -> Self {
        Self::with_delivery(error.into(), Delivery::Unknown)
    }

    fn with_delivery(error: BoxError, delivery: Delivery) -> Self {
        let mut error = Self::from(error);
        error.failure.finding = Finding::retry(delivery);
        error
    }
}

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt failed: {}", self.failure.kind)
    }
}

impl StdError for AttemptError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

impl From<reqwest::Error> for AttemptError {
    fn from(error: reqwest::Error) -> Self {
        Self {
            failure: of_reqwest(&error),
            source: error.without_url().into(),
        }
    }
}

impl From<io::Error> for AttemptError {
    fn from(error: io::Error) -> Self {
        let failure = match inner_reqwest(&error) {
            Some(inner) => of_reqwest(inner),
            None => of_io(error.kind()).unwrap_or(Failure::UNRECOGNISED),
        };
        Self {
            failure,
            source: Withheld::if_needed(failure.kind, error.into()),
        }
    }
}

/// A nested client: what its operation is known to have done is what this attempt is known to have done.
impl From<Error> for AttemptError {
    fn from(error: Error) -> Self {
        let delivery = match error.outcome() {
            Outcome::Completed => Delivery::Answered,
            Outcome::Unknown => Delivery::Unknown,
            Outcome::NotDone => {
                let all_unsent = |delivery| delivery == Delivery::NotSent;
                if error.attempts().iter().all(|attempt| all_unsent(attempt.delivery())) {
                    Delivery::NotSent
                } else {
                    Delivery::Rejected
                }
            }
        };
        let retry = !matches!(
            error.stop_reason(),
            StopReason::Done | StopReason::NotRetryable | StopReason::KeyConflict
        );
        Self {
            failure: Failure {
                kind: error.kind(),
                finding: Finding { delivery, retry },
            },
            source: error.into(),
        }
    }
}

impl From<BoxError> for AttemptError {
    fn from(error: BoxError) -> Self {
        let error = match error.downcast::<reqwest::Error>() {
            Ok(error) => return Self::from(*error),
            Err(error) => error,
        };
        let error = match error.downcast::<io::Error>() {
            Ok(error) => return Self::from(*error),
            Err(error) => error,
        };
        let error = match error.downcast::<Error>() {
            Ok(error) => return Self::from(*error),
            Err(error) => error,
        };
        let error = match error.downcast::<AttemptError>() {
            Ok(error) => return *error,
            Err(error) => error,
        };
        let failure = inner_reqwest(&*error).map_or(Failure::UNRECOGNISED, of_reqwest);
        Self {
            failure,
            source: Withheld::if_needed(failure.kind, error),
        }
    }
}

/// The causes of an error, itself first. An `io::Error` names the source of the error it wraps as its own and leaves
/// that error out: it is visited too.
pub(crate) fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| {
        let error: &'a (dyn StdError + 'static) = *error;
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped as &(dyn StdError + 'static)),
            None => error.source(),
        }
    })
}

fn inner_reqwest<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a reqwest::Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// A cut that is no more than a connection lost, in any phase.
fn is_lost(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(
        kind,
        ConnectionReset | ConnectionAborted | BrokenPipe | NotConnected | UnexpectedEof
    )
}

fn of_io(kind: io::ErrorKind) -> Option<Failure> {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    match kind {
        // No connection, so nothing was sent on it.
        ConnectionRefused => Some(Failure::not_sent(ErrorKind::Connect)),
        kind if is_lost(kind) => Some(Failure::unknown(ErrorKind::Reset)),
        // Routers also say these of a connection that was in use.
        HostUnreachable | NetworkUnreachable => Some(Failure::unknown(ErrorKind::Reset)),
        TimedOut => Some(Failure::unknown(ErrorKind::Timeout)),
        _ => None,
    }
}

/// The error of a call of `reqwest::Client::execute`.
fn of_reqwest(error: &reqwest::Error) -> Failure {
    if error.is_builder() {
        return Failure::last(ErrorKind::Request, Delivery::NotSent);
    }
    if error.is_connect() {
        return of_connect(error);
    }
    for cause in causes(error) {
        if let Some(error) = cause.downcast_ref::<hyper::Error>() {
            if let Some(failure) = of_hyper(error) {
                return failure;
            }
        } else if let Some(error) = cause.downcast_ref::<h2::Error>() {
            return of_h2(error);
        } else if let Some(error) = cause.downcast_ref::<io::Error>() {
            if let Some(failure) = of_io(error.kind()) {
                return failure;
            }
        }
    }
    if error.is_timeout() {
        return Failure::unknown(ErrorKind::Timeout);
    }
    Failure::UNRECOGNISED
}

/// Before there was a connection to send on.
fn of_connect(error: &reqwest::Error) -> Failure {
    if error.is_dns() {
        return Failure::not_sent(ErrorKind::Dns);
    }
    let io = causes(error).find_map(|cause| cause.downcast_ref::<io::Error>());
    match io.map(io::Error::kind) {
        // Both ways to do TLS report what they think of the peer so: a certificate that is refused, a version or a
        // message that is not understood. A handshake that is cut has the kind of the cut.
        Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => {
            Failure::last(ErrorKind::Tls, Delivery::NotSent)
        }
        _ => Failure::not_sent(ErrorKind::Connect),
    }
}

fn of_hyper(error: &hyper::Error) -> Option<Failure> {
    if error.is_user() {
        // Our side broke off: the body to be sent failed. Its own causes are not those of the connection.
        Some(Failure::last(ErrorKind::Body, Delivery::Unknown))
    } else if error.is_canceled() {
        // The connection was gone before the request was given to it.
        Some(Failure::not_sent(ErrorKind::Reset))
    } else if error.is_parse() {
        Some(Failure::UNRECOGNISED)
    } else if error.is_incomplete_message() {
        Some(Failure::unknown(ErrorKind::Reset))
    } else if error.is_timeout() {
        Some(Failure::unknown(ErrorKind::Timeout))
    } else {
        None
    }
}

fn of_h2(error: &h2::Error) -> Failure {
    let refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
    if error.is_remote() && refused {
        return Failure::not_sent(ErrorKind::Reset);
    }
    Failure::unknown(ErrorKind::Reset)
}

/// An error that is kept but not shown, because a `reqwest::Error` inside it would print the URL with its query.
///
/// The causes below that one can be read as ever.
struct Withheld {
    kind: ErrorKind,
    error: BoxError,
}

impl Withheld {
    fn if_needed(kind: ErrorKind, error: BoxError) -> BoxError {
        if Self::last_with_url(&*error).is_none() {
            return error;
        }
        Box::new(Self { kind, error })
    }

    fn last_with_url<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a reqwest::Error> {
        let inner = causes(error).filter_map(|cause| cause.downcast_ref::<reqwest::Error>());
        inner.filter(|error| error.url().is_some()).last()
    }
}

impl fmt::Debug for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.kind, f)
    }
}

impl StdError for Withheld {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Self::last_with_url(&*self.error)?.source()
    }
}

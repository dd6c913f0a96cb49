//! The error of an operation: what failed last, why it stopped there, and what is known of its effect.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::iter;
use std::time::Duration;

use http::StatusCode;
use reqwest::{Method, Response, Url};

use crate::attempts::{Attempts, Record, StopReason};
use crate::idempotency::key::{IdempotencyKey, KeyError};
use crate::outcome::{Evidence, Outcome};
use crate::redacted::target;
use crate::violation::PolicyError;

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// The causes of an error, itself first. Those that `source()` steps over are visited too.
pub(crate) fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| {
        let error: &'a (dyn StdError + 'static) = *error;
        stepped_over(error).or_else(|| error.source())
    })
}

/// The error inside one that speaks in its place: it names the source of that error as its own, and leaves it out.
fn stepped_over<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    #[cfg(feature = "middleware")]
    if let Some(error) = error.downcast_ref() {
        return Some(match error {
            reqwest_middleware::Error::Middleware(error) => &**error,
            reqwest_middleware::Error::Reqwest(error) => error,
        });
    }
    let wrapped = error.downcast_ref::<io::Error>()?.get_ref()?;
    Some(wrapped)
}

/// What kind of thing failed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An answer with a status from 400 to 599, made an error by [`into_result`](crate::ResponseExt::into_result), or
    /// the last answer, where the deadline passed or the circuit opened in the wait after it.
    Status,
    /// The request could not be built or may not be sent.
    Request,
    /// The name of the host could not be resolved.
    Dns,
    /// No connection could be made.
    Connect,
    /// The peer was not accepted: certificate, host name or TLS version.
    Tls,
    /// The time of an attempt, or of a read, was over.
    Timeout,
    /// The connection was lost.
    Reset,
    /// The body of the answer did not arrive whole, or the stream of the request's body failed.
    Body,
    /// A circuit was open, and no request was sent.
    CircuitOpen,
    /// No attempt could be started before the deadline.
    Deadline,
    /// Anything else.
    Other,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Status => "error status",
            Self::Request => "invalid request",
            Self::Dns => "DNS failure",
            Self::Connect => "connect failure",
            Self::Tls => "TLS failure",
            Self::Timeout => "timeout",
            Self::Reset => "connection lost",
            Self::Body => "body failure",
            Self::CircuitOpen => "circuit open",
            Self::Deadline => "deadline reached",
            Self::Other => "unrecognised failure",
        })
    }
}

/// Why an operation has no response to give.
///
/// One pointer wide. It keeps the record of all [`attempts`](Error::attempts), the key to go on with, and the last
/// real failure as its [`source`](StdError::source). Neither it nor its sources print a query string, user info,
/// header, body or key.
///
/// ```no_run
/// use steadfast::Outcome;
///
/// # async fn f(client: steadfast::Client) -> Result<(), steadfast::Error> {
/// let operation = client.post("https://api.example.com/charges").body("{}").into_operation()?;
/// match operation.send().await {
///     Ok(response) => println!("{}", response.status()),
///     Err(error) => match error.outcome() {
///         Outcome::NotDone => println!("no charge was made: {error}"),
///         // The same bytes and the same key, once more and later.
///         _ => drop(operation.send().await),
///     },
/// }
/// # Ok(())
/// # }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    /// Method and URL, the URL redacted; empty for a request that has neither.
    target: String,
    attempts: Attempts,
    source: Option<BoxError>,
    response: Option<Response>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, target: String, attempts: Attempts, source: Option<BoxError>) -> Self {
        Self(Box::new(Inner {
            kind,
            target,
            attempts,
            source,
            response: None,
        }))
    }

    /// The request cannot be sent, and nothing was.
    pub(crate) fn unsendable(request: Option<(&Method, &Url)>, key: Option<IdempotencyKey>, source: BoxError) -> Self {
        let method = request.map(|(method, _)| method.clone());
        let target = request.map_or_else(String::new, |(method, url)| target(method, url));
        let evidence = Evidence::new(false, false);
        let attempts = Record::without_attempts(method, StopReason::NotRetryable, evidence, key);
        Self::new(ErrorKind::Request, target, attempts, Some(source))
    }

    /// The error that an answer with a failing status is made into.
    pub(crate) fn of_status(target: String, attempts: Attempts, response: Response) -> Self {
        let mut error = Self::new(ErrorKind::Status, target, attempts, None);
        error.0.source = Some(StatusFailure(response.status()).into());
        error.0.response = Some(response);
        error
    }

    /// Method and URL as they are shown; empty for a request that has neither.
    pub(crate) fn target(&self) -> &str {
        &self.0.target
    }

    pub(crate) fn response(&self) -> Option<&Response> {
        self.0.response.as_ref()
    }

    /// What failed last.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Why there was no further attempt.
    pub fn stop_reason(&self) -> StopReason {
        self.0.attempts.stop_reason()
    }

    /// What is known of the effect of the operation.
    pub fn outcome(&self) -> Outcome {
        self.0.attempts.outcome()
    }

    /// What was tried.
    pub fn attempts(&self) -> &Attempts {
        &self.0.attempts
    }

    /// The key of the operation: with it, a later call can go on where this one stopped.
    pub fn idempotency_key(&self) -> Option<&IdempotencyKey> {
        self.0.attempts.idempotency_key()
    }

    /// The wait that the last answer asked for, uncapped.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.attempts.last()?.retry_after()
    }

    /// The status of the last attempt, if it had an answer.
    pub fn status(&self) -> Option<StatusCode> {
        if let Some(response) = &self.0.response {
            return Some(response.status());
        }
        self.0.attempts.last()?.status()
    }

    /// The group whose open circuit stopped the operation, before its first attempt or after one that failed. The time until
    /// a probe is let through is in the [`stop_reason`](Error::stop_reason).
    pub fn circuit(&self) -> Option<&str> {
        self.0.attempts.circuit()
    }

    /// Whether what failed last was a timeout of any kind, or there was no time for any attempt. Whether the deadline
    /// stopped it is told by [`stop_reason`](Error::stop_reason).
    pub fn is_timeout(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Timeout | ErrorKind::Deadline)
            || self.source().is_some_and(|source| causes(source).any(is_timeout))
    }

    /// Whether no connection could be made: name, connect or TLS.
    pub fn is_connect(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Dns | ErrorKind::Connect | ErrorKind::Tls)
    }

    /// The answer that [`into_result`](crate::ResponseExt::into_result) made into this error, its body unread.
    pub fn into_response(self) -> Option<Response> {
        self.0.response
    }
}

fn is_timeout(error: &(dyn StdError + 'static)) -> bool {
    let by_kind = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
    error.downcast_ref::<io::Error>().is_some_and(by_kind)
        || error
            .downcast_ref::<reqwest::Error>()
            .is_some_and(reqwest::Error::is_timeout)
}

/// `POST https://example.com/pay failed after 3 attempts in 2.4s (no attempts left; outcome unknown): connection lost`
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            kind,
            target,
            attempts,
            source,
            ..
        } = &*self.0;
        f.write_str(if target.is_empty() { "request" } else { target })?;
        match (attempts.len(), source) {
            // An answer that another client brought.
            (0, _) if *kind == ErrorKind::Status => write!(f, " failed: ")?,
            (0, source) => {
                f.write_str(" was not sent")?;
                // An earlier `send()` of the operation may have acted.
                if attempts.outcome() != Outcome::NotDone {
                    write!(f, " again (outcome {})", attempts.outcome())?;
                }
                return match (source, attempts.circuit()) {
                    (Some(source), _) => write!(f, ": {source}"),
                    (None, Some(circuit)) => write!(f, ": {} ({circuit})", attempts.stop_reason()),
                    (None, None) => write!(f, ": {kind}"),
                };
            }
            (made, _) => {
                let plural = if made == 1 { "" } else { "s" };
                write!(f, " failed after {made} attempt{plural} in {:.1?}", attempts.elapsed())?;
                write!(f, " ({}; outcome {}): ", attempts.stop_reason(), attempts.outcome())?;
            }
        }
        match self.status() {
            Some(status) if *kind == ErrorKind::Status => write!(f, "{status}"),
            Some(status) if *kind == ErrorKind::Body => write!(f, "{kind} of {status}"),
            _ => match source {
                // The kind alone would not say what is wrong with it.
                Some(source) if *kind == ErrorKind::Request => write!(f, "{kind}: {source}"),
                _ => write!(f, "{kind}"),
            },
        }
    }
}

/// As of a request with such a key: kind `Request`.
impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        Self::unsendable(None, None, error.into())
    }
}

/// As of a request under such a policy: kind `Request`.
impl From<PolicyError> for Error {
    fn from(error: PolicyError) -> Self {
        Self::unsendable(None, None, error.into())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("target", &self.0.target)
            .field("status", &self.status())
            .field("attempts", &self.0.attempts)
            .field("source", &self.0.source)
            .finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// An answer whose status is the failure.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the server answered {0}")]
pub(crate) struct StatusFailure(pub(crate) StatusCode);

//! The error of an attempt: what is known of it, and the cause, in a form that may be shown.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use http::StatusCode;
use reqwest::Url;

use super::failure::{self, Failure};
use super::{Delivery, Finding};
use crate::attempts::Attempts;
use crate::error::{BoxError, Error, ErrorKind, causes};
use crate::outcome::Outcome;
use crate::redacted::Redacted;

/// Why an attempt brought no answer, and what that proves.
///
/// The error type of whatever sends for [`execute_with`](crate::Client::execute_with) converts into it. A
/// `reqwest::Error`, an `io::Error` and the [`Error`](crate::Error) of a nested client are recognised, also inside
/// others, and so are two errors of layers under the feature `tower`; what is not has the kind `Other`, the delivery
/// `Unknown`, and is final. [`not_sent`](AttemptError::not_sent) and [`unknown`](AttemptError::unknown) say it
/// explicitly.
///
/// Of an error that names no request, such as an `io::Error`, nobody knows whose it is. Where a sender gives it as it is, it
/// is taken for that of the request; where it is the cause of another error, or comes from a middleware, it no longer proves
/// that a write was not sent. A sender that makes other requests beside the one it was given says itself what became of that.
///
/// A sender should give a response with a failing status as it is, and not make it an error by `error_for_status`: that
/// drops its headers, `Retry-After` among them, and its body.
#[derive(Debug)]
pub struct AttemptError {
    pub(crate) facts: Facts,
    pub(crate) source: BoxError,
}

/// What is known of a failed attempt.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) failure: Failure,
    /// The answer that is behind the failure: its status, its URL, and the wait it asked for.
    pub(crate) status: Option<StatusCode>,
    pub(crate) answered: Option<Box<Url>>,
    pub(crate) retry_after: Option<Duration>,
    /// What a nested client tried.
    pub(crate) nested: Option<Box<Attempts>>,
    /// The request it is about, where that is known: method and URL, or the URL alone, as errors show them.
    pub(crate) about: Option<String>,
    /// Found inside an error of somebody between, and about no request that is known: it may be that of another one.
    pub(crate) hearsay: bool,
    /// The sender said what became of the request: no sign of ours speaks against that.
    pub(crate) stated: bool,
}

impl From<Failure> for Facts {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            status: None,
            answered: None,
            retry_after: None,
            nested: None,
            about: None,
            hearsay: false,
            stated: false,
        }
    }
}

impl Facts {
    /// Those of the first error that is recognised, the outermost first; of an `io::Error` the innermost.
    fn within(error: &(dyn StdError + 'static)) -> Self {
        let found = causes(error).enumerate().find_map(|(depth, cause)| {
            if let Some(error) = cause.downcast_ref::<AttemptError>() {
                Some(error.facts.clone())
            } else if let Some(error) = cause.downcast_ref::<Error>() {
                Some(Self::of_operation(error))
            } else if let Some(error) = cause.downcast_ref() {
                Some(Self::of_reqwest(error))
            } else {
                failure::of_layer(cause).map(|failure| Self {
                    hearsay: depth > 0,
                    ..failure.into()
                })
            }
        });
        found.unwrap_or_else(|| Self {
            hearsay: !failure::is_io(error),
            ..failure::of_inner_io(error).into()
        })
    }

    fn of_reqwest(error: &reqwest::Error) -> Self {
        let status = error.status();
        let facts = Self::from(failure::of_reqwest(error));
        match error.url() {
            // Of an answer, it is the URL that redirects led to.
            Some(url) if status.is_some() => Self {
                status,
                answered: Some(Box::new(url.clone())),
                ..facts
            },
            url => Self {
                status,
                about: url.map(|url| Redacted(url).to_string()),
                ..facts
            },
        }
    }

    /// A nested client: what its operation is known to have done is what this attempt is known to have done.
    fn of_operation(error: &Error) -> Self {
        let has = |delivery| error.attempts().iter().any(|attempt| attempt.delivery() == delivery);
        let delivery = match error.outcome() {
            Outcome::Completed => Delivery::Answered,
            Outcome::Unknown => Delivery::Unknown,
            // Of a safe method: nothing was done, and yet it may have been received.
            Outcome::NotDone if has(Delivery::Unknown) => Delivery::Unknown,
            Outcome::NotDone if has(Delivery::Rejected) => Delivery::Rejected,
            Outcome::NotDone => Delivery::NotSent,
        };
        let retry = !error.stop_reason().is_final();
        let answered = error.response().map(|response| Box::new(response.url().clone()));
        Self {
            status: error.status(),
            retry_after: error.retry_after(),
            nested: Some(Box::new(error.attempts().clone())),
            about: answered.is_none().then(|| error.target().to_owned()),
            answered,
            ..Failure::new(error.kind(), Finding { delivery, retry }).into()
        }
    }

    /// Whether nobody says whose they are.
    #[cfg(feature = "middleware")]
    fn names_no_request(&self) -> bool {
        !self.stated && self.about.is_none() && self.answered.is_none() && self.nested.is_none()
    }

    /// Whether they are of another request than this one: a sender may make more than one.
    pub(crate) fn are_of_another(&self, target: &str) -> bool {
        let is_own = |about: &String| target == about || target.split_once(' ').is_some_and(|(_, url)| url == about);
        self.about.as_ref().is_some_and(|about| !is_own(about))
    }

    /// What is left of them then: what became of this request is not known, and no answer is its own.
    pub(crate) fn forget_the_other(&mut self) {
        let mut failure = self.failure;
        failure.finding.delivery = Delivery::Unknown;
        *self = failure.into();
    }
}

impl AttemptError {
    pub(crate) fn new(facts: impl Into<Facts>, source: BoxError) -> Self {
        let facts = facts.into();
        let source = Withheld::if_needed(facts.failure.kind, source);
        Self { facts, source }
    }

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
        error.facts.failure.finding = Finding::retry(delivery);
        error.facts.stated = true;
        error
    }
}

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt failed: {}", self.facts.failure.kind)
    }
}

impl StdError for AttemptError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

impl From<reqwest::Error> for AttemptError {
    fn from(error: reqwest::Error) -> Self {
        Self::new(Facts::of_reqwest(&error), error.without_url().into())
    }
}

impl From<io::Error> for AttemptError {
    fn from(error: io::Error) -> Self {
        Self::new(Facts::within(&error), error.into())
    }
}

impl From<Error> for AttemptError {
    fn from(error: Error) -> Self {
        Self::new(Facts::of_operation(&error), error.into())
    }
}

impl From<BoxError> for AttemptError {
    fn from(error: BoxError) -> Self {
        // By value where that tells more: a reqwest error gives up its URL.
        let error = match error.downcast::<reqwest::Error>() {
            Ok(error) => return Self::from(*error),
            Err(error) => error,
        };
        #[cfg(feature = "middleware")]
        let error = match error.downcast::<reqwest_middleware::Error>() {
            Ok(error) => return Self::from(*error),
            Err(error) => error,
        };
        match error.downcast::<AttemptError>() {
            Ok(error) => *error,
            Err(error) => Self::new(Facts::within(&*error), error),
        }
    }
}

/// An error of a middleware is looked into as a boxed one is.
///
/// ```
/// use reqwest_middleware::ClientWithMiddleware;
/// use steadfast::reqwest::{Request, Response};
/// use steadfast::{Client, Error};
///
/// async fn send(client: &Client, stack: &ClientWithMiddleware, request: Request) -> Result<Response, Error> {
///     client.execute_with(request, |request| stack.execute(request)).await
/// }
/// ```
#[cfg(feature = "middleware")]
impl From<reqwest_middleware::Error> for AttemptError {
    fn from(error: reqwest_middleware::Error) -> Self {
        match error {
            reqwest_middleware::Error::Reqwest(error) => error.into(),
            // The plain conversion to a box hides the type of the error from us and from who reads the sources.
            reqwest_middleware::Error::Middleware(error) => {
                let mut error = Self::from(error.reallocate_into_boxed_dyn_error_without_backtrace());
                // It had the request in its hands, before and after.
                error.facts.hearsay |= error.facts.names_no_request();
                error
            }
        }
    }
}

/// An error that is kept but not shown, because it would print a URL with its query: a `reqwest::Error`, or one that speaks in
/// the words of a `reqwest::Error` inside and does not name it as its cause.
///
/// The causes below can be read as ever.
pub(crate) struct Withheld {
    kind: ErrorKind,
    error: BoxError,
}

impl Withheld {
    pub(crate) fn if_needed(kind: ErrorKind, error: BoxError) -> BoxError {
        if Self::last_with_url(&*error).is_none() {
            return error;
        }
        Box::new(Self { kind, error })
    }

    fn last_with_url<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
        causes(error).filter(|cause| shows_url(*cause)).last()
    }
}

/// Whether an error would show a URL with more than origin and path.
fn shows_url(error: &(dyn StdError + 'static)) -> bool {
    match error.downcast_ref::<reqwest::Error>() {
        Some(error) => error.url().is_some(),
        // Shown without it, both of ours, and looked at already.
        None if error.is::<Error>() || error.is::<AttemptError>() || error.is::<Withheld>() => false,
        None => format!("{error} {error:?}").split("://").skip(1).any(|behind| {
            let mut url = behind.chars().take_while(|character| !character.is_whitespace());
            url.any(|character| matches!(character, '?' | '@'))
        }),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_senders_word_stands_over_what_is_seen() {
        let not_sent = AttemptError::not_sent("a full queue");
        assert_eq!(not_sent.facts.failure, Failure::not_sent(ErrorKind::Other));
        let unknown = AttemptError::unknown(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!(unknown.facts.failure, Failure::unknown(ErrorKind::Connect));
    }

    fn builder_error() -> reqwest::Error {
        let client = reqwest::Client::new();
        client.get("no url").build().unwrap_err()
    }

    // field 27
    #[test]
    fn a_lost_connection_is_found_in_whatever_wraps_it() {
        let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
        let bare = AttemptError::from(reset()).facts.failure;
        assert_eq!(bare.kind, ErrorKind::Reset);
        let boxed: BoxError = io::Error::other(reset()).into();
        for wrapped in [AttemptError::from(io::Error::other(reset())), AttemptError::from(boxed)] {
            assert_eq!(wrapped.facts.failure, bare);
        }
    }

    // field 27
    #[test]
    fn a_reqwest_error_is_found_in_whatever_wraps_it() {
        let request = Failure::last(ErrorKind::Request, Delivery::NotSent);
        let wrapped = io::Error::other(builder_error());
        assert_eq!(AttemptError::from(wrapped).facts.failure, request);
        let boxed: BoxError = io::Error::other(io::Error::other(builder_error())).into();
        assert_eq!(AttemptError::from(boxed).facts.failure, request);
    }

    // field 54
    #[test]
    fn an_error_that_would_print_its_url_is_kept_and_not_shown() {
        let secret = Url::parse("https://user:hunter2@example.com/?token=hunter2").unwrap();
        for error in [
            AttemptError::from(builder_error().with_url(secret.clone())),
            AttemptError::from(io::Error::other(builder_error().with_url(secret.clone()))),
            AttemptError::from(BoxError::from(io::Error::other(builder_error().with_url(secret)))),
        ] {
            let texts: Vec<_> = causes(&error).map(|error| format!("{error} {error:?}")).collect();
            assert!(texts.len() > 2, "{texts:?}");
            assert!(!texts.concat().contains("hunter2"), "{texts:?}");
        }
    }
}

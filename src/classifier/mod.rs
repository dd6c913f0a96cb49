//! What a service says in ways of its own: whether an attempt is worth another one.
//!
//! The table of statuses and failures is the default. A [`Classifier`] changes what it says of the attempts of a client; it
//! cannot make a repeat that is not safe. Several may be given, and the last of these that one of them says counts:
//!
//! | verdict | another attempt | what the service did |
//! |---|---|---|
//! | [`Default`](Verdict::Default) | as the table of statuses and failures has it | the same |
//! | [`Retry`](Verdict::Retry) | if the operation is replay-safe, or this attempt was not sent or rejected | by default |
//! | [`Rejected`](Verdict::Rejected) | yes | nothing |
//! | [`Refused`](Verdict::Refused) | no | nothing; under a declared contract the earlier attempts did nothing either |
//! | [`Final`](Verdict::Final) | no | by default |
//!
//! ```
//! use steadfast::classifier::{RetryStatuses, ShouldRetry, by_body};
//! use steadfast::reqwest::header::HeaderName;
//! use steadfast::{AttemptFacts, Client, RequestFacts, Verdict};
//!
//! # fn f(http: steadfast::reqwest::Client) {
//! let client = Client::builder(http)
//!     // 408, 425, 520 to 524 and 529 are repeated too.
//!     .classifier(RetryStatuses::transient())
//!     // The word of the service, where it gives one.
//!     .classifier(ShouldRetry::header(HeaderName::from_static("x-should-retry")))
//!     // A closure that looks at the head of the answer.
//!     .classifier(|request: &RequestFacts, attempt: &AttemptFacts| match attempt.status() {
//!         Some(status) if status == 404 && request.method() == "GET" => Verdict::Retry,
//!         _ => Verdict::Default,
//!     })
//!     // One that reads its body.
//!     .classifier(by_body(|_, attempt, body| {
//!         let refused = attempt.status().is_some_and(|status| status == 500);
//!         if refused && body.starts_with(b"ERR_VALIDATION") { Verdict::Refused } else { Verdict::Default }
//!     }))
//!     .build();
//! # }
//! ```

mod bare_unavailable;
mod by_body;
mod retry_statuses;
mod should_retry;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use reqwest::Url;

pub use self::bare_unavailable::BareUnavailable;
pub use self::by_body::{ByBody, by_body};
pub use self::retry_statuses::RetryStatuses;
pub use self::should_retry::ShouldRetry;
use crate::classify::Delivery;
use crate::error::ErrorKind;
use crate::redacted::target;

/// Says of an attempt whether another one is worth making, where the default does not know.
///
/// A closure over the two kinds of facts is one, where the types of its arguments are written down. Ready-made ones are in
/// [`classifier`](crate::classifier).
pub trait Classifier: Send + Sync {
    /// The verdict. It is asked after every attempt that was made, once, and should take no time worth mentioning.
    fn classify(&self, request: &RequestFacts<'_>, attempt: &AttemptFacts<'_>) -> Verdict;

    /// Whether it looks at the body of the answer. Then up to `response_buffer` bytes of it are read inside the attempt first;
    /// the caller still gets all of it. A success that is handed over at its headers has no body to look at.
    fn needs_body(&self) -> bool {
        false
    }
}

impl<F> Classifier for F
where
    F: Fn(&RequestFacts<'_>, &AttemptFacts<'_>) -> Verdict + Send + Sync,
{
    fn classify(&self, request: &RequestFacts<'_>, attempt: &AttemptFacts<'_>) -> Verdict {
        self(request, attempt)
    }
}

/// What a classifier says of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Nothing: the default counts.
    #[default]
    Default,
    /// Another attempt may end differently. Whether it may be made is another question: an attempt that may have acted is
    /// repeated only if the operation is replay-safe.
    Retry,
    /// The service did not act, and another attempt may end differently: it is made whatever the method. Of an attempt that the
    /// service confirmed, whose answer was lost or late, or came after a redirect, it is taken for [`Retry`](Verdict::Retry):
    /// nobody can know it then.
    Rejected,
    /// The service did not act, and no other attempt would end differently: it is the service's word, as a final 4xx is. Where
    /// [`Rejected`](Verdict::Rejected) is not believed, it is taken for [`Final`](Verdict::Final).
    Refused,
    /// No other attempt would end differently. What the service did stays as it is by default.
    Final,
}

/// What is known of the request of an operation.
#[derive(Clone, Copy)]
pub struct RequestFacts<'a> {
    pub(crate) method: &'a Method,
    pub(crate) url: &'a Url,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) keyed: bool,
    pub(crate) replay_safe: bool,
}

impl<'a> RequestFacts<'a> {
    /// The method.
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// The URL it was sent to.
    pub fn url(&self) -> &'a Url {
        self.url
    }

    /// Its headers, as they were before [`before_attempt`](crate::ClientBuilder::before_attempt).
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Whether it carries an idempotency key.
    pub fn is_keyed(&self) -> bool {
        self.keyed
    }

    /// Whether it is repeated after an attempt that may have acted.
    pub fn is_replay_safe(&self) -> bool {
        self.replay_safe
    }
}

/// Its query and its headers may hold secrets.
impl fmt::Debug for RequestFacts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestFacts")
            .field("target", &target(self.method, self.url))
            .field("keyed", &self.keyed)
            .field("replay_safe", &self.replay_safe)
            .finish_non_exhaustive()
    }
}

/// What is known of an attempt that ended.
#[derive(Clone, Copy)]
pub struct AttemptFacts<'a> {
    pub(crate) number: u32,
    pub(crate) status: Option<StatusCode>,
    pub(crate) headers: Option<&'a HeaderMap>,
    pub(crate) body: Option<&'a [u8]>,
    pub(crate) failure: Option<ErrorKind>,
    pub(crate) error: Option<&'a (dyn Error + 'static)>,
    pub(crate) delivery: Delivery,
    pub(crate) retry_after: Option<Duration>,
}

impl<'a> AttemptFacts<'a> {
    /// Its number, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The status of its answer, if it had one.
    pub fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// The headers of its answer.
    pub fn headers(&self) -> Option<&'a HeaderMap> {
        self.headers
    }

    /// The body of its answer, as far as it was read. `None` unless a classifier of the client
    /// [needs it](Classifier::needs_body), as those made by [`by_body`] do.
    pub fn body(&self) -> Option<&'a [u8]> {
        self.body
    }

    /// How it failed, where it brought no complete answer.
    pub fn failure(&self) -> Option<ErrorKind> {
        self.failure
    }

    /// The error it failed with.
    pub fn error(&self) -> Option<&'a (dyn Error + 'static)> {
        self.error
    }

    /// What the server did with it, by default.
    pub fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// The wait that its answer asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

/// Its headers and its body may hold secrets.
impl fmt::Debug for AttemptFacts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptFacts")
            .field("number", &self.number)
            .field("status", &self.status)
            .field("failure", &self.failure)
            .field("delivery", &self.delivery)
            .field("retry_after", &self.retry_after)
            .finish_non_exhaustive()
    }
}

/// Those of a client, all of which are asked.
#[derive(Clone, Default)]
pub(crate) struct Classifiers(Vec<Arc<dyn Classifier>>);

impl Classifiers {
    pub(crate) fn add(&mut self, classifier: impl Classifier + 'static) {
        self.0.push(Arc::new(classifier));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn need_body(&self) -> bool {
        self.0.iter().any(|classifier| classifier.needs_body())
    }

    pub(crate) fn verdict(&self, request: &RequestFacts<'_>, attempt: &AttemptFacts<'_>) -> Verdict {
        let verdicts = self.0.iter().map(|classifier| classifier.classify(request, attempt));
        verdicts.max().unwrap_or_default()
    }
}

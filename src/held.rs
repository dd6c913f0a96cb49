//! What an attempt left in our hands: an answer, one that lost its body, or a failure.

use std::future::Future;
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::HeaderMap;
use reqwest::Response;
use tokio::time::timeout_at;

use crate::body::read::{LostBody, Mode, Read, Reading, Rules};
use crate::circuit::breaker::Health;
use crate::classifier::AttemptFacts;
use crate::classify::attempt_error::{AttemptError, Facts};
use crate::classify::failure::Failure;
use crate::classify::{Delivery, health, status};
use crate::deadline::out_of_time;
use crate::decision::Ending;
use crate::error::{BoxError, ErrorKind};
use crate::idempotency::sign::Answer;
use crate::operation::Operation;
use crate::policy::Policy;
use crate::redirect::Redirect;
use crate::response::ResponseExt;
use crate::retry_after;
use crate::watch::Watch;

/// How much of the body of an answer that is no success is read for the contract, however little is held of others: what the
/// answer means must not depend on that.
const LEAST_SEEN: usize = 64 * 1024;

pub(crate) enum Held {
    Response {
        response: Response,
        /// Its body was read, or handed over.
        settled: bool,
        /// As much of the body as was read to be looked at.
        seen: Option<Bytes>,
    },
    Lost(Box<LostBody>),
    Failure {
        error: AttemptError,
        out_of_time: bool,
    },
}

/// Waits for the answer and reads the body of a success, and of any other answer that somebody must look at: the time limit is
/// over all of it (R29).
pub(crate) async fn attempt<Fut, E>(operation: &Operation, sending: Fut, rules: &Rules) -> Held
where
    Fut: Future<Output = Result<Response, E>> + Send,
    E: Into<AttemptError>,
{
    let answer = timeout_at(rules.attempt_ends, sending).await;
    let mut begun = match answer.map(|answer| answer.map_err(Into::into)) {
        Err(_) => ControlFlow::Break(Held::Failure {
            error: AttemptError::new(Failure::TIMEOUT, out_of_time("no answer until the end of the attempt")),
            out_of_time: true,
        }),
        Ok(Err(error)) => ControlFlow::Break(Held::Failure {
            error,
            out_of_time: false,
        }),
        Ok(Ok(response)) => Held::begin(operation, response, rules),
    };
    // Where it is, since every move would have a place of its own in the future.
    if let ControlFlow::Continue(reading) = &mut begun {
        reading.fill().await;
    }
    match begun {
        ControlFlow::Continue(reading) => Held::of(reading.end()),
        ControlFlow::Break(held) => held,
    }
}

impl Held {
    /// Begins to read what somebody must look at, or gives it back as it is: the status of such an answer decides before its
    /// body does.
    fn begin(operation: &Operation, response: Response, rules: &Rules) -> ControlFlow<Self, Reading> {
        let succeeded = response.status().is_success();
        let Look { seen, buffer } = Look::at(operation, &response, rules.buffer);
        let mut rules = Rules { seen, buffer, ..*rules };
        match (succeeded, seen) {
            (false, false) => return ControlFlow::Break(Self::answer(response, false, None)),
            // What it means does not depend on how the caller wants a success.
            (false, true) => rules.mode = Mode::Buffered,
            (true, _) => {}
        }
        ControlFlow::Continue(Reading::begin(response, rules))
    }

    fn of(read: Result<Read, Box<LostBody>>) -> Self {
        match read {
            Ok(read) => Self::answer(read.response, true, read.seen),
            Err(lost) if lost.status().is_success() => Self::Lost(lost),
            Err(lost) => {
                let seen = lost.seen();
                Self::answer(lost.into_response(), true, seen)
            }
        }
    }

    fn answer(response: Response, settled: bool, seen: Option<Bytes>) -> Self {
        Self::Response {
            response,
            settled,
            seen,
        }
    }

    /// Whether there is nothing left to be read.
    pub(crate) fn is_settled(&self) -> bool {
        !matches!(self, Self::Response { settled: false, .. })
    }

    /// The answer that is given back, with its body.
    pub(crate) async fn settle(self, rules: &Rules) -> Self {
        let (mut reading, seen) = match self {
            Self::Response {
                response,
                settled: false,
                seen,
            } => (Reading::begin(response, *rules), seen),
            held => return held,
        };
        reading.fill().await;
        let response = match reading.end() {
            Ok(read) => read.response,
            Err(lost) => lost.into_response(),
        };
        Self::answer(response, true, seen)
    }

    /// The answer as a contract looks at it, unless it is another request's.
    pub(crate) fn as_answer(&self, redirect: Redirect) -> Option<Answer<'_>> {
        match self {
            _ if redirect == Redirect::Astray => None,
            Self::Response { response, seen, .. } => {
                Some(Answer::new(response.status(), response.headers(), seen.as_deref()))
            }
            Self::Lost(lost) => Some(Answer::new(lost.status(), lost.headers(), None)),
            Self::Failure { .. } => None,
        }
    }

    pub(crate) fn ending<'a>(&'a self, operation: &Operation, watch: &Watch<'_>) -> Ending<'a> {
        let redirect = watch.redirect(match self {
            Self::Response { response, .. } => Some(response.url()),
            Self::Lost(lost) => Some(lost.url()),
            Self::Failure { error, .. } => error.facts.answered.as_deref(),
        });
        let meaning = self.as_answer(redirect).and_then(|answer| operation.meaning(&answer));
        match self {
            Self::Response { response, .. } => Ending::Answer {
                status: response.status(),
                retry_after: asked(response, operation.policy()),
                redirect,
                nested: response.attempts(),
                meaning,
            },
            Self::Lost(lost) => Ending::BodyLost {
                status: lost.status(),
                redirect,
                nested: lost.nested(),
                meaning,
                out_of_time: lost.out_of_time(),
            },
            Self::Failure { error, out_of_time } => Ending::Failure {
                finding: error.facts.failure.finding,
                status: error.facts.status,
                retry_after: error.facts.retry_after,
                redirect,
                nested: error.facts.nested.as_deref(),
                out_of_time: *out_of_time,
            },
        }
    }

    /// The attempt as a classifier sees it.
    pub(crate) fn facts<'a>(&'a self, number: u32, ending: &Ending<'_>, delivery: Delivery) -> AttemptFacts<'a> {
        let (headers, body, error): (Option<&HeaderMap>, _, Option<&(dyn std::error::Error + 'static)>) = match self {
            Self::Response { response, seen, .. } => (Some(response.headers()), seen.as_deref(), None),
            Self::Lost(lost) => (Some(lost.headers()), None, Some(lost.error())),
            Self::Failure { error, .. } => (None, None, Some(&*error.source)),
        };
        AttemptFacts {
            number,
            status: ending.status(),
            headers,
            body,
            failure: self.failure(),
            error,
            delivery,
            retry_after: ending.retry_after(),
        }
    }

    /// What it says of the service.
    pub(crate) fn health(&self) -> Health {
        match self {
            Self::Response { response, .. } => health::of_status(response.status()),
            Self::Lost(_) => Health::Failure,
            Self::Failure { error, .. } => {
                let Facts { failure, status, .. } = &error.facts;
                health::of_failure(failure.kind, failure.finding, *status)
            }
        }
    }

    /// The service gave an answer whose status is no failure to ask again for, whatever the request.
    pub(crate) fn is_served(&self) -> bool {
        let answered = match self {
            Self::Response { response, .. } => Some(response.status()),
            Self::Lost(_) => None,
            Self::Failure { error, .. } => error
                .facts
                .status
                .filter(|_| error.facts.failure.kind == ErrorKind::Status),
        };
        answered.is_some_and(|status| !status::is_retried(status))
    }

    pub(crate) fn failure(&self) -> Option<ErrorKind> {
        match self {
            Self::Response { .. } => None,
            Self::Lost(_) => Some(ErrorKind::Body),
            Self::Failure { error, .. } => Some(error.facts.failure.kind),
        }
    }

    /// What failed, where no answer can be given back.
    pub(crate) fn into_response(self) -> Result<Response, (ErrorKind, BoxError)> {
        match self {
            Self::Response { response, .. } => Ok(response),
            Self::Lost(lost) => Err((ErrorKind::Body, lost.into_error())),
            Self::Failure { error, .. } => Err((error.facts.failure.kind, error.source)),
        }
    }
}

/// Whether somebody must look at the body, and how many bytes are held for that.
struct Look {
    seen: bool,
    buffer: usize,
}

impl Look {
    /// A sign of the contract is in all of the body or cannot be found; a classifier takes the beginning.
    fn at(operation: &Operation, response: &Response, buffer: usize) -> Self {
        let succeeded = response.status().is_success();
        let fits = |buffer: usize| response.content_length().is_none_or(|length| length <= buffer as u64);
        let for_contract = if succeeded { buffer } else { buffer.max(LEAST_SEEN) };
        if fits(for_contract) && operation.contract_asks_body(response.status(), response.headers()) {
            return Self {
                seen: for_contract > 0,
                buffer: for_contract,
            };
        }
        Self {
            seen: buffer > 0 && operation.client().classifiers().need_body(),
            buffer,
        }
    }
}

fn asked(response: &Response, policy: &Policy) -> Option<Duration> {
    let status = response.status();
    let refused = status.is_client_error() || status.is_server_error();
    if refused {
        retry_after::asked(response.headers(), policy.obeyed(), SystemTime::now)
    } else {
        None
    }
}

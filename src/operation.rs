//! The operation: a request with its key, its bytes and its limits fixed, that can be sent again.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use reqwest::{Method, Request, Response, Url};
use tokio::time::Instant;

use crate::attempts::{Record, StopReason};
use crate::body::outgoing::{NoBody, Outgoing};
use crate::body::read::Mode;
use crate::carried::Carried;
use crate::circuit::circuits::Circuits;
use crate::circuit::name::GroupName;
use crate::classifier::RequestFacts;
use crate::classify::attempt_error::AttemptError;
use crate::client::Client;
use crate::decision::Terms;
use crate::error::{BoxError, Error, ErrorKind};
use crate::idempotency::contract::{ASSUMED, IdempotencyContract, Meaning};
use crate::idempotency::key::IdempotencyKey;
use crate::idempotency::placed::Placed;
use crate::idempotency::placement::Placement;
use crate::idempotency::sign::Answer;
use crate::outcome::Evidence;
use crate::pipeline::{self, Sender};
use crate::policy::Policy;
use crate::redacted::target;
use crate::replay::{KeyTrust, ReplaySafety};
use crate::request::Settings;

/// As a request says that it has none.
pub(crate) const NO_TIMEOUT: Duration = Duration::MAX;

/// What the caller wants done, once.
///
/// Its key and its bytes are fixed when it is made. It may be sent again when a first [`send`](Operation::send) ended
/// without certainty: each `send()` has its own deadline and attempts, all of them carry the same key, and what is known
/// of the effect carries over.
///
/// ```no_run
/// # async fn f(client: steadfast::Client) -> Result<(), steadfast::Error> {
/// let operation = client.post("https://api.example.com/charges").body("{}").into_operation()?;
/// // Written down before anything is sent, the key survives what the process does not.
/// println!("{:?}", operation.idempotency_key());
/// let response = match operation.send().await {
///     Err(error) if error.is_timeout() => operation.send().await?,
///     other => other?,
/// };
/// # Ok(())
/// # }
/// ```
#[must_use = "an operation does nothing until it is sent"]
pub struct Operation {
    client: Client,
    /// Copied for each attempt, without a body.
    request: Request,
    /// It has nothing but what can be seen of it, and so can be made anew.
    is_plain: bool,
    body: Outgoing,
    policy: Arc<Policy>,
    /// The group the request named.
    group: Option<GroupName<'static>>,
    terms: Terms,
    safe: bool,
    /// The contract that was declared; without one, keys are assumed to be honoured in the usual header.
    contract: Option<Arc<IdempotencyContract>>,
    key: Option<IdempotencyKey>,
    key_trust: Option<KeyTrust>,
    /// Nobody but us says that the service honours its key, and its retries trust in that.
    relies_on_assumption: bool,
    body_mode: Mode,
    /// A deadline the caller set for this request, which a body that was handed over obeys too.
    own_deadline: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sending: bool,
    /// When its first attempt began.
    first_sent: Option<Instant>,
    evidence: Evidence,
}

impl Operation {
    pub(crate) fn new(client: Client, request: reqwest::Result<Request>, settings: Settings) -> Result<Self, Error> {
        let unbuilt = |error| Error::unsendable(None, None, AttemptError::from(error).source);
        let mut request = request.map_err(unbuilt)?;
        let refuse = |request: &Request, key, source: BoxError| {
            Error::unsendable(Some((request.method(), request.url())), key, source)
        };
        if !matches!(request.url().scheme(), "http" | "https") {
            return Err(refuse(&request, None, Refusal::Scheme.into()));
        }

        if settings.group == Some(GroupName::Given("".into())) {
            return Err(refuse(&request, None, Refusal::Group.into()));
        }

        let group = || match &settings.group {
            Some(group) => group.as_ref(),
            None => GroupName::of(request.url()),
        };
        let (policy, contract) = client.settings_of(group);
        let placed = Placed::into_request(&mut request, settings.contract.or(contract), settings.key);
        let placed = placed.map_err(|source| refuse(&request, None, source))?;
        let Placed {
            contract,
            key,
            trust,
            is_assumption,
        } = placed;

        let policy = settings.policy.unwrap_or(policy);
        // What an operation around this one put there is no limit.
        let attempt_timeout = request.timeout().copied().filter(|timeout| *timeout != NO_TIMEOUT);
        let policy = match (settings.max_attempts, attempt_timeout, settings.deadline) {
            (None, None, None) => policy,
            (attempts, timeout, deadline) => {
                let limited = policy.limited(attempts, timeout, deadline);
                Arc::new(limited.map_err(|error| refuse(&request, key.clone(), error.into()))?)
            }
        };
        if request.timeout().is_some() {
            *request.timeout_mut() = None;
        }

        // What the contract wrote into it would be lost.
        if settings.body_factory.is_some() && request.body().is_some_and(|body| body.as_bytes() != Some(b"")) {
            return Err(refuse(&request, key, Refusal::KeyInBody.into()));
        }
        let body = Outgoing::of(&mut request, settings.body_factory);
        let safety = |trust| ReplaySafety::of(request.method(), trust, settings.replay_safe, policy.unknown_retries());
        let terms = Terms {
            safety: safety(trust),
            safety_unkeyed: safety(None),
            body_replayable: body.is_replayable(),
            keyed: trust.is_some(),
            retention: trust.and_then(|_| contract.as_ref()?.retention()),
        };
        let relies_on_assumption = is_assumption && terms.safety.unknown && settings.replay_safe.is_none();
        // A caller who forbids repeating a GET says that it does something.
        let safe = request.method().is_safe() && settings.replay_safe != Some(false);
        let evidence = Evidence::new(safe, trust == Some(KeyTrust::Declared));
        Ok(Self {
            client,
            request,
            is_plain: settings.is_plain,
            body,
            policy,
            group: settings.group,
            terms,
            safe,
            contract,
            key,
            key_trust: trust,
            relies_on_assumption,
            body_mode: settings.body_mode,
            own_deadline: settings.deadline,
            state: Mutex::new(State {
                sending: false,
                first_sent: None,
                evidence,
            }),
        })
    }

    /// Sends the operation. May be called again after it ended, whatever the result, but not while it runs.
    ///
    /// # Errors
    ///
    /// As of [`RequestBuilder::send`](crate::RequestBuilder::send). Besides, an error of the kind `Request` if another
    /// `send()` of the operation is under way, or its body is a stream that was sent before.
    pub fn send(&self) -> impl Future<Output = Result<Response, Error>> + Send + '_ {
        pipeline::run(self, self.client.sender(), |request, scope| {
            self.client.transmit(request, scope)
        })
    }

    /// Sends the operation, each attempt by `send` instead of the inner client: see
    /// [`RequestBuilder::send_with`](crate::RequestBuilder::send_with).
    ///
    /// # Errors
    ///
    /// As of [`send`](Operation::send).
    pub fn send_with<F, Fut, E>(&self, send: F) -> impl Future<Output = Result<Response, Error>> + Send
    where
        F: Fn(Request) -> Fut + Send + Sync,
        Fut: Future<Output = Result<Response, E>> + Send,
        E: Into<AttemptError>,
    {
        // Boxed, so that an operation inside an operation does not add their sizes up.
        pipeline::run(self, Sender::Caller, move |request, scope| {
            Box::pin(scope.unwrap_or_default().send(|| send(request)))
        })
    }

    /// The key that every attempt carries.
    pub fn idempotency_key(&self) -> Option<&IdempotencyKey> {
        self.key.as_ref()
    }

    /// The method.
    pub fn method(&self) -> &Method {
        self.request.method()
    }

    /// The URL it is sent to.
    pub fn url(&self) -> &Url {
        self.request.url()
    }

    /// The contract under which its key is sent, if one was declared.
    pub fn contract(&self) -> Option<&IdempotencyContract> {
        self.contract.as_deref()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The group whose guards count.
    pub(crate) fn group(&self) -> GroupName<'_> {
        match &self.group {
            Some(group) => group.as_ref(),
            None => GroupName::of(self.url()),
        }
    }

    pub(crate) fn circuits(&self) -> &Circuits {
        self.client.circuits()
    }

    /// Puts the key back where a request of it has lost or changed it.
    pub(crate) fn restore_key(&self, request: &mut Request) -> Result<(), BoxError> {
        match &self.key {
            Some(key) => self.placement().restore(request, key, &self.request),
            None => Ok(()),
        }
    }

    /// Whether it has a key that a redirect may drop.
    pub(crate) fn may_lose_key(&self) -> bool {
        self.terms.keyed && !self.placement().survives_redirects()
    }

    fn placement(&self) -> &Placement {
        self.contract.as_deref().unwrap_or(&ASSUMED).placement()
    }

    /// What an answer says about its key.
    pub(crate) fn meaning(&self, answer: &Answer<'_>) -> Option<Meaning> {
        let meaning = self.contract()?.meaning(answer)?;
        (self.terms.keyed || meaning == Meaning::Missing).then_some(meaning)
    }

    /// Whether an answer is a stored one, if its contract tells.
    pub(crate) fn replayed(&self, answer: &Answer<'_>) -> Option<bool> {
        self.contract().filter(|_| self.terms.keyed)?.replayed(answer)
    }

    /// Whether its contract looks at the body of an answer with this head.
    pub(crate) fn contract_asks_body(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        self.contract()
            .is_some_and(|contract| contract.asks_body(status, headers))
    }

    /// Its request as a classifier sees it.
    pub(crate) fn facts(&self) -> RequestFacts<'_> {
        RequestFacts {
            method: self.method(),
            url: self.url(),
            headers: self.request.headers(),
            keyed: self.terms.keyed,
            replay_safe: self.terms.safety.unknown,
        }
    }

    pub(crate) fn relies_on_assumption(&self) -> bool {
        self.relies_on_assumption
    }

    /// The request of one of its attempts, for operations inside that attempt.
    pub(crate) fn carried(&self, request: &Request) -> Carried {
        Carried::new(request, self.key.clone(), self.key_trust, self.contract.clone())
    }

    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    pub(crate) fn body_mode(&self) -> Mode {
        self.body_mode
    }

    pub(crate) fn own_deadline(&self) -> Option<Duration> {
        self.own_deadline
    }

    /// Method and URL as errors show them.
    pub(crate) fn target(&self) -> String {
        target(self.method(), self.url())
    }

    /// The request of the next attempt, without a stream: the same bytes each time (R75).
    pub(crate) fn next_request(&self) -> Result<Request, NoBody> {
        let body = self.body.made()?;
        let mut request = if self.is_plain {
            let Self { request, .. } = self;
            let mut copy = Request::new(request.method().clone(), request.url().clone());
            *copy.headers_mut() = request.headers().clone();
            *copy.version_mut() = request.version();
            copy
        } else {
            // Its body was taken out when the operation was made.
            self.request.try_clone().ok_or(NoBody::Used)?
        };
        *request.body_mut() = body;
        Ok(request)
    }

    /// The limit of the attempt is ours. A timeout of the inner client would count beside it, and go on counting after the
    /// hand-over; it cannot be read or switched off, only replaced. What the caller brought may have one of its own too.
    pub(crate) fn lift_timeout(&self, request: &mut Request, sender: Sender) {
        let has_none = sender == Sender::Inner && self.client.is_built_here() && request.timeout().is_none();
        if !has_none {
            *request.timeout_mut() = Some(NO_TIMEOUT);
        }
    }

    /// Gives a request its body, if that is a stream: it is used up then.
    pub(crate) fn put_stream(&self, request: &mut Request) -> Result<(), NoBody> {
        if let Some(stream) = self.body.stream()? {
            *request.body_mut() = Some(stream);
        }
        Ok(())
    }

    /// It has no effect to be unsure of.
    pub(crate) fn is_safe(&self) -> bool {
        self.safe
    }

    /// Nothing makes a repeat of it harmless: whether an attempt was sent at all must be known for certain.
    pub(crate) fn is_unprotected(&self) -> bool {
        !self.safe && !self.terms.safety.unknown
    }

    /// The right to send, which one caller has at a time.
    pub(crate) fn take_turn(&self) -> Result<Turn<'_>, Error> {
        let mut state = self.state();
        if !state.sending {
            state.sending = true;
            drop(state);
            return Ok(Turn { operation: self });
        }
        let evidence = state.evidence;
        drop(state);
        let attempts = Record::without_attempts(
            Some(self.method().clone()),
            StopReason::NotRetryable,
            evidence,
            self.key.clone(),
        );
        let source = Some(Refusal::Sending.into());
        Err(Error::new(ErrorKind::Request, self.target(), attempts, source))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Plain values, whole after every assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One `send()` of an operation. Dropped at any point, it leaves what is known and lets the next one begin.
pub(crate) struct Turn<'a> {
    operation: &'a Operation,
}

impl Turn<'_> {
    pub(crate) fn evidence(&self) -> Evidence {
        self.operation.state().evidence
    }

    pub(crate) fn leave(&self, evidence: Evidence) {
        self.operation.state().evidence = evidence;
    }

    /// An attempt begins, and leaves this if nothing is heard of it.
    pub(crate) fn begin(&self, now: Instant, evidence: Evidence) {
        let mut state = self.operation.state();
        state.first_sent.get_or_insert(now);
        state.evidence = evidence;
    }

    /// What is left of the time in which the service remembers the key, if the operation was sent before.
    pub(crate) fn remembered_for(&self, now: Instant) -> Option<Duration> {
        let retention = self.operation.terms.retention?;
        let first_sent = self.operation.state().first_sent?;
        Some(retention.saturating_sub(now.saturating_duration_since(first_sent)))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.operation.state().sending = false;
    }
}

#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the scheme of the URL is neither http nor https")]
    Scheme,
    #[error("the name of the circuit is empty")]
    Group,
    #[error("the contract puts the idempotency key into the body, and body_with makes another one for each attempt")]
    KeyInBody,
    #[error("the operation is being sent already")]
    Sending,
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("target", &self.target())
            .field("key", &self.key)
            .field("policy", &self.policy)
            .field("terms", &self.terms)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

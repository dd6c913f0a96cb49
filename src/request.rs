//! The request builder: everything `reqwest::RequestBuilder` has, and what an operation needs beside it.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Request, Response, Version};

use crate::body::outgoing::BodyFactory;
use crate::body::read::Mode;
use crate::circuit::name::GroupName;
use crate::classify::attempt_error::AttemptError;
use crate::client::Client;
use crate::error::Error;
use crate::idempotency::contract::IdempotencyContract;
use crate::idempotency::key::IdempotencyKey;
use crate::idempotency::placement::KeyChoice;
use crate::operation::Operation;
use crate::policy::Policy;

/// Builds the request of one operation.
///
/// It has every method of `reqwest::RequestBuilder`, so that a service changes the type of its client and nothing else,
/// and the settings of an operation that differ from the client's [`Policy`].
#[must_use = "a request does nothing until it is sent"]
pub struct RequestBuilder {
    client: Client,
    request: reqwest::RequestBuilder,
    settings: Settings,
}

/// What one request sets for itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) policy: Option<Arc<Policy>>,
    pub(crate) group: Option<GroupName<'static>>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) contract: Option<Arc<IdempotencyContract>>,
    pub(crate) key: KeyChoice,
    pub(crate) replay_safe: Option<bool>,
    pub(crate) body_mode: Mode,
    pub(crate) body_factory: Option<BodyFactory>,
    /// The request was made by this builder, so that it can have no extensions.
    pub(crate) is_plain: bool,
}

/// As in `reqwest::RequestBuilder`.
impl RequestBuilder {
    /// A builder that goes on from a request.
    pub fn from_parts(client: Client, request: Request) -> Self {
        let request = reqwest::RequestBuilder::from_parts(client.http().clone(), request);
        Self::over(client, request)
    }

    /// Adds a header. An `Idempotency-Key` set here is the caller's key, also where the contract has another place for it.
    pub fn header<K, V>(self, name: K, value: V) -> Self
    where
        HeaderName: TryFrom<K>,
        <HeaderName as TryFrom<K>>::Error: Into<http::Error>,
        HeaderValue: TryFrom<V>,
        <HeaderValue as TryFrom<V>>::Error: Into<http::Error>,
    {
        self.map(|request| request.header(name, value))
    }

    /// Adds headers, in place of those of the same names.
    pub fn headers(self, headers: HeaderMap) -> Self {
        self.map(|request| request.headers(headers))
    }

    /// Sets HTTP basic authentication.
    pub fn basic_auth<U: fmt::Display, P: fmt::Display>(self, username: U, password: Option<P>) -> Self {
        self.map(|request| request.basic_auth(username, password))
    }

    /// Sets HTTP bearer authentication.
    pub fn bearer_auth<T: fmt::Display>(self, token: T) -> Self {
        self.map(|request| request.bearer_auth(token))
    }

    /// Sets the body. Bytes are sent again as they are; a stream is good for one attempt, see
    /// [`body_with`](RequestBuilder::body_with).
    pub fn body<T: Into<Body>>(self, body: T) -> Self {
        self.map_body(|request| request.body(body))
    }

    /// The same as [`attempt_timeout`](RequestBuilder::attempt_timeout), which bounds an attempt and not the call.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.map(|request| request.timeout(timeout))
    }

    /// Sends a multipart form. Its body is a stream, even where all of its parts are in memory.
    #[cfg(feature = "multipart")]
    pub fn multipart(self, form: reqwest::multipart::Form) -> Self {
        self.map_body(|request| request.multipart(form))
    }

    /// Adds to the query of the URL.
    #[cfg(feature = "query")]
    pub fn query<T: serde::Serialize + ?Sized>(self, query: &T) -> Self {
        self.map(|request| request.query(query))
    }

    /// Sets the HTTP version.
    pub fn version(self, version: Version) -> Self {
        self.map(|request| request.version(version))
    }

    /// Sends a URL-encoded form, with its content type.
    #[cfg(feature = "form")]
    pub fn form<T: serde::Serialize + ?Sized>(self, form: &T) -> Self {
        self.map_body(|request| request.form(form))
    }

    /// Sends JSON, with its content type.
    #[cfg(feature = "json")]
    pub fn json<T: serde::Serialize + ?Sized>(self, json: &T) -> Self {
        self.map_body(|request| request.json(json))
    }

    /// The bare reqwest request: without a key and without the settings of the operation, but for the timeout.
    ///
    /// # Errors
    ///
    /// What was wrong with any part of it.
    pub fn build(self) -> reqwest::Result<Request> {
        self.request.build()
    }

    /// The client beside the bare reqwest request.
    pub fn build_split(self) -> (Client, reqwest::Result<Request>) {
        (self.client, self.request.build())
    }

    /// Sends the request as one operation.
    ///
    /// # Errors
    ///
    /// An [`Error`] where there is no response to give: the last attempt brought none, or the request could not be
    /// built. A response with a failing status is `Ok`, also after retries that did not help:
    /// [`into_result`](crate::ResponseExt::into_result) makes it an error that keeps the record.
    pub fn send(self) -> impl Future<Output = Result<Response, Error>> + Send + use<> {
        let operation = self.into_operation();
        async move {
            match operation {
                Ok(ref operation) => pin!(operation.send()).await,
                Err(error) => Err(error),
            }
        }
    }

    /// A copy for another operation: it gets a key of its own, but for one the caller gave. `None` where the body is a
    /// stream.
    pub fn try_clone(&self) -> Option<Self> {
        Some(Self {
            client: self.client.clone(),
            request: self.request.try_clone()?,
            settings: self.settings.clone(),
        })
    }
}

/// What an operation needs.
impl RequestBuilder {
    /// The key of the operation, made and kept by the caller.
    ///
    /// It also says that the service honours keys, so that a final 4xx under it (but 401, 403, 407, 408, 409, 425 and 429)
    /// is the service's word on the earlier attempts too: they did nothing. Where a gateway in front of the service
    /// gives such answers of its own, leave the key to the client.
    ///
    /// It stands where the contract has it, and a key that the contract forbids is refused. Under
    /// [`IdempotencyContract::none`] it is not sent.
    pub fn idempotency_key(mut self, key: IdempotencyKey) -> Self {
        self.settings.key = KeyChoice::Given(key);
        self
    }

    /// Sends no key, for a service that refuses or misreads it. An attempt that may have acted is then not repeated,
    /// unless the method is idempotent. A default header of the inner client is out of its reach.
    pub fn without_idempotency_key(mut self) -> Self {
        self.settings.key = KeyChoice::Without;
        self
    }

    /// The group of this operation, whose circuit and retry budget it shares with all others of the same name. Without one it
    /// belongs to its origin: scheme, host and port (R35). The name is shown in errors and events; an empty one is refused.
    pub fn circuit(mut self, group: impl Into<Cow<'static, str>>) -> Self {
        self.settings.group = Some(GroupName::read(group));
        self
    }

    /// The policy of this operation, in place of the client's and that of its group.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.settings.policy = Some(Arc::new(policy));
        self
    }

    /// What the service promises about the key of this request, in place of what is declared for the client or the group.
    pub fn contract(mut self, contract: IdempotencyContract) -> Self {
        self.settings.contract = Some(Arc::new(contract));
        self
    }

    /// The time the whole call may take. It also ends a body that was handed over. Zero is a deadline that has passed.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = Some(deadline);
        self
    }

    /// The time each attempt may take. Longer than a deadline that nobody set, it lifts that; longer than one that was
    /// set, for the request or in its policy, it contradicts it, and the request is refused.
    pub fn attempt_timeout(self, timeout: Duration) -> Self {
        self.timeout(timeout)
    }

    /// The attempts the call may make, the first included.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.settings.max_attempts = Some(attempts);
        self
    }

    /// The caller's word on whether repeating this request is harmless. It stands above method and key: `false` forbids
    /// even what the method allows.
    pub fn replay_safe(mut self, safe: bool) -> Self {
        self.settings.replay_safe = Some(safe);
        self
    }

    /// Hands the body of the answer over at the headers.
    pub fn streamed(mut self) -> Self {
        self.settings.body_mode = Mode::Streamed;
        self
    }

    /// Reads the body of the answer to its end inside the attempt, whatever its type and length, up to
    /// `response_buffer`; a longer one is handed over.
    pub fn buffered(mut self) -> Self {
        self.settings.body_mode = Mode::Buffered;
        self
    }

    /// A fresh body for each attempt, which makes streams and files replayable. It must produce the same bytes each
    /// time. It is called once for every attempt that is made.
    pub fn body_with<F>(mut self, body: F) -> Self
    where
        F: Fn() -> Result<Body, io::Error> + Send + Sync + 'static,
    {
        // In place of one that was set before, which might be a stream that cannot be copied.
        self.request = self.request.body(Body::default());
        self.settings.body_factory = Some(BodyFactory::new(body));
        self
    }

    /// Fixes the operation: its key and its bytes. It is sent by [`Operation::send`], more than once if need be.
    ///
    /// # Errors
    ///
    /// An [`Error`] of the kind `Request`: the request could not be built, its key is not valid, or its limits contradict
    /// each other.
    pub fn into_operation(self) -> Result<Operation, Error> {
        Operation::new(self.client, self.request.build(), self.settings)
    }

    /// Sends the request as one operation, each attempt by `send` instead of the inner client: a middleware stack, a
    /// tower service, a test double.
    ///
    /// The request it is given has a timeout so long that the limit of the attempt is the only one that counts. Where
    /// nothing makes a repeat harmless (no key, a method that is not idempotent) its body is a stream, also where the
    /// caller gave bytes: `try_clone` is `None` then.
    ///
    /// It is called in the [`scope`](crate::scope) of the attempt, so that a client inside it keeps within the attempt and
    /// leaves repeating to this one. A task it spawns is out of it, unless it [enters](crate::Scope::enter) it: there
    /// both repeat, and both ask the circuit of their group, for two places of probes.
    ///
    /// # Errors
    ///
    /// As of [`send`](RequestBuilder::send). An error of `send` is classified as [`AttemptError`] says.
    pub fn send_with<F, Fut, E>(self, send: F) -> impl Future<Output = Result<Response, Error>> + Send + use<F, Fut, E>
    where
        F: Fn(Request) -> Fut + Send + Sync,
        Fut: Future<Output = Result<Response, E>> + Send,
        E: Into<AttemptError>,
    {
        let operation = self.into_operation();
        async move {
            match operation {
                Ok(ref operation) => pin!(operation.send_with(send)).await,
                Err(error) => Err(error),
            }
        }
    }

    pub(crate) fn new(client: Client, request: reqwest::RequestBuilder) -> Self {
        let mut builder = Self::over(client, request);
        builder.settings.is_plain = true;
        builder
    }

    fn over(client: Client, request: reqwest::RequestBuilder) -> Self {
        Self {
            client,
            request,
            settings: Settings::default(),
        }
    }

    fn map(mut self, change: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder) -> Self {
        self.request = change(self.request);
        self
    }

    /// The body that was set last is the one that counts.
    fn map_body(mut self, change: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder) -> Self {
        self.settings.body_factory = None;
        self.map(change)
    }
}

impl fmt::Debug for RequestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The request would print its URL with the query, and its headers.
        f.debug_struct("RequestBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

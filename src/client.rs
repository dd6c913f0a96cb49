//! The client: an inner `reqwest::Client` and the policy its operations run under.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reqwest::{IntoUrl, Method, Request, Response};

use crate::circuit::circuits::Circuits;
use crate::circuit::name::GroupName;
use crate::classifier::{Classifier, Classifiers};
use crate::classify::attempt_error::AttemptError;
use crate::error::{BoxError, Error};
use crate::guard::Pipeline;
use crate::hook::BeforeAttempt;
use crate::idempotency::contract::IdempotencyContract;
use crate::operation::{NO_TIMEOUT, Operation};
use crate::pipeline::Sender;
use crate::policy::Policy;
use crate::redirect;
use crate::request::RequestBuilder;
use crate::scope::Scope;
#[cfg(feature = "testing")]
use crate::testing::Sending;

#[cfg(feature = "testing")]
type Transport = Arc<dyn Fn(Request) -> Sending + Send + Sync>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Sends each request as one operation.
///
/// It wraps the `reqwest::Client` a service already has and takes its place: the methods are the same, and
/// [`send`](RequestBuilder::send) gives a plain `reqwest::Response`. Cheap to clone.
///
/// ```no_run
/// # async fn f(http: reqwest::Client) -> Result<(), steadfast::Error> {
/// let client = steadfast::Client::new(http);
/// let response = client.post("https://api.example.com/charges").body("{}").send().await?;
/// # Ok(())
/// # }
/// ```
///
/// Three things stay what the inner client makes of them: its `connect_timeout` and `read_timeout`, its redirects, and
/// its own repeats of requests that an HTTP/2 server refused. Its `timeout` is replaced by the policy's.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    http: reqwest::Client,
    #[cfg(feature = "testing")]
    transport: Option<Transport>,
    is_built_here: bool,
    policy: Arc<Policy>,
    contract: Option<Arc<IdempotencyContract>>,
    /// Of the groups that have settings of their own.
    groups: HashMap<GroupName<'static>, GroupSettings>,
    classifiers: Classifiers,
    before_attempt: Option<BeforeAttempt>,
    pipeline: Pipeline,
    /// Where waits are drawn from; `None` is the generator of the thread.
    seeded: Option<Mutex<StdRng>>,
}

/// What the operations of one group have in place of the client's.
#[derive(Clone, Debug, Default)]
struct GroupSettings {
    policy: Option<Arc<Policy>>,
    contract: Option<Arc<IdempotencyContract>>,
}

impl Client {
    /// Wraps a client under the default [`Policy`].
    pub fn new(http: reqwest::Client) -> Self {
        Self::builder(http).build()
    }

    /// Wraps a client under settings of your own.
    pub fn builder(http: reqwest::Client) -> ClientBuilder {
        ClientBuilder {
            http,
            #[cfg(feature = "testing")]
            transport: None,
            is_built_here: false,
            policy: Policy::default(),
            contract: None,
            groups: HashMap::new(),
            classifiers: Classifiers::default(),
            before_attempt: None,
            pipeline: None,
            seed: None,
        }
    }

    /// Builds a client that tells Steadfast what a finished `reqwest::Client` hides, for writes above all.
    ///
    /// It sets four things, **whatever the builder had for them**: a connect timeout of 3 s, no timeout beside the policy's, no
    /// repeats of reqwest's own (`retry(never())`), and a redirect policy that follows as reqwest's default does, at most 10,
    /// and tells the running attempt of each. With that, a POST that a 301 or 302 turned into a GET is
    /// [`Unknown`](crate::Outcome::Unknown) while one that was sent on by a 307 or 308 is what its answer says, a 303
    /// confirms, and a failure to connect after a redirect never passes for a request that was not sent.
    ///
    /// ```
    /// # fn f() -> Result<(), steadfast::Error> {
    /// let client = steadfast::Client::from_builder(steadfast::reqwest::Client::builder())?.build();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// An [`Error`] of the kind `Request` where reqwest cannot build the client.
    pub fn from_builder(http: reqwest::ClientBuilder) -> Result<ClientBuilder, Error> {
        let http = match may_have_timeout(&http) {
            true => http.timeout(NO_TIMEOUT),
            false => http,
        };
        let http = http
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(redirect::policy())
            .build()
            .map_err(|error| Error::unsendable(None, None, AttemptError::from(error).source))?;
        Ok(ClientBuilder {
            is_built_here: true,
            ..Self::builder(http)
        })
    }

    /// Starts a GET request. A URL that cannot be parsed shows when the request is sent.
    pub fn get<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::GET, url)
    }

    /// Starts a POST request.
    pub fn post<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::POST, url)
    }

    /// Starts a PUT request.
    pub fn put<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::PUT, url)
    }

    /// Starts a PATCH request.
    pub fn patch<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::PATCH, url)
    }

    /// Starts a DELETE request.
    pub fn delete<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::DELETE, url)
    }

    /// Starts a HEAD request.
    pub fn head<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::HEAD, url)
    }

    /// Starts a request of any method.
    pub fn request<U: IntoUrl>(&self, method: Method, url: U) -> RequestBuilder {
        RequestBuilder::new(self.clone(), self.inner.http.request(method, url))
    }

    /// Sends a request as one operation. A timeout set on the request is its attempt timeout.
    ///
    /// # Errors
    ///
    /// See [`RequestBuilder::send`].
    pub fn execute(&self, request: Request) -> impl Future<Output = Result<Response, Error>> + Send + use<> {
        RequestBuilder::from_parts(self.clone(), request).send()
    }

    /// Sends a request as one operation, each attempt by `send` instead of the inner client.
    ///
    /// # Errors
    ///
    /// See [`RequestBuilder::send_with`].
    pub fn execute_with<F, Fut, E>(
        &self,
        request: Request,
        send: F,
    ) -> impl Future<Output = Result<Response, Error>> + Send + use<F, Fut, E>
    where
        F: Fn(Request) -> Fut + Send + Sync,
        Fut: Future<Output = Result<Response, E>> + Send,
        E: Into<AttemptError>,
    {
        RequestBuilder::from_parts(self.clone(), request).send_with(send)
    }

    /// Makes an operation of a request, to be sent later or more than once.
    ///
    /// # Errors
    ///
    /// See [`RequestBuilder::into_operation`].
    pub fn operation(&self, request: Request) -> Result<Operation, Error> {
        RequestBuilder::from_parts(self.clone(), request).into_operation()
    }

    /// The circuits and retry budgets, which clones of the client share.
    pub fn circuits(&self) -> &Circuits {
        self.inner.pipeline.circuits()
    }

    /// What another client can share: see [`Pipeline`].
    pub fn pipeline(&self) -> &Pipeline {
        &self.inner.pipeline
    }

    pub(crate) fn http(&self) -> &reqwest::Client {
        &self.inner.http
    }

    /// What sends its attempts.
    pub(crate) fn sender(&self) -> Sender {
        #[cfg(feature = "testing")]
        if self.inner.transport.is_some() {
            return Sender::Caller;
        }
        Sender::Inner
    }

    /// Sends one attempt.
    #[cfg(not(feature = "testing"))]
    pub(crate) fn transmit(
        &self,
        request: Request,
        _: Option<Scope>,
    ) -> impl Future<Output = reqwest::Result<Response>> + Send + use<> {
        self.inner.http.execute(request)
    }

    /// Sends one attempt, or plays it where a test says how.
    #[cfg(feature = "testing")]
    pub(crate) fn transmit(&self, request: Request, scope: Option<Scope>) -> Sending {
        match &self.inner.transport {
            Some(transport) => Box::pin(scope.unwrap_or_default().send(|| transport(request))),
            None => {
                let sending = self.inner.http.execute(request);
                Box::pin(async { Ok(sending.await?) })
            }
        }
    }

    /// The inner client tells its redirects by [`redirect::policy`], and has no timeout.
    pub(crate) fn is_built_here(&self) -> bool {
        self.inner.is_built_here
    }

    /// What the operations of a group have that do not bring their own: the policy, and the contract if one is declared.
    pub(crate) fn settings_of<'a>(
        &self,
        group: impl FnOnce() -> GroupName<'a>,
    ) -> (Arc<Policy>, Option<Arc<IdempotencyContract>>) {
        let Inner {
            policy,
            contract,
            groups,
            ..
        } = &*self.inner;
        // Most clients have the same for all, and no need to look for the name.
        let own = if groups.is_empty() { None } else { groups.get(&group()) };
        let own_policy = own.and_then(|own| own.policy.as_ref());
        let own_contract = own.and_then(|own| own.contract.as_ref());
        (
            Arc::clone(own_policy.unwrap_or(policy)),
            own_contract.or(contract.as_ref()).cloned(),
        )
    }

    pub(crate) fn classifiers(&self) -> &Classifiers {
        &self.inner.classifiers
    }

    pub(crate) fn before_attempt(&self) -> Option<&BeforeAttempt> {
        self.inner.before_attempt.as_ref()
    }

    /// The random bits of one wait.
    pub(crate) fn random(&self) -> u64 {
        match &self.inner.seeded {
            // A generator is whole after every step, a panic in another thread included.
            Some(rng) => rng.lock().unwrap_or_else(PoisonError::into_inner).next_u64(),
            None => rand::random(),
        }
    }
}

/// Around `reqwest::Client::default()`, and panics where that does.
impl Default for Client {
    fn default() -> Self {
        Self::new(reqwest::Client::default())
    }
}

impl From<reqwest::Client> for Client {
    fn from(http: reqwest::Client) -> Self {
        Self::new(http)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The inner client would print its default headers.
        f.debug_struct("Client")
            .field("policy", &self.inner.policy)
            .finish_non_exhaustive()
    }
}

/// Whether the clients that a builder makes may cut a request by themselves. A builder can be asked for its timeout only by being
/// shown, and one that has a timeout must show it, or nothing is known. It can be given another one, but not none; and a timer that
/// never ends would still be set for each request.
fn may_have_timeout(http: &reqwest::ClientBuilder) -> bool {
    let shows_timeout = |http: &reqwest::ClientBuilder| format!("{http:?}").contains(" timeout: ");
    shows_timeout(http) || !shows_timeout(&reqwest::Client::builder().timeout(NO_TIMEOUT))
}

/// Collects the settings of a [`Client`].
#[must_use = "a builder does nothing until it is built"]
pub struct ClientBuilder {
    http: reqwest::Client,
    #[cfg(feature = "testing")]
    transport: Option<Transport>,
    is_built_here: bool,
    policy: Policy,
    contract: Option<Arc<IdempotencyContract>>,
    groups: HashMap<GroupName<'static>, GroupSettings>,
    classifiers: Classifiers,
    before_attempt: Option<BeforeAttempt>,
    pipeline: Option<Pipeline>,
    seed: Option<u64>,
}

impl ClientBuilder {
    /// The policy of every operation that does not bring its own.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The policy of one group, in place of the client's: of the requests that name it with
    /// [`circuit`](RequestBuilder::circuit), or of those to an origin, `https://api.example.com`, that name none. It takes
    /// nothing from the client's.
    ///
    /// A name that reads as an origin (scheme and host, with or without port, nothing behind) means that origin. Any other is
    /// only met by a request that names the same: `api.example.com` or `https://api.example.com/v1` is the group of no URL.
    pub fn policy_for(mut self, group: impl Into<Cow<'static, str>>, policy: Policy) -> Self {
        self.group(group).policy = Some(Arc::new(policy));
        self
    }

    /// What the service promises about idempotency keys, declared for every operation that does not bring its own contract.
    ///
    /// For a client of one service. Where one client calls several, declare it for their groups.
    pub fn idempotency(mut self, contract: IdempotencyContract) -> Self {
        self.contract = Some(Arc::new(contract));
        self
    }

    /// What the service behind one group promises, in place of what is declared for the client. Groups are named as for
    /// [`policy_for`](ClientBuilder::policy_for).
    pub fn idempotency_for(mut self, group: impl Into<Cow<'static, str>>, contract: IdempotencyContract) -> Self {
        self.group(group).contract = Some(Arc::new(contract));
        self
    }

    fn group(&mut self, group: impl Into<Cow<'static, str>>) -> &mut GroupSettings {
        self.groups.entry(GroupName::read(group)).or_default()
    }

    /// Adds a classifier, which is asked after every attempt: see [`classifier`](crate::classifier). It may be called more than
    /// once.
    pub fn classifier(mut self, classifier: impl Classifier + 'static) -> Self {
        self.classifiers.add(classifier);
        self
    }

    /// Prepares the request of each attempt, whose number counts from 1: a signature, a token that is fetched anew, a trace
    /// context. It may wait and fail.
    ///
    /// ```
    /// # use steadfast::reqwest::header::AUTHORIZATION;
    /// # async fn token() -> Result<steadfast::reqwest::header::HeaderValue, std::io::Error> { unimplemented!() }
    /// # fn f(http: steadfast::reqwest::Client) {
    /// let client = steadfast::Client::builder(http)
    ///     .before_attempt(|mut request, _number| async move {
    ///         request.headers_mut().insert(AUTHORIZATION, token().await?);
    ///         Ok(request)
    ///     })
    ///     .build();
    /// # }
    /// ```
    ///
    /// It sees the request as it would be sent, key and all, but for a body that is a stream. It may change headers, URL and
    /// version. The key is put back where it is lost or changed, and a request whose method or body is another is refused.
    /// The time it takes is the attempt's. It runs in the span of the attempt, before anything is spent on it: where it
    /// fails, or takes all of that time, there is no attempt and no other one: the operation ends with an error of the kind
    /// `Request`, and what earlier attempts met stays with that. Set again, it takes the place of the one before.
    pub fn before_attempt<F, Fut>(mut self, hook: F) -> Self
    where
        F: Fn(Request, u32) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Request, BoxError>> + Send + 'static,
    {
        self.before_attempt = Some(BeforeAttempt::new(hook));
        self
    }

    /// Shares the circuits and retry budgets of another client.
    pub fn pipeline(mut self, pipeline: Pipeline) -> Self {
        self.pipeline = Some(pipeline);
        self
    }

    /// Sends every attempt by this instead of the inner client: a [`Script`](crate::testing::Script), or
    /// [`Faults`](crate::testing::Faults) over the real one. For tests; needs the feature `testing`.
    #[cfg(feature = "testing")]
    pub fn transport<F, Fut, E>(mut self, send: F) -> Self
    where
        F: Fn(Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response, E>> + Send + 'static,
        E: Into<AttemptError>,
    {
        self.transport = Some(Arc::new(move |request| {
            let sending = send(request);
            Box::pin(async { sending.await.map_err(Into::into) })
        }));
        self
    }

    /// Draws the same waits in the same order each time, for tests and simulations.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The client.
    pub fn build(self) -> Client {
        Client {
            inner: Arc::new(Inner {
                http: self.http,
                #[cfg(feature = "testing")]
                transport: self.transport,
                is_built_here: self.is_built_here,
                policy: Arc::new(self.policy),
                contract: self.contract,
                groups: self.groups,
                classifiers: self.classifiers,
                before_attempt: self.before_attempt,
                pipeline: self.pipeline.unwrap_or_default(),
                seeded: self.seed.map(|seed| Mutex::new(StdRng::seed_from_u64(seed))),
            }),
        }
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("policy", &self.policy)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // field 19
    #[test]
    fn a_builder_with_a_timeout_is_told_from_one_without() {
        let quick = Duration::from_millis(1);
        let builder = reqwest::Client::builder;
        assert!(!may_have_timeout(&builder()));
        assert!(!may_have_timeout(&builder().connect_timeout(quick).read_timeout(quick)));
        assert!(may_have_timeout(&builder().timeout(quick)));
        assert!(may_have_timeout(&builder().timeout(quick).connect_timeout(quick)));
    }
}

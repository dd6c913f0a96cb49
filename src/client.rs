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
use crate::classify::attempt_error::AttemptError;
use crate::error::Error;
use crate::guard::Pipeline;
use crate::operation::Operation;
use crate::policy::Policy;
use crate::redirect;
use crate::request::RequestBuilder;

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
    tells_redirects: bool,
    policy: Arc<Policy>,
    /// Of the groups that have one of their own.
    policies: HashMap<GroupName<'static>, Arc<Policy>>,
    pipeline: Pipeline,
    /// Where waits are drawn from; `None` is the generator of the thread.
    seeded: Option<Mutex<StdRng>>,
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
            tells_redirects: false,
            policy: Policy::default(),
            policies: HashMap::new(),
            pipeline: None,
            seed: None,
        }
    }

    /// Builds a client that tells Steadfast what a finished `reqwest::Client` hides, for writes above all.
    ///
    /// It sets three things, **whatever the builder had for them**: a connect timeout of 3 s, no repeats of reqwest's own
    /// (`retry(never())`), and a redirect policy that follows as reqwest's default does, at most 10, and tells the
    /// running attempt of each. With that, a POST that a 301 or 302 turned into a GET is
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
        let http = http
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(redirect::policy())
            .build()
            .map_err(|error| Error::unsendable(None, None, AttemptError::from(error).source))?;
        Ok(ClientBuilder {
            tells_redirects: true,
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

    /// The inner client was built with [`redirect::policy`].
    pub(crate) fn tells_redirects(&self) -> bool {
        self.inner.tells_redirects
    }

    /// The policy of the operations of a group that do not bring their own.
    pub(crate) fn policy(&self, group: &GroupName<'_>) -> Arc<Policy> {
        let Inner { policy, policies, .. } = &*self.inner;
        // Most clients have one policy, and no need to look for the name.
        let own = if policies.is_empty() { None } else { policies.get(group) };
        Arc::clone(own.unwrap_or(policy))
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

/// Collects the settings of a [`Client`].
#[must_use = "a builder does nothing until it is built"]
pub struct ClientBuilder {
    http: reqwest::Client,
    tells_redirects: bool,
    policy: Policy,
    policies: HashMap<GroupName<'static>, Arc<Policy>>,
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
    pub fn policy_for(mut self, group: impl Into<Cow<'static, str>>, policy: Policy) -> Self {
        self.policies.insert(GroupName::read(group), Arc::new(policy));
        self
    }

    /// Shares the circuits and retry budgets of another client.
    pub fn pipeline(mut self, pipeline: Pipeline) -> Self {
        self.pipeline = Some(pipeline);
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
                tells_redirects: self.tells_redirects,
                policy: Arc::new(self.policy),
                policies: self.policies,
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

//! The stacks, each set up as its documentation shows it: three attempts, no wait between them, a timeout of ten seconds.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable};
use reqwest::{Method, Request, Response, StatusCode};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use steadfast::{Backoff, CircuitBreaker, Policy};
use tower::retry::budget::{Budget, TpsBudget};
use tower::util::Oneshot;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_resilience::circuitbreaker::CircuitBreakerLayer;
use tower_resilience::retry::{RetryBudgetBuilder, RetryLayer};
use tower_resilience::timelimiter::TimeLimiterLayer;

pub type Failure = Box<dyn std::error::Error + Send + Sync>;
type Sending = Pin<Box<dyn Future<Output = Result<Response, Failure>> + Send>>;

const RETRIES: u32 = 2;

/// What differs between the measurements and the probes.
#[derive(Clone, Copy)]
pub struct Settings {
    pub timeout: Duration,
    /// The budgets that the stacks have by default; without, none that could run dry.
    pub budgets: bool,
}

impl Settings {
    pub const MEASURED: Self = Self {
        timeout: Duration::from_secs(10),
        budgets: false,
    };
    pub const PROBED: Self = Self {
        timeout: Duration::from_millis(300),
        budgets: true,
    };
}

/// What is sent.
#[derive(Clone)]
pub struct Call {
    pub method: Method,
    pub url: String,
    pub body: Option<&'static [u8]>,
    /// A POST with a key of its own: who makes none gets one by hand.
    pub keyed: bool,
    /// Somebody vouches for a keyless one. Only Steadfast asks.
    pub repeatable: bool,
    /// Whoever makes keys makes one.
    pub own_key: bool,
}

impl Call {
    pub fn get(url: String) -> Self {
        Self {
            method: Method::GET,
            url,
            body: None,
            keyed: false,
            repeatable: true,
            own_key: false,
        }
    }

    pub fn post(url: String, keyed: bool) -> Self {
        static BODY: [u8; 1024] = [b'x'; 1024];
        Self {
            method: Method::POST,
            url,
            body: Some(&BODY),
            keyed,
            repeatable: true,
            own_key: false,
        }
    }

    fn of(&self, http: &reqwest::Client) -> reqwest::RequestBuilder {
        let mut request = http.request(self.method.clone(), &self.url);
        if let Some(body) = self.body {
            request = request.body(body);
        }
        if self.keyed {
            request = request.header("idempotency-key", uuid::Uuid::new_v4().to_string());
        }
        request
    }
}

/// One way of sending.
pub struct Stack {
    pub name: &'static str,
    /// Sends so many calls, one after the other, each in the future of all and not in a box of its own.
    batch: Box<dyn Fn(Call, u32) -> Batch + Send + Sync>,
}

type Batch = Pin<Box<dyn Future<Output = Result<StatusCode, Failure>> + Send>>;

impl Stack {
    fn new<F, Fut, E>(name: &'static str, send: F) -> Self
    where
        F: Fn(&Call) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Response, E>> + Send + 'static,
        E: Into<Failure> + Send,
    {
        let batch = move |call: Call, calls: u32| -> Batch {
            let send = send.clone();
            Box::pin(async move {
                let mut status = StatusCode::OK;
                for _ in 0..calls {
                    let response = send(&call).await.map_err(Into::into)?;
                    status = response.status();
                    response.bytes().await?;
                }
                Ok(status)
            })
        };
        Self {
            name,
            batch: Box::new(batch),
        }
    }

    /// Whole calls, with their bodies, and the status of the last.
    pub fn calls(&self, call: &Call, calls: u32) -> Batch {
        (self.batch)(call.clone(), calls)
    }

    pub fn call(&self, call: &Call) -> Batch {
        self.calls(call, 1)
    }
}

fn http() -> reqwest::ClientBuilder {
    // Pooling as in a service; no repeats by itself, so that what repeats is what is measured.
    reqwest::Client::builder().no_proxy().retry(reqwest::retry::never())
}

fn is_failed(result: &Result<Response, impl Sized>) -> bool {
    match result {
        Ok(response) => response.status().is_server_error(),
        Err(_) => true,
    }
}

pub fn all(settings: Settings) -> Vec<Stack> {
    vec![
        bare("bare reqwest"),
        bare("bare reqwest, again"),
        with_timeout(settings),
        own_retry(settings),
        by_tower(settings),
        by_backon(settings),
        by_middleware(settings),
        by_tower_resilience(settings),
        steadfast("Steadfast, streamed", wrapped(settings), true),
        steadfast("Steadfast", wrapped(settings), false),
        steadfast("Steadfast by `from_builder`", built(settings), false),
    ]
}

fn bare(name: &'static str) -> Stack {
    let http = http().build().expect("a client");
    Stack::new(name, move |call| call.of(&http).send())
}

/// Three attempts by hand, each drained before the next.
pub fn by_hand() -> Stack {
    let http = http().build().expect("a client");
    Stack::new("a loop by hand", move |call| {
        let requests = [call.of(&http), call.of(&http), call.of(&http)];
        async {
            let mut last = Err(Failure::from("no attempt"));
            for request in requests {
                let response = request.send().await?;
                if !response.status().is_server_error() {
                    return Ok(response);
                }
                last = Err("a failing status".into());
                response.bytes().await?;
            }
            last
        }
    })
}

fn with_timeout(settings: Settings) -> Stack {
    let http = http().timeout(settings.timeout).build().expect("a client");
    Stack::new("reqwest with `.timeout`", move |call| call.of(&http).send())
}

fn own_retry(settings: Settings) -> Stack {
    let mut retries = reqwest::retry::for_host("127.0.0.1").max_retries_per_request(RETRIES);
    if !settings.budgets {
        retries = retries.no_budget();
    }
    let retries = retries.classify_fn(|attempt| match attempt.status() {
        Some(status) if status.is_server_error() => attempt.retryable(),
        None => attempt.retryable(),
        _ => attempt.success(),
    });
    let http = reqwest::Client::builder()
        .no_proxy()
        .retry(retries)
        .timeout(settings.timeout)
        .build()
        .expect("a client");
    Stack::new("reqwest's `.retry`", move |call| call.of(&http).send())
}

/// As tower's own documentation has a policy: the request is cloned before each attempt.
#[derive(Clone)]
pub struct Attempts {
    left: u32,
    budget: Arc<TpsBudget>,
}

impl Attempts {
    fn new(budget: &Arc<TpsBudget>) -> Self {
        Self {
            left: RETRIES,
            budget: Arc::clone(budget),
        }
    }
}

impl<E> tower::retry::Policy<Request, Response, E> for Attempts {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut Request, result: &mut Result<Response, E>) -> Option<Self::Future> {
        if !is_failed(result) {
            self.budget.deposit();
            return None;
        }
        if self.left == 0 || !self.budget.withdraw() {
            return None;
        }
        self.left -= 1;
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &Request) -> Option<Request> {
        request.try_clone()
    }
}

pub type Tower<S> = Oneshot<tower::retry::Retry<Attempts, tower::timeout::Timeout<S>>, Request>;

fn budget(settings: Settings) -> Arc<TpsBudget> {
    Arc::new(match settings.budgets {
        true => TpsBudget::default(),
        false => TpsBudget::new(Duration::from_secs(10), 1_000_000, 0.2),
    })
}

/// A retry and a timeout by tower, over any service.
pub fn tower_over<S>(service: S, settings: Settings) -> impl Fn(Request) -> Tower<S> + Send + Sync + Clone
where
    S: Service<Request, Response = Response, Future: Send> + Clone + Send + Sync + 'static,
    S::Error: Into<Failure> + Send + Sync + 'static,
{
    let budget = budget(settings);
    let timed = ServiceBuilder::new().timeout(settings.timeout).service(service);
    move |request| {
        let stack = ServiceBuilder::new()
            .retry(Attempts::new(&budget))
            .service(timed.clone());
        stack.oneshot(request)
    }
}

fn by_tower(settings: Settings) -> Stack {
    let http = http().build().expect("a client");
    let send = tower_over(http.clone(), settings);
    Stack::new("tower: retry, timeout, budget", move |call| {
        send(call.of(&http).build().expect("a request"))
    })
}

/// A retry and a timeout by backon, over any way of sending.
pub fn backon_over<F, Fut, E>(send: F, settings: Settings) -> impl Fn(Request) -> Sending + Send + Sync + Clone
where
    F: Fn(Request) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Response, E>> + Send + 'static,
    E: Into<Failure> + 'static,
{
    move |request| {
        let send = send.clone();
        Box::pin(async move {
            let attempt = || async {
                let request = request.try_clone().ok_or("a stream cannot be repeated")?;
                let response = tokio::time::timeout(settings.timeout, send(request))
                    .await?
                    .map_err(Into::into)?;
                match response.status().is_server_error() {
                    true => Err(Failure::from("a failing status")),
                    false => Ok(response),
                }
            };
            let waits = ConstantBuilder::default()
                .with_delay(Duration::ZERO)
                .with_max_times(RETRIES as usize);
            attempt.retry(waits).await
        })
    }
}

fn by_backon(settings: Settings) -> Stack {
    let http = http().build().expect("a client");
    let sender = http.clone();
    let send = backon_over(move |request| sender.execute(request), settings);
    Stack::new("backon and timeout", move |call| {
        send(call.of(&http).build().expect("a request"))
    })
}

pub fn retry_middleware() -> RetryTransientMiddleware<ExponentialBackoff> {
    let waits = ExponentialBackoff::builder()
        .retry_bounds(Duration::ZERO, Duration::ZERO)
        .build_with_max_retries(RETRIES);
    RetryTransientMiddleware::new_with_policy(waits)
}

fn by_middleware(settings: Settings) -> Stack {
    let http = http().timeout(settings.timeout).build().expect("a client");
    let stack: ClientWithMiddleware = ClientBuilder::new(http.clone()).with(retry_middleware()).build();
    Stack::new("reqwest-middleware, reqwest-retry", move |call| {
        let request = call.of(&http).build();
        let stack = stack.clone();
        async move { stack.execute(request?).await }
    })
}

/// tower-resilience asks for requests that can be cloned.
pub struct Cloneable(pub Request);

impl Clone for Cloneable {
    fn clone(&self) -> Self {
        Self(self.0.try_clone().expect("a body that can be cloned"))
    }
}

/// Retry with budget, breaker and time limit by tower-resilience, over any way of sending.
pub fn resilience_over<F, Fut>(send: F, settings: Settings) -> impl Fn(Request) -> Sending + Send + Sync + Clone
where
    F: Fn(Request) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Response, reqwest::Error>> + Send + 'static,
{
    let leaf = tower::service_fn(move |Cloneable(request): Cloneable| send(request));
    let limiter = TimeLimiterLayer::builder().timeout_duration(settings.timeout).build();
    let breaker = CircuitBreakerLayer::builder()
        .failure_rate_threshold(0.5)
        .sliding_window_size(100)
        .minimum_number_of_calls(if settings.budgets { 20 } else { 1_000_000 })
        .build()
        .expect("a breaker");
    let budget = RetryBudgetBuilder::new()
        .token_bucket()
        .tokens_per_second(1e6)
        .max_tokens(1_000_000)
        .build()
        .expect("a budget");
    let retry = RetryLayer::builder()
        .max_attempts(RETRIES as usize + 1)
        .fixed_backoff(Duration::ZERO)
        .retry_on_response(|response: &Response| response.status().is_server_error())
        .budget(budget)
        .build();
    let stack = ServiceBuilder::new()
        .layer(retry)
        .layer(breaker)
        .layer(limiter)
        .service(leaf);
    move |request| {
        let stack = stack.clone();
        Box::pin(async {
            Ok(stack
                .oneshot(Cloneable(request))
                .await
                .map_err(|error| error.to_string())?)
        })
    }
}

fn by_tower_resilience(settings: Settings) -> Stack {
    let http = http().build().expect("a client");
    let sender = http.clone();
    let send = resilience_over(move |request| sender.execute(request), settings);
    Stack::new("tower-resilience, all of it", move |call| {
        send(call.of(&http).build().expect("a request"))
    })
}

/// Deadline, timeout, budget, circuit and, on a POST, a key: all on.
fn on(builder: steadfast::ClientBuilder, settings: Settings) -> steadfast::Client {
    let mut policy = Policy::builder()
        .deadline(Duration::from_secs(30))
        .attempt_timeout(settings.timeout)
        .stall_timeout(settings.timeout)
        .max_attempts(RETRIES + 1)
        .backoff(Backoff::none());
    if !settings.budgets {
        policy = policy
            .budget(steadfast::RetryBudget::new(1.0, 1_000_000))
            .circuit_breaker(CircuitBreaker::default().minimum_throughput(1_000_000));
    }
    builder.policy(policy.build().expect("a policy")).build()
}

pub fn wrapped(settings: Settings) -> steadfast::Client {
    on(steadfast::Client::builder(http().build().expect("a client")), settings)
}

fn built(settings: Settings) -> steadfast::Client {
    on(steadfast::Client::from_builder(http()).expect("a client"), settings)
}

/// With a circuit as it is by default.
pub fn with_circuit() -> Stack {
    let policy = Policy::builder()
        .attempt_timeout(Settings::PROBED.timeout)
        .backoff(Backoff::none())
        .circuit_breaker(CircuitBreaker::default());
    let client = steadfast::Client::builder(http().build().expect("a client"));
    steadfast(
        "Steadfast with a circuit",
        client.policy(policy.build().expect("a policy")).build(),
        false,
    )
}

fn steadfast(name: &'static str, client: steadfast::Client, streamed: bool) -> Stack {
    Stack::new(name, move |call| {
        let mut request = client.request(call.method.clone(), &call.url);
        if let Some(body) = call.body {
            request = request.body(body);
            if !call.keyed && !call.own_key {
                request = request.without_idempotency_key();
                if call.repeatable {
                    request = request.replay_safe(true);
                }
            }
        }
        if streamed {
            request = request.streamed();
        }
        request.send()
    })
}

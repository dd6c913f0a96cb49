//! The client among tower's services, both ways round.
//!
//! A [`Client`] is a [`Service`]: it can stand at the bottom of any stack. A stack can stand below a client too:
//! [`SteadfastLayer`] makes every request one operation, each attempt of which goes through the layers beneath it.
//!
//! ```
//! use std::time::Duration;
//! use steadfast::tower::SteadfastLayer;
//! use steadfast::{Client, reqwest};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # async fn f() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let http = reqwest::Client::new();
//! let mut stack = ServiceBuilder::new()
//!     .layer(SteadfastLayer::new(Client::new(http.clone())))
//!     // For each attempt, not for the operation.
//!     .concurrency_limit(100)
//!     .service(http);
//! let request = reqwest::Request::new(reqwest::Method::GET, "https://api.example.com/orders".parse()?);
//! let response = stack.ready().await?.call(request).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Leave retries to the client: a layer that repeats would multiply its attempts, or send a key twice that this crate does not
//! know of. What is above a client sees one call, with its error or its response.
//!
//! A sender's errors are recognised by type, also in boxes: [`Elapsed`](tower::timeout::error::Elapsed) of tower's timeout is a
//! timeout after which nobody knows whether the service acted, [`Overloaded`](tower::load_shed::error::Overloaded) of its load
//! shedding means that nothing was sent.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use reqwest::{Request, Response};
use tower::util::Oneshot;
use tower::{Layer, Service, ServiceExt};

use crate::classify::attempt_error::AttemptError;
use crate::client::Client;
use crate::error::Error;

type Sent = Pin<Box<dyn Future<Output = Result<Response, Error>> + Send>>;

/// Each call is one operation. Always ready.
impl Service<Request> for Client {
    type Response = Response;
    type Error = Error;
    type Future = Sent;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Sent {
        Box::pin(self.execute(request))
    }
}

/// Each call is one operation. Always ready.
impl Service<Request> for &Client {
    type Response = Response;
    type Error = Error;
    type Future = Sent;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Sent {
        Box::pin(self.execute(request))
    }
}

/// Makes a service send each request as one operation of a client, by the services beneath.
#[derive(Clone, Debug)]
pub struct SteadfastLayer {
    client: Client,
}

impl SteadfastLayer {
    /// Of this client's policy, circuits and budgets. What it would send by is not used.
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

impl<S> Layer<S> for SteadfastLayer {
    type Service = Steadfast<S>;

    fn layer(&self, inner: S) -> Steadfast<S> {
        Steadfast {
            client: self.client.clone(),
            inner,
        }
    }
}

/// A service whose requests are operations, each attempt sent by a clone of the service within: see [`SteadfastLayer`].
#[derive(Clone)]
pub struct Steadfast<S> {
    client: Client,
    inner: S,
}

impl<S> Service<Request> for Steadfast<S>
where
    S: Service<Request, Response = Response> + Clone + Send + 'static,
    S::Error: Into<AttemptError> + Send,
    S::Future: Send,
{
    type Response = Response;
    type Error = Error;
    type Future = Sent;

    /// Always: each attempt waits for the service within to be ready, inside its time.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Sent {
        Box::pin(self.client.execute_with(request, sender(self.inner.clone())))
    }
}

impl<S> fmt::Debug for Steadfast<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steadfast")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// A service as a sender for one request: each attempt waits, inside its time, for a clone of it to be ready.
///
/// ```
/// # async fn f(client: steadfast::Client, stack: tower::util::BoxCloneService<steadfast::reqwest::Request, steadfast::reqwest::Response, steadfast::reqwest::Error>) -> Result<(), steadfast::Error> {
/// let request = client.get("https://api.example.com/orders");
/// let response = request.send_with(steadfast::tower::sender(stack)).await?;
/// # Ok(())
/// # }
/// ```
pub fn sender<S>(service: S) -> impl Fn(Request) -> Oneshot<S, Request> + Send + Sync
where
    S: Service<Request, Response = Response> + Clone + Send,
{
    // Many services are not to be shared by threads, and a lock that is held for a copy makes them so.
    let service = Mutex::new(service);
    move |request| {
        service
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .oneshot(request)
    }
}

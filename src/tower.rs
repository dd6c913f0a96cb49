//! Tower on both sides of an operation.
//!
//! A [`Client`] is a [`Service`], so that it can be the innermost one of any stack: what is around it is around the whole
//! operation. [`SteadfastLayer`] puts a client around a service instead: what is inside is gone through by each attempt.
//!
//! ```
//! use std::time::Duration;
//!
//! use reqwest::Request;
//! use steadfast::tower::SteadfastLayer;
//! use steadfast::{Client, reqwest};
//! use tower::{Service, ServiceBuilder};
//!
//! # fn f(http: reqwest::Client) -> impl Service<Request> {
//! ServiceBuilder::new()
//!     // Of the operation: twenty at a time.
//!     .concurrency_limit(20)
//!     .layer(SteadfastLayer::new(Client::new(http.clone())))
//!     // Of each attempt: none is sent where a hundred are under way.
//!     .load_shed()
//!     .concurrency_limit(100)
//!     .timeout(Duration::from_secs(2))
//!     .service(http)
//! # }
//! ```
//!
//! # Errors of tower's layers
//!
//! `Elapsed` of a timeout is an [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) after which nobody knows whether the
//! server acted. `Overloaded` of a load shed was not sent and is repeated. Both are recognised inside other errors too,
//! but there an `Overloaded` may be that of another request, and no longer proves that a write was not sent. Those of
//! other layers are the kind `Other`, and final.
//!
//! # Retry layers
//!
//! One layer should repeat. A retry layer around an operation repeats all of it, with a key of its own unless the request
//! came with one: leave its repeats to it alone with [`scope::without_retries`](crate::scope::without_retries). One
//! inside an attempt multiplies the requests, and the operation knows of the last one only: it takes for not sent what the
//! one before may have done.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use ::tower::util::{Oneshot, ServiceExt};
use ::tower::{Layer, Service};
use reqwest::{Request, Response};

use crate::classify::attempt_error::AttemptError;
use crate::client::Client;
use crate::error::Error;

type Sending = Pin<Box<dyn Future<Output = Result<Response, Error>> + Send>>;

/// Always ready. Each request is one operation, as of [`execute`](Client::execute).
impl Service<Request> for Client {
    type Response = Response;
    type Error = Error;
    type Future = Sending;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Sending {
        Box::pin(self.execute(request))
    }
}

/// What makes each request one operation whose attempts go through the service inside.
#[derive(Clone, Debug)]
pub struct SteadfastLayer {
    client: Client,
}

impl SteadfastLayer {
    /// The operations are those of this client: its policy, circuits and budget. Its inner client sends nothing.
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

/// Makes each request one operation whose attempts go through the service inside, by [`SteadfastLayer`].
///
/// It is always ready. Each attempt waits until its own clone of the service is, and that wait is part of the attempt and
/// of its time.
#[derive(Clone)]
pub struct Steadfast<S> {
    client: Client,
    inner: S,
}

impl<S> Service<Request> for Steadfast<S>
where
    S: Service<Request, Response = Response, Error: Into<AttemptError>, Future: Send> + Clone + Send + 'static,
{
    type Response = Response;
    type Error = Error;
    type Future = Sending;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Sending {
        Box::pin(self.client.execute_with(request, sender(self.inner.clone())))
    }
}

impl<S> fmt::Debug for Steadfast<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The service may print what it adds to requests.
        f.debug_struct("Steadfast")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// Sends each attempt by a clone of a service, made ready for it: for [`send_with`](crate::RequestBuilder::send_with) and
/// [`execute_with`](Client::execute_with).
///
/// ```
/// use std::time::Duration;
///
/// use steadfast::tower::sender;
/// use steadfast::{Client, Error, reqwest};
/// use tower::ServiceBuilder;
///
/// # async fn f(http: reqwest::Client) -> Result<(), Error> {
/// let stack = ServiceBuilder::new().timeout(Duration::from_secs(2)).service(http.clone());
/// let client = Client::new(http);
/// let charge = client.post("https://api.example.com/charges").body("{}");
/// let response = charge.send_with(sender(stack)).await?;
/// # Ok(())
/// # }
/// ```
pub fn sender<S>(service: S) -> impl Fn(Request) -> Oneshot<S, Request> + Send + Sync + use<S>
where
    S: Service<Request, Response = Response> + Clone + Send,
{
    // Few services are `Sync`, and all of them can be cloned by one at a time.
    let service = Mutex::new(service);
    move |request| {
        // A clone that panics leaves what it was made of as it is.
        let service = service.lock().unwrap_or_else(PoisonError::into_inner).clone();
        service.oneshot(request)
    }
}

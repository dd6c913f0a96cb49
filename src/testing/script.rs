use std::fmt;
use std::iter::{Peekable, repeat};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use reqwest::{Request, Response, Url};
use tokio::time::Instant;

use super::Sending;
use super::reply::Reply;
use crate::classify::attempt_error::AttemptError;
use crate::classify::failure::Failure;
use crate::classify::{Delivery, Finding};
use crate::error::ErrorKind;
use crate::idempotency::contract::IdempotencyContract;
use crate::idempotency::key::IdempotencyKey;

/// A service that gives its replies in their order, one for each request, and keeps what it was sent. Clones are the same service.
///
/// Give its [`sender`](Script::sender) to [`ClientBuilder::transport`](crate::ClientBuilder::transport), and the code under
/// test sends to it. A request after the last reply is not answered: its operation ends at once, with an error that says so.
#[derive(Clone)]
pub struct Script {
    state: Arc<Mutex<State>>,
    began: Instant,
}

struct State {
    replies: Peekable<Box<dyn Iterator<Item = Reply> + Send>>,
    received: Vec<Received>,
}

/// One request as a [`Script`] got it.
#[derive(Clone)]
pub struct Received {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
    came_after: Duration,
}

impl Script {
    /// One reply for each request.
    pub fn new<I>(replies: I) -> Self
    where
        I: IntoIterator<Item = Reply>,
        I::IntoIter: Send + 'static,
    {
        let replies: Box<dyn Iterator<Item = Reply> + Send> = Box::new(replies.into_iter());
        Self {
            state: Arc::new(Mutex::new(State {
                replies: replies.peekable(),
                received: Vec::new(),
            })),
            began: Instant::now(),
        }
    }

    /// The same reply for every request.
    pub fn always(reply: Reply) -> Self {
        Self::new(repeat(reply))
    }

    /// What sends to it: for [`ClientBuilder::transport`](crate::ClientBuilder::transport), or for
    /// [`send_with`](crate::RequestBuilder::send_with).
    pub fn sender(&self) -> impl Fn(Request) -> Sending + Send + Sync + use<> {
        let script = self.clone();
        move |request| Box::pin(script.clone().play(request))
    }

    /// The requests so far, in their order.
    pub fn requests(&self) -> Vec<Received> {
        self.state().received.clone()
    }

    /// Whether every reply was given: a script that is not done was asked less than the test expects.
    pub fn is_done(&self) -> bool {
        self.state().replies.peek().is_none()
    }

    /// The one key that all requests so far carried in the header `Idempotency-Key`; `None` where there was no request, one had
    /// none, or two had different ones.
    pub fn key(&self) -> Option<IdempotencyKey> {
        let contract = IdempotencyContract::header("idempotency-key").ok()?;
        self.key_under(&contract)
    }

    /// The one key that all requests so far carried where a contract has it.
    pub fn key_under(&self, contract: &IdempotencyContract) -> Option<IdempotencyKey> {
        let state = self.state();
        let mut keys = state.received.iter().map(|received| received.key_under(contract));
        let first = keys.next()??;
        keys.all(|key| key.as_ref() == Some(&first)).then_some(first)
    }

    async fn play(self, mut request: Request) -> Result<Response, AttemptError> {
        let came_after = self.began.elapsed();
        let reply = self.state().replies.next();
        let body = match request.body_mut().take() {
            Some(body) if reply.as_ref().is_none_or(Reply::reads) => body.collect().await?.to_bytes(),
            _ => Bytes::new(),
        };
        let url = request.url().clone();
        self.state().received.push(Received {
            method: request.method().clone(),
            url: url.clone(),
            headers: request.headers().clone(),
            body,
            came_after,
        });
        match reply {
            Some(reply) => reply.play(&url).await,
            None => {
                let finding = Finding::last(Delivery::NotSent);
                Err(AttemptError::new(
                    Failure::new(ErrorKind::Request, finding),
                    OverError.into(),
                ))
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole after every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the script has no reply for another request")]
struct OverError;

impl Received {
    /// The method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The body. Of a request that was refused a connection nobody saw it, and it is empty.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// When it came, from the making of the script.
    pub fn came_after(&self) -> Duration {
        self.came_after
    }

    /// The key it carries where a contract has it, if it is one.
    pub fn key_under(&self, contract: &IdempotencyContract) -> Option<IdempotencyKey> {
        let uri = self.url.as_str().parse().unwrap_or_default();
        contract.key_of(&self.headers, &uri, &self.body).ok().flatten()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("received", &self.state().received.len())
            .finish_non_exhaustive()
    }
}

/// A test wants to see all of it.
impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received")
            .field("method", &self.method)
            .field("url", &self.url.as_str())
            .field("headers", &self.headers)
            .field("body", &String::from_utf8_lossy(&self.body))
            .field("came_after", &self.came_after)
            .finish()
    }
}

//! What the caller does to the request of each attempt before it is sent.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use reqwest::{Body, Request};
use tokio::time::{Instant, timeout_at};

use crate::classify::attempt_error::AttemptError;
use crate::deadline::out_of_time;
use crate::error::BoxError;
use crate::operation::Operation;

type Prepared = Pin<Box<dyn Future<Output = Result<Request, BoxError>> + Send>>;

#[derive(Clone)]
pub(crate) struct BeforeAttempt(Arc<dyn Fn(Request, u32) -> Prepared + Send + Sync>);

/// Why the hook left no request to send.
pub(crate) struct HookFailure {
    pub(crate) source: BoxError,
    /// It took all the time of the attempt.
    pub(crate) out_of_time: bool,
}

impl BeforeAttempt {
    pub(crate) fn new<F, Fut>(hook: F) -> Self
    where
        F: Fn(Request, u32) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Request, BoxError>> + Send + 'static,
    {
        Self(Arc::new(move |request, number| Box::pin(hook(request, number))))
    }

    /// The request as the hook leaves it. It may change headers, URL and version; method, body and key stay those of the
    /// operation.
    pub(crate) fn prepare(
        &self,
        operation: &Operation,
        mut request: Request,
        number: u32,
        ends: Instant,
    ) -> impl Future<Output = Result<Request, HookFailure>> + Send {
        // A stream is not shown: what is done to it could not be seen.
        let stream = match request.body().map(Body::as_bytes) {
            Some(None) => request.body_mut().take(),
            _ => None,
        };
        let body = request.body().and_then(Body::as_bytes).map(<[u8]>::to_vec);
        let prepared = (self.0)(request, number);
        async move {
            let failed = |source| HookFailure {
                source,
                out_of_time: false,
            };
            let mut request = match timeout_at(ends, prepared).await {
                Ok(Ok(request)) if Instant::now() < ends => request,
                // As every error that is shown: without the secrets of its URL.
                Ok(Err(error)) => return Err(failed(AttemptError::from(error).source)),
                Ok(Ok(_)) | Err(_) => {
                    return Err(HookFailure {
                        source: out_of_time("before_attempt was not done at the end of the attempt"),
                        out_of_time: true,
                    });
                }
            };
            if request.method() != operation.method() {
                return Err(failed(Change::Method.into()));
            }
            if request.body().map(Body::as_bytes) != body.as_deref().map(Some) {
                return Err(failed(Change::Body.into()));
            }
            if stream.is_some() {
                *request.body_mut() = stream;
            }
            operation.restore_key(&mut request).map_err(failed)?;
            Ok(request)
        }
    }
}

impl fmt::Debug for BeforeAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeAttempt")
    }
}

/// What a hook may not do: the attempt would be one of another operation.
#[derive(Debug, thiserror::Error)]
enum Change {
    #[error("before_attempt changed the method of the request")]
    Method,
    #[error("before_attempt changed the body of the request")]
    Body,
}

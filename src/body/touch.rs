//! Telling a request that never left from one that may have: whether anything began to send its body.
//!
//! A failure to connect proves that nothing was sent only if it is the first connection's. After a redirect it can
//! follow a request that was acted on, and a connect that hangs looks like an answer that hangs. Where nothing else
//! protects a repeat, the body is sent through a wrapper: a connection that begins with a request asks first whether
//! its body is at its end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use reqwest::{Body, Request};

/// Whether the body of an attempt was touched.
#[derive(Clone)]
pub(crate) struct Touch(Arc<AtomicBool>);

impl Touch {
    /// Wraps the body of a request, an absent one too.
    pub(crate) fn watch(request: &mut Request) -> Self {
        let touch = Self(Arc::default());
        let body = request.body_mut().take().unwrap_or_default();
        *request.body_mut() = Some(Body::wrap(Watched {
            body,
            touch: touch.clone(),
        }));
        touch
    }

    pub(crate) fn happened(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn happens(&self) {
        self.0.store(true, Ordering::Release);
    }
}

struct Watched {
    body: Body,
    touch: Touch,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        self.touch.happens();
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.touch.happens();
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

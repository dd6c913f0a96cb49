//! Telling a request that never left from one that may have: whether anything began to send its body.
//!
//! A failure to connect proves that nothing was sent only if it is the first connection's. After a redirect it can
//! follow a request that was acted on, and a connect that hangs looks like an answer that hangs. Where nothing else
//! protects a repeat, the body is sent through a wrapper: a connection that begins with a request asks first whether
//! its body is at its end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use reqwest::{Body, Request};

use crate::error::BoxError;

const UNTOUCHED: u8 = 0;
const ASKED: u8 = 1;
const READ: u8 = 2;
const REVOKED: u8 = 3;

/// What was done to the body of an attempt that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// Nothing: no connection began with the request.
    Not,
    /// It was asked whether it is at its end: the head of the request may be sent.
    Asked,
    /// It was read, by a connection that had taken the request.
    Read,
}

/// The mark that the body of an attempt bears.
///
/// Asking revokes a body that nothing touched: a connection that comes to it after the attempt is over finds it broken.
/// Over HTTP/1 it then sends nothing, over HTTP/2 at most a head whose stream it resets at once. Without that, "not
/// touched" could be true when it is said and false a moment later.
#[derive(Clone)]
pub(crate) struct Touch(Arc<AtomicU8>);

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

    pub(crate) fn touched(&self) -> Touched {
        let asked = self
            .0
            .compare_exchange(UNTOUCHED, REVOKED, Ordering::AcqRel, Ordering::Acquire);
        match asked {
            Err(ASKED) => Touched::Asked,
            Err(READ) => Touched::Read,
            Ok(_) | Err(_) => Touched::Not,
        }
    }

    /// Marks the body, unless it is revoked.
    fn mark(&self, mark: u8) -> bool {
        let marked = |state| (state != REVOKED).then_some(mark.max(state));
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, marked).is_ok()
    }
}

struct Watched {
    body: Body,
    touch: Touch,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.touch.mark(READ) {
            let error = io::Error::other("the attempt this body belongs to is over");
            return Poll::Ready(Some(Err(error.into())));
        }
        Pin::new(&mut self.body).poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        // Of a revoked body there is always more to come: the error.
        self.touch.mark(ASKED) && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.touch.0.load(Ordering::Acquire) == REVOKED {
            return SizeHint::default();
        }
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use reqwest::{Method, Url};

    fn watched() -> (Touch, Body) {
        let mut request = Request::new(Method::POST, Url::parse("http://localhost/").unwrap());
        *request.body_mut() = Some(Body::from("pay"));
        let touch = Touch::watch(&mut request);
        (touch, request.body_mut().take().unwrap())
    }

    #[tokio::test]
    async fn a_body_that_is_asked_for_is_touched_and_stays_whole() {
        let (touch, body) = watched();
        assert_eq!(body.size_hint().exact(), Some(3));
        assert!(!body.is_end_stream());
        assert_eq!(touch.touched(), Touched::Asked);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "pay");
        assert_eq!(touch.touched(), Touched::Read);
    }

    // R10: an answer of "never sent" stays true.
    #[tokio::test]
    async fn a_body_that_was_found_untouched_cannot_be_sent_any_more() {
        let (touch, body) = watched();
        assert_eq!(touch.touched(), Touched::Not);
        assert!(!body.is_end_stream());
        assert_eq!(body.size_hint().exact(), None);
        assert!(body.collect().await.is_err());
        assert_eq!(touch.touched(), Touched::Not);
    }
}

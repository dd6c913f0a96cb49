use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use reqwest::{Body, Response, ResponseBuilderExt, Url};
use tokio::time::sleep;

use crate::classify::attempt_error::AttemptError;

/// What one request to a [`Script`](super::Script) meets.
#[derive(Clone, Debug)]
pub struct Reply {
    after: Duration,
    ending: Ending,
}

#[derive(Clone, Debug)]
enum Ending {
    Answer(Answer),
    Failure(io::ErrorKind),
    Silence,
}

#[derive(Clone, Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    cut: bool,
}

impl Reply {
    /// An answer with an empty body. A number that is no status is taken for 500.
    pub fn status(status: u16) -> Self {
        Self::ending(Ending::Answer(Answer {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            cut: false,
        }))
    }

    /// A 200 with a body.
    pub fn ok(body: impl Into<Bytes>) -> Self {
        Self::status(200).body(body)
    }

    /// A connection that is lost after the request was read: the service may have acted.
    pub fn reset() -> Self {
        Self::ending(Ending::Failure(io::ErrorKind::ConnectionReset))
    }

    /// No connection: the request was not sent.
    pub fn refused() -> Self {
        Self::ending(Ending::Failure(io::ErrorKind::ConnectionRefused))
    }

    /// No answer, ever. The attempt ends when its time is over.
    pub fn silence() -> Self {
        Self::ending(Ending::Silence)
    }

    /// This, after a time.
    pub fn after(mut self, time: Duration) -> Self {
        self.after = time;
        self
    }

    /// Adds a header to an answer. What is no header is left out.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let header = (name.parse::<HeaderName>(), value.parse::<HeaderValue>());
        if let (Ending::Answer(answer), (Ok(name), Ok(value))) = (&mut self.ending, header) {
            answer.headers.append(name, value);
        }
        self
    }

    /// The body of an answer.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        if let Ending::Answer(answer) = &mut self.ending {
            answer.body = body.into();
        }
        self
    }

    /// An answer whose connection is lost before the end of its body.
    pub fn cut(mut self) -> Self {
        if let Ending::Answer(answer) = &mut self.ending {
            answer.cut = true;
        }
        self
    }

    const fn ending(ending: Ending) -> Self {
        let after = Duration::ZERO;
        Self { after, ending }
    }

    /// Whether anything of the request reaches the service.
    pub(super) fn reads(&self) -> bool {
        !matches!(self.ending, Ending::Failure(io::ErrorKind::ConnectionRefused))
    }

    pub(super) async fn play(self, url: &Url) -> Result<Response, AttemptError> {
        if !self.after.is_zero() {
            sleep(self.after).await;
        }
        match self.ending {
            Ending::Answer(answer) => answer.response(url),
            Ending::Failure(kind) => Err(io::Error::from(kind).into()),
            Ending::Silence => pending().await,
        }
    }
}

impl Answer {
    fn response(self, url: &Url) -> Result<Response, AttemptError> {
        let body = match self.cut {
            true => Body::wrap(Cut::halfway(&self.body)),
            false => self.body.into(),
        };
        let response = http::Response::builder()
            .status(self.status)
            .url(url.clone())
            .body(body);
        let mut response = response.map_err(|error| AttemptError::unknown(Box::new(error)))?;
        *response.headers_mut() = self.headers;
        Ok(response.into())
    }
}

/// A body that ends before its announced length, in a lost connection.
pub(super) struct Cut {
    parts: VecDeque<Bytes>,
    left: u64,
}

impl Cut {
    pub(super) fn halfway(body: &Bytes) -> Self {
        let length = body.len();
        Self {
            parts: VecDeque::from([body.slice(..length / 2)]),
            // An empty body that is cut was to have one byte.
            left: length.max(1) as u64,
        }
    }
}

impl HttpBody for Cut {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let part = self.parts.pop_front().filter(|part| !part.is_empty());
        Poll::Ready(Some(match part {
            Some(part) => {
                self.left = self.left.saturating_sub(part.len() as u64);
                Ok(Frame::data(part))
            }
            None => Err(io::ErrorKind::ConnectionReset.into()),
        }))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

//! A response body as it is given to the caller: what was read inside the attempt, then what is still to come.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use reqwest::Body;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::deadline::{after, out_of_time};
use crate::error::BoxError;

/// How long a body that was handed over may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    /// The longest silence.
    pub(crate) stall_timeout: Duration,
    /// The end of everything: a deadline the caller set for this request, not the policy's.
    pub(crate) deadline: Option<Instant>,
}

/// Frames that are here, and what follows them. Frames, not bytes: trailers survive.
pub(crate) struct HandedBody {
    frames: VecDeque<Frame<Bytes>>,
    rest: Rest,
}

enum Rest {
    End,
    Failure(BoxError),
    Flowing(FlowingBody),
}

impl HandedBody {
    pub(crate) fn whole(frames: VecDeque<Frame<Bytes>>) -> Body {
        let rest = Rest::End;
        Body::wrap(Self { frames, rest })
    }

    pub(crate) fn failed(frames: VecDeque<Frame<Bytes>>, error: BoxError) -> Body {
        let rest = Rest::Failure(error);
        Body::wrap(Self { frames, rest })
    }

    pub(crate) fn flowing(frames: VecDeque<Frame<Bytes>>, rest: Body, flow: Flow) -> Body {
        let rest = Rest::Flowing(FlowingBody {
            body: rest,
            flow,
            timer: None,
            silent: false,
        });
        Body::wrap(Self { frames, rest })
    }

    fn bytes_here(&self) -> u64 {
        let bytes = self.frames.iter().filter_map(Frame::data_ref);
        bytes.map(|data| data.len() as u64).sum()
    }
}

impl HttpBody for HandedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(frame) = self.frames.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        let next = match &mut self.rest {
            Rest::End => None,
            Rest::Flowing(flowing) => ready!(flowing.poll_frame(cx)),
            Rest::Failure(_) => match std::mem::replace(&mut self.rest, Rest::End) {
                Rest::Failure(error) => Some(Err(error)),
                Rest::End | Rest::Flowing(_) => None,
            },
        };
        if let None | Some(Err(_)) = next {
            // The connection is let go with the last frame, not when the caller drops the response.
            self.rest = Rest::End;
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
            && match &self.rest {
                Rest::End => true,
                Rest::Failure(_) => false,
                Rest::Flowing(flowing) => flowing.body.is_end_stream(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        let here = self.bytes_here();
        let rest = match &self.rest {
            Rest::End => return SizeHint::with_exact(here),
            Rest::Failure(_) => return SizeHint::new(),
            Rest::Flowing(flowing) => flowing.body.size_hint(),
        };
        let mut hint = SizeHint::new();
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(here));
        }
        hint.set_lower(rest.lower().saturating_add(here));
        hint
    }
}

/// A body on the wire under its [`Flow`].
struct FlowingBody {
    body: Body,
    flow: Flow,
    /// Made at the first wait: a body whose bytes are here needs none.
    timer: Option<Pin<Box<Sleep>>>,
    /// The timer runs for a silence that has begun.
    silent: bool,
}

impl FlowingBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.flow.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Poll::Ready(Some(Err(out_of_time("deadline reached in the response body"))));
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                // An empty frame is no sign of life.
                self.silent &= frame.data_ref().is_some_and(Bytes::is_empty);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(end) => Poll::Ready(end.map(|end| end.map_err(Into::into))),
            Poll::Pending => {
                let silence_ends = self.timer();
                ready!(silence_ends.poll(cx));
                Poll::Ready(Some(Err(out_of_time("response body stalled"))))
            }
        }
    }

    /// The timer of the silence the caller now waits in. It began with the first poll that found nothing, and ends with
    /// the next byte.
    fn timer(&mut self) -> Pin<&mut Sleep> {
        let begins = !std::mem::replace(&mut self.silent, true);
        let Flow {
            stall_timeout,
            deadline,
        } = self.flow;
        let ends = move || {
            let stalled = after(Instant::now(), stall_timeout);
            deadline.map_or(stalled, |deadline| deadline.min(stalled))
        };
        if let Some(timer) = self.timer.as_mut().filter(|_| begins) {
            timer.as_mut().reset(ends());
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(ends())));
        timer.as_mut()
    }
}

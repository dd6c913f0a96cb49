//! Reading a response body inside its attempt, so that a body that is cut or stalls is a failed attempt.

use std::collections::VecDeque;
use std::error::Error as StdError;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use reqwest::{Body, Response, Url};
use tokio::time::{Instant, timeout_at};

use super::handed::{Flow, HandedBody};
use super::head::Head;
use crate::attempts::Attempts;
use crate::classify::attempt_error::Withheld;
use crate::deadline::{after, out_of_time};
use crate::error::{BoxError, ErrorKind};

/// How long after the headers a body of unknown length is read before it is handed over as it is.
const PATIENCE: Duration = Duration::from_secs(1);

/// After so many frames of a body of known length the clock is looked at, whether they had to be waited for or not.
const CLOCK_EVERY: u8 = 16;

/// A piece shorter than this is copied to the one before it.
const SMALL: usize = 1024;

/// What the caller wants done with the body of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Read what is short, hand over what is long, endless or of a type that is meant to flow.
    #[default]
    ByAnswer,
    /// Hand over at the headers.
    Streamed,
    /// Read to the end, whatever the type.
    Buffered,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) mode: Mode,
    /// The most bytes that are held.
    pub(crate) buffer: usize,
    /// When the attempt is over.
    pub(crate) attempt_ends: Instant,
    pub(crate) flow: Flow,
    /// Somebody looks at what was read.
    pub(crate) seen: bool,
}

/// An answer after its body was read, or as much of it as is read before it is handed over.
pub(crate) struct Read {
    pub(crate) response: Response,
    /// What was read, if somebody looks at it.
    pub(crate) seen: Option<Bytes>,
}

/// A body that did not arrive, with what came of it.
pub(crate) struct LostBody {
    head: Head,
    seen: Option<Bytes>,
    frames: VecDeque<Frame<Bytes>>,
    error: BoxError,
    out_of_time: bool,
}

impl LostBody {
    pub(crate) fn status(&self) -> StatusCode {
        self.head.status()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.head.headers()
    }

    pub(crate) fn url(&self) -> &Url {
        self.head.url()
    }

    /// What came of it, if somebody looks at that.
    pub(crate) fn seen(&self) -> Option<Bytes> {
        self.seen.clone()
    }

    pub(crate) fn error(&self) -> &(dyn StdError + 'static) {
        &*self.error
    }

    /// The record that a nested client left in the response.
    pub(crate) fn nested(&self) -> Option<&Attempts> {
        self.head.extensions().get()
    }

    /// It stalled until its attempt was over.
    pub(crate) fn out_of_time(&self) -> bool {
        self.out_of_time
    }

    pub(crate) fn into_error(self: Box<Self>) -> BoxError {
        self.error
    }

    /// The response with what came of its body, and the failure at the end of that.
    pub(crate) fn into_response(self: Box<Self>) -> Response {
        self.head.join(HandedBody::failed(self.frames, self.error))
    }
}

/// The reading of a body: begun when it is made, with all that needs no waiting.
pub(crate) struct Reading {
    rules: Rules,
    begun: Begun,
    filled: Filled,
}

enum Begun {
    /// Handed over, or empty.
    Done(Read),
    Reading {
        reader: Reader,
        /// Only as long as patience lasts.
        hurried: bool,
    },
}

impl Reading {
    pub(crate) fn begin(response: Response, rules: Rules) -> Self {
        Self {
            rules,
            begun: Reader::begin(response, &rules),
            filled: Filled::Whole,
        }
    }

    pub(crate) async fn fill(&mut self) {
        if let Begun::Reading { reader, hurried } = &mut self.begun {
            self.filled = reader.fill(&self.rules, *hurried).await;
        }
    }

    /// The response with its body read, or handed over where the rules say so.
    pub(crate) fn end(self) -> Result<Read, Box<LostBody>> {
        match self.begun {
            Begun::Done(read) => Ok(read),
            Begun::Reading { reader, .. } => reader.end(self.filled, &self.rules),
        }
    }
}

/// Types that are sent piece by piece, each piece for its own sake.
fn flows(response: &Response) -> bool {
    let Some(value) = response.headers().get(CONTENT_TYPE) else {
        return false;
    };
    let essence = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    let essence = essence.trim_ascii();
    const FLOWING: [&str; 5] = [
        "text/event-stream",
        "application/x-ndjson",
        "application/json-seq",
        "multipart/x-mixed-replace",
        "application/vnd.amazon.eventstream",
    ];
    const GRPC: &[u8] = b"application/grpc";
    FLOWING
        .iter()
        .any(|flowing| essence.eq_ignore_ascii_case(flowing.as_bytes()))
        || essence
            .get(..GRPC.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
}

struct Reader {
    head: Head,
    body: Body,
    frames: VecDeque<Frame<Bytes>>,
    /// Small pieces that come after the frames.
    small: BytesMut,
    held: usize,
    ended: bool,
}

/// Why reading stopped.
enum Filled {
    Whole,
    /// More than is held, or all that patience waits for.
    Enough,
    Lost {
        error: BoxError,
        out_of_time: bool,
    },
}

impl Reader {
    fn begin(response: Response, rules: &Rules) -> Begun {
        let length = response.content_length();
        if length == Some(0) || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let seen = rules.seen.then(Bytes::new);
            return Begun::Done(Read { response, seen });
        }
        let buffer = rules.buffer as u64;
        // Whoever looks at it sees the beginning of a long one too.
        let too_long = length.is_some_and(|length| length > buffer) && !rules.seen;
        let handed_over = match rules.mode {
            Mode::Streamed => true,
            Mode::Buffered => too_long,
            Mode::ByAnswer => buffer == 0 || too_long || flows(&response),
        };
        let (head, body) = Head::split(response);
        if handed_over {
            let response = head.join(HandedBody::flowing(VecDeque::new(), body, rules.flow));
            return Begun::Done(Read { response, seen: None });
        }
        let hurried = length.is_none() && rules.mode == Mode::ByAnswer;
        let reader = Self {
            head,
            body,
            frames: VecDeque::new(),
            small: BytesMut::new(),
            held: 0,
            ended: false,
        };
        Begun::Reading { reader, hurried }
    }

    fn end(mut self, filled: Filled, rules: &Rules) -> Result<Read, Box<LostBody>> {
        self.flush();
        let seen = rules.seen.then(|| self.seen(rules.buffer));
        let response = match filled {
            Filled::Whole => self.whole(),
            Filled::Enough => self.hand_over(rules.flow),
            Filled::Lost { error, out_of_time } => return Err(self.lost(error, out_of_time, seen)),
        };
        Ok(Read { response, seen })
    }

    /// A body of unknown length is read in a hurry: when patience is over it is handed over unfinished, if any of it
    /// has come. If none has, it is waited for like any other.
    async fn fill(&mut self, rules: &Rules, hurried: bool) -> Filled {
        let patience_ends = match hurried {
            true => after(Instant::now(), PATIENCE),
            false => rules.attempt_ends,
        };
        let mut until = rules.attempt_ends.min(patience_ends);
        let mut frames = 0_u8;
        loop {
            let frame = timeout_at(until, self.body.frame()).await;
            let came = frame.is_ok();
            frames = frames.wrapping_add(1);
            match frame {
                Ok(None) => return Filled::Whole,
                Ok(Some(Err(error))) => {
                    return Filled::Lost {
                        error: Withheld::if_needed(ErrorKind::Body, error.into()),
                        out_of_time: false,
                    };
                }
                Ok(Some(Ok(frame))) => self.hold(frame),
                Err(_) => {}
            }
            if self.held > rules.buffer {
                return Filled::Enough;
            }
            // Frames that are always ready would never let the timer speak.
            if came && !hurried && frames % CLOCK_EVERY != 0 {
                continue;
            }
            let now = Instant::now();
            if hurried && self.held > 0 && now >= until.min(patience_ends) {
                return Filled::Enough;
            }
            if now >= rules.attempt_ends {
                return Filled::Lost {
                    error: out_of_time("response body stalled until the end of the attempt"),
                    out_of_time: true,
                };
            }
            if now >= until {
                until = rules.attempt_ends;
            }
        }
    }

    /// Keeps what says something: no empty frame, of which a server may send any number, and nothing after trailers.
    /// Small pieces are joined, so that what is held takes about as much memory as it has bytes.
    fn hold(&mut self, frame: Frame<Bytes>) {
        if self.ended {
            return;
        }
        match frame.into_data() {
            Ok(data) => {
                self.held = self.held.saturating_add(data.len());
                if self.frames.is_empty() && !data.is_empty() {
                    self.frames.push_back(Frame::data(data));
                } else if data.len() < SMALL {
                    self.small.extend_from_slice(&data);
                } else {
                    self.flush();
                    self.frames.push_back(Frame::data(data));
                }
            }
            Err(trailers) => {
                self.flush();
                self.ended = true;
                self.frames.push_back(trailers);
            }
        }
    }

    fn flush(&mut self) {
        if !self.small.is_empty() {
            self.frames.push_back(Frame::data(self.small.split().freeze()));
        }
    }

    /// What was read, in one piece, up to so many bytes.
    fn seen(&self, most: usize) -> Bytes {
        let mut pieces = self.frames.iter().filter_map(Frame::data_ref);
        let seen = match (pieces.next(), pieces.next()) {
            (None, _) => Bytes::new(),
            (Some(only), None) => only.clone(),
            (Some(first), Some(second)) => {
                let mut all = BytesMut::from(first.as_ref());
                all.extend_from_slice(second);
                pieces.for_each(|piece| all.extend_from_slice(piece));
                all.freeze()
            }
        };
        seen.slice(..seen.len().min(most))
    }

    fn whole(mut self) -> Response {
        let body = match (self.frames.len(), self.frames.pop_front().map(Frame::into_data)) {
            (_, None) => Body::default(),
            // The usual one: bytes in memory need no body of ours.
            (1, Some(Ok(bytes))) => Body::from(bytes),
            (_, Some(first)) => {
                self.frames
                    .push_front(first.map_or_else(|trailers| trailers, Frame::data));
                HandedBody::whole(self.frames)
            }
        };
        self.head.join(body)
    }

    fn hand_over(self, flow: Flow) -> Response {
        let body = HandedBody::flowing(self.frames, self.body, flow);
        self.head.join(body)
    }

    fn lost(self, error: BoxError, out_of_time: bool, seen: Option<Bytes>) -> Box<LostBody> {
        Box::new(LostBody {
            head: self.head,
            seen,
            frames: self.frames,
            error,
            out_of_time,
        })
    }
}

//! A transport by script: what each attempt meets, and a record of what it brought and when.
//!
//! No sockets, so that tokio's clock can be paused and every time in a test is exact.

use std::collections::VecDeque;
use std::fmt;
use std::future::{self, Future};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use reqwest::{Body, Request, Response, ResponseBuilderExt, Url};
use steadfast::{
    AttemptError, Backoff, Client, Error, IdempotencyKey, Policy, PolicyBuilder, RequestBuilder, ResponseExt,
    StopReason,
};
use tokio::time::{Instant, Sleep, sleep};

/// Where the requests of the tests go.
pub(crate) const URL: &str = "https://api.example.com/charges";

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A policy whose only waits are those a server asks for.
pub(crate) fn no_backoff() -> PolicyBuilder {
    Policy::builder().backoff(Backoff::none())
}

/// A client that can only send by a transport.
pub(crate) fn client(policy: PolicyBuilder) -> Client {
    let policy = policy.build().expect("a valid policy");
    Client::builder(reqwest::Client::new()).policy(policy).build()
}

pub(crate) fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::parse(text).expect("a valid key")
}

/// How a request ends that meets these steps.
pub(crate) async fn sent(
    request: RequestBuilder,
    steps: impl IntoIterator<Item = Step, IntoIter: Send + 'static>,
) -> (Result<Response, Error>, Transport) {
    let transport = Transport::new(steps);
    let result = request.send_with(transport.send()).await;
    (result, transport)
}

/// Why there was no further attempt.
pub(crate) fn stop(response: &Response) -> StopReason {
    response.attempts().expect("the record").stop_reason()
}

/// What happens to one attempt.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    reads: bool,
    delay: Duration,
    ending: Ending,
}

#[derive(Clone)]
enum Ending {
    Hang,
    Fail(Arc<dyn Fn() -> AttemptError + Send + Sync>),
    Answer(Box<Answer>),
}

impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hang => f.write_str("hang"),
            Self::Fail(error) => error().fmt(f),
            Self::Answer(answer) => answer.fmt(f),
        }
    }
}

#[derive(Clone, Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    /// Where a redirect led; else it is the URL of the request.
    url: Option<Url>,
    announced: Option<u64>,
    parts: VecDeque<Part>,
}

/// An answer without headers and with an empty body, unless it is given some.
pub(crate) fn answer(status: u16) -> Step {
    Step::at_once(Ending::Answer(Box::new(Answer {
        status,
        headers: HeaderMap::new(),
        url: None,
        announced: Some(0),
        parts: VecDeque::new(),
    })))
}

/// No answer, but an I/O error.
pub(crate) fn fail(kind: io::ErrorKind) -> Step {
    fail_with(move || io::Error::from(kind))
}

/// No connection, and so nobody who would read the request.
pub(crate) fn refused() -> Step {
    let reads = false;
    let refused = fail(io::ErrorKind::ConnectionRefused);
    Step { reads, ..refused }
}

/// No answer, but an error of any other kind.
pub(crate) fn fail_with<E: Into<AttemptError>>(error: impl Fn() -> E + Send + Sync + 'static) -> Step {
    Step::at_once(Ending::Fail(Arc::new(move || error().into())))
}

/// Nothing, ever.
pub(crate) fn hang() -> Step {
    Step::at_once(Ending::Hang)
}

/// A step that takes its time.
pub(crate) fn after(delay: Duration, step: Step) -> Step {
    Step { delay, ..step }
}

impl Step {
    const fn at_once(ending: Ending) -> Self {
        Self {
            reads: true,
            delay: Duration::ZERO,
            ending,
        }
    }

    /// Adds a line to the headers of the answer.
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_str(value).expect("a header value");
        self.answer().headers.append(HeaderName::from_static(name), value);
        self
    }

    /// The URL the answer came from, after redirects.
    pub(crate) fn url(mut self, url: &str) -> Self {
        self.answer().url = Some(url.parse().expect("a valid URL"));
        self
    }

    /// A body that is all there, of known length.
    pub(crate) fn body(self, bytes: &'static str) -> Self {
        self.announced(bytes.len() as u64, [data(bytes)])
    }

    /// A body of unknown length.
    pub(crate) fn chunked(mut self, parts: impl IntoIterator<Item = Part>) -> Self {
        self.answer().announced = None;
        self.answer().parts = parts.into_iter().collect();
        self
    }

    /// A body of the length it announces, if all of that comes.
    pub(crate) fn announced(mut self, length: u64, parts: impl IntoIterator<Item = Part>) -> Self {
        self.answer().announced = Some(length);
        self.answer().parts = parts.into_iter().collect();
        self
    }

    fn answer(&mut self) -> &mut Answer {
        match &mut self.ending {
            Ending::Answer(answer) => answer,
            _ => panic!("only an answer has headers and a body"),
        }
    }
}

/// A part of a response body.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Data(Bytes),
    Trailers(HeaderMap),
    Pause(Duration),
    Stall,
    Cut(io::ErrorKind),
}

pub(crate) fn data(bytes: &'static str) -> Part {
    Part::Data(Bytes::from_static(bytes.as_bytes()))
}

pub(crate) fn pause(time: Duration) -> Part {
    Part::Pause(time)
}

struct ScriptedBody {
    parts: VecDeque<Part>,
    left: Option<u64>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Counts the bodies that somebody holds.
    _open: Arc<()>,
}

impl HttpBody for ScriptedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(Part::Pause(time)) = self.parts.front() {
            let time = *time;
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(time)));
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
            self.parts.pop_front();
            return self.poll_frame(cx);
        }
        if let Some(Part::Stall) = self.parts.front() {
            return Poll::Pending;
        }
        Poll::Ready(match self.parts.pop_front() {
            Some(Part::Data(bytes)) => {
                self.left = self.left.map(|left| left - bytes.len() as u64);
                Some(Ok(Frame::data(bytes)))
            }
            Some(Part::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Some(Part::Cut(kind)) => Some(Err(kind.into())),
            Some(Part::Pause(_) | Part::Stall) | None => None,
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

/// One request as the transport got it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    /// Empty also where nobody read it.
    pub(crate) body: Bytes,
}

impl Seen {
    /// The values of every header line of this name.
    pub(crate) fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.headers.get_all(name).iter();
        lines.map(|value| value.to_str().expect("text")).collect()
    }

    /// The key it carries. Two are as bad as none.
    pub(crate) fn key(&self) -> &str {
        match self.header("idempotency-key")[..] {
            [key] => key,
            ref keys => panic!("{} keys in one request", keys.len()),
        }
    }
}

/// Plays its steps, one for each request; a request after the last of them fails the test.
pub(crate) struct Transport {
    script: Arc<Script>,
    started: Instant,
}

struct Script {
    state: Mutex<State>,
    open_bodies: Arc<()>,
}

struct State {
    steps: Box<dyn Iterator<Item = Step> + Send>,
    seen: Vec<Seen>,
}

impl Transport {
    pub(crate) fn new<S>(steps: S) -> Self
    where
        S: IntoIterator<Item = Step>,
        S::IntoIter: Send + 'static,
    {
        let steps = Box::new(steps.into_iter());
        let seen = Vec::new();
        let state = Mutex::new(State { steps, seen });
        let open_bodies = Arc::default();
        Self {
            script: Arc::new(Script { state, open_bodies }),
            started: Instant::now(),
        }
    }

    /// The same for every request.
    pub(crate) fn always(step: Step) -> Self {
        Self::new(std::iter::repeat(step))
    }

    /// What an operation sends by.
    pub(crate) fn send(&self) -> impl Fn(Request) -> Sending + Send + Sync + use<> {
        let script = Arc::clone(&self.script);
        move |request| Box::pin(Arc::clone(&script).play(request))
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.script.state.lock().unwrap().seen.clone()
    }

    /// When each request came, since the script was made.
    pub(crate) fn times(&self) -> Vec<Duration> {
        self.seen().iter().map(|seen| seen.at - self.started).collect()
    }

    /// The time since the script was made.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// How many of the response bodies are still held by somebody.
    pub(crate) fn open_bodies(&self) -> usize {
        Arc::strong_count(&self.script.open_bodies) - 1
    }
}

type Sending = Pin<Box<dyn Future<Output = Result<Response, AttemptError>> + Send>>;

impl Script {
    async fn play(self: Arc<Self>, mut request: Request) -> Result<Response, AttemptError> {
        let at = Instant::now();
        let step = self.state.lock().unwrap().steps.next();
        let Step { reads, delay, ending } = step.expect("a request after the end of the script");
        let body = match request.body_mut().take() {
            Some(body) if reads => body.collect().await?.to_bytes(),
            _ => Bytes::new(),
        };
        self.state.lock().unwrap().seen.push(Seen {
            at,
            method: request.method().clone(),
            url: request.url().clone(),
            headers: request.headers().clone(),
            body,
        });
        if !delay.is_zero() {
            sleep(delay).await;
        }
        match ending {
            Ending::Hang => future::pending().await,
            Ending::Fail(error) => Err(error()),
            Ending::Answer(answer) => Ok(self.response(*answer, request.url())),
        }
    }

    fn response(&self, answer: Answer, asked: &Url) -> Response {
        let body = ScriptedBody {
            parts: answer.parts,
            left: answer.announced,
            timer: None,
            _open: Arc::clone(&self.open_bodies),
        };
        let mut response = http::Response::builder()
            .status(answer.status)
            .url(answer.url.unwrap_or_else(|| asked.clone()))
            .body(Body::wrap(body))
            .expect("a valid response");
        *response.headers_mut() = answer.headers;
        response.into()
    }
}

//! A scripted HTTP/1.1 server on raw TCP, for all that a polite mock server would never do.
#![allow(clippy::expect_used, clippy::panic)] // A broken test must fail loudly.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, iter, thread};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What happens after a request, step by step. If no step ends the connection, it is kept alive.
#[derive(Clone)]
pub(crate) struct Reply(Vec<Step>);

/// A response stays in parts until it is sent, since its framing follows from all of them.
#[derive(Clone)]
enum Step {
    OnAccept,
    AfterHead,
    Respond(String, Vec<u8>),
    Send(Vec<u8>),
    Pause(Duration),
    Hold(Arc<Notify>),
    Endless(Vec<u8>),
    DropUnsent,
    Close,
}

impl Reply {
    /// Does nothing: without further steps the client waits in vain.
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }
    /// A whole response; `header`, `body`, `chunked` and `cut_body` refine it.
    pub(crate) fn status(code: u16) -> Self {
        let reason = if code == 200 { "OK" } else { "Status" };
        let head = format!("HTTP/1.1 {code} {reason}\r\n");
        Self::new().step(Step::Respond(head, Vec::new()))
    }
    /// A whole `200` response.
    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self::status(200).body(body)
    }

    /// Resets a new connection before any request; one kept alive only after its next request.
    pub(crate) fn reset_on_accept() -> Self {
        Self::new().step(Step::OnAccept).reset()
    }
    /// Resets the connection while the client may still be sending its body.
    pub(crate) fn reset_after_head() -> Self {
        Self::new().step(Step::AfterHead).reset()
    }

    /// Adds a header to the response; a `Content-Length` replaces the computed one.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        *self.response().0 += &format!("{name}: {value}\r\n");
        self
    }
    /// Sets the content of the response.
    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        *self.response().1 = body.into();
        self
    }
    /// Sends the content in chunks, without saying how long it is.
    pub(crate) fn chunked(self) -> Self {
        self.header("Transfer-Encoding", "chunked")
    }
    /// Announces one length, sends another and closes.
    pub(crate) fn cut_body(self, announced: usize, sent: &[u8]) -> Self {
        let reply = self.header("Content-Length", &announced.to_string());
        reply.body(sent).close()
    }

    /// Writes the bytes as they are, right or wrong.
    pub(crate) fn send(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Send(bytes.into()))
    }
    /// Waits in real time, even if the test has paused the clock of tokio.
    pub(crate) fn pause(self, time: Duration) -> Self {
        self.step(Step::Pause(time))
    }
    /// Waits for the test, which best calls `notify_one`: that also counts if it comes early.
    pub(crate) fn hold(self, gate: Arc<Notify>) -> Self {
        self.step(Step::Hold(gate))
    }
    /// Stays silent until the client leaves.
    pub(crate) fn stall(self) -> Self {
        self.hold(Arc::default())
    }
    /// Writes the chunk over and over until the client leaves.
    pub(crate) fn endless(self, chunk: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Endless(chunk.into()))
    }

    /// Ends the connection in good order (FIN).
    pub(crate) fn close(self) -> Self {
        self.step(Step::Close)
    }
    /// Ends the connection abruptly (RST).
    pub(crate) fn reset(self) -> Self {
        self.step(Step::DropUnsent).close()
    }
    /// Goes on with the steps of another reply, such as a whole response after a `hold`.
    pub(crate) fn then(mut self, next: Self) -> Self {
        self.0.extend(next.0);
        self
    }

    fn step(mut self, step: Step) -> Self {
        self.0.push(step);
        self
    }

    fn response(&mut self) -> (&mut String, &mut Vec<u8>) {
        match self.0.last_mut() {
            Some(Step::Respond(head, body)) => (head, body),
            _ => panic!("header and body come right after Reply::status or Reply::ok"),
        }
    }
}

/// A request as the server saw it.
#[derive(Clone)]
pub(crate) struct Recorded {
    /// The exact bytes, head and body.
    pub(crate) raw: Vec<u8>,
    /// The number of its connection, from 0: shows whether one was used again.
    pub(crate) connection: usize,
    /// When its head had arrived.
    pub(crate) at: Instant,
    head: String,
    body: Vec<u8>,
}

impl Recorded {
    /// The method.
    pub(crate) fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or_default()
    }
    /// The path with the query, as sent.
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// The first header of this name, in any case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers_named(name).first().copied()
    }
    /// Every header of this name: shows one that was sent twice.
    pub(crate) fn headers_named(&self, name: &str) -> Vec<&str> {
        let all = self.head.lines().filter_map(|line| line.split_once(':'));
        let named = all.filter(|header| header.0.eq_ignore_ascii_case(name));
        named.map(|header| header.1.trim()).collect()
    }
    /// The content, without the framing of chunks.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }
}

/// A running server. It and all its connections end when it is dropped.
pub(crate) struct Server {
    addr: SocketAddr,
    state: Arc<State>,
    tasks: JoinSet<()>,
}

/// What the test and the connections share.
struct State {
    script: Mutex<Script>,
    seen: watch::Sender<Vec<Recorded>>,
    connections: AtomicUsize,
    written: AtomicU64,
}

/// Where the replies come from.
enum Script {
    InOrder(iter::Peekable<Box<dyn Iterator<Item = Reply> + Send>>),
    ByRequest(Box<dyn FnMut(&Recorded) -> Reply + Send>),
}

impl Server {
    /// Gives the replies in order, one per request on any connection, and after them only `500`.
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<Reply> = replies.into_iter().collect();
        let rest = iter::repeat(Reply::status(500).body("script is used up"));
        Self::in_order(Box::new(replies.into_iter().chain(rest))).await
    }
    /// Gives the same reply for ever.
    pub(crate) async fn repeat(reply: Reply) -> Self {
        Self::in_order(Box::new(iter::repeat(reply))).await
    }
    /// Gives each request the reply it calls for, once all of it has been read.
    pub(crate) async fn answering(answer: impl FnMut(&Recorded) -> Reply + Send + 'static) -> Self {
        Self::run(Script::ByRequest(Box::new(answer))).await
    }

    async fn in_order(replies: Box<dyn Iterator<Item = Reply> + Send>) -> Self {
        Self::run(Script::InOrder(replies.peekable())).await
    }

    async fn run(script: Script) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        // What nobody reads must not vanish in the buffers of the system and look as if it was.
        socket.set_send_buffer_size(16 << 10).expect("a small buffer");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let listener = socket.listen(1024).expect("a free port");
        let addr = listener.local_addr().expect("a bound address");
        let state = Arc::new(State {
            script: Mutex::new(script),
            seen: watch::Sender::default(),
            connections: AtomicUsize::default(),
            written: AtomicU64::default(),
        });
        let (tasks, shared) = (JoinSet::new(), state.clone());
        let mut server = Self { addr, state, tasks };
        server.tasks.spawn(async move {
            let mut connections = JoinSet::new(); // Aborted with the task that owns it.
            while let Ok((stream, _)) = listener.accept().await {
                let number = shared.connections.fetch_add(1, Relaxed);
                connections.spawn(shared.clone().serve(BufReader::new(stream), number));
            }
        });
        server
    }

    /// The URL of a path, which begins with a slash.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }
    /// The address it listens on.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The requests so far, in the order in which they took their replies.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.state.seen.borrow().clone()
    }
    /// How many connections it has accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Relaxed)
    }
    /// How many bytes its `endless` steps have written so far.
    pub(crate) fn written(&self) -> u64 {
        self.state.written.load(Relaxed)
    }

    /// Waits until so many requests have been read, so that no test has to guess with a sleep.
    pub(crate) async fn received(&self, count: usize) {
        let mut seen = self.state.seen.subscribe();
        let limit = real_time(Duration::from_secs(10));
        tokio::select! {
            _ = seen.wait_for(|seen| seen.len() >= count) => {}
            () = limit => panic!("{} of {count} requests came in 10 s", self.requests().len()),
        }
    }
}

type Stream = BufReader<TcpStream>;

impl State {
    /// In this and the functions below an error is no failure: the connection is over.
    async fn serve(self: Arc<Self>, mut stream: Stream, number: usize) -> io::Result<()> {
        stream.get_ref().set_nodelay(true)?; // What one step sends must not wait for the next.
        let on_accept = |next: &Reply| matches!(next.0[..], [Step::OnAccept, ..]);
        let mut reply = self.take_early(None, on_accept);
        loop {
            for step in reply.into_iter().flat_map(|reply| reply.0) {
                self.play(step, &mut stream).await?;
            }
            let mut request = read_head(&mut stream, number).await?;
            let early = |next: &Reply| matches!(next.0[..], [Step::AfterHead, ..]);
            reply = self.take_early(Some(&request), early);
            if reply.is_none() {
                read_body(&mut stream, &mut request).await?;
                reply = self.take(&request);
            }
        }
    }

    /// The reply to a whole request. It is recorded under the same lock, so that both are in the same order.
    fn take(&self, request: &Recorded) -> Option<Reply> {
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = match &mut *script {
            Script::InOrder(replies) => replies.next(),
            Script::ByRequest(answer) => Some(answer(request)),
        };
        reply.inspect(|_| self.seen.send_modify(|seen| seen.push(request.clone())))
    }
    /// The next reply if it does not wait for a whole request.
    fn take_early(&self, request: Option<&Recorded>, due: fn(&Reply) -> bool) -> Option<Reply> {
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        let record = |_: &_| self.seen.send_modify(|seen| seen.extend(request.cloned()));
        match &mut *script {
            Script::InOrder(replies) => replies.next_if(due).inspect(record),
            Script::ByRequest(_) => None,
        }
    }

    async fn play(&self, step: Step, stream: &mut Stream) -> io::Result<()> {
        match step {
            Step::OnAccept | Step::AfterHead => {}
            Step::Respond(head, body) => stream.write_all(&response(head, body)).await?,
            Step::Send(bytes) => stream.write_all(&bytes).await?,
            Step::Pause(time) => real_time(time).await,
            Step::Hold(gate) => tokio::select! {
                () = gate.notified() => {}
                // A client that left must not use up the notice meant for its next attempt.
                Ok([]) | Err(_) = stream.fill_buf() => Err(io::ErrorKind::NotConnected)?,
            },
            Step::Endless(chunk) => loop {
                let count = stream.write(&chunk).await? as u64;
                self.written.fetch_add(count, Relaxed);
            },
            Step::DropUnsent => stream.get_ref().set_zero_linger()?,
            Step::Close => Err(io::ErrorKind::NotConnected)?,
        }
        Ok(())
    }
}

/// The framing follows from the body, unless a header has settled it.
fn response(mut head: String, mut body: Vec<u8>) -> Vec<u8> {
    if head.contains("Transfer-Encoding: chunked") {
        let size = |part: &[u8]| format!("{:x}\r\n", part.len());
        let frame = |part| [size(part).as_bytes(), part, b"\r\n"].concat();
        body = body.chunks(1024).chain([&[][..]]).flat_map(frame).collect();
    } else if !head.contains("Content-Length:") {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    [head.as_bytes(), b"\r\n", &body].concat()
}

async fn read_head(stream: &mut Stream, connection: usize) -> io::Result<Recorded> {
    let mut raw = Vec::new();
    while !raw.ends_with(b"\r\n\r\n") {
        raw.push(stream.read_u8().await?);
    }
    Ok(Recorded {
        head: String::from_utf8_lossy(&raw).into_owned(),
        body: Vec::new(),
        raw,
        connection,
        at: Instant::now(),
    })
}

/// A body of known length is read like a single chunk without marks.
async fn read_body(stream: &mut Stream, request: &mut Recorded) -> io::Result<()> {
    let chunked = request.header("Transfer-Encoding").is_some();
    let length = request.header("Content-Length");
    let mut size = length.and_then(|length| length.parse().ok()).unwrap_or(0);
    loop {
        if chunked {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            request.raw.extend(line.bytes());
            size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        }
        let mut part = vec![0; if chunked { size + 2 } else { size }];
        stream.read_exact(&mut part).await?;
        request.raw.extend(&part);
        request.body.extend(part.iter().take(size));
        if size == 0 || !chunked {
            return Ok(());
        }
    }
}

/// Waits on the clock of the system, since a test may have paused the one of tokio.
async fn real_time(time: Duration) {
    let (ring, alarm) = oneshot::channel();
    thread::spawn(move || (thread::sleep(time), ring.send(())));
    let _ = alarm.await;
}

//! A scripted HTTP/2 server that writes its frames itself: no library would cut, refuse and contradict itself so.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

// RFC 9113, section 7
pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const INTERNAL_ERROR: u32 = 2;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;

// RFC 9113, section 6
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// What is written once a request has come, part by part and in one piece.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    /// The head of a 200.
    Head,
    /// The whole of a 303 that leads to `/there`.
    SeeOther,
    Data(&'static str),
    /// Ends the answer with a trailer `x-sum: 42`.
    Trailers,
    /// Ends the answer with an empty frame.
    End,
    /// Gives this request up.
    Reset(u32),
    /// No request was looked at; the connection stays open.
    GoAway(u32),
    /// The request was looked at, and is the last; the connection stays open.
    GoAwayAfter(u32),
    /// The connection ends.
    Close,
}

pub(crate) const DONE: &[Part] = &[Part::Head, Part::Data("done"), Part::End];

impl Part {
    fn bytes(self, stream: u32) -> Vec<u8> {
        match self {
            Self::Head => frame(HEADERS, END_HEADERS, stream, &[0x88]),
            Self::SeeOther => {
                let fields = b"\x08\x03303\x0f\x1f\x06/there";
                frame(HEADERS, END_HEADERS | END_STREAM, stream, fields)
            }
            Self::Data(text) => frame(DATA, 0, stream, text.as_bytes()),
            Self::Trailers => frame(HEADERS, END_HEADERS | END_STREAM, stream, b"\x00\x05x-sum\x0242"),
            Self::End => frame(DATA, END_STREAM, stream, &[]),
            Self::Reset(reason) => frame(RST_STREAM, 0, stream, &reason.to_be_bytes()),
            Self::GoAway(reason) => frame(GOAWAY, 0, 0, &[[0; 4], reason.to_be_bytes()].concat()),
            Self::GoAwayAfter(reason) => frame(GOAWAY, 0, 0, &[stream.to_be_bytes(), reason.to_be_bytes()].concat()),
            Self::Close => Vec::new(),
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

type Script = Arc<Mutex<VecDeque<&'static [Part]>>>;

/// A running server. It and its connections end when it is dropped.
pub(crate) struct Http2 {
    addr: SocketAddr,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
    _task: JoinSet<()>,
}

impl Http2 {
    /// Gives the replies in order, one per request on any connection, and then for ever the last.
    pub(crate) async fn start(replies: impl IntoIterator<Item = &'static [Part]>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let script = Script::new(Mutex::new(replies.into_iter().collect()));
        let bodies = Arc::<Mutex<Vec<_>>>::default();
        let (seen, mut task) = (bodies.clone(), JoinSet::new());
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, script.clone(), seen.clone()));
            }
        });
        Self {
            addr,
            bodies,
            _task: task,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/pay", self.addr)
    }

    /// The bodies of the requests so far, one for each request.
    pub(crate) fn bodies(&self) -> Vec<Vec<u8>> {
        self.bodies.lock().unwrap().clone()
    }
}

/// An error is no failure: the connection is over.
async fn serve(mut stream: TcpStream, script: Script, bodies: Arc<Mutex<Vec<Vec<u8>>>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.read_exact(&mut [0; 24]).await?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    let mut body = Vec::new();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).await?;
        match kind {
            SETTINGS | PING if flags & ACK == 0 => {
                let echo: &[u8] = if kind == PING { &payload } else { &[] };
                stream.write_all(&frame(kind, ACK, 0, echo)).await?;
            }
            DATA => body.extend(payload),
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            bodies.lock().unwrap().push(std::mem::take(&mut body));
            let reply = {
                let mut script = script.lock().unwrap();
                let next = script.pop_front().unwrap();
                if script.is_empty() {
                    script.push_back(next);
                }
                next
            };
            let id = u32::from_be_bytes(id);
            let bytes: Vec<_> = reply.iter().flat_map(|part| part.bytes(id)).collect();
            stream.write_all(&bytes).await?;
            if matches!(reply.last(), Some(Part::Close)) {
                stream.shutdown().await?;
                // What is left unread would turn the end into a reset, which can overtake the answer.
                return tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.map(|_| ());
            }
        }
    }
}

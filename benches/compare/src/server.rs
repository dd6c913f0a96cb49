//! A server on loopback that allocates nothing for a request, so that what is counted is the client's.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

/// The bodies of failures: as small as can be, and larger than what a client drains.
pub const SMALL: usize = 2;
pub const LARGE: usize = 64 * 1024;

pub static REQUESTS: AtomicU64 = AtomicU64::new(0);
pub static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// Runs on the core with this number, if the machine has it.
pub fn start(core: usize) -> SocketAddr {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        pin(core);
        let runtime = Builder::new_current_thread().enable_io().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            sender
                .send(listener.local_addr().expect("an address"))
                .expect("somebody waits");
            while let Ok((connection, _)) = listener.accept().await {
                CONNECTIONS.fetch_add(1, Relaxed);
                connection.set_nodelay(true).expect("an option");
                tokio::spawn(serve(connection));
            }
        });
    });
    receiver.recv().expect("a server")
}

pub fn pin(core: usize) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if let Some(core) = cores.get(core.min(cores.len().saturating_sub(1))) {
        core_affinity::set_for_current(*core);
    }
}

async fn serve(mut connection: TcpStream) -> std::io::Result<()> {
    let ok: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let small = failure(SMALL);
    let large = failure(LARGE);
    let mut buffer = vec![0; 256 * 1024];
    let mut filled = 0;
    loop {
        // One request, whole: nobody sends the next before its answer.
        let (head, length) = loop {
            let read = connection.read(&mut buffer[filled..]).await?;
            if read == 0 {
                return Ok(());
            }
            filled += read;
            if let Some(end) = buffer[..filled].windows(4).position(|window| window == b"\r\n\r\n") {
                let length = content_length(&buffer[..end]);
                if filled >= end + 4 + length {
                    break (end, length);
                }
            }
        };
        let number = REQUESTS.fetch_add(1, Relaxed);
        let path = buffer[..head].split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        let answer = match path {
            // For the probes.
            b"/silent" => {
                filled = 0;
                continue;
            }
            b"/reset" => return Ok(()),
            b"/half" => &b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha"[..],
            b"/busy" if number == 0 => {
                &b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"[..]
            }
            b"/down" => &small[..],
            b"/keyed" => match contains(&buffer[..head], b"idempotency-key") {
                true => ok,
                false => &small[..],
            },
            // Two failures, then a success.
            b"/heals" if number % 3 != 2 => &small[..],
            b"/heals-large" if number % 3 != 2 => &large[..],
            _ => ok,
        };
        connection.write_all(answer).await?;
        debug_assert!(filled == head + 4 + length);
        filled = 0;
    }
}

fn contains(head: &[u8], name: &[u8]) -> bool {
    head.windows(name.len()).any(|window| window.eq_ignore_ascii_case(name))
}

fn failure(length: usize) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 503 Service Unavailable\r\nContent-Length: {length}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + length, b'x');
    answer
}

fn content_length(head: &[u8]) -> usize {
    let lines = head.split(|byte| *byte == b'\n');
    let mut length = lines.filter_map(|line| {
        let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse().ok())?
    });
    length.next_back().unwrap_or(0)
}

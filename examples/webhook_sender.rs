//! Webhooks: sent at least once, acted on once, and no endpoint waits for another.
//!
//! `cargo run --example webhook_sender` needs no network. It starts four receivers of its own, which behave as [`Mood`]
//! says, and tells each of them of four events. Whatever ends a send without an end for the event (the endpoint says when
//! to come back, its circuit is open, it does not answer) puts the event back in the queue.

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use reqwest::{Response, StatusCode, redirect};
use sha2::Sha256;
use steadfast::{
    Backoff, CircuitBreaker, Client, IdempotencyKey, KeyError, Operation, Policy, ResponseExt, StopReason,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

const EVENTS: u32 = 4;
const WORKERS: usize = 3;
/// An event that was sent so often in vain goes to the dead letters.
const ROUNDS: u32 = 5;
/// The longest an endpoint may put an event off.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut receivers = Vec::new();
    for (name, mood) in [
        ("healthy", Mood::Healthy),
        ("flaky", Mood::Flaky),
        ("dead", Mood::Dead),
        ("gone", Mood::Gone),
    ] {
        receivers.push(Receiver::start(name, mood).await?);
    }

    let client = client()?;
    let mut sender = Sender::new();
    for number in 1..=EVENTS {
        let event = Event::record(number)?;
        for receiver in &receivers {
            sender.enqueue(&client, &event, &receiver.endpoint)?;
        }
    }
    sender.run().await?;

    sender.print();
    println!("\nreceiver  requests  acted on");
    for receiver in &receivers {
        receiver.print();
    }
    println!("\ncircuit          state");
    for circuit in client.circuits().list() {
        println!("{:<15}  {}", circuit.group(), circuit.state());
    }
    Ok(())
}

/// A webhook waits in a queue, not in a task: a send is short, and what takes longer is for the next round.
fn client() -> Result<Client, Box<dyn Error>> {
    let policy = Policy::builder()
        .attempt_timeout(Duration::from_millis(300))
        .deadline(Duration::from_secs(1))
        .max_attempts(2)
        .backoff(Backoff::full_jitter(
            Duration::from_millis(50),
            Duration::from_millis(200),
        ))
        .max_retry_after(Duration::from_millis(200));
    let circuit = CircuitBreaker::default()
        .minimum_throughput(3)
        .failure_ratio(0.75)
        .open_for(Duration::from_millis(400))
        .max_open_for(Duration::from_millis(400))
        .half_open_probes(1);
    // A redirect would take the event to an address that nobody registered.
    let http = reqwest::Client::builder().no_proxy().redirect(redirect::Policy::none());
    let policy = policy.circuit_breaker(circuit).build()?;
    Ok(Client::builder(http.build()?).policy(policy).build())
}

/// What happened, as it was written down: with its key, and the very bytes that every send of it carries.
struct Event {
    key: IdempotencyKey,
    body: String,
}

impl Event {
    /// A service writes both in the transaction that makes the event: then no crash makes another key for it.
    fn record(number: u32) -> Result<Self, KeyError> {
        Ok(Self {
            key: IdempotencyKey::parse(format!("evt-{number}"))?,
            body: format!(r#"{{"event":"evt-{number}","type":"invoice.paid"}}"#),
        })
    }
}

/// Where a customer wants to be told.
struct Endpoint {
    name: &'static str,
    url: String,
    /// Shared with the customer, who knows by it that the event is ours.
    secret: [u8; 64],
    disabled: AtomicBool,
}

impl Endpoint {
    fn mac(&self, body: &[u8]) -> Hmac<Sha256> {
        Hmac::new(&self.secret.into()).chain_update(body)
    }

    fn signature(&self, body: &[u8]) -> String {
        let code = self.mac(body).finalize().into_bytes();
        code.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn is_signed(&self, body: &[u8], signature: &str) -> bool {
        let byte = |at| {
            signature
                .get(at..at + 2)
                .and_then(|hex| u8::from_str_radix(hex, 16).ok())
        };
        let code: Option<Vec<u8>> = (0..signature.len()).step_by(2).map(byte).collect();
        code.is_some_and(|code| self.mac(body).verify_slice(&code).is_ok())
    }
}

/// One event on its way to one endpoint.
struct Delivery {
    number: usize,
    event: String,
    endpoint: Arc<Endpoint>,
    /// Kept over all rounds, and with it what is known of the effect.
    operation: Operation,
    rounds: u32,
    attempts: usize,
}

impl Delivery {
    async fn send(mut self) -> (Self, Verdict) {
        self.rounds += 1;
        let result = self.operation.send().await;
        self.attempts += match &result {
            Ok(response) => response.attempts().map_or(0, |attempts| attempts.len()),
            Err(error) => error.attempts().len(),
        };
        let verdict = verdict(result, self.rounds);
        (self, verdict)
    }
}

/// What follows from one round.
enum Verdict {
    Delivered,
    /// Another round after this wait, or the dead letters, for this reason.
    Later(Duration, String),
    /// Another round would not end differently.
    Refused(String),
    /// The endpoint wants no events any more.
    Gone,
}

fn verdict(result: Result<Response, steadfast::Error>, round: u32) -> Verdict {
    let error = match result.and_then(ResponseExt::into_result) {
        Ok(response) if response.status().is_success() => return Verdict::Delivered,
        Ok(response) => return Verdict::Refused(format!("refused: {}", response.status())),
        Err(error) => error,
    };
    let asked = error.retry_after().unwrap_or_default();
    let wait = match error.stop_reason() {
        StopReason::RetryAfter { asked } => asked,
        StopReason::CircuitOpen { retry_in } => retry_in.max(asked),
        StopReason::Budget | StopReason::Deadline | StopReason::MaxAttempts => {
            let rounds = Backoff::equal_jitter(Duration::from_millis(200), LONGEST_WAIT);
            rounds.wait(round, None, false, rand::random()).max(asked)
        }
        _ if error.status() == Some(StatusCode::GONE) => return Verdict::Gone,
        _ => {
            let why = error
                .status()
                .map_or_else(|| error.kind().to_string(), |status| status.to_string());
            return Verdict::Refused(format!("refused: {why}"));
        }
    };
    let why = format!("{}, outcome {}", error.kind(), error.outcome());
    Verdict::Later(wait.min(LONGEST_WAIT), why)
}

/// The queue, with a few workers. In a service it is a table: a row is leased for a round and deleted at its end, so that a
/// crash repeats a send and loses none.
struct Sender {
    started: Instant,
    /// By the time of the next round, and in the order they came.
    queue: BTreeMap<(Instant, usize), Delivery>,
    /// The lines of the report, by the number of the delivery.
    ended: BTreeMap<usize, String>,
}

impl Sender {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            queue: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    fn enqueue(&mut self, client: &Client, event: &Event, endpoint: &Arc<Endpoint>) -> Result<(), steadfast::Error> {
        let operation = client
            .post(&endpoint.url)
            .circuit(format!("webhook:{}", endpoint.name))
            .idempotency_key(event.key.clone())
            .header("content-type", "application/json")
            .header("webhook-signature", endpoint.signature(event.body.as_bytes()))
            .body(event.body.clone())
            .into_operation()?;
        let number = self.queue.len();
        let delivery = Delivery {
            number,
            event: event.key.as_str().to_owned(),
            endpoint: Arc::clone(endpoint),
            operation,
            rounds: 0,
            attempts: 0,
        };
        self.queue.insert((self.started, number), delivery);
        Ok(())
    }

    async fn run(&mut self) -> Result<(), Box<dyn Error>> {
        let mut sending = JoinSet::new();
        // One round at a time for each endpoint, so that a slow one holds one worker and no more.
        let mut busy = HashSet::new();
        loop {
            let now = Instant::now();
            while sending.len() < WORKERS {
                let Some(delivery) = self.next(now, &busy) else { break };
                if delivery.endpoint.disabled.load(Relaxed) {
                    self.end(&delivery, "not sent, endpoint disabled");
                } else {
                    busy.insert(delivery.endpoint.name);
                    sending.spawn(delivery.send());
                }
            }
            let later = self.queue.keys().map(|(due, _)| *due).find(|due| *due > now);
            tokio::select! {
                Some(sent) = sending.join_next() => {
                    let (delivery, verdict) = sent?;
                    busy.remove(delivery.endpoint.name);
                    self.settle(delivery, verdict);
                }
                () = sleep_until(later.unwrap_or(now)), if later.is_some() => {}
                else => return Ok(()),
            }
        }
    }

    /// The first whose time has come and whose endpoint is free.
    fn next(&mut self, now: Instant, busy: &HashSet<&str>) -> Option<Delivery> {
        let mut due = self.queue.iter().take_while(|((due, _), _)| *due <= now);
        let (place, _) = due.find(|(_, delivery)| !busy.contains(delivery.endpoint.name))?;
        let place = *place;
        self.queue.remove(&place)
    }

    fn settle(&mut self, delivery: Delivery, verdict: Verdict) {
        match verdict {
            Verdict::Delivered => self.end(&delivery, "delivered"),
            Verdict::Refused(why) => self.end(&delivery, &why),
            Verdict::Gone => {
                delivery.endpoint.disabled.store(true, Relaxed);
                self.end(&delivery, "410 Gone, endpoint disabled");
            }
            Verdict::Later(_, why) if delivery.rounds == ROUNDS => self.end(&delivery, &format!("dead letter: {why}")),
            Verdict::Later(wait, _) => {
                self.queue.insert((Instant::now() + wait, delivery.number), delivery);
            }
        }
    }

    fn end(&mut self, delivery: &Delivery, how: &str) {
        let (event, endpoint) = (&delivery.event, delivery.endpoint.name);
        let (rounds, attempts) = (delivery.rounds, delivery.attempts);
        let after = self.started.elapsed().as_millis();
        let line = format!("{event:<6}  {endpoint:<8}  {rounds:>6}  {attempts:>8}  {after:>5} ms  {how}");
        self.ended.insert(delivery.number, line);
    }

    fn print(&self) {
        println!("event   endpoint  rounds  attempts     after  end");
        for line in self.ended.values() {
            println!("{line}");
        }
    }
}

/// How a receiver behaves.
#[derive(Clone, Copy)]
enum Mood {
    Healthy,
    /// It acts on its first request and loses the connection before it says so; then it answers 503, then 429 with
    /// `Retry-After: 1`. From then on it is healthy.
    Flaky,
    /// It accepts every connection and is silent.
    Dead,
    /// It answers 410.
    Gone,
}

/// The service of a customer.
struct Receiver {
    endpoint: Arc<Endpoint>,
    seen: Arc<Mutex<Seen>>,
}

/// What a receiver remembers.
#[derive(Default)]
struct Seen {
    requests: usize,
    /// What it did, by the key it was told to do it under.
    ledger: BTreeMap<String, String>,
}

impl Receiver {
    async fn start(name: &'static str, mood: Mood) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = Arc::new(Endpoint {
            name,
            url: format!("http://{}/webhooks", listener.local_addr()?),
            secret: rand::random(),
            disabled: AtomicBool::new(false),
        });
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (own, shared) = (Arc::clone(&endpoint), Arc::clone(&seen));
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, mood, Arc::clone(&own), Arc::clone(&shared)));
            }
        });
        Ok(Self { endpoint, seen })
    }

    fn print(&self) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let ledger: Vec<_> = seen.ledger.values().map(String::as_str).collect();
        let acted = if ledger.is_empty() {
            "nothing".to_owned()
        } else {
            ledger.join(" ")
        };
        println!("{:<8}  {:>8}  {acted}", self.endpoint.name, seen.requests);
    }
}

async fn serve(connection: TcpStream, mood: Mood, endpoint: Arc<Endpoint>, seen: Arc<Mutex<Seen>>) -> io::Result<()> {
    let mut connection = BufReader::new(connection);
    let request = Request::read(&mut connection).await?;
    let answer = seen
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .answer(mood, &endpoint, request);
    match answer {
        Some(answer) => {
            let head = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            connection.write_all(head.as_bytes()).await
        }
        // Until the sender leaves.
        None if matches!(mood, Mood::Dead) => connection.read_u8().await.map(drop),
        None => Ok(()),
    }
}

impl Seen {
    /// Status and headers of the answer; `None` is silence.
    fn answer(&mut self, mood: Mood, endpoint: &Endpoint, request: Request) -> Option<&'static str> {
        self.requests += 1;
        match (mood, self.requests) {
            (Mood::Dead, _) => return None,
            (Mood::Gone, _) => return Some("410 Gone"),
            (Mood::Flaky, 2) => return Some("503 Service Unavailable"),
            (Mood::Flaky, 3) => return Some("429 Too Many Requests\r\nRetry-After: 1"),
            (Mood::Flaky | Mood::Healthy, _) => {}
        }
        if !endpoint.is_signed(&request.body, &request.signature) {
            return Some("401 Unauthorized");
        }
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let event = body.split('"').nth(3).unwrap_or_default().to_owned();
        // A key that is known was acted on: the answer is the same, and that is all.
        self.ledger.entry(request.key).or_insert(event);
        let is_lost = matches!(mood, Mood::Flaky) && self.requests == 1;
        (!is_lost).then_some("200 OK")
    }
}

/// As much of a request as a receiver looks at.
#[derive(Default)]
struct Request {
    key: String,
    signature: String,
    body: Vec<u8>,
}

impl Request {
    async fn read(connection: &mut BufReader<TcpStream>) -> io::Result<Self> {
        let mut request = Self::default();
        let mut length = 0;
        loop {
            let mut line = String::new();
            connection.read_line(&mut line).await?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                if line.trim_end().is_empty() {
                    break;
                }
                continue;
            };
            match name.to_ascii_lowercase().as_str() {
                "idempotency-key" => request.key = value.to_owned(),
                "webhook-signature" => request.signature = value.to_owned(),
                "content-length" => length = value.parse().map_err(io::Error::other)?,
                _ => {}
            }
        }
        connection.take(length).read_to_end(&mut request.body).await?;
        Ok(request)
    }
}

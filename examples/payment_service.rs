//! A service between two others: it keeps its caller's deadline, passes it on, and says what it knows.
//!
//! `cargo run --example payment_service` needs no network. It starts a payment service (axum), the ledger that this one
//! calls, and a caller. Each row of the report is one call; between them the [`Mood`] of the ledger changes.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, RETRY_AFTER};
use serde_json::{Value, json};
use steadfast::{
    Backoff, CircuitBreaker, Client, IdempotencyContract, IdempotencyKey, Outcome, Policy, PolicyBuilder, ResponseExt,
    StopReason, scope,
};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

/// What the service keeps of its caller's time for its own answer.
const MARGIN: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let books = Books::default();
    let ledger = start(books.clone().router()).await?;
    let payments = start(Payments::new(&ledger)?.router()).await?;
    let mut day = Day { payments, books };

    println!("call               status  ledger saw  ledger had  booked  said");
    let once = || policy().max_attempts(1);
    day.call("healthy", Mood::Healthy, once(), 201).await?;
    day.call("answer lost", Mood::LosesItsAnswer, once(), 201).await?;
    day.call("caller repeats", Mood::LosesItsAnswer, policy(), 201).await?;
    let hurry = Duration::from_millis(500);
    let hurried = once().attempt_timeout(hurry).deadline(hurry);
    day.call("caller in a hurry", Mood::Stuck, hurried, 504).await?;
    day.call("refused", Mood::Refusing, once(), 422).await?;
    day.call("failing", Mood::Failing, once(), 502).await?;
    day.call("circuit open", Mood::Failing, once(), 503).await?;

    let booked = day.books.lock().entries.len();
    println!("\nledger: {booked} entries, one for each payment that reached it");
    Ok(())
}

async fn start(router: Router) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async { axum::serve(listener, router).await });
    Ok(url)
}

/// What caller and service have in common: both tell whom they call how much time there is.
fn policy() -> PolicyBuilder {
    Policy::builder()
        .attempt_timeout(Duration::from_secs(1))
        .deadline(Duration::from_secs(3))
        .backoff(Backoff::full_jitter(
            Duration::from_millis(20),
            Duration::from_millis(100),
        ))
        .scope_headers(true)
}

/// The service.
struct Payments {
    client: Client,
    ledger: String,
}

impl Payments {
    fn new(ledger: &str) -> Result<Self, Box<dyn Error>> {
        let circuit = CircuitBreaker::default()
            .minimum_throughput(5)
            .failure_ratio(0.6)
            .open_for(Duration::from_secs(5));
        let policy = policy()
            .attempt_timeout(Duration::from_millis(300))
            .circuit_breaker(circuit)
            .build()?;
        let http = reqwest::Client::builder().no_proxy();
        let client = Client::from_builder(http)?
            .policy_for("ledger", policy)
            .idempotency_for("ledger", IdempotencyContract::ietf())
            .build();
        let ledger = format!("{ledger}/entries");
        Ok(Self { client, ledger })
    }

    fn router(self) -> Router {
        Router::new()
            .route("/payments", post(pay))
            .layer(from_fn(within_scope))
            .with_state(Arc::new(self))
    }
}

/// Whatever the handler calls is over when its caller stops waiting, and is not repeated where its caller repeats.
async fn within_scope(request: Request, next: Next) -> Response {
    let remaining = number(request.headers(), scope::REMAINING_MS).map(Duration::from_millis);
    let deadline = remaining.and_then(|remaining| Instant::now().checked_add(remaining.saturating_sub(MARGIN)));
    let repeated = number(request.headers(), scope::NO_RETRY) == Some(1);
    let handled = next.run(request);
    match (deadline, repeated) {
        (Some(deadline), true) => scope::with_deadline(deadline, scope::without_retries(handled)).await,
        (Some(deadline), false) => scope::with_deadline(deadline, handled).await,
        (None, true) => scope::without_retries(handled).await,
        (None, false) => handled.await,
    }
}

fn number(headers: &HeaderMap, name: HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

async fn pay(State(service): State<Arc<Payments>>, headers: HeaderMap, Json(payment): Json<Value>) -> Response {
    let assumed = IdempotencyContract::header("idempotency-key");
    let key = match assumed.map(|contract| contract.key_of(&headers, &http::Uri::default(), b"")) {
        Ok(Ok(Some(key))) => key,
        _ => {
            return said(
                StatusCode::BAD_REQUEST,
                json!({ "error": "one Idempotency-Key is required" }),
            );
        }
    };
    // The caller's key names the caller's operation, this one ours. The same payment has the same entry, also after a restart.
    let entry = IdempotencyKey::stable("payment-service", "entry", key.as_str(), 1);
    let request = service.client.post(&service.ledger).circuit("ledger");
    let result = request.idempotency_key(entry).json(&payment).send().await;
    match result.and_then(ResponseExt::into_result) {
        Ok(response) => match response.json().await {
            Ok(receipt) => said(StatusCode::CREATED, receipt),
            Err(_) => said(StatusCode::CREATED, json!({ "outcome": "completed" })),
        },
        Err(error) => answer(&error),
    }
}

/// What the caller is told: whether it was done, whether to ask again, and when.
fn answer(error: &steadfast::Error) -> Response {
    let outcome = json!({ "outcome": error.outcome().to_string(), "error": error.kind().to_string() });
    match (error.outcome(), error.stop_reason()) {
        // The receipt was lost, not the payment.
        (Outcome::Completed, _) => said(StatusCode::CREATED, outcome),
        (_, StopReason::KeyConflict) => said(StatusCode::CONFLICT, outcome),
        (Outcome::NotDone, StopReason::CircuitOpen { retry_in: wait } | StopReason::RetryAfter { asked: wait }) => {
            let seconds = wait.as_secs().saturating_add(1).to_string();
            (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, seconds)], Json(outcome)).into_response()
        }
        (Outcome::NotDone, _) => match error.status() {
            Some(refused) if refused.is_client_error() => said(StatusCode::UNPROCESSABLE_ENTITY, outcome),
            _ => said(StatusCode::SERVICE_UNAVAILABLE, outcome),
        },
        // To ask again with the same key is safe: it makes no second entry.
        (_, _) if error.is_timeout() => said(StatusCode::GATEWAY_TIMEOUT, outcome),
        (_, _) => said(StatusCode::BAD_GATEWAY, outcome),
    }
}

fn said(status: StatusCode, body: Value) -> Response {
    (status, Json(body)).into_response()
}

/// How the ledger behaves.
#[derive(Clone, Copy, Default, PartialEq)]
enum Mood {
    #[default]
    Healthy,
    /// It books a new entry and is silent; who asks again gets the answer.
    LosesItsAnswer,
    /// It books, and never answers.
    Stuck,
    Refusing,
    Failing,
}

/// What the ledger remembers. One entry for each key, however often it is asked for.
#[derive(Default)]
struct Ledger {
    mood: Mood,
    requests: usize,
    /// The milliseconds that the last request left it.
    had: Option<u64>,
    entries: BTreeMap<String, Value>,
}

#[derive(Clone, Default)]
struct Books(Arc<Mutex<Ledger>>);

impl Books {
    fn router(self) -> Router {
        Router::new().route("/entries", post(book)).with_state(self)
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn book(State(books): State<Books>, headers: HeaderMap, Json(entry): Json<Value>) -> Response {
    let key = headers.get("idempotency-key").map(|key| key.as_bytes().to_vec());
    let key = String::from_utf8_lossy(&key.unwrap_or_default()).into_owned();
    let (mood, is_new, number) = {
        let mut ledger = books.lock();
        ledger.requests += 1;
        ledger.had = number(&headers, scope::REMAINING_MS);
        let books = matches!(ledger.mood, Mood::Healthy | Mood::LosesItsAnswer | Mood::Stuck);
        let is_new = books && ledger.entries.insert(key, entry).is_none();
        (ledger.mood, is_new, ledger.entries.len())
    };
    match mood {
        Mood::LosesItsAnswer if is_new => sleep(Duration::from_secs(5)).await,
        Mood::Stuck => sleep(Duration::from_secs(5)).await,
        Mood::Refusing => return said(StatusCode::NOT_FOUND, json!({ "error": "no such account" })),
        Mood::Failing => return said(StatusCode::INTERNAL_SERVER_ERROR, json!({ "error": "no disk" })),
        _ => {}
    }
    said(StatusCode::CREATED, json!({ "entry": number }))
}

/// The caller, and what it sees in one day.
struct Day {
    payments: String,
    books: Books,
}

impl Day {
    async fn call(
        &mut self,
        name: &str,
        mood: Mood,
        policy: PolicyBuilder,
        expected: u16,
    ) -> Result<(), Box<dyn Error>> {
        let (requests, entries) = {
            let mut ledger = self.books.lock();
            (ledger.mood, ledger.had) = (mood, None);
            (ledger.requests, ledger.entries.len())
        };
        let http = reqwest::Client::builder().no_proxy().build()?;
        let client = Client::builder(http).policy(policy.build()?).build();
        let request = client.post(format!("{}/payments", self.payments));
        let response = request.json(&json!({ "amount": 100 })).send().await?;
        let status = response.status();
        let asked = response.headers().get(RETRY_AFTER).is_some();
        let said: Value = response.json().await?;
        let (seen, booked, had) = {
            let ledger = self.books.lock();
            (ledger.requests - requests, ledger.entries.len() - entries, ledger.had)
        };
        let had = had.map_or_else(|| "-".to_owned(), |had| format!("{had} ms"));
        let later = if asked { ", with Retry-After" } else { "" };
        let status = status.as_u16();
        println!("{name:<17}  {status:>6}  {seen:>10}  {had:>10}  {booked:>6}  {said}{later}");
        if status != expected || booked > 1 {
            return Err(format!("{name}: expected {expected} and one entry at most").into());
        }
        Ok(())
    }
}

//! A billing API that takes its keys in the body: declared in contracts, and every answer read by them.
//!
//! `cargo run --example billing_client` needs no network. It starts a billing service of its own, which meets each call with
//! a [`Fault`], and shows what the call made of that. At the end the books are compared with what was wanted: by the
//! balance, not by the statuses.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::{Json, Router};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use steadfast::{
    AttemptFacts, Backoff, Classifier, Client, ContractError, IdempotencyContract, IdempotencyKey, Policy,
    RequestBuilder, RequestFacts, ResponseExt, Sign, Verdict,
};
use tokio::net::TcpListener;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let books = Books::default();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let service = Router::new().fallback(serve).with_state(books.clone());
    tokio::spawn(async { axum::serve(listener, service).await });
    let billing = Billing::new(url)?;

    println!("call                    requests  status  replayed  stop");
    let order = |number| IdempotencyKey::stable("billing-example", "deposit", number, 1);
    books.show("deposit", Fault::None, billing.deposit(order(1))).await?;
    books
        .show("answer lost", Fault::LostAnswer, billing.deposit(order(2)))
        .await?;
    books
        .show("timed out behind it", Fault::Timeout, billing.deposit(order(3)))
        .await?;
    books
        .show("refused by its code", Fault::Invalid, billing.deposit(order(4)))
        .await?;

    let payroll = |number| IdempotencyKey::stable("billing-example", "payroll", number, 1);
    books.show("batch", Fault::None, billing.batch(payroll(1))).await?;
    let batch = books.show("batch, answer lost", Fault::LostAnswer, billing.batch(payroll(2)));
    let batch: Batch = batch.await?.json().await?;

    let card = IdempotencyKey::stable("billing-example", "card", 1, 1);
    let card = books.show("card, answer lost", Fault::LostAnswer, billing.card(card));
    let card: Card = card.await?.json().await?;
    // A deposit's key stays the deposit's. Another key would act a second time, so nothing makes one.
    let shown = books.show("key of a deposit", Fault::None, billing.card(order(1)));
    let conflict = shown.await?.into_result().map(drop);
    let leg = books.show("key with a colon", Fault::None, billing.card(order(5).derive("card")));
    let refused = leg.await.map(drop);

    let balance = card
        .new_balance
        .map_or("not said".to_owned(), |balance| balance.to_string());
    println!("\nThe batch whose answer was lost is {}.", batch.batch_id);
    println!(
        "The card whose answer was lost is {}, the balance {balance}.",
        card.card
    );
    for error in [conflict.err(), refused.err()].into_iter().flatten() {
        println!("{error}");
    }
    let ledger = books.lock();
    println!("\nbalance: {}, of 3 deposits of 100 and a card for 10", ledger.balance);
    match ledger.balance == 290 && !ledger.other_bytes {
        true => Ok(()),
        false => Err("the books do not show what was wanted".into()),
    }
}

/// What the documentation of the service says of its keys; of a replay it says something else for each endpoint.
fn contract() -> Result<IdempotencyContract, ContractError> {
    let conflict = Sign::status(StatusCode::CONFLICT).and_field("/code", "request_id_conflict")?;
    let contract = IdempotencyContract::body_field("/request_id")?
        .with_alphabet(|character| !matches!(character, ':' | '|'))
        .with_reserved_prefix("sys_")
        .with_retention(Duration::from_secs(24 * 60 * 60))
        .with_mismatch(conflict);
    Ok(contract)
}

struct Billing {
    client: Client,
    url: String,
    deposits: IdempotencyContract,
    batches: IdempotencyContract,
}

impl Billing {
    fn new(url: String) -> Result<Self, Box<dyn Error>> {
        let policy = Policy::builder()
            .attempt_timeout(Duration::from_millis(300))
            .deadline(Duration::from_secs(2))
            .backoff(Backoff::full_jitter(
                Duration::from_millis(20),
                Duration::from_millis(100),
            ));
        let client = Client::from_builder(reqwest::Client::builder().no_proxy())?
            .policy(policy.build()?)
            .idempotency(contract()?)
            .classifier(Codes);
        Ok(Self {
            client: client.build(),
            url,
            // A deposit that is given again has a flag in its body, a batch the status 200 in place of 202.
            deposits: contract()?.with_replay(Sign::field("/replay", true)?),
            batches: contract()?.with_replay(Sign::status(StatusCode::OK)),
        })
    }

    fn post(&self, endpoint: &str, body: &Value) -> RequestBuilder {
        self.client.post(format!("{}/{endpoint}", self.url)).json(body)
    }

    fn deposit(&self, key: IdempotencyKey) -> RequestBuilder {
        let request = self.post("deposits", &json!({ "amount": 100 }));
        request.contract(self.deposits.clone()).idempotency_key(key)
    }

    fn batch(&self, key: IdempotencyKey) -> RequestBuilder {
        let request = self.post("batches", &json!({ "rows": 12 }));
        request.contract(self.batches.clone()).idempotency_key(key)
    }

    /// Nothing marks a card that is given again, but that its answer is without the balance.
    fn card(&self, key: IdempotencyKey) -> RequestBuilder {
        self.post("cards", &json!({ "price": 10 })).idempotency_key(key)
    }
}

/// What the service says in the body and not in the status: with these two it did nothing, and will not.
struct Codes;

impl Classifier for Codes {
    fn classify(&self, _: &RequestFacts<'_>, attempt: &AttemptFacts<'_>) -> Verdict {
        let refusal = attempt.body().and_then(|body| serde_json::from_slice(body).ok());
        match refusal {
            Some(Refusal { code }) if code == "ERR_VALIDATION" || code == "ERR_CONFLICT" => Verdict::Refused,
            _ => Verdict::Default,
        }
    }

    fn needs_body(&self) -> bool {
        true
    }
}

#[derive(Deserialize)]
struct Refusal {
    code: String,
}

#[derive(Deserialize)]
struct Batch {
    batch_id: String,
}

#[derive(Deserialize)]
struct Card {
    card: String,
    new_balance: Option<i64>,
}

/// What the first request of a call meets.
#[derive(Clone, Copy, Default)]
enum Fault {
    #[default]
    None,
    /// The service acts, and its answer does not come.
    LostAnswer,
    /// It acts, and what is in front of it has waited long enough: a 500 with the code `ERR_TIMEOUT`.
    Timeout,
    /// It does not act: a 500 with the code `ERR_VALIDATION`.
    Invalid,
}

/// The service: what it remembers, and what it does next.
#[derive(Default)]
struct Ledger {
    fault: Fault,
    requests: usize,
    balance: i64,
    /// The endpoint, body and answer of each key's first request.
    known: HashMap<String, (String, Bytes, Value)>,
    /// Some request came again with another body.
    other_bytes: bool,
}

#[derive(Clone, Default)]
struct Books(Arc<Mutex<Ledger>>);

impl Books {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request while the service has this fault, and prints how it went.
    async fn show(&self, call: &str, fault: Fault, request: RequestBuilder) -> Result<Response, steadfast::Error> {
        let before = {
            let mut ledger = self.lock();
            ledger.fault = fault;
            ledger.requests
        };
        let result = request.send().await;
        let requests = self.lock().requests - before;
        let (status, attempts) = match &result {
            Ok(response) => (response.status().as_str().to_owned(), response.attempts()),
            Err(_) => ("-".to_owned(), None),
        };
        let attempts = attempts.or_else(|| result.as_ref().err().map(steadfast::Error::attempts));
        let replayed = attempts.and_then(|attempts| attempts.replayed());
        let replayed = replayed.map_or("-".to_owned(), |replayed| replayed.to_string());
        let stop = attempts.map_or_else(String::new, |attempts| attempts.stop_reason().to_string());
        println!("{call:<22}  {requests:>8}  {status:>6}  {replayed:>8}  {stop}");
        result
    }
}

async fn serve(State(books): State<Books>, uri: http::Uri, body: Bytes) -> impl IntoResponse {
    let (fault, answer) = {
        let mut ledger = books.lock();
        ledger.requests += 1;
        let fault = std::mem::take(&mut ledger.fault);
        let answer = match fault {
            Fault::Invalid => (StatusCode::INTERNAL_SERVER_ERROR, json!({ "code": "ERR_VALIDATION" })),
            _ => ledger.act(uri.path(), body),
        };
        (fault, answer)
    };
    match fault {
        Fault::LostAnswer => sleep(Duration::from_secs(5)).await,
        Fault::Timeout => {
            return (
                StatusCode::INTERNAL_SERVER_ERROR,
                Json(json!({ "code": "ERR_TIMEOUT" })),
            );
        }
        Fault::None | Fault::Invalid => {}
    }
    (answer.0, Json(answer.1))
}

impl Ledger {
    /// Once for each key, however often it is asked for.
    fn act(&mut self, endpoint: &str, body: Bytes) -> (StatusCode, Value) {
        let key = contract().map(|contract| contract.key_of(&http::HeaderMap::new(), &http::Uri::default(), &body));
        let Ok(Ok(Some(key))) = key else {
            return (StatusCode::BAD_REQUEST, json!({ "code": "request_id_required" }));
        };
        let number = self.known.len() + 1;
        let (first, amount, again) = match endpoint {
            "/deposits" => (json!({ "replay": false }), 100, json!({ "replay": true })),
            "/batches" => {
                let batch = json!({ "batch_id": format!("b-{number}") });
                (batch.clone(), 0, batch)
            }
            _ => {
                let card = format!("c-{number}");
                let first = json!({ "card": card, "new_balance": self.balance - 10 });
                (first, -10, json!({ "card": card }))
            }
        };
        match self.known.entry(key.as_str().to_owned()) {
            Entry::Vacant(new) => {
                new.insert((endpoint.to_owned(), body, again));
                self.balance += amount;
                let status = if endpoint == "/batches" {
                    StatusCode::ACCEPTED
                } else {
                    StatusCode::OK
                };
                (status, first)
            }
            Entry::Occupied(known) => {
                let (known_endpoint, known_body, again) = known.get();
                if known_endpoint != endpoint {
                    return (StatusCode::CONFLICT, json!({ "code": "request_id_conflict" }));
                }
                self.other_bytes |= *known_body != body;
                (StatusCode::OK, again.clone())
            }
        }
    }
}

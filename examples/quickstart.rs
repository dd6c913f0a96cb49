//! One charge, a lost answer and a busy server: the client charges once all the same.
//!
//! `cargo run --example quickstart` needs no network. It starts a small payment server of its own, which misbehaves as
//! [`serve`] says, and sends it one `POST /charges`.

mod timeline;

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::error::Error;
use std::io;

use serde_json::json;
use steadfast::ResponseExt;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/charges", listener.local_addr()?);
    let server = tokio::spawn(serve(listener));

    println!("One call, `client.post(url).json(&charge).send().await`, to a server on a bad day:\n");
    // The client a service has already. A proxy set in the environment would not find this server.
    let http = reqwest::Client::builder().no_proxy().build()?;
    let client = steadfast::Client::new(http);
    let charge = json!({ "order": 4711, "amount": 1999, "currency": "EUR" });
    let response = client.post(url).json(&charge).send().await?.into_result()?;

    if let Some(attempts) = response.attempts() {
        println!("{}", timeline::timeline(attempts));
    }
    let replayed = response.headers().contains_key("idempotent-replayed");
    let receipt = response.text().await?;
    report(&server.await??, &receipt, replayed)
}

/// The other side of the same story.
fn report(bank: &Bank, receipt: &str, replayed: bool) -> Result<(), Box<dyn Error>> {
    let keys: HashSet<&String> = bank.keys.iter().collect();
    if keys.len() != 1 {
        return Err(format!("{} requests carried {} keys", bank.keys.len(), keys.len()).into());
    }
    let third = if replayed {
        "it knew the key, made no charge, and gave the stored answer (Idempotent-Replayed: true)"
    } else {
        "it did not know the key, and made a charge"
    };
    let requests = bank.keys.len();
    println!("The server saw {requests} requests, all with the same Idempotency-Key:");
    println!("  1: it made the charge, and the connection broke before it could say so");
    println!("  2: it was too busy to look (429, Retry-After: 1)");
    println!("  3: {third}");
    println!("receipt: {receipt}\n");
    println!("Without a retry the caller would have an error in hand and the customer a charge.");
    println!("Without the key the retry would have been a second charge.\n");
    let plural = if bank.ledger.len() == 1 { "" } else { "s" };
    println!("ledger: {} charge{plural}", bank.ledger.len());
    Ok(())
}

/// The server, request by request.
async fn serve(listener: TcpListener) -> io::Result<Bank> {
    let mut bank = Bank::default();

    let (connection, request) = accept(&listener).await?;
    bank.charge(request);
    drop(connection);

    let (mut connection, request) = accept(&listener).await?;
    bank.turn_away(request);
    let busy = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    connection.write_all(busy.as_bytes()).await?;

    let (mut connection, request) = accept(&listener).await?;
    let answer = bank.charge(request);
    connection.write_all(answer.as_bytes()).await?;
    Ok(bank)
}

/// What the payment service remembers.
#[derive(Default)]
struct Bank {
    /// The key of each request, in the order they came.
    keys: Vec<String>,
    /// The receipt of each charge, by the key of its request.
    ledger: HashMap<String, String>,
}

impl Bank {
    /// One charge for each key, however often it is asked for.
    fn charge(&mut self, request: Request) -> String {
        self.keys.push(request.key.clone());
        let number = self.ledger.len() + 1;
        let (receipt, replayed) = match self.ledger.entry(request.key) {
            Entry::Occupied(charge) => (charge.get().clone(), "Idempotent-Replayed: true\r\n"),
            Entry::Vacant(place) => {
                let receipt = format!(r#"{{"receipt":{number},"charge":{}}}"#, request.body);
                (place.insert(receipt).clone(), "")
            }
        };
        let length = receipt.len();
        format!(
            "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Connection: close\r\n{replayed}\r\n{receipt}"
        )
    }

    fn turn_away(&mut self, request: Request) {
        self.keys.push(request.key);
    }
}

/// As much of a request as the server looks at.
#[derive(Default)]
struct Request {
    key: String,
    body: String,
}

/// The next request, each on a connection of its own.
async fn accept(listener: &TcpListener) -> io::Result<(BufReader<TcpStream>, Request)> {
    let (connection, _) = listener.accept().await?;
    let mut connection = BufReader::new(connection);
    let mut request = Request::default();
    let mut length = 0;
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).await?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("idempotency-key") => request.key = value.to_owned(),
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().map_err(io::Error::other)?;
            }
            None if line.trim_end().is_empty() => break,
            _ => {}
        }
    }
    (&mut connection).take(length).read_to_string(&mut request.body).await?;
    Ok((connection, request))
}

//! Tries any URL and tells what happened: `cargo run --example call -- --help`.

mod timeline;

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, Url};
use steadfast::{Client, IdempotencyKey, Operation, Outcome, ResponseExt};

const USAGE: &str = "\
Sends one HTTP operation and prints its attempts, then the answer.

Usage: call [METHOD] URL [OPTION]...        METHOD is GET unless given

  --json TEXT             send TEXT as JSON
  --data TEXT             send TEXT as it is
  -H, --header 'N: V'     add a header; may be repeated
  --key KEY               the idempotency key (POST and PATCH have a random one)
  --no-key                send no idempotency key
  --deadline DUR          the time for everything: attempts, waits and body
  --attempt-timeout DUR   the time for each attempt
  --attempts N            how many attempts there may be, the first included
  --streamed              hand the body over at the headers
  -h, --help              print this

DUR is a number with a unit: 250ms, 5s, 2m.

Exits with 0 after a success, 1 after a failure or a status of 400 and above, 2 if the arguments are wrong.
URLs with https need a client with TLS: cargo run --example call --features reqwest/native-tls -- URL

Examples:
  call http://127.0.0.1:8080/orders
  call POST http://127.0.0.1:8080/pay --json '{\"amount\":1}' --deadline 5s --attempts 3
  call POST http://127.0.0.1:8080/pay --data 'amount=1' --key order-4711-charge-v1
";

/// The options that a value follows.
const VALUED: [&str; 8] = [
    "--json",
    "--data",
    "-H",
    "--header",
    "--key",
    "--deadline",
    "--attempt-timeout",
    "--attempts",
];

type Failure = Box<dyn Error>;

#[tokio::main]
async fn main() -> ExitCode {
    let result = match operation() {
        Ok(Some(operation)) => call(&operation).await,
        Ok(None) => print(USAGE),
        Err(error) => {
            eprintln!("error: {}\nTry --help.", with_causes(&*error));
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn call(operation: &Operation) -> Result<(), Failure> {
    let result = operation.send().await.and_then(ResponseExt::into_result);
    let attempts = match &result {
        Ok(response) => response.attempts(),
        Err(error) => Some(error.attempts()),
    };
    if let Some(attempts) = attempts {
        print(&timeline::timeline(attempts))?;
    }
    match result {
        Ok(response) => print_answer(response).await,
        Err(error) => fail(error).await,
    }
}

async fn fail(error: steadfast::Error) -> Result<(), Failure> {
    if let (Outcome::Unknown, Some(key)) = (error.outcome(), error.idempotency_key()) {
        eprintln!("hint: to try the same operation once more, add --key {}", key.as_str());
    }
    let failure = with_causes(&error);
    if let Some(response) = error.into_response() {
        print_answer(response).await?;
    }
    Err(failure.into())
}

async fn print_answer(mut response: Response) -> Result<(), Failure> {
    print(&format!("\n{:?} {}\n", response.version(), response.status()))?;
    let mut out = io::stdout();
    while let Some(chunk) = response.chunk().await? {
        out.write_all(&chunk)?;
        // What has come is shown now, also where its line is not over yet.
        out.flush()?;
    }
    print("\n")
}

/// A reader that has gone away is an error here, where `print!` would panic.
fn print(text: &str) -> Result<(), Failure> {
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// An error says what happened, its sources say why.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!("\n  caused by: {cause}");
        source = cause.source();
    }
    text
}

/// What the command line asks for; `None` where that is help.
fn operation() -> Result<Option<Operation>, Failure> {
    let arguments = env::args_os().skip(1).map(OsString::into_string);
    let arguments = arguments.collect::<Result<Vec<_>, _>>();
    let arguments = arguments.map_err(|argument| format!("{argument:?} is not UTF-8"))?;
    // Limits that contradict each other and the like show here, before anything is sent.
    Arguments::parse(arguments)?.map(Arguments::into_operation).transpose()
}

#[derive(Default)]
struct Arguments {
    words: Vec<String>,
    headers: HeaderMap,
    json: Option<String>,
    data: Option<String>,
    key: Option<IdempotencyKey>,
    no_key: bool,
    deadline: Option<Duration>,
    attempt_timeout: Option<Duration>,
    attempts: Option<u32>,
    streamed: bool,
}

impl Arguments {
    /// `None` where help is asked for.
    fn parse(arguments: Vec<String>) -> Result<Option<Self>, Failure> {
        let mut parsed = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "-h" | "--help" => return Ok(None),
                "--no-key" => parsed.no_key = true,
                "--streamed" => parsed.streamed = true,
                option if option.starts_with('-') => {
                    if !VALUED.contains(&option) {
                        return Err(format!("{option}: no such option").into());
                    }
                    let set = parsed.set(option, arguments.next());
                    set.map_err(|error| format!("{option}: {error}"))?;
                }
                _ => parsed.words.push(argument),
            }
        }
        Ok(Some(parsed))
    }

    fn set(&mut self, option: &str, value: Option<String>) -> Result<(), Failure> {
        let value = value.ok_or("a value is missing")?;
        match option {
            "--json" => {
                serde_json::from_str::<serde_json::Value>(&value).map_err(|error| format!("not JSON: {error}"))?;
                self.json = Some(value);
            }
            "--data" => self.data = Some(value),
            "-H" | "--header" => {
                let (name, value) = header(&value)?;
                self.headers.append(name, value);
            }
            "--key" => self.key = Some(IdempotencyKey::parse(value)?),
            "--deadline" => self.deadline = Some(duration(&value)?),
            "--attempt-timeout" => self.attempt_timeout = Some(duration(&value)?),
            // "--attempts", the last of those that have a value.
            _ => self.attempts = Some(value.parse().map_err(|_| format!("{value:?} is not a number"))?),
        }
        Ok(())
    }

    fn into_operation(mut self) -> Result<Operation, Failure> {
        let (method, url) = target(&self.words)?;
        let mut request = Client::new(reqwest::Client::new()).request(method, url);
        match (self.json, self.data) {
            (Some(_), Some(_)) => return Err("--json and --data exclude each other".into()),
            (Some(json), None) => {
                // The very text: `request.json` would write it anew, its keys in another order.
                request = request.body(json);
                let content_type = HeaderValue::from_static("application/json");
                self.headers.entry(CONTENT_TYPE).or_insert(content_type);
            }
            (None, Some(data)) => request = request.body(data),
            (None, None) => {}
        }
        request = request.headers(self.headers);
        match (self.key, self.no_key) {
            (Some(_), true) => return Err("--key and --no-key exclude each other".into()),
            (Some(key), false) => request = request.idempotency_key(key),
            (None, true) => request = request.without_idempotency_key(),
            (None, false) => {}
        }
        if let Some(deadline) = self.deadline {
            request = request.deadline(deadline);
        }
        if let Some(timeout) = self.attempt_timeout {
            request = request.attempt_timeout(timeout);
        }
        if let Some(attempts) = self.attempts {
            request = request.max_attempts(attempts);
        }
        if self.streamed {
            request = request.streamed();
        }
        Ok(request.into_operation()?)
    }
}

fn target(words: &[String]) -> Result<(Method, Url), Failure> {
    let (method, url) = match words {
        [] => return Err("a URL is missing".into()),
        [url] => ("GET", url),
        [method, url] => (method.as_str(), url),
        [_, _, other, ..] => return Err(format!("{other} is one argument too many").into()),
    };
    let parsed = Url::parse(url).map_err(|error| format!("{url} is not a URL: {error}"))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(format!("{url} is not a URL with http:// or https://").into());
    }
    let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes());
    Ok((method?, parsed))
}

fn header(line: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    let (name, value) = line.split_once(':').ok_or("not of the form 'Name: value'")?;
    Ok((name.trim().parse()?, value.trim().parse()?))
}

fn duration(text: &str) -> Result<Duration, Failure> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let duration = number.parse().ok().and_then(|number: u64| match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        _ => None,
    });
    Ok(duration.ok_or_else(|| format!("{text:?} is not a duration such as 250ms, 5s or 2m"))?)
}

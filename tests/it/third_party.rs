//! Servers that nobody here wrote: nginx, HAProxy and httpbin, as `.ci/servers` starts them. What a client says of its
//! attempts is compared with what the server logged of them.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use steadfast::{Attempts, Client, IdempotencyKey, RequestBuilder};
use tokio::time::{sleep, timeout};

use crate::wire::{Call, http, ms};

mod haproxy;
mod httpbin;
mod nginx;

/// Longer than anything here takes, shorter than the patience of a person.
const LONG: Duration = Duration::from_secs(10);

/// A server that runs already, and its access log.
#[derive(Clone)]
struct Service {
    base: Url,
    log: PathBuf,
}

/// One request in an access log.
#[derive(Debug)]
struct Line {
    method: String,
    status: u16,
    key: Option<String>,
    /// The port of the client: one for each connection.
    port: String,
}

impl Service {
    /// None, and a word about it, where the server was not started; a failure where it had to be.
    fn find(name: &str) -> Option<Self> {
        let found = (env::var(name), env::var(format!("{name}_LOG")));
        if let (Ok(base), Ok(log)) = found {
            let (base, log) = (base.parse().unwrap(), log.into());
            return Some(Self { base, log });
        }
        let required = env::var("STEADFAST_SERVERS").is_ok_and(|value| value == "required");
        assert!(!required, "{name} and {name}_LOG have to be set");
        eprintln!("skipped: {name} is not set, see .ci/servers");
        None
    }

    fn nginx() -> Option<Self> {
        Self::find("STEADFAST_NGINX")
    }

    fn haproxy() -> Option<Self> {
        Self::find("STEADFAST_HAPROXY")
    }

    fn httpbin() -> Option<Self> {
        Self::find("STEADFAST_HTTPBIN")
    }

    /// The path with the tag in its query, by which the log tells whose request it was.
    fn url(&self, path: &str, tag: &str) -> String {
        let mut url = self.base.join(path).unwrap();
        url.query_pairs_mut().append_pair("tag", tag);
        url.into()
    }

    /// The requests with this tag in their target or as their key. Only `at_least` may come late: those that
    /// the server still worked on when the client had left.
    async fn logged(&self, tag: &str, at_least: usize) -> Vec<Line> {
        // The last request there is: what ended before it stands before it.
        let end = new_tag();
        let last = http().build().unwrap().get(self.url("/", &end));
        last.send().await.unwrap();
        let complete = async {
            loop {
                let ended = !self.lines_with(&end).is_empty();
                let lines = self.lines_with(tag);
                if ended && lines.len() >= at_least {
                    return lines;
                }
                sleep(ms(10)).await;
            }
        };
        let complete = timeout(LONG, complete).await;
        complete.unwrap_or_else(|_| panic!("{at_least} requests with {tag} in the log"))
    }

    fn lines_with(&self, tag: &str) -> Vec<Line> {
        let text = fs::read_to_string(&self.log).unwrap();
        // The last line may be half written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let tagged = whole.lines().filter(|line| line.contains(tag));
        tagged.filter_map(Line::parse).collect()
    }

    /// The log has the attempts that the client tells of, in their order and with the one key, and no others.
    async fn assert_logged(&self, tag: &str, call: Call, attempts: &Attempts) {
        let lines = self.logged(tag, attempts.len()).await;
        let seen: Vec<_> = lines
            .iter()
            .map(|line| (line.method.as_str(), Some(line.status), line.key.as_deref()))
            .collect();
        let key = attempts.idempotency_key().map(IdempotencyKey::as_str);
        let told: Vec<_> = attempts
            .iter()
            .map(|attempt| (method(call), attempt.status().map(|status| status.as_u16()), key))
            .collect();
        assert_eq!(seen, told, "{call:?}");
        assert_eq!(key.is_some(), call == Call::Keyed);
    }
}

impl Line {
    /// What the servers say of themselves has other words.
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<_> = text.split(' ').collect();
        let [method, _target, status, key, port] = words[..] else {
            return None;
        };
        Some(Self {
            method: method.to_owned(),
            status: status.parse().ok()?,
            key: Some(key.to_owned()).filter(|key| key != "-"),
            port: port.to_owned(),
        })
    }
}

fn method(call: Call) -> &'static str {
    match call {
        Call::Get => "GET",
        Call::Keyed | Call::Keyless => "POST",
    }
}

/// Like no other, in this run or an earlier one.
fn new_tag() -> String {
    IdempotencyKey::random().as_str().to_owned()
}

/// A GET whose key is its tag, which stays with it where redirects take it to another target.
fn marked(client: &Client, url: Url, tag: &str) -> RequestBuilder {
    let key = IdempotencyKey::parse(tag).unwrap();
    client.get(url).idempotency_key(key)
}

//! A service as an ordinary team writes it over plain reqwest, and the same service moved: how many lines that changes,
//! and what both of them do to a billing service that fails once.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::server::{Recorded, Reply, Server};
use crate::wire::Refusing;

#[path = "../fixtures/legacy_service/mod.rs"]
mod legacy_service;
#[path = "../fixtures/moved_service/mod.rs"]
mod moved_service;

use legacy_service::BillingError as LegacyError;
use moved_service::BillingError as MovedError;

const KEY: &str = "idempotency-key";
/// Of a call of the old service, and of an attempt of the moved one.
const TIMEOUT: Duration = Duration::from_secs(2);

fn legacy(url: &str) -> legacy_service::BillingApi {
    legacy_service::BillingApi::new(url, "token", TIMEOUT).unwrap()
}

fn moved(url: &str) -> moved_service::BillingApi {
    moved_service::BillingApi::new(url, "token", TIMEOUT).unwrap()
}

/// A billing service that honours keys. It acts on every request it has read, and then does not say so: the first reply
/// is the fault, and all others are what they should be.
struct Billing {
    server: Server,
    ledger: Arc<Mutex<Ledger>>,
}

impl Billing {
    async fn failing_once(fault: Reply) -> Self {
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let mut fault = Some(fault);
        let shared = ledger.clone();
        let server = Server::answering(move |request| {
            let answer = shared.lock().unwrap().act(request);
            fault.take().unwrap_or(Reply::ok(answer))
        });
        Self {
            server: server.await,
            ledger,
        }
    }

    /// The old service's and the moved one's, each with the same fault.
    async fn two(fault: Reply) -> [Self; 2] {
        [Self::failing_once(fault.clone()).await, Self::failing_once(fault).await]
    }

    fn url(&self) -> String {
        self.server.url("/")
    }

    /// What was done to it, each effect as the path and the bytes that had it.
    fn effects(&self) -> Vec<(String, Vec<u8>)> {
        self.ledger.lock().unwrap().effects.clone()
    }

    /// The one repeat of a request is that request once more: the same target, key and bytes.
    fn assert_one_repeat(&self) {
        let [first, repeat] = &self.server.requests()[..] else {
            panic!("{} requests", self.server.requests().len());
        };
        assert_eq!((first.method(), first.path()), (repeat.method(), repeat.path()));
        assert_eq!(first.headers_named(KEY), repeat.headers_named(KEY));
        assert_eq!(first.headers_named(KEY).len(), usize::from(first.method() == "POST"));
        assert!(first.body() == repeat.body());
    }
}

#[derive(Default)]
struct Ledger {
    effects: Vec<(String, Vec<u8>)>,
    /// The effect that a key stands for, by its number.
    by_key: HashMap<String, usize>,
}

impl Ledger {
    /// What it answers, which numbers its effects from 1.
    fn act(&mut self, request: &Recorded) -> Vec<u8> {
        let sent: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let invoice = |id: usize| json!({ "id": id, "order": "4711", "cents": sent["cents"] });
        let answer = match (request.method(), request.path()) {
            ("GET", "/invoices/1/print") => return print(),
            ("GET", _) => json!([{ "id": 1, "order": "4711", "cents": 1999 }]),
            ("PUT", _) => invoice(self.effect(request)),
            (_, "/invoices") => invoice(self.effect(request)),
            _ => json!({ "id": self.effect(request), "bytes": request.body().len() }),
        };
        answer.to_string().into()
    }

    /// Its number. A key that is known has the one of its first request; setting what is set already is none.
    fn effect(&mut self, request: &Recorded) -> usize {
        let effect = (request.path().to_owned(), request.body().to_owned());
        let next = self.effects.len() + 1;
        let number = match (request.method(), request.header(KEY)) {
            ("PUT", _) => self
                .effects
                .iter()
                .position(|set| *set == effect)
                .map_or(next, |at| at + 1),
            (_, Some(key)) => *self.by_key.entry(key.to_owned()).or_insert(next),
            (_, None) => next,
        };
        if number == next {
            self.effects.push(effect);
        }
        number
    }
}

/// A document of a few hundred KiB, no two parts of which are the same.
fn print() -> Vec<u8> {
    (0..75_000_u32).flat_map(u32::to_be_bytes).collect()
}

/// What the answer to a write may meet: it was made, and nobody hears of it.
fn lost() -> Reply {
    Reply::new().reset()
}

// A move changes at most twenty lines, a line that took another's place counted once.
#[test]
fn a_service_is_moved_by_changing_at_most_twenty_lines() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let files = |service: &str| -> Vec<PathBuf> {
        let files = fs::read_dir(fixtures.join(service)).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    };
    let (old, new) = (files("legacy_service"), files("moved_service"));
    let names =
        |files: &[PathBuf]| -> Vec<_> { files.iter().map(|file| file.file_name().unwrap().to_owned()).collect() };
    assert_eq!(names(&old), names(&new));
    let mut changed = 0;
    for (old, new) in old.iter().zip(&new) {
        let texts = [old, new].map(|file| fs::read_to_string(file).unwrap());
        let diff = diff(&texts[0], &texts[1]);
        println!("{:?}: {} changed lines", new.file_name().unwrap(), changed_lines(&diff));
        for (side, line) in diff.iter().filter(|(side, _)| *side != Side::Both) {
            println!("{} {line}", if *side == Side::Old { '-' } else { '+' });
        }
        changed += changed_lines(&diff);
    }
    println!("{changed} changed lines");
    assert!((1..=20).contains(&changed), "{changed}");
}

// An answer that fails by chance costs the caller nothing.
#[tokio::test]
async fn a_list_behind_a_503_is_an_error_of_the_old_service_and_the_list_of_the_moved_one() {
    let [for_legacy, for_moved] = Billing::two(Reply::status(503)).await;

    let filter = legacy_service::Filter {
        customer: "ann b",
        state: "open",
    };
    let error = legacy(&for_legacy.url()).list(&filter).await.unwrap_err();
    assert!(
        matches!(&error, LegacyError::Service(error) if error.status().unwrap() == 503),
        "{error:?}"
    );

    let filter = moved_service::Filter {
        customer: "ann b",
        state: "open",
    };
    let [invoice] = &moved(&for_moved.url()).list(&filter).await.unwrap()[..] else {
        panic!("not one invoice");
    };
    assert_eq!((invoice.id, invoice.order.as_str(), invoice.cents), (1, "4711", 1999));
    for_moved.assert_one_repeat();
    assert_eq!(
        for_moved.server.requests()[0].path(),
        "/invoices?customer=ann+b&state=open"
    );
}

// R139: a confirmation that is lost; whoever tries again without a key acts twice.
#[tokio::test]
async fn an_invoice_that_is_not_confirmed_is_made_twice_by_the_old_service_and_once_by_the_moved_one() {
    let [for_legacy, for_moved] = Billing::two(lost()).await;

    let legacy = legacy(&for_legacy.url());
    let error = legacy.create("4711", 1999).await.unwrap_err();
    assert!(matches!(error, LegacyError::Service(_)), "{error:?}");
    // The error does not say that there is an invoice, and so the caller asks for it again.
    let invoice = legacy.create("4711", 1999).await.unwrap();
    assert_eq!((invoice.id, invoice.order.as_str(), invoice.cents), (2, "4711", 1999));
    assert_eq!(for_legacy.effects().len(), 2);

    let moved = moved(&for_moved.url());
    let invoice = moved.create("4711", 1999).await.unwrap();
    assert_eq!((invoice.id, invoice.order.as_str(), invoice.cents), (1, "4711", 1999));
    for_moved.assert_one_repeat();
    // So does a caller of the moved one that is started anew: the key is the order's.
    assert_eq!(moved.create("4711", 1999).await.unwrap().id, 1);
    assert_eq!(for_moved.effects().len(), 1);
}

// A service that is silent is left after the same time as before, and asked again.
#[tokio::test]
async fn a_change_that_is_met_with_silence_is_an_error_of_the_old_service_and_made_once_by_the_moved_one() {
    let [for_legacy, for_moved] = Billing::two(Reply::new().stall()).await;
    let (legacy, moved) = (legacy(&for_legacy.url()), moved(&for_moved.url()));
    let (old, new) = tokio::join!(legacy.set_amount(1, 2499), moved.set_amount(1, 2499));

    let error = old.unwrap_err();
    assert!(
        matches!(&error, LegacyError::Service(error) if error.is_timeout()),
        "{error:?}"
    );
    // It was made all the same.
    assert_eq!(for_legacy.effects().len(), 1);

    let invoice = new.unwrap();
    assert_eq!((invoice.id, invoice.order.as_str(), invoice.cents), (1, "4711", 2499));
    for_moved.assert_one_repeat();
    assert_eq!(for_moved.effects().len(), 1);
}

// A file is read anew for each attempt, and every attempt carries all of it.
#[tokio::test]
async fn an_upload_that_is_not_confirmed_is_stored_twice_by_the_old_service_and_once_by_the_moved_one() {
    let [for_legacy, for_moved] = Billing::two(lost()).await;
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("an-upload-that-is-not-confirmed");
    fs::write(&file, print()).unwrap();
    let once = ("/invoices/1/attachments".to_owned(), print());

    let legacy = legacy(&for_legacy.url());
    let error = legacy.attach(1, file.clone()).await.unwrap_err();
    assert!(matches!(error, LegacyError::Service(_)), "{error:?}");
    let attachment = legacy.attach(1, file.clone()).await.unwrap();
    assert_eq!((attachment.id, attachment.bytes), (2, print().len()));
    assert!(for_legacy.effects() == [once.clone(), once.clone()]);

    let attachment = moved(&for_moved.url()).attach(1, file).await.unwrap();
    assert_eq!((attachment.id, attachment.bytes), (1, print().len()));
    for_moved.assert_one_repeat();
    assert!(for_moved.effects() == [once]);
}

// An answer that is cut is asked for again before any of it is handed on, where it is within `response_buffer`.
#[tokio::test]
async fn a_download_that_is_cut_leaves_a_torn_file_in_the_old_service_and_a_whole_one_in_the_moved_one() {
    let (all, half) = (print().len(), &print()[..100_000]);
    let [for_legacy, for_moved] = Billing::two(Reply::ok("").cut_body(all, half)).await;

    let mut file = Vec::new();
    let error = legacy(&for_legacy.url()).download(1, &mut file).await.unwrap_err();
    assert!(matches!(error, LegacyError::Service(_)), "{error:?}");
    assert!(!file.is_empty() && half.starts_with(&file), "{}", file.len());

    let mut file = Vec::new();
    let written = moved(&for_moved.url()).download(1, &mut file).await.unwrap();
    assert!(file == print());
    assert_eq!(written, all as u64);
    for_moved.assert_one_repeat();
}

// Its own answers stay its own: they are told by the same variants, and not asked for twice.
#[tokio::test]
async fn what_the_service_says_of_a_request_is_the_same_error_in_both() {
    for status in [404, 422] {
        let server = Server::repeat(Reply::status(status).body("no cents")).await;
        let old = legacy(&server.url("/")).create("4711", 0).await.unwrap_err();
        let new = moved(&server.url("/")).create("4711", 0).await.unwrap_err();
        assert_eq!(old.to_string(), new.to_string());
        match status {
            404 => assert!(matches!(new, MovedError::NotFound), "{new:?}"),
            _ => assert!(matches!(&new, MovedError::Invalid(why) if why == "no cents"), "{new:?}"),
        }
        assert_eq!(server.requests().len(), 2);
    }
}

// "Not done" and "nobody knows" are two errors of the moved service, and one of the old.
#[tokio::test]
async fn an_invoice_that_was_never_asked_for_and_one_that_may_be_made_are_two_errors_of_the_moved_service() {
    let nobody = Refusing::new();
    let deaf = Server::repeat(lost()).await;
    for (url, may_be_made) in [(format!("http://{}", nobody.addr()), false), (deaf.url(""), true)] {
        let error = legacy(&url).create("4711", 1999).await.unwrap_err();
        assert!(matches!(error, LegacyError::Service(_)), "{error:?}");

        match moved(&url).create("4711", 1999).await.unwrap_err() {
            MovedError::NotDone(error) => assert!(!may_be_made, "{error}"),
            MovedError::Unknown(error) => assert!(may_be_made, "{error}"),
            error => panic!("{error:?}"),
        }
    }
}

/// Where a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Old,
    New,
    Both,
}

/// The lines of both texts, as few as possible of them in only one.
fn diff<'a>(old: &'a str, new: &'a str) -> Vec<(Side, &'a str)> {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    // How many lines the rest of one text, from there on, can share with the rest of the other.
    let mut shared = vec![vec![0; new.len() + 1]; old.len() + 1];
    for o in (0..old.len()).rev() {
        for n in (0..new.len()).rev() {
            shared[o][n] = match old[o] == new[n] {
                true => shared[o + 1][n + 1] + 1,
                false => shared[o + 1][n].max(shared[o][n + 1]),
            };
        }
    }
    let (mut o, mut n) = (0, 0);
    let mut lines = Vec::new();
    while o < old.len() || n < new.len() {
        if o < old.len() && n < new.len() && old[o] == new[n] {
            lines.push((Side::Both, old[o]));
            (o, n) = (o + 1, n + 1);
        } else if n == new.len() || o < old.len() && shared[o + 1][n] >= shared[o][n + 1] {
            lines.push((Side::Old, old[o]));
            o += 1;
        } else {
            lines.push((Side::New, new[n]));
            n += 1;
        }
    }
    lines
}

/// In each place where the texts differ, the lines of the one that has more there.
fn changed_lines(diff: &[(Side, &str)]) -> usize {
    let places = diff.split(|(side, _)| *side == Side::Both);
    let longer = |place: &[(Side, &str)]| {
        let old = place.iter().filter(|(side, _)| *side == Side::Old).count();
        old.max(place.len() - old)
    };
    places.map(longer).sum()
}

// A count that is wrong would let any move pass.
#[test]
fn a_line_that_is_new_gone_or_another_counts_once() {
    for (old, new, count) in [
        ("a\nb\nc", "a\nb\nc", 0),
        ("a\nb\nc", "a\nx\nc", 1),
        ("a\nc", "a\nb\nc", 1),
        ("a\nb\nc", "b\nc", 1),
        ("a\nb\nc", "a\nx\ny\nc\nz", 3),
        ("", "a\nb", 2),
    ] {
        assert_eq!(changed_lines(&diff(old, new)), count, "{old:?} {new:?}");
    }
}

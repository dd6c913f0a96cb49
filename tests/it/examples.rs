//! The examples, run as a reader runs them. `cargo test` builds them; with `--test it` alone they stay as they are.

use crate::server::{Reply, Server};
use std::path::PathBuf;
use std::process::Output;
use tokio::process::Command;

/// Cargo puts the examples beside the directory of the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let target = test.ancestors().nth(2).expect("the directory above `deps`");
    let example = target
        .join("examples")
        .join(name)
        .with_extension(std::env::consts::EXE_EXTENSION);
    assert!(
        example.exists(),
        "{} is missing: cargo build --examples",
        example.display()
    );
    example
}

/// How an example ended.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) async fn run(name: &str, arguments: &[&str]) -> Ran {
    let mut command = Command::new(example(name));
    // The proxy of the machine has no part in this.
    for variable in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(variable);
    }
    let output = command.args(arguments).output();
    let Output { status, stdout, stderr } = output.await.expect("an example that starts");
    Ran {
        code: status.code(),
        out: String::from_utf8(stdout).expect("text"),
        err: String::from_utf8(stderr).expect("text"),
    }
}

async fn call(arguments: &[&str]) -> Ran {
    run("call", arguments).await
}

/// The lines of the attempts, which begin with their numbers.
fn attempts(out: &str) -> Vec<&str> {
    let lines = out.lines().skip_while(|line| !line.starts_with("attempt "));
    lines.skip(1).take_while(|line| !line.is_empty()).collect()
}

#[cfg(feature = "json")]
#[tokio::test]
async fn the_quickstart_charges_once_in_three_attempts() {
    let ran = run("quickstart", &[]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(ran.out.lines().last(), Some("ledger: 1 charge"), "{}", ran.out);
    let [lost, busy, replayed] = attempts(&ran.out)[..] else {
        panic!("not three attempts:\n{}", ran.out);
    };
    assert!(lost.contains("connection lost") && lost.contains("unknown"), "{lost}");
    assert!(busy.contains("429") && busy.contains("rejected"), "{busy}");
    assert!(replayed.contains("201") && replayed.contains("answered"), "{replayed}");
    assert!(
        ran.out.contains("3 requests, all with the same Idempotency-Key"),
        "{}",
        ran.out
    );
}

/// The lines of a table that are about an endpoint, word by word.
fn about<'a>(out: &'a str, column: usize, endpoint: &str) -> Vec<Vec<&'a str>> {
    let lines = out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|words| words.get(column) == Some(&endpoint)).collect()
}

/// Event, endpoint, rounds, attempts, milliseconds, their unit, and how it ended.
fn deliveries<'a>(out: &'a str, endpoint: &str) -> Vec<Vec<&'a str>> {
    let deliveries = about(out, 1, endpoint);
    let events: Vec<_> = deliveries.iter().map(|delivery| delivery[0]).collect();
    assert_eq!(events, ["evt-1", "evt-2", "evt-3", "evt-4"], "{out}");
    deliveries
}

/// What a receiver saw: how many requests, and what it did because of them.
fn received<'a>(out: &'a str, receiver: &str) -> (usize, Vec<&'a str>) {
    let lines = about(out, 0, receiver);
    assert_eq!(lines.len(), 1, "{out}");
    (lines[0][1].parse().unwrap(), lines[0][2..].to_vec())
}

// At least once on the wire, once in effect, also where a confirmation is lost; a dead endpoint is its own trouble.
#[tokio::test]
async fn the_webhooks_are_acted_on_once_by_whoever_lives_and_end_where_nobody_does() {
    let Ran { code, out, err } = run("webhook_sender", &[]).await;
    assert_eq!(code, Some(0), "{err}");
    for receiver in ["healthy", "flaky"] {
        for delivery in deliveries(&out, receiver) {
            assert_eq!(delivery[6..], ["delivered"], "{out}");
        }
        assert_eq!(
            received(&out, receiver).1,
            ["evt-1", "evt-2", "evt-3", "evt-4"],
            "{out}"
        );
    }
    // Four, and one each for the lost confirmation, the 503 and the 429.
    assert!(received(&out, "flaky").0 >= 7, "{out}");

    let [first, rest @ ..] = &deliveries(&out, "gone")[..] else {
        panic!("no event for the endpoint that is gone:\n{out}");
    };
    assert_eq!(first[6..].join(" "), "410 Gone, endpoint disabled", "{out}");
    for delivery in rest {
        assert_eq!(delivery[6..].join(" "), "not sent, endpoint disabled", "{out}");
    }
    assert_eq!(received(&out, "gone").1, ["nothing"], "{out}");

    for delivery in deliveries(&out, "dead") {
        assert_eq!(
            (delivery[2], delivery[6..8].join(" ").as_str()),
            ("5", "dead letter:"),
            "{out}"
        );
    }
    // Without its circuit it would be two for each event in each round.
    assert!(received(&out, "dead").0 < 4 * 5 * 2, "{out}");
    // Less than the two attempts of a single round to the dead one.
    for delivery in deliveries(&out, "healthy") {
        assert!(delivery[4].parse::<u64>().unwrap() < 600, "{out}");
    }
}

/// The columns behind the name of a call: requests, status, replayed, and the first word of the stop reason.
#[cfg(feature = "json")]
fn billed<'a>(out: &'a str, call: &str) -> [&'a str; 4] {
    let line = out.lines().find_map(|line| line.strip_prefix(call)).unwrap();
    let words: Vec<_> = line.split_whitespace().take(4).collect();
    words.try_into().unwrap()
}

// R46, R54, R60, R64, R65, R66, R68, R69, R70, R75, R77, R79
#[cfg(feature = "json")]
#[tokio::test]
async fn the_billing_client_reads_every_answer_by_its_contract_and_its_books_are_right() {
    let Ran { code, out, err } = run("billing_client", &[]).await;
    assert_eq!(code, Some(0), "{out}{err}");
    for (call, expected) in [
        ("deposit ", ["1", "200", "false", "done"]),
        ("answer lost", ["2", "200", "true", "done"]),
        ("timed out behind it", ["2", "200", "true", "done"]),
        ("refused by its code", ["1", "500", "false", "not"]),
        ("batch ", ["1", "202", "false", "done"]),
        ("batch, answer lost", ["2", "200", "true", "done"]),
        ("card, answer lost", ["2", "200", "-", "done"]),
        ("key of a deposit", ["1", "409", "-", "idempotency"]),
        ("key with a colon", ["0", "-", "-", "not"]),
    ] {
        assert_eq!(billed(&out, call), expected, "{out}");
    }
    assert!(out.contains("c-6, the balance not said"), "{out}");
    assert!(out.contains("a new one would act again"), "{out}");
    assert_eq!(
        out.lines().last(),
        Some("balance: 290, of 3 deposits of 100 and a card for 10"),
        "{out}"
    );
}

/// Status, requests at the ledger, and entries it booked, of the call of this name.
#[cfg(feature = "json")]
fn paid<'a>(out: &'a str, call: &str) -> (&'a str, u32, u32) {
    let line = out.lines().find_map(|line| line.strip_prefix(call)).unwrap();
    let words: Vec<_> = line.split_whitespace().filter(|word| *word != "ms").collect();
    (words[0], words[1].parse().unwrap(), words[3].parse().unwrap())
}

// R32, R79: the deadline goes through, the report is honest, and nothing is booked twice.
#[cfg(feature = "json")]
#[tokio::test]
async fn the_payment_service_keeps_the_deadline_of_its_caller_and_books_each_payment_once() {
    let Ran { code, out, err } = run("payment_service", &[]).await;
    assert_eq!(code, Some(0), "{out}{err}");
    assert_eq!(paid(&out, "healthy").2, 1, "{out}");
    for lost in ["answer lost", "caller repeats"] {
        let (status, seen, booked) = paid(&out, lost);
        assert!(status == "201" && seen >= 2 && booked == 1, "{out}");
    }
    assert_eq!(paid(&out, "caller in a hurry").0, "504", "{out}");
    assert_eq!(paid(&out, "refused").2, 0, "{out}");
    assert_eq!(paid(&out, "circuit open"), ("503", 0, 0), "{out}");
    let entries = "ledger: 4 entries, one for each payment that reached it";
    assert_eq!(out.lines().last(), Some(entries), "{out}");
}

#[tokio::test]
async fn a_call_prints_its_attempts_then_status_and_body() {
    let server = Server::start([Reply::status(502), Reply::ok("paid")]).await;
    let url = server.url("/pay");
    let json = r#"{"b": 1, "a": 2}"#;
    let ran = call(&[
        "POST", &url, "--json", json, "-H", "X-One: 1", "--header", "X-Two: 2", "--key", "k1",
    ])
    .await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(attempts(&ran.out).len(), 2, "{}", ran.out);
    assert!(ran.out.ends_with("\nHTTP/1.1 200 OK\npaid\n"), "{}", ran.out);
    for request in server.requests() {
        assert_eq!((request.method(), request.path()), ("POST", "/pay"));
        assert_eq!(request.body(), json.as_bytes());
        assert_eq!(request.headers_named("Content-Type"), ["application/json"]);
        assert_eq!(request.header("X-One"), Some("1"));
        assert_eq!(request.header("X-Two"), Some("2"));
        assert_eq!(request.header("Idempotency-Key"), Some("k1"));
    }
}

#[tokio::test]
async fn a_call_without_a_method_is_a_get() {
    let server = Server::start([Reply::ok("")]).await;
    assert_eq!(call(&[&server.url("/")]).await.code, Some(0));
    assert_eq!(server.requests()[0].method(), "GET");
}

#[tokio::test]
async fn a_content_type_of_ones_own_stands_alone() {
    let server = Server::start([Reply::ok("")]).await;
    let own = "content-type: application/problem+json";
    assert_eq!(
        call(&["PUT", &server.url("/"), "--json", "1", "-H", own]).await.code,
        Some(0)
    );
    assert_eq!(
        server.requests()[0].headers_named("Content-Type"),
        ["application/problem+json"]
    );
}

#[tokio::test]
async fn a_failing_status_exits_with_1_and_shows_its_body() {
    let server = Server::start([Reply::status(404).body("no such order")]).await;
    let ran = call(&[&server.url("/orders/1")]).await;
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.out.ends_with("\nHTTP/1.1 404 Not Found\nno such order\n"),
        "{}",
        ran.out
    );
    assert!(ran.err.contains("404 Not Found"), "{}", ran.err);
}

#[tokio::test]
async fn a_call_without_a_key_tries_once_and_says_that_it_may_have_acted() {
    let server = Server::start([Reply::new().reset()]).await;
    let ran = call(&["POST", &server.url("/"), "--data", "x", "--no-key"]).await;
    assert_eq!(ran.code, Some(1));
    assert_eq!(server.requests().len(), 1);
    assert_eq!(server.requests()[0].header("Idempotency-Key"), None);
    assert!(ran.out.contains("stopped: not replay-safe"), "{}", ran.out);
    assert!(ran.out.contains("outcome:      unknown"), "{}", ran.out);
}

#[tokio::test]
async fn a_call_that_stays_unknown_names_the_key_to_go_on_with() {
    let server = Server::repeat(Reply::status(504)).await;
    let ran = call(&["POST", &server.url("/"), "--attempts", "2"]).await;
    assert_eq!(ran.code, Some(1));
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    let key = requests[0].header("Idempotency-Key").expect("a key");
    assert!(ran.err.contains(&format!("--key {key}")), "{}", ran.err);
}

#[tokio::test]
async fn a_transport_failure_exits_with_1_and_says_why() {
    let refused = "http://127.0.0.1:1/";
    let ran = call(&[refused, "--attempts", "2"]).await;
    assert_eq!(ran.code, Some(1));
    assert_eq!(attempts(&ran.out).len(), 2, "{}", ran.out);
    assert!(ran.err.contains("connect failure"), "{}", ran.err);
}

#[tokio::test]
async fn a_deadline_ends_the_call() {
    let server = Server::repeat(Reply::new().stall()).await;
    let ran = call(&[&server.url("/"), "--deadline", "300ms"]).await;
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("stopped: deadline reached"), "{}", ran.out);
    assert!(ran.err.contains("timeout"), "{}", ran.err);
}

#[tokio::test]
async fn an_attempt_timeout_ends_each_attempt() {
    let server = Server::repeat(Reply::new().stall()).await;
    let limits = ["--attempt-timeout", "100ms", "--attempts", "2"];
    let ran = call(&[&[server.url("/").as_str()], &limits[..]].concat()).await;
    assert_eq!(ran.code, Some(1));
    let lines = attempts(&ran.out);
    assert_eq!(lines.len(), 2, "{}", ran.out);
    assert!(lines.iter().all(|line| line.contains("timeout")), "{}", ran.out);
    assert!(ran.out.contains("stopped: no attempts left"), "{}", ran.out);
}

#[tokio::test]
async fn a_streamed_body_that_breaks_off_is_shown_as_far_as_it_came_and_exits_with_1() {
    let server = Server::start([Reply::status(200).cut_body(100, b"the first part")]).await;
    let ran = call(&[&server.url("/"), "--streamed"]).await;
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.ends_with("\nHTTP/1.1 200 OK\nthe first part"), "{}", ran.out);
    assert!(!ran.err.is_empty());
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn help_goes_to_stdout_and_exits_with_0() {
    let ran = call(&["--help"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(ran.out.contains("Usage: call [METHOD] URL [OPTION]..."), "{}", ran.out);
    assert!(ran.out.contains("Examples:"), "{}", ran.out);
}

#[tokio::test]
async fn wrong_arguments_exit_with_2_before_anything_is_sent() {
    let server = Server::repeat(Reply::ok("")).await;
    let url = &server.url("/");
    let cases: [(&[&str], &str); 14] = [
        (&[], "a URL is missing"),
        (&["POST"], "POST is not a URL"),
        (&["ftp://127.0.0.1/"], "http:// or https://"),
        (&["POST", url, "more"], "more is one argument too many"),
        (&[url, "--jason", "{}"], "--jason: no such option"),
        (&[url, "--json"], "--json: a value is missing"),
        (&[url, "--json", "{"], "--json: not JSON: EOF"),
        (&[url, "--deadline", "5h"], "--deadline: \"5h\" is not a duration"),
        (&[url, "--attempts", "few"], "--attempts: \"few\" is not a number"),
        (&[url, "--attempts", "0"], "max_attempts 0"),
        (&[url, "-H", "no colon"], "-H: not of the form"),
        (
            &[url, "--key", "a b"],
            "--key: idempotency key has a byte at position 1",
        ),
        (&[url, "--key", "a", "--no-key"], "exclude each other"),
        (&[url, "--json", "1", "--data", "1"], "exclude each other"),
    ];
    for (arguments, complaint) in cases {
        let ran = call(arguments).await;
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(ran.err.contains(complaint), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains("--help"), "{arguments:?}: {}", ran.err);
    }
    assert_eq!(server.requests().len(), 0);
}

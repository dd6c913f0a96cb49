//! Spans and events, as a subscriber sees them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind::ConnectionReset;
use std::sync::{Arc, Mutex};

use steadfast::{Backoff, CircuitBreaker, IdempotencyContract, RequestBuilder, UnknownRetries};
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use crate::transport::{Step, Transport, answer, client, fail, hang, key, no_backoff, secs};

type Fields = BTreeMap<&'static str, String>;

/// A span with all that was ever recorded on it, or an event, in the order of their beginnings.
#[derive(Clone, Debug)]
struct Told {
    name: String,
    parent: Option<String>,
    id: Option<Id>,
    fields: Fields,
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Told>>>);

impl Recorder {
    fn knows(&self, name: &str) -> bool {
        self.0.lock().unwrap().iter().any(|told| told.name == name)
    }
}

struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Reader(&mut fields));
        let parent = context.span(id).and_then(|span| span.parent());
        self.0.lock().unwrap().push(Told {
            name: attributes.metadata().name().to_owned(),
            parent: parent.map(|parent| parent.name().to_owned()),
            id: Some(id.clone()),
            fields,
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut told = self.0.lock().unwrap();
        let span = told.iter_mut().rev().find(|told| told.id.as_ref() == Some(id));
        values.record(&mut Reader(&mut span.unwrap().fields));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        let parent = context.event_span(event).map(|span| span.name().to_owned());
        let name = fields.remove("message").unwrap_or_default();
        let id = None;
        self.0.lock().unwrap().push(Told {
            name,
            parent,
            id,
            fields,
        });
    }
}

const WAIT: &str = "waiting before the next attempt";
const END: &str = "operation ended";
const OPENED: &str = "circuit opened";
const CHANGED: &str = "circuit changed";
const ASSUMED: &str =
    "idempotency keys are assumed to be honoured here: declare the contract of the service, or `none()`";

/// All that is told of a request that meets these steps.
async fn told(request: RequestBuilder, steps: Vec<Step>) -> Vec<Told> {
    told_of([(request, steps)]).await
}

async fn told_of(requests: impl IntoIterator<Item = (RequestBuilder, Vec<Step>)>) -> Vec<Told> {
    let recorder = Recorder::default();
    let subscriber = Registry::default().with(recorder.clone());
    let _listening = tracing::subscriber::set_default(subscriber);
    // A callsite that another thread, without a subscriber, meets first may count as of interest to nobody.
    while !["operation", "attempt", WAIT, END, OPENED, CHANGED, ASSUMED]
        .iter()
        .all(|name| recorder.knows(name))
    {
        tracing::callsite::rebuild_interest_cache();
        let client = client(no_backoff());
        let steps = Transport::new([answer(503), answer(200)]);
        client.post("http://example.com").send_with(steps.send()).await.unwrap();
        client.circuits().force_open("payments");
        client.circuits().automatic("payments");
    }
    recorder.0.lock().unwrap().clear();
    for (request, steps) in requests {
        // What it comes to is the business of other tests.
        let _ = request.send_with(Transport::new(steps).send()).await;
    }
    std::mem::take(&mut *recorder.0.lock().unwrap())
}

fn named<'a>(told: &'a [Told], name: &str) -> Vec<&'a Told> {
    told.iter().filter(|told| told.name == name).collect()
}

fn has(told: &Told, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(told.fields.get(name).map(String::as_str), Some(*value), "{name}");
    }
}

fn post() -> RequestBuilder {
    let client = client(no_backoff());
    client.post("http://user:hunter2@api.example.com:8080/charges?token=hunter2#hunter2")
}

const TARGET: [(&str, &str); 4] = [
    ("http.request.method", "POST"),
    ("server.address", "api.example.com"),
    ("server.port", "8080"),
    ("url.full", "http://api.example.com:8080/charges"),
];

#[tokio::test(start_paused = true)]
async fn an_operation_is_a_span_and_each_attempt_a_span_inside_it() {
    let told = told(post(), vec![fail(ConnectionReset), answer(503), answer(201)]).await;
    let operations = named(&told, "operation");
    assert_eq!(operations.len(), 1);
    has(operations[0], &TARGET);
    has(
        operations[0],
        &[
            ("http.response.status_code", "201"),
            ("steadfast.attempts", "3"),
            ("steadfast.stop_reason", "done"),
            ("steadfast.outcome", "completed"),
        ],
    );
    assert_eq!(operations[0].fields.get("error.type"), None);

    let attempts = named(&told, "attempt");
    assert_eq!(attempts.len(), 3);
    for attempt in &attempts {
        assert_eq!(attempt.parent.as_deref(), Some("operation"));
        has(attempt, &TARGET);
        has(attempt, &[("otel.kind", "client")]);
    }
    has(
        attempts[0],
        &[("error.type", "reset"), ("steadfast.delivery", "unknown")],
    );
    assert_eq!(attempts[0].fields.get("http.response.status_code"), None);
    has(
        attempts[1],
        &[("error.type", "503"), ("http.response.status_code", "503")],
    );
    has(
        attempts[2],
        &[("http.response.status_code", "201"), ("steadfast.delivery", "answered")],
    );
    assert_eq!(attempts[2].fields.get("error.type"), None);
}

// field 51
#[tokio::test(start_paused = true)]
async fn the_resend_count_is_absent_from_attempt_1_and_1_on_attempt_2() {
    let told = told(post(), vec![answer(503), answer(503), answer(200)]).await;
    let attempts = named(&told, "attempt");
    let resends = attempts
        .iter()
        .map(|attempt| attempt.fields.get("http.request.resend_count"));
    let resends: Vec<_> = resends.map(|count| count.map(String::as_str)).collect();
    assert_eq!(resends, [None, Some("1"), Some("2")]);
}

#[tokio::test(start_paused = true)]
async fn every_wait_and_the_end_are_events() {
    let refusal = answer(429).header("retry-after", "2");
    let told = told(post(), vec![refusal, fail(ConnectionReset), answer(200)]).await;
    let waits = named(&told, WAIT);
    assert_eq!(waits.len(), 2);
    has(
        waits[0],
        &[
            ("steadfast.attempt", "1"),
            ("steadfast.wait_ms", "2000"),
            ("steadfast.retry_after_ms", "2000"),
            ("http.response.status_code", "429"),
        ],
    );
    has(
        waits[1],
        &[
            ("steadfast.attempt", "2"),
            ("steadfast.wait_ms", "0"),
            ("error.type", "reset"),
        ],
    );
    let ends = named(&told, END);
    assert_eq!(ends.len(), 1);
    has(
        ends[0],
        &[
            ("steadfast.attempts", "3"),
            ("steadfast.stop_reason", "done"),
            ("steadfast.outcome", "completed"),
            ("steadfast.elapsed_ms", "2000"),
        ],
    );
    for event in waits.iter().chain(&ends) {
        assert_eq!(event.parent.as_deref(), Some("operation"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_without_an_answer_says_what_failed_and_why_it_stopped() {
    let request = post().without_idempotency_key().attempt_timeout(secs(1));
    let told = told(request, vec![hang()]).await;
    let operation = named(&told, "operation")[0];
    has(
        operation,
        &[
            ("error.type", "timeout"),
            ("steadfast.attempts", "1"),
            ("steadfast.stop_reason", "not_replay_safe"),
            ("steadfast.outcome", "unknown"),
        ],
    );
    has(named(&told, "attempt")[0], &[("error.type", "timeout")]);
}

#[tokio::test(start_paused = true)]
async fn every_change_of_a_circuit_is_an_event() {
    let circuit = CircuitBreaker::default().minimum_throughput(1).half_open_probes(1);
    let client = client(
        no_backoff()
            .backoff(Backoff::constant(secs(5)))
            .circuit_breaker(circuit),
    );
    let told = told(client.get("https://example.com/pay"), vec![answer(503), answer(200)]).await;
    let opened = named(&told, OPENED);
    assert_eq!(opened.len(), 1);
    let group = ("steadfast.circuit", "https://example.com:443");
    let change = |from, to| [group, ("steadfast.from", from), ("steadfast.to", to)];
    has(opened[0], &change("closed", "open"));
    let changed = named(&told, CHANGED);
    assert_eq!(changed.len(), 2);
    has(changed[0], &change("open", "half-open"));
    has(changed[1], &change("half-open", "closed"));
}

/// Panics at an event of this name.
struct Panics(&'static str);

impl<S: Subscriber> Layer<S> for Panics {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        assert_ne!(fields.get("message").map(String::as_str), Some(self.0));
    }
}

// R129, field 44
#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_over_a_probe_does_not_keep_its_place() {
    let circuit = CircuitBreaker::default().minimum_throughput(1).half_open_probes(1);
    let client = client(no_backoff().max_attempts(1).circuit_breaker(circuit));
    let send = async |step: Step| {
        client
            .get("https://example.com/pay")
            .send_with(Transport::new([step]).send())
            .await
    };
    send(answer(500)).await.unwrap();
    sleep(secs(5)).await;
    let subscriber = Registry::default().with(Panics(CHANGED));
    let listening = tracing::subscriber::set_default(subscriber);
    tracing::callsite::rebuild_interest_cache();
    // A task on this thread, which has the subscriber.
    let probe = client.get("https://example.com/pay");
    let probe = tokio::spawn(probe.send_with(Transport::always(answer(200)).send()));
    assert!(probe.await.unwrap_err().is_panic());
    drop(listening);
    assert_eq!(send(answer(200)).await.unwrap().status(), 200);
}

/// How often a client says that it only assumes a contract, and of which groups.
async fn assumptions(requests: Vec<RequestBuilder>) -> Vec<String> {
    let told = told_of(requests.into_iter().map(|request| (request, vec![answer(200)]))).await;
    named(&told, ASSUMED)
        .iter()
        .map(|told| told.fields["steadfast.circuit"].clone())
        .collect()
}

// R96
#[tokio::test(start_paused = true)]
async fn a_contract_that_is_only_assumed_is_warned_of_once_for_each_group() {
    let client = client(no_backoff());
    let post = |url| client.post(url);
    let (a, b) = ("http://a.example.com/", "http://b.example.com/");
    let told = assumptions(vec![post(a), post(a), post(b).circuit("b"), post(b), client.patch(b)]).await;
    assert_eq!(told, ["http://a.example.com:80", "b", "http://b.example.com:80"]);
}

// R96
#[tokio::test(start_paused = true)]
async fn nothing_is_assumed_where_the_caller_said_it_or_no_key_is_trusted() {
    let client = client(no_backoff());
    let post = || client.post("http://a.example.com/");
    let strict = no_backoff().unknown_retries(UnknownRetries::Declared).build().unwrap();
    let told = assumptions(vec![
        client.get("http://a.example.com/"),
        post().idempotency_key(key("given")),
        post().header("idempotency-key", "given"),
        post().without_idempotency_key(),
        post().replay_safe(true),
        post().contract(IdempotencyContract::ietf()),
        post().contract(IdempotencyContract::none()),
        post().policy(strict),
    ])
    .await;
    assert_eq!(told, [] as [&str; 0]);
}

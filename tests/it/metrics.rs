//! Numbers, as a recorder gets them.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io::ErrorKind::ConnectionReset;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use metrics_exporter_prometheus::PrometheusBuilder;
use steadfast::{Backoff, CircuitBreaker, CircuitState, Client, Outcome, PolicyBuilder, ResponseExt, RetryBudget};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use crate::transport::{
    Part, Step, Transport, URL, after, answer, client, data, fail, fail_with, hang, millis, no_backoff, secs,
};

type Labels = BTreeMap<String, String>;

/// One call of a handle.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    kind: &'static str,
    name: String,
    labels: Labels,
    value: f64,
}

#[derive(Clone, Default)]
pub(crate) struct Listener {
    told: Arc<Mutex<Vec<Told>>>,
    /// Type and unit by name.
    described: Arc<Mutex<BTreeMap<String, (&'static str, &'static str)>>>,
}

impl Listener {
    fn handle(&self, kind: &'static str, key: &Key) -> Arc<Handle> {
        let labels = key.labels();
        let told = Told {
            kind,
            name: key.name().to_owned(),
            labels: labels
                .map(|label| (label.key().to_owned(), label.value().to_owned()))
                .collect(),
            value: f64::NAN,
        };
        Arc::new(Handle {
            told,
            all: Arc::clone(&self.told),
        })
    }

    fn describe(&self, kind: &'static str, name: &KeyName, unit: Option<Unit>) {
        let unit = unit.map_or("none", |unit| unit.as_str());
        let described = (kind, unit);
        self.described
            .lock()
            .unwrap()
            .insert(name.as_str().to_owned(), described);
    }

    pub(crate) fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap().clone()
    }

    /// The values of one name, with those labels that have one of these names.
    fn values(&self, name: &str, labels: &[&str]) -> Vec<(String, f64)> {
        let told = self.told().into_iter().filter(|told| told.name == name);
        told.map(|told| {
            let labels: Vec<_> = labels.iter().map(|label| told.labels[*label].clone()).collect();
            (labels.join(" "), told.value)
        })
        .collect()
    }
}

struct Handle {
    told: Told,
    all: Arc<Mutex<Vec<Told>>>,
}

impl Handle {
    fn tell(&self, value: f64) {
        let told = self.told.clone();
        self.all.lock().unwrap().push(Told { value, ..told });
    }
}

impl CounterFn for Handle {
    fn increment(&self, value: u64) {
        self.tell(value as f64);
    }

    fn absolute(&self, _: u64) {
        unreachable!("nothing is counted elsewhere");
    }
}

impl GaugeFn for Handle {
    fn increment(&self, _: f64) {
        unreachable!("every gauge is set");
    }

    fn decrement(&self, _: f64) {
        unreachable!("every gauge is set");
    }

    fn set(&self, value: f64) {
        self.tell(value);
    }
}

impl HistogramFn for Handle {
    fn record(&self, value: f64) {
        self.tell(value);
    }
}

impl Recorder for Listener {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe("counter", &name, unit);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe("gauge", &name, unit);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe("histogram", &name, unit);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.handle("counter", key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.handle("gauge", key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.handle("histogram", key))
    }
}

/// Plays in virtual time, before a recorder of its own.
fn before<T>(recorder: &dyn Recorder, play: impl Future<Output = T>) -> T {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    ::metrics::with_local_recorder(recorder, || runtime.block_on(play))
}

/// A circuit that opens at the first failure for 5 s, and closes after one probe.
fn circuit() -> CircuitBreaker {
    CircuitBreaker::default().minimum_throughput(1).half_open_probes(1)
}

async fn get(client: &Client, group: &'static str, steps: impl IntoIterator<Item = Step>) -> Transport {
    let transport = Transport::new(steps.into_iter().collect::<Vec<_>>());
    // What it comes to is the business of other tests.
    let _ = client.get(URL).circuit(group).send_with(transport.send()).await;
    transport
}

/// Leaves the operation after a second.
async fn leave(client: &Client, group: &'static str, step: Step) {
    assert!(timeout(secs(1), get(client, group, [step])).await.is_err());
}

/// Every kind of thing there is a number for.
async fn all_kinds() {
    let plain = client(no_backoff());
    get(&plain, "success", [answer(200)]).await;
    get(&plain, "retry", [fail(ConnectionReset), answer(503), answer(200)]).await;
    let refusal = answer(429).header("retry-after", "3600");
    get(&plain, "retry-after", [refusal]).await;
    let impatient = client(no_backoff().deadline(secs(1)));
    get(&impatient, "deadline", [hang()]).await;
    let poor = client(no_backoff().budget(RetryBudget::new(0.2, 1)));
    get(&poor, "budget", [answer(503), answer(503)]).await;
    let guarded = client(no_backoff().max_attempts(1).circuit_breaker(circuit()));
    get(&guarded, "circuit", [answer(503)]).await;
    get(&guarded, "circuit", []).await;
    sleep(secs(5)).await;
    get(&guarded, "circuit", [answer(200)]).await;
    let steps = Transport::new([fail(ConnectionReset)]);
    let write = plain.post(URL).circuit("write").without_idempotency_key();
    write.send_with(steps.send()).await.unwrap_err();
}

/// The cells of the tables whose first title is this, without their marks.
fn rows(title: &str) -> Vec<Vec<String>> {
    let lines = include_str!("../../src/metrics.rs").lines();
    let lines = lines.map_while(|line| line.strip_prefix("//! ").or(line.strip_prefix("//!")));
    let title = format!("| {title} |");
    let table = lines.skip_while(|line| !line.starts_with(&title)).skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        row.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    })
    .collect()
}

fn code(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_table_of_the_documentation_is_what_is_recorded_and_described() {
    let table: BTreeMap<_, _> = rows("name")
        .into_iter()
        .map(|row| {
            let name = row[0].trim_matches('`').to_owned();
            (name, (row[1].clone(), row[2].clone(), code(&row[3])))
        })
        .collect();
    assert_eq!(table.len(), rows("name").len());
    let listener = Listener::default();
    before(&listener, async {
        steadfast::metrics::describe();
        all_kinds().await;
    });
    let described = listener.described.lock().unwrap().clone();
    let mut recorded = BTreeMap::new();
    for Told { kind, name, labels, .. } in listener.told() {
        let (described_as, unit) = described[&name];
        assert_eq!(kind, described_as, "{name}");
        let labels = labels.into_keys().collect::<BTreeSet<_>>();
        let row = (kind.to_owned(), unit.to_owned(), labels);
        let first = recorded.entry(name).or_insert_with(|| row.clone());
        assert_eq!(*first, row);
    }
    assert_eq!(recorded, table);
    let described: Vec<_> = described.keys().collect();
    assert_eq!(described, table.keys().collect::<Vec<_>>());
}

#[test]
fn every_value_of_a_label_is_a_documented_one() {
    let mut values: BTreeMap<_, _> = rows("label")
        .into_iter()
        .map(|row| (row[0].trim_matches('`').to_owned(), code(&row[1])))
        .collect();
    values.insert("reason".to_owned(), values["result"].clone());
    let listener = Listener::default();
    before(&listener, all_kinds());
    let told = listener.told();
    for (label, value) in told.iter().flat_map(|told| &told.labels) {
        let number = value.parse::<u16>().is_ok() && ["result", "reason"].contains(&label.as_str());
        assert!(
            number || label == "group" || values[label].contains(value),
            "{label} {value}"
        );
    }
    let of = |label: &str| -> BTreeSet<_> { told.iter().filter_map(|told| told.labels.get(label)).cloned().collect() };
    let set = |values: &[&str]| -> BTreeSet<_> { values.iter().map(|value| (*value).to_owned()).collect() };
    assert_eq!(of("outcome"), set(&["completed", "not_done", "unknown"]));
    assert_eq!(of("result"), set(&["200", "429", "503", "reset", "timeout"]));
    assert_eq!(of("reason"), set(&["503", "reset"]));
    let reasons = [
        "budget",
        "circuit_open",
        "deadline",
        "done",
        "max_attempts",
        "not_replay_safe",
        "retry_after",
    ];
    assert_eq!(of("stop_reason"), set(&reasons));
}

fn secs_apart() -> PolicyBuilder {
    no_backoff().backoff(Backoff::constant(secs(2)))
}

#[test]
fn an_operation_of_three_attempts_in_numbers() {
    let listener = Listener::default();
    before(&listener, async {
        let slow = after(secs(1), answer(503));
        get(&client(secs_apart()), "pay", [slow, answer(503), answer(200)]).await;
    });
    let one = |name, labels: &[_], expected: &[(&str, f64)]| {
        let labels: Vec<_> = ["group"].into_iter().chain(labels.iter().copied()).collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(label, value)| (format!("pay{label}"), *value))
            .collect();
        assert_eq!(listener.values(name, &labels), expected, "{name}");
    };
    one(
        "steadfast_operations_total",
        &["outcome", "stop_reason"],
        &[(" completed done", 1.0)],
    );
    one(
        "steadfast_operation_duration_seconds",
        &["outcome"],
        &[(" completed", 5.0)],
    );
    let attempts = [(" unknown 503", 1.0), (" unknown 503", 1.0), (" answered 200", 1.0)];
    one("steadfast_attempts_total", &["delivery", "result"], &attempts);
    let times = [(" unknown", 1.0), (" unknown", 0.0), (" answered", 0.0)];
    one("steadfast_attempt_duration_seconds", &["delivery"], &times);
    one("steadfast_retries_total", &["reason"], &[(" 503", 1.0), (" 503", 1.0)]);
    one("steadfast_retry_wait_seconds", &[], &[("", 2.0), ("", 2.0)]);
    // After each retry was paid for, and at the end: two waits of two seconds and a deposit bring 0.6.
    one("steadfast_budget_tokens", &[], &[("", 49.0), ("", 48.2), ("", 48.6)]);
    one("steadfast_circuit_state", &[], &[]);
}

#[test]
fn the_result_of_an_attempt_is_its_status_or_what_failed() {
    let broken = || std::io::Error::other("no kind that anybody knows");
    let cut = answer(200).announced(5, [data("ab"), Part::Cut(ConnectionReset)]);
    let steps = [
        answer(204),
        answer(418),
        answer(499),
        answer(799),
        fail_with(broken),
        cut,
    ];
    let listener = Listener::default();
    before(&listener, async {
        let client = client(no_backoff().max_attempts(1));
        for step in steps {
            get(&client, "pay", [step]).await;
        }
    });
    let results = listener.values("steadfast_attempts_total", &["result"]);
    let results: Vec<_> = results.iter().map(|(result, _)| result.as_str()).collect();
    assert_eq!(results, ["204", "418", "4xx", "7xx", "_OTHER", "body"]);
}

#[test]
fn a_retry_that_is_not_made_is_a_wait_and_no_retry() {
    let listener = Listener::default();
    before(&listener, async {
        leave(&client(secs_apart()), "pay", answer(503)).await;
    });
    assert_eq!(listener.values("steadfast_attempts_total", &[]).len(), 1);
    assert_eq!(listener.values("steadfast_retry_wait_seconds", &[]).len(), 1);
    assert_eq!(listener.values("steadfast_retries_total", &[]), []);
    assert_eq!(listener.values("steadfast_operations_total", &[]), []);
}

#[test]
fn the_gauge_of_a_circuit_follows_its_changes() {
    let listener = Listener::default();
    before(&listener, all_kinds());
    let states = listener.values("steadfast_circuit_state", &["group"]);
    assert_eq!(states, [2.0, 1.0, 0.0].map(|state| ("circuit".to_owned(), state)));
}

/// Lets the circuit go on by itself while it is told that it was opened.
struct Meddler {
    listener: Listener,
    client: Client,
}

struct Meddling {
    handle: Arc<Handle>,
    client: Client,
}

impl GaugeFn for Meddling {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        self.client.circuits().automatic("pay");
        self.handle.tell(value);
    }
}

impl Recorder for Meddler {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let handle = self.listener.handle("gauge", key);
        let client = self.client.clone();
        Gauge::from_arc(Arc::new(Meddling { handle, client }))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn the_gauge_of_a_circuit_ends_at_the_state_that_stays() {
    let listener = Listener::default();
    let client = client(no_backoff());
    let meddler = Meddler {
        listener: listener.clone(),
        client: client.clone(),
    };
    before(&meddler, async { client.circuits().force_open("pay") });
    let states = listener.values("steadfast_circuit_state", &["group"]);
    // The change in between is recorded first.
    assert_eq!(states, [0.0, 2.0, 0.0].map(|state| ("pay".to_owned(), state)));
}

/// Panics when it is asked for a handle, or when the handle is used.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Panics {
    Registering,
    Recording,
}

impl Panics {
    fn handle(self) -> Arc<Self> {
        assert_ne!(self, Self::Registering);
        Arc::new(self)
    }
}

impl CounterFn for Panics {
    fn increment(&self, _: u64) {
        panic!("recording")
    }

    fn absolute(&self, _: u64) {
        panic!("recording")
    }
}

impl GaugeFn for Panics {
    fn increment(&self, _: f64) {
        panic!("recording")
    }

    fn decrement(&self, _: f64) {
        panic!("recording")
    }

    fn set(&self, _: f64) {
        panic!("recording")
    }
}

impl HistogramFn for Panics {
    fn record(&self, _: f64) {
        panic!("recording")
    }
}

impl Recorder for Panics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("describing")
    }

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("describing")
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("describing")
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.handle())
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.handle())
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.handle())
    }
}

/// One write, a retry through a circuit that opens and closes, a retry that is dropped in its wait and a probe that is
/// dropped under way: the guards as they are after all that.
async fn taxing() -> Vec<(String, CircuitState, Option<f64>)> {
    steadfast::metrics::describe();
    let policy = no_backoff()
        .backoff(Backoff::constant(secs(5)))
        .circuit_breaker(circuit());
    let client = client(policy.budget(RetryBudget::new(0.2, 5)));
    let once = Transport::new([answer(201)]);
    let write = client.post(URL).circuit("write").send_with(once.send());
    let response = write.await.unwrap();
    let attempts = response.attempts().unwrap();
    assert_eq!(
        (response.status().as_u16(), attempts.outcome()),
        (201, Outcome::Completed)
    );
    assert_eq!(once.seen().len(), 1);

    let twice = get(&client, "retry", [answer(503), answer(200)]).await;
    assert_eq!(twice.times(), [Duration::ZERO, secs(5)]);

    leave(&client, "dropped", answer(503)).await;
    let tokens = client.circuits().get("dropped").unwrap().tokens();
    assert_eq!(tokens, Some(5.0));
    sleep(secs(5)).await;
    leave(&client, "dropped", hang()).await;
    let probe = get(&client, "dropped", [answer(200)]).await;
    assert_eq!(probe.seen().len(), 1);

    let list = client.circuits().list().into_iter();
    list.map(|circuit| (circuit.group().to_owned(), circuit.state(), circuit.tokens()))
        .collect()
}

// R129
#[test]
fn a_recorder_that_panics_fails_nothing_and_keeps_nothing() {
    let expected = before(&::metrics::NoopRecorder, taxing());
    assert_eq!(expected.len(), 3);
    assert!(expected.iter().all(|(_, state, _)| *state == CircuitState::Closed));
    for recorder in [Panics::Registering, Panics::Recording] {
        assert_eq!(before(&recorder, taxing()), expected, "{recorder:?}");
    }
}

#[test]
fn prometheus_gets_what_operations_did() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    // Given back at once, for the exporter to take.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap();
    let _inside = runtime.enter();
    let (recorder, exporter) = PrometheusBuilder::new().with_http_listener(port).build().unwrap();
    let scrape = async {
        let exporter = tokio::spawn(exporter);
        steadfast::metrics::describe();
        let waits = no_backoff().backoff(Backoff::constant(millis(1)));
        let client = client(waits.circuit_breaker(CircuitBreaker::default()));
        get(&client, "pay", [answer(503), fail(ConnectionReset), answer(200)]).await;
        client.circuits().force_open("pay");
        get(&client, "pay", []).await;
        let page = reqwest::get(format!("http://{port}/metrics")).await.unwrap();
        let page = page.error_for_status().unwrap().text().await.unwrap();
        exporter.abort();
        page
    };
    let page = ::metrics::with_local_recorder(&recorder, || runtime.block_on(scrape));
    for line in [
        "# HELP steadfast_operations_total Operations that ended",
        "# TYPE steadfast_operations_total counter",
        r#"steadfast_operations_total{group="pay",outcome="completed",stop_reason="done"} 1"#,
        r#"steadfast_operations_total{group="pay",outcome="not_done",stop_reason="circuit_open"} 1"#,
        r#"steadfast_operation_duration_seconds_count{group="pay",outcome="completed"} 1"#,
        r#"steadfast_attempts_total{group="pay",delivery="unknown",result="503"} 1"#,
        r#"steadfast_attempts_total{group="pay",delivery="unknown",result="reset"} 1"#,
        r#"steadfast_attempts_total{group="pay",delivery="answered",result="200"} 1"#,
        r#"steadfast_attempt_duration_seconds_count{group="pay",delivery="unknown"} 2"#,
        r#"steadfast_retries_total{group="pay",reason="503"} 1"#,
        r#"steadfast_retries_total{group="pay",reason="reset"} 1"#,
        r#"steadfast_retry_wait_seconds_sum{group="pay"} 0.002"#,
        "# TYPE steadfast_circuit_state gauge",
        r#"steadfast_circuit_state{group="pay"} 2"#,
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    let tokens = page
        .lines()
        .find_map(|line| line.strip_prefix(r#"steadfast_budget_tokens{group="pay"} "#));
    let tokens: f64 = tokens.unwrap().parse().unwrap();
    assert!((48.2..49.0).contains(&tokens), "{tokens}");
}

//! Secrets with a mark, through everything that can go wrong, and one search for the mark in everything that is shown.
//!
//! [`cases`] is the table of what happens. Whatever happens, [`Shown`] collects all that this crate then shows: errors and
//! the causes behind them, the Debug of what a caller can hold, spans, events and numbers. A row is `Case::scripted` where a
//! sender of the caller's fails, `Case::on_network` where reqwest does, and `Case::nested` where the sender is a client of this
//! crate.

use std::collections::HashSet;
use std::error::Error as StdError;
use std::fmt;
use std::io::{
    self,
    ErrorKind::{ConnectionReset, InvalidData, PermissionDenied},
};
use std::mem::discriminant;
use std::net::SocketAddr;

use reqwest::{Body, Proxy, Response, ResponseBuilderExt};
use steadfast::ErrorKind::{self, Connect, Dns, Other, Reset, Status, Timeout, Tls};
use steadfast::{
    AttemptError, Backoff, CircuitBreaker, Client, ClientBuilder, Error, IdempotencyContract, IdempotencyKey,
    Operation, Pipeline, Policy, PolicyBuilder, RequestBuilder, ResponseExt, RetryBudget, StopReason, scope,
};
use tokio::runtime::Builder;
use tower::util::MapErrLayer;

mod shown;

use shown::{MARK, Shown, leaks, listened};

use crate::server::{Reply, Server};
use crate::transport::{Part, Step, Transport, answer, data, fail, fail_with, hang, key, millis, refused, secs};
use crate::wire::{Lookups, Refusing, http};

/// Its path may be seen.
const SECRET_URL: &str =
    "https://hunter2-user:hunter2-pass@api.example.com:8443/pay?token=hunter2-query#hunter2-fragment";

/// A URL of this origin with a secret in every place that is kept quiet.
fn at(origin: impl fmt::Display) -> String {
    format!("http://hunter2-user:hunter2-pass@{origin}/pay?token=hunter2-query#hunter2-fragment")
}

/// A request with secrets in its headers, its body and its key. A Debug of a key shows the beginning.
fn with_secrets(request: RequestBuilder) -> RequestBuilder {
    request
        .bearer_auth("hunter2-token")
        .header("cookie", "session=hunter2-cookie")
        .header("x-api-key", "hunter2-custom")
        .body("hunter2-body")
        .idempotency_key(key("order-hunter2-key"))
}

/// An answer with secrets in its headers and its body.
fn told(status: u16) -> Step {
    answer(status)
        .header("set-cookie", "session=hunter2-answer")
        .body("hunter2-answer")
}

/// What happens to a request, and how that ends.
struct Case {
    what: &'static str,
    /// The kind of the error, or none, and why there was no further attempt.
    ends: (Option<ErrorKind>, StopReason),
    http: reqwest::ClientBuilder,
    url: String,
    meets: Meets,
    policy: fn(PolicyBuilder) -> PolicyBuilder,
    client: fn(ClientBuilder) -> ClientBuilder,
    request: fn(RequestBuilder) -> RequestBuilder,
    without_retries: bool,
}

enum Meets {
    /// Each attempt, by a sender of the caller's.
    Step(Step),
    /// A client of this crate, inside.
    Client(Client),
    /// The server answers as long as it is here.
    Network(#[allow(dead_code)] Option<Server>),
}

impl Case {
    fn new(what: &'static str, kind: impl Into<Option<ErrorKind>>, stop: StopReason, meets: Meets) -> Self {
        Self {
            what,
            ends: (kind.into(), stop),
            http: http(),
            url: SECRET_URL.to_owned(),
            meets,
            policy: |policy| policy,
            client: |client| client,
            request: |request| request,
            without_retries: false,
        }
    }

    fn scripted(what: &'static str, kind: impl Into<Option<ErrorKind>>, stop: StopReason, step: Step) -> Self {
        Self::new(what, kind, stop, Meets::Step(step))
    }

    fn nested(what: &'static str, kind: ErrorKind, stop: StopReason, inner: Client) -> Self {
        Self::new(what, kind, stop, Meets::Client(inner))
    }

    fn on_network(
        what: &'static str,
        kind: ErrorKind,
        stop: StopReason,
        http: reqwest::ClientBuilder,
        url: String,
    ) -> Self {
        let case = Self::new(what, kind, stop, Meets::Network(None));
        Self { http, url, ..case }
    }

    async fn served(what: &'static str, kind: impl Into<Option<ErrorKind>>, stop: StopReason, reply: Reply) -> Self {
        let server = Server::repeat(reply).await;
        let url = at(server.addr());
        let case = Self::new(what, kind, stop, Meets::Network(Some(server)));
        Self { url, ..case }
    }

    /// Nothing is sent, since the request is none.
    fn unsendable(what: &'static str, request: fn(RequestBuilder) -> RequestBuilder) -> Self {
        Self::scripted(what, ErrorKind::Request, StopReason::NotRetryable, told(200)).request(request)
    }

    fn policy(self, policy: fn(PolicyBuilder) -> PolicyBuilder) -> Self {
        Self { policy, ..self }
    }

    fn client(self, client: fn(ClientBuilder) -> ClientBuilder) -> Self {
        Self { client, ..self }
    }

    fn request(self, request: fn(RequestBuilder) -> RequestBuilder) -> Self {
        Self { request, ..self }
    }

    fn without_retries(self) -> Self {
        Self {
            without_retries: true,
            ..self
        }
    }
}

#[rustfmt::skip] // One row, one line, as far as that goes.
async fn cases(nowhere: SocketAddr) -> Vec<Case> {
    use ErrorKind::{Body as Cut, CircuitOpen as Refused, Request as Unsendable};
    use StopReason::*;
    let asked = secs(3_600);
    vec![
        // Answers.
        Case::scripted("a success", None, Done, told(200)),
        Case::scripted("a redirect that is not followed", None, Done, told(307).header("location", SECRET_URL)),
        Case::scripted("an answer of another URL", None, Done, told(200).url(SECRET_URL)),
        Case::scripted("a body that ends after it was handed over", None, Done, answer(200).announced(99, [data("hunter2-answer"), Part::Cut(ConnectionReset)])).request(RequestBuilder::streamed),
        Case::scripted("a body that stalls after it was handed over", None, Done, answer(200).announced(99, [data("hunter2-answer"), Part::Stall])).request(RequestBuilder::streamed).policy(|policy| policy.stall_timeout(millis(1))),
        Case::scripted("a refusal", Status, NotRetryable, told(404)),
        Case::scripted("a failure, again and again", Status, MaxAttempts, told(500)),
        Case::scripted("a wait that is too long", Status, RetryAfter { asked }, told(503).header("retry-after", "3600")),
        Case::scripted("a conflict over the key", Status, KeyConflict, told(422)).request(|request| request.contract(IdempotencyContract::ietf())),

        // Guards and limits.
        Case::scripted("a budget that is used up", Status, Budget, told(503)).policy(|policy| policy.budget(RetryBudget::new(0.001, 1))),
        Case::scripted("a scope without retries", Status, Scope, told(503)).without_retries(),
        Case::scripted("a key past its retention", Status, Retention, told(503)).request(|request| request.contract(IdempotencyContract::ietf().with_retention(millis(1)))).policy(|policy| policy.backoff(Backoff::constant(millis(2)))),
        Case::scripted("a stream that is used up", Status, BodyNotReplayable, told(429)).request(|request| request.body(Body::wrap(String::from("hunter2-body")))),
        Case::scripted("a write without a key", Reset, NotReplaySafe, fail(ConnectionReset)).request(|request| request.without_idempotency_key()),
        Case::scripted("a circuit with a name full of secrets", Refused, CircuitOpen { retry_in: secs(0) }, told(200)).client(|client| client.pipeline(open())).request(|request| request.circuit(SECRET_URL)),
        Case::scripted("a circuit that opens", Status, CircuitOpen { retry_in: secs(0) }, told(503)).policy(|policy| policy.circuit_breaker(CircuitBreaker::default().minimum_throughput(1))),
        Case::scripted("no time at all", ErrorKind::Deadline, Deadline, told(200)).request(|request| request.deadline(secs(0))),
        Case::scripted("silence until the deadline", Timeout, Deadline, hang()).request(|request| request.deadline(millis(20))),
        Case::scripted("silence until each attempt ends", Timeout, MaxAttempts, hang()).request(|request| request.attempt_timeout(millis(1))),

        // Requests that are none.
        Case::unsendable("a name that is none of a header", |request| request.header("hunter2 name", "x")),
        Case::unsendable("a value that is none of a header", |request| request.header("x-value", "hunter2\n")),
        Case::unsendable("a token that is none", |request| request.bearer_auth("hunter2\n")),
        Case::unsendable("a header that is no key", |request| request.header("idempotency-key", "hunter2 hunter2")),
        Case::unsendable("two keys", |request| request.header("idempotency-key", "hunter2-other-key")),
        Case::unsendable("a key in a request without one", |request| request.header("idempotency-key", "hunter2-key").without_idempotency_key()),
        Case::unsendable("a key that is too long", |request| request.contract(IdempotencyContract::ietf().with_max_length(4))),
        Case::unsendable("a key of letters that are not allowed", |request| request.contract(IdempotencyContract::ietf().with_alphabet(char::is_numeric))),
        Case::unsendable("a key with a prefix that is reserved", |request| request.contract(IdempotencyContract::ietf().with_reserved_prefix("order-"))),
        Case::unsendable("a key in a body that is no JSON", |request| request.contract(IdempotencyContract::body_field("/key").unwrap())),
        Case::unsendable("limits that contradict each other", |request| request.attempt_timeout(secs(9)).deadline(secs(1))),
        Case::unsendable("no attempts", |request| request.max_attempts(0)),

        // Other places of the key.
        Case::scripted("a key in the query", Status, MaxAttempts, told(500)).request(|request| request.contract(IdempotencyContract::query("key").unwrap())),
        Case::scripted("a key in the body", Status, MaxAttempts, told(500)).request(|request| request.body("{}").contract(IdempotencyContract::body_field("/key").unwrap())),
        Case::scripted("a key in quotes", Status, MaxAttempts, told(500)).request(|request| request.contract(IdempotencyContract::quoted_header("x-key").unwrap())),

        // A sender of the caller's.
        Case::scripted("a lost connection", Reset, MaxAttempts, fail(ConnectionReset)),
        Case::scripted("a refused connection", Connect, MaxAttempts, refused()),
        Case::scripted("an error nobody knows", Other, NotRetryable, fail(PermissionDenied)),
        Case::scripted("a body that is cut", Cut, MaxAttempts, answer(200).announced(99, [data("hunter2-answer"), Part::Cut(ConnectionReset)])),
        Case::scripted("an error of reqwest that shows the URL", Status, MaxAttempts, fail_with(talkative)),
        Case::scripted("one inside an I/O error", Status, MaxAttempts, fail_with(|| io::Error::other(talkative()))),
        Case::scripted("one inside two", Status, MaxAttempts, fail_with(|| io::Error::other(io::Error::other(talkative())))),
        Case::scripted("one that is boxed", Status, MaxAttempts, fail_with(|| -> Box<dyn StdError + Send + Sync> { talkative().into() })),
        Case::scripted("one that was not sent", Status, MaxAttempts, fail_with(|| AttemptError::not_sent(talkative()))),
        Case::scripted("one that may have been sent", Status, MaxAttempts, fail_with(|| AttemptError::unknown(io::Error::other(talkative())))),
        Case::scripted("a text with the URL", Other, NotRetryable, fail_with(|| io::Error::other(format!("GET {SECRET_URL}: failed")))),
        Case::scripted("an error whose Debug shows the URL", Other, NotRetryable, fail_with(|| io::Error::other(Quiet(SECRET_URL)))),
        Case::scripted("a text in place of what is behind it", Reset, MaxAttempts, fail_with(|| io::Error::new(ConnectionReset, Quiet(SECRET_URL)))),

        // A hook.
        Case::scripted("a hook that fails and shows the URL", Unsendable, NotRetryable, told(200)).client(|client| client.before_attempt(|request, _| async move { Err(format!("cannot sign {}", request.url()).into()) })),
        Case::scripted("a hook that fails over a request of its own", Unsendable, NotRetryable, told(200)).client(|client| client.before_attempt(|_, _| async { Err(talkative().into()) })),
        Case::scripted("a hook that changes the body", Unsendable, NotRetryable, told(200)).client(|client| client.before_attempt(|mut request, _| async { *request.body_mut() = Some("hunter2-other".into()); Ok(request) })),
        Case::scripted("a hook that is too slow", Unsendable, NotRetryable, told(200)).request(|request| request.attempt_timeout(millis(1))).client(|client| client.before_attempt(|_, _| std::future::pending())),

        // The network.
        Case::on_network("no such name", Dns, MaxAttempts, http().dns_resolver(Lookups::of([None])), at("service.test")),
        Case::on_network("a refused connection", Connect, MaxAttempts, http(), at(nowhere)),
        Case::on_network("a proxy that refuses", Connect, MaxAttempts, http().proxy(Proxy::all(format!("http://hunter2-user:hunter2-pass@{nowhere}")).unwrap()), at("service.test")),
        Case::on_network("a certificate that is not accepted", Tls, NotRetryable, http().connector_layer(MapErrLayer::new(|_| untrusted())), at(nowhere)),
        Case::on_network("TLS where there is none", Connect, MaxAttempts, http(), SECRET_URL.into()),
        Case::on_network("a URL that is none", Unsendable, NotRetryable, http(), "https://[hunter2/".into()),
        Case::on_network("a URL without a scheme", Unsendable, NotRetryable, http(), MARK.into()),
        Case::on_network("a URL of another kind", Unsendable, NotRetryable, http(), "data:text/plain,hunter2".into()),
        Case::served("an answer that is not HTTP", Other, NotRetryable, Reply::new().send("hunter2 garbage\r\n\r\n").close()).await,
        Case::served("a connection that ends", Reset, MaxAttempts, Reply::new().close()).await,
        Case::served("an answer that is cut", Cut, MaxAttempts, Reply::status(200).header("X-Secret", MARK).cut_body(99, b"hunter2")).await,
        Case::served("redirects in a circle", Other, NotRetryable, Reply::status(307).header("Location", "/pay?token=hunter2-location")).await,
        Case::served("a redirect to where nobody listens", Connect, MaxAttempts, Reply::status(307).header("Location", &at(nowhere))).await,
        Case::served("a redirect to TLS where there is none", Connect, MaxAttempts, Reply::status(307).header("Location", SECRET_URL)).await,
        Case::served("a redirect to a URL that is none", None, Done, Reply::status(307).header("Location", "https://[hunter2/")).await,

        // A client of this crate inside another.
        Case::nested("a refused connection inside", Connect, MaxAttempts, Client::new(reqwest::Client::new())),
        Case::nested("an open circuit inside", Refused, CircuitOpen { retry_in: secs(0) }, Client::builder(reqwest::Client::new()).pipeline(open()).build()),
    ]
}

/// An error of reqwest whose text has its URL in it.
fn talkative() -> reqwest::Error {
    let response = http::Response::builder().status(500).url(SECRET_URL.parse().unwrap());
    let error = reqwest::Response::from(response.body("").unwrap())
        .error_for_status()
        .unwrap_err();
    assert!(error.to_string().contains(MARK), "else it proves nothing");
    error
}

/// An error that shows more to who debugs than to who reads.
#[derive(Debug)]
struct Quiet(#[allow(dead_code, reason = "shown by Debug")] &'static str);

impl fmt::Display for Quiet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failed")
    }
}

impl StdError for Quiet {}

/// What a TLS library says of a certificate, as reqwest gets it.
fn untrusted() -> Box<dyn StdError + Send + Sync> {
    io::Error::new(InvalidData, format!("no trust in {SECRET_URL}")).into()
}

/// What clients share, its circuit forced open.
fn open() -> Pipeline {
    let pipeline = Pipeline::new();
    pipeline.circuits().force_open(SECRET_URL);
    pipeline.circuits().force_open("https://api.example.com:8443");
    pipeline
}

/// Sends the request of a case, and gives how that ended.
async fn play(case: Case, shown: &Shown) -> (Option<ErrorKind>, StopReason) {
    let policy = (case.policy)(Policy::builder().backoff(Backoff::none()));
    let policy = policy.build().unwrap();
    let mut headers = http::HeaderMap::new();
    headers.insert("x-default", "hunter2-default".parse().unwrap());
    let hook = shown.clone();
    let client = Client::builder(case.http.default_headers(headers).build().unwrap())
        .policy(policy.clone())
        .classifier(shown.clone())
        .before_attempt(move |request, _| {
            hook.debug("Scope", &scope::current());
            async { Ok(request) }
        });
    let client = (case.client)(client);
    shown.debug("Policy", &policy);
    shown.debug("ClientBuilder", &client);
    let client = client.build();
    let request = (case.request)(with_secrets(client.post(case.url)));
    shown.debug("RequestBuilder", &request);
    shown.debug("RequestBuilder", &request.try_clone());
    let ended = match request.into_operation() {
        Ok(operation) => send(&operation, case.meets, case.without_retries, shown).await,
        Err(error) => Err(error),
    };
    shown.debug("Client", &client);
    shown.debug("Pipeline", client.pipeline());
    shown.debug("Circuits", &client.circuits().list());
    let ended = match ended {
        Ok(response) => {
            shown.debug("extensions", response.extensions());
            shown.debug("Attempts", response.attempts().unwrap());
            response.into_result()
        }
        failed => failed,
    };
    match ended {
        Ok(response) => {
            let stop = response.attempts().unwrap().stop_reason();
            // What the caller reads by fails in the words of reqwest; what is behind that is ours.
            if let Some(cause) = response.bytes().await.err().as_ref().and_then(StdError::source) {
                shown.error("error of a body that was handed over", cause);
            }
            (None, stop)
        }
        Err(error) => {
            let ended = (Some(error.kind()), error.stop_reason());
            shown.debug("Attempts", error.attempts());
            shown.debug("IdempotencyKey", &error.idempotency_key());
            shown.debug("circuit", &error.circuit());
            shown.error("Error", &error);
            ended
        }
    }
}

async fn send(operation: &Operation, meets: Meets, without_retries: bool, shown: &Shown) -> Result<Response, Error> {
    shown.debug("Operation", operation);
    let transport = match &meets {
        Meets::Step(step) => Some(Transport::always(step.clone())),
        Meets::Client(_) | Meets::Network(_) => None,
    };
    let sending = async {
        match (&transport, &meets) {
            (Some(transport), _) => operation.send_with(transport.send()).await,
            (None, Meets::Client(inner)) => operation.send_with(|request| inner.execute(request)).await,
            (None, _) => operation.send().await,
        }
    };
    let ended = match without_retries {
        true => scope::without_retries(sending).await,
        false => sending.await,
    };
    shown.debug("Operation", operation);
    // Else there would be nothing to be kept quiet.
    for seen in transport.iter().flat_map(Transport::seen) {
        assert!(seen.url.as_str().contains("hunter2-query"), "{seen:?}");
        assert_eq!(seen.header("x-api-key"), ["hunter2-custom"]);
    }
    ended
}

// field 54
#[test]
fn whatever_happens_nothing_that_is_shown_has_a_secret_in_it() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let nowhere = Refusing::new();
    let shown = Shown::default();
    let (mut wrong, mut kinds, mut stops, mut speakers) = (Vec::new(), HashSet::new(), HashSet::new(), HashSet::new());
    for case in runtime.block_on(cases(nowhere.addr())) {
        let (what, (kind, stop)) = (case.what, case.ends);
        let ended = listened(&shown, || runtime.block_on(play(case, &shown)));
        if (ended.0, discriminant(&ended.1)) != (kind, discriminant(&stop)) {
            wrong.push(format!("{what}: {ended:?}"));
        }
        kinds.extend(kind);
        stops.insert(discriminant(&stop));
        let texts = shown.take();
        speakers.extend(texts.iter().map(|(of, _)| *of));
        wrong.extend(leaks(what, texts));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(
        (kinds.len(), stops.len()),
        (11, 12),
        "every kind and every stop reason has a case"
    );
    let mut expected = vec![
        "Error",
        "AttemptFacts",
        "RequestFacts",
        "Scope",
        "circuit",
        "operation",
        "attempt",
        "record",
        "event",
    ];
    if cfg!(feature = "metrics") {
        expected.push("metrics");
    }
    for speaker in expected {
        assert!(speakers.contains(speaker), "{speaker} has shown nothing: {speakers:?}");
    }
}

// field 54
#[test]
fn values_and_what_refuses_them_show_no_secret() {
    let shown = Shown::default();
    shown.debug("key", &key("order-hunter2-key"));
    shown.debug("short key", &key("hunter2"));
    shown.debug("derived key", &key("order-hunter2-key").derive("leg"));
    for text in ["hunter2 hunter2", "hunter2\n", &MARK.repeat(100)] {
        shown.error("KeyError", &IdempotencyKey::parse(text).unwrap_err());
        #[cfg(feature = "serde")]
        shown.error(
            "key of JSON",
            &serde_json::from_value::<IdempotencyKey>(text.into()).unwrap_err(),
        );
    }
    let agent = reqwest::Client::builder().user_agent("hunter2\n");
    shown.error("from_builder", &Client::from_builder(agent).unwrap_err());
    let client = Client::new(reqwest::Client::new());
    client.circuits().force_open(SECRET_URL);
    shown.debug("Circuits", &client.circuits().get(SECRET_URL));
    #[cfg(feature = "tower")]
    shown.debug("SteadfastLayer", &steadfast::tower::SteadfastLayer::new(client));
    #[cfg(feature = "testing")]
    {
        use steadfast::testing::{Faults, Script};
        shown.debug("Script", &Script::new([]));
        shown.debug("Faults", &Faults::seeded(1));
    }
    assert_eq!(leaks("alone", shown.take()), [] as [&str; 0]);
}

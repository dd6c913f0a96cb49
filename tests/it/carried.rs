//! A request that is sent on by an operation inside an attempt: it is the one operation still, and has its one key.

use std::io::ErrorKind::{ConnectionRefused, ConnectionReset};
use std::sync::Mutex;

use reqwest::{Method, Request, Response, StatusCode};
use steadfast::classifier::RetryStatuses;
use steadfast::{
    AttemptError, AttemptFacts, Client, Error, IdempotencyContract, IdempotencyKey, Outcome, RequestFacts, ResponseExt,
    Sign, StopReason, Verdict, scope,
};

use tokio::sync::oneshot;

use crate::server::{Reply, Server};
use crate::transport::{Transport, URL, answer, client, fail, hang, key, no_backoff, secs};
use crate::wire::{Refusing, http, quick};

fn declaring(contract: IdempotencyContract) -> Client {
    let policy = no_backoff().attempt_timeout(secs(1)).build().unwrap();
    Client::builder(reqwest::Client::new())
        .policy(policy)
        .idempotency(contract)
        .build()
}

/// What the sender of each attempt makes an operation of.
type Within = fn(&Client, Request) -> steadfast::RequestBuilder;

/// The request as it is, and one that is made anew.
const WAYS: [Within; 2] = [
    |inner, request| steadfast::RequestBuilder::from_parts(inner.clone(), request),
    |inner, _| inner.post(URL).body(r#"{"amount":1}"#),
];

async fn sent_on(outer: &Client, inner: &Client, way: Within, transport: &Transport) -> Result<Response, Error> {
    let request = outer.post(URL).body(r#"{"amount":1}"#);
    request
        .send_with(|request: Request| way(inner, request).send_with(transport.send()))
        .await
}

fn keys(transport: &Transport, contract: &IdempotencyContract) -> Vec<Option<IdempotencyKey>> {
    let key = |seen: &crate::transport::Seen| {
        let uri = seen.url.as_str().parse().unwrap();
        contract.key_of(&seen.headers, &uri, &seen.body).unwrap()
    };
    transport.seen().iter().map(key).collect()
}

fn header() -> IdempotencyContract {
    IdempotencyContract::header("idempotency-key").unwrap()
}

fn body_field() -> IdempotencyContract {
    IdempotencyContract::body_field("/request_id").unwrap()
}

// R12, R13, R49: a key for each attempt would be as good as none.
#[tokio::test(start_paused = true)]
async fn a_client_inside_an_attempt_makes_no_key_of_its_own() {
    let outers = [
        client(no_backoff()),
        declaring(body_field()),
        declaring(IdempotencyContract::ietf()),
    ];
    let inners = [client(no_backoff()), declaring(body_field()), declaring(header())];
    for outer in &outers {
        for inner in &inners {
            for way in WAYS {
                let transport = Transport::new([answer(502), fail(ConnectionReset), answer(201)]);
                let response = sent_on(outer, inner, way, &transport).await.unwrap();
                let own = response.attempts().unwrap().idempotency_key().cloned();
                assert!(own.is_some());
                let contracts = [IdempotencyContract::ietf(), body_field()];
                let sent = contracts.map(|contract| keys(&transport, &contract));
                assert_eq!(sent[0].len(), 3);
                let mut all = sent.iter().flatten().flatten();
                assert!(
                    all.clone().count() >= 3 && all.all(|sent| Some(sent) == own.as_ref()),
                    "{sent:?}"
                );
            }
        }
    }
}

// R43: the outer operation says that it goes without.
#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_gets_none_inside() {
    for way in WAYS {
        let inner = client(no_backoff());
        let transport = Transport::new([fail(ConnectionReset)]);
        let request = client(no_backoff()).post(URL).without_idempotency_key();
        let error = request
            .send_with(|request: Request| way(&inner, request).send_with(transport.send()))
            .await
            .unwrap_err();
        assert_eq!(keys(&transport, &header()), [None]);
        assert_eq!(
            (error.stop_reason(), error.outcome()),
            (StopReason::NotReplaySafe, Outcome::Unknown)
        );
    }
}

// R72: a key is not another request's.
#[tokio::test(start_paused = true)]
async fn another_request_inside_an_attempt_does_not_have_its_key() {
    for (method, url) in [
        (Method::POST, "https://auth.example.com/token"),
        (Method::POST, "https://api.example.com/charges?step=2"),
        (Method::PATCH, URL),
    ] {
        let inner = client(no_backoff());
        let transport = Transport::new([answer(200), answer(200)]);
        let request = client(no_backoff()).post(URL);
        let attempt = |request: Request| {
            let other = inner.request(method.clone(), url).send_with(transport.send());
            let own = inner.execute_with(request, transport.send());
            async move {
                other.await?;
                own.await
            }
        };
        request.send_with(attempt).await.unwrap();
        let keys = keys(&transport, &header());
        assert!(keys[0].is_none() && keys[1].is_some(), "{method} {url}");
    }
}

// R12: the parameter that is the key makes it no other request.
#[tokio::test(start_paused = true)]
async fn a_key_in_the_query_is_found_and_given_again() {
    let outer = declaring(IdempotencyContract::query("request_id").unwrap());
    for way in WAYS {
        let transport = Transport::new([answer(502), answer(201)]);
        let response = sent_on(&outer, &client(no_backoff()), way, &transport).await.unwrap();
        let own = response.attempts().unwrap().idempotency_key().cloned();
        let sent = keys(&transport, &IdempotencyContract::query("request_id").unwrap());
        assert_eq!(sent, [own.clone(), own]);
        assert!(
            transport
                .seen()
                .iter()
                .all(|seen| seen.header("idempotency-key").is_empty())
        );
    }
}

// R12
#[tokio::test(start_paused = true)]
async fn a_task_that_outlives_its_attempt_makes_keys_of_its_own_again() {
    let client = client(no_backoff());
    let transport = Transport::new([answer(201), answer(201)]);
    let (over, waiting) = oneshot::channel();
    let waiting = Mutex::new(Some(waiting));
    let later = Mutex::new(None);
    let attempt = |request: Request| {
        let (client, send) = (client.clone(), transport.send());
        let waiting = waiting.lock().unwrap().take().unwrap();
        let (begun, begins) = oneshot::channel();
        let task = scope::current().enter(async move {
            begun.send(()).unwrap();
            waiting.await.unwrap();
            client.post(URL).send_with(send).await.unwrap();
        });
        *later.lock().unwrap() = Some(tokio::spawn(task));
        let sending = transport.send()(request);
        async {
            begins.await.unwrap();
            sending.await
        }
    };
    client.post(URL).send_with(attempt).await.unwrap();
    over.send(()).unwrap();
    let task = later.lock().unwrap().take().unwrap();
    task.await.unwrap();
    let keys = keys(&transport, &header());
    assert!(keys[1].is_some() && keys[0] != keys[1]);
}

// R2, R10: a client inside takes a failure to connect for one before the request was sent, as a key makes that harmless. Here
// nothing does.
#[tokio::test]
async fn what_a_protected_client_elsewhere_calls_not_sent_is_watched_by_an_unprotected_one() {
    let nobody = Refusing::new();
    let gone = format!("http://{}/", nobody.addr());
    let server = Server::repeat(Reply::status(302).header("location", &gone)).await;
    let (inner, outer) = (crate::wire::client(quick()), crate::wire::client(quick()));
    let request = outer
        .post(server.url("/pay"))
        .without_idempotency_key()
        .body("amount=1");
    let attempt = |request: Request| {
        let inner = inner.clone();
        let elsewhere = async move { inner.execute(request).await };
        let sending = tokio::spawn(elsewhere);
        async move { sending.await.unwrap() }
    };
    let error = request.send_with(attempt).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(server.requests().len(), 1);
}

// R10, field 38
#[tokio::test(start_paused = true)]
async fn progress_that_only_the_outer_contract_knows_is_progress() {
    let inner = client(no_backoff());
    let transport = Transport::always(answer(409));
    let elsewhere = |request: Request| {
        let (inner, send) = (inner.clone(), transport.send());
        let sending = tokio::spawn(async move { inner.execute_with(request, send).await });
        async move { sending.await.unwrap() }
    };
    let request = declaring(IdempotencyContract::ietf()).post(URL);
    let response = request.send_with(elsewhere).await.unwrap();
    assert_eq!(transport.seen().len(), 3);
    assert_eq!(response.outcome(), Some(Outcome::Unknown));
}

// R68, R69: what the client inside knows of its answer is known outside, too.
#[tokio::test(start_paused = true)]
async fn what_the_contract_of_the_inner_client_says_of_an_answer_counts() {
    let progress = header().with_in_progress(Sign::status(StatusCode::CONFLICT));
    let transport = Transport::new([answer(409), answer(201)]);
    let response = sent_on(&client(no_backoff()), &declaring(progress), WAYS[0], &transport).await;
    assert_eq!((transport.seen().len(), response.unwrap().status().as_u16()), (2, 201));

    let mismatch = header().with_mismatch(Sign::status(StatusCode::CONFLICT));
    for before in [vec![], vec![fail(ConnectionReset)]] {
        let count = before.len() + 1;
        let transport = Transport::new([before, vec![answer(409)]].concat());
        let inner = declaring(mismatch.clone());
        let outer = client(no_backoff());
        let response = sent_on(&outer, &inner, WAYS[0], &transport).await.unwrap();
        let reason = response.attempts().unwrap().stop_reason();
        assert_eq!((reason, transport.seen().len()), (StopReason::KeyConflict, count));
    }
}

// R27
#[tokio::test(start_paused = true)]
async fn what_the_classifiers_of_the_inner_client_say_of_an_answer_counts() {
    let policy = || no_backoff().build().unwrap();
    let patient = Client::builder(reqwest::Client::new()).policy(policy());
    let patient = patient.classifier(RetryStatuses::new([StatusCode::NOT_FOUND])).build();
    let transport = Transport::new([answer(404), answer(201)]);
    let response = sent_on(&client(no_backoff()), &patient, WAYS[0], &transport)
        .await
        .unwrap();
    assert_eq!((transport.seen().len(), response.status().as_u16()), (2, 201));

    let done = Client::builder(reqwest::Client::new()).policy(policy());
    let done = done
        .classifier(|_: &RequestFacts<'_>, _: &AttemptFacts<'_>| Verdict::Final)
        .build();
    let transport = Transport::new([answer(500)]);
    let response = sent_on(&client(no_backoff()), &done, WAYS[0], &transport)
        .await
        .unwrap();
    let attempts = response.attempts().unwrap();
    assert_eq!(
        (attempts.stop_reason(), attempts.outcome()),
        (StopReason::NotRetryable, Outcome::Unknown)
    );
}

// D3: an operation inside that is past the retention of its key stops the one around.
#[tokio::test(start_paused = true)]
async fn a_key_that_may_be_forgotten_inside_is_not_sent_again_from_outside() {
    let inner = declaring(header().with_retention(secs(1)));
    let operation = inner.post(URL).idempotency_key(key("k")).into_operation().unwrap();
    let transport = Transport::new([hang()]);
    let attempt = |_: Request| operation.send_with(transport.send());
    let outer = client(no_backoff().attempt_timeout(secs(2))).post(URL);
    let error = outer.send_with(attempt).await.unwrap_err();
    assert_eq!(
        (error.stop_reason(), transport.seen().len()),
        (StopReason::Retention, 1)
    );
}

/// A payment is made, and something else fails after it.
async fn after_paying<E: Into<AttemptError>>(fail: impl Fn() -> E + Send + Sync) -> (usize, Outcome) {
    let service = Transport::always(answer(201));
    let error = client(no_backoff())
        .post(URL)
        .idempotency_key(key("k"))
        .send_with(|paid: Request| {
            let (paying, error) = (service.send()(paid), fail().into());
            async {
                paying.await?;
                Err::<Response, AttemptError>(error)
            }
        })
        .await
        .unwrap_err();
    (service.seen().len(), error.outcome())
}

// R10, field 27
#[tokio::test(start_paused = true)]
async fn a_refusal_that_names_no_request_does_not_unmake_a_keyed_write() {
    #[derive(Debug, thiserror::Error)]
    #[error("the answer could not be cached")]
    struct Uncached(#[source] std::io::Error);

    let refused = || std::io::Error::from(ConnectionRefused);
    let error = || Box::<dyn std::error::Error + Send + Sync>::from(Uncached(refused()));
    assert_eq!(after_paying(error).await, (3, Outcome::Unknown));
    let error = || std::io::Error::other(Uncached(refused()));
    assert_eq!(after_paying(error).await, (3, Outcome::Unknown));
}

// R10: reqwest's error speaks for the connection it tried, and a wrapper that hides it for nobody.
#[tokio::test]
async fn a_refusal_behind_a_transparent_error_does_not_unmake_a_keyed_write() {
    #[derive(Debug, thiserror::Error)]
    #[error(transparent)]
    struct Transparent(reqwest::Error);

    let audit = http()
        .build()
        .unwrap()
        .post("http://127.0.0.1:0/")
        .send()
        .await
        .unwrap_err();
    let audit = Mutex::new(Some(audit));
    let error = || Box::<dyn std::error::Error + Send + Sync>::from(Transparent(audit.lock().unwrap().take().unwrap()));
    let service = Transport::always(answer(201));
    let request = client(no_backoff().max_attempts(1)).post(URL);
    let paying = |paid: Request| {
        let (paying, error) = (service.send()(paid), error());
        async {
            let _ = paying.await;
            Err::<Response, _>(error)
        }
    };
    let error = request.send_with(paying).await.unwrap_err();
    assert_eq!((service.seen().len(), error.outcome()), (1, Outcome::Unknown));
}

//! Where a key stands in the requests of an operation, whatever is done to them on their way.

use std::io::ErrorKind::ConnectionReset;

use reqwest::header::HeaderValue;
use reqwest::{Body, Request};
use steadfast::{
    Client, ErrorKind, IdempotencyContract, IdempotencyKey, KeyPlacement, Outcome, ResponseExt, StopReason,
};

use crate::server::{Reply, Server};
use crate::transport::{Transport, URL, answer, client, fail, key, no_backoff, sent};
use crate::wire::{http, quick};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The whole body is the key.
struct AsBody;

impl KeyPlacement for AsBody {
    fn write(&self, request: &mut Request, key: &IdempotencyKey) -> Result<(), BoxError> {
        *request.body_mut() = Some(key.as_str().to_owned().into());
        Ok(())
    }

    fn read(&self, _: &http::HeaderMap, _: &http::Uri, body: &[u8]) -> Option<String> {
        String::from_utf8(body.to_vec()).ok().filter(|text| !text.is_empty())
    }
}

// R12
#[tokio::test(start_paused = true)]
async fn a_key_that_would_be_lost_with_a_body_made_anew_is_refused() {
    let transport = Transport::new([answer(200)]);
    let request = client(no_backoff())
        .post(URL)
        .contract(IdempotencyContract::custom(AsBody));
    let operation = request.try_clone().unwrap();
    let error = request
        .body_with(|| Ok("x".into()))
        .send_with(transport.send())
        .await
        .unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Request, Outcome::NotDone));
    assert!(transport.seen().is_empty());
    let response = operation.send_with(transport.send()).await.unwrap();
    let own = response.attempts().unwrap().idempotency_key().unwrap();
    assert_eq!(transport.seen()[0].body, own.as_str());
}

// R42: a body that has something else in its place is no business of a method that needs no key.
#[tokio::test(start_paused = true)]
async fn what_needs_no_key_may_have_anything_in_its_place() {
    let contract = || IdempotencyContract::body_field("/id").unwrap();
    let client = client(no_backoff());
    let body = r#"{"id":7}"#;
    for request in [
        client.put(URL).body(body),
        client.post(URL).body(body).without_idempotency_key(),
    ] {
        let transport = Transport::new([answer(200)]);
        request.contract(contract()).send_with(transport.send()).await.unwrap();
        assert_eq!(transport.seen()[0].body, body);
    }
    for request in [
        client.post(URL).body(body),
        client.put(URL).body(body).idempotency_key(key("k")),
    ] {
        let error = request.contract(contract()).into_operation().unwrap_err();
        assert!(error.to_string().contains("no text"), "{error}");
    }
}

// R49: code that set the header before there was a contract keeps its key.
#[tokio::test(start_paused = true)]
async fn a_key_in_the_usual_header_is_the_callers_wherever_the_contract_has_it() {
    let contracts = [
        IdempotencyContract::body_field("/id").unwrap(),
        IdempotencyContract::query("id").unwrap(),
        IdempotencyContract::header("x-request-id").unwrap(),
        IdempotencyContract::none(),
    ];
    for contract in contracts {
        let request = client(no_backoff())
            .post(URL)
            .body("{}")
            .header("Idempotency-Key", "mine");
        let (result, transport) = sent(request.contract(contract.clone()), [answer(503), answer(201)]).await;
        let response = result.unwrap_or_else(|error| panic!("{contract:?}: {error}"));
        assert_eq!(response.attempts().unwrap().idempotency_key(), Some(&key("mine")));
        for seen in transport.seen() {
            let uri = seen.url.as_str().parse().unwrap();
            let found = contract.key_of(&seen.headers, &uri, &seen.body).unwrap();
            assert_eq!(found, contract.carries_key().then(|| key("mine")));
            assert_eq!(seen.header("idempotency-key"), ["mine"]);
        }
    }
    let invalid = client(no_backoff()).post(URL).header("idempotency-key", "not a key");
    let invalid = invalid.contract(IdempotencyContract::query("id").unwrap());
    assert!(invalid.into_operation().is_err());
}

fn hooked(contract: IdempotencyContract, change: fn(&mut Request)) -> Client {
    Client::builder(reqwest::Client::new())
        .policy(no_backoff().build().unwrap())
        .idempotency(contract)
        .before_attempt(move |mut request, _| {
            change(&mut request);
            async { Ok(request) }
        })
        .build()
}

async fn one_through(client: &Client, url: &str) -> crate::transport::Seen {
    let transport = Transport::new([answer(200)]);
    let request = client.post(url).idempotency_key(key("k"));
    request.send_with(transport.send()).await.unwrap();
    transport.seen().remove(0)
}

// R75: a signature may cover every byte of them.
#[tokio::test(start_paused = true)]
async fn the_other_parameters_of_a_query_stay_byte_for_byte() {
    let changes: [fn(&mut Request); 2] = [
        |request| request.url_mut().set_query(Some("a=%7E+b&c&sig=a%2Fb/")),
        |request| request.url_mut().set_query(Some("id=x&a=%7E+b&c&id=y&sig=a%2Fb/")),
    ];
    for change in changes {
        let client = hooked(IdempotencyContract::query("id").unwrap(), change);
        let seen = one_through(&client, URL).await;
        assert_eq!(seen.url.query(), Some("a=%7E+b&c&sig=a%2Fb/&id=k"));
    }
}

// R12
#[tokio::test(start_paused = true)]
async fn a_quoted_key_that_a_hook_unquotes_is_quoted_again() {
    let changes: [fn(&mut Request); 2] = [
        |request| {
            let bare = HeaderValue::from_static("k");
            request.headers_mut().insert("idempotency-key", bare);
        },
        |request| {
            let other = HeaderValue::from_static("\"k\"");
            request.headers_mut().append("idempotency-key", other);
        },
    ];
    for change in changes {
        let seen = one_through(&hooked(IdempotencyContract::ietf(), change), URL).await;
        assert_eq!(seen.header("idempotency-key"), ["\"k\""]);
    }
}

// R43, R10: a redirect takes headers and body along, and the query is the new URL's.
#[tokio::test]
async fn a_write_whose_key_a_redirect_dropped_is_neither_repeated_nor_called_once() {
    for status in [307, 308] {
        let moved = |reply: Reply| {
            Server::answering(move |seen| match seen.path() {
                path if path.starts_with("/new") => reply.clone(),
                _ => Reply::status(status).header("location", "/new"),
            })
        };
        let policy = quick().build().unwrap();
        let told = Client::from_builder(http()).unwrap().policy(policy);
        let client = told.idempotency(IdempotencyContract::query("id").unwrap()).build();
        let lost = moved(Reply::new().reset()).await;
        let error = client.post(lost.url("/old")).body("x").send().await.unwrap_err();
        assert_eq!(
            (error.stop_reason(), error.outcome()),
            (StopReason::NotReplaySafe, Outcome::Unknown)
        );
        assert_eq!(lost.requests().len(), 2);
        assert!(lost.requests()[0].path().contains("id=") && !lost.requests()[1].path().contains("id="));

        let done = moved(Reply::ok("")).await;
        let operation = client.post(done.url("/old")).body("x").into_operation().unwrap();
        for once in [true, false] {
            let response = operation.send().await.unwrap();
            let attempts = response.attempts().unwrap();
            assert_eq!(
                (attempts.outcome(), attempts.exactly_once()),
                (Outcome::Completed, once)
            );
        }
    }
}

// R12: what is made anew for each attempt may be a stream.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_made_anew_is_kept_from_the_hook_and_sent() {
    let client = Client::builder(reqwest::Client::new())
        .policy(no_backoff().build().unwrap())
        .before_attempt(|request, _| async {
            assert!(request.body().is_none());
            Ok(request)
        })
        .build();
    let transport = Transport::new([answer(503), fail(ConnectionReset), answer(201)]);
    let request = client.post(URL).body_with(|| Ok(Body::wrap(String::from("stream"))));
    request.send_with(transport.send()).await.unwrap();
    let seen = transport.seen();
    assert!(seen.len() == 3 && seen.iter().all(|seen| seen.body == "stream"));
}

//! What the crate gives to the tests of its users, used as they use it.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use reqwest::{Request, Response};
use steadfast::testing::{Fault, Faults, Reply, Script, expect};
use steadfast::{Client, ErrorKind, IdempotencyContract, Outcome, Policy, ResponseExt, StopReason};

use crate::server::{Reply as Answer, Server};
use crate::transport::{millis, no_backoff, secs};
use crate::wire::http;

const URL: &str = "https://api.example.com/charges";

/// Code that knows nothing of its test.
async fn charge(client: &Client) -> Result<Response, steadfast::Error> {
    client.post(URL).body("amount=1").send().await
}

fn client(service: &Script) -> Client {
    let policy = no_backoff().attempt_timeout(secs(2)).build().unwrap();
    Client::builder(reqwest::Client::new())
        .policy(policy)
        .transport(service.sender())
        .build()
}

#[tokio::test(start_paused = true)]
async fn a_script_answers_code_that_does_not_know_of_it() {
    let service = Script::new([
        Reply::status(503).header("retry-after", "3"),
        Reply::reset().after(millis(500)),
        Reply::ok("done"),
    ]);
    let response = charge(&client(&service)).await.unwrap();
    expect(&response)
        .made(3)
        .statuses([503, 0, 200])
        .failures([None, Some(ErrorKind::Reset), None])
        .stopped(StopReason::Done)
        .outcome(Outcome::Completed)
        .exactly_once(false)
        .waited_at_most(secs(3) + millis(1));
    assert_eq!(response.text().await.unwrap(), "done");
    let requests = service.requests();
    assert_eq!(requests.len(), 3);
    assert!(
        requests
            .iter()
            .all(|request| request.body() == b"amount=1" && request.url().as_str() == URL)
    );
    assert_eq!(requests[0].came_after(), Duration::ZERO);
    assert!(requests[1].came_after() >= secs(3));
    let headers = requests[2].headers();
    assert_eq!(headers["idempotency-key"], service.key().unwrap().as_str());
}

#[tokio::test(start_paused = true)]
async fn silence_and_cut_bodies_take_the_time_that_they_would() {
    let service = Script::new([Reply::silence(), Reply::ok("a body").cut(), Reply::ok("a body")]);
    let result = charge(&client(&service)).await;
    expect(&result).failures([Some(ErrorKind::Timeout), Some(ErrorKind::Body), None]);
    assert_eq!(result.unwrap().text().await.unwrap(), "a body");
    assert_eq!(service.requests()[1].came_after(), secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_brings_no_request_to_the_service() {
    let service = Script::new([Reply::refused(), Reply::status(201)]);
    let request = client(&service).post(URL).body("x").without_idempotency_key();
    let response = request.send().await.unwrap();
    expect(&response).made(2).exactly_once(true);
    assert_eq!(service.requests()[0].body(), b"");
    assert!(service.key().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_request_after_the_end_of_a_script_fails_and_says_why() {
    let service = Script::new([Reply::status(503)]);
    let error = charge(&client(&service)).await.unwrap_err();
    expect(&error).made(2);
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "the script has no reply for another request");
    assert_eq!(service.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn requests_of_two_operations_have_no_key_in_common() {
    let service = Script::always(Reply::status(200));
    let client = client(&service);
    assert!(service.key().is_none());
    charge(&client).await.unwrap();
    assert!(service.key().is_some());
    charge(&client).await.unwrap();
    assert!(service.key().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_key_is_found_where_the_contract_has_it() {
    let contract = IdempotencyContract::body_field("/request_id").unwrap();
    let service = Script::new([Reply::status(502), Reply::ok("{}")]);
    let request = client(&service).post(URL).body("{}").contract(contract.clone());
    let response = request.send().await.unwrap();
    let key = service.key_under(&contract).unwrap();
    assert_eq!(response.attempts().unwrap().idempotency_key(), Some(&key));
}

#[tokio::test(start_paused = true)]
async fn an_expectation_that_does_not_hold_fails_and_shows_the_record() {
    let service = Script::new([Reply::status(503), Reply::status(200)]);
    let response = charge(&client(&service)).await.unwrap();
    let broken: [fn(&Response); 7] = [
        |response| {
            expect(response).made(3);
        },
        |response| {
            expect(response).statuses([200]);
        },
        |response| {
            expect(response).failures([None]);
        },
        |response| {
            expect(response).stopped(StopReason::Budget);
        },
        |response| {
            expect(response).outcome(Outcome::Unknown);
        },
        |response| {
            expect(response).exactly_once(true);
        },
        |_| {
            expect(&Response::from(http::Response::new("")));
        },
    ];
    for check in broken {
        let panicked = catch_unwind(AssertUnwindSafe(|| check(&response))).unwrap_err();
        let said = panicked.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(said.contains("503") || panicked.is::<&str>(), "{said}");
    }
    let late = Script::new([Reply::status(503).header("retry-after", "5"), Reply::status(200)]);
    let response = charge(&client(&late)).await.unwrap();
    assert!(
        catch_unwind(AssertUnwindSafe(|| {
            expect(&response).waited_at_most(secs(4));
        }))
        .is_err()
    );
}

/// What each fault lets through to a service that commits whatever it gets, and what comes back.
async fn under(fault: Fault) -> (usize, Result<Response, steadfast::Error>) {
    let server = Server::repeat(Answer::ok("answer")).await;
    let http = http().build().unwrap();
    let faults = Faults::seeded(1).with(fault, 1.0);
    let policy = Policy::builder()
        .max_attempts(1)
        .attempt_timeout(secs(1))
        .build()
        .unwrap();
    let client = Client::builder(http.clone())
        .policy(policy)
        .transport(faults.over(http))
        .build();
    let result = client
        .post(server.url("/"))
        .body("x")
        .without_idempotency_key()
        .send()
        .await;
    assert_eq!(faults.injected(), [Some(fault)]);
    (server.requests().len(), result)
}

#[tokio::test]
async fn every_fault_is_what_it_says() {
    for (fault, requests, kind, outcome) in [
        (Fault::Refused, 0, ErrorKind::Connect, Outcome::NotDone),
        (Fault::LostRequest, 0, ErrorKind::Reset, Outcome::Unknown),
        (Fault::LostAnswer, 1, ErrorKind::Reset, Outcome::Unknown),
        (Fault::CutBody, 1, ErrorKind::Body, Outcome::Completed),
        (Fault::Silence, 1, ErrorKind::Timeout, Outcome::Unknown),
    ] {
        let (seen, result) = under(fault).await;
        let error = result.unwrap_err();
        assert_eq!(
            (seen, error.kind(), error.outcome()),
            (requests, kind, outcome),
            "{fault:?}"
        );
    }
    for (fault, requests, status) in [
        (Fault::Status(503), 0, 503),
        (Fault::StatusAfter(502), 1, 502),
        (Fault::Delay(millis(10)), 1, 200),
        // A keyless body is watched, and a stream that is watched is not copied.
        (Fault::Twice, 1, 200),
    ] {
        let (seen, result) = under(fault).await;
        assert_eq!(
            (seen, result.unwrap().status().as_u16()),
            (requests, status),
            "{fault:?}"
        );
    }
}

#[tokio::test]
async fn a_request_with_a_key_is_delivered_twice() {
    let server = Server::repeat(Answer::ok("")).await;
    let http = http().build().unwrap();
    let faults = Faults::seeded(1).with(Fault::Twice, 1.0);
    let client = Client::builder(http.clone()).transport(faults.over(http)).build();
    client.post(server.url("/")).body("x").send().await.unwrap();
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].raw, requests[1].raw);
}

#[tokio::test]
async fn the_same_seed_brings_the_same_faults() {
    let server = Server::repeat(Answer::ok("")).await;
    let drawn = async |seed| {
        let http = http().build().unwrap();
        let faults = Faults::seeded(seed)
            .with(Fault::Status(503), 0.3)
            .with(Fault::LostAnswer, 0.3);
        let policy = no_backoff().max_attempts(1).build().unwrap();
        let client = Client::builder(http.clone())
            .policy(policy)
            .transport(faults.over(http))
            .build();
        for _ in 0..40 {
            let _ = client.get(server.url("/")).send().await;
        }
        faults.injected()
    };
    let first = drawn(7).await;
    assert_eq!(first, drawn(7).await);
    assert_ne!(first, drawn(8).await);
    for fault in [None, Some(Fault::Status(503)), Some(Fault::LostAnswer)] {
        assert!(first.contains(&fault), "{fault:?}");
    }
}

// R10: what sends in place of the inner client knows nothing of its redirects, and may do more than it was asked.
#[tokio::test(start_paused = true)]
async fn a_transport_is_believed_no_more_than_any_sender() {
    let told = Client::from_builder(http()).unwrap();
    let policy = no_backoff().max_attempts(1).build().unwrap();
    let silent = |_: Request| pending::<Result<Response, std::io::Error>>();
    let client = told.policy(policy).transport(silent).build();
    let request = client.post(URL).without_idempotency_key();
    let error = request.deadline(secs(1)).send().await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::Unknown));

    // It sends the request on by a client of its own, which keeps within the attempt.
    let inner = Client::builder(reqwest::Client::new()).transport(Script::always(Reply::status(503)).sender());
    let inner = inner.build();
    let outer = Client::builder(reqwest::Client::new()).policy(no_backoff().max_attempts(1).build().unwrap());
    let outer = outer.transport(move |request| inner.execute(request)).build();
    let response = outer.get(URL).send().await.unwrap();
    expect(&response).made(1).statuses([503]);
}

#[tokio::test(start_paused = true)]
async fn a_script_is_done_once_every_reply_was_given() {
    let service = Script::new([Reply::status(503), Reply::status(201)]);
    assert!(!service.is_done());
    charge(&client(&service)).await.unwrap();
    assert!(service.is_done());
    assert!(!Script::always(Reply::status(200)).is_done());
}

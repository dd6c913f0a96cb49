//! What the caller does to the request of each attempt.

use std::future::pending;
use std::io;
use std::io::ErrorKind::ConnectionReset;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Body, Method, Request, Version};
use steadfast::{
    CircuitBreaker, CircuitState, Client, ClientBuilder, ErrorKind, IdempotencyContract, Outcome, PolicyBuilder,
    ResponseExt, RetryBudget, StopReason,
};
use tokio::time::sleep;

use crate::server::{Reply, Server};
use crate::transport::{Transport, URL, answer, fail, hang, key, millis, no_backoff, secs};
use crate::wire::http;

fn builder(policy: PolicyBuilder) -> ClientBuilder {
    Client::builder(reqwest::Client::new()).policy(policy.build().unwrap())
}

fn plain() -> ClientBuilder {
    builder(no_backoff().attempt_timeout(secs(1)).deadline(secs(5)))
}

#[derive(Debug, thiserror::Error)]
#[error("no token")]
struct NoToken;

#[tokio::test(start_paused = true)]
async fn every_attempt_has_a_token_of_its_own() {
    let client = plain()
        .before_attempt(|mut request, number| async move {
            sleep(millis(100)).await;
            let token = HeaderValue::from_str(&format!("Bearer token-{number}"))?;
            request.headers_mut().insert(AUTHORIZATION, token);
            Ok(request)
        })
        .build();
    let transport = Transport::new([answer(503), fail(ConnectionReset), answer(200)]);
    client.post(URL).body("x").send_with(transport.send()).await.unwrap();
    let seen = transport.seen();
    let tokens: Vec<_> = seen.iter().map(|seen| seen.header("authorization")[0]).collect();
    assert_eq!(tokens, ["Bearer token-1", "Bearer token-2", "Bearer token-3"]);
    assert!(
        seen.iter()
            .all(|other| other.key() == seen[0].key() && other.body == "x")
    );
    assert_eq!(transport.times(), [millis(100), millis(200), millis(300)]);
}

// A signature over the very bytes that are sent.
#[tokio::test]
async fn a_signature_covers_key_and_body_as_they_go_out() {
    let server = Server::start([Reply::status(503), Reply::ok("")]).await;
    let contract = IdempotencyContract::body_field("/request_id").unwrap();
    let client = Client::builder(http().build().unwrap())
        .policy(no_backoff().build().unwrap())
        .idempotency(contract)
        .before_attempt(|mut request, _| async move {
            let signed = request.body().and_then(Body::as_bytes).unwrap_or_default();
            let signature = signed.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            request.headers_mut().insert("x-signature", signature.into());
            Ok(request)
        })
        .build();
    client
        .post(server.url("/"))
        .body("{}")
        .idempotency_key(key("k"))
        .send()
        .await
        .unwrap();
    for seen in server.requests() {
        assert_eq!(seen.body(), br#"{"request_id":"k"}"#);
        let sum = seen.body().iter().map(|byte| u64::from(*byte)).sum::<u64>();
        assert_eq!(seen.header("x-signature"), Some(sum.to_string().as_str()));
    }
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_ends_the_operation_and_is_no_attempt() {
    let client = plain().before_attempt(|_, _| async { Err(NoToken.into()) }).build();
    let transport = Transport::new([]);
    let error = client.post(URL).send_with(transport.send()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.stop_reason()),
        (ErrorKind::Request, StopReason::NotRetryable)
    );
    assert_eq!((error.outcome(), error.attempts().len()), (Outcome::NotDone, 0));
    assert!(std::error::Error::source(&error).unwrap().is::<NoToken>());
}

#[tokio::test(start_paused = true)]
async fn what_earlier_attempts_met_stays_with_the_failure_of_a_hook() {
    let client = plain()
        .before_attempt(|request, number| async move { if number == 1 { Ok(request) } else { Err(NoToken.into()) } })
        .build();
    let transport = Transport::new([answer(500)]);
    let error = client.post(URL).send_with(transport.send()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.status().unwrap().as_u16()),
        (ErrorKind::Request, 500)
    );
    assert_eq!((error.outcome(), error.attempts().len()), (Outcome::Unknown, 1));
    assert!(error.to_string().ends_with(": invalid request: no token"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_hook_is_the_attempts() {
    let slow = plain().before_attempt(|request, _| async {
        sleep(millis(700)).await;
        Ok(request)
    });
    let transport = Transport::new([hang(), hang(), hang()]);
    let error = slow.build().get(URL).send_with(transport.send()).await.unwrap_err();
    assert_eq!((error.kind(), transport.elapsed()), (ErrorKind::Timeout, secs(3)));

    let stuck = plain().before_attempt(|_, _| pending()).build();
    let transport = Transport::new([]);
    let error = stuck.get(URL).send_with(transport.send()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.stop_reason()),
        (ErrorKind::Request, StopReason::NotRetryable)
    );
    assert!(error.is_timeout());
    assert_eq!(transport.elapsed(), secs(1));
    let error = stuck
        .get(URL)
        .deadline(millis(400))
        .send_with(transport.send())
        .await
        .unwrap_err();
    assert_eq!(error.stop_reason(), StopReason::Deadline);
}

#[tokio::test(start_paused = true)]
async fn a_failed_hook_gives_back_token_and_probe() {
    let circuit = CircuitBreaker::default()
        .minimum_throughput(1)
        .half_open_probes(1)
        .open_for(secs(1));
    let policy = no_backoff()
        .budget(RetryBudget::new(0.1, 1))
        .circuit_breaker(circuit.max_open_for(secs(1)));
    let refuses = Arc::new(AtomicU32::new(0));
    let asked = Arc::clone(&refuses);
    let client = builder(policy)
        .before_attempt(move |request, number| {
            let refuse = number > 1 && asked.fetch_add(1, Relaxed) == 0;
            async move { if refuse { Err(NoToken.into()) } else { Ok(request) } }
        })
        .build();
    // 429 says nothing of the service, so the circuit stays closed, and the retry has paid when the hook fails.
    let transport = Transport::new([answer(429), answer(429), answer(200)]);
    let error = client.get(URL).send_with(transport.send()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Request);
    let response = client.get(URL).send_with(transport.send()).await.unwrap();
    assert_eq!((response.status().as_u16(), transport.seen().len()), (200, 3));

    let transport = Transport::new([answer(501), answer(200)]);
    client
        .get(URL)
        .circuit("other")
        .send_with(transport.send())
        .await
        .unwrap();
    sleep(secs(1)).await;
    let failing = builder(no_backoff().circuit_breaker(CircuitBreaker::default().half_open_probes(1)))
        .pipeline(client.pipeline().clone())
        .before_attempt(|_, _| async { Err(NoToken.into()) })
        .build();
    let error = failing
        .get(URL)
        .circuit("other")
        .send_with(transport.send())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Request);
    client
        .get(URL)
        .circuit("other")
        .send_with(transport.send())
        .await
        .unwrap();
    assert_eq!(client.circuits().get("other").unwrap().state(), CircuitState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_a_hook_loses_or_changes_is_put_back() {
    for contract in [
        IdempotencyContract::header("idempotency-key").unwrap(),
        IdempotencyContract::ietf(),
        IdempotencyContract::query("idempotency-key").unwrap(),
    ] {
        let client = plain()
            .idempotency(contract.clone())
            .before_attempt(|mut request: Request, number| async move {
                request.headers_mut().clear();
                request.url_mut().set_query(Some("signed=1"));
                if number == 2 {
                    request
                        .headers_mut()
                        .insert("idempotency-key", HeaderValue::from_static("other"));
                    request.url_mut().set_query(Some("signed=1&idempotency-key=other"));
                }
                Ok(request)
            })
            .build();
        let transport = Transport::new([answer(503), answer(200)]);
        client
            .post(URL)
            .idempotency_key(key("mine"))
            .send_with(transport.send())
            .await
            .unwrap();
        for seen in transport.seen() {
            let uri = seen.url.as_str().parse().unwrap();
            assert_eq!(contract.key_of(&seen.headers, &uri, b"").unwrap(), Some(key("mine")));
            assert!(seen.url.query().unwrap().starts_with("signed=1"), "{}", seen.url);
        }
    }
}

// R147: the same key with another body would be another operation.
#[tokio::test(start_paused = true)]
async fn a_hook_that_changes_body_or_method_is_refused() {
    let changes: [fn(&mut Request); 4] = [
        |request| *request.body_mut() = Some("y".into()),
        |request| *request.body_mut() = None,
        |request| *request.body_mut() = Some(Body::wrap(String::from("x"))),
        |request| *request.method_mut() = Method::PUT,
    ];
    for change in changes {
        let client = plain()
            .before_attempt(move |mut request, _| {
                change(&mut request);
                async { Ok(request) }
            })
            .build();
        let transport = Transport::new([]);
        let error = client
            .post(URL)
            .body("x")
            .send_with(transport.send())
            .await
            .unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Request, Outcome::NotDone));
        assert!(
            std::error::Error::source(&error)
                .unwrap()
                .to_string()
                .contains("before_attempt changed")
        );
        assert!(transport.seen().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_set_anew_with_the_same_bytes_is_the_same() {
    let client = plain()
        .before_attempt(|mut request: Request, _| async move {
            *request.body_mut() = Some(String::from("x").into());
            *request.version_mut() = Version::HTTP_11;
            Ok(request)
        })
        .build();
    let transport = Transport::new([answer(503), answer(200)]);
    client.post(URL).body("x").send_with(transport.send()).await.unwrap();
    assert!(transport.seen().iter().all(|seen| seen.body == "x"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_not_used_up_by_a_hook_that_fails() {
    let allowed = Arc::new(AtomicU32::new(0));
    let asked = Arc::clone(&allowed);
    let client = plain()
        .before_attempt(move |request: Request, _| {
            assert!(request.body().is_none());
            let refuse = asked.fetch_add(1, Relaxed) == 0;
            async move { if refuse { Err(NoToken.into()) } else { Ok(request) } }
        })
        .build();
    let request = client.post(URL).body(Body::wrap(String::from("stream")));
    let operation = request.into_operation().unwrap();
    let transport = Transport::new([answer(201)]);
    assert!(operation.send_with(transport.send()).await.is_err());
    assert_eq!(operation.send_with(transport.send()).await.unwrap().status(), 201);
    assert_eq!(transport.seen()[0].body, "stream");
}

// A signature in the query, or another host, is no redirect.
#[tokio::test]
async fn a_url_that_a_hook_changes_is_not_taken_for_a_redirect() {
    let server = Server::start([Reply::status(503), Reply::status(201)]).await;
    let to = server.url("/charges?signature=1");
    let client = Client::builder(http().build().unwrap())
        .policy(no_backoff().build().unwrap())
        .before_attempt(move |mut request, _| {
            *request.url_mut() = to.parse().expect("a URL");
            async { Ok(request) }
        })
        .build();
    let response = client.post("http://balanced.invalid/charges").send().await.unwrap();
    assert_eq!(response.outcome(), Some(Outcome::Completed));
    assert!(
        server
            .requests()
            .iter()
            .all(|seen| seen.path() == "/charges?signature=1")
    );
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_hook_is_the_source() {
    let client = plain()
        .before_attempt(|_, _| async {
            let http = reqwest::Client::builder().no_proxy().build()?;
            http.get("http://127.0.0.1:1/token").send().await?;
            Err(io::Error::other("unreachable").into())
        })
        .build();
    let error = client.get(URL).send_with(Transport::new([]).send()).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    assert!(source.is::<reqwest::Error>());
}

// R25, D1: the clock goes on while a hook works, also where that never yields.
#[tokio::test(start_paused = true)]
async fn a_request_that_its_hook_gives_back_too_late_is_not_sent() {
    for (takes, kind) in [
        (millis(1_995), ErrorKind::Deadline),
        (millis(2_005), ErrorKind::Request),
    ] {
        let client = builder(no_backoff().deadline(secs(2)))
            .before_attempt(move |request, _| async move {
                tokio::time::advance(takes).await;
                Ok(request)
            })
            .build();
        let transport = Transport::new([]);
        let error = client.post(URL).send_with(transport.send()).await.unwrap_err();
        assert_eq!((error.kind(), error.stop_reason()), (kind, StopReason::Deadline));
        assert_eq!((error.outcome(), error.attempts().len()), (Outcome::NotDone, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_not_used_up_by_a_hook_that_is_too_late() {
    let slow = Arc::new(AtomicU32::new(0));
    let asked = Arc::clone(&slow);
    let client = builder(no_backoff().deadline(secs(2)))
        .before_attempt(move |request: Request, _| {
            let takes = if asked.fetch_add(1, Relaxed) == 0 { 1_995 } else { 0 };
            async move {
                tokio::time::advance(millis(takes)).await;
                Ok(request)
            }
        })
        .build();
    let request = client.post(URL).body(Body::wrap(String::from("stream")));
    let operation = request.into_operation().unwrap();
    let transport = Transport::new([answer(201)]);
    assert!(operation.send_with(transport.send()).await.is_err());
    operation.send_with(transport.send()).await.unwrap();
    assert_eq!(transport.seen()[0].body, "stream");
}

// D3
#[tokio::test(start_paused = true)]
async fn a_hook_that_outlasts_the_retention_of_the_key_sends_nothing() {
    let client = builder(no_backoff())
        .before_attempt(|request, _| async {
            sleep(secs(4)).await;
            Ok(request)
        })
        .idempotency(IdempotencyContract::ietf().with_retention(secs(3)))
        .build();
    // It counts from the first request, not from the hook before it.
    let transport = Transport::new([fail(ConnectionReset)]);
    let error = client.post(URL).send_with(transport.send()).await.unwrap_err();
    assert_eq!(
        (error.stop_reason(), transport.times()),
        (StopReason::Retention, vec![secs(4)])
    );
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Reset, Outcome::Unknown));
}

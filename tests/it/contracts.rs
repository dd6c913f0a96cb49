//! What a service promises about idempotency keys, and what a client makes of its answers.

use std::collections::HashMap;
use std::io;
use std::io::ErrorKind::ConnectionReset;
use std::sync::{Arc, Mutex};

use reqwest::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use steadfast::{
    Backoff, Client, ErrorKind, IdempotencyContract, IdempotencyKey, KeyError, KeyErrorKind, Outcome, RequestBuilder,
    ResponseExt, Sign, StopReason, UnknownRetries,
};

use crate::server::{Reply, Server};
use crate::transport::{Transport, URL, after, answer, client, fail, hang, key, millis, no_backoff, secs, sent, stop};
use crate::wire::{assert_same_bytes, http, quick};

/// As the documentation of a billing API has it: the key in the body, a conflict told by its code.
fn billing() -> IdempotencyContract {
    let conflict = Sign::status(StatusCode::CONFLICT).and_field("/code", "request_id_conflict");
    IdempotencyContract::body_field("/request_id")
        .unwrap()
        .with_alphabet(|c| !matches!(c, ':' | '|'))
        .with_reserved_prefix("sys_")
        .with_replay(Sign::field("/replay", true).unwrap())
        .with_mismatch(conflict.unwrap())
}

fn deposit(contract: IdempotencyContract) -> RequestBuilder {
    let client = client(no_backoff().attempt_timeout(secs(1)));
    client.post(URL).body(r#"{"amount":100}"#).contract(contract)
}

fn charge(contract: IdempotencyContract) -> RequestBuilder {
    let client = client(no_backoff().attempt_timeout(secs(1)));
    client.post(URL).body("amount=1").contract(contract)
}

fn json_of(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap()
}

// R60, R75: by the bytes on the wire.
#[tokio::test]
async fn the_key_is_in_the_body_alone_and_the_same_in_every_attempt() {
    let server = Server::start([Reply::status(502), Reply::new().reset(), Reply::ok("{}")]).await;
    let policy = quick().build().unwrap();
    let client = Client::builder(http().build().unwrap())
        .policy(policy)
        .idempotency(billing())
        .build();
    let request = client.post(server.url("/deposits")).body(r#"{ "amount": 10.50 }"#);
    let response = request.send().await.unwrap();
    let key = response.attempts().unwrap().idempotency_key().unwrap().clone();
    assert_same_bytes(&server, 3);
    let seen = server.requests().remove(0);
    let expected = format!(r#"{{"request_id":"{}", "amount": 10.50 }}"#, key.as_str());
    assert_eq!(String::from_utf8_lossy(seen.body()), expected);
    let head = String::from_utf8_lossy(&seen.raw[..seen.raw.len() - seen.body().len()]).to_lowercase();
    assert!(!head.contains(key.as_str()) && !head.contains("idempotency"), "{head}");
    assert_eq!(seen.header("content-length"), Some(expected.len().to_string().as_str()));
}

// R61, R64
#[tokio::test(start_paused = true)]
async fn a_replay_is_a_success_and_shows_in_the_record() {
    let first = answer(200).body(r#"{"new_balance":100,"replay":false}"#);
    let replay = answer(200).body(r#"{"replay":true}"#);
    let (result, _) = sent(deposit(billing()), vec![first]).await;
    assert_eq!(result.unwrap().attempts().unwrap().replayed(), Some(false));
    let (result, transport) = sent(deposit(billing()), vec![fail(ConnectionReset), replay]).await;
    let response = result.unwrap();
    assert_eq!(transport.seen().len(), 2);
    let attempts = response.attempts().unwrap();
    assert_eq!(
        (attempts.replayed(), attempts.outcome()),
        (Some(true), Outcome::Completed)
    );
    assert!(attempts.exactly_once());
    // The caller has the whole body still.
    assert_eq!(response.text().await.unwrap(), r#"{"replay":true}"#);
}

// R65
#[tokio::test(start_paused = true)]
async fn a_replay_that_is_told_by_its_status_is_a_success_too() {
    let contract = || {
        let contract = IdempotencyContract::body_field("/request_id").unwrap();
        contract.with_replay(Sign::status(StatusCode::OK))
    };
    let accepted = |status| answer(status).body(r#"{"batch_id":"b-1"}"#);
    for (steps, replayed) in [(vec![accepted(202)], false), (vec![hang(), accepted(200)], true)] {
        let (result, _) = sent(deposit(contract()), steps).await;
        let response = result.unwrap();
        assert_eq!(response.attempts().unwrap().replayed(), Some(replayed));
        assert_eq!(response.outcome(), Some(Outcome::Completed));
        assert_eq!(json_of(&response.bytes().await.unwrap()), json!({"batch_id": "b-1"}));
    }
}

// R66
#[tokio::test(start_paused = true)]
async fn a_replay_that_nothing_marks_is_a_success_and_is_not_asked_for_again() {
    let contract = IdempotencyContract::body_field("/request_id").unwrap();
    // As the first answer, but for the `new_balance` of that.
    let unmarked = answer(200).body(r#"{"card":"c-1"}"#);
    let (result, transport) = sent(deposit(contract), vec![hang(), unmarked]).await;
    let response = result.unwrap();
    assert_eq!((transport.seen().len(), stop(&response)), (2, StopReason::Done));
    assert_eq!(response.attempts().unwrap().replayed(), None);
    assert_eq!(response.outcome(), Some(Outcome::Completed));
}

const CONFLICT: &str = r#"{"code":"request_id_conflict"}"#;

// R68, R69, R70, R72
#[tokio::test(start_paused = true)]
async fn a_key_of_another_subject_ends_the_operation_and_is_never_replaced() {
    let (result, transport) = sent(deposit(billing()), vec![answer(409).body(CONFLICT)]).await;
    let response = result.unwrap();
    assert_eq!((transport.seen().len(), stop(&response)), (1, StopReason::KeyConflict));
    assert_eq!(response.outcome(), Some(Outcome::NotDone));
    let error = response.into_result().unwrap_err();
    assert!(error.to_string().contains("a new one would act again"), "{error}");
    assert_eq!(error.into_response().unwrap().text().await.unwrap(), CONFLICT);
}

// R68: unlike a 409 that says something else, or nothing.
#[tokio::test(start_paused = true)]
async fn another_conflict_is_an_ordinary_one() {
    for body in [r#"{"code":"card_used"}"#, "", "busy"] {
        let (result, transport) = sent(deposit(billing()), vec![answer(409).body(body)]).await;
        assert_eq!(stop(&result.unwrap()), StopReason::NotRetryable);
        assert_eq!(transport.seen().len(), 1);
    }
}

// R68: after an attempt that may have acted it is not our first try that is running.
#[tokio::test(start_paused = true)]
async fn a_conflict_after_an_unknown_attempt_is_told_from_one_in_progress() {
    let (result, transport) = sent(deposit(billing()), vec![hang(), answer(409).body(CONFLICT)]).await;
    let response = result.unwrap();
    assert_eq!((transport.seen().len(), stop(&response)), (2, StopReason::KeyConflict));
    assert_eq!(response.outcome(), Some(Outcome::NotDone));
    let busy = answer(409).body(r#"{"code":"busy"}"#);
    let (result, transport) = sent(deposit(billing()), vec![hang(), busy, answer(200)]).await;
    assert_eq!((transport.seen().len(), stop(&result.unwrap())), (3, StopReason::Done));
}

// R54, R55
#[tokio::test(start_paused = true)]
async fn a_key_that_the_service_would_refuse_is_refused_before_anything_is_sent() {
    let shorter = billing().with_max_length(9);
    let (len, longest) = (10, 9);
    let prefix = "sys_".to_owned();
    for (contract, text, kind) in [
        (billing(), "hunter:2", KeyErrorKind::Alphabet { at: 6 }),
        (billing(), "hunter|2", KeyErrorKind::Alphabet { at: 6 }),
        (billing(), "sys_hunter2", KeyErrorKind::Reserved { prefix }),
        (shorter, "hunter2222", KeyErrorKind::OverLimit { len, longest }),
    ] {
        let request = deposit(contract).idempotency_key(key(text));
        let (result, transport) = sent(request, vec![]).await;
        let error = result.unwrap_err();
        assert_eq!((error.kind(), transport.seen().len()), (ErrorKind::Request, 0));
        let source = std::error::Error::source(&error).unwrap();
        assert_eq!(source.downcast_ref::<KeyError>().unwrap().kind(), &kind);
        assert!(!format!("{error} {error:?} {source} {source:?}").contains("hunter"));
    }
}

// R55
#[tokio::test(start_paused = true)]
async fn a_key_of_255_bytes_is_sent() {
    let longest = "k".repeat(255);
    let (result, transport) = sent(deposit(billing()).idempotency_key(key(&longest)), vec![answer(200)]).await;
    assert_eq!(result.unwrap().status(), 200);
    assert_eq!(json_of(&transport.seen()[0].body)["request_id"], json!(longest));
}

// R59: where the service would make one up for a request without.
#[tokio::test(start_paused = true)]
async fn a_key_of_our_own_is_sent_whether_the_service_asks_for_it_or_not() {
    let (_, transport) = sent(deposit(billing()), vec![fail(ConnectionReset), answer(200)]).await;
    let ids: Vec<_> = transport
        .seen()
        .iter()
        .map(|seen| json_of(&seen.body)["request_id"].clone())
        .collect();
    assert!(ids[0].is_string() && ids[0] == ids[1], "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_without_a_place_for_the_key_is_refused_and_may_go_without() {
    let client = client(no_backoff());
    let form = || client.post(URL).body("amount=1").contract(billing());
    let (result, transport) = sent(form(), vec![]).await;
    let error = result.unwrap_err();
    assert_eq!((error.kind(), transport.seen().len()), (ErrorKind::Request, 0));
    let made = client.post(URL).contract(billing()).body_with(|| Ok("{}".into()));
    assert_eq!(sent(made, vec![]).await.0.unwrap_err().kind(), ErrorKind::Request);
    let (result, transport) = sent(form().without_idempotency_key(), vec![answer(200)]).await;
    assert_eq!(result.unwrap().status(), 200);
    assert_eq!(transport.seen()[0].body, "amount=1");
}

// field 38: under a contract that says what it means, the first answer may mean it.
#[tokio::test(start_paused = true)]
async fn a_request_in_progress_is_waited_for_with_the_same_key() {
    let busy = answer(409).header("retry-after", "2");
    let (result, transport) = sent(charge(IdempotencyContract::ietf()), vec![busy, answer(201)]).await;
    let response = result.unwrap();
    assert_eq!(
        (response.status().as_u16(), transport.times()),
        (201, vec![secs(0), secs(2)])
    );
    let seen = transport.seen();
    assert_eq!(seen[0].key(), seen[1].key());
    let quoted = response.attempts().unwrap().idempotency_key().unwrap().as_str();
    assert_eq!(seen[0].key(), format!("\"{quoted}\""));
    assert!(response.attempts().unwrap().exactly_once());
}

// field 38
#[tokio::test(start_paused = true)]
async fn without_a_word_on_progress_a_conflict_is_final_unless_we_may_be_the_other() {
    let contract = || IdempotencyContract::header("x-request-id").unwrap();
    let (result, transport) = sent(charge(contract()), vec![answer(409)]).await;
    assert_eq!(
        (stop(&result.unwrap()), transport.seen().len()),
        (StopReason::NotRetryable, 1)
    );
    let (result, transport) = sent(charge(contract()), vec![hang(), answer(409), answer(201)]).await;
    assert_eq!((stop(&result.unwrap()), transport.seen().len()), (StopReason::Done, 3));
}

#[tokio::test(start_paused = true)]
async fn another_content_under_a_known_key_is_a_conflict() {
    let (result, transport) = sent(charge(IdempotencyContract::ietf()), vec![answer(422)]).await;
    let response = result.unwrap();
    assert_eq!((stop(&response), transport.seen().len()), (StopReason::KeyConflict, 1));
    // Under the assumed contract a 422 is what it always was.
    let plain = client(no_backoff()).post(URL);
    assert_eq!(
        stop(&sent(plain, vec![answer(422)]).await.0.unwrap()),
        StopReason::NotRetryable
    );
}

// R98
#[tokio::test(start_paused = true)]
async fn a_service_without_keys_gets_none_and_no_repeat_that_could_act_twice() {
    for request in [
        charge(IdempotencyContract::none()),
        charge(IdempotencyContract::none()).idempotency_key(key("order-4711")),
    ] {
        let (result, transport) = sent(request, vec![fail(ConnectionReset)]).await;
        let error = result.unwrap_err();
        assert_eq!(
            (error.stop_reason(), error.outcome()),
            (StopReason::NotReplaySafe, Outcome::Unknown)
        );
        assert!(transport.seen()[0].header("idempotency-key").is_empty());
        assert_eq!(transport.seen().len(), 1);
    }
    // What was refused is repeated all the same.
    let refused = vec![answer(429), answer(200)];
    assert_eq!(
        sent(charge(IdempotencyContract::none()), refused).await.1.seen().len(),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_stored_is_not_asked_for_again_and_one_of_a_gateway_is() {
    let (result, transport) = sent(charge(IdempotencyContract::stripe()), vec![answer(500)]).await;
    let response = result.unwrap();
    assert_eq!((stop(&response), transport.seen().len()), (StopReason::NotRetryable, 1));
    assert_eq!(response.outcome(), Some(Outcome::Unknown));
    let replay = answer(200).header("idempotent-replayed", "true");
    let (result, transport) = sent(charge(IdempotencyContract::stripe()), vec![answer(502), replay]).await;
    assert_eq!(transport.seen().len(), 2);
    assert_eq!(result.unwrap().attempts().unwrap().replayed(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_is_found_in_the_body_of_the_refusal() {
    let mismatch = answer(400).body(r#"{"error":{"type":"idempotency_error"}}"#);
    let declined = answer(400).body(r#"{"error":{"type":"card_error"}}"#);
    for (step, reason) in [
        (mismatch, StopReason::KeyConflict),
        (declined, StopReason::NotRetryable),
    ] {
        let (result, transport) = sent(charge(IdempotencyContract::stripe()), vec![step]).await;
        let response = result.unwrap();
        assert_eq!((stop(&response), transport.seen().len()), (reason, 1));
        assert!(response.text().await.unwrap().contains("error"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_whose_body_never_comes_is_judged_by_its_status() {
    let cut = answer(409).announced(50, []);
    let (result, _) = sent(deposit(billing()), vec![cut]).await;
    assert_eq!(stop(&result.unwrap()), StopReason::NotRetryable);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_again_once_the_service_may_have_forgotten_the_key() {
    let contract = IdempotencyContract::ietf().with_retention(secs(5));
    let busy = |wait| answer(503).header("retry-after", wait);
    let operation = charge(contract).into_operation().unwrap();
    let transport = Transport::new([busy("3"), busy("2")]);
    let response = operation.send_with(transport.send()).await.unwrap();
    // The wait that would reach it is not made.
    assert_eq!(transport.times(), [secs(0), secs(3)]);
    assert_eq!((stop(&response), transport.elapsed()), (StopReason::Retention, secs(3)));
    tokio::time::sleep(secs(2)).await;
    let error = operation.send_with(transport.send()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.stop_reason()),
        (ErrorKind::Request, StopReason::Retention)
    );
    assert_eq!((transport.seen().len(), error.attempts().len()), (2, 0));
    let said = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        error.to_string().contains(&said) && said.contains("forgotten"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_later_send_has_what_is_left_of_the_retention() {
    let contract = IdempotencyContract::ietf().with_retention(secs(5));
    let operation = charge(contract).into_operation().unwrap();
    let hang_once = || Transport::new([hang(), after(millis(100), answer(201))]);
    tokio::time::sleep(secs(60)).await;
    let first = Transport::new([fail(io::ErrorKind::PermissionDenied)]);
    assert!(operation.send_with(first.send()).await.is_err());
    tokio::time::sleep(secs(3)).await;
    let second = hang_once();
    assert_eq!(operation.send_with(second.send()).await.unwrap().status(), 201);
    tokio::time::sleep(secs(1)).await;
    let error = operation.send_with(hang_once().send()).await.unwrap_err();
    assert_eq!(
        (error.stop_reason(), error.outcome()),
        (StopReason::Retention, Outcome::Completed)
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_key_there_is_nothing_to_forget() {
    let contract = IdempotencyContract::ietf().with_retention(secs(1));
    let request = client(no_backoff()).put(URL).contract(contract);
    let busy = answer(503).header("retry-after", "3");
    assert_eq!(sent(request, vec![busy, answer(200)]).await.1.seen().len(), 2);
}

// R96: a policy can ask for the word of the caller.
#[tokio::test(start_paused = true)]
async fn a_policy_may_trust_declared_contracts_only() {
    let policy = || no_backoff().unknown_retries(UnknownRetries::Declared);
    let assumed = client(policy()).post(URL);
    let (result, transport) = sent(assumed, vec![fail(ConnectionReset)]).await;
    let error = result.unwrap_err();
    assert_eq!(
        (error.stop_reason(), transport.seen().len()),
        (StopReason::NotReplaySafe, 1)
    );
    let declared = client(policy()).post(URL).contract(IdempotencyContract::ietf());
    let (result, transport) = sent(declared, vec![fail(ConnectionReset), answer(201)]).await;
    assert!(result.unwrap().attempts().unwrap().exactly_once());
    assert_eq!(transport.seen().len(), 2);
}

// R98: the request's contract before the group's before the client's.
#[tokio::test(start_paused = true)]
async fn every_group_and_every_request_may_have_a_contract_of_its_own() {
    let header = |name| IdempotencyContract::header(name).unwrap();
    let client = Client::builder(reqwest::Client::new())
        .idempotency(header("x-client"))
        .idempotency_for("payments", header("x-group"))
        .idempotency_for("https://mail.example.com", IdempotencyContract::none())
        .build();
    for (request, name) in [
        (client.post(URL), Some("x-client")),
        (client.post(URL).circuit("payments"), Some("x-group")),
        (client.post("https://mail.example.com/"), None),
        (
            client.post(URL).circuit("payments").contract(header("x-request")),
            Some("x-request"),
        ),
    ] {
        let operation = request.into_operation().unwrap();
        assert_eq!(operation.contract().unwrap().carries_key(), name.is_some());
        let transport = Transport::new([answer(200)]);
        operation.send_with(transport.send()).await.unwrap();
        let seen = &transport.seen()[0];
        for other in ["x-client", "x-group", "x-request", "idempotency-key"] {
            assert_eq!(
                seen.header(other).len(),
                usize::from(name == Some(other)),
                "{name:?} {other}"
            );
        }
    }
}

/// A wallet that credits once for each key, and whose answers get lost.
#[derive(Default)]
struct Wallet {
    credits: Mutex<HashMap<String, u64>>,
    lost: Mutex<u32>,
}

impl Wallet {
    fn losing(answers: u32) -> Arc<Self> {
        Arc::new(Self {
            lost: Mutex::new(answers),
            ..Self::default()
        })
    }

    fn balance(&self) -> u64 {
        self.credits.lock().unwrap().values().sum()
    }

    fn send(self: &Arc<Self>) -> impl Fn(Request) -> std::future::Ready<io::Result<Response>> + Send + Sync + use<> {
        let wallet = Arc::clone(self);
        move |request| {
            let body = json_of(request.body().unwrap().as_bytes().unwrap());
            let (id, amount) = (body["request_id"].as_str().unwrap(), body["amount"].as_u64().unwrap());
            let new = wallet.credits.lock().unwrap().insert(id.to_owned(), amount).is_none();
            let mut lost = wallet.lost.lock().unwrap();
            if *lost > 0 {
                *lost -= 1;
                return std::future::ready(Err(ConnectionReset.into()));
            }
            let answer = json!({ "replay": !new }).to_string();
            std::future::ready(Ok(http::Response::new(answer).into()))
        }
    }
}

// R79, R139: by the balance, not by the statuses.
#[tokio::test(start_paused = true)]
async fn lost_answers_credit_a_wallet_once() {
    let wallet = Wallet::losing(2);
    let response = deposit(billing()).send_with(wallet.send()).await.unwrap();
    assert_eq!(response.attempts().unwrap().replayed(), Some(true));
    assert_eq!(wallet.balance(), 100);
}

// R79, R48: and so it is when the operation is sent again, or made again with its key.
#[tokio::test(start_paused = true)]
async fn an_operation_that_is_sent_again_credits_a_wallet_once() {
    let wallet = Wallet::losing(4);
    let operation = deposit(billing()).into_operation().unwrap();
    let error = operation.send_with(wallet.send()).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    let again = deposit(billing()).idempotency_key(error.idempotency_key().unwrap().clone());
    assert_eq!(
        again.send_with(wallet.send()).await.unwrap().outcome(),
        Some(Outcome::Completed)
    );
    assert_eq!(
        operation.send_with(wallet.send()).await.unwrap().outcome(),
        Some(Outcome::Completed)
    );
    assert_eq!(wallet.balance(), 100);
}

// R100, R94: two machines that share nothing but the names of things.
#[tokio::test(start_paused = true)]
async fn two_clients_with_one_stable_key_act_once() {
    let wallet = Wallet::losing(1);
    for _ in 0..2 {
        let key = IdempotencyKey::stable("shop-test", "deposit", 4711, 1);
        let response = deposit(billing())
            .idempotency_key(key)
            .send_with(wallet.send())
            .await
            .unwrap();
        assert_eq!(response.outcome(), Some(Outcome::Completed));
    }
    assert_eq!(wallet.balance(), 100);
}

// R53: the receiving side does two things under one key, each of them once.
#[tokio::test(start_paused = true)]
async fn each_leg_of_a_composite_effect_can_be_repeated_alone() {
    let (wallet, fees) = (Wallet::losing(2), Wallet::losing(0));
    let received = key("order-4711");
    let contract = || IdempotencyContract::body_field("/request_id").unwrap();
    for _ in 0..2 {
        for (service, leg) in [(&wallet, "wallet"), (&fees, "fees")] {
            let request = deposit(contract()).idempotency_key(received.derive(leg));
            let response = request.send_with(service.send()).await.unwrap();
            assert_eq!(response.outcome(), Some(Outcome::Completed));
        }
    }
    assert_eq!((wallet.balance(), fees.balance()), (100, 100));
    assert!(wallet.credits.lock().unwrap().contains_key("order-4711:wallet"));
    assert!(fees.credits.lock().unwrap().contains_key("order-4711:fees"));
}

// R76: while an operation is in progress, the waits for it grow.
#[tokio::test(start_paused = true)]
async fn what_is_resent_is_resent_at_growing_distances() {
    let policy = no_backoff()
        .backoff(Backoff::equal_jitter(secs(1), secs(9)))
        .max_attempts(4);
    let transport = Transport::new([fail(ConnectionReset), answer(409), fail(ConnectionReset), answer(201)]);
    let request = client(policy).post(URL).contract(IdempotencyContract::ietf());
    request.send_with(transport.send()).await.unwrap();
    let times = transport.times();
    let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (wait, bound) in waits.iter().zip([1, 2, 4]) {
        assert!(secs(bound) / 2 <= *wait && *wait <= secs(bound), "{waits:?}");
    }
    assert!(
        transport
            .seen()
            .iter()
            .all(|seen| seen.key() == transport.seen()[0].key())
    );
}

// R147
#[tokio::test(start_paused = true)]
async fn a_body_that_is_made_anew_and_differs_is_not_sent_under_the_same_key() {
    let made = std::sync::atomic::AtomicU32::new(0);
    let body = move || {
        let time = made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(format!("sent at {time}").into())
    };
    let request = client(no_backoff()).post(URL).body_with(body);
    let (result, transport) = sent(request, vec![answer(500)]).await;
    let error = result.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Request, Outcome::Unknown));
    assert_eq!((transport.seen().len(), error.status().unwrap().as_u16()), (1, 500));
}

#[tokio::test(start_paused = true)]
async fn a_get_under_a_contract_carries_no_key_and_means_nothing_by_a_409() {
    let request = client(no_backoff()).get(URL).contract(IdempotencyContract::ietf());
    let (result, transport) = sent(request, vec![answer(409)]).await;
    assert_eq!(
        (stop(&result.unwrap()), transport.seen().len()),
        (StopReason::NotRetryable, 1)
    );
    assert!(transport.seen()[0].header("idempotency-key").is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_key_may_stand_in_the_query_of_any_method() {
    let contract = IdempotencyContract::query("request_id").unwrap();
    let client = client(no_backoff());
    let request = client
        .request(Method::DELETE, format!("{URL}?all=1"))
        .contract(contract);
    let (_, transport) = sent(request.idempotency_key(key("a&b")), vec![answer(500), answer(204)]).await;
    for seen in transport.seen() {
        assert_eq!(seen.url.query(), Some("all=1&request_id=a%26b"));
    }
}

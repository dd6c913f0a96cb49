use super::*;
use serde_json::json;

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::parse(text).unwrap()
}

fn kind(contract: &IdempotencyContract, text: &str) -> Option<KeyErrorKind> {
    contract.check(&key(text)).err().map(|error| error.kind().clone())
}

fn billing() -> IdempotencyContract {
    let conflict = Sign::status(StatusCode::CONFLICT).and_field("/code", "request_id_conflict");
    IdempotencyContract::body_field("/request_id")
        .unwrap()
        .with_alphabet(|c| !matches!(c, ':' | '|'))
        .with_reserved_prefix("sys_")
        .with_replay(Sign::field("/replay", true).unwrap())
        .with_mismatch(conflict.unwrap())
        .with_missing(
            Sign::status(StatusCode::BAD_REQUEST)
                .and_field("/code", "request_id_required")
                .unwrap(),
        )
}

struct Seen {
    status: u16,
    headers: HeaderMap,
    body: Option<String>,
}

fn seen(status: u16, body: Option<serde_json::Value>) -> Seen {
    let headers = HeaderMap::new();
    let body = body.map(|body| body.to_string());
    Seen { status, headers, body }
}

impl Seen {
    fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    fn answer(&self) -> Answer<'_> {
        let status = StatusCode::from_u16(self.status).unwrap();
        Answer::new(status, &self.headers, self.body.as_deref().map(str::as_bytes))
    }

    fn meaning(&self, contract: &IdempotencyContract) -> Option<Meaning> {
        contract.meaning(&self.answer())
    }

    fn replayed(&self, contract: &IdempotencyContract) -> Option<bool> {
        contract.replayed(&self.answer())
    }
}

// R54
#[test]
fn characters_and_beginnings_that_the_service_keeps_to_itself_are_refused() {
    assert_eq!(kind(&billing(), "order-4711"), None);
    assert_eq!(kind(&billing(), "order:4711"), Some(KeyErrorKind::Alphabet { at: 5 }));
    assert_eq!(kind(&billing(), "a|b"), Some(KeyErrorKind::Alphabet { at: 1 }));
    let prefix = "sys_".to_owned();
    assert_eq!(kind(&billing(), "sys_1"), Some(KeyErrorKind::Reserved { prefix }));
    assert_eq!(kind(&billing(), "my_sys_1"), None);
}

// R55
#[test]
fn a_contract_may_ask_for_shorter_keys_and_not_for_longer_ones() {
    let contract = billing().with_max_length(36);
    assert_eq!(kind(&contract, &"k".repeat(36)), None);
    let (len, longest) = (37, 36);
    assert_eq!(
        kind(&contract, &"k".repeat(37)),
        Some(KeyErrorKind::OverLimit { len, longest })
    );
    assert_eq!(kind(&billing().with_max_length(1_000), &"k".repeat(255)), None);
}

// R57
#[test]
fn a_random_key_and_a_computed_one_are_within_the_rules() {
    let contract = billing();
    for _ in 0..100 {
        assert_eq!(contract.check(&IdempotencyKey::random()), Ok(()));
    }
    assert_eq!(contract.check(&IdempotencyKey::stable("a:b|", "sys_", "x", 1)), Ok(()));
}

// R53: only where the alphabet has a colon.
#[test]
fn a_derived_key_is_not_sent_where_the_service_forbids_its_colon() {
    let derived = key("k").derive("wallet");
    assert_eq!(
        kind(&billing(), derived.as_str()),
        Some(KeyErrorKind::Alphabet { at: 1 })
    );
    assert_eq!(ASSUMED.check(&derived), Ok(()));
}

// R68
#[test]
fn a_sign_needs_all_that_it_names() {
    let conflict = json!({"code": "request_id_conflict"});
    assert_eq!(
        seen(409, Some(conflict.clone())).meaning(&billing()),
        Some(Meaning::Mismatch)
    );
    assert_eq!(seen(400, Some(conflict)).meaning(&billing()), None);
    assert_eq!(seen(409, Some(json!({"code": "other"}))).meaning(&billing()), None);
    assert_eq!(seen(409, None).meaning(&billing()), None);
    let required = json!({"code": "request_id_required"});
    assert_eq!(seen(400, Some(required)).meaning(&billing()), Some(Meaning::Missing));
}

// R64
#[test]
fn a_replay_shows_in_a_member_of_the_body() {
    assert_eq!(
        seen(200, Some(json!({"replay": true}))).replayed(&billing()),
        Some(true)
    );
    for body in [
        json!({"replay": false}),
        json!({"replay": "true"}),
        json!({}),
        json!([]),
    ] {
        assert_eq!(seen(200, Some(body)).replayed(&billing()), Some(false));
    }
    assert_eq!(seen(200, None).replayed(&billing()), None);
}

// R65
#[test]
fn a_replay_shows_in_the_status() {
    let contract = billing().with_replay(Sign::status(StatusCode::OK));
    assert_eq!(seen(202, Some(json!({}))).replayed(&contract), Some(false));
    assert_eq!(seen(200, Some(json!({}))).replayed(&contract), Some(true));
}

#[test]
fn an_unread_body_leaves_a_replay_open_only_where_it_could_tell() {
    let contract = IdempotencyContract::stripe().with_replay(Sign::field("/replay", true).unwrap());
    let header = seen(200, None).with_header("idempotent-replayed", "true");
    assert_eq!(header.replayed(&contract), Some(true));
    assert_eq!(seen(200, None).replayed(&contract), None);
}

// R66
#[test]
fn without_a_sign_nobody_knows_of_a_replay() {
    let contract = IdempotencyContract::body_field("/request_id").unwrap();
    assert_eq!(seen(200, Some(json!({"replay": true}))).replayed(&contract), None);
}

// R96
#[test]
fn the_preset_of_the_draft_has_its_statuses() {
    let contract = IdempotencyContract::ietf();
    assert!(contract.carries_key());
    assert_eq!(contract.retention(), None);
    assert_eq!(seen(409, None).meaning(&contract), Some(Meaning::InProgress));
    assert_eq!(seen(422, None).meaning(&contract), Some(Meaning::Mismatch));
    assert_eq!(seen(400, None).meaning(&contract), Some(Meaning::Ordinary));
    assert!(!contract.asks_body(StatusCode::CONFLICT, &HeaderMap::new()));
}

// R96
#[test]
fn the_preset_of_stripe_has_its_signs() {
    let contract = IdempotencyContract::stripe();
    assert_eq!(contract.retention(), Some(DAY));
    assert_eq!(seen(409, None).meaning(&contract), Some(Meaning::InProgress));
    let mismatch = json!({"error": {"type": "idempotency_error"}});
    assert_eq!(seen(400, Some(mismatch)).meaning(&contract), Some(Meaning::Mismatch));
    let card = json!({"error": {"type": "invalid_request_error"}});
    assert_eq!(seen(400, Some(card)).meaning(&contract), Some(Meaning::Ordinary));
    assert_eq!(seen(500, None).meaning(&contract), Some(Meaning::Stored));
    assert_eq!(seen(503, None).meaning(&contract), Some(Meaning::Ordinary));
    let stored = seen(503, None).with_header("idempotent-replayed", "TRUE");
    assert_eq!(stored.meaning(&contract), Some(Meaning::Stored));
    assert_eq!(stored.replayed(&contract), Some(true));
    assert_eq!(seen(200, None).replayed(&contract), Some(false));
    assert!(contract.asks_body(StatusCode::BAD_REQUEST, &HeaderMap::new()));
    assert!(!contract.asks_body(StatusCode::OK, &HeaderMap::new()));
}

#[test]
fn where_a_contract_says_how_progress_shows_nothing_else_is_taken_for_it() {
    let sign = Sign::status(StatusCode::CONFLICT).and_field("/code", "busy").unwrap();
    let contract = IdempotencyContract::none().with_in_progress(sign);
    assert_eq!(
        seen(409, Some(json!({"code": "busy"}))).meaning(&contract),
        Some(Meaning::InProgress)
    );
    assert_eq!(
        seen(409, Some(json!({"code": "full"}))).meaning(&contract),
        Some(Meaning::Ordinary)
    );
    // Unread it may be one.
    assert_eq!(seen(409, None).meaning(&contract), None);
}

#[test]
fn text_that_makes_no_contract_is_named() {
    let name = "a b".to_owned();
    assert_eq!(
        IdempotencyContract::header(&name).unwrap_err(),
        ContractError::Header { name }
    );
    let pointer = "request_id".to_owned();
    assert_eq!(
        IdempotencyContract::body_field(&pointer).unwrap_err(),
        ContractError::Pointer {
            pointer: pointer.clone()
        }
    );
    assert_eq!(
        Sign::field(&pointer, 1).unwrap_err(),
        ContractError::Pointer { pointer }
    );
    assert_eq!(IdempotencyContract::query("").unwrap_err(), ContractError::Parameter);
    let name = "x".to_owned();
    assert_eq!(
        Sign::header("x", "\n").unwrap_err(),
        ContractError::HeaderValue { name }
    );
}

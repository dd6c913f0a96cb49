use super::*;
use proptest::prelude::*;

use crate::idempotency::contract::ASSUMED;

fn request(method: Method) -> Request {
    Request::new(method, "https://api.example.com/charges?a=1&a=2".parse().unwrap())
}

fn with_header(value: &[u8]) -> Request {
    let mut request = request(Method::POST);
    request
        .headers_mut()
        .append("Idempotency-KEY", HeaderValue::from_bytes(value).unwrap());
    request
}

fn with_body(body: &str) -> Request {
    let mut request = request(Method::POST);
    *request.body_mut() = Some(body.to_owned().into());
    request
}

fn header(request: &Request) -> Vec<&[u8]> {
    let lines = request.headers().get_all("idempotency-key").iter();
    lines.map(HeaderValue::as_bytes).collect()
}

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::parse(text).unwrap()
}

fn given(text: &str) -> KeyChoice {
    KeyChoice::Given(key(text))
}

fn fresh(wanted: bool) -> Option<IdempotencyKey> {
    wanted.then(IdempotencyKey::random)
}

fn placed(request: &mut Request, contract: &IdempotencyContract, choice: KeyChoice) -> Option<(IdempotencyKey, bool)> {
    place(request, contract, choice, fresh).unwrap()
}

fn refused(request: &mut Request, contract: &IdempotencyContract, choice: KeyChoice) -> KeyErrorKind {
    let error = place(request, contract, choice, fresh).unwrap_err();
    error.downcast_ref::<KeyError>().unwrap().kind().clone()
}

fn contracts() -> Vec<IdempotencyContract> {
    struct InUserAgent;

    impl KeyPlacement for InUserAgent {
        fn write(&self, request: &mut Request, key: &IdempotencyKey) -> Result<(), BoxError> {
            request.headers_mut().insert("user-agent", key.as_str().parse()?);
            Ok(())
        }

        fn read(&self, headers: &HeaderMap, _: &Uri, _: &[u8]) -> Option<String> {
            Some(headers.get("user-agent")?.to_str().ok()?.to_owned())
        }
    }

    vec![
        IdempotencyContract::header("X-Request-Id").unwrap(),
        IdempotencyContract::quoted_header("Idempotency-Key").unwrap(),
        IdempotencyContract::body_field("/meta/request_id").unwrap(),
        IdempotencyContract::query("request_id").unwrap(),
        IdempotencyContract::custom(InUserAgent),
    ]
}

fn received(request: &Request, contract: &IdempotencyContract) -> Option<IdempotencyKey> {
    let uri = request.url().as_str().parse().unwrap();
    let body = request.body().and_then(Body::as_bytes).unwrap_or_default();
    contract.key_of(request.headers(), &uri, body).unwrap()
}

// R11, R43
#[test]
fn post_and_patch_get_a_key_of_their_own() {
    for method in [Method::POST, Method::PATCH] {
        let mut request = request(method);
        let (key, given) = placed(&mut request, &ASSUMED, KeyChoice::ByMethod).unwrap();
        assert!(!given);
        assert_eq!(header(&request), [key.as_str().as_bytes()]);
    }
}

// R42
#[test]
fn other_methods_get_a_key_on_request_only() {
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let mut request = request(method);
        assert_eq!(placed(&mut request, &ASSUMED, KeyChoice::ByMethod), None);
        assert!(request.headers().is_empty());
        assert!(placed(&mut request, &ASSUMED, given("k1")).unwrap().1);
        assert_eq!(header(&request), [b"k1"]);
    }
}

#[test]
fn a_post_can_go_without() {
    let mut request = request(Method::POST);
    assert_eq!(placed(&mut request, &ASSUMED, KeyChoice::Without), None);
    assert!(request.headers().is_empty());
}

// field 35
#[test]
fn the_callers_header_wins_and_stands_once() {
    let mut request = with_header(b"\"quoted\"");
    let (key, given) = placed(&mut request, &ASSUMED, KeyChoice::ByMethod).unwrap();
    assert_eq!((key.as_str(), given), ("\"quoted\"", true));
    assert_eq!(header(&request), [b"\"quoted\""]);
}

#[test]
fn two_keys_for_one_operation_are_refused() {
    let mut request = with_header(b"a");
    assert!(placed(&mut request, &ASSUMED, given("a")).is_some());
    assert_eq!(refused(&mut request, &ASSUMED, given("b")), KeyErrorKind::Ambiguous);
    assert_eq!(
        refused(&mut request, &ASSUMED, KeyChoice::Without),
        KeyErrorKind::Unwanted
    );
    request
        .headers_mut()
        .append("idempotency-key", HeaderValue::from_static("a"));
    assert_eq!(
        refused(&mut request, &ASSUMED, KeyChoice::ByMethod),
        KeyErrorKind::Ambiguous
    );
}

#[test]
fn a_header_that_is_no_key_is_refused() {
    for value in [&b""[..], b"a b", b"\xff\xfe"] {
        assert!(place(&mut with_header(value), &ASSUMED, KeyChoice::ByMethod, fresh).is_err());
    }
}

#[test]
fn the_debug_of_the_headers_does_not_show_the_key() {
    for contract in contracts() {
        let mut request = with_body("{}");
        placed(&mut request, &contract, given("hunter2"));
        let shown = format!("{:?}", request.headers());
        assert!(
            !shown.contains("hunter2") || shown.contains("user-agent"),
            "{contract:?}"
        );
    }
    let mut request = with_header(b"hunter2");
    placed(&mut request, &ASSUMED, KeyChoice::ByMethod);
    assert!(!format!("{:?}", request.headers()).contains("hunter2"));
}

#[test]
fn a_quoted_key_is_a_string_of_structured_fields() {
    let contract = IdempotencyContract::ietf();
    let mut request = request(Method::POST);
    placed(&mut request, &contract, given("a\"b\\c"));
    assert_eq!(header(&request), [br#""a\"b\\c""#]);
    assert_eq!(received(&request, &contract), Some(key("a\"b\\c")));
}

#[test]
fn a_receiver_takes_a_quoted_key_bare_and_with_parameters() {
    for value in [&b"k-1"[..], b"\"k-1\"", b" \"k-1\" ; p=1"] {
        let request = with_header(value);
        assert_eq!(
            received(&request, &IdempotencyContract::ietf()),
            Some(key("k-1")),
            "{value:?}"
        );
    }
}

// R60
#[test]
fn a_key_in_the_body_leaves_headers_and_query_alone() {
    let contract = IdempotencyContract::body_field("/request_id").unwrap();
    let mut request = with_body(r#"{"amount":0.10}"#);
    request.headers_mut().insert(CONTENT_LENGTH, 15.into());
    placed(&mut request, &contract, given("k-1"));
    let body = request.body().and_then(Body::as_bytes).unwrap();
    assert_eq!(body, br#"{"request_id":"k-1","amount":0.10}"#);
    assert_eq!(request.headers().get(CONTENT_LENGTH).unwrap(), "34");
    assert_eq!(request.headers().len(), 1);
    assert_eq!(request.url().query(), Some("a=1&a=2"));
}

#[test]
fn a_body_that_cannot_hold_the_key_it_needs_is_refused() {
    let contract = IdempotencyContract::body_field("/request_id").unwrap();
    for mut request in [request(Method::POST), with_body("a=b"), with_body("[]")] {
        assert_eq!(
            refused(&mut request, &contract, KeyChoice::ByMethod),
            KeyErrorKind::NoJsonBody
        );
        assert_eq!(placed(&mut request, &contract, KeyChoice::Without), None);
    }
    let mut put = with_body("a=b");
    *put.method_mut() = Method::PUT;
    assert_eq!(placed(&mut put, &contract, KeyChoice::ByMethod), None);
}

#[test]
fn the_callers_key_wins_wherever_it_stands() {
    let body = IdempotencyContract::body_field("/request_id").unwrap();
    let mut request = with_body(r#"{ "request_id" : "mine" }"#);
    let found = placed(&mut request, &body, KeyChoice::ByMethod).unwrap();
    assert_eq!(found, (key("mine"), true));
    assert_eq!(
        request.body().and_then(Body::as_bytes).unwrap(),
        br#"{ "request_id" : "mine" }"#
    );
    assert_eq!(refused(&mut request, &body, given("other")), KeyErrorKind::Ambiguous);

    let query = IdempotencyContract::query("a").unwrap();
    assert_eq!(
        refused(&mut request, &query, KeyChoice::ByMethod),
        KeyErrorKind::Ambiguous
    );
    let query = IdempotencyContract::query("k").unwrap();
    request.url_mut().set_query(Some("k=mine&x=%20"));
    assert!(placed(&mut request, &query, KeyChoice::ByMethod).unwrap().1);
    assert_eq!(request.url().query(), Some("k=mine&x=%20"));
}

// R98
#[test]
fn without_a_place_a_key_names_the_operation_and_is_not_sent() {
    let contract = IdempotencyContract::none();
    let mut request = with_body("{}");
    assert_eq!(placed(&mut request, &contract, KeyChoice::ByMethod), None);
    assert_eq!(placed(&mut request, &contract, given("k")).unwrap().0, key("k"));
    assert!(request.headers().is_empty());
    assert_eq!(request.url().query(), Some("a=1&a=2"));
}

// R54
#[test]
fn a_key_that_the_contract_forbids_is_refused_wherever_it_comes_from() {
    let contract = IdempotencyContract::header("idempotency-key")
        .unwrap()
        .with_reserved_prefix("sys_");
    let reserved = |kind| matches!(kind, KeyErrorKind::Reserved { prefix } if prefix == "sys_");
    assert!(reserved(refused(&mut request(Method::POST), &contract, given("sys_1"))));
    assert!(reserved(refused(
        &mut with_header(b"sys_1"),
        &contract,
        KeyChoice::ByMethod
    )));
}

proptest! {
    // One value describes both ends.
    #[test]
    fn what_is_placed_is_what_the_other_end_reads(text in "[!-~]{1,40}") {
        for contract in contracts() {
            let mut request = with_body(r#"{"amount":1}"#);
            placed(&mut request, &contract, given(&text));
            prop_assert_eq!(received(&request, &contract), Some(key(&text)));
        }
    }

    // Whatever a hook did to the request.
    #[test]
    fn a_key_that_was_lost_or_changed_is_put_back(text in "[!-~]{1,40}", other in prop::option::of("[!-~]{1,9}")) {
        for contract in contracts() {
            let mut request = with_body(r#"{"amount":1}"#);
            placed(&mut request, &contract, given(&text));
            let original = request.try_clone().unwrap();
            request.headers_mut().clear();
            request.url_mut().set_query(Some("b=1"));
            if let (Some(other), false) = (&other, matches!(contract.placement(), Placement::Body(_))) {
                contract.placement().write(&mut request, &key(other)).unwrap();
            }
            contract.placement().restore(&mut request, &key(&text), &original).unwrap();
            prop_assert_eq!(received(&request, &contract), Some(key(&text)));
        }
    }

    #[test]
    fn no_header_makes_it_panic(value in prop::collection::vec(32..=255_u8, 0..12)) {
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            let request = with_header(value.as_bytes());
            let _ = IdempotencyContract::ietf().key_of(request.headers(), &Uri::default(), b"");
        }
    }
}

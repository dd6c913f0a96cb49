//! A policy as configuration.

use std::collections::HashMap;
use std::time::Duration;

use config::{Config, Environment};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};
use steadfast::{Backoff, CircuitBreaker, IdempotencyKey, Policy, PolicyBuilder, RetryBudget, UnknownRetries};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn built(builder: PolicyBuilder) -> Policy {
    builder.build().unwrap()
}

fn policy(text: &str) -> Policy {
    toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The same value in each format, and what its error says; `config` stands for what reads the environment.
fn refusals(written: &Value) -> Vec<(&'static str, String)> {
    fn told<E: ToString>(format: &'static str, read: Result<Policy, E>) -> Option<(&'static str, String)> {
        Some((format, read.err()?.to_string()))
    }
    let json = written.to_string();
    let value: config::Value = serde_json::from_value(written.clone()).unwrap();
    let refusals = [
        told("json", serde_json::from_str(&json)),
        told("value", serde_json::from_value(written.clone())),
        told("yaml", yaml_serde::from_str(&json)),
        told("toml", toml::Table::try_from(written).unwrap().try_into()),
        told("config", value.try_deserialize()),
    ];
    refusals.into_iter().flatten().collect()
}

/// That no format reads it, and each says what is wrong, after the path if there is one.
fn assert_refused(written: &Value, path: &str, what: &str) {
    let refusals = refusals(written);
    assert_eq!(refusals.len(), 5, "{written} is read: {refusals:?}");
    for (format, refusal) in refusals {
        assert!(
            refusal.starts_with(path) && refusal.contains(what),
            "{format} says of {written}: {refusal}"
        );
    }
}

const EVERY_SETTING: &str = r#"
    max_attempts = 7
    attempt_timeout = "1s 500ms"
    deadline = "2m"
    min_attempt_time = "20ms"
    max_retry_after = "1h"
    response_buffer = 0
    stall_timeout = "6s"
    unknown_retries = "declared"
    scope_headers = true
    retry_after = false
    retry_after_ms = false

    [backoff]
    kind = "equal_jitter"
    base = "50ms"
    cap = "2s"
    throttled_base = "300ms"

    [budget]
    ratio = 0.5
    burst = 9

    [circuit_breaker]
    failure_ratio = 1
    minimum_throughput = 4
    window = "1m"
    open_for = "2s"
    max_open_for = "8s"
    half_open_probes = 2
"#;

fn every_setting() -> Policy {
    let circuit = CircuitBreaker::default()
        .failure_ratio(1.0)
        .minimum_throughput(4)
        .window(SECOND * 60)
        .open_for(SECOND * 2)
        .max_open_for(SECOND * 8)
        .half_open_probes(2);
    let policy = Policy::builder()
        .max_attempts(7)
        .attempt_timeout(MS * 1500)
        .deadline(SECOND * 120)
        .min_attempt_time(MS * 20)
        .max_retry_after(SECOND * 3600)
        .response_buffer(0)
        .stall_timeout(SECOND * 6)
        .unknown_retries(UnknownRetries::Declared)
        .scope_headers(true)
        .retry_after(false)
        .retry_after_ms(false)
        .backoff(Backoff::equal_jitter(MS * 50, SECOND * 2).throttled_base(MS * 300))
        .budget(RetryBudget::new(0.5, 9))
        .circuit_breaker(circuit);
    built(policy)
}

// serde
#[test]
fn every_setting_is_read_to_what_a_builder_makes_of_it() {
    assert_eq!(policy(EVERY_SETTING), every_setting());
    let written: Value = toml::from_str(EVERY_SETTING).unwrap();
    let json = serde_json::to_string_pretty(&written).unwrap();
    assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), every_setting());
    assert_eq!(serde_json::from_value::<Policy>(written).unwrap(), every_setting());
    let yaml = "
        deadline: 2m
        attempt_timeout: 1s 500ms
        unknown_retries: never
        budget: unlimited
        circuit_breaker: {window: 10s}
        backoff:
          kind: none
    ";
    let expected = Policy::builder()
        .deadline(SECOND * 120)
        .attempt_timeout(MS * 1500)
        .unknown_retries(UnknownRetries::Never)
        .budget(RetryBudget::unlimited())
        .circuit_breaker(CircuitBreaker::default().window(SECOND * 10))
        .backoff(Backoff::none());
    assert_eq!(yaml_serde::from_str::<Policy>(yaml).unwrap(), built(expected));
}

// serde
#[test]
fn every_kind_of_backoff_has_its_own_waits() {
    for (written, backoff) in [
        (
            "kind = 'full_jitter', base = '2s', cap = '9s'",
            Backoff::full_jitter(SECOND * 2, SECOND * 9),
        ),
        (
            "kind = 'equal_jitter', base = '1ms', cap = '9s'",
            Backoff::equal_jitter(MS, SECOND * 9),
        ),
        (
            "kind = 'decorrelated_jitter', base = '1ms', cap = '9s', throttled_base = '7ms'",
            Backoff::decorrelated_jitter(MS, SECOND * 9).throttled_base(MS * 7),
        ),
        ("kind = 'constant', wait = '3s'", Backoff::constant(SECOND * 3)),
        (
            "kind = 'constant', wait = '3s', throttled_base = '5s'",
            Backoff::constant(SECOND * 3).throttled_base(SECOND * 5),
        ),
        ("kind = 'none'", Backoff::none()),
    ] {
        let read = policy(&format!("backoff = {{ {written} }}"));
        assert_eq!(read, built(Policy::builder().backoff(backoff)), "{written}");
    }
}

// serde
#[test]
fn a_setting_that_is_not_there_or_null_has_its_default() {
    assert_eq!(policy(""), Policy::default());
    assert_eq!(serde_json::from_str::<Policy>("{}").unwrap(), Policy::default());
    let nulls = "{deadline: ~, max_attempts: null, backoff: , budget: {ratio: }, circuit_breaker: ~}";
    assert_eq!(yaml_serde::from_str::<Policy>(nulls).unwrap(), Policy::default());
    // Less than its default timeout: what was not written contradicts nothing.
    let read = policy("deadline = '5s'");
    assert_eq!(read, built(Policy::builder().deadline(SECOND * 5)));
    for (written, budget) in [
        ("budget = {}", RetryBudget::new(0.2, 50)),
        ("budget.ratio = 0.1", RetryBudget::new(0.1, 50)),
        ("budget.burst = 5", RetryBudget::new(0.2, 5)),
    ] {
        assert_eq!(policy(written), built(Policy::builder().budget(budget)), "{written}");
    }
}

// serde
#[test]
fn a_circuit_breaker_is_off_unless_it_is_written_down() {
    let circuit = CircuitBreaker::default;
    for (written, circuit) in [
        ("circuit_breaker = true", Some(circuit())),
        ("circuit_breaker = {}", Some(circuit())),
        (
            "circuit_breaker.open_for = '2m'",
            Some(circuit().open_for(SECOND * 120)),
        ),
        ("circuit_breaker = false", None),
        ("", None),
    ] {
        assert_eq!(policy(written).circuit_breaker(), circuit.as_ref(), "{written}");
    }
}

// serde
#[test]
fn an_unknown_setting_is_refused_by_its_path() {
    for (path, written) in [
        ("max_atempts", json!({"max_atempts": 3})),
        ("max-attempts", json!({"max-attempts": 3})),
        ("circuit_breaker.widnow", json!({"circuit_breaker": {"widnow": "5s"}})),
        ("budget.reserve", json!({"budget": {"burst": 5, "reserve": 5}})),
        ("backoff.factor", json!({"backoff": {"kind": "none", "factor": 2}})),
    ] {
        assert_refused(&written, &format!("{path}: "), "unknown field `");
    }
}

// serde
#[test]
fn a_bad_value_is_refused_by_its_path_in_every_format() {
    for (path, bad, expected) in [
        ("max_attempts", json!(-1), "a whole number from 0 to 4294967295"),
        ("max_attempts", json!(4_294_967_296_u64), "a whole number"),
        ("max_attempts", json!(2.6), "a whole number"),
        ("max_attempts", json!("three"), "a whole number"),
        ("max_attempts", json!(""), "a whole number"),
        ("max_attempts", json!(true), "a whole number"),
        ("max_attempts", json!([3]), "a whole number"),
        ("max_attempts", json!({"at_most": 3}), "a whole number"),
        ("response_buffer", json!(-1), "a whole number of bytes"),
        ("response_buffer", json!("1 MiB"), "a whole number of bytes"),
        ("deadline", json!("5 parsecs"), "a duration"),
        ("deadline", json!("-5s"), "a duration"),
        ("deadline", json!("s"), "a duration"),
        ("deadline", json!("99999999999999999999s"), "a duration"),
        ("attempt_timeout", json!(true), "a duration"),
        ("min_attempt_time", json!([]), "a duration"),
        ("max_retry_after", json!({"secs": 5, "nanos": 0}), "a duration"),
        ("stall_timeout", json!("never"), "a duration"),
        ("unknown_retries", json!("Keyed"), r#""keyed", "declared" or "never""#),
        ("unknown_retries", json!(0), r#""keyed""#),
        ("scope_headers", json!(1), "true or false"),
        ("scope_headers", json!("on"), "true or false"),
        ("budget", json!("none"), r#"a table of ratio and burst, or "unlimited""#),
        ("budget", json!(0.2), "a table of ratio and burst"),
        ("budget", json!([0.2, 50]), "a table of ratio and burst"),
        ("budget.ratio", json!("a fifth"), "a number"),
        ("budget.burst", json!(0.5), "a whole number"),
        (
            "circuit_breaker",
            json!("default"),
            "a table of settings, or true or false",
        ),
        ("circuit_breaker", json!(1), "a table of settings"),
        ("circuit_breaker", json!([]), "a table of settings"),
        ("circuit_breaker.failure_ratio", json!("50%"), "a number"),
        ("circuit_breaker.minimum_throughput", json!(-20), "a whole number"),
        ("circuit_breaker.window", json!("5"), "a duration"),
        ("circuit_breaker.open_for", json!(5), "a duration"),
        ("circuit_breaker.max_open_for", json!("60"), "a duration"),
        ("circuit_breaker.half_open_probes", json!(1.5), "a whole number"),
        ("backoff", json!("none"), "a table with a kind"),
        ("backoff", json!(["none"]), "a table with a kind"),
        ("backoff.kind", json!("fibonacci"), r#""full_jitter", "equal_jitter""#),
        ("backoff.base", json!("fast"), "a duration"),
        ("backoff.cap", json!(10), "a duration"),
        ("backoff.throttled_base", json!(-1), "a duration"),
        ("backoff.wait", json!(0), "a duration"),
    ] {
        let written = path.rsplit('.').fold(bad, |value, name| json!({name: value}));
        assert_refused(&written, &format!("{path}: "), &format!(", expected {expected}"));
    }
    for list in ["[]", "[3]", "null", "3", r#""none""#] {
        let refusal = serde_json::from_str::<Policy>(list).unwrap_err().to_string();
        assert!(
            refusal.contains("a table of the settings of a policy"),
            "{list}: {refusal}"
        );
    }
}

// serde
#[test]
fn a_duration_without_a_unit_is_told_to_have_one() {
    for bare in [
        json!(250),
        json!(0),
        json!(-1),
        json!(2.5),
        json!("250"),
        json!("0"),
        json!("2.5"),
    ] {
        let expected = "expected a duration with its unit, such as \"250ms\" or \"1m 30s\"";
        assert_refused(&json!({"deadline": bare}), "deadline: ", expected);
    }
}

// serde
#[test]
fn a_backoff_must_have_the_waits_of_its_kind_and_no_others() {
    for (written, refusal) in [
        (json!({}), "backoff.kind is missing"),
        (json!({"base": "1s", "cap": "2s"}), "backoff.kind is missing"),
        (json!({"kind": "full_jitter", "base": "1s"}), "backoff.cap is missing"),
        (json!({"kind": "equal_jitter", "cap": "1s"}), "backoff.base is missing"),
        (json!({"kind": "decorrelated_jitter"}), "backoff.base is missing"),
        (json!({"kind": "constant"}), "backoff.wait is missing"),
        (
            json!({"kind": "full_jitter", "base": "1s", "cap": "2s", "wait": "1s"}),
            "backoff.wait is not a setting of this kind",
        ),
        (
            json!({"kind": "constant", "wait": "1s", "base": "1s"}),
            "backoff.base is not a setting of this kind",
        ),
        (
            json!({"kind": "constant", "wait": "1s", "cap": "1s"}),
            "backoff.cap is not a setting of this kind",
        ),
        (
            json!({"kind": "none", "base": "1s"}),
            "backoff.base is not a setting of this kind",
        ),
        (
            json!({"kind": "none", "cap": "1s"}),
            "backoff.cap is not a setting of this kind",
        ),
        (
            json!({"kind": "none", "wait": "1s"}),
            "backoff.wait is not a setting of this kind",
        ),
        (
            json!({"kind": "none", "throttled_base": "1s"}),
            "backoff.throttled_base is not a setting of this kind",
        ),
    ] {
        assert_refused(&json!({"backoff": written}), refusal, "");
    }
}

// serde
#[test]
fn settings_that_contradict_each_other_are_refused_with_every_rule_they_break() {
    let written = json!({
        "max_attempts": 0,
        "attempt_timeout": "10s",
        "deadline": "5s",
        "stall_timeout": "0s",
        "budget": {"ratio": "NaN", "burst": 0},
        "circuit_breaker": {
            "failure_ratio": 1.5, "minimum_throughput": 0, "window": "0s", "open_for": "9s", "max_open_for": "3s",
        },
    });
    let rules = [
        "max_attempts 0 is less than 1",
        "stall_timeout 0s is not longer than 0s",
        "attempt_timeout 10s is longer than deadline 5s",
        "budget.ratio NaN is not a finite number of at least 0.001",
        "budget.burst 0 is less than 1",
        "circuit_breaker.failure_ratio 1.5 is not above 0 and at most 1",
        "circuit_breaker.minimum_throughput 0 is less than 1",
        "circuit_breaker.open_for 9s is longer than circuit_breaker.max_open_for 3s",
        "circuit_breaker.window 0s is not longer than 0s",
    ];
    assert_refused(&written, "invalid policy: ", &rules.join("; "));
    let not_a_number = toml::from_str::<Policy>("budget.ratio = nan").unwrap_err();
    assert!(not_a_number.to_string().contains("budget.ratio NaN"), "{not_a_number}");
}

#[derive(Debug, Deserialize)]
struct Service {
    http: Http,
}

#[derive(Debug, Deserialize)]
struct Http {
    policies: HashMap<String, Policy>,
}

// serde
#[test]
fn a_service_has_policies_in_its_own_configuration() {
    let service: Service = toml::from_str(
        "
        [http.policies.payments]
        deadline = '5s'
        [http.policies.search]
        max_attempts = 1
        circuit_breaker = true
        ",
    )
    .unwrap();
    let Http { policies } = service.http;
    assert_eq!(policies["payments"], built(Policy::builder().deadline(SECOND * 5)));
    let search = Policy::builder()
        .max_attempts(1)
        .circuit_breaker(CircuitBreaker::default());
    assert_eq!(policies["search"], built(search));
}

// serde
#[test]
fn an_error_leads_to_the_setting_and_to_its_policy() {
    let text = "
        [http.policies.payments]
        circuit_breaker.window = 30
        [http.policies.search]
        max_attempts = 1
    ";
    let value: Value = toml::from_str(text).unwrap();
    let yaml = yaml_serde::from_str::<Service>(&value.to_string()).unwrap_err();
    let toml = toml::from_str::<Service>(text).unwrap_err();
    let config = Config::try_from(&value).unwrap();
    let config = config.try_deserialize::<Service>().unwrap_err();
    for (policy, error) in [
        ("http.policies.payments", yaml.to_string()),
        ("[http.policies.payments]", toml.to_string()),
        ("http.policies.payments", config.to_string()),
    ] {
        assert!(error.contains(policy), "{error}");
        assert!(
            error.contains("circuit_breaker.window: invalid value: integer `30`"),
            "{error}"
        );
    }
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    Environment::with_prefix("APP")
        .separator("__")
        .source(Some(variables.collect()))
}

fn service(sources: impl config::Source + Send + Sync + 'static) -> Result<Service, config::ConfigError> {
    Config::builder().add_source(sources).build()?.try_deserialize()
}

// serde
#[test]
fn a_policy_is_read_from_the_environment() {
    let variables = [
        ("APP__HTTP__POLICIES__PAYMENTS__MAX_ATTEMPTS", "7"),
        ("APP__HTTP__POLICIES__PAYMENTS__ATTEMPT_TIMEOUT", "1s 500ms"),
        ("APP__HTTP__POLICIES__PAYMENTS__DEADLINE", "2m"),
        ("APP__HTTP__POLICIES__PAYMENTS__MIN_ATTEMPT_TIME", "20ms"),
        ("APP__HTTP__POLICIES__PAYMENTS__MAX_RETRY_AFTER", "1h"),
        ("APP__HTTP__POLICIES__PAYMENTS__RETRY_AFTER", "false"),
        ("APP__HTTP__POLICIES__PAYMENTS__RETRY_AFTER_MS", "false"),
        ("APP__HTTP__POLICIES__PAYMENTS__RESPONSE_BUFFER", "0"),
        ("APP__HTTP__POLICIES__PAYMENTS__STALL_TIMEOUT", "6s"),
        ("APP__HTTP__POLICIES__PAYMENTS__UNKNOWN_RETRIES", "declared"),
        ("APP__HTTP__POLICIES__PAYMENTS__SCOPE_HEADERS", "true"),
        ("APP__HTTP__POLICIES__PAYMENTS__BACKOFF__KIND", "equal_jitter"),
        ("APP__HTTP__POLICIES__PAYMENTS__BACKOFF__BASE", "50ms"),
        ("APP__HTTP__POLICIES__PAYMENTS__BACKOFF__CAP", "2s"),
        ("APP__HTTP__POLICIES__PAYMENTS__BACKOFF__THROTTLED_BASE", "300ms"),
        ("APP__HTTP__POLICIES__PAYMENTS__BUDGET__RATIO", "0.5"),
        ("APP__HTTP__POLICIES__PAYMENTS__BUDGET__BURST", "9"),
        ("APP__HTTP__POLICIES__PAYMENTS__CIRCUIT_BREAKER__FAILURE_RATIO", "1"),
        (
            "APP__HTTP__POLICIES__PAYMENTS__CIRCUIT_BREAKER__MINIMUM_THROUGHPUT",
            "4",
        ),
        ("APP__HTTP__POLICIES__PAYMENTS__CIRCUIT_BREAKER__WINDOW", "1m"),
        ("APP__HTTP__POLICIES__PAYMENTS__CIRCUIT_BREAKER__OPEN_FOR", "2s"),
        ("APP__HTTP__POLICIES__PAYMENTS__CIRCUIT_BREAKER__MAX_OPEN_FOR", "8s"),
        ("APP__HTTP__POLICIES__PAYMENTS__CIRCUIT_BREAKER__HALF_OPEN_PROBES", "2"),
        ("APP__HTTP__POLICIES__SEARCH__BUDGET", "unlimited"),
        ("APP__HTTP__POLICIES__SEARCH__CIRCUIT_BREAKER", "true"),
    ];
    // As text, and as `config` takes it when it is told to guess.
    for guessing in [false, true] {
        let service = service(environment(&variables).try_parsing(guessing)).unwrap();
        let Http { policies } = service.http;
        assert_eq!(policies["payments"], every_setting(), "{guessing}");
        let search = Policy::builder().budget(RetryBudget::unlimited());
        let search = search.circuit_breaker(CircuitBreaker::default());
        assert_eq!(policies["search"], built(search), "{guessing}");
    }
}

// serde
#[test]
fn a_bad_variable_is_refused_by_the_path_of_its_setting() {
    for (name, value, path) in [
        ("MAX_ATTEMPTS", "five", "max_attempts"),
        ("MAX_ATTEMPTS", "2.6", "max_attempts"),
        ("DEADLINE", "5", "deadline"),
        ("BUDGET__RATIO", "20%", "budget.ratio"),
        ("CIRCUIT_BREAKER__WINDOW", "30", "circuit_breaker.window"),
        ("CIRCUIT__WINDOW", "30s", "circuit"),
    ] {
        let name = format!("APP__HTTP__POLICIES__PAYMENTS__{name}");
        for guessing in [false, true] {
            let environment = environment(&[(&name, value)]).try_parsing(guessing);
            let error = service(environment).unwrap_err().to_string();
            assert!(error.contains(&format!("{path}: ")), "{name}={value}: {error}");
            assert!(error.contains("http.policies.payments"), "{name}={value}: {error}");
        }
    }
}

// serde
#[test]
fn a_variable_changes_one_setting_of_a_file() {
    let file = json!({"http": {"policies": {"payments": {
        "deadline": "5s",
        "circuit_breaker": {"window": "10s", "open_for": "1s"},
        "budget": "unlimited",
    }}}});
    let over = environment(&[
        ("APP__HTTP__POLICIES__PAYMENTS__CIRCUIT_BREAKER__WINDOW", "1m"),
        ("APP__HTTP__POLICIES__PAYMENTS__BUDGET__BURST", "5"),
    ]);
    let layers = Config::builder()
        .add_source(Config::try_from(&file).unwrap())
        .add_source(over);
    let service: Service = layers.build().unwrap().try_deserialize().unwrap();
    let circuit = CircuitBreaker::default().window(SECOND * 60).open_for(SECOND);
    let expected = Policy::builder()
        .deadline(SECOND * 5)
        .circuit_breaker(circuit)
        .budget(RetryBudget::new(0.2, 5));
    assert_eq!(service.http.policies["payments"], built(expected));
}

// serde
#[test]
fn the_policies_that_the_readme_shows_are_read() {
    let readme = include_str!("../../README.md");
    let blocks: Vec<_> = readme
        .split("```toml\n")
        .filter_map(|rest| rest.split_once("```"))
        .collect();
    let (shown, _) = blocks
        .iter()
        .find(|(block, _)| block.contains("[http.policies"))
        .unwrap();
    let service: Service = toml::from_str(shown).unwrap();
    let circuit = CircuitBreaker::default().failure_ratio(0.8).open_for(SECOND * 2);
    let payments = Policy::builder()
        .deadline(SECOND * 5)
        .attempt_timeout(MS * 1500)
        .backoff(Backoff::full_jitter(MS * 50, SECOND * 2))
        .circuit_breaker(circuit);
    let search = Policy::builder().max_attempts(1).unknown_retries(UnknownRetries::Never);
    let expected = [
        ("payments".to_owned(), built(payments)),
        ("search".to_owned(), built(search)),
    ];
    assert_eq!(service.http.policies, expected.into());
}

// serde
#[test]
fn a_key_that_is_stored_is_the_key_that_comes_back() {
    for key in [
        IdempotencyKey::random(),
        IdempotencyKey::parse(r#"order:"4711"\v1"#).unwrap(),
    ] {
        let json = serde_json::to_value(&key).unwrap();
        assert_eq!(json, key.as_str());
        assert_eq!(serde_json::from_value::<IdempotencyKey>(json).unwrap(), key);
        let yaml = yaml_serde::to_string(&key).unwrap();
        assert_eq!(yaml_serde::from_str::<IdempotencyKey>(&yaml).unwrap(), key);
    }
}

// serde
#[test]
fn what_is_no_key_is_refused_without_being_shown() {
    for (written, refusal) in [
        (
            json!("hunter 2"),
            "idempotency key has a byte at position 6 that is not visible ASCII",
        ),
        (json!(""), "idempotency key is empty"),
        (
            json!("hunter2".repeat(40)),
            "idempotency key has 280 bytes, more than 255",
        ),
        (json!(4711), "idempotency key cannot be read as a text"),
        (json!(-4711), "idempotency key cannot be read as a text"),
        (json!(47.11), "idempotency key cannot be read as a text"),
        (json!(["hunter2"]), "idempotency key cannot be read as a text"),
        (
            json!({"hunter2": "hunter2"}),
            "idempotency key cannot be read as a text",
        ),
    ] {
        let errors = [
            serde_json::from_value::<IdempotencyKey>(written.clone())
                .unwrap_err()
                .to_string(),
            serde_json::from_str::<IdempotencyKey>(&written.to_string())
                .unwrap_err()
                .to_string(),
            toml::Value::try_from(&written)
                .unwrap()
                .try_into::<IdempotencyKey>()
                .unwrap_err()
                .to_string(),
        ];
        for error in errors {
            assert!(error.contains(refusal), "{error}");
            assert!(!error.contains("hunter") && !error.contains("47"), "{error}");
        }
    }
}

const NAMES: [&str; 28] = [
    "max_attempts",
    "attempt_timeout",
    "deadline",
    "min_attempt_time",
    "backoff",
    "max_retry_after",
    "response_buffer",
    "stall_timeout",
    "unknown_retries",
    "budget",
    "circuit_breaker",
    "scope_headers",
    "retry_after",
    "retry_after_ms",
    "kind",
    "base",
    "cap",
    "throttled_base",
    "wait",
    "ratio",
    "burst",
    "failure_ratio",
    "minimum_throughput",
    "window",
    "open_for",
    "max_open_for",
    "half_open_probes",
    "",
];

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![9 => prop::sample::select(&NAMES[..]).prop_map(str::to_owned), 1 => any::<String>()]
}

const WORDS: [&str; 10] = [
    "full_jitter",
    "constant",
    "none",
    "keyed",
    "never",
    "unlimited",
    "true",
    "NaN",
    "1e400",
    "-0",
];

/// Nonsense that is often near to sense.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop::sample::select(&WORDS[..]).prop_map(Value::from),
        (any::<u64>(), "[a-zA-Zµ ]{0,9}").prop_map(|(count, unit)| Value::from(format!("{count}{unit}"))),
        (0..9_u8, "(ns|us|ms|s|m|h|days|y)").prop_map(|(count, unit)| Value::from(format!("{count}{unit}"))),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(any_name(), inner, 0..6).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    // serde
    #[test]
    fn no_configuration_makes_it_panic_and_none_is_refused_without_a_reason(
        settings in prop::collection::hash_map(any_name(), any_value(), 0..4),
    ) {
        let written: Value = settings.into_iter().collect();
        let json = written.to_string();
        let read = serde_json::from_str::<Policy>(&json);
        let again = serde_json::from_value::<Policy>(written.clone());
        prop_assert_eq!(read.as_ref().ok(), again.as_ref().ok());
        let yaml = yaml_serde::from_str::<Policy>(&json);
        let config = Config::try_from(&written).map(Config::try_deserialize::<Policy>);
        let toml = toml::Table::try_from(&written).map(toml::Table::try_into::<Policy>);
        drop((yaml, config, toml));
        if let Err(error) = read {
            let refusal = error.to_string();
            prop_assert!(NAMES.iter().any(|name| refusal.contains(name)), "{}", refusal);
        }
    }

    // serde
    #[test]
    fn no_text_makes_it_panic(text: String, name in any_name(), value: String) {
        let _ = toml::from_str::<Policy>(&text);
        let _ = toml::from_str::<Policy>(&format!("{name} = {value}"));
        let _ = yaml_serde::from_str::<Policy>(&text);
        let _ = yaml_serde::from_str::<Policy>(&format!("{name}: {value}"));
        let _ = service(environment(&[("APP__HTTP__POLICIES__PAYMENTS__DEADLINE", &value)]));
    }

    // serde
    #[test]
    fn a_duration_is_read_to_the_nanosecond(secs in 1..1_000_000_000_u64, nanos in 0..1_000_000_000_u32) {
        let read = policy(&format!("deadline = '{secs}s {nanos}ns'"));
        prop_assert_eq!(read.deadline(), Duration::new(secs, nanos));
    }
}

//! A policy as configuration: from TOML, YAML, JSON or the environment.
//!
//! A value is read for what it is, never for what the format would make of it when asked for a type: the environment
//! knows only text, and some formats turn 2.6 into a count of 3 without a word.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};

use crate::backoff::Backoff;
use crate::budget::{self, RetryBudget};
use crate::circuit::settings::CircuitBreaker;
use crate::policy::{Policy, PolicyBuilder};
use crate::replay::UnknownRetries;

/// A policy as part of a service's own configuration. Needs the feature `serde`.
///
/// ```
/// use std::{collections::HashMap, time::Duration};
/// use steadfast::{CircuitBreaker, Policy};
///
/// #[derive(serde::Deserialize)]
/// struct Http {
///     policies: HashMap<String, Policy>,
/// }
///
/// let http: Http = toml::from_str(
///     r#"
///     [policies.payments]
///     deadline = "5s"
///     attempt_timeout = "1s 500ms"
///     backoff = { kind = "full_jitter", base = "50ms", cap = "2s" }
///     circuit_breaker = { failure_ratio = 0.8 }
///     "#,
/// )?;
/// let written = Policy::builder()
///     .deadline(Duration::from_secs(5))
///     .attempt_timeout(Duration::from_millis(1500))
///     .backoff(steadfast::Backoff::full_jitter(Duration::from_millis(50), Duration::from_secs(2)))
///     .circuit_breaker(CircuitBreaker::default().failure_ratio(0.8))
///     .build()?;
/// assert_eq!(http.policies["payments"], written);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The settings are those of [`PolicyBuilder`], by their names. One that is not there, or null, has its default.
///
/// | setting | written as |
/// |---|---|
/// | `max_attempts` | a whole number |
/// | `response_buffer` | a whole number of bytes |
/// | `deadline` and all other times | a duration with its unit: `"250ms"`, `"1m 30s"` |
/// | `unknown_retries` | `"keyed"`, `"declared"` or `"never"` |
/// | `scope_headers`, `retry_after`, `retry_after_ms` | `true` or `false` |
/// | `budget` | a table of `ratio` and `burst`, or `"unlimited"` |
/// | `circuit_breaker` | a table of the settings of [`CircuitBreaker`], `true` for its defaults, `false` for none |
/// | `backoff` | a table with a `kind` and the waits of that kind |
///
/// What a table of `budget` or `circuit_breaker` leaves out has its default. The kinds of `backoff`:
///
/// | `kind` | its waits |
/// |---|---|
/// | `"full_jitter"`, `"equal_jitter"`, `"decorrelated_jitter"` | `base`, `cap`, and `throttled_base` if wanted |
/// | `"constant"` | `wait`, and `throttled_base` if wanted |
/// | `"none"` | none |
///
/// # Environment
///
/// Every value may also be written as text, which is all that an environment has: `"5"`, `"0.2"`, `"true"`. How a
/// variable is named is up to the crate that reads it. The settings have `_` in their names, so the parts of a path are
/// best separated by `__`:
///
/// ```
/// use config::{Config, Environment};
/// use steadfast::Policy;
///
/// #[derive(serde::Deserialize)]
/// struct Service {
///     payments: Policy,
/// }
///
/// // APP__PAYMENTS__MAX_ATTEMPTS=5
/// // APP__PAYMENTS__CIRCUIT_BREAKER__WINDOW=1m
/// let environment = Environment::with_prefix("APP").separator("__");
/// # let variables = [("APP__PAYMENTS__MAX_ATTEMPTS", "5"), ("APP__PAYMENTS__CIRCUIT_BREAKER__WINDOW", "1m")];
/// # let environment = environment.source(Some(variables.map(|(name, value)| (name.into(), value.into())).into()));
/// let service: Service = Config::builder().add_source(environment).build()?.try_deserialize()?;
/// assert_eq!(service.payments.max_attempts(), 5);
/// # Ok::<(), config::ConfigError>(())
/// ```
///
/// # Errors
///
/// An unknown setting is an error, and so is a value that does not say what is meant, like a duration without a unit.
/// Every error names the setting by its path inside the policy, as `circuit_breaker.window`. Settings that contradict
/// each other are refused with every rule they break, as by [`PolicyBuilder::build`].
impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Read(settings) =
            serde_path_to_error::deserialize::<_, Read<Settings>>(deserializer).map_err(Error::custom)?;
        let builder = settings.builder().map_err(Error::custom)?;
        builder.build().map_err(Error::custom)
    }
}

/// What a setting may be written as. What is not one of its forms is refused with what is expected.
trait Setting: Sized {
    const EXPECTED: &'static str;

    fn from_flag(_: bool) -> Option<Self> {
        None
    }

    fn from_whole(_: u64) -> Option<Self> {
        None
    }

    fn from_number(_: f64) -> Option<Self> {
        None
    }

    fn from_text(_: &str) -> Option<Self> {
        None
    }

    fn from_table<'de, A: MapAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(Error::invalid_type(Unexpected::Map, &Self::EXPECTED))
    }
}

/// A setting that was read by its form.
struct Read<T>(T);

impl<'de, T: Setting> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader(PhantomData)).map(Self)
    }
}

/// A list is no form of anything: derived code would take it for the settings of a table in their order.
struct Reader<T>(PhantomData<T>);

impl<'de, T: Setting> Visitor<'de> for Reader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        T::from_flag(value).ok_or_else(|| E::invalid_value(Unexpected::Bool(value), &self))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => T::from_number(value as f64).ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self)),
        }
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        T::from_whole(value).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        T::from_number(value).ok_or_else(|| E::invalid_value(Unexpected::Float(value), &self))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<T, E> {
        T::from_text(value).ok_or_else(|| E::invalid_value(Unexpected::Str(value), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<T, A::Error> {
        T::from_table(table)
    }
}

fn table<'de, T: Deserialize<'de>, A: MapAccess<'de>>(table: A) -> Result<T, A::Error> {
    T::deserialize(MapAccessDeserializer::new(table))
}

fn written<T>(setting: Option<Read<T>>) -> Option<T> {
    setting.map(|Read(value)| value)
}

impl Setting for u32 {
    const EXPECTED: &'static str = "a whole number from 0 to 4294967295";

    fn from_whole(value: u64) -> Option<Self> {
        value.try_into().ok()
    }

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Setting for usize {
    const EXPECTED: &'static str = "a whole number of bytes";

    fn from_whole(value: u64) -> Option<Self> {
        value.try_into().ok()
    }

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Setting for f64 {
    const EXPECTED: &'static str = "a number";

    fn from_whole(value: u64) -> Option<Self> {
        Some(value as f64)
    }

    fn from_number(value: f64) -> Option<Self> {
        Some(value)
    }

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Setting for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_flag(value: bool) -> Option<Self> {
        Some(value)
    }

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Setting for Duration {
    const EXPECTED: &'static str = "a duration with its unit, such as \"250ms\" or \"1m 30s\"";

    fn from_text(text: &str) -> Option<Self> {
        // humantime takes a lone 0, where every other number needs its unit.
        let with_unit = Some(text).filter(|text| *text != "0");
        with_unit.and_then(|text| humantime::parse_duration(text).ok())
    }
}

impl Setting for UnknownRetries {
    const EXPECTED: &'static str = "\"keyed\", \"declared\" or \"never\"";

    fn from_text(text: &str) -> Option<Self> {
        match text {
            "keyed" => Some(Self::Keyed),
            "declared" => Some(Self::Declared),
            "never" => Some(Self::Never),
            _ => None,
        }
    }
}

impl Setting for RetryBudget {
    const EXPECTED: &'static str = "a table of ratio and burst, or \"unlimited\"";

    fn from_text(text: &str) -> Option<Self> {
        (text == "unlimited").then(Self::unlimited)
    }

    fn from_table<'de, A: MapAccess<'de>>(settings: A) -> Result<Self, A::Error> {
        let BudgetSettings { ratio, burst } = table(settings)?;
        Ok(Self::new(
            written(ratio).unwrap_or(budget::RATIO),
            written(burst).unwrap_or(budget::BURST),
        ))
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetSettings {
    ratio: Option<Read<f64>>,
    burst: Option<Read<u32>>,
}

impl Setting for Option<CircuitBreaker> {
    const EXPECTED: &'static str = "a table of settings, or true or false";

    fn from_flag(on: bool) -> Option<Self> {
        Some(on.then(CircuitBreaker::default))
    }

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok().and_then(Self::from_flag)
    }

    fn from_table<'de, A: MapAccess<'de>>(settings: A) -> Result<Self, A::Error> {
        let settings: CircuitSettings = table(settings)?;
        let default = CircuitBreaker::default();
        Ok(Some(CircuitBreaker {
            failure_ratio: written(settings.failure_ratio).unwrap_or(default.failure_ratio),
            minimum_throughput: written(settings.minimum_throughput).unwrap_or(default.minimum_throughput),
            window: written(settings.window).unwrap_or(default.window),
            open_for: written(settings.open_for).unwrap_or(default.open_for),
            max_open_for: written(settings.max_open_for),
            half_open_probes: written(settings.half_open_probes).unwrap_or(default.half_open_probes),
        }))
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct CircuitSettings {
    failure_ratio: Option<Read<f64>>,
    minimum_throughput: Option<Read<u32>>,
    window: Option<Read<Duration>>,
    open_for: Option<Read<Duration>>,
    max_open_for: Option<Read<Duration>>,
    half_open_probes: Option<Read<u32>>,
}

enum BackoffKind {
    Growing(fn(Duration, Duration) -> Backoff),
    Constant,
    None,
}

impl Setting for BackoffKind {
    const EXPECTED: &'static str =
        "\"full_jitter\", \"equal_jitter\", \"decorrelated_jitter\", \"constant\" or \"none\"";

    fn from_text(text: &str) -> Option<Self> {
        match text {
            "full_jitter" => Some(Self::Growing(Backoff::full_jitter)),
            "equal_jitter" => Some(Self::Growing(Backoff::equal_jitter)),
            "decorrelated_jitter" => Some(Self::Growing(Backoff::decorrelated_jitter)),
            "constant" => Some(Self::Constant),
            "none" => Some(Self::None),
            _ => None,
        }
    }
}

/// The waits of all kinds: serde's own way to choose by a `kind` reads from a copy, where paths are lost.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct BackoffSettings {
    kind: Option<Read<BackoffKind>>,
    base: Option<Read<Duration>>,
    cap: Option<Read<Duration>>,
    throttled_base: Option<Read<Duration>>,
    wait: Option<Read<Duration>>,
}

impl Setting for BackoffSettings {
    const EXPECTED: &'static str = "a table with a kind";

    fn from_table<'de, A: MapAccess<'de>>(settings: A) -> Result<Self, A::Error> {
        table(settings)
    }
}

impl BackoffSettings {
    fn backoff(self) -> Result<Backoff, String> {
        let Self {
            kind,
            base,
            cap,
            throttled_base,
            wait,
        } = self;
        let backoff = match needed("kind", kind)? {
            BackoffKind::Growing(backoff) => {
                unused("wait", &wait)?;
                backoff(needed("base", base)?, needed("cap", cap)?)
            }
            BackoffKind::Constant => {
                unused("base", &base)?;
                unused("cap", &cap)?;
                Backoff::constant(needed("wait", wait)?)
            }
            BackoffKind::None => {
                for (name, setting) in [
                    ("base", &base),
                    ("cap", &cap),
                    ("throttled_base", &throttled_base),
                    ("wait", &wait),
                ] {
                    unused(name, setting)?;
                }
                Backoff::none()
            }
        };
        Ok(match throttled_base {
            Some(Read(base)) => backoff.throttled_base(base),
            None => backoff,
        })
    }
}

fn needed<T>(name: &str, setting: Option<Read<T>>) -> Result<T, String> {
    written(setting).ok_or_else(|| format!("backoff.{name} is missing"))
}

fn unused<T>(name: &str, setting: &Option<Read<T>>) -> Result<(), String> {
    match setting {
        Some(_) => Err(format!("backoff.{name} is not a setting of this kind")),
        None => Ok(()),
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    max_attempts: Option<Read<u32>>,
    attempt_timeout: Option<Read<Duration>>,
    deadline: Option<Read<Duration>>,
    min_attempt_time: Option<Read<Duration>>,
    backoff: Option<Read<BackoffSettings>>,
    max_retry_after: Option<Read<Duration>>,
    response_buffer: Option<Read<usize>>,
    stall_timeout: Option<Read<Duration>>,
    unknown_retries: Option<Read<UnknownRetries>>,
    budget: Option<Read<RetryBudget>>,
    circuit_breaker: Option<Read<Option<CircuitBreaker>>>,
    scope_headers: Option<Read<bool>>,
    retry_after: Option<Read<bool>>,
    retry_after_ms: Option<Read<bool>>,
}

impl Setting for Settings {
    const EXPECTED: &'static str = "a table of the settings of a policy";

    fn from_table<'de, A: MapAccess<'de>>(settings: A) -> Result<Self, A::Error> {
        table(settings)
    }
}

impl Settings {
    /// Written as a literal, so that a setting that is new cannot be forgotten here.
    fn builder(self) -> Result<PolicyBuilder, String> {
        let backoff = written(self.backoff).map(BackoffSettings::backoff).transpose()?;
        Ok(PolicyBuilder {
            max_attempts: written(self.max_attempts),
            attempt_timeout: written(self.attempt_timeout),
            deadline: written(self.deadline),
            min_attempt_time: written(self.min_attempt_time),
            backoff: backoff.unwrap_or_default(),
            max_retry_after: written(self.max_retry_after),
            response_buffer: written(self.response_buffer),
            stall_timeout: written(self.stall_timeout),
            unknown_retries: written(self.unknown_retries).unwrap_or_default(),
            budget: written(self.budget).unwrap_or_default(),
            circuit_breaker: written(self.circuit_breaker).flatten(),
            scope_headers: written(self.scope_headers).unwrap_or_default(),
            retry_after: written(self.retry_after),
            retry_after_ms: written(self.retry_after_ms),
        })
    }
}

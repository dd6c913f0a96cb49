use std::time::Duration;

use reqwest::Response;

use crate::attempts::{Attempts, StopReason};
use crate::error::{Error, ErrorKind};
use crate::outcome::Outcome;
use crate::response::ResponseExt;

/// What has the record of an operation: the record, a response, an error, or the result of a call.
pub trait Recorded {
    /// The record; `None` for a response that no operation brought.
    fn record(&self) -> Option<&Attempts>;
}

impl Recorded for Attempts {
    fn record(&self) -> Option<&Attempts> {
        Some(self)
    }
}

impl Recorded for Response {
    fn record(&self) -> Option<&Attempts> {
        self.attempts()
    }
}

impl Recorded for Error {
    fn record(&self) -> Option<&Attempts> {
        Some(self.attempts())
    }
}

impl Recorded for Result<Response, Error> {
    fn record(&self) -> Option<&Attempts> {
        match self {
            Ok(response) => response.record(),
            Err(error) => error.record(),
        }
    }
}

/// Begins to check the record of an operation. Whatever is not as it is expected panics, and shows the whole record.
///
/// # Panics
///
/// Where there is no record.
#[track_caller]
pub fn expect(recorded: &impl Recorded) -> Expect<'_> {
    let attempts = recorded.record();
    assert!(
        attempts.is_some(),
        "the response has no record: no operation brought it"
    );
    Expect { attempts }
}

/// The record under test: see [`expect`].
#[derive(Debug)]
pub struct Expect<'a> {
    attempts: Option<&'a Attempts>,
}

/// Each panics where it is otherwise.
impl Expect<'_> {
    /// So many attempts.
    #[track_caller]
    pub fn made(self, attempts: usize) -> Self {
        self.is("attempts", |record| record.len(), attempts)
    }

    /// The status each attempt met; 0 is none.
    #[track_caller]
    pub fn statuses(self, statuses: impl IntoIterator<Item = u16>) -> Self {
        let all = |record: &Attempts| -> Vec<u16> {
            let statuses = record.iter().map(|attempt| attempt.status());
            statuses
                .map(|status| status.map_or(0, |status| status.as_u16()))
                .collect()
        };
        self.is("statuses", all, statuses.into_iter().collect())
    }

    /// How each attempt failed; `None` is not at all.
    #[track_caller]
    pub fn failures(self, failures: impl IntoIterator<Item = Option<ErrorKind>>) -> Self {
        let all = |record: &Attempts| -> Vec<_> { record.iter().map(|attempt| attempt.failure()).collect() };
        self.is("failures", all, failures.into_iter().collect())
    }

    /// Why no further attempt was made.
    #[track_caller]
    pub fn stopped(self, reason: StopReason) -> Self {
        self.is("stop reason", Attempts::stop_reason, reason)
    }

    /// What is known of the effect.
    #[track_caller]
    pub fn outcome(self, outcome: Outcome) -> Self {
        self.is("outcome", Attempts::outcome, outcome)
    }

    /// Whether it can have acted at most once.
    #[track_caller]
    pub fn exactly_once(self, once: bool) -> Self {
        self.is("exactly once", Attempts::exactly_once, once)
    }

    /// All of its waits together were at most this long.
    #[track_caller]
    pub fn waited_at_most(self, time: Duration) -> Self {
        let waited = self
            .attempts
            .into_iter()
            .flatten()
            .filter_map(|attempt| attempt.waited());
        let waited = waited.fold(Duration::ZERO, Duration::saturating_add);
        assert!(
            waited <= time,
            "waited {waited:?}, more than {time:?}: {:#?}",
            self.attempts
        );
        self
    }

    #[track_caller]
    fn is<T: PartialEq + std::fmt::Debug>(self, what: &str, of: impl FnOnce(&Attempts) -> T, expected: T) -> Self {
        let found = self.attempts.map(of);
        assert!(
            found.as_ref() == Some(&expected),
            "{what}: expected {expected:?}, found {found:?} in {:#?}",
            self.attempts
        );
        self
    }
}

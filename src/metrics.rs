//! Numbers of what operations do, for the recorder of the [`metrics`](https://docs.rs/metrics/0.24) crate.
//!
//! | name | type | unit | labels | recorded |
//! |---|---|---|---|---|
//! | `steadfast_operations_total` | counter | count | `group`, `outcome`, `stop_reason` | at the end of each `send()` |
//! | `steadfast_operation_duration_seconds` | histogram | seconds | `group`, `outcome` | with it: the time from the start of the `send()` |
//! | `steadfast_attempts_total` | counter | count | `group`, `delivery`, `result` | at the end of each attempt |
//! | `steadfast_attempt_duration_seconds` | histogram | seconds | `group`, `delivery` | with it: the time until the attempt was judged, which is after the body of a success and before that of any other answer |
//! | `steadfast_retries_total` | counter | count | `group`, `reason` | when an attempt after the first begins |
//! | `steadfast_retry_wait_seconds` | histogram | seconds | `group` | when a wait begins: how long it is meant to be |
//! | `steadfast_circuit_state` | gauge | none | `group` | at each change: 0 is closed, 1 half-open, 2 open |
//! | `steadfast_budget_tokens` | gauge | count | `group` | when a wait begins, its retry being paid for, and at the end of each `send()`; never where nothing has used the budget |
//!
//! An operation, attempt or wait that is dropped has no end, and is recorded as far as it came.
//!
//! | label | values |
//! |---|---|
//! | `group` | the name of the group, as in [`CircuitStatus::group`](crate::CircuitStatus::group) |
//! | `outcome` | `completed`, `not_done`, `unknown` |
//! | `stop_reason` | `done`, `not_retryable`, `not_replay_safe`, `body_not_replayable`, `max_attempts`, `deadline`, `budget`, `retry_after`, `circuit_open`, `key_conflict`, `retention`, `scope` |
//! | `delivery` | `not_sent`, `rejected`, `unknown`, `answered` |
//! | `result` | the status of the answer, or its class where the status is no registered one: `503`, `5xx`. Without a whole answer what failed, as `error.type` of the spans: `status`, `request`, `dns`, `connect`, `tls`, `timeout`, `reset`, `body`, `circuit_open`, `deadline`, `_OTHER` |
//! | `reason` | the `result` of the attempt before |
//!
//! Each label has few values but `group`, which by default has one for each host: name the groups of a client that goes
//! wherever it is told with [`RequestBuilder::circuit`](crate::RequestBuilder::circuit).
//!
//! A recorder that panics does no harm where panics unwind: the panic is caught, and the number is lost.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use reqwest::{Response, StatusCode};

use crate::attempts::Attempt;
use crate::circuit::breaker::CircuitState;
use crate::error::{Error, ErrorKind};
use crate::operation::Operation;
use crate::response::ResponseExt;
use crate::telemetry::{delivery, error_type, outcome, stop_reason};

const OPERATIONS: &str = "steadfast_operations_total";
const OPERATION_DURATION: &str = "steadfast_operation_duration_seconds";
const ATTEMPTS: &str = "steadfast_attempts_total";
const ATTEMPT_DURATION: &str = "steadfast_attempt_duration_seconds";
const RETRIES: &str = "steadfast_retries_total";
const RETRY_WAIT: &str = "steadfast_retry_wait_seconds";
const CIRCUIT_STATE: &str = "steadfast_circuit_state";
const BUDGET_TOKENS: &str = "steadfast_budget_tokens";

/// Tells the recorder the units and descriptions. Once is enough, after the recorder was installed.
pub fn describe() {
    caught(|| {
        describe_counter!(OPERATIONS, Unit::Count, "Operations that ended");
        describe_histogram!(
            OPERATION_DURATION,
            Unit::Seconds,
            "Time of an operation, its waits included"
        );
        describe_counter!(ATTEMPTS, Unit::Count, "Attempts that ended");
        describe_histogram!(ATTEMPT_DURATION, Unit::Seconds, "Time of an attempt");
        describe_counter!(RETRIES, Unit::Count, "Attempts after the first");
        describe_histogram!(RETRY_WAIT, Unit::Seconds, "Wait before a retry");
        describe_gauge!(CIRCUIT_STATE, "State of the circuit: 0 closed, 1 half-open, 2 open");
        describe_gauge!(BUDGET_TOKENS, Unit::Count, "Tokens in the retry budget");
    });
}

/// A recorder is the code of somebody else: no panic of it may become the end of an operation (R129).
fn caught(record: impl FnOnce()) {
    // Nothing of ours is changed in there that a panic could leave half done.
    let _ = panic::catch_unwind(AssertUnwindSafe(record));
}

pub(crate) fn attempt_begins(operation: &Operation, before: Option<&Attempt>) {
    let Some(before) = before else { return };
    caught(|| counter!(RETRIES, "group" => group(operation), "reason" => result(before)).increment(1));
}

pub(crate) fn attempt_ended(operation: &Operation, attempt: &Attempt) {
    caught(|| {
        let group = group(operation);
        let delivery = delivery(attempt.delivery());
        let labels = [
            ("group", group.clone()),
            ("delivery", delivery.to_owned()),
            ("result", result(attempt)),
        ];
        counter!(ATTEMPTS, &labels).increment(1);
        histogram!(ATTEMPT_DURATION, "group" => group, "delivery" => delivery).record(attempt.took());
    });
}

pub(crate) fn waiting(operation: &Operation, wait: Duration) {
    caught(|| {
        histogram!(RETRY_WAIT, "group" => group(operation)).record(wait);
        budget(operation);
    });
}

pub(crate) fn operation_ended(operation: &Operation, result: &Result<Response, Error>) {
    caught(|| {
        let attempts = match result {
            Ok(response) => response.attempts(),
            Err(error) => Some(error.attempts()),
        };
        let Some(attempts) = attempts else { return };
        let group = group(operation);
        let outcome = outcome(attempts.outcome());
        let stop_reason = stop_reason(attempts.stop_reason());
        counter!(OPERATIONS, "group" => group.clone(), "outcome" => outcome, "stop_reason" => stop_reason).increment(1);
        histogram!(OPERATION_DURATION, "group" => group, "outcome" => outcome).record(attempts.elapsed());
        budget(operation);
    });
}

/// Of two changes at almost the same time, the earlier may be recorded last: what stays is the state there is then.
pub(crate) fn circuit_changed(group: &Arc<str>, state: impl Fn() -> Option<CircuitState>) {
    caught(|| {
        let mut recorded = None;
        while let Some(state) = state().filter(|state| recorded != Some(*state)) {
            gauge!(CIRCUIT_STATE, "group" => Arc::clone(group)).set(circuit_state(state));
            recorded = Some(state);
        }
    });
}

fn budget(operation: &Operation) {
    if let Some(tokens) = operation.circuits().tokens(&operation.group()) {
        gauge!(BUDGET_TOKENS, "group" => group(operation)).set(tokens);
    }
}

fn group(operation: &Operation) -> String {
    operation.group().to_string()
}

fn result(attempt: &Attempt) -> String {
    match (attempt.failure(), attempt.status()) {
        (None | Some(ErrorKind::Status), Some(status)) => status_or_class(status),
        (failure, _) => error_type(failure.unwrap_or(ErrorKind::Other)).to_owned(),
    }
}

/// A server must not make as many values as there are numbers.
fn status_or_class(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(_) => status.as_str().to_owned(),
        None => format!("{}xx", status.as_u16() / 100),
    }
}

fn circuit_state(state: CircuitState) -> f64 {
    match state {
        CircuitState::Closed => 0.0,
        CircuitState::HalfOpen => 1.0,
        CircuitState::Open => 2.0,
    }
}

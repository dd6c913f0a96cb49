//! Spans and events, with the names OpenTelemetry has for HTTP clients.
//!
//! One span for the operation (`operation`), one inside it for each attempt (`attempt`), an event for each wait and one
//! for the end. Everything is emitted after the state it speaks of is recorded.

use std::time::Duration;

use reqwest::{Response, StatusCode, Url};
use tracing::field::Empty;
use tracing::{Span, debug, info, info_span, warn};

use crate::attempts::{Attempt, Attempts, StopReason};
use crate::circuit::breaker::CircuitState;
use crate::classify::Delivery;
use crate::error::{Error, ErrorKind};
use crate::operation::Operation;
use crate::outcome::Outcome;
use crate::redacted::Redacted;
use crate::response::ResponseExt;

pub(crate) fn operation_span(operation: &Operation) -> Span {
    let url = operation.url();
    info_span!(
        "operation",
        http.request.method = operation.method().as_str(),
        server.address = url.host_str(),
        server.port = port(url),
        url.full = %Redacted(url),
        steadfast.circuit = %operation.group(),
        http.response.status_code = Empty,
        error.type = Empty,
        steadfast.attempts = Empty,
        steadfast.stop_reason = Empty,
        steadfast.outcome = Empty,
    )
}

pub(crate) fn attempt_span(operation: &Operation, number: u32) -> Span {
    let url = operation.url();
    info_span!(
        "attempt",
        otel.kind = "client",
        http.request.method = operation.method().as_str(),
        http.request.resend_count = resend_count(number),
        server.address = url.host_str(),
        server.port = port(url),
        url.full = %Redacted(url),
        http.response.status_code = Empty,
        error.type = Empty,
        steadfast.delivery = Empty,
    )
}

/// Absent from the first attempt, as OpenTelemetry has it.
fn resend_count(number: u32) -> Option<u32> {
    number.checked_sub(1).filter(|resends| *resends > 0)
}

fn port(url: &Url) -> Option<u16> {
    url.port_or_known_default()
}

pub(crate) fn record_attempt(span: &Span, attempt: &Attempt) {
    if span.is_disabled() {
        return;
    }
    span.record("steadfast.delivery", delivery(attempt.delivery()));
    record_status(span, attempt.status());
    if let Some(failure) = attempt.failure() {
        span.record("error.type", error_type(failure));
    }
}

fn record_status(span: &Span, status: Option<StatusCode>) {
    let Some(status) = status else { return };
    span.record("http.response.status_code", status.as_u16());
    if status.is_client_error() || status.is_server_error() {
        span.record("error.type", status.as_str());
    }
}

pub(crate) fn waiting(attempt: &Attempt, wait: Duration) {
    debug!(
        steadfast.attempt = attempt.number(),
        steadfast.wait_ms = milliseconds(wait),
        steadfast.retry_after_ms = attempt.retry_after().map(milliseconds),
        http.response.status_code = attempt.status().map(|status| status.as_u16()),
        error.type = attempt.failure().map(error_type),
        "waiting before the next attempt"
    );
}

pub(crate) fn contract_assumed(operation: &Operation) {
    warn!(
        steadfast.circuit = %operation.group(),
        "idempotency keys are assumed to be honoured here: declare the contract of the service, or `none()`"
    );
}

/// The request of an attempt was not made, so there was no attempt.
pub(crate) fn record_unmade(span: &Span) {
    span.record("error.type", error_type(ErrorKind::Request));
}

pub(crate) fn circuit_changed(group: &str, from: CircuitState, to: CircuitState) {
    if to == CircuitState::Open {
        warn!(steadfast.circuit = group, steadfast.from = %from, steadfast.to = %to, "circuit opened");
    } else {
        info!(steadfast.circuit = group, steadfast.from = %from, steadfast.to = %to, "circuit changed");
    }
}

/// The end of an operation, on its span and as an event inside it.
pub(crate) fn record_result(span: &Span, result: &Result<Response, Error>) {
    if span.is_disabled() {
        return;
    }
    let (status, failure, attempts) = match result {
        Ok(response) => (Some(response.status()), None, response.attempts()),
        Err(error) => (error.status(), Some(error.kind()), Some(error.attempts())),
    };
    record_status(span, status);
    if let Some(kind) = failure {
        span.record("error.type", error_type(kind));
    }
    if let Some(attempts) = attempts {
        record_attempts(span, attempts);
    }
}

fn record_attempts(span: &Span, attempts: &Attempts) {
    span.record("steadfast.attempts", attempts.len());
    span.record("steadfast.stop_reason", stop_reason(attempts.stop_reason()));
    span.record("steadfast.outcome", outcome(attempts.outcome()));
    span.in_scope(|| {
        debug!(
            steadfast.attempts = attempts.len(),
            steadfast.stop_reason = stop_reason(attempts.stop_reason()),
            steadfast.outcome = outcome(attempts.outcome()),
            steadfast.elapsed_ms = milliseconds(attempts.elapsed()),
            "operation ended"
        );
    });
}

/// The value of `error.type` where no status is the failure: few and stable, as OpenTelemetry asks.
pub(crate) fn error_type(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Status => "status",
        ErrorKind::Request => "request",
        ErrorKind::Dns => "dns",
        ErrorKind::Connect => "connect",
        ErrorKind::Tls => "tls",
        ErrorKind::Timeout => "timeout",
        ErrorKind::Reset => "reset",
        ErrorKind::Body => "body",
        ErrorKind::CircuitOpen => "circuit_open",
        ErrorKind::Deadline => "deadline",
        ErrorKind::Other => "_OTHER",
    }
}

pub(crate) fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "completed",
        Outcome::NotDone => "not_done",
        Outcome::Unknown => "unknown",
    }
}

pub(crate) fn delivery(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::NotSent => "not_sent",
        Delivery::Rejected => "rejected",
        Delivery::Unknown => "unknown",
        Delivery::Answered => "answered",
    }
}

pub(crate) fn stop_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Done => "done",
        StopReason::NotRetryable => "not_retryable",
        StopReason::NotReplaySafe => "not_replay_safe",
        StopReason::BodyNotReplayable => "body_not_replayable",
        StopReason::MaxAttempts => "max_attempts",
        StopReason::Deadline => "deadline",
        StopReason::Budget => "budget",
        StopReason::RetryAfter { .. } => "retry_after",
        StopReason::CircuitOpen { .. } => "circuit_open",
        StopReason::KeyConflict => "key_conflict",
        StopReason::Retention => "retention",
        StopReason::Scope => "scope",
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

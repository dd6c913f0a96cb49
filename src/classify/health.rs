//! What an attempt says of the service it was sent to, for the circuit of its group.
//!
//! Another question than whether it is repeated: a 501 is final and yet no sign of health, a lost connection counts
//! whatever the method.

use http::StatusCode;

use super::{Delivery, Finding};
use crate::circuit::breaker::Health;
use crate::error::ErrorKind;

/// Of an answer: a refusal of the request is the service at work, and a refusal for the rate says nothing (field case 47).
pub(crate) fn of_status(status: StatusCode) -> Health {
    match status.as_u16() {
        429 => Health::Ignored,
        ..=499 => Health::Success,
        _ => Health::Failure,
    }
}

/// Of everything that is not an answer: a failure of the service, unless it is one of our own side.
pub(crate) fn of_failure(kind: ErrorKind, finding: Finding, status: Option<StatusCode>) -> Health {
    match (kind, status) {
        (ErrorKind::Status, Some(status)) => of_status(status),
        // A request that cannot be sent, or a guard that did not let it out.
        (ErrorKind::Request | ErrorKind::CircuitOpen | ErrorKind::Deadline, _) => Health::Ignored,
        // The stream of the request's own body, which no repeat would mend.
        (ErrorKind::Body, None) if !finding.retry => Health::Ignored,
        // A sender says that it sent nothing, and it was no failure to connect: a full queue, a limit of its own.
        (ErrorKind::Other, None) if finding.delivery == Delivery::NotSent => Health::Ignored,
        _ => Health::Failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // field 47
    #[test]
    fn every_status_counts_once() {
        for code in 100..=999 {
            let expected = match code {
                429 => Health::Ignored,
                500.. => Health::Failure,
                _ => Health::Success,
            };
            assert_eq!(of_status(StatusCode::from_u16(code).unwrap()), expected, "{code}");
        }
    }

    // field 46
    #[test]
    fn what_the_service_did_is_a_failure_and_what_we_did_is_not() {
        let unknown = Finding::retry(Delivery::Unknown);
        for kind in [
            ErrorKind::Dns,
            ErrorKind::Connect,
            ErrorKind::Tls,
            ErrorKind::Timeout,
            ErrorKind::Reset,
            ErrorKind::Body,
            ErrorKind::Other,
        ] {
            assert_eq!(of_failure(kind, unknown, None), Health::Failure, "{kind}");
        }
        for kind in [ErrorKind::Request, ErrorKind::CircuitOpen, ErrorKind::Deadline] {
            assert_eq!(of_failure(kind, unknown, None), Health::Ignored, "{kind}");
        }
        let own_stream = of_failure(ErrorKind::Body, Finding::last(Delivery::Unknown), None);
        assert_eq!(own_stream, Health::Ignored);
        let not_sent = Finding::retry(Delivery::NotSent);
        assert_eq!(of_failure(ErrorKind::Other, not_sent, None), Health::Ignored);
        assert_eq!(of_failure(ErrorKind::Connect, not_sent, None), Health::Failure);
    }

    #[test]
    fn an_answer_that_a_sender_made_an_error_counts_as_that_answer() {
        let finding = Finding::last(Delivery::Rejected);
        let of = |status| of_failure(ErrorKind::Status, finding, StatusCode::from_u16(status).ok());
        assert_eq!(of(404), Health::Success);
        assert_eq!(of(429), Health::Ignored);
        assert_eq!(of(503), Health::Failure);
    }
}

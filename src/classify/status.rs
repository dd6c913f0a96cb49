//! Answers: status code to [`Finding`].

use http::StatusCode;

use super::{Delivery, Finding};

/// What surrounds a status and changes its meaning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances {
    /// The answer carried a valid `Retry-After`.
    pub(crate) asks_to_wait: bool,
    /// An earlier attempt with the same key may still be running.
    pub(crate) may_be_in_progress: bool,
    /// The answer is another request's, and the one that was sent may have acted.
    pub(crate) of_another: bool,
}

/// The table of statuses (R2, R5 to R9, R27).
pub(crate) fn finding(status: StatusCode, around: Circumstances) -> Finding {
    use Delivery::{Answered, Rejected, Unknown};
    // After a redirect a refusal no longer speaks for the URL the request was sent to.
    let refused = if around.of_another { Unknown } else { Rejected };
    match status.as_u16() {
        429 => Finding::retry(refused),
        503 if around.asks_to_wait => Finding::retry(refused),
        // A proxy also says 503 when the upstream died while working on the request.
        500 | 502..=504 => Finding::retry(Unknown),
        409 if around.may_be_in_progress => Finding::retry(Unknown),
        400..=499 => Finding::last(refused),
        100..=399 => Finding::last(Answered),
        _ => Finding::last(Unknown),
    }
}

/// Whether the status alone asks for another attempt.
pub(crate) fn is_retried(status: StatusCode) -> bool {
    finding(status, Circumstances::default()).retry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(status: u16) -> Finding {
        finding(StatusCode::from_u16(status).unwrap(), Circumstances::default())
    }

    // R27: the sweep over every status; R7 and R8 are its 4xx.
    #[test]
    fn only_429_500_502_503_and_504_are_retried() {
        for status in 100..=999 {
            let retried = [429, 500, 502, 503, 504].contains(&status);
            assert_eq!(plain(status).retry, retried, "{status}");
        }
    }

    // R2, R82
    #[test]
    fn every_status_says_what_it_proves() {
        for status in 100..=999 {
            let expected = match status {
                ..=399 => Delivery::Answered,
                400..=499 => Delivery::Rejected,
                _ => Delivery::Unknown,
            };
            assert_eq!(plain(status).delivery, expected, "{status}");
        }
    }

    #[test]
    fn a_503_that_says_when_to_come_back_did_not_act() {
        let around = Circumstances {
            asks_to_wait: true,
            ..Circumstances::default()
        };
        let found = finding(StatusCode::SERVICE_UNAVAILABLE, around);
        assert_eq!(found, Finding::retry(Delivery::Rejected));
        // Only a 503 is read so: 500 and its kin may follow an effect whatever they say of waiting.
        let found = finding(StatusCode::BAD_GATEWAY, around);
        assert_eq!(found, Finding::retry(Delivery::Unknown));
    }

    // field 38
    #[test]
    fn a_409_is_final_unless_our_own_first_try_may_be_running() {
        assert_eq!(plain(409), Finding::last(Delivery::Rejected));
        let around = Circumstances {
            may_be_in_progress: true,
            ..Circumstances::default()
        };
        let found = finding(StatusCode::CONFLICT, around);
        assert_eq!(found, Finding::retry(Delivery::Unknown));
    }

    #[test]
    fn after_a_redirect_a_refusal_proves_nothing() {
        let around = Circumstances {
            of_another: true,
            ..Circumstances::default()
        };
        for (status, retry) in [(429, true), (404, false)] {
            let found = finding(StatusCode::from_u16(status).unwrap(), around);
            assert_eq!(
                found,
                Finding {
                    delivery: Delivery::Unknown,
                    retry
                },
                "{status}"
            );
        }
    }
}

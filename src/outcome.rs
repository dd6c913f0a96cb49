//! What the attempts of an operation together say about its effect.

use std::fmt;

use http::StatusCode;

use crate::attempts::Attempts;
use crate::classify::Delivery;
use crate::redirect::Redirect;

/// What we know the operation did to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The service confirmed the effect: 2xx, 303 or 304. What a later attempt said does not change it, nor does the loss of
    /// its body. Of a GET it says that the server answered, not that the body arrived.
    Completed,
    /// Certainly no effect: no attempt was sent or all were refused, or the method is safe and did not succeed.
    NotDone,
    /// Some attempt may have acted, and nothing settled whether it did.
    Unknown,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Completed => "completed",
            Self::NotDone => "not done",
            Self::Unknown => "unknown",
        })
    }
}

/// What is known of one operation so far, over all of its attempts in all of its `send()`s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence {
    /// GET, HEAD, OPTIONS and TRACE have no effect to be unsure of.
    safe: bool,
    /// The service is known to honour the key of the operation.
    declared: bool,
    /// An attempt went on without the key.
    unkeyed: bool,
    completed: bool,
    unknown: bool,
    /// How many attempts can have acted.
    acted: u32,
}

/// What one attempt adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exhibit {
    pub(crate) delivery: Delivery,
    pub(crate) status: Option<StatusCode>,
    pub(crate) redirect: Redirect,
    /// Whether a refusal speaks for earlier attempts too, where the contract says what it means, whatever its status.
    pub(crate) settles: Option<bool>,
    /// A classifier of the caller's says that another attempt may be answered otherwise.
    pub(crate) passing: bool,
}

impl Evidence {
    pub(crate) const fn new(safe: bool, declared: bool) -> Self {
        Self {
            safe,
            declared,
            unkeyed: false,
            completed: false,
            unknown: false,
            acted: 0,
        }
    }

    /// The evidence while an attempt is under way, and for good if it is dropped before it ends.
    #[must_use]
    pub(crate) const fn with_attempt_under_way(mut self) -> Self {
        self.may_have_acted();
        self
    }

    pub(crate) fn add(&mut self, exhibit: Exhibit) {
        let Exhibit {
            delivery,
            status,
            redirect,
            settles,
            passing,
        } = exhibit;
        if redirect == Redirect::Unkeyed {
            self.unkeyed = true;
        }
        match (delivery, status.map(|status| status.as_u16())) {
            _ if redirect == Redirect::SeeOther => self.confirm(),
            _ if redirect == Redirect::Astray => self.may_have_acted(),
            (Delivery::Answered, None | Some(101 | 200..=299 | 303 | 304)) => self.confirm(),
            // Handed over unfollowed: the request went nowhere else.
            (Delivery::Answered, Some(301 | 302 | 307 | 308)) => {}
            (Delivery::Answered | Delivery::Unknown, _) => self.may_have_acted(),
            (Delivery::Rejected, Some(status))
                if self.is_declared() && settles.unwrap_or(is_final_word(status) && !passing) =>
            {
                self.unknown = false;
            }
            (Delivery::NotSent | Delivery::Rejected, _) => {}
        }
    }

    /// What an operation of another client, which was one attempt of this one, tried and knows.
    ///
    /// Each of its attempts counts by what is known *here* of the key: there it looks like the caller's own. `delivery` is
    /// what is made here of all of it.
    pub(crate) fn add_nested(&mut self, attempts: &Attempts, delivery: Delivery) {
        let unknown = attempts.outcome() == Outcome::Unknown;
        for attempt in attempts {
            // Its answers confirm nothing that they did not confirm there: a redirect may have led astray.
            let astray = attempt.delivery() == Delivery::Answered && unknown;
            self.add(Exhibit {
                delivery: attempt.delivery(),
                status: attempt.status(),
                redirect: if astray { Redirect::Astray } else { Redirect::None },
                settles: None,
                passing: false,
            });
        }
        match attempts.outcome() {
            Outcome::Completed => self.completed = true,
            Outcome::Unknown => self.unknown = true,
            Outcome::NotDone if delivery == Delivery::Unknown => self.unknown = true,
            Outcome::NotDone => {}
        }
    }

    const fn confirm(&mut self) {
        self.completed = true;
        self.acted = self.acted.saturating_add(1);
    }

    const fn may_have_acted(&mut self) {
        self.unknown = true;
        self.acted = self.acted.saturating_add(1);
    }

    /// An attempt may have acted, and no answer told whether it did.
    pub(crate) const fn is_open(&self) -> bool {
        self.unknown && !self.completed
    }

    pub(crate) const fn outcome(&self) -> Outcome {
        if self.completed {
            Outcome::Completed
        } else if self.unknown && !self.safe {
            Outcome::Unknown
        } else {
            Outcome::NotDone
        }
    }

    /// At most one attempt can have acted, or the service promised to act once for the key.
    pub(crate) const fn exactly_once(&self) -> bool {
        self.safe || self.is_declared() || self.acted <= 1
    }

    const fn is_declared(&self) -> bool {
        self.declared && !self.unkeyed
    }

    /// Whether the key of the operation was lost on the way of an attempt.
    pub(crate) const fn is_unkeyed(&self) -> bool {
        self.unkeyed
    }
}

/// Whether a refusal under a declared contract also speaks for earlier attempts with the same key.
///
/// The others may come from a gateway that refused before the service looked the key up.
const fn is_final_word(status: u16) -> bool {
    matches!(status, 400..=499) && !matches!(status, 401 | 403 | 407 | 408 | 409 | 425 | 429)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Delivery::{Answered, NotSent, Rejected, Unknown};

    fn after(mut evidence: Evidence, exhibits: &[(Delivery, u16)]) -> Evidence {
        for (delivery, status) in exhibits {
            evidence.add(Exhibit {
                delivery: *delivery,
                status: StatusCode::from_u16(*status).ok(),
                redirect: Redirect::None,
                settles: None,
                passing: false,
            });
        }
        evidence
    }

    const NONE: u16 = 0;
    const UNSAFE: Evidence = Evidence::new(false, false);
    const DECLARED: Evidence = Evidence::new(false, true);
    const SAFE: Evidence = Evidence::new(true, false);

    #[test]
    fn without_an_attempt_nothing_is_done() {
        assert_eq!(UNSAFE.outcome(), Outcome::NotDone);
    }

    #[test]
    fn a_confirmation_completes_whatever_came_before_and_comes_after() {
        for status in [101, 200, 201, 204, 299, 303, 304] {
            let evidence = after(UNSAFE, &[(Unknown, NONE), (Answered, status), (Unknown, 500)]);
            assert_eq!(evidence.outcome(), Outcome::Completed, "{status}");
        }
    }

    #[test]
    fn refusals_and_unsent_attempts_leave_it_not_done() {
        let evidence = after(UNSAFE, &[(NotSent, NONE), (Rejected, 429), (Rejected, 404)]);
        assert_eq!(evidence.outcome(), Outcome::NotDone);
    }

    // R10
    #[test]
    fn a_refusal_does_not_settle_an_earlier_unknown() {
        for status in [400, 404, 409, 422, 429, 503] {
            let evidence = after(UNSAFE, &[(Unknown, NONE), (Rejected, status)]);
            assert_eq!(evidence.outcome(), Outcome::Unknown, "{status}");
        }
    }

    #[test]
    fn under_a_declared_contract_a_final_4xx_of_the_service_settles() {
        for status in [400, 402, 404, 410, 422] {
            let evidence = after(DECLARED, &[(Unknown, NONE), (Rejected, status)]);
            assert_eq!(evidence.outcome(), Outcome::NotDone, "{status}");
        }
        for status in [401, 403, 407, 408, 409, 425, 429] {
            let evidence = after(DECLARED, &[(Unknown, NONE), (Rejected, status)]);
            assert_eq!(evidence.outcome(), Outcome::Unknown, "{status}");
        }
        // A 503 with Retry-After is a refusal too, but not of the service's logic.
        let evidence = after(DECLARED, &[(Unknown, NONE), (Rejected, 503)]);
        assert_eq!(evidence.outcome(), Outcome::Unknown);
    }

    #[test]
    fn an_unfollowed_redirect_did_nothing() {
        for status in [301, 302, 307, 308] {
            let evidence = after(UNSAFE, &[(Answered, status)]);
            assert_eq!(evidence.outcome(), Outcome::NotDone, "{status}");
        }
        for status in [300, 305, 306, 399] {
            let evidence = after(UNSAFE, &[(Answered, status)]);
            assert_eq!(evidence.outcome(), Outcome::Unknown, "{status}");
        }
    }

    #[test]
    fn a_safe_method_has_no_effect_to_be_unsure_of() {
        let evidence = after(SAFE, &[(Unknown, NONE), (Unknown, 500)]);
        assert_eq!(evidence.outcome(), Outcome::NotDone);
        assert!(evidence.exactly_once());
        assert_eq!(after(SAFE, &[(Answered, 200)]).outcome(), Outcome::Completed);
    }

    #[test]
    fn the_answer_of_another_request_confirms_nothing() {
        let mut evidence = UNSAFE;
        evidence.add(Exhibit {
            delivery: Answered,
            status: Some(StatusCode::OK),
            redirect: Redirect::Astray,
            settles: None,
            passing: false,
        });
        assert_eq!(evidence.outcome(), Outcome::Unknown);
    }

    #[test]
    fn a_303_confirms_whatever_comes_of_following_it() {
        for (delivery, status) in [(Answered, Some(StatusCode::OK)), (Unknown, None)] {
            let mut evidence = UNSAFE;
            evidence.add(Exhibit {
                delivery,
                status,
                redirect: Redirect::SeeOther,
                settles: None,
                passing: false,
            });
            assert_eq!(evidence.outcome(), Outcome::Completed);
        }
    }

    #[test]
    fn once_is_claimed_only_while_one_attempt_can_have_acted() {
        let evidence = after(UNSAFE, &[(NotSent, NONE), (Rejected, 429), (Answered, 200)]);
        assert!(evidence.exactly_once());
        let evidence = after(UNSAFE, &[(Unknown, NONE), (Answered, 200)]);
        assert!(!evidence.exactly_once());
        let evidence = after(DECLARED, &[(Unknown, NONE), (Answered, 200)]);
        assert!(evidence.exactly_once());
    }

    #[test]
    fn an_attempt_that_was_dropped_may_have_acted() {
        let evidence = UNSAFE.with_attempt_under_way();
        assert_eq!(evidence.outcome(), Outcome::Unknown);
        assert!(evidence.exactly_once());
        assert!(!after(evidence, &[(Answered, 200)]).exactly_once());
    }
}

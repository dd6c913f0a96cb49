//! What an attempt proves and what follows, read once more from the tables of the design and in other words than the crate's.

use super::schedule::OperationPlan;
use super::service::Reply;
use crate::classifier::Verdict;
use crate::classify::Delivery;
use crate::decision::Ending;
use crate::idempotency::contract::Meaning;
use crate::redirect::Redirect;

/// What one attempt proves of its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    NotDone,
    Done,
    Unsure,
}

/// What is to be made of one attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) delivery: Delivery,
    /// Another one may end differently.
    pub(super) retry: bool,
    pub(super) proof: Proof,
    /// It speaks for the attempts before it too, where the contract is declared.
    pub(super) settles: bool,
}

/// `unsure` says that an attempt before this one may have acted, and that nothing has settled it.
pub(super) fn read(plan: &OperationPlan, reply: &Reply, unsure: bool) -> Reading {
    use Delivery::{Answered, Rejected, Unknown};
    let redirect = reply.ending.redirect();
    let status = reply.ending.status().map(|status| status.as_u16());
    let asked = reply.ending.retry_after().is_some();
    let meaning = reply.meaning();
    // After a redirect a refusal is another request's.
    let refused = if redirect == Redirect::None { Rejected } else { Unknown };
    let guessed = meaning.is_none() && plan.trust.is_some() && unsure;
    let (mut delivery, mut retry) = match (reply.ending, meaning, status.unwrap_or(0)) {
        (_, Some(Meaning::InProgress), _) => (Unknown, true),
        (_, Some(Meaning::Mismatch | Meaning::Missing), _) => (refused, false),
        (_, Some(Meaning::Stored), _) => (Unknown, false),
        (Ending::Failure { finding, .. }, ..) => (finding.delivery, finding.retry),
        (Ending::BodyLost { .. }, ..) if redirect == Redirect::Astray => (Unknown, true),
        (Ending::BodyLost { .. }, ..) => (Answered, true),
        (Ending::Answer { .. }, _, 429) => (refused, true),
        (Ending::Answer { .. }, _, 503) if asked => (refused, true),
        (Ending::Answer { .. }, _, 500 | 502 | 503 | 504) => (Unknown, true),
        (Ending::Answer { .. }, _, 409) if guessed => (Unknown, true),
        (Ending::Answer { .. }, _, 400..500) => (refused, false),
        (Ending::Answer { .. }, _, ..400) => (Answered, false),
        (Ending::Answer { .. }, ..) => (Unknown, false),
    };
    let believed = reply.is_judged_by_others();
    match reply.verdict {
        Verdict::Default => {}
        Verdict::Retry => retry = true,
        Verdict::Final => retry = false,
        Verdict::Rejected | Verdict::Refused => {
            retry = reply.verdict == Verdict::Rejected;
            if believed {
                delivery = Rejected;
            }
        }
    }
    let proof = match (redirect, delivery, status) {
        (Redirect::SeeOther, ..) => Proof::Done,
        (Redirect::Astray, ..) => Proof::Unsure,
        (_, Answered, Some(101 | 200..=299 | 303 | 304)) => Proof::Done,
        (_, Answered, Some(301 | 302 | 307 | 308)) => Proof::NotDone,
        (_, Answered | Unknown, _) => Proof::Unsure,
        _ => Proof::NotDone,
    };
    let last_word =
        matches!(status, Some(400..500)) && !matches!(status, Some(401 | 403 | 407 | 408 | 409 | 425 | 429));
    let settles = match meaning {
        Some(Meaning::Mismatch) => true,
        Some(Meaning::Missing) => false,
        _ => (believed && reply.verdict == Verdict::Refused) || (last_word && !retry),
    };
    Reading {
        delivery,
        retry,
        proof,
        settles: settles && delivery == Rejected && status.is_some(),
    }
}

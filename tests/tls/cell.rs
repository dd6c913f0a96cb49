//! One cell of the matrix: what becomes of one kind of operation, and the few shapes that takes.

use std::fmt;

use steadfast::Delivery::{Answered, NotSent, Rejected, Unknown};
use steadfast::ErrorKind::Body;
use steadfast::StopReason::{Done, NotReplaySafe, NotRetryable};
use steadfast::{Attempts, Delivery, ErrorKind, Outcome, StopReason};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) first: First,
    pub(crate) delivery: Delivery,
    pub(crate) attempts: usize,
    pub(crate) requests: usize,
    pub(crate) stop: StopReason,
    pub(crate) outcome: Outcome,
}

/// How the first attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Failure(ErrorKind),
    Status(u16),
    Lost(u16, ErrorKind),
}

impl fmt::Display for First {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failure(kind) => write!(f, "`{kind:?}`"),
            Self::Status(status) => write!(f, "{status}"),
            Self::Lost(status, kind) => write!(f, "{status}, `{kind:?}`"),
        }
    }
}

impl Cell {
    pub(crate) fn of(attempts: &Attempts, requests: usize) -> Self {
        let first = attempts.iter().next().unwrap();
        Self {
            first: match (first.status(), first.failure()) {
                (None, Some(kind)) => First::Failure(kind),
                (Some(status), None) => First::Status(status.as_u16()),
                (Some(status), Some(kind)) => First::Lost(status.as_u16(), kind),
                (None, None) => panic!("an attempt ends somehow"),
            },
            delivery: first.delivery(),
            attempts: attempts.len(),
            requests,
            stop: attempts.stop_reason(),
            outcome: attempts.outcome(),
        }
    }

    pub(crate) fn line(self) -> String {
        let Self {
            first,
            delivery,
            attempts,
            requests,
            stop,
            outcome,
        } = self;
        format!("{first} | `{delivery:?}` | {attempts} | {requests} | `{stop:?}` | `{outcome:?}`")
    }
}

/// The second attempt brought the answer.
pub(crate) const fn healed(first: First, delivery: Delivery, requests: usize) -> Cell {
    Cell {
        first,
        delivery,
        attempts: 2,
        requests,
        stop: Done,
        outcome: Outcome::Completed,
    }
}

/// There was no second attempt.
pub(crate) const fn ended(
    first: First,
    delivery: Delivery,
    requests: usize,
    stop: StopReason,
    outcome: Outcome,
) -> Cell {
    Cell {
        first,
        delivery,
        attempts: 1,
        requests,
        stop,
        outcome,
    }
}

/// The request never left.
pub(crate) const fn unsent(kind: ErrorKind) -> [Cell; 3] {
    [healed(First::Failure(kind), NotSent, 1); 3]
}

/// A verdict on the server before anything was sent to it.
pub(crate) const fn condemned(kind: ErrorKind) -> [Cell; 3] {
    [ended(First::Failure(kind), NotSent, 0, NotRetryable, Outcome::NotDone); 3]
}

/// The server may have acted, and another attempt may end better.
pub(crate) const fn unsure(first: First) -> [Cell; 3] {
    let again = healed(first, Unknown, 2);
    [again, again, ended(first, Unknown, 1, NotReplaySafe, Outcome::Unknown)]
}

pub(crate) const fn failed(kind: ErrorKind) -> [Cell; 3] {
    unsure(First::Failure(kind))
}

/// The server may have acted, and another attempt would end like the first.
pub(crate) const fn unsure_for_good(first: First) -> [Cell; 3] {
    let write = ended(first, Unknown, 1, NotRetryable, Outcome::Unknown);
    [ended(first, Unknown, 1, NotRetryable, Outcome::NotDone), write, write]
}

/// A success whose body did not come.
pub(crate) const fn lost() -> [Cell; 3] {
    let first = First::Lost(200, Body);
    let again = healed(first, Answered, 2);
    [
        again,
        again,
        ended(first, Answered, 1, NotReplaySafe, Outcome::Completed),
    ]
}

pub(crate) const fn done(status: u16) -> Cell {
    ended(First::Status(status), Answered, 1, Done, Outcome::Completed)
}

/// An answer that leaves it open what a write did.
pub(crate) const fn astray(status: u16) -> Cell {
    ended(First::Status(status), Answered, 1, Done, Outcome::Unknown)
}

/// The server did nothing and wants to be asked again.
pub(crate) const fn deferred(status: u16) -> [Cell; 3] {
    [healed(First::Status(status), Rejected, 2); 3]
}

pub(crate) const fn rejected(status: u16) -> [Cell; 3] {
    [ended(First::Status(status), Rejected, 1, NotRetryable, Outcome::NotDone); 3]
}

//! What an attempt tells us: whether the server can have acted on it, and whether another one is worth making.
//!
//! The rules are one table, in two halves: [`status`] for answers, [`failure`] for everything that is not an answer.
//! Both are pure. Whether a repeat of an attempt whose delivery is unknown is *allowed* is not decided here but in
//! [`crate::replay`].

use std::fmt;

pub(crate) mod attempt_error;
pub(crate) mod failure;
pub(crate) mod health;
pub(crate) mod status;

/// What we know the server did with one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivery {
    /// No byte of the request can have reached the server.
    NotSent,
    /// The server said that it did not act on the request.
    Rejected,
    /// The server may have acted on the request, or not: nothing tells.
    Unknown,
    /// The server answered the request with a 1xx, 2xx or 3xx status.
    Answered,
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NotSent => "not sent",
            Self::Rejected => "rejected",
            Self::Unknown => "unknown",
            Self::Answered => "answered",
        })
    }
}

/// What an attempt proves, before anyone asks whether a repeat is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) delivery: Delivery,
    /// Another attempt may end differently.
    pub(crate) retry: bool,
}

impl Finding {
    pub(crate) const fn retry(delivery: Delivery) -> Self {
        Self { delivery, retry: true }
    }

    pub(crate) const fn last(delivery: Delivery) -> Self {
        Self { delivery, retry: false }
    }
}

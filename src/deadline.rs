//! Moments in time, and the error of one that has passed.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::BoxError;

/// A look at the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Instant,
    /// Since the `send()` began.
    pub(crate) elapsed: Duration,
}

impl Moment {
    /// When the `send()` begins.
    pub(crate) fn first() -> Self {
        Self {
            at: Instant::now(),
            elapsed: Duration::ZERO,
        }
    }

    /// Now, where this is the first.
    pub(crate) fn now(self) -> Self {
        let at = Instant::now();
        let elapsed = at.duration_since(self.at);
        Self { at, elapsed }
    }
}

/// `start + wait`, or a moment no one lives to see.
pub(crate) fn after(start: Instant, wait: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);
    start
        .checked_add(wait)
        .or_else(|| start.checked_add(FAR))
        .unwrap_or(start)
}

/// An error whose `is_timeout()` is true through reqwest's eyes too.
pub(crate) fn out_of_time(what: &'static str) -> BoxError {
    io::Error::new(io::ErrorKind::TimedOut, what).into()
}

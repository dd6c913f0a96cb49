//! The limits around a call: a handler that has two seconds left does not run a schedule of thirty, and of two layers that
//! could repeat a call only the outer one does (R31, R32).
//!
//! A scope belongs to the task. Every operation that is sent inside it keeps its limits, however deep in the code it is;
//! scopes inside scopes only ever narrow them.
//!
//! ```
//! use std::time::Duration;
//! use steadfast::scope;
//! use tokio::time::Instant;
//!
//! # async fn f(client: steadfast::Client) -> Result<(), steadfast::Error> {
//! // What the caller of this handler is still willing to wait for.
//! let deadline = Instant::now() + Duration::from_secs(2);
//! scope::with_deadline(deadline, async {
//!     client.get("https://api.example.com/orders").send().await?;
//!     // A task of its own takes the scope along.
//!     let current = scope::current();
//!     let orders = client.get("https://api.example.com/orders").send();
//!     let other = tokio::spawn(current.enter(orders));
//!     # drop(other);
//!     Ok(())
//! })
//! .await
//! # }
//! ```
//!
//! # Across services
//!
//! Under [`PolicyBuilder::scope_headers`](crate::PolicyBuilder::scope_headers) each attempt carries the headers named here,
//! and a service that reads them can go on with what is left.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::task::futures::TaskLocalFuture;
use tokio::task_local;
use tokio::time::Instant;

use crate::carried::Carried;
use crate::guard::Counted;

/// The header with the number of the attempt, from 1.
pub const ATTEMPT: HeaderName = HeaderName::from_static("steadfast-attempt");

/// The header with the milliseconds until the caller stops waiting for the attempt.
pub const REMAINING_MS: HeaderName = HeaderName::from_static("steadfast-remaining-ms");

/// The header, of value `1`, that says that somebody before the service repeats the call, so that the service should not
/// repeat those it makes for it.
pub const NO_RETRY: HeaderName = HeaderName::from_static("steadfast-no-retry");

task_local! {
    static SCOPE: Scope;
}

/// The limits of a scope, to be carried into a spawned task: see [`current`].
#[derive(Clone, Default)]
pub struct Scope {
    /// When every operation inside is over.
    deadline: Option<Instant>,
    /// When a body that was handed over is cut: what somebody set on purpose, not the end of an attempt around it.
    body_deadline: Option<Instant>,
    without_retries: bool,
    /// What is inside an attempt of an operation knows of it.
    around: Option<Around>,
}

/// An attempt, as the operations inside it see it.
#[derive(Clone)]
pub(crate) struct Around {
    pub(crate) ends: Instant,
    /// What cuts the bodies that are handed over: somebody set it, and not the end of the attempt.
    pub(crate) body_deadline: Option<Instant>,
    /// The number of the attempt.
    pub(crate) number: u32,
    /// Its request, which an operation inside may send on.
    pub(crate) carried: Arc<Carried>,
    /// What the guards of its operation count.
    pub(crate) counted: Weak<Counted>,
}

impl Around {
    fn is_under_way(&self) -> bool {
        self.counted.strong_count() > 0
    }
}

/// Runs a future whose operations, and the bodies they hand over, are over at the deadline. One that has passed lets no attempt
/// begin.
pub fn with_deadline<F: Future>(deadline: impl Into<Instant>, future: F) -> impl Future<Output = F::Output> {
    let deadline = Some(deadline.into());
    let scope = Scope {
        deadline,
        body_deadline: deadline,
        ..Scope::default()
    };
    scope.enter(future)
}

/// Runs a future whose operations make one attempt each, because something around it repeats them: a queue, a job, another
/// client. An operation that would have been repeated ends with [`StopReason::Scope`](crate::StopReason::Scope).
pub fn without_retries<F: Future>(future: F) -> impl Future<Output = F::Output> + use<F> {
    let scope = Scope {
        without_retries: true,
        ..Scope::default()
    };
    scope.enter(future)
}

/// The time left in this scope; `None` without a deadline.
pub fn remaining() -> Option<Duration> {
    current().remaining()
}

/// The scope of the running task, to be carried into another one by [`Scope::enter`]. Outside of any scope it has no limits.
pub fn current() -> Scope {
    SCOPE.try_with(Scope::clone).unwrap_or_default()
}

impl Scope {
    /// Runs a future in this scope, inside the one that is current when it is first polled: of both, the narrower limits hold.
    pub fn enter<F: Future>(self, future: F) -> impl Future<Output = F::Output> + use<F> {
        // Boxed, so that scopes inside scopes do not add their sizes up.
        let future = Box::pin(future);
        async move { SCOPE.scope(self.within(current()), future).await }
    }

    /// The moment at which everything inside is over.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The time until then.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Whether operations inside may repeat an attempt.
    pub fn allows_retries(&self) -> bool {
        !self.without_retries
    }

    /// The scope of what an attempt runs: another operation inside it keeps within the attempt, and leaves repeating to the
    /// operation around.
    pub(crate) fn of_attempt(around: Around) -> Self {
        Self {
            deadline: Some(around.ends),
            body_deadline: around.body_deadline,
            without_retries: true,
            around: Some(around),
        }
    }

    /// Calls a sender in this scope, and runs the future it gives in it.
    pub(crate) fn send<F: Future>(self, sender: impl FnOnce() -> F) -> TaskLocalFuture<Self, F> {
        let scope = self.within(current());
        let future = SCOPE.sync_scope(scope.clone(), sender);
        SCOPE.scope(scope, future)
    }

    pub(crate) fn body_deadline(&self) -> Option<Instant> {
        self.body_deadline
    }

    /// The request of the attempt that is under way around the running task.
    pub(crate) fn carried() -> Option<Arc<Carried>> {
        let carried = |scope: &Self| {
            let around = scope.around.as_ref().filter(|around| around.is_under_way())?;
            Some(Arc::clone(&around.carried))
        };
        SCOPE.try_with(carried).ok().flatten()
    }

    /// The number of an attempt as its service is told it: those of an operation inside an attempt go on from there.
    pub(crate) fn number(&self, own: u32) -> u32 {
        let before = self.around.as_ref().map_or(0, |around| around.number.saturating_sub(1));
        before.saturating_add(own)
    }

    pub(crate) fn counted(&self) -> Option<Arc<Counted>> {
        self.around.as_ref()?.counted.upgrade()
    }

    fn within(self, outer: Self) -> Self {
        let Self {
            deadline,
            body_deadline,
            without_retries,
            around,
        } = outer;
        Self {
            deadline: earlier(self.deadline, deadline),
            body_deadline: earlier(self.body_deadline, body_deadline),
            without_retries: self.without_retries || without_retries,
            // An attempt that is over has nothing on its books, and must not hide the one that is under way.
            around: self.around.filter(Around::is_under_way).or(around),
        }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("deadline", &self.deadline)
            .field("without_retries", &self.without_retries)
            .finish_non_exhaustive()
    }
}

/// The earlier of two moments that may not be there.
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Tells the receiving service of the attempt it gets.
pub(crate) fn tell(headers: &mut HeaderMap, attempt: u32, remaining: Duration, repeated: bool) {
    headers.insert(ATTEMPT, attempt.into());
    let millis = u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX);
    headers.insert(REMAINING_MS, millis.into());
    if repeated {
        headers.insert(NO_RETRY, HeaderValue::from_static("1"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    // R32
    #[tokio::test(start_paused = true)]
    async fn scopes_inside_scopes_only_narrow() {
        let now = Instant::now();
        with_deadline(now + secs(5), async {
            with_deadline(now + secs(9), async { assert_eq!(remaining(), Some(secs(5))) }).await;
            without_retries(with_deadline(now + secs(2), async {
                assert_eq!(remaining(), Some(secs(2)));
                assert!(!current().allows_retries());
            }))
            .await;
            assert!(current().allows_retries());
        })
        .await;
        assert_eq!(remaining(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_spawned_task_is_outside_unless_it_enters() {
        let outside = tokio::spawn(async { remaining() });
        let inside = with_deadline(Instant::now() + secs(5), async {
            tokio::spawn(current().enter(async { remaining() })).await.unwrap()
        });
        assert_eq!(inside.await, Some(secs(5)));
        assert_eq!(outside.await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_has_passed_leaves_nothing() {
        let passed = Instant::now();
        tokio::time::advance(secs(1)).await;
        with_deadline(passed, async { assert_eq!(remaining(), Some(Duration::ZERO)) }).await;
    }

    #[test]
    fn a_service_is_told_the_attempt_and_the_time_it_has() {
        let mut headers = HeaderMap::new();
        tell(&mut headers, 2, Duration::from_micros(1_999), true);
        assert_eq!(headers[ATTEMPT], "2");
        assert_eq!(headers[REMAINING_MS], "1");
        assert_eq!(headers[NO_RETRY], "1");
        tell(&mut headers, 1, Duration::MAX, false);
        assert_eq!(headers[REMAINING_MS], u64::MAX.to_string());
    }
}

//! The limits of an operation, checked once when they are written down.

use std::fmt;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::budget::RetryBudget;
use crate::circuit::settings::CircuitBreaker;
use crate::replay::UnknownRetries;
use crate::retry_after::Obeyed;
use crate::violation::{PolicyError, PolicyViolation};

const MAX_ATTEMPTS: u32 = 3;
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
const DEADLINE: Duration = Duration::from_secs(30);
const MIN_ATTEMPT_TIME: Duration = Duration::from_millis(10);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
const RESPONSE_BUFFER: usize = 1024 * 1024;
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How hard an operation may try: valid by construction, immutable, the same for every operation it is given to.
///
/// ```
/// use std::time::Duration;
/// use steadfast::Policy;
///
/// let policy = Policy::builder()
///     .deadline(Duration::from_secs(5))
///     .attempt_timeout(Duration::from_secs(1))
///     .build()?;
/// assert_eq!(policy.max_attempts(), 3);
/// # Ok::<(), steadfast::PolicyError>(())
/// ```
///
/// | setting | default |
/// |---|---|
/// | `max_attempts` | 3 |
/// | `attempt_timeout` | 10 s |
/// | `deadline` | 30 s, or `attempt_timeout` where only that was set, and longer |
/// | `min_attempt_time` | 10 ms |
/// | `backoff` | full jitter from 100 ms (1 s after a 429) to 10 s |
/// | `max_retry_after` | 60 s |
/// | `retry_after`, `retry_after_ms` | both headers are obeyed |
/// | `response_buffer` | 1 MiB |
/// | `stall_timeout` | 30 s |
/// | `unknown_retries` | `Keyed` |
/// | `budget` | a ratio of 0.2 and a burst of 50 |
/// | `circuit_breaker` | off |
/// | `scope_headers` | off |
#[derive(Clone, Default, PartialEq)]
pub struct Policy {
    settings: PolicyBuilder,
}

/// Collects the settings of a [`Policy`]. What is not set has its default.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "a builder does nothing until it is built"]
pub struct PolicyBuilder {
    pub(crate) max_attempts: Option<u32>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) min_attempt_time: Option<Duration>,
    pub(crate) backoff: Backoff,
    pub(crate) max_retry_after: Option<Duration>,
    pub(crate) retry_after: Option<bool>,
    pub(crate) retry_after_ms: Option<bool>,
    pub(crate) response_buffer: Option<usize>,
    pub(crate) stall_timeout: Option<Duration>,
    pub(crate) unknown_retries: UnknownRetries,
    pub(crate) budget: RetryBudget,
    pub(crate) circuit_breaker: Option<CircuitBreaker>,
    pub(crate) scope_headers: bool,
}

impl PolicyBuilder {
    /// The attempts one `send()` may make, the first included: 3 means at most 2 retries (R1, R30).
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// The time one attempt may take, from the first byte to the end of a body that is read inside it (R29).
    ///
    /// It takes the place of the inner client's own `timeout`. `connect_timeout` and `read_timeout` of the inner client
    /// cannot be set for one request and stay in force beside it.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Some(timeout);
        self
    }

    /// The time one `send()` may take: attempts, waits and buffered bodies (R25). Set alone, it only bounds the attempts, and a first
    /// one that hangs takes all of it: set [`attempt_timeout`](PolicyBuilder::attempt_timeout) too.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// An attempt that would have less time than this before the deadline is not made.
    pub fn min_attempt_time(mut self, time: Duration) -> Self {
        self.min_attempt_time = Some(time);
        self
    }

    /// The waits between attempts, where the server asks for none.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// The longest `Retry-After` that is waited for. At a longer one the operation stops and gives the answer back.
    pub fn max_retry_after(mut self, wait: Duration) -> Self {
        self.max_retry_after = Some(wait);
        self
    }

    /// Whether the header `Retry-After` is obeyed. Without it a 503 says nothing of what was done, and own waits apply.
    pub fn retry_after(mut self, obeyed: bool) -> Self {
        self.retry_after = Some(obeyed);
        self
    }

    /// Whether the header `retry-after-ms`, which some services have beside `Retry-After`, is obeyed, and wins over that.
    pub fn retry_after_ms(mut self, obeyed: bool) -> Self {
        self.retry_after_ms = Some(obeyed);
        self
    }

    /// The largest response body, in bytes, that is read inside the attempt, so that a body that is cut or stalls is a
    /// failed attempt and not a surprise after it. Larger ones are handed over unread; 0 hands every body over.
    pub fn response_buffer(mut self, bytes: usize) -> Self {
        self.response_buffer = Some(bytes);
        self
    }

    /// The longest silence of a body that was handed over. Then reading it fails as a timeout.
    pub fn stall_timeout(mut self, timeout: Duration) -> Self {
        self.stall_timeout = Some(timeout);
        self
    }

    /// What may be repeated when nobody knows whether the server acted.
    pub fn unknown_retries(mut self, allowed: UnknownRetries) -> Self {
        self.unknown_retries = allowed;
        self
    }

    /// How many retries all operations of a group may make together.
    pub fn budget(mut self, budget: RetryBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Leaves a service that is down alone for a while. Off unless it is set.
    pub fn circuit_breaker(mut self, circuit: CircuitBreaker) -> Self {
        self.circuit_breaker = Some(circuit);
        self
    }

    /// Tells the service with each attempt its number, the time it has, and whether somebody repeats the call: see
    /// [`scope`](crate::scope). The headers differ from attempt to attempt, so a signature must not cover them.
    pub fn scope_headers(mut self, sent: bool) -> Self {
        self.scope_headers = sent;
        self
    }

    /// The policy.
    ///
    /// # Errors
    ///
    /// A [`PolicyError`] with every rule that the settings break: nothing is clamped in silence.
    pub fn build(self) -> Result<Policy, PolicyError> {
        let policy = Policy { settings: self };
        let settings = &policy.settings;
        let mut violations = Vec::new();
        if settings.max_attempts == Some(0) {
            violations.push(PolicyViolation::LessThanOne {
                setting: "max_attempts",
            });
        }
        for (setting, value) in [
            ("attempt_timeout", settings.attempt_timeout),
            ("deadline", settings.deadline),
            ("stall_timeout", settings.stall_timeout),
        ] {
            if value == Some(Duration::ZERO) {
                violations.push(PolicyViolation::Zero { setting });
            }
        }
        let mut longer = |setting, value, limited_by, limit| {
            if value > limit && limit > Duration::ZERO {
                violations.push(PolicyViolation::Longer {
                    setting,
                    value,
                    limited_by,
                    limit,
                });
            }
        };
        if let (Some(timeout), Some(deadline)) = (settings.attempt_timeout, settings.deadline) {
            longer("attempt_timeout", timeout, "deadline", deadline);
        }
        // Whether set or not: no attempt would ever be made.
        longer(
            "min_attempt_time",
            policy.min_attempt_time(),
            "deadline",
            policy.deadline(),
        );
        if let Some(time) = settings.min_attempt_time {
            longer("min_attempt_time", time, "attempt_timeout", policy.attempt_timeout());
        }
        settings.budget.check(&mut violations);
        if let Some(circuit) = &settings.circuit_breaker {
            circuit.check(&mut violations);
        }
        if violations.is_empty() {
            Ok(policy)
        } else {
            Err(PolicyError::new(violations))
        }
    }
}

impl Policy {
    /// A builder with every setting at its default.
    pub fn builder() -> PolicyBuilder {
        PolicyBuilder::default()
    }

    /// See [`PolicyBuilder::max_attempts`].
    pub fn max_attempts(&self) -> u32 {
        self.settings.max_attempts.unwrap_or(MAX_ATTEMPTS)
    }

    /// See [`PolicyBuilder::attempt_timeout`].
    pub fn attempt_timeout(&self) -> Duration {
        self.settings.attempt_timeout.unwrap_or(ATTEMPT_TIMEOUT)
    }

    /// See [`PolicyBuilder::deadline`].
    pub fn deadline(&self) -> Duration {
        let lifted = || DEADLINE.max(self.attempt_timeout());
        self.settings.deadline.unwrap_or_else(lifted)
    }

    /// See [`PolicyBuilder::min_attempt_time`].
    pub fn min_attempt_time(&self) -> Duration {
        self.settings.min_attempt_time.unwrap_or(MIN_ATTEMPT_TIME)
    }

    /// See [`PolicyBuilder::backoff`].
    pub fn backoff(&self) -> &Backoff {
        &self.settings.backoff
    }

    /// See [`PolicyBuilder::max_retry_after`].
    pub fn max_retry_after(&self) -> Duration {
        self.settings.max_retry_after.unwrap_or(MAX_RETRY_AFTER)
    }

    /// See [`PolicyBuilder::retry_after`].
    pub fn retry_after(&self) -> bool {
        self.settings.retry_after.unwrap_or(true)
    }

    /// See [`PolicyBuilder::retry_after_ms`].
    pub fn retry_after_ms(&self) -> bool {
        self.settings.retry_after_ms.unwrap_or(true)
    }

    pub(crate) fn obeyed(&self) -> Obeyed {
        Obeyed {
            retry_after: self.retry_after(),
            retry_after_ms: self.retry_after_ms(),
        }
    }

    /// See [`PolicyBuilder::response_buffer`].
    pub fn response_buffer(&self) -> usize {
        self.settings.response_buffer.unwrap_or(RESPONSE_BUFFER)
    }

    /// See [`PolicyBuilder::stall_timeout`].
    pub fn stall_timeout(&self) -> Duration {
        self.settings.stall_timeout.unwrap_or(STALL_TIMEOUT)
    }

    /// See [`PolicyBuilder::unknown_retries`].
    pub fn unknown_retries(&self) -> UnknownRetries {
        self.settings.unknown_retries
    }

    /// See [`PolicyBuilder::budget`].
    pub fn budget(&self) -> &RetryBudget {
        &self.settings.budget
    }

    /// See [`PolicyBuilder::circuit_breaker`].
    pub fn circuit_breaker(&self) -> Option<&CircuitBreaker> {
        self.settings.circuit_breaker.as_ref()
    }

    /// See [`PolicyBuilder::scope_headers`].
    pub fn scope_headers(&self) -> bool {
        self.settings.scope_headers
    }

    /// This policy under the limits one request sets for itself.
    ///
    /// A deadline of the request may be shorter than anything in the policy, down to zero, which is a deadline that has
    /// passed: it is what a caller has left, not a mistake.
    pub(crate) fn limited(
        &self,
        max_attempts: Option<u32>,
        attempt_timeout: Option<Duration>,
        deadline: Option<Duration>,
    ) -> Result<Policy, PolicyError> {
        let mut settings = self.settings.clone();
        settings.max_attempts = max_attempts.or(settings.max_attempts);
        settings.attempt_timeout = attempt_timeout.or(settings.attempt_timeout);
        let Some(deadline) = deadline else {
            return settings.build();
        };
        // A deadline shorter than the policy's timeout bounds the attempts; one shorter than the request's own timeout
        // contradicts it, unless it leaves no time for any attempt.
        let compared = attempt_timeout.is_some() && deadline >= self.min_attempt_time();
        settings.deadline = compared.then_some(deadline);
        let mut policy = settings.build()?;
        policy.settings.deadline = Some(deadline);
        Ok(policy)
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("max_attempts", &self.max_attempts())
            .field("attempt_timeout", &self.attempt_timeout())
            .field("deadline", &self.deadline())
            .field("min_attempt_time", &self.min_attempt_time())
            .field("backoff", self.backoff())
            .field("max_retry_after", &self.max_retry_after())
            .field("retry_after", &self.retry_after())
            .field("retry_after_ms", &self.retry_after_ms())
            .field("response_buffer", &self.response_buffer())
            .field("stall_timeout", &self.stall_timeout())
            .field("unknown_retries", &self.unknown_retries())
            .field("budget", self.budget())
            .field("circuit_breaker", &self.circuit_breaker())
            .field("scope_headers", &self.scope_headers())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn violations(builder: PolicyBuilder) -> Vec<String> {
        let error = builder.build().unwrap_err();
        error.violations().iter().map(ToString::to_string).collect()
    }

    // R30, R40
    #[test]
    fn defaults_are_those_of_the_documentation() {
        let policy = Policy::default();
        assert_eq!(policy.max_attempts(), 3);
        assert_eq!(policy.attempt_timeout(), secs(10));
        assert_eq!(policy.deadline(), secs(30));
        assert_eq!(policy.min_attempt_time(), Duration::from_millis(10));
        assert_eq!(
            *policy.backoff(),
            Backoff::full_jitter(Duration::from_millis(100), secs(10))
        );
        assert_eq!(policy.max_retry_after(), secs(60));
        assert_eq!(policy.response_buffer(), 1 << 20);
        assert_eq!(policy.stall_timeout(), secs(30));
        assert_eq!(policy.unknown_retries(), UnknownRetries::Keyed);
        assert_eq!(*policy.budget(), RetryBudget::new(0.2, 50));
        assert_eq!(policy.circuit_breaker(), None);
        assert!(!policy.scope_headers());
        assert!(policy.retry_after() && policy.retry_after_ms());
        assert_eq!(Policy::builder().build(), Ok(policy));
    }

    #[test]
    fn getters_give_what_setters_took() {
        let policy = Policy::builder()
            .max_attempts(7)
            .attempt_timeout(secs(2))
            .deadline(secs(9))
            .min_attempt_time(secs(1))
            .backoff(Backoff::none())
            .max_retry_after(secs(5))
            .response_buffer(0)
            .stall_timeout(secs(6))
            .unknown_retries(UnknownRetries::Never)
            .budget(RetryBudget::unlimited())
            .circuit_breaker(CircuitBreaker::default())
            .scope_headers(true)
            .retry_after(false)
            .retry_after_ms(false)
            .build()
            .unwrap();
        assert_eq!(policy.max_attempts(), 7);
        assert_eq!(policy.attempt_timeout(), secs(2));
        assert_eq!(policy.deadline(), secs(9));
        assert_eq!(policy.min_attempt_time(), secs(1));
        assert_eq!(*policy.backoff(), Backoff::none());
        assert_eq!(policy.max_retry_after(), secs(5));
        assert_eq!(policy.response_buffer(), 0);
        assert_eq!(policy.stall_timeout(), secs(6));
        assert_eq!(policy.unknown_retries(), UnknownRetries::Never);
        assert_eq!(*policy.budget(), RetryBudget::unlimited());
        assert_eq!(policy.circuit_breaker(), Some(&CircuitBreaker::default()));
        assert!(policy.scope_headers());
        assert!(!policy.retry_after() && !policy.retry_after_ms());
    }

    #[test]
    fn a_timeout_longer_than_a_deadline_that_was_set_is_a_contradiction() {
        let builder = Policy::builder().attempt_timeout(secs(40)).deadline(secs(30));
        assert_eq!(violations(builder), ["attempt_timeout 40s is longer than deadline 30s"]);
    }

    #[test]
    fn a_timeout_lifts_a_deadline_that_was_not_set() {
        let policy = Policy::builder().attempt_timeout(secs(40)).build().unwrap();
        assert_eq!(policy.deadline(), secs(40));
    }

    #[test]
    fn a_deadline_shorter_than_the_default_timeout_bounds_the_attempts() {
        let policy = Policy::builder().deadline(secs(5)).build().unwrap();
        assert_eq!(policy.deadline(), secs(5));
    }

    #[test]
    fn every_broken_rule_is_named_at_once() {
        let builder = Policy::builder()
            .max_attempts(0)
            .attempt_timeout(secs(2))
            .deadline(secs(1))
            .min_attempt_time(secs(3))
            .stall_timeout(Duration::ZERO);
        assert_eq!(
            violations(builder.clone()),
            [
                "max_attempts 0 is less than 1",
                "stall_timeout 0s is not longer than 0s",
                "attempt_timeout 2s is longer than deadline 1s",
                "min_attempt_time 3s is longer than deadline 1s",
                "min_attempt_time 3s is longer than attempt_timeout 2s",
            ]
        );
        let text = builder.build().unwrap_err().to_string();
        assert!(text.starts_with("invalid policy: max_attempts 0"), "{text}");
    }

    #[test]
    fn zero_limits_are_refused() {
        let builder = Policy::builder()
            .attempt_timeout(Duration::ZERO)
            .deadline(Duration::ZERO);
        assert_eq!(
            violations(builder),
            [
                "attempt_timeout 0s is not longer than 0s",
                "deadline 0s is not longer than 0s"
            ]
        );
    }

    #[test]
    fn a_deadline_no_attempt_fits_in_is_refused() {
        let builder = Policy::builder().deadline(Duration::from_millis(5));
        assert_eq!(
            violations(builder),
            ["min_attempt_time 10ms is longer than deadline 5ms"]
        );
    }

    #[test]
    fn the_longest_durations_are_valid() {
        let policy = Policy::builder()
            .attempt_timeout(Duration::MAX)
            .max_retry_after(Duration::MAX)
            .stall_timeout(Duration::MAX)
            .max_attempts(u32::MAX)
            .build()
            .unwrap();
        assert_eq!(policy.deadline(), Duration::MAX);
    }

    // R32
    #[test]
    fn a_request_may_have_any_deadline() {
        let policy = Policy::builder().attempt_timeout(secs(10)).build().unwrap();
        for deadline in [Duration::ZERO, Duration::from_millis(1), secs(5), secs(90)] {
            let limited = policy.limited(None, None, Some(deadline)).unwrap();
            assert_eq!(limited.deadline(), deadline);
        }
        let limited = policy.limited(None, Some(secs(1)), Some(Duration::ZERO)).unwrap();
        assert_eq!(limited.deadline(), Duration::ZERO);
    }

    #[test]
    fn a_request_that_contradicts_itself_is_refused() {
        let policy = Policy::default();
        assert!(policy.limited(Some(0), None, None).is_err());
        assert!(policy.limited(None, Some(Duration::ZERO), None).is_err());
        assert!(policy.limited(None, Some(secs(6)), Some(secs(5))).is_err());
        let lifted = policy.limited(None, Some(secs(60)), None).unwrap();
        assert_eq!(lifted.deadline(), secs(60));
        let bounded = Policy::builder().deadline(secs(30)).build().unwrap();
        assert!(bounded.limited(None, Some(secs(60)), None).is_err());
    }
}

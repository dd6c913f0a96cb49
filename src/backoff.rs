//! How long to wait before a retry, when the server asked for nothing.
//!
//! A wait is a pure function of the retry's number, the wait before it and 64 random bits, so that it can be tested,
//! simulated and reproduced. The default is *full jitter*: uniform between zero and an exponential bound. It spreads
//! callers that failed together over the whole interval, where an un-jittered schedule brings them back together.
//!
//! ```
//! use std::time::Duration;
//! use steadfast::Backoff;
//!
//! let backoff = Backoff::full_jitter(Duration::from_millis(100), Duration::from_secs(10));
//! // The bound of retry 3 is 100 ms doubled twice; half of the random range draws half of it.
//! assert_eq!(backoff.wait(3, None, false, u64::MAX), Duration::from_millis(400));
//! assert_eq!(backoff.wait(3, None, false, u64::MAX / 2), Duration::from_millis(200));
//! ```
//!
//! A wait never depends on the wall clock, and every `Duration` is a valid base or cap: arithmetic saturates.

use std::time::Duration;

const BASE: Duration = Duration::from_millis(100);
const THROTTLED_BASE: Duration = Duration::from_secs(1);
const CAP: Duration = Duration::from_secs(10);

/// The schedule of waits between the attempts of one operation (R23, R24).
///
/// Every kind but [`none`](Backoff::none) and [`constant`](Backoff::constant) grows from a base to a cap. The default
/// is full jitter from 100 ms (1 s after a 429) to 10 s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    shape: Shape,
    base: Duration,
    throttled_base: Duration,
    cap: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Full,
    Equal,
    Decorrelated,
    Constant,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::full_jitter(BASE, CAP)
    }
}

impl Backoff {
    /// Uniform on `[0, min(cap, base * 2^(retry - 1))]`, both ends included.
    pub fn full_jitter(base: Duration, cap: Duration) -> Self {
        Self::growing(Shape::Full, base, cap)
    }

    /// Half of the bound of [`full_jitter`](Backoff::full_jitter) for certain, the other half at random.
    pub fn equal_jitter(base: Duration, cap: Duration) -> Self {
        Self::growing(Shape::Equal, base, cap)
    }

    /// Uniform between the base and three times the wait before, never above the cap.
    pub fn decorrelated_jitter(base: Duration, cap: Duration) -> Self {
        Self::growing(Shape::Decorrelated, base, cap)
    }

    /// The same wait before every retry. Callers that failed together come back together.
    pub fn constant(wait: Duration) -> Self {
        Self {
            shape: Shape::Constant,
            base: wait,
            throttled_base: wait,
            cap: wait,
        }
    }

    /// No wait at all. Attempts, deadline and `Retry-After` still bound the operation.
    pub fn none() -> Self {
        Self::constant(Duration::ZERO)
    }

    fn growing(shape: Shape, base: Duration, cap: Duration) -> Self {
        Self {
            shape,
            base,
            throttled_base: base.max(THROTTLED_BASE),
            cap,
        }
    }

    /// The base that counts after a 429, within the cap. By default 1 s or the ordinary base, whichever is longer; what is
    /// constant stays as it is.
    #[must_use]
    pub fn throttled_base(mut self, base: Duration) -> Self {
        self.throttled_base = base;
        self
    }

    /// The wait before retry number `retry` (1 is the first; 0 reads as 1).
    ///
    /// `previous` is the wait that came before the retry before this one, `throttled` says that the last answer was a
    /// 429, and `random` is 64 uniform bits. The result is never above the cap, for any `retry`.
    pub fn wait(&self, retry: u32, previous: Option<Duration>, throttled: bool, random: u64) -> Duration {
        let base = if throttled { self.throttled_base } else { self.base };
        let bound = doubled(base, retry.saturating_sub(1), self.cap);
        match self.shape {
            Shape::Full => uniform(bound, random),
            Shape::Equal => {
                let half = bound / 2;
                half + uniform(bound - half, random)
            }
            Shape::Decorrelated => {
                let low = base.min(self.cap);
                let high = previous.unwrap_or(base).saturating_mul(3).clamp(low, self.cap);
                low + uniform(high - low, random)
            }
            Shape::Constant => base,
        }
    }
}

/// `min(cap, base * 2^doublings)`.
pub(crate) fn doubled(base: Duration, doublings: u32, cap: Duration) -> Duration {
    if base.is_zero() {
        return Duration::ZERO;
    }
    let doubled = match doublings {
        0 => Some(base),
        1..32 => base.checked_mul(1 << doublings),
        // Even one nanosecond doubled 94 times is longer than `Duration::MAX`; growing in steps keeps it exact till then.
        _ => (0..doublings.min(94)).try_fold(base, |wait, _| wait.checked_mul(2)),
    };
    doubled.map_or(cap, |wait| wait.min(cap))
}

/// A duration uniform on `[0, max]`: the fixed-point product of `random / 2^64` and `max + 1` nanoseconds.
pub(crate) fn uniform(max: Duration, random: u64) -> Duration {
    if random == u64::MAX {
        // The same as below, but exact also for the few `max` of over 2^64 ns (584 years).
        return max;
    }
    let count = max.as_nanos() + 1;
    let (high, low) = (count >> 64, count & u128::from(u64::MAX));
    // `Duration::MAX` is less than 2^94 ns: `high` has at most 30 bits, so neither product passes 128 bits.
    let nanos = high * u128::from(random) + ((low * u128::from(random)) >> 64);
    // At most `max.as_nanos()`, so its seconds fit 64 bits as those of `max` do.
    Duration::new(
        u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX),
        u32::try_from(nanos % 1_000_000_000).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_duration() -> impl Strategy<Value = Duration> {
        prop_oneof![
            (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(s, n)| Duration::new(s, n)),
            (0..100_000_u64).prop_map(Duration::from_millis),
            Just(Duration::ZERO),
            Just(Duration::from_nanos(1)),
            Just(Duration::MAX),
        ]
    }

    fn any_backoff() -> impl Strategy<Value = Backoff> {
        (any_duration(), any_duration(), any_duration(), 0..4_usize).prop_map(|(base, cap, throttled, shape)| {
            let make = [
                Backoff::full_jitter,
                Backoff::equal_jitter,
                Backoff::decorrelated_jitter,
                |base, _| Backoff::constant(base),
            ];
            make[shape](base, cap).throttled_base(throttled)
        })
    }

    proptest! {
        // R24, field 11, field 12: any base, cap and retry, no panic and nothing above the cap.
        #[test]
        fn a_wait_never_passes_the_cap(
            backoff in any_backoff(), retry: u32, previous in proptest::option::of(any_duration()),
            throttled: bool, random: u64,
        ) {
            let wait = backoff.wait(retry, previous, throttled, random);
            prop_assert!(backoff.shape == Shape::Constant || wait <= backoff.cap);
        }

        // R23: the bound doubles with each retry, and both of its ends can be drawn.
        #[test]
        fn full_jitter_reaches_both_ends_of_its_bound(base in 1..=10_000_u64, retry in 1..=20_u32) {
            let base = Duration::from_micros(base);
            let cap = Duration::from_secs(60);
            let backoff = Backoff::full_jitter(base, cap);
            prop_assert_eq!(backoff.wait(retry, None, false, 0), Duration::ZERO);
            let bound = cap.min(base * 2_u32.pow(retry - 1));
            prop_assert_eq!(backoff.wait(retry, None, false, u64::MAX), bound);
        }

        #[test]
        fn equal_jitter_keeps_half_of_its_bound(random: u64, retry in 1..=8_u32) {
            let bound = Duration::from_millis(100 << (retry - 1));
            let wait = Backoff::equal_jitter(Duration::from_millis(100), Duration::from_secs(60))
                .wait(retry, None, false, random);
            prop_assert!(bound / 2 <= wait && wait <= bound);
        }

        #[test]
        fn decorrelated_jitter_stays_between_base_and_three_times_the_wait_before(
            random: u64, previous in 100..=2_000_u64,
        ) {
            let base = Duration::from_millis(100);
            let previous = Duration::from_millis(previous);
            let wait = Backoff::decorrelated_jitter(base, Duration::from_secs(60))
                .wait(2, Some(previous), false, random);
            prop_assert!(base <= wait && wait <= previous * 3);
        }

        #[test]
        fn a_draw_grows_with_its_random_bits(max in any_duration(), a: u64, b: u64) {
            prop_assert!(uniform(max, a.min(b)) <= uniform(max, a.max(b)));
        }
    }

    // R23: with full jitter the mean wait is half the bound.
    #[test]
    fn the_mean_of_full_jitter_is_half_its_bound() {
        let backoff = Backoff::full_jitter(Duration::from_millis(100), Duration::from_secs(10));
        let draws = 10_000_u32;
        let step = u64::MAX / u64::from(draws);
        let total: Duration = (0..draws)
            .map(|n| backoff.wait(3, None, false, u64::from(n) * step))
            .sum();
        let mean = total / draws;
        assert!((Duration::from_millis(199)..=Duration::from_millis(201)).contains(&mean));
    }

    // field 11
    #[test]
    fn every_retry_number_has_a_bound() {
        let cap = Duration::from_secs(10);
        for base in [Duration::from_nanos(1), Duration::from_millis(100), Duration::MAX] {
            let backoff = Backoff::full_jitter(base, cap);
            for retry in [63, 64, 65, 94, 95, 96, 1023, 1024, 1025, u32::MAX] {
                assert_eq!(backoff.wait(retry, None, false, u64::MAX), cap, "{retry}");
            }
            assert_eq!(backoff.wait(0, None, false, u64::MAX), base.min(cap));
            assert_eq!(backoff.wait(1, None, false, u64::MAX), base.min(cap));
        }
    }

    #[test]
    fn doubling_is_exact_until_it_passes_the_cap() {
        let backoff = Backoff::full_jitter(Duration::from_nanos(1), Duration::MAX);
        let bound = backoff.wait(65, None, false, u64::MAX);
        assert_eq!(bound.as_nanos(), 1 << 64);
    }

    #[test]
    fn a_throttled_wait_starts_from_its_own_base() {
        let backoff = Backoff::default();
        let second = Duration::from_secs(1);
        assert_eq!(backoff.wait(1, None, true, u64::MAX), second);
        assert_eq!(backoff.wait(2, None, true, u64::MAX), second * 2);
        let slow = Backoff::full_jitter(second * 3, second * 60);
        assert_eq!(slow.wait(1, None, true, u64::MAX), second * 3);
        let own = slow.throttled_base(second * 7);
        assert_eq!(own.wait(1, None, true, u64::MAX), second * 7);
    }

    #[test]
    fn constant_and_none_know_no_jitter() {
        let second = Duration::from_secs(1);
        assert_eq!(Backoff::constant(second).wait(9, None, true, 5), second);
        assert_eq!(Backoff::none().wait(9, None, true, 5), Duration::ZERO);
    }
}

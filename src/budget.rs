//! The retry budget: retries may be a fraction of the traffic that works, and a few more.
//!
//! A limit on the retries of one operation does not limit those of a fleet: in an outage, three attempts each are three
//! times the load. The budget is one bucket of tokens for all operations of a group. An operation that is answered
//! deposits a part of a token, a retry costs a whole one, and when the bucket is dry there are no retries.
//!
//! A bucket holds what is *missing* from full, and that as a moment: the one at which the trickle alone will have filled it
//! up. So a bucket is one integer, a withdrawal is one atomic step, a full bucket is only read, and no bucket is
//! ever above its burst.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};
use crate::violation::PolicyViolation;

pub(crate) const RATIO: f64 = 0.2;
pub(crate) const BURST: u32 = 50;
/// Less than a thousandth of a token would count as nothing.
const LEAST_RATIO: f64 = 0.001;
/// The parts of a token that are counted.
const TOKEN: u64 = 1000;
/// A quiet client gets one token each ten seconds: a thousandth each 10 ms.
const TRICKLE: u128 = 10;

/// How many retries a group of endpoints may see, for all operations together.
///
/// ```
/// use steadfast::{Policy, RetryBudget};
///
/// // At most one retry for ten operations that are answered, after twenty that are free.
/// let policy = Policy::builder().budget(RetryBudget::new(0.1, 20)).build()?;
/// # Ok::<(), steadfast::PolicyError>(())
/// ```
///
/// The default is a ratio of 0.2 and a burst of 50. Whatever `max_attempts` says, in a total outage N operations of a client
/// send at most N + burst requests, and one more each ten seconds. The budget is each client's own: where a client makes
/// fewer operations than its burst, it is no limit, and many of them together need a smaller one.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryBudget {
    pub(crate) limits: Option<Limits>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    pub(crate) ratio: f64,
    pub(crate) burst: u32,
}

impl RetryBudget {
    /// `ratio` is what an answered operation deposits, in tokens, and must be at least 0.001. `burst` is what the bucket
    /// holds, and what it holds at first; it must not be 0. The policy's `build()` names a value that is not valid.
    ///
    /// An answer deposits unless its status is one that is retried. Every retry withdraws a token before its wait, and
    /// gets it back if it is not made.
    pub fn new(ratio: f64, burst: u32) -> Self {
        Self {
            limits: Some(Limits { ratio, burst }),
        }
    }

    /// No budget: `max_attempts` alone limits the retries. In an outage they multiply the load.
    pub fn unlimited() -> Self {
        Self { limits: None }
    }

    pub(crate) fn check(&self, violations: &mut Vec<PolicyViolation>) {
        let Some(Limits { ratio, burst }) = self.limits else {
            return;
        };
        if !(ratio.is_finite() && ratio >= LEAST_RATIO) {
            violations.push(PolicyViolation::OutOfRange {
                setting: "budget.ratio",
                value: ratio,
                range: "a finite number of at least 0.001",
            });
        }
        if burst == 0 {
            violations.push(PolicyViolation::LessThanOne {
                setting: "budget.burst",
            });
        }
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self::new(RATIO, BURST)
    }
}

impl Limits {
    fn capacity(self) -> u64 {
        u64::from(self.burst) * TOKEN
    }

    /// What one deposit adds. Beyond the capacity it makes no difference.
    fn deposit(self) -> u64 {
        // A cast from f64 saturates; NaN, of which no policy can be built, would be 0.
        (self.ratio * TOKEN as f64).round() as u64
    }
}

/// The bucket of one group. The limits come with each call, so that a policy that is changed counts at once.
///
/// Time is since an epoch of the caller's, which never moves.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// When the bucket will be full by the trickle alone, in units of its time for a thousandth of a token.
    full_at: AtomicU64,
    /// The capacity by the limits of the last call, which only those who look at the bucket want to know. 0 before any.
    capacity: AtomicU64,
}

impl Bucket {
    /// A full one.
    pub(crate) fn new() -> Self {
        Self {
            full_at: AtomicU64::new(0),
            capacity: AtomicU64::new(0),
        }
    }

    /// Takes a token for one retry, or nothing.
    pub(crate) fn withdraw(&self, now: Duration, limits: Limits) -> bool {
        let now = thousandths(now);
        let capacity = self.note_capacity(limits);
        self.change(|full_at| {
            let full_at = full_at.max(now).saturating_add(TOKEN);
            (full_at - now <= capacity).then_some(full_at)
        })
    }

    /// The deposit of an operation that was answered.
    pub(crate) fn deposit(&self, now: Duration, limits: Limits) {
        let now = thousandths(now);
        self.note_capacity(limits);
        self.change(|full_at| (full_at > now).then(|| full_at.saturating_sub(limits.deposit())));
    }

    /// Gives back the token of a retry that was not made. A moment that is past is a full bucket, however long ago.
    pub(crate) fn refund(&self) {
        self.change(|full_at| Some(full_at.saturating_sub(TOKEN)));
    }

    /// What it holds, in tokens; `None` if nobody has asked it for anything.
    pub(crate) fn level(&self, now: Duration) -> Option<f64> {
        let capacity = self.capacity.load(Ordering::Relaxed);
        (capacity > 0).then(|| capacity.saturating_sub(self.missing(now)) as f64 / TOKEN as f64)
    }

    pub(crate) fn is_full(&self, now: Duration) -> bool {
        self.missing(now) == 0
    }

    fn missing(&self, now: Duration) -> u64 {
        self.full_at.load(Ordering::Relaxed).saturating_sub(thousandths(now))
    }

    fn note_capacity(&self, limits: Limits) -> u64 {
        let capacity = limits.capacity();
        // Seldom another one: most calls only read it.
        if self.capacity.load(Ordering::Relaxed) != capacity {
            self.capacity.store(capacity, Ordering::Relaxed);
        }
        capacity
    }

    /// `Relaxed`, as the number stands for nothing but itself.
    fn change(&self, next: impl FnMut(u64) -> Option<u64>) -> bool {
        self.full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .is_ok()
    }
}

/// What the trickle brings in that time.
fn thousandths(time: Duration) -> u64 {
    u64::try_from(time.as_millis() / TRICKLE).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn limits(ratio: f64, burst: u32) -> Limits {
        Limits { ratio, burst }
    }

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn withdrawals(bucket: &Bucket, now: Duration, limits: Limits) -> usize {
        std::iter::repeat_with(|| bucket.withdraw(now, limits))
            .take_while(|paid| *paid)
            .count()
    }

    const NOW: Duration = secs(3600);

    // field 40
    #[test]
    fn a_new_bucket_holds_its_burst_and_runs_dry() {
        let bucket = Bucket::new();
        assert_eq!(withdrawals(&bucket, NOW, limits(0.2, 50)), 50);
        assert!(!bucket.withdraw(NOW, limits(0.2, 50)));
    }

    // field 41
    #[test]
    fn ten_deposits_of_0_6_pay_for_six_retries_and_no_more() {
        let limits = limits(0.6, 50);
        let bucket = Bucket::new();
        withdrawals(&bucket, NOW, limits);
        for _ in 0..10 {
            bucket.deposit(NOW, limits);
        }
        assert_eq!(withdrawals(&bucket, NOW, limits), 6);
    }

    // field 41
    #[test]
    fn a_ratio_that_is_no_binary_number_counts_in_full() {
        // A thousand times as much is 1000.9999999999999.
        let limits = limits(1.001, 60);
        let bucket = Bucket::new();
        withdrawals(&bucket, NOW, limits);
        for _ in 0..50 {
            bucket.deposit(NOW, limits);
        }
        assert_eq!(bucket.level(NOW), Some(50.05));
    }

    #[test]
    fn a_full_bucket_takes_no_deposit() {
        let limits = limits(0.5, 3);
        let bucket = Bucket::new();
        for _ in 0..100 {
            bucket.deposit(NOW, limits);
            bucket.refund();
        }
        assert_eq!(withdrawals(&bucket, NOW, limits), 3);
    }

    // field 40
    #[test]
    fn a_dry_bucket_gets_one_token_each_ten_seconds() {
        let limits = limits(0.2, 2);
        let bucket = Bucket::new();
        withdrawals(&bucket, NOW, limits);
        let almost = NOW + Duration::from_millis(9_999);
        assert_eq!(withdrawals(&bucket, almost, limits), 0);
        assert_eq!(withdrawals(&bucket, NOW + secs(10), limits), 1);
        assert!(!bucket.is_full(NOW + secs(29)));
        assert!(bucket.is_full(NOW + secs(30)));
        assert_eq!(withdrawals(&bucket, NOW + secs(1_000), limits), 2);
    }

    // field 42
    #[test]
    fn a_token_that_is_given_back_pays_for_another_retry() {
        let limits = limits(0.2, 1);
        let bucket = Bucket::new();
        assert!(bucket.withdraw(NOW, limits));
        assert!(!bucket.withdraw(NOW, limits));
        bucket.refund();
        assert!(bucket.withdraw(NOW, limits));
    }

    #[test]
    fn the_level_is_what_can_be_withdrawn() {
        let limits = limits(0.25, 4);
        let bucket = Bucket::new();
        assert_eq!(bucket.level(NOW), None);
        bucket.deposit(NOW, limits);
        assert_eq!(bucket.level(NOW), Some(4.0));
        assert!(bucket.withdraw(NOW, limits) && bucket.withdraw(NOW, limits));
        assert_eq!(bucket.level(NOW), Some(2.0));
        bucket.deposit(NOW, limits);
        assert_eq!(bucket.level(NOW), Some(2.25));
        assert_eq!(bucket.level(NOW + secs(1)), Some(2.35));
    }

    #[test]
    fn the_largest_limits_and_the_end_of_time_are_no_trouble() {
        let limits = limits(f64::MAX, u32::MAX);
        let bucket = Bucket::new();
        for now in [Duration::ZERO, NOW, Duration::MAX] {
            assert!(bucket.withdraw(now, limits), "{now:?}");
            bucket.deposit(now, limits);
            assert_eq!(bucket.level(now), Some(f64::from(u32::MAX)), "{now:?}");
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Withdraw,
        Deposit,
        Refund,
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Withdraw),
            3 => Just(Step::Deposit),
            1 => Just(Step::Refund),
            2 => (0..30_000_u64).prop_map(Step::Pass),
        ]
    }

    proptest! {
        // field 41: beside a bucket that is a plain count of thousandths.
        #[test]
        fn a_bucket_is_a_count_of_tokens_that_never_passes_its_burst(
            ratio in 1..3_000_u64, burst in 1..8_u32, steps in proptest::collection::vec(step(), 1..200),
        ) {
            let limits = limits(ratio as f64 / 1000.0, burst);
            let full = u64::from(burst) * 1000;
            let (bucket, mut count, mut now) = (Bucket::new(), full, NOW);
            for step in steps {
                match step {
                    Step::Withdraw => {
                        let paid = count >= 1000;
                        prop_assert_eq!(bucket.withdraw(now, limits), paid);
                        count -= if paid { 1000 } else { 0 };
                    }
                    Step::Deposit => {
                        bucket.deposit(now, limits);
                        count = full.min(count + ratio);
                    }
                    Step::Refund => {
                        bucket.refund();
                        count = full.min(count + 1000);
                    }
                    Step::Pass(millis) => {
                        let trickled = (now.as_millis() as u64 + millis) / 10 - now.as_millis() as u64 / 10;
                        now += Duration::from_millis(millis);
                        count = full.min(count + trickled);
                    }
                }
                bucket.deposit(now, limits);
                count = full.min(count + ratio);
                prop_assert_eq!(bucket.level(now), Some(count as f64 / 1000.0));
            }
        }
    }

    // field 41
    #[test]
    fn threads_that_share_a_bucket_never_take_one_token_more_than_it_has() {
        for _ in 0..50 {
            let bucket = Bucket::new();
            let taken = std::thread::scope(|scope| {
                let takers: Vec<_> = (0..8)
                    .map(|_| scope.spawn(|| withdrawals(&bucket, NOW, limits(0.2, 97))))
                    .collect();
                takers.into_iter().map(|taker| taker.join().unwrap()).sum::<usize>()
            });
            assert_eq!(taken, 97);
        }
    }
}

//! What happened lately: successes and failures, in slices of a window that rolls on with time.

use std::time::Duration;

/// A window forgets its oldest tenth at a time.
pub(crate) const SLICES: usize = 10;

/// The calls of the last while, counted. Its size does not depend on the traffic.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// How long a slice is, in nanoseconds.
    slice: u64,
    /// The number of the latest slice, counted from the epoch.
    latest: u64,
    slices: [Counts; SLICES],
}

/// Calls by their result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) successes: u32,
    pub(crate) failures: u32,
}

impl Counts {
    pub(crate) fn add(&mut self, success: bool) {
        let count = if success {
            &mut self.successes
        } else {
            &mut self.failures
        };
        *count = count.saturating_add(1);
    }

    pub(crate) fn calls(self) -> u32 {
        self.successes.saturating_add(self.failures)
    }

    /// The part of the calls that failed, if there were any.
    pub(crate) fn failure_ratio(self) -> Option<f64> {
        let calls = self.calls();
        (calls > 0).then(|| f64::from(self.failures) / f64::from(calls))
    }
}

impl Window {
    /// Counts one call.
    ///
    /// Policies of different windows may share a group. A longer window takes over at once, with the calls of the one before; a
    /// shorter one waits until the window is empty. So neither wipes out the other's calls.
    pub(crate) fn add(&mut self, now: Duration, length: Duration, success: bool) {
        let slice = (nanos(length) / SLICES as u64).max(1);
        if slice != self.slice {
            let counts = self.counts(now);
            if slice > self.slice || counts.calls() == 0 {
                *self = Self {
                    slice,
                    latest: nanos(now) / slice,
                    ..Self::default()
                };
                *self.latest_slice() = counts;
            }
        }
        self.roll(now);
        self.latest_slice().add(success);
    }

    /// All that is in it at this moment.
    pub(crate) fn counts(&self, now: Duration) -> Counts {
        let passed = self.latest_at(now) - self.latest;
        // The slices that time has passed over hold nothing any more, whether somebody has cleared them or not.
        let mut total = Counts::default();
        for age in passed..SLICES as u64 {
            let slice = self
                .latest
                .checked_sub(age - passed)
                .and_then(|number| self.slices.get(index(number)));
            if let Some(counts) = slice {
                total.successes = total.successes.saturating_add(counts.successes);
                total.failures = total.failures.saturating_add(counts.failures);
            }
        }
        total
    }

    fn latest_slice(&mut self) -> &mut Counts {
        // There are `SLICES` slices, so the index is within them.
        #[expect(clippy::indexing_slicing)]
        &mut self.slices[index(self.latest)]
    }

    fn roll(&mut self, now: Duration) {
        let latest = self.latest_at(now);
        for number in (self.latest..latest).rev().take(SLICES) {
            if let Some(counts) = self.slices.get_mut(index(number + 1)) {
                *counts = Counts::default();
            }
        }
        self.latest = latest;
    }

    /// A caller that read the clock before another one and comes after it counts where that one did.
    fn latest_at(&self, now: Duration) -> u64 {
        nanos(now).checked_div(self.slice).unwrap_or(0).max(self.latest)
    }
}

fn index(slice: u64) -> usize {
    // Less than `SLICES`, so it fits.
    (slice % SLICES as u64) as usize
}

/// 584 years, and then no further.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn counts(successes: u32, failures: u32) -> Counts {
        Counts { successes, failures }
    }

    #[test]
    fn a_window_rolls_on_by_tenths() {
        let mut window = Window::default();
        window.add(secs(600), MINUTE, false);
        window.add(secs(606), MINUTE, true);
        assert_eq!(window.counts(secs(606)), counts(1, 1));
        assert_eq!(window.counts(secs(659)), counts(1, 1));
        assert_eq!(window.counts(secs(660)), counts(1, 0));
        assert_eq!(window.counts(secs(666)), counts(0, 0));
        window.add(secs(666), MINUTE, false);
        assert_eq!(window.counts(secs(666)), counts(0, 1));
    }

    // R36
    #[test]
    fn a_longer_window_takes_over_with_the_calls_there_are() {
        let mut window = Window::default();
        window.add(secs(600), MINUTE, false);
        window.add(secs(606), MINUTE * 10, false);
        assert_eq!(window.counts(secs(660)), counts(0, 2));
        assert_eq!(window.counts(secs(1_199)), counts(0, 2));
        assert_eq!(window.counts(secs(1_200)), counts(0, 0));
    }

    // R36
    #[test]
    fn a_shorter_window_waits_until_there_is_nothing_to_count() {
        let mut window = Window::default();
        window.add(secs(600), MINUTE * 10, false);
        window.add(secs(1_199), MINUTE, false);
        assert_eq!(window.counts(secs(1_199)), counts(0, 2));
        window.add(secs(1_800), MINUTE, false);
        assert_eq!(window.counts(secs(1_859)), counts(0, 1));
        assert_eq!(window.counts(secs(1_860)), counts(0, 0));
    }

    #[test]
    fn who_read_the_clock_before_another_counts_beside_it() {
        let mut window = Window::default();
        window.add(secs(606), MINUTE, false);
        window.add(secs(600), MINUTE, true);
        assert_eq!(window.counts(secs(600)), counts(1, 1));
        assert_eq!(window.counts(secs(665)), counts(1, 1));
        assert_eq!(window.counts(secs(666)), counts(0, 0));
    }

    #[test]
    fn an_empty_window_has_no_ratio() {
        let window = Window::default();
        assert_eq!(window.counts(MINUTE).failure_ratio(), None);
    }

    #[test]
    fn the_shortest_window_and_the_end_of_time_are_no_trouble() {
        for length in [Duration::from_nanos(1), Duration::MAX] {
            let mut window = Window::default();
            window.add(Duration::ZERO, length, true);
            assert_eq!(window.counts(Duration::ZERO).calls(), 1, "{length:?}");
            window.add(Duration::MAX, length, true);
            assert_eq!(window.counts(Duration::MAX).calls(), 1, "{length:?}");
        }
    }

    proptest! {
        // R36: beside a list of all calls there ever were.
        #[test]
        fn a_window_holds_what_a_list_of_all_calls_has_in_its_last_ten_slices(
            calls in proptest::collection::vec((0..40_u64, any::<bool>()), 1..200), length in 1..100_u64,
        ) {
            let slice = length;
            let length = Duration::from_millis(length) * 10;
            let (mut window, mut list, mut now) = (Window::default(), Vec::new(), 0);
            for (pause, success) in calls {
                now += pause * length.as_millis() as u64 / 17;
                window.add(Duration::from_millis(now), length, success);
                list.push((now / slice, success));
                let of = |kind| {
                    let lately = list.iter().filter(|(at, success)| *success == kind && at + 10 > now / slice);
                    lately.count() as u32
                };
                prop_assert_eq!(window.counts(Duration::from_millis(now)), counts(of(true), of(false)));
            }
        }
    }
}

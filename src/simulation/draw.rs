//! What a seed decides, one draw after the other, with more of the boundaries than chance would bring.

use std::time::Duration;

pub(super) const NANO: Duration = Duration::from_nanos(1);

pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits by the finalizer of splitmix64: seeds that follow each other have nothing in common.
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    pub(super) fn percent(&mut self, part: u64) -> bool {
        self.below(100) < part
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    pub(super) fn maybe<T>(&mut self, part: u64, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.percent(part).then(|| draw(self))
    }

    /// The random bits of a wait: often those that reach the ends of its bounds.
    pub(super) fn jitter(&mut self) -> u64 {
        match self.below(4) {
            0 => 0,
            1 => u64::MAX,
            _ => self.bits(),
        }
    }

    /// Any time: mostly one that services have, often one at which something could break.
    pub(super) fn time(&mut self) -> Duration {
        let millis = Duration::from_millis;
        match self.below(10) {
            0 => self.pick(&[
                Duration::ZERO,
                NANO,
                Duration::MAX,
                Duration::MAX - NANO,
                Duration::from_secs(u64::from(u32::MAX)),
            ]),
            1 => self.pick(&[
                millis(10),
                millis(10) - NANO,
                millis(10) + NANO,
                millis(20),
                millis(20) + NANO,
            ]),
            2 | 3 => self.pick(&[millis(1), millis(100), millis(1_000), millis(5_000), millis(10_000)]),
            4 | 5 => millis(self.below(1_000)),
            _ => millis(self.below(30_000)),
        }
    }

    /// Up to that long, often exactly or almost.
    pub(super) fn within(&mut self, most: Duration) -> Duration {
        match self.below(8) {
            0 => Duration::ZERO,
            1 => NANO.min(most),
            2 => most.saturating_sub(NANO),
            3 => most,
            _ => {
                let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX - 1);
                Duration::from_nanos(self.below(nanos + 1))
            }
        }
    }

    /// How much later than it should something happens: mostly at once, for threads may be busy.
    pub(super) fn lateness(&mut self) -> Duration {
        match self.below(20) {
            0 => NANO,
            1 => Duration::from_millis(self.below(12)),
            2 => Duration::from_millis(self.below(3_000)),
            _ => Duration::ZERO,
        }
    }
}

//! The groups there are: made when they are first asked for, forgotten when there is nothing to remember.
//!
//! A group costs a few hundred bytes, and a client may be sent to any number of hosts. Those with a closed circuit, no
//! calls in the window and a full budget are as good as new, and are forgotten from time to time (field case 49). The
//! others are kept up to a bound, far above what a service has to do with.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use hashbrown::HashTable;
use tokio::time::Instant;

use super::breaker::CircuitState;
use super::group::Group;
use super::name::GroupName;

/// Each has a lock of its own, so that looking through one holds up few others.
const SHARDS: usize = 64;
/// In all, a hundred thousand groups and some more, as they do not spread evenly.
const MAX_IN_SHARD: usize = 2048;
/// The part of a full shard that is forgotten when it has no room left.
const EVICTED_PART: usize = 16;
/// The fewest groups of a shard that are worth being looked through.
const MIN_SWEPT: usize = 32;

pub(crate) struct Registry {
    /// Where the time of all groups begins.
    epoch: Instant,
    hasher: RandomState,
    shards: Box<[RwLock<Shard>]>,
    /// The groups of a shard that are kept, whatever they remember.
    max_in_shard: usize,
    /// How many groups were forgotten although there was something to remember.
    evicted: AtomicU64,
}

#[derive(Default)]
struct Shard {
    groups: HashTable<Entry>,
    /// How many groups it may have before it is looked through.
    sweep_at: usize,
}

struct Entry {
    name: GroupName<'static>,
    group: Arc<Group>,
    /// When somebody asked for it last, in milliseconds.
    used_at: AtomicU64,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self::bounded(MAX_IN_SHARD)
    }

    fn bounded(max_in_shard: usize) -> Self {
        Self {
            epoch: Instant::now(),
            hasher: RandomState::new(),
            shards: std::iter::repeat_with(RwLock::default).take(SHARDS).collect(),
            max_in_shard,
            evicted: AtomicU64::new(0),
        }
    }

    /// A moment in the time of the groups. One before their epoch is their epoch.
    pub(crate) fn time(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.epoch)
    }

    /// The group of this name, a new one if there is none. It is not forgotten as long as somebody has it.
    pub(crate) fn group(&self, name: &GroupName<'_>, now: Duration) -> Arc<Group> {
        let hash = self.hasher.hash_one(name);
        let shard = self.shard(hash);
        if let Some(entry) = read(shard).groups.find(hash, |entry| entry.name == *name) {
            entry.use_at(now);
            return Arc::clone(&entry.group);
        }
        let mut shard = write(shard);
        if let Some(entry) = shard.groups.find(hash, |entry| entry.name == *name) {
            return Arc::clone(&entry.group);
        }
        self.make_room(&mut shard, now);
        let entry = Entry {
            name: name.clone().into_owned(),
            group: Arc::new(Group::new()),
            used_at: AtomicU64::new(millis(now)),
        };
        let group = Arc::clone(&entry.group);
        let rehash = |entry: &Entry| self.hasher.hash_one(&entry.name);
        shard.groups.insert_unique(hash, entry, rehash);
        group
    }

    /// The group of this name, if there is one.
    pub(crate) fn get(&self, name: &GroupName<'_>) -> Option<Arc<Group>> {
        let hash = self.hasher.hash_one(name);
        let shard = read(self.shard(hash));
        let entry = shard.groups.find(hash, |entry| entry.name == *name)?;
        Some(Arc::clone(&entry.group))
    }

    /// All groups, in no order. Each shard is locked for as long as it takes to copy its names.
    pub(crate) fn all(&self) -> Vec<(GroupName<'static>, Arc<Group>)> {
        let entry = |entry: &Entry| (entry.name.clone(), Arc::clone(&entry.group));
        let shards = self.shards.iter();
        shards
            .flat_map(|shard| read(shard).groups.iter().map(entry).collect::<Vec<_>>())
            .collect()
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        // Bits that the table itself looks at last. There are `SHARDS` shards, so the index is within them.
        #[expect(clippy::indexing_slicing)]
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    fn make_room(&self, shard: &mut Shard, now: Duration) {
        let groups = &mut shard.groups;
        if groups.len() < shard.sweep_at.clamp(MIN_SWEPT, self.max_in_shard) {
            return;
        }
        groups.retain(|entry| entry.is_in_use() || !entry.group.is_idle(now));
        // Room for as many again: all sweeps together cost each group a few looks.
        shard.sweep_at = groups.len() * 2;
        groups.shrink_to(shard.sweep_at, |entry| self.hasher.hash_one(&entry.name));
        if groups.len() < self.max_in_shard {
            return;
        }
        // Many at once, since to find them costs a look at all.
        let mut worths: Vec<_> = groups
            .iter()
            .filter(|entry| !entry.is_in_use())
            .map(Entry::worth)
            .collect();
        let count = (self.max_in_shard / EVICTED_PART).min(worths.len());
        let Some(last) = count.checked_sub(1) else { return };
        let highest = *worths.select_nth_unstable(last).1;
        let mut left = count;
        groups.retain(|entry| {
            let goes = left > 0 && !entry.is_in_use() && entry.worth() <= highest;
            left -= usize::from(goes);
            !goes
        });
        self.evicted.fetch_add((count - left) as u64, Ordering::Relaxed);
    }
}

impl Entry {
    fn use_at(&self, now: Duration) {
        // Written once a millisecond at most: threads that share a group need not fight for it.
        if self.used_at.load(Ordering::Relaxed) != millis(now) {
            self.used_at.store(millis(now), Ordering::Relaxed);
        }
    }

    /// An operation holds the group. Nobody else can while the shard is locked for writing.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.group) > 1
    }

    /// What is forgotten first when there are too many: closed circuits before open ones, and those before what an
    /// operator holds; of each the one that was idle longest.
    fn worth(&self) -> (bool, bool, u64) {
        let breaker = self.group.breaker();
        let is_open = breaker.state() != CircuitState::Closed;
        (
            breaker.forced().is_some(),
            is_open,
            self.used_at.load(Ordering::Relaxed),
        )
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

// A shard is whole between any two calls of its table, which do not panic.
fn read(shard: &RwLock<Shard>) -> RwLockReadGuard<'_, Shard> {
    shard.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(shard: &RwLock<Shard>) -> RwLockWriteGuard<'_, Shard> {
    shard.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::RetryBudget;
    use crate::circuit::breaker::{Forced, Health};
    use crate::circuit::group::Pass;
    use crate::circuit::settings::CircuitBreaker;

    const NOW: Duration = Duration::from_secs(3600);

    fn name(number: usize) -> GroupName<'static> {
        GroupName::read(format!("https://tenant-{number}.example.com"))
    }

    fn record(registry: &Registry, number: usize, now: Duration, health: Health) {
        let settings = CircuitBreaker::default().minimum_throughput(1);
        let mut pass = Pass::new(registry.group(&name(number), now));
        pass.admit(now, Duration::MAX, &settings).0.unwrap();
        pass.record(health, now, &settings, || 0);
    }

    fn len(registry: &Registry) -> usize {
        registry.all().len()
    }

    #[test]
    fn a_name_that_is_seen_again_is_the_same_group() {
        let registry = Registry::new();
        let group = registry.group(&name(1), NOW);
        assert!(Arc::ptr_eq(&group, &registry.group(&name(1), NOW)));
        assert!(!Arc::ptr_eq(&group, &registry.group(&name(2), NOW)));
        assert_eq!(len(&registry), 2);
    }

    // field 49
    #[test]
    fn hosts_seen_once_are_forgotten_and_open_circuits_stay() {
        let registry = Registry::new();
        for number in 0..100 {
            record(&registry, number, NOW, Health::Failure);
        }
        // The calls of the first have left the window long since.
        for number in 100..10_100 {
            let second = Duration::from_secs(number as u64);
            record(&registry, number, NOW + second, Health::Success);
        }
        assert!(len(&registry) <= SHARDS * MIN_SWEPT, "{}", len(&registry));
        let open = registry.all().into_iter();
        let open = open.filter(|(_, group)| group.breaker().state() == CircuitState::Open);
        assert_eq!(open.count(), 100);
        assert_eq!(registry.evicted(), 0);
    }

    /// Enough new groups to have every shard looked through.
    fn crowd(registry: &Registry) {
        for number in 1_000..6_000 {
            registry.group(&name(number), NOW);
        }
    }

    // field 49
    #[test]
    fn a_group_with_something_to_remember_is_kept() {
        let registry = Registry::new();
        let limits = RetryBudget::default().limits.unwrap();
        let mut paying = Pass::new(registry.group(&name(1), NOW));
        assert!(paying.pay(NOW, limits));
        paying.spend();
        drop(paying);
        record(&registry, 2, NOW, Health::Success);
        registry.group(&name(3), NOW).force(Some(Forced::Closed));
        let in_use = registry.group(&name(4), NOW);
        registry.group(&name(5), NOW);
        crowd(&registry);
        let kept = |number| registry.get(&name(number)).is_some();
        assert_eq!([1, 2, 3, 4, 5].map(kept), [true, true, true, true, false]);
        drop(in_use);
    }

    // field 49
    #[test]
    fn above_the_bound_the_longest_idle_go_first_the_closed_before_the_open() {
        let registry = Registry::bounded(MIN_SWEPT * 2);
        let bound = SHARDS * MIN_SWEPT * 2;
        registry.group(&name(0), NOW).force(Some(Forced::Closed));
        let in_use = registry.group(&name(501), NOW);
        record(&registry, 502, NOW, Health::Success);
        registry.group(&name(502), NOW * 2);
        for number in 1..=500 {
            record(&registry, number, NOW, Health::Failure);
        }
        // More than there is room for, all with a call in the window.
        for number in 503..bound + 4_000 {
            let later = NOW + Duration::from_millis(number as u64 / 10);
            record(&registry, number, later, Health::Success);
        }
        assert!(len(&registry) <= bound, "{}", len(&registry));
        assert!(registry.evicted() >= 4_000, "{}", registry.evicted());
        let kept = |number| registry.get(&name(number)).is_some();
        assert!((0..=502).all(kept));
        assert!((503..600).all(|number| !kept(number)));
        assert!((bound + 3_900..bound + 4_000).all(kept));
        drop(in_use);
    }

    // field 49
    #[test]
    fn above_the_bound_what_an_operator_holds_outlasts_open_circuits() {
        let registry = Registry::bounded(MIN_SWEPT);
        registry.group(&name(0), NOW).force(Some(Forced::Closed));
        registry.group(&name(1), NOW).force(Some(Forced::Open));
        for number in 2..SHARDS * MIN_SWEPT * 3 {
            let later = NOW + Duration::from_millis(number as u64);
            record(&registry, number, later, Health::Failure);
        }
        let kept = |number| registry.get(&name(number)).is_some();
        assert_eq!([0, 1, 2].map(kept), [true, true, false]);
    }
}

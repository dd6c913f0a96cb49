//! The circuits, as those who run the service see them: listed, held open or closed, and watched.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio::time::Instant;

use super::breaker::{Change, CircuitState, Forced};
use super::group::Group;
use super::name::GroupName;
use super::registry::Registry;
#[cfg(feature = "metrics")]
use crate::metrics;
use crate::telemetry;

/// How many changes a subscriber may be behind.
const CHANGES_KEPT: usize = 256;

/// The circuits and retry budgets of a client, by group.
///
/// A group is what requests name with [`circuit`](crate::RequestBuilder::circuit), or else where they go:
/// `https://api.example.com:443`. A group that is named here as an origin may leave the default port out. Groups come
/// into being as they are used. One that has nothing to remember is forgotten after a while, and so is missing
/// from the list.
///
/// ```
/// # fn f(client: &steadfast::Client) {
/// for circuit in client.circuits().list() {
///     println!("{} {} {:?} tokens", circuit.group(), circuit.state(), circuit.tokens());
/// }
/// // A kill switch: it stops the group's requests under every policy.
/// client.circuits().force_open("payments");
/// client.circuits().automatic("payments");
/// # }
/// ```
#[derive(Clone)]
pub struct Circuits {
    shared: Arc<Shared>,
}

struct Shared {
    registry: Registry,
    /// Made for the first subscriber.
    changes: OnceLock<Sender<CircuitChange>>,
}

impl Circuits {
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                registry: Registry::new(),
                changes: OnceLock::new(),
            }),
        }
    }

    /// Every group there is, in the order of their names. Meant for a page of the operator's, not for each request.
    pub fn list(&self) -> Vec<CircuitStatus> {
        let now = self.time(Instant::now());
        let groups = self.registry().all().into_iter();
        let mut list: Vec<_> = groups
            .map(|(name, group)| CircuitStatus::of(&name, &group, now))
            .collect();
        list.sort_by(|a, b| a.group.cmp(&b.group));
        list
    }

    /// One group; `None` if there is nothing to tell of it.
    pub fn get(&self, group: &str) -> Option<CircuitStatus> {
        let name = GroupName::read(group);
        let found = self.registry().get(&name)?;
        Some(CircuitStatus::of(&name, &found, self.time(Instant::now())))
    }

    /// Refuses the attempts of a group, also under policies that have no circuit, until
    /// [`automatic`](Circuits::automatic) or [`force_closed`](Circuits::force_closed).
    ///
    /// Attempts under way go on, and waits are slept to their end. Requests to the same origin that name another group
    /// are not refused.
    pub fn force_open(&self, group: &str) {
        self.force(group, Some(Forced::Open));
    }

    /// Lets the attempts of a group through, whatever becomes of them.
    pub fn force_closed(&self, group: &str) {
        self.force(group, Some(Forced::Closed));
    }

    /// Ends [`force_open`](Circuits::force_open) and [`force_closed`](Circuits::force_closed): the circuit goes on by itself,
    /// closed, and with nothing counted. One that nobody forces stays as it is.
    pub fn automatic(&self, group: &str) {
        self.force(group, None);
    }

    /// The changes from now on.
    ///
    /// ```
    /// # async fn f(client: steadfast::Client) {
    /// let mut changes = client.circuits().changes();
    /// while let Some(change) = changes.next().await {
    ///     println!("{}: {} after {}", change.group(), change.to(), change.from());
    /// }
    /// # }
    /// ```
    pub fn changes(&self) -> CircuitChanges {
        let sender = self.shared.changes.get_or_init(|| broadcast::channel(CHANGES_KEPT).0);
        CircuitChanges {
            receiver: sender.subscribe(),
            missed: 0,
        }
    }

    /// How many groups were forgotten although their circuit was open, their calls in the window or their budget not
    /// full: more than a hundred thousand groups had something to remember.
    pub fn evicted(&self) -> u64 {
        self.registry().evicted()
    }

    /// The group of this name, at a moment in the time of the groups.
    pub(crate) fn group(&self, name: &GroupName<'_>, now: Duration) -> Arc<Group> {
        self.registry().group(name, now)
    }

    pub(crate) fn time(&self, at: Instant) -> Duration {
        self.registry().time(at)
    }

    /// Tells of a change, after it was made and with no lock held.
    pub(crate) fn tell(&self, name: &GroupName<'_>, change: Change) {
        let Change { from, to, period } = change;
        let group: Arc<str> = name.to_string().into();
        if let Some(changes) = self.shared.changes.get() {
            // Without a receiver there is nobody to tell.
            let _ = changes.send(CircuitChange {
                group: Arc::clone(&group),
                from,
                to,
                period,
            });
        }
        #[cfg(feature = "metrics")]
        metrics::circuit_changed(&group, || Some(self.registry().get(name)?.breaker().state()));
        telemetry::circuit_changed(&group, from, to);
    }

    /// The tokens of one group; `None` until an answer or a retry has been counted.
    #[cfg(feature = "metrics")]
    pub(crate) fn tokens(&self, name: &GroupName<'_>) -> Option<f64> {
        let now = self.time(Instant::now());
        self.registry().get(name)?.bucket().level(now)
    }

    fn force(&self, group: &str, forced: Option<Forced>) {
        let name = GroupName::read(group);
        let found = match forced {
            Some(_) => self.group(&name, self.time(Instant::now())),
            // What is not there goes by itself.
            None => match self.registry().get(&name) {
                Some(group) => group,
                None => return,
            },
        };
        if let Some(change) = found.force(forced) {
            self.tell(&name, change);
        }
    }

    fn registry(&self) -> &Registry {
        &self.shared.registry
    }
}

impl fmt::Debug for Circuits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Circuits").finish_non_exhaustive()
    }
}

/// A group at one moment.
#[derive(Clone, Debug)]
pub struct CircuitStatus {
    group: String,
    state: CircuitState,
    forced: bool,
    failure_ratio: Option<f64>,
    calls: u32,
    tokens: Option<f64>,
    retry_in: Option<Duration>,
    late_results: u64,
}

impl CircuitStatus {
    fn of(name: &GroupName<'_>, group: &Group, now: Duration) -> Self {
        let breaker = group.breaker();
        let counts = breaker.counts(now);
        Self {
            group: name.to_string(),
            state: breaker.state(),
            forced: breaker.forced().is_some(),
            failure_ratio: counts.failure_ratio(),
            calls: counts.calls(),
            tokens: group.bucket().level(now),
            retry_in: breaker.probe_in(now),
            late_results: breaker.late(),
        }
    }

    /// Its name, or its origin with the port: `https://api.example.com:443`.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The state of the circuit: closed where the policies have none.
    pub fn state(&self) -> CircuitState {
        self.state
    }

    /// Whether the state is held by [`force_open`](Circuits::force_open) or [`force_closed`](Circuits::force_closed).
    pub fn is_forced(&self) -> bool {
        self.forced
    }

    /// The part of the [`calls`](CircuitStatus::calls) that failed; `None` if there were none.
    pub fn failure_ratio(&self) -> Option<f64> {
        self.failure_ratio
    }

    /// The calls in the window, or the results of the probes so far.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// The tokens of the retry budget; `None` until an answer or a retry has been counted.
    pub fn tokens(&self) -> Option<f64> {
        self.tokens
    }

    /// The time until an open circuit lets a probe through; `None` if it is not open, or held open.
    pub fn retry_in(&self) -> Option<Duration> {
        self.retry_in
    }

    /// How many results came too late to count: the state they were of had ended.
    pub fn late_results(&self) -> u64 {
        self.late_results
    }
}

/// A change of one circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitChange {
    group: Arc<str>,
    from: CircuitState,
    to: CircuitState,
    period: u64,
}

impl CircuitChange {
    /// The group, as in [`CircuitStatus::group`].
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The state that ended.
    pub fn from(&self) -> CircuitState {
        self.from
    }

    /// The state that began.
    pub fn to(&self) -> CircuitState {
        self.to
    }

    /// The number of the state's period, which grows with each change of the group. Of two changes at almost the same
    /// time, the later one may be told first.
    pub fn period(&self) -> u64 {
        self.period
    }
}

/// The changes of all circuits, as they happen. See [`Circuits::changes`].
#[derive(Debug)]
pub struct CircuitChanges {
    receiver: Receiver<CircuitChange>,
    missed: u64,
}

impl CircuitChanges {
    /// The next change; `None` when the client is gone, and with it its clones and those of its `Circuits` and `Pipeline`. Dropping the future loses no change.
    pub async fn next(&mut self) -> Option<CircuitChange> {
        loop {
            match self.receiver.recv().await {
                Ok(change) => return Some(change),
                Err(RecvError::Lagged(missed)) => self.missed = self.missed.saturating_add(missed),
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// How many changes were dropped because [`next`](CircuitChanges::next) was not asked for them in time, so that
    /// [`Circuits::list`] is worth another look.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(circuits: &Circuits) -> Vec<(String, CircuitState, bool)> {
        let list = circuits.list().into_iter();
        list.map(|circuit| (circuit.group, circuit.state, circuit.forced))
            .collect()
    }

    #[test]
    fn a_group_is_forced_and_listed_by_its_name_with_or_without_the_default_port() {
        let circuits = Circuits::new();
        circuits.force_open("https://api.example.com");
        circuits.force_closed("payments");
        assert_eq!(
            groups(&circuits),
            [
                ("https://api.example.com:443".to_owned(), CircuitState::Open, true),
                ("payments".to_owned(), CircuitState::Closed, true),
            ]
        );
        circuits.automatic("https://API.example.com:443/");
        let circuit = circuits.get("https://api.example.com").unwrap();
        assert_eq!((circuit.state(), circuit.is_forced()), (CircuitState::Closed, false));
    }

    #[test]
    fn to_let_an_unknown_group_go_by_itself_makes_none() {
        let circuits = Circuits::new();
        circuits.automatic("payments");
        assert!(circuits.get("payments").is_none());
        assert!(circuits.list().is_empty());
    }

    #[tokio::test]
    async fn every_subscriber_is_told_each_change_in_order() {
        let circuits = Circuits::new();
        circuits.force_open("before");
        let mut subscribers = [circuits.changes(), circuits.changes()];
        circuits.force_open("payments");
        circuits.force_open("payments");
        circuits.automatic("payments");
        drop(circuits);
        for changes in &mut subscribers {
            for (from, to) in [
                (CircuitState::Closed, CircuitState::Open),
                (CircuitState::Open, CircuitState::Closed),
            ] {
                let change = changes.next().await.unwrap();
                assert_eq!((change.group(), change.from(), change.to()), ("payments", from, to));
            }
            // The client is gone.
            assert_eq!(changes.next().await, None);
            assert_eq!(changes.missed(), 0);
        }
    }

    #[tokio::test]
    async fn a_subscriber_that_is_late_knows_how_much_it_missed() {
        let circuits = Circuits::new();
        let mut changes = circuits.changes();
        for _ in 0..CHANGES_KEPT {
            circuits.force_open("payments");
            circuits.automatic("payments");
        }
        drop(circuits);
        let first = changes.next().await.unwrap();
        assert_eq!(changes.missed(), CHANGES_KEPT as u64);
        assert_eq!(first.period(), CHANGES_KEPT as u64 + 1);
    }
}

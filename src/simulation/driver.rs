//! The driver without futures: the calls of `src/pipeline.rs` in its order, at moments that are numbers.

use std::time::Duration;

use super::coverage::{self, Coverage};
use super::draw::{Draw, NANO};
use super::guards::{Guards, Held};
use super::rules::{Moment, Rules};
use super::schedule::{OperationPlan, Weather};
use super::service::{Ledger, Reply};
use crate::attempts::StopReason;
use crate::classifier::Verdict;
use crate::decision::{Machine, Next};
use crate::outcome::Evidence;
use crate::redirect::Redirect;

/// Who would go on for so many attempts is stopped by the caller.
const MOST_ATTEMPTS: u32 = 40;

/// What goes on beside an operation.
pub(super) struct World<'w> {
    pub(super) draw: &'w mut Draw,
    pub(super) seen: &'w mut Coverage,
    /// Whether each step is printed.
    pub(super) told: bool,
}

impl World<'_> {
    fn say(&self, number: usize, now: Duration, what: impl FnOnce() -> String) {
        if self.told {
            eprintln!("{now:>16?}  operation {number}: {}", what());
        }
    }
}

/// An operation and its caller, who sends it, waits for it or drops it, and may send it again.
pub(super) struct Caller<'a> {
    number: usize,
    plan: &'a OperationPlan,
    ledger: Ledger,
    rules: Rules,
    evidence: Evidence,
    first_sent: Option<Duration>,
    sends_left: u32,
    stage: Stage<'a>,
    /// When something happens to it next.
    at: Duration,
    /// When the caller drops it.
    dropped_at: Duration,
}

enum Stage<'a> {
    /// Before a send.
    Idle,
    /// An attempt is to begin, after a wait if it is not the first.
    Begin(Run<'a>),
    /// A hook makes its request.
    Hook(Run<'a>, HookEnd),
    /// It is under way.
    UnderWay(Run<'a>, Box<Reply>),
    Over,
}

#[derive(Clone, Copy)]
enum HookEnd {
    Ready,
    Failed { out_of_time: bool },
}

/// One send.
struct Run<'a> {
    machine: Machine<'a>,
    held: Held,
    started: Duration,
    /// The end of the attempt under way.
    ends: Duration,
}

impl<'a> Caller<'a> {
    pub(super) fn new(number: usize, plan: &'a OperationPlan, world: &mut World<'_>) -> Self {
        world.seen.note("operation");
        world.say(number, Duration::ZERO, || format!("{plan:?}"));
        Self {
            number,
            plan,
            ledger: Ledger::new(plan, world.draw),
            rules: Rules::default(),
            evidence: Evidence::new(plan.is_safe(), plan.is_declared()),
            first_sent: None,
            sends_left: plan.sends,
            stage: Stage::Idle,
            at: plan.begins,
            dropped_at: Duration::MAX,
        }
    }

    /// When something happens next, if anything does.
    pub(super) fn due(&self) -> Option<Duration> {
        match self.stage {
            Stage::Over => None,
            _ => Some(self.at.min(self.dropped_at)),
        }
    }

    /// What happens now. After the end of the schedule everything is dropped.
    pub(super) fn step(
        &mut self,
        now: Duration,
        guards: &mut Guards,
        weather: Weather,
        end: Duration,
        world: &mut World<'_>,
    ) {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        let gives_up = matches!(&stage, Stage::Begin(run) if run.machine.attempts() >= MOST_ATTEMPTS);
        if gives_up || self.at > end || self.dropped_at < self.at {
            self.drop_it(stage, now, guards, world);
        } else {
            match stage {
                Stage::Idle => self.send(now, guards, world),
                Stage::Begin(run) => self.begin(run, now, guards, weather, world),
                Stage::Hook(run, HookEnd::Ready) => self.transmit(run, now, guards, weather, world),
                Stage::Hook(run, HookEnd::Failed { out_of_time }) => {
                    world.seen.note("hook failed");
                    let reason = match run.machine.ends_at_deadline() && out_of_time {
                        true => StopReason::Deadline,
                        false => StopReason::NotRetryable,
                    };
                    self.end(run, reason, now, guards, world);
                }
                Stage::UnderWay(run, reply) => self.judge(run, &reply, now, guards, world),
                Stage::Over => {}
            }
        }
        self.rules.claims(self.plan, self.evidence, self.ledger.effects);
        guards.compare(now);
    }

    fn send(&mut self, now: Duration, guards: &mut Guards, world: &mut World<'_>) {
        let Self { plan, .. } = *self;
        world.seen.note("send");
        if self.sends_left < plan.sends {
            world.seen.note("send of an operation that was sent before");
        }
        self.sends_left -= 1;
        let remaining = world.draw.maybe(20, Draw::time);
        let repeats = world.draw.percent(92);
        let longest = plan.limits.policy.deadline();
        let deadline = remaining.map_or(longest, |remaining| remaining.min(longest));
        let whole = deadline.min(Duration::from_secs(60));
        let dropped_after = world.draw.maybe(12, |draw| draw.within(whole));
        self.dropped_at = dropped_after.map_or(Duration::MAX, |after| now.saturating_add(after));
        self.rules.send(deadline, repeats, self.ledger.effects);
        world.say(self.number, now, || {
            format!("sent, {remaining:?} left in its scope, repeats allowed: {repeats}")
        });
        let remembered = self.first_sent.zip(plan.retention());
        let remembered = remembered.map(|(first, retention)| retention.saturating_sub(now.saturating_sub(first)));
        let machine = Machine::new(&plan.limits.policy, plan.terms(), self.evidence).remembered_for(remembered);
        self.stage = Stage::Begin(Run {
            machine: machine.within(remaining, repeats),
            held: guards.enter(),
            started: now,
            ends: now,
        });
        self.at = now;
    }

    fn begin(&mut self, mut run: Run<'a>, now: Duration, guards: &mut Guards, weather: Weather, world: &mut World<'_>) {
        let at = run.moment(now);
        let is_first = run.machine.attempts() == 0;
        let answer = run.machine.begin(at.elapsed);
        self.rules.begin(self.plan, at, answer);
        let limit = match answer {
            Ok(limit) => limit,
            Err(reason) => {
                if is_first {
                    world.seen.note(match reason {
                        StopReason::Retention => "stop before the first attempt: retention",
                        _ => "stop before the first attempt: deadline",
                    });
                }
                return self.end(run, reason, now, guards, world);
            }
        };
        if let Err(retry_in) = guards.admit(&mut run.held, &self.plan.limits.policy, now, limit) {
            world.seen.note(match is_first {
                true => "refused by a circuit before the first attempt",
                false => "refused by a circuit after a wait",
            });
            return self.end(run, StopReason::CircuitOpen { retry_in }, now, guards, world);
        }
        run.ends = now.saturating_add(limit);
        if !self.plan.hook {
            return self.transmit(run, now, guards, weather, world);
        }
        // A hook that is ready at the end of the attempt or later is out of time.
        let (takes, end) = match world.draw.below(10) {
            0 => (world.draw.within(limit), HookEnd::Failed { out_of_time: false }),
            1 => (limit, HookEnd::Failed { out_of_time: true }),
            _ => (world.draw.within(limit.saturating_sub(NANO)), HookEnd::Ready),
        };
        self.at = now.saturating_add(takes);
        self.stage = Stage::Hook(run, end);
    }

    fn transmit(
        &mut self,
        mut run: Run<'a>,
        now: Duration,
        guards: &mut Guards,
        weather: Weather,
        world: &mut World<'_>,
    ) {
        let at = run.moment(now);
        let answer = run.machine.send(at.elapsed);
        self.rules.sent(self.plan, at, answer);
        if let Err(reason) = answer {
            return self.end(run, reason, now, guards, world);
        }
        // Dropped from here on, the operation may have acted.
        self.first_sent.get_or_insert(now);
        self.evidence = run.machine.evidence().with_attempt_under_way();
        guards.begin(&mut run.held);
        world.seen.note("attempt");
        if run.machine.attempts() > 3 {
            world.seen.note("attempt, number 4 or higher");
        }
        let left = run.ends.saturating_sub(now);
        let effects = self.ledger.effects;
        let reply = self.ledger.attempt(self.plan, weather, now, left, world.draw);
        if self.ledger.effects > effects.max(1) {
            world.seen.note("effect, done again by a repeat");
        }
        world.say(self.number, now, || {
            format!("attempt {} of at most {left:?}: {reply:?}", run.machine.attempts())
        });
        self.at = now.saturating_add(reply.takes).saturating_add(world.draw.lateness());
        self.rules.under_way();
        self.stage = Stage::UnderWay(run, Box::new(reply));
    }

    fn judge(&mut self, mut run: Run<'a>, reply: &Reply, now: Duration, guards: &mut Guards, world: &mut World<'_>) {
        let policy = &self.plan.limits.policy;
        let at = run.moment(now);
        let mut bits = None;
        let random = || *bits.insert(world.draw.jitter());
        let judgement = run.machine.judge(at.elapsed, &reply.ending, |_| reply.verdict, random);
        world.say(self.number, now, || format!("{judgement:?}"));
        self.rules.judged(self.plan, at, reply, judgement, bits);
        self.evidence = run.machine.evidence();
        self.rules
            .effects(self.plan, self.ledger.effects, self.ledger.honours());
        note_reply(reply, world.seen);
        guards.record(&mut run.held, policy, reply.health(), now, world.draw, world.seen);
        let next = match judgement.next {
            Next::Retry(wait) => match guards.ask_retry(&mut run.held, policy, now, wait) {
                Ok(()) => Next::Retry(wait),
                Err(reason) => {
                    if matches!(reason, StopReason::CircuitOpen { .. }) {
                        world.seen.note("refused by a circuit with the answer in hand");
                    }
                    Next::Stop(reason)
                }
            },
            stop => stop,
        };
        let served = reply.is_served() && !judgement.retryable && matches!(next, Next::Stop(_));
        if served && guards.deposit(policy, now) {
            world.seen.note("deposit");
        }
        match next {
            Next::Stop(reason) => self.end(run, reason, now, guards, world),
            Next::Retry(wait) => {
                note_wait(wait, reply, world.seen);
                if reply.ending.retry_after().is_some() && at.elapsed.saturating_add(wait) == run.machine.latest_begin()
                {
                    world.seen.note("wait, shortened by the deadline");
                }
                // The wait counts from the judgement, and what is spent on the answer that nobody reads is part of it.
                let latest = run.started.saturating_add(run.machine.latest_begin());
                let drained = now
                    .saturating_add(world.draw.within(Duration::from_millis(100)))
                    .min(latest);
                let waited = now.saturating_add(wait).max(drained);
                self.at = waited.saturating_add(world.draw.lateness());
                self.stage = Stage::Begin(run);
            }
        }
    }

    fn end(&mut self, run: Run<'a>, reason: StopReason, now: Duration, guards: &mut Guards, world: &mut World<'_>) {
        world.seen.note(coverage::stop(reason));
        let outcome = self.evidence.outcome();
        world.seen.note(coverage::outcome(outcome));
        world.seen.note(match self.evidence.exactly_once() {
            true => "outcome, claimed to be of one effect at most",
            false => "outcome, not claimed to be of one effect at most",
        });
        world.say(self.number, now, || {
            format!("over: {reason:?}, {outcome}, done {} times", self.ledger.effects)
        });
        self.leave(run, now, guards, world);
    }

    /// The caller drops the future, wherever it is.
    fn drop_it(&mut self, stage: Stage<'a>, now: Duration, guards: &mut Guards, world: &mut World<'_>) {
        world.say(self.number, now, || "dropped".to_owned());
        let (run, what) = match stage {
            Stage::Begin(run) => (run, "drop while waiting"),
            Stage::Hook(run, _) => (run, "drop while a hook runs"),
            Stage::UnderWay(run, _) => (run, "drop while an attempt is under way"),
            Stage::Idle | Stage::Over => return,
        };
        world.seen.note(what);
        self.leave(run, now, guards, world);
    }

    fn leave(&mut self, run: Run<'a>, now: Duration, guards: &mut Guards, world: &mut World<'_>) {
        guards.leave(run.held, now, world.seen);
        self.dropped_at = Duration::MAX;
        if self.sends_left > 0 {
            self.at = now.saturating_add(world.draw.time());
            self.stage = Stage::Idle;
        }
    }
}

impl Run<'_> {
    fn moment(&self, now: Duration) -> Moment {
        Moment {
            now,
            elapsed: now - self.started,
        }
    }
}

fn note_reply(reply: &Reply, seen: &mut Coverage) {
    match reply.ending.redirect() {
        Redirect::None => {}
        Redirect::SeeOther => seen.note("redirect, see other"),
        Redirect::Unkeyed => seen.note("redirect that lost the key"),
        Redirect::Astray => seen.note("redirect astray"),
    }
    if reply.verdict != Verdict::Default {
        seen.note("verdict of a classifier");
    }
}

fn note_wait(wait: Duration, reply: &Reply, seen: &mut Coverage) {
    seen.note(match reply.ending.retry_after() {
        _ if wait.is_zero() => "wait of no time",
        Some(_) => "wait that was asked for",
        None => "wait of our own",
    });
}

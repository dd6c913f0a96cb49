//! The service: what it does with each attempt, by its own books, and what the client gets to see of that.
//!
//! It keeps its word and no more: a key that a contract declares is acted on once while it is remembered, what it says it
//! refused it did not do, and everything else may have happened or not.

use std::time::Duration;

use http::StatusCode;

use super::draw::Draw;
use super::schedule::{OperationPlan, Weather};
use crate::circuit::breaker::Health;
use crate::classifier::Verdict;
use crate::classify::{Delivery, Finding, health, status};
use crate::decision::Ending;
use crate::error::ErrorKind;
use crate::idempotency::contract::Meaning;
use crate::redirect::Redirect;

/// What the service knows of the key of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Unseen,
    /// It acts until then, and has decided what comes of it.
    InProgress(Duration),
    Acted,
    /// A failure that it gives for good.
    Failed,
    /// Another operation came with it before.
    Foreign,
}

/// The books of the service on one operation.
#[derive(Debug)]
pub(super) struct Ledger {
    /// How often it acted.
    pub(super) effects: u32,
    key: Key,
    forgets_at: Duration,
    /// It looks at the key. Of a key that is only assumed nobody knows.
    honours: bool,
}

/// One attempt, as the service and the way back leave it.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) ending: Ending<'static>,
    /// Of a failure.
    pub(super) kind: ErrorKind,
    /// How long after it was sent the client hears of it.
    pub(super) takes: Duration,
    pub(super) verdict: Verdict,
    /// The service acted on this attempt.
    pub(super) acted: bool,
}

/// What the service says, before its way back.
struct Answer {
    status: u16,
    retry_after: Option<Duration>,
    meaning: Option<Meaning>,
    acted: bool,
}

impl Answer {
    fn of(status: u16) -> Self {
        Self {
            status,
            retry_after: None,
            meaning: None,
            acted: false,
        }
    }

    fn meaning(self, meaning: Option<Meaning>) -> Self {
        Self { meaning, ..self }
    }
}

impl Ledger {
    pub(super) fn new(plan: &OperationPlan, draw: &mut Draw) -> Self {
        let honours = plan.trust.is_some() && (plan.is_declared() || draw.percent(50));
        let foreign = honours && draw.percent(4);
        Self {
            effects: 0,
            key: if foreign { Key::Foreign } else { Key::Unseen },
            forgets_at: Duration::MAX,
            honours,
        }
    }

    pub(super) fn honours(&self) -> bool {
        self.honours
    }

    /// An attempt that is sent now, and has so much time.
    pub(super) fn attempt(
        &mut self,
        plan: &OperationPlan,
        weather: Weather,
        now: Duration,
        left: Duration,
        draw: &mut Draw,
    ) -> Reply {
        let [unsent, gateway, lost] = match weather {
            Weather::Calm => [3, 4, 6],
            Weather::Rough => [15, 25, 30],
            Weather::Throttled => [2, 60, 10],
            Weather::Outage => [30, 70, 0],
        };
        let chance = draw.below(100);
        let mut reply = if chance < unsent {
            unsent_by(weather, left, draw)
        } else if chance < unsent + gateway {
            let answer = self.gateway(plan, weather, draw);
            self.way_back(plan, answer, Redirect::None, 10, left, draw)
        } else {
            let redirect = redirect(plan, draw);
            let answer = self.work(plan, redirect, now, draw);
            self.way_back(plan, answer, redirect, lost, left, draw)
        };
        if plan.classifier {
            reply.verdict = self.verdict(plan, &reply, draw);
        }
        reply
    }

    /// Something in front of the service refuses, or says that it got no answer. It knows nothing of keys.
    fn gateway(&self, plan: &OperationPlan, weather: Weather, draw: &mut Draw) -> Answer {
        let status = match weather {
            Weather::Outage => draw.pick(&[429, 500, 502, 503, 503, 504]),
            Weather::Throttled => draw.pick(&[429, 429, 503, 503, 502]),
            _ => draw.pick(&[401, 403, 407, 408, 425, 429, 429, 429, 502, 503, 503, 504]),
        };
        let asks = draw.percent(if weather == Weather::Throttled { 80 } else { 40 });
        let retry_after = asks.then(|| draw.time());
        let lost_key = weather != Weather::Outage && plan.contract.is_some_and(|contract| contract.missing);
        if lost_key && draw.percent(10) {
            return Answer::of(draw.pick(&[400, 401, 428])).meaning(Some(Meaning::Missing));
        }
        Answer {
            retry_after,
            meaning: ordinary(plan, draw),
            ..Answer::of(status)
        }
    }

    /// The service itself has the request.
    fn work(&mut self, plan: &OperationPlan, redirect: Redirect, now: Duration, draw: &mut Draw) -> Answer {
        if now >= self.forgets_at && self.key != Key::Foreign {
            self.key = Key::Unseen;
            self.forgets_at = Duration::MAX;
        }
        let sees_key = self.honours && redirect != Redirect::Unkeyed;
        if let Key::InProgress(until) = self.key {
            if until <= now {
                self.key = Key::Acted;
            }
        }
        let contract = plan.contract;
        let answer = match self.key {
            Key::Foreign if sees_key => {
                let named = contract.is_some_and(|contract| contract.mismatch);
                let meaning = if named {
                    Some(Meaning::Mismatch)
                } else {
                    ordinary(plan, draw)
                };
                Answer::of(draw.pick(&[409, 422])).meaning(meaning)
            }
            Key::InProgress(_) if sees_key => {
                let named = contract.is_some_and(|contract| contract.in_progress);
                let mut answer = match named {
                    true => Answer::of(draw.pick(&[409, 409, 425, 202])).meaning(Some(Meaning::InProgress)),
                    false => Answer::of(409),
                };
                answer.retry_after = draw.maybe(40, Draw::time).filter(|_| answer.status >= 400);
                answer
            }
            Key::Acted if sees_key => Answer::of(draw.pick(&[200, 200, 201, 303])).meaning(ordinary(plan, draw)),
            Key::Failed if sees_key => Answer::of(500).meaning(Some(Meaning::Stored)),
            _ => self.act(plan, sees_key, now, draw),
        };
        if redirect == Redirect::SeeOther && !answer.acted && self.effects == 0 {
            // It says 303 to what it did.
            return self.acted(Answer::of(answer.status), sees_key, plan, now);
        }
        answer
    }

    /// The service has not seen the key, or does not look at it.
    fn act(&mut self, plan: &OperationPlan, sees_key: bool, now: Duration, draw: &mut Draw) -> Answer {
        match draw.below(100) {
            0..60 => {
                let status = draw.pick(&[200, 200, 201, 202, 204, 303, 304, 101]);
                let answer = Answer::of(status).meaning(ordinary(plan, draw));
                self.acted(answer, sees_key, plan, now)
            }
            // It acted, and then something broke.
            60..68 => {
                let answer = Answer::of(draw.pick(&[500, 502, 503, 504])).meaning(ordinary(plan, draw));
                self.acted(answer, sees_key, plan, now)
            }
            // It is slow, and goes on after the client has given up.
            68..73 => {
                let answer = self.acted(Answer::of(504).meaning(ordinary(plan, draw)), sees_key, plan, now);
                if sees_key {
                    self.key = Key::InProgress(now.saturating_add(draw.time()));
                }
                answer
            }
            73..80 => {
                let stores = sees_key && plan.contract.is_some_and(|contract| contract.stored_failures);
                if stores {
                    self.key = Key::Failed;
                    self.remember(plan, now);
                }
                let meaning = if stores {
                    Some(Meaning::Stored)
                } else {
                    ordinary(plan, draw)
                };
                Answer::of(500).meaning(meaning)
            }
            // A refusal by the service itself, which has done nothing under this key.
            80..90 => Answer::of(draw.pick(&[400, 402, 404, 409, 410, 422])).meaning(ordinary(plan, draw)),
            90..93 => Answer::of(draw.pick(&[501, 505, 599])).meaning(ordinary(plan, draw)),
            93..96 => Answer::of(draw.pick(&[301, 302, 307, 308])).meaning(ordinary(plan, draw)),
            // Nobody can say what these mean, or whether it acted.
            _ => {
                let status = draw.pick(&[102, 300, 305, 399]);
                match draw.percent(50) {
                    true => self.acted(Answer::of(status), sees_key, plan, now),
                    false => Answer::of(status),
                }
            }
        }
    }

    /// A safe method has no effect, whatever the service does for it.
    fn acted(&mut self, mut answer: Answer, sees_key: bool, plan: &OperationPlan, now: Duration) -> Answer {
        answer.acted = !plan.is_safe();
        self.effects += u32::from(answer.acted);
        if sees_key {
            self.key = Key::Acted;
            self.remember(plan, now);
        }
        answer
    }

    fn remember(&mut self, plan: &OperationPlan, now: Duration) {
        self.forgets_at = now.saturating_add(plan.retention().unwrap_or(Duration::MAX));
    }

    /// What is left of an answer where the client is.
    fn way_back(
        &self,
        plan: &OperationPlan,
        answer: Answer,
        redirect: Redirect,
        lost: u64,
        left: Duration,
        draw: &mut Draw,
    ) -> Reply {
        let status = StatusCode::from_u16(answer.status).unwrap();
        let takes = draw.within(left);
        let reply = Reply {
            ending: Ending::Answer {
                status,
                retry_after: answer.retry_after,
                redirect,
                nested: None,
                meaning: answer.meaning.filter(|_| redirect != Redirect::Astray),
            },
            kind: ErrorKind::Status,
            takes,
            verdict: Verdict::Default,
            acted: answer.acted,
        };
        if draw.percent(lost) {
            // Only a client that tells of redirects knows of one after a failure.
            let redirect = if plan.told { redirect } else { Redirect::None };
            return match draw.below(3) {
                0 => Reply {
                    takes: left,
                    ..reply.failed(ErrorKind::Timeout, Finding::retry(Delivery::Unknown), redirect, true)
                },
                1 => reply.failed(ErrorKind::Reset, Finding::retry(Delivery::Unknown), redirect, false),
                _ => reply.failed(ErrorKind::Other, Finding::last(Delivery::Unknown), redirect, false),
            };
        }
        if status.is_success() && draw.percent(lost / 2) {
            let out_of_time = draw.percent(50);
            return Reply {
                ending: Ending::BodyLost {
                    status,
                    redirect,
                    nested: None,
                    meaning: answer.meaning.filter(|_| redirect != Redirect::Astray),
                    out_of_time,
                },
                kind: ErrorKind::Body,
                takes: if out_of_time { left } else { takes },
                ..reply
            };
        }
        // Some senders make an error of every status that is no success.
        let refused = status.is_client_error() || status.is_server_error();
        if refused && !plan.told && redirect == Redirect::None && plan.contract.is_none() && draw.percent(8) {
            let finding = status::finding(status, status::Circumstances::default());
            let mut reply = reply.failed(ErrorKind::Status, finding, redirect, false);
            if let Ending::Failure {
                status: told,
                retry_after,
                ..
            } = &mut reply.ending
            {
                (*told, *retry_after) = (Some(status), answer.retry_after);
            }
            return reply;
        }
        reply
    }

    /// A classifier tells no lies where it is believed; of what it cannot know it may say anything.
    fn verdict(&self, plan: &OperationPlan, reply: &Reply, draw: &mut Draw) -> Verdict {
        let verdict = draw.pick(&[
            Verdict::Default,
            Verdict::Default,
            Verdict::Retry,
            Verdict::Final,
            Verdict::Rejected,
            Verdict::Refused,
        ]);
        let nothing_done = match verdict {
            Verdict::Refused if plan.is_declared() => !reply.acted && self.effects == 0,
            _ => !reply.acted,
        };
        match verdict {
            Verdict::Rejected | Verdict::Refused if !nothing_done && reply.is_judged_by_others() => Verdict::Default,
            verdict => verdict,
        }
    }
}

impl Reply {
    fn failed(self, kind: ErrorKind, finding: Finding, redirect: Redirect, out_of_time: bool) -> Self {
        Self {
            ending: Ending::Failure {
                finding,
                status: None,
                retry_after: None,
                redirect,
                nested: None,
                out_of_time,
            },
            kind,
            ..self
        }
    }

    /// Whether a classifier may say of it that the service did nothing: not of a success, nor of what was lost on its way, nor of
    /// the answer of another request.
    pub(super) fn is_judged_by_others(&self) -> bool {
        let redirected = self.ending.redirect() != Redirect::None;
        match self.ending {
            _ if redirected => false,
            Ending::Answer { status, meaning, .. } => status.as_u16() >= 400 || meaning == Some(Meaning::InProgress),
            Ending::BodyLost { meaning, .. } => meaning == Some(Meaning::InProgress),
            Ending::Failure { finding, status, .. } => {
                status.is_some() || !(finding.retry && finding.delivery == Delivery::Unknown)
            }
        }
    }

    pub(super) fn meaning(&self) -> Option<Meaning> {
        match self.ending {
            Ending::Answer { meaning, .. } | Ending::BodyLost { meaning, .. } => meaning,
            Ending::Failure { .. } => None,
        }
    }

    pub(super) fn is_out_of_time(&self) -> bool {
        match self.ending {
            Ending::Answer { .. } => false,
            Ending::BodyLost { out_of_time, .. } | Ending::Failure { out_of_time, .. } => out_of_time,
        }
    }

    /// As `src/held.rs` has it.
    pub(super) fn health(&self) -> Health {
        match self.ending {
            Ending::Answer { status, .. } => health::of_status(status),
            Ending::BodyLost { .. } => Health::Failure,
            Ending::Failure { finding, status, .. } => health::of_failure(self.kind, finding, status),
        }
    }

    /// As `src/held.rs` has it.
    pub(super) fn is_served(&self) -> bool {
        let status = match self.ending {
            Ending::Answer { status, .. } => Some(status),
            Ending::BodyLost { .. } => None,
            Ending::Failure { status, .. } => status.filter(|_| self.kind == ErrorKind::Status),
        };
        status.is_some_and(|status| !status::is_retried(status))
    }
}

/// No request arrives, though the client may not know that.
fn unsent_by(weather: Weather, left: Duration, draw: &mut Draw) -> Reply {
    let (kind, finding, out_of_time) = match draw.below(8) {
        0 => (ErrorKind::Dns, Finding::retry(Delivery::NotSent), false),
        1 | 2 => (ErrorKind::Connect, Finding::retry(Delivery::NotSent), false),
        3 => (ErrorKind::Reset, Finding::retry(Delivery::NotSent), false),
        4 if weather != Weather::Outage => (ErrorKind::Tls, Finding::last(Delivery::NotSent), false),
        4 | 5 => (ErrorKind::Timeout, Finding::retry(Delivery::Unknown), true),
        6 => (ErrorKind::Reset, Finding::retry(Delivery::Unknown), false),
        _ => (ErrorKind::Other, Finding::retry(Delivery::NotSent), false),
    };
    Reply {
        ending: Ending::Failure {
            finding,
            status: None,
            retry_after: None,
            redirect: Redirect::None,
            nested: None,
            out_of_time,
        },
        kind,
        takes: if out_of_time { left } else { draw.within(left) },
        verdict: Verdict::Default,
        acted: false,
    }
}

/// Redirects that were followed. Of those of a safe request nobody asks.
fn redirect(plan: &OperationPlan, draw: &mut Draw) -> Redirect {
    if plan.is_safe() || !draw.percent(10) {
        return Redirect::None;
    }
    match draw.below(3) {
        0 if plan.told => Redirect::SeeOther,
        1 if plan.may_lose_key => Redirect::Unkeyed,
        _ => Redirect::Astray,
    }
}

/// The contract says nothing of this answer. Where it would name an attempt in progress, this is none.
fn ordinary(plan: &OperationPlan, draw: &mut Draw) -> Option<Meaning> {
    let would_say = plan.trust.is_some() && plan.contract.is_some_and(|contract| contract.in_progress);
    (would_say && draw.percent(80)).then_some(Meaning::Ordinary)
}

//! The decision under unit and property tests: no socket, no clock.

use super::*;
use proptest::prelude::*;

use crate::backoff::Backoff;
use crate::policy::PolicyBuilder;

const NEVER: ReplaySafety = ReplaySafety {
    answered: false,
    unknown: false,
};
const ANY: Terms = Terms {
    safety: ReplaySafety {
        answered: true,
        unknown: true,
    },
    safety_unkeyed: NEVER,
    body_replayable: true,
    keyed: true,
    retention: None,
};
const UNSAFE: Terms = Terms {
    safety: NEVER,
    safety_unkeyed: NEVER,
    body_replayable: true,
    keyed: false,
    retention: None,
};
const NOTHING_KNOWN: Evidence = Evidence::new(false, false);

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn answer(status: u16, retry_after: Option<Duration>) -> Ending<'static> {
    Ending::Answer {
        status: StatusCode::from_u16(status).unwrap(),
        retry_after,
        redirect: Redirect::None,
        nested: None,
        meaning: None,
    }
}

fn unknown_failure(out_of_time: bool) -> Ending<'static> {
    Ending::Failure {
        finding: Finding::retry(Delivery::Unknown),
        status: None,
        retry_after: None,
        redirect: Redirect::None,
        nested: None,
        out_of_time,
    }
}

fn body_lost(out_of_time: bool) -> Ending<'static> {
    Ending::BodyLost {
        status: StatusCode::OK,
        redirect: Redirect::None,
        nested: None,
        meaning: None,
        out_of_time,
    }
}

fn policy(builder: PolicyBuilder) -> Policy {
    builder.build().unwrap()
}

/// What follows when the first attempt, begun at once, ends so after `elapsed`. All random bits are set.
fn after_first(policy: &Policy, terms: Terms, elapsed: Duration, ending: &Ending<'_>) -> Next {
    let mut machine = Machine::new(policy, terms, NOTHING_KNOWN);
    machine.begin(Duration::ZERO).unwrap();
    machine.judge(elapsed, ending, |_| Verdict::Default, || u64::MAX).next
}

#[test]
fn an_attempt_has_its_timeout_or_what_is_left_of_the_deadline() {
    let policy = Policy::default();
    let mut machine = Machine::new(&policy, ANY, NOTHING_KNOWN);
    assert_eq!(machine.begin(Duration::ZERO), Ok(secs(10)));
    assert_eq!(machine.begin(secs(19)), Ok(secs(10)));
    assert_eq!(machine.begin(secs(26)), Ok(secs(4)));
}

// field 18
#[test]
fn an_attempt_with_less_than_the_least_time_is_not_begun() {
    let policy = Policy::default();
    let mut machine = Machine::new(&policy, ANY, NOTHING_KNOWN);
    assert_eq!(machine.begin(millis(29_990)), Ok(millis(10)));
    assert_eq!(machine.begin(millis(29_991)), Err(StopReason::Deadline));
    assert_eq!(machine.begin(Duration::MAX), Err(StopReason::Deadline));
    assert_eq!(machine.attempts(), 1);
}

#[test]
fn a_timeout_shorter_than_the_least_time_still_allows_attempts() {
    let policy = policy(Policy::builder().attempt_timeout(millis(5)));
    let mut machine = Machine::new(&policy, ANY, NOTHING_KNOWN);
    assert_eq!(machine.begin(Duration::ZERO), Ok(millis(5)));
}

// R25: the deadline counts even where no least time is asked for.
#[test]
fn without_a_least_time_the_deadline_still_ends_it() {
    let policy = policy(Policy::builder().min_attempt_time(Duration::ZERO));
    let mut machine = Machine::new(&policy, ANY, NOTHING_KNOWN);
    assert_eq!(machine.begin(secs(30)), Err(StopReason::Deadline));
}

// R23
#[test]
fn a_retry_waits_by_the_backoff() {
    let policy = Policy::default();
    let next = after_first(&policy, ANY, Duration::ZERO, &answer(502, None));
    assert_eq!(next, Next::Retry(millis(100)));
}

#[test]
fn a_429_waits_from_the_throttled_base() {
    let policy = Policy::default();
    let next = after_first(&policy, ANY, Duration::ZERO, &answer(429, None));
    assert_eq!(next, Next::Retry(secs(1)));
}

// R28, field 1, field 8
#[test]
fn jitter_is_added_to_what_the_server_asked_for() {
    let policy = Policy::default();
    for asked in [Duration::ZERO, secs(2)] {
        let next = after_first(&policy, ANY, Duration::ZERO, &answer(503, Some(asked)));
        assert_eq!(next, Next::Retry(asked + millis(100)));
    }
}

// R32, field 2
#[test]
fn a_wait_as_long_as_what_is_left_stops_at_once() {
    let policy = Policy::default();
    for asked in [secs(30), secs(60)] {
        let next = after_first(&policy, ANY, Duration::ZERO, &answer(503, Some(asked)));
        assert_eq!(next, Next::Stop(StopReason::RetryAfter { asked }));
    }
}

// field 3
#[test]
fn the_bound_of_a_retry_after_is_allowed_and_no_more() {
    let policy = policy(Policy::builder().deadline(secs(300)));
    let asked = secs(60);
    let next = after_first(&policy, ANY, Duration::ZERO, &answer(503, Some(asked)));
    assert_eq!(next, Next::Retry(asked + millis(100)));
    let asked = asked + Duration::from_nanos(1);
    let next = after_first(&policy, ANY, Duration::ZERO, &answer(503, Some(asked)));
    assert_eq!(next, Next::Stop(StopReason::RetryAfter { asked }));
}

// field 4
#[test]
fn the_longest_wait_there_is_stops_without_overflow() {
    let policy = policy(
        Policy::builder()
            .attempt_timeout(Duration::MAX)
            .max_retry_after(Duration::MAX),
    );
    let asked = Duration::MAX;
    let next = after_first(&policy, ANY, secs(1), &answer(503, Some(asked)));
    assert_eq!(next, Next::Stop(StopReason::RetryAfter { asked }));
}

#[test]
fn jitter_gives_way_to_the_deadline_and_the_asked_part_does_not() {
    let policy = policy(Policy::builder().deadline(secs(5)));
    let next = after_first(&policy, ANY, Duration::ZERO, &answer(429, Some(millis(4_500))));
    // A draw of a second would end past the deadline; what is left after it is the least time of an attempt and some for late timers.
    assert_eq!(next, Next::Retry(millis(4_980)));
    let next = after_first(&policy, ANY, Duration::ZERO, &answer(429, Some(millis(4_980))));
    assert_eq!(next, Next::Retry(millis(4_980)));
    let asked = millis(4_981);
    let next = after_first(&policy, ANY, Duration::ZERO, &answer(429, Some(asked)));
    assert_eq!(next, Next::Stop(StopReason::RetryAfter { asked }));
}

#[test]
fn without_a_wait_the_least_time_is_enough_for_another_attempt() {
    let policy = policy(Policy::builder().deadline(secs(5)).backoff(Backoff::none()));
    let next = after_first(&policy, ANY, millis(4_990), &answer(502, None));
    assert_eq!(next, Next::Retry(Duration::ZERO));
    let next = after_first(&policy, ANY, millis(4_991), &answer(502, None));
    assert_eq!(next, Next::Stop(StopReason::Deadline));
}

#[test]
fn the_lost_body_of_another_request_leaves_this_one_unknown() {
    let policy = policy(Policy::builder());
    let terms = Terms {
        safety: ReplaySafety {
            answered: true,
            unknown: false,
        },
        ..ANY
    };
    let ending = Ending::BodyLost {
        status: StatusCode::OK,
        redirect: Redirect::Astray,
        nested: None,
        meaning: None,
        out_of_time: false,
    };
    let next = after_first(&policy, terms, Duration::ZERO, &ending);
    assert_eq!(next, Next::Stop(StopReason::NotReplaySafe));
}

#[test]
fn a_wait_of_our_own_that_is_too_long_stops_without_sleeping() {
    let policy = policy(Policy::builder().deadline(secs(5)).backoff(Backoff::constant(secs(5))));
    let next = after_first(&policy, ANY, Duration::ZERO, &answer(502, None));
    assert_eq!(next, Next::Stop(StopReason::Deadline));
}

// field 10
#[test]
fn a_final_answer_is_not_waited_for() {
    let policy = Policy::default();
    for (status, reason) in [
        (200, StopReason::Done),
        (301, StopReason::Done),
        (400, StopReason::NotRetryable),
        (501, StopReason::NotRetryable),
    ] {
        let next = after_first(&policy, ANY, Duration::ZERO, &answer(status, Some(secs(1))));
        assert_eq!(next, Next::Stop(reason), "{status}");
    }
}

// R9, R43
#[test]
fn what_may_have_acted_is_repeated_only_where_that_is_safe() {
    let policy = Policy::default();
    for ending in [
        answer(500, None),
        answer(503, None),
        unknown_failure(false),
        body_lost(false),
    ] {
        let next = after_first(&policy, UNSAFE, Duration::ZERO, &ending);
        assert_eq!(next, Next::Stop(StopReason::NotReplaySafe));
        let next = after_first(&policy, ANY, Duration::ZERO, &ending);
        assert_eq!(next, Next::Retry(millis(100)));
    }
}

// R2
#[test]
fn what_cannot_have_acted_is_repeated_whatever_the_method() {
    let policy = Policy::default();
    let not_sent = Ending::Failure {
        finding: Finding::retry(Delivery::NotSent),
        status: None,
        retry_after: None,
        redirect: Redirect::None,
        nested: None,
        out_of_time: false,
    };
    for ending in [answer(429, None), answer(503, Some(Duration::ZERO)), not_sent] {
        let next = after_first(&policy, UNSAFE, Duration::ZERO, &ending);
        assert!(matches!(next, Next::Retry(_)), "{ending:?}");
    }
}

// field 30
#[test]
fn a_body_that_is_used_up_ends_it() {
    let policy = Policy::default();
    let terms = Terms {
        body_replayable: false,
        ..ANY
    };
    let next = after_first(&policy, terms, Duration::ZERO, &answer(503, None));
    assert_eq!(next, Next::Stop(StopReason::BodyNotReplayable));
}

// R1
#[test]
fn the_last_attempt_is_the_last() {
    let policy = Policy::default();
    let mut machine = Machine::new(&policy, ANY, NOTHING_KNOWN);
    let mut next = Next::Retry(Duration::ZERO);
    while next == Next::Retry(Duration::ZERO) {
        machine.begin(Duration::ZERO).unwrap();
        next = machine
            .judge(Duration::ZERO, &answer(503, None), |_| Verdict::Default, || 0)
            .next;
    }
    assert_eq!(next, Next::Stop(StopReason::MaxAttempts));
    assert_eq!(machine.attempts(), 3);
}

// field 17
#[test]
fn an_attempt_the_deadline_cut_stops_because_of_the_deadline() {
    for terms in [ANY, UNSAFE] {
        for ending in [unknown_failure(true), body_lost(true)] {
            let policy = policy(Policy::builder().deadline(secs(5)).max_attempts(1));
            let next = after_first(&policy, terms, secs(5), &ending);
            assert_eq!(next, Next::Stop(StopReason::Deadline));
        }
    }
}

#[test]
fn an_attempt_its_own_timeout_cut_is_judged_by_what_it_proves() {
    let policy = Policy::default();
    let next = after_first(&policy, ANY, secs(10), &unknown_failure(true));
    assert_eq!(next, Next::Retry(millis(100)));
    let next = after_first(&policy, UNSAFE, secs(10), &unknown_failure(true));
    assert_eq!(next, Next::Stop(StopReason::NotReplaySafe));
}

// field 38
#[test]
fn a_409_is_our_own_first_try_only_after_one_that_may_run() {
    let policy = Policy::default();
    let conflict = answer(409, None);
    let next = after_first(&policy, ANY, Duration::ZERO, &conflict);
    assert_eq!(next, Next::Stop(StopReason::NotRetryable));

    let mut machine = Machine::new(&policy, ANY, NOTHING_KNOWN);
    machine.begin(Duration::ZERO).unwrap();
    machine.judge(Duration::ZERO, &unknown_failure(false), |_| Verdict::Default, || 0);
    machine.begin(Duration::ZERO).unwrap();
    let judgement = machine.judge(Duration::ZERO, &conflict, |_| Verdict::Default, || 0);
    assert_eq!(judgement.delivery, Delivery::Unknown);
    assert_eq!(judgement.next, Next::Retry(Duration::ZERO));

    // Also where that try belongs to an earlier `send()`, and never without a key.
    let earlier = NOTHING_KNOWN.with_attempt_under_way();
    for (keyed, retried) in [(true, true), (false, false)] {
        let mut machine = Machine::new(&policy, Terms { keyed, ..ANY }, earlier);
        machine.begin(Duration::ZERO).unwrap();
        let next = machine
            .judge(Duration::ZERO, &conflict, |_| Verdict::Default, || 0)
            .next;
        assert_eq!(next == Next::Retry(Duration::ZERO), retried, "{keyed}");
    }
}

fn meaning(status: u16, meaning: Meaning) -> Ending<'static> {
    match answer(status, None) {
        Ending::Answer {
            status,
            retry_after,
            redirect,
            nested,
            ..
        } => Ending::Answer {
            status,
            retry_after,
            redirect,
            nested,
            meaning: Some(meaning),
        },
        other => other,
    }
}

/// What follows when a keyed write ends so after another one may have acted, and a classifier says this.
fn after_unknown(ending: &Ending<'_>, verdict: Verdict) -> (Judgement, Outcome) {
    let policy = policy(Policy::builder().backoff(Backoff::none()));
    let earlier = Evidence::new(false, true).with_attempt_under_way();
    let mut machine = Machine::new(&policy, ANY, earlier);
    machine.begin(Duration::ZERO).unwrap();
    let judgement = machine.judge(Duration::ZERO, ending, |_| verdict, || 0);
    (judgement, machine.evidence().outcome())
}

// R68, R69, R70: and no classifier talks it into another attempt.
#[test]
fn a_key_that_belongs_to_another_request_ends_the_operation() {
    for verdict in [
        Verdict::Default,
        Verdict::Retry,
        Verdict::Rejected,
        Verdict::Refused,
        Verdict::Final,
    ] {
        let (judgement, outcome) = after_unknown(&meaning(409, Meaning::Mismatch), verdict);
        assert_eq!(judgement.next, Next::Stop(StopReason::KeyConflict));
        assert_eq!(
            (judgement.delivery, outcome),
            (Delivery::Rejected, Outcome::NotDone),
            "{verdict:?}"
        );
    }
}

#[test]
fn what_is_in_progress_is_asked_for_again() {
    let (judgement, outcome) = after_unknown(&meaning(423, Meaning::InProgress), Verdict::Default);
    assert_eq!(judgement.next, Next::Retry(Duration::ZERO));
    assert_eq!((judgement.delivery, outcome), (Delivery::Unknown, Outcome::Unknown));
    let policy = Policy::default();
    let next = after_first(&policy, UNSAFE, Duration::ZERO, &meaning(409, Meaning::InProgress));
    assert_eq!(next, Next::Stop(StopReason::NotReplaySafe));
}

#[test]
fn a_409_is_final_where_the_contract_would_have_said_that_it_is_progress() {
    let (judgement, _) = after_unknown(&meaning(409, Meaning::Ordinary), Verdict::Default);
    assert_eq!(judgement.next, Next::Stop(StopReason::NotRetryable));
}

#[test]
fn a_stored_failure_is_final_and_leaves_the_outcome_open() {
    let (judgement, outcome) = after_unknown(&meaning(500, Meaning::Stored), Verdict::Default);
    assert_eq!(judgement.next, Next::Stop(StopReason::NotRetryable));
    assert_eq!((judgement.delivery, outcome), (Delivery::Unknown, Outcome::Unknown));
}

// R56: what took the key from this attempt may have taken it from an earlier one, which then acted.
#[test]
fn a_missing_key_is_final_and_settles_nothing_before() {
    for status in [400, 409] {
        let (judgement, outcome) = after_unknown(&meaning(status, Meaning::Missing), Verdict::Default);
        assert_eq!(judgement.next, Next::Stop(StopReason::NotRetryable));
        assert_eq!((judgement.delivery, outcome), (Delivery::Rejected, Outcome::Unknown));
    }
}

#[test]
fn a_refusal_that_a_classifier_calls_passing_settles_nothing() {
    let (_, outcome) = after_unknown(&answer(404, None), Verdict::Default);
    assert_eq!(outcome, Outcome::NotDone);
    let (judgement, outcome) = after_unknown(&answer(404, None), Verdict::Retry);
    assert_eq!(
        (judgement.next, outcome),
        (Next::Retry(Duration::ZERO), Outcome::Unknown)
    );
}

#[test]
fn a_classifier_cannot_make_an_unsafe_repeat() {
    let policy = Policy::default();
    for ending in [
        unknown_failure(false),
        answer(500, None),
        answer(501, None),
        answer(200, None),
    ] {
        let mut machine = Machine::new(&policy, UNSAFE, NOTHING_KNOWN);
        machine.begin(Duration::ZERO).unwrap();
        let judgement = machine.judge(Duration::ZERO, &ending, |_| Verdict::Retry, || 0);
        assert_eq!(judgement.next, Next::Stop(StopReason::NotReplaySafe), "{ending:?}");
    }
}

#[test]
fn what_a_classifier_calls_rejected_is_repeated_whatever_the_method() {
    let policy = policy(Policy::builder().backoff(Backoff::none()));
    for (status, retried) in [(503, true), (500, true), (404, true), (200, false)] {
        let mut machine = Machine::new(&policy, UNSAFE, NOTHING_KNOWN);
        machine.begin(Duration::ZERO).unwrap();
        let judgement = machine.judge(Duration::ZERO, &answer(status, None), |_| Verdict::Rejected, || 0);
        assert_eq!(judgement.next == Next::Retry(Duration::ZERO), retried, "{status}");
    }
}

#[test]
fn a_classifier_is_told_what_the_default_is() {
    let policy = Policy::default();
    for (status, delivery) in [
        (200, Delivery::Answered),
        (404, Delivery::Rejected),
        (500, Delivery::Unknown),
    ] {
        let mut machine = Machine::new(&policy, ANY, NOTHING_KNOWN);
        machine.begin(Duration::ZERO).unwrap();
        let mut told = None;
        let tell = |delivery| {
            told = Some(delivery);
            Verdict::Final
        };
        machine.judge(Duration::ZERO, &answer(status, None), tell, || 0);
        assert_eq!(told, Some(delivery));
    }
}

#[test]
fn no_attempt_is_begun_once_the_key_may_be_forgotten() {
    let terms = Terms {
        retention: Some(secs(5)),
        ..ANY
    };
    let policy = policy(Policy::builder().backoff(Backoff::constant(secs(2))));
    let unknown = unknown_failure(false);
    let mut machine = Machine::new(&policy, terms, NOTHING_KNOWN);
    machine.begin(millis(500)).unwrap();
    machine.send(secs(1)).unwrap();
    // It counts from the first request, at 1 s, to 6 s.
    let next = machine.judge(millis(3_999), &unknown, |_| Verdict::Default, || 0).next;
    assert_eq!(next, Next::Retry(secs(2)));
    let next = machine.judge(secs(4), &unknown, |_| Verdict::Default, || 0).next;
    assert_eq!(next, Next::Stop(StopReason::Retention));
    assert_eq!(machine.begin(millis(5_999)), Ok(secs(10)));
    assert_eq!(machine.begin(secs(6)), Err(StopReason::Retention));

    let mut later = Machine::new(&policy, terms, NOTHING_KNOWN).remembered_for(Some(secs(1)));
    assert!(later.begin(millis(999)).is_ok());
    let mut too_late = Machine::new(&policy, terms, NOTHING_KNOWN).remembered_for(Some(Duration::ZERO));
    assert_eq!(too_late.begin(Duration::ZERO), Err(StopReason::Retention));
}

#[test]
fn a_request_that_is_ready_too_late_is_not_sent() {
    let policy = policy(Policy::builder().deadline(secs(9)));
    let terms = Terms {
        retention: Some(secs(5)),
        ..ANY
    };
    let mut machine = Machine::new(&policy, terms, NOTHING_KNOWN);
    machine.begin(Duration::ZERO).unwrap();
    // Nothing was sent before, so there is nothing to be forgotten.
    assert_eq!(machine.send(millis(8_990)), Ok(()));
    assert_eq!(machine.send(millis(8_991)), Err(StopReason::Deadline));
    let mut machine = Machine::new(&policy, terms, NOTHING_KNOWN);
    machine.begin(Duration::ZERO).unwrap();
    machine.send(secs(1)).unwrap();
    machine.begin(secs(5)).unwrap();
    assert_eq!(machine.send(millis(5_999)), Ok(()));
    assert_eq!(machine.send(secs(6)), Err(StopReason::Retention));
}

// R43
#[test]
fn a_request_that_lost_its_key_on_its_way_is_not_repeated() {
    let policy = policy(Policy::builder());
    let failed = |redirect| Ending::Failure {
        finding: Finding::retry(Delivery::Unknown),
        status: None,
        retry_after: None,
        redirect,
        nested: None,
        out_of_time: false,
    };
    let next = after_first(&policy, ANY, Duration::ZERO, &failed(Redirect::None));
    assert!(matches!(next, Next::Retry(_)));
    let next = after_first(&policy, ANY, Duration::ZERO, &failed(Redirect::Unkeyed));
    assert_eq!(next, Next::Stop(StopReason::NotReplaySafe));
}

#[test]
fn decorrelated_waits_grow_from_the_draw_before_and_not_from_what_was_asked() {
    let backoff = Backoff::decorrelated_jitter(millis(100), secs(10));
    let policy = policy(Policy::builder().backoff(backoff).max_attempts(5));
    let mut machine = Machine::new(&policy, ANY, NOTHING_KNOWN);
    machine.begin(Duration::ZERO).unwrap();
    let next = machine
        .judge(
            Duration::ZERO,
            &answer(503, Some(secs(5))),
            |_| Verdict::Default,
            || u64::MAX,
        )
        .next;
    assert_eq!(next, Next::Retry(millis(5_300)));
    machine.begin(Duration::ZERO).unwrap();
    let next = machine
        .judge(Duration::ZERO, &answer(503, None), |_| Verdict::Default, || u64::MAX)
        .next;
    assert_eq!(next, Next::Retry(millis(900)));
}

fn any_ending() -> impl Strategy<Value = Ending<'static>> {
    let asked = proptest::option::of((0..40_000_u64).prop_map(Duration::from_millis));
    let delivery = prop_oneof![
        Just(Delivery::NotSent),
        Just(Delivery::Rejected),
        Just(Delivery::Unknown),
    ];
    let redirect = prop_oneof![
        4 => Just(Redirect::None),
        1 => Just(Redirect::SeeOther),
        1 => Just(Redirect::Unkeyed),
        1 => Just(Redirect::Astray),
    ];
    prop_oneof![
        (100..=599_u16, asked, redirect, any_meaning()).prop_map(|(status, retry_after, redirect, meaning)| {
            Ending::Answer {
                status: StatusCode::from_u16(status).unwrap(),
                retry_after,
                redirect,
                nested: None,
                meaning,
            }
        }),
        (any::<bool>(), any_meaning()).prop_map(|(out_of_time, meaning)| Ending::BodyLost {
            status: StatusCode::OK,
            redirect: Redirect::None,
            nested: None,
            meaning,
            out_of_time,
        }),
        (delivery, any::<bool>(), any::<bool>()).prop_map(|(delivery, retry, out_of_time)| {
            Ending::Failure {
                finding: Finding { delivery, retry },
                status: None,
                retry_after: None,
                redirect: Redirect::None,
                nested: None,
                out_of_time,
            }
        }),
    ]
}

fn any_meaning() -> impl Strategy<Value = Option<Meaning>> {
    prop_oneof![
        4 => Just(None),
        1 => prop::sample::select(vec![
            Meaning::InProgress,
            Meaning::Mismatch,
            Meaning::Missing,
            Meaning::Stored,
            Meaning::Ordinary,
        ])
        .prop_map(Some),
    ]
}

fn any_verdict() -> impl Strategy<Value = Verdict> {
    prop::sample::select(vec![
        Verdict::Default,
        Verdict::Default,
        Verdict::Retry,
        Verdict::Rejected,
        Verdict::Refused,
        Verdict::Final,
    ])
}

fn any_terms() -> impl Strategy<Value = Terms> {
    let retention = prop::option::of((0..20_000_u64).prop_map(millis));
    (any::<[bool; 4]>(), retention).prop_map(|([answered, unknown, body_replayable, keyed], retention)| Terms {
        safety: ReplaySafety { answered, unknown },
        safety_unkeyed: NEVER,
        body_replayable,
        keyed,
        retention,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // R1, R25, R28: whatever happens, and however long each attempt takes of the time it was given.
    #[test]
    fn every_schedule_keeps_its_limits(
        terms in any_terms(),
        max_attempts in 1..6_u32,
        deadline in 10..20_000_u64,
        script in proptest::collection::vec(
            (any_ending(), any_verdict(), 0.0..=1.0, 0.0..=1.0, any::<u64>()),
            6,
        ),
    ) {
        let deadline = millis(deadline);
        let policy = policy(Policy::builder().deadline(deadline).max_attempts(max_attempts));
        let mut machine = Machine::new(&policy, terms, NOTHING_KNOWN);
        let mut elapsed = Duration::ZERO;
        let mut first_sent = None;
        let mut unkeyed = false;
        let mut stopped = None;
        for (ending, verdict, hook, share, random) in script {
            let Ok(limit) = machine.begin(elapsed) else {
                stopped = Some(StopReason::Deadline);
                break;
            };
            prop_assert!(elapsed + limit <= deadline && limit <= policy.attempt_timeout());
            prop_assert!(limit >= policy.min_attempt_time());
            // What a hook takes is the attempt's.
            let ends = elapsed + limit;
            elapsed += limit.mul_f64(hook);
            if let Err(reason) = machine.send(elapsed) {
                stopped = Some(reason);
                break;
            }
            prop_assert!(ends < deadline || ends - elapsed >= policy.min_attempt_time());
            let since = elapsed - *first_sent.get_or_insert(elapsed);
            prop_assert!(since.is_zero() || terms.retention.is_none_or(|retention| since < retention));
            elapsed += (ends - elapsed).mul_f64(share);
            unkeyed |= ending.redirect() == Redirect::Unkeyed;
            let safety = if unkeyed { terms.safety_unkeyed } else { terms.safety };
            let judgement = machine.judge(elapsed, &ending, |_| verdict, || random);
            match judgement.next {
                Next::Stop(reason) => {
                    stopped = Some(reason);
                    break;
                }
                Next::Retry(wait) => {
                    prop_assert!(wait >= ending.retry_after().unwrap_or_default());
                    prop_assert!(elapsed + wait < deadline);
                    prop_assert!(terms.body_replayable && verdict < Verdict::Refused);
                    prop_assert!(ending.meaning() != Some(Meaning::Mismatch));
                    prop_assert!(safety.unknown || judgement.delivery != Delivery::Unknown);
                    prop_assert!(safety.answered || judgement.delivery != Delivery::Answered);
                    elapsed += wait;
                }
            }
        }
        prop_assert!(stopped.is_some() && machine.attempts() <= max_attempts);
    }

    // R10: an operation that may have acted is never called not done.
    #[test]
    fn not_done_is_never_claimed_after_an_unsettled_unknown(
        endings in proptest::collection::vec((any_ending(), any_verdict()), 1..6),
    ) {
        let policy = policy(Policy::builder().max_attempts(9));
        let mut machine = Machine::new(&policy, ANY, NOTHING_KNOWN);
        let mut may_have_acted = false;
        for (ending, verdict) in &endings {
            machine.begin(Duration::ZERO).unwrap();
            let judgement = machine.judge(Duration::ZERO, ending, |_| *verdict, || 0);
            may_have_acted |= judgement.delivery == Delivery::Unknown;
        }
        prop_assert!(!may_have_acted || machine.evidence().outcome() != Outcome::NotDone);
    }
}

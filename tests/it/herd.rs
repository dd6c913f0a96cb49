//! What the studies of the example `herd` promise, in smaller ones.

use std::path::Path;

use crate::examples::run;

#[allow(dead_code)]
#[path = "../../examples/herd/contention.rs"]
mod contention;
#[allow(dead_code)]
#[path = "../../examples/herd/outage.rs"]
mod outage;
#[allow(dead_code)]
#[path = "../../examples/herd/retry_after.rs"]
mod retry_after;

use contention::{Waits, contention};
use outage::{Course, Guards, Plan, outage};
use retry_after::arrivals;

// R23
#[test]
fn a_hundred_clients_with_full_jitter_make_less_than_half_the_calls_of_those_without() {
    let calls = |waits| contention(waits, 100, 20, 1).calls;
    let (full, none) = (calls(Waits::Full), calls(Waits::NoJitter));
    assert!(full < none / 2.0, "{full} {none}");
}

#[test]
fn the_same_seed_makes_the_same_study() {
    let study = |seed| contention(Waits::Full, 20, 5, seed);
    assert_eq!(study(1), study(1));
    assert_ne!(study(1), study(2));
}

async fn course(guards: Guards, clients: u32) -> Course {
    let plan = Plan {
        clients,
        rate: 100,
        before: 20,
        outage: 60,
        after: 30,
        seed: 1,
    };
    outage(guards, plan).await.unwrap()
}

// R31, field 40
#[tokio::test(start_paused = true)]
async fn a_fleet_with_the_defaults_adds_hardly_any_load_in_an_outage_and_no_wave_after_it() {
    let course = course(Guards::Budget, 2).await;
    assert!(course.load_in_outage() <= 1.05, "{}", course.load_in_outage());
    assert!(course.peak_after() <= 2.0, "{}", course.peak_after());
    assert_eq!(course.recovery(), Some(0));
}

// R31: burst and trickle of each client, so how much that is depends on how much each does.
#[tokio::test(start_paused = true)]
async fn what_a_fleet_adds_in_an_outage_is_at_most_the_burst_and_the_trickle_of_each_client() {
    for clients in [2, 20, 100] {
        let course = course(Guards::Budget, clients).await;
        let operations_of_each = 100.0 * 60.0 / f64::from(clients);
        let bound = 1.0 + (50.0 + 6.0) / operations_of_each;
        assert!(
            course.load_in_outage() <= bound,
            "{clients}: {}",
            course.load_in_outage()
        );
    }
}

// R39
#[tokio::test(start_paused = true)]
async fn a_fleet_with_circuits_leaves_the_service_alone_and_is_back_within_an_open_period() {
    let course = course(Guards::FixedCircuit, 2).await;
    assert!(course.load_in_outage() <= 0.5, "{}", course.load_in_outage());
    assert!(course.peak_after() <= 2.0, "{}", course.peak_after());
    assert!(
        course.recovery().is_some_and(|seconds| seconds <= 7),
        "{:?}",
        course.recovery()
    );
}

// R44: jitter is no budget.
#[tokio::test(start_paused = true)]
async fn a_fleet_without_budgets_keeps_the_service_down_after_the_outage() {
    for guards in [Guards::FixedWaits, Guards::Jitter] {
        let course = course(guards, 2).await;
        assert!(course.load_in_outage() > 2.5, "{}", course.load_in_outage());
        assert_eq!(course.recovery(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_makes_the_same_outage() {
    assert_eq!(course(Guards::Circuit, 4).await, course(Guards::Circuit, 4).await);
}

// R28
#[tokio::test(start_paused = true)]
async fn clients_that_were_told_the_same_come_back_apart_and_none_before_the_time() {
    for (status, most) in [(503, 300), (429, 60)] {
        let arrivals = arrivals(status, 1_000, 1).await.unwrap();
        assert!(
            arrivals.first >= std::time::Duration::from_secs(2),
            "{:?}",
            arrivals.first
        );
        assert_eq!(arrivals.windows.iter().sum::<u32>(), 1_000);
        assert!(arrivals.peak() <= most, "{status}: {}", arrivals.peak());
    }
}

#[tokio::test]
async fn the_example_prints_and_draws_the_same_each_time() {
    let directory = std::env::temp_dir().join(format!("steadfast-herd-{}", std::process::id()));
    let mut runs = Vec::new();
    for name in ["one", "two"] {
        let out = directory.join(name);
        let ran = run("herd", &["--quick", "--clients", "50", "--out", out.to_str().unwrap()]).await;
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(ran.out.contains("full jitter"), "{}", ran.out);
        let drawings = ["contention.svg", "outage.svg", "retry-after.svg"].map(|name| {
            assert!(
                Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("docs/img")
                    .join(name)
                    .exists(),
                "{name}"
            );
            let drawing = std::fs::read_to_string(out.join(name)).unwrap();
            assert!(drawing.contains("</svg>"), "{name}");
            drawing
        });
        runs.push((ran.out, drawings));
    }
    std::fs::remove_dir_all(directory).unwrap();
    assert!(runs[0] == runs[1], "{}\n{}", runs[0].0, runs[1].0);
}

#[tokio::test]
async fn the_example_refuses_what_it_does_not_know() {
    for arguments in [&["--clients", "0"][..], &["--seed", "x"], &["--seed"], &["--slow"]] {
        let ran = run("herd", arguments).await;
        assert_eq!(ran.code, Some(2), "{arguments:?}");
        assert!(ran.err.contains("usage: herd"), "{}", ran.err);
    }
}

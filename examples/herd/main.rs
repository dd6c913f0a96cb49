//! What many clients do to one service, and what backoff, budget and circuit do about it.
//!
//! `cargo run --release --example herd` plays three studies in virtual time, prints them as tables and draws them into
//! `docs/img`. The same seed gives the same tables and the same drawings.

mod chart;
mod contention;
mod outage;
mod retry_after;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

use chart::{Chart, SeriesLabelPosition};
use contention::{Waits, contention};
use outage::{Course, Guards, Plan, outage};
use retry_after::{Arrivals, arrivals};
use tokio::runtime::Builder;

const USAGE: &str = "usage: herd [--out DIR] [--seed N] [--clients N] [--quick]

  --out DIR      where the drawings go (docs/img)
  --seed N       for all that is drawn at random (1)
  --clients N    who are told to come back later, in study 3 (1000)
  --quick        smaller studies";

struct Options {
    out: PathBuf,
    seed: u64,
    clients: u32,
    quick: bool,
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options {
        out: PathBuf::from("docs/img"),
        seed: 1,
        clients: 1_000,
        quick: false,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        let no_number = |value| format!("{value} is not a number from 1 to 1000000");
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--quick" => options.quick = true,
            "--out" => options.out = value()?.into(),
            "--seed" => {
                let value = value()?;
                options.seed = value.parse().map_err(|_| format!("{value} is not a whole number"))?;
            }
            "--clients" => {
                let value = value()?;
                let clients = value.parse().ok().filter(|clients| (1..=1_000_000).contains(clients));
                options.clients = clients.ok_or_else(|| no_number(value))?;
            }
            _ => return Err(format!("unknown option {argument}")),
        }
    }
    Ok(Some(options))
}

fn main() -> ExitCode {
    let options = match options(env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match studies(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn studies(options: &Options) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(&options.out).map_err(|error| format!("{}: {error}", options.out.display()))?;
    study_contention(options)?;
    study_outage(options)?;
    study_retry_after(options)
}

/// Runs a study on a clock that jumps to the next thing that happens.
fn in_virtual_time<T>(study: impl Future<Output = T>) -> Result<T, Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(study))
}

fn study_contention(options: &Options) -> Result<(), Box<dyn Error>> {
    let (step, runs) = if options.quick { (90, 10) } else { (10, 100) };
    let sizes: Vec<usize> = (10..=190).step_by(step).collect();
    println!("1. Clients that write one row: calls until all are done, and the time it takes\n");
    print!("{:>8}", "clients");
    for waits in Waits::ALL {
        print!("{:>22}", waits.name());
    }
    println!();
    let mut lines: Vec<_> = Waits::ALL.map(|waits| (waits.name().to_owned(), Vec::new())).into();
    for clients in sizes {
        print!("{clients:>8}");
        for (waits, (_, points)) in Waits::ALL.into_iter().zip(&mut lines) {
            let found = contention(waits, clients, runs, options.seed);
            print!("{:>12.0} {:>7.2} s", found.calls, found.seconds);
            points.push((clients as f64, found.calls));
        }
        println!();
    }
    println!("\nWithout jitter all who were refused come back together, to be refused again.\n");
    let chart = Chart {
        title: "Calls until every client has written",
        x: "clients",
        y: "calls",
        legend: SeriesLabelPosition::UpperLeft,
        lines,
    };
    chart.draw(&options.out.join("contention.svg"))
}

fn study_outage(options: &Options) -> Result<(), Box<dyn Error>> {
    let plan = Plan {
        clients: 20,
        rate: if options.quick { 100 } else { 1_000 },
        before: 20,
        outage: 60,
        after: 60,
        seed: options.seed,
    };
    println!(
        "2. A service that is silent for {} of {} seconds, under {} operations a second of {} clients\n",
        plan.outage,
        plan.before + plan.outage + plan.after,
        plan.rate,
        plan.clients
    );
    println!(
        "{:<26}{:>16}{:>16}{:>16}",
        "", "load in outage", "peak after it", "recovery"
    );
    let mut lines = Vec::new();
    for guards in Guards::ALL {
        let course = in_virtual_time(outage(guards, plan))??;
        print_course(guards.name(), &course, plan);
        let points = course.arrivals.iter().enumerate();
        let points = points.map(|(second, arrivals)| (second as f64, f64::from(*arrivals)));
        lines.push((guards.name().to_owned(), points.collect()));
    }
    println!("\nRetries of all keep up the load that keeps the service from answering any of them.\n");
    println!("The same load with the default budget, from fleets whose clients do less each\n");
    let sizes: &[u32] = if options.quick {
        &[20, 200]
    } else {
        &[20, 200, 2_000, 20_000]
    };
    for &clients in sizes {
        let plan = Plan { clients, ..plan };
        let course = in_virtual_time(outage(Guards::Budget, plan))??;
        print_course(&format!("{clients} clients"), &course, plan);
    }
    println!("\nThe budget is each client's own: one that does less than its burst has no limit.\n");
    let chart = Chart {
        title: "Requests a second, silent from 20 s to 80 s, with room for a quarter more",
        x: "seconds",
        y: "requests a second",
        legend: SeriesLabelPosition::MiddleRight,
        lines,
    };
    chart.draw(&options.out.join("outage.svg"))
}

fn print_course(name: &str, course: &Course, plan: Plan) {
    let recovery = match course.recovery() {
        Some(seconds) => format!("{seconds} s"),
        None => format!("not in {} s", plan.after),
    };
    let (load, peak) = (course.load_in_outage(), course.peak_after());
    println!("{name:<26}{load:>14.2} x{peak:>14.2} x{recovery:>16}");
}

fn study_retry_after(options: &Options) -> Result<(), Box<dyn Error>> {
    let clients = options.clients;
    println!("3. {clients} clients that are told `Retry-After: 2` together: arrivals in windows of 20 ms\n");
    println!("{:<26}{:>16}{:>16}{:>16}", "", "first", "most at once", "windows");
    let to_the_letter = Arrivals {
        windows: vec![0; 100].into_iter().chain([clients, 0]).collect(),
        first: retry_after::WINDOW * 100,
    };
    let mut lines = Vec::new();
    for (name, arrivals) in [
        ("to the letter", to_the_letter),
        ("after a 503", in_virtual_time(arrivals(503, clients, options.seed))??),
        ("after a 429", in_virtual_time(arrivals(429, clients, options.seed))??),
    ] {
        let used = arrivals.windows.iter().filter(|count| **count > 0).count();
        let first = format!("{:.3} s", arrivals.first.as_secs_f64());
        println!("{name:<26}{first:>16}{:>16}{used:>16}", arrivals.peak());
        let windows = arrivals.windows.iter().enumerate().skip(95);
        let milliseconds = |window: usize| window as f64 * retry_after::WINDOW.as_secs_f64() * 1e3;
        let points = windows.map(|(window, count)| (milliseconds(window), f64::from(*count)));
        lines.push((name.to_owned(), points.collect()));
    }
    println!("\nNobody comes before the time; jitter on top of it spreads them.");
    let chart = Chart {
        title: "Arrivals in 20 ms after `Retry-After: 2`",
        x: "milliseconds since the answer",
        y: "requests in 20 ms",
        legend: SeriesLabelPosition::UpperRight,
        lines,
    };
    chart.draw(&options.out.join("retry-after.svg"))
}

//! The page that is written.

use std::path::Path;

use crate::bare_cpu;
use crate::probes::Probes;
use crate::rounds::{Ratio, Row};

const HEAD: &str = "\
# Benchmarks

Written by `cargo run --release --manifest-path benches/compare/Cargo.toml`, which runs for some minutes. All stacks are
in one process with one server, in rounds whose order rotates; a ratio is the mean over the rounds of what a stack takes
beside bare reqwest in the same round, with its 95 % interval. The second bare reqwest is the control: what it shows is
noise. CPU is that of client and server together. Allocations and bytes are exact, and what they are above bare reqwest's.

Every stack makes up to three attempts without a wait between them and has a timeout of ten seconds. Steadfast has all of
it on: deadline, attempt timeout, budget, circuit and, on a POST with a key, a key that it makes. The others get theirs
by hand. *Streamed* hands the body over at its headers, under a guard against silence that no other has; the other rows
of Steadfast read it inside the attempt, so that a body that is cut is repeated, which no other does either.
";

pub struct Report {
    page: String,
}

impl Report {
    pub fn new() -> Self {
        Self { page: HEAD.to_owned() }
    }

    fn line(&mut self, text: &str) {
        println!("{text}");
        self.page.push_str(text);
        self.page.push('\n');
    }

    pub fn calls(&mut self, title: &str, rows: &[Row]) {
        self.line(&format!("\n## {title}\n"));
        self.line("| stack | µs | wall | CPU | allocations | bytes |");
        self.line("|---|---|---|---|---|---|");
        for row in rows {
            let Row {
                name,
                micros,
                allocations,
                bytes,
                ..
            } = row;
            let (wall, cpu) = (ratio(row.wall), ratio(row.cpu));
            self.line(&format!(
                "| {name} | {micros:.1} | {wall} | {cpu} | {allocations:+.1} | {bytes:+.0} |"
            ));
        }
    }

    pub fn retries(&mut self, title: &str, rows: &[(Row, u64)]) {
        self.line(&format!("\n## {title}\n"));
        self.line("Beside a loop by hand that drains what failed, for the same connection to be used again.\n");
        self.line("| stack | µs | wall | CPU | new connections in 200 calls |");
        self.line("|---|---|---|---|---|");
        for (row, connections) in rows {
            let (wall, cpu) = (ratio(row.wall), ratio(row.cpu));
            self.line(&format!(
                "| {} | {:.1} | {wall} | {cpu} | {connections} |",
                row.name, row.micros
            ));
        }
    }

    pub fn tasks(&mut self, rows: &[Row]) {
        self.line("\n## GET by 64 tasks on two threads\n");
        self.line("| stack | µs | wall | CPU |");
        self.line("|---|---|---|---|");
        for row in rows {
            let (wall, cpu) = (ratio(row.wall), ratio(row.cpu));
            self.line(&format!("| {} | {:.1} | {wall} | {cpu} |", row.name, row.micros));
        }
    }

    pub fn bare_cpu(&mut self, rows: &[bare_cpu::Row]) {
        self.line("\n## Without a network\n");
        self.line(
            "What is added to a transport that answers at once, for a GET with one header, and how many times that of",
        );
        self.line("`Request::try_clone` it is.\n");
        self.line("| stack | ns | × `try_clone` | allocations |");
        self.line("|---|---|---|---|");
        let unit = rows.get(1).map_or(f64::NAN, |row| row.nanos);
        for bare_cpu::Row {
            name,
            nanos,
            allocations,
        } in rows.iter().skip(1)
        {
            self.line(&format!(
                "| {name} | {nanos:.0} | {:.2} | {allocations:+.1} |",
                nanos / unit
            ));
        }
    }

    pub fn probes(&mut self, probes: &Probes) {
        self.line("\n## What they do\n");
        self.line("Each with the budget it has by default, a timeout of 300 ms and up to three attempts.\n");
        self.line(&format!("| probe | {} |", probes.names.join(" | ")));
        self.line(&format!("|---|{}", "---|".repeat(probes.names.len())));
        for (probe, answers) in &probes.lines {
            self.line(&format!("| {probe} | {} |", answers.join(" | ")));
        }
    }

    pub fn write(mut self) -> std::io::Result<()> {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        self.page.push_str(include_str!("allocations.md"));
        std::fs::write(docs.join("benchmarks.md"), self.page)
    }
}

fn ratio(Ratio { low, mean, high }: Ratio) -> String {
    format!("{mean:.3} ({low:.3} to {high:.3})")
}

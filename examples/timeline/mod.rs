//! What happened in one operation, as a table with one line for each attempt.

use std::time::Duration;

use steadfast::{Attempt, Attempts, Delivery, Outcome};

type Row = [String; 6];

/// The attempts, what is known of their effect, and why there are no more of them.
pub(crate) fn timeline(attempts: &Attempts) -> String {
    let mut text = if attempts.is_empty() {
        "no attempt was made\n".to_owned()
    } else {
        table(&rows(attempts))
    };
    text += &format!("\noutcome:      {}\n", outcome(attempts.outcome()));
    text += &format!("at most once: {}\n", at_most_once(attempts));
    text += &format!("stop reason:  {}\n", attempts.stop_reason());
    text
}

fn rows(attempts: &Attempts) -> Vec<Row> {
    let head = [
        "attempt",
        "started after",
        "what came",
        "delivery",
        "then waited",
        "why",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for (position, attempt) in attempts.iter().enumerate() {
        // Not by the wait: the deadline may have passed while the operation waited.
        let is_last = position + 1 == attempts.len();
        let why = if is_last {
            format!("stopped: {}", attempts.stop_reason())
        } else {
            format!("went on: {}", why_on(attempt, attempts.idempotency_key().is_some()))
        };
        rows.push([
            attempt.number().to_string(),
            millis(attempt.started_after()),
            what_came(attempt),
            attempt.delivery().to_string(),
            attempt.waited().map_or_else(|| "-".to_owned(), millis),
            why,
        ]);
    }
    rows
}

fn what_came(attempt: &Attempt) -> String {
    match (attempt.status(), attempt.failure()) {
        (Some(status), Some(failure)) => format!("{failure} of {status}"),
        (Some(status), None) => status.to_string(),
        (None, Some(failure)) => failure.to_string(),
        (None, None) => "nothing".to_owned(),
    }
}

fn why_on(attempt: &Attempt, keyed: bool) -> String {
    let why = match attempt.delivery() {
        Delivery::NotSent => "it never left, a repeat is harmless",
        Delivery::Rejected => "it was refused, a repeat is harmless",
        Delivery::Unknown if keyed => "it may have acted, the key makes a repeat harmless",
        Delivery::Unknown => "it may have acted, a repeat is harmless all the same",
        Delivery::Answered => "it acted, but the answer was lost on the way",
        _ => "a repeat is harmless",
    };
    match attempt.retry_after() {
        Some(asked) => format!("{why}; the server asked to wait {asked:?}"),
        None => why.to_owned(),
    }
}

fn outcome(outcome: Outcome) -> String {
    let meaning = match outcome {
        Outcome::Completed => "the service confirmed it",
        Outcome::NotDone => "it certainly had no effect",
        Outcome::Unknown => "it may have had an effect, and nothing tells",
        _ => "see the documentation",
    };
    format!("{outcome}, {meaning}")
}

fn at_most_once(attempts: &Attempts) -> &'static str {
    match (attempts.exactly_once(), attempts.idempotency_key()) {
        (true, _) => "yes",
        (false, Some(_)) => "if the service honours the key, which is assumed and not declared",
        (false, None) => "perhaps not, more than one attempt may have acted",
    }
}

fn millis(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

fn table(rows: &[Row]) -> String {
    let mut widths = [0; 6];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (width, cell) in widths.into_iter().zip(row) {
            line += &format!("{cell:<width$}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

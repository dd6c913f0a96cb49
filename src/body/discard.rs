//! Answers nobody will read: read to their end if that is near, so that the connection can be used again.

use std::time::Duration;

use reqwest::Response;
use tokio::time::{Instant, timeout_at};

use crate::deadline::after;

const MOST_BYTES: u64 = 64 * 1024;
const MOST_TIME: Duration = Duration::from_millis(100);

/// Takes the answer off its connection, within 64 KiB, 100 ms and the time the next attempt needs.
pub(crate) async fn discard(mut response: Response, latest: Instant) {
    let mut left = MOST_BYTES;
    if response.content_length().is_some_and(|length| length > left) {
        return;
    }
    let until = after(Instant::now(), MOST_TIME).min(latest);
    // A body that fails here is no loss: its connection is not used again.
    while let Ok(Ok(Some(chunk))) = timeout_at(until, response.chunk()).await {
        match left.checked_sub(chunk.len() as u64) {
            Some(less) => left = less,
            None => return,
        }
        // A chunk that is always ready would never let the timer speak.
        if Instant::now() >= until {
            return;
        }
    }
}

use std::collections::BTreeSet;

use http::StatusCode;

use super::{AttemptFacts, Classifier, RequestFacts, Verdict};

/// Repeats after more statuses than 429, 500, 502, 503 and 504.
#[derive(Clone, Debug)]
pub struct RetryStatuses(BTreeSet<StatusCode>);

impl RetryStatuses {
    /// After these.
    pub fn new(statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        Self(statuses.into_iter().collect())
    }

    /// After those that tell of a passing state: 408 and 425 (RFC 9110 section 15.5.9, RFC 8470), 520 to 524 (Cloudflare,
    /// between it and the origin) and 529 (some services, when they are overloaded).
    pub fn transient() -> Self {
        let codes = [408, 425, 520, 521, 522, 523, 524, 529];
        Self::new(codes.into_iter().filter_map(|code| StatusCode::from_u16(code).ok()))
    }
}

impl Classifier for RetryStatuses {
    fn classify(&self, _: &RequestFacts<'_>, attempt: &AttemptFacts<'_>) -> Verdict {
        match attempt.status() {
            Some(status) if self.0.contains(&status) => Verdict::Retry,
            _ => Verdict::Default,
        }
    }
}

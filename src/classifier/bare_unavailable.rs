use http::StatusCode;

use super::{AttemptFacts, Classifier, RequestFacts, Verdict};

/// Takes a 503 without `Retry-After` as the word of the service that it did nothing.
///
/// By default nobody knows: a proxy says 503 also when the upstream died on the request. Where only the service itself says it,
/// a write without a key can be repeated after one.
#[derive(Clone, Copy, Debug, Default)]
pub struct BareUnavailable;

impl Classifier for BareUnavailable {
    fn classify(&self, _: &RequestFacts<'_>, attempt: &AttemptFacts<'_>) -> Verdict {
        match attempt.status() {
            Some(StatusCode::SERVICE_UNAVAILABLE) => Verdict::Rejected,
            _ => Verdict::Default,
        }
    }
}

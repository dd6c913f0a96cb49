use http::HeaderName;

use super::{AttemptFacts, Classifier, RequestFacts, Verdict};

/// Obeys a header in which the service says whether to try again, such as `x-should-retry: true`.
///
/// `true` asks for another attempt, `false` forbids one; anything else, and its absence, leaves it to the default. An answer that
/// is no failure is left alone.
#[derive(Clone, Debug)]
pub struct ShouldRetry(HeaderName);

impl ShouldRetry {
    /// The header of this name.
    pub fn header(name: HeaderName) -> Self {
        Self(name)
    }
}

impl Classifier for ShouldRetry {
    fn classify(&self, _: &RequestFacts<'_>, attempt: &AttemptFacts<'_>) -> Verdict {
        let failed = |status: http::StatusCode| status.is_client_error() || status.is_server_error();
        let headers = attempt.headers().filter(|_| attempt.status().is_some_and(failed));
        let value = headers.and_then(|headers| headers.get(&self.0));
        match value.map(|value| value.as_bytes().trim_ascii()) {
            Some(value) if value.eq_ignore_ascii_case(b"true") => Verdict::Retry,
            Some(value) if value.eq_ignore_ascii_case(b"false") => Verdict::Final,
            _ => Verdict::Default,
        }
    }
}

use std::fmt;

use super::{AttemptFacts, Classifier, RequestFacts, Verdict};

/// A classifier that reads the body of the answer: see [`by_body`].
#[derive(Clone, Copy)]
pub struct ByBody<F>(F);

/// A classifier of a closure that gets the body of the answer too, as far as it was read.
///
/// It is not asked where there is no body to look at: after a failure, or where a success is handed over at its headers.
pub fn by_body<F>(classify: F) -> ByBody<F>
where
    F: Fn(&RequestFacts<'_>, &AttemptFacts<'_>, &[u8]) -> Verdict + Send + Sync,
{
    ByBody(classify)
}

impl<F> Classifier for ByBody<F>
where
    F: Fn(&RequestFacts<'_>, &AttemptFacts<'_>, &[u8]) -> Verdict + Send + Sync,
{
    fn classify(&self, request: &RequestFacts<'_>, attempt: &AttemptFacts<'_>) -> Verdict {
        match attempt.body() {
            Some(body) => (self.0)(request, attempt, body),
            None => Verdict::Default,
        }
    }

    fn needs_body(&self) -> bool {
        true
    }
}

impl<F> fmt::Debug for ByBody<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByBody")
    }
}

//! Redirects: whether the answer of an attempt speaks for the request that was sent.
//!
//! reqwest follows redirects inside an attempt. Afterwards only the URL of the answer is left of them, and after a failure
//! not even that. A client made by [`Client::from_builder`](crate::Client::from_builder) is told of each as it is
//! followed.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use http::{Method, StatusCode};
use reqwest::Url;
use reqwest::redirect::Policy;

/// What the redirects of an attempt mean for the request that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// There was none, or the same request was sent on: the answer is its own.
    None,
    /// A 303: the service acted, and the answer is that of what it pointed to.
    SeeOther,
    /// The same request was sent on, but without its key: that stood where no redirect takes it along.
    Unkeyed,
    /// The answer is another request's, and this one may have acted.
    Astray,
}

impl Redirect {
    /// What can be seen from the URL of the answer to an unsafe request.
    pub(crate) fn seen(sent: &Url, answered: &Url) -> Self {
        if is_made_up(answered) || is_same_resource(sent, answered) {
            Self::None
        } else {
            Self::Astray
        }
    }
}

/// Whether a URL is what reqwest gives a response that was made by hand and has none.
pub(crate) fn is_made_up(url: &Url) -> bool {
    url.host_str() == Some("no.url.provided.local")
}

/// User info goes into a header, and a fragment is never sent.
fn is_same_resource(sent: &Url, answered: &Url) -> bool {
    sent.scheme() == answered.scheme()
        && sent.host() == answered.host()
        && sent.port_or_known_default() == answered.port_or_known_default()
        && sent.path() == answered.path()
        && sent.query() == answered.query()
}

tokio::task_local! {
    static TRAIL: Trail;
}

/// The redirects that one attempt followed.
#[derive(Clone)]
pub(crate) struct Trail {
    /// A 301 or 302 turns a POST into a GET, and leaves any other method as it is.
    turns: bool,
    followed: Arc<AtomicU8>,
}

impl Trail {
    const SAME_REQUEST: u8 = 1;
    const SEE_OTHER: u8 = 2;
    const ASTRAY: u8 = 3;

    pub(crate) fn of(method: &Method) -> Self {
        Self {
            turns: *method == Method::POST,
            followed: Arc::default(),
        }
    }

    /// Runs an attempt so that [`policy`] leaves its notes with it.
    pub(crate) fn around<F: Future>(self, attempt: F) -> impl Future<Output = F::Output> {
        TRAIL.scope(self, attempt)
    }

    fn note(&self, status: StatusCode) {
        let step = match status.as_u16() {
            303 => Self::SEE_OTHER,
            301 | 302 if self.turns => Self::ASTRAY,
            _ => Self::SAME_REQUEST,
        };
        // The first that changes the request decides: what follows is the way of a GET.
        let before = self.followed.load(Ordering::Relaxed);
        if before <= Self::SAME_REQUEST {
            self.followed.store(step, Ordering::Relaxed);
        }
    }

    pub(crate) fn redirect(&self) -> Redirect {
        match self.followed.load(Ordering::Relaxed) {
            Self::SEE_OTHER => Redirect::SeeOther,
            Self::ASTRAY => Redirect::Astray,
            _ => Redirect::None,
        }
    }

    /// Whether there was any: a failure after it proves nothing of the request before it.
    pub(crate) fn was_followed(&self) -> bool {
        self.followed.load(Ordering::Relaxed) > 0
    }
}

/// reqwest's default policy, telling the running attempt of each redirect.
pub(crate) fn policy() -> Policy {
    let default = Policy::default();
    Policy::custom(move |attempt| {
        // A request that was not sent by an attempt of ours has nobody to tell.
        let _ = TRAIL.try_with(|trail| trail.note(attempt.status()));
        default.redirect(attempt)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(sent: &str, answered: &str) -> Redirect {
        let url = |text| Url::parse(text).unwrap();
        Redirect::seen(&url(sent), &url(answered))
    }

    #[test]
    fn an_answer_of_another_resource_is_astray() {
        let sent = "https://example.com/pay?id=1";
        for answered in [
            "https://example.com/paid?id=1",
            "https://example.com/pay",
            "http://example.com/pay?id=1",
            "https://example.com:8443/pay?id=1",
            "https://example.org/pay?id=1",
        ] {
            assert_eq!(seen(sent, answered), Redirect::Astray, "{answered}");
        }
    }

    #[test]
    fn user_info_fragment_and_default_port_make_no_other_resource() {
        let answered = "https://example.com:443/pay";
        assert_eq!(seen("https://user:word@example.com/pay#top", answered), Redirect::None);
    }

    #[test]
    fn a_response_made_by_hand_was_not_redirected() {
        let by_hand = reqwest::Response::from(http::Response::new(""));
        let sent = "https://example.com/pay";
        assert_eq!(seen(sent, by_hand.url().as_str()), Redirect::None);
    }

    fn trail(method: Method, statuses: &[u16]) -> Redirect {
        let trail = Trail::of(&method);
        for status in statuses {
            trail.note(StatusCode::from_u16(*status).unwrap());
        }
        trail.redirect()
    }

    #[test]
    fn the_first_redirect_that_changes_the_request_decides() {
        assert_eq!(trail(Method::POST, &[]), Redirect::None);
        assert_eq!(trail(Method::POST, &[307, 308]), Redirect::None);
        assert_eq!(trail(Method::POST, &[307, 302]), Redirect::Astray);
        assert_eq!(trail(Method::POST, &[303, 302]), Redirect::SeeOther);
        assert_eq!(trail(Method::POST, &[302, 303]), Redirect::Astray);
        assert_eq!(trail(Method::PUT, &[301, 302]), Redirect::None);
        assert_eq!(trail(Method::PUT, &[302, 303]), Redirect::SeeOther);
    }
}

//! Replay-safety: whether repeating a request that may have been acted on is harmless.

use http::Method;

/// Which operations may be repeated after an attempt whose delivery is [`Unknown`](crate::Delivery::Unknown).
///
/// `replay_safe(true)` on a request vouches for that request; [`Never`](UnknownRetries::Never) stands above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnknownRetries {
    /// Idempotent methods (RFC 9110 section 9.2.2) and operations that carry a key. The default.
    #[default]
    Keyed,
    /// Idempotent methods, and operations whose key the caller gave or whose contract is declared: else a key is the assumption
    /// that the service looks at it.
    Declared,
    /// None, GET included.
    Never,
}

/// Whose word it is that the service honours the key of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyTrust {
    /// The caller's, who gave the key or declared the contract.
    Declared,
    /// Ours: the key was made because the method wants one.
    Assumed,
}

/// What may be repeated, for one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplaySafety {
    /// After a whole answer did not arrive: the effect is known, a repeat only fetches the answer again.
    pub(crate) answered: bool,
    /// After nothing is known.
    pub(crate) unknown: bool,
}

impl ReplaySafety {
    /// `vouched` is the caller's own word, which stands above method and key (R42, R43).
    pub(crate) fn of(method: &Method, key: Option<KeyTrust>, vouched: Option<bool>, allowed: UnknownRetries) -> Self {
        let key_counts = match allowed {
            UnknownRetries::Keyed => key.is_some(),
            UnknownRetries::Declared | UnknownRetries::Never => key == Some(KeyTrust::Declared),
        };
        let safe = vouched.unwrap_or(method.is_idempotent() || key_counts);
        Self {
            answered: safe,
            unknown: safe && allowed != UnknownRetries::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use KeyTrust::{Assumed, Declared};

    fn unknown(method: &Method, key: Option<KeyTrust>, vouched: Option<bool>, allowed: UnknownRetries) -> bool {
        ReplaySafety::of(method, key, vouched, allowed).unknown
    }

    const SAFE_TO_REPEAT: [Method; 6] = [
        Method::GET,
        Method::HEAD,
        Method::OPTIONS,
        Method::TRACE,
        Method::PUT,
        Method::DELETE,
    ];

    // R42
    #[test]
    fn idempotent_methods_need_no_key() {
        for method in &SAFE_TO_REPEAT {
            assert!(unknown(method, None, None, UnknownRetries::Keyed), "{method}");
        }
    }

    // R43
    #[test]
    fn other_methods_need_a_key() {
        let other = Method::from_bytes(b"PURGE").unwrap();
        for method in [&Method::POST, &Method::PATCH, &Method::CONNECT, &other] {
            assert!(!unknown(method, None, None, UnknownRetries::Keyed), "{method}");
            assert!(unknown(method, Some(Assumed), None, UnknownRetries::Keyed), "{method}");
        }
    }

    // R43: a PUT that counts something is not idempotent, whatever its method says.
    #[test]
    fn the_callers_word_stands_above_method_and_key() {
        assert!(!unknown(&Method::PUT, None, Some(false), UnknownRetries::Keyed));
        assert!(!unknown(
            &Method::POST,
            Some(Declared),
            Some(false),
            UnknownRetries::Keyed
        ));
        assert!(unknown(&Method::POST, None, Some(true), UnknownRetries::Declared));
    }

    #[test]
    fn a_policy_can_ask_for_a_declared_key() {
        assert!(!unknown(&Method::POST, Some(Assumed), None, UnknownRetries::Declared));
        assert!(unknown(&Method::POST, Some(Declared), None, UnknownRetries::Declared));
        assert!(unknown(&Method::GET, None, None, UnknownRetries::Declared));
    }

    #[test]
    fn never_repeats_nothing_whose_delivery_is_unknown() {
        for vouched in [None, Some(true)] {
            for method in &SAFE_TO_REPEAT {
                assert!(!unknown(method, Some(Declared), vouched, UnknownRetries::Never));
            }
        }
        let safety = ReplaySafety::of(&Method::GET, None, None, UnknownRetries::Never);
        assert!(safety.answered);
    }
}

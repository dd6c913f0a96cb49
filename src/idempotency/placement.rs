//! Where the key stands in a request: the header `Idempotency-Key`, bare.

use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::key::{IdempotencyKey, KeyError, KeyErrorKind};
use crate::replay::KeyTrust;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What the caller said about the key of one request.
#[derive(Clone, Debug, Default)]
pub(crate) enum KeyChoice {
    /// Nothing: a key is made where the method wants one.
    #[default]
    ByMethod,
    Given(IdempotencyKey),
    Without,
}

/// Writes the key of an operation into its headers, once, before the first attempt (R12).
///
/// The caller's key wins, whether it was given to the builder or as a header; a key is made only where there is none
/// and the method is POST or PATCH (R43). A header the caller wrote is sent as it is.
pub(crate) fn place(
    headers: &mut HeaderMap,
    method: &Method,
    choice: KeyChoice,
) -> Result<Option<(IdempotencyKey, KeyTrust)>, KeyError> {
    let in_header = caller_header(headers)?;
    let key = match (choice, in_header) {
        (KeyChoice::Without, Some(_)) => return Err(KeyErrorKind::Unwanted.into()),
        (KeyChoice::Given(given), Some(key)) if given != key => {
            return Err(KeyErrorKind::Ambiguous.into());
        }
        (_, Some(key)) => return Ok(Some((key, KeyTrust::Declared))),
        (KeyChoice::Given(key), None) => (key, KeyTrust::Declared),
        (KeyChoice::ByMethod, None) if matches!(*method, Method::POST | Method::PATCH) => {
            (IdempotencyKey::random(), KeyTrust::Assumed)
        }
        (KeyChoice::Without | KeyChoice::ByMethod, None) => return Ok(None),
    };
    // A key is visible ASCII, of which every header value may be made; without one nothing is placed or claimed.
    let Ok(mut value) = HeaderValue::from_str(key.0.as_str()) else {
        return Ok(None);
    };
    value.set_sensitive(true);
    headers.insert(IDEMPOTENCY_KEY, value);
    Ok(Some(key))
}

/// The key in the caller's own header, and the header marked so that no `Debug` shows it.
fn caller_header(headers: &mut HeaderMap) -> Result<Option<IdempotencyKey>, KeyError> {
    if headers.get_all(IDEMPOTENCY_KEY).iter().nth(1).is_some() {
        return Err(KeyErrorKind::Ambiguous.into());
    }
    let Some(value) = headers.get_mut(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    value.set_sensitive(true);
    // Bytes that are not UTF-8 are not ASCII either: the replacement for them is refused at the same place.
    IdempotencyKey::parse(String::from_utf8_lossy(value.as_bytes())).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(headers: &HeaderMap) -> Vec<&[u8]> {
        let lines = headers.get_all("idempotency-key").iter();
        lines.map(HeaderValue::as_bytes).collect()
    }

    fn given(text: &str) -> KeyChoice {
        KeyChoice::Given(IdempotencyKey::parse(text).unwrap())
    }

    // R11, R43
    #[test]
    fn post_and_patch_get_a_key_of_their_own() {
        for method in [Method::POST, Method::PATCH] {
            let mut headers = HeaderMap::new();
            let (key, trust) = place(&mut headers, &method, KeyChoice::ByMethod).unwrap().unwrap();
            assert_eq!(trust, KeyTrust::Assumed);
            assert_eq!(header(&headers), [key.as_str().as_bytes()]);
        }
    }

    // R42
    #[test]
    fn other_methods_get_a_key_on_request_only() {
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let mut headers = HeaderMap::new();
            assert_eq!(place(&mut headers, &method, KeyChoice::ByMethod), Ok(None));
            assert!(headers.is_empty());
            let placed = place(&mut headers, &method, given("k1")).unwrap();
            assert_eq!(placed.unwrap().1, KeyTrust::Declared);
            assert_eq!(header(&headers), [b"k1"]);
        }
    }

    #[test]
    fn a_post_can_go_without() {
        let mut headers = HeaderMap::new();
        assert_eq!(place(&mut headers, &Method::POST, KeyChoice::Without), Ok(None));
        assert!(headers.is_empty());
    }

    // field 35
    #[test]
    fn the_callers_header_wins_and_stands_once() {
        let mut headers = HeaderMap::new();
        headers.insert("Idempotency-KEY", HeaderValue::from_static("\"quoted\""));
        let (key, trust) = place(&mut headers, &Method::POST, KeyChoice::ByMethod)
            .unwrap()
            .unwrap();
        assert_eq!((key.as_str(), trust), ("\"quoted\"", KeyTrust::Declared));
        assert_eq!(header(&headers), [b"\"quoted\""]);
    }

    #[test]
    fn two_keys_for_one_operation_are_refused() {
        let mut headers = HeaderMap::new();
        headers.append("idempotency-key", HeaderValue::from_static("a"));
        assert!(place(&mut headers, &Method::POST, given("a")).is_ok());
        let error = place(&mut headers, &Method::POST, given("b")).unwrap_err();
        assert_eq!(*error.kind(), KeyErrorKind::Ambiguous);
        let error = place(&mut headers, &Method::POST, KeyChoice::Without).unwrap_err();
        assert_eq!(*error.kind(), KeyErrorKind::Unwanted);
        headers.append("idempotency-key", HeaderValue::from_static("a"));
        let error = place(&mut headers, &Method::POST, KeyChoice::ByMethod).unwrap_err();
        assert_eq!(*error.kind(), KeyErrorKind::Ambiguous);
    }

    #[test]
    fn a_header_that_is_no_key_is_refused() {
        for value in [&b""[..], b"a b", b"\xff\xfe"] {
            let mut headers = HeaderMap::new();
            headers.insert("idempotency-key", HeaderValue::from_bytes(value).unwrap());
            assert!(place(&mut headers, &Method::POST, KeyChoice::ByMethod).is_err());
        }
    }

    #[test]
    fn the_debug_of_the_headers_does_not_show_the_key() {
        let mut headers = HeaderMap::new();
        place(&mut headers, &Method::POST, given("hunter2")).unwrap();
        assert!(!format!("{headers:?}").contains("hunter2"));
        headers.insert("idempotency-key", HeaderValue::from_static("hunter2"));
        place(&mut headers, &Method::POST, KeyChoice::ByMethod).unwrap();
        assert!(!format!("{headers:?}").contains("hunter2"));
    }
}

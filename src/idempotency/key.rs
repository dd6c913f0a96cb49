//! The key by which a service recognises the attempts of one operation.

use std::fmt;
use std::sync::Arc;

/// The longest key that is accepted, in bytes (R55).
const MAX_LEN: usize = 255;

/// One idempotency key: 1 to 255 visible ASCII characters (`!` to `~`), no spaces.
///
/// A key names an operation, not an attempt: it is made before the first attempt and every attempt carries the same
/// one. A client makes one for each POST and PATCH on its own. Give your own where the operation outlives the
/// process, and keep it with your record of the intent before you send.
///
/// ```
/// use steadfast::IdempotencyKey;
///
/// let key = IdempotencyKey::parse("order-4711-charge-v1")?;
/// assert_eq!(key.as_str(), "order-4711-charge-v1");
/// assert_ne!(IdempotencyKey::random(), IdempotencyKey::random());
/// # Ok::<(), steadfast::KeyError>(())
/// ```
///
/// A key is a secret of sorts: whoever has it can ask for the answer of the operation. `Debug` shows the first few
/// characters only.
///
/// There is no way to make a key for each attempt, which would void it (R13):
///
/// ```compile_fail
/// # fn f(client: steadfast::Client) {
/// client.post("http://localhost/").idempotency_key(|attempt: u32| steadfast::IdempotencyKey::random());
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// A new random key: a UUID version 4 in its usual form of 36 characters (R11, R57).
    pub fn random() -> Self {
        let uuid = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        Self(Arc::from(&*uuid.hyphenated().encode_lower(&mut text)))
    }

    /// The caller's own key.
    ///
    /// # Errors
    ///
    /// A [`KeyError`] for a text that is empty, longer than 255 bytes, or has anything but visible ASCII in it: such a
    /// key would not survive its way through a header.
    pub fn parse(text: impl Into<String>) -> Result<Self, KeyError> {
        let text = text.into();
        check(text.as_bytes()).map_err(KeyError)?;
        Ok(Self(Arc::from(text)))
    }

    /// The key as it is sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(text: &[u8]) -> Result<(), KeyErrorKind> {
    if text.is_empty() {
        return Err(KeyErrorKind::Empty);
    }
    if text.len() > MAX_LEN {
        return Err(KeyErrorKind::TooLong { len: text.len() });
    }
    match text.iter().position(|byte| !byte.is_ascii_graphic()) {
        Some(at) => Err(KeyErrorKind::Character { at }),
        None => Ok(()),
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Four characters tell two keys of a log apart and give none away. A key is ASCII, so bytes are characters.
        let shown = self.0.get(..4).filter(|_| self.0.len() > 8).unwrap_or("");
        write!(f, "IdempotencyKey({shown}…)")
    }
}

/// Why a text is not an idempotency key. It does not show the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("idempotency key {0}")]
pub struct KeyError(KeyErrorKind);

impl KeyError {
    /// The rule that was broken.
    pub fn kind(&self) -> &KeyErrorKind {
        &self.0
    }
}

/// The rules of [`IdempotencyKey`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyErrorKind {
    /// There is no text.
    #[error("is empty")]
    Empty,
    /// The text is too long.
    #[error("has {len} bytes, more than {MAX_LEN}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The text has something else than visible ASCII in it.
    #[error("has a byte at position {at} that is not visible ASCII")]
    Character {
        /// The position of the first such byte, from 0.
        at: usize,
    },
    /// A request carries more than one key.
    #[error("is given more than once")]
    Ambiguous,
    /// A request carries a key in a header and was told to go without one.
    #[error("is given in a header of a request that was told to go without one")]
    Unwanted,
}

impl From<KeyErrorKind> for KeyError {
    fn from(kind: KeyErrorKind) -> Self {
        Self(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(text: &str) -> KeyErrorKind {
        IdempotencyKey::parse(text).unwrap_err().kind().clone()
    }

    // R11, R57
    #[test]
    fn a_random_key_is_a_uuid_of_version_4() {
        let key = IdempotencyKey::random();
        let uuid = uuid::Uuid::parse_str(key.as_str()).unwrap();
        assert_eq!(uuid.get_version_num(), 4);
        assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
        assert_eq!(key.as_str(), uuid.hyphenated().to_string());
        // R57: within the length and alphabet that services ask for, R54: without what they reserve.
        assert_eq!(IdempotencyKey::parse(key.as_str()).unwrap(), key);
        assert!(!key.as_str().contains([':', '|']));
    }

    #[test]
    fn a_thousand_random_keys_differ() {
        let keys: std::collections::HashSet<_> = (0..1_000).map(|_| IdempotencyKey::random()).collect();
        assert_eq!(keys.len(), 1_000);
    }

    // R55
    #[test]
    fn length_is_counted_in_bytes_up_to_255() {
        assert!(IdempotencyKey::parse("k".repeat(255)).is_ok());
        assert_eq!(refused(&"k".repeat(256)), KeyErrorKind::TooLong { len: 256 });
        assert_eq!(refused(""), KeyErrorKind::Empty);
    }

    #[test]
    fn only_visible_ascii_makes_a_key() {
        for (text, at) in [("a b", 1), ("line\n", 4), ("\u{7f}", 0), ("ключ", 0), ("k\0", 1)] {
            assert_eq!(refused(text), KeyErrorKind::Character { at }, "{text:?}");
        }
    }

    #[test]
    fn neither_debug_nor_an_error_shows_a_key() {
        let key = IdempotencyKey::parse("order-4711-charge-v1").unwrap();
        assert_eq!(format!("{key:?}"), "IdempotencyKey(orde…)");
        let short = IdempotencyKey::parse("hunter2").unwrap();
        assert_eq!(format!("{short:?}"), "IdempotencyKey(…)");
        let error = IdempotencyKey::parse("hunter 2").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_key_or_an_error(text: String) {
            match IdempotencyKey::parse(text.clone()) {
                Ok(key) => prop_assert_eq!(key.as_str(), text),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}

//! The key by which a service recognises the attempts of one operation.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

/// The longest key that is accepted, in bytes (R55).
pub(crate) const MAX_LEN: usize = 255;

/// The namespace of the keys that are computed. It is part of every one of them: it never changes.
const NAMESPACE: Uuid = Uuid::from_u128(0x5b0e_6a5c_1d4f_4c8e_9a27_3f6d_2c91_e7b4);

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
        Self::of_uuid(uuid::Builder::from_random_bytes(rand::random()).into_uuid())
    }

    /// The key of an intent that has a name of its own: the same parts make the same key, on every machine and after every
    /// restart (R94).
    ///
    /// `namespace` says whose the other names are, such as service and environment: `shop-production`. `action` and `id` say
    /// what is done, and to what: `charge`, `order-4711`. `version` counts the times it is deliberately done again. Take an
    /// `id` that is never used twice: no order number that starts over, no time in seconds, no counter that can be reset
    /// (R71).
    ///
    /// ```
    /// use steadfast::IdempotencyKey;
    ///
    /// let key = IdempotencyKey::stable("shop-production", "charge", 4711, 1);
    /// assert_eq!(key, IdempotencyKey::stable("shop-production", "charge", "4711", 1));
    /// // Staging does not use up the keys of production, nor one action those of another.
    /// assert_ne!(key, IdempotencyKey::stable("shop-staging", "charge", 4711, 1));
    /// assert_ne!(key, IdempotencyKey::stable("shop-production", "refund", 4711, 1));
    /// ```
    ///
    /// It is a UUID version 5 (RFC 9562 section 5.5), which shows none of the parts. Each part is preceded by its length,
    /// so that no two different lists of parts are the same text.
    pub fn stable(
        namespace: impl fmt::Display,
        action: impl fmt::Display,
        id: impl fmt::Display,
        version: u32,
    ) -> Self {
        let (namespace, action, id) = (namespace.to_string(), action.to_string(), id.to_string());
        Self::of_parts(&["stable", &namespace, &action, &id, &version.to_string()])
    }

    /// The key of one part of a composite effect: `KEY:leg` (R53).
    ///
    /// It is meant for the side that receives a key and has more than one thing to do under it, each under a unique
    /// constraint of its own. A client sends one only where the service allows `:` in keys. Where `KEY:leg` would not be a
    /// key (too long, or `leg` has something else than visible ASCII in it) it is a UUID version 5 of both.
    ///
    /// ```
    /// let key = steadfast::IdempotencyKey::parse("order-4711")?;
    /// assert_eq!(key.derive("wallet").as_str(), "order-4711:wallet");
    /// # Ok::<(), steadfast::KeyError>(())
    /// ```
    pub fn derive(&self, leg: impl fmt::Display) -> Self {
        let leg = leg.to_string();
        match Self::parse(format!("{}:{leg}", self.as_str())) {
            Ok(key) if !leg.is_empty() => key,
            _ => Self::of_parts(&["derive", self.as_str(), &leg]),
        }
    }

    fn of_parts(parts: &[&str]) -> Self {
        let mut name = String::new();
        for part in parts {
            name.push_str(&part.len().to_string());
            name.push(':');
            name.push_str(part);
        }
        Self::of_uuid(Uuid::new_v5(&NAMESPACE, name.as_bytes()))
    }

    fn of_uuid(uuid: Uuid) -> Self {
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

    /// The same text, shared.
    pub(crate) fn to_bytes(&self) -> Bytes {
        Bytes::from_owner(Text(self.clone()))
    }
}

/// As what shared bytes are made of.
struct Text(IdempotencyKey);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.0.as_str().as_bytes()
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

/// The key as a text, as it is sent: for the record of an intent, not for a log. Needs the feature `serde`.
///
/// ```
/// use steadfast::IdempotencyKey;
///
/// let key = IdempotencyKey::parse("order-4711-charge-v1")?;
/// let stored = serde_json::to_string(&key)?;
/// assert_eq!(serde_json::from_str::<IdempotencyKey>(&stored)?, key);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "serde")]
impl serde::Serialize for IdempotencyKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A text that [`parse`](IdempotencyKey::parse) takes. The error for another one does not show it. Needs the feature
/// `serde`.
#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for IdempotencyKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The format's own error would show what stands there instead of a text, such as a key without its quotes.
        let text = String::deserialize(deserializer)
            .map_err(|_| serde::de::Error::custom("idempotency key cannot be read as a text"))?;
        Self::parse(text).map_err(serde::de::Error::custom)
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

/// The rules of [`IdempotencyKey`] and of a contract.
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
    /// The contract allows shorter keys only (R55).
    #[error("has {len} bytes, more than the {longest} that the contract allows")]
    OverLimit {
        /// Its length in bytes.
        len: usize,
        /// The longest that the contract allows.
        longest: usize,
    },
    /// The contract does not allow one of its characters (R54).
    #[error("has a character at position {at} that the contract does not allow")]
    Alphabet {
        /// The position of the first such character, from 0.
        at: usize,
    },
    /// The contract keeps keys of this beginning to the service (R54).
    #[error("begins with {prefix:?}, which the contract reserves")]
    Reserved {
        /// The beginning.
        prefix: String,
    },
    /// A request carries more than one key.
    #[error("is given more than once")]
    Ambiguous,
    /// A request carries a key and was told to go without one.
    #[error("is given in a request that was told to go without one")]
    Unwanted,
    /// The contract puts the key into a JSON body, and the request has no JSON object in memory as its body.
    #[error("has no place: the contract puts it into a JSON object, and the body of the request is not one")]
    NoJsonBody,
    /// The way to the place of the key leads through something that is no JSON object.
    #[error("has no place: {pointer} leads through something that is no JSON object")]
    NoObject {
        /// The pointer of the contract.
        pointer: String,
    },
    /// What stands at the place of the key is no text.
    #[error("is no text")]
    NoText,
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

    /// Computed by another implementation of RFC 9562, over `6:stable15:shop-production6:charge10:order-47111:1`.
    const STABLE: &str = "7706513f-7bda-5ca2-a837-0ac5232dc135";

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

    // R94
    #[test]
    fn a_stable_key_never_changes() {
        let key = IdempotencyKey::stable("shop-production", "charge", "order-4711", 1);
        assert_eq!(key.as_str(), STABLE);
        let uuid = Uuid::parse_str(key.as_str()).unwrap();
        assert_eq!(uuid.get_version_num(), 5);
    }

    // R71, R72: whose it is, what is done and to what are all in the key.
    #[test]
    fn another_part_makes_another_stable_key() {
        let parts = [
            ("a", "b", "c", 1),
            ("a", "b", "c", 2),
            ("a", "bc", "", 1),
            ("ab", "", "c", 1),
            ("a", "b1:c", "", 1),
        ];
        let keys: std::collections::HashSet<_> = parts
            .iter()
            .map(|(a, b, c, v)| IdempotencyKey::stable(a, b, c, *v))
            .collect();
        assert_eq!(keys.len(), parts.len());
    }

    // R53
    #[test]
    fn a_derived_key_names_its_leg() {
        let key = IdempotencyKey::parse("K").unwrap();
        assert_eq!(key.derive("wallet").as_str(), "K:wallet");
        assert_eq!(key.derive("wallet").derive("fee").as_str(), "K:wallet:fee");
    }

    // R53
    #[test]
    fn a_derived_key_is_a_key_whatever_the_leg() {
        let key = IdempotencyKey::parse("k".repeat(250)).unwrap();
        for leg in ["", "too long", "конто", "abcde"] {
            let derived = key.derive(leg);
            assert_eq!(Uuid::parse_str(derived.as_str()).unwrap().get_version_num(), 5, "{leg}");
            assert_eq!(derived, key.derive(leg));
            assert_ne!(derived, key.derive("another leg"));
        }
        assert_eq!(key.derive("abcd").as_str().len(), 255);
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
        // R72
        #[test]
        fn lists_of_parts_never_meet(a in "[a1:]{0,4}", b in "[a1:]{0,4}", c in "[a1:]{0,4}", d in "[a1:]{0,4}") {
            let equal = IdempotencyKey::stable(&a, &b, "x", 1) == IdempotencyKey::stable(&c, &d, "x", 1);
            prop_assert_eq!(equal, (a, b) == (c, d));
        }

        #[test]
        fn any_text_is_a_key_or_an_error(text: String) {
            match IdempotencyKey::parse(text.clone()) {
                Ok(key) => prop_assert_eq!(key.as_str(), text),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}

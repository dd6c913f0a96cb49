//! A JSON pointer (RFC 6901), and the text it points to in a body whose other bytes stay as they are.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::key::KeyErrorKind;

/// A pointer to a member of an object, such as `/meta/request_id`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct JsonPointer {
    text: String,
    /// The names on the way; there is at least one.
    names: Vec<String>,
}

impl JsonPointer {
    /// `None` for a text that is no pointer, or points to the whole document.
    pub(crate) fn parse(text: String) -> Option<Self> {
        let names = text.strip_prefix('/')?.split('/').map(unescape);
        let names = names.collect::<Option<_>>()?;
        Some(Self { text, names })
    }

    /// The value it points to in an answer.
    pub(crate) fn value<'a>(&self, json: &'a Value) -> Option<&'a Value> {
        json.pointer(&self.text)
    }

    /// The text it points to, if there is any.
    pub(crate) fn read(&self, json: &[u8]) -> Result<Option<String>, KeyErrorKind> {
        match self.find(json)? {
            Spot::Taken { text, .. } => Ok(text),
            Spot::Free { .. } => Ok(None),
        }
    }

    /// The body with a text at this place, where none was. Every other byte of it stays as it is.
    pub(crate) fn write(&self, json: &[u8], text: &str) -> Result<Vec<u8>, KeyErrorKind> {
        let text = Value::from(text).to_string();
        let (place, inserted) = match self.find(json)? {
            Spot::Taken { place, .. } => (place, text),
            Spot::Free { at, depth, alone } => {
                let mut names = self.names.iter().skip(depth).map(|name| Value::from(name.as_str()));
                let (first, deeper) = (names.next().unwrap_or_default(), names.collect::<Vec<_>>());
                let opening: String = deeper.iter().map(|name| format!("{{{name}:")).collect();
                let comma = if alone { "" } else { "," };
                let inserted = format!("{first}:{opening}{text}{}{comma}", "}".repeat(deeper.len()));
                (at..at, inserted)
            }
        };
        let before = json.get(..place.start).unwrap_or_default();
        let behind = json.get(place.end..).unwrap_or_default();
        Ok([before, inserted.as_bytes(), behind].concat())
    }

    fn find(&self, json: &[u8]) -> Result<Spot, KeyErrorKind> {
        let mut value: &RawValue = serde_json::from_slice(json).map_err(|_| KeyErrorKind::NoJsonBody)?;
        for (depth, name) in self.names.iter().enumerate() {
            let members: Members<'_> = serde_json::from_str(value.get()).map_err(|_| match depth {
                0 => KeyErrorKind::NoJsonBody,
                _ => KeyErrorKind::NoObject {
                    pointer: self.text.clone(),
                },
            })?;
            let mut named = members.0.iter().filter(|(member, _)| member == name);
            match (named.next(), named.next()) {
                (Some(_), Some(_)) => return Err(KeyErrorKind::Ambiguous),
                (Some((_, member)), None) => value = member,
                (None, _) => {
                    return Ok(Spot::Free {
                        // Behind the brace that opens the object.
                        at: start(json, value).saturating_add(1),
                        depth,
                        alone: members.0.is_empty(),
                    });
                }
            }
        }
        let start = start(json, value);
        Ok(Spot::Taken {
            place: start..start.saturating_add(value.get().len()),
            text: serde_json::from_str(value.get()).map_err(|_| KeyErrorKind::NoText)?,
        })
    }
}

/// What is at the place a pointer names.
enum Spot {
    /// A text, or `null`.
    Taken { place: Range<usize>, text: Option<String> },
    /// Nothing, from the name at this depth on. Where it is to be inserted, and whether it will be alone in its object.
    Free { at: usize, depth: usize, alone: bool },
}

/// Where a value begins in the document it was read from.
fn start(json: &[u8], value: &RawValue) -> usize {
    (value.get().as_ptr() as usize).saturating_sub(json.as_ptr() as usize)
}

fn unescape(name: &str) -> Option<String> {
    let mut pieces = name.split('~');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (escaped, rest) = match piece.as_bytes().first()? {
            b'0' => ('~', piece.get(1..)?),
            b'1' => ('/', piece.get(1..)?),
            _ => return None,
        };
        plain.push(escaped);
        plain.push_str(rest);
    }
    Some(plain)
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// The members of an object, in their order, each with the text of its value.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'de> Visitor<'de> for Each {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn pointer(text: &str) -> JsonPointer {
        JsonPointer::parse(text.to_owned()).unwrap()
    }

    fn written(at: &str, json: &str) -> String {
        String::from_utf8(pointer(at).write(json.as_bytes(), "K").unwrap()).unwrap()
    }

    // R60
    #[test]
    fn a_key_is_written_in_front_and_every_other_byte_stays() {
        let amount = r#"{ "amount" : 0.10, "big": 123456789012345678901234567890 }"#;
        assert_eq!(
            written("/request_id", amount),
            r#"{"request_id":"K", "amount" : 0.10, "big": 123456789012345678901234567890 }"#
        );
        assert_eq!(written("/request_id", " {} "), r#" {"request_id":"K"} "#);
        assert_eq!(written("/a/b", r#"{"a":{"c":1}}"#), r#"{"a":{"b":"K","c":1}}"#);
        assert_eq!(written("/a/b/c", r#"{"d":1}"#), r#"{"a":{"b":{"c":"K"}},"d":1}"#);
        assert_eq!(
            written("/request_id", r#"{"x":1,"request_id": null }"#),
            r#"{"x":1,"request_id": "K" }"#
        );
        assert_eq!(written("/a~1b~0c", "{}"), r#"{"a/b~c":"K"}"#);
        assert_eq!(written("/", "{}"), r#"{"":"K"}"#);
    }

    #[test]
    fn what_stands_there_already_is_read() {
        assert_eq!(pointer("/id").read(br#"{"id":"a\u0062"}"#), Ok(Some("ab".to_owned())));
        for json in ["{}", r#"{"id":null}"#, r#"{"x":{"id":"a"}}"#] {
            assert_eq!(pointer("/id").read(json.as_bytes()), Ok(None), "{json}");
        }
        assert_eq!(pointer("/id").read(br#"{"id":7}"#), Err(KeyErrorKind::NoText));
        let twice = br#"{"id":"a","id":"a"}"#;
        assert_eq!(pointer("/id").read(twice), Err(KeyErrorKind::Ambiguous));
    }

    #[test]
    fn a_body_that_has_no_place_for_a_key_is_refused() {
        for json in ["", "a=b", "[]", "7", "\"{}\"", "{", r#"{"a":1}}"#, "\u{feff}{}"] {
            assert_eq!(
                pointer("/id").write(json.as_bytes(), "K"),
                Err(KeyErrorKind::NoJsonBody),
                "{json}"
            );
        }
        assert_eq!(
            pointer("/id").write(b"{\"a\":\"\xff\"}", "K"),
            Err(KeyErrorKind::NoJsonBody)
        );
        for json in [r#"{"a":1}"#, r#"{"a":[]}"#, r#"{"a":null}"#] {
            let error = pointer("/a/id").write(json.as_bytes(), "K").unwrap_err();
            assert!(matches!(error, KeyErrorKind::NoObject { .. }), "{json}");
        }
    }

    #[test]
    fn what_is_no_pointer_is_refused() {
        for text in ["", "id", "#/id", "/a~", "/a~2", "a/b"] {
            assert!(JsonPointer::parse(text.to_owned()).is_none(), "{text}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("[ab~/\"]{0,2}", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        // R60: what was written is read, and taken away again it leaves the document it was written into.
        #[test]
        fn a_key_that_was_written_is_the_only_change(json in any_json(), name in "[ab]{1,2}", pretty: bool, key in "[!-~]{1,9}") {
            let at = pointer(&format!("/{name}"));
            let text = if pretty { serde_json::to_vec_pretty(&json) } else { serde_json::to_vec(&json) }.unwrap();
            match at.write(&text, &key) {
                Ok(body) => {
                    prop_assert_eq!(at.read(&body), Ok(Some(key.clone())));
                    let mut expected = json;
                    expected[&name] = json!(key);
                    prop_assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), expected);
                }
                Err(kind) => prop_assert!(!json.is_object() || kind == KeyErrorKind::NoText, "{kind}"),
            }
        }

        #[test]
        fn no_bytes_make_it_panic(json: Vec<u8>, text in "/[a~0/]{0,4}") {
            if let Some(at) = JsonPointer::parse(text) {
                let _ = at.write(&json, "K");
            }
        }
    }
}

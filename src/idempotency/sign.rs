//! How an answer of a service looks that means something for the key.

use std::cell::OnceCell;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::Value;

use super::contract::ContractError;
use super::pointer::JsonPointer;

/// What an answer must have to mean what the contract says: a status, a header, a member of its JSON body, or several of
/// them at once.
///
/// ```
/// use steadfast::{Sign, reqwest::StatusCode};
///
/// let conflict = Sign::status(StatusCode::CONFLICT).and_field("/error/code", "request_id_conflict")?;
/// let replayed = Sign::field("/replay", true)?;
/// # Ok::<(), steadfast::ContractError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Sign {
    status: Option<StatusCode>,
    header: Option<(HeaderName, HeaderValue)>,
    field: Option<(JsonPointer, Value)>,
}

impl Sign {
    const NONE: Self = Self {
        status: None,
        header: None,
        field: None,
    };

    /// An answer with this status.
    pub fn status(status: StatusCode) -> Self {
        Self {
            status: Some(status),
            ..Self::NONE
        }
    }

    /// An answer with this header. Its value is compared without regard to case.
    ///
    /// # Errors
    ///
    /// A [`ContractError`] for a text that is no header name or no header value.
    pub fn header(name: &str, value: &str) -> Result<Self, ContractError> {
        Self::NONE.and_header(name, value)
    }

    /// An answer with a JSON body that has this value where the pointer (RFC 6901) says.
    ///
    /// # Errors
    ///
    /// A [`ContractError`] for a text that is no pointer to a member.
    pub fn field(pointer: &str, value: impl Into<Value>) -> Result<Self, ContractError> {
        Self::NONE.and_field(pointer, value)
    }

    /// It must have this header as well.
    ///
    /// # Errors
    ///
    /// As of [`header`](Sign::header).
    pub fn and_header(mut self, name: &str, value: &str) -> Result<Self, ContractError> {
        let text = || name.to_owned();
        let value = value.parse();
        self.header = Some((
            name.parse().map_err(|_| ContractError::Header { name: text() })?,
            value.map_err(|_| ContractError::HeaderValue { name: text() })?,
        ));
        Ok(self)
    }

    /// Its body must have this value as well.
    ///
    /// # Errors
    ///
    /// As of [`field`](Sign::field).
    pub fn and_field(mut self, pointer: &str, value: impl Into<Value>) -> Result<Self, ContractError> {
        let error = || ContractError::Pointer {
            pointer: pointer.to_owned(),
        };
        let pointer = JsonPointer::parse(pointer.to_owned()).ok_or_else(error)?;
        self.field = Some((pointer, value.into()));
        Ok(self)
    }

    /// Whether an answer has it; `None` where only a body that was not read could tell.
    pub(crate) fn is_in(&self, answer: &Answer<'_>) -> Option<bool> {
        if !self.fits_head(answer.status, answer.headers) {
            return Some(false);
        }
        match &self.field {
            None => Some(true),
            Some((pointer, value)) => Some(pointer.value(answer.json()?) == Some(value)),
        }
    }

    /// Whether only the body can tell, by what the head says.
    pub(crate) fn asks_body(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        self.field.is_some() && self.fits_head(status, headers)
    }

    fn fits_head(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let has = |(name, value): &(HeaderName, HeaderValue)| {
            let mut lines = headers.get_all(name).iter();
            lines.any(|line| line.as_bytes().eq_ignore_ascii_case(value.as_bytes()))
        };
        self.status.is_none_or(|expected| expected == status) && self.header.as_ref().is_none_or(has)
    }
}

/// An answer as a contract looks at it.
pub(crate) struct Answer<'a> {
    status: StatusCode,
    headers: &'a HeaderMap,
    /// As much of it as was read.
    body: Option<&'a [u8]>,
    json: OnceCell<Option<Value>>,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(status: StatusCode, headers: &'a HeaderMap, body: Option<&'a [u8]>) -> Self {
        Self {
            status,
            headers,
            body,
            json: OnceCell::new(),
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    fn json(&self) -> Option<&Value> {
        let parse = || serde_json::from_slice(self.body?).ok();
        self.json.get_or_init(parse).as_ref()
    }
}

//! Where the key stands in a request.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::Uri;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Method, Request, Url};

use super::contract::IdempotencyContract;
use super::key::{IdempotencyKey, KeyError, KeyErrorKind};
use super::pointer::JsonPointer;
use crate::error::BoxError;

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A place for the key that no other of [`IdempotencyContract`](crate::IdempotencyContract) describes.
///
/// ```
/// use steadfast::reqwest::{Request, header::{COOKIE, HeaderMap}};
/// use steadfast::{IdempotencyContract, IdempotencyKey, KeyPlacement};
///
/// struct InCookie;
///
/// impl KeyPlacement for InCookie {
///     fn write(
///         &self,
///         request: &mut Request,
///         key: &IdempotencyKey,
///     ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///         request.headers_mut().insert(COOKIE, format!("request={}", key.as_str()).parse()?);
///         Ok(())
///     }
///
///     fn read(&self, headers: &HeaderMap, _: &http::Uri, _: &[u8]) -> Option<String> {
///         let cookie = headers.get(COOKIE)?.to_str().ok()?;
///         cookie.strip_prefix("request=").map(str::to_owned)
///     }
/// }
///
/// let contract = IdempotencyContract::custom(InCookie);
/// ```
pub trait KeyPlacement: Send + Sync {
    /// Writes the key into a request, once, before the first attempt. It may change headers, the query, and a body in memory.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from that: the request is refused.
    fn write(&self, request: &mut Request, key: &IdempotencyKey) -> Result<(), BoxError>;

    /// The key of a request, if it has one. The body is empty where it is not in memory.
    fn read(&self, headers: &HeaderMap, uri: &Uri, body: &[u8]) -> Option<String>;
}

#[derive(Clone)]
pub(crate) enum Placement {
    Header {
        name: HeaderName,
        /// As a string of RFC 9651.
        quoted: bool,
    },
    Body(JsonPointer),
    Query(String),
    Custom(Arc<dyn KeyPlacement>),
    None,
}

impl Placement {
    pub(crate) fn read(&self, headers: &HeaderMap, uri: &Uri, body: &[u8]) -> Result<Option<IdempotencyKey>, KeyError> {
        let text = match self {
            Self::Header { name, quoted } => in_header(headers, name, *quoted)?,
            Self::Body(pointer) => pointer.read(body)?,
            Self::Query(name) => in_query(uri.query(), name)?,
            Self::Custom(placement) => placement.read(headers, uri, body),
            Self::None => None,
        };
        text.map(IdempotencyKey::parse).transpose()
    }

    /// The key that a request of ours has already.
    fn read_own(&self, request: &Request) -> Result<Option<IdempotencyKey>, KeyError> {
        let body = request.body().and_then(Body::as_bytes).unwrap_or_default();
        let text = match self {
            Self::Header { name, quoted } => in_header(request.headers(), name, *quoted)?,
            // A body without a place for a key has none, and whether it needs one is not asked here.
            Self::Body(pointer) => match pointer.read(body) {
                Err(KeyErrorKind::NoJsonBody | KeyErrorKind::NoObject { .. } | KeyErrorKind::NoText) => None,
                read => read?,
            },
            Self::Query(name) => in_query(request.url().query(), name)?,
            Self::Custom(placement) => {
                let uri = request.url().as_str().parse().unwrap_or_default();
                placement.read(request.headers(), &uri, body)
            }
            Self::None => None,
        };
        text.map(IdempotencyKey::parse).transpose()
    }

    fn write(&self, request: &mut Request, key: &IdempotencyKey) -> Result<(), BoxError> {
        match self {
            Self::Header { name, quoted } => {
                let mut value = match quoted {
                    true => HeaderValue::from_str(&quote(key))?,
                    // The text of the key itself, which no copy of the request copies.
                    false => HeaderValue::from_maybe_shared(key.to_bytes())?,
                };
                value.set_sensitive(true);
                request.headers_mut().insert(name.clone(), value);
            }
            Self::Body(pointer) => {
                let body = request.body().and_then(Body::as_bytes).unwrap_or_default();
                let body = pointer.write(body, key.as_str()).map_err(KeyError::from)?;
                if let Some(length) = request.headers_mut().get_mut(CONTENT_LENGTH) {
                    *length = body.len().into();
                }
                *request.body_mut() = Some(body.into());
            }
            Self::Query(name) => {
                request.url_mut().query_pairs_mut().append_pair(name, key.as_str());
            }
            Self::Custom(placement) => placement.write(request, key)?,
            Self::None => {}
        }
        Ok(())
    }

    /// Marks what holds the key, so that no `Debug` of the headers shows it.
    fn conceal(&self, request: &mut Request) {
        if let Self::Header { name, .. } = self {
            if let Some(value) = request.headers_mut().get_mut(name) {
                value.set_sensitive(true);
            }
        }
    }

    /// Writes the key of an operation again where a request of it has lost or changed it. `original` is the request of the
    /// operation, which has it.
    pub(crate) fn restore(
        &self,
        request: &mut Request,
        key: &IdempotencyKey,
        original: &Request,
    ) -> Result<(), BoxError> {
        match self {
            Self::Header { name, .. } => {
                let own = original.headers().get_all(name);
                if request.headers().get_all(name) != own {
                    let own: Vec<_> = own.iter().cloned().collect();
                    request.headers_mut().remove(name);
                    for value in own {
                        request.headers_mut().append(name, value);
                    }
                }
                Ok(())
            }
            Self::None => Ok(()),
            _ if matches!(self.read_own(request), Ok(Some(ref found)) if found == key) => Ok(()),
            Self::Query(_) => {
                *request.url_mut() = self.url_without_key(request.url());
                self.write(request, key)
            }
            Self::Body(_) | Self::Custom(_) => self.write(request, key),
        }
    }

    /// The URL without the key, where that stands in the query. Every byte of the other parameters stays: a signature may cover
    /// them.
    pub(crate) fn url_without_key(&self, url: &Url) -> Url {
        let mut url = url.clone();
        if let (Self::Query(name), Some(query)) = (self, url.query()) {
            let is_other = |pair: &&str| form_urlencoded::parse(pair.as_bytes()).all(|(other, _)| other != **name);
            let kept = query.split('&').filter(is_other).collect::<Vec<_>>().join("&");
            url.set_query(Some(&*kept).filter(|kept| !kept.is_empty()));
        }
        url
    }

    /// Whether a redirect that leaves method and body as they are takes the key along. Of a custom place nobody knows.
    pub(crate) fn survives_redirects(&self) -> bool {
        !matches!(self, Self::Query(_) | Self::Custom(_))
    }
}

/// What the caller said about the key of one request.
#[derive(Clone, Debug, Default)]
pub(crate) enum KeyChoice {
    /// Nothing: a key is made where the method wants one.
    #[default]
    ByMethod,
    Given(IdempotencyKey),
    Without,
}

/// Writes the key of an operation into its request, once, before the first attempt (R12).
///
/// The caller's key wins, whether it was given to the builder or stands in the request; where there is none, `make` is asked
/// for one, and told whether the method is one that wants it: POST or PATCH (R43). A key in the usual header is the caller's too
/// where the contract has another place for it, and goes to both. What the caller wrote is sent as it is. With
/// the key comes whether the caller brought it.
pub(crate) fn place(
    request: &mut Request,
    contract: &IdempotencyContract,
    choice: KeyChoice,
    make: impl FnOnce(bool) -> Option<IdempotencyKey>,
) -> Result<Option<(IdempotencyKey, bool)>, BoxError> {
    let placement = contract.placement();
    let wanted = matches!(*request.method(), Method::POST | Method::PATCH) && contract.carries_key();
    let (key, given) = match (choice, placement.read_own(request)?) {
        (KeyChoice::Without, Some(_)) => return Err(KeyError::from(KeyErrorKind::Unwanted).into()),
        (KeyChoice::Given(given), Some(key)) if given != key => {
            return Err(KeyError::from(KeyErrorKind::Ambiguous).into());
        }
        (_, Some(key)) => {
            contract.check(&key)?;
            placement.conceal(request);
            return Ok(Some((key, true)));
        }
        (KeyChoice::Given(key), None) => (key, true),
        (KeyChoice::ByMethod, None) => match in_usual_header(request, placement)? {
            Some(key) => (key, true),
            None => match make(wanted) {
                Some(key) => (key, false),
                None => return Ok(None),
            },
        },
        (KeyChoice::Without, None) => return Ok(None),
    };
    contract.check(&key)?;
    placement.write(request, &key)?;
    Ok(Some((key, given)))
}

/// What the caller wrote for a service that has its keys there, before a contract said otherwise.
fn in_usual_header(request: &Request, placement: &Placement) -> Result<Option<IdempotencyKey>, KeyError> {
    if matches!(placement, Placement::Header { name, .. } if *name == IDEMPOTENCY_KEY) {
        // It was looked for there.
        return Ok(None);
    }
    let text = in_header(request.headers(), &IDEMPOTENCY_KEY, true)?;
    text.map(IdempotencyKey::parse).transpose()
}

fn in_header(headers: &HeaderMap, name: &HeaderName, quoted: bool) -> Result<Option<String>, KeyError> {
    let mut lines = headers.get_all(name).iter();
    let value = match (lines.next(), lines.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => value,
        (Some(_), Some(_)) => return Err(KeyErrorKind::Ambiguous.into()),
    };
    // Bytes that are not UTF-8 are not ASCII either: the replacement for them is refused at the same place.
    let text = String::from_utf8_lossy(value.as_bytes());
    let text = if quoted { unquote(&text) } else { text };
    Ok(Some(text.into_owned()))
}

fn in_query(query: Option<&str>, name: &str) -> Result<Option<String>, KeyError> {
    let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut named = pairs.filter(|(other, _)| other == name).map(|(_, value)| value);
    match (named.next(), named.next()) {
        (Some(_), Some(_)) => Err(KeyErrorKind::Ambiguous.into()),
        (found, _) => Ok(found.map(Cow::into_owned)),
    }
}

fn quote(key: &IdempotencyKey) -> String {
    let escaped = key.as_str().replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

/// The text of a quoted string; anything else as it is. Parameters behind the string are left out.
fn unquote(text: &str) -> Cow<'_, str> {
    let Some(quoted) = text.trim().strip_prefix('"') else {
        return Cow::Borrowed(text);
    };
    let mut plain = String::new();
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => return Cow::Owned(plain),
            '\\' => plain.extend(characters.next()),
            _ => plain.push(character),
        }
    }
    Cow::Borrowed(text)
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header { name, quoted: false } => write!(f, "header {name}"),
            Self::Header { name, quoted: true } => write!(f, "header {name}, quoted"),
            Self::Body(pointer) => write!(f, "body {pointer}"),
            Self::Query(name) => write!(f, "query {name}"),
            Self::Custom(_) => f.write_str("custom"),
            Self::None => f.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests;

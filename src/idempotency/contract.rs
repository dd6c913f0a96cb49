//! The contract: what one service promises about idempotency keys.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode, Uri};

use super::key::{IdempotencyKey, KeyError, KeyErrorKind, MAX_LEN};
use super::placement::{IDEMPOTENCY_KEY, KeyPlacement, Placement};
use super::pointer::JsonPointer;
use super::sign::{Answer, Sign};

/// What is assumed of a service where no contract is declared.
pub(crate) static ASSUMED: IdempotencyContract = IdempotencyContract::at(Placement::Header {
    name: IDEMPOTENCY_KEY,
    quoted: false,
});

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What one service promises about idempotency keys: where they stand, which it takes, how long it remembers them, and how
/// its answers show what it made of one.
///
/// Given to a client, a group or a request it is *declared*: the caller's word that the service keeps it. What is not
/// declared is *assumed*: a key in the header `Idempotency-Key`, bare. Retries trust both alike, unless the policy says
/// [`UnknownRetries::Declared`](crate::UnknownRetries::Declared);
/// [`exactly_once`](crate::Attempts::exactly_once) is true after a retry of a write under a declared one only.
///
/// Under a declared contract a final 4xx (but 401, 403, 407, 408, 409, 425 and 429, unless the contract names it) is the service's
/// word on the earlier attempts of the operation too: they did nothing.
///
/// Read the documentation of the service first: where the key goes, how long it is remembered, what it says to a key with
/// another content (R96). Not every endpoint has one (R98): [`none`](IdempotencyContract::none) says that.
///
/// ```
/// use std::time::Duration;
/// use steadfast::{Client, IdempotencyContract, Sign, reqwest::StatusCode};
///
/// # fn f(http: steadfast::reqwest::Client) -> Result<(), steadfast::ContractError> {
/// let billing = IdempotencyContract::body_field("/request_id")?
///     .with_alphabet(|c| !matches!(c, ':' | '|'))
///     .with_reserved_prefix("sys_")
///     .with_retention(Duration::from_secs(24 * 60 * 60))
///     .with_replay(Sign::field("/replay", true)?)
///     .with_mismatch(Sign::status(StatusCode::CONFLICT).and_field("/code", "request_id_conflict")?);
/// let client = Client::builder(http).idempotency(billing).build();
/// # Ok(())
/// # }
/// ```
///
/// The same value describes the receiving end: [`key_of`](IdempotencyContract::key_of) finds the key of a request that came in
/// and checks it.
#[derive(Clone)]
pub struct IdempotencyContract {
    placement: Placement,
    longest: usize,
    /// One bit for each ASCII character.
    alphabet: u128,
    reserved: Vec<String>,
    retention: Option<Duration>,
    replay: Vec<Sign>,
    in_progress: Vec<Sign>,
    mismatch: Vec<Sign>,
    missing: Vec<Sign>,
    stored_failures: bool,
}

/// Where a key stands, and its presets.
impl IdempotencyContract {
    /// A header of this name that has the key as its bare value.
    ///
    /// # Errors
    ///
    /// A [`ContractError`] for a text that is no header name.
    pub fn header(name: &str) -> Result<Self, ContractError> {
        let error = || ContractError::Header { name: name.to_owned() };
        let name = name.parse().map_err(|_| error())?;
        Ok(Self::at(Placement::Header { name, quoted: false }))
    }

    /// A header of this name that has the key as a quoted string (RFC 9651 section 3.3.3).
    ///
    /// # Errors
    ///
    /// As of [`header`](IdempotencyContract::header).
    pub fn quoted_header(name: &str) -> Result<Self, ContractError> {
        let mut contract = Self::header(name)?;
        if let Placement::Header { quoted, .. } = &mut contract.placement {
            *quoted = true;
        }
        Ok(contract)
    }

    /// A member of the JSON body, named by a pointer (RFC 6901) such as `/request_id`.
    ///
    /// The key is written into the body once, before the first attempt; every other byte of the body stays as it is. A POST or
    /// PATCH whose body is no JSON object in memory is refused, unless it
    /// [goes without a key](crate::RequestBuilder::without_idempotency_key). A text that is there already is the caller's key.
    ///
    /// Nothing else is preset: how a replay shows, and what a conflict looks like, differs from service to service.
    ///
    /// # Errors
    ///
    /// A [`ContractError`] for a text that is no pointer to a member.
    pub fn body_field(pointer: &str) -> Result<Self, ContractError> {
        let error = || ContractError::Pointer {
            pointer: pointer.to_owned(),
        };
        let pointer = JsonPointer::parse(pointer.to_owned()).ok_or_else(error)?;
        Ok(Self::at(Placement::Body(pointer)))
    }

    /// A parameter of the query.
    ///
    /// A redirect does not take it along: a write that was redirected is not repeated, as far as the client knows of redirects
    /// (see [`Client::from_builder`](crate::Client::from_builder)). It is also what servers and proxies write into their logs.
    ///
    /// # Errors
    ///
    /// A [`ContractError`] for an empty name.
    pub fn query(name: &str) -> Result<Self, ContractError> {
        if name.is_empty() {
            return Err(ContractError::Parameter);
        }
        Ok(Self::at(Placement::Query(name.to_owned())))
    }

    /// A place of the caller's own making.
    pub fn custom(placement: impl KeyPlacement + 'static) -> Self {
        Self::at(Placement::Custom(Arc::new(placement)))
    }

    /// The service has no use for keys.
    ///
    /// None is made and none is sent, so a write whose attempt may have acted is not repeated. A key the caller gives all the
    /// same stays the name of the operation and protects nothing.
    pub fn none() -> Self {
        Self::at(Placement::None)
    }

    /// What the draft *The Idempotency-Key HTTP Header Field* says (draft-ietf-httpapi-idempotency-key-header-07 of
    /// 2025-10-15, sections 2.1 and 2.7).
    ///
    /// The header `Idempotency-Key` with a quoted string; 409 while the first request with the key is in progress, 422 where
    /// the key came with another content, 400 where it is missing. The 400 is not told from any other, and is final like
    /// those. The draft leaves the retention to the service, and does not say how a replay shows.
    pub fn ietf() -> Self {
        let name = IDEMPOTENCY_KEY;
        Self::at(Placement::Header { name, quoted: true })
            .with_in_progress(Sign::status(StatusCode::CONFLICT))
            .with_mismatch(Sign::status(StatusCode::UNPROCESSABLE_ENTITY))
    }

    /// What Stripe documents ("Idempotent requests" and "Errors" of its API reference, v1, as of 2026-11).
    ///
    /// The header `Idempotency-Key`, bare, of at most 255 characters, remembered for at least 24 hours. 409 while another
    /// request with the key is in progress; 400 with an error of the type `idempotency_error` where the parameters differ. The
    /// first result of a key is stored whatever it was, 500 included, and a replay of it has the header
    /// `Idempotent-Replayed: true`.
    pub fn stripe() -> Self {
        let name = IDEMPOTENCY_KEY;
        let contract = Self::at(Placement::Header { name, quoted: false })
            .with_retention(DAY)
            .with_stored_failures()
            .with_in_progress(Sign::status(StatusCode::CONFLICT));
        let mismatch = Sign::status(StatusCode::BAD_REQUEST).and_field("/error/type", "idempotency_error");
        match (mismatch, Sign::header("idempotent-replayed", "true")) {
            (Ok(mismatch), Ok(replay)) => contract.with_mismatch(mismatch).with_replay(replay),
            // Both texts are constants, and a test reads them.
            _ => contract,
        }
    }

    const fn at(placement: Placement) -> Self {
        Self {
            placement,
            longest: MAX_LEN,
            alphabet: u128::MAX,
            reserved: Vec::new(),
            retention: None,
            replay: Vec::new(),
            in_progress: Vec::new(),
            mismatch: Vec::new(),
            missing: Vec::new(),
            stored_failures: false,
        }
    }
}

/// Which keys the service takes, how long it remembers them, and what its answers mean. Signs add up: one of them is enough.
impl IdempotencyContract {
    /// The longest key, in bytes. 255 unless it is set; no key is longer than that (R55).
    pub fn with_max_length(mut self, bytes: usize) -> Self {
        self.longest = bytes.min(MAX_LEN);
        self
    }

    /// The characters a key may have, of those that are visible ASCII (R54).
    pub fn with_alphabet(mut self, allowed: impl Fn(char) -> bool) -> Self {
        let bit = |byte: u8| u128::from(allowed(char::from(byte))) << byte;
        self.alphabet = (0..128).map(bit).fold(0, |all, bit| all | bit);
        self
    }

    /// A beginning that the service keeps for keys of its own (R54).
    pub fn with_reserved_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.reserved.push(prefix.into());
        self
    }

    /// How long the service remembers a key. An operation makes no attempt later than this after its first, within one `send()`
    /// or a later one, and stops with [`StopReason::Retention`](crate::StopReason::Retention): the service would take it
    /// for a new one.
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// How the stored answer of an earlier request shows when it is given again: see
    /// [`Attempts::replayed`](crate::Attempts::replayed). A replay is a success like the first answer (R61).
    pub fn with_replay(mut self, sign: Sign) -> Self {
        self.replay.push(sign);
        self
    }

    /// What the service says while an earlier request with the key is in progress: it is asked again, with the same key.
    ///
    /// Where this is not declared, a 409 means it after an attempt whose delivery is unknown, and is final otherwise.
    pub fn with_in_progress(mut self, sign: Sign) -> Self {
        self.in_progress.push(sign);
        self
    }

    /// What the service says where it knows the key from a request with another content or subject. It will say so for ever,
    /// and a new key would act a second time: the operation stops with
    /// [`StopReason::KeyConflict`](crate::StopReason::KeyConflict) (R68 to R70).
    pub fn with_mismatch(mut self, sign: Sign) -> Self {
        self.mismatch.push(sign);
        self
    }

    /// What the service says where it misses a key. That is final, and the word of the service that it did nothing (R56); not
    /// on earlier attempts of the operation, whose key may have been lost on the same way.
    pub fn with_missing(mut self, sign: Sign) -> Self {
        self.missing.push(sign);
        self
    }

    /// The service stores failures of its own under the key: a 500 is its answer for good, and asking again with the same key
    /// brings the same. 502, 503 and 504 are a gateway's, and are asked again.
    pub fn with_stored_failures(mut self) -> Self {
        self.stored_failures = true;
        self
    }
}

/// What can be asked of a contract, on either end.
impl IdempotencyContract {
    /// Whether requests carry a key at all.
    pub fn carries_key(&self) -> bool {
        !matches!(self.placement, Placement::None)
    }

    /// How long the service remembers a key, if it says.
    pub fn retention(&self) -> Option<Duration> {
        self.retention
    }

    /// The key of a request, found where the contract has it and checked against its rules. A header that should have a quoted
    /// string may have the bare key.
    ///
    /// ```
    /// use http::{HeaderMap, Uri};
    /// use steadfast::{IdempotencyContract, KeyErrorKind};
    ///
    /// # fn f() -> Result<(), Box<dyn std::error::Error>> {
    /// let contract = IdempotencyContract::body_field("/request_id")?.with_reserved_prefix("sys_");
    /// let key = contract.key_of(&HeaderMap::new(), &Uri::default(), br#"{"request_id":"k-1"}"#)?;
    /// assert_eq!(key.ok_or("a key")?.as_str(), "k-1");
    /// let refused = contract.key_of(&HeaderMap::new(), &Uri::default(), br#"{"request_id":"sys_1"}"#).unwrap_err();
    /// assert!(matches!(refused.kind(), KeyErrorKind::Reserved { .. }));
    /// # Ok(())
    /// # }
    /// # f().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// A [`KeyError`] for a key that is not one, breaks a rule of the contract, or stands there twice.
    pub fn key_of(&self, headers: &HeaderMap, uri: &Uri, body: &[u8]) -> Result<Option<IdempotencyKey>, KeyError> {
        let key = self.placement.read(headers, uri, body)?;
        if let Some(key) = &key {
            self.check(key)?;
        }
        Ok(key)
    }

    /// Whether the service takes the key.
    ///
    /// # Errors
    ///
    /// A [`KeyError`] that names the rule of the contract which the key breaks.
    pub fn check(&self, key: &IdempotencyKey) -> Result<(), KeyError> {
        let text = key.as_str();
        if text.len() > self.longest {
            return Err(KeyError::from(KeyErrorKind::OverLimit {
                len: text.len(),
                longest: self.longest,
            }));
        }
        // A key is ASCII.
        let is_allowed = |byte: u8| (self.alphabet >> (byte & 0x7f)) & 1 == 1;
        if let Some(at) = text.bytes().position(|byte| !is_allowed(byte)) {
            return Err(KeyErrorKind::Alphabet { at }.into());
        }
        match self.reserved.iter().find(|prefix| text.starts_with(&***prefix)) {
            Some(prefix) => Err(KeyErrorKind::Reserved { prefix: prefix.clone() }.into()),
            None => Ok(()),
        }
    }

    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// What an answer says about the key, if it says anything.
    pub(crate) fn meaning(&self, answer: &Answer<'_>) -> Option<Meaning> {
        let has = |signs: &[Sign]| signs.iter().any(|sign| sign.is_in(answer) == Some(true));
        let lacks = |signs: &[Sign]| signs.iter().all(|sign| sign.is_in(answer) == Some(false));
        let is_stored = || {
            let status = answer.status();
            self.stored_failures && status.is_server_error() && (status.as_u16() == 500 || has(&self.replay))
        };
        if has(&self.mismatch) {
            Some(Meaning::Mismatch)
        } else if has(&self.in_progress) {
            Some(Meaning::InProgress)
        } else if has(&self.missing) {
            Some(Meaning::Missing)
        } else if is_stored() {
            Some(Meaning::Stored)
        } else if !self.in_progress.is_empty() && lacks(&self.in_progress) {
            Some(Meaning::Ordinary)
        } else {
            None
        }
    }

    /// Whether an answer is a stored one, if the contract says how that shows.
    pub(crate) fn replayed(&self, answer: &Answer<'_>) -> Option<bool> {
        let mut known = None;
        for sign in &self.replay {
            match sign.is_in(answer) {
                Some(true) => return Some(true),
                Some(false) => known = Some(false),
                None => return None,
            }
        }
        known
    }

    /// Whether the body of an answer with this head must be read to know what it means.
    pub(crate) fn asks_body(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let all = [&self.replay, &self.in_progress, &self.mismatch, &self.missing];
        all.into_iter().flatten().any(|sign| sign.asks_body(status, headers))
    }
}

/// What an answer says about the key it was sent with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// An earlier request with the key is under way.
    InProgress,
    /// The key belongs to another request.
    Mismatch,
    /// The request had none.
    Missing,
    /// A failure that is given for good.
    Stored,
    /// Nothing, and the contract would say if an earlier request were under way.
    Ordinary,
}

impl fmt::Debug for IdempotencyContract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ascii = (b'!'..=b'~').filter(|byte| (self.alphabet >> byte) & 1 == 0);
        f.debug_struct("IdempotencyContract")
            .field("placement", &self.placement)
            .field("max_length", &self.longest)
            .field("forbidden", &ascii.map(char::from).collect::<String>())
            .field("reserved_prefixes", &self.reserved)
            .field("retention", &self.retention)
            .field("replay", &self.replay)
            .field("in_progress", &self.in_progress)
            .field("mismatch", &self.mismatch)
            .field("missing", &self.missing)
            .field("stored_failures", &self.stored_failures)
            .finish()
    }
}

/// Why a text does not make a contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// It is no header name.
    #[error("{name:?} is no name of a header")]
    Header {
        /// The text.
        name: String,
    },
    /// It is no header value.
    #[error("the value for the header {name:?} is none of a header")]
    HeaderValue {
        /// The name of the header.
        name: String,
    },
    /// It is no JSON pointer (RFC 6901) to a member.
    #[error("{pointer:?} is no JSON pointer to a member, such as \"/request_id\"")]
    Pointer {
        /// The text.
        pointer: String,
    },
    /// The name of a query parameter is empty.
    #[error("the name of a query parameter is empty")]
    Parameter,
}

#[cfg(test)]
mod tests;

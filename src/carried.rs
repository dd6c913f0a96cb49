//! The request of an attempt, as an operation inside that attempt recognises it.
//!
//! A client inside a sender makes an operation of what it is given, and the attempts of the operation around are many of
//! those. They are one operation all the same: whichever of them makes a key, it must be the same one (R12, R13).

use std::sync::Arc;

use reqwest::{Method, Request, Url};

use crate::idempotency::contract::{ASSUMED, IdempotencyContract};
use crate::idempotency::key::IdempotencyKey;
use crate::replay::KeyTrust;

/// The request of an attempt, and what its operation knows of its key.
pub(crate) struct Carried {
    method: Method,
    url: Url,
    pub(crate) key: Option<IdempotencyKey>,
    pub(crate) trust: Option<KeyTrust>,
    /// The declared one.
    pub(crate) contract: Option<Arc<IdempotencyContract>>,
}

impl Carried {
    pub(crate) fn new(
        request: &Request,
        key: Option<IdempotencyKey>,
        trust: Option<KeyTrust>,
        contract: Option<Arc<IdempotencyContract>>,
    ) -> Self {
        Self {
            method: request.method().clone(),
            url: url_without_key(contract.as_deref(), request),
            key,
            trust,
            contract,
        }
    }

    /// Whether a request is this one on its way, also where it was made anew.
    pub(crate) fn is_in(&self, request: &Request) -> bool {
        self.method == *request.method() && self.url == url_without_key(self.contract.as_deref(), request)
    }

    /// What is known of a key inside, if it is this one.
    pub(crate) fn trust_in(&self, key: &IdempotencyKey) -> Option<KeyTrust> {
        self.trust.filter(|_| self.key.as_ref() == Some(key))
    }
}

fn url_without_key(contract: Option<&IdempotencyContract>, request: &Request) -> Url {
    let placement = contract.unwrap_or(&ASSUMED).placement();
    placement.url_without_key(request.url())
}

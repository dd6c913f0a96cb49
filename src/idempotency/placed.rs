//! The key of an operation: in its request, under its contract, and how far it is trusted.

use std::sync::Arc;

use reqwest::Request;

use super::contract::{ASSUMED, IdempotencyContract};
use super::key::IdempotencyKey;
use super::placement::{KeyChoice, place};
use crate::error::BoxError;
use crate::replay::KeyTrust;
use crate::scope::Scope;

pub(crate) struct Placed {
    /// The one that was declared, here or by the operation around.
    pub(crate) contract: Option<Arc<IdempotencyContract>>,
    pub(crate) key: Option<IdempotencyKey>,
    /// `None` where no key is sent: it protects nothing then.
    pub(crate) trust: Option<KeyTrust>,
    /// The key was made here, and only we say that the service honours it.
    pub(crate) is_assumption: bool,
}

impl Placed {
    /// Inside an attempt of another operation, a request that is sent on has the key and the contract of that one: a key of its
    /// own would be another one in every attempt, and so any other request has none.
    pub(crate) fn into_request(
        request: &mut Request,
        declared: Option<Arc<IdempotencyContract>>,
        choice: KeyChoice,
    ) -> Result<Self, BoxError> {
        let around = Scope::carried();
        let carried = around.as_deref().filter(|around| around.is_in(request));
        let contract = declared.or_else(|| carried?.contract.clone());
        let terms = contract.as_deref().unwrap_or(&ASSUMED);
        let make = |wanted: bool| match &around {
            Some(_) => carried?.key.clone(),
            None => wanted.then(IdempotencyKey::random),
        };
        let (key, given) = place(request, terms, choice, make)?.unzip();
        // Nobody inside knows the key better.
        let known = around.as_deref().zip(key.as_ref());
        let known = known.and_then(|(around, key)| around.trust_in(key));
        let own = given.map(|given| match contract.is_some() || given {
            true => KeyTrust::Declared,
            false => KeyTrust::Assumed,
        });
        let trust = known.or(own).filter(|_| terms.carries_key());
        Ok(Self {
            key,
            trust,
            is_assumption: trust == Some(KeyTrust::Assumed) && given == Some(false) && known.is_none(),
            contract,
        })
    }
}

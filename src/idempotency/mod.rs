//! Idempotency keys: one per operation, the same on every attempt.

pub(crate) mod key;
pub(crate) mod placement;

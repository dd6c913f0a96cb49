//! Idempotency keys: one per operation, the same on every attempt, as the contract of the service has it.

pub(crate) mod contract;
pub(crate) mod key;
pub(crate) mod placed;
pub(crate) mod placement;
pub(crate) mod pointer;
pub(crate) mod sign;

//! The locks and atomics of a group, under one name, so that a model checker can put its own in their place.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

//! Circuits: one for each group of endpoints, so that a service that is down is left alone.
//!
//! From the inside out: what happened lately ([`window`]), one circuit ([`breaker`]), what a group shares ([`group`]), all
//! groups by name ([`registry`]), and what an operator sees of them ([`circuits`]).

pub(crate) mod breaker;
pub(crate) mod circuits;
pub(crate) mod group;
pub(crate) mod name;
pub(crate) mod registry;
pub(crate) mod settings;
mod window;

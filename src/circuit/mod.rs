//! Circuits: one for each group of endpoints, so that a service that is down is left alone.
//!
//! From the inside out: when it opens ([`settings`]), what happened lately ([`window`]), one circuit ([`breaker`]), what a group
//! shares ([`group`]), what it is called ([`name`]), all groups ([`registry`]), and what an operator sees ([`circuits`]).

pub(crate) mod breaker;
pub(crate) mod circuits;
pub(crate) mod group;
pub(crate) mod name;
pub(crate) mod registry;
pub(crate) mod settings;
mod window;

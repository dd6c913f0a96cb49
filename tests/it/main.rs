//! The promises of the crate, each as a test: scripted transports under paused time, and real sockets on loopback.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    missing_docs
)]

mod bodies_loop;
mod budget;
mod carried;
mod circuit;
mod classifiers;
#[cfg(feature = "serde")]
mod config;
mod contract_answers;
mod contracts;
mod deadline;
mod documents;
mod examples;
mod frames;
mod guard_settings;
mod herd;
mod hooks;
mod hostile;
mod key_places;
mod keys;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "middleware")]
mod middleware;
#[cfg(all(feature = "json", feature = "query"))]
mod migration;
mod nested;
mod operation;
mod probes;
mod replay;
mod reports;
mod scope;
mod scripts;
mod secrets;
mod server;
mod statuses;
mod telemetry;
#[cfg(feature = "testing")]
mod testing;
mod third_party;
#[cfg(feature = "tower")]
mod tower;
mod trace_context;
mod transport;
mod waits;
mod wire;
mod wire_bodies;
mod wire_failures;
mod wire_guards;
mod wire_h2;
mod wire_handover;
mod wire_kinds;
mod wire_pool;
mod wire_redirects;
mod wire_requests;
mod wire_responses;

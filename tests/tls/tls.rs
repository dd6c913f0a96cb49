//! The promises of the crate that need a client with TLS, and the whole matrix of faults.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../it/frames.rs"]
mod frames;
#[allow(dead_code)]
#[path = "../it/server.rs"]
mod server;
#[allow(dead_code)]
#[path = "../it/wire.rs"]
mod wire;

mod cell;
mod faults;
mod front;
mod matrix;
mod rows;
mod wire_proxy;
mod wire_tls;

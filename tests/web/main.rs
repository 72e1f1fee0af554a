//! The web configuration as clients meet it: curl, Prometheus, and a client of our own for crowds.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
#![allow(unreachable_pub, reason = "modules of a program, not of a library")]

mod client;
mod curl;
mod fixture;
mod idle;
mod matrix;
mod passwords;
mod prometheus;
mod rotation;
mod slow;
mod weaken;

#[path = "../common/mod.rs"]
mod common;

//! The rules that are shipped: what Prometheus makes of them, and that they ask for what lanewatch serves.

#![allow(clippy::panic, clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

mod checks;
mod names;

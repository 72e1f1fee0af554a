//! The rules that are shipped: what Prometheus makes of them, that they ask for what lanewatch serves, and the whole way
//! from a link that degrades to a page.

#![allow(clippy::panic, clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

mod checks;
mod faults;
mod flow;
mod generated;
mod kept;
mod names;
mod notifications;
mod servers;
mod timing;

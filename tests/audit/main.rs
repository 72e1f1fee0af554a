//! `lanewatch audit` against servers: what they refuse, and how that is said; a simulated fleet in a real Prometheus and
//! a real VictoriaMetrics.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod cables;
mod catalogue;
#[path = "../common/mod.rs"]
mod common;
mod odd;
mod refused;
mod secured;
mod simulated;
mod since;

//! Says it: metrics, JSON, the status page, and the HTTP server that offers them. Everything speaks from one
//! [`HostReport`](crate::watch::HostReport).
//!
//! A metric family is one row and its write in one module under [`families`].

pub mod agent;
pub mod audit;
pub mod catalogue;
pub mod content;
pub mod exposition;
pub mod families;
pub mod gaps;
pub mod http;
pub mod json;
pub mod lane;
pub mod negotiate;
pub mod page;
pub mod series;
pub mod text;
pub mod web;

#[cfg(test)]
mod testing;

pub use agent::{AgentState, Process, WebState};
pub use exposition::{Format, encode};

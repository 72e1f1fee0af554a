//! The outputs: metrics, JSON, text, the status page, and the HTTP server that serves them. All are made from one
//! [`HostReport`](crate::watch::HostReport).
//!
//! A metric family is an entry in a table in one module under [`families`], with the function that writes it.

pub mod agent;
pub mod audit;
pub mod catalogue;
pub mod clients;
pub mod exposition;
pub mod families;
pub mod family;
pub mod http;
pub mod json;
pub mod page;
pub mod path;
pub mod text;
mod view;
pub mod web;

#[cfg(test)]
mod testing;

pub use agent::{AgentState, Process, WebState};
pub use exposition::{Format, encode};

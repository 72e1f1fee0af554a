//! What a person types.

pub mod args;
pub mod config;
pub mod policy;
pub mod settings;

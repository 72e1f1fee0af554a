//! Texts for people and for other monitors.

pub mod bench;
pub mod check;
pub mod explain;
pub mod facts;
mod isolation;
pub mod paint;
pub mod vf;

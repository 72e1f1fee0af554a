//! Texts for people and for other monitors.

pub mod bench;
pub mod check;
pub mod explain;
pub mod facts;
pub mod given;
mod isolation;
pub mod paint;
pub mod vf;

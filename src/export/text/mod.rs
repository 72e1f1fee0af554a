//! Texts for people and for other monitors.

pub mod check;
pub mod explain;
pub mod facts;
pub mod paint;
pub mod vf;

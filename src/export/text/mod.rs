//! Texts for people and for other monitors.

pub mod check;
pub mod explain;
pub mod paint;
mod posture;
pub mod vf;

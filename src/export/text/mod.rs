//! Texts for people and for other monitors.

pub mod check;

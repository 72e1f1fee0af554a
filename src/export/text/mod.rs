//! Text for people and for other monitors.

pub mod bench;
pub mod check;
pub mod explain;
mod findings;
pub mod style;
mod verbose;
pub mod vf;

//! The JSON documents: findings (also what `check --format json` prints), events, facts, the VF map and benchmarks.
//! Each has a version in `schema`; keys are added, never renamed. What is unknown is `null`.

pub mod bench;
mod facts;
mod findings;
pub mod vf;

pub use facts::snapshot;
pub use findings::{SCHEMA, events, findings};

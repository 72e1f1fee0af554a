//! Keeps a host over time: poller, history, baseline, findings with their hold times, events.

pub mod report;

pub use report::Report;

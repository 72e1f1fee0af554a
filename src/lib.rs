//! lanewatch watches the whole lane that a byte takes from memory to the wire on hosts with RDMA and SR-IOV cards.
//!
//! The house has floors, and a floor imports only from floors below it:
//!
//! | floor | task |
//! |---|---|
//! | [`cli`] | what a person types |
//! | [`export`] | say it: metrics, HTTP, status page, JSON |
//! | [`fleet`] | the same questions asked of Prometheus |
//! | [`mod@bench`] | measure it: probes, and when they may run |
//! | [`watch`] | keep it over time: poller, history, baseline, events |
//! | [`assess`] | judge it: pure functions from facts, history and policy to findings |
//! | [`host`] | read it: one collector per kernel source |
//! | [`model`] | name it: plain typed facts |

pub mod assess;
pub mod bench;
pub mod cli;
pub mod export;
pub mod fleet;
pub mod host;
pub mod model;
pub mod watch;

//! Keeps a host over time: poller, history, baseline, findings with their hold times, events.

mod alarm;
pub mod clock;
pub mod crew;
pub mod engine;
mod files;
pub mod handle;
pub mod interrupts;
pub mod kernel_log;
pub mod learn;
pub mod ledger;
pub mod poller;
pub mod probes;
pub mod pulse;
pub mod report;
pub mod roce;
pub mod running;
pub mod store;
pub mod vfmap;
pub mod watcher;
mod written;

pub use engine::Engine;
pub use handle::Handle;
pub use poller::Poller;
pub use report::Report;

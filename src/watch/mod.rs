//! Keeps a host over time: poller, history, baseline, findings with their hold times, events.

mod alarm;
pub mod clock;
pub mod collector_runner;
pub mod engine;
mod files;
pub mod finding_tracker;
pub mod heartbeat;
pub mod history_updater;
pub mod interrupt_tracker;
pub mod kernel_log_tracker;
pub mod poller;
pub mod poller_handle;
pub mod probes;
pub mod reader_pool;
pub mod report;
pub mod roce_windows;
pub mod store;
pub mod vfmap;
pub mod watcher;
mod written;

pub use engine::Engine;
pub use poller::Poller;
pub use poller_handle::PollerHandle;
pub use report::HostReport;

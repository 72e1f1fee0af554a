//! Keeps a host over time: poller, history, baseline, findings with their hold times, events.

mod baseline;
pub mod clock;
pub mod collector_runner;
pub mod engine;
mod event_limiter;
mod file_watcher;
pub mod finding_tracker;
mod flaps;
pub mod history_event;
pub mod history_updater;
pub mod interrupt_tracker;
pub mod kernel_log_tracker;
mod last_seen;
pub mod line_tracker;
mod maintenance_marker;
pub mod poller;
pub mod poller_handle;
pub mod reader_pool;
pub mod report;
pub mod roce_windows;
mod state_writer;
pub mod store;
pub mod vfmap;

pub use engine::Engine;
pub use file_watcher::{FileWatcher, Fingerprint, fingerprint};
pub use poller::Poller;
pub use poller_handle::PollerHandle;
pub use report::HostReport;

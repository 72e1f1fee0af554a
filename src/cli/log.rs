//! The log: standard error, one line an event.

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::args::{LogFormat, LogLevel};

/// Starts logging; a second start changes nothing.
pub fn start(level: LogLevel, format: LogFormat) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let registry = tracing_subscriber::registry().with(level);
    let started = match format {
        LogFormat::Logfmt => {
            let lines = tracing_logfmt::builder().with_target(false).with_span_name(false);
            registry.with(lines.layer().with_writer(std::io::stderr)).try_init()
        }
        LogFormat::Json => {
            let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_target(false);
            registry.with(lines.with_writer(std::io::stderr)).try_init()
        }
    };
    // Only a second start fails.
    drop(started);
}

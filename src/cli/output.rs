//! Standard output, what the terminal can show, and the log on standard error.

use std::ffi::OsString;
use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;

use jiff::tz::TimeZone;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::args::values::{Color, LogFormat, LogLevel};
use crate::export::text::style::{DEFAULT_WIDTH, Style};

/// Writes to standard output. A reader that closed the pipe is not an error.
///
/// # Errors
/// The disk is full, say.
pub fn print(bytes: &[u8]) -> std::io::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Whether the locale's characters are Unicode: what is set first of these says so, and where nothing is, none are.
pub fn writes_unicode() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Whether a stream is a terminal that knows more than lines of text.
pub fn is_capable(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && set("TERM").is_some_and(|kind| kind != "dumb")
}

/// Whether a stream should get colours, where nobody said.
pub fn wants_colour(stream: &impl IsTerminal) -> bool {
    is_capable(stream) && set("NO_COLOR").is_none()
}

/// How text on standard output is laid out: the terminal's width, the reader's time zone, and colour as asked.
pub fn style(color: Color) -> Style {
    let out = std::io::stdout();
    let color = match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => wants_colour(&out),
    };
    let columns = rustix::termios::tcgetwinsize(&out).map(|size| usize::from(size.ws_col));
    let width = columns.ok().filter(|columns| *columns > 0).unwrap_or(DEFAULT_WIDTH);
    Style { color, width, zone: TimeZone::system() }
}

fn set(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Starts logging; a second start changes nothing.
pub fn start_log(level: LogLevel, format: LogFormat) {
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

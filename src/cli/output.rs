//! Standard output, what the terminal can show, and the log on standard error.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use jiff::tz::TimeZone;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::args::values::{Color, LogFormat, LogLevel};
use crate::export::text::style::{DEFAULT_WIDTH, Style};
use crate::model::text::{visible, visible_lines};

/// Writes text to standard output, whatever it is made of: what would act on a terminal is escaped. A reader that closed
/// the pipe is not an error.
///
/// # Errors
/// The disk is full, say.
pub fn print(text: &str) -> std::io::Result<ExitCode> {
    write_out(visible_lines(text).as_bytes())
}

/// The same of text with colours: sequences of ours stay, if there are any in this style.
///
/// # Errors
/// The disk is full, say.
pub fn print_styled(text: &str, style: &Style) -> std::io::Result<ExitCode> {
    if !style.color {
        return print(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        out.push_str(&visible_lines(before));
        let code = after.split_once('m').filter(|(code, _)| code.bytes().all(|b| b.is_ascii_digit() || b == b';'));
        if let Some((code, after)) = code {
            out.extend(["\x1b[", code, "m"]);
            rest = after;
        } else {
            out.push_str("\\u001b[");
            rest = after;
        }
    }
    out.push_str(&visible_lines(rest));
    write_out(out.as_bytes())
}

/// Writes a line to standard error, after the program's name.
pub fn complain(line: &str) {
    eprintln!("lanewatch: {}", visible(line));
}

fn write_out(bytes: &[u8]) -> std::io::Result<ExitCode> {
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
            registry.with(lines.layer().with_writer(LogWriter::default)).try_init()
        }
        LogFormat::Json => {
            let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_target(false);
            registry.with(lines.with_writer(LogWriter::default)).try_init()
        }
    };
    // Only a second start fails.
    drop(started);
}

/// Writes log lines to standard error. A formatter writes a line at a time, and not all of them escape everything.
#[derive(Debug, Default)]
struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let (line, end) = text.strip_suffix('\n').map_or((&*text, ""), |line| (line, "\n"));
        io::stderr().write_all(format!("{}{end}", visible(line)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

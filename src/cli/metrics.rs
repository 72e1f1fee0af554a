//! `lanewatch metrics`: the exposition once, to standard output or to a file for the textfile collector.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use super::args::MetricsArgs;
use super::error::CliError;
use super::one_shot::read_once;
use super::output::print;
use super::settings::Settings;
use crate::export::{AgentState, Format, Process, encode};

/// Looks at the host once and writes its metrics.
///
/// # Errors
/// The host cannot be looked at, or the file cannot be written; an old file stays then.
pub fn run(settings: &Settings, args: &MetricsArgs) -> Result<ExitCode, CliError> {
    let report = read_once(settings, Duration::ZERO, Duration::from_secs(10))?;
    let format = if args.openmetrics { Format::OpenMetrics } else { Format::Text };
    let mut text = String::new();
    // node_exporter serves `process_*` of its own beside the file: a second one is an error at every scrape.
    let process = if args.textfile.is_some() { Process::default() } else { Process::read() };
    encode(format, &report, &Arc::new(AgentState::default()), process, &mut text).map_err(anyhow::Error::from)?;
    match &args.textfile {
        None => Ok(print(text.as_bytes())?),
        Some(path) => {
            replace(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Writes beside the file and renames, so that nobody ever reads half of it. Readable by everyone, as node_exporter
/// runs as another user. A link is followed; what is no regular file stays what it is.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let path = &std::fs::canonicalize(path).or_else(|_| std::fs::read_link(path)).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // A name that does not end in .prom: the textfile collector must not see it.
    let new = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || {
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    };
    write().inspect_err(|_| drop(std::fs::remove_file(&new)))
}

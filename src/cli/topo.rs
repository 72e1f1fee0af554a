//! `lanewatch topo`: how near GPUs and network cards are to each other.

use std::process::ExitCode;
use std::time::Duration;

use super::args::TopoArgs;
use super::args::values::{Color, DocumentFormat};
use super::error::CliError;
use super::one_shot::read_once;
use super::output::{print, style};
use super::settings::Settings;
use crate::export::{json, text};

/// Shows the matrix.
///
/// # Errors
/// The host cannot be looked at.
pub fn run(settings: &Settings, args: &TopoArgs) -> Result<ExitCode, CliError> {
    let report = read_once(settings, Duration::ZERO, args.timeout)?;
    let text = match args.format {
        DocumentFormat::Text => text::topo::matrix(&report, &style(Color::Auto)),
        DocumentFormat::Json => {
            serde_json::to_string_pretty(&json::topo::topo(&report)).map_err(anyhow::Error::from)? + "\n"
        }
    };
    Ok(print(&text)?)
}

//! How the program ends when it cannot do what was asked: one line, and an exit code that says whose fault it was.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::args::help;
use super::config::error::{ConfigError, ConfigErrors};
use super::output::{complain, print};

/// Exit code for a wrong command line or configuration.
const USAGE: u8 = 2;
/// Exit code of `check` when it cannot tell.
const UNKNOWN: u8 = 3;

/// Why a command failed.
#[derive(Debug)]
pub enum CliError {
    /// The command line is wrong.
    Usage(String),
    /// The configuration is wrong.
    Config(ConfigErrors),
    /// A text that was asked for (`--help`, `--version`).
    Text(String),
    /// Something else went wrong.
    Other(anyhow::Error),
}

impl CliError {
    /// Prints the failure and says how to exit. `checks`: the command was `check`, whose every exit is a verdict.
    pub fn exit(self, checks: bool) -> ExitCode {
        match self {
            Self::Text(text) => print(&text).unwrap_or_else(|error| Self::from(error).exit(checks)),
            Self::Usage(line) => {
                complain(&line);
                ExitCode::from(if checks { UNKNOWN } else { USAGE })
            }
            Self::Config(errors) => {
                for error in errors.iter() {
                    complain(&error.to_string());
                }
                ExitCode::from(if checks { UNKNOWN } else { USAGE })
            }
            Self::Other(error) => {
                complain(&format!("{error:#}"));
                if checks { ExitCode::from(UNKNOWN) } else { ExitCode::FAILURE }
            }
        }
    }
}

/// One line of what clap says about a wrong command line, or the help that these arguments ask for.
pub fn usage(error: &clap::Error, arguments: &[OsString]) -> CliError {
    if error.kind() == ErrorKind::DisplayHelp
        && let Some(help) = help::full(arguments)
    {
        return CliError::Text(help);
    }
    if let Some(word) = no_command(error) {
        return not_a_command(word);
    }
    let text = error.render().to_string();
    if let Some(line) = no_subcommand(error, &text) {
        return CliError::Usage(line);
    }
    if !error.use_stderr() {
        return CliError::Text(text);
    }
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let words: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = words.join("; ").replace(":; ", ": ");
    CliError::Usage(line.strip_prefix("error: ").unwrap_or(&line).to_owned())
}

/// What is said of a word that should name a command.
pub fn not_a_command(word: &str) -> CliError {
    let commands = super::args::command();
    let names: Vec<&str> = commands.get_subcommands().map(clap::Command::get_name).collect();
    CliError::Usage(format!("{word:?} is not a command; the commands are {}", names.join(", ")))
}

/// A word where a command may stand: `serve` takes no arguments but flags, and is meant where no command is named.
fn no_command(error: &clap::Error) -> Option<&str> {
    let of_serve = error.get(ContextKind::Usage).is_none_or(|usage| usage.to_string().contains("lanewatch serve"));
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument => {
            (of_serve && !word.starts_with('-')).then_some(word)
        }
        _ => None,
    }
}

/// What is missing where a command has commands of its own and none was named; `text` is the help that clap would show.
fn no_subcommand(error: &clap::Error, text: &str) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand) {
        return None;
    }
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "))?;
    let commands = super::args::command();
    let name = usage.split_whitespace().nth(1)?;
    let names: Vec<&str> = commands.find_subcommand(name)?.get_subcommands().map(clap::Command::get_name).collect();
    Some(format!("{name} needs one of these commands: {}", names.join(", ")))
}

impl From<ConfigErrors> for CliError {
    fn from(errors: ConfigErrors) -> Self {
        Self::Config(errors)
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error.into())
    }
}

impl From<anyhow::Error> for CliError {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        Self::Other(error.into())
    }
}

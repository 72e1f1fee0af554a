//! How the program ends when it cannot do what was asked: one line, and an exit code that says whose fault it was.

use std::process::ExitCode;

use super::config::ConfigError;

/// Exit code for a wrong command line or configuration.
const USAGE: u8 = 2;
/// Exit code of `check` when it cannot tell.
const UNKNOWN: u8 = 3;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The command line or the configuration is wrong.
    Usage(String),
    /// A text that was asked for (`--help`, `--version`).
    Text(String),
    /// Something else went wrong.
    Other(anyhow::Error),
}

impl Failure {
    /// Prints the failure and says how to exit. `checks`: the command was `check`, whose every exit is a verdict.
    pub fn end(self, checks: bool) -> ExitCode {
        match self {
            Self::Text(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Self::Usage(line) => {
                eprintln!("lanewatch: {line}");
                ExitCode::from(if checks { UNKNOWN } else { USAGE })
            }
            Self::Other(error) => {
                eprintln!("lanewatch: {error:#}");
                if checks { ExitCode::from(UNKNOWN) } else { ExitCode::FAILURE }
            }
        }
    }
}

/// One line of what clap says about a wrong command line.
pub fn usage(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    if !error.use_stderr() {
        return Failure::Text(text);
    }
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let words: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = words.join("; ");
    Failure::Usage(line.strip_prefix("error: ").unwrap_or(&line).to_owned())
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Other(error.into())
    }
}

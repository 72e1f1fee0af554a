//! What a person types.

pub mod agent;
pub mod args;
pub mod audit;
pub mod baseline;
pub mod bench;
pub mod check;
pub mod config;
pub mod demo;
pub mod error;
pub mod explain;
mod explain_read;
pub mod listen;
mod manual;
pub mod metrics;
pub mod module_reader;
pub mod one_shot;
pub mod output;
mod pasted_file;
pub mod peer_services;
pub mod reload;
pub mod selection;
pub mod settings;
pub mod snapshot;
pub mod topo;
pub mod vf;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use args::{Cli, Command, ConfigAction};
use config::error::{ConfigError, ErrorList};
use config::reference;
use error::{CliError, usage};
use output::{complain, print, start_log};
use settings::Settings;

use crate::export::web::Web;

/// Runs the program.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    // A wrong command line of `check` is a result, too: unknown.
    let checks = args::command_name(&args).is_some_and(|name| name == "check");
    let outcome =
        args::parse(args.clone()).map_err(|error| usage(&error, &args)).and_then(|(cli, matches)| run(cli, &matches));
    match outcome {
        Ok(code) => code,
        Err(error) => error.exit(checks),
    }
}

fn run(cli: Cli, matches: &clap::ArgMatches) -> Result<ExitCode, CliError> {
    match cli.command {
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut args::command(), "lanewatch", &mut script);
            return Ok(print(&String::from_utf8_lossy(&script))?);
        }
        Command::Man { of } => return Ok(print(&String::from_utf8_lossy(&manual::page(of.as_deref())?))?),
        Command::Config(args::ConfigArgs { action: ConfigAction::Check { file, no_files, against } }) => {
            return check_config(&file, !no_files, against.as_deref());
        }
        Command::Audit(flags) => return audit::run(&flags),
        _ => {}
    }
    let settings = Settings::new(&cli.common, matches)?;
    match cli.command {
        Command::Serve(_) if settings.demo => {
            Err(CliError::Usage("serve reads this host; `lanewatch demo` serves the example host".to_owned()))
        }
        Command::Serve(flags) => {
            start_log(settings.log_level, settings.log_format);
            agent::serve(&settings, &cli.common, matches, &flags)
        }
        Command::Check(flags) => check::run(&settings, &flags),
        Command::Vf(flags) => vf::run(&settings, &flags),
        Command::Topo(flags) => topo::run(&settings, &flags),
        Command::Bench(flags) => bench::run(&settings, &flags),
        Command::Metrics(flags) => metrics::run(&settings, &flags),
        Command::Baseline(flags) => baseline::run(&settings, &flags),
        Command::Explain(flags) => explain::run(&settings, &flags),
        Command::Demo(flags) => {
            start_log(settings.log_level, settings.log_format);
            demo::run(&settings, &cli.common, matches, &flags)
        }
        Command::Snapshot(flags) => snapshot::run(&settings, &flags),
        Command::Completions { .. } | Command::Man { .. } | Command::Config(_) | Command::Audit(_) => {
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// `files`: also check what the file names on this host. `against`: the file whose changes are listed.
fn check_config(file: &Path, files: bool, against: Option<&Path>) -> Result<ExitCode, CliError> {
    if file.extension().is_some_and(|ending| ending == "yml" || ending == "yaml") {
        let web =
            if files { Web::load(file).map(|web| web.remarks) } else { Web::check_text(file).map(|()| Vec::new()) };
        for remark in web.map_err(ConfigError::from)? {
            complain(&remark);
        }
        return Ok(print(&format!("{}: ok\n", file.display()))?);
    }
    let (config, remarks) = config::check(file, files)?;
    for remark in remarks {
        complain(&remark);
    }
    let mut text = format!("{}: ok\n", file.display());
    if let Some(before) = against {
        let errors = ErrorList::default();
        let config_before = config::read(before, &errors);
        let before = errors.into_result(config_before)?;
        let keys = reference::restart_keys(&before.values, &config.values);
        if keys.is_empty() {
            text.push_str("a reload applies every change\n");
        } else {
            let _ = writeln!(text, "a restart is needed to apply {}", keys.join(", "));
        }
    }
    Ok(print(&text)?)
}

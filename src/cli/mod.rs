//! What a person types.

pub mod agent;
pub mod args;
pub mod audit;
pub mod baseline;
pub mod bench;
pub mod check;
pub mod config;
pub mod demo;
pub mod explain;
pub mod failure;
pub mod follow;
pub mod listen;
pub mod log;
pub mod look;
pub mod lookup;
mod manual;
pub mod metrics;
pub mod moment;
pub mod named;
pub mod peers;
pub mod policy;
pub mod probe;
pub mod qid_map;
pub mod settings;
pub mod snapshot;
pub mod switches;
pub mod terminal;
pub mod value;
pub mod vf;
pub mod watchdog;
pub mod watched;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use args::{Cli, Command, ConfigAction};
use failure::{Failure, usage};
use settings::Settings;

use crate::export::web::Web;

/// Runs the program.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    // A wrong command line of `check` is an answer too: it could not tell.
    let checks = args::named(&args).is_some_and(|name| name == "check");
    let outcome = args::parse(args).map_err(|error| usage(&error)).and_then(|(cli, matches)| run(cli, &matches));
    match outcome {
        Ok(code) => code,
        Err(failure) => failure.end(checks),
    }
}

fn run(cli: Cli, matches: &clap::ArgMatches) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut args::command(), "lanewatch", &mut script);
            return print(&script);
        }
        Command::Man { of } => return print(&manual::page(of.as_deref())?),
        Command::Config(args::Config { action: ConfigAction::Check { file, no_files } }) => {
            return check_config(&file, !no_files);
        }
        Command::Audit(flags) => return audit::run(&flags),
        _ => {}
    }
    let settings = Settings::new(&cli.common, matches)?;
    match cli.command {
        Command::Serve(flags) => {
            log::start(settings.log_level, settings.log_format);
            agent::serve(&settings, &cli.common, matches, &flags)
        }
        Command::Check(flags) => check::run(&settings, &flags),
        Command::Vf(flags) => vf::run(&settings, &flags),
        Command::Bench(flags) => bench::run(&settings, &flags),
        Command::Metrics(flags) => metrics::run(&settings, &flags),
        Command::Baseline(flags) => baseline::run(&settings, &flags),
        Command::Explain(flags) => explain::run(&settings, &flags),
        Command::Demo(flags) => {
            log::start(settings.log_level, settings.log_format);
            demo::run(&settings, &cli.common, matches, &flags)
        }
        Command::Snapshot(flags) => snapshot::run(&settings, &flags),
        Command::Completions { .. } | Command::Man { .. } | Command::Config(_) | Command::Audit(_) => {
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// `here`: what the file names is on this host.
fn check_config(file: &Path, here: bool) -> Result<ExitCode, Failure> {
    let remarks = if file.extension().is_some_and(|ending| ending == "yml" || ending == "yaml") {
        Web::load(file).map_err(config::ConfigError::from)?.remarks
    } else {
        let config = config::read(file)?;
        settings::validate(file, &config)?;
        if here { named::check(file, &config)? } else { Vec::new() }
    };
    for remark in remarks {
        eprintln!("lanewatch: {remark}");
    }
    print(format!("{}: ok\n", file.display()).as_bytes())
}

/// Writes to standard output; a reader that has gone is no failure.
fn print(bytes: &[u8]) -> Result<ExitCode, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

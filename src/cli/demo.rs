//! `lanewatch demo`: the agent over a built-in example host that changes over time. Nothing of this host is read, and
//! nothing is kept.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ArgMatches;

use super::agent;
use super::args::{CommonArgs, DemoArgs};
use super::error::CliError;
use super::peer_services::PeerServices;
use super::settings::Settings;
use crate::host::collector::Setup;
use crate::host::example::Example;
use crate::model::finding::EventKind;
use crate::watch::clock::SystemClock;
use crate::watch::{Engine, Poller};

/// How often the host changes.
const STEP: Duration = Duration::from_secs(1);

/// Serves the example host until asked to end.
///
/// # Errors
/// A socket cannot be opened, or the system has no more threads.
pub fn run(
    settings: &Settings,
    common: &CommonArgs,
    matches: &ArgMatches,
    args: &DemoArgs,
) -> Result<ExitCode, CliError> {
    let web = settings.web(&args.web)?;
    let mut example = Example::new();
    let setup = Setup { host: example.host(), filter: settings.filter.clone() };
    let engine = Engine::new(Arc::clone(&settings.policy), false);
    let specs = settings.collectors.iter().copied();
    let mut poller = Poller::new(&setup, specs, Arc::new(SystemClock), engine, None).context("cannot start reading")?;
    poller.note(EventKind::Started, format!("lanewatch {} started on its example host", env!("CARGO_PKG_VERSION")));
    let began = Instant::now();
    let mover = thread::Builder::new().name("example".to_owned());
    mover
        .spawn(move || {
            loop {
                thread::sleep(STEP);
                example.advance(began.elapsed());
            }
        })
        .context("cannot start the example host")?;
    let announce = |url: &str| eprint!("{}", announcement(url, &web.telemetry_path));
    let reload_settings = || Settings::new(common, matches);
    agent::run(poller, &web, common.config.as_deref(), &PeerServices::default(), reload_settings, announce)
}

/// Where to look, and what there will be to see.
fn announcement(url: &str, metrics: &str) -> String {
    format!(
        "An example host: two ConnectX-6 at 200 Gb/s (mlx5_0, mlx5_1). Nothing of this machine is read.\n\
         \n\
         \x20 page     {url}/\n\
         \x20 metrics  {url}{metrics}\n\
         \n\
         In 8 s the PCIe link of mlx5_1 trains to 8 GT/s x8 and carries 63 of its 200 Gb/s; three readings later that\n\
         is a finding. At 1:38 it recovers, at 2:30 the port loses its link for 8 s, and at 3:30 the link degrades\n\
         again, and so on.\n\
         Ctrl-C ends it.\n\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_where_to_look() {
        let text = announcement("http://127.0.0.1:9", "/m");
        assert!(text.contains("page     http://127.0.0.1:9/\n") && text.contains("metrics  http://127.0.0.1:9/m\n"));
    }
}

//! `lanewatch demo`: the agent on a built-in example host that changes over time. Nothing of this machine is read, and
//! no state is stored.

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
use super::settings::{Settings, WebSettings};
use crate::host::collector::Setup;
use crate::host::example::{DEGRADES, Example, LOSES_LINK, RECOVERS, REGAINS_LINK, ROUND};
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
    // Nothing of this machine is in it.
    let web = WebSettings { public_snapshot: true, ..settings.web(&args.web)? };
    let mut example = Example::new().with_pace(args.pace);
    let setup = Setup { host: example.host(), filter: settings.filter.clone() };
    let engine = Engine::new(Arc::clone(&settings.policy), false);
    let specs = settings.collectors.iter().copied();
    let mut poller =
        Poller::new(&setup, specs, Arc::new(SystemClock), engine, None).context("cannot start the poller")?;
    poller.note(EventKind::Started, format!("lanewatch {} started on the example host", env!("CARGO_PKG_VERSION")));
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
    let announce = |url: &str| eprint!("{}", announcement(url, &web.telemetry_path, args.pace));
    let reload_settings = agent::reload_settings(common, matches);
    agent::run(poller, &web, settings, &PeerServices::default(), &reload_settings, announce)
}

/// Where to look, and what there will be to see.
fn announcement(url: &str, metrics: &str, pace: u32) -> String {
    let at = |second: u64| {
        let second = second.div_ceil(u64::from(pace));
        format!("{}:{:02}", second / 60, second % 60)
    };
    format!(
        "Example host: two ConnectX-6 at 200 Gb/s (mlx5_0, mlx5_1). Nothing of this machine is read.\n\
         \n\
         \x20 page     {url}/\n\
         \x20 metrics  {url}{metrics}\n\
         \n\
         \x20 {:>5}  the PCIe link of mlx5_1 trains to 8 GT/s x8: limited to 63 Gb/s of 200 Gb/s\n\
         \x20 {:>5}  the link recovers\n\
         \x20 {:>5}  the port of mlx5_1 loses its link, until {}\n\
         \x20 {:>5}  the scenario starts again\n\
         \n\
         A finding appears after three readings. --pace 10 runs it ten times faster.\n\
         Press Ctrl-C to stop.\n\n",
        at(DEGRADES),
        at(RECOVERS),
        at(LOSES_LINK),
        at(REGAINS_LINK),
        at(ROUND),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announcement_says_where_to_look_and_when() {
        let text = announcement("http://127.0.0.1:9", "/m", 1);
        assert!(text.contains("page     http://127.0.0.1:9/\n") && text.contains("metrics  http://127.0.0.1:9/m\n"));
        assert!(text.contains(" 0:08  the PCIe link of mlx5_1") && text.contains("10:08  the link recovers"), "{text}");
        assert!(announcement("", "", 10).contains(" 1:01  the link recovers"));
    }
}

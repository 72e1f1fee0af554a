//! Replays a case through the agent's own poller, on a clock that the replay moves: every five seconds a pass, as the
//! agent makes them, and hold times run.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lanewatch::export::json;
use lanewatch::export::{AgentState, Format, Process, encode};
use lanewatch::host::collector::{Filter, Setup};
use lanewatch::host::fs::Fs;
use lanewatch::host::io::Roots;
use lanewatch::host::netlink::socket::{NetlinkConnection, NetlinkConnector};
use lanewatch::host::{COLLECTORS, Host};
use lanewatch::model::policy::Policy;
use lanewatch::watch::clock::ManualClock;
use lanewatch::watch::{Engine, HostReport, Poller};

use crate::case::Stage;
use crate::common::{exposition, iplink};
use crate::expect::Output;
use crate::judge::{Finding, Reading, Replay};
use crate::output;

/// The interval of the poller.
const STEP: Duration = Duration::from_secs(5);

/// How long a pass may take.
const LIMIT: Duration = Duration::from_secs(20);

/// The agent.
pub struct Agent;

impl Replay for Agent {
    fn run(&self, stage: &Stage) -> Result<Vec<Reading>, String> {
        let host = stage.host();
        let printed = host.join(IP_LINK).exists().then(|| route(host.join(IP_LINK)));
        // One reading is what `check` sees: it waits for nothing.
        let instant = stage.moments.len() == 1;
        let (mut poller, clock) = begin(&host, printed, instant)?;
        let mut now = Duration::ZERO;
        let mut readings = Vec::new();
        for (number, moment) in stage.moments.iter().enumerate() {
            clock.advance(moment.at.saturating_sub(now));
            now = now.max(moment.at);
            stage.show(number).map_err(|error| error.to_string())?;
            let mut report = poller.pass(LIMIT);
            while now < moment.judged {
                let step = STEP.min(moment.judged.saturating_sub(now));
                clock.advance(step);
                now += step;
                report = poller.pass(LIMIT);
            }
            readings.push(reading(&report)?);
        }
        Ok(readings)
    }

    fn read(&self, output: &Output, stage: &Stage) -> Result<serde_json::Value, String> {
        output::read(output, &stage.host())
    }
}

/// A poller of a recorded host, before its first pass, and the clock that it goes by. `instant` findings hold at once.
pub fn begin(
    host: &Path,
    route: Option<NetlinkConnector>,
    instant: bool,
) -> Result<(Poller, Arc<ManualClock>), String> {
    let setup = Setup {
        host: Host {
            io: Arc::new(Fs::recorded()),
            sysfs: host.join("sys"),
            procfs: host.join("proc"),
            roots: Roots {
                libvirt: host.join("libvirt"),
                run_libvirt: host.join("run-libvirt"),
                netns: host.join("netns"),
                ..Roots::below(host)
            },
            route,
            ethtool: None,
            live: false,
        },
        filter: Filter::default(),
    };
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let clock = Arc::new(ManualClock::new(start, Duration::from_secs(86_400)));
    let engine = Engine::new(Arc::new(Policy::default()), instant);
    let specs = COLLECTORS.iter().copied();
    let poller = Poller::new(&setup, specs, clock.clone(), engine, None).map_err(|error| error.to_string())?;
    Ok((poller, clock))
}

/// What `ip link` printed.
pub const IP_LINK: &str = "ip-link.txt";

/// Answers as the kernel did when the text was printed.
pub fn route(text: PathBuf) -> NetlinkConnector {
    Arc::new(move || Ok(Box::new(Printed { text: text.clone() })))
}

struct Printed {
    text: PathBuf,
}

impl NetlinkConnection for Printed {
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let (name, statistics) = iplink::asked(request);
        let interfaces = iplink::parse(&std::fs::read_to_string(&self.text)?);
        let found = interfaces.iter().find(|interface| interface.name == name);
        let gone = || io::Error::from_raw_os_error(rustix::io::Errno::NODEV.raw_os_error());
        found.map(|interface| vec![interface.reply(statistics)]).ok_or_else(gone)
    }
}

/// The report as a case judges it.
pub fn reading(report: &Arc<HostReport>) -> Result<Reading, String> {
    let mut text = String::new();
    encode(Format::Text, report, &Arc::new(AgentState::default()), Process::default(), &mut text)
        .map_err(|error| error.to_string())?;
    let document = json::findings(report, report.status);
    let word = |value: &serde_json::Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let findings = document["findings"].as_array().into_iter().flatten().map(|finding| Finding {
        check: word(finding, "check"),
        subject: word(finding, "subject"),
        reason: word(finding, "reason"),
        severity: word(finding, "severity"),
    });
    Ok(Reading { findings: findings.collect(), samples: exposition::parse(&text)?, status: word(&document, "status") })
}

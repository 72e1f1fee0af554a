//! How long it takes: the faults of [`super::faults`] with the waits that ship, in the agents, the rules and Alertmanager,
//! for a Prometheus that scrapes every 15 s and one that does so every 120 s. `make alerts-timing`; an hour and a half.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::faults::{Agent, Fault, come_and_go, faults, revive, write_targets};
use super::servers::{Alertmanager, Waits, failed};
use crate::common::rules::text;
use crate::common::run::Server;
use crate::common::stores;
use crate::common::tools::query;
use crate::common::toy::Toy;

const MINUTE: Duration = Duration::from_secs(60);

/// From here on agents come and go: every fault that is announced soon has been.
const COME_AND_GO: Duration = Duration::from_secs(9 * 60);

/// The killed agent was gone for long enough for [`LanewatchDown`] at any interval.
const REVIVE: Duration = Duration::from_secs(19 * 60);

const REPAIR: Duration = Duration::from_secs(22 * 60);

/// What clears an hour after its last event has been resolved by then. `LANEWATCH_ALERTS_MINUTES` ends it sooner: such
/// faults then have no time of their end.
const END: Duration = Duration::from_secs(85 * 60);

/// A Prometheus at one interval and who it tells.
struct Site {
    scrape_interval: Duration,
    prometheus: Server,
    alertmanager: Alertmanager,
    targets: PathBuf,
    watched: Watched,
}

impl Site {
    /// None where a tool is not installed.
    fn start(scrape_interval: Duration, evaluation_interval: Duration, faults: &[(Fault, Vec<Agent>)]) -> Option<Self> {
        let alertmanager = Alertmanager::start(Waits::Shipped)?;
        let directory = TempDir::new().unwrap();
        let targets = directory.path().join("targets.json");
        write_targets(&targets, faults, "a");
        for path in ["alerts/lanewatch.rules.yml", "alerts/lanewatch.recording.yml"] {
            fs::write(directory.path().join(Path::new(path).file_name().unwrap()), text(path)).unwrap();
        }
        let config = format!(
            "global: {{scrape_interval: {0}s, scrape_timeout: 10s, evaluation_interval: {1}s}}\n\
             alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{2}']}}]}}]}}\n\
             rule_files: [lanewatch.rules.yml, lanewatch.recording.yml]\n\
             scrape_configs:\n  - job_name: lanewatch\n    file_sd_configs: [{{files: ['{3}'], refresh_interval: 5s}}]\n",
            scrape_interval.as_secs(),
            evaluation_interval.as_secs(),
            alertmanager.server.address,
            targets.display()
        );
        let prometheus = stores::prometheus(directory, &config, &[])?;
        Some(Self { scrape_interval, prometheus, alertmanager, targets, watched: Watched::default() })
    }

    fn look(&mut self, now: Duration) {
        self.watched.pages.look(&self.alertmanager.pager, now);
        self.watched.tickets.look(&self.alertmanager.tickets, now);
    }
}

/// What both receivers got.
#[derive(Default)]
struct Watched {
    pages: Inbox,
    tickets: Inbox,
}

/// Messages of a receiver, by rack.
#[derive(Default)]
struct Inbox {
    read: usize,
    messages: BTreeMap<String, Vec<Message>>,
}

struct Message {
    at: Duration,
    /// Whether any of its alerts fires.
    fires: bool,
    /// Alert, host and subject, and whether it ended.
    alerts: Vec<(String, String, bool)>,
}

impl Inbox {
    fn look(&mut self, receiver: &Toy, at: Duration) {
        let bodies = receiver.received();
        for body in bodies.iter().skip(self.read) {
            let message: Value = serde_json::from_str(body).unwrap();
            let alerts: Vec<_> = message["alerts"].as_array().unwrap().iter().collect();
            let label = |alert: &Value, name: &str| alert["labels"][name].as_str().unwrap_or_default().to_owned();
            let read = alerts.iter().map(|alert| {
                let who = format!("{} {}", label(alert, "instance"), label(alert, "subject"));
                (label(alert, "alertname"), who, alert["status"] == "resolved")
            });
            let rack = label(alerts[0], "rack");
            let fires = message["status"] == "firing";
            self.messages.entry(rack).or_default().push(Message { at, fires, alerts: read.collect() });
        }
        self.read = bodies.len();
    }

    fn of(&self, rack: &str) -> &[Message] {
        self.messages.get(rack).map_or(&[], Vec::as_slice)
    }

    /// Each alert of a rack, and when it was told to fire and to have ended, in turns.
    fn turns(&self, rack: &str) -> BTreeMap<(String, String), Vec<(bool, Duration)>> {
        let mut turns: BTreeMap<_, Vec<(bool, Duration)>> = BTreeMap::new();
        for message in self.of(rack) {
            for (alert, who, ended) in &message.alerts {
                let turns = turns.entry((alert.clone(), who.clone())).or_default();
                if turns.last().is_none_or(|last| last.0 != *ended) {
                    turns.push((*ended, message.at));
                }
            }
        }
        turns
    }
}

/// A line of the table.
struct Line {
    alerts: usize,
    messages: [usize; 2],
    told: Option<Duration>,
    ended: Option<Duration>,
    wrong: Vec<String>,
}

impl Line {
    fn of(fault: &Fault, watched: &Watched) -> Self {
        let mut line = Self { alerts: 0, messages: [0; 2], told: None, ended: None, wrong: Vec::new() };
        let mut open = false;
        for ((inbox, expected), messages) in
            [(&watched.pages, fault.pages), (&watched.tickets, fault.tickets)].into_iter().zip(&mut line.messages)
        {
            *messages = inbox.of(fault.name).iter().filter(|message| message.fires).count();
            let mut seen: BTreeMap<String, usize> = BTreeMap::new();
            for ((alert, who), turns) in inbox.turns(fault.name) {
                let wanted = expected.iter().any(|(name, _)| *name == alert);
                *seen.entry(alert.clone()).or_default() += 1;
                line.alerts += 1;
                // Fires once, and ends once.
                if !wanted || turns.len() > 2 {
                    line.wrong.push(format!("{alert} {who}: {turns:?}"));
                }
                for (ended, at) in turns.iter().copied() {
                    // An agent that was killed is back before the repair, and its fault stands until then.
                    let is_own = alert != "LanewatchDown";
                    if ended && is_own && fault.repair.is_some() && at < REPAIR {
                        line.wrong.push(format!("{alert} {who}: ended after {at:?}, before the repair"));
                    }
                    let time = if ended { &mut line.ended } else { &mut line.told };
                    if is_own {
                        *time = (*time).max(Some(at));
                    }
                }
                open |= turns.len() < 2;
            }
            for (alert, count) in expected {
                if seen.get(*alert) != Some(count) {
                    line.wrong.push(format!("{alert}: {count} expected, {:?} told", seen.get(*alert)));
                }
            }
        }
        if open {
            line.ended = None;
        }
        line
    }
}

fn minutes(time: Option<Duration>) -> String {
    time.map_or_else(String::new, |time| format!("{}m {:02}s", time.as_secs() / 60, time.as_secs() % 60))
}

fn table(site: &Site, faults: &[(Fault, Vec<Agent>)]) -> (String, Vec<String>) {
    let (mut out, mut wrong) = (String::new(), Vec::new());
    let _ = writeln!(
        out,
        "Scraped every {} s:\n\n| fault | alerts | pages | tickets | announced after | RESOLVED after | false |\n\
         |---|---|---|---|---|---|---|",
        site.scrape_interval.as_secs()
    );
    for (fault, _) in faults {
        let line = Line::of(fault, &site.watched);
        // What is not repaired ends by itself: that counts from its beginning.
        let from = if fault.repair.is_some() { REPAIR } else { Duration::ZERO };
        let ended = line.ended.map(|at| at.saturating_sub(from));
        let [pages, tickets] = line.messages;
        let (told, ended, false_ones) = (minutes(line.told), minutes(ended), line.wrong.len());
        let name = fault.name;
        let _ = writeln!(out, "| {name} | {} | {pages} | {tickets} | {told} | {ended} | {false_ones} |", line.alerts);
        wrong.extend(line.wrong.iter().map(|what| format!("{} s, {name}: {what}", site.scrape_interval.as_secs())));
    }
    (out, wrong)
}

#[test]
#[ignore = "an hour and a half: make alerts-timing"]
fn every_fault_with_the_waits_that_ship() {
    let setting = std::env::var("LANEWATCH_ALERTS_MINUTES").ok().and_then(|text| text.parse().ok());
    let end = setting.map_or(END, |minutes: u32| MINUTE * minutes);
    let start = |fault: Fault| {
        let agents = fault.hosts.iter().map(|host| Agent::start(host, "")).collect();
        (fault, agents)
    };
    let mut faults: Vec<(Fault, Vec<Agent>)> = faults().into_iter().map(start).collect();
    let all = faults.iter().map(|(_, agents)| agents.len()).sum::<usize>();
    let mut sites = Vec::new();
    for (scrape, evaluation) in [(15, 15), (120, 60)] {
        let Some(site) = Site::start(Duration::from_secs(scrape), Duration::from_secs(evaluation), &faults) else {
            return;
        };
        sites.push(site);
    }
    let patience = Instant::now() + 5 * MINUTE;
    for site in &sites {
        while query(site.prometheus.address, "lanewatch_evaluation_timestamp_seconds").len() < all {
            assert!(Instant::now() < patience, "not all of {all} agents are scraped");
            thread::sleep(Duration::from_secs(1));
        }
    }
    // Every agent has seen its host whole more than once, and the slow Prometheus has two scrapes.
    thread::sleep(2 * MINUTE);
    for (fault, agents) in &mut faults {
        (fault.breaks)(agents);
    }
    let began = Instant::now();
    println!("broken; the table in {} minutes", end.as_secs() / 60);
    let mut steps: Vec<(Duration, &str)> = vec![(COME_AND_GO, "go"), (REVIVE, "revive"), (REPAIR, "repair")];
    let mut tick = Duration::from_secs(15);
    while began.elapsed() < end {
        let now = began.elapsed();
        for site in &mut sites {
            site.look(now);
        }
        if now >= tick && now < REPAIR {
            for (fault, agents) in &mut faults {
                if let Some(goes_on) = fault.goes_on {
                    goes_on(agents);
                }
            }
            tick += Duration::from_secs(15);
        }
        if let Some((_, step)) = steps.first().copied().filter(|(at, _)| now >= *at) {
            steps.remove(0);
            match step {
                "go" => {
                    come_and_go(&mut faults);
                    for site in &sites {
                        write_targets(&site.targets, &faults, "b");
                    }
                }
                "revive" => revive(&mut faults),
                _ => {
                    for (fault, agents) in &mut faults {
                        if let Some(repair) = fault.repair {
                            repair(agents);
                        }
                    }
                }
            }
            println!("{step} at {now:?}");
        }
        thread::sleep(Duration::from_millis(500));
    }
    let mut wrong = Vec::new();
    for site in &sites {
        let (table, more) = table(site, &faults);
        println!("{table}");
        wrong.extend(more);
        wrong.extend(failed(site.prometheus.address));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

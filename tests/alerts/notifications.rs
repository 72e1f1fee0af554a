//! What on-call gets: agents on hosts that change, a real Prometheus and a real Alertmanager with what ships, and everyone
//! who is told. All faults happen at once, each in a rack of its own. Waits are cut to seconds.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::faults::{Agent, Fault, Told, come_and_go, faults, revive, wanted, write_targets};
use super::servers::{Alertmanager, Waits, failed};
use crate::common::rules::text;
use crate::common::stores;
use crate::common::tools::query;

/// The agent does without its waits: those are tested elsewhere.
const CONFIG: &str = "[policy.hold]\nport_down = \"0s\"\ndevice_missing = \"0s\"\npcie_degraded = \"0s\"\n\
    pcie_below_port_rate = \"0s\"\npcie_drifted = \"0s\"\npcie_off_bus = \"0s\"\nroce_lossy = \"0s\"\n";

/// Rules that wait seconds; an agent may be away for longer than a scrape.
fn hastened(path: &str) -> String {
    let (mut out, mut alert) = (String::new(), String::new());
    for line in text(path).lines() {
        let indent = line.len() - line.trim_start().len();
        let (key, value) = line.trim_start().split_once(": ").unwrap_or_default();
        if key == "- alert" {
            value.clone_into(&mut alert);
        }
        let seconds = match key {
            "for" if ["PortsDownTogether", "DeviceMissing", "PcieOffBus"].contains(&&*alert) => 3,
            "for" if alert.starts_with("Lanewatch") => 20,
            "for" => 9,
            "keep_firing_for" if alert == "PortsDownTogether" => 24,
            "keep_firing_for" => 12,
            "interval" => 3,
            _ => {
                let _ = writeln!(out, "{line}");
                continue;
            }
        };
        let _ = writeln!(out, "{}{key}: {seconds}s", " ".repeat(indent));
    }
    out
}

struct Play {
    faults: Vec<(Fault, Vec<Agent>)>,
    targets: std::path::PathBuf,
    alertmanager: Alertmanager,
}

impl Play {
    fn told(&self) -> (Told, Told) {
        (Told::by(&self.alertmanager.pager), Told::by(&self.alertmanager.tickets))
    }

    /// Waits until it holds for every fault; when it first held for each.
    fn until(&self, what: &str, patience: Duration, holds: impl Fn(&Fault, &Told, &Told) -> bool) -> Vec<Duration> {
        let began = Instant::now();
        let mut times = vec![None; self.faults.len()];
        loop {
            let (pages, tickets) = self.told();
            for (time, (fault, _)) in times.iter_mut().zip(&self.faults) {
                if time.is_none() && holds(fault, &pages, &tickets) {
                    *time = Some(began.elapsed());
                }
            }
            if times.iter().all(Option::is_some) {
                return times.into_iter().flatten().collect();
            }
            let missing = times.iter().zip(&self.faults).filter(|(time, _)| time.is_none());
            let missing: Vec<&str> = missing.map(|(_, (fault, _))| fault.name).collect();
            assert!(began.elapsed() < patience, "not {what}: {missing:?}\npages {pages:#?}\ntickets {tickets:#?}");
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// Nobody was told of anything else.
    fn exactly(&self, when: &str, with_down: bool) {
        let (pages, tickets) = self.told();
        for (fault, _) in &self.faults {
            assert_eq!(Told::of(&pages.fired, fault.name), wanted(fault.pages), "pages, {}, {when}", fault.name);
            let expected: Vec<_> =
                wanted(fault.tickets).into_iter().filter(|(alert, _)| with_down || alert != "LanewatchDown").collect();
            assert_eq!(Told::of(&tickets.fired, fault.name), expected, "tickets, {}, {when}", fault.name);
        }
    }
}

const SCRAPE_INTERVAL: Duration = Duration::from_secs(3);

const PATIENCE: Duration = Duration::from_secs(150);

/// Time for what should not come.
const QUIET: Duration = Duration::from_secs(15);

#[test]
fn every_fault_is_told_once_and_nothing_else_is() {
    let Some(alertmanager) = Alertmanager::start(Waits::Cut(SCRAPE_INTERVAL)) else { return };
    let directory = TempDir::new().unwrap();
    let targets = directory.path().join("targets.json");
    let start = |fault: Fault| {
        let agents = fault.hosts.iter().map(|host| Agent::start(host, CONFIG)).collect();
        (fault, agents)
    };
    let mut play = Play { faults: faults().into_iter().map(start).collect(), targets, alertmanager };
    write_targets(&play.targets, &play.faults, "a");
    let config = format!(
        "global: {{scrape_interval: {0}s, scrape_timeout: {0}s, evaluation_interval: {0}s}}\n\
         alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{1}']}}]}}]}}\n\
         rule_files: [lanewatch.rules.yml, lanewatch.recording.yml]\n\
         scrape_configs:\n  - job_name: lanewatch\n    file_sd_configs: [{{files: ['{2}'], refresh_interval: 1s}}]\n",
        SCRAPE_INTERVAL.as_secs(),
        play.alertmanager.server.address,
        play.targets.display()
    );
    for path in ["alerts/lanewatch.rules.yml", "alerts/lanewatch.recording.yml"] {
        fs::write(directory.path().join(Path::new(path).file_name().unwrap()), hastened(path)).unwrap();
    }
    let Some(prometheus) = stores::prometheus(directory, &config, &[]) else { return };
    let all = play.faults.iter().map(|(_, agents)| agents.len()).sum::<usize>();
    let end = Instant::now() + PATIENCE;
    while query(prometheus.address, "lanewatch_evaluation_timestamp_seconds").len() < all {
        assert!(Instant::now() < end, "not all of {all} agents are scraped");
        thread::sleep(Duration::from_millis(300));
    }
    thread::sleep(QUIET);
    let (pages, tickets) = play.told();
    assert_eq!((pages, tickets), Default::default(), "before anything happens");

    // Everything at once.
    for (fault, agents) in &mut play.faults {
        (fault.breaks)(agents);
    }
    let is_told = |fault: &Fault, pages: &Told, tickets: &Told| {
        let tickets = Told::of(&tickets.fired, fault.name);
        Told::of(&pages.fired, fault.name) == wanted(fault.pages)
            && wanted(fault.tickets).iter().all(|want| want.0 == "LanewatchDown" || tickets.contains(want))
    };
    let told = play.until("told", PATIENCE, is_told);
    thread::sleep(QUIET);
    play.exactly("while the faults stand", false);

    // Agents, pods and hosts come and go; the faults stand.
    come_and_go(&mut play.faults);
    write_targets(&play.targets, &play.faults, "b");
    play.until("told that the agent is down", PATIENCE, |fault, _, tickets| {
        wanted(fault.tickets).iter().all(|want| Told::of(&tickets.fired, fault.name).contains(want))
    });
    thread::sleep(QUIET);
    let (pages, _) = play.told();
    assert_eq!(pages.ended, BTreeMap::new(), "no fault has ended");
    play.exactly("after agents came and went", true);
    revive(&mut play.faults);
    thread::sleep(QUIET);

    // And back.
    for (fault, agents) in &mut play.faults {
        if let Some(repair) = fault.repair {
            repair(agents);
        }
    }
    let ended = play.until("told of the end", PATIENCE, |fault, pages, _| {
        fault.repair.is_none() || Told::of(&pages.ended, fault.name) == wanted(fault.pages)
    });
    thread::sleep(2 * QUIET);
    play.exactly("after all is repaired", true);
    assert_eq!(failed(prometheus.address), Vec::<String>::new());

    println!("| fault | pages | tickets | told after | resolved after |\n|---|---|---|---|---|");
    for (((fault, _), told), ended) in play.faults.iter().zip(told).zip(ended) {
        let count = |list: &[(&str, usize)]| list.iter().map(|(_, count)| count).sum::<usize>();
        let (pages, tickets) = (count(fault.pages), count(fault.tickets));
        let (told, ended) = (if pages + tickets > 0 { format!("{} s", told.as_secs()) } else { String::new() }, ended);
        let ended = if pages > 0 { format!("{} s", ended.as_secs()) } else { String::new() };
        println!("| {} | {pages} | {tickets} | {told} | {ended} |", fault.name);
    }
}

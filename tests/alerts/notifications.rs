//! What on-call gets: agents on hosts that change, a real Prometheus and a real Alertmanager with what ships, and everyone
//! who is told. All faults happen at once, each in a rack of its own. Waits are cut to seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::servers::{Alertmanager, failed, put};
use crate::common::host::{Card, Device, GEN3, GEN4, HostTree, Layer};
use crate::common::rules::text;
use crate::common::run::{Server, free_address, program};
use crate::common::stores;
use crate::common::tools::query;
use crate::common::toy::Toy;

/// The agent does without its waits: those are tested elsewhere.
const CONFIG: &str = "[policy.hold]\nport_down = \"0s\"\ndevice_missing = \"0s\"\npcie_degraded = \"0s\"\n\
    pcie_below_port_rate = \"0s\"\npcie_drifted = \"0s\"\npcie_off_bus = \"0s\"\nroce_lossy = \"0s\"\n";

/// An agent that can be stopped and started at its address.
struct Agent {
    root: TempDir,
    devices: Vec<Device>,
    address: SocketAddr,
    server: Option<Server>,
}

impl Agent {
    fn start(host: &HostTree) -> Self {
        let root = TempDir::new().unwrap();
        host.write(root.path()).unwrap();
        fs::write(root.path().join("lanewatch.toml"), CONFIG).unwrap();
        let mut agent = Self { root, devices: host.devices(), address: free_address(), server: None };
        agent.run();
        agent
    }

    fn run(&mut self) {
        let mut command = program();
        command.arg("serve").arg("--path.rootfs").arg(self.root.path());
        command.arg("--config.file").arg(self.root.path().join("lanewatch.toml"));
        command.arg("--storage.path").arg(self.root.path().join("state"));
        command.arg("--web.listen-address").arg(self.address.to_string());
        self.server = Some(Server::spawn(command, self.address, TempDir::new().unwrap(), "/-/ready"));
    }

    fn stop(&mut self) {
        self.server = None;
    }

    fn port(&self, device: usize, file: &str, line: &str) {
        put(self.root.path(), &self.devices[device].port.join(file), line);
    }

    fn down(&self, device: usize) {
        self.port(device, "state", "1: DOWN");
        self.port(device, "phys_state", "2: Polling");
    }

    fn up(&self, device: usize) {
        self.port(device, "state", "4: ACTIVE");
        self.port(device, "phys_state", "5: LinkUp");
    }

    fn train(&self, device: usize, speed: &str, width: u8) {
        for end in [&self.devices[device].function, &self.devices[device].above] {
            put(self.root.path(), &end.join("current_link_speed"), speed);
            put(self.root.path(), &end.join("current_link_width"), &width.to_string());
        }
    }

    fn class(&self, device: usize) -> std::path::PathBuf {
        self.root.path().join("sys/class/infiniband").join(&self.devices[device].name)
    }
}

type Step = fn(&mut [Agent]);

/// A fault: its hosts, how it comes and goes, and who must be told of what, by alert and how many of them.
struct Fault {
    name: &'static str,
    hosts: Vec<HostTree>,
    breaks: Step,
    /// None for what does not clear within a test.
    repair: Option<Step>,
    pages: &'static [(&'static str, usize)],
    tickets: &'static [(&'static str, usize)],
}

fn plain() -> HostTree {
    HostTree::new(2)
}

fn with(card: Card) -> HostTree {
    let mut host = HostTree::new(2);
    host.cards[0] = card;
    host
}

fn nothing(_: &mut [Agent]) {}

fn fault(
    name: &'static str,
    host: HostTree,
    breaks: Step,
    repair: Option<Step>,
    pages: &'static [(&'static str, usize)],
    tickets: &'static [(&'static str, usize)],
) -> Fault {
    Fault { name, hosts: vec![host], breaks, repair, pages, tickets }
}

fn faults() -> Vec<Fault> {
    let link = &[("PcieLinkDegraded", 1)];
    let down = &[("PortDown", 1)];
    let whole: Step = |a| a[0].train(0, GEN4, 16);
    vec![
        fault("one degraded link", plain(), |a| a[0].train(0, GEN3, 8), Some(whole), link, &[]),
        fault(
            "two degraded links of a host",
            plain(),
            |a| (0..2).for_each(|device| a[0].train(device, GEN3, 8)),
            Some(|a| (0..2).for_each(|device| a[0].train(device, GEN4, 16))),
            &[("PcieLinkDegraded", 2)],
            &[],
        ),
        fault("speed only", plain(), |a| a[0].train(0, GEN3, 16), Some(whole), &[("PciePathBelowPortRate", 1)], &[]),
        fault(
            "dual-port card",
            with(Card { functions: 2, ..Card::default() }),
            |a| a[0].train(0, GEN3, 8),
            Some(whole),
            link,
            &[],
        ),
        fault("port down", plain(), |a| a[0].down(0), Some(|a| a[0].up(0)), down, &[]),
        Fault {
            name: "rack down and back",
            hosts: vec![plain(), plain(), plain(), plain()],
            breaks: |a| a.iter().for_each(|agent| (0..2).for_each(|device| agent.down(device))),
            repair: Some(|a| a.iter().for_each(|agent| (0..2).for_each(|device| agent.up(device)))),
            pages: &[("PortsDownTogether", 1)],
            tickets: &[],
        },
        fault(
            "device removed",
            plain(),
            |a| fs::rename(a[0].class(0), a[0].root.path().join("away")).unwrap(),
            Some(|a| fs::rename(a[0].root.path().join("away"), a[0].class(0)).unwrap()),
            &[("DeviceMissing", 1)],
            &[],
        ),
        fault(
            "off the bus",
            plain(),
            |a| {
                a[0].train(0, "Unknown", 63);
                put(a[0].root.path(), &a[0].devices[0].above.join("current_link_width"), "0");
            },
            Some(whole),
            &[("PcieOffBus", 1)],
            &[],
        ),
        fault("errors", plain(), |a| a[0].port(0, "counters/symbol_error", "900000"), None, &[], &[("PortErrors", 1)]),
        fault(
            "AER",
            plain(),
            |a| {
                let file = a[0].devices[0].function.join("aer_dev_nonfatal");
                let path = a[0].root.path().join(&file);
                let text = fs::read_to_string(&path).unwrap();
                let text =
                    text.replace("CmpltTO 0", "CmpltTO 3").replace("TOTAL_ERR_NONFATAL 0", "TOTAL_ERR_NONFATAL 3");
                put(a[0].root.path(), &file, text.trim_end());
            },
            None,
            &[],
            &[("PcieAer", 1)],
        ),
        fault(
            "RoCE loses packets",
            with(Card { layer: Layer::Ethernet, ..Card::default() }),
            |a| a[0].port(0, "hw_counters/out_of_sequence", "90000000"),
            None,
            &[],
            &[("RoceLossy", 1)],
        ),
        fault(
            "agent killed with a fault standing",
            plain(),
            |a| a[0].down(0),
            Some(|a| a[0].up(0)),
            down,
            &[("LanewatchDown", 1)],
        ),
        fault("pod restarted with a fault standing", plain(), |a| a[0].down(0), Some(|a| a[0].up(0)), down, &[]),
        fault("host rebooted", plain(), nothing, Some(nothing), &[], &[]),
        fault("agent upgraded", plain(), nothing, Some(nothing), &[], &[]),
        fault("idle pool of 32 VFs", with(Card { vfs: 32, ..Card::default() }), nothing, Some(nothing), &[], &[]),
    ]
}

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

/// Who was told what: by rack and alert, how many of them fire and ever fired, and how many ended.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Told {
    fired: BTreeMap<(String, String), BTreeSet<String>>,
    ended: BTreeMap<(String, String), BTreeSet<String>>,
}

impl Told {
    fn by(receiver: &Toy) -> Self {
        let mut told = Self::default();
        for body in receiver.received() {
            let message: Value = serde_json::from_str(&body).unwrap();
            for alert in message["alerts"].as_array().unwrap() {
                let label = |name: &str| alert["labels"][name].as_str().unwrap_or_default().to_owned();
                let key = (label("rack"), label("alertname"));
                let which = if alert["status"] == "resolved" { &mut told.ended } else { &mut told.fired };
                which.entry(key).or_default().insert(format!("{} {}", label("instance"), label("subject")));
            }
        }
        told
    }

    /// Alerts of a rack and how many subjects each had.
    fn of(which: &BTreeMap<(String, String), BTreeSet<String>>, rack: &str) -> Vec<(String, usize)> {
        which.iter().filter(|((at, _), _)| at == rack).map(|((_, alert), who)| (alert.clone(), who.len())).collect()
    }
}

fn wanted(list: &[(&str, usize)]) -> Vec<(String, usize)> {
    list.iter().map(|(alert, count)| ((*alert).to_owned(), *count)).collect()
}

struct Play {
    faults: Vec<(Fault, Vec<Agent>)>,
    targets: std::path::PathBuf,
    alertmanager: Alertmanager,
}

impl Play {
    fn write_targets(&self, pod: &str) {
        let groups = self.faults.iter().map(|(fault, agents)| {
            let targets: Vec<String> = agents.iter().map(|agent| agent.address.to_string()).collect();
            json!({ "targets": targets, "labels": { "site": "s1", "rack": fault.name, "pod": pod } })
        });
        let new = self.targets.with_extension("new");
        fs::write(&new, json!(groups.collect::<Vec<_>>()).to_string()).unwrap();
        fs::rename(new, &self.targets).unwrap();
    }

    fn told(&self) -> (Told, Told) {
        (Told::by(&self.alertmanager.pager), Told::by(&self.alertmanager.tickets))
    }

    fn agents(&mut self, name: &str) -> &mut Vec<Agent> {
        &mut self.faults.iter_mut().find(|(fault, _)| fault.name == name).unwrap().1
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
    let Some(alertmanager) = Alertmanager::start(SCRAPE_INTERVAL) else { return };
    let directory = TempDir::new().unwrap();
    let targets = directory.path().join("targets.json");
    let start = |fault: Fault| {
        let agents = fault.hosts.iter().map(Agent::start).collect();
        (fault, agents)
    };
    let mut play = Play { faults: faults().into_iter().map(start).collect(), targets, alertmanager };
    play.write_targets("a");
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
    play.agents("agent killed with a fault standing")[0].stop();
    for name in ["pod restarted with a fault standing", "agent upgraded", "host rebooted"] {
        let agent = &mut play.agents(name)[0];
        agent.stop();
        if name == "host rebooted" {
            put(agent.root.path(), Path::new("proc/sys/kernel/random/boot_id"), "0b1c2a54-7d0e-4c3b-9a57-0d4bb8e1f209");
            put(agent.root.path(), Path::new("proc/uptime"), "12.00 1.00");
        }
        agent.run();
    }
    play.write_targets("b");
    play.until("told that the agent is down", PATIENCE, |fault, _, tickets| {
        wanted(fault.tickets).iter().all(|want| Told::of(&tickets.fired, fault.name).contains(want))
    });
    thread::sleep(QUIET);
    let (pages, _) = play.told();
    assert_eq!(pages.ended, BTreeMap::new(), "no fault has ended");
    play.exactly("after agents came and went", true);
    play.agents("agent killed with a fault standing")[0].run();
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

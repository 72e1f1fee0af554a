//! Hosts that break, and what on-call must be told of each: agents that are stopped and started, links, ports, counters
//! and devices that change below them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::servers::put;
use crate::common::host::{Card, Device, GEN3, GEN4, HostTree, Layer};
use crate::common::run::{Server, free_address, program};
use crate::common::toy::Toy;

/// An agent that can be stopped and started at its address.
pub(super) struct Agent {
    pub(super) root: TempDir,
    devices: Vec<Device>,
    pub(super) address: SocketAddr,
    server: Option<Server>,
}

impl Agent {
    /// One of this host, with this configuration.
    pub(super) fn start(host: &HostTree, config: &str) -> Self {
        let root = TempDir::new().unwrap();
        host.write(root.path()).unwrap();
        fs::write(root.path().join("lanewatch.toml"), config).unwrap();
        let mut agent = Self { root, devices: host.devices(), address: free_address(), server: None };
        agent.run();
        agent
    }

    pub(super) fn run(&mut self) {
        let mut command = program();
        command.arg("serve").arg("--path.rootfs").arg(self.root.path());
        command.arg("--config.file").arg(self.root.path().join("lanewatch.toml"));
        command.arg("--storage.path").arg(self.root.path().join("state"));
        command.arg("--web.listen-address").arg(self.address.to_string());
        self.server = Some(Server::spawn(command, self.address, TempDir::new().unwrap(), "/-/ready"));
    }

    pub(super) fn stop(&mut self) {
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

    fn lose_packets(&self, device: usize) {
        let file = self.devices[device].port.join("hw_counters/out_of_sequence");
        let lost: u64 = fs::read_to_string(self.root.path().join(&file)).unwrap().trim().parse().unwrap();
        put(self.root.path(), &file, &(lost + 90_000_000).to_string());
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

pub(super) type Step = fn(&mut [Agent]);

/// A fault: its hosts, how it comes and goes, and who must be told of what, by alert and how many of them.
pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) hosts: Vec<HostTree>,
    pub(super) breaks: Step,
    /// What goes on happening while the fault stands, every fifteen seconds.
    pub(super) goes_on: Option<Step>,
    /// None for what does not clear within a test.
    pub(super) repair: Option<Step>,
    pub(super) pages: &'static [(&'static str, usize)],
    pub(super) tickets: &'static [(&'static str, usize)],
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
    Fault { name, hosts: vec![host], breaks, goes_on: None, repair, pages, tickets }
}

pub(super) fn faults() -> Vec<Fault> {
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
            goes_on: None,
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
        Fault {
            goes_on: Some(|a| a[0].lose_packets(0)),
            ..fault(
                "RoCE loses packets",
                with(Card { layer: Layer::Ethernet, ..Card::default() }),
                |a| a[0].lose_packets(0),
                None,
                &[],
                &[("RoceLossy", 1)],
            )
        },
        fault(KILLED, plain(), |a| a[0].down(0), Some(|a| a[0].up(0)), down, &[("LanewatchDown", 1)]),
        fault("pod restarted with a fault standing", plain(), |a| a[0].down(0), Some(|a| a[0].up(0)), down, &[]),
        fault("host rebooted", plain(), nothing, Some(nothing), &[], &[]),
        fault("agent upgraded", plain(), nothing, Some(nothing), &[], &[]),
        fault("idle pool of 32 VFs", with(Card { vfs: 32, ..Card::default() }), nothing, Some(nothing), &[], &[]),
    ]
}

/// Who was told what: by rack and alert, how many of them fire and ever fired, and how many ended.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) fired: BTreeMap<(String, String), BTreeSet<String>>,
    pub(super) ended: BTreeMap<(String, String), BTreeSet<String>>,
}

impl Told {
    pub(super) fn by(receiver: &Toy) -> Self {
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
    pub(super) fn of(which: &BTreeMap<(String, String), BTreeSet<String>>, rack: &str) -> Vec<(String, usize)> {
        which.iter().filter(|((at, _), _)| at == rack).map(|((_, alert), who)| (alert.clone(), who.len())).collect()
    }
}

pub(super) fn wanted(list: &[(&str, usize)]) -> Vec<(String, usize)> {
    list.iter().map(|(alert, count)| ((*alert).to_owned(), *count)).collect()
}

/// The agents as targets, for Prometheus to read from this file; each fault is a rack.
pub(super) fn write_targets(file: &Path, faults: &[(Fault, Vec<Agent>)], pod: &str) {
    let groups = faults.iter().map(|(fault, agents)| {
        let targets: Vec<String> = agents.iter().map(|agent| agent.address.to_string()).collect();
        json!({ "targets": targets, "labels": { "site": "s1", "rack": fault.name, "pod": pod } })
    });
    let new = file.with_extension("new");
    fs::write(&new, json!(groups.collect::<Vec<_>>()).to_string()).unwrap();
    fs::rename(new, file).unwrap();
}

/// Agents, pods and hosts come and go; their faults stand.
pub(super) fn come_and_go(faults: &mut [(Fault, Vec<Agent>)]) {
    for (fault, agents) in faults {
        let agent = &mut agents[0];
        match fault.name {
            KILLED => agent.stop(),
            "pod restarted with a fault standing" | "agent upgraded" => {
                agent.stop();
                agent.run();
            }
            "host rebooted" => {
                agent.stop();
                let (boot, up) = (Path::new("proc/sys/kernel/random/boot_id"), Path::new("proc/uptime"));
                put(agent.root.path(), boot, "0b1c2a54-7d0e-4c3b-9a57-0d4bb8e1f209");
                put(agent.root.path(), up, "12.00 1.00");
                agent.run();
            }
            _ => {}
        }
    }
}

/// Starts the agent again that [`come_and_go`] has killed.
pub(super) fn revive(faults: &mut [(Fault, Vec<Agent>)]) {
    for (_, agents) in faults.iter_mut().filter(|(fault, _)| fault.name == KILLED) {
        agents[0].run();
    }
}

const KILLED: &str = "agent killed with a fault standing";

//! Interrupts, kernel messages and posture: every fault at every path that these collectors read of a host.
//!
//! What a fault may change follows from who asks for its path: what that collector says, of the function or vector that
//! the path belongs to. Files that say something only if they can be read count no error, so what is held here is
//! that no other error is counted, no other sample changes, and nothing stays behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use lanewatch::model::reading::ReadError;

use super::bench::Bench;
use super::common::faulty::{Faulty, Op};
use super::common::host::{Card, HostTree, Layer};
use super::derived::Rule;
use super::table::{self, Kind};
use super::{AGAIN, FIRST, clean, share_out, unexpected};

const OWN: [&str; 3] = ["irq", "kmsg", "posture"];
const COLLECTORS: [&str; 5] = ["rdma", "numa", "irq", "kmsg", "posture"];

/// Two cards; the vectors of one are listed, those of the other go by their names, and one of each is far away.
fn host() -> (Arc<Faulty>, Vec<String>) {
    let mut host = HostTree::new(2);
    host.cards[1] = Card { layer: Layer::Ethernet, ..host.cards[1].clone() };
    let devices = host.devices();
    let addresses: Vec<String> = devices.iter().map(|device| device.address.clone()).collect();
    let mut tree = host.tree();
    let mut interrupts = String::from("CPU0 CPU1 CPU2 CPU3 CPU4 CPU5 CPU6 CPU7\n");
    for (card, device) in devices.iter().enumerate() {
        tree.remove(device.function.join("msi_irqs"));
        for vector in 0..4 {
            let irq = 40 + card * 10 + vector;
            if card == 0 {
                tree.line(device.function.join(format!("msi_irqs/{irq}")), "msix");
            }
            let cpu = if vector == 3 { (card * 4 + 4) % 8 } else { card * 4 + vector };
            let counts: Vec<String> = (0..8).map(|other| if other == cpu { "9000" } else { "0" }.to_owned()).collect();
            let address = &addresses[card];
            let _ = writeln!(
                interrupts,
                "{irq}: {} PCI-MSIX-{address} {vector}-edge mlx5_comp{vector}@pci:{address}",
                counts.join(" ")
            );
            tree.line(format!("proc/irq/{irq}/effective_affinity_list"), cpu);
            tree.line(format!("proc/irq/{irq}/smp_affinity_list"), cpu);
            tree.line(format!("proc/irq/{irq}/affinity_hint"), format!("{:08x}", 1 << cpu));
        }
        let group = format!("sys/kernel/iommu_groups/{}", 17 + card);
        tree.line(Path::new(&group).join("type"), "DMA-FQ");
        tree.link_to(device.function.join("iommu_group"), &group);
        tree.line(device.function.join("ari_enabled"), 0);
    }
    tree.file("proc/interrupts", interrupts);
    tree.line("proc/77/comm", "irqbalance");
    tree.line("sys/devices/system/cpu/offline", "");
    tree.line("sys/devices/system/cpu/isolated", "7");
    let line = |number: u32, second: u32, text: &str| {
        format!("4,{number},{second}000000,-;mlx5_core {}: {text}\n SUBSYSTEM=pci\n", addresses[0])
    };
    let log = [
        line(0, 1_234_000, "Port module event: module 0, Cable unplugged"),
        line(1, 1_234_500, "device's health compromised - reached miss count"),
    ];
    tree.file("kmsg", log.concat());
    tree.line("proc/cmdline", "quiet intel_iommu=on isolcpus=7");
    tree.line("proc/cpuinfo", "flags\t\t: fpu vme");
    tree.line("proc/sys/kernel/numa_balancing", 1);
    tree.line("sys/class/dmi/id/sys_vendor", "Maker");
    tree.line("sys/class/dmi/id/product_name", "Product");
    for policy in 0..2 {
        tree.line(format!("sys/devices/system/cpu/cpufreq/policy{policy}/scaling_governor"), "powersave");
    }
    tree.line("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", 64);
    tree.line("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", 32);
    tree.line("sys/module/mlx5_core/version", "24.10");
    (Faulty::new(&tree), addresses)
}

/// What may change when a path cannot be read, by the collectors that ask for it.
fn rules(path: &Path, askers: &BTreeSet<&'static str>, addresses: &[String]) -> Vec<Rule> {
    let text = path.to_str().unwrap();
    if askers.contains("rdma") {
        // Which devices there are, and what is known of each: the sweep over ports has that.
        return vec![Rule::new(&["lanewatch_*"], [])];
    }
    let of_card = |card: usize| -> &[String] { &addresses[card..=card] };
    let concerned = match text.strip_prefix("/proc/irq/").and_then(|rest| rest.split('/').next()?.parse::<usize>().ok())
    {
        Some(irq) => of_card((irq - 40) / 10),
        None => addresses.iter().position(|address| text.contains(address.as_str())).map_or(addresses, of_card),
    };
    let mut rules = Vec::new();
    let judged = |rules: &mut Vec<Rule>, checks: &[&str]| {
        for check in checks {
            let families = &["lanewatch_finding", "lanewatch_pending_finding", "lanewatch_check_subjects"];
            rules.push(Rule::new(families, [("check", *check)]));
        }
    };
    if askers.contains("irq") {
        for address in concerned {
            rules.push(Rule::new(&["lanewatch_irq_*"], [("pci_address", address.as_str())]));
        }
        judged(&mut rules, &["irq_remote", "irq_piled_up", "irq_drifted"]);
    }
    if askers.contains("kmsg") {
        rules.push(Rule::new(&["lanewatch_kernel_messages_*"], []));
        judged(&mut rules, &["kernel_message"]);
    }
    if askers.contains("posture") {
        rules.push(Rule::new(&["lanewatch_host_info", "lanewatch_host_posture_info"], []));
        for address in concerned {
            rules.push(Rule::new(&["lanewatch_pcie_isolation_info"], [("pci_address", address.as_str())]));
        }
        judged(&mut rules, &["host_posture"]);
    }
    if askers.contains("numa") {
        judged(&mut rules, &["irq_remote", "irq_piled_up", "irq_drifted", "host_posture"]);
        rules.push(Rule::new(&["lanewatch_irq_*"], []));
    }
    rules.extend(OWN.map(Rule::of_collector));
    rules.extend(askers.iter().map(|collector| Rule::of_sight(collector)));
    rules
}

/// Reasons that a fault may be counted with.
fn reasons(kind: Kind, fault: &str) -> BTreeSet<ReadError> {
    // A file that may say anything counts nothing, and what is no link is a directory of its own.
    [kind, Kind::Closed].into_iter().filter_map(|kind| table::reason(kind, fault)).collect()
}

#[test]
fn a_fault_at_interrupts_messages_or_posture_costs_only_itself() {
    let counted: std::sync::Mutex<BTreeMap<&'static str, u64>> = std::sync::Mutex::default();
    share_out(|worker| {
        let (io, addresses) = host();
        let bench = Bench::of(io, &COLLECTORS);
        let clean = clean(&bench);
        let rules_of_log = rules(Path::new("/kmsg"), &BTreeSet::from(["kmsg"]), &addresses);
        let (mut tried, mut wrong) = (0, Vec::new());
        let asked_by_own = |path: &Path| bench.who_asks(path, &Op::ALL).keys().any(|name| OWN.contains(name));
        let paths = super::paths(&bench).filter(|(path, _)| asked_by_own(path)).collect::<Vec<_>>();
        assert!(paths.len() > 60, "{} paths", paths.len());
        for (path, kind) in paths.into_iter().skip(worker).step_by(super::WORKERS) {
            let askers: BTreeSet<&'static str> = bench.who_asks(&path, &Op::ALL).into_keys().collect();
            let rules = rules(&path, &askers, &addresses);
            let allowed = |sample: &super::Sample| rules.iter().any(|rule| rule.names(sample));
            for (name, fault) in table::faults(kind) {
                tried += 1;
                bench.io.spoil(&path, &fault);
                let mut trial = bench.trial(Some(&path));
                let spoilt = trial.read(FIRST);
                bench.io.mend(&path);
                let mut found = unexpected(&trial.say(&spoilt), &clean[0], allowed);
                let may = reasons(kind, name);
                for ((collector, reason), times) in &spoilt.errors {
                    *counted.lock().unwrap().entry(collector).or_default() += times;
                    if !may.contains(reason) || !askers.contains(collector) {
                        found.push(format!("counted {collector} {reason:?}"));
                    }
                }
                let mended = trial.read(AGAIN);
                // Messages grow old, and those that come late are new: the timelines have them.
                let log = |sample: &super::Sample| rules_of_log.iter().any(|rule| rule.names(sample));
                found.extend(
                    unexpected(&trial.say(&mended), &clean[1], log)
                        .into_iter()
                        .map(|line| format!("afterwards: {line}")),
                );
                if !mended.errors.is_empty() {
                    found.push(format!("afterwards: counted {:?}", mended.errors));
                }
                if !found.is_empty() {
                    wrong.push(format!("{name} at {}:\n  {}", path.display(), found.join("\n  ")));
                }
            }
        }
        (wrong, tried)
    });
    let counted = counted.into_inner().unwrap();
    for collector in OWN {
        assert!(counted.get(collector).is_some_and(|count| *count > 10), "{counted:?}");
    }
}

//! How many series an agent has, that a link which retrains makes no new ones, and what a textfile may hold.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use common::exposition::{Sample, parse};
use common::host::{Card, Device, GEN3, GEN4, GEN5, HostTree, Layer};
use common::run::{Server, lanewatch};
use common::tree::Tree;
use tempfile::TempDir;

/// The most series of a host with one port and nothing wrong.
const BUDGET: usize = 250;

/// What this host shows only to a live agent is added by hand: 7 kinds of RDMA resources, 5 health reporters with 3
/// series each.
const LIVE: usize = 7 + 15;

/// A host as Linux shows it, with a kernel log and with the interrupts of its functions.
fn tree(host: &HostTree) -> Tree {
    let mut tree = host.tree();
    let cpus = host.nodes * 4;
    let heads: Vec<String> = (0..cpus).map(|cpu| format!("CPU{cpu:<8}")).collect();
    let mut table = format!("{}{}\n", " ".repeat(8), heads.concat());
    for (index, device) in host.devices().iter().enumerate() {
        for vector in 0..4 {
            let irq = 100 + index * 10 + vector;
            tree.line(device.function.join(format!("msi_irqs/{irq}")), "msix");
            let cpu = (index * 4 + vector) % cpus;
            let counts: Vec<&str> = (0..cpus).map(|at| if at == cpu { "5000" } else { "0" }).collect();
            let (counts, address) = (counts.join(" "), &device.address);
            let _ = writeln!(table, "{irq:>4}: {counts} IR-PCI-MSI {irq}-edge mlx5_comp{vector}@pci:{address}");
            tree.line(format!("proc/irq/{irq}/effective_affinity_list"), cpu);
            tree.line(format!("proc/irq/{irq}/smp_affinity_list"), cpu);
        }
    }
    tree.file("proc/interrupts", table);
    tree.file("kmsg", "6,1,1000,-;Linux version 6.1.0\n");
    tree
}

fn metrics(host: &HostTree) -> Vec<Sample> {
    let root = TempDir::new().unwrap();
    tree(host).write(root.path()).unwrap();
    let output = lanewatch(&["metrics", "--path.rootfs", root.path().to_str().unwrap()]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let mut samples = parse(&output.stdout).unwrap();
    // The machine that runs the tests may be busy.
    samples.retain(|sample| sample.name != "lanewatch_collector_wait_seconds");
    samples
}

/// Families with the most series, for the message of a test that fails.
fn largest(samples: &[Sample]) -> String {
    let names: BTreeSet<&str> = samples.iter().map(|sample| sample.name.as_str()).collect();
    let count = |name: &str| samples.iter().filter(|sample| sample.name == name).count();
    let mut families: Vec<_> = names.into_iter().map(|name| (count(name), name)).collect();
    families.sort_unstable_by(|a, b| b.cmp(a));
    families.iter().map(|(count, name)| format!("{count:>5} {name}")).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_host_with_one_port_and_nothing_wrong_stays_within_its_budget() {
    for layer in [Layer::InfiniBand, Layer::Ethernet] {
        let mut host = HostTree::new(1);
        host.cards[0].layer = layer;
        let samples = metrics(&host);
        assert!(samples.iter().any(|sample| sample.name == "lanewatch_irq_interrupts_total"), "{}", largest(&samples));
        assert!(samples.len() + LIVE <= BUDGET, "{} series\n{}", samples.len(), largest(&samples));
    }
}

/// Eight cards cost eight times a port and not more, and a VF no more than nine series.
#[test]
fn cards_and_vfs_cost_what_the_documents_say() {
    let one = metrics(&HostTree::new(1)).len();
    let cards = HostTree::new(8);
    let eight = metrics(&cards);
    assert!(eight.len() - one <= 7 * 105, "{one} {}\n{}", eight.len(), largest(&eight));
    let mut vfs = cards;
    for card in &mut vfs.cards {
        *card = Card { vfs: 32, ..card.clone() };
    }
    let many = metrics(&vfs);
    println!("series: {one} with one port, {} with eight cards, {} with 256 VFs", eight.len(), many.len());
    assert!(many.len() - eight.len() <= 256 * 9, "{}\n{}", many.len(), largest(&many));
}

fn train(root: &Path, device: &Device, speed: &str, width: u8) {
    for end in [&device.function, &device.above] {
        fs::write(root.join(end).join("current_link_speed"), format!("{speed}\n")).unwrap();
        fs::write(root.join(end).join("current_link_width"), format!("{width}\n")).unwrap();
    }
}

fn series(server: &Server) -> BTreeSet<String> {
    let text = server.get("/metrics").text();
    let names = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap().0);
    // A finding comes and goes, and with it its subject's result: that is what they are for.
    let mut changes = vec!["lanewatch_finding{", "lanewatch_pending_finding{", "lanewatch_check_subjects{"];
    // So do waits, on a busy machine.
    changes.push("lanewatch_collector_wait_seconds{");
    names.filter(|name| !changes.iter().any(|family| name.starts_with(family))).map(str::to_owned).collect()
}

/// The link of a dual-port card behind a switch retrains a hundred times, and its first port changes its rate each time.
#[test]
fn a_hundred_retrains_make_no_new_series() {
    let root = TempDir::new().unwrap();
    let mut host = HostTree::new(2);
    (host.cards[1].functions, host.cards[1].switch) = (2, true);
    tree(&host).write(root.path()).unwrap();
    let server = Server::start("serve", &["--path.rootfs", root.path().to_str().unwrap()]);
    let before = series(&server);
    assert!(before.iter().any(|name| name.starts_with("lanewatch_port_info{")), "{before:#?}");
    let devices = host.devices();
    let links = [(GEN3, 8), (GEN4, 4), (GEN3, 16), (GEN4, 16), (GEN5, 2)];
    let rates = ["100 Gb/sec (4X EDR)", "50 Gb/sec (1X HDR)", "100 Gb/sec (2X HDR)", "200 Gb/sec (4X HDR)"];
    for round in 0..100 {
        let (speed, width) = links[round % links.len()];
        train(root.path(), &devices[1], speed, width);
        fs::write(root.path().join(&devices[1].port).join("rate"), format!("{}\n", rates[round % rates.len()]))
            .unwrap();
        let now = series(&server);
        let new: Vec<_> = now.difference(&before).collect();
        assert!(new.is_empty(), "retrain {round} to {speed} x{width}: {new:#?}");
        let gone: Vec<_> = before.difference(&now).collect();
        assert!(gone.is_empty(), "retrain {round} to {speed} x{width}: {gone:#?} ended");
    }
}

/// Every function of a card finds the links of its path by their address.
#[test]
fn links_join_with_the_second_function_of_a_card() {
    let mut host = HostTree::new(1);
    (host.cards[0].functions, host.cards[0].switch) = (2, true);
    let samples = metrics(&host);
    for device in ["mlx5_0", "mlx5_1"] {
        let of_path: Vec<&Sample> = samples
            .iter()
            .filter(|sample| sample.name == "lanewatch_pcie_path_link" && sample.labels["device"] == device)
            .collect();
        let hops: Vec<&str> = of_path.iter().map(|sample| sample.labels["hop"].as_str()).collect();
        assert_eq!(hops, ["1", "2"], "{device}");
        let limits = of_path.iter().filter(|sample| sample.value > 0.5).count();
        assert_eq!(limits, 1, "{device}: one link is the limit");
        for link in of_path {
            let address = &link.labels["pci_address"];
            let width = |sample: &&Sample| {
                sample.name == "lanewatch_pcie_link_width_lanes" && sample.labels["pci_address"] == *address
            };
            assert_eq!(samples.iter().filter(width).count(), 1, "{device} {address}");
        }
    }
}

/// node_exporter has `process_*` of its own: a second series of that name is an error at every scrape.
#[test]
fn a_textfile_has_no_series_of_the_process() {
    let root = TempDir::new().unwrap();
    tree(&HostTree::new(1)).write(root.path()).unwrap();
    let file = root.path().join("lanewatch.prom");
    let host = root.path().to_str().unwrap();
    let output = lanewatch(&["metrics", "--path.rootfs", host, "--textfile", file.to_str().unwrap()]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let samples = parse(&fs::read_to_string(&file).unwrap()).unwrap();
    assert!(samples.iter().any(|sample| sample.name == "lanewatch_port_state"));
    let process: Vec<_> = samples.iter().filter(|sample| sample.name.starts_with("process_")).collect();
    assert!(process.is_empty(), "{process:?}");
    // What is printed is for everyone else.
    let printed = lanewatch(&["metrics", "--path.rootfs", host]).stdout;
    for name in ["process_cpu_seconds_total", "process_max_fds"] {
        assert!(printed.contains(&format!("\n{name} ")), "{name}");
    }
}

//! The host that is spoilt.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::common::faulty::Faulty;
use super::common::host::{Card, Device, GEN3, GEN4, HostTree, Layer, LinkEnd};
use super::common::tree::{Entry, Tree};
use super::derived::Plan;

/// Eight cards: one at its best, one that trained low with a slow port, one behind a switch, one with two functions,
/// two with Ethernet of which one has VFs behind a switch, one whose port is down, one in a small slot.
pub fn eight_cards() -> (Arc<Faulty>, Plan) {
    let mut host = HostTree::new(8);
    let edr = "100 Gb/sec (4X EDR)";
    let low = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    let cards = &mut host.cards;
    cards[1] = Card { device: low, rate: edr, ..cards[1].clone() };
    cards[2].switch = true;
    cards[3].functions = 2;
    cards[4].layer = Layer::Ethernet;
    cards[5] = Card { layer: Layer::Ethernet, switch: true, vfs: 2, ..cards[5].clone() };
    cards[6] = Card { state: "1: DOWN", phys_state: "2: Polling", ..cards[6].clone() };
    cards[7] = Card { device: low, upstream: LinkEnd::full(GEN3, 8), ..cards[7].clone() };
    let mut tree = host.tree();
    let devices = host.devices();
    tree.line(devices[0].port.join("counters/symbol_error"), 65_535);
    tree.line(devices[0].function.join("ari_enabled"), 0);
    let vf = vf_device(&mut tree, &devices[6], "mlx5_9");
    (Faulty::new(&tree), Plan::new(&host, &[vf]))
}

/// Gives the first VF of a function an RDMA device of its own.
fn vf_device(tree: &mut Tree, pf: &Device, name: &str) -> Device {
    let links: Vec<(PathBuf, PathBuf)> = tree
        .entries()
        .filter_map(|(path, entry)| match entry {
            Entry::Link(_) if path.parent().is_some_and(|parent| parent.ends_with("bus/pci/devices")) => {
                Some((path.to_owned(), PathBuf::new()))
            }
            _ => None,
        })
        .collect();
    let vf_address = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let address = links
        .iter()
        .map(|(path, _)| vf_address(path))
        .find(|address| tree.entries().any(|(at, _)| at == pf.above.join(address).join("physfn")))
        .unwrap();
    let function = pf.above.join(&address);
    let directory = function.join("infiniband").join(name);
    let port = directory.join("ports/1");
    tree.link_to(Path::new("sys/class/infiniband").join(name), &directory);
    tree.link_to(directory.join("device"), &function);
    for (file, text) in [("fw_ver", "20.39.3004"), ("hca_type", "MT4124"), ("node_guid", "0000:0000:0000:0109")] {
        tree.line(directory.join(file), text);
    }
    let files = [
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
        ("rate", "200 Gb/sec (4X HDR)"),
        ("link_layer", "Ethernet"),
    ];
    for (file, text) in files {
        tree.line(port.join(file), text);
    }
    tree.line(port.join("counters/port_rcv_data"), 5);
    Device { name: name.to_owned(), address, upstream: pf.upstream.clone(), function, above: pf.above.clone(), port }
}

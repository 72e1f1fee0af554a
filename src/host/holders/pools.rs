//! What keeps functions ready for guests that are still to come: device plugins of a Kubernetes node, which has a control
//! group for its pods (`sys/fs/cgroup/kubepods*`), and libvirt's networks (`/etc/libvirt/qemu/networks/*.xml`).

use std::sync::Arc;

use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::libvirt::{XmlDirectory, address, attributes, networks};
use crate::host::collector::{DeviceReader, ReadContext};
use crate::model::holder::{FunctionNetwork, FunctionPools};
use crate::model::snapshot::Fact;

/// Where the control groups of pods are: version 2 of control groups, then hierarchies of version 1.
const HIERARCHIES: [&str; 4] = ["", "systemd", "memory", "pids"];
/// Their names by the kubelet's driver of control groups: systemd, cgroupfs.
const POD_GROUPS: [&str; 2] = ["kubepods.slice", "kubepods"];

/// The reader.
#[derive(Default)]
pub(super) struct PoolReader {
    networks: XmlDirectory<FunctionNetwork>,
}

impl DeviceReader for PoolReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        // Whether libvirt's files are readable at all is said beside the domains.
        let directory = networks(&cx.host.roots);
        self.networks.read(cx, &directory, network);
        let networks = self.networks.all().filter(|network| !network.is_empty()).cloned().collect();
        vec![Arc::new(FunctionPools { kubernetes: has_pods(cx), networks })]
    }
}

impl FunctionNetwork {
    fn is_empty(&self) -> bool {
        self.pfs.is_empty() && self.functions.is_empty()
    }
}

/// Whether there is a control group for pods.
fn has_pods(cx: &ReadContext<'_>) -> bool {
    let groups = cx.host.sysfs.join("fs/cgroup");
    let is_there = |hierarchy: &str, name: &str| cx.host.io.stamp(&groups.join(hierarchy).join(name)).is_ok();
    HIERARCHIES.iter().any(|hierarchy| POD_GROUPS.iter().any(|name| is_there(hierarchy, name)))
}

/// Parses a network's file; one that gives no functions away names none. `None` if it is anything else.
fn network(bytes: &[u8]) -> Option<FunctionNetwork> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut reader = Reader::from_str(text);
    let (mut path, mut name, mut network) = (Vec::<String>::new(), String::new(), FunctionNetwork::default());
    let mut gives_away = false;
    let mut open = |path: &mut Vec<String>, element: &BytesStart<'_>| {
        path.push(element.local_name().into_inner().to_owned());
        let within: Vec<&str> = path.iter().rev().take(3).rev().map(String::as_str).collect();
        let values = attributes(element);
        let get = |key: &str| values.get(key).map(String::as_str);
        match within.as_slice() {
            [.., "network", "forward"] => gives_away = get("mode") == Some("hostdev"),
            ["network", "forward", "pf"] if gives_away => network.pfs.extend(get("dev").map(Arc::from)),
            ["network", "forward", "address"] if gives_away => network.functions.extend(address(&get)),
            _ => {}
        }
    };
    loop {
        match reader.read_event().ok()? {
            Event::Start(element) => open(&mut path, &element),
            Event::Empty(element) => {
                open(&mut path, &element);
                path.pop();
            }
            Event::End(_) => drop(path.pop()),
            Event::Text(text) if path.ends_with(&["network".to_owned(), "name".to_owned()]) => name.push_str(&text),
            Event::Eof => break,
            _ => {}
        }
    }
    network.name = Some(name.trim()).filter(|name| !name.is_empty()).map(Arc::from)?;
    Some(network)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::collector::Filter;
    use crate::host::harness::{CollectorHarness, facts};
    use crate::host::holders::SPEC;

    /// As libvirt writes a network of VFs.
    const POOL: &str = "<!--\nWARNING: THIS IS AN AUTO-GENERATED FILE.\n-->\n\n<network>\n  <name>fast</name>\n  \
                        <uuid>6c1f7a50-4d0f-4f2c-9a57-2f1a3f5b1c11</uuid>\n  <forward mode='hostdev' managed='yes'>\n    \
                        <driver name='vfio'/>\n    <pf dev='ens3f0'/>\n    <address type='pci' domain='0x0000' bus='0x98' \
                        slot='0x01' function='0x2'/>\n  </forward>\n</network>\n";

    fn read(harness: &mut CollectorHarness) -> FunctionPools {
        harness.discover().unwrap();
        facts(&harness.read()).remove(0)
    }

    #[test]
    fn a_kubernetes_node_has_a_control_group_for_pods() {
        for (group, expected) in [
            ("kubepods.slice/cgroup.procs", true),
            ("kubepods/cgroup.procs", true),
            ("memory/kubepods/tasks", true),
            ("system.slice/kubepods.service/cgroup.procs", false),
        ] {
            let mut harness = CollectorHarness::new(&SPEC, Filter::default());
            harness.memory.set(format!("/sys/fs/cgroup/{group}"), "");
            assert_eq!(read(&mut harness).kubernetes, expected, "{group}");
        }
    }

    #[test]
    fn networks_that_give_functions_away_are_pools() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        let path = |name: &str| format!("/etc/libvirt/qemu/networks/{name}.xml");
        harness.memory.set(path("fast"), POOL);
        harness.memory.set(path("default"), "<network><name>default</name><forward mode='nat'/></network>");
        let pools = read(&mut harness);
        let fast = FunctionNetwork {
            name: Arc::from("fast"),
            pfs: vec![Arc::from("ens3f0")],
            functions: vec!["0000:98:01.2".parse().unwrap()],
        };
        assert_eq!(pools, FunctionPools { kubernetes: false, networks: vec![fast] });
        harness.memory.remove(path("fast"));
        assert_eq!(facts::<FunctionPools>(&harness.read()), [FunctionPools::default()]);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), like in "[<>/='a-z ]{0,80}") {
            let _ = (network(&bytes), network(like.as_bytes()));
        }
    }
}

//! Machines of Proxmox VE (`/etc/pve/qemu-server/<vmid>.conf`, `/etc/pve/mapping/pci.cfg`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::content;
use crate::host::collector::{DeviceReader, ReadContext};
use crate::host::io::{DirStamp, reason_of};
use crate::host::text;
use crate::model::holder::{GivenFunctions, Proxmox, ProxmoxVm};
use crate::model::ids::PciAddress;
use crate::model::snapshot::Fact;

/// Longest file that is read.
const LONGEST: usize = 1 << 20;

/// Functions by the name of their mapping.
type Mappings = BTreeMap<String, Vec<(PciAddress, GivenFunctions)>>;

/// The reader.
#[derive(Default)]
pub(super) struct ProxmoxReader {
    /// Configurations by machine number, with the stamp when read.
    known: BTreeMap<String, (DirStamp, Configuration)>,
}

impl DeviceReader for ProxmoxReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let root = cx.host.roots.proxmox.clone();
        let directory = root.join("qemu-server");
        let Ok(names) = cx.list(&directory) else { return Vec::new() };
        let numbers: Vec<&str> = names.iter().filter_map(|name| name.strip_suffix(".conf")).collect();
        self.known.retain(|number, _| numbers.contains(&number.as_str()));
        for number in numbers {
            let path = directory.join(format!("{number}.conf"));
            let Ok(stamp) = cx.host.io.stamp(&path) else { continue };
            if self.known.get(number).is_some_and(|(known, _)| *known == stamp) {
                continue;
            }
            match content(&*cx.host.io, &path, LONGEST) {
                Ok(bytes) => {
                    let configuration = Configuration::parse(&String::from_utf8_lossy(&bytes));
                    self.known.insert(number.to_owned(), (stamp, configuration));
                }
                Err(error) => {
                    if let Some(reason) = reason_of(&error) {
                        cx.fault(&path, reason);
                    }
                    self.known.remove(number);
                }
            }
        }
        let mapped = self.known.values().any(|(_, configuration)| !configuration.mappings.is_empty());
        let mappings = if mapped { mappings(cx) } else { Mappings::new() };
        let machines = self.known.iter().map(|(number, (_, configuration))| configuration.machine(number, &mappings));
        vec![Arc::new(Proxmox { machines: machines.collect() })]
    }
}

/// The mappings of this node.
fn mappings(cx: &mut ReadContext<'_>) -> Mappings {
    let name = content(&*cx.host.io, &cx.host.procfs.join("sys/kernel/hostname"), 256).unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    // Nodes go by the first part of their names.
    let node = name.trim().split('.').next().unwrap_or_default();
    let path = cx.host.roots.proxmox.join("mapping/pci.cfg");
    match content(&*cx.host.io, &path, LONGEST) {
        Ok(bytes) => parse_mappings(&String::from_utf8_lossy(&bytes), node),
        Err(error) => {
            if let Some(reason) = reason_of(&error) {
                cx.fault(&path, reason);
            }
            Mappings::new()
        }
    }
}

/// What a machine's configuration says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Configuration {
    name: Option<Arc<str>>,
    uuid: Option<Arc<str>>,
    functions: Vec<(PciAddress, GivenFunctions)>,
    mappings: Vec<String>,
}

impl Configuration {
    /// Lines `key: value` up to the first section: each of those is a snapshot that repeats the keys.
    fn parse(text: &str) -> Self {
        let mut configuration = Self::default();
        for line in text.lines().map(str::trim).take_while(|line| !line.starts_with('[')) {
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match key {
                "name" => configuration.name = text::label(value.as_bytes()).value(),
                "smbios1" => {
                    let uuid = value.split(',').find_map(|option| option.strip_prefix("uuid="));
                    configuration.uuid = uuid.and_then(|uuid| text::label(uuid.as_bytes()).value());
                }
                _ if is_device(key) => configuration.device(value),
                _ => {}
            }
        }
        configuration
    }

    /// `0000:0c:00.1,pcie=1`, `host=0c:00`, `mapping=nic,pcie=1`; `;` joins several functions.
    fn device(&mut self, value: &str) {
        for option in value.split(',') {
            if let Some(mapping) = option.strip_prefix("mapping=") {
                self.mappings.push(mapping.to_owned());
            } else if let Some(functions) = option.strip_prefix("host=").or((!option.contains('=')).then_some(option)) {
                self.functions.extend(functions.split(';').filter_map(given));
            }
        }
    }

    fn machine(&self, number: &str, mappings: &Mappings) -> ProxmoxVm {
        let mapped = self.mappings.iter().filter_map(|name| mappings.get(name)).flatten();
        ProxmoxVm {
            number: Arc::from(number),
            name: self.name.clone(),
            uuid: self.uuid.clone(),
            functions: self.functions.iter().chain(mapped).copied().collect(),
        }
    }
}

/// `hostpci0` to `hostpci15`.
fn is_device(key: &str) -> bool {
    key.strip_prefix("hostpci").is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// An address whose domain and function may be left out.
fn given(text: &str) -> Option<(PciAddress, GivenFunctions)> {
    let text = text.trim();
    let (whole, extent) = if text.contains('.') {
        (text.to_owned(), GivenFunctions::One)
    } else {
        (format!("{text}.0"), GivenFunctions::All)
    };
    let whole = if whole.matches(':').count() == 1 { format!("0000:{whole}") } else { whole };
    Some((whole.parse().ok()?, extent))
}

/// Sections: a name at the beginning of a line, then indented `map` lines, each for one device of one node.
fn parse_mappings(text: &str, node: &str) -> Mappings {
    let mut all = Mappings::new();
    let mut section = String::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if !line.starts_with([' ', '\t']) {
            // Readers disagree on whether the type comes first.
            line.trim().strip_prefix("pci:").unwrap_or(line).trim().clone_into(&mut section);
            continue;
        }
        let Some(options) = line.trim().strip_prefix("map ") else { continue };
        let option =
            |key: &str| options.split(',').find_map(|option| option.trim().strip_prefix(key)?.strip_prefix('='));
        if option("node") == Some(node) {
            let functions = option("path").into_iter().flat_map(|path| path.split(';')).filter_map(given);
            all.entry(section.clone()).or_default().extend(functions);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::collector::Filter;
    use crate::host::harness::{CollectorHarness, facts};

    fn address(text: &str) -> PciAddress {
        text.parse().unwrap()
    }

    #[test]
    fn machines_with_functions_devices_and_mappings() {
        let mut harness = CollectorHarness::new(&super::super::SPEC, Filter::default());
        harness.memory.set("/proc/sys/kernel/hostname", "pve2.example.org\n");
        harness.memory.set(
            "/etc/pve/qemu-server/104.conf",
            "#a note: x\nboot: order=scsi0\nhostpci0: 0000:0c:00.1,pcie=1\nhostpci1: 0d:00;0d:02.3,rombar=0\n\
             hostpci2: mapping=nic,pcie=1\nname: web1\nsmbios1: uuid=11111111-2222-4333-8444-555555555555\n\n\
             [before-upgrade]\nname: old\nhostpci0: 0000:0e:00.0\n",
        );
        harness.memory.set("/etc/pve/qemu-server/105.conf", "cores: 4\n");
        harness.memory.set(
            "/etc/pve/mapping/pci.cfg",
            "pci: nic\n\tmap id=15b3:101e,iommugroup=13,node=pve1,path=0000:43:00.1\n\
             \tmap id=15b3:101e,iommugroup=14,node=pve2,path=0000:43:00.2\n\
             gpu\n        map node=pve2,path=0000:44:00,id=10de:2b85\n",
        );
        harness.discover().unwrap();
        let read = harness.read();
        let [proxmox] = &facts::<Proxmox>(&read)[..] else { panic!("no fact") };
        let [web, empty] = &proxmox.machines[..] else { panic!("{proxmox:?}") };
        assert_eq!((&*web.number, web.name.as_deref()), ("104", Some("web1")));
        assert_eq!(web.uuid.as_deref(), Some("11111111-2222-4333-8444-555555555555"));
        let one = |text| (address(text), GivenFunctions::One);
        assert_eq!(
            web.functions,
            [
                one("0000:0c:00.1"),
                (address("0000:0d:00.0"), GivenFunctions::All),
                one("0000:0d:02.3"),
                one("0000:43:00.2")
            ]
        );
        assert!(web.is_given(address("0000:0d:00.5")) && !web.is_given(address("0000:0c:00.2")));
        assert_eq!(*empty, ProxmoxVm { number: Arc::from("105"), ..ProxmoxVm::default() });
        assert_eq!(harness.faults, []);
        harness.memory.set("/etc/pve/qemu-server/104.conf", "name: web2\n");
        harness.memory.remove("/etc/pve/qemu-server/105.conf");
    }

    #[test]
    fn nothing_is_read_where_there_is_no_proxmox() {
        let mut harness = CollectorHarness::new(&super::super::SPEC, Filter::default());
        assert!(!harness.discover().unwrap().contains(&"proxmox".to_owned()));
        harness.memory.directory("/etc/pve");
        harness.discover().unwrap();
        assert_eq!(facts::<Proxmox>(&harness.read()), [Proxmox::default()]);
    }

    proptest! {
        #[test]
        fn any_text_parses_without_a_panic(text in any::<String>(), like in "([a-z0-9:.,;= \t\\[-]{0,20}\n){0,5}") {
            for text in [&text, &like] {
                let _ = (Configuration::parse(text), parse_mappings(text, "n"), given(text));
            }
        }
    }
}

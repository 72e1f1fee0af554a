//! Which samples follow from which path. What is not named here must not change, whatever befalls the path.

use std::path::{Path, PathBuf};

use super::common::exposition::Sample;
use super::common::host::{Device, HostTree, Layer};

/// Samples of some families with some labels.
pub struct Rule {
    families: &'static [&'static str],
    labels: Vec<(&'static str, String)>,
}

impl Rule {
    /// Of these families (a `*` at the end stands for any), with these labels.
    pub fn new<const N: usize>(families: &'static [&'static str], labels: [(&'static str, &str); N]) -> Self {
        Self { families, labels: labels.into_iter().map(|(key, value)| (key, value.to_owned())).collect() }
    }

    /// How a collector fares.
    pub fn of_collector(name: &str) -> Self {
        Self::new(&["lanewatch_collector_success", "lanewatch_collector_stuck"], [("collector", name)])
    }

    /// How much is seen of what a collector reads.
    pub fn of_sight(collector: &str) -> Self {
        Self::new(&["lanewatch_visibility_info"], [("area", collector)])
    }

    /// Whether it names a sample.
    pub fn names(&self, sample: &Sample) -> bool {
        let has = |(key, value): &(&str, String)| sample.labels.get(*key) == Some(value);
        let family = |family: &&str| match family.strip_suffix('*') {
            Some(start) => sample.name.starts_with(start),
            None => sample.name == *family,
        };
        self.families.iter().any(family) && self.labels.iter().all(has)
    }
}

/// Samples that say how the reading itself went, or when.
const OF_THE_READING: &[&str] = &[
    "process_*",
    "lanewatch_read_errors_total",
    "lanewatch_quarantined_files",
    "lanewatch_unread_subjects",
    "lanewatch_collector_duration_seconds",
    "lanewatch_collector_wait_seconds",
    "lanewatch_collector_last_success_timestamp_seconds",
    "lanewatch_evaluation_timestamp_seconds",
];

/// Whether a sample says how the reading went, or when.
pub fn of_the_reading(sample: &Sample) -> bool {
    Rule::new(OF_THE_READING, []).names(sample)
}

const DEVICE_INFO: &[&str] = &["lanewatch_device_info"];
const PORT_INFO: &[&str] = &["lanewatch_port_info"];
const EVENTS: &[&str] = &["lanewatch_port_events_total"];
const RATES: &[&str] = &[
    "lanewatch_port_rate_bytes_per_second",
    "lanewatch_port_link_width",
    "lanewatch_port_ceiling_bytes_per_second",
    "lanewatch_port_share_bytes_per_second",
    "lanewatch_wire_rate_bytes_per_second",
    "lanewatch_wire_share_bytes_per_second",
];
const LANE: &[&str] = &[
    "lanewatch_port_ceiling_bytes_per_second",
    "lanewatch_port_share_bytes_per_second",
    "lanewatch_wire_share_bytes_per_second",
];
const PATH: &[&str] =
    &["lanewatch_pcie_path_bandwidth_bytes_per_second", "lanewatch_pcie_path_info", "lanewatch_pcie_path_link"];
const FINDING: &[&str] = &["lanewatch_finding", "lanewatch_pending_finding"];
const SUBJECTS: &[&str] = &["lanewatch_check_subjects"];
const AER: &[&str] = &["lanewatch_pcie_aer_events_total", "lanewatch_pcie_aer_errors_total"];

const PORT_CHECKS: [&str; 10] = [
    "port_down",
    "port_rate_low",
    "port_flapping",
    "port_errors",
    "link_quality",
    "module_fault",
    "module_light",
    "port_counter_saturated",
    "pcie_below_port_rate",
    "roce_lossy",
];
const LINK_CHECKS: [&str; 5] =
    ["pcie_degraded", "pcie_limited_by_slot", "pcie_off_bus", "pcie_drifted", "pcie_below_port_rate"];

/// The devices of a host and where their files are.
pub struct Plan {
    devices: Vec<Place>,
}

struct Place {
    device: Device,
    layer: Layer,
    down: bool,
    /// Whether it is a VF's, of which less is shown.
    vf: bool,
}

impl Plan {
    /// Of a host, with devices that were added to it by hand.
    pub fn new(host: &HostTree, more: &[Device]) -> Self {
        let cards = host.cards.iter().flat_map(|card| std::iter::repeat_n(card, usize::from(card.functions)));
        let place = |(device, card): (Device, &super::common::host::Card)| Place {
            device: root(device),
            layer: card.layer,
            down: card.state == "1: DOWN",
            vf: false,
        };
        let mut devices: Vec<Place> = host.devices().into_iter().zip(cards).map(place).collect();
        let by_hand = more.iter().cloned().map(|device| Place {
            device: root(device),
            layer: Layer::Ethernet,
            down: false,
            vf: true,
        });
        devices.extend(by_hand);
        Self { devices }
    }

    /// The device in whose directory a path is.
    pub fn owner(&self, path: &Path) -> Option<&str> {
        self.devices.iter().map(|place| &place.device).find(|d| path.starts_with(&d.function)).map(|d| &*d.name)
    }

    /// What follows from a path.
    pub fn of(&self, path: &Path) -> Vec<Rule> {
        let name = path.file_name().unwrap().to_str().unwrap();
        let class = Path::new("/sys/class/infiniband");
        if path == class {
            return vec![Rule::new(&["lanewatch_*"], [])];
        }
        if let Some(place) = self.devices.iter().find(|place| path == class.join(&place.device.name)) {
            return [self.whole_device(place), self.whole_function(&place.device.function)]
                .into_iter()
                .flatten()
                .collect();
        }
        if let Some(place) = self.devices.iter().find(|place| path.starts_with(ib_directory(&place.device))) {
            return match path.strip_prefix(&place.device.port) {
                Ok(file) => self.of_port(place, file.to_str().unwrap()),
                Err(_) => self.of_device(place, name),
            };
        }
        if let Some(place) = self.devices.iter().find(|place| path.starts_with(place.device.function.join("net"))) {
            return self.of_netdev(place, name);
        }
        if path.ends_with("sys/kernel/osrelease") {
            return vec![Rule::new(&["lanewatch_host_info"], [])];
        }
        if path.ends_with("devices/system/node") {
            return vec![Rule::new(&["lanewatch_collector_success"], [("collector", "numa")])];
        }
        if path.starts_with("/proc") || path.starts_with("/sys/devices/system/node") {
            return Vec::new();
        }
        if address_of(path).is_some() {
            return self.whole_function(path);
        }
        match path.parent().filter(|parent| address_of(parent).is_some()) {
            Some(function) => self.of_function(function, name),
            // A host bridge, which is listed for the functions on it.
            None => Vec::new(),
        }
    }

    /// What follows from a lane of a collector.
    pub fn of_lane(&self, collector: &str, key: &str) -> Vec<Rule> {
        let named = |name: &str| self.devices.iter().find(|place| place.device.name == name);
        let directory = || {
            let all = self.devices.iter().flat_map(|place| place.device.function.ancestors());
            all.into_iter().find(|directory| address_of(directory) == Some(key))
        };
        match collector {
            "rdma" => named(key).map(|place| self.whole_device(place)).unwrap_or_default(),
            "pci" => directory().map(|directory| self.whole_function(directory)).unwrap_or_default(),
            "net" => self.devices.iter().flat_map(|place| self.of_netdev(place, key)).collect(),
            "system" => vec![Rule::new(&["lanewatch_host_info"], [])],
            _ => Vec::new(),
        }
    }

    /// What follows from the listing of a collector.
    pub fn of_listing(&self, collector: &str) -> Vec<Rule> {
        const OF_DEVICES: &[&str] = &[
            "lanewatch_port_*",
            "lanewatch_wire_*",
            "lanewatch_device_*",
            "lanewatch_pcie_path_*",
            "lanewatch_finding",
            "lanewatch_check_*",
        ];
        const OF_FUNCTIONS: &[&str] = &[
            "lanewatch_pcie_*",
            "lanewatch_sriov_*",
            "lanewatch_device_info",
            "lanewatch_port_info",
            "lanewatch_port_ceiling_*",
            "lanewatch_port_share_*",
            "lanewatch_wire_*",
            "lanewatch_finding",
            "lanewatch_check_*",
        ];
        const OF_INTERFACES: &[&str] = &[
            "lanewatch_port_rate_*",
            "lanewatch_port_ceiling_*",
            "lanewatch_port_share_*",
            "lanewatch_wire_*",
            "lanewatch_finding",
            "lanewatch_check_*",
        ];
        let families = match collector {
            "rdma" => OF_DEVICES,
            "pci" => OF_FUNCTIONS,
            "net" => OF_INTERFACES,
            _ => &[],
        };
        let vfs = self.devices.iter().filter(|place| place.vf && collector == "pci");
        vfs.flat_map(|place| self.whole_device(place)).chain([Rule::new(families, [])]).collect()
    }

    fn of_device(&self, place: &Place, file: &str) -> Vec<Rule> {
        let info = Rule::new(DEVICE_INFO, [("device", &place.device.name)]);
        match file {
            "node_guid" | "sys_image_guid" => vec![info],
            // One text for all cards of a model is expected.
            "fw_ver" => posture().into_iter().chain([info]).collect(),
            // Peers are those of the same model.
            "board_id" | "hca_type" => {
                let mut rules = checks(&["port_rate_low"]);
                rules.extend([info, Rule::new(FINDING, [("check", "port_rate_low")])]);
                rules
            }
            // The function is found from the device's own place too: only the PCI collector's listing needs the link.
            "device" => self.whole_function(&place.device.function),
            "ports" => self.whole_port(place),
            // rxe shows by `parent` that it is no function's.
            "parent" | "hw_counters" => Vec::new(),
            _ => self.whole_device(place),
        }
    }

    fn of_port(&self, place: &Place, file: &str) -> Vec<Rule> {
        let device = &*place.device.name;
        let info = Rule::new(PORT_INFO, [("device", device)]);
        let down = || -> Vec<Rule> {
            let finding = Rule::new(FINDING, [("check", "port_down"), ("device", device)]);
            if place.down { checks(&["port_down"]).into_iter().chain([finding]).collect() } else { Vec::new() }
        };
        if let Some(counter) = file.strip_prefix("counters/") {
            let family: &[&str] = match counter {
                "port_rcv_data" => &["lanewatch_port_received_bytes_total"],
                "port_xmit_data" => &["lanewatch_port_transmitted_bytes_total"],
                "port_rcv_packets" => &["lanewatch_port_received_packets_total"],
                "port_xmit_packets" => &["lanewatch_port_transmitted_packets_total"],
                "port_xmit_wait" => &["lanewatch_port_transmit_wait_ticks_total"],
                _ => EVENTS,
            };
            let mut rules = match family {
                EVENTS => vec![Rule::new(EVENTS, [("device", device), ("counter", counter)])],
                family => vec![Rule::new(family, [("device", device)])],
            };
            if matches!(counter, "port_rcv_packets" | "link_downed") {
                rules.extend(down());
            }
            rules.extend(Self::saturation(device));
            return rules;
        }
        if let Some(counter) = file.strip_prefix("hw_counters/") {
            return vec![Rule::new(EVENTS, [("device", device), ("counter", counter)])];
        }
        match file {
            "lid" | "sm_lid" => down(),
            "phys_state" => down()
                .into_iter()
                .chain([Rule::new(&["lanewatch_port_physical_state"], [("device", device)])])
                .collect(),
            "state" => {
                let state = Rule::new(&["lanewatch_port_state"], [("device", device)]);
                let judged = Rule::new(FINDING, [("device", device), ("port", "1")]);
                let mut rules = self.rate(place);
                rules.extend(checks(&["port_down", "roce_lossy"]));
                rules.extend([state, info, judged]);
                rules
            }
            "rate" => self.rate(place).into_iter().chain([info]).collect(),
            "gids/0" => vec![info],
            // The interface knows an Ethernet port's rate.
            "gid_attrs/ndevs/0" if place.layer == Layer::InfiniBand => vec![info],
            // And peers have the same.
            "link_layer" | "gid_attrs/ndevs/0" => {
                let rules = self.rate(place).into_iter().chain(down()).chain([info]);
                rules.chain(checks(&["roce_lossy"])).collect()
            }
            "hw_counters" => {
                checks(&["roce_lossy"]).into_iter().chain([Rule::new(EVENTS, [("device", device)])]).collect()
            }
            "counters" => {
                let mut rules = vec![
                    Rule::new(EVENTS, [("device", device)]),
                    Rule::new(
                        &[
                            "lanewatch_port_received_*",
                            "lanewatch_port_transmitted_*",
                            "lanewatch_port_transmit_wait_*",
                        ],
                        [("device", device)],
                    ),
                ];
                rules.extend(Self::saturation(device));
                rules.extend(down());
                rules
            }
            _ => self.whole_port(place),
        }
    }

    fn saturation(device: &str) -> Vec<Rule> {
        let check = "port_counter_saturated";
        let mut rules = checks(&[check]);
        rules.push(Rule::new(FINDING, [("check", check), ("device", device)]));
        rules.push(Rule::new(&["lanewatch_port_saturated_counters"], [("device", device)]));
        rules
    }

    /// Rate, ceiling and share of a port, the shares of those that share a link with it, and what is judged by them.
    fn rate(&self, place: &Place) -> Vec<Rule> {
        let device = &*place.device.name;
        let mut rules = checks(&["port_rate_low", "pcie_below_port_rate"]);
        rules.push(Rule::new(RATES, [("device", device)]));
        rules.push(Rule::new(FINDING, [("check", "port_rate_low"), ("device", device)]));
        for other in self.sharing(&place.device) {
            rules.push(Rule::new(
                &["lanewatch_port_share_bytes_per_second", "lanewatch_wire_share_bytes_per_second"],
                [("device", &*other.name)],
            ));
            rules.push(Rule::new(FINDING, [("check", "pcie_below_port_rate"), ("device", &*other.name)]));
        }
        rules
    }

    fn whole_port(&self, place: &Place) -> Vec<Rule> {
        let mut rules = self.rate(place);
        rules.extend(checks(&PORT_CHECKS));
        rules.push(Rule::new(
            &["lanewatch_port_*", "lanewatch_finding"],
            [("device", &place.device.name), ("port", "1")],
        ));
        rules
    }

    fn whole_device(&self, place: &Place) -> Vec<Rule> {
        let mut rules = self.whole_port(place);
        let name = [("device", &*place.device.name)];
        rules.push(Rule::new(DEVICE_INFO, name));
        rules.push(Rule::new(PATH, name));
        // A link is called after its device.
        rules.push(Rule::new(FINDING, [("pci_address", &*place.device.address)]));
        rules.extend(checks(&["pcie_drifted"]));
        rules.extend(posture());
        rules
    }

    fn of_netdev(&self, place: &Place, file: &str) -> Vec<Rule> {
        match file {
            "dev_port" | "type" | "carrier" | "operstate" | "carrier_changes" => Vec::new(),
            // `speed`, or the interface or its list as a whole.
            _ if place.layer == Layer::Ethernet => self.rate(place),
            _ => Vec::new(),
        }
    }

    fn of_function(&self, directory: &Path, file: &str) -> Vec<Rule> {
        let address = address_of(directory).unwrap();
        let class = |name: &str| {
            name.rsplit('_').next().unwrap().replace("cor", "correctable").replace("correctablerectable", "correctable")
        };
        match file {
            "vendor" | "device" | "ari_enabled" => Vec::new(),
            "driver" => vec![Rule::new(DEVICE_INFO, [("pci_address", address)])],
            "numa_node" => posture().into_iter().chain([Rule::new(DEVICE_INFO, [("pci_address", address)])]).collect(),
            "sriov_totalvfs" => vec![Rule::new(&["lanewatch_sriov_vfs_limit"], [("pf", address)])],
            name if name.starts_with("aer_dev_") => {
                let mut rules = checks(&["pcie_aer"]);
                rules.push(Rule::new(AER, [("pci_address", address), ("class", &class(name))]));
                rules
            }
            name if name.starts_with("aer_rootport_") => {
                let labels = [("pci_address", address), ("class", &*class(name))];
                vec![Rule::new(&["lanewatch_pcie_aer_root_port_messages_total"], labels)]
            }
            // Which function is the PF, and so what of the VF is shown.
            "physfn" => self.whole_function(directory),
            // Whether a speed may be low to save power.
            "class" => self.link(directory, FINDING),
            _ => self.link(directory, &["lanewatch_pcie_link_*", "lanewatch_finding"]),
        }
    }

    /// What is said of the links at which a function is an end, and of the lanes that have them.
    fn link(&self, directory: &Path, families: &'static [&'static str]) -> Vec<Rule> {
        let mut rules = checks(&LINK_CHECKS);
        rules.push(Rule::new(families, [("pci_address", address_of(directory).unwrap())]));
        for device in self.above(directory) {
            rules.push(Rule::new(families, [("pci_address", &*device.address)]));
            rules.push(Rule::new(PATH, [("device", &*device.name)]));
            rules.push(Rule::new(LANE, [("device", &*device.name)]));
            rules.push(Rule::new(FINDING, [("check", "pcie_below_port_rate"), ("device", &*device.name)]));
            // The ends of links on the way down.
            for end in device.function.ancestors().take_while(|at| at.starts_with(directory)).filter_map(address_of) {
                rules.push(Rule::new(families, [("pci_address", end)]));
            }
        }
        rules
    }

    fn whole_function(&self, directory: &Path) -> Vec<Rule> {
        let address = address_of(directory).unwrap();
        let mut rules = self.link(directory, &["lanewatch_pcie_*", "lanewatch_finding"]);
        rules.extend(checks(&["pcie_aer"]));
        rules.extend(posture());
        rules.push(Rule::new(DEVICE_INFO, [("pci_address", address)]));
        rules.push(Rule::new(&["lanewatch_sriov_*"], [("pf", address)]));
        for above in directory.ancestors().filter_map(address_of) {
            // A device that is not listed takes the ports above it along.
            rules.push(Rule::new(&["lanewatch_pcie_*", "lanewatch_finding"], [("pci_address", above)]));
        }
        if let Some(place) = self.devices.iter().find(|place| place.device.function == directory) {
            rules.extend(self.of_netdev(place, "net"));
            if place.vf {
                rules.extend(self.whole_device(place));
            }
            // A device whose function is unknown has no wire, and leaves more to the others.
            rules.extend(self.rate(place));
            rules.push(Rule::new(PORT_INFO, [("device", &*place.device.name)]));
        }
        rules
    }

    /// The devices whose path has a link at which this function is an end: those on it or below it, those of the same
    /// card, and its VFs.
    fn above<'a>(&'a self, function: &'a Path) -> impl Iterator<Item = &'a Device> {
        let of_card = move |device: &Device| {
            let endpoint = self.devices.iter().any(|place| place.device.function == function);
            endpoint && device.function.parent() == function.parent()
        };
        self.devices.iter().map(|place| &place.device).filter(move |d| d.function.starts_with(function) || of_card(d))
    }

    /// The devices that share a link with one, itself among them.
    fn sharing<'a>(&'a self, device: &'a Device) -> impl Iterator<Item = &'a Device> {
        self.devices
            .iter()
            .map(|place| &place.device)
            .filter(|other| other.function.parent() == device.function.parent())
    }
}

fn checks(names: &[&str]) -> Vec<Rule> {
    names.iter().map(|name| Rule::new(SUBJECTS, [("check", name)])).collect()
}

/// What is said of the host as a whole.
fn posture() -> Vec<Rule> {
    let check = "host_posture";
    checks(&[check]).into_iter().chain([Rule::new(FINDING, [("check", check)])]).collect()
}

fn root(device: Device) -> Device {
    let root = |path: PathBuf| Path::new("/").join(path);
    Device { function: root(device.function), above: root(device.above), port: root(device.port), ..device }
}

fn ib_directory(device: &Device) -> PathBuf {
    device.function.join("infiniband").join(&device.name)
}

/// The PCI address that a directory is named after.
fn address_of(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    (name.len() == 12 && name.matches(':').count() == 2 && name.contains('.')).then_some(name)
}

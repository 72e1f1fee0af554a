//! What the kernel's own files say of devices, ports and PCIe links, in the words of the metrics: read by `head` and
//! reckoned here anew, so that no sample is what it is only because the agent says so.

use std::collections::BTreeMap;

use crate::common::exposition::Sample;
use crate::guest::Guest;

/// A sample without its value. What class an event has is an opinion, and left out.
type Key = (String, BTreeMap<String, String>);

/// Samples that the files ask for.
type Samples = BTreeMap<Key, f64>;

/// Families that hold nothing but what is in the files: not what the agent itself saw change, nor the configuration space.
fn is_judged(name: &str) -> bool {
    let families = ["lanewatch_device_", "lanewatch_port_", "lanewatch_pcie_", "lanewatch_rdma_resources"];
    families.iter().any(|family| name.starts_with(family))
        && !["lanewatch_pcie_isolation_info", "lanewatch_pcie_link_changes_total"].contains(&name)
}

/// Every sample of the judged families, and how many of each family there were.
///
/// The files are read before and after the scrape: what counts meanwhile may be anywhere between.
pub fn every_sample_is_the_kernels(guest: &mut Guest) -> BTreeMap<String, usize> {
    let before = expected(&Files::read(guest));
    let read: f64 = guest.sh("date +%s.%N").trim().parse().unwrap();
    guest.wait_until("passes since", |guest| are_since(&guest.scrape(), read));
    let scrape: Samples = guest.scrape().into_iter().filter(|sample| is_judged(&sample.name)).map(keyed).collect();
    let after = expected(&Files::read(guest));
    let mut families = BTreeMap::new();
    for (key, value) in &scrape {
        let (Some(least), Some(most)) = (before.get(key), after.get(key)) else {
            panic!("no file of the kernel says {key:?} {value}");
        };
        let between = (least.min(*most)..=most.max(*least)).contains(value);
        // A fraction, as a bandwidth is, may have been reckoned in another order.
        let rounded = least.fract() != 0.0 && (value - least).abs() < 1e-12 * least;
        assert!(between || rounded, "{key:?} is {value}, not {least} to {most}");
        *families.entry(key.0.clone()).or_default() += 1;
    }
    for (key, value) in before.iter().filter(|(key, _)| after.contains_key(*key)) {
        assert!(scrape.contains_key(key), "{key:?} {value} is in the kernel's files, and no sample");
    }
    families
}

/// Whether every collector of what is judged has begun and ended a complete pass after this time: on a busy host one may
/// be late, and what it said before stands. GIDs are read once a minute.
fn are_since(scrape: &[Sample], time: f64) -> bool {
    let of = |name: &str, collector: &str| {
        let labels = BTreeMap::from([("collector".to_owned(), collector.to_owned())]);
        scrape.iter().find(|sample| sample.is(name, &labels)).map(|sample| sample.value)
    };
    let ended = |collector| of("lanewatch_collector_last_success_timestamp_seconds", collector);
    let took = |collector| of("lanewatch_collector_duration_seconds", collector);
    let began = |collector| ended(collector).zip(took(collector)).map(|(ended, took)| ended - took);
    ended("gids").is_some()
        && ["rdma", "rdma_netlink", "pci", "net"]
            .iter()
            .all(|collector| began(collector).is_some_and(|began| began > time))
}

fn keyed(sample: Sample) -> (Key, f64) {
    let mut labels = sample.labels;
    if sample.name.ends_with("_events_total") && !sample.name.contains("_aer_") {
        labels.remove("class");
    }
    ((sample.name, labels), sample.value)
}

/// Files by their path below `/sys`; those that cannot be read are not among them.
struct Files(BTreeMap<String, String>);

/// `head -v` names each file before its content. Links are told as files that hold the end of where they lead.
const READ: &str = r#"cd /sys; shopt -s nullglob
    for l in class/infiniband/*/device bus/pci/devices/*/{physfn,driver}; do
        [ -e $l ] && printf '==> %s <==\n%s\n\n' $l $(basename $(readlink -f $l)); done
    for d in class/infiniband/*/device; do printf '==> %s/above <==\n%s\n\n' $d $(basename $(dirname $(readlink -f $d))); done
    head -v -n 200 class/infiniband/*/{parent,fw_ver,board_id,hca_type,node_guid,sys_image_guid} \
        class/infiniband/*/ports/*/{state,phys_state,rate,link_layer,gids/0,gid_attrs/ndevs/0,gid_attrs/types/*} \
        class/infiniband/*/ports/*/{counters,hw_counters}/* class/net/*/speed \
        bus/pci/devices/*/{current_link_speed,current_link_width,max_link_speed,max_link_width,numa_node,sriov_totalvfs} \
        bus/pci/devices/*/{aer_dev_correctable,aer_dev_nonfatal,aer_dev_fatal} \
        bus/pci/devices/*/aer_rootport_total_err_{cor,nonfatal,fatal} 2>/dev/null
    printf '==> resources <==\n%s\n' "$(rdma resource)""#;

impl Files {
    fn read(guest: &mut Guest) -> Self {
        let (_, text) = guest.run(READ);
        let parts = text.split("==> ").filter_map(|part| part.split_once(" <==\n"));
        let full = parts.map(|(path, content)| (path.to_owned(), content.trim().to_owned()));
        Self(full.filter(|(_, content)| !content.is_empty()).collect())
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// The content, or nothing: as labels have it.
    fn label(&self, path: &str) -> String {
        self.text(path).unwrap_or_default().to_owned()
    }

    /// The number that a file begins with: `8.0 GT/s PCIe`, `200 Gb/sec (4X HDR)`.
    fn number(&self, path: &str) -> Option<f64> {
        self.text(path)?.split(' ').next()?.parse().ok()
    }

    /// Names right below a folder.
    fn names(&self, folder: &str) -> Vec<&str> {
        let below = self.0.keys().filter_map(|path| path.strip_prefix(folder));
        let mut names: Vec<&str> = below.filter_map(|rest| rest.split('/').next()).collect();
        names.dedup();
        names
    }
}

fn expected(files: &Files) -> Samples {
    let mut samples = Samples::new();
    let mut links = BTreeMap::new();
    for device in files.names("class/infiniband/") {
        let function = function_of(files, device);
        device_samples(files, device, function, &mut samples);
        let mut path = None;
        if let Some(function) = function {
            let above = files.label(&format!("class/infiniband/{device}/device/above"));
            path = link_samples(files, function, &above, &mut samples);
            links.insert(device, (function, path));
            aer_samples(files, function, &mut samples);
            aer_samples(files, &above, &mut samples);
        }
        for port in files.names(&format!("class/infiniband/{device}/ports/")) {
            port_samples(files, device, port, path, &mut samples);
        }
    }
    for (device, (function, bandwidth)) in links {
        let Some(bandwidth) = bandwidth else { continue };
        put(
            &mut samples,
            "pcie_path_bandwidth_bytes_per_second",
            &[("device", device), ("pci_address", function)],
            bandwidth,
        );
        let labels = [("device", device), ("pci_address", function), ("limiting_pci_address", function)];
        put(&mut samples, "pcie_path_info", &labels, 1.0);
        put(&mut samples, "pcie_path_link", &[("device", device), ("pci_address", function), ("hop", "1")], 1.0);
    }
    samples
}

fn put(samples: &mut Samples, name: &str, labels: &[(&str, &str)], value: f64) {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    samples.insert((format!("lanewatch_{name}"), labels), value);
}

/// Software devices, which have a `parent`, hang on no function.
fn function_of<'a>(files: &'a Files, device: &str) -> Option<&'a str> {
    let class = format!("class/infiniband/{device}");
    if files.text(&format!("{class}/parent")).is_some() { None } else { files.text(&format!("{class}/device")) }
}

fn device_samples(files: &Files, device: &str, function: Option<&str>, samples: &mut Samples) {
    let of_device = |file| files.label(&format!("class/infiniband/{device}/{file}"));
    let of_function = |file| function.map(|f| files.label(&format!("bus/pci/devices/{f}/{file}"))).unwrap_or_default();
    let there = |file| function.is_some() && !of_function(file).is_empty();
    let kind = if there("physfn") {
        "vf"
    } else if there("sriov_totalvfs") {
        "pf"
    } else {
        "none"
    };
    let labels = [
        ("device", device),
        ("pci_address", function.unwrap_or_default()),
        ("driver", &of_function("driver")),
        ("firmware_version", &of_device("fw_ver")),
        ("board_id", &of_device("board_id")),
        ("hca_type", &of_device("hca_type")),
        ("node_guid", &of_device("node_guid")),
        ("sys_image_guid", &of_device("sys_image_guid")),
        ("numa_node", &of_function("numa_node")),
        ("function", kind),
    ];
    put(samples, "device_info", &labels, 1.0);
    // `0: mlx5_0: pd 0 cq 0 ...`
    let resources = files.label("resources");
    let mark = format!(": {device}: ");
    let line = resources.lines().find_map(|line| line.split_once(&mark)).map(|(_, rest)| rest).unwrap_or_default();
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    for pair in words.chunks_exact(2) {
        put(samples, "rdma_resources", &[("device", device), ("resource", pair[0])], pair[1].parse().unwrap());
    }
}

/// The link above a function, named by it; what it carries.
fn link_samples(files: &Files, function: &str, above: &str, samples: &mut Samples) -> Option<f64> {
    let end = |of: &str, file: &str| files.number(&format!("bus/pci/devices/{of}/{file}"));
    let mut one = |name: &str, value| put(samples, &format!("pcie_link_{name}"), &[("pci_address", function)], value);
    let (speed, width) = (end(function, "current_link_speed")?, end(function, "current_link_width")?);
    let (most_speed, most_width) = (end(function, "max_link_speed")?, end(function, "max_link_width")?);
    let capable = (most_speed.min(end(above, "max_link_speed")?), most_width.min(end(above, "max_link_width")?));
    for (kind, gigas, lanes) in
        [("", speed, width), ("max_", most_speed, most_width), ("capable_", capable.0, capable.1)]
    {
        one(&format!("{kind}speed_transfers_per_second"), gigas * 1e9);
        one(&format!("{kind}width_lanes"), lanes);
    }
    one("current_bandwidth_bytes_per_second", bandwidth(speed, width));
    one("capable_bandwidth_bytes_per_second", bandwidth(capable.0, capable.1));
    Some(bandwidth(speed, width))
}

/// Bytes a second of so many lanes: 8b/10b up to 5 GT/s, 128b/130b above.
fn bandwidth(gigatransfers: f64, lanes: f64) -> f64 {
    let coded = if gigatransfers <= 5.0 { 8.0 / 10.0 } else { 128.0 / 130.0 };
    gigatransfers * 1e9 * coded / 8.0 * lanes
}

fn aer_samples(files: &Files, function: &str, samples: &mut Samples) {
    for (class, file) in [("correctable", "cor"), ("nonfatal", "nonfatal"), ("fatal", "fatal")] {
        let of_class = [("pci_address", function), ("class", class)];
        let root = format!("bus/pci/devices/{function}/aer_rootport_total_err_{file}");
        if let Some(total) = files.number(&root) {
            put(samples, "pcie_aer_root_port_messages_total", &of_class, total);
        }
        let Some(text) = files.text(&format!("bus/pci/devices/{function}/aer_dev_{class}")) else { continue };
        for line in text.lines() {
            let (name, count) = line.rsplit_once(' ').unwrap();
            let count: f64 = count.parse().unwrap();
            if name.starts_with("TOTAL_") {
                put(samples, "pcie_aer_events_total", &of_class, count);
            } else if count > 0.0 {
                let labels = [("pci_address", function), ("class", class), ("error", name)];
                put(samples, "pcie_aer_errors_total", &labels, count);
            }
        }
    }
}

const STATES: [&str; 6] = ["NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"];
const PHYSICAL_STATES: [&str; 7] =
    ["Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "Phy Test"];

fn port_samples(files: &Files, device: &str, port: &str, path: Option<f64>, samples: &mut Samples) {
    let class = format!("class/infiniband/{device}/ports/{port}");
    let of_port = [("device", device), ("port", port)];

    // `4: ACTIVE`
    let word =
        |file| files.text(&format!("{class}/{file}")).and_then(|text| text.split_once(": ")).map(|(_, word)| word);
    for (family, all, now) in
        [("port_state", &STATES[..], word("state")), ("port_physical_state", &PHYSICAL_STATES[..], word("phys_state"))]
    {
        for state in all {
            put(samples, family, &[of_port[0], of_port[1], ("state", state)], f64::from(u8::from(now == Some(state))));
        }
    }
    let active = word("state") == Some("ACTIVE");
    let layer = files.label(&format!("{class}/link_layer"));
    let netdev = files.label(&format!("{class}/gid_attrs/ndevs/0"));
    // `200 Gb/sec (4X HDR)`
    let rate = files.label(&format!("{class}/rate"));
    let (width, speed) = rate
        .rsplit_once('(')
        .filter(|_| active)
        .and_then(|(_, name)| name.trim_end_matches(')').split_once(' '))
        .unwrap_or_default();
    let guid = files.label(&format!("{class}/gids/0"));
    let labels = [
        of_port[0],
        of_port[1],
        ("link_layer", layer.as_str()),
        ("netdev", &netdev),
        ("port_guid", guid.get(20..).unwrap_or_default()),
        ("speed", speed),
        ("uplink", if function_of(files, device).is_some() { "function" } else { "none" }),
        ("width", width),
    ];
    put(samples, "port_info", &labels, 1.0);
    if active {
        // On Ethernet a card's interface knows it better, in Mb/s. Of a software device no function is watched.
        let of_card = layer == "Ethernet" && function_of(files, device).is_some();
        let netdev = files.number(&format!("class/net/{netdev}/speed")).filter(|speed| of_card && *speed > 0.0);
        let rate =
            netdev.map_or_else(|| files.number(&format!("{class}/rate")).unwrap() * 1e9, |mega| mega * 1e6) / 8.0;
        put(samples, "port_rate_bytes_per_second", &of_port, rate);
        if let Ok(width) = width.trim_end_matches('X').parse() {
            put(samples, "port_link_width", &of_port, width);
        }
        if let Some(path) = path {
            put(samples, "port_ceiling_bytes_per_second", &of_port, rate.min(path));
            // No port shares its path here.
            put(samples, "port_share_bytes_per_second", &of_port, rate.min(path));
        }
    }
    for entry in files.names(&format!("{class}/gid_attrs/types/")) {
        let kind = files.label(&format!("{class}/gid_attrs/types/{entry}"));
        if function_of(files, device).is_some() {
            let key = ("lanewatch_port_gids".to_owned(), keyed_labels(&[of_port[0], of_port[1], ("gid_type", &kind)]));
            *samples.entry(key).or_default() += 1.0;
        }
    }
    counter_samples(files, &class, &of_port, samples);
}

fn keyed_labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Where a field of the performance counters of InfiniBand ends.
fn ends_at(counter: &str) -> Option<f64> {
    Some(match counter {
        "link_error_recovery" | "link_downed" | "port_xmit_constraint_errors" | "port_rcv_constraint_errors" => 255.0,
        "local_link_integrity_errors" | "excessive_buffer_overrun_errors" => 15.0,
        "symbol_error"
        | "port_rcv_errors"
        | "port_rcv_remote_physical_errors"
        | "port_rcv_switch_relay_errors"
        | "port_xmit_discards"
        | "VL15_dropped" => 65535.0,
        "port_xmit_wait" => 4_294_967_295.0,
        _ => return None,
    })
}

fn counter_samples(files: &Files, class: &str, of_port: &[(&str, &str); 2], samples: &mut Samples) {
    let (mut saturated, mut any) = (0.0, false);
    for folder in ["counters", "hw_counters"] {
        for name in files.names(&format!("{class}/{folder}/")) {
            let Some(value) = files.number(&format!("{class}/{folder}/{name}")).filter(|_| name != "lifespan") else {
                continue;
            };
            any = true;
            if folder == "counters" && ends_at(name) == Some(value) {
                saturated += 1.0;
            }
            let (family, unit) = match name {
                "port_rcv_data" => ("port_received_bytes_total", 4.0),
                "port_xmit_data" => ("port_transmitted_bytes_total", 4.0),
                "port_rcv_packets" | "rcvd_pkts" => ("port_received_packets_total", 1.0),
                "port_xmit_packets" | "sent_pkts" => ("port_transmitted_packets_total", 1.0),
                "port_xmit_wait" => ("port_transmit_wait_ticks_total", 1.0),
                _ => {
                    put(samples, "port_events_total", &[of_port[0], of_port[1], ("counter", name)], value);
                    continue;
                }
            };
            put(samples, family, of_port, value * unit);
        }
    }
    if any {
        put(samples, "port_saturated_counters", of_port, saturated);
    }
}

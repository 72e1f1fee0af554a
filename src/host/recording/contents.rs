//! Which contents of files may leave the host.

use std::fmt::Write as _;

/// Vendors and products by which a collector recognizes machines; any other is `other`.
pub(super) const VENDORS: [&str; 13] = [
    "QEMU",
    "KVM",
    "VMware",
    "VMW",
    "Xen",
    "Red Hat",
    "OpenStack",
    "Nutanix",
    "Google",
    "Amazon EC2",
    "Microsoft Corporation",
    "innotek GmbH",
    "Parallels",
];
pub(super) const PRODUCTS: [&str; 9] = [
    "Virtual Machine",
    "metal",
    "KVM",
    "OpenStack",
    "Google Compute Engine",
    "VMware",
    "VirtualBox",
    "Standard PC",
    "HVM domU",
];

/// Flags of `/proc/cpuinfo` that collectors look for.
const CPU_FLAGS: [&str; 3] = ["hypervisor", "vmx", "svm"];

/// Files of sysfs with words of the kernel's or of a driver's.
pub(super) const WORDS: &[&str] = &[
    "state",
    "phys_state",
    "rate",
    "link_layer",
    "cap_mask",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
    "aer_dev_correctable",
    "aer_dev_nonfatal",
    "aer_dev_fatal",
    "operstate",
    "slaves",
    "duplex",
    "mode",
    "type",
    "types",
    "scaling_governor",
    "cpulist",
    "local_cpulist",
    "local_cpus",
    "online",
    "offline",
    "isolated",
    "possible",
    "present",
    "nohz_full",
    "default_roce_mode",
    "traffic_class",
    "class",
    "driver_override",
    "enable",
    "power_state",
    "trust",
    "trust_state",
    "spoofcheck",
    "spoof_check",
    "link_state",
    "policy",
    "vlan",
    "max_tx_rate",
    "min_tx_rate",
    "stats",
    "config",
    "phys_port_name",
    "hugepages",
    "meminfo",
    "health_status",
];

/// Files of sysfs that hold an identifier.
pub(super) const IDENTIFIERS: &[&str] = &[
    "address",
    "broadcast",
    "node_guid",
    "sys_image_guid",
    "port_guid",
    "phys_switch_id",
    "phys_port_id",
    "node",
    "port",
    "mac",
];

/// Files of sysfs with the name or version of a card's model or firmware.
pub(super) const MODELS: &[&str] =
    &["board_id", "hca_type", "fw_ver", "fw_version", "hw_rev", "version", "firmware_version"];

/// Numbers, decimal or hexadecimal, with signs and units between them that are no words.
pub(super) fn is_numeric(text: &str) -> bool {
    let words = text.split(|c: char| c.is_whitespace() || ",-:;=.%()/".contains(c));
    words.filter(|word| !word.is_empty()).all(|word| {
        let digits = word.strip_prefix("0x").unwrap_or(word);
        digits.bytes().all(|byte| byte.is_ascii_digit())
            || (digits.len() <= 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
            || (word.starts_with("0x") && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    })
}

/// The known words of a text; `other` for one without any.
pub(super) fn known_part(text: &str, known: &[&str]) -> String {
    let found: Vec<&str> = known.iter().copied().filter(|part| text.contains(part)).collect();
    if found.is_empty() { "other\n".to_owned() } else { found.join(" ") + "\n" }
}

/// The flags of `/proc/cpuinfo` that collectors look for.
pub(super) fn cpu_flags(text: &str) -> String {
    let mut out = "processor\t: 0\n".to_owned();
    if let Some(flags) = text.lines().find_map(|line| line.strip_prefix("flags")) {
        let known: Vec<&str> = flags.split_ascii_whitespace().filter(|flag| CPU_FLAGS.contains(flag)).collect();
        let _ = writeln!(out, "flags\t\t: {}", known.join(" "));
    }
    out
}

//! The keys of a configuration file, as serde reads them. `reference.rs` documents each.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use crate::cli::args::values::{LogFormat, LogLevel};

/// A configuration file as written. Every key is optional; an unknown one is an error.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ConfigFile {
    /// `[path]`
    pub path: PathConfig,
    /// `[log]`
    pub log: LogConfig,
    /// `[web]`
    pub web: WebConfig,
    /// `[collector]`
    pub collector: CollectorConfig,
    /// `[storage]`
    pub storage: StorageConfig,
    /// `[policy]`
    pub policy: PolicyConfig,
    /// `[probe]`
    pub probe: ProbeConfig,
    /// The values that are set, by key, as text.
    #[serde(skip)]
    pub values: BTreeMap<String, String>,
}

/// `[path]`: where the host is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[expect(missing_docs, reason = "as the flags of the same names")]
pub struct PathConfig {
    pub rootfs: Option<PathBuf>,
    pub sysfs: Option<PathBuf>,
    pub procfs: Option<PathBuf>,
}

/// `[log]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[expect(missing_docs, reason = "as the flags of the same names")]
pub struct LogConfig {
    pub level: Option<LogLevel>,
    pub format: Option<LogFormat>,
}

/// `[web]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[expect(missing_docs, reason = "as the flags of the same names")]
pub struct WebConfig {
    pub listen_address: Vec<String>,
    pub telemetry_path: Option<String>,
    pub config_file: Option<PathBuf>,
    pub max_requests: Option<usize>,
    pub systemd_socket: Option<bool>,
    pub allow_weaker_reload: Option<bool>,
    pub public_snapshot: Option<bool>,
}

/// `[collector]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct CollectorConfig {
    /// As `--collector.device-include`.
    pub device_include: Option<String>,
    /// As `--collector.device-exclude`.
    pub device_exclude: Option<String>,
    /// As `--collector.vf-ports`.
    pub vf_ports: Option<bool>,
    /// Collectors that do not run.
    pub disabled: Vec<String>,
    /// Collectors that run though they do not by default.
    pub enabled: Vec<String>,
    /// As `--collector.kubelet-socket`.
    pub kubelet_socket: Option<PathBuf>,
    /// `[collector.qid-map]`
    pub qid_map: Option<QidMapConfig>,
}

/// `[collector.qid-map]`: where the queue pair maps of a stack outside of the kernel's tree are.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct QidMapConfig {
    /// Path below the host root, with `*` and `?` in its names.
    pub path: String,
    /// Columns from the left: `vf`, `local`, `global`, `state`, or `-`.
    pub columns: Vec<String>,
    /// Whether numbers without `0x` are hexadecimal.
    #[serde(default)]
    pub hexadecimal: bool,
}

/// `[storage]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct StorageConfig {
    /// As `--storage.path`.
    pub path: Option<PathBuf>,
}

/// `[probe]`: what is measured, and when.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ProbeConfig {
    /// Whether the agent measures by itself.
    pub enabled: Option<bool>,
    /// Which probes: `rdma_loopback`, `memory`, `rdma_peer`, `tcp_peer`.
    pub probes: Vec<String>,
    /// Pattern of whole device names that are measured.
    pub devices: Option<String>,
    /// Time between two runs of a probe, about.
    pub interval: Option<String>,
    /// Share of a day's time that probes may use of a port.
    pub budget: Option<f64>,
    /// Message size in bytes.
    pub size: Option<u64>,
    /// Queue pairs.
    pub queue_pairs: Option<u32>,
    /// How long bandwidth is measured.
    pub duration: Option<String>,
    /// How long a program may take beyond the time that it measures.
    pub patience: Option<String>,
    /// Whether both directions at once are measured too.
    pub both: Option<bool>,
    /// GID index on Ethernet.
    pub gid_index: Option<u32>,
    /// The lock that keeps probes of one host apart.
    pub lock: Option<PathBuf>,
    /// Files of a job scheduler: the host works while one is there.
    pub busy_files: Vec<PathBuf>,
    /// A command that succeeds where the host is free.
    pub busy_command: Vec<String>,
    /// Load a CPU above which nothing runs.
    pub most_load: Option<f64>,
    /// `[probe.peers]`
    pub peers: PeersConfig,
}

/// `[probe.peers]`: probes between hosts.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PeersConfig {
    /// Whether servers are started for peers that ask.
    pub serve: Option<bool>,
    /// The hosts that measure with each other, in the format of file-based service discovery.
    pub list: Option<PathBuf>,
    /// What this host is called there.
    pub name: Option<String>,
    /// The key that the hosts share.
    pub key_file: Option<PathBuf>,
    /// Length of a time slot; in each a host has one partner at most.
    pub slot: Option<String>,
    /// Hosts that measure at once.
    pub concurrency: Option<usize>,
    /// `[probe.peers.tls]`
    pub tls: Option<PeersTlsConfig>,
}

/// `[probe.peers.tls]`: peers are asked over HTTPS.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PeersTlsConfig {
    /// Authorities in PEM; the system's when none is named.
    pub ca_file: Option<PathBuf>,
    /// This host's certificate in PEM.
    pub cert_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
}

/// `[policy]`: expectations, exceptions, thresholds.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PolicyConfig {
    /// RDMA devices that must be present.
    pub devices: Vec<String>,
    /// `[[policy.port]]`
    pub port: Vec<PortRule>,
    /// `[[policy.link]]`
    pub link: Vec<LinkRule>,
    /// `[[policy.vfs]]`
    pub vfs: Vec<VfRule>,
    /// `[[policy.exception]]`
    pub exception: Vec<ExceptionRule>,
    /// `[policy.severity]`: other severities, by check.
    pub severity: BTreeMap<String, String>,
    /// `[policy.hold]`: other hold times, by check.
    pub hold: BTreeMap<String, String>,
    /// `[policy.threshold]`
    pub threshold: ThresholdConfig,
    /// `[policy.maintenance]`
    pub maintenance: MaintenanceConfig,
}

/// `[policy.maintenance]`: when findings are acknowledged only and no probe runs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct MaintenanceConfig {
    /// A file: the host is in maintenance while it is there.
    pub file: Option<PathBuf>,
    /// Windows in UTC, `"Sat 02:00-04:00"`.
    pub windows: Vec<String>,
}

/// What is expected of ports.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PortRule {
    /// Pattern of whole port names (`mlx5_[0-3]/1`).
    pub r#match: String,
    /// Whether they should be up.
    pub up: Option<bool>,
    /// The least rate, `"200 Gb/s"`.
    pub rate: Option<String>,
}

/// What is expected of a device's PCIe link.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkRule {
    /// Pattern of whole device names.
    pub r#match: String,
    /// The least speed, `"16 GT/s"`.
    pub speed: Option<String>,
    /// The least width in lanes.
    pub width: Option<u8>,
}

/// How many VFs are expected of a PF.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VfRule {
    /// Pattern of whole names of PFs: PCI address, RDMA device or interface.
    pub r#match: String,
    /// VFs, at least.
    pub count: u32,
}

/// Findings that are accepted.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExceptionRule {
    /// Pattern of whole subjects (`mlx5_3`, `mlx5_3/1`, `0000:98:00.0`).
    pub r#match: String,
    /// Which checks; all when left out.
    #[serde(default)]
    pub checks: Vec<String>,
    /// Why.
    pub reason: String,
}

/// `[policy.threshold]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ThresholdConfig {
    /// Flaps in twelve hours that are critical.
    pub flaps_critical: Option<usize>,
    /// How long after boot flaps stand apart.
    pub settle: Option<String>,
    /// Correctable AER errors an hour that are a warning.
    pub correctable_aer_per_hour: Option<u64>,
    /// `[policy.threshold.errors]`: most increases of a counter in its window.
    pub errors: BTreeMap<String, u64>,
}

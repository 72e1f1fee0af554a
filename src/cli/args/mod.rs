//! The command line. Flags follow the exporters that operators know; each may also come from the environment.

pub mod explain;
pub mod help;
pub mod values;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use explain::ExplainArgs;
pub use values::MetricsArgs;
use values::{CheckFormat, DocumentFormat, ExitMap, LogFormat, LogLevel, parse_duration, parse_sample};

use crate::bench::peers::schedule::split;
use crate::fleet::limit::AuditLimit;
use crate::host::COLLECTORS;

/// Prometheus exporter and health monitor for RDMA and SR-IOV cards: ports, PCIe links, counters, VFs
#[derive(Debug, Parser)]
#[command(
    name = "lanewatch",
    version,
    about = "Health monitor for RDMA and SR-IOV hosts, and Prometheus exporter",
    max_term_width = 100,
    propagate_version = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Flags that commands share.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Flags that commands share.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Host and configuration")]
pub struct CommonArgs {
    /// Read the built-in example host, during its fault
    #[arg(long, global = true, conflicts_with_all = ["rootfs", "sysfs", "procfs"])]
    pub demo: bool,
    /// Root of the host to read [default: /]
    #[arg(long = "path.rootfs", global = true, value_name = "DIR", env = "LANEWATCH_PATH_ROOTFS")]
    pub rootfs: Option<PathBuf>,
    /// The host's /sys [default: sys below --path.rootfs]
    #[arg(
        long = "path.sysfs",
        global = true,
        value_name = "DIR",
        env = "LANEWATCH_PATH_SYSFS",
        hide_short_help = true
    )]
    pub sysfs: Option<PathBuf>,
    /// The host's /proc [default: proc below --path.rootfs]
    #[arg(
        long = "path.procfs",
        global = true,
        value_name = "DIR",
        env = "LANEWATCH_PATH_PROCFS",
        hide_short_help = true
    )]
    pub procfs: Option<PathBuf>,
    /// Configuration file (TOML)
    #[arg(long = "config.file", global = true, value_name = "FILE", env = "LANEWATCH_CONFIG_FILE")]
    pub config: Option<PathBuf>,
    /// State directory [default: /var/lib/lanewatch]
    #[arg(long = "storage.path", global = true, value_name = "DIR", env = "LANEWATCH_STORAGE_PATH")]
    pub storage: Option<PathBuf>,
    /// Log level, from error to trace [default: info]
    ///
    /// Levels: error, warn, info, debug, trace.
    #[arg(long = "log.level", global = true, value_name = "LEVEL", env = "LANEWATCH_LOG_LEVEL")]
    pub log_level: Option<LogLevel>,
    /// Log format: logfmt, json [default: logfmt]
    #[arg(
        long = "log.format",
        global = true,
        value_name = "FORMAT",
        env = "LANEWATCH_LOG_FORMAT",
        hide_short_help = true
    )]
    pub log_format: Option<LogFormat>,
    /// Read only RDMA devices whose whole name matches
    #[arg(
        long = "collector.device-include",
        global = true,
        value_name = "REGEX",
        env = "LANEWATCH_COLLECTOR_DEVICE_INCLUDE",
        hide_short_help = true
    )]
    pub device_include: Option<String>,
    /// Skip RDMA devices whose whole name matches
    ///
    /// None of their files is opened.
    #[arg(
        long = "collector.device-exclude",
        global = true,
        value_name = "REGEX",
        env = "LANEWATCH_COLLECTOR_DEVICE_EXCLUDE",
        hide_short_help = true
    )]
    pub device_exclude: Option<String>,
    /// Socket of the kubelet's PodResources API
    ///
    /// Shows which pod has which device; usually /var/lib/kubelet/pod-resources/kubelet.sock. Not used by default.
    #[arg(
        long = "collector.kubelet-socket",
        global = true,
        value_name = "SOCKET",
        env = "LANEWATCH_COLLECTOR_KUBELET_SOCKET",
        hide_short_help = true
    )]
    pub kubelet_socket: Option<PathBuf>,
    /// Export all metrics of VFs' ports
    ///
    /// By default only their states and rate.
    #[arg(long = "collector.vf-ports", global = true, env = "LANEWATCH_COLLECTOR_VF_PORTS", hide_short_help = true)]
    pub vf_ports: bool,
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent: metrics and the status page (the default)
    Serve(ServeArgs),
    /// Check this host; exit 0 ok, 1 warning, 2 critical, 3 unknown
    Check(CheckArgs),
    /// Show a device's path from memory to the wire, and its limit
    Explain(ExplainArgs),
    /// Show VFs: driver, identity, what uses them, since when
    Vf(VfArgs),
    /// Show how near GPUs and network cards are to each other
    Topo(TopoArgs),
    /// Run benchmarks and compare them with the limit of the path
    Bench(BenchArgs),
    /// Print the metrics once
    Metrics(MetricsArgs),
    /// Show, compare or accept the expected state of this host
    Baseline(BaselineArgs),
    /// Record this host for a bug report, with identifiers replaced
    Snapshot(SnapshotArgs),
    /// Serve a built-in example host whose PCIe link degrades
    Demo(DemoArgs),
    /// Report stranded capacity of a fleet, from Prometheus
    Audit(Box<AuditArgs>),
    /// Check configuration files
    Config(ConfigArgs),
    /// Print shell completions
    Completions {
        /// Shell: bash, elvish, fish, powershell, zsh
        shell: clap_complete::Shell,
    },
    /// Print a manual page
    Man {
        /// Command [default: the program's own page]
        #[arg(value_name = "COMMAND")]
        of: Option<String>,
    },
}

/// Flags of `serve` and `demo` that concern HTTP.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Web")]
pub struct WebArgs {
    /// Listen address; repeatable [default: :10015]
    #[arg(
        long = "web.listen-address",
        value_name = "HOST:PORT",
        env = "LANEWATCH_WEB_LISTEN_ADDRESS",
        value_delimiter = ','
    )]
    pub listen: Vec<String>,
    /// Path of the metrics [default: /metrics]
    #[arg(
        long = "web.telemetry-path",
        value_name = "PATH",
        env = "LANEWATCH_WEB_TELEMETRY_PATH",
        hide_short_help = true
    )]
    pub telemetry_path: Option<String>,
    /// Maximum concurrent requests; 0 for no limit [default: 512]
    #[arg(long = "web.max-requests", value_name = "N", env = "LANEWATCH_WEB_MAX_REQUESTS", hide_short_help = true)]
    pub max_requests: Option<usize>,
    /// TLS and users: the web configuration of Prometheus exporters
    ///
    /// A YAML file with TLS, client certificates, users, headers and a rate limit, in the format of Prometheus exporters.
    #[arg(long = "web.config.file", value_name = "FILE", env = "LANEWATCH_WEB_CONFIG_FILE")]
    pub web_config: Option<PathBuf>,
    /// Take the listening sockets from systemd (LISTEN_FDS)
    #[arg(long = "web.systemd-socket", env = "LANEWATCH_WEB_SYSTEMD_SOCKET", hide_short_help = true)]
    pub systemd_socket: bool,
    /// Apply a changed web configuration even if it asks clients for less
    ///
    /// Without this flag, a reload that drops TLS, certificates, names, versions or passwords that were asked for is refused.
    #[arg(long = "web.allow-weaker-reload", env = "LANEWATCH_WEB_ALLOW_WEAKER_RELOAD", hide_short_help = true)]
    pub allow_weaker_reload: bool,
    /// Serve /api/v1/snapshot to clients that do not authenticate
    #[arg(long = "web.public-snapshot", env = "LANEWATCH_WEB_PUBLIC_SNAPSHOT", hide_short_help = true)]
    pub public_snapshot: bool,
}

/// `serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// HTTP.
    #[command(flatten)]
    pub web: WebArgs,
}

/// `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// Output: text, json, nagios, npd
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: CheckFormat,
    /// Time between two reads, for rates; 0 reads once
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_sample)]
    pub sample: Duration,
    /// How long to wait for a device
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Exit codes: nagios (0-3), npd (0-2), binary (0-1)
    ///
    /// nagios: 0 ok, 1 warning, 2 critical, 3 unknown. npd (node-problem-detector): 0 ok, 1 not ok, 2 unknown. binary: 0 ok,
    /// 1 anything else. [default: npd with --format npd, else nagios]
    #[arg(long, value_name = "MAP")]
    pub exit_map: Option<ExitMap>,
    /// Report unknown also where only a permission is missing
    #[arg(long)]
    pub strict: bool,
    /// Show how each check stands and what could not be read
    #[arg(short, long)]
    pub verbose: bool,
}

/// `baseline`.
#[derive(Debug, Clone, Args)]
pub struct BaselineArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: BaselineAction,
}

/// What to do with the baseline.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum BaselineAction {
    /// Print the baseline
    Show,
    /// Print what differs between the baseline and the host now
    Diff,
    /// Make the current state of the host the baseline
    Accept,
}

/// `snapshot`.
#[derive(Debug, Clone, Args)]
pub struct SnapshotArgs {
    /// Archive to write (.tar.gz); an existing file is kept
    #[arg(short, long, value_name = "FILE", required_unless_present = "list")]
    pub output: Option<PathBuf>,
    /// Keep GUIDs, addresses and names as they are
    #[arg(long)]
    pub keep_identifiers: bool,
    /// List what is in an archive
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "keep_identifiers"])]
    pub list: Option<PathBuf>,
}

/// `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Speed of the scenario, 1 to 60
    ///
    /// At 1 it lasts 20 minutes, and its faults long enough for the alert rules to fire.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub pace: u32,
    /// HTTP.
    #[command(flatten)]
    pub web: WebArgs,
}

/// `vf`.
#[derive(Debug, Clone, Args)]
pub struct VfArgs {
    /// PF: PCI address, interface or RDMA device [default: all]
    pub pf: Option<String>,
    /// Output: text, json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: DocumentFormat,
    /// Also show changes since an age (2h) or a time
    ///
    /// Such as 30m, 2h, 1d or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// How long to wait for a device
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub timeout: Duration,
}

/// `topo`.
#[derive(Debug, Clone, Args)]
pub struct TopoArgs {
    /// Output: text, json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: DocumentFormat,
    /// How long to wait for a device
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub timeout: Duration,
}

/// `config`.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// What to do with configuration files.
#[derive(Debug, Clone, Subcommand)]
pub enum ConfigAction {
    /// Check a file (TOML, or YAML for the web configuration) and list every error
    Check {
        /// File to check
        file: PathBuf,
        /// Open no other file: the configuration is for another host
        #[arg(long)]
        no_files: bool,
        /// Also list the keys that differ from this file and need a restart
        #[arg(long, value_name = "FILE")]
        against: Option<PathBuf>,
    },
}

/// The command line's definition, with the switches of collectors and the help of every command.
pub fn command() -> clap::Command {
    help::tailor(add_flags(Cli::command()))
}

/// Parses the command line; `serve` is the default command.
///
/// # Errors
/// What clap says about a wrong command line, or its help and version texts.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<(Cli, ArgMatches), clap::Error> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let command = command();
    let asks = |arg: &OsString| ["-h", "--help", "-V", "--version"].iter().any(|flag| arg == flag);
    let insert_serve = |args: &mut Vec<OsString>| args.insert(1.min(args.len()), OsString::from("serve"));
    let has_command = command_name(&args).is_some() || args.iter().skip(1).any(asks);
    if !has_command {
        insert_serve(&mut args);
    }
    let mut outcome = command.clone().try_get_matches_from(&args);
    // The name of a command may be the value of a flag: `--storage.path check`.
    if has_command && outcome.as_ref().is_err_and(clap::Error::use_stderr) {
        insert_serve(&mut args);
        outcome = command.try_get_matches_from(&args).or(outcome);
    }
    let matches = outcome?;
    Cli::from_arg_matches(&matches).map(|cli| (cli, matches))
}

/// The first argument that is the name of a command.
pub fn command_name(args: &[OsString]) -> Option<String> {
    let command = command();
    let names = |arg: &&OsString| *arg == "help" || command.get_subcommands().any(|c| *arg == c.get_name());
    args.iter().skip(1).find(names).map(|name| name.to_string_lossy().into_owned())
}

/// Adds a pair of flags for each collector. Their help is one entry for all of them, so that it stays short.
pub fn add_flags(mut command: clap::Command) -> clap::Command {
    for spec in COLLECTORS {
        let arg = |name: String, help: String| {
            Arg::new(name.clone()).long(name).help(help).action(ArgAction::SetTrue).global(true).hide(true)
        };
        let (on, off) = (format!("collector.{}", spec.name), format!("no-collector.{}", spec.name));
        command = command
            .arg(arg(on.clone(), format!("Switch on: {}", spec.about)).overrides_with(off.clone()))
            .arg(arg(off, format!("Switch off: {}", spec.about)).overrides_with(on));
    }
    command
}

/// The collectors that the command line switches on or off, in the order of the catalogue.
pub fn collector_flags(matches: &ArgMatches) -> Vec<(&'static str, bool)> {
    let deepest = std::iter::successors(Some(matches), |m| m.subcommand().map(|(_, m)| m)).last().unwrap_or(matches);
    let given = |name: &str| {
        deepest.try_contains_id(name).is_ok_and(|known| known)
            && deepest.value_source(name) == Some(clap::parser::ValueSource::CommandLine)
            && deepest.get_flag(name)
    };
    let mut flags = Vec::new();
    for spec in COLLECTORS {
        if given(&format!("collector.{}", spec.name)) {
            flags.push((spec.name, true));
        }
        if given(&format!("no-collector.{}", spec.name)) {
            flags.push((spec.name, false));
        }
    }
    flags
}

/// `audit`.
#[derive(Debug, Clone, Args)]
pub struct AuditArgs {
    /// The server.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Group by labels of targets or devices: site, rack, driver
    ///
    /// Labels of devices: hca_type, board_id, firmware_version, driver, numa_node, link_layer. Any other label is one of
    /// targets.
    #[arg(long, value_name = "LABEL,...", value_delimiter = ',')]
    pub by: Vec<String>,
    /// Only hosts with these labels: site="ams",env!="lab"
    #[arg(long = "match", value_name = "MATCHERS", default_value = "", hide_default_value = true)]
    pub matchers: String,
    /// Labels that identify a host; add the cluster where `instance` is ambiguous
    #[arg(
        long,
        hide_short_help = true,
        value_name = "LABEL,...",
        value_delimiter = ',',
        default_value = "job,instance"
    )]
    pub identity: Vec<String>,
    /// Time of the audit: an age (2h) or a date (2026-01-31T12:00:00Z) [default: now]
    #[arg(long, hide_short_help = true, value_name = "TIME")]
    pub time: Option<String>,
    /// Compare with an earlier time, such as 30d or a date
    ///
    /// Prints what got worse and better, on which hosts, and what it cost in bandwidth. Several audits from then to now
    /// (--steps) show when a problem began and ended.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// With --since: number of steps; one audit each
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 10, requires = "since", value_parser = clap::value_parser!(u16).range(1..=200))]
    pub steps: u16,
    /// How far back to look for the rate of a port that is down
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "7d", value_parser = promql_range)]
    pub history: String,
    /// Leave out hosts whose checks last ran longer ago
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "5m", value_parser = parse_duration)]
    pub stale_after: Duration,
    /// Output: text, csv, json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: AuditFormat,
    /// Table to print as CSV: groups, hosts, fixes, firmware, excluded, cables
    #[arg(long, hide_short_help = true, value_name = "TABLE", default_value = "groups")]
    pub table: AuditTable,
    /// Maximum length of the lists of hosts and fixes
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Exit with 3 above a limit, such as stranded>5%; repeatable
    ///
    /// Limits: stranded>5%, degraded>400Gb/s, down>3, dead (a host does not report), skew (a device has
    /// other firmware than most of its model).
    #[arg(long, value_name = "LIMIT", value_delimiter = ',')]
    pub fail_on: Vec<AuditLimit>,
}

/// The Prometheus server and how to authenticate.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// Base URL of the Prometheus API, without /api/v1
    #[arg(long, value_name = "URL", env = "LANEWATCH_PROMETHEUS")]
    pub prometheus: String,
    /// File with a bearer token
    #[arg(long, value_name = "FILE", env = "LANEWATCH_BEARER_TOKEN_FILE", conflicts_with = "username")]
    pub bearer_token_file: Option<PathBuf>,
    /// User name for basic authentication
    #[arg(long, hide_short_help = true, value_name = "NAME", env = "LANEWATCH_USERNAME", requires = "password_file")]
    pub username: Option<String>,
    /// File with its password
    #[arg(long, hide_short_help = true, value_name = "FILE", env = "LANEWATCH_PASSWORD_FILE", requires = "username")]
    pub password_file: Option<PathBuf>,
    /// Tenant of Mimir, Cortex or Thanos (X-Scope-OrgID)
    #[arg(long, hide_short_help = true, value_name = "ID", env = "LANEWATCH_TENANT")]
    pub tenant: Option<String>,
    /// Additional request header; repeatable
    #[arg(long = "header", hide_short_help = true, value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// CA certificates to trust, PEM [default: the system's]
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Client certificate, PEM
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "key_file")]
    pub cert_file: Option<PathBuf>,
    /// Key of the client certificate, PEM
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "cert_file")]
    pub key_file: Option<PathBuf>,
    /// Do not verify the server's certificate
    #[arg(long, hide_short_help = true)]
    pub insecure_skip_verify: bool,
    /// Timeout of a request
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Maximum size of a response, in MiB
    #[arg(long, hide_short_help = true, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_answer: u16,
    /// Instances per query; above 100 servers scan all hosts instead of looking them up
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    pub shard: u16,
}

/// Output formats of `audit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditFormat {
    /// Tables for people.
    Text,
    /// One table, in bytes per second.
    Csv,
    /// Stable, versioned.
    Json,
}

/// Tables of `audit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditTable {
    /// Sums by group.
    Groups,
    /// Hosts with most stranded.
    Hosts,
    /// What to do first.
    Fixes,
    /// Devices by model and firmware.
    Firmware,
    /// Hosts that are not in the sums, and why.
    Excluded,
    /// Cables between two hosts, and which receiver is bad.
    Cables,
}

/// Parses a PromQL range, such as 7d.
fn promql_range(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is not a time such as 12h, 7d or 2w");
    let time = humantime::parse_duration(text).map_err(|_| wrong())?;
    if time.as_secs() == 0 { Err(wrong()) } else { Ok(format!("{}s", time.as_secs())) }
}

/// The highest index of a GID: verbs have eight bits for it.
pub const HIGHEST_GID: u32 = 255;

/// `bench`.
#[derive(Debug, Clone, Default, Args)]
pub struct BenchArgs {
    /// Device (mlx5_3), port (mlx5_3/1) or memory [default: all]
    pub device: Option<String>,
    /// Message size in bytes [default: 1048576]
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub size: Option<u64>,
    /// Queue pairs [default: 4]
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub queue_pairs: Option<u32>,
    /// Duration of a bandwidth measurement, whole seconds [default: 5s]
    #[arg(long, hide_short_help = true, value_name = "TIME", value_parser = whole_seconds)]
    pub duration: Option<Duration>,
    /// Also measure both directions at once
    #[arg(long)]
    pub both: bool,
    /// GID index on Ethernet [default: a RoCE v2 GID]
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(HIGHEST_GID)))]
    pub gid_index: Option<u32>,
    /// Benchmark to another host [port: 10015]
    ///
    /// The agent of the other host must serve peers ([probe.peers] serve).
    #[arg(long, value_name = "HOST[:PORT]", value_parser = peer, conflicts_with = "read")]
    pub peer: Option<String>,
    /// Run even if it may disturb a workload
    #[arg(long)]
    pub force: bool,
    /// Read output of perftest or iperf3; - is stdin
    #[arg(long, value_name = "FILE")]
    pub read: Vec<PathBuf>,
    /// Output: text, json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: DocumentFormat,
}

/// A peer with its port, 10015 by default.
fn peer(text: &str) -> Result<String, String> {
    let whole = if split(text).is_some() { text.to_owned() } else { format!("{text}:10015") };
    match split(&whole) {
        Some(_) => Ok(whole),
        None => Err("not a host such as node18, node18:10015 or [2001:db8::1]:10015".to_owned()),
    }
}

fn whole_seconds(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    let whole = time.subsec_nanos() == 0 && (1..=600).contains(&time.as_secs());
    if whole { Ok(time) } else { Err(format!("{text:?} is not a whole number of seconds from 1s to 10m")) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn help_texts_are_of_one_style() {
        let mut commands = vec![super::command()];
        while let Some(command) = commands.pop() {
            let of_command = command.get_about().map(ToString::to_string).unwrap_or_default();
            let of_arguments = command.get_arguments().map(|argument| {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                (argument.get_id().to_string(), help)
            });
            for (name, help) in of_arguments.chain([(command.get_name().to_owned(), of_command)]) {
                let begins = help.chars().next().is_some_and(char::is_uppercase);
                assert!(begins && !help.ends_with('.') && help.is_ascii(), "{name}: {help:?}");
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }
}

//! The command line. Flags follow the exporters that operators know; each may also come from the environment.

pub mod audit;
pub mod bench;
pub mod collectors;
pub mod time;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub use audit::AuditArgs;
pub use bench::BenchArgs;
use collectors::add_flags;

/// Watches the whole lane of RDMA and SR-IOV cards: ports, PCIe links, counters; tells which link is degraded and
/// what to do.
#[derive(Debug, Parser)]
#[command(name = "lanewatch", version, about, max_term_width = 100, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Flags of every command.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Host and configuration")]
pub struct CommonArgs {
    /// Root of the host to read; its `sys` and `proc` are below it [default: /]
    #[arg(long = "path.rootfs", global = true, value_name = "DIR", env = "LANEWATCH_PATH_ROOTFS")]
    pub rootfs: Option<PathBuf>,
    /// The host's /sys [default: sys below the root]
    #[arg(long = "path.sysfs", global = true, value_name = "DIR", env = "LANEWATCH_PATH_SYSFS")]
    pub sysfs: Option<PathBuf>,
    /// The host's /proc [default: proc below the root]
    #[arg(long = "path.procfs", global = true, value_name = "DIR", env = "LANEWATCH_PATH_PROCFS")]
    pub procfs: Option<PathBuf>,
    /// Configuration file (TOML)
    #[arg(long = "config.file", global = true, value_name = "FILE", env = "LANEWATCH_CONFIG_FILE")]
    pub config: Option<PathBuf>,
    /// Directory of the agent's state: baseline, events [default: /var/lib/lanewatch]
    #[arg(long = "storage.path", global = true, value_name = "DIR", env = "LANEWATCH_STORAGE_PATH")]
    pub storage: Option<PathBuf>,
    /// Least severe messages to log: error, warn, info, debug, trace [default: info]
    #[arg(long = "log.level", global = true, value_name = "LEVEL", env = "LANEWATCH_LOG_LEVEL")]
    pub log_level: Option<LogLevel>,
    /// Form of log lines [default: logfmt]
    #[arg(long = "log.format", global = true, value_name = "FORM", env = "LANEWATCH_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Read only RDMA devices whose whole name matches this pattern
    #[arg(
        long = "collector.device-include",
        global = true,
        value_name = "REGEX",
        env = "LANEWATCH_COLLECTOR_DEVICE_INCLUDE"
    )]
    pub device_include: Option<String>,
    /// Open nothing of RDMA devices whose whole name matches this pattern
    #[arg(
        long = "collector.device-exclude",
        global = true,
        value_name = "REGEX",
        env = "LANEWATCH_COLLECTOR_DEVICE_EXCLUDE"
    )]
    pub device_exclude: Option<String>,
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent: poll, judge, serve metrics and the status page (the default)
    Serve(ServeArgs),
    /// Look once and say what is wrong: exit 0 ok, 1 warning, 2 critical, 3 unknown
    Check(CheckArgs),
    /// Draw the lane of a device hop by hop, with the limit and what to do about it
    Explain(ExplainArgs),
    /// Show the map of VFs: which function, which identity, who holds it, since when
    Vf(VfArgs),
    /// Run probes now, or read what a benchmark printed, and compare with what the lane can carry
    Bench(BenchArgs),
    /// Print the metrics once
    Metrics(MetricsArgs),
    /// Show, compare or accept what this host is expected to be like
    Baseline(BaselineArgs),
    /// Record this host for a bug report or a test, with identifiers replaced
    Snapshot(SnapshotArgs),
    /// Serve a built-in example host whose link degrades and recovers
    Demo(DemoArgs),
    /// Ask Prometheus for the capacity of the whole fleet: what is stranded, why, and what to do first
    Audit(Box<AuditArgs>),
    /// Work on configuration files
    Config(ConfigArgs),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page
    Man {
        /// The command whose page it is; the program's own page when left out
        #[arg(value_name = "COMMAND")]
        of: Option<String>,
    },
}

/// Flags of `serve` and `demo` that concern HTTP.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Web")]
pub struct WebArgs {
    /// Address to listen on; may be given more than once [default: :10015]
    #[arg(
        long = "web.listen-address",
        value_name = "HOST:PORT",
        env = "LANEWATCH_WEB_LISTEN_ADDRESS",
        value_delimiter = ','
    )]
    pub listen: Vec<String>,
    /// Path of the metrics [default: /metrics]
    #[arg(long = "web.telemetry-path", value_name = "PATH", env = "LANEWATCH_WEB_TELEMETRY_PATH")]
    pub telemetry_path: Option<String>,
    /// Most requests served at once; 0 for no limit [default: 512]
    #[arg(long = "web.max-requests", value_name = "N", env = "LANEWATCH_WEB_MAX_REQUESTS")]
    pub max_requests: Option<usize>,
    /// TLS, client certificates, users, headers and rate limit, in the format of Prometheus' exporters (YAML)
    #[arg(long = "web.config.file", value_name = "FILE", env = "LANEWATCH_WEB_CONFIG_FILE")]
    pub web_config: Option<PathBuf>,
    /// Take the listening sockets from systemd
    #[arg(long = "web.systemd-socket", env = "LANEWATCH_WEB_SYSTEMD_SOCKET")]
    pub systemd_socket: bool,
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
    /// Form of the answer
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub format: CheckFormat,
    /// Time between the two readings that rates need; 0 reads once, as does a recorded host
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub sample: Duration,
    /// When to give up on devices that do not answer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Exit codes: as Nagios has them (0, 1, 2, 3), as node-problem-detector has them (0, 1, 2), or 0 and 1 only
    #[arg(long, value_name = "MAP", default_value = "nagios")]
    pub exit_map: ExitMap,
    /// Also count what a missing permission hides as unknown
    #[arg(long)]
    pub strict: bool,
    /// Say more: how each check stands, what could not be read
    #[arg(short, long)]
    pub verbose: bool,
}

/// `explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// The device or one of its ports (`mlx5_3`, `mlx5_3/1`), a PCI address or an interface; all when left out
    pub device: Option<String>,
    /// Colours: auto, always, never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
}

/// `metrics`.
#[derive(Debug, Clone, Args)]
pub struct MetricsArgs {
    /// Write them here, whole or not at all, for node_exporter's textfile collector
    #[arg(long, value_name = "PATH")]
    pub textfile: Option<PathBuf>,
    /// OpenMetrics instead of the text format 0.0.4
    #[arg(long, conflicts_with = "textfile")]
    pub openmetrics: bool,
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
    /// Print it
    Show,
    /// Print what differs between it and the host now
    Diff,
    /// Make the host as it is now the baseline
    Accept,
}

/// `snapshot`.
#[derive(Debug, Clone, Args)]
pub struct SnapshotArgs {
    /// Where to write it (a .tar.gz)
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Keep GUIDs, MAC addresses, serials and host names as they are
    #[arg(long)]
    pub keep_identifiers: bool,
}

/// `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// HTTP.
    #[command(flatten)]
    pub web: WebArgs,
}

/// `vf`.
#[derive(Debug, Clone, Args)]
pub struct VfArgs {
    /// The PF: its PCI address, an interface or an RDMA device; all when left out
    pub pf: Option<String>,
    /// Form of the answer
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub format: DocumentFormat,
    /// Also what the agent saw change since then: how long ago (2h), or a time (2026-01-31T12:00:00Z)
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// When to give up on devices that do not answer
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
    /// Check a file and what it names, and say what is wrong
    Check {
        /// The file
        file: PathBuf,
        /// Do not look at the files and directories that it names: it is for another host
        #[arg(long)]
        no_files: bool,
    },
}

/// Log levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are the definition")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Forms of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// `level=info msg=…`
    Logfmt,
    /// One JSON object a line.
    Json,
}

/// Forms of `check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckFormat {
    /// For people.
    Text,
    /// Stable, versioned.
    Json,
    /// One status line with performance data, then details.
    Nagios,
    /// One line of at most 80 characters.
    Npd,
}

/// Forms of `vf`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum DocumentFormat {
    /// A table.
    #[default]
    Text,
    /// Stable, versioned.
    Json,
}

/// Meanings of exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExitMap {
    /// 0 ok, 1 warning, 2 critical, 3 unknown.
    Nagios,
    /// 0 ok, 1 not ok, 2 unknown.
    Npd,
    /// 0 ok, 1 anything else.
    Binary,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set or it is dumb.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text).map_err(|_| format!("{text:?} is not a time such as 500ms, 5s or 2m"))
}

/// The command with a pair of flags for each collector.
pub fn command() -> clap::Command {
    add_flags(Cli::command())
}

/// Reads the command line; `serve` is what is meant when no command is named.
///
/// # Errors
/// What clap says of a wrong command line, or its help and version texts.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<(Cli, ArgMatches), clap::Error> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let command = command();
    let asks = |arg: &OsString| ["-h", "--help", "-V", "--version"].iter().any(|flag| arg == flag);
    let serve = |args: &mut Vec<OsString>| args.insert(1.min(args.len()), OsString::from("serve"));
    let named = named(&args).is_some() || args.iter().skip(1).any(asks);
    if !named {
        serve(&mut args);
    }
    let mut outcome = command.clone().try_get_matches_from(&args);
    // The name of a command may be the value of a flag: `--storage.path check`.
    if named && outcome.as_ref().is_err_and(clap::Error::use_stderr) {
        serve(&mut args);
        outcome = command.try_get_matches_from(&args).or(outcome);
    }
    let matches = outcome?;
    Cli::from_arg_matches(&matches).map(|cli| (cli, matches))
}

/// The first argument that is the name of a command.
pub fn named(args: &[OsString]) -> Option<String> {
    let command = command();
    let names = |arg: &&OsString| *arg == "help" || command.get_subcommands().any(|c| *arg == c.get_name());
    args.iter().skip(1).find(names).map(|name| name.to_string_lossy().into_owned())
}

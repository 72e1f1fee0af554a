//! The command line of `audit`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::parse_duration;
use crate::fleet::limit::AuditLimit;

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
    /// How far back to look for the rate of a port that is down
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "7d", value_parser = promql_range)]
    pub history: String,
    /// Leave out hosts whose checks last ran longer ago
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "5m", value_parser = parse_duration)]
    pub stale_after: Duration,
    /// Output: text, csv, json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: AuditFormat,
    /// Table to print as CSV: groups, hosts, fixes, firmware
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
}

/// Parses a PromQL range, such as 7d.
fn promql_range(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is not a time such as 12h, 7d or 2w");
    let time = humantime::parse_duration(text).map_err(|_| wrong())?;
    if time.as_secs() == 0 { Err(wrong()) } else { Ok(format!("{}s", time.as_secs())) }
}

//! The command line of `audit`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::parse_duration;
use crate::fleet::limit::AuditLimit;

/// `audit`.
#[derive(Debug, Clone, Args)]
pub struct AuditArgs {
    /// Whom to ask.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Labels to group by: those of targets (site, rack), or of devices (hca_type, board_id, firmware_version, driver,
    /// numa_node, link_layer)
    #[arg(long, value_name = "LABEL,...", value_delimiter = ',')]
    pub by: Vec<String>,
    /// Only hosts with these labels, as in PromQL: site="ams",env!="lab"
    #[arg(long = "match", value_name = "MATCHERS", default_value = "", hide_default_value = true)]
    pub matchers: String,
    /// Labels that tell hosts apart; add the cluster where two have an `instance` in common
    #[arg(long, value_name = "LABEL,...", value_delimiter = ',', default_value = "job,instance")]
    pub identity: Vec<String>,
    /// The moment: how long ago (2h), or a time (2026-01-31T12:00:00Z) [default: the server's now]
    #[arg(long, value_name = "TIME")]
    pub time: Option<String>,
    /// How far back to look for the rate of a port that is down
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = promql_range)]
    pub history: String,
    /// A host whose checks last ran longer ago is left out
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_duration)]
    pub stale_after: Duration,
    /// Form of the answer
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub format: AuditFormat,
    /// Which table, as CSV
    #[arg(long, value_name = "TABLE", default_value = "groups")]
    pub table: AuditTable,
    /// Longest lists of hosts and of what to do
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Exit with 3 when this is exceeded; may be given more than once: stranded>5%, degraded>400Gb/s, down>3, dead,
    /// skew
    #[arg(long, value_name = "LIMIT", value_delimiter = ',')]
    pub fail_on: Vec<AuditLimit>,
}

/// The server and how to speak to it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// Address of a server that speaks the Prometheus HTTP API, up to what comes before /api/v1
    #[arg(long, value_name = "URL", env = "LANEWATCH_PROMETHEUS")]
    pub prometheus: String,
    /// File with a token that is sent as `Authorization: Bearer`
    #[arg(long, value_name = "FILE", env = "LANEWATCH_BEARER_TOKEN_FILE", conflicts_with = "username")]
    pub bearer_token_file: Option<PathBuf>,
    /// Name for basic authentication
    #[arg(long, value_name = "NAME", env = "LANEWATCH_USERNAME", requires = "password_file")]
    pub username: Option<String>,
    /// File with the password for it
    #[arg(long, value_name = "FILE", env = "LANEWATCH_PASSWORD_FILE", requires = "username")]
    pub password_file: Option<PathBuf>,
    /// Tenant of Mimir, Cortex or Thanos (`X-Scope-OrgID`)
    #[arg(long, value_name = "ID", env = "LANEWATCH_TENANT")]
    pub tenant: Option<String>,
    /// Another header of every request; may be given more than once
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// Certificates of authorities to trust, in PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// The client's own certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "key_file")]
    pub cert_file: Option<PathBuf>,
    /// The key to it, in PEM
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    pub key_file: Option<PathBuf>,
    /// Believe the server whatever its certificate says
    #[arg(long)]
    pub insecure_skip_verify: bool,
    /// How long an answer may take
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Longest answer, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_answer: u16,
    /// Instances asked about at once; servers look up to 100 by name, and go through all hosts for more
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    pub shard: u16,
}

/// Forms of `audit`.
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
}

/// A time as PromQL has it in brackets.
fn promql_range(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is not a time such as 12h, 7d or 2w");
    let time = humantime::parse_duration(text).map_err(|_| wrong())?;
    if time.as_secs() == 0 { Err(wrong()) } else { Ok(format!("{}s", time.as_secs())) }
}

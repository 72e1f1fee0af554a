//! Flags of `bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values::{DocumentFormat, parse_duration};
use crate::bench::peers::list::split;

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

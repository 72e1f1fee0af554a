//! Flags of `bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{DocumentFormat, parse_duration};
use crate::bench::peers::list::split;

/// The highest index of a GID: verbs have eight bits for it.
pub const HIGHEST_GID: u32 = 255;

/// `bench`.
#[derive(Debug, Clone, Default, Args)]
pub struct BenchArgs {
    /// The device or port (`mlx5_3`, `mlx5_3/1`), or `memory`; all when left out
    pub device: Option<String>,
    /// Message size in bytes [default: 1048576]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub size: Option<u64>,
    /// Queue pairs [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub queue_pairs: Option<u32>,
    /// How long bandwidth is measured, whole seconds [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = whole_seconds)]
    pub duration: Option<Duration>,
    /// Measure both directions at once, too
    #[arg(long)]
    pub both: bool,
    /// GID index on Ethernet [default: one of RoCE v2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(HIGHEST_GID)))]
    pub gid_index: Option<u32>,
    /// Measure to another host, whose agent starts the servers ([probe.peers] serve) [port: 10015]
    #[arg(long, value_name = "HOST[:PORT]", value_parser = peer, conflicts_with = "read")]
    pub peer: Option<String>,
    /// Run even where it disturbs somebody; never beside another probe
    #[arg(long)]
    pub force: bool,
    /// Run nothing: read what perftest (text, JSON) or iperf3 (JSON) printed, - is standard input; may be given more than once
    #[arg(long, value_name = "FILE")]
    pub read: Vec<PathBuf>,
    /// Form of the answer
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub format: DocumentFormat,
}

/// A peer with its port.
fn peer(text: &str) -> Result<String, String> {
    let whole = if split(text).is_some() { text.to_owned() } else { format!("{text}:10015") };
    match split(&whole) {
        Some(_) => Ok(whole),
        None => Err("it is not a host such as node18, node18:10015 or [2001:db8::1]:10015".to_owned()),
    }
}

fn whole_seconds(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    let whole = time.subsec_nanos() == 0 && (1..=600).contains(&time.as_secs());
    if whole { Ok(time) } else { Err(format!("{text:?} is not a whole number of seconds from 1s to 10m")) }
}

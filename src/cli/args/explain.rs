//! The flags of `explain`.

use std::path::PathBuf;

use clap::Args;

use super::values::Color;

/// `explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// Device, port (mlx5_3/1), PCI address, interface or NUMA node (node0) [default: all]
    pub device: Option<String>,
    /// Explain outputs of mstlink --json, ethtool -m or ethtool -S instead (- for standard input)
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "device")]
    pub read: Vec<PathBuf>,
    /// Color: auto, always, never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
}

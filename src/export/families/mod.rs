//! The families by what they speak of. A module holds rows of the catalogue, each with its write.

pub mod addressing;
pub mod agent;
pub mod device;
pub mod findings;
pub mod health;
pub mod irq;
pub mod kmsg;
pub mod netdev;
pub mod pcie;
pub mod port;
pub mod posture;
pub mod probe;
pub mod process;
pub mod vf;

/// The version that brought the first families.
const FIRST: &str = "0.1.0";

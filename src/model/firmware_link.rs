//! What a card's firmware says of a port, as `mstlink` prints it.

use std::sync::Arc;

use super::ids::DeviceName;
use super::link::LinkCause;
use super::module::{ModuleIdentity, ModuleLimits, ModuleValues};
use super::rdma::{Port, RdmaDevice};
use super::snapshot::Snapshot;

/// A port in the words of its firmware. What it does not say is absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FirmwareLink {
    /// State: `Active`, `Polling`, `Disable`.
    pub state: Option<Arc<str>>,
    /// Speed: `IB-NDR`, `400G`.
    pub speed: Option<Arc<str>>,
    /// Error correction.
    pub fec: Option<Arc<str>>,
    /// Number of the reason for no link; 0 is none (`pddr_monitor_opcode`).
    pub opcode: Option<u32>,
    /// The firmware's advice.
    pub recommendation: Option<Arc<str>>,
    /// For how long errors were counted, seconds: since somebody cleared the counters, or since the link came up.
    pub observed_seconds: Option<f64>,
    /// Share of bits that were wrong before correction.
    pub raw_ratio: Option<f64>,
    /// Share of bits that were wrong after FEC, before retransmission on the line (PLR).
    pub effective_ratio: Option<f64>,
    /// Share of bits that were wrong after FEC and PLR.
    pub symbol_ratio: Option<f64>,
    /// Errors after FEC, before PLR.
    pub effective_errors: Option<u64>,
    /// Errors after FEC and PLR: data was lost.
    pub symbol_errors: Option<u64>,
    /// Errors before correction, by lane.
    pub lane_errors: Vec<u64>,
    /// How often the link was lost.
    pub link_downs: Option<u64>,
    /// The module.
    pub identity: Option<Arc<ModuleIdentity>>,
    /// Its limits.
    pub limits: ModuleLimits,
    /// How it does.
    pub values: Option<ModuleValues>,
}

/// What was read for a device: its first port.
#[derive(Debug, Clone, PartialEq)]
pub struct FirmwareReport {
    /// The device.
    pub device: DeviceName,
    /// Its port.
    pub link: FirmwareLink,
}

impl FirmwareReport {
    /// The report on a port, if there is one.
    pub fn of<'a>(snapshot: &'a Snapshot, device: &RdmaDevice, port: &Port) -> Option<&'a Self> {
        let is_first = device.ports.first().is_some_and(|first| first.number == port.number);
        snapshot.all::<Self>().find(|report| is_first && report.device == device.name)
    }
}

impl FirmwareLink {
    /// The reason for no link in the kernel's numbers, for firmware numbers that mean the same
    /// (`mlx5e_link_ext_state_opcode_map`, and those that the kernel leaves out).
    pub fn cause(&self) -> Option<LinkCause> {
        let cause = |state, substate| Some(LinkCause { state, substate });
        match self.opcode? {
            2 => cause(0, Some(1)),
            3 => cause(0, Some(2)),
            4 => cause(0, Some(3)),
            36 => cause(0, Some(4)),
            38 => cause(0, Some(5)),
            39 => cause(0, Some(6)),
            5..=8 | 62..=66 => cause(1, None),
            14 => cause(1, Some(4)),
            9..=13 => cause(2, None),
            15 | 17 | 42 | 48 | 49 | 52 | 57 => cause(3, None),
            1024 => cause(4, None),
            16 | 20 | 29 | 1025 | 1028 | 1029 => cause(5, Some(1)),
            1031 => cause(5, None),
            1026 | 1027 => cause(6, None),
            23 => cause(7, None),
            1032 | 1035 | 1040 => cause(8, None),
            1030 => cause(9, None),
            1042 | 1047 | 1048 => cause(10, None),
            _ => None,
        }
    }
}

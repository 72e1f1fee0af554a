//! The state file: its content, its version, its checksum, and why a state directory cannot be used.
//!
//! Version 2 is one JSON object on one line, `{"version":2,"checksum":"…","state":{…}}`; the checksum is the SHA-256 of
//! the state's bytes. Version 1 had the state's keys beside the version and no checksum; it is still read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{benchmarks, salvage};
use crate::model::benchmark::BenchmarkHistories;
use crate::model::history::Baseline;
use crate::model::ids::PortKey;
use crate::model::time::unix_millis;
use crate::model::vfmap::VfMap;

/// Version of the format.
pub(super) const VERSION: u32 = 2;

/// What outlives the agent, but for its events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedState {
    /// The boot that it was saved in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// The baseline.
    pub baseline: Baseline,
    /// When ports flapped, in milliseconds since 1970.
    pub flaps: BTreeMap<PortKey, Vec<u64>>,
    /// `link_downed` of each port in that boot, up to which losses of its link are recorded.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub link_downed: BTreeMap<PortKey, u64>,
    /// Findings that hold.
    pub findings: Vec<SavedFinding>,
    /// Conditions that have not held for long enough to be findings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<SavedFinding>,
    /// Who holds which VF.
    pub vf_map: VfMap,
    /// Number of the last kernel log record that was read in that boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_log: Option<u64>,
    /// What benchmarks measured.
    #[serde(rename = "probes", with = "benchmarks")]
    pub benchmarks: BenchmarkHistories,
    /// Requests that were applied already, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub applied: Vec<String>,
}

/// A finding by its names, and when it began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFinding {
    /// Name of the check.
    pub check: String,
    /// The subject as text.
    pub subject: String,
    /// When it began.
    #[serde(with = "unix_millis")]
    pub since: SystemTime,
}

/// The part that every version has.
#[derive(Deserialize)]
struct Header {
    version: u32,
}

/// Why the bytes of a state file are no state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FormatError {
    /// They are torn, changed or something else.
    Broken(String),
    /// A newer program wrote them: its version.
    Newer(u32),
}

impl SavedState {
    /// The bytes of a state file.
    ///
    /// # Errors
    /// A number that JSON cannot hold.
    pub(super) fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let state = serde_json::to_vec(self)?;
        let mut bytes = prefix(&state).into_bytes();
        bytes.extend(state);
        bytes.extend(b"}\n");
        Ok(bytes)
    }

    /// Reads a state file: the state, and what was left out of it because it is malformed, one sentence each.
    ///
    /// # Errors
    /// The bytes are no state of a version that is known.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, Vec<String>), FormatError> {
        let broken = |error: serde_json::Error| FormatError::Broken(error.to_string());
        let header: Header = serde_json::from_slice(bytes).map_err(broken)?;
        match header.version {
            0 | 1 => salvage::state(bytes).map_err(broken),
            2 => {
                let start = prefix(&[]).len();
                let state = bytes.get(start..).and_then(|rest| rest.strip_suffix(b"}\n"));
                let state = state.ok_or_else(|| FormatError::Broken("it is cut off".to_owned()))?;
                if bytes.get(..start) != Some(prefix(state).as_bytes()) {
                    return Err(FormatError::Broken("its checksum does not match".to_owned()));
                }
                salvage::state(state).map_err(broken)
            }
            newer => Err(FormatError::Newer(newer)),
        }
    }
}

/// What stands before the state's bytes.
fn prefix(state: &[u8]) -> String {
    let mut checksum = String::with_capacity(64);
    for byte in ring::digest::digest(&ring::digest::SHA256, state).as_ref() {
        let _ = write!(checksum, "{byte:02x}");
    }
    format!("{{\"version\":{VERSION},\"checksum\":\"{checksum}\",\"state\":")
}

/// Why a state could not be used or saved.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system is full or the quota is used up.
    #[error("{path}: no space left")]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("{action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What is there could not be read and is left as it is.
    #[error("{path} could not be read and is left unchanged")]
    Frozen {
        /// The file.
        path: PathBuf,
    },
    /// Another process keeps its state there.
    #[error("another agent is using {path}")]
    Owned {
        /// The directory.
        path: PathBuf,
    },
    /// The file was written by a newer version.
    #[error("{path} has version {found}, this program supports {VERSION}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}

impl StoreError {
    /// The error of a failed file operation.
    pub(super) fn of(action: &'static str, path: PathBuf, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Io { action, path, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::benchmark::Benchmark;

    /// Written by release 0.1.0.
    const VERSION_1: &str = r#"{
  "version": 1,
  "boot_id": "5f1c0a52-7d0e-4c3b-9a57-0d4bb8e1f203",
  "baseline": {"devices": {"0c42:a103:00f7:1b2e": {
    "name": "mlx5_3", "pci_address": "0000:5e:00.0",
    "ports": {"1": {"active": true, "rate_bytes_per_second": 25000000000.0}},
    "path": [{"pci_address": "0000:5e:00.0", "transfers_per_second": 16000000000, "lanes": 16}]
  }}},
  "flaps": {"mlx5_3/1": [1789999000000, 1789999500000]},
  "findings": [{"check": "port_down", "subject": "mlx5_4/1", "since": 1789990000123}],
  "vf_map": {
    "pfs": {"0000:5e:00.0": {"generation": 7, "changed": 1789990000456}},
    "vfs": {"0000:5e:00.0/vf2": {"pci_address": "0000:5e:00.4", "driver": "vfio-pci", "iommu_group": 61,
      "identity": {"mac": "02:4e:19:00:00:2a"}, "holder": {"kind": "vm", "name": "train7"},
      "held": {"by": {"kind": "vm", "name": "train7"}, "since": 1789980000000, "pid": 4711, "identity": {}},
      "verified": 1789980000001}},
    "machines": {"train7": [{"mac": "02:4e:19:00:00:2a"}]},
    "signals": {"domain_appeared": {"count": 3, "last": 1789980000000}}
  },
  "kernel_log": 9182,
  "probes": [{"probe": "rdma_loopback", "port": ["mlx5_3", 1], "runs": [{"at": 1789970000000, "took": 2250,
    "outcome": "ok", "reason": "as_usual", "text": "24.1 GB/s", "measured": {"bandwidth": [["one_way", 24.1e9]]},
    "ceiling": 25.0e9, "profile": "64k"}], "spent": [[1789970000000, 2250]], "good": [["64k", [{}]]]}]
}"#;

    #[test]
    fn a_state_file_of_the_release_before_is_read() {
        let (state, _) = SavedState::decode(VERSION_1.as_bytes()).unwrap();
        let port = PortKey { device: crate::model::ids::DeviceName::new("mlx5_3"), port: 1 };
        assert_eq!(state.boot_id.as_deref(), Some("5f1c0a52-7d0e-4c3b-9a57-0d4bb8e1f203"));
        assert_eq!(state.baseline.devices["0c42:a103:00f7:1b2e"].path[0].lanes, 16);
        assert_eq!(state.flaps[&port], [1_789_999_000_000, 1_789_999_500_000]);
        assert_eq!(unix_millis::of(state.findings[0].since), 1_789_990_000_123);
        assert_eq!((state.vf_map.vfs.len(), state.vf_map.machines.len(), state.kernel_log), (1, 1, Some(9182)));
        let (key, history) = state.benchmarks.first_key_value().unwrap();
        assert_eq!((key.probe, key.port.as_ref()), (Benchmark::RdmaLoopback, Some(&port)));
        assert_eq!((&*history.runs[0].profile, &history.runs[0].key), ("64k", key));
        // And what is written of it says the same.
        assert_eq!(SavedState::decode(&state.encode().unwrap()), Ok((state, Vec::new())));
    }

    #[test]
    fn a_changed_or_torn_file_is_broken_and_a_newer_one_is_not() {
        let (state, _) = SavedState::decode(VERSION_1.as_bytes()).unwrap();
        let bytes = state.encode().unwrap();
        for length in 0..bytes.len() {
            assert!(matches!(SavedState::decode(&bytes[..length]), Err(FormatError::Broken(_))), "{length}");
        }
        let at = bytes.windows(4).position(|four| four == b"9182").unwrap();
        let mut changed = bytes.clone();
        changed[at] = b'8';
        assert_eq!(SavedState::decode(&changed), Err(FormatError::Broken("its checksum does not match".to_owned())));
        assert_eq!(SavedState::decode(br#"{"version": 99, "what": "ever"}"#), Err(FormatError::Newer(99)));
    }
}

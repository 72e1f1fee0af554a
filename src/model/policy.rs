//! What the operator expects and accepts: the `[policy]` tables of the configuration file. Everything is optional.

use std::collections::BTreeMap;
use std::time::Duration;

use regex_lite::Regex;

use super::check::{Check, Severity};
use super::finding::Subject;
use super::ids::{DeviceName, PortKey};
use super::maintenance::Maintenance;
use super::reason::FindingReason;
use super::units::{BytesPerSecond, Lanes, TransfersPerSecond};

/// What is expected of the ports whose name (`mlx5_3/1`) matches.
#[derive(Debug, Clone)]
pub struct PortPolicy {
    /// Which ports.
    pub ports: Regex,
    /// Whether they should be up.
    pub up: Option<bool>,
    /// The rate they should run at, at least.
    pub rate: Option<BytesPerSecond>,
}

/// What is expected of the PCIe link of the devices whose name matches.
#[derive(Debug, Clone)]
pub struct LinkPolicy {
    /// Which devices.
    pub devices: Regex,
    /// Speed, at least.
    pub speed: Option<TransfersPerSecond>,
    /// Width, at least.
    pub width: Option<Lanes>,
}

/// Findings that are accepted for some subjects.
#[derive(Debug, Clone)]
pub struct Exception {
    /// Which subjects (`mlx5_3`, `mlx5_3/1`, `0000:98:00.0`).
    pub subjects: Regex,
    /// Which checks; all when empty.
    pub checks: Vec<Check>,
    /// Why, for the people who read it later.
    pub reason: String,
}

/// Expectations, exceptions and thresholds.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Devices that must be there.
    pub devices: Vec<DeviceName>,
    /// Ports.
    pub ports: Vec<PortPolicy>,
    /// Links.
    pub links: Vec<LinkPolicy>,
    /// Exceptions.
    pub exceptions: Vec<Exception>,
    /// Other severities than the defaults.
    pub severities: BTreeMap<Check, Severity>,
    /// Other hold times than the defaults.
    pub holds: BTreeMap<Check, Duration>,
    /// When findings are acknowledged only.
    pub maintenance: Maintenance,
    /// Thresholds.
    pub thresholds: Thresholds,
}

/// Thresholds of the checks; the defaults are the documented ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds {
    /// Flaps in twelve hours that make a warning critical.
    pub flaps_critical: usize,
    /// How long after boot flaps stand apart.
    pub settle: Duration,
    /// Limits of error counters.
    pub errors: Vec<ErrorLimit>,
    /// Correctable AER errors an hour above which they are a warning.
    pub correctable_aer_per_hour: u64,
}

/// How fast a counter may rise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorLimit {
    /// Counter file name.
    pub counter: &'static str,
    /// The reason of its finding.
    pub reason: FindingReason,
    /// Most increases allowed in the window.
    pub most: u64,
    /// The window.
    pub window: Duration,
    /// How the limit reads: `120/h`.
    pub text: &'static str,
}

impl Default for Thresholds {
    fn default() -> Self {
        const MINUTE: Duration = Duration::from_secs(60);
        const HOUR: Duration = Duration::from_secs(3600);
        let limit = |reason: FindingReason, most, window, text| ErrorLimit {
            counter: reason.as_str(),
            reason,
            most,
            window,
            text,
        };
        Self {
            flaps_critical: 3,
            settle: Duration::from_secs(30 * 60),
            errors: vec![
                limit(FindingReason::SymbolError, 120, HOUR, "120 an hour"),
                limit(FindingReason::LinkErrorRecovery, 25, 5 * MINUTE, "5 a minute"),
                limit(FindingReason::PortRcvErrors, 600, MINUTE, "10 a second"),
                limit(FindingReason::PortXmitDiscards, 6_000, MINUTE, "100 a second"),
                limit(FindingReason::LocalAckTimeoutErr, 60, MINUTE, "1 a second"),
                limit(FindingReason::ExcessiveBufferOverrunErrors, 0, HOUR, "none"),
                limit(FindingReason::LocalLinkIntegrityErrors, 0, HOUR, "none"),
            ],
            correctable_aer_per_hour: 10,
        }
    }
}

impl Policy {
    /// Whether a port should be up, if the policy says.
    pub fn port_up(&self, port: &PortKey) -> Option<bool> {
        let name = port.to_string();
        self.ports.iter().filter(|rule| rule.ports.is_match(&name)).find_map(|rule| rule.up)
    }

    /// The least rate a port should run at, if the policy says.
    pub fn port_rate(&self, port: &PortKey) -> Option<BytesPerSecond> {
        let name = port.to_string();
        self.ports.iter().filter(|rule| rule.ports.is_match(&name)).find_map(|rule| rule.rate)
    }

    /// The least speed and width of a device's link, as far as the policy says.
    pub fn link(&self, device: &DeviceName) -> (Option<TransfersPerSecond>, Option<Lanes>) {
        let rules = || self.links.iter().filter(|rule| rule.devices.is_match(device.as_str()));
        (rules().find_map(|rule| rule.speed), rules().find_map(|rule| rule.width))
    }

    /// The exception for a subject and check, if there is one.
    pub fn exception(&self, check: Check, subject: &Subject) -> Option<&Exception> {
        if self.exceptions.is_empty() {
            return None;
        }
        let name = subject.to_string();
        let covers = |rule: &&Exception| rule.checks.is_empty() || rule.checks.contains(&check);
        self.exceptions.iter().filter(covers).find(|rule| rule.subjects.is_match(&name))
    }
}

//! What the operator expects and accepts: the `[policy]` tables of the configuration file. Everything is optional.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use regex_lite::Regex;

use super::check::{Check, Severity};
use super::finding::Subject;
use super::ids::{DeviceName, PortKey};
use super::reason::FindingReason;
use super::sriov::Pf;
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

/// How many VFs are expected of the PFs with a name that matches.
#[derive(Debug, Clone)]
pub struct VfPolicy {
    /// Which PFs: by PCI address, RDMA device or interface.
    pub pfs: Regex,
    /// VFs, at least.
    pub count: u32,
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
    /// VFs of PFs.
    pub vfs: Vec<VfPolicy>,
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
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorLimit {
    /// Counter file name.
    pub counter: &'static str,
    /// The reason of its finding.
    pub reason: FindingReason,
    /// Increases allowed in the window.
    pub allowed: Allowance,
    /// The window.
    pub window: Duration,
    /// How the limit reads: `5 a minute`.
    pub text: &'static str,
}

/// How many increases of a counter are allowed in its window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Allowance {
    /// So many.
    Count(u64),
    /// So many as this share of the bits that the port's rate carries, or [`FEWEST`] if that is less.
    OfBits(f64),
}

/// Errors that are too few to say how often they happen, whatever the rate.
pub const FEWEST: u64 = 2;

impl ErrorLimit {
    /// Most increases allowed in the window, on a port of this rate.
    pub fn most(&self, rate: Option<BytesPerSecond>) -> u64 {
        match self.allowed {
            Allowance::Count(most) => most,
            Allowance::OfBits(share) => {
                let bits = rate.map_or(0.0, |rate| rate.0 * 8.0) * self.window.as_secs_f64();
                // A limit of 3 must not become 2 by rounding.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
                let most = (bits * share + 1e-6).floor() as u64;
                most.max(FEWEST)
            }
        }
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        const MINUTE: Duration = Duration::from_secs(60);
        const HOUR: Duration = Duration::from_secs(3600);
        let limit = |reason: FindingReason, most, window, text| ErrorLimit {
            counter: reason.as_str(),
            reason,
            allowed: Allowance::Count(most),
            window,
            text,
        };
        let symbols = |share, window, text| ErrorLimit {
            allowed: Allowance::OfBits(share),
            ..limit(FindingReason::SymbolError, 0, window, text)
        };
        let of_driver = |counter, most, window, text| ErrorLimit {
            counter,
            reason: FindingReason::DriverCounter,
            allowed: Allowance::Count(most),
            window,
            text,
        };
        Self {
            flaps_critical: 3,
            settle: Duration::from_secs(30 * 60),
            errors: vec![
                symbols(1e-14, 12 * MINUTE, "1 in 1e14 bits"),
                symbols(1e-15, 125 * MINUTE, "1 in 1e15 bits"),
                limit(FindingReason::LinkErrorRecovery, 25, 5 * MINUTE, "5 per minute"),
                limit(FindingReason::PortRcvErrors, 600, MINUTE, "10 per second"),
                limit(FindingReason::PortXmitDiscards, 6_000, MINUTE, "100 per second"),
                limit(FindingReason::LocalAckTimeoutErr, 60, MINUTE, "1 per second"),
                limit(FindingReason::ExcessiveBufferOverrunErrors, 0, HOUR, "none"),
                limit(FindingReason::LocalLinkIntegrityErrors, 0, HOUR, "none"),
                // Packets that arrive damaged.
                of_driver("rx_icrc_encapsulated", 10, HOUR, "10 per hour"),
                // Connections that ended since the other end did not respond.
                of_driver("req_transport_retries_exceeded", 60, HOUR, "60 per hour"),
                of_driver("sq_num_tree", 60, HOUR, "60 per hour"),
                of_driver("max_retry_exceeded", 60, HOUR, "60 per hour"),
                of_driver("requester_retries_exceeded", 60, HOUR, "60 per hour"),
                of_driver("retry_exceeded_err", 60, HOUR, "60 per hour"),
                of_driver("impaired_remote_conn_events", 0, HOUR, "none"),
                of_driver("unresponsive_remote_events", 0, HOUR, "none"),
                // Timeouts of senders.
                of_driver("retrans_timeout_events", 60, MINUTE, "1 per second"),
                of_driver("to_retransmits", 60, MINUTE, "1 per second"),
                of_driver("requester_timeout", 60, MINUTE, "1 per second"),
                of_driver("sq_num_to", 60, MINUTE, "1 per second"),
                of_driver("RcTimeOut", 60, MINUTE, "1 per second"),
                // What the device itself could not do.
                of_driver("unrecoverable_err", 0, HOUR, "none"),
                of_driver("res_mem_err", 0, HOUR, "none"),
                of_driver("res_tx_pci_err", 0, HOUR, "none"),
                of_driver("res_rx_pci_err", 0, HOUR, "none"),
                of_driver("general_hw_error", 0, HOUR, "none"),
                of_driver("no_completion_cmds", 0, HOUR, "none"),
                // What was dropped.
                of_driver("rx_drops", 6_000, MINUTE, "100 per second"),
                of_driver("rx_err_pkt", 600, MINUTE, "10 per second"),
                of_driver("tx_err_pkt", 600, MINUTE, "10 per second"),
                of_driver("rx_roce_errors", 600, MINUTE, "10 per second"),
                of_driver("tx_roce_errors", 600, MINUTE, "10 per second"),
                of_driver("tx_disable_drop_cnt", 600, MINUTE, "10 per second"),
                of_driver("rx_disable_drop_cnt", 600, MINUTE, "10 per second"),
                of_driver("RcvOverflow", 6_000, MINUTE, "100 per second"),
            ],
            correctable_aer_per_hour: 10,
        }
    }
}

impl VfPolicy {
    /// Whether a name of the PF matches.
    pub fn is_of(&self, pf: &Pf) -> bool {
        let mut names = pf.devices.iter().map(DeviceName::as_str).chain(pf.netdevs.iter().map(|name| &**name));
        self.pfs.is_match(&pf.address.to_string()) || names.any(|name| self.pfs.is_match(name))
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

    /// How many VFs a PF must have at least, if the policy says.
    pub fn vf_count(&self, pf: &Pf) -> Option<u32> {
        self.vfs.iter().find(|rule| rule.is_of(pf)).map(|rule| rule.count)
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

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60;
const WEEK: u64 = 7 * DAY;
/// The days by name; 1970 began on a Thursday.
const DAYS: [&str; 7] = ["thu", "fri", "sat", "sun", "mon", "tue", "wed"];

/// A span of every week or every day, in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintenanceWindow {
    text: Arc<str>,
    /// Minutes from the beginning of the week (Thursday) or day.
    begin: u64,
    length: u64,
    period: u64,
}

impl MaintenanceWindow {
    /// Reads `Sat 02:00-04:00` or, for every day, `02:00-04:00`. One that ends before it begins goes over midnight.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (day, span) = match text.split_once(' ') {
            Some((day, span)) => (Some(DAYS.iter().position(|name| day.eq_ignore_ascii_case(name))?), span.trim()),
            None => (None, text),
        };
        let (begin, end) = span.split_once('-')?;
        let (begin, end) = (minutes(begin)?, minutes(end)?);
        let length = (end + DAY - begin) % DAY;
        let length = if length == 0 { DAY } else { length };
        let offset = u64::try_from(day.unwrap_or(0)).ok()? * DAY;
        let period = if day.is_some() { WEEK } else { DAY };
        Some(Self { text: Arc::from(text), begin: offset + begin, length, period })
    }

    /// Whether a moment lies in it.
    pub fn covers(&self, now: SystemTime) -> bool {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / MINUTE;
        (since + self.period - self.begin) % self.period < self.length
    }
}

/// `02:00`, up to `24:00`, in minutes.
fn minutes(text: &str) -> Option<u64> {
    let (hours, minutes) = text.split_once(':')?;
    let two = |digits: &str| (digits.len() == 2).then(|| digits.parse::<u64>().ok()).flatten();
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    (minutes < 60 && hours * 60 + minutes <= DAY).then_some(hours * 60 + minutes)
}

/// What puts the host into maintenance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// It is while this file is there.
    pub file: Option<PathBuf>,
    /// It is within these.
    pub windows: Vec<MaintenanceWindow>,
}

impl Maintenance {
    /// Why the host is in maintenance, if it is.
    pub fn why(&self, now: SystemTime, mut exists: impl FnMut(&Path) -> bool) -> Option<Arc<str>> {
        if let Some(file) = self.file.as_deref().filter(|file| exists(file)) {
            return Some(Arc::from(format!("in maintenance while {} exists", file.display())));
        }
        let window = self.windows.iter().find(|window| window.covers(now))?;
        Some(Arc::from(format!("in maintenance ({} UTC)", window.text)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> SystemTime {
        humantime::parse_rfc3339(text).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    fn covers(window: &str, time: &str) -> Option<bool> {
        MaintenanceWindow::parse(window).map(|window| window.covers(at(time)))
    }

    #[test]
    fn windows() {
        // 2026-11-28 is a Saturday.
        for (window, time, expected) in [
            ("Sat 02:00-04:00", "2026-11-28T02:00:00Z", Some(true)),
            ("sat 02:00-04:00", "2026-11-28T03:59:59Z", Some(true)),
            ("Sat 02:00-04:00", "2026-11-28T04:00:00Z", Some(false)),
            ("Sat 02:00-04:00", "2026-11-27T03:00:00Z", Some(false)),
            ("Sat 22:00-02:00", "2026-11-29T01:00:00Z", Some(true)),
            ("Sat 22:00-02:00", "2026-11-28T01:00:00Z", Some(false)),
            ("Wed 23:00-01:00", "2026-11-26T00:30:00Z", Some(true)),
            ("02:00-04:00", "2026-11-25T03:00:00Z", Some(true)),
            ("23:30-00:30", "2026-11-25T00:10:00Z", Some(true)),
            ("Sun 00:00-24:00", "2026-11-29T12:00:00Z", Some(true)),
            ("Someday 02:00-04:00", "2026-11-28T02:00:00Z", None),
            ("2:00-4:00", "2026-11-28T02:00:00Z", None),
            ("02:00-25:00", "2026-11-28T02:00:00Z", None),
            ("02:60-03:00", "2026-11-28T02:00:00Z", None),
            ("", "2026-11-28T02:00:00Z", None),
        ] {
            assert_eq!(covers(window, time), expected, "{window} at {time}");
        }
    }

    #[test]
    fn a_marker_file_comes_first() {
        let windows = MaintenanceWindow::parse("00:00-24:00").into_iter().collect();
        let maintenance = Maintenance { file: Some(PathBuf::from("/run/m")), windows };
        let why = |there| maintenance.why(SystemTime::UNIX_EPOCH, |_| there);
        assert_eq!(why(true).as_deref(), Some("in maintenance while /run/m exists"));
        assert_eq!(why(false).as_deref(), Some("in maintenance (00:00-24:00 UTC)"));
        assert_eq!(Maintenance::default().why(SystemTime::UNIX_EPOCH, |_| true), None);
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in ".{0,24}", seconds in any::<u32>()) {
            if let Some(window) = MaintenanceWindow::parse(&text) {
                let _ = window.covers(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into()));
            }
        }
    }
}

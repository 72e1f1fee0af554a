//! What a pipeline allows: `stranded>5%`, `degraded`, `down>3`.

use std::fmt;
use std::str::FromStr;

use super::tally::{Fleet, ModelFirmware};
use crate::model::units::BytesPerSecond;
use crate::model::units::counted_as;

/// What can be held against a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditQuantity {
    /// All stranded bandwidth.
    Stranded,
    /// By degraded links.
    Degraded,
    /// By slots.
    Slot,
    /// By design.
    Design,
    /// By ports that are down.
    Down,
    /// By devices that are gone.
    Missing,
    /// Of PFs without VFs.
    VfLess,
    /// Of unknown paths.
    Unknown,
    /// Hosts that cannot be scraped.
    Dead,
    /// Hosts whose agent no longer looks.
    Stale,
    /// Devices with another firmware than most of their model.
    Skew,
}

impl AuditQuantity {
    const ALL: [(&'static str, Self); 11] = [
        ("stranded", Self::Stranded),
        ("degraded", Self::Degraded),
        ("slot", Self::Slot),
        ("design", Self::Design),
        ("down", Self::Down),
        ("missing", Self::Missing),
        ("vf-less", Self::VfLess),
        ("unknown", Self::Unknown),
        ("dead", Self::Dead),
        ("stale", Self::Stale),
        ("skew", Self::Skew),
    ];

    fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, quantity)| *quantity == self).map_or("", |(name, _)| name)
    }
}

/// How much is allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Allowed {
    /// A part of what is installed (of all hosts, of all devices), 0 to 1.
    Part(f64),
    /// Bandwidth.
    Rate(BytesPerSecond),
    /// A number of hosts, ports or devices.
    Count(f64),
}

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AuditLimit {
    quantity: AuditQuantity,
    allowed: Allowed,
}

impl FromStr for AuditLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, allowed) = text.split_once('>').unwrap_or((text, "0"));
        let (name, allowed) = (name.trim(), allowed.trim());
        let Some((_, quantity)) = AuditQuantity::ALL.into_iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = AuditQuantity::ALL.iter().map(|(name, _)| *name).collect();
            return Err(format!("{name:?} cannot be limited; use one of {}", names.join(", ")));
        };
        let number = |text: &str| text.trim().parse().ok().filter(|number: &f64| *number >= 0.0 && number.is_finite());
        let allowed = if let Some(percent) = allowed.strip_suffix('%') {
            number(percent).map(|percent| Allowed::Part(percent / 100.0))
        } else if let Some(gbits) = allowed.strip_suffix("Gb/s") {
            number(gbits).map(|gbits| Allowed::Rate(BytesPerSecond::from_gbits(gbits)))
        } else {
            number(allowed).map(Allowed::Count)
        };
        let counted = !matches!(quantity, AuditQuantity::Dead | AuditQuantity::Stale | AuditQuantity::Skew);
        match allowed {
            None => Err(format!("{text:?}: give the limit as 5%, 400Gb/s or a number")),
            Some(Allowed::Rate(_)) if !counted => Err(format!("{name} is not a bandwidth: use 5% or a number")),
            // Zero is zero in every unit.
            Some(Allowed::Count(0.0)) => Ok(Self { quantity, allowed: Allowed::Part(0.0) }),
            Some(Allowed::Count(_)) if counted && !matches!(quantity, AuditQuantity::Down | AuditQuantity::Missing) => {
                Err(format!("{name} is a bandwidth: use 5% or 400Gb/s"))
            }
            Some(allowed) => Ok(Self { quantity, allowed }),
        }
    }
}

impl fmt::Display for AuditLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}>", self.quantity.as_str())?;
        match self.allowed {
            Allowed::Part(part) => write!(f, "{}%", part * 100.0),
            Allowed::Rate(rate) => write!(f, "{}Gb/s", rate.gbits()),
            Allowed::Count(count) => write!(f, "{count}"),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn number(count: u64) -> f64 {
    count as f64
}

impl AuditLimit {
    /// What is wrong, when the fleet is over the limit.
    pub fn exceeded(&self, fleet: &Fleet) -> Option<String> {
        let sums = &fleet.total;
        let (count, of, (one, more)) = match self.quantity {
            AuditQuantity::Dead => (
                fleet.unreachable.count,
                sums.hosts + fleet.unreachable.count,
                ("host that cannot be scraped", "hosts that cannot be scraped"),
            ),
            AuditQuantity::Stale => (
                fleet.stale.count,
                sums.hosts + fleet.stale.count,
                ("host whose agent stopped checking", "hosts whose agent stopped checking"),
            ),
            AuditQuantity::Skew => {
                let skewed = fleet.models.values().map(ModelFirmware::skewed).sum();
                let more = "devices without the usual firmware of their model";
                (skewed, sums.devices, ("device without the usual firmware of its model", more))
            }
            AuditQuantity::Down => (
                sums.down_ports,
                sums.ports,
                ("port that should be up and is down", "ports that should be up and are down"),
            ),
            AuditQuantity::Missing => (
                sums.missing_devices,
                sums.devices + sums.missing_devices,
                ("device that is gone", "devices that are gone"),
            ),
            _ => (0, 0, ("", "")),
        };
        let rate = match self.quantity {
            AuditQuantity::Stranded => Some(sums.stranded()),
            AuditQuantity::Degraded => Some(sums.degraded),
            AuditQuantity::Slot => Some(sums.slot),
            AuditQuantity::Design => Some(sums.design),
            AuditQuantity::Down => Some(sums.down),
            AuditQuantity::Missing => Some(sums.missing),
            AuditQuantity::VfLess => Some(sums.vf_less),
            AuditQuantity::Unknown => Some(sums.unknown),
            AuditQuantity::Dead | AuditQuantity::Stale | AuditQuantity::Skew => None,
        };
        let by_rate = |rate: BytesPerSecond| format!("{rate} of {} installed", sums.installed);
        let found = match (self.allowed, rate) {
            (Allowed::Rate(allowed), Some(rate)) => (rate.0 > allowed.0).then(|| by_rate(rate)),
            (Allowed::Part(part), Some(rate)) if part > 0.0 => {
                (rate.0 > part * sums.installed.0).then(|| by_rate(rate))
            }
            // Nothing at all: neither bandwidth nor anything whose bandwidth is not known.
            (Allowed::Part(_), Some(rate)) => (rate.0 > 1.0 || count > 0).then(|| by_rate(rate)),
            (Allowed::Part(part), None) => (number(count) > part * number(of)).then(|| counted_as(count, one, more)),
            (Allowed::Count(allowed), _) => (number(count) > allowed).then(|| counted_as(count, one, more)),
            (Allowed::Rate(_), None) => None,
        };
        found.map(|found| format!("{self}: {found}"))
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "numbers that are exact")]
mod tests {
    use super::*;
    use crate::fleet::host::Sums;
    use crate::fleet::tally::ExcludedHosts;

    fn fleet() -> Fleet {
        let total = Sums {
            hosts: 98,
            ports: 10,
            down_ports: 2,
            installed: BytesPerSecond::from_gbits(1000.0),
            degraded: BytesPerSecond::from_gbits(50.0),
            down: BytesPerSecond::from_gbits(20.0),
            ..Sums::default()
        };
        Fleet { total, unreachable: ExcludedHosts { count: 2, first: Vec::new() }, ..Fleet::default() }
    }

    #[test]
    fn limits() {
        for (text, exceeded) in [
            ("stranded", true),
            ("stranded>7%", false),
            ("stranded>6.9%", true),
            ("degraded>50Gb/s", false),
            ("degraded > 49.9 Gb/s", true),
            ("slot", false),
            ("down>1", true),
            ("down>2", false),
            ("dead", true),
            ("dead>2%", false),
            ("dead>1", true),
            ("skew", false),
        ] {
            let limit: AuditLimit = text.parse().unwrap();
            assert_eq!(limit.exceeded(&fleet()).is_some(), exceeded, "{text}");
        }
        let limit: AuditLimit = "degraded>4%".parse().unwrap();
        assert_eq!(limit.exceeded(&fleet()).unwrap(), "degraded>4%: 50 Gb/s of 1000 Gb/s installed");
    }

    #[test]
    fn what_is_no_limit_is_said_so() {
        for wrong in ["", "lost", "down>-1", "down>x", "dead>5Gb/s", "slot>3", "stranded>NaN%", "stranded>"] {
            assert!(wrong.parse::<AuditLimit>().is_err(), "{wrong}");
        }
        assert!("lost".parse::<AuditLimit>().unwrap_err().contains("stranded, degraded"));
    }
}

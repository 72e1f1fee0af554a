//! One PCIe link of a path.

use std::fmt;

use crate::model::topology::{Link, LinkVerdict};
use crate::model::units::{Lanes, TransfersPerSecond, link_bandwidth};

/// One link of a path.
#[derive(Debug)]
pub struct PathHop<'a> {
    /// The link.
    pub link: &'a Link,
    /// How it runs.
    pub state: HopState,
    /// Whether the active ports ask for more than it carries, and for more in proportion than of any other hop.
    pub limits: bool,
}

/// How a link runs, speed and width taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HopState {
    /// All that both ends support.
    Full,
    /// Below what both ends support.
    Degraded,
    /// The device could do more in another slot.
    LimitedBySlot,
    /// Speed or width are not known.
    Unknown,
    /// Not the real path: no real link would run so (integrated and emulated functions).
    Nominal,
    /// The device no longer answers.
    OffBus,
}

impl HopState {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "ok",
            Self::Degraded => "degraded",
            Self::LimitedBySlot => "limited by slot",
            Self::Unknown => "unknown",
            Self::Nominal => "not a real link",
            Self::OffBus => "off the bus",
        }
    }
}

pub(super) fn state(link: &Link) -> HopState {
    let verdicts = [link.speed().verdict(), link.width().verdict()];
    if link.device.off_bus {
        HopState::OffBus
    } else if verdicts.contains(&LinkVerdict::Degraded) {
        HopState::Degraded
    } else if verdicts.contains(&LinkVerdict::LimitedBySlot) {
        HopState::LimitedBySlot
    } else if verdicts.contains(&LinkVerdict::Unknown) {
        HopState::Unknown
    } else {
        HopState::Full
    }
}

impl PathHop<'_> {
    /// What it runs at and carries: `8 GT/s x8 = 63.0 Gb/s`.
    pub fn current(&self) -> String {
        let (speed, width) = (self.link.speed(), self.link.width());
        LinkRate(speed.current, width.current).to_string()
    }

    /// What both ends support: `16 GT/s x16 = 252.1 Gb/s`.
    pub fn capable(&self) -> String {
        LinkRate(self.link.speed().capable(), self.link.width().capable()).to_string()
    }

    /// Its state in words, with what it could be: `degraded in speed and width: both ends support …`.
    pub fn words(&self) -> String {
        let (speed, width) = (self.link.speed(), self.link.width());
        match self.state {
            HopState::Full if self.link.is_beyond_its_maximum() => {
                format!("above the device's stated maximum ({})", LinkRate(speed.device, width.device))
            }
            HopState::Full if self.link.upstream.is_none() => "maximum of the device".to_owned(),
            HopState::Full => "maximum of both ends".to_owned(),
            HopState::Degraded => {
                let what = match (speed.verdict(), width.verdict()) {
                    (LinkVerdict::Degraded, LinkVerdict::Degraded) => "speed and width",
                    (LinkVerdict::Degraded, _) => "speed",
                    _ => "width",
                };
                let ends = if self.link.upstream.is_some() { "both ends support" } else { "the device supports" };
                format!("degraded in {what}: {ends} {}", self.capable())
            }
            HopState::LimitedBySlot => {
                format!("limited by its slot: the device supports {}", LinkRate(speed.device, width.device))
            }
            HopState::Unknown if self.link.bandwidth().is_some() => "capability of both ends unknown".to_owned(),
            HopState::Unknown => "current speed and width not reported".to_owned(),
            HopState::Nominal => {
                "not a real link: integrated and emulated functions report this instead of one".to_owned()
            }
            HopState::OffBus => "the device is not responding on the bus".to_owned(),
        }
    }
}

/// Speed, width and the bandwidth that follows from them.
struct LinkRate(Option<TransfersPerSecond>, Option<Lanes>);

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Some(speed), Some(width)) => write!(f, "{speed} {width} = {}", link_bandwidth(speed, width)),
            (Some(speed), None) => write!(f, "{speed}, unknown width"),
            (None, Some(width)) => write!(f, "{width}, unknown speed"),
            (None, None) => f.write_str("unknown"),
        }
    }
}

/// Why a link is the limit.
pub(super) fn why(link: &Link) -> String {
    let what = |speed: Option<TransfersPerSecond>, width: Option<Lanes>| match (speed, width) {
        (Some(speed), Some(width)) => format!("{speed} {width}"),
        _ => "an unknown rate".to_owned(),
    };
    let (speed, width) = (link.speed(), link.width());
    let reason = match state(link) {
        HopState::Degraded => {
            let ends = if link.upstream.is_some() { "both ends support" } else { "the device supports" };
            format!("trained at {link}, {ends} {}", what(speed.capable(), width.capable()))
        }
        HopState::LimitedBySlot => {
            format!("the slot's maximum is {link}, the card supports {}", what(speed.device, width.device))
        }
        HopState::Full => format!("{link} is the card's maximum"),
        HopState::Unknown | HopState::Nominal => {
            return format!("perhaps the link above {} ({link}; its capability is unknown)", link.name);
        }
        HopState::OffBus => "the device is not responding".to_owned(),
    };
    format!("the link above {} is the limit ({reason})", link.name)
}

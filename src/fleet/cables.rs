//! Cables between two hosts of the fleet. Receive errors belong to the path into a receiver, so the two ends of one cable
//! tell which direction is bad. Both ends of a cable show the same serial number; one to a switch shows at one end only.

use std::collections::BTreeMap;

use super::client::Series;
use super::facts::HostId;
use crate::assess::limits::UNEVEN_LEAST;

/// How many times more wrong bits than the other end a receiver has if only its direction is bad.
const ONE_WAY: f64 = 10.0;

/// One end of a cable: a receiver.
#[derive(Debug, Clone, PartialEq)]
pub struct CableEnd {
    /// Whose.
    pub host: HostId,
    /// Its interface.
    pub netdev: String,
    /// Share of received bits that were wrong before correction.
    pub raw: f64,
    /// Share of received codewords that were lost; `None` if unknown.
    pub lost: Option<f64>,
}

/// Which directions of a cable are bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadDirection {
    /// Only that into the worse end: the other end's transmitter, the cable or this receiver.
    OneWay,
    /// Both: the cable, or the connectors of both ends.
    BothWays,
}

impl BadDirection {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OneWay => "one_way",
            Self::BothWays => "both_ways",
        }
    }
}

/// A cable with errors between two ports of the fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct Cable {
    /// Vendor's name.
    pub vendor: String,
    /// Vendor's part number.
    pub part_number: String,
    /// Serial number.
    pub serial_number: String,
    /// The end that receives worse.
    pub worse: CableEnd,
    /// The other one.
    pub better: CableEnd,
}

impl Cable {
    /// Which directions are bad.
    pub fn direction(&self) -> BadDirection {
        let (worse, better) = (&self.worse, &self.better);
        let only_one_loses = worse.lost.unwrap_or(0.0) > 0.0 && better.lost.unwrap_or(0.0) <= 0.0;
        if only_one_loses || worse.raw >= better.raw * ONE_WAY { BadDirection::OneWay } else { BadDirection::BothWays }
    }
}

/// Vendor, part number and serial number.
type CableName = [String; 3];

/// Pairs the ends of cables, and keeps the worst cables that have errors. Rows of `lost` without one of `raw` say nothing.
pub fn worst_cables(raw: &[Series], lost: &[Series], identity: &[String], top: usize) -> Vec<Cable> {
    let end = |row: &Series| (HostId::of(row, identity), row.labels.get("netdev").to_owned());
    let lost: BTreeMap<_, f64> = lost.iter().map(|row| (end(row), row.value)).collect();
    let mut cables: BTreeMap<CableName, Vec<CableEnd>> = BTreeMap::new();
    for row in raw.iter().filter(|row| row.value.is_finite()) {
        let name = ["vendor", "part_number", "serial_number"].map(|label| row.labels.get(label).to_owned());
        let (host, netdev) = end(row);
        let lost = lost.get(&(host.clone(), netdev.clone())).copied();
        cables.entry(name).or_default().push(CableEnd { host, netdev, raw: row.value, lost });
    }
    let badness = |end: &CableEnd| (end.lost.unwrap_or(0.0), end.raw);
    let is_worse = |a: &CableEnd, b: &CableEnd| badness(a).partial_cmp(&badness(b));
    let mut found: Vec<Cable> = cables
        .into_iter()
        .filter_map(|([vendor, part_number, serial_number], ends)| {
            let [a, b] = <[CableEnd; 2]>::try_from(ends).ok()?;
            let (worse, better) = if is_worse(&a, &b)?.is_lt() { (b, a) } else { (a, b) };
            let has_errors = worse.raw >= UNEVEN_LEAST || worse.lost.unwrap_or(0.0) > 0.0;
            has_errors.then_some(Cable { vendor, part_number, serial_number, worse, better })
        })
        .collect();
    // Those of one badness stay in the order of their names.
    found.sort_by(|a, b| is_worse(&b.worse, &a.worse).unwrap_or(std::cmp::Ordering::Equal));
    found.truncate(top);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(instance: &str, netdev: &str, serial: &str, value: f64) -> Series {
        let labels = [("job", "lanewatch"), ("instance", instance), ("netdev", netdev), ("serial_number", serial)];
        Series { labels: labels.into_iter().collect(), value }
    }

    fn found(raw: &[Series], lost: &[Series], top: usize) -> Vec<(String, String, BadDirection)> {
        let identity = ["job".to_owned(), "instance".to_owned()];
        let cables = worst_cables(raw, lost, &identity, top);
        let said = |cable: Cable| (cable.serial_number.clone(), cable.worse.host.0[1].to_string(), cable.direction());
        cables.into_iter().map(said).collect()
    }

    #[test]
    fn the_receiver_with_the_errors_is_named() {
        let raw = [
            row("a", "eth2", "S1", 1e-9),
            row("b", "eth5", "S1", 2e-5),
            // Both directions; then a healthy one, one end alone, and three of one serial number.
            row("a", "eth3", "S2", 3e-6),
            row("c", "eth2", "S2", 2e-6),
            row("d", "eth2", "S3", 1e-10),
            row("e", "eth2", "S3", 1e-9),
            row("f", "eth2", "S4", 1e-3),
            row("g", "eth2", "S5", 1e-3),
            row("h", "eth2", "S5", 1e-3),
            row("i", "eth2", "S5", 1e-3),
            row("j", "eth2", "S6", f64::NAN),
            row("k", "eth2", "S6", 1e-3),
        ];
        let one = ("S1".to_owned(), "b".to_owned(), BadDirection::OneWay);
        let both = ("S2".to_owned(), "a".to_owned(), BadDirection::BothWays);
        assert_eq!(found(&raw, &[], 10), [one.clone(), both]);
        assert_eq!(found(&raw, &[], 1), std::slice::from_ref(&one));
        // Losses are worse than any number of errors that are corrected.
        let lost = [row("c", "eth2", "", 1e-9), row("a", "eth3", "", 0.0)];
        let losing = ("S2".to_owned(), "c".to_owned(), BadDirection::OneWay);
        assert_eq!(found(&raw, &lost, 10), [losing, one]);
    }
}

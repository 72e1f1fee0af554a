//! Quantities with their units: transfers per second, lanes, bytes per second, degrees.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A data rate in bytes per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BytesPerSecond(pub f64);

impl BytesPerSecond {
    /// From gigabits (10^9 bits) per second.
    pub fn from_gbits(gbits: f64) -> Self {
        Self(gbits * 1e9 / 8.0)
    }

    /// In gigabits (10^9 bits) per second, the unit of ports.
    pub fn gbits(self) -> f64 {
        self.0 * 8.0 / 1e9
    }

    /// The lesser of two rates.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }
}

impl std::ops::AddAssign for BytesPerSecond {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl std::iter::Sum for BytesPerSecond {
    fn sum<I: Iterator<Item = Self>>(rates: I) -> Self {
        Self(rates.map(|rate| rate.0).sum())
    }
}

impl fmt::Display for BytesPerSecond {
    /// Gigabits per second, with one decimal where there is one: `63.0 Gb/s`, `200 Gb/s`; what is less than a tenth
    /// in megabits, so that it is not shown as nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gbits = self.gbits();
        if gbits > 0.0 && gbits < 0.1 {
            return write!(f, "{:.1} Mb/s", gbits * 1e3);
        }
        if (gbits - gbits.round()).abs() < 1e-9 { write!(f, "{gbits:.0} Gb/s") } else { write!(f, "{gbits:.1} Gb/s") }
    }
}

/// The sum of counts; the largest number if it does not fit.
pub fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// A temperature in degrees Celsius.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Celsius(pub f64);

impl fmt::Display for Celsius {
    /// Whole degrees: `83 °C`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} °C", self.0)
    }
}

/// The speed of one PCIe lane in transfers per second (8 GT/s = 8 × 10^9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct TransfersPerSecond(pub u64);

impl TransfersPerSecond {
    /// From megatransfers per second; 2,500 is generation 1.
    pub const fn from_mega(mega: u64) -> Self {
        Self(mega * 1_000_000)
    }

    /// What a lane of this speed carries: 8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s, and from 64 GT/s (FLIT
    /// mode) every transfer counts, as the kernel counts it.
    pub fn per_lane(self) -> BytesPerSecond {
        let (payload, coded) = match self.0 {
            0..=5_000_000_000 => (8.0, 10.0),
            5_000_000_001..=32_000_000_000 => (128.0, 130.0),
            _ => (1.0, 1.0),
        };
        #[expect(clippy::cast_precision_loss, reason = "PCIe speeds are far below 2^53")]
        BytesPerSecond(self.0 as f64 * payload / coded / 8.0)
    }

    /// The PCIe generation of a standard speed.
    pub fn generation(self) -> Option<u8> {
        match self.0 {
            2_500_000_000 => Some(1),
            5_000_000_000 => Some(2),
            8_000_000_000 => Some(3),
            16_000_000_000 => Some(4),
            32_000_000_000 => Some(5),
            64_000_000_000 => Some(6),
            _ => None,
        }
    }
}

impl fmt::Display for TransfersPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (giga, mega) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000 / 100_000_000);
        if mega == 0 { write!(f, "{giga} GT/s") } else { write!(f, "{giga}.{mega} GT/s") }
    }
}

/// A number of PCIe lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Lanes(pub u8);

impl fmt::Display for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "x{}", self.0)
    }
}

/// What a link of this speed and width carries each way.
pub fn link_bandwidth(speed: TransfersPerSecond, width: Lanes) -> BytesPerSecond {
    BytesPerSecond(speed.per_lane().0 * f64::from(width.0))
}

/// `1 device`, `2 devices`; for words that take an `s`.
pub fn counted<N: TryInto<u64> + Copy>(count: N, thing: &str) -> String {
    counted_as(count, thing, &format!("{thing}s"))
}

/// The same for other words: `1 entry`, `2 entries`.
pub fn counted_as<N: TryInto<u64> + Copy>(count: N, one: &str, more: &str) -> String {
    // What does not fit is more than one.
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {}", if count == 1 { one } else { more })
}

/// `once`, `2 times`.
pub fn times<N: TryInto<u64> + Copy>(count: N) -> String {
    match count.try_into() {
        Ok(1) => "once".to_owned(),
        _ => counted(count, "time"),
    }
}

#[cfg(test)]
mod units_tests {
    use super::*;

    #[test]
    fn the_pcie_table() {
        // Gb/s a lane: 2.5 and 5 GT/s lose a fifth to 8b/10b, 8 to 32 GT/s 2 in 130, 64 GT/s nothing.
        let lanes = [1u8, 2, 4, 8, 16];
        let table = [
            (2_500, [2.0, 4.0, 8.0, 16.0, 32.0]),
            (5_000, [4.0, 8.0, 16.0, 32.0, 64.0]),
            (8_000, [7.88, 15.75, 31.51, 63.02, 126.03]),
            (16_000, [15.75, 31.51, 63.02, 126.03, 252.06]),
            (32_000, [31.51, 63.02, 126.03, 252.06, 504.12]),
            (64_000, [64.0, 128.0, 256.0, 512.0, 1024.0]),
        ];
        for (mega, row) in table {
            for (width, expected) in lanes.iter().zip(row) {
                let got = link_bandwidth(TransfersPerSecond::from_mega(mega), Lanes(*width)).gbits();
                assert!((got - expected).abs() < 0.006, "{mega} MT/s x{width}: {got}, expected {expected}");
            }
        }
    }

    #[test]
    fn texts_people_read() {
        assert_eq!(link_bandwidth(TransfersPerSecond::from_mega(8_000), Lanes(8)).to_string(), "63.0 Gb/s");
        assert_eq!(BytesPerSecond::from_gbits(200.0).to_string(), "200 Gb/s");
        assert_eq!(BytesPerSecond::from_gbits(0.04).to_string(), "40.0 Mb/s");
        assert_eq!(BytesPerSecond(0.0).to_string(), "0 Gb/s");
        assert_eq!(TransfersPerSecond::from_mega(2_500).to_string(), "2.5 GT/s");
        assert_eq!(TransfersPerSecond::from_mega(16_000).to_string(), "16 GT/s");
    }
}

#[cfg(test)]
mod count_tests {
    use super::*;

    #[test]
    fn one_is_one_and_all_others_are_more() {
        assert_eq!([0, 1, 2].map(|n: usize| counted(n, "file")), ["0 files", "1 file", "2 files"]);
        assert_eq!(counted_as(1u32, "entry", "entries"), "1 entry");
        assert_eq!(counted_as(3u64, "entry", "entries"), "3 entries");
        assert_eq!([0, 1, 2].map(|n: u64| times(n)), ["0 times", "once", "2 times"]);
    }
}

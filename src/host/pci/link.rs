//! The texts of a link's speed and width (`current_link_*`, `max_link_*`), as old and new kernels write them.

use crate::host::text::{parse_decimal, parsed};
use crate::model::reading::{ReadError, Reading};
use crate::model::units::{Lanes, TransfersPerSecond};

/// What a width file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkWidth {
    /// A number of lanes.
    Lanes(Lanes),
    /// 63: the register reads all ones, as every register of a function that fell off the bus does.
    AllOnes,
}

impl LinkWidth {
    pub(super) fn lanes(self) -> Option<Lanes> {
        match self {
            Self::Lanes(lanes) => Some(lanes),
            Self::AllOnes => None,
        }
    }
}

/// `8.0 GT/s PCIe`; up to kernel 5.6 `8 GT/s`. Generations to come are taken at their number; `Unknown` and
/// `Unknown speed` are absent, as is a link that makes no transfers.
pub(super) fn speed(bytes: &[u8]) -> Reading<TransfersPerSecond> {
    if bytes.starts_with(b"Unknown") {
        return Reading::Absent;
    }
    match parsed(bytes, transfers) {
        Reading::Value(TransfersPerSecond(0)) => Reading::Absent,
        reading => reading,
    }
}

fn transfers(text: &str) -> Option<TransfersPerSecond> {
    let number = text.strip_suffix(" PCIe").unwrap_or(text).strip_suffix(" GT/s")?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let locations = u32::try_from(fraction.len()).ok()?;
    let scale = 10u64.pow(9u32.checked_sub(locations)?);
    let whole = parse_decimal(whole.as_bytes())?.checked_mul(1_000_000_000)?;
    Some(TransfersPerSecond(whole.checked_add(parse_decimal(fraction.as_bytes())? * scale)?))
}

/// A number of lanes, 1 to 32. 0 (link down, or a VF) and 255 (no such register) are absent.
pub(super) fn width(bytes: &[u8]) -> Reading<LinkWidth> {
    match parse_decimal(bytes) {
        Some(0 | 255) => Reading::Absent,
        Some(63) => Reading::Value(LinkWidth::AllOnes),
        Some(lanes @ 1..=32) => u8::try_from(lanes).ok().map(|lanes| LinkWidth::Lanes(Lanes(lanes))).into(),
        _ => Reading::Unreadable(ReadError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MALFORMED: Option<ReadError> = Some(ReadError::Malformed);

    #[test]
    fn speeds_of_old_and_new_kernels() {
        let table = [
            ("2.5 GT/s", 2_500),
            ("2.5 GT/s PCIe", 2_500),
            ("5 GT/s", 5_000),
            ("5.0 GT/s PCIe", 5_000),
            ("8 GT/s", 8_000),
            ("8.0 GT/s PCIe", 8_000),
            ("16 GT/s", 16_000),
            ("16.0 GT/s PCIe", 16_000),
            ("32.0 GT/s PCIe", 32_000),
            ("64.0 GT/s PCIe", 64_000),
            ("128.0 GT/s PCIe", 128_000),
        ];
        for (text, mega) in table {
            assert_eq!(speed(text.as_bytes()), Reading::Value(TransfersPerSecond::from_mega(mega)), "{text}");
        }
        assert_eq!(speed(b"0.000000001 GT/s"), Reading::Value(TransfersPerSecond(1)));
    }

    #[test]
    fn speeds_that_are_none() {
        for text in ["Unknown", "Unknown speed", "0 GT/s", "0.0 GT/s PCIe"] {
            assert_eq!(speed(text.as_bytes()), Reading::Absent, "{text}");
        }
        let wrong = ["", "8", "8 GT/s PCI", "8GT/s", "GT/s", " GT/s", ".5 GT/s", "8. GT/s", "-8 GT/s", "8.0.0 GT/s"];
        for text in wrong.into_iter().chain(["66 MHz PCI-X", "99999999999999 GT/s", "1.0000000001 GT/s"]) {
            assert_eq!(speed(text.as_bytes()).reason(), MALFORMED, "{text}");
        }
    }

    #[test]
    fn widths() {
        for lanes in [1, 2, 4, 8, 12, 16, 32] {
            assert_eq!(width(lanes.to_string().as_bytes()), Reading::Value(LinkWidth::Lanes(Lanes(lanes))));
        }
        assert_eq!(width(b"0"), Reading::Absent);
        assert_eq!(width(b"255"), Reading::Absent);
        assert_eq!(width(b"63"), Reading::Value(LinkWidth::AllOnes));
        for text in ["", "x8", "33", "64", "-1", "256", "8 "] {
            assert_eq!(width(text.as_bytes()).reason(), MALFORMED, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_parsers(bytes in proptest::collection::vec(any::<u8>(), 0..32), text in any::<String>()) {
            let _ = (speed(&bytes), width(&bytes), speed(text.as_bytes()));
        }

        #[test]
        fn a_speed_is_its_number(giga in 1u64..1000, tenths in 0u64..10, new in any::<bool>()) {
            let text = format!("{giga}.{tenths} GT/s{}", if new { " PCIe" } else { "" });
            let expected = TransfersPerSecond::from_mega(giga * 1000 + tenths * 100);
            prop_assert_eq!(speed(text.as_bytes()), Reading::Value(expected));
        }
    }
}

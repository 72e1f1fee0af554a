//! The texts of a port's files (`drivers/infiniband/core/sysfs.c`), without surrounding white space.

use std::sync::Arc;

use crate::host::text::{parse_decimal, parse_hex};
use crate::model::ids::Guid;
use crate::model::rdma::{LinkLayer, PhysicalState, PortRate, PortState, Speed};
use crate::model::reading::{ReadError, Reading};
use crate::model::units::BytesPerSecond;

/// `state`: `4: ACTIVE`, by its word.
pub(super) fn state(bytes: &[u8]) -> Reading<PortState> {
    word(bytes, |word| PortState::ALL.into_iter().find(|state| state.as_str() == word))
}

/// `phys_state`: `5: LinkUp`, by its word.
pub(super) fn physical_state(bytes: &[u8]) -> Reading<PhysicalState> {
    word(bytes, |word| PhysicalState::ALL.into_iter().find(|state| state.as_str() == word))
}

fn word<T>(bytes: &[u8], find: impl FnOnce(&str) -> Option<T>) -> Reading<T> {
    let Some((code, word)) = std::str::from_utf8(bytes).ok().and_then(|text| text.split_once(": ")) else {
        return Reading::Unreadable(ReadError::Malformed);
    };
    match find(word) {
        _ if parse_decimal(code.as_bytes()).is_none() => Reading::Unreadable(ReadError::Malformed),
        Some(found) => Reading::Value(found),
        None if matches!(word, "UNKNOWN" | "<unknown>") => Reading::Absent,
        None => Reading::Unreadable(ReadError::Malformed),
    }
}

/// `rate`: `200 Gb/sec (4X HDR)`. Kernels before 4.17 wrote no word for SDR: `10 Gb/sec (4X)`. No text and a rate of
/// zero are absent.
pub(super) fn rate(bytes: &[u8]) -> Reading<PortRate> {
    if bytes.is_empty() {
        return Reading::Absent;
    }
    match std::str::from_utf8(bytes).ok().and_then(parse_rate) {
        Some(rate) if rate.bandwidth.0 > 0.0 => Reading::Value(rate),
        Some(_) => Reading::Absent,
        None => Reading::Unreadable(ReadError::Malformed),
    }
}

fn parse_rate(text: &str) -> Option<PortRate> {
    let (number, rest) = text.split_once(' ')?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if parse_decimal(whole.as_bytes()).is_none() || parse_decimal(fraction.as_bytes()).is_none() {
        return None;
    }
    let bandwidth = BytesPerSecond::from_gbits(number.parse().ok()?);
    let (unit, lanes) = rest.split_once(' ').map_or((rest, None), |(unit, lanes)| (unit, Some(lanes)));
    if !matches!(unit, "Gb/sec" | "GB/sec" | "gb/sec" | "gB/sec") {
        return None;
    }
    let Some(lanes) = lanes else {
        return Some(PortRate { bandwidth, width: None, speed: Speed::Other });
    };
    let lanes = lanes.strip_prefix('(')?.strip_suffix(')')?;
    let (width, word) = lanes.split_once(' ').map_or((lanes, None), |(width, word)| (width, Some(word)));
    let width = u8::try_from(parse_decimal(width.strip_suffix('X')?.as_bytes())?).ok()?;
    Some(PortRate { bandwidth, width: Some(width), speed: word.map_or(Some(Speed::Sdr), speed)? })
}

fn speed(word: &str) -> Option<Speed> {
    let known =
        [Speed::Sdr, Speed::Ddr, Speed::Qdr, Speed::Fdr10, Speed::Fdr, Speed::Edr, Speed::Hdr, Speed::Ndr, Speed::Xdr];
    let plain = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    plain.then(|| known.into_iter().find(|speed| speed.as_str() == word).unwrap_or(Speed::Other))
}

/// `link_layer`: one word.
pub(super) fn link_layer(bytes: &[u8]) -> Reading<LinkLayer> {
    match std::str::from_utf8(bytes) {
        Ok("") => Reading::Absent,
        Ok("InfiniBand") => Reading::Value(LinkLayer::InfiniBand),
        Ok("Ethernet") => Reading::Value(LinkLayer::Ethernet),
        Ok(word) => Reading::Value(LinkLayer::Other(Arc::from(word))),
        Err(_) => Reading::Unreadable(ReadError::Malformed),
    }
}

/// `lid` and `sm_lid`: `0x364`.
pub(super) fn lid(bytes: &[u8]) -> Reading<u32> {
    match parse_hex(bytes).and_then(|lid| u32::try_from(lid).ok()) {
        Some(lid) => Reading::Value(lid),
        None => Reading::Unreadable(ReadError::Malformed),
    }
}

/// The port's GUID in a GID: eight groups of four digits. Entries that are zero, or hold an IPv4 address, have none.
pub(super) fn gid(bytes: &[u8]) -> Reading<Guid> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Reading::Unreadable(ReadError::Malformed) };
    let is_group = |group: &str| group.len() == 4 && group.bytes().all(|byte| byte.is_ascii_hexdigit());
    if text.split(':').count() != 8 || !text.split(':').all(is_group) {
        return Reading::Unreadable(ReadError::Malformed);
    }
    Guid::from_gid(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MALFORMED: ReadError = ReadError::Malformed;

    #[test]
    fn states_by_their_words() {
        assert_eq!(state(b"4: ACTIVE"), Reading::Value(PortState::Active));
        assert_eq!(state(b"5: ACTIVE_DEFER"), Reading::Value(PortState::ActiveDefer));
        assert_eq!(state(b"6: UNKNOWN"), Reading::Absent);
        assert_eq!(physical_state(b"7: Phy Test"), Reading::Value(PhysicalState::PhyTest));
        assert_eq!(physical_state(b"0: <unknown>"), Reading::Absent);
        for wrong in [&b"4: ACTIV"[..], b"ACTIVE", b"", b"x: ACTIVE", b"4:ACTIVE", b"\xff: ACTIVE"] {
            assert_eq!(state(wrong), Reading::Unreadable(MALFORMED), "{wrong:?}");
        }
        // Another file's word, as some hand-made trees have it.
        assert_eq!(physical_state(b"4: ACTIVE"), Reading::Unreadable(MALFORMED));
    }

    #[test]
    fn rates_of_every_kernel() {
        let made = |text: &str| match rate(text.as_bytes()) {
            Reading::Value(rate) => (rate.bandwidth.gbits(), rate.width, rate.speed),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(made("200 Gb/sec (4X HDR)"), (200.0, Some(4), Speed::Hdr));
        assert_eq!(made("2.5 Gb/sec (1X SDR)"), (2.5, Some(1), Speed::Sdr));
        assert_eq!(made("10 Gb/sec (4X)"), (10.0, Some(4), Speed::Sdr));
        assert_eq!(made("800 Gb/sec (4X XDR)"), (800.0, Some(4), Speed::Xdr));
        assert_eq!(made("10 Gb/sec (1X FDR10)"), (10.0, Some(1), Speed::Fdr10));
        assert_eq!(made("1600 Gb/sec (4X GDR)"), (1600.0, Some(4), Speed::Other));
        assert_eq!(made("100 Gb/sec"), (100.0, None, Speed::Other));
        assert_eq!(rate(b""), Reading::Absent);
        assert_eq!(rate(b"0 GB/sec"), Reading::Absent);
        assert_eq!(rate(b"0 Gb/sec (4X SDR)"), Reading::Absent);
        for wrong in [
            "-1X",
            "200",
            "200 Gb/s (4X HDR)",
            "200 Gb/sec (4X HDR",
            "200 Gb/sec (X HDR)",
            "+2 Gb/sec",
            "1e9 Gb/sec",
            "200  Gb/sec",
            "200 Gb/sec (4X hdr)",
            "200 Gb/sec (4X )",
            "200. Gb/sec",
            "999 Gb/sec (999X)",
        ] {
            assert_eq!(rate(wrong.as_bytes()), Reading::Unreadable(MALFORMED), "{wrong}");
        }
    }

    #[test]
    fn other_files() {
        assert_eq!(link_layer(b"InfiniBand"), Reading::Value(LinkLayer::InfiniBand));
        assert_eq!(link_layer(b"Unspecified"), Reading::Value(LinkLayer::Other("Unspecified".into())));
        assert_eq!(link_layer(b""), Reading::Absent);
        assert_eq!(gid(b"fe80:0000:0000:0000:0c42:a103:0065:2ee2"), Reading::Value(Guid(0x0c42_a103_0065_2ee2)));
        assert_eq!(gid(b"0000:0000:0000:0000:0000:0000:0000:0000"), Reading::Absent);
        assert_eq!(gid(b"0000:0000:0000:0000:0000:ffff:c0a8:0101"), Reading::Absent);
        for wrong in [&b""[..], b"what?", b"\xff\xfe", b"fe80::1", b"fe80:0000:0000:0000:0c42:a103:0065"] {
            assert_eq!(gid(wrong), Reading::Unreadable(MALFORMED), "{wrong:?}");
        }
        assert_eq!(lid(b"0x364"), Reading::Value(0x364));
        assert_eq!(lid(b"0xffffffff1"), Reading::Unreadable(MALFORMED));
    }

    proptest! {
        #[test]
        fn no_bytes_break_a_parser(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (state(&bytes), physical_state(&bytes), rate(&bytes), link_layer(&bytes), lid(&bytes), gid(&bytes));
        }

        #[test]
        fn every_rate_survives_its_text(gbits in 1u32..2000, width in 1u8..=12, half in any::<bool>()) {
            let dot = if half { ".5" } else { "" };
            let Reading::Value(got) = rate(format!("{gbits}{dot} Gb/sec ({width}X NDR)").as_bytes()) else {
                return Err(TestCaseError::fail("no value"));
            };
            let expected = f64::from(gbits) + if half { 0.5 } else { 0.0 };
            prop_assert!((got.bandwidth.gbits() - expected).abs() < 1e-9);
            prop_assert_eq!((got.width, got.speed), (Some(width), Speed::Ndr));
        }
    }
}

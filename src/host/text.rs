//! Texts that many kernel files share.

use std::sync::Arc;

use crate::model::reading::{ReadError, Reading};
use crate::model::text::bounded;

/// Longest free text of a file, in bytes: the names of all interfaces of a bond.
const LONGEST_LABEL: usize = 1024;

/// Parses a decimal counter. Drivers' texts for "no such counter" are [`ReadError::NotSupported`].
pub fn counter(bytes: &[u8]) -> Reading<u64> {
    match parse_decimal(bytes) {
        Some(value) => Reading::Value(value),
        None if bytes.starts_with(b"N/A") => Reading::Unreadable(ReadError::NotSupported),
        None => Reading::Unreadable(ReadError::Malformed),
    }
}

/// Parses digits and nothing else, within 64 bits.
pub fn parse_decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Parses a hexadecimal number, with or without `0x`.
pub fn parse_hex(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// Free text; empty is absent. It is bounded, and what would not be seen of it is escaped.
pub fn label(bytes: &[u8]) -> Reading<Arc<str>> {
    match std::str::from_utf8(bytes) {
        Ok("") => Reading::Absent,
        Ok(text) => Reading::Value(Arc::from(bounded(text, LONGEST_LABEL))),
        Err(_) => Reading::Unreadable(ReadError::Malformed),
    }
}

/// Applies `parse` to a text; malformed if it returns `None`.
pub fn parsed<T>(bytes: &[u8], parse: impl FnOnce(&str) -> Option<T>) -> Reading<T> {
    match std::str::from_utf8(bytes).ok().and_then(parse) {
        Some(value) => Reading::Value(value),
        None => Reading::Unreadable(ReadError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counters_are_exact_to_the_last_bit() {
        assert_eq!(counter(b"18446744073709551615"), Reading::Value(u64::MAX));
        assert_eq!(counter(b"9007199254740993"), Reading::Value(9_007_199_254_740_993));
        for wrong in [&b"18446744073709551616"[..], b"-1", b"+1", b"1 2", b"", b"0x10", b"\xff\xfe", b"1e3"] {
            assert_eq!(counter(wrong), Reading::Unreadable(ReadError::Malformed), "{wrong:?}");
        }
        assert_eq!(counter(b"N/A (no PMA)"), Reading::Unreadable(ReadError::NotSupported));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = counter(&bytes);
            let _ = parse_hex(&bytes);
            let _ = label(&bytes);
        }

        #[test]
        fn every_counter_survives_its_text(value in any::<u64>()) {
            prop_assert_eq!(counter(value.to_string().as_bytes()), Reading::Value(value));
        }
    }
}

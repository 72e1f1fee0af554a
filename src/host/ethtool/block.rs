//! The blocks that `SIOCETHTOOL` fills in, as words of eight bytes: what stands in them.

/// Bytes of a name (`ETH_GSTRING_LEN`).
pub(super) const NAME: usize = 32;

/// Most entries that the kernel may write where so many were counted just before.
pub(super) const fn most(count: usize) -> usize {
    count.saturating_mul(2).saturating_add(4096)
}

/// Two 32-bit numbers as they lie in memory.
pub(super) fn pair(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// The first of two 32-bit numbers.
pub(super) fn first(pair: u64) -> usize {
    let [a, b, c, d, ..] = pair.to_ne_bytes();
    usize::try_from(u32::from_ne_bytes([a, b, c, d])).unwrap_or(0)
}

/// The second.
pub(super) fn second(pair: u64) -> usize {
    let [_, _, _, _, e, f, g, h] = pair.to_ne_bytes();
    usize::try_from(u32::from_ne_bytes([e, f, g, h])).unwrap_or(0)
}

/// The names of a set (`struct ethtool_gstrings`: cmd, string_set, len, data; they begin at the twelfth byte), at most
/// as many as the kernel may write where `count` were counted.
pub fn names(block: &[u64], count: usize) -> Vec<String> {
    let length = block.get(1).map_or(0, |length| first(*length)).min(most(count));
    let bytes = block.iter().flat_map(|word| word.to_ne_bytes()).skip(12).take(length.saturating_mul(NAME));
    let bytes: Vec<u8> = bytes.collect();
    let name = |name: &[u8]| {
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        String::from_utf8_lossy(name.get(..end).unwrap_or_default()).trim().to_owned()
    };
    bytes.chunks_exact(NAME).map(name).collect()
}

/// Offloads by their names (`struct ethtool_gfeatures`: cmd, size, and for each 32 of them available, requested, active,
/// never_changed): whether each is on, and whether it can't be changed.
pub fn features(names: Vec<String>, block: &[u64]) -> Vec<(String, bool, bool)> {
    let bit = |index: usize, of: usize| {
        let word = block.get(1 + index / 32 * 2 + of / 2).copied().unwrap_or(0);
        let half = if of.is_multiple_of(2) { first(word) } else { second(word) };
        half >> (index % 32) & 1 == 1
    };
    let feature = |(index, name)| (name, bit(index, 2), !bit(index, 0) || bit(index, 3));
    names.into_iter().enumerate().map(feature).collect()
}

/// The values of statistics (`struct ethtool_stats`: cmd, n_stats, data).
pub fn values(block: &[u64]) -> Vec<u64> {
    let length = block.first().map_or(0, |head| second(*head));
    block.iter().skip(1).take(length).copied().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A block whose names begin at the twelfth byte.
    fn strings(length: u32, texts: &[&[u8]]) -> Vec<u64> {
        let mut bytes = [0x1bu32.to_ne_bytes(), 1u32.to_ne_bytes(), length.to_ne_bytes()].concat();
        for text in texts {
            bytes.extend(text.iter().chain(std::iter::repeat(&0)).take(NAME));
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn names_end_at_a_zero_or_at_their_field() {
        let long = [b'x'; NAME];
        let block = strings(4, &[b"rx_packets", b"  tx_discards", &long, b"bad\xff"]);
        assert_eq!(names(&block, 4), ["rx_packets", "tx_discards", &"x".repeat(NAME), "bad\u{fffd}"]);
        assert_eq!(names(&strings(u32::MAX, &[b"one"]), 1), ["one"], "no more than there is room for");
        assert_eq!(names(&[], 9), [""; 0]);
    }

    #[test]
    fn offloads_are_bits_of_each_32() {
        // Of 33: the first is available and on, the last neither and fixed.
        let block = [pair(0x3a, 2), pair(1, 1), pair(1, 0), pair(0, 0), pair(1, 1)];
        let told = features((0..33).map(|n| n.to_string()).collect(), &block);
        assert_eq!((&told[0], &told[1]), (&("0".into(), true, false), &("1".into(), false, true)));
        assert_eq!(told[32], ("32".into(), true, true));
        assert_eq!(features(vec!["a".into()], &[]), [("a".into(), false, true)]);
    }

    #[test]
    fn values_are_as_many_as_the_block_says_and_has() {
        assert_eq!(values(&[pair(0x1d, 2), 7, 8, 9]), [7, 8]);
        assert_eq!(values(&[pair(0x1d, 9), 7]), [7]);
        assert_eq!(values(&[]), [0; 0]);
    }

    proptest! {
        #[test]
        fn no_block_breaks_them(block in proptest::collection::vec(any::<u64>(), 0..40), count in any::<usize>()) {
            let told = names(&block, count);
            prop_assert!(told.len() <= block.len() * 8 / NAME);
            prop_assert_eq!(features(told.clone(), &block).len(), told.len());
            prop_assert!(values(&block).len() <= block.len());
        }
    }
}

//! Sets of CPUs, as the kernel writes them: lists (`0-15,64-79`) and masks (`ff,ffffffff`).

use std::fmt;

/// A set of CPU numbers. Ranges stay ranges, so that no text makes it large.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet(Box<[(u32, u32)]>);

impl CpuSet {
    /// Reads a list: numbers and ranges between commas. An empty text is an empty set.
    pub fn from_list(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::default());
        }
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some((first, last))
        };
        text.split(',').map(range).collect::<Option<Vec<_>>>().map(Self::from_ranges)
    }

    /// Reads a mask: groups of 32 bits in hexadecimal between commas, the highest first.
    pub fn from_mask(text: &str) -> Option<Self> {
        let groups = text.split(',').map(|group| {
            let plain = (1..=8).contains(&group.len()) && group.bytes().all(|byte| byte.is_ascii_hexdigit());
            plain.then(|| u32::from_str_radix(group, 16).ok()).flatten()
        });
        let groups = groups.collect::<Option<Vec<u32>>>()?;
        let mut ranges = Vec::new();
        for (base, group) in (0..).step_by(32).zip(groups.iter().rev()) {
            ranges.extend((0..32).filter(|bit| group >> bit & 1 == 1).map(|bit| (base + bit, base + bit)));
        }
        Some(Self::from_ranges(ranges))
    }

    /// These and some others.
    #[must_use]
    pub fn with(&self, others: impl IntoIterator<Item = u32>) -> Self {
        Self::from_ranges(self.0.iter().copied().chain(others.into_iter().map(|cpu| (cpu, cpu))).collect())
    }

    fn from_ranges(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged.into())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Whether this CPU is one of them.
    pub fn contains(&self, cpu: u32) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < cpu);
        self.0.get(at).is_some_and(|(first, _)| *first <= cpu)
    }

    /// Whether all of these are among the others.
    pub fn is_within(&self, others: &Self) -> bool {
        self.0.iter().all(|(first, last)| {
            let at = others.0.partition_point(|(_, end)| end < first);
            others.0.get(at).is_some_and(|(start, end)| start <= first && last <= end)
        })
    }

    /// Whether some of these are among the others.
    pub fn meets(&self, others: &Self) -> bool {
        self.0.iter().any(|(first, last)| {
            let at = others.0.partition_point(|(_, end)| end < first);
            others.0.get(at).is_some_and(|(start, _)| start <= last)
        })
    }

    /// Every CPU, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }
}

/// Digits and nothing else.
fn number(text: &str) -> Option<u32> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

impl fmt::Display for CpuSet {
    /// As the kernel's lists: `0-15,64`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(text: &str) -> CpuSet {
        CpuSet::from_list(text).unwrap()
    }

    #[test]
    fn lists_and_masks_of_the_kernel() {
        assert_eq!(list("0-15,64-79").len(), 32);
        assert_eq!(list("3,1,2").to_string(), "1-3");
        assert_eq!(CpuSet::from_mask("00000001,00000003").map(|set| set.to_string()).as_deref(), Some("0-1,32"));
        assert_eq!(CpuSet::from_mask("0"), Some(CpuSet::default()));
        assert_eq!(CpuSet::from_mask("fff").map(|set| set.to_string()).as_deref(), Some("0-11"));
        for wrong in ["-", "1-", "3-1", "a", "1,,2", "+1", " 1", "4294967296"] {
            assert_eq!(CpuSet::from_list(wrong), None, "{wrong}");
        }
        for wrong in ["", ",", "123456789", "g", "-1"] {
            assert_eq!(CpuSet::from_mask(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sets_know_what_they_share() {
        assert!(list("2-3").is_within(&list("0-7")) && !list("2-9").is_within(&list("0-7")));
        assert!(list("7-9").meets(&list("0-7")) && !list("8-9").meets(&list("0-7")));
        assert!(CpuSet::default().is_within(&list("1")) && !CpuSet::default().meets(&list("1")));
        assert!(!list("0-4294967295").is_empty());
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parsers(text in any::<String>(), like in "[0-9a-f,-]{0,40}") {
            for text in [text, like] {
                let _ = (CpuSet::from_list(&text), CpuSet::from_mask(&text));
            }
        }

        #[test]
        fn a_set_survives_its_text(cpus in proptest::collection::btree_set(0u32..300, 0..40)) {
            let text: Vec<String> = cpus.iter().map(u32::to_string).collect();
            let set = list(&text.join(","));
            prop_assert_eq!(CpuSet::from_list(&set.to_string()), Some(set.clone()));
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), cpus.iter().copied().collect::<Vec<_>>());
            for cpu in 0..300 {
                prop_assert_eq!(set.contains(cpu), cpus.contains(&cpu));
            }
        }
    }
}

//! Interrupts of the watched functions: their vectors, which CPUs serve them, and who decides that.

use std::fmt;
use std::sync::Arc;

use super::host::NumaNode;
use super::ids::PciAddress;
use super::snapshot::Snapshot;
use super::time::BootTime;

/// Where interrupts are served, as seen from the device: the `locality` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Locality {
    /// On the function's own NUMA node.
    Local,
    /// On another node.
    Remote,
    /// The host does not say.
    Unknown,
}

impl Locality {
    /// All, in the order of the metrics.
    pub const ALL: [Self; 3] = [Self::Local, Self::Remote, Self::Unknown];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
            Self::Unknown => "unknown",
        }
    }
}

/// What a vector is for, by the name of its action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorRole {
    /// Data moves: completions and packet queues. A name that says nothing counts as this.
    Completion,
    /// Events, commands and errors of the device; seldom, and of no matter for speed.
    Control,
}

/// Counts by CPU that are not zero, lowest CPU first. The kernel counts in 32 bits and wraps.
pub type RawCounts = Arc<[(u32, u32)]>;

/// One interrupt vector.
#[derive(Debug, Clone, PartialEq)]
pub struct IrqVector {
    /// Interrupt number.
    pub irq: u32,
    /// Name of its action (`mlx5_comp3@pci:0000:98:00.0`); none while nobody handles it.
    pub action: Option<Arc<str>>,
    /// What it is for.
    pub role: VectorRole,
    /// The CPUs that serve it (`effective_affinity_list`).
    pub effective: Option<Arc<CpuSet>>,
    /// The CPUs that may serve it (`smp_affinity_list`).
    pub allowed: Option<Arc<CpuSet>>,
    /// The CPUs its driver would like (`affinity_hint`); none when it has no wish.
    pub hint: Option<Arc<CpuSet>>,
    /// Whether the kernel alone decides who serves it.
    pub managed: bool,
    /// How often each CPU served it since boot or since it was made.
    pub counts: Option<RawCounts>,
}

/// The vectors of one PCI function.
#[derive(Debug, Clone, PartialEq)]
pub struct IrqFunction {
    /// The function.
    pub address: PciAddress,
    /// Its NUMA node; none when the firmware does not say (-1).
    pub numa_node: Option<u32>,
    /// Its vectors, by number.
    pub vectors: Vec<IrqVector>,
    /// When they were read.
    pub at: BootTime,
}

/// CPUs of the host, and who moves interrupts between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IrqHost {
    /// CPUs that run (`online`).
    pub online: Option<CpuSet>,
    /// CPUs that do not (`offline`).
    pub offline: Option<CpuSet>,
    /// CPUs kept free of other work (`isolated`).
    pub isolated: Option<CpuSet>,
    /// Whether irqbalance runs, by its process or its socket.
    pub irqbalance: bool,
}

/// More than any kernel can have.
const MOST_CPUS: usize = 1 << 16;

/// CPUs by NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeCpus(Vec<(u32, CpuSet)>);

impl NodeCpus {
    /// The nodes that a snapshot has, with CPUs.
    pub fn of(snapshot: &Snapshot) -> Self {
        let set = |node: &NumaNode| Some((node.id, CpuSet::from_list(node.cpus.as_deref()?)?));
        Self(snapshot.all::<NumaNode>().filter_map(set).collect())
    }

    /// These, with those CPUs of an earlier reading that none of these has: the kernel lists a node's CPUs only while
    /// they run, and what they served was served there. A node that is no longer to be seen stays, too.
    #[must_use]
    pub fn remembering(mut self, before: &Self) -> Self {
        for (node, cpus) in &before.0 {
            let away = cpus.iter().take(MOST_CPUS).filter(|cpu| self.node_of(*cpu).is_none()).collect::<Vec<_>>();
            match self.0.iter_mut().find(|(id, _)| id == node) {
                Some((_, own)) if !away.is_empty() => *own = own.with(away),
                Some(_) => {}
                None => self.0.push((*node, CpuSet::default().with(away))),
            }
        }
        self
    }

    /// Whether there is more than one, so that locality matters.
    pub fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    /// The CPUs of a node.
    pub fn cpus(&self, node: u32) -> Option<&CpuSet> {
        self.0.iter().find(|(id, _)| *id == node).map(|(_, cpus)| cpus)
    }

    /// The node of a CPU.
    pub fn node_of(&self, cpu: u32) -> Option<u32> {
        self.0.iter().find(|(_, cpus)| cpus.contains(cpu)).map(|(id, _)| *id)
    }

    /// Where a CPU stands to a function on this node.
    pub fn locality(&self, node: Option<u32>, cpu: u32) -> Locality {
        match (node.filter(|node| self.cpus(*node).is_some()), self.node_of(cpu)) {
            (Some(own), Some(other)) if own == other => Locality::Local,
            (Some(_), Some(_)) => Locality::Remote,
            _ => Locality::Unknown,
        }
    }

    /// Where a vector is served: by the CPUs in force; where those are of several nodes, by the CPU that served most.
    pub fn vector_locality(&self, node: Option<u32>, vector: &IrqVector) -> Locality {
        let set = vector.effective.as_ref().or(vector.allowed.as_ref()).filter(|set| !set.is_empty());
        let own = node.and_then(|node| self.cpus(node));
        match (own, set) {
            (Some(own), Some(set)) if set.is_within(own) => Locality::Local,
            (Some(own), Some(set)) if !set.meets(own) => Locality::Remote,
            _ => {
                let most = vector.counts.iter().flat_map(|counts| counts.iter()).max_by_key(|(_, count)| *count);
                most.map_or(Locality::Unknown, |(cpu, _)| self.locality(node, *cpu))
            }
        }
    }
}

/// What is said of a function's interrupts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IrqSummary {
    /// Its vectors, in the order of [`Locality::ALL`].
    pub vectors: [u64; 3],
    /// Interrupts served since boot, in the same order; none while they cannot be counted.
    pub interrupts: Option<[u64; 3]>,
    /// The busiest CPU and its share of the interrupts in the last interval that had any.
    pub busiest: Option<(u32, f64)>,
    /// Changes of the CPUs in force that were seen.
    pub affinity_changes: u64,
    /// Whether locality can be told.
    pub placed: bool,
}

/// What an action's name says of its vector's role.
pub fn role(action: &str) -> VectorRole {
    const CONTROL: [&str; 14] = [
        "async",
        "pages_eq",
        "cmd_eq",
        "_ctrl",
        ":misc",
        ":ctrl",
        "-AEQ",
        "creq",
        "mgmnt",
        "_hwc",
        "-abn-",
        "-aeq-",
        "erdma-common",
        "oicr",
    ];
    let control = CONTROL.iter().any(|part| action.contains(part)) && !action.contains("AEQCEQ");
    if control { VectorRole::Control } else { VectorRole::Completion }
}

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
mod irq_tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_tell_roles() {
        let control = [
            "mlx5_async0@pci:0000:98:00.0",
            "mlx5_pages_eq@pci:0000:98:00.0",
            "mlx5_sf_ctrl0@pci:0000:98:00.0",
            "mlx4-async@pci:0000:98:00.0",
            "irdma-0000:98:00.0-AEQ",
            "ice-0000:84:00.0:misc",
            "ice-0000:84:00.0:ctrl",
            "bnxt_re-creq@pci:0000:85:00.0",
            "hns-0000:7d:00.0-abn-0",
            "efa-mgmnt@pci:0000:00:06.0",
            "mana_hwc@pci:7870:00:00.0",
        ];
        for name in control {
            assert_eq!(role(name), VectorRole::Control, "{name}");
        }
        let data = [
            "mlx5_comp12@pci:0000:98:00.0",
            "mlx5_combined0@pci:0000:98:00.0",
            "mlx5_sf_comp3@pci:0000:98:00.0",
            "irdma-0000:98:00.0-AEQCEQ-0",
            "irdma-0000:98:00.0-CEQ-4",
            "ice-eth9-TxRx-0",
            "eno16695np0-TxRx-1",
            "bnxt_re-nq-1@pci:0000:85:00.0",
            "hns-0000:7d:00.0-ceq-1",
            "",
        ];
        for name in data {
            assert_eq!(role(name), VectorRole::Completion, "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_name_breaks_a_role(name in any::<String>(), like in "[a-z0-9_@:.-]{0,24}") {
            let _ = (role(&name), role(&like));
        }
    }
}

#[cfg(test)]
mod cpus_tests {
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

//! Interrupts: served on the wrong NUMA node, piled up on one CPU, moved from where they were.

use std::collections::BTreeMap;

use super::View;
use super::limits::{IRQ_HOLD, LEAST_INTERRUPTS};
use super::ports::baseline;
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::history::{History, IrqBaseline, IrqHistory};
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::irq::CpuSet;
use crate::model::irq::{IrqFunction, IrqHost, IrqSummary, IrqVector, Locality, NodeCpus, VectorRole};
use crate::model::reason::FindingReason;
use crate::model::snapshot::Snapshot;
use crate::model::units::{counted, counted_as, total};

/// Vectors and CPUs from which on a pile is one.
const SPREAD: usize = 4;

/// Numbers of vectors that a sentence names before it says how many more.
const NAMED: usize = 8;

/// What is said of each function's interrupts.
pub fn summaries(snapshot: &Snapshot, history: &History) -> BTreeMap<PciAddress, IrqSummary> {
    let nodes = &history.nodes;
    let mut summaries = BTreeMap::new();
    for function in snapshot.all::<IrqFunction>() {
        let past = history.irqs.get(&function.address);
        let mut summary = IrqSummary {
            placed: function.numa_node.is_some_and(|node| nodes.cpus(node).is_some()),
            affinity_changes: past.map_or(0, |past| past.affinity_changes),
            busiest: past.and_then(|past| busiest(past.recent.values().flatten())),
            ..IrqSummary::default()
        };
        for vector in &function.vectors {
            add(&mut summary.vectors, nodes.vector_locality(function.numa_node, vector), 1);
        }
        if let Some(served) = past.and_then(|past| past.served.as_ref()) {
            let interrupts = summary.interrupts.insert([0; 3]);
            for (cpu, count) in served {
                add(interrupts, nodes.locality(function.numa_node, *cpu), *count);
            }
        }
        summaries.insert(function.address, summary);
    }
    summaries
}

fn add(counts: &mut [u64; 3], locality: Locality, count: u64) {
    let [local, remote, unknown] = counts;
    let place = match locality {
        Locality::Local => local,
        Locality::Remote => remote,
        Locality::Unknown => unknown,
    };
    *place = place.saturating_add(count);
}

/// The CPU that served most of these interrupts, and its share.
fn busiest<'a>(served: impl Iterator<Item = &'a (u32, u64)>) -> Option<(u32, f64)> {
    let mut by_cpu: BTreeMap<u32, u64> = BTreeMap::new();
    for (cpu, count) in served {
        let served = by_cpu.entry(*cpu).or_default();
        *served = served.saturating_add(*count);
    }
    let all = total(by_cpu.values().copied());
    let (cpu, most) = by_cpu.into_iter().max_by_key(|(cpu, count)| (*count, std::cmp::Reverse(*cpu)))?;
    (all > 0).then(|| (cpu, ratio(most, all)))
}

#[expect(clippy::cast_precision_loss, reason = "a share, not a count")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// One function's data vectors with what they served last.
struct Placed<'a> {
    function: &'a IrqFunction,
    past: &'a IrqHistory,
    device: Option<DeviceName>,
    node: u32,
    own: &'a CpuSet,
}

impl Placed<'_> {
    fn subject(&self) -> Subject {
        self.device.clone().map_or(Subject::Pci(self.function.address), Subject::Device)
    }

    /// The data vectors whose placement somebody chose.
    fn vectors(&self) -> impl Iterator<Item = &IrqVector> {
        self.function.vectors.iter().filter(|vector| vector.role == VectorRole::Completion && !vector.managed)
    }

    fn recent(&self, vector: &IrqVector) -> &[(u32, u64)] {
        self.past.recent.get(&vector.irq).map_or(&[], Vec::as_slice)
    }

    fn served(&self, vector: &IrqVector, counts: impl Fn(u32) -> bool) -> u64 {
        total(self.recent(vector).iter().filter(|(cpu, _)| counts(*cpu)).map(|(_, count)| *count))
    }

    fn name(&self) -> String {
        let address = self.function.address;
        self.device.as_ref().map_or_else(|| address.to_string(), |device| format!("{device} ({address})"))
    }

    fn condition(&self, check: Check, severity: Severity, reason: FindingReason, summary: String) -> Condition {
        Condition::new(check, self.subject(), severity, reason, summary)
            .device(self.device.clone())
            .address(Some(self.function.address))
            .hold(IRQ_HOLD)
    }
}

/// Functions with the RDMA device each of them has.
fn functions<'a>(view: &'a View<'_>) -> impl Iterator<Item = (&'a IrqFunction, Option<DeviceName>)> {
    view.snapshot.all::<IrqFunction>().map(|function| {
        let own = view.snapshot.devices().filter(|device| device.identity.pci_address == Some(function.address));
        (function, own.map(|device| device.name.clone()).min())
    })
}

/// A function whose place is known on a host where it matters: with CPUs of its own node that run.
fn placed<'a>(
    view: &'a View<'_>,
    nodes: &'a NodeCpus,
    function: &'a IrqFunction,
    device: Option<DeviceName>,
) -> Option<Placed<'a>> {
    let node = function.numa_node.filter(|_| nodes.are_several())?;
    let runs = |own: &&CpuSet| {
        let online = host(view).and_then(|host| host.online.as_ref());
        online.is_none_or(|online| own.meets(online))
    };
    let (own, past) = (nodes.cpus(node).filter(runs)?, view.history.irqs.get(&function.address)?);
    Some(Placed { function, past, device, node, own })
}

/// `irq_remote`: data vectors served outside the function's node.
pub fn remote(view: &View<'_>, verdicts: &mut Verdicts) {
    let nodes = &view.history.nodes;
    for (function, device) in functions(view) {
        let Some(placed) = placed(view, nodes, function, device) else {
            verdicts.skipped(Check::IrqRemote);
            continue;
        };
        match judge_remote(view, &placed) {
            Some(condition) => verdicts.found(condition),
            None => verdicts.ok(Check::IrqRemote),
        }
    }
}

fn judge_remote(view: &View<'_>, placed: &Placed<'_>) -> Option<Condition> {
    let off_node = |cpu: u32| !placed.own.contains(cpu);
    let all = total(placed.vectors().map(|vector| placed.served(vector, |_| true)));
    let off: Vec<&IrqVector> = placed.vectors().filter(|vector| placed.served(vector, off_node) > 0).collect();
    let served = total(off.iter().map(|vector| placed.served(vector, off_node)));
    if off.is_empty() || all == 0 {
        return None;
    }
    let share = ratio(served, all);
    let is_share = served.saturating_mul(5) > all && all >= LEAST_INTERRUPTS;
    let severity = if is_share { Severity::Warning } else { Severity::Info };
    let isolated = off_cpus(placed, &off).filter(|cpu| is_isolated(view, *cpu)).count();
    let reason = if isolated > 0 { FindingReason::IsolatedCpu } else { FindingReason::OtherNode };
    let count = placed.vectors().count();
    let cpus: Vec<String> = off_cpus(placed, &off).take(NAMED).map(|cpu| cpu.to_string()).collect();
    let period = if placed.past.since_boot { "since boot" } else { "in the last interval" };
    let summary = format!(
        "{}: {:.1} % of its interrupts {period} were served outside its NUMA node {} ({} of {}, on CPU {}), so data crosses the socket interconnect. {}",
        placed.name(),
        share * 100.0,
        placed.node,
        off.len(),
        counted(count, "completion vector"),
        cpus.join(", "),
        advice(view, placed, &off)
    );
    let condition = placed.condition(Check::IrqRemote, severity, reason, summary);
    Some(
        condition
            .with_evidence("remote_ratio", Some(share))
            .with_evidence("remote_vectors", Some(off.len()))
            .with_evidence("vectors", Some(count))
            .with_evidence("numa_node", Some(placed.node))
            .with_evidence("local_cpus", Some(placed.own.to_string()))
            .with_evidence("irqs", Some(numbers(&off)))
            .with_evidence("policy_owner", Some(owner(view, &off).as_str())),
    )
}

/// The CPUs outside the node that served these vectors, each once, lowest first.
fn off_cpus<'a>(placed: &'a Placed<'_>, off: &[&IrqVector]) -> impl Iterator<Item = u32> + use<'a> {
    let served = off.iter().flat_map(|vector| placed.recent(vector)).map(|(cpu, _)| *cpu);
    let cpus: std::collections::BTreeSet<u32> = served.filter(|cpu| !placed.own.contains(*cpu)).collect();
    cpus.into_iter()
}

fn is_isolated(view: &View<'_>, cpu: u32) -> bool {
    host(view).and_then(|host| host.isolated.as_ref()).is_some_and(|isolated| isolated.contains(cpu))
}

fn host<'a>(view: &'a View<'_>) -> Option<&'a IrqHost> {
    view.snapshot.all::<IrqHost>().next()
}

/// What decides which CPUs serve a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AffinityOwner {
    Irqbalance,
    Driver,
    Administrator,
}

impl AffinityOwner {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Irqbalance => "irqbalance",
            Self::Driver => "driver",
            Self::Administrator => "administrator",
        }
    }
}

/// What decides which CPUs serve these vectors.
fn owner(view: &View<'_>, vectors: &[&IrqVector]) -> AffinityOwner {
    if host(view).is_some_and(|host| host.irqbalance) {
        return AffinityOwner::Irqbalance;
    }
    let hinted = |vector: &&IrqVector| vector.hint.is_some() && vector.hint == vector.allowed;
    if !vectors.is_empty() && vectors.iter().all(hinted) { AffinityOwner::Driver } else { AffinityOwner::Administrator }
}

fn numbers(vectors: &[&IrqVector]) -> String {
    let named: Vec<String> = vectors.iter().take(NAMED).map(|vector| vector.irq.to_string()).collect();
    let more = vectors.len().saturating_sub(NAMED);
    if more > 0 { format!("{} and {more} more", named.join(" ")) } else { named.join(" ") }
}

/// Numbers as words of a shell's loop, runs of them short, and how many of them these words are.
fn words(numbers: impl Iterator<Item = u32>) -> (String, usize) {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if number.checked_sub(1) == Some(*last) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let (mut words, mut named) = (Vec::new(), 0);
    for (first, last) in runs.iter().take(NAMED) {
        named += usize::try_from(last - first).unwrap_or(usize::MAX).saturating_add(1);
        match last - first {
            0 => words.push(first.to_string()),
            1 => words.push(format!("{first} {last}")),
            _ => words.push(format!("$(seq {first} {last})")),
        }
    }
    (words.join(" "), named)
}

/// The commands that show and fix it.
fn advice(view: &View<'_>, placed: &Placed<'_>, off: &[&IrqVector]) -> String {
    let own = usable(view, placed.own);
    let (list, named) = words(off.iter().map(|vector| vector.irq));
    let more = off.len().saturating_sub(named);
    let more = if more > 0 { format!(" (same for {more} more)") } else { String::new() };
    let show = format!("`for i in {list}; do grep . /proc/irq/$i/effective_affinity_list; done` shows where");
    let fix = format!("`for i in {list}; do echo {own} > /proc/irq/$i/smp_affinity_list; done` fixes it{more}");
    match owner(view, off) {
        AffinityOwner::Irqbalance => format!(
            "{show}. irqbalance is running and moves vectors: `systemctl restart irqbalance` makes it place them again. \
             It may undo manual settings ({fix}) unless it is stopped or configured to ignore these vectors."
        ),
        AffinityOwner::Driver => format!("{show}. The driver placed them there; {fix}."),
        AffinityOwner::Administrator => format!("{show}; {fix}."),
    }
}

/// Those of these CPUs that run and are not kept free.
fn usable(view: &View<'_>, cpus: &CpuSet) -> CpuSet {
    let known = host(view);
    let barred = |cpu: &u32| {
        let off = known.and_then(|host| host.online.as_ref()).is_some_and(|online| !online.contains(*cpu));
        off || is_isolated(view, *cpu)
    };
    let free: Vec<String> = cpus.iter().take(1 << 14).filter(|cpu| !barred(cpu)).map(|cpu| cpu.to_string()).collect();
    CpuSet::from_list(&free.join(",")).filter(|set| !set.is_empty()).unwrap_or_else(|| cpus.clone())
}

/// `irq_piled_up`: of four or more active data vectors one CPU serves over half of the interrupts, though there are
/// CPUs to spread them over. Few interrupts are no load, wherever they are served.
pub fn piled_up(view: &View<'_>, verdicts: &mut Verdicts) {
    let nodes = &view.history.nodes;
    for (function, device) in functions(view) {
        let Some(past) = view.history.irqs.get(&function.address).filter(|past| past.served.is_some()) else {
            verdicts.skipped(Check::IrqPiledUp);
            continue;
        };
        let (home, none) = (function.numa_node.unwrap_or_default(), CpuSet::default());
        let own =
            function.numa_node.and_then(|node| nodes.cpus(node)).or(host(view).and_then(|host| host.online.as_ref()));
        let crowded = own.is_some_and(|own| usable(view, own).len() < SPREAD as u64);
        let placed = Placed { function, past, device, node: home, own: own.unwrap_or(&none) };
        let active: Vec<&IrqVector> = placed.vectors().filter(|vector| !placed.recent(vector).is_empty()).collect();
        let most = busiest(active.iter().flat_map(|vector| placed.recent(vector)));
        let all: u64 = active.iter().map(|vector| placed.served(vector, |_| true)).sum();
        let is_judged = active.len() >= SPREAD && all >= LEAST_INTERRUPTS && !crowded;
        let Some((cpu, share)) = most.filter(|(_, share)| is_judged && *share > 0.5) else {
            verdicts.ok(Check::IrqPiledUp);
            continue;
        };
        let there: Vec<&IrqVector> =
            active.iter().copied().filter(|vector| placed.served(vector, |other| other == cpu) > 0).collect();
        let set = |vector: &&IrqVector| vector.effective.clone().or_else(|| vector.allowed.clone());
        let pinned = there.iter().filter(|vector| set(vector).is_some_and(|set| set.len() == 1)).count();
        let spread = if pinned > 1 {
            "spread them, one vector per CPU, with `echo CPU > /proc/irq/N/smp_affinity_list`"
        } else {
            "one queue carries most of the traffic: check the number of queues and flow steering (`ethtool -l`, \
             `ethtool -x`)"
        };
        let summary = format!(
            "{}: CPU {cpu} serves {:.0} % of its interrupts although {} vectors are active, so that CPU is the bottleneck. \
             `grep -e {} /proc/interrupts` shows it (vectors {}); {spread}.",
            placed.name(),
            share * 100.0,
            active.len(),
            function.address,
            numbers(&there),
        );
        let reason = if pinned > 1 { FindingReason::SameCpu } else { FindingReason::OneQueue };
        let condition = placed.condition(Check::IrqPiledUp, Severity::Warning, reason, summary);
        verdicts.found(
            condition
                .with_evidence("busiest_cpu", Some(cpu))
                .with_evidence("busiest_cpu_ratio", Some(share))
                .with_evidence("active_vectors", Some(active.len()))
                .with_evidence("policy_owner", Some(owner(view, &there).as_str())),
        );
    }
}

/// How many data vectors a function has, and how many of them on its own node; `None` if that is unknown.
pub fn placement(nodes: &NodeCpus, function: &IrqFunction) -> Option<IrqBaseline> {
    function.numa_node.filter(|node| nodes.are_several() && nodes.cpus(*node).is_some())?;
    let data = || function.vectors.iter().filter(|vector| vector.role == VectorRole::Completion && !vector.managed);
    let places: Vec<Locality> = data().map(|vector| nodes.vector_locality(function.numa_node, vector)).collect();
    let count = |wanted: fn(Locality) -> bool| places.iter().filter(|place| wanted(**place)).count() as u64;
    let vectors = count(|place| place != Locality::Unknown);
    (vectors > 0).then(|| IrqBaseline { vectors, local: count(|place| place == Locality::Local) })
}

/// `irq_drifted`: a tenth of the data vectors less on their own node than in the baseline.
pub fn drifted(view: &View<'_>, verdicts: &mut Verdicts) {
    let nodes = &view.history.nodes;
    for (function, device) in functions(view) {
        let known = view.snapshot.devices().filter(|found| Some(&found.name) == device.as_ref());
        let known = known.filter_map(|found| baseline(view.history, found)).find_map(|known| known.interrupts);
        let now = placement(nodes, function);
        let (Some(before), Some(now), Some(placed)) = (known, now, placed(view, nodes, function, device)) else {
            verdicts.skipped(Check::IrqDrifted);
            continue;
        };
        let (was, is) = (ratio(before.local, before.vectors), ratio(now.local, now.vectors));
        if was - is < 0.1 {
            verdicts.ok(Check::IrqDrifted);
            continue;
        }
        let off = |vector: &&IrqVector| nodes.vector_locality(Some(placed.node), vector) == Locality::Remote;
        let off: Vec<&IrqVector> = placed.vectors().filter(off).collect();
        let summary = format!(
            "{}: {} of its {} on its NUMA node {}; the baseline has {} of {}. {}",
            placed.name(),
            now.local,
            counted_as(now.vectors, "completion vector is", "completion vectors are"),
            placed.node,
            before.local,
            before.vectors,
            advice(view, &placed, &off)
        );
        let condition = placed.condition(Check::IrqDrifted, Severity::Warning, FindingReason::OffNode, summary);
        verdicts.found(
            condition
                .with_evidence("local_vectors", Some(now.local))
                .with_evidence("vectors", Some(now.vectors))
                .with_evidence("baseline_local_vectors", Some(before.local))
                .with_evidence("baseline_vectors", Some(before.vectors))
                .with_evidence("policy_owner", Some(owner(view, &off).as_str())),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::assess::testing::seen_after;
    use crate::model::host::NumaNode;
    use crate::model::snapshot::Fact;
    use crate::model::time::BootTime;

    /// What `irq_piled_up` and `irq_remote` say of six vectors of a card on node 1 that CPU 0 served so often each.
    fn found(count: u64) -> Vec<(&'static str, Severity)> {
        let address: PciAddress = "0000:51:00.0".parse().unwrap();
        let cpus = |list: &str| CpuSet::from_list(list).unwrap();
        let vector = |irq| IrqVector {
            irq,
            action: None,
            role: VectorRole::Completion,
            effective: Some(Arc::new(cpus("0"))),
            allowed: Some(Arc::new(cpus("0"))),
            hint: None,
            managed: false,
            counts: None,
        };
        let function =
            IrqFunction { address, numa_node: Some(1), vectors: (40..46).map(vector).collect(), at: BootTime(0) };
        let host = IrqHost { online: Some(cpus("0-15")), ..IrqHost::default() };
        let node = |id, cpus: &str| NumaNode { id, cpus: Some(Arc::from(cpus)) };
        let facts: Vec<Fact> =
            vec![Arc::new(function), Arc::new(host), Arc::new(node(0, "0-7")), Arc::new(node(1, "8-15"))];
        let past = IrqHistory {
            served: Some(BTreeMap::from([(0, count * 6)])),
            recent: (40..46).map(|irq| (irq, vec![(0, count)])).collect(),
            ..IrqHistory::default()
        };
        let history = |snapshot: &Snapshot| History {
            nodes: NodeCpus::of(snapshot),
            irqs: BTreeMap::from([(address, past)]),
            ..History::default()
        };
        seen_after(facts, history, |view| {
            let mut verdicts = Verdicts::default();
            piled_up(view, &mut verdicts);
            remote(view, &mut verdicts);
            verdicts.conditions.iter().map(|found| (found.check.as_str(), found.severity)).collect()
        })
    }

    #[test]
    fn a_share_of_few_interrupts_is_no_verdict() {
        assert_eq!(found(11), [("irq_remote", Severity::Info)]);
        assert_eq!(found(1_000), [("irq_piled_up", Severity::Warning), ("irq_remote", Severity::Warning)]);
    }

    #[test]
    fn numbers_are_words_of_a_loop() {
        assert_eq!(words([301].into_iter()), ("301".to_owned(), 1));
        assert_eq!(words([7, 9, 10, 40, 41, 42].into_iter()), ("7 9 10 $(seq 40 42)".to_owned(), 6));
        let (list, named) = words((0..40).step_by(2));
        assert_eq!((list.as_str(), named), ("0 2 4 6 8 10 12 14", NAMED));
    }
}

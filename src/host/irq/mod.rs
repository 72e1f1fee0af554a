//! Interrupt vectors of the functions that RDMA devices hang on (`msi_irqs`, `/proc/irq`, `/proc/interrupts`,
//! `/sys/kernel/irq`), the CPUs that there are, and whether irqbalance moves vectors.

mod affinity;
mod counts;
mod functions;
mod irqbalance;
mod names;
pub mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, ReadContext, Setup, Spec};
use super::file::PolledFile;
use super::function::DeviceInventory;
use crate::model::cpus::CpuSet;
use crate::model::ids::PciAddress;
use crate::model::irq::{IrqFunction, IrqHost, IrqVector, VectorRole, role};
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use affinity::{VectorAffinity, list};
use counts::{UnlistedFunction, VectorCounter, VectorCounts};
use functions::IrqFunctions;
use irqbalance::IrqbalanceDetector;

/// The collector of interrupts.
pub const SPEC: Spec = Spec {
    name: "irq",
    about: "Interrupt vectors of RDMA devices: which CPUs serve them, how often, and who decides that",
    interval: Duration::from_secs(15),
    deadline: Duration::from_secs(5),
    fresh: false,
    make,
};

fn make(setup: &Setup) -> Box<dyn Collector> {
    Box::new(IrqCollector { filter: setup.filter.clone() })
}

struct IrqCollector {
    filter: Filter,
}

impl Collector for IrqCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let some = !DeviceInventory::read(cx, &self.filter)?.allowed.is_empty();
        Ok(some.then(|| Discovered { key: Arc::from("interrupts"), device: None }).into_iter().collect())
    }

    fn open(&mut self, _: &Discovered) -> Box<dyn DeviceReader> {
        Box::new(IrqReader {
            filter: self.filter.clone(),
            functions: IrqFunctions::default(),
            counter: VectorCounter::default(),
            counted: BTreeMap::new(),
            affinities: BTreeMap::new(),
            irqbalance: IrqbalanceDetector::default(),
        })
    }
}

/// RowCollector vectors: the kernel has one table for them.
struct IrqReader {
    filter: Filter,
    functions: IrqFunctions,
    counter: VectorCounter,
    counted: BTreeMap<u32, VectorCounts>,
    affinities: BTreeMap<u32, VectorAffinity>,
    irqbalance: IrqbalanceDetector,
}

impl IrqReader {
    /// Each function's vectors by number, with what was counted of them.
    fn count(&mut self, cx: &mut ReadContext<'_>) -> BTreeMap<PciAddress, BTreeSet<u32>> {
        let mut vectors: BTreeMap<PciAddress, BTreeSet<u32>> = BTreeMap::new();
        let mut unlisted = Vec::new();
        for (address, function) in self.functions.all() {
            match functions::vectors(cx, &function.directory) {
                Some(irqs) => {
                    vectors.insert(*address, irqs);
                }
                None => unlisted.push(UnlistedFunction {
                    address: *address,
                    text: address.to_string(),
                    interfaces: functions::interfaces(cx, &function.directory),
                }),
            }
        }
        let wanted: BTreeSet<u32> = vectors.values().flatten().copied().collect();
        let wanted: Vec<u32> = wanted.into_iter().collect();
        let (counted, claimed) = self.counter.read(cx, &wanted, &unlisted, &self.counted);
        self.counted = counted;
        for (address, irq) in claimed {
            vectors.entry(address).or_default().insert(irq);
        }
        vectors
    }

    fn vector(&mut self, cx: &mut ReadContext<'_>, irq: u32) -> IrqVector {
        let affinity = self.affinities.entry(irq).or_insert_with(|| VectorAffinity::new(&cx.host.procfs, irq));
        affinity.look(cx);
        let VectorCounts { counts, actions } = self.counted.get(&irq).cloned().unwrap_or_default();
        IrqVector {
            irq,
            role: actions.as_deref().map_or(VectorRole::Completion, role),
            action: actions,
            effective: affinity.effective.clone(),
            allowed: affinity.allowed.clone(),
            hint: affinity.hint.clone(),
            managed: affinity.managed,
            counts,
        }
    }
}

impl DeviceReader for IrqReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        if let Err(reason) = self.functions.look(cx, &self.filter) {
            cx.fault(Path::new("class/infiniband"), reason);
            return Vec::new();
        }
        let vectors = self.count(cx);
        self.affinities.retain(|irq, _| vectors.values().any(|irqs| irqs.contains(irq)));
        let mut facts: Vec<Fact> = vec![Arc::new(self.host(cx))];
        for (address, irqs) in vectors {
            let numa_node = self.functions.numa_node(cx, address);
            let vectors = irqs.into_iter().map(|irq| self.vector(cx, irq)).collect();
            facts.push(Arc::new(IrqFunction { address, numa_node, vectors, at: cx.now }));
        }
        facts
    }

    fn quarantined(&self) -> usize {
        self.affinities.values().filter(|affinity| affinity.is_quarantined()).count()
    }
}

impl IrqReader {
    fn host(&mut self, cx: &mut ReadContext<'_>) -> IrqHost {
        let mut cpus = |name: &str| -> Option<CpuSet> {
            PolledFile::new(cx.host.sysfs.join("devices/system/cpu").join(name)).read(cx, list).value()
        };
        let (online, offline, isolated) = (cpus("online"), cpus("offline"), cpus("isolated"));
        IrqHost { online, offline, isolated, irqbalance: self.irqbalance.runs(cx) }
    }
}

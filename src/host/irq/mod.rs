//! Interrupt vectors of the functions that RDMA devices hang on (`msi_irqs`, `/proc/irq`, `/proc/interrupts`,
//! `/sys/kernel/irq`), the CPUs that there are, and whether irqbalance moves vectors.

mod affinity;
mod balancer;
mod counts;
mod functions;
mod names;
pub mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, Filter, Found, Lane, Pass, Setup, Spec};
use super::file::Watched;
use super::function::Census;
use crate::model::cpus::CpuSet;
use crate::model::ids::PciAddress;
use crate::model::irq::{IrqFunction, IrqHost, IrqVector, VectorRole, role};
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use affinity::{Affinity, list};
use balancer::Balancer;
use counts::{Counted, Counter, Unlisted};
use functions::Functions;

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
    Box::new(Irq { filter: setup.filter.clone() })
}

struct Irq {
    filter: Filter,
}

impl Collector for Irq {
    fn discover(&mut self, pass: &mut Pass<'_>) -> Result<Vec<Found>, ReadError> {
        let some = !Census::take(pass, &self.filter)?.allowed.is_empty();
        Ok(some.then(|| Found { key: Arc::from("interrupts"), device: None }).into_iter().collect())
    }

    fn open(&mut self, _: &Found) -> Box<dyn Lane> {
        Box::new(Interrupts {
            filter: self.filter.clone(),
            functions: Functions::default(),
            counter: Counter::default(),
            counted: BTreeMap::new(),
            affinities: BTreeMap::new(),
            balancer: Balancer::default(),
        })
    }
}

/// All vectors: the kernel has one table for them.
struct Interrupts {
    filter: Filter,
    functions: Functions,
    counter: Counter,
    counted: BTreeMap<u32, Counted>,
    affinities: BTreeMap<u32, Affinity>,
    balancer: Balancer,
}

impl Interrupts {
    /// Each function's vectors by number, with what was counted of them.
    fn count(&mut self, pass: &mut Pass<'_>) -> BTreeMap<PciAddress, BTreeSet<u32>> {
        let mut vectors: BTreeMap<PciAddress, BTreeSet<u32>> = BTreeMap::new();
        let mut unlisted = Vec::new();
        for (address, function) in self.functions.all() {
            match functions::vectors(pass, &function.directory) {
                Some(irqs) => {
                    vectors.insert(*address, irqs);
                }
                None => unlisted.push(Unlisted {
                    address: *address,
                    text: address.to_string(),
                    interfaces: functions::interfaces(pass, &function.directory),
                }),
            }
        }
        let wanted: BTreeSet<u32> = vectors.values().flatten().copied().collect();
        let wanted: Vec<u32> = wanted.into_iter().collect();
        let (counted, claimed) = self.counter.read(pass, &wanted, &unlisted, &self.counted);
        self.counted = counted;
        for (address, irq) in claimed {
            vectors.entry(address).or_default().insert(irq);
        }
        vectors
    }

    fn vector(&mut self, pass: &mut Pass<'_>, irq: u32) -> IrqVector {
        let affinity = self.affinities.entry(irq).or_insert_with(|| Affinity::new(&pass.host.procfs, irq));
        affinity.look(pass);
        let Counted { counts, actions } = self.counted.get(&irq).cloned().unwrap_or_default();
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

impl Lane for Interrupts {
    fn read(&mut self, pass: &mut Pass<'_>) -> Vec<Fact> {
        if let Err(reason) = self.functions.look(pass, &self.filter) {
            pass.fault(Path::new("class/infiniband"), reason);
            return Vec::new();
        }
        let vectors = self.count(pass);
        self.affinities.retain(|irq, _| vectors.values().any(|irqs| irqs.contains(irq)));
        let mut facts: Vec<Fact> = vec![Arc::new(self.host(pass))];
        for (address, irqs) in vectors {
            let numa_node = self.functions.numa_node(pass, address);
            let vectors = irqs.into_iter().map(|irq| self.vector(pass, irq)).collect();
            facts.push(Arc::new(IrqFunction { address, numa_node, vectors, at: pass.now }));
        }
        facts
    }

    fn quarantined(&self) -> usize {
        self.affinities.values().filter(|affinity| affinity.is_quarantined()).count()
    }
}

impl Interrupts {
    fn host(&mut self, pass: &mut Pass<'_>) -> IrqHost {
        let mut cpus = |name: &str| -> Option<CpuSet> {
            Watched::new(pass.host.sysfs.join("devices/system/cpu").join(name)).read(pass, list).value()
        };
        let (online, offline, isolated) = (cpus("online"), cpus("offline"), cpus("isolated"));
        IrqHost { online, offline, isolated, irqbalance: self.balancer.runs(pass) }
    }
}

//! One reading of a host: the facts of every collector, complete before anyone looks at them.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::host::System;
use super::ids::{DeviceName, PciAddress};
use super::pcie::PciFunction;
use super::rdma::RdmaDevice;
use super::reading::ReadError;
use super::time::Timestamp;

/// A fact of any kind, as a collector hands it over.
pub type Fact = Arc<dyn Any + Send + Sync>;

/// A file or message that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Path below the host root, or the name of a netlink request.
    pub source: Arc<str>,
    /// Why.
    pub reason: ReadError,
}

/// How one collector fared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CollectorState {
    /// Its name.
    pub name: &'static str,
    /// Whether its last pass was complete: subjects listed and every reader done.
    pub success: bool,
    /// What there was to read, by key; none when the listing failed.
    pub listed: Option<Arc<[Arc<str>]>>,
    /// How long its last pass took, the times of its listing and of each device added up; without waiting.
    pub duration: Duration,
    /// The longest time that a task of its last pass waited for a free worker.
    pub waited: Duration,
    /// When it last was complete.
    pub last_success: Option<Timestamp>,
    /// Keys of lanes that do not answer.
    pub stuck: Vec<Arc<str>>,
    /// What could not be read in the last pass.
    pub faults: Vec<Fault>,
    /// Read errors since start, in the order of [`ReadError::ALL`].
    pub errors: [u64; ReadError::ALL.len()],
    /// Files that are left alone for a while because the driver refused them.
    pub quarantined: usize,
}

/// One reading of a host.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When it was complete.
    pub taken: Timestamp,
    facts: BTreeMap<TypeId, Vec<Fact>>,
    functions: BTreeMap<PciAddress, usize>,
    /// How each collector fared, in the order of their list.
    pub collectors: Vec<CollectorState>,
}

impl Snapshot {
    /// Puts facts together; those of one type keep their order.
    pub fn new(taken: Timestamp, facts: impl IntoIterator<Item = Fact>, collectors: Vec<CollectorState>) -> Self {
        let mut by_type: BTreeMap<TypeId, Vec<Fact>> = BTreeMap::new();
        for fact in facts {
            by_type.entry((*fact).type_id()).or_default().push(fact);
        }
        let mut snapshot = Self { taken, facts: by_type, functions: BTreeMap::new(), collectors };
        snapshot.functions = snapshot.all::<PciFunction>().enumerate().map(|(at, f)| (f.address, at)).collect();
        snapshot
    }

    /// All facts of one type.
    pub fn all<T: Any + Send + Sync>(&self) -> impl Iterator<Item = &T> {
        self.facts.get(&TypeId::of::<T>()).into_iter().flatten().filter_map(|fact| fact.downcast_ref())
    }

    /// The RDMA devices.
    pub fn devices(&self) -> impl Iterator<Item = &RdmaDevice> {
        self.all()
    }

    /// The RDMA device of this name.
    pub fn device(&self, name: &DeviceName) -> Option<&RdmaDevice> {
        self.devices().find(|device| device.name == *name)
    }

    /// The PCI function at this address, if it is watched.
    pub fn function(&self, address: PciAddress) -> Option<&PciFunction> {
        let at = *self.functions.get(&address)?;
        self.facts.get(&TypeId::of::<PciFunction>())?.get(at)?.downcast_ref()
    }

    /// What the host says of itself.
    pub fn system(&self) -> Option<&System> {
        self.all().next()
    }

    /// The collector of this name, if it runs.
    pub fn collector(&self, name: &str) -> Option<&CollectorState> {
        self.collectors.iter().find(|collector| collector.name == name)
    }
}

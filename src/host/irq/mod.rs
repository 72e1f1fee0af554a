//! Interrupt vectors of the functions behind RDMA devices and of sibling functions that serve the same card (`msi_irqs`,
//! `/proc/irq`, `/proc/interrupts`, `/sys/kernel/irq`), the host's CPUs, and whether irqbalance moves vectors.

mod affinity;
pub mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use affinity::{IrqbalanceDetector, VectorAffinity, list};
use affinity::{UnlistedFunction, VectorCounter, VectorCounts};

use super::collector::{Collector, DeviceReader, Discovered, Filter, ReadContext, Setup, Spec};
use super::file::{PolledFile, read_once};
use super::function::{DeviceInventory, address_of};
use super::io::reason_of;
use super::text;
use crate::model::ids::PciAddress;
use crate::model::irq::{CpuSet, IrqFunction, IrqHost, IrqVector, VectorRole, role};
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::Fact;

/// The collector of interrupts.
pub const SPEC: Spec = Spec {
    name: "irq",
    about: "Interrupt vectors of RDMA devices: CPUs, counts, affinity, irqbalance",
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

/// Reads all vectors at once: the kernel has one table for them.
struct IrqReader {
    filter: Filter,
    functions: IrqFunctions,
    counter: VectorCounter,
    counted: BTreeMap<u32, VectorCounts>,
    affinities: BTreeMap<u32, VectorAffinity>,
    irqbalance: IrqbalanceDetector,
}

impl IrqReader {
    /// Each function's vectors by number; their counts go to `counted`.
    fn count(&mut self, cx: &mut ReadContext<'_>) -> BTreeMap<PciAddress, BTreeSet<u32>> {
        let mut vectors: BTreeMap<PciAddress, BTreeSet<u32>> = BTreeMap::new();
        let mut unlisted = Vec::new();
        for (address, function) in self.functions.all() {
            match vectors_of(cx, &function.directory) {
                Some(irqs) => {
                    vectors.insert(*address, irqs);
                }
                None => unlisted.push(UnlistedFunction {
                    address: *address,
                    text: address.to_string(),
                    interfaces: interfaces(cx, &function.directory),
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
        affinity.refresh(cx);
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
        if let Err(reason) = self.functions.refresh(cx, &self.filter) {
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
            read_once(cx, &cx.host.sysfs.join("devices/system/cpu").join(name), list)
        };
        let (online, offline, isolated) = (cpus("online"), cpus("offline"), cpus("isolated"));
        IrqHost { online, offline, isolated, irqbalance: self.irqbalance.is_running(cx) }
    }
}

/// One function.
pub(super) struct IrqFunctionFiles {
    /// Its directory.
    pub(super) directory: PathBuf,
    node_file: PolledFile,
    numa_node: Option<u32>,
}

/// All functions.
#[derive(Default)]
pub(super) struct IrqFunctions {
    functions: BTreeMap<PciAddress, IrqFunctionFiles>,
    /// The functions that each driver had bound at the last search for siblings, and the siblings found.
    bound: BTreeMap<PathBuf, (Vec<String>, BTreeMap<PciAddress, PathBuf>)>,
}

impl IrqFunctions {
    /// Updates the set of functions.
    ///
    /// # Errors
    /// Why the RDMA devices could not be listed.
    pub(super) fn refresh(&mut self, cx: &mut ReadContext<'_>, filter: &Filter) -> Result<(), ReadError> {
        let DeviceInventory { allowed, excluded } = DeviceInventory::read(cx, filter)?;
        let mut now: BTreeMap<PciAddress, PathBuf> =
            allowed.iter().map(|device| (device.address, device.function.clone())).collect();
        let own: Vec<PathBuf> = now.values().cloned().collect();
        for directory in own {
            for (address, sibling) in self.siblings(cx, &directory, &excluded) {
                now.entry(address).or_insert(sibling);
            }
        }
        self.functions.retain(|address, function| now.get(address) == Some(&function.directory));
        for (address, directory) in now {
            let node_file = PolledFile::new(directory.join("numa_node"));
            let new = || IrqFunctionFiles { directory, node_file, numa_node: None };
            self.functions.entry(address).or_insert_with(new);
        }
        Ok(())
    }

    /// Every function, by address.
    pub(super) fn all(&self) -> impl Iterator<Item = (&PciAddress, &IrqFunctionFiles)> {
        self.functions.iter()
    }

    /// A function's NUMA node; -1 means none. Read until it has one, because a function cannot move.
    pub(super) fn numa_node(&mut self, cx: &mut ReadContext<'_>, address: PciAddress) -> Option<u32> {
        let function = self.functions.get_mut(&address)?;
        if function.numa_node.is_none() {
            function.numa_node = function.node_file.read(cx, numa_node).value();
            function.node_file.close();
        }
        function.numa_node
    }

    /// Functions of the same driver and model that have neither an RDMA device nor a network interface: the second half
    /// of a card that spans two sockets serves the first half's queues.
    fn siblings(
        &mut self,
        cx: &mut ReadContext<'_>,
        function: &Path,
        excluded: &BTreeSet<PciAddress>,
    ) -> BTreeMap<PciAddress, PathBuf> {
        let Ok(driver) = cx.host.resolve(&function.join("driver")) else { return BTreeMap::new() };
        let Ok(mut names) = cx.host.io.list(&driver) else { return BTreeMap::new() };
        names.sort_unstable();
        if let Some((before, silent)) = self.bound.get(&driver)
            && *before == names
        {
            return silent.clone();
        }
        let model = model(cx, function);
        let mut silent = BTreeMap::new();
        for name in &names {
            let Ok(address) = name.parse::<PciAddress>() else { continue };
            let Ok(directory) = cx.host.resolve(&driver.join(name)) else { continue };
            if excluded.contains(&address) || address_of(&directory) != Some(address) {
                continue;
            }
            let Ok(entries) = cx.host.io.list(&directory) else { continue };
            let heard = entries.iter().any(|entry| matches!(&**entry, "infiniband" | "net" | "physfn"));
            if !heard && model.is_some() && self::model(cx, &directory) == model {
                silent.insert(address, directory);
            }
        }
        self.bound.insert(driver, (names, silent.clone()));
        silent
    }
}

/// Vendor and device.
fn model(cx: &mut ReadContext<'_>, function: &Path) -> Option<(u64, u64)> {
    let mut number = |name: &str| {
        let number = |bytes: &[u8]| text::parse_hex(bytes).map_or(Reading::Absent, Reading::Value);
        read_once(cx, &function.join(name), number)
    };
    number("vendor").zip(number("device"))
}

fn numa_node(bytes: &[u8]) -> Reading<u32> {
    match bytes {
        b"-1" => Reading::Absent,
        _ => text::parsed(bytes, |text| u32::try_from(text::parse_decimal(text.as_bytes())?).ok()),
    }
}

/// The numbers of a function's vectors; `None` if the host does not list them (a recorded host may have only the
/// directory).
fn vectors_of(cx: &mut ReadContext<'_>, function: &Path) -> Option<BTreeSet<u32>> {
    let directory = function.join("msi_irqs");
    match cx.host.io.list(&directory) {
        Ok(names) => {
            let irq = |name: &String| u32::try_from(text::parse_decimal(name.as_bytes())?).ok();
            Some(names.iter().filter_map(irq).collect()).filter(|irqs: &BTreeSet<u32>| !irqs.is_empty())
        }
        Err(error) => {
            if let Some(reason) = reason_of(&error) {
                cx.fault(&directory, reason);
            }
            None
        }
    }
}

/// The names of a function's network interfaces.
pub(super) fn interfaces(cx: &mut ReadContext<'_>, function: &Path) -> Vec<String> {
    cx.host.io.list(&function.join("net")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    //! The collector on hosts in memory.

    use super::super::harness::{CollectorHarness, facts};
    use super::*;

    fn harness() -> CollectorHarness {
        CollectorHarness::new(&SPEC, Filter::default())
    }

    fn card(harness: &CollectorHarness, address: &str, device: Option<&str>, node: &str, irqs: &[u32]) {
        let directory = format!("/sys/devices/pci0000:80/{address}");
        harness.memory.set(format!("{directory}/numa_node"), format!("{node}\n"));
        harness.memory.set(format!("{directory}/vendor"), "0x15b3\n");
        harness.memory.set(format!("{directory}/device"), "0x1021\n");
        harness.memory.symlink(format!("{directory}/driver"), "../../../bus/pci/drivers/mlx5_core");
        harness.memory.symlink(
            format!("/sys/bus/pci/drivers/mlx5_core/{address}"),
            format!("../../../../devices/pci0000:80/{address}"),
        );
        for irq in irqs {
            harness.memory.set(format!("{directory}/msi_irqs/{irq}"), "msix\n");
        }
        if let Some(device) = device {
            harness.memory.symlink(format!("{directory}/infiniband/{device}/device"), format!("../../../{address}"));
            harness.memory.symlink(
                format!("/sys/class/infiniband/{device}"),
                format!("../../devices/pci0000:80/{address}/infiniband/{device}"),
            );
        }
    }

    fn affinity(harness: &CollectorHarness, irq: u32, effective: &str, allowed: &str, hint: &str) {
        harness.memory.set(format!("/proc/irq/{irq}/effective_affinity_list"), format!("{effective}\n"));
        harness.memory.set(format!("/proc/irq/{irq}/smp_affinity_list"), format!("{allowed}\n"));
        harness.memory.set(format!("/proc/irq/{irq}/affinity_hint"), format!("{hint}\n"));
    }

    const TABLE: &str = "      CPU0 CPU1 CPU4\n 7: 1 1 1 IO-APIC 7-edge x\n\
        40: 5 0 0 PCI-MSIX-0000:81:00.0 0-edge mlx5_async0@pci:0000:81:00.0\n\
        41: 0 9 4294967295 PCI-MSIX-0000:81:00.0 1-edge mlx5_comp0@pci:0000:81:00.0\n\
        50: 0 0 3 PCI-MSIX-0000:a1:00.0 1-edge mlx5_comp0@pci:0000:a1:00.0\nERR: 0\n";

    fn functions(harness: &mut CollectorHarness) -> Vec<IrqFunction> {
        harness.discover().unwrap();
        facts(&harness.read())
    }

    fn counts(vector: &IrqVector) -> Option<Vec<(u32, u32)>> {
        vector.counts.as_ref().map(|counts| counts.to_vec())
    }

    #[test]
    fn vectors_of_a_function_and_its_sibling() {
        let mut harness = harness();
        card(&harness, "0000:81:00.0", Some("mlx5_0"), "0", &[40, 41]);
        card(&harness, "0000:a1:00.0", None, "1", &[50]);
        harness.memory.set("/proc/interrupts", TABLE);
        affinity(&harness, 41, "4", "0-1,4", "00000010");
        let seen = functions(&mut harness);
        assert_eq!(harness.faults, []);
        assert_eq!(
            seen.iter().map(|f| (f.address.to_string(), f.numa_node)).collect::<Vec<_>>(),
            [("0000:81:00.0".to_owned(), Some(0)), ("0000:a1:00.0".to_owned(), Some(1)),]
        );
        let [control, data] = &*seen[0].vectors else { panic!("{seen:?}") };
        assert_eq!((control.role, counts(control)), (VectorRole::Control, Some(vec![(0, 5)])));
        assert_eq!((data.role, counts(data)), (VectorRole::Completion, Some(vec![(1, 9), (4, u32::MAX)])));
        assert_eq!(data.effective.as_ref().map(ToString::to_string).as_deref(), Some("4"));
        assert_eq!(data.hint.as_ref().map(ToString::to_string).as_deref(), Some("4"));
        assert_eq!(control.effective, None);
        // The other half gets an interface of its own: it is no longer silent, and not RDMA.
        harness.memory.set("/sys/devices/pci0000:80/0000:a1:00.0/net/eth5/type", "1\n");
        harness.memory.remove("/sys/bus/pci/drivers/mlx5_core/0000:a1:00.0");
        assert_eq!(functions(&mut harness).len(), 1);
    }

    #[test]
    fn names_identify_vectors_that_are_not_listed() {
        let mut harness = harness();
        card(&harness, "0000:81:00.0", Some("mlx5_0"), "-1", &[]);
        harness.memory.set("/sys/devices/pci0000:80/0000:81:00.0/net/eth2/type", "1\n");
        harness.memory.set("/proc/interrupts", format!("{TABLE} 60: 1 2 3 PCI-MSI 9-edge eth2-TxRx-3\n"));
        let seen = functions(&mut harness);
        assert_eq!(seen[0].vectors.iter().map(|vector| vector.irq).collect::<Vec<_>>(), [40, 41, 60]);
        assert_eq!((seen[0].numa_node, counts(&seen[0].vectors[2])), (None, Some(vec![(0, 1), (1, 2), (4, 3)])));
    }

    #[test]
    fn own_files_where_they_are_cheaper_and_say_all() {
        let mut harness = harness();
        card(&harness, "0000:81:00.0", Some("mlx5_0"), "0", &[40, 41]);
        harness.memory.set("/proc/interrupts", TABLE);
        for irq in 0..30 {
            harness.memory.set(format!("/sys/kernel/irq/{irq}/actions"), "x\n");
        }
        harness.memory.set("/sys/devices/system/cpu/possible", "0-4\n");
        harness.memory.set("/sys/kernel/irq/40/per_cpu_count", "6,0,0,0,0\n");
        harness.memory.set("/sys/kernel/irq/40/actions", "mlx5_async0@pci:0000:81:00.0\n");
        harness.memory.set("/sys/kernel/irq/41/per_cpu_count", "0,0,0,0,7\n");
        let seen = functions(&mut harness);
        assert!(!harness.touched("/proc/interrupts"));
        assert_eq!(counts(&seen[0].vectors[0]), Some(vec![(0, 6)]));
        assert_eq!((seen[0].vectors[0].role, seen[0].vectors[1].role), (VectorRole::Control, VectorRole::Completion));
        assert_eq!(counts(&seen[0].vectors[1]), Some(vec![(4, 7)]));
        harness.memory.set("/sys/kernel/irq/41/per_cpu_count", "0,0,0,\n");
        assert_eq!(counts(&functions(&mut harness)[0].vectors[0]), Some(vec![(0, 5)]), "the table has all");
        assert!(harness.touched("/proc/interrupts"));
    }

    /// With pages of 64 KiB (arm64, POWER) the file of a host with many CPUs is longer than 4096 bytes, and whole.
    #[test]
    fn a_list_of_counts_longer_than_a_small_page_is_read_whole() {
        let mut harness = harness();
        card(&harness, "0000:81:00.0", Some("mlx5_0"), "0", &[40]);
        harness.memory.set("/proc/interrupts", TABLE);
        for irq in 0..30 {
            harness.memory.set(format!("/sys/kernel/irq/{irq}/actions"), "x\n");
        }
        harness.memory.set("/sys/devices/system/cpu/possible", "0-511\n");
        let list = vec!["1234567890"; 512].join(",");
        harness.memory.set("/sys/kernel/irq/40/per_cpu_count", format!("{list}\n"));
        let seen = functions(&mut harness);
        assert_eq!(harness.faults, []);
        assert_eq!(counts(&seen[0].vectors[0]).map(|counts| counts.len()), Some(512));
        assert!(!harness.touched("/proc/interrupts"));
    }

    /// The names of a GICv3's interrupt translation service, before and since Linux 6.11.
    #[test]
    fn arm_names_identify_vectors_that_are_not_listed() {
        let mut harness = harness();
        card(&harness, "0009:01:00.0", Some("mlx5_0"), "1", &[]);
        harness.memory.set(
            "/proc/interrupts",
            "      CPU0 CPU1 CPU4\n 11: 9 9 9     GICv3  27 Level     arch_timer\n\
             70: 1 2 0   ITS-MSI 603979776 Edge      mlx5_async0@pci:0009:01:00.0\n\
             71: 0 4 0   ITS-PCI-MSIX-0009:01:00.0   1 Edge      mlx5_comp0@pci:0009:01:00.0\n\
             72: 0 4 0   ITS-PCI-MSIX-0009:01:00.1   1 Edge      mlx5_comp0@pci:0009:01:00.1\n\
             IPI0: 1 2 3       Rescheduling interrupts\nErr: 0\n",
        );
        let seen = functions(&mut harness);
        assert_eq!(harness.faults, []);
        let vectors: Vec<_> = seen[0].vectors.iter().map(|vector| (vector.irq, vector.role)).collect();
        assert_eq!(vectors, [(70, VectorRole::Control), (71, VectorRole::Completion)]);
        assert_eq!(counts(&seen[0].vectors[0]), Some(vec![(0, 1), (1, 2)]));
    }

    #[test]
    fn cpus_and_irqbalance() {
        let mut harness = harness();
        card(&harness, "0000:81:00.0", Some("mlx5_0"), "0", &[40]);
        harness.memory.set("/sys/devices/system/cpu/online", "0-1,4\n");
        harness.memory.set("/sys/devices/system/cpu/offline", "2-3\n");
        harness.memory.set("/sys/devices/system/cpu/isolated", "\n");
        harness.memory.set("/proc/77/comm", "irqbalance\n");
        harness.discover().unwrap();
        let host = facts::<IrqHost>(&harness.read()).remove(0);
        assert_eq!(host.offline.map(|set| set.to_string()).as_deref(), Some("2-3"));
        assert_eq!((host.isolated, host.irqbalance), (None, true));
        harness.memory.remove("/proc/77");
        assert!(!facts::<IrqHost>(&harness.read()).remove(0).irqbalance);
        harness.memory.set("/run/irqbalance/irqbalance77.sock", "");
        assert!(facts::<IrqHost>(&harness.read()).remove(0).irqbalance);
    }

    #[test]
    fn a_table_that_cannot_be_read_costs_the_counts_alone() {
        let mut harness = harness();
        card(&harness, "0000:81:00.0", Some("mlx5_0"), "0", &[40]);
        harness.memory.set("/proc/interrupts", "what\n");
        let seen = functions(&mut harness);
        assert_eq!((seen[0].vectors.len(), counts(&seen[0].vectors[0])), (1, None));
        assert_eq!(harness.faults, [("/proc/interrupts".to_owned(), ReadError::Malformed)]);
    }

    #[test]
    fn no_rdma_no_reading() {
        let mut harness = harness();
        harness.memory.set("/proc/interrupts", TABLE);
        assert_eq!(harness.discover().unwrap(), [] as [&str; 0]);
        assert!(!harness.touched("/proc/interrupts"));
    }

    #[test]
    fn excluded_devices_are_left_alone() {
        let filter = Filter { exclude: Some(Filter::pattern("mlx5_0").unwrap()), ..Filter::default() };
        let mut harness = CollectorHarness::new(&SPEC, filter);
        card(&harness, "0000:81:00.0", Some("mlx5_0"), "0", &[40]);
        card(&harness, "0000:a1:00.0", Some("mlx5_1"), "1", &[50]);
        harness.memory.set("/proc/interrupts", TABLE);
        assert_eq!(functions(&mut harness).len(), 1);
        assert!(!harness.touched("/sys/devices/pci0000:80/0000:81:00.0/msi_irqs"));
        assert!(!harness.touched("/sys/devices/pci0000:80/0000:81:00.0/vendor"));
    }

    #[test]
    fn a_node_that_cannot_be_read_at_first_is_read_again() {
        let mut harness = harness();
        card(&harness, "0000:81:00.0", Some("mlx5_0"), "0", &[40]);
        let node = "/sys/devices/pci0000:80/0000:81:00.0/numa_node";
        harness.memory.fail(node, rustix::io::Errno::IO);
        assert_eq!(functions(&mut harness)[0].numa_node, None);
        harness.memory.set(node, "1\n");
        assert_eq!(functions(&mut harness)[0].numa_node, Some(1));
        harness.memory.set(node, "-1\n");
        assert_eq!(functions(&mut harness)[0].numa_node, Some(1), "it cannot move");
    }
}

#[cfg(test)]
mod functions_tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let _ = numa_node(&bytes);
        }

        #[test]
        fn a_node_below_zero_is_none(node in any::<i32>()) {
            let known = u32::try_from(node).ok();
            prop_assert_eq!(numa_node(node.to_string().as_bytes()).value(), known);
        }
    }
}

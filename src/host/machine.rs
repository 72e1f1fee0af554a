//! The machine: physical or virtual, and its identity (`/proc/cpuinfo`, `/sys/hypervisor/type`, `/sys/class/dmi/id`).

use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, ReadContext, Setup, Spec};
use super::datapath::{self, DataPathReader};
use super::io::reason_of;
use crate::model::host::Machine;
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;

/// The collector of the machine.
pub const SPEC: Spec = Spec {
    name: "machine",
    about: "Whether the host is a virtual machine, its machine ID, and whether its interfaces use their VFs",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(2),
    fresh: false,
    make: |_: &Setup| Box::new(MachineCollector),
};

/// The key of what reads the paths of a guest's interfaces.
const DATA_PATHS: &str = "data_paths";

struct MachineCollector;

impl Collector for MachineCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let found = |key: &str| Discovered { key: Arc::from(key), device: None };
        let data_paths = datapath::has_drivers(cx).then(|| found(DATA_PATHS));
        Ok(data_paths.into_iter().chain([found("machine")]).collect())
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        if &*found.key == DATA_PATHS { Box::new(DataPathReader) } else { Box::new(MachineReader) }
    }
}

struct MachineReader;

impl DeviceReader for MachineReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let text = |cx: &mut ReadContext<'_>, path: std::path::PathBuf| {
            let mut buffer = vec![0; 4096];
            match cx.host.io.open(&path).and_then(|mut file| file.read(&mut buffer)) {
                Ok(length) => Some(String::from_utf8_lossy(buffer.get(..length)?).trim().to_owned()),
                Err(error) => {
                    // Files that only root may read are optional.
                    let reason = reason_of(&error).filter(|reason| *reason != ReadError::Permission);
                    if let Some(reason) = reason {
                        cx.fault(&path, reason);
                    }
                    None
                }
            }
        };
        let (cpuinfo, sysfs) = (cx.host.procfs.join("cpuinfo"), cx.host.sysfs.clone());
        let cpus = text(cx, cpuinfo);
        let flagged = cpus.as_deref().and_then(is_guest);
        let kind = text(cx, sysfs.join("hypervisor/type")).map(|kind| !kind.is_empty());
        let vendor = text(cx, sysfs.join("class/dmi/id/sys_vendor"));
        let product = text(cx, sysfs.join("class/dmi/id/product_name"));
        let named = vendor.map(|vendor| is_virtual(&vendor, product.as_deref().unwrap_or_default()));
        // Any positive sign counts; without one, the CPU flags decide.
        let hypervisor = if kind == Some(true) || named == Some(true) { Some(true) } else { flagged.or(named) };
        let identity = text(cx, sysfs.join("class/dmi/id/product_uuid")).filter(|uuid| !uuid.is_empty());
        let machine = Machine { hypervisor, identity: identity.map(Arc::from) };
        if machine == Machine::default() { Vec::new() } else { vec![Arc::new(machine)] }
    }
}

/// Whether the CPU flags include `hypervisor` (x86); `None` if there are no flags.
fn is_guest(cpus: &str) -> Option<bool> {
    let flags = cpus.lines().find_map(|line| line.strip_prefix("flags").and_then(|rest| rest.split_once(':')))?;
    Some(flags.1.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

/// Whether a vendor makes virtual machines.
fn is_virtual(vendor: &str, product: &str) -> bool {
    ["QEMU", "VMware", "Xen", "KVM", "Red Hat", "OpenStack", "Nutanix", "Google"].iter().any(|v| vendor.starts_with(v))
        || (vendor == "Amazon EC2" && !product.contains("metal"))
        || (vendor == "Microsoft Corporation" && product == "Virtual Machine")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::collector::Filter;
    use crate::host::harness::{CollectorHarness, facts};

    #[test]
    fn guests_and_hosts() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        harness.discover().unwrap();
        assert_eq!(facts::<Machine>(&harness.read()), []);
        harness.memory.set("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme\n");
        assert_eq!(facts::<Machine>(&harness.read())[0].hypervisor, Some(false));
        harness.memory.set("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor vme\n");
        harness.memory.set("/sys/class/dmi/id/product_uuid", "4c4c4544-0000\n");
        let found = facts::<Machine>(&harness.read());
        assert_eq!((found[0].hypervisor, found[0].identity.as_deref()), (Some(true), Some("4c4c4544-0000")));
        harness.memory.set("/proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n");
        harness.memory.set("/sys/class/dmi/id/sys_vendor", "QEMU\n");
        assert_eq!(facts::<Machine>(&harness.read())[0].hypervisor, Some(true));
        assert_eq!(harness.faults, []);
    }

    proptest! {
        #[test]
        fn any_text_parses_without_a_panic(text in any::<String>(), like in "(flags|:|\n|\t|hypervisor| ){0,12}") {
            let _ = (is_guest(&text), is_virtual(&text, &like));
            let _ = is_guest(&like);
        }
    }
}

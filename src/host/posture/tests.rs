//! The collector on hosts in memory.

use proptest::prelude::*;

use super::*;
use crate::host::collector::Filter;
use crate::host::harness::{CollectorHarness, facts};

fn read(harness: &mut CollectorHarness) -> Option<Posture> {
    harness.discover().unwrap();
    facts(&harness.read()).into_iter().next()
}

#[test]
fn a_host_that_says_nothing_has_no_posture() {
    let mut harness = CollectorHarness::new(&SPEC, Filter::default());
    assert_eq!((read(&mut harness), harness.faults.len()), (None, 0));
}

#[test]
fn what_a_host_says() {
    let mut harness = CollectorHarness::new(&SPEC, Filter::default());
    let function = "/sys/devices/pci0000:80/0000:81:00.0";
    harness.memory.symlink(format!("{function}/infiniband/mlx5_0/device"), "../../../0000:81:00.0");
    harness.memory.symlink("/sys/class/infiniband/mlx5_0", "../../devices/pci0000:80/0000:81:00.0/infiniband/mlx5_0");
    harness.memory.set("/sys/kernel/iommu_groups/17/type", "DMA-FQ\n");
    harness.memory.symlink(format!("{function}/iommu_group"), "../../../kernel/iommu_groups/17");
    harness
        .memory
        .set("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 intel_iommu=on iommu=pt quiet isolcpus=2-5\n");
    harness.memory.set("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme sse2\n");
    harness.memory.set("/sys/class/dmi/id/sys_vendor", "Dell Inc.\n");
    harness.memory.set("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n");
    harness.memory.set("/sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "powersave\n");
    harness.memory.set("/proc/sys/kernel/numa_balancing", "1\n");
    harness.memory.set("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1024\n");
    harness.memory.set("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "1000\n");
    harness.memory.set("/sys/module/mlx5_core/version", "24.10-1.1.4\n");
    let posture = read(&mut harness).unwrap();
    assert_eq!(harness.faults, []);
    assert_eq!((posture.virtualization, posture.iommu.as_deref()), (Some("none"), Some("DMA-FQ")));
    assert_eq!(
        posture.arguments.iter().map(|a| &**a).collect::<Vec<_>>(),
        ["intel_iommu=on", "iommu=pt", "isolcpus=2-5"]
    );
    assert_eq!(posture.governors, BTreeMap::from([(Arc::from("powersave"), 2)]));
    assert_eq!((posture.numa_balancing, posture.rdma_netns_mode), (Some(true), None));
    assert_eq!(posture.hugepages, BTreeMap::from([(2048, (1024, 1000))]));
    assert_eq!(posture.driver_versions.len(), 1);
    harness.memory.set("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor sse2\n");
    harness.memory.set("/sys/class/dmi/id/sys_vendor", "QEMU\n");
    assert_eq!(read(&mut harness).unwrap().virtualization, Some("kvm"));
    harness.memory.remove(format!("{function}/iommu_group"));
    harness.memory.remove("/sys/kernel/iommu_groups/17");
    harness.memory.directory("/sys/kernel/iommu_groups");
    assert_eq!(read(&mut harness).unwrap().iommu.as_deref(), Some("off"));
}

/// The files whose form is this collector's own.
const FILES: [&str; 8] = [
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/sys/kernel/numa_balancing",
    "/sys/class/dmi/id/sys_vendor",
    "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
    "/sys/module/mlx5_core/version",
];

proptest! {
    #[test]
    fn no_content_breaks_it(
        contents in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), FILES.len()),
        size in "[0-9a-zA-Z]{0,24}",
    ) {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        for (file, content) in FILES.iter().zip(contents) {
            harness.memory.set(file, content);
        }
        harness.memory.set(format!("/sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages"), "1\n");
        let _ = read(&mut harness);
    }
}

//! Any of a host's files with any content: numbers, rates, lists, tables of errors, up to what is said of the host.

#![no_main]

#[path = "../harness.rs"]
mod harness;

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use harness::host::{Card, HostTree, Layer};
use harness::tree::Tree;
use harness::{FuzzHarness, files, number, put};
use lanewatch::host::memory::MemoryHost;
use lanewatch::host::{COLLECTORS, ethtool};
use libfuzzer_sys::fuzz_target;

/// Two cards, one with VFs, and the files of posture and interrupts.
fn host() -> (Tree, Vec<PathBuf>, Arc<MemoryHost>) {
    let mut host = HostTree::new(2);
    host.cards[1] = Card { layer: Layer::Ethernet, vfs: 2, switch: true, ..Card::default() };
    let mut tree = host.tree();
    let function = host.devices()[0].function.clone();
    tree.remove(function.join("msi_irqs"));
    tree.line("proc/cmdline", "intel_iommu=on iommu=pt isolcpus=2-3");
    tree.line("proc/cpuinfo", "flags\t\t: fpu vme sse2");
    tree.line("proc/sys/kernel/numa_balancing", 1);
    tree.line("sys/class/dmi/id/sys_vendor", "Maker");
    tree.line("sys/class/dmi/id/product_name", "Product");
    tree.line("sys/devices/system/cpu/isolated", "2-3");
    tree.line("sys/devices/system/cpu/offline", "");
    tree.line("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave");
    tree.line("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", 64);
    tree.line("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", 64);
    tree.line("sys/kernel/iommu_groups/17/type", "DMA-FQ");
    tree.link_to(function.join("iommu_group"), "sys/kernel/iommu_groups/17");
    tree.line("sys/module/mlx5_core/version", "24.10");
    for irq in 40..42 {
        tree.line(function.join(format!("msi_irqs/{irq}")), "msix");
        tree.line(format!("sys/kernel/irq/{irq}/per_cpu_count"), "1,0,0,0,5,0,0,0");
        tree.line(format!("sys/kernel/irq/{irq}/actions"), format!("mlx5_comp{irq}@pci:0000:05:00.0"));
        for file in ["smp_affinity_list", "effective_affinity_list"] {
            tree.line(format!("proc/irq/{irq}/{file}"), "0-3");
        }
        tree.line(format!("proc/irq/{irq}/affinity_hint"), "0f");
    }
    tree.line("kmsg", "4,1,1000000,-;mlx5_core 0000:05:00.0 ib0: Link down");
    for irq in 100..120 {
        tree.directory(format!("sys/kernel/irq/{irq}"));
    }
    let (files, memory) = (files(&tree), harness::memory(&tree));
    (tree, files, memory)
}

fuzz_target!(|data: &[u8]| {
    static HOST: LazyLock<(Tree, Vec<PathBuf>, Arc<MemoryHost>)> = LazyLock::new(host);
    let (tree, files, memory) = &*HOST;
    let mut spoilt = Vec::new();
    let mut rest = data;
    // Which file, how long its content is, and that.
    while let Some((index, after)) = number(rest) {
        let Some((length, after)) = after.split_first() else { break };
        let (content, after) = after.split_at(usize::from(*length).min(after.len()));
        let path = &files[index % files.len()];
        memory.set(path, content);
        spoilt.push(path);
        rest = after;
    }
    let mut harness = FuzzHarness::new(COLLECTORS.iter().filter(|spec| spec.name != ethtool::SPEC.name), memory, None);
    harness.cx();
    for path in spoilt {
        let was = path.strip_prefix("/").expect("below the root");
        put(memory, path, tree.entry(was).expect("one of the tree's"));
    }
    harness.cx();
});

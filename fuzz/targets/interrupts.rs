//! `/proc/interrupts`, in pieces of any size, and what is made of it for two functions: one that lists its vectors,
//! and one whose vectors are known by their names only.

#![no_main]

#[path = "../harness.rs"]
mod harness;

use std::io;
use std::sync::{Arc, LazyLock};

use harness::FuzzHarness;
use harness::host::HostTree;
use lanewatch::host::io::OpenFile;
use lanewatch::host::irq::{self, table};
use lanewatch::host::memory::MemoryHost;
use lanewatch::host::{numa, rdma};
use libfuzzer_sys::fuzz_target;

struct Pieces<'a>(&'a [u8], usize);

impl OpenFile for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_at(0, buffer)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default();
        let length = self.1.min(rest.len()).min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
}

/// Takes every row, odd ones by name.
struct All(u64);

impl table::RowVisitor for All {
    fn wants(&mut self, irq: u32) -> bool {
        irq % 2 == 0
    }

    fn wants_named(&mut self, _: u32, tail: &table::RowNames<'_>) -> bool {
        !tail.actions.is_empty()
    }

    fn row(&mut self, irq: u32, counts: Option<&[(u32, u32)]>, _: &table::RowNames<'_>) {
        let counts = counts.unwrap_or_default();
        assert!(counts.iter().all(|(_, count)| *count > 0), "{irq}");
        self.0 = counts.iter().map(|(_, count)| u64::from(*count)).sum();
    }
}

fn host() -> Arc<MemoryHost> {
    let host = HostTree::new(2);
    let [listed, named] = host.devices().try_into().expect("two devices");
    let mut tree = host.tree();
    tree.remove(named.function.join("msi_irqs"));
    for vector in 40..44 {
        tree.line(listed.function.join(format!("msi_irqs/{vector}")), "msix");
    }
    harness::memory(&tree)
}

fuzz_target!(|data: &[u8]| {
    let Some((step, text)) = data.split_first() else { return };
    let step = usize::from(*step) + 1;
    let mut scratch = table::TableBuffer::default();
    let _ = table::read(&mut Pieces(text, step), &mut scratch, &mut All(0));

    static HOST: LazyLock<Arc<MemoryHost>> = LazyLock::new(host);
    let mut harness = FuzzHarness::new([&irq::SPEC, &rdma::SPEC, &numa::SPEC], &HOST, None);
    for end in [text.len() / 2, text.len()] {
        HOST.set("/proc/interrupts", text.get(..end).unwrap_or_default());
        harness.cx();
    }
});

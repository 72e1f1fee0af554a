//! Which CPUs serve a vector (`/proc/irq/<n>/`), and whether irqbalance runs and moves it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::host::collector::ReadContext;
use crate::host::file::PolledFile;
use crate::host::text;
use crate::model::irq::CpuSet;
use crate::model::reading::{ReadError, Reading};

/// What rarely changes is read again after this many passes, or when the effective CPUs have changed.
const SELDOM: u32 = 20;

/// The files of one vector, and their last values.
pub(super) struct VectorAffinity {
    effective_file: PolledFile,
    allowed_file: PolledFile,
    hint_file: PolledFile,
    age: u32,
    /// CPUs that serve it.
    pub(super) effective: Option<Arc<CpuSet>>,
    /// CPUs that may serve it.
    pub(super) allowed: Option<Arc<CpuSet>>,
    /// CPUs that its driver prefers.
    pub(super) hint: Option<Arc<CpuSet>>,
    /// Whether the kernel manages it, so that nobody can change it.
    pub(super) managed: bool,
}

impl VectorAffinity {
    pub(super) fn new(procfs: &Path, irq: u32) -> Self {
        let directory = procfs.join("irq").join(irq.to_string());
        let file = |name| PolledFile::new(directory.join(name));
        Self {
            effective_file: file("effective_affinity_list"),
            allowed_file: file("smp_affinity_list"),
            hint_file: file("affinity_hint"),
            age: 0,
            effective: None,
            allowed: None,
            hint: None,
            managed: false,
        }
    }

    /// Reads the files again. There may be thousands of vectors, so no descriptor stays open.
    pub(super) fn refresh(&mut self, cx: &mut ReadContext<'_>) {
        let before = self.effective.take();
        self.effective = reuse(before.as_ref(), self.effective_file.read(cx, list));
        self.effective_file.close();
        if self.age > 0 && self.age < SELDOM && self.effective == before {
            self.age += 1;
            return;
        }
        self.age = 1;
        let before = self.allowed.take();
        self.allowed = reuse(before.as_ref(), self.allowed_file.read(cx, list));
        self.allowed_file.close();
        let before = self.hint.take();
        self.hint = reuse(before.as_ref(), self.hint_file.read(cx, mask));
        self.hint_file.close();
        // If the mode is unknown, the vector counts as changeable.
        self.managed = matches!(cx.host.io.is_writable(self.allowed_file.path()), Ok(Some(false)));
    }

    pub(super) fn is_quarantined(&self) -> bool {
        [&self.effective_file, &self.allowed_file, &self.hint_file].into_iter().any(PolledFile::is_quarantined)
    }
}

/// The value before where it is the same.
fn reuse(before: Option<&Arc<CpuSet>>, now: Reading<CpuSet>) -> Option<Arc<CpuSet>> {
    let now = now.value()?;
    match before {
        Some(before) if **before == now => Some(Arc::clone(before)),
        _ => Some(Arc::new(now)),
    }
}

/// A list of CPUs; an empty one is absent.
pub(super) fn list(bytes: &[u8]) -> Reading<CpuSet> {
    some(text::parsed(bytes, CpuSet::from_list))
}

/// A mask of CPUs; an empty one is absent.
fn mask(bytes: &[u8]) -> Reading<CpuSet> {
    match some(text::parsed(bytes, CpuSet::from_mask)) {
        Reading::Unreadable(ReadError::Malformed) if bytes.is_empty() => Reading::Absent,
        reading => reading,
    }
}

fn some(reading: Reading<CpuSet>) -> Reading<CpuSet> {
    match reading {
        Reading::Value(set) if set.is_empty() => Reading::Absent,
        reading => reading,
    }
}

/// Processes are searched once in this many passes: a host has many.
const PROCESS_SCAN_INTERVAL: u32 = 40;

/// Detects irqbalance: by its socket in `/run`, or its process.
#[derive(Debug, Default)]
pub(super) struct IrqbalanceDetector {
    passes: u32,
    process: Option<PathBuf>,
}

impl IrqbalanceDetector {
    /// Whether it runs. An unreadable file counts as absent.
    pub(super) fn is_running(&mut self, cx: &mut ReadContext<'_>) -> bool {
        let scan = self.passes.is_multiple_of(PROCESS_SCAN_INTERVAL);
        self.passes = self.passes.wrapping_add(1);
        self.process = self.process.take().filter(|comm| is_irqbalance(cx, comm));
        if self.process.is_some() {
            return true;
        }
        if scan {
            let names = cx.host.io.list(&cx.host.procfs).unwrap_or_default();
            let processes = names.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
            let mut comms = processes.map(|name| cx.host.procfs.join(name).join("comm"));
            self.process = comms.find(|comm| is_irqbalance(cx, comm));
        }
        self.process.is_some() || has_socket(cx)
    }
}

fn is_irqbalance(cx: &ReadContext<'_>, comm: &Path) -> bool {
    let mut name = [0; 16];
    let length = cx.host.io.open(comm).and_then(|mut file| file.read(&mut name));
    length.is_ok_and(|length| name.get(..length).is_some_and(|name| name.trim_ascii() == b"irqbalance"))
}

fn has_socket(cx: &ReadContext<'_>) -> bool {
    let run = cx.host.beside("run");
    let listed = |path: PathBuf| cx.host.io.list(&path).unwrap_or_default();
    // irqbalance names it `irqbalance<pid>.sock`.
    let socket = |name: &String| name.strip_prefix("irqbalance").is_some_and(|rest| rest.contains(".sock"));
    listed(run.join("irqbalance")).iter().any(socket) || listed(run).iter().any(socket)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), like in "[0-9a-f,-]{0,40}") {
            let _ = (list(&bytes), mask(&bytes), list(like.as_bytes()), mask(like.as_bytes()));
        }

        #[test]
        fn a_mask_and_a_list_of_the_same_are_the_same(mask_of in 1u32..) {
            let cpus: Vec<String> = (0..32).filter(|cpu| mask_of >> cpu & 1 == 1).map(|cpu| cpu.to_string()).collect();
            prop_assert_eq!(mask(format!("{mask_of:08x}").as_bytes()), list(cpus.join(",").as_bytes()));
        }
    }
}

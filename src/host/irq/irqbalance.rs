//! Whether irqbalance runs: by its socket in `/run`, or its process.

use std::path::{Path, PathBuf};

use crate::host::collector::ReadContext;

/// A host has many processes: they are gone through once in so many passes.
const SELDOM: u32 = 40;

/// Looks for irqbalance.
#[derive(Debug, Default)]
pub(super) struct IrqbalanceDetector {
    passes: u32,
    process: Option<PathBuf>,
}

impl IrqbalanceDetector {
    /// Whether it runs. What cannot be read says nothing.
    pub(super) fn runs(&mut self, cx: &mut ReadContext<'_>) -> bool {
        let again = self.passes.is_multiple_of(SELDOM);
        self.passes = self.passes.wrapping_add(1);
        self.process = self.process.take().filter(|comm| is_irqbalance(cx, comm));
        if self.process.is_some() {
            return true;
        }
        if again {
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
    // irqbalance's own name for it: `irqbalance` and its process number.
    let socket = |name: &String| name.strip_prefix("irqbalance").is_some_and(|rest| rest.contains(".sock"));
    listed(run.join("irqbalance")).iter().any(socket) || listed(run).iter().any(socket)
}

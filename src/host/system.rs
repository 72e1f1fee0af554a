//! The host itself: name, kernel, boot (`/proc/sys/kernel`, `/proc/uptime`).

use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, ReadContext, Setup, Spec};
use super::file::PolledFile;
use super::io::Host;
use super::text;
use crate::model::host::System;
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::Fact;

/// The collector of the host itself.
pub const SPEC: Spec = Spec {
    name: "system",
    about: "Host name, kernel release, boot ID, uptime",
    interval: Duration::from_secs(15),
    deadline: Duration::from_secs(2),
    fresh: false,
    make,
};

fn make(setup: &Setup) -> Box<dyn Collector> {
    Box::new(SystemCollector { host: setup.host.clone() })
}

struct SystemCollector {
    host: Host,
}

impl Collector for SystemCollector {
    fn discover(&mut self, _: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        Ok(vec![Discovered { key: Arc::from("system"), device: None }])
    }

    fn open(&mut self, _: &Discovered) -> Box<dyn DeviceReader> {
        let file = |path| PolledFile::new(self.host.procfs.join(path));
        Box::new(SystemReader {
            hostname: file("sys/kernel/hostname"),
            kernel: file("sys/kernel/osrelease"),
            boot_id: file("sys/kernel/random/boot_id"),
            uptime: file("uptime"),
        })
    }
}

struct SystemReader {
    hostname: PolledFile,
    kernel: PolledFile,
    boot_id: PolledFile,
    uptime: PolledFile,
}

impl DeviceReader for SystemReader {
    /// Empty for a recorded host without `/proc`.
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let system = System {
            hostname: self.hostname.read(cx, hostname).value(),
            kernel: self.kernel.read(cx, text::label).value(),
            boot_id: self.boot_id.read(cx, text::label).value(),
            uptime: self.uptime.read(cx, uptime).value(),
        };
        // Rarely read: not worth open descriptors.
        for file in [&mut self.hostname, &mut self.kernel, &mut self.boot_id, &mut self.uptime] {
            file.close();
        }
        if system == System::default() { Vec::new() } else { vec![Arc::new(system)] }
    }

    fn quarantined(&self) -> usize {
        let files = [&self.hostname, &self.kernel, &self.boot_id, &self.uptime];
        files.into_iter().filter(|file| file.is_quarantined()).count()
    }
}

/// `(none)` is the kernel's name for a host without one.
fn hostname(bytes: &[u8]) -> Reading<Arc<str>> {
    if bytes == b"(none)" { Reading::Absent } else { text::label(bytes) }
}

/// `350735.47 234388.90`: seconds since boot with two decimals, then idle time.
pub(super) fn uptime(bytes: &[u8]) -> Reading<Duration> {
    text::parsed(bytes, |text| {
        let (seconds, hundredths) = text.split_ascii_whitespace().next()?.split_once('.')?;
        let hundredths = Some(hundredths).filter(|digits| digits.len() == 2)?;
        let millis = text::parse_decimal(hundredths.as_bytes())? * 10;
        Duration::from_secs(text::parse_decimal(seconds.as_bytes())?).checked_add(Duration::from_millis(millis))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::collector::{Depth, Filter};
    use crate::host::memory::MemoryHost;
    use crate::model::time::BootTime;

    fn read(host: &Arc<MemoryHost>) -> (Option<System>, usize) {
        let host = host.host();
        let mut collector = make(&Setup { host: host.clone(), filter: Filter::default() });
        let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
        let found = collector.discover(&mut cx).unwrap();
        let facts: Vec<Fact> = found.iter().flat_map(|found| collector.open(found).read(&mut cx)).collect();
        (facts.first().and_then(|fact| fact.downcast_ref().cloned()), cx.faults.len())
    }

    #[test]
    fn host_name_kernel_boot_and_uptime_are_read() {
        let host = Arc::new(MemoryHost::new());
        assert_eq!(read(&host), (None, 0));
        host.set("/proc/sys/kernel/hostname", "(none)\n");
        host.set("/proc/sys/kernel/osrelease", "6.12.0-1-amd64\n");
        host.set("/proc/sys/kernel/random/boot_id", "8e5c0b6e-6f0e-4d3f-9c39-6f4f5b1c2d3e\n");
        host.set("/proc/uptime", "350735.47 234388.90\n");
        let system = System {
            hostname: None,
            kernel: Some(Arc::from("6.12.0-1-amd64")),
            boot_id: Some(Arc::from("8e5c0b6e-6f0e-4d3f-9c39-6f4f5b1c2d3e")),
            uptime: Some(Duration::from_millis(350_735_470)),
        };
        assert_eq!(read(&host), (Some(system.clone()), 0));
        host.set("/proc/sys/kernel/hostname", "node17\n");
        host.set("/proc/uptime", "long\n");
        let system = System { hostname: Some(Arc::from("node17")), uptime: None, ..system };
        assert_eq!(read(&host), (Some(system), 1));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..32)) {
            let _ = (hostname(&bytes), uptime(&bytes));
        }

        #[test]
        fn an_uptime_survives_its_text(hundredths in 0u64..100_000_000_000) {
            let text = format!("{}.{:02} 0.00", hundredths / 100, hundredths % 100);
            prop_assert_eq!(uptime(text.as_bytes()), Reading::Value(Duration::from_millis(hundredths * 10)));
        }
    }
}

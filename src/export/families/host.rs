//! The host: how it is set up, and its kernel log.

use crate::export::family::{FIRST_RELEASE, Family, MetricKind};
use crate::export::view::ReportView;
use crate::model::host::{PciIsolation, Posture};
use crate::model::kmsg::KernelLog;

/// How the host is set up.
pub const SETUP: &[Family] = &[
    Family {
        name: "lanewatch_host_posture_info",
        kind: MetricKind::Info,
        help: "Settings of the host that matter for RDMA and pass-through: CPU governors, NUMA balancing, \
               kernel arguments (/proc/cmdline).",
        labels: &["governor", "numa_balancing", "kernel_arguments"],
        worst: "1",
        since: FIRST_RELEASE,
        write: |view, out| {
            let Some(posture) = view.report.snapshot.all::<Posture>().next() else { return };
            let governors: Vec<&str> = posture.governors.keys().map(|governor| &**governor).collect();
            let switch = |on: bool| if on { "on" } else { "off" };
            out.info(&[
                governors.join(",").as_str().into(),
                posture.numa_balancing.map(switch).into(),
                posture.arguments.join(" ").as_str().into(),
            ]);
        },
    },
    Family {
        name: "lanewatch_pcie_isolation_info",
        kind: MetricKind::Info,
        help: "Access Control Services enabled on a function or port \
               (/sys/bus/pci/devices/<address>/config; hidden without CAP_SYS_ADMIN), and ARI: used by a function, \
               forwarded by a port (ari_enabled).",
        labels: &["pci_address", "acs", "ari"],
        worst: "1 per watched function and each port above; absent for VFs beside their PF",
        since: FIRST_RELEASE,
        write: |view, out| {
            // Read less often than functions are: of one that is gone nothing is said.
            let snapshot = &view.report.snapshot;
            let there = |isolation: &&PciIsolation| snapshot.function(isolation.address).is_some();
            let mut functions: Vec<&PciIsolation> = snapshot.all().filter(there).collect();
            functions.sort_by_key(|function| function.address);
            functions.dedup_by_key(|function| function.address);
            for function in functions {
                let acs = function.acs.map(|acs| acs.to_string());
                let ari = function.ari.map(|on| if on { "on" } else { "off" });
                out.info(&[function.address.into(), acs.as_deref().into(), ari.into()]);
            }
        },
    },
];

/// Kernel messages about watched hardware.
pub const KERNEL_LOG: &[Family] = &[
    Family {
        name: "lanewatch_kernel_messages_total",
        kind: MetricKind::Counter,
        help: "Kernel messages about watched hardware since the agent started, by driver and kind (/dev/kmsg); absent if there are none.",
        labels: &["driver", "kind"],
        worst: "25 per host and 5 to 20 per card driver; none on a healthy host",
        since: FIRST_RELEASE,
        write: |view, out| {
            let counts = log(view).into_iter().flat_map(|log| &log.counts);
            for ((driver, kind), count) in counts.filter(|(_, count)| *count > 0) {
                out.counter(&[driver.as_str().into(), kind.as_str().into()], *count);
            }
        },
    },
    Family {
        name: "lanewatch_kernel_messages_lost_total",
        kind: MetricKind::Counter,
        help: "Kernel log records that were dropped before the agent could read them (/dev/kmsg).",
        labels: &[],
        worst: "1",
        since: FIRST_RELEASE,
        write: |view, out| {
            if let Some(log) = log(view) {
                out.counter(&[], log.lost);
            }
        },
    },
];

fn log<'a>(view: &ReportView<'a>) -> Option<&'a KernelLog> {
    view.report.snapshot.all::<KernelLog>().next()
}

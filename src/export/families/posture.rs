//! How the host is set up.

use super::FIRST;
use crate::export::catalogue::{Family, Kind};
use crate::model::posture::{PciIsolation, Posture};

/// The rows.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_host_posture_info",
        kind: Kind::Info,
        help: "How the host is set up for RDMA and pass-through: CPU governors, NUMA balancing, kernel arguments that matter \
           (/proc/cmdline).",
        labels: &["governor", "numa_balancing", "kernel_arguments"],
        worst: "1",
        since: FIRST,
        write: |content, out| {
            let Some(posture) = content.report.snapshot.all::<Posture>().next() else { return };
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
        kind: Kind::Info,
        help: "Which Access Control Services of a function or port are on, hidden without CAP_SYS_ADMIN \
               (/sys/bus/pci/devices/<address>/config), and whether ARI is (ari_enabled).",
        labels: &["pci_address", "acs", "ari"],
        worst: "1 a watched function and each port above; none for VFs beside their PF",
        since: FIRST,
        write: |content, out| {
            // Read less often than functions are: of one that is gone nothing is said.
            let snapshot = &content.report.snapshot;
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

//! PFs, their VFs, who holds them, and the state of the map.

use crate::assess::vf::holders::HolderSources;
use crate::export::family::{FIRST_RELEASE, Family, Label, MetricKind, Series};
use crate::export::view::ReportView;
use crate::model::datapath::DataPath;
use crate::model::holder::{Holder, Pod, VmManager};
use crate::model::host::Machine;
use crate::model::sriov::QidMap;
use crate::model::sriov::{Pf, Vf, VfKey, VfLink, VfTraffic};
use crate::model::time::unix_seconds;
use crate::model::vfmap::{MappedPf, Signal};

/// The families, in the order of the exposition.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_sriov_vfs",
        kind: MetricKind::Gauge,
        help: "VFs of a PF by source: configured (/sys/bus/pci/devices/<pf>/sriov_numvfs), present (virtfn* \
               links), reported (listed by RTM_GETLINK).",
        labels: &["pf", "kind"],
        worst: "3 per PF",
        since: FIRST_RELEASE,
        write: |view, out| {
            for pf in &view.pfs {
                let present = u32::try_from(pf.present()).ok();
                for (kind, count) in [("configured", pf.configured), ("present", present), ("reported", pf.reported)] {
                    out.known(&[pf.address.into(), kind.into()], count);
                }
            }
        },
    },
    Family {
        name: "lanewatch_sriov_vfs_limit",
        kind: MetricKind::Gauge,
        help: "Maximum number of VFs of a PF (/sys/bus/pci/devices/<pf>/sriov_totalvfs).",
        labels: PF,
        worst: "1 per PF",
        since: FIRST_RELEASE,
        write: |view, out| {
            for pf in &view.pfs {
                out.known(&[pf.address.into()], pf.limit);
            }
        },
    },
    Family {
        name: "lanewatch_vf_info",
        kind: MetricKind::Info,
        help: "A VF's function, driver and IOMMU group (/sys/bus/pci/devices/<pf>/virtfn<vf>).",
        labels: &["pf", "vf", "pci_address", "driver", "iommu_group"],
        worst: ONE,
        since: FIRST_RELEASE,
        write: |view, out| {
            each(view, |pf, vf| {
                let (driver, group) = (vf.driver.as_ref().into(), vf.iommu_group.into());
                out.info(&[pf.address.into(), vf.number.into(), vf.address.into(), driver, group]);
            });
        },
    },
    Family {
        name: "lanewatch_vf_config_info",
        kind: MetricKind::Info,
        help: "Configuration of a VF on its PF (RTM_GETLINK, or /sys/bus/pci/devices/<pf>/sriov/<vf>); absent \
               if the driver does not report it.",
        labels: &["pf", "vf", "mac", "vlan", "node_guid", "port_guid", "link_state", "trust", "spoof_check"],
        worst: ONE,
        since: FIRST_RELEASE,
        write: config,
    },
    Family {
        name: "lanewatch_vf_holder_info",
        kind: MetricKind::Info,
        help: "User of a VF (/proc/<pid>/fd, libvirt's files, network namespaces).",
        labels: &["pf", "vf", "holder_kind", "holder"],
        worst: ONE,
        since: FIRST_RELEASE,
        write: holders,
    },
    Family {
        name: "lanewatch_vf_pod_info",
        kind: MetricKind::Info,
        help: "Pod of a VF, from a process that uses it (source process; /proc/<pid>/cgroup, names in \
               /var/log/pods), else from the kubelet's PodResources API, if configured (source kubelet); absent if \
               no pod has it, or its name is unknown.",
        labels: &["pf", "vf", "pci_address", "namespace", "pod", "container", "uid", "resource", "source"],
        worst: "1 per VF, or one of lanewatch_vf_vm_info",
        since: FIRST_RELEASE,
        write: pods,
    },
    Family {
        name: "lanewatch_vf_vm_info",
        kind: MetricKind::Info,
        help: "VM that uses a VF, by its manager's name for it (metadata in libvirt's files, /etc/pve/qemu-server); absent \
               if no VM does, or nothing describes it.",
        labels: &["pf", "vf", "pci_address", "domain", "manager", "name", "uuid", "project"],
        worst: "1 per VF, or one of lanewatch_vf_pod_info",
        since: FIRST_RELEASE,
        write: machines,
    },
    traffic("lanewatch_vf_received_bytes_total", "Bytes a VF received (IFLA_VF_STATS).", |view, out| {
        count(view, out, |traffic| traffic.received_bytes);
    }),
    traffic("lanewatch_vf_transmitted_bytes_total", "Bytes a VF transmitted (IFLA_VF_STATS).", |view, out| {
        count(view, out, |traffic| traffic.transmitted_bytes);
    }),
    traffic("lanewatch_vf_received_packets_total", "Packets a VF received (IFLA_VF_STATS).", |view, out| {
        count(view, out, |traffic| traffic.received_packets);
    }),
    traffic("lanewatch_vf_transmitted_packets_total", "Packets a VF transmitted (IFLA_VF_STATS).", |view, out| {
        count(view, out, |traffic| traffic.transmitted_packets);
    }),
    traffic(
        "lanewatch_vf_received_dropped_total",
        "Packets to a VF that were dropped (IFLA_VF_STATS).",
        |view, out| {
            count(view, out, |traffic| traffic.received_dropped);
        },
    ),
    traffic(
        "lanewatch_vf_transmitted_dropped_total",
        "Packets from a VF that were dropped (IFLA_VF_STATS).",
        |view, out| count(view, out, |traffic| traffic.transmitted_dropped),
    ),
    Family {
        name: "lanewatch_vf_map_generation",
        kind: MetricKind::Gauge,
        help: "Changes of the map of a PF's VFs: functions, drivers, identities, holders.",
        labels: PF,
        worst: "1 per PF",
        since: FIRST_RELEASE,
        write: |view, out| {
            for (pf, row) in rows(view) {
                out.gauge(&[pf.address.into()], row.generation);
            }
        },
    },
    Family {
        name: "lanewatch_vf_map_last_change_timestamp_seconds",
        kind: MetricKind::Gauge,
        help: "Last change of the map of a PF's VFs, in seconds since 1970.",
        labels: PF,
        worst: "1 per PF",
        since: FIRST_RELEASE,
        write: |view, out| {
            for (pf, row) in rows(view) {
                out.known(&[pf.address.into()], row.changed.map(unix_seconds));
            }
        },
    },
    Family {
        name: "lanewatch_vf_verified_timestamp_seconds",
        kind: MetricKind::Gauge,
        help: "Time at which the last disturbed VF of a PF was verified, in seconds since 1970; absent while \
               one is unverified.",
        labels: PF,
        worst: "1 per PF",
        since: FIRST_RELEASE,
        write: |view, out| {
            for pf in &view.pfs {
                out.known(&[pf.address.into()], view.report.vf_map.verified(pf.address).map(unix_seconds));
            }
        },
    },
    Family {
        name: "lanewatch_qid_map_entries",
        kind: MetricKind::Gauge,
        help: "Entries in the queue pair map of a PF's VFs by state; only if [collector.qid-map] names such a \
               map.",
        labels: &["pf", "state"],
        worst: "17 per PF",
        since: FIRST_RELEASE,
        write: |view, out| {
            for map in view.report.snapshot.all::<QidMap>() {
                for (state, count) in map.states() {
                    out.gauge(&[map.pf.into(), (&*state).into()], count);
                }
            }
        },
    },
    Family {
        name: "lanewatch_qid_map_claimed_twice",
        kind: MetricKind::Gauge,
        help: "Global queue pair numbers that more than one entry of a PF's queue pair map claims.",
        labels: PF,
        worst: "1 per PF",
        since: FIRST_RELEASE,
        write: |view, out| {
            for map in view.report.snapshot.all::<QidMap>() {
                out.known(&[map.pf.into()], u32::try_from(map.twice.len()).ok());
            }
        },
    },
    Family {
        name: "lanewatch_data_path_info",
        kind: MetricKind::Info,
        help: "Path that a guest's interface uses: its VF, or the hypervisor's (synthetic); for interfaces of hv_netvsc and \
               net_failover (/sys/class/net/<netdev>/lower_*).",
        labels: &["netdev", "driver", "path", "vf_netdev"],
        worst: "1 per interface of these drivers, none on hosts",
        since: FIRST_RELEASE,
        write: |view, out| {
            for path in view.report.snapshot.all::<DataPath>() {
                let (driver, in_use) = (path.failover.as_str(), path.in_use.as_str());
                out.info(&[(&*path.netdev).into(), driver.into(), in_use.into(), path.vf.as_ref().into()]);
            }
        },
    },
    Family {
        name: "lanewatch_migrations_total",
        kind: MetricKind::Counter,
        help: "Signs that a guest or a function was moved, by signal; on a host without VFs absent if there are none.",
        labels: SIGNAL,
        worst: "14",
        since: FIRST_RELEASE,
        write: |view, out| {
            // From zero where something can move: a guest, or a host with VFs.
            let snapshot = &view.report.snapshot;
            let is_guest = snapshot.all::<Machine>().any(|machine| machine.hypervisor == Some(true));
            let can_move = is_guest || snapshot.all::<Pf>().any(|pf| !pf.vfs.is_empty());
            for signal in Signal::ALL {
                let count = view.report.vf_map.signal(*signal).count;
                if can_move || count > 0 {
                    out.counter(&[signal.as_str().into()], count);
                }
            }
        },
    },
    Family {
        name: "lanewatch_migration_last_timestamp_seconds",
        kind: MetricKind::Gauge,
        help: "Time of the last sign of a migration, in seconds since 1970.",
        labels: SIGNAL,
        worst: "14",
        since: FIRST_RELEASE,
        write: |view, out| {
            for (signal, seen) in Signal::ALL.iter().map(|signal| (signal, view.report.vf_map.signal(*signal))) {
                out.known(&[signal.as_str().into()], seen.last.map(unix_seconds));
            }
        },
    },
];

const PF: &[&str] = &["pf"];
const SIGNAL: &[&str] = &["signal"];
const ONE: &str = "1 per VF";

/// A counter of every VF.
const fn traffic(name: &'static str, help: &'static str, write: fn(&ReportView<'_>, &mut Series<'_, '_>)) -> Family {
    Family { name, kind: MetricKind::Counter, help, labels: &["pf", "vf"], worst: ONE, since: FIRST_RELEASE, write }
}

fn each(view: &ReportView<'_>, mut write: impl FnMut(&Pf, &Vf)) {
    for pf in &view.pfs {
        for vf in &pf.vfs {
            write(pf, vf);
        }
    }
}

/// PFs with their row in the map.
fn rows<'a>(view: &'a ReportView<'_>) -> impl Iterator<Item = (&'a Pf, &'a MappedPf)> {
    view.pfs.iter().filter_map(|pf| Some((*pf, view.report.vf_map.pfs.get(&pf.address)?)))
}

fn config(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    let switch = |on: Option<bool>| -> Label<'static> { on.map(|on| if on { "on" } else { "off" }).into() };
    each(view, |pf, vf| {
        let Some(config) = vf.config else { return };
        out.info(&[
            pf.address.into(),
            vf.number.into(),
            config.mac.into(),
            config.vlan.map(|vlan| u32::from(vlan.id)).into(),
            config.node_guid.into(),
            config.port_guid.into(),
            config.link.map(VfLink::as_str).into(),
            switch(config.trust),
            switch(config.spoof_check),
        ]);
    });
}

fn holders(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    each(view, |pf, vf| {
        let key = VfKey { pf: pf.address, vf: vf.number };
        if let Some(row) = view.report.vf_map.vfs.get(&key) {
            let (kind, name) = (row.holder.kind(), row.holder.name());
            out.info(&[pf.address.into(), vf.number.into(), kind.into(), name.into()]);
        }
    });
}

/// Calls for each VF in the map with its holder.
fn held(view: &ReportView<'_>, mut write: impl FnMut(&Pf, &Vf, &Holder)) {
    each(view, |pf, vf| {
        let key = VfKey { pf: pf.address, vf: vf.number };
        if let Some(row) = view.report.vf_map.vfs.get(&key) {
            write(pf, vf, &row.holder);
        }
    });
}

fn pods(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    let sources = HolderSources::new(&view.report.snapshot);
    held(view, |pf, vf, holder| {
        let given = sources.allocation(vf.address, holder);
        let (namespace, pod, container, uid, source) = match (holder, given) {
            (Holder::Pod(Pod { uid, name: Some(name) }), _) => {
                let container = name.container.as_ref().or_else(|| {
                    let same = given.filter(|given| given.namespace == name.namespace && given.pod == name.pod);
                    same.map(|given| &given.container)
                });
                (&name.namespace, &name.pod, container, Some(uid), "process")
            }
            // What a process uses outranks what the kubelet meant it for.
            (Holder::None | Holder::Unknown(_) | Holder::Host(_) | Holder::Netns(_), Some(given)) => {
                (&given.namespace, &given.pod, Some(&given.container), sources.uid(given), "kubelet")
            }
            _ => return,
        };
        out.info(&[
            pf.address.into(),
            vf.number.into(),
            vf.address.into(),
            (&**namespace).into(),
            (&**pod).into(),
            container.into(),
            uid.into(),
            given.map(|given| &given.resource).into(),
            source.into(),
        ]);
    });
}

fn machines(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    let sources = HolderSources::new(&view.report.snapshot);
    held(view, |pf, vf, holder| {
        let Holder::Vm(vm) = holder else { return };
        let Some(identity) = sources.identity(&vm.domain, vf.address) else { return };
        out.info(&[
            pf.address.into(),
            vf.number.into(),
            vf.address.into(),
            (&*vm.domain).into(),
            identity.manager.map(VmManager::as_str).into(),
            identity.title.as_deref().into(),
            identity.uuid.as_deref().into(),
            identity.project.as_deref().into(),
        ]);
    });
}

fn count(view: &ReportView<'_>, out: &mut Series<'_, '_>, of: impl Fn(&VfTraffic) -> Option<u64>) {
    each(view, |pf, vf| {
        if let Some(value) = vf.traffic.as_ref().and_then(&of) {
            out.counter(&[pf.address.into(), vf.number.into()], value);
        }
    });
}

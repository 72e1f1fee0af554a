//! How ports are addressed.

use super::FIRST;
use crate::export::catalogue::{Family, Kind};
use crate::model::netsetup::PortAddressing;
use crate::model::snapshot::Snapshot;

/// The rows.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_port_gids",
        kind: Kind::Gauge,
        help: "GIDs of a port by type, in the kernel's words \
               (/sys/class/infiniband/<device>/ports/<port>/gid_attrs/types).",
        labels: &["device", "port", "gid_type"],
        worst: "2 a port; none for VFs beside their PF",
        since: FIRST,
        write: |content, out| {
            for addressing in all(&content.report.snapshot) {
                for (kind, count) in &addressing.gids {
                    let port = &addressing.port;
                    out.gauge(&[port.device.as_str().into(), port.port.into(), kind.into()], *count);
                }
            }
        },
    },
    Family {
        name: "lanewatch_port_roce_info",
        kind: Kind::Info,
        help: "How RoCE connections of a port go by default, where somebody set it \
               (/sys/kernel/config/rdma_cm/<device>/ports/<port>, /sys/class/infiniband/<device>/tc/<port>).",
        labels: &["device", "port", "default_mode", "default_tos", "traffic_class"],
        worst: "1 a port; none for VFs beside their PF",
        since: FIRST,
        write: |content, out| {
            for addressing in all(&content.report.snapshot) {
                let PortAddressing { port, default_mode, default_tos, traffic_class, .. } = addressing;
                let number = |value: &Option<u64>| value.map(|value| value.to_string());
                let (tos, class) = (number(default_tos), number(traffic_class));
                if default_mode.is_some() || tos.is_some() || class.is_some() {
                    out.info(&[
                        port.device.as_str().into(),
                        port.port.into(),
                        default_mode.as_ref().into(),
                        tos.as_deref().into(),
                        class.as_deref().into(),
                    ]);
                }
            }
        },
    },
];

/// Tables are read seldom: of a device that is gone since then nothing is told.
fn all(snapshot: &Snapshot) -> Vec<&PortAddressing> {
    let listed = snapshot.collector("rdma").and_then(|rdma| rdma.listed.as_ref());
    let is_gone = |name: &str| listed.is_some_and(|listed| !listed.iter().any(|there| **there == *name));
    let mut all: Vec<&PortAddressing> =
        snapshot.all().filter(|one: &&PortAddressing| !is_gone(one.port.device.as_str())).collect();
    all.sort_by(|a, b| a.port.cmp(&b.port));
    all.dedup_by(|a, b| a.port == b.port);
    all
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;
    use crate::model::ids::{DeviceName, PortKey};
    use crate::model::snapshot::{CollectorState, Fact};
    use crate::model::time::{BootTime, Timestamp};

    #[test]
    fn a_device_that_is_gone_has_no_gids() {
        let addressing = |name| PortAddressing {
            port: PortKey { device: DeviceName::new(name), port: 1 },
            gids: vec![(Arc::from("RoCE v2"), 1)],
            roce_v2: Vec::new(),
            default_mode: None,
            default_tos: None,
            traffic_class: None,
        };
        let told = |listed: Option<&[&str]>| -> Vec<String> {
            let listed = listed.map(|names| names.iter().map(|name| Arc::from(*name)).collect());
            let rdma = CollectorState { name: "rdma", listed, ..CollectorState::default() };
            let facts = ["mlx5_0", "mlx5_1"].map(|name| Arc::new(addressing(name)) as Fact);
            let snapshot =
                Snapshot::new(Timestamp { tick: BootTime(0), wall: SystemTime::UNIX_EPOCH }, facts, vec![rdma]);
            all(&snapshot).iter().map(|one| one.port.device.to_string()).collect()
        };
        assert_eq!(told(Some(&["mlx5_0"])), ["mlx5_0"]);
        assert_eq!(told(None), ["mlx5_0", "mlx5_1"], "without a listing nobody is known to be gone");
    }
}

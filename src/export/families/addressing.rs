//! How ports are addressed.

use super::FIRST;
use crate::export::catalogue::{Family, Kind};
use crate::export::content::Content;
use crate::model::netsetup::PortAddressing;

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
            for addressing in all(content) {
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
            for addressing in all(content) {
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

fn all<'a>(content: &Content<'a>) -> Vec<&'a PortAddressing> {
    let mut all: Vec<&PortAddressing> = content.report.snapshot.all().collect();
    all.sort_by(|a, b| a.port.cmp(&b.port));
    all.dedup_by(|a, b| a.port == b.port);
    all
}

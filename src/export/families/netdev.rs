//! Ethernet ports that carry RDMA.

use super::FIRST;
use crate::export::catalogue::{Family, Kind};
use crate::export::content::Content;
use crate::export::series::Label;
use crate::model::ethtool::{Meaning, NetdevStatistics, Statistic};

/// The rows.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_netdev_events_total",
        kind: Kind::Counter,
        help: "Discards, line and PCIe errors of an Ethernet port by the driver's own names, those that are known \
               (ethtool statistics).",
        labels: &["netdev", "counter", "class"],
        worst: "about 60 an interface",
        since: FIRST,
        write: |content, out| {
            each(content, |netdev, name, meaning, value| {
                if let Meaning::Event(class) = meaning {
                    out.counter(&[netdev, name, class.as_str().into()], value);
                }
            });
        },
    },
    Family {
        name: "lanewatch_netdev_pfc_frames_total",
        kind: Kind::Counter,
        help: "Pause frames of a priority that the port received or sent (ethtool statistics).",
        labels: &["netdev", "priority", "direction"],
        worst: "16 an interface; only priorities with PFC on mlx5",
        since: FIRST,
        write: |content, out| {
            each(content, |netdev, _, meaning, value| {
                if let Meaning::PfcFrames { priority, direction } = meaning {
                    out.counter(&[netdev, u32::from(priority).into(), direction.as_str().into()], value);
                }
            });
        },
    },
    Family {
        name: "lanewatch_netdev_pause_seconds_total",
        kind: Kind::Counter,
        help: "Time for which a priority stood still because the network asked for it or was asked; priority global is the \
               whole link (ethtool statistics).",
        labels: &["netdev", "priority", "direction"],
        worst: "18 an interface",
        since: FIRST,
        write: |content, out| {
            each(content, |netdev, _, meaning, value| {
                if let Meaning::PauseMicroseconds { priority, direction } = meaning {
                    let priority = priority.map_or(Label::Text("global"), |priority| u32::from(priority).into());
                    #[expect(clippy::cast_precision_loss, reason = "microseconds of a pause are far below 2^53")]
                    out.seconds(&[netdev, priority, direction.as_str().into()], value as f64 / 1e6);
                }
            });
        },
    },
    Family {
        name: "lanewatch_netdev_stalled_ratio",
        kind: Kind::Gauge,
        help: "Share of the last second for which the card waited for PCIe credits (ethtool statistics outbound_pci_stalled_*).",
        labels: &["netdev", "counter"],
        worst: "2 an interface with mlx5",
        since: FIRST,
        write: |content, out| {
            each(content, |netdev, name, meaning, value| {
                if let Ok(percent) = u32::try_from(value)
                    && meaning == Meaning::Percent
                {
                    out.gauge(&[netdev, name], f64::from(percent) / 100.0);
                }
            });
        },
    },
];

fn each<'a>(content: &Content<'a>, mut write: impl FnMut(Label<'a>, Label<'a>, Meaning, u64)) {
    let mut all: Vec<&NetdevStatistics> = content.report.snapshot.all().collect();
    all.sort_by(|a, b| a.netdev.cmp(&b.netdev));
    all.dedup_by(|a, b| a.netdev == b.netdev);
    for statistics in all {
        for (index, (statistic, value)) in statistics.iter().enumerate() {
            // Should a driver have a name, or two names for one thing, twice, the first stands.
            let same = |other: &Statistic| match statistic.meaning {
                Meaning::Event(_) | Meaning::Percent => other.name == statistic.name,
                meaning => other.meaning == meaning,
            };
            if !statistics.layout.iter().take(index).any(same) {
                write((&statistics.netdev).into(), (&statistic.name).into(), statistic.meaning, value);
            }
        }
    }
}

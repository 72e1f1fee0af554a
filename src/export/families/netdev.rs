//! Ethernet ports that carry RDMA.

use crate::export::family::{FIRST_RELEASE, Family, Label, MetricKind, Series};
use crate::export::view::ReportView;
use crate::model::line::{FecMode, LineErrors};
use crate::model::link::NetdevLink;
use crate::model::net::{Netdev, NetdevLine, NetdevStatistic, NetdevStatistics, PauseDirection, StatisticKind};
use crate::model::net::{NetdevSetup, PriorityTrust};

/// The families, in the order of the exposition.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_netdev_info",
        kind: MetricKind::Info,
        help: "Settings of the network interface of an RDMA device: PFC and trust (RTM_GETDCB), FEC and pause \
               frames (ethtool netlink), IPoIB mode (/sys/class/net/<netdev>/mode).",
        labels: &["netdev", "device", "pci_address", "pfc_priorities", "trust", "dcbx", "fec", "pause", "ipoib_mode"],
        worst: "1 per interface; absent for VFs beside their PF",
        since: FIRST_RELEASE,
        write: info,
    },
    Family {
        name: "lanewatch_netdev_events_total",
        kind: MetricKind::Counter,
        help: "Discards, line errors and PCIe errors of an Ethernet port by the driver's names, plus the \
               standard counters that the driver does not have (ethtool statistics).",
        labels: &["netdev", "counter", "class"],
        worst: "about 80 per interface",
        since: FIRST_RELEASE,
        write: |view, out| {
            each(view, |netdev, name, meaning, value| {
                if let StatisticKind::Event(class) = meaning {
                    out.counter(&[netdev, name, class.as_str().into()], value);
                }
            });
        },
    },
    Family {
        name: "lanewatch_netdev_carrier_downs_total",
        kind: MetricKind::Counter,
        help: "How often an interface lost its carrier, administrative changes included \
               (/sys/class/net/<netdev>/carrier_down_count).",
        labels: &["netdev"],
        worst: "1 per interface",
        since: FIRST_RELEASE,
        write: |view, out| {
            let mut all: Vec<&Netdev> = view.report.snapshot.all().collect();
            all.sort_by(|a, b| a.name.cmp(&b.name));
            all.dedup_by(|a, b| a.name == b.name);
            for netdev in all {
                if let Some(downs) = netdev.carrier_downs {
                    out.counter(&[(&netdev.name).into()], downs);
                }
            }
        },
    },
    Family {
        name: "lanewatch_netdev_link_cause_info",
        kind: MetricKind::Info,
        help: "Reason why an interface has no link, as the kernel reports it; absent while it has a link, and if its driver reports no reason (ethtool netlink, LINKSTATE_GET).",
        labels: &["netdev", "state", "substate"],
        worst: "1 per interface that is down",
        since: FIRST_RELEASE,
        write: |view, out| {
            let mut all: Vec<&NetdevLink> = view.report.snapshot.all().collect();
            all.sort_by(|a, b| a.netdev.cmp(&b.netdev));
            all.dedup_by(|a, b| a.netdev == b.netdev);
            for link in all {
                let Some(cause) = link.cause else { continue };
                let (state, substate) = (cause.state_label(), cause.substate_label());
                out.info(&[(&link.netdev).into(), state.as_str().into(), substate.as_str().into()]);
            }
        },
    },
    Family {
        name: "lanewatch_netdev_fec_codewords_total",
        kind: MetricKind::Counter,
        help: "Received codewords by the number of wrong symbols that FEC corrected (ethtool netlink, FEC_GET \
               histogram).",
        labels: &["netdev", "errors_low", "errors_high"],
        worst: "16 per interface, with kernels and drivers that have it",
        since: FIRST_RELEASE,
        write: |view, out| {
            for errors in line_errors(view) {
                for bin in &errors.bins {
                    out.counter(&[(&errors.netdev).into(), bin.low.into(), bin.high.into()], bin.codewords);
                }
            }
        },
    },
    Family {
        name: "lanewatch_netdev_lane_corrected_bits_total",
        kind: MetricKind::Counter,
        help: "Bits of a lane that FEC corrected; absent if lanes are among the driver's own statistics \
               (ethtool netlink, FEC_GET).",
        labels: &["netdev", "lane"],
        worst: "8 per interface, with drivers that count lanes",
        since: FIRST_RELEASE,
        write: |view, out| {
            for errors in line_errors(view).into_iter().filter(|errors| !errors.lanes_are_statistics) {
                for (lane, bits) in (0u32..).zip(&errors.lanes) {
                    out.counter(&[(&errors.netdev).into(), lane.into()], *bits);
                }
            }
        },
    },
    Family {
        name: "lanewatch_netdev_raw_bit_error_ratio",
        kind: MetricKind::Gauge,
        help: "Share of received bits that were wrong before FEC corrected them, in the last minute with a link \
               (ethtool statistics and FEC_GET).",
        labels: &["netdev"],
        worst: "1 per interface",
        since: FIRST_RELEASE,
        write: |view, out| {
            for (netdev, line) in &view.report.lines {
                out.known(&[netdev.into()], line.raw);
            }
        },
    },
    Family {
        name: "lanewatch_netdev_worst_lane_raw_bit_error_ratio",
        kind: MetricKind::Gauge,
        help: "The same of the lane with the most errors, if the driver counts lanes.",
        labels: &["netdev"],
        worst: "1 per interface",
        since: FIRST_RELEASE,
        write: |view, out| {
            for (netdev, line) in &view.report.lines {
                out.known(&[netdev.into()], line.worst_lane.map(|worst| worst.raw));
            }
        },
    },
    Family {
        name: "lanewatch_netdev_lost_codeword_ratio",
        kind: MetricKind::Gauge,
        help: "Share of received codewords that FEC could not correct, in the last 12 minutes with a link (ethtool \
               statistics and FEC_GET).",
        labels: &["netdev"],
        worst: "1 per interface",
        since: FIRST_RELEASE,
        write: |view, out| {
            for (netdev, line) in &view.report.lines {
                out.known(&[netdev.into()], line.lost);
            }
        },
    },
    Family {
        name: "lanewatch_netdev_pfc_frames_total",
        kind: MetricKind::Counter,
        help: "PFC pause frames received or sent by priority (ethtool statistics, else RTM_GETDCB).",
        labels: &["netdev", "priority", "direction"],
        worst: "16 per interface; only priorities with PFC on mlx5",
        since: FIRST_RELEASE,
        write: |view, out| {
            each(view, |netdev, _, meaning, value| {
                if let StatisticKind::PfcFrames { priority, direction } = meaning {
                    out.counter(&[netdev, u32::from(priority).into(), direction.as_str().into()], value);
                }
            });
            dcb_frames(view, out);
        },
    },
    Family {
        name: "lanewatch_netdev_pause_seconds_total",
        kind: MetricKind::Counter,
        help: "Time for which a priority was paused by received or sent pause frames; priority global is the \
               whole link (ethtool statistics).",
        labels: &["netdev", "priority", "direction"],
        worst: "18 per interface",
        since: FIRST_RELEASE,
        write: |view, out| {
            each(view, |netdev, _, meaning, value| {
                if let StatisticKind::PauseMicroseconds { priority, direction } = meaning {
                    let priority = priority.map_or(Label::Text("global"), |priority| u32::from(priority).into());
                    #[expect(clippy::cast_precision_loss, reason = "microseconds of a pause are far below 2^53")]
                    out.seconds(&[netdev, priority, direction.as_str().into()], value as f64 / 1e6);
                }
            });
        },
    },
    Family {
        name: "lanewatch_netdev_stalled_ratio",
        kind: MetricKind::Gauge,
        help: "Share of the last second in which the card was stalled waiting for PCIe credits (ethtool \
               statistics outbound_pci_stalled_*).",
        labels: &["netdev", "counter"],
        worst: "2 per interface with mlx5",
        since: FIRST_RELEASE,
        write: |view, out| {
            each(view, |netdev, name, meaning, value| {
                if let Ok(percent) = u32::try_from(value)
                    && meaning == StatisticKind::Percent
                {
                    out.gauge(&[netdev, name], f64::from(percent) / 100.0);
                }
            });
        },
    },
];

/// Errors of lines by interface.
fn line_errors<'a>(view: &ReportView<'a>) -> Vec<&'a LineErrors> {
    let mut all: Vec<&LineErrors> = view.report.snapshot.all().collect();
    all.sort_by(|a, b| a.netdev.cmp(&b.netdev));
    all.dedup_by(|a, b| a.netdev == b.netdev);
    all
}

/// Settings by interface, the first where there are two of one name.
fn setups<'a>(view: &ReportView<'a>) -> Vec<&'a NetdevSetup> {
    let mut all: Vec<&NetdevSetup> = view.report.snapshot.all().collect();
    all.sort_by(|a, b| a.netdev.cmp(&b.netdev));
    all.dedup_by(|a, b| a.netdev == b.netdev);
    all
}

fn info(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for setup in setups(view) {
        let line = view.report.snapshot.all::<NetdevLine>().find(|line| line.netdev == setup.netdev);
        let pause = line.and_then(|line| line.pause).map(|(received, sent)| match (received, sent) {
            (true, true) => "both",
            (true, false) => "received",
            (false, true) => "transmitted",
            (false, false) => "off",
        });
        let priorities = setup.dcb.pfc.map(|pfc| pfc.enabled.to_string());
        out.info(&[
            (&setup.netdev).into(),
            setup.device.as_str().into(),
            setup.pci_address.into(),
            priorities.as_deref().into(),
            setup.dcb.trust.map(PriorityTrust::as_str).into(),
            setup.dcb.dcbx.into(),
            line.and_then(|line| line.fec).map(FecMode::as_str).into(),
            pause.into(),
            setup.ipoib.as_ref().map(|ipoib| &ipoib.mode).into(),
        ]);
    }
}

/// Frames of priorities with PFC, and those that were counted, where ethtool's statistics do not have them.
fn dcb_frames(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for setup in setups(view) {
        let statistics = view.report.snapshot.all::<NetdevStatistics>().find(|known| known.netdev == setup.netdev);
        let counted = statistics.is_some_and(|statistics| {
            statistics.layout.iter().any(|known| matches!(known.meaning, StatisticKind::PfcFrames { .. }))
        });
        let Some((pfc, (sent, received))) = setup.dcb.pfc.and_then(|pfc| Some((pfc, pfc.frames?))) else { continue };
        if counted {
            continue;
        }
        for (priority, (sent, received)) in (0u8..).zip(sent.into_iter().zip(received)) {
            for (direction, frames) in [(PauseDirection::Received, received), (PauseDirection::Transmitted, sent)] {
                if pfc.enabled.has(priority) || frames > 0 {
                    out.counter(
                        &[(&setup.netdev).into(), u32::from(priority).into(), direction.as_str().into()],
                        frames,
                    );
                }
            }
        }
    }
}

fn each<'a>(view: &ReportView<'a>, mut write: impl FnMut(Label<'a>, Label<'a>, StatisticKind, u64)) {
    let mut all: Vec<&NetdevStatistics> = view.report.snapshot.all().collect();
    all.sort_by(|a, b| a.netdev.cmp(&b.netdev));
    all.dedup_by(|a, b| a.netdev == b.netdev);
    for statistics in all {
        for (index, (statistic, value)) in statistics.iter().enumerate() {
            // Should a driver have a name, or two names for one thing, twice, the first stands.
            let same = |other: &NetdevStatistic| match statistic.meaning {
                StatisticKind::Event(_) | StatisticKind::Percent => other.name == statistic.name,
                meaning => other.meaning == meaning,
            };
            if !statistics.layout.iter().take(index).any(same) {
                write((&statistics.netdev).into(), (&statistic.name).into(), statistic.meaning, value);
            }
        }
    }
}

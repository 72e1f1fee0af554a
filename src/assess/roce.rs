//! RoCE needs an Ethernet that loses nothing: where it does, or stands still to avoid it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::View;
use super::limits::{ROCE_CLEAR, ROCE_HEAVY_HOLD, ROCE_HOLD, ROCE_LOST};
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::history::CounterWindow;
use crate::model::ids::PortKey;
use crate::model::net::{CONTROLLED, DISCARDED, IGNORED, LOST};
use crate::model::net::{Dcb, NetdevSetup, PFC_FRAMES, PriorityTrust};
use crate::model::net::{NetdevStatistics, PauseDirection, StatisticKind};
use crate::model::rdma::{LinkLayer, Port, RdmaDevice};
use crate::model::reason::FindingReason;
use crate::model::time::BootTime;
use crate::model::units::total;

/// The time that is judged.
const SPAN: Duration = Duration::from_secs(300);

/// Signs of one kind a minute that are loss, whatever marks and pauses say. Adaptive routing reorders fewer.
const MOST_LOST_A_MINUTE: f64 = 1_000.0;

/// Share of the time for which a priority may be paused.
const MOST_PAUSED: f64 = 0.1;

/// A shorter pause is a burst, whatever share of a short observation it is.
const LEAST_PAUSED: Duration = Duration::from_secs(1);

/// What rose of one port in the last minutes.
struct Rises<'a> {
    now: BootTime,
    statistics: Option<&'a NetdevStatistics>,
    netdev: Option<&'a BTreeMap<Arc<str>, CounterWindow>>,
    port: Option<&'a BTreeMap<&'static str, CounterWindow>>,
    /// How the interface is set up, where it says so.
    dcb: Option<Dcb>,
}

impl Rises<'_> {
    fn port(&self, names: &[&str]) -> u64 {
        let rise = |name: &&str| self.port?.get(*name)?.rise(self.now, SPAN);
        total(names.iter().filter_map(rise).map(|rise| rise.count))
    }

    fn statistic(&self, name: &str) -> Option<(u64, Duration)> {
        let rise = self.netdev?.get(name)?.rise(self.now, SPAN)?;
        Some((rise.count, rise.observed))
    }

    /// Statistics that suit and have risen.
    fn netdev(&self, suits: impl Fn(&str, StatisticKind) -> bool) -> Vec<(&str, u64)> {
        let known = self.statistics.iter().flat_map(|statistics| statistics.layout.iter());
        let risen = known.filter(|statistic| suits(&statistic.name, statistic.meaning)).filter_map(|statistic| {
            let (count, _) = self.statistic(&statistic.name)?;
            (count > 0).then_some((&*statistic.name, count))
        });
        risen.collect()
    }

    /// The greatest share of the time for which a priority, or the link, was paused one way.
    fn paused(&self, wanted: PauseDirection) -> Option<(&str, f64)> {
        let known = self.statistics.iter().flat_map(|statistics| statistics.layout.iter());
        let shares = known.filter_map(|statistic| {
            let StatisticKind::PauseMicroseconds { direction, .. } = statistic.meaning else { return None };
            let (micros, observed) = self.statistic(&statistic.name).filter(|_| direction == wanted)?;
            let whole = observed.as_secs_f64();
            let paused = Duration::from_micros(micros);
            (whole > 0.0 && paused >= LEAST_PAUSED).then(|| (&*statistic.name, paused.as_secs_f64() / whole))
        });
        shares.max_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

fn is_discard(name: &str) -> bool {
    name.contains("discard") || matches!(name, "rx_dropped.nic" | "outbound_pci_buffer_overflow")
}

fn list(risen: &[(&str, u64)]) -> String {
    risen.iter().map(|(name, count)| format!("{name} +{count}")).collect::<Vec<_>>().join(", ")
}

/// `roce_lossy`: discards rise, pauses storm, or packets are lost and neither PFC nor ECN does anything about it.
pub fn lossy(view: &View<'_>, verdicts: &mut Verdicts) {
    for device in view.snapshot.devices() {
        for port in device.ports.iter().filter(|port| port.link_layer == Some(LinkLayer::Ethernet)) {
            let key = PortKey { device: device.name.clone(), port: port.number };
            let netdev = port.netdev.as_deref();
            let rises = Rises {
                now: view.snapshot.taken.tick,
                statistics: view.snapshot.all::<NetdevStatistics>().find(|known| Some(&*known.netdev) == netdev),
                netdev: netdev.and_then(|netdev| view.history.netdevs.get(netdev)),
                port: view.history.roce.get(&key),
                dcb: view
                    .snapshot
                    .all::<NetdevSetup>()
                    .find(|setup| Some(&*setup.netdev) == netdev)
                    .map(|setup| setup.dcb),
            };
            if !port.is_active() || (rises.statistics.is_none() && rises.port.is_none_or(BTreeMap::is_empty)) {
                verdicts.skipped(Check::RoceLossy);
                continue;
            }
            match judge(device, port, key, &rises) {
                Some(condition) => verdicts.found(condition),
                None => verdicts.ok(Check::RoceLossy),
            }
        }
    }
}

/// The first that holds: the more it tells, the earlier it stands.
fn case(rises: &Rises<'_>, interface: &str) -> Option<Case> {
    storm(rises, interface)
        .or_else(|| discards(rises))
        .or_else(|| uncontrolled(rises, interface))
        .or_else(|| ignored(rises))
        .or_else(|| lost_all_the_same(rises))
}

fn judge(owner: &RdmaDevice, port: &Port, key: PortKey, rises: &Rises<'_>) -> Option<Condition> {
    let interface = port.netdev.as_deref().unwrap_or("its interface");
    let (reason, text, evidence) = case(rises, interface)?;
    let summary = format!("{key} ({interface}): RoCE traffic is lost or stalled: {text}.");
    let hold = if reason == FindingReason::LossDespiteControl { ROCE_HEAVY_HOLD } else { ROCE_HOLD };
    let condition = Condition::new(Check::RoceLossy, Subject::Port(key), Severity::Warning, reason, summary)
        .address(owner.identity.pci_address)
        .hold(hold)
        .clear_after(ROCE_CLEAR);
    Some(evidence.into_iter().fold(condition, |condition, (name, count)| condition.with_evidence(&name, Some(count))))
}

type Case = (FindingReason, String, Vec<(String, u64)>);

fn owned(risen: &[(&str, u64)]) -> Vec<(String, u64)> {
    risen.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

fn storm(rises: &Rises<'_>, netdev: &str) -> Option<Case> {
    let storms = rises.netdev(|name, _| name.starts_with("tx_pause_storm"));
    if !storms.is_empty() {
        let text = format!(
            "this host sent pause frames for so long that the driver's watchdog fired ({}). Check for a slow PCIe link or \
             overloaded CPUs",
            list(&storms)
        );
        return Some((FindingReason::PauseStorm, text, owned(&storms)));
    }
    for (direction, reason) in [
        (PauseDirection::Transmitted, FindingReason::PauseSent),
        (PauseDirection::Received, FindingReason::PauseReceived),
    ] {
        let Some((name, share)) = rises.paused(direction).filter(|(_, share)| *share > MOST_PAUSED) else { continue };
        let text = match direction {
            PauseDirection::Transmitted => format!(
                "it paused the network for {:.0} % of the last 5 minutes ({name}): this host cannot keep up. Check its PCIe path \
                 and CPUs",
                share * 100.0
            ),
            PauseDirection::Received => format!(
                "the network paused it for {:.0} % of the last 5 minutes ({name}). Check for congestion at the switch and the \
                 receivers; `ethtool -S {netdev}` shows all counters",
                share * 100.0
            ),
        };
        return Some((reason, text, Vec::new()));
    }
    None
}

fn discards(rises: &Rises<'_>) -> Option<Case> {
    let mut dropped = rises.netdev(|name, meaning| is_discard(name) && matches!(meaning, StatisticKind::Event(_)));
    dropped.extend(DISCARDED.iter().map(|name| (*name, rises.port(&[name]))).filter(|(_, count)| *count > 0));
    let all = total(dropped.iter().map(|(_, count)| *count));
    (all > ROCE_LOST).then(|| {
        let text = format!(
            "packets were dropped in the last 5 minutes ({}). If they have RDMA's priority, PFC is not enabled end to end",
            list(&dropped)
        );
        (FindingReason::Discards, text, owned(&dropped))
    })
}

/// Packets were lost, and nobody marked or paused any: where the interface says so, PFC cannot be at work.
fn uncontrolled(rises: &Rises<'_>, netdev: &str) -> Option<Case> {
    let lost = rises.port(LOST);
    let controlled = rises.port(CONTROLLED);
    let paused = !rises.netdev(|_, meaning| matches!(meaning, StatisticKind::PfcFrames { .. })).is_empty()
        || rises.statistic(PFC_FRAMES).is_some_and(|(frames, _)| frames > 0);
    if lost <= ROCE_LOST || controlled > 0 || paused {
        return None;
    }
    let pfc = rises.dcb.and_then(|dcb| dcb.pfc);
    let by_tag = rises.dcb.is_some_and(|dcb| dcb.trust == Some(PriorityTrust::Pcp));
    let here = match pfc {
        Some(pfc) if pfc.enabled.is_empty() => "PFC is off for all priorities on this host".to_owned(),
        Some(pfc) if by_tag => format!(
            "PFC is on for priority {}, but the port trusts VLAN tags, which untagged packets do not have",
            pfc.enabled
        ),
        Some(pfc) => format!("PFC is on for priority {}, but it sent and received no pause frames", pfc.enabled),
        None => "PFC did not react".to_owned(),
    };
    let text = format!(
        "{lost} signs of lost packets in the last 5 minutes, ECN did not react, and {here}. Check that the switch marks \
         or pauses RDMA's priority (`dcb pfc show dev {netdev}`, `dcb app show dev {netdev}`)"
    );
    let mut evidence = vec![("loss_signs".to_owned(), lost)];
    evidence.extend(pfc.map(|pfc| ("pfc_priorities_bitmap".to_owned(), u64::from(pfc.enabled.0))));
    Some((FindingReason::NoCongestionControl, text, evidence))
}

/// Congestion control is at work, and packets are lost all the same: marks slow senders down, but do not excuse loss.
fn lost_all_the_same(rises: &Rises<'_>) -> Option<Case> {
    let counters = LOST.iter().filter_map(|name| Some((*name, rises.port?.get(*name)?.rise(rises.now, SPAN)?)));
    let heavy = counters.filter(|(_, rise)| {
        let minutes = rise.observed.as_secs_f64() / 60.0;
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
        let count = rise.count as f64;
        minutes > 0.0 && rise.count > ROCE_LOST && count / minutes > MOST_LOST_A_MINUTE
    });
    let heavy: Vec<(&str, u64)> = heavy.map(|(name, rise)| (name, rise.count)).collect();
    (!heavy.is_empty()).then(|| {
        let text = format!(
            "packets are lost although ECN or PFC is active ({} in the last 5 minutes): check that PFC covers RDMA's priority end to end, and look for drops at the switch port",
            list(&heavy)
        );
        (FindingReason::LossDespiteControl, text, owned(&heavy))
    })
}

fn ignored(rises: &Rises<'_>) -> Option<Case> {
    let ignored = rises.port(IGNORED);
    let text = format!(
        "{ignored} congestion notifications were ignored in the last 5 minutes: the DCQCN reaction point is off on this \
         host. Enable it"
    );
    (ignored > ROCE_LOST).then(|| (FindingReason::CnpIgnored, text, vec![("cnp_ignored".to_owned(), ignored)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::counter::CounterClass;
    use crate::model::net::NetdevStatistic;

    fn judged(statistics: &[(&str, StatisticKind, u64)], port: &[(&'static str, u64)]) -> Option<&'static str> {
        judged_over(100, statistics, port)
    }

    /// What is found after so many seconds of observation.
    fn judged_over(
        seconds: i64,
        statistics: &[(&str, StatisticKind, u64)],
        port: &[(&'static str, u64)],
    ) -> Option<&'static str> {
        let window = |rise: u64| {
            let mut window = CounterWindow::new(SPAN);
            window.push(BootTime(100_000 - seconds * 1000), 5);
            window.push(BootTime(100_000), 5 + rise);
            window
        };
        let known = |(name, meaning, _): &(&str, StatisticKind, u64)| NetdevStatistic {
            name: Arc::from(*name),
            meaning: *meaning,
        };
        let facts = NetdevStatistics {
            netdev: Arc::from("eth2"),
            pci_address: "0000:81:00.0".parse().unwrap(),
            device: crate::model::ids::DeviceName::new("mlx5_0"),
            layout: statistics.iter().map(known).collect(),
            values: Vec::new(),
            at: BootTime(100_000),
        };
        let netdev = statistics.iter().map(|(name, _, rise)| (Arc::from(*name), window(*rise))).collect();
        let port = port.iter().map(|(name, rise)| (*name, window(*rise))).collect();
        let rises = Rises {
            now: BootTime(100_000),
            statistics: Some(&facts),
            netdev: Some(&netdev),
            port: Some(&port),
            dcb: None,
        };
        case(&rises, "eth2").map(|(reason, _, _)| reason.as_str())
    }

    #[test]
    fn counts_that_do_not_fit_a_sum_are_as_large_as_it_gets() {
        let most = u64::MAX - 5;
        let lost = ("rx_discards_phy", StatisticKind::Event(CounterClass::Congestion), most);
        assert!(judged(&[lost], &[("out_of_sequence", most), ("packet_seq_err", most)]).is_some());
        let mut window = CounterWindow::new(SPAN);
        for (second, value) in [(0, 0), (10, u64::MAX), (20, 0), (30, u64::MAX)] {
            window.push(BootTime(second * 1000), value);
        }
        assert_eq!(window.rise(BootTime(30_000), SPAN).map(|rise| rise.count), Some(u64::MAX));
    }

    #[test]
    fn congestion_control_does_not_excuse_heavy_loss() {
        // 100 seconds: 1,200 and 600 a minute.
        let marked = ("np_cnp_sent", 9);
        assert_eq!(judged(&[], &[("out_of_sequence", 2_000), marked]), Some("loss_despite_control"));
        assert_eq!(judged(&[], &[("out_of_sequence", 1_000), marked]), None);
        assert_eq!(judged(&[], &[("np_cnp_sent", 50_000)]), None);
    }

    #[test]
    fn a_rate_over_a_moment_needs_an_amount() {
        let pause = StatisticKind::PauseMicroseconds { priority: Some(3), direction: PauseDirection::Received };
        let marked = ("np_cnp_sent", 9);
        // A second: at the rate of 2,400 a minute, and paused for half of it.
        assert_eq!(judged_over(1, &[], &[("out_of_sequence", 40), marked]), None);
        assert_eq!(judged_over(1, &[("rx_prio3_pause_duration", pause, 500_000)], &[]), None);
        assert_eq!(judged_over(5, &[], &[("out_of_sequence", 400), marked]), Some("loss_despite_control"));
        assert_eq!(judged_over(5, &[("rx_prio3_pause_duration", pause, 1_500_000)], &[]), Some("pause_received"));
    }

    #[test]
    fn loss_in_each_of_its_forms() {
        let event = StatisticKind::Event(CounterClass::Congestion);
        let pause = |direction| StatisticKind::PauseMicroseconds { priority: Some(3), direction };
        let pfc = StatisticKind::PfcFrames { priority: 3, direction: PauseDirection::Received };
        assert_eq!(judged(&[("rx_discards_phy", event, 61)], &[]), Some("discards"));
        assert_eq!(judged(&[("rx_discards_phy", event, 60)], &[]), None);
        assert_eq!(judged(&[("tx_pause_storm_warning_events", event, 1)], &[]), Some("pause_storm"));
        let sent = pause(PauseDirection::Transmitted);
        assert_eq!(judged(&[("tx_prio3_pause_duration", sent, 10_100_000)], &[]), Some("pause_sent"));
        assert_eq!(judged(&[("tx_prio3_pause_duration", sent, 9_900_000)], &[]), None);
        let received = pause(PauseDirection::Received);
        assert_eq!(judged(&[("rx_prio3_pause_duration", received, 50_000_000)], &[]), Some("pause_received"));
        let lost = ("out_of_sequence", 100);
        assert_eq!(judged(&[], &[lost]), Some("no_congestion_control"));
        assert_eq!(judged(&[], &[lost, ("np_cnp_sent", 1)]), None, "ECN is at work");
        assert_eq!(judged(&[("rx_prio3_pause", pfc, 1)], &[lost]), None, "PFC is at work");
        assert_eq!(judged(&[], &[("np_cnp_sent", 1), ("rp_cnp_ignored", 100)]), Some("cnp_ignored"));
        assert_eq!(judged(&[("rx_crc_errors_phy", StatisticKind::Event(CounterClass::Error), 100)], &[]), None);
    }
}

//! Loss and congestion on Ethernet ports over time, in the statistics of three drivers by their own names: what must be
//! found, what must not, and in which units it is told.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lanewatch::export::agent::{AgentState, Process};
use lanewatch::export::exposition::{Format, encode};
use lanewatch::host::ethtool::table::meaning;
use lanewatch::model::counter::{self, Counters};
use lanewatch::model::finding::Finding;
use lanewatch::model::ids::DeviceName;
use lanewatch::model::net::{Dcb, NetdevSetup, Pfc, Priorities, PriorityTrust};
use lanewatch::model::net::{NetdevStatistic, NetdevStatistics};
use lanewatch::model::policy::Policy;
use lanewatch::model::rdma::{DeviceIdentity, LinkLayer, PhysicalState, Port, PortRate, PortState, RdmaDevice, Speed};
use lanewatch::model::reading::Reading;
use lanewatch::model::snapshot::{Fact, Snapshot};
use lanewatch::model::time::{BootTime, Timestamp};
use lanewatch::model::units::BytesPerSecond;
use lanewatch::watch::{Engine, HostReport};

/// What `ethtool -S` lists with each driver, in part: what is known, and much that is not.
const MLX5: &[&str] = &[
    "rx_packets",
    "rx_bytes",
    "tx_packets",
    "tx_bytes",
    "tx_tso_packets",
    "rx_lro_packets",
    "rx_csum_complete",
    "tx_queue_stopped",
    "rx_xdp_drop",
    "rx_wqe_err",
    "rx_buff_alloc_err",
    "ch_events",
    "ch_poll",
    "rx_out_of_buffer",
    "rx_vport_unicast_packets",
    "rx_vport_rdma_unicast_bytes",
    "tx_vport_rdma_unicast_bytes",
    "rx_packets_phy",
    "tx_packets_phy",
    "rx_bytes_phy",
    "rx_crc_errors_phy",
    "rx_discards_phy",
    "tx_discards_phy",
    "rx_64_bytes_phy",
    "link_down_events_phy",
    "rx_corrected_bits_phy",
    "rx_pcs_symbol_err_phy",
    "rx_err_lane_0_phy",
    "rx_err_lane_1_phy",
    "rx_buffer_passed_thres_phy",
    "rx_pci_signal_integrity",
    "tx_pci_signal_integrity",
    "outbound_pci_stalled_rd",
    "outbound_pci_stalled_wr",
    "outbound_pci_stalled_rd_events",
    "outbound_pci_buffer_overflow",
    "rx_prio0_bytes",
    "rx_prio0_discards",
    "rx_prio3_bytes",
    "rx_prio3_pause",
    "rx_prio3_pause_duration",
    "rx_prio3_pause_transition",
    "tx_prio3_pause",
    "tx_prio3_pause_duration",
    "tx_pause_storm_warning_events",
    "tx_pause_storm_error_events",
    "module_unplug",
    "module_high_temp",
    "ch0_events",
    "ch0_poll",
    "rx0_packets",
    "rx0_bytes",
    "tx0_packets",
    "tx0_stopped",
    "dev_out_of_buffer",
];
const ICE: &[&str] = &[
    "rx_unicast",
    "tx_unicast",
    "rx_bytes",
    "tx_bytes",
    "rx_dropped",
    "tx_linearize",
    "tx_busy",
    "rx_alloc_fail",
    "tx_queue_0_packets",
    "rx_queue_0_bytes",
    "rx_bytes.nic",
    "tx_bytes.nic",
    "rx_unicast.nic",
    "tx_errors.nic",
    "tx_timeout.nic",
    "rx_size_64.nic",
    "link_xon_rx.nic",
    "link_xoff_rx.nic",
    "link_xoff_tx.nic",
    "tx_dropped_link_down.nic",
    "rx_undersize.nic",
    "rx_fragments.nic",
    "rx_oversize.nic",
    "rx_jabber.nic",
    "rx_csum_bad.nic",
    "rx_dropped.nic",
    "rx_crc_errors.nic",
    "illegal_bytes.nic",
    "mac_local_faults.nic",
    "mac_remote_faults.nic",
    "fdir_sb_match.nic",
    "tx_priority_3_xon.nic",
    "tx_priority_3_xoff.nic",
    "rx_priority_3_xon.nic",
    "rx_priority_3_xoff.nic",
];
const BNXT: &[&str] = &[
    "[0]: rx_ucast_packets",
    "[0]: rx_discards",
    "[0]: tx_errors",
    "rx_total_l4_csum_errors",
    "rx_total_resets",
    "rx_total_buf_errors",
    "rx_total_discard_pkts",
    "tx_total_discard_pkts",
    "rx_64b_frames",
    "rx_fcs_err_frames",
    "rx_pause_frames",
    "tx_pause_frames",
    "rx_pfc_ena_frames_pri3",
    "tx_pfc_ena_frames_pri3",
    "rx_jbr_frames",
    "rx_runt_frames",
    "rx_bytes",
    "tx_bytes",
    "tx_err",
    "rx_stat_discard",
    "rx_stat_err",
    "link_down_events",
    "continuous_pause_events",
    "rx_bytes_cos0",
    "rx_packets_cos0",
    "pfc_pri3_rx_duration_us",
    "pfc_pri3_rx_transitions",
    "pfc_pri3_tx_duration_us",
    "rx_pcs_symbol_err",
    "rx_corrected_bits",
    "rx_discard_bytes_cos0",
    "rx_fec_corrected_blocks",
    "rx_fec_uncorrectable_blocks",
    "rx_bytes_pri3",
];
/// Counters of the RDMA devices that go with them.
const MLX5_RDMA: &[&str] = &[
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "out_of_buffer",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "rx_write_requests",
];
const IRDMA: &[&str] = &["ip4InDiscards", "ip4InOctets", "cnpHandled", "cnpIgnored", "cnpSent", "RxECNMrkd"];
const BNXT_RE: &[&str] = &[
    "active_qps",
    "rx_bytes",
    "to_retransmits",
    "seq_err_naks_rcvd",
    "oos_drop_count",
    "rx_roce_discards",
    "tx_cnp_pkts",
    "rx_cnp_pkts",
    "rx_ecn_marked_pkts",
    "pacing_alerts",
];

/// A counter, and how much it rises by.
type Rise = (&'static str, u64);

type Make = fn() -> Play;

/// A port and what its counters stand at, looked at every 15 seconds.
struct Play {
    engine: Engine,
    own: BTreeMap<&'static str, u64>,
    rdma: BTreeMap<&'static str, u64>,
    names: (&'static [&'static str], &'static [&'static str]),
    dcb: Option<Dcb>,
    layer: LinkLayer,
    state: PortState,
    second: i64,
    report: Option<HostReport>,
}

impl Play {
    fn new(names: &'static [&'static str], rdma: &'static [&'static str]) -> Self {
        // Whatever was counted before the first look says nothing.
        let many = |names: &'static [&'static str]| names.iter().map(|name| (*name, 5_000_000)).collect();
        Self {
            engine: Engine::new(Arc::new(Policy::default()), false),
            own: many(names),
            rdma: many(rdma),
            names: (names, rdma),
            dcb: None,
            layer: LinkLayer::Ethernet,
            state: PortState::Active,
            second: 0,
            report: None,
        }
    }

    fn mlx5() -> Self {
        let mut play = Self::new(MLX5, MLX5_RDMA);
        play.own.extend([("outbound_pci_stalled_rd", 12), ("outbound_pci_stalled_wr", 99)]);
        play
    }

    fn irdma() -> Self {
        Self::new(ICE, IRDMA)
    }

    fn bnxt() -> Self {
        Self::new(BNXT, BNXT_RE)
    }

    fn look(&mut self) {
        let stamp = Timestamp {
            tick: BootTime(self.second * 1000),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + self.second.unsigned_abs()),
        };
        let (netdev, device) = (Arc::from("eth2"), DeviceName::new("roce0"));
        let pci_address = "0000:81:00.0".parse().unwrap();
        let known = self.names.0.iter().filter_map(|name| Some((*name, meaning(name)?)));
        let (layout, values) = known
            .map(|(name, meaning)| (NetdevStatistic { name: Arc::from(name), meaning }, self.own[name]))
            .unzip::<_, _, Vec<_>, Vec<_>>();
        let names: Vec<Arc<str>> = self.names.1.iter().map(|name| Arc::from(*name)).collect();
        let hardware = Counters { layout: counter::layout(&[], &names).1, values: self.rdma_values() };
        let rate = PortRate { bandwidth: BytesPerSecond::from_gbits(100.0), width: Some(4), speed: Speed::Edr };
        let port = Port {
            number: 1,
            link_layer: Some(self.layer.clone()),
            state: Reading::Value(self.state),
            physical_state: Reading::Value(PhysicalState::LinkUp),
            rate: Reading::Value(rate),
            lid: None,
            sm_lid: None,
            netdev: Some(Arc::clone(&netdev)),
            guid: None,
            pma: Counters::default(),
            hardware,
        };
        let identity = DeviceIdentity { pci_address: Some(pci_address), ..DeviceIdentity::default() };
        let mut facts: Vec<Fact> = vec![
            Arc::new(RdmaDevice {
                name: device.clone(),
                identity: Arc::new(identity),
                ports: vec![port],
                counters: Counters::default(),
                counters_at: stamp.tick,
            }),
            Arc::new(NetdevStatistics {
                netdev: Arc::clone(&netdev),
                pci_address,
                device: device.clone(),
                layout: layout.into(),
                values,
                at: stamp.tick,
            }),
        ];
        facts.extend(self.dcb.map(|dcb| -> Fact {
            Arc::new(NetdevSetup {
                netdev,
                pci_address,
                device,
                dcb,
                ecn: None,
                ipoib: None,
                offloads: Vec::new(),
                at: stamp.tick,
            })
        }));
        self.report = Some(self.engine.observe(Snapshot::new(stamp, facts, Vec::new())));
    }

    fn rdma_values(&self) -> Vec<Option<u64>> {
        self.names.1.iter().map(|name| self.rdma.get(name).copied()).collect()
    }

    /// Lets counters rise by so much in each quarter of a minute, for so many of them.
    fn rise(&mut self, quarters: u32, rises: &[Rise]) -> &mut Self {
        if self.report.is_none() {
            self.look();
        }
        for _ in 0..quarters {
            self.second += 15;
            for (name, by) in rises {
                let counters = if self.own.contains_key(name) { &mut self.own } else { &mut self.rdma };
                *counters.get_mut(name).unwrap() += by;
            }
            self.look();
        }
        self
    }

    fn finding(&self) -> Option<&Finding> {
        let findings = &self.report.as_ref().unwrap().findings;
        findings.iter().find(|finding| finding.condition.check.as_str() == "roce_lossy")
    }

    fn reason(&self) -> Option<&'static str> {
        self.finding().map(|finding| finding.condition.reason.as_str())
    }

    fn summary(&self) -> &str {
        self.finding().map_or("", |finding| &finding.condition.summary)
    }
}

/// Ten minutes of one thing.
fn after(mut play: Play, rises: &[Rise]) -> Option<&'static str> {
    play.rise(40, rises);
    play.reason()
}

#[test]
fn loss_and_stalls_of_every_driver_are_found() {
    let cases: &[(&str, Make, &[Rise])] = &[
        ("discards", Play::mlx5, &[("rx_discards_phy", 5)]),
        ("discards", Play::mlx5, &[("rx_prio0_discards", 4)]),
        ("discards", Play::mlx5, &[("outbound_pci_buffer_overflow", 4)]),
        ("pause_sent", Play::mlx5, &[("tx_prio3_pause_duration", 3_000_000)]),
        ("pause_received", Play::mlx5, &[("rx_prio3_pause_duration", 1_600_000)]),
        ("pause_storm", Play::mlx5, &[("tx_pause_storm_error_events", 1)]),
        ("no_congestion_control", Play::mlx5, &[("out_of_sequence", 10)]),
        ("no_congestion_control", Play::mlx5, &[("local_ack_timeout_err", 3), ("packet_seq_err", 2)]),
        ("cnp_ignored", Play::mlx5, &[("rp_cnp_ignored", 10), ("np_cnp_sent", 1)]),
        ("discards", Play::irdma, &[("rx_dropped.nic", 10)]),
        ("discards", Play::irdma, &[("ip4InDiscards", 10)]),
        ("cnp_ignored", Play::irdma, &[("cnpIgnored", 10)]),
        ("pause_received", Play::bnxt, &[("pfc_pri3_rx_duration_us", 2_000_000)]),
        ("discards", Play::bnxt, &[("rx_roce_discards", 4)]),
        ("no_congestion_control", Play::bnxt, &[("seq_err_naks_rcvd", 3), ("to_retransmits", 2)]),
    ];
    for (expected, play, rises) in cases {
        assert_eq!(after(play(), rises), Some(*expected), "{rises:?}");
    }
}

#[test]
fn what_is_close_to_it_and_harmless_is_not() {
    let cases: &[(Make, &[Rise])] = &[
        (Play::mlx5, &[]),
        // Few in five minutes.
        (Play::mlx5, &[("rx_discards_phy", 2)]),
        (Play::mlx5, &[("out_of_sequence", 2)]),
        // A twentieth of the time.
        (Play::mlx5, &[("tx_prio3_pause_duration", 750_000), ("tx_prio3_pause", 4_000)]),
        // Much traffic, and congestion that is dealt with.
        (Play::mlx5, &[("rx_bytes_phy", 1 << 37), ("rx_write_requests", 1 << 20)]),
        (Play::mlx5, &[("np_cnp_sent", 9_000), ("np_ecn_marked_roce_packets", 9_000), ("rp_cnp_handled", 9_000)]),
        (Play::mlx5, &[("out_of_sequence", 100), ("rp_cnp_handled", 1)]),
        (Play::mlx5, &[("out_of_sequence", 100), ("rx_prio3_pause", 1)]),
        // Errors of the line are another check's, and corrected bits are none.
        (Play::mlx5, &[("rx_crc_errors_phy", 100), ("rx_corrected_bits_phy", 1 << 30)]),
        (Play::mlx5, &[("rx_xdp_drop", 1_000), ("rx0_packets", 1_000), ("tx_queue_stopped", 100)]),
        (Play::irdma, &[("rx_dropped", 100), ("rx_priority_3_xon.nic", 100), ("fdir_sb_match.nic", 9)]),
        (Play::irdma, &[("RxECNMrkd", 1_000), ("cnpSent", 900), ("cnpHandled", 1_000)]),
        (Play::bnxt, &[("oos_drop_count", 100), ("tx_cnp_pkts", 2)]),
        (Play::bnxt, &[("oos_drop_count", 100), ("tx_pfc_ena_frames_pri3", 1)]),
        (Play::bnxt, &[("pfc_pri3_tx_duration_us", 700_000)]),
        (Play::bnxt, &[("[0]: rx_discards", 100), ("rx_discard_bytes_cos0", 100_000)]),
    ];
    for (play, rises) in cases {
        assert_eq!(after(play(), rises), None, "{rises:?}");
    }
}

#[test]
fn ports_that_are_no_lossless_ethernet_are_not_judged() {
    let lossy: &[Rise] = &[("rx_discards_phy", 100), ("out_of_sequence", 100)];
    assert_eq!(after(Play { layer: LinkLayer::InfiniBand, ..Play::mlx5() }, lossy), None);
    assert_eq!(after(Play { state: PortState::Down, ..Play::mlx5() }, lossy), None);
}

#[test]
fn a_finding_comes_after_its_hold_time_and_goes_when_it_has_been_quiet() {
    let mut play = Play::mlx5();
    // Five quarters pass until more than sixty packets were lost, eight more until it has held.
    play.rise(12, &[("rx_discards_phy", 14)]);
    assert_eq!(play.reason(), None);
    play.rise(1, &[("rx_discards_phy", 14)]);
    assert_eq!(play.reason(), Some("discards"));
    assert!(play.summary().contains("rx_discards_phy +182"), "{}", play.summary());
    // Five minutes until the window has too few, ten of quiet.
    play.rise(52, &[]);
    assert_eq!(play.reason(), Some("discards"));
    play.rise(10, &[]);
    assert_eq!(play.reason(), None);
    assert!(
        play.report.as_ref().unwrap().recovered.iter().any(|(ended, _)| ended.condition.reason.as_str() == "discards")
    );
}

#[test]
fn a_driver_that_is_loaded_anew_counts_from_nothing() {
    let mut play = Play::mlx5();
    play.rise(10, &[]);
    play.own.values_mut().chain(play.rdma.values_mut()).for_each(|value| *value = 3);
    // A storm that was counted since would be one.
    play.own.extend([("tx_pause_storm_warning_events", 0), ("tx_pause_storm_error_events", 0)]);
    play.rise(30, &[]);
    assert_eq!(play.reason(), None);
}

#[test]
fn what_the_interface_says_of_pfc_is_said() {
    let lost: &[Rise] = &[("out_of_sequence", 20)];
    let told = |enabled: u8, trust: Option<PriorityTrust>| {
        let pfc = Some(Pfc { enabled: Priorities(enabled), frames: None });
        let mut play = Play { dcb: Some(Dcb { pfc, trust, ..Dcb::default() }), ..Play::mlx5() };
        play.rise(40, lost);
        assert_eq!(play.reason(), Some("no_congestion_control"));
        play.summary().to_owned()
    };
    assert!(told(0, None).contains("PFC is off for all priorities on this host"));
    assert!(
        told(8, Some(PriorityTrust::Dscp))
            .contains("PFC is on for priority 3, but it sent and received no pause frames")
    );
    assert!(told(8, Some(PriorityTrust::Pcp)).contains("the port trusts VLAN tags"));
    let mut play = Play::mlx5();
    play.rise(40, lost);
    assert!(play.summary().contains("PFC did not react"), "{}", play.summary());
}

#[test]
fn pauses_that_dcb_alone_counts_are_congestion_control_too() {
    let mut play = Play::new(&["rx_stat_discard"], MLX5_RDMA);
    let counted = |frames: u64| {
        let pfc =
            Pfc { enabled: Priorities(8), frames: (frames > 0).then_some(([0; 8], [0, 0, 0, frames, 0, 0, 0, 0])) };
        Some(Dcb { pfc: Some(pfc), ..Dcb::default() })
    };
    for frames in 0..40 {
        play.dcb = counted(frames);
        play.rise(1, &[("out_of_sequence", 20)]);
    }
    assert_eq!(play.reason(), None);
}

#[test]
fn metrics_are_in_base_units_and_no_others_than_the_known() {
    let mut play = Play::mlx5();
    play.rise(1, &[("tx_prio3_pause_duration", 1_500_000)]);
    let mut text = String::new();
    let report = Arc::new(play.report.clone().unwrap());
    encode(Format::Text, &report, &Arc::new(AgentState::default()), Process::default(), &mut text).unwrap();
    let ours: Vec<&str> = text.lines().filter(|line| line.starts_with("lanewatch_netdev_")).collect();
    for line in [
        r#"lanewatch_netdev_pause_seconds_total{netdev="eth2",priority="3",direction="transmitted"} 6.5"#,
        r#"lanewatch_netdev_pfc_frames_total{netdev="eth2",priority="3",direction="received"} 5000000"#,
        r#"lanewatch_netdev_stalled_ratio{netdev="eth2",counter="outbound_pci_stalled_rd"} 0.12"#,
        r#"lanewatch_netdev_stalled_ratio{netdev="eth2",counter="outbound_pci_stalled_wr"} 0.99"#,
        r#"lanewatch_netdev_events_total{netdev="eth2",counter="rx_discards_phy",class="congestion"} 5000000"#,
    ] {
        assert!(ours.contains(&line), "{line} in\n{}", ours.join("\n"));
    }
    assert!(text.contains("# TYPE lanewatch_netdev_stalled_ratio gauge"));
    for name in
        ["rx_packets", "ch0_events", "rx0_bytes", "rx_prio3_bytes", "tx_prio3_pause_duration\"", "rx_64_bytes_phy"]
    {
        assert!(!ours.iter().any(|line| line.contains(name)), "{name} in\n{}", ours.join("\n"));
    }
    for (driver, names) in [("mlx5", MLX5), ("ice", ICE), ("bnxt", BNXT)] {
        let known = names.iter().filter(|name| meaning(name).is_some()).count();
        assert!(known > 0 && known < names.len() * 3 / 4, "{driver}: {known} of {}", names.len());
    }
}

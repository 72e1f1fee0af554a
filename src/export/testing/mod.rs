//! A small host for the tests of this floor, and files that tests keep current.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use facts::{devices, functions, pf, probes, vf_map};
use serde_json::json;

use super::agent::{AgentState, Process, WebState};
use crate::assess::capacity::{DevicePath, HostCapacity as HostLanes, PortCapacity, Uplink, Wire};
use crate::model::check::{Check, Severity, Status};
use crate::model::counter::CounterClass;
use crate::model::finding::{Condition, Event, EventKind, Finding, Hold, PendingFinding, Subject, UnknownSubject};
use crate::model::health::{FunctionHealth, NicTemperature, Reporter};
use crate::model::host::System;
use crate::model::host::{Acs, AcsSwitches, PciIsolation, Posture};
use crate::model::ids::{DeviceName, PciAddress, PortKey};
use crate::model::irq::IrqSummary;
use crate::model::kmsg::{self, KernelLog, MessageSource};
use crate::model::line::{FecBin, FecMode, Line, LineErrors, LineSummary, WorstLane};
use crate::model::link::{LinkCause, NetdevLink};
use crate::model::module::{
    CableTechnology, Limits, Module, ModuleForm, ModuleIdentity, ModuleLane, ModuleLimits, ModuleState, ModuleValues,
};
use crate::model::net::{
    Dcb, Ipoib, NetdevLine, NetdevSetup, NetdevStatistic, NetdevStatistics, Offload, PauseDirection, Pfc,
    PortAddressing, Priorities, PriorityTrust, StatisticKind,
};
use crate::model::rdma::{PortRate, RdmaDevice, RdmaResources, Speed};
use crate::model::reading::ReadError;
use crate::model::reason::FindingReason;
use crate::model::snapshot::{CollectorState, Fact, Fault, Snapshot};
use crate::model::time::{BootTime, Timestamp};
use crate::model::topology::Topology;
use crate::model::units::{BytesPerSecond, Celsius};
use crate::watch::HostReport;

mod facts;
pub(super) use facts::counters;

/// Compares a committed file with what it should be; with `LANEWATCH_UPDATE` set, writes it.
pub(super) fn committed(path: &str, content: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("LANEWATCH_UPDATE").is_some() {
        std::fs::write(&file, content).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = found.lines().zip(content.lines()).find(|(found, content)| found != content);
    assert!(found == content, "{path} is not current (LANEWATCH_UPDATE=1 writes it): {differs:?}");
}

pub(super) fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

pub(crate) fn now() -> Timestamp {
    Timestamp { tick: BootTime(7_200_000), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000) }
}

pub(super) fn agent() -> Arc<AgentState> {
    Arc::new(AgentState {
        version: "1.2.3",
        revision: "abc1234",
        reload_successful: true,
        reloaded: Some(now().wall - Duration::from_secs(60)),
        web: Some(WebState {
            reload_successful: true,
            reloaded: now().wall - Duration::from_secs(60),
            certificate_expires: Some(now().wall + Duration::from_secs(86_400)),
        }),
        tls_rejections: std::array::from_fn(|index| index as u64 * 2),
        closed_connections: std::array::from_fn(|index| index as u64 * 5),
        probe_requests: Some(std::array::from_fn(|index| index as u64 * 3)),
        vf_ports: false,
    })
}

pub(super) fn process() -> Process {
    Process {
        cpu: Some(Duration::from_millis(1_250)),
        resident_bytes: Some(9_437_184),
        open_fds: Some(130),
        max_fds: Some(1024),
        started: Some(1_789_990_000.5),
    }
}

fn finding() -> Finding {
    Finding {
        condition: Condition {
            check: Check::PcieBelowPortRate,
            subject: Subject::Port(PortKey { device: DeviceName::new("mlx5_3"), port: 1 }),
            severity: Severity::Critical,
            reason: FindingReason::LinkDegraded,
            summary: "The PCIe path of mlx5_3/1 carries 63.0 Gb/s of 200 Gb/s.".to_owned(),
            device: Some(DeviceName::new("mlx5_3")),
            port: Some(1),
            pci_address: Some(address("0000:98:00.0")),
            evidence: [("port_rate_bytes_per_second".to_owned(), json!(25_000_000_000_u64))].into_iter().collect(),
            hold: Hold::None,
            clear_after: Duration::ZERO,
        },
        since: BootTime(3_600_000),
    }
}

fn pending() -> PendingFinding {
    let condition = Condition {
        check: Check::PcieDegraded,
        subject: Subject::Pci(address("0000:3b:00.0")),
        severity: Severity::Warning,
        reason: FindingReason::Speed,
        summary: "The link of 0000:3b:00.0 runs at 8 GT/s; both ends support 16 GT/s.".to_owned(),
        device: None,
        port: None,
        pci_address: Some(address("0000:3b:00.0")),
        evidence: serde_json::Map::new(),
        hold: Hold::For(Duration::from_secs(600)),
        clear_after: Duration::ZERO,
    };
    PendingFinding(Finding { condition, since: BootTime(7_080_000) })
}

fn fastest_rates() -> BTreeMap<PortKey, PortRate> {
    let rate = PortRate { bandwidth: BytesPerSecond(25e9), width: Some(4), speed: Speed::Hdr };
    BTreeMap::from([(PortKey { device: DeviceName::new("mlx5_3"), port: 1 }, rate)])
}

fn lanes() -> HostLanes {
    let key = |name: &str| PortKey { device: DeviceName::new(name), port: 1 };
    let ceiling = Some(BytesPerSecond(7_876_923_076.923_077));
    HostLanes {
        below: BTreeMap::new(),
        paths: BTreeMap::from([(
            DeviceName::new("mlx5_3"),
            DevicePath {
                function: address("0000:98:00.0"),
                bandwidth: BytesPerSecond(7_876_923_076.923_077),
                limiting: address("0000:98:00.0"),
            },
        )]),
        ports: BTreeMap::from([
            (
                key("mlx5_3"),
                PortCapacity {
                    rate: Some(BytesPerSecond(25e9)),
                    ceiling,
                    share: ceiling,
                    uplink: Uplink::Function,
                    wires: vec![Wire {
                        function: address("0000:98:00.0"),
                        path: address("0000:98:00.0"),
                        netdev: None,
                        rate: BytesPerSecond(25e9),
                        share: ceiling,
                    }],
                },
            ),
            (key("bnxt_re0"), PortCapacity::default()),
        ]),
        demand: BTreeMap::new(),
    }
}

fn statistics() -> NetdevStatistics {
    let known = [
        ("rx_discards_phy", StatisticKind::Event(CounterClass::Congestion), 7),
        ("rx_prio3_pause", StatisticKind::PfcFrames { priority: 3, direction: PauseDirection::Received }, 9),
        (
            "tx_prio3_pause_duration",
            StatisticKind::PauseMicroseconds { priority: Some(3), direction: PauseDirection::Transmitted },
            1_500_000,
        ),
        (
            "rx_global_pause_duration",
            StatisticKind::PauseMicroseconds { priority: None, direction: PauseDirection::Received },
            1,
        ),
        ("outbound_pci_stalled_rd", StatisticKind::Percent, 12),
    ];
    NetdevStatistics {
        netdev: Arc::from("eth2"),
        pci_address: address("0000:3b:00.0"),
        device: DeviceName::new("bnxt_re0"),
        layout: known
            .iter()
            .map(|(name, meaning, _)| NetdevStatistic { name: Arc::from(*name), meaning: *meaning })
            .collect(),
        values: known.iter().map(|(_, _, value)| *value).collect(),
        at: now().tick,
    }
}

fn module() -> Module {
    let identity = ModuleIdentity {
        form: ModuleForm::Osfp,
        technology: CableTechnology::Optical,
        vendor: Some(Arc::from("ACME \"OPTICS\"")),
        part_number: Some(Arc::from("AO-400DR4")),
        serial_number: Some(Arc::from("SN0003")),
        revision: None,
        firmware_version: Some(Arc::from("3.1")),
        length: Some(500.0),
    };
    let light = Limits::new(1e-4, 1.5e-4, 1.5e-3, 2e-3);
    let limits = ModuleLimits {
        temperature: Limits::new(-5.0, 0.0, 70.0, 75.0),
        receive: light,
        transmit: light,
        ..ModuleLimits::default()
    };
    let lane = |receive| ModuleLane { receive: Some(receive), transmit: Some(1e-3), bias: Some(0.06) };
    let values = ModuleValues {
        state: Some(ModuleState::Ready),
        temperature: Some(Celsius(51.5)),
        voltage: Some(3.28),
        lanes: vec![lane(7e-4), lane(0.0)],
    };
    Module {
        netdev: Arc::from("eth2"),
        pci_address: address("0000:3b:00.0"),
        identity: Arc::new(identity),
        limits,
        values: Some(values),
        at: now().tick,
    }
}

fn line_errors() -> LineErrors {
    let bin = |low, codewords| FecBin { low, high: low, codewords };
    LineErrors {
        netdev: Arc::from("eth2"),
        lanes: vec![7, 8],
        bins: vec![bin(0, 9_007_199_254_740_993), bin(1, 12)],
        ..LineErrors::default()
    }
}

fn line() -> LineSummary {
    LineSummary {
        line: Some(Line::new(BytesPerSecond(5e9), Some(4), None)),
        raw: Some(5.29e-10),
        worst_lane: Some(WorstLane { lane: 3, raw: 1.2e-9, others: 3e-10 }),
        lost: Some(0.0),
    }
}

fn kernel_log() -> KernelLog {
    let counts = vec![
        ((MessageSource::Mlx5Core, kmsg::MessageKind::DeviceHealth), 1),
        ((MessageSource::VfioPci, kmsg::MessageKind::VfioError), 0),
    ];
    KernelLog { counts, lost: 3, ..KernelLog::default() }
}

fn posture() -> Posture {
    Posture {
        virtualization: Some("none"),
        iommu: Some(Arc::from("DMA-FQ")),
        arguments: vec![Arc::from("intel_iommu=on"), Arc::from("isolcpus=2-5")],
        rdma_netns_mode: Some("shared"),
        governors: BTreeMap::from([(Arc::from("performance"), 64)]),
        numa_balancing: Some(false),
        ..Posture::default()
    }
}

/// A host with a card that trained at half speed and width, a RoCE card with odd texts, a VF and a software device.
pub(super) fn report() -> HostReport {
    let functions = functions();
    let topology = Topology::new(functions.iter());
    let resources = RdmaResources {
        device: DeviceName::new("mlx5_3"),
        counts: vec![(Arc::from("qp"), 5), (Arc::from("cq"), 3), (Arc::from("qp"), 9)],
    };
    let system = System {
        hostname: Some(Arc::from("node7")),
        kernel: Some(Arc::from("6.8.0-test")),
        boot_id: None,
        uptime: Some(Duration::from_secs(7_200)),
    };
    let mut facts: Vec<Fact> = vec![
        Arc::new(system),
        Arc::new(resources),
        Arc::new(pf()),
        Arc::new(statistics()),
        Arc::new(kernel_log()),
        Arc::new(line_errors()),
        Arc::new(module()),
        Arc::new(posture()),
    ];
    facts.extend(setups());
    facts.extend(devices().into_iter().map(|device| Arc::new(device) as Fact));
    facts.extend(functions.into_iter().map(|function| Arc::new(function) as Fact));
    let rdma = CollectorState {
        name: "rdma",
        success: true,
        listed: Some(Arc::from([Arc::from("bnxt_re0"), Arc::from("mlx5_3")])),
        duration: Duration::from_micros(1_500),
        waited: Duration::from_millis(20),
        last_success: Some(now()),
        stuck: Vec::new(),
        faults: vec![Fault { source: Arc::from("sys/class/infiniband/mlx5_10/ports/1/state"), reason: ReadError::Io }],
        errors: [1, 0, 2, 0, 0, 0, 0],
        quarantined: 1,
    };
    let pci = CollectorState { name: "pci", stuck: vec![Arc::from("0000:3b:00.0")], ..CollectorState::default() };
    HostReport {
        snapshot: Snapshot::new(now(), facts, vec![rdma, pci]),
        topology,
        lanes: lanes(),
        findings: vec![finding()],
        recovered: Vec::new(),
        excepted: vec![(
            Finding { condition: Condition { check: Check::PcieLimitedBySlot, ..finding().condition }, ..finding() },
            Arc::from("old board, known"),
        )],
        undecided: vec![UnknownSubject {
            check: Check::PortDown,
            subject: Subject::Port(PortKey { device: DeviceName::new("mlx5_10"), port: 1 }),
            reason: Some(ReadError::Io),
            due: true,
        }],
        standings: BTreeMap::from([(Check::PcieBelowPortRate, [1, 0, 1, 0, 0]), (Check::PortDown, [1, 0, 0, 1, 0])]),
        status: Status::Critical,
        limited: vec![Arc::from("Holders of VFs are hidden.")],
        events: Arc::from([Event {
            time: "2026-09-21T13:33:20Z".to_owned(),
            kind: EventKind::LinkChanged,
            subject: "0000:98:00.0".to_owned(),
            text: "16 GT/s x16 became 8 GT/s x8.".to_owned(),
            link_downed: None,
        }]),
        pending: vec![pending()],
        fastest_rates: fastest_rates(),
        link_changes: BTreeMap::from([(address("0000:98:00.0"), 1)]),
        irqs: BTreeMap::from([
            (
                address("0000:98:00.0"),
                IrqSummary {
                    vectors: [62, 2, 0],
                    interrupts: Some([9_007_199_254_740_993, 12, 0]),
                    busiest: Some((17, 0.125)),
                    affinity_changes: 3,
                    placed: true,
                },
            ),
            (address("0000:3b:00.0"), IrqSummary { vectors: [0, 0, 4], ..IrqSummary::default() }),
        ]),
        vf_map: vf_map(),
        flaps: BTreeMap::from([(PortKey { device: DeviceName::new("mlx5_3"), port: 1 }, 2)]),
        lines: BTreeMap::from([(Arc::from("eth2"), line())]),
        probes: Arc::new(probes()),
        traffic: BTreeMap::new(),
        maintenance: None,
        evaluated: now().wall,
    }
}

/// A report of these devices and nothing else.
pub(super) fn report_of(devices: Vec<RdmaDevice>) -> HostReport {
    let facts: Vec<Fact> = devices.into_iter().map(|device| Arc::new(device) as Fact).collect();
    HostReport { snapshot: Snapshot::new(now(), facts, Vec::new()), ..report() }
}

pub(super) fn setups() -> Vec<Fact> {
    let mut sent = [0; 8];
    sent[3] = 12;
    let dcb = Dcb {
        pfc: Some(Pfc { enabled: Priorities(8), frames: Some((sent, [0; 8])) }),
        trust: Some(PriorityTrust::Dscp),
        roce_priority: Some(3),
        dcbx: Some("host"),
    };
    let offload = |name, on, fixed| Offload { name, on, fixed };
    let ethernet = NetdevSetup {
        netdev: Arc::from("eth2"),
        pci_address: address("0000:3b:00.0"),
        device: DeviceName::new("bnxt_re0"),
        dcb,
        ecn: None,
        ipoib: None,
        offloads: vec![
            offload("rx-checksum", true, true),
            offload("rx-gro", false, false),
            offload("rx-lro", false, true),
            offload("hw-tc-offload", true, false),
        ],
        at: now().tick,
    };
    let ipoib = NetdevSetup {
        netdev: Arc::from("ib0"),
        pci_address: address("0000:98:00.0"),
        device: DeviceName::new("mlx5_3"),
        dcb: Dcb::default(),
        ipoib: Some(Ipoib { mode: Arc::from("connected"), user_multicast: None }),
        offloads: Vec::new(),
        ..ethernet.clone()
    };
    // An interface that ethtool says nothing of.
    let plain = NetdevSetup {
        netdev: Arc::from("eth9"),
        dcb: Dcb { trust: None, roce_priority: None, dcbx: None, ..dcb },
        offloads: Vec::new(),
        ..ethernet.clone()
    };
    let addressing = PortAddressing {
        port: PortKey { device: DeviceName::new("bnxt_re0"), port: 1 },
        gids: vec![(Arc::from("IB/RoCE v1"), 2), (Arc::from("RoCE v2"), 1)],
        roce_v2: vec![(1, None), (3, Some(Ipv4Addr::new(192, 0, 2, 17)))],
        default_mode: Some(Arc::from("RoCE v2")),
        default_tos: Some(106),
        traffic_class: None,
    };
    let reporter = |name: &str, in_error, errors| Reporter {
        name: Arc::from(name),
        in_error,
        errors,
        recoveries: 2,
        auto_recover: Some(true),
    };
    let health = FunctionHealth {
        pci_address: address("0000:98:00.0"),
        device: DeviceName::new("mlx5_3"),
        reporters: vec![reporter("fw", true, 3), reporter("tx", false, 2)],
    };
    let isolation = |text: &str, acs, ari| PciIsolation { address: address(text), acs: Some(acs), ari, ats: None };
    let isolations = [
        isolation("0000:97:02.0", Acs::Switches(AcsSwitches(0x1d)), None),
        isolation("0000:98:00.0", Acs::None, Some(true)),
        isolation("0000:3a:00.0", Acs::Hidden, None),
        isolation("0000:3b:00.0", Acs::Hidden, Some(true)),
    ];
    let line = NetdevLine { netdev: Arc::from("eth2"), fec: Some(FecMode::Rs), pause: Some((false, false)) };
    let mut facts: Vec<Fact> = vec![
        Arc::new(ethernet),
        Arc::new(ipoib),
        Arc::new(plain),
        Arc::new(addressing),
        Arc::new(line),
        Arc::new(health),
        Arc::new(NetdevLink {
            netdev: Arc::from("eth2"),
            cause: Some(LinkCause { state: 3, substate: Some(1) }),
            answers: 3,
        }),
        Arc::new(NicTemperature {
            pci_address: address("0000:98:00.0"),
            sensor: Arc::from("asic"),
            value: Celsius(61.125),
            critical: Some(Celsius(105.0)),
        }),
    ];
    facts.extend(isolations.map(|isolation| Arc::new(isolation) as Fact));
    facts
}

//! A small host for the tests of this floor, and files that tests keep current.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;

use super::agent::{AgentState, Process};
use crate::assess::lane::{DevicePath, Lanes as HostLanes, PortLane};
use crate::model::check::{Check, Severity, Status};
use crate::model::counter::{self, Class, Counters};
use crate::model::ethtool::{Direction, Meaning, NetdevStatistics, Statistic};
use crate::model::event::{Event, EventKind};
use crate::model::finding::{Condition, Finding, Hold, Subject, Undecided};
use crate::model::holder::Holder;
use crate::model::ids::{DeviceName, Guid, PciAddress, PortKey};
use crate::model::irq::IrqSummary;
use crate::model::kmsg::{self, Driver, KernelLog};
use crate::model::pcie::{Aer, AerClass, FunctionKind, LinkEnd, PciClass, PciFunction};
use crate::model::posture::Posture;
use crate::model::rdma::{
    DeviceIdentity, LinkLayer, PhysicalState, Port, PortRate, PortState, RdmaDevice, RdmaResources, Speed,
};
use crate::model::reading::{Reading, Reason};
use crate::model::snapshot::{CollectorState, Fact, Fault, Snapshot};
use crate::model::sriov::{Detail, Fabric, Mac, Pf, Vf, VfConfig, VfKey, VfLink, VfTraffic, Vlan};
use crate::model::system::System;
use crate::model::time::{Stamp, Tick};
use crate::model::topology::Topology;
use crate::model::units::{BytesPerSecond, Lanes, TransfersPerSecond};
use crate::model::vfmap::{Identity, PfRow, Row, Seen, Tenure, Trust, VfMap};
use crate::watch::Report;

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

pub(super) fn now() -> Stamp {
    Stamp { tick: Tick(7_200_000), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000) }
}

pub(super) fn agent() -> Arc<AgentState> {
    Arc::new(AgentState {
        version: "1.2.3",
        revision: "abc1234",
        reload_successful: true,
        reloaded: Some(now().wall - Duration::from_secs(60)),
    })
}

pub(super) fn process() -> Process {
    Process {
        cpu: Some(Duration::from_millis(1_250)),
        resident_bytes: Some(9_437_184),
        open_fds: Some(130),
        started: Some(1_789_990_000.5),
    }
}

fn end(giga: u64, width: u8, max_giga: u64, max_width: u8) -> LinkEnd {
    LinkEnd {
        speed: Reading::Value(TransfersPerSecond::from_mega(giga * 1_000)),
        width: Reading::Value(Lanes(width)),
        max_speed: Reading::Value(TransfersPerSecond::from_mega(max_giga * 1_000)),
        max_width: Reading::Value(Lanes(max_width)),
        off_bus: false,
    }
}

fn function(text: &str, upstream: Option<&str>, kind: FunctionKind, link: LinkEnd) -> PciFunction {
    PciFunction {
        address: address(text),
        upstream: upstream.map(address),
        link_name: address(text),
        class: Some(PciClass(if upstream.is_none() { 0x06_0400 } else { 0x02_0700 })),
        ids: Some((0x15b3, 0x101b)),
        driver: Some(Arc::from(if upstream.is_none() { "pcieport" } else { "mlx5_core" })),
        numa_node: upstream.map(|_| 1),
        kind,
        vfs_limit: (kind == FunctionKind::Physical).then_some(8),
        vfs_present: (kind == FunctionKind::Physical).then_some(1),
        link,
        aer: Aer::default(),
    }
}

pub(super) fn counters(names: &[(&str, Option<u64>)], hardware: bool) -> Counters {
    let list: Vec<Arc<str>> = names.iter().map(|(name, _)| Arc::from(*name)).collect();
    let (pma, own) = if hardware { counter::layout(&[], &list) } else { counter::layout(&list, &[]) };
    Counters { layout: if hardware { own } else { pma }, values: names.iter().map(|(_, value)| *value).collect() }
}

fn port(number: u32, state: PortState, physical: PhysicalState, gbits: f64, speed: Speed) -> Port {
    Port {
        number,
        link_layer: Some(LinkLayer::InfiniBand),
        state: Reading::Value(state),
        physical_state: Reading::Value(physical),
        rate: Reading::Value(PortRate { bandwidth: BytesPerSecond::from_gbits(gbits), width: Some(4), speed }),
        lid: Some(5),
        sm_lid: Some(1),
        netdev: Some(Arc::from("ib0")),
        guid: Guid::parse("0011:2203:0004:0005"),
        pma: Counters::default(),
        hardware: Counters::default(),
    }
}

fn device(name: &str, pci: Option<&str>, ports: Vec<Port>) -> RdmaDevice {
    RdmaDevice {
        name: DeviceName::new(name),
        identity: Arc::new(DeviceIdentity {
            pci_address: pci.map(address),
            firmware_version: Some(Arc::from("20.31.1014")),
            board_id: Some(Arc::from("TST0000000001")),
            hca_type: Some(Arc::from("MT4123")),
            node_guid: Guid::parse("0011:2203:0004:0004"),
            sys_image_guid: Guid::parse("0011:2203:0004:0004"),
        }),
        ports,
        counters: Counters::default(),
        counters_at: now().tick,
    }
}

fn devices() -> Vec<RdmaDevice> {
    let mut degraded = port(1, PortState::Active, PhysicalState::LinkUp, 200.0, Speed::Hdr);
    degraded.pma = counters(
        &[
            ("port_rcv_data", Some(9_007_199_254_740_993)),
            ("port_xmit_data", Some(12)),
            ("port_rcv_packets", Some(18_446_744_073_709_551_615)),
            ("port_xmit_packets", Some(3)),
            ("port_xmit_wait", Some(17)),
            ("link_downed", Some(255)),
            ("symbol_error", None),
            ("unicast_rcv_packets", Some(7)),
        ],
        false,
    );
    degraded.hardware = counters(&[("out_of_buffer", Some(4)), ("counter_of_tomorrow", Some(1))], true);
    let mut roce = port(1, PortState::Down, PhysicalState::Disabled, 40.0, Speed::Qdr);
    roce.link_layer = Some(LinkLayer::Ethernet);
    roce.netdev = Some(Arc::from("eth2"));
    roce.hardware = counters(&[("active_qps", Some(6)), ("rx_bytes", Some(99)), ("rx_pkts", Some(2))], true);
    let mut odd = device("bnxt_re0", Some("0000:3b:00.0"), vec![roce]);
    odd.identity = Arc::new(DeviceIdentity {
        board_id: Some(Arc::from("a \"quoted\" board\\\nsecond line")),
        pci_address: Some(address("0000:3b:00.0")),
        ..DeviceIdentity::default()
    });
    odd.counters = counters(&[("keep_alive_rcvd", Some(8)), ("active_ahs", Some(3))], true);
    let mut bare = port(1, PortState::Init, PhysicalState::LinkUp, 100.0, Speed::Edr);
    bare.state = Reading::Unreadable(Reason::Io);
    bare.physical_state = Reading::Absent;
    // Not in natural order, on purpose.
    vec![
        device("mlx5_10", Some("0000:98:00.1"), vec![bare]),
        device("mlx5_3", Some("0000:98:00.0"), vec![degraded]),
        odd,
        RdmaDevice { identity: Arc::default(), ..device("rxe0", None, Vec::new()) },
    ]
}

fn functions() -> Vec<PciFunction> {
    let mut root = function("0000:97:02.0", None, FunctionKind::Plain, end(8, 8, 16, 16));
    root.aer.root_totals = [Some(2), Some(0), Some(0)];
    let mut pf = function("0000:98:00.0", Some("0000:97:02.0"), FunctionKind::Physical, end(8, 8, 16, 16));
    pf.aer.classes = [
        Some(AerClass { errors: vec![(Arc::from("RxErr"), 2), (Arc::from("BadTLP"), 0)], total: 2 }),
        Some(AerClass::default()),
        None,
    ];
    let mut vf = function(
        "0000:98:00.1",
        Some("0000:97:02.0"),
        FunctionKind::Virtual { pf: Some(address("0000:98:00.0")) },
        LinkEnd::default(),
    );
    vf.link_name = address("0000:98:00.0");
    vf.aer = pf.aer.clone();
    let unknown = function("0000:3b:00.0", Some("0000:3a:00.0"), FunctionKind::Plain, LinkEnd::default());
    vec![vf, pf, root, unknown]
}

/// The PF at 0000:98:00.0 with its VF.
fn pf() -> Pf {
    let config = VfConfig {
        mac: Some(Mac([2, 0, 0, 0, 0, 7])),
        vlan: Some(Vlan { id: 42, qos: 0, protocol: Some(0x8100) }),
        trust: Some(false),
        link: Some(VfLink::Auto),
        ..VfConfig::default()
    };
    let traffic = VfTraffic { received_bytes: Some(9_007_199_254_740_993), ..VfTraffic::default() };
    let vf = Vf {
        number: 0,
        address: Some(address("0000:98:00.1")),
        driver: Some(Arc::from("vfio-pci")),
        iommu_group: Some(40),
        config: Some(config),
        traffic: Some(traffic),
        ..Vf::default()
    };
    Pf {
        address: address("0000:98:00.0"),
        driver: Some(Arc::from("mlx5_core")),
        fabric: Some(Fabric::Ethernet),
        limit: Some(8),
        configured: None,
        reported: Some(1),
        announced: Some(1),
        netdevs: vec![Arc::from("ens1")],
        devices: vec![DeviceName::new("mlx5_3")],
        up: Reading::Value(true),
        switchdev: false,
        probe: None,
        detail: Detail::Full,
        vfs: vec![vf],
    }
}

/// Who holds that VF.
fn vf_map() -> VfMap {
    let pf = address("0000:98:00.0");
    let holder = Holder::Vm(Arc::from("vm1"));
    let since = now().wall - Duration::from_secs(60);
    let tenure = Tenure { holder: holder.clone(), pid: Some(20), since, identity: Identity::default(), config: None };
    let row = Row {
        address: Some(address("0000:98:00.1")),
        driver: Some(Arc::from("vfio-pci")),
        iommu_group: Some(40),
        identity: Identity::default(),
        holder,
        tenure: Some(tenure),
        trust: Trust::Verified(since),
        instance: None,
        mark: None,
    };
    let mut map = VfMap::default();
    map.pfs.insert(pf, PfRow { generation: 3, changed: Some(since), probe: None });
    map.rows.insert(VfKey { pf, vf: 0 }, row);
    if let Some(seen) = map.signals.first_mut() {
        *seen = Seen { count: 1, last: Some(since) };
    }
    map
}

fn finding() -> Finding {
    Finding {
        condition: Condition {
            check: Check::PcieBelowPortRate,
            subject: Subject::Port(PortKey { device: DeviceName::new("mlx5_3"), port: 1 }),
            severity: Severity::Critical,
            reason: "link_degraded",
            summary: "The PCIe path of mlx5_3/1 carries 63.0 Gb/s of 200 Gb/s.".to_owned(),
            device: Some(DeviceName::new("mlx5_3")),
            port: Some(1),
            pci_address: Some(address("0000:98:00.0")),
            evidence: [("port_rate_bytes_per_second".to_owned(), json!(25_000_000_000_u64))].into_iter().collect(),
            hold: Hold::None,
            quiet: Duration::ZERO,
        },
        since: Tick(3_600_000),
    }
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
            (key("mlx5_3"), PortLane { rate: Some(BytesPerSecond(25e9)), ceiling, share: ceiling }),
            (key("bnxt_re0"), PortLane::default()),
        ]),
        demand: BTreeMap::new(),
    }
}

fn statistics() -> NetdevStatistics {
    let known = [
        ("rx_discards_phy", Meaning::Event(Class::Congestion), 7),
        ("rx_prio3_pause", Meaning::PfcFrames { priority: 3, direction: Direction::Received }, 9),
        (
            "tx_prio3_pause_duration",
            Meaning::PauseMicroseconds { priority: Some(3), direction: Direction::Transmitted },
            1_500_000,
        ),
        ("rx_global_pause_duration", Meaning::PauseMicroseconds { priority: None, direction: Direction::Received }, 1),
        ("outbound_pci_stalled_rd", Meaning::Percent, 12),
    ];
    NetdevStatistics {
        netdev: Arc::from("eth2"),
        pci_address: address("0000:3b:00.0"),
        device: DeviceName::new("bnxt_re0"),
        layout: known
            .iter()
            .map(|(name, meaning, _)| Statistic { name: Arc::from(*name), meaning: *meaning })
            .collect(),
        values: known.iter().map(|(_, _, value)| *value).collect(),
        at: now().tick,
    }
}

fn kernel_log() -> KernelLog {
    let counts = vec![((Driver::Mlx5Core, kmsg::Kind::DeviceHealth), 1), ((Driver::VfioPci, kmsg::Kind::VfioError), 0)];
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
pub(super) fn report() -> Report {
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
        Arc::new(posture()),
    ];
    facts.extend(devices().into_iter().map(|device| Arc::new(device) as Fact));
    facts.extend(functions.into_iter().map(|function| Arc::new(function) as Fact));
    let rdma = CollectorState {
        name: "rdma",
        success: true,
        listed: Some(Arc::from([Arc::from("mlx5_3")])),
        duration: Duration::from_micros(1_500),
        last_success: Some(now()),
        stuck: Vec::new(),
        faults: vec![Fault { source: Arc::from("sys/class/infiniband/mlx5_10/ports/1/state"), reason: Reason::Io }],
        errors: [1, 0, 2, 0, 0, 0, 0],
        quarantined: 1,
    };
    let pci = CollectorState { name: "pci", stuck: vec![Arc::from("0000:3b:00.0")], ..CollectorState::default() };
    Report {
        snapshot: Snapshot::new(now(), facts, vec![rdma, pci]),
        topology,
        lanes: lanes(),
        findings: vec![finding()],
        recovered: Vec::new(),
        excepted: vec![(
            Finding { condition: Condition { check: Check::PcieLimitedBySlot, ..finding().condition }, ..finding() },
            Arc::from("old board, known"),
        )],
        undecided: vec![Undecided {
            check: Check::PortDown,
            subject: Subject::Port(PortKey { device: DeviceName::new("mlx5_10"), port: 1 }),
            reason: Some(Reason::Io),
        }],
        standings: BTreeMap::from([(Check::PcieBelowPortRate, [1, 0, 1, 0, 0]), (Check::PortDown, [1, 0, 0, 1, 0])]),
        status: Status::Critical,
        limited: vec![Arc::from("Holders of VFs are hidden.")],
        events: Arc::from([Event {
            time: "2026-09-21T13:33:20Z".to_owned(),
            kind: EventKind::LinkChanged,
            subject: "0000:98:00.0".to_owned(),
            text: "16 GT/s x16 became 8 GT/s x8.".to_owned(),
        }]),
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
        evaluated: now().wall,
    }
}

/// A report of these devices and nothing else.
pub(super) fn report_of(devices: Vec<RdmaDevice>) -> Report {
    let facts: Vec<Fact> = devices.into_iter().map(|device| Arc::new(device) as Fact).collect();
    Report { snapshot: Snapshot::new(now(), facts, Vec::new()), ..report() }
}

//! Devices, functions and VFs of the host that tests speak of.

use super::{address, now};
use crate::model::benchmark::{
    Benchmark, BenchmarkHistories, BenchmarkHistory, BenchmarkKey, BenchmarkRun, Direction, Good, Measurements,
    RunResult, SkipReason, Statistic,
};
use crate::model::counter::{self, Counters};
use crate::model::holder::{Holder, Vm};
use crate::model::ids::{DeviceName, Guid, PortKey};
use crate::model::pcie::{AerClass, FunctionKind, LinkEnd, PciClass, PciFunction};
use crate::model::rdma::{DeviceIdentity, LinkLayer, PhysicalState, Port, PortRate, PortState, RdmaDevice, Speed};
use crate::model::reading::{ReadError, Reading};
use crate::model::sriov::{Fabric, Mac, Pf, Vf, VfConfig, VfDetail, VfKey, VfLink, VfTraffic, Vlan};
use crate::model::units::{BytesPerSecond, Lanes, TransfersPerSecond};
use crate::model::vfmap::{MappedPf, MappedVf, Signal, SignalCount, Tenure, Verification, VfIdentity, VfMap};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn end(giga: u64, width: u8, max_giga: u64, max_width: u8) -> LinkEnd {
    LinkEnd {
        speed: Reading::Value(TransfersPerSecond::from_mega(giga * 1_000)),
        width: Reading::Value(Lanes(width)),
        max_speed: Reading::Value(TransfersPerSecond::from_mega(max_giga * 1_000)),
        max_width: Reading::Value(Lanes(max_width)),
        off_bus: false,
    }
}

pub(super) fn function(text: &str, upstream: Option<&str>, kind: FunctionKind, link: LinkEnd) -> PciFunction {
    PciFunction {
        upstream: upstream.map(address),
        class: Some(PciClass(if upstream.is_none() { 0x06_0400 } else { 0x02_0700 })),
        ids: Some((0x15b3, 0x101b)),
        driver: Some(Arc::from(if upstream.is_none() { "pcieport" } else { "mlx5_core" })),
        numa_node: upstream.map(|_| 1),
        kind,
        vfs_limit: (kind == FunctionKind::Physical).then_some(8),
        vfs_present: (kind == FunctionKind::Physical).then_some(1),
        link,
        ..PciFunction::at(address(text))
    }
}

pub(in crate::export) fn counters(names: &[(&str, Option<u64>)], hardware: bool) -> Counters {
    let list: Vec<Arc<str>> = names.iter().map(|(name, _)| Arc::from(*name)).collect();
    let (pma, own) = if hardware { counter::layout(&[], &list) } else { counter::layout(&list, &[]) };
    Counters { layout: if hardware { own } else { pma }, values: names.iter().map(|(_, value)| *value).collect() }
}

pub(super) fn port(number: u32, state: PortState, physical: PhysicalState, gbits: f64, speed: Speed) -> Port {
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

pub(super) fn device(name: &str, pci: Option<&str>, ports: Vec<Port>) -> RdmaDevice {
    RdmaDevice {
        name: DeviceName::new(name),
        identity: Arc::new(DeviceIdentity {
            sub_function: None,
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

pub(super) fn devices() -> Vec<RdmaDevice> {
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
    bare.state = Reading::Unreadable(ReadError::Io);
    bare.physical_state = Reading::Absent;
    // Not in natural order, on purpose.
    vec![
        device("mlx5_10", Some("0000:98:00.1"), vec![bare]),
        device("mlx5_3", Some("0000:98:00.0"), vec![degraded]),
        odd,
        RdmaDevice { identity: Arc::default(), ..device("rxe0", None, Vec::new()) },
    ]
}

pub(super) fn functions() -> Vec<PciFunction> {
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
pub(super) fn pf() -> Pf {
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
        iommu_group: None,
        node: None,
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
        detail: VfDetail::Full,
        vfs: vec![vf],
    }
}

/// Who holds that VF.
pub(super) fn vf_map() -> VfMap {
    let pf = address("0000:98:00.0");
    let holder = Holder::Vm(Vm::new("vm1"));
    let since = now().wall - Duration::from_secs(60);
    let tenure = Tenure {
        holder: holder.clone(),
        pid: Some(20),
        since,
        identity: VfIdentity::default(),
        config: None,
        arrival: false,
    };
    let row = MappedVf {
        address: Some(address("0000:98:00.1")),
        driver: Some(Arc::from("vfio-pci")),
        iommu_group: Some(40),
        identity: VfIdentity::default(),
        holder,
        last_known: None,
        lost_by: None,
        tenure: Some(tenure),
        verification: Verification::Verified(since),
        instance: None,
        mark: None,
    };
    let mut map = VfMap::default();
    map.pfs.insert(pf, MappedPf { generation: 3, changed: Some(since), probe: None });
    map.vfs.insert(VfKey { pf, vf: 0 }, row);
    map.signals.insert(Signal::DomainAppeared, SignalCount { count: 1, last: Some(since) });
    map
}

/// A loopback that ran once and was skipped once.
pub(super) fn probes() -> BenchmarkHistories {
    let port = PortKey { device: DeviceName::new("mlx5_3"), port: 1 };
    let key = BenchmarkKey { probe: Benchmark::RdmaLoopback, port: Some(port) };
    let run = BenchmarkRun {
        key: key.clone(),
        at: now().wall - Duration::from_secs(600),
        took: Duration::from_millis(7_250),
        result: RunResult::Ok(Good::NearCeiling),
        text: Arc::from("60.3 Gb/s is 96 % of the PCIe path (63.0): PCIe-bound, not SR-IOV, not the cable"),
        measured: Measurements {
            bandwidth: vec![(Direction::OneWay, 7_532_500_000.0)],
            latency: vec![(Direction::Write, Statistic::P99, 2.5e-6)],
        },
        ceiling: Some(BytesPerSecond(7.2e9)),
        profile: Arc::from("write 1048576 B x 4 queue pairs, 5 s"),
        peer: None,
        function: None,
    };
    let mut past = BenchmarkHistory::default();
    past.record(run.clone());
    past.record(BenchmarkRun { result: RunResult::Skipped(SkipReason::PortBusy), ..run });
    BenchmarkHistories::from([(key, past)])
}

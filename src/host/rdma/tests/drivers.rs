//! What each driver's tree becomes.

use super::*;
use crate::model::counter::{CounterClass, CounterKind};
use crate::model::ids::Guid;
use crate::model::rdma::{LinkLayer, PhysicalState, PortState, Speed};
use crate::model::reading::Reading;

#[test]
fn no_class_is_no_device() {
    let tree = Tree::default();
    tree.text("kernel/notes", "x");
    assert!(Bench::new(&tree).readers.is_empty());
}

#[test]
fn mlx5_on_infiniband() {
    let mut bench = Bench::new(&infiniband());
    let device = bench.device(0);
    let port = &device.ports[0];
    assert_eq!(device.identity.pci_address.map(|a| a.to_string()).as_deref(), Some("0000:41:00.0"));
    assert_eq!(device.identity.firmware_version.as_deref(), Some("20.35.1012"));
    assert_eq!(device.identity.board_id.as_deref(), Some("MT_0000000223"));
    assert_eq!(device.identity.hca_type.as_deref(), Some("MT4123"));
    assert_eq!(device.identity.node_guid, Some(Guid(0x0c42_a103_0065_2ee2)));
    assert_eq!((port.number, port.state), (1, Reading::Value(PortState::Active)));
    assert_eq!(port.physical_state, Reading::Value(PhysicalState::LinkUp));
    assert_eq!(port.rate.value().map(|rate| (rate.width, rate.speed)), Some((Some(4), Speed::Hdr)));
    assert_eq!((port.lid, port.sm_lid, port.netdev.as_deref()), (Some(0x364), Some(1), None));
    assert_eq!(port.guid, Some(Guid(0x0c42_a103_0065_2ee2)));
    assert_eq!(port.link_layer, Some(LinkLayer::InfiniBand));
    assert_eq!(names(&port.pma), ["link_downed", "port_rcv_data", "port_xmit_data", "unicast_rcv_packets"]);
    // The counter whose reading refreshes mlx5's whole set comes first.
    assert_eq!(names(&port.hardware), ["rx_write_requests", "duplicate_request", "out_of_buffer"]);
    assert_eq!((port.counter("port_xmit_data"), port.counter("out_of_buffer")), (Some(2000), Some(3)));
    assert!(bench.faults.is_empty(), "{:?}", bench.faults);
}

#[test]
fn mlx5_on_ethernet_names_its_interface() {
    let tree = infiniband();
    tree.text(&format!("{REAL}/ports/1/link_layer"), "Ethernet")
        .text(&format!("{REAL}/ports/1/gid_attrs/ndevs/0"), "enp65s0f0np0")
        .texts(&format!("{REAL}/ports/1"), &[("lid", "0x0"), ("sm_lid", "0x0"), ("rate", "100 Gb/sec (2X HDR)")])
        .text(&format!("{REAL}/ports/1/hw_counters/np_cnp_sent"), "9");
    let device = Bench::new(&tree).device(0);
    let port = &device.ports[0];
    assert_eq!(port.link_layer, Some(LinkLayer::Ethernet));
    assert_eq!((port.netdev.as_deref(), port.lid), (Some("enp65s0f0np0"), None));
    assert_eq!(port.rate.value().and_then(|rate| rate.width), Some(2));
    assert_eq!(port.counter("np_cnp_sent"), Some(9));
}

#[test]
fn a_sub_function_belongs_to_the_pci_function_above_it() {
    let tree = infiniband();
    tree.link("class/infiniband/mlx5_9", "../../devices/pci0000:40/0000:41:00.1/mlx5_core.sf.2/infiniband/mlx5_9")
        .link("devices/pci0000:40/0000:41:00.1/mlx5_core.sf.2/infiniband/mlx5_9/device", "../../../mlx5_core.sf.2")
        .text("devices/pci0000:40/0000:41:00.1/mlx5_core.sf.2/infiniband/mlx5_9/fw_ver", "");
    let devices = Bench::new(&tree).devices(0, Depth::Full);
    assert_eq!(devices[1].identity.pci_address.map(|a| a.to_string()).as_deref(), Some("0000:41:00.1"));
    assert_eq!(devices[1].identity.firmware_version, None);
}

#[test]
fn a_software_device_has_no_pci_function() {
    let tree = Tree::default();
    tree.texts("class/infiniband/rxe0", &[("parent", "eth0"), ("node_guid", "5054:00ff:fe12:3456")])
        .texts("class/infiniband/rxe0/ports/1", &[("state", "1: DOWN"), ("phys_state", "2: Polling")]);
    let device = Bench::new(&tree).device(0);
    assert_eq!(device.identity.pci_address, None);
    assert_eq!(device.ports[0].physical_state, Reading::Value(PhysicalState::Polling));
}

#[test]
fn mlx4_has_two_ports_and_a_directory_that_is_none_of_ours() {
    let tree = Tree::default();
    for (port, data) in [("1", "11"), ("2", "22")] {
        let dir = format!("class/infiniband/mlx4_0/ports/{port}");
        tree.texts(
            &dir,
            &[
                ("state", "4: ACTIVE"),
                ("rate", "10 Gb/sec (4X)"),
                ("link_layer", "InfiniBand\n"),
                ("counters/port_rcv_data", data),
                ("counters_ext/port_rcv_data_64", "999"),
            ],
        );
    }
    tree.text("class/infiniband/mlx4_0/ports/.hidden", "").text("class/infiniband/mlx4_0/ports/01/state", "1: DOWN");
    let device = Bench::new(&tree).device(0);
    assert_eq!(device.ports.iter().map(|port| port.number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(device.ports[1].counter("port_rcv_data"), Some(22));
    assert_eq!(device.ports[1].rate.value().map(|rate| rate.speed), Some(Speed::Sdr));
    assert_eq!(device.ports[1].link_layer, Some(LinkLayer::InfiniBand));
    assert_eq!(tree.opened("counters_ext"), 0);
}

#[test]
fn hfi1_has_a_sentence_for_a_board_and_commas_in_names() {
    let tree = Tree::default();
    tree.text("class/infiniband/hfi1_0/board_id", "ACME 100Gb 1-port Omni-Path Adapter x16")
        .text("class/infiniband/hfi1_0/hw_counters/RxTIDFullEr,32", "4")
        .text("class/infiniband/hfi1_0/ports/1/state", "4: ACTIVE");
    let device = Bench::new(&tree).device(0);
    assert_eq!(device.identity.board_id.as_deref(), Some("ACME 100Gb 1-port Omni-Path Adapter x16"));
    assert_eq!(device.identity.hca_type, None);
    assert_eq!(device.counters.get("RxTIDFullEr,32"), Some(4));
}

#[test]
fn of_hundreds_of_counters_those_with_a_meaning_are_read() {
    let tree = Tree::default();
    for context in 0..200 {
        tree.text(&format!("class/infiniband/hfi1_0/ports/1/hw_counters/Ctx{context},32"), "1");
    }
    tree.text("class/infiniband/hfi1_0/ports/1/hw_counters/local_ack_timeout_err", "6");
    let device = Bench::new(&tree).device(0);
    assert_eq!(names(&device.ports[0].hardware), ["local_ack_timeout_err"]);
    assert_eq!(tree.opened("Ctx"), 0);
}

#[test]
fn irdma_has_no_performance_counters() {
    let tree = Tree::default();
    tree.texts(
        "class/infiniband/irdma0/ports/1",
        &[("state", "1: DOWN"), ("phys_state", "3: Disabled"), ("hw_counters/ip4InOctets", "77")],
    );
    let mut bench = Bench::new(&tree);
    let device = bench.device(0);
    assert!(device.ports[0].pma.layout.is_empty());
    assert_eq!(device.ports[0].counter("ip4InOctets"), Some(77));
    assert!(bench.faults.is_empty(), "{:?}", bench.faults);
}

#[test]
fn bnxt_levels_are_no_events() {
    let tree = Tree::default();
    tree.texts("class/infiniband/bnxt_re0/ports/1/hw_counters", &[("active_qps", "12"), ("rx_bytes", "5")]);
    let device = Bench::new(&tree).device(0);
    let hardware = &device.ports[0].hardware;
    let meanings: Vec<CounterKind> = hardware.iter().map(|(counter, _)| counter.meaning).collect();
    assert_eq!(meanings, [CounterKind::Level, CounterKind::ReceivedBytes { unit: 1 }]);
}

#[test]
fn efa_counts_at_the_device_and_has_a_layer_of_its_own() {
    let tree = Tree::default();
    tree.text("class/infiniband/rdmap0s6/hw_counters/submitted_cmds", "40")
        .texts("class/infiniband/rdmap0s6/ports/1", &[("link_layer", "Unspecified"), ("hw_counters/rx_drops", "2")]);
    let device = Bench::new(&tree).device(0);
    assert_eq!(device.ports[0].link_layer, Some(LinkLayer::Other("Unspecified".into())));
    assert_eq!(device.counters.get("submitted_cmds"), Some(40));
    assert_eq!(device.ports[0].counter("rx_drops"), Some(2));
}

#[test]
fn qib_counters_stand_at_32_bits() {
    let tree = Tree::default();
    tree.texts("class/infiniband/qib0/ports/1/counters", &[("port_rcv_data", "4294967295"), ("symbol_error", "0")]);
    let device = Bench::new(&tree).device(0);
    let port = &device.ports[0];
    assert_eq!(port.pma.saturated().map(|counter| counter.name.to_string()).collect::<Vec<_>>(), ["port_rcv_data"]);
    let symbol = port.pma.layout.iter().find(|counter| &*counter.name == "symbol_error").unwrap();
    assert_eq!(symbol.meaning, CounterKind::Event(CounterClass::Error));
}

#[test]
fn old_kernels_write_that_there_is_no_counter() {
    let tree = Tree::default();
    tree.texts("class/infiniband/i40iw0/ports/1/counters", &[("symbol_error", "N/A (no PMA)")]);
    let mut bench = Bench::new(&tree);
    assert_eq!(bench.device(0).ports[0].counter("symbol_error"), None);
    assert_eq!(bench.faults.len(), 1);
    assert_eq!(bench.faults[0].1, ReadError::NotSupported);
    assert_eq!(bench.quarantined(), 1);
}

#[test]
fn a_text_that_is_no_guid_costs_only_itself() {
    let tree = infiniband();
    tree.text(&format!("{REAL}/node_guid"), "not a guid");
    let mut bench = Bench::new(&tree);
    let device = bench.device(0);
    assert_eq!(device.identity.node_guid, None);
    assert!(device.identity.sys_image_guid.is_some());
    assert_eq!(bench.faults, [(format!("/sys/{REAL}/node_guid"), ReadError::Malformed)]);
}

#[test]
fn devices_are_listed_as_people_count() {
    let tree = Tree::default();
    for name in ["mlx5_10", "mlx5_2", ".placeholder"] {
        tree.text(&format!("class/infiniband/{name}/fw_ver"), "1");
    }
    let mut bench = Bench::new(&tree);
    let mut cx = ReadContext::new(&bench.host, BootTime(0), Depth::Full);
    let keys: Vec<_> = bench.collector.discover(&mut cx).unwrap().iter().map(|found| found.key.to_string()).collect();
    assert_eq!(keys, ["mlx5_2", "mlx5_10"]);
}

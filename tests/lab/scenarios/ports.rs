//! Ports and their counters: Soft-RoCE and the stand-in, InfiniBand and RoCE.

use serde_json::json;

use crate::common::exposition::Sample;
use crate::guest::{Guest, Kernel, on_each_kernel};
use crate::oracle::every_sample_is_the_kernels;

/// No hold times: what is there is found in the next pass.
const AT_ONCE: &str = "[policy.hold]\nport_down = \"0s\"\nport_rate_low = \"0s\"\n";

fn soft_roce_counts(kernel: Kernel) {
    let Some(mut guest) = Guest::boot(kernel) else { return };
    guest.soft_roce();
    guest.serve("");
    guest.wait_for("lanewatch_port_state", &[("device", "rxe0"), ("state", "ACTIVE")], Some(1.0));
    guest.sh("(ib_write_bw -d rxe0 -x 1 -n 200 -s 4096 -F > /tmp/server 2>&1 &)");
    guest.until("grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6");
    guest.sh("ib_write_bw -d rxe0 -x 1 -n 200 -s 4096 -F 127.0.0.1");
    let families = every_sample_is_the_kernels(&mut guest);
    assert!(families["lanewatch_port_events_total"] > 20 && families["lanewatch_port_info"] == 2, "{families:?}");
    let sent = guest.value("lanewatch_port_transmitted_packets_total", &[("device", "rxe0"), ("port", "1")]);
    assert!(sent.is_some_and(|packets| packets > 200.0), "{sent:?}");
}

#[test]
fn soft_roce_counts_as_the_kernel_does() {
    on_each_kernel(soft_roce_counts);
}

/// Families of ports and PCIe links that the stand-in must have, and how many samples of each at least.
const FAMILIES: &[(&str, usize)] = &[
    ("lanewatch_device_info", 2),
    ("lanewatch_rdma_resources", 14),
    ("lanewatch_port_info", 2),
    ("lanewatch_port_state", 12),
    ("lanewatch_port_physical_state", 14),
    ("lanewatch_port_rate_bytes_per_second", 2),
    ("lanewatch_port_ceiling_bytes_per_second", 2),
    ("lanewatch_port_share_bytes_per_second", 2),
    ("lanewatch_port_received_bytes_total", 2),
    ("lanewatch_port_transmitted_bytes_total", 2),
    ("lanewatch_port_received_packets_total", 2),
    ("lanewatch_port_transmitted_packets_total", 2),
    ("lanewatch_port_transmit_wait_ticks_total", 2),
    ("lanewatch_port_events_total", 60),
    ("lanewatch_port_saturated_counters", 2),
    ("lanewatch_port_gids", 2),
    ("lanewatch_pcie_link_speed_transfers_per_second", 2),
    ("lanewatch_pcie_link_max_speed_transfers_per_second", 2),
    ("lanewatch_pcie_link_capable_speed_transfers_per_second", 2),
    ("lanewatch_pcie_link_width_lanes", 2),
    ("lanewatch_pcie_link_max_width_lanes", 2),
    ("lanewatch_pcie_link_capable_width_lanes", 2),
    ("lanewatch_pcie_link_current_bandwidth_bytes_per_second", 2),
    ("lanewatch_pcie_link_capable_bandwidth_bytes_per_second", 2),
    ("lanewatch_pcie_path_bandwidth_bytes_per_second", 2),
    ("lanewatch_pcie_path_info", 2),
    ("lanewatch_pcie_path_link", 2),
    ("lanewatch_pcie_aer_events_total", 12),
    ("lanewatch_pcie_aer_errors_total", 2),
    ("lanewatch_pcie_aer_root_port_messages_total", 6),
];

fn stand_in_counts(kernel: Kernel) {
    let Some(mut guest) = Guest::boot(kernel) else { return };
    guest.call("fake_link", &json!({"bdf": "41:00.0", "speed": 3, "width": 8}));
    guest.call("fake_link", &json!({"bdf": "81:00.0", "speed": 3, "width": 8, "cap_speed": 4, "cap_width": 16}));
    guest.stand_in();
    guest.call("enable_error_reports", &json!({"bdf": "41:00.0"}));
    let traffic = [
        ("xmit_data", (1_u64 << 53) + 4),
        ("rcv_data", 98_765_432_109_876),
        ("xmit_packets", 1_122_334_455),
        ("rcv_packets", 5_544_332_211),
        ("xmit_wait", 777),
        ("symbol_error", 120),
        ("link_error_recovery", 3),
        ("rcv_errors", 17),
        ("xmit_discards", 9),
        ("out_of_buffer", 42),
        ("out_of_sequence", 7),
        ("packet_seq_err", 5),
        ("local_ack_timeout_err", 3),
    ];
    guest.set("mlx5_0", &traffic);
    guest.set("mlx5_1", &[("link_downed", 300), ("vl15_dropped", 70_000)]);
    guest.call("hmp", &json!({"line": "pcie_aer_inject_error -c igb0 0x40"}));
    guest.call("hmp", &json!({"line": "pcie_aer_inject_error -c rp0 0x1"}));
    guest.serve("");
    let total = [("pci_address", "0000:40:00.0"), ("class", "correctable")];
    guest.wait_for("lanewatch_pcie_aer_events_total", &total, Some(1.0));
    let families = every_sample_is_the_kernels(&mut guest);
    for (family, least) in FAMILIES {
        assert!(families.get(*family).is_some_and(|count| count >= least), "{family} of {families:?}");
    }
    // 2^53 + 4 words of four bytes: exact beyond what a float holds.
    let transmitted = guest
        .scrape()
        .into_iter()
        .find(|sample| sample.name == "lanewatch_port_transmitted_bytes_total" && sample.labels["device"] == "mlx5_0");
    assert_eq!(transmitted.map(|sample| sample.text).as_deref(), Some("36028797018963984"));
}

#[test]
fn infiniband_roce_and_their_links_are_as_the_kernel_says() {
    on_each_kernel(stand_in_counts);
}

#[test]
fn a_port_goes_down_and_comes_back() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.stand_in();
        guest.set("mlx5_0", &[("rcv_packets", 4711)]);
        guest.serve(AT_ONCE);
        let active = [("device", "mlx5_0"), ("port", "1"), ("state", "ACTIVE")];
        guest.wait_for("lanewatch_port_state", &active, Some(1.0));
        assert_eq!(guest.value("lanewatch_port_rate_bytes_per_second", &active[..2]), Some(50e9));

        guest.set("mlx5_0", &[("state", 1), ("phys_state", 2), ("event", 10)]);
        guest.wait_for("lanewatch_port_state", &active, Some(0.0));
        guest.wait_for_finding("port_down", "mlx5_0/1", true);
        assert_eq!(guest.check_finds("port_down", "mlx5_0/1", true).as_deref(), Some("polling"));
        guest.until("{ lanewatch check --sample 0s --timeout 60s >/dev/null; [ $? = 2 ]; }");
        guest.wait_for_event("port_state", "mlx5_0/1");

        guest.set("mlx5_0", &[("state", 4), ("phys_state", 5), ("event", 9)]);
        guest.wait_for_finding("port_down", "mlx5_0/1", false);
        guest.wait_for("lanewatch_port_state", &active, Some(1.0));
        guest.check_finds("port_down", "mlx5_0/1", false);

        // A RoCE port follows its interface.
        guest.sh("ip link set pf1 down");
        guest.wait_for("lanewatch_port_state", &[("device", "mlx5_1"), ("state", "ACTIVE")], Some(0.0));
    });
}

#[test]
fn a_flap_shorter_than_a_scrape_is_found_by_its_counter() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.stand_in();
        guest.set("mlx5_0", &[("rcv_packets", 4711), ("link_downed", 1)]);
        // The first half hour after boot stands apart.
        guest.serve("[policy.threshold]\nsettle = \"0s\"\n");
        guest.scrape();
        guest.set("mlx5_0", &[("state", 1), ("link_downed", 2), ("state", 4)]);
        guest.wait_for_finding("port_flapping", "mlx5_0/1", true);
        guest.wait_for_event("port_flap", "mlx5_0/1");
    });
}

#[test]
fn counters_saturate_and_refuse_without_harm_to_the_others() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.stand_in();
        guest.serve("");
        guest.set("mlx5_0", &[("symbol_error", 70_000), ("link_downed", 300), ("rcv_errors", 70_000)]);
        guest.wait_for("lanewatch_port_saturated_counters", &[("device", "mlx5_0")], Some(3.0));
        guest.wait_for_finding("port_counter_saturated", "mlx5_0/1", true);
        guest.check_finds("port_counter_saturated", "mlx5_0/1", true);

        let others = |guest: &Guest| {
            let scrape = guest.scrape();
            let of = |sample: &&Sample| sample.labels.get("device").is_some_and(|device| device == "mlx5_1");
            scrape
                .iter()
                .filter(of)
                .map(|sample| (sample.name.clone(), sample.labels.clone(), sample.text.clone()))
                .collect::<Vec<_>>()
        };
        let whole = others(&guest);
        guest.set("mlx5_0", &[("mad_fail", 1)]);
        guest.wait_for("lanewatch_port_events_total", &[("device", "mlx5_0"), ("counter", "symbol_error")], None);
        assert_eq!(others(&guest), whole);
        assert_eq!(guest.value("lanewatch_port_rate_bytes_per_second", &[("device", "mlx5_0")]), Some(50e9));
        guest.set("mlx5_0", &[("mad_fail", 0)]);
    });
}

#[test]
fn files_and_netlink_say_the_same() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.soft_roce();
        guest.sh("rdma link delete rxe1");
        guest.sh("modprobe labib pci=0000:81:00.0 roce=0");
        guest.until("[ -d /sys/class/infiniband/mlx5_0/ports/1/counters ]");
        let families = "lanewatch_port_\\|lanewatch_device_info";
        let by = |guest: &mut Guest, flag: &str| {
            guest.sh(&format!("lanewatch metrics {flag} 2>/dev/null | grep '^\\({families}\\)' | sort"))
        };
        let (mut netlink, mut files) = (String::new(), String::new());
        for _ in 0..5 {
            (netlink, files) = (by(&mut guest, ""), by(&mut guest, "--no-collector.rdma_netlink"));
            // On a busy host a device may be late for one of the two looks.
            if netlink == files {
                break;
            }
        }
        assert_eq!(netlink, files);
        assert!(files.lines().count() > 40, "{files}");
    });
}

/// Speeds and widths as the stand-in takes them: from 2.5 Gb/s to 800.
const RATES: [(u64, u64); 12] =
    [(1, 1), (2, 2), (4, 2), (8, 2), (16, 2), (32, 2), (32, 8), (64, 16), (64, 2), (128, 1), (128, 4), (256, 2)];

/// Bytes a second, lanes and speed as the kernel names them: `200 Gb/sec (4X HDR)`.
fn rate_of_mlx5_0(guest: &mut Guest) -> (f64, String, String) {
    let text = guest.sh("cat /sys/class/infiniband/mlx5_0/ports/1/rate");
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [gigabits, "Gb/sec", lanes, name] = words[..] else { panic!("{text}") };
    let rate = gigabits.parse::<f64>().unwrap() * 1e9 / 8.0;
    (rate, lanes.trim_start_matches('(').to_owned(), name.trim_end_matches(')').to_owned())
}

#[test]
fn rates_are_what_the_kernel_calls_them() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.stand_in();
        guest.serve("");
        let (mut fastest, ..) = rate_of_mlx5_0(&mut guest);
        for (speed, width) in RATES {
            guest.set("mlx5_0", &[("speed", speed), ("width", width)]);
            let (rate, lanes, name) = rate_of_mlx5_0(&mut guest);
            let (lanes, name) = (lanes.as_str(), name.as_str());
            guest.wait_for("lanewatch_port_rate_bytes_per_second", &[("device", "mlx5_0"), ("port", "1")], Some(rate));
            let width = lanes.trim_end_matches('X').parse().unwrap();
            guest.wait_for("lanewatch_port_link_width", &[("device", "mlx5_0"), ("port", "1")], Some(width));
            // The labels are those of the fastest so far.
            if rate > fastest {
                fastest = rate;
                let info = [("device", "mlx5_0"), ("port", "1"), ("speed", name), ("width", lanes)];
                guest.wait_until(&format!("{info:?}"), |guest| {
                    let is_told = |sample: &Sample| {
                        sample.name == "lanewatch_port_info"
                            && info.iter().all(|(label, value)| sample.labels.get(*label).is_some_and(|it| it == value))
                    };
                    guest.scrape().iter().any(is_told)
                });
            }
        }
    });
}

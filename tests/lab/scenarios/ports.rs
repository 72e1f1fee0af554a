//! Ports and their counters: Soft-RoCE and the stand-in, InfiniBand and RoCE.

use std::collections::BTreeMap;

use crate::common::exposition::Sample;
use crate::guest::{Guest, Kernel};

/// No hold times: what is there is found in the next pass.
const AT_ONCE: &str = "[policy.hold]\nport_down = \"0s\"\nport_rate_low = \"0s\"\n";

/// Every counter file of every port, as `DEVICE PORT NAME VALUE` or `DEVICE PORT NAME !` where it cannot be read.
const COUNTERS: &str = "cd /sys/class/infiniband; for d in *; do for p in $d/ports/*; do for f in $p/counters/* $p/hw_counters/*; \
     do [ -e $f ] || continue; n=${f##*/}; [ $n = lifespan ] && continue; v=$(cat $f 2>/dev/null) || v='!'; \
     echo $d ${p##*/} $n $v; done; done; done";

/// What the kernel's own files say, by device, port and counter; the files that cannot be read are left out.
fn kernel_counters(guest: &mut Guest) -> BTreeMap<[String; 3], f64> {
    let text = guest.sh(COUNTERS);
    let line = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let key = [words.next()?, words.next()?, words.next()?];
        Some((key, words.next()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// The sample that speaks for a counter file, in the file's own unit.
fn sample_of(scrape: &[Sample], key: &[String; 3]) -> Option<f64> {
    let [device, port, counter] = key;
    let port = BTreeMap::from([("device".to_owned(), device.clone()), ("port".to_owned(), port.clone())]);
    let one = |name: &str, labels: &BTreeMap<String, String>| {
        scrape.iter().find(|sample| sample.is(name, labels)).map(|sample| sample.value)
    };
    let words = |name: &str| one(name, &port).map(|bytes| bytes / 4.0);
    match counter.as_str() {
        "port_rcv_data" => words("lanewatch_port_received_bytes_total"),
        "port_xmit_data" => words("lanewatch_port_transmitted_bytes_total"),
        "port_rcv_packets" | "rcvd_pkts" => one("lanewatch_port_received_packets_total", &port),
        "port_xmit_packets" | "sent_pkts" => one("lanewatch_port_transmitted_packets_total", &port),
        "port_xmit_wait" => one("lanewatch_port_transmit_wait_ticks_total", &port),
        other => {
            let mut labels = port;
            labels.insert("counter".to_owned(), other.to_owned());
            one("lanewatch_port_events_total", &labels)
        }
    }
}

/// Every counter that the kernel shows is a sample with its value, and no port has a sample that no file stands for.
fn counters_are_the_kernels(guest: &mut Guest) {
    let before = kernel_counters(guest);
    let scrape = guest.scrape();
    let after = kernel_counters(guest);
    assert!(before.len() > 10, "{before:?}");
    for (key, value) in &before {
        let sample = sample_of(&scrape, key).unwrap_or_else(|| panic!("{key:?} has no sample"));
        let most = after.get(key).copied().unwrap_or(*value);
        assert!((*value..=most).contains(&sample), "{key:?} is {value} to {most} in the kernel, and {sample} here");
    }
    for sample in scrape.iter().filter(|sample| sample.name == "lanewatch_port_events_total") {
        let key = ["device", "port", "counter"].map(|label| sample.labels[label].clone());
        assert!(before.contains_key(&key), "{key:?} is no file of the kernel");
    }
}

fn soft_roce_counts(kernel: Kernel) {
    let Some(mut guest) = Guest::boot(kernel) else { return };
    guest.soft_roce();
    guest.serve("");
    guest.wait_for("lanewatch_port_state", &[("device", "rxe0"), ("state", "ACTIVE")], Some(1.0));
    guest.sh("cd /tmp; (ib_write_bw -d rxe0 -x 1 -n 200 -s 4096 -F > s.out 2>&1 &); sleep 1; \
         ib_write_bw -d rxe0 -x 1 -n 200 -s 4096 -F 127.0.0.1; sleep 1");
    counters_are_the_kernels(&mut guest);
    let sent = guest.value("lanewatch_port_transmitted_packets_total", &[("device", "rxe0"), ("port", "1")]);
    assert!(sent.is_some_and(|packets| packets > 200.0), "{sent:?}");
}

#[test]
fn soft_roce_counts_as_the_kernel_does() {
    soft_roce_counts(Kernel::V6_12);
}

#[test]
fn soft_roce_counts_as_the_kernel_does_on_6_1() {
    soft_roce_counts(Kernel::V6_1);
}

fn stand_in_counts(kernel: Kernel) {
    let Some(mut guest) = Guest::boot(kernel) else { return };
    guest.stand_in();
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
    guest.serve("");
    counters_are_the_kernels(&mut guest);
    // 2^53 + 4 words of four bytes: exact beyond what a float holds.
    let transmitted = guest
        .scrape()
        .into_iter()
        .find(|sample| sample.name == "lanewatch_port_transmitted_bytes_total" && sample.labels["device"] == "mlx5_0");
    assert_eq!(transmitted.map(|sample| sample.text).as_deref(), Some("36028797018963984"));
}

#[test]
fn infiniband_and_roce_count_as_the_kernel_does() {
    stand_in_counts(Kernel::V6_12);
}

#[test]
fn infiniband_and_roce_count_as_the_kernel_does_on_6_1() {
    stand_in_counts(Kernel::V6_1);
}

#[test]
fn a_port_goes_down_and_comes_back() {
    let Some(mut guest) = Guest::boot(Kernel::V6_12) else { return };
    guest.stand_in();
    guest.set("mlx5_0", &[("rcv_packets", 4711)]);
    guest.serve(AT_ONCE);
    let active = [("device", "mlx5_0"), ("port", "1"), ("state", "ACTIVE")];
    guest.wait_for("lanewatch_port_state", &active, Some(1.0));
    assert_eq!(guest.value("lanewatch_port_rate_bytes_per_second", &active[..2]), Some(50e9));

    guest.set("mlx5_0", &[("state", 1), ("phys_state", 2), ("event", 10)]);
    guest.wait_for("lanewatch_port_state", &active, Some(0.0));
    guest.wait_for_finding("port_down", "mlx5_0/1", true);
    assert_eq!(guest.check().0, 2, "{:?}", guest.findings());

    guest.set("mlx5_0", &[("state", 4), ("phys_state", 5), ("event", 9)]);
    guest.wait_for_finding("port_down", "mlx5_0/1", false);
    guest.wait_for("lanewatch_port_state", &active, Some(1.0));

    // A RoCE port follows its interface.
    guest.sh("ip link set pf1 down");
    guest.wait_for("lanewatch_port_state", &[("device", "mlx5_1"), ("state", "ACTIVE")], Some(0.0));
}

#[test]
fn a_flap_shorter_than_a_scrape_is_found_by_its_counter() {
    let Some(mut guest) = Guest::boot(Kernel::V6_12) else { return };
    guest.stand_in();
    guest.set("mlx5_0", &[("rcv_packets", 4711), ("link_downed", 1)]);
    // The first half hour after boot stands apart.
    guest.serve("[policy.threshold]\nsettle = \"0s\"\n");
    guest.scrape();
    guest.set("mlx5_0", &[("state", 1), ("link_downed", 2), ("state", 4)]);
    guest.wait_for_finding("port_flapping", "mlx5_0/1", true);
}

#[test]
fn counters_saturate_and_refuse_without_harm_to_the_others() {
    let Some(mut guest) = Guest::boot(Kernel::V6_12) else { return };
    guest.stand_in();
    guest.serve("");
    guest.set("mlx5_0", &[("symbol_error", 70_000), ("link_downed", 300), ("rcv_errors", 70_000)]);
    guest.wait_for("lanewatch_port_saturated_counters", &[("device", "mlx5_0")], Some(3.0));
    guest.wait_for_finding("port_counter_saturated", "mlx5_0/1", true);

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
}

#[test]
fn files_and_netlink_say_the_same() {
    let Some(mut guest) = Guest::boot(Kernel::V6_12) else { return };
    guest.soft_roce();
    guest.sh("rdma link delete rxe1");
    guest.sh("modprobe labib pci=0000:81:00.0 roce=0; sleep 1");
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
}

/// Speeds and widths as the stand-in takes them: from 2.5 Gb/s to 800.
const RATES: [(u64, u64); 12] =
    [(1, 1), (2, 2), (4, 2), (8, 2), (16, 2), (32, 2), (32, 8), (64, 16), (64, 2), (128, 1), (128, 4), (256, 2)];

#[test]
fn rates_are_what_the_kernel_calls_them() {
    let Some(mut guest) = Guest::boot(Kernel::V6_12) else { return };
    guest.stand_in();
    guest.serve("");
    for (speed, width) in RATES {
        guest.set("mlx5_0", &[("speed", speed), ("width", width)]);
        let text = guest.sh("cat /sys/class/infiniband/mlx5_0/ports/1/rate");
        // `200 Gb/sec (4X HDR)`
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [gigabits, "Gb/sec", lanes, name] = words[..] else { panic!("{text}") };
        let rate = gigabits.parse::<f64>().unwrap() * 1e9 / 8.0;
        let (lanes, name) = (lanes.trim_start_matches('('), name.trim_end_matches(')'));
        guest.wait_for("lanewatch_port_rate_bytes_per_second", &[("device", "mlx5_0"), ("port", "1")], Some(rate));
        let info = [("device", "mlx5_0"), ("port", "1"), ("speed", name), ("width", lanes)];
        guest.wait_for("lanewatch_port_info", &info, Some(1.0));
    }
}

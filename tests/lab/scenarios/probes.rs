//! Probes with real programs over software RDMA: on one machine, and between two of which one dies.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::guest::{Guest, Kernel};

#[test]
fn a_loop_is_measured_and_the_agent_tells_of_it() {
    let Some(mut guest) = Guest::boot(Kernel::V6_12) else { return };
    guest.soft_roce();
    guest.serve("");
    guest.wait_for("lanewatch_port_state", &[("device", "rxe0"), ("state", "ACTIVE")], Some(1.0));
    let command =
        "lanewatch bench rxe0 --force --duration 1s --size 4096 --queue-pairs 1 --format json 2>/run/bench.err";
    let (mut code, mut text) = guest.run(command);
    for _ in 0..2 {
        // Emulated on a busy host, the program itself may take longer than it is given: that says nothing.
        if code != 0 && text.contains("\"inconclusive\"") {
            (code, text) = guest.run(command);
        }
    }
    assert_eq!(code, 0, "{text}\n{}", guest.run("cat /run/bench.err").1);
    let answer: Value = serde_json::from_str(&text).unwrap();
    let run = &answer["runs"][0];
    assert_eq!(run["result"], "ok", "{answer}");

    let probe = [("probe", "rdma_loopback"), ("device", "rxe0"), ("port", "1")];
    let ok = [("probe", "rdma_loopback"), ("device", "rxe0"), ("port", "1"), ("result", "ok")];
    guest.wait_for("lanewatch_probe_runs_total", &ok, Some(1.0));
    let value = guest.value("lanewatch_probe_bandwidth_bytes_per_second", &probe).unwrap();
    assert!(value > 1e5 && text.contains(&format!("{value}")), "{value}: {text}");
    // Software is as fast as the CPU: it has no ceiling to be held against.
    assert_eq!(guest.value("lanewatch_probe_ceiling_bytes_per_second", &probe), None);
    let findings = guest.findings();
    assert!(findings.iter().all(|finding| !finding[0].starts_with("probe_")), "{findings:?}");
}

/// A Soft-RoCE device on the segment that two machines share.
fn join(guest: &mut Guest, address: &str) {
    guest.sh(&format!(
        "ip link set pf0 up; ip addr add {address}/24 dev pf0; modprobe rdma_rxe; modprobe rdma_ucm; \
         rdma link add rxe0 type rxe netdev pf0; for i in $(seq 40); do \
         grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state && exit 0; sleep 0.25; done; exit 1"
    ));
}

#[test]
fn a_peer_that_dies_in_mid_run_is_no_fault_of_this_machine() {
    let directory = TempDir::new().unwrap();
    let wire = directory.path().join("wire");
    let end = |how: &str, mac: u8| json!({"link": [how, wire], "mac": mac});
    let Some(mut peer) = Guest::boot_with(Kernel::V6_12, &end("listen", 0)) else { return };
    let Some(mut guest) = Guest::boot_with(Kernel::V6_12, &end("connect", 1)) else { return };
    join(&mut peer, "192.168.60.1");
    join(&mut guest, "192.168.60.2");
    guest.sh("for i in $(seq 40); do ping -c 1 -W 1 -q 192.168.60.1 >/dev/null && exit 0; done; exit 1");
    guest.serve("");
    guest.wait_for("lanewatch_port_state", &[("device", "rxe0"), ("state", "ACTIVE")], Some(1.0));

    let server = "(setsid sh -c 'while :; do ib_write_bw -d rxe0 -x 1 -s 4096 -F -n 100; done' >/dev/null 2>&1 &); \
                  for i in $(seq 80); do grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 && exit 0; sleep 0.25; done; exit 1";
    peer.sh(server);
    guest.sh("timeout 60 ib_write_bw -d rxe0 -x 1 -s 4096 -F -n 100 192.168.60.1 > /run/whole.txt 2>&1 || { cat /run/whole.txt; exit 1; }");
    let whole = guest.sh("lanewatch bench --read /run/whole.txt");
    assert!(whole.contains("/s"), "{whole}");

    // A run that would take a minute; its server dies with its machine, once data flows.
    peer.sh("pkill -f 'while :'; pkill ib_write_bw; while pgrep ib_write_bw >/dev/null; do sleep 0.1; done; \
         (setsid ib_write_bw -d rxe0 -x 1 -s 4096 -F -D 60 >/dev/null 2>&1 &); \
         for i in $(seq 80); do grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 && exit 0; sleep 0.25; done; exit 1");
    let sent = "cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts";
    guest.sh(&format!(
        "n=$({sent}); (setsid sh -c 'timeout -k 5 90 ib_write_bw -d rxe0 -x 1 -s 4096 -F -D 60 192.168.60.1 > /run/cut.txt 2>&1; \
         echo $? > /run/cut.code' >/dev/null 2>&1 &); \
         for i in $(seq 200); do [ $({sent}) -gt $((n + 50)) ] && exit 0; sleep 0.1; done; cat /run/cut.txt; exit 1"
    ));
    drop(peer);
    guest.sh("for i in $(seq 300); do [ -s /run/cut.code ] && exit 0; sleep 0.4; done; exit 1");
    let (code, cut) = guest.run("lanewatch bench --read /run/cut.txt");
    assert!(code != 0 && (cut.contains("FAILED (") || cut.contains("no value")), "{code} {cut}");
    // The port is as well as it was.
    guest.wait_for("lanewatch_port_state", &[("device", "rxe0"), ("state", "ACTIVE")], Some(1.0));
    let findings = guest.findings();
    assert!(findings.iter().all(|finding| !finding[1].starts_with("rxe0")), "{findings:?}");
}

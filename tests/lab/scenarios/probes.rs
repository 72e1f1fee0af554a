//! Probes with real programs over software RDMA: on one machine by hand and by the agent itself, and between two
//! machines, of which one may die.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::guest::{Guest, Kernel, on, on_each_kernel};

/// How long something that is measured may take to come about: emulated, one run takes minutes on a busy host.
const PATIENCE: Duration = Duration::from_secs(900);

/// What the agents here have in common: small messages, long enough for some to arrive, and much time around it.
const PROBE: &str = "[probe]\nsize = 4096\nqueue-pairs = 1\nduration = '5s'\npatience = '2m'\nbudget = 0.1\n\
                     most-load = 100.0\n";

const BANDWIDTH: &str = "lanewatch_probe_bandwidth_bytes_per_second";

/// Waits until one of these agents has a value of a probe on `rxe0/1`; which one, and the value.
fn measured(guests: &mut [&mut Guest], probe: &str) -> (usize, f64) {
    let labels = [("probe", probe), ("device", "rxe0"), ("port", "1"), ("direction", "one_way")];
    let end = Instant::now() + PATIENCE;
    loop {
        for (index, guest) in guests.iter().enumerate() {
            if let Some(value) = guest.value(BANDWIDTH, &labels) {
                return (index, value);
            }
        }
        if Instant::now() >= end {
            let told = guests.iter_mut().map(|guest| {
                let metrics = guest.get("/metrics");
                let probes: Vec<&str> = metrics.lines().filter(|line| line.contains("_probe_")).collect();
                format!("{}\n{}\n{}", probes.join("\n"), guest.get("/api/v1/events"), guest.log())
            });
            panic!("{probe} is not measured\n{}", told.collect::<Vec<_>>().join("\n\n"));
        }
        thread::sleep(Duration::from_secs(1));
    }
}

/// What software RDMA in an emulated machine can move: more than nothing, and far less than a wire.
fn is_believable(value: f64) -> bool {
    (1e4..1e10).contains(&value)
}

#[test]
fn the_agent_measures_by_itself() {
    on(Kernel::V6_12, |kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.soft_roce();
        guest.serve(&format!("{PROBE}enabled = true\nprobes = ['rdma_loopback']\ndevices = 'rxe0'\ninterval = '1m'"));
        let (_, value) = measured(&mut [&mut guest], "rdma_loopback");
        assert!(is_believable(value), "{value}");
        let one = [("probe", "rdma_loopback"), ("device", "rxe0"), ("port", "1")];
        let count = |guest: &Guest, result| {
            guest.value("lanewatch_probe_runs_total", &[one[0], one[1], one[2], ("result", result)])
        };
        assert!(count(&guest, "ok").is_some_and(|count| count >= 1.0), "{:?}", count(&guest, "ok"));
        assert_eq!(count(&guest, "failed"), Some(0.0));
        // Another port is left alone, and nothing of a run is left.
        assert_eq!(guest.value("lanewatch_probe_runs_total", &[("device", "rxe1"), ("result", "ok")]), None);
        guest.wait_until("the programs are gone", |guest| {
            guest.value("lanewatch_rdma_resources", &[("device", "rxe0"), ("resource", "ctx")]) == Some(0.0)
        });
        guest.sh("! pgrep ib_write && ! pgrep ib_read && ! ls -d /tmp/lanewatch-probe-*");
        let findings = guest.findings();
        assert!(findings.iter().all(|finding| !finding[0].starts_with("probe_")), "{findings:?}");
    });
}

#[test]
fn a_loop_is_measured_and_the_agent_tells_of_it() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.soft_roce();
        guest.serve(PROBE);
        guest.wait_for("lanewatch_port_state", &[("device", "rxe0"), ("state", "ACTIVE")], Some(1.0));
        let (code, text) = guest.run(
            "lanewatch bench rxe0 --force --duration 1s --format json --config.file /run/lanewatch.toml 2>/run/bench.err",
        );
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
    });
}

/// A Soft-RoCE device on the segment that two machines share.
fn join(guest: &mut Guest, address: &str) {
    guest.sh(&format!(
        "ip link set pf0 up; ip addr add {address}/24 dev pf0; modprobe rdma_rxe; modprobe rdma_ucm; \
         rdma link add rxe0 type rxe netdev pf0; for i in $(seq 40); do \
         grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state && exit 0; sleep 0.25; done; exit 1"
    ));
}

/// Two machines on one segment, each with `rxe0`: 192.168.60.1 and 192.168.60.2.
fn two_machines(wire: &TempDir) -> Option<[Guest; 2]> {
    let wire = wire.path().join("wire");
    // Two that boot at once on a busy host are slow to.
    let end = |how: &str, mac: u8| json!({"link": [how, wire], "mac": mac, "boot_timeout": 240, "timeout": 600});
    let mut one = Guest::boot_with(Kernel::V6_12, &end("listen", 0))?;
    let mut other = Guest::boot_with(Kernel::V6_12, &end("connect", 1))?;
    join(&mut one, "192.168.60.1");
    join(&mut other, "192.168.60.2");
    other.sh("for i in $(seq 40); do ping -c 1 -W 1 -q 192.168.60.1 >/dev/null && exit 0; done; exit 1");
    Some([one, other])
}

#[test]
fn two_machines_measure_with_each_other() {
    on(Kernel::V6_12, |_| {
        let wire = TempDir::new().unwrap();
        let Some(mut guests) = two_machines(&wire) else { return };
        let hosts = ["192.168.60.1:10015", "192.168.60.2:10015"];
        for (guest, host) in guests.iter_mut().zip(hosts) {
            guest.sh(&format!(
                "echo 5d0e9a7c41b8f2360e9d7a1c5b48f263 > /run/peers.key; chmod 600 /run/peers.key; \
                 echo '[{{\"targets\": [\"{}\", \"{}\"]}}]' > /run/peers.json; \
                 echo \"{PROBE}[probe.peers]\nserve = true\nname = '{host}'\nkey-file = '/run/peers.key'\" > /run/bench.toml",
                hosts[0], hosts[1]
            ));
            guest.serve(&format!(
                "{PROBE}enabled = true\nprobes = ['rdma_peer']\n[probe.peers]\nserve = true\nname = '{host}'\n\
                 key-file = '/run/peers.key'\nlist = '/run/peers.json'\nslot = '2m'"
            ));
        }
        let [one, other] = &mut guests;
        // In each slot one of the two measures.
        let (first, value) = measured(&mut [one, other], "rdma_peer");
        assert!(is_believable(value), "{value}");
        let started = |guest: &Guest| guest.value("lanewatch_probe_server_requests_total", &[("result", "started")]);
        let counts = [started(one), started(other)];
        assert!(counts[1 - first].is_some_and(|count| count >= 1.0), "the other started its servers: {counts:?}");
        let (probe, ok) = (("probe", "rdma_peer"), ("result", "ok"));
        let ran = |guest: &Guest| guest.value("lanewatch_probe_runs_total", &[probe, ok]);
        assert!([ran(one), ran(other)][first].is_some_and(|count| count >= 1.0));

        // A person measures the same, once the agents leave it to people.
        for guest in [&mut *one, &mut *other] {
            guest.stop("TERM");
            guest.sh("rm -rf /var/lib/lanewatch");
            let config = guest.sh("cat /run/bench.toml");
            guest.serve(&config);
        }
        assert_eq!([ran(one), ran(other)], [None, None]);
        let command = "lanewatch bench rxe0 --peer 192.168.60.1 --force --format json --config.file /run/bench.toml 2>/run/bench.err";
        let (code, text) = other.run(command);
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{code} {error}: {text}"));
        let run = answer["runs"].as_array().unwrap().iter().find(|run| run["probe"] == "rdma_peer").unwrap();
        assert_eq!(run["result"], "ok", "{answer}\n{}", one.log());
        let (_, value) = measured(&mut [other], "rdma_peer");
        assert!(is_believable(value) && text.contains(&format!("{value}")), "{value}: {text}");
        assert!(started(one).is_some_and(|count| count >= 1.0));
    });
}

#[test]
fn a_peer_that_dies_in_mid_run_is_no_fault_of_this_machine() {
    on(Kernel::V6_12, |_| {
        let wire = TempDir::new().unwrap();
        let Some([mut peer, mut guest]) = two_machines(&wire) else { return };
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
    });
}

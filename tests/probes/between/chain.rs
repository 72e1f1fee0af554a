//! From the list of hosts to `/metrics`.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::super::common::run::{free_address, to_its_end};
use super::super::common::tools::{Tool, require};
use super::{TIMEOUT, before, configure, end, may_mount, requests, serve, stage, until, value, write_key};

const RUNS: &str = "lanewatch_probe_runs_total{probe=\"rdma_peer\",device=\"rxe0\",port=\"1\",result=\"ok\"}";
const BANDWIDTH: &str =
    "lanewatch_probe_bandwidth_bytes_per_second{probe=\"rdma_peer\",device=\"rxe0\",port=\"1\",direction=\"one_way\"}";

fn list(hosts: &[SocketAddr]) -> String {
    serde_json::json!([{"targets": hosts.iter().map(ToString::to_string).collect::<Vec<_>>()}]).to_string()
}

#[test]
fn two_agents_measure_with_each_other_as_soon_as_both_are_listed() {
    if !may_mount() || require(Tool::Iperf3).is_none() {
        return;
    }
    let scene = stage("ok");
    let hosts = [free_address(), free_address()];
    fs::write(scene.path("peers.json"), list(&hosts[..1])).unwrap();
    let peers = format!("serve = true\nslot = '10s'\nlist = '{}'", scene.path("peers.json").display());
    let agents = hosts.map(|address| {
        let probe = "enabled = true\nprobes = ['rdma_peer', 'tcp_peer']";
        serve(&scene, address, &configure(&scene, address, probe, &peers))
    });
    assert!(agents[1].log().contains("is not in the list, so it has no peers"), "{}", agents[1].log());
    assert!(scene.notes().is_empty(), "who has no partner measures nothing");
    fs::write(scene.path("peers.json"), list(&hosts)).unwrap();
    // In each slot one of the two measures, and in the next the other.
    let metrics = |agent: usize| agents[agent].get("/metrics").text();
    for agent in [0, 1] {
        let until_then = Instant::now() + TIMEOUT;
        while value(&metrics(agent), RUNS).is_none_or(|count| count < 1.0) {
            let probes: Vec<_> =
                metrics(agent).lines().filter(|line| line.contains("_probe_")).map(str::to_owned).collect();
            assert!(Instant::now() < until_then, "{}\n{probes:#?}\n{:?}", agents[agent].log(), scene.notes());
            std::thread::sleep(Duration::from_millis(100));
        }
        let bandwidth = value(&metrics(agent), BANDWIDTH).unwrap();
        assert!((bandwidth - 190.25e9 / 8.0).abs() < 1.0, "{bandwidth}");
    }
    for agent in [0, 1] {
        let started = requests(&agents[agent], "started").unwrap();
        assert!(started >= 3.0, "three programs: {started}");
        // TCP between two addresses of one host would measure nothing.
        let skipped = "lanewatch_probe_skipped_runs_total{probe=\"tcp_peer\",reason=\"local_route\"}";
        until(TIMEOUT, skipped, || value(&metrics(agent), skipped).filter(|count| *count >= 1.0));
        let failed = RUNS.replace("\"ok\"", "\"failed\"");
        assert_eq!(value(&metrics(agent), &failed), Some(0.0));
    }
    for agent in agents {
        end(agent.group);
    }
    scene.is_clean();
}

#[test]
fn a_person_measures_with_a_peer() {
    if !may_mount() {
        return;
    }
    let scene = stage("ok");
    let address = free_address();
    let agent = serve(&scene, address, &configure(&scene, address, "", "serve = true"));
    let here = free_address();
    let bench = |key: &str, peer: SocketAddr| {
        write_key(&scene.path("own-key"), key);
        let config = configure(&scene, here, "", "");
        let text = fs::read_to_string(&config).unwrap();
        let text = text.replace(scene.path("key").to_str().unwrap(), scene.path("own-key").to_str().unwrap());
        fs::write(&config, text).unwrap();
        let state = scene.path("bench-state");
        fs::create_dir_all(&state).unwrap();
        let mut command = before(&scene, &["bench", "rxe0", "--force", "--peer", &peer.to_string(), "--config.file"]);
        command.arg(&config).arg("--storage.path").arg(&state);
        to_its_end(command, Duration::from_secs(120)).stdout
    };
    let measured = bench(super::KEY, address);
    assert!(measured.contains("rdma_peer rxe0/1: ok\n") && measured.contains("190.2 Gb/s"), "{measured}");
    assert_eq!(requests(&agent, "started").map(|count| count >= 3.0), Some(true));
    let wrong = bench("another key, and long enough for one", address);
    assert!(wrong.contains("rdma_peer rxe0/1: inconclusive"), "{wrong}");
    assert!(wrong.contains("wrong_signature: the signature is wrong"), "{wrong}");
    let nobody = bench(super::KEY, here);
    assert!(nobody.contains("rdma_peer rxe0/1: inconclusive") && nobody.contains("did not start a server"), "{nobody}");
    end(agent.group);
    scene.is_clean();
}

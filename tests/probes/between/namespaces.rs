//! A real iperf3 between two network namespaces, through two agents.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use super::super::common::run::{Group, PROGRAM};
use super::super::common::tools::{Tool, require, skip};
use super::{TIMEOUT, configure, may_mount, stage, until, value};

/// Two namespaces with a wire between them; gone when dropped.
struct Wire {
    names: [String; 2],
}

impl Wire {
    fn new() -> Option<Self> {
        let names = [0, 1].map(|end| format!("lw{}n{end}", std::process::id()));
        let wire = Self { names };
        let [one, other] = &wire.names;
        let script = format!(
            "set -e; ip netns add {one}; ip netns add {other}
             ip link add lw0 netns {one} type veth peer name lw1 netns {other}
             ip -n {one} addr add 198.51.100.1/30 dev lw0; ip -n {other} addr add 198.51.100.2/30 dev lw1
             for n in {one} {other}; do ip -n $n link set lo up; done
             ip -n {one} link set lw0 up; ip -n {other} link set lw1 up"
        );
        let made = Command::new("sh").args(["-c", &script]).output();
        if made.is_ok_and(|output| output.status.success()) {
            return Some(wire);
        }
        skip("no network namespaces may be made here");
        None
    }

    fn within(&self, end: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[end]]);
        command
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

#[test]
fn tcp_is_measured_over_the_wire_between_two_namespaces() {
    if !may_mount() || require(Tool::Iperf3).is_none() || require(Tool::Curl).is_none() {
        return;
    }
    let Some(wire) = Wire::new() else { return };
    let scene = stage("ok");
    let hosts: [SocketAddr; 2] = ["198.51.100.1:10015", "198.51.100.2:10016"].map(|text| text.parse().unwrap());
    let targets = hosts.map(|host| host.to_string());
    fs::write(scene.path("peers.yml"), format!("- targets: ['{}', '{}']\n", targets[0], targets[1])).unwrap();
    let peers = format!("serve = true\nslot = '10s'\nlist = '{}'", scene.path("peers.yml").display());
    let agents = [0, 1].map(|end| {
        let config = configure(&scene, hosts[end], "enabled = true\nprobes = ['tcp_peer']", &peers);
        let script = format!("mount --bind '{}' /sys/class && exec \"$@\"", scene.path("class").display());
        let mut command = wire.within(end);
        command.args(["sh", "-c", &script, "sh", PROGRAM, "serve", "--web.listen-address", &targets[end]]);
        command.arg("--config.file").arg(config).arg("--storage.path").arg(scene.path(&format!("state{end}")));
        let log = fs::File::create(scene.path(&format!("log{end}"))).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Group::spawn(&mut command)
    });
    let metrics = |end: usize| {
        let url = format!("http://{}/metrics", targets[end]);
        let output = wire.within(end).args(["curl", "-s", "-m", "5", &url]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for end in [0, 1] {
        let series = "lanewatch_probe_bandwidth_bytes_per_second{probe=\"tcp_peer\",device=\"rxe0\",port=\"1\",\
                      direction=\"one_way\"}";
        let what = format!("end {end} measures");
        let measured = until(TIMEOUT, &what, || value(&metrics(end), series));
        println!("end {end}: {:.1} Gb/s", measured * 8.0 / 1e9);
        assert!(measured > 1e6, "{measured}");
        let runs = "lanewatch_probe_runs_total{probe=\"tcp_peer\",device=\"rxe0\",port=\"1\",result=\"ok\"}";
        assert!(value(&metrics(end), runs).is_some_and(|count| count >= 1.0));
    }
    drop(agents);
}

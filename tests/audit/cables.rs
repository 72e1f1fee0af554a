//! Both ends of a cable: the audit names the receiver that has the errors, with a real Prometheus.

use std::io::Write as _;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::common::run::lanewatch;
use crate::common::stores::prometheus_of;

const ENDS: [(&str, &str, &str, &str); 5] = [
    ("a", "eth2", "S1", "1e-9"),
    ("b", "eth5", "S1", "2e-5"),
    ("a", "eth3", "S2", "3e-6"),
    ("c", "eth2", "S2", "2e-6"),
    // The other end is a switch's.
    ("d", "eth2", "S3", "1e-3"),
];

#[test]
fn the_receiver_with_the_errors_is_named() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let time = (now - 600) / 60 * 60;
    let write = |out: &mut std::io::BufWriter<std::fs::File>| {
        let mut family = |name: &str, lines: Vec<(String, &str)>| {
            writeln!(out, "# TYPE {name} gauge").unwrap();
            for (labels, value) in lines {
                writeln!(out, "{name}{{job=\"lanewatch\",{labels}}} {value} {time}").unwrap();
            }
        };
        let hosts = ["a", "b", "c", "d"].map(|host| (format!("instance=\"{host}\",version=\"1\""), "1"));
        family("lanewatch_build_info", hosts.to_vec());
        let end = |host: &str, netdev: &str| format!("instance=\"{host}\",netdev=\"{netdev}\"");
        let cable = |serial: &str| format!("vendor=\"ACME\",part_number=\"AOC\",serial_number=\"{serial}\"");
        let modules = ENDS.map(|(host, netdev, serial, _)| (format!("{},{}", end(host, netdev), cable(serial)), "1"));
        family("lanewatch_module_info", modules.to_vec());
        let raw = ENDS.map(|(host, netdev, _, raw)| (end(host, netdev), raw));
        family("lanewatch_netdev_raw_bit_error_ratio", raw.to_vec());
        family("lanewatch_netdev_lost_codeword_ratio", vec![(end("c", "eth2"), "0"), (end("b", "eth5"), "0")]);
        writeln!(out, "# EOF").unwrap();
    };
    let Some(server) = prometheus_of(write, Duration::from_secs(120), &[]) else { return };
    let (url, time) = (
        format!("http://{}", server.address),
        lanewatch::model::time::rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(time)),
    );
    let audit = |more: &[&str]| {
        let output = lanewatch(&[&["audit", "--prometheus", &url, "--time", &time], more].concat());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
        output.stdout
    };
    let document: Value = serde_json::from_str(&audit(&["--format", "json"])).unwrap();
    let cables = document["cables"].as_array().unwrap();
    let said = |cable: &Value| {
        [&cable["serial_number"], &cable["worse_end"]["host"]["instance"], &cable["direction"]]
            .map(|value| value.as_str().unwrap().to_owned())
    };
    assert_eq!(
        cables.iter().map(said).collect::<Vec<_>>(),
        [["S1", "b", "one_way"], ["S2", "a", "both_ways"]].map(|texts| texts.map(str::to_owned))
    );
    let text = audit(&[]);
    assert!(text.contains("\ncables between two hosts, worst first\nreceiver  wrong bits  lost  other end"), "{text}");
    assert!(
        text.contains("\nb eth5    2e-5        none  a eth2     1e-9        S1             the way into the receiver"),
        "{text}"
    );
    let csv = audit(&["--format", "csv", "--table", "cables"]);
    let mut lines = csv.lines();
    assert!(
        lines.next().unwrap().starts_with("job,instance,netdev,vendor,part_number,serial_number,raw_bit_error_ratio")
    );
    assert_eq!(lines.next(), Some("lanewatch,b,eth5,ACME,AOC,S1,0.00002,0,lanewatch a,eth2,0.000000001,one_way"));
    assert_eq!(lines.count(), 1);
}

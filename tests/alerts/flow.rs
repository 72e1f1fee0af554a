//! From a link that degrades to a page, and back: lanewatch on written hosts, real Prometheus or vmalert, real
//! Alertmanager. The rules are those that are shipped, with their waits cut to seconds; the agents do without theirs.

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::servers::{Alertmanager, Waits, failed, is_silenced, messages, prometheus, put, vmalert};
use crate::common::host::{GEN3, GEN4, HostTree};
use crate::common::http;
use crate::common::run::Server;
use crate::common::tools::query;

/// A served host of two cards, and its trees.
struct Host {
    server: Server,
    root: TempDir,
}

impl Host {
    fn start() -> Self {
        let root = TempDir::new().unwrap();
        tree().write(root.path()).unwrap();
        let holds = "[policy.hold]\npcie_degraded = \"0s\"\npcie_below_port_rate = \"0s\"\n";
        fs::write(root.path().join("lanewatch.toml"), holds).unwrap();
        let flags = [("--path.sysfs", "sys"), ("--path.procfs", "proc"), ("--config.file", "lanewatch.toml")];
        let flags = flags.map(|(flag, name)| [flag.into(), root.path().join(name).into_os_string()]);
        let server = Server::start("serve", flags.as_flattened());
        Self { server, root }
    }

    /// The link of the second card, at both of its ends.
    fn train(&self, speed: &str, width: u8) {
        let device = &tree().devices()[1];
        for end in [&device.function, &device.above] {
            put(self.root.path(), &end.join("current_link_speed"), speed);
            put(self.root.path(), &end.join("current_link_width"), &width.to_string());
        }
    }
}

fn tree() -> HostTree {
    HostTree::new(2)
}

/// 200 Gb/s less 8 lanes of 8 GT/s, in bytes a second.
const STRANDED: f64 = 25e9 - 8e9 * 128.0 / 130.0;

fn name(alert: &Value) -> &str {
    alert["labels"]["alertname"].as_str().unwrap()
}

fn find<'a>(alerts: &'a [Value], wanted: &str) -> Option<&'a Value> {
    alerts.iter().find(|alert| name(alert) == wanted)
}

/// Two hosts with the same addresses; the link of one degrades and is mended.
fn degrades_and_recovers(alertmanager: &Alertmanager, hosts: &[Host; 2], evaluator: SocketAddr, series: SocketAddr) {
    let [sick, well] = hosts;
    let address = tree().devices()[1].address.clone();
    until("series of both hosts", || query(series, "lanewatch_evaluation_timestamp_seconds").len() == 2);
    until("recorded series", || query(series, "instance:lanewatch_port_installed_bytes_per_second:sum").len() == 2);
    assert_eq!(query(series, "lanewatch_finding"), []);
    assert_eq!(alertmanager.alerts(), Vec::<Value>::new());

    sick.train(GEN3, 8);
    let alerts = alertmanager.wait_for("alert of the link", |alerts| {
        let path = find(alerts, "PciePathBelowPortRate");
        // Since when is known once the state of the alert was stored.
        let text = find(alerts, "PcieLinkDegraded").and_then(|alert| alert["annotations"]["description"].as_str());
        text.is_some_and(|text| text.contains(" Since ")) && path.is_some_and(is_silenced)
    });
    let alert = find(&alerts, "PcieLinkDegraded").unwrap();
    assert_eq!(alert["labels"]["severity"], "critical");
    assert_eq!(alert["labels"]["instance"], sick.server.address.to_string());
    assert_eq!(alert["labels"]["subject"], address);
    let description = alert["annotations"]["description"].as_str().unwrap();
    assert_eq!(
        description.split_inclusive(" Since").next().unwrap(),
        format!(
            "The PCIe link of {address} on {} (mlx5_1) runs at 8 GT/s x8 (63.02 Gb/s); both ends support 16 GT/s x16 \
             (252.1 Gb/s). Reseat the card; check slot and riser. Since",
            sick.server.address
        )
    );
    assert!(!is_silenced(alert), "{alert:#}");
    let well = json!(well.server.address.to_string());
    assert!(alerts.iter().all(|alert| alert["labels"]["instance"] != well), "{alerts:#?}");
    until("page", || messages(&alertmanager.pager).iter().any(|(status, names)| is(status, names, "firing")));
    until("what is stranded", || {
        let stranded = query(series, "rack:lanewatch_port_stranded_bytes_per_second:sum{cause=\"link_degraded\"}");
        stranded.len() == 1 && (stranded[0].1 - STRANDED).abs() < 10.0
    });

    sick.train(GEN4, 16);
    alertmanager.wait_for("silence", <[Value]>::is_empty);
    until("the news of it", || {
        messages(&alertmanager.pager).iter().any(|(status, names)| is(status, names, "resolved"))
    });
    let paged = messages(&alertmanager.pager);
    assert!(
        paged.iter().all(|(_, names)| names == &["PcieLinkDegraded"]),
        "one page, not one for each consequence: {paged:?}"
    );
    assert_eq!(failed(evaluator), Vec::<String>::new());
}

fn is(status: &str, names: &[String], wanted: &str) -> bool {
    status == wanted && names == ["PcieLinkDegraded"]
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(90);
    while !holds() {
        assert!(Instant::now() < end, "no {what}");
        thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn a_link_that_degrades_is_one_page_until_it_is_mended() {
    let Some(alertmanager) = Alertmanager::start(Waits::Cut(Duration::from_secs(1))) else { return };
    let hosts = [Host::start(), Host::start()];
    let targets = hosts.each_ref().map(|host| host.server.address);
    let Some(server) = prometheus(&targets, alertmanager.server.address) else { return };
    degrades_and_recovers(&alertmanager, &hosts, server.address, server.address);
}

#[test]
fn vmalert_says_the_same() {
    let Some(alertmanager) = Alertmanager::start(Waits::Cut(Duration::from_secs(1))) else { return };
    let hosts = [Host::start(), Host::start()];
    let targets = hosts.each_ref().map(|host| host.server.address);
    let Some((keeper, evaluator)) = vmalert(&targets, alertmanager.server.address) else { return };
    degrades_and_recovers(&alertmanager, &hosts, evaluator.address, keeper.address);
}

/// A host with a dual-port card and another one, both with a degraded link: each link is a page, its ports are none.
#[test]
fn a_second_degraded_card_of_a_host_is_a_page_of_its_own() {
    let Some(alertmanager) = Alertmanager::start(Waits::Cut(Duration::from_secs(1))) else { return };
    let alert = |name: &str, subject: &str, device: &str, function: &str, link: &str| {
        json!({ "labels": {
            "alertname": name, "severity": "critical", "component": "pcie", "job": "lanewatch", "instance": "a:10015",
            "site": "s1", "rack": "r1", "subject": subject, "device": device, "pci_address": function, "link": link,
        } })
    };
    let post = |alerts: &[Value]| {
        let answer = http::post(alertmanager.server.address, "/api/v2/alerts", &json!(alerts).to_string()).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    let (first, second) = ("0000:c1:00.0", "0000:d8:00.0");
    post(&[
        alert("PcieLinkDegraded", first, "mlx5_0", first, first),
        alert("PciePathBelowPortRate", "mlx5_0/1", "mlx5_0", first, first),
        alert("PciePathBelowPortRate", "mlx5_1/1", "mlx5_1", "0000:c1:00.1", first),
        // A port whose link alone is not known to be degraded: by the bridge above, say.
        alert("PciePathBelowPortRate", "mlx5_5/1", "mlx5_5", second, "0000:d7:01.0"),
    ]);
    let silenced = |alerts: &[Value]| -> Vec<String> {
        let silenced = alerts.iter().filter(|alert| is_silenced(alert));
        let mut subjects: Vec<_> =
            silenced.map(|alert| alert["labels"]["subject"].as_str().unwrap().to_owned()).collect();
        subjects.sort();
        subjects
    };
    alertmanager.wait_for("consequences of the first link", |alerts| {
        alerts.len() == 4 && silenced(alerts) == ["mlx5_0/1", "mlx5_1/1"]
    });
    post(&[alert("PcieLinkDegraded", second, "mlx5_5", second, second)]);
    let alerts = alertmanager.wait_for("the second link", |alerts| alerts.len() == 5);
    assert_eq!(silenced(&alerts), ["mlx5_0/1", "mlx5_1/1"]);
}

/// A thousand ports of 500 hosts go down with a switch.
#[test]
fn a_switch_that_fails_is_one_page() {
    let Some(alertmanager) = Alertmanager::start(Waits::Cut(Duration::from_secs(1))) else { return };
    let labels = |alert: &str, severity: &str| {
        let labels =
            [("alertname", alert), ("severity", severity), ("job", "lanewatch"), ("site", "s1"), ("rack", "r1")];
        labels.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect::<serde_json::Map<_, _>>()
    };
    let mut alerts = vec![json!({ "labels": labels("PortsDownTogether", "critical") })];
    for (host, port) in (0..500).flat_map(|host| [(host, 1), (host, 2)]) {
        let mut labels = labels("PortDown", "critical");
        labels.insert("instance".to_owned(), json!(format!("h{host}:10015")));
        labels.insert("subject".to_owned(), json!(format!("mlx5_0/{port}")));
        alerts.push(json!({ "labels": labels }));
    }
    let mut elsewhere = labels("PortDown", "critical");
    elsewhere.insert("rack".to_owned(), json!("r2"));
    elsewhere.insert("instance".to_owned(), json!("other:10015"));
    alerts.push(json!({ "labels": elsewhere }));
    let answer = http::post(alertmanager.server.address, "/api/v2/alerts", &json!(alerts).to_string()).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let seen = alertmanager.wait_for("alerts", |alerts| alerts.len() == 1002);
    until("pages", || messages(&alertmanager.pager).len() >= 2);
    assert_eq!(alertmanager.alerts().iter().filter(|alert| is_silenced(alert)).count(), 1000, "{}", seen.len());
    // Time for more of them, were there any.
    thread::sleep(Duration::from_secs(4));
    let mut paged: Vec<Vec<String>> = messages(&alertmanager.pager).into_iter().map(|(_, names)| names).collect();
    paged.sort();
    assert_eq!(paged, [["PortDown"], ["PortsDownTogether"]]);
    assert!(messages(&alertmanager.tickets).is_empty());
}

//! The shipped rules in a real Prometheus on the host, which scrapes the machine.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::rules::hastened;
use crate::common::run::{Server, free_address};
use crate::common::tools::{Tool, require};
use crate::guest::{Guest, Kernel, PATIENCE};

const CARD: &str = "0000:81:00.0";

/// Prometheus with the rules that are shipped, their waits cut to seconds.
fn prometheus(guest: &Guest) -> Option<Server> {
    let program = require(Tool::Prometheus)?;
    let (address, directory) = (free_address(), TempDir::new().unwrap());
    let path = |name: &str| directory.path().join(name);
    fs::write(path("rules.yml"), hastened("alerts/lanewatch.rules.yml")).unwrap();
    let config = format!(
        "global: {{scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 1s}}\n\
         rule_files: [rules.yml]\n\
         scrape_configs: [{{job_name: lanewatch, static_configs: [{{targets: ['{}']}}]}}]\n",
        guest.address()
    );
    fs::write(path("prometheus.yml"), config).unwrap();
    let mut command = Command::new(program);
    command.arg(format!("--config.file={}", path("prometheus.yml").display()));
    command.arg(format!("--storage.tsdb.path={}", path("data").display()));
    command.arg(format!("--web.listen-address={address}"));
    Some(Server::spawn(command, address, directory, "/-/ready"))
}

/// Alerts that fire, by name and subject.
fn firing(prometheus: &Server) -> Vec<[String; 2]> {
    let answer: Value = serde_json::from_slice(&prometheus.get("/api/v1/alerts").body).unwrap();
    let alerts = answer["data"]["alerts"].as_array().unwrap();
    let label = |alert: &Value, name: &str| alert["labels"][name].as_str().unwrap_or_default().to_owned();
    let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
    firing.map(|alert| ["alertname", "subject"].map(|name| label(alert, name))).collect()
}

#[test]
fn an_alert_fires_for_a_degraded_link_and_ends() {
    let Some(mut guest) = Guest::boot(Kernel::V6_12) else { return };
    guest.call("fake_link", &json!({"bdf": "81:00.0", "speed": 4, "width": 16}));
    guest.stand_in();
    guest.serve("[policy.hold]\npcie_degraded = \"0s\"\npcie_below_port_rate = \"0s\"\n");
    let Some(prometheus) = prometheus(&guest) else { return };
    let wanted = ["PcieLinkDegraded".to_owned(), CARD.to_owned()];
    until("a scrape", || is_up(&prometheus));
    // What is said before the first scrape (LanewatchAbsent) ends by itself.
    until("silence", || firing(&prometheus).is_empty());
    guest.call("poke_link", &json!({"bdf": "81:00.0", "speed": 3, "width": 8}));
    until("the alert", || firing(&prometheus).contains(&wanted));
    guest.call("poke_link", &json!({"bdf": "81:00.0", "speed": 4, "width": 16}));
    until("its end", || !firing(&prometheus).contains(&wanted));
    assert!(is_up(&prometheus));
}

/// Whether its last scrape went well.
fn is_up(prometheus: &Server) -> bool {
    let answer: Value = serde_json::from_slice(&prometheus.get("/api/v1/targets?state=active").body).unwrap();
    answer["data"]["activeTargets"].as_array().unwrap().iter().any(|target| target["health"] == "up")
}

fn until(what: &str, so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "never came: {what}");
        thread::sleep(Duration::from_millis(500));
    }
}

//! The shipped rules in a real Prometheus on the host, which scrapes a machine.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::run::Server;
use crate::common::stores::evaluating;
use crate::guest::{Guest, PATIENCE};

/// A Prometheus that watches one machine.
pub struct Prometheus(Server);

impl Prometheus {
    /// One with the rules that are shipped, their waits cut to seconds, once it has scraped the machine and nothing
    /// fires. None, and the scenario skipped, where it is not installed.
    pub fn watching(guest: &Guest) -> Option<Self> {
        let config = format!(
            "global: {{scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 1s}}\n\
             scrape_configs: [{{job_name: lanewatch, static_configs: [{{targets: ['{}']}}]}}]\n",
            guest.address()
        );
        let prometheus = Self(evaluating(&config, &["alerts/lanewatch.rules.yml"])?);
        until("a scrape", || prometheus.is_up());
        // What is said before the first scrape (LanewatchAbsent) ends by itself.
        until("silence", || prometheus.firing().is_empty());
        Some(prometheus)
    }

    /// Whether its last scrape went well.
    pub fn is_up(&self) -> bool {
        let answer: Value = serde_json::from_slice(&self.0.get("/api/v1/targets?state=active").body).unwrap();
        answer["data"]["activeTargets"].as_array().unwrap().iter().any(|target| target["health"] == "up")
    }

    /// Alerts that fire, by name and subject.
    pub fn firing(&self) -> Vec<[String; 2]> {
        let answer: Value = serde_json::from_slice(&self.0.get("/api/v1/alerts").body).unwrap();
        let alerts = answer["data"]["alerts"].as_array().unwrap();
        let label = |alert: &Value, name: &str| alert["labels"][name].as_str().unwrap_or_default().to_owned();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        firing.map(|alert| ["alertname", "subject"].map(|name| label(alert, name))).collect()
    }

    /// Waits until an alert fires, or no longer does.
    pub fn wait_for(&self, alert: &str, subject: &str, fires: bool) {
        until(&format!("{alert} of {subject}: {fires}"), || {
            self.firing().iter().any(|one| one == &[alert, subject]) == fires
        });
    }
}

fn until(what: &str, so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "never came: {what}");
        thread::sleep(Duration::from_millis(500));
    }
}

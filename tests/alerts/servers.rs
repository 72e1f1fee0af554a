//! What rules are run with: Prometheus or vmalert over VictoriaMetrics, Alertmanager, and who is told.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::http;
use crate::common::rules::{hastened, text};
use crate::common::run::{Server, free_address};
use crate::common::stores::evaluating;
use crate::common::tools::{Tool, require};
use crate::common::toy::Toy;

/// How long an Alertmanager waits before it tells.
#[derive(Debug, Clone, Copy)]
pub(super) enum Waits {
    /// As the example says.
    Shipped,
    /// For other alerts of a group as many scrapes of this interval as the example does, for what joins a group a second.
    Cut(Duration),
}

/// A real Alertmanager with the example's routes and inhibitions. Its receivers are this test's.
pub(super) struct Alertmanager {
    pub(super) server: Server,
    pub(super) pager: Toy,
    pub(super) tickets: Toy,
}

impl Alertmanager {
    /// Starts one; none where it is not installed.
    pub(super) fn start(waits: Waits) -> Option<Self> {
        let program = require(Tool::Alertmanager)?;
        let (pager, tickets) = (Toy::serve("{}"), Toy::serve("{}"));
        let mut config = text("alerts/alertmanager.example.yml");
        let mut changes = vec![
            ("http://pager.example/", format!("http://{}/", pager.address)),
            ("http://tickets.example/", format!("http://{}/", tickets.address)),
        ];
        if let Waits::Cut(scrape_interval) = waits {
            // 30 s at a scrape in 15 s: what one scrape saw half is whole at the next.
            changes.push(("group_wait: 30s", format!("group_wait: {}s", (scrape_interval * 2).as_secs())));
            changes.push(("group_interval: 5m", "group_interval: 1s".to_owned()));
            changes.push(("group_interval: 1m", "group_interval: 1s".to_owned()));
        }
        for (from, to) in changes {
            assert!(config.contains(from), "{from}");
            config = config.replace(from, &to);
        }
        let (address, directory) = (free_address(), TempDir::new().unwrap());
        let file = directory.path().join("alertmanager.yml");
        fs::write(&file, config).unwrap();
        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.path={}", directory.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}")).arg("--cluster.listen-address=");
        Some(Self { server: Server::spawn(command, address, directory, "/-/ready"), pager, tickets })
    }

    /// Alerts that hold now, silenced ones among them.
    pub(super) fn alerts(&self) -> Vec<Value> {
        serde_json::from_slice(&self.server.get("/api/v2/alerts?active=true&inhibited=true").body).unwrap()
    }

    /// Waits for a state of the alerts.
    pub(super) fn wait_for(&self, what: &str, suits: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let end = Instant::now() + Duration::from_secs(90);
        loop {
            let alerts = self.alerts();
            if suits(&alerts) {
                return alerts;
            }
            assert!(Instant::now() < end, "no {what}: {alerts:#?}\n{}", self.server.log());
            thread::sleep(Duration::from_millis(300));
        }
    }
}

/// Whether an alert of this name is silenced by another.
pub(super) fn is_silenced(alert: &Value) -> bool {
    !alert["status"]["inhibitedBy"].as_array().unwrap().is_empty()
}

/// Messages that a receiver got, each with its status and the names of its alerts.
pub(super) fn messages(receiver: &Toy) -> Vec<(String, Vec<String>)> {
    let name = |alert: &Value| alert["labels"]["alertname"].as_str().unwrap().to_owned();
    let message = |body: String| {
        let message: Value = serde_json::from_str(&body).unwrap();
        let alerts = message["alerts"].as_array().unwrap().iter().map(name).collect();
        (message["status"].as_str().unwrap().to_owned(), alerts)
    };
    receiver.received().into_iter().map(message).collect()
}

fn scrape_config(targets: &[SocketAddr]) -> String {
    let targets: Vec<String> = targets.iter().map(|target| format!("'{target}'")).collect();
    format!(
        "scrape_configs:\n  - job_name: lanewatch\n    static_configs:\n      - targets: [{}]\n        \
         labels: {{site: s1, rack: r1}}\n",
        targets.join(", ")
    )
}

/// Prometheus that scrapes every second, with the shipped rules.
pub(super) fn prometheus(targets: &[SocketAddr], alertmanager: SocketAddr) -> Option<Server> {
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
         alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{alertmanager}']}}]}}]}}\n{}",
        scrape_config(targets)
    );
    evaluating(&config, &["alerts/lanewatch.rules.yml", "alerts/lanewatch.recording.yml"])
}

/// VictoriaMetrics that scrapes every second, and vmalert over it with its variant of the rules.
pub(super) fn vmalert(targets: &[SocketAddr], alertmanager: SocketAddr) -> Option<(Server, Server)> {
    let (keeper, program) = (require(Tool::VictoriaMetrics)?, require(Tool::Vmalert)?);
    let (address, directory) = (free_address(), TempDir::new().unwrap());
    let config = format!("global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n{}", scrape_config(targets));
    fs::write(directory.path().join("scrape.yml"), config).unwrap();
    let mut command = Command::new(keeper);
    command.arg(format!("-promscrape.config={}", directory.path().join("scrape.yml").display()));
    command.arg(format!("-storageDataPath={}", directory.path().join("data").display()));
    command.arg(format!("-httpListenAddr={address}")).arg("-search.latencyOffset=1s").arg("-search.disableCache");
    let keeper = Server::spawn(command, address, directory, "/health");

    let (own, directory) = (free_address(), TempDir::new().unwrap());
    let mut command = Command::new(program);
    for (name, path) in
        [("rules", "alerts/vmalert/lanewatch.rules.yml"), ("recording", "alerts/lanewatch.recording.yml")]
    {
        let file = directory.path().join(format!("{name}.yml"));
        fs::write(&file, hastened(path)).unwrap();
        command.arg(format!("-rule={}", file.display()));
    }
    for flag in ["datasource", "remoteWrite", "remoteRead"] {
        command.arg(format!("-{flag}.url=http://{address}"));
    }
    command.arg(format!("-notifier.url=http://{alertmanager}")).arg(format!("-httpListenAddr={own}"));
    command.arg("-evaluationInterval=1s").arg("-datasource.queryStep=5s").arg("-remoteWrite.flushInterval=1s");
    Some((keeper, Server::spawn(command, own, directory, "/health")))
}

/// Rules of an evaluator that failed, with what it says of them.
pub(super) fn failed(address: SocketAddr) -> Vec<String> {
    let answer = http::get(address, "/api/v1/rules").unwrap();
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    let groups = answer["data"]["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    let error = |rule: &Value| rule["lastError"].as_str().filter(|error| !error.is_empty()).map(str::to_owned);
    rules.filter_map(error).collect()
}

/// Writes a file of a host's tree anew.
pub(super) fn put(root: &Path, file: &Path, line: &str) {
    fs::write(root.join(file), format!("{line}\n")).unwrap();
}

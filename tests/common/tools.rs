//! The real programs that the tests use, and what becomes of a test when one is not there.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::http;
use super::run::{Server, free_address};
use super::stores;
use super::toy::Toy;

/// Programs that `tests/setup.sh` installs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Prometheus.
    Prometheus,
    /// curl.
    Curl,
    /// Prometheus' own checker.
    Promtool,
    /// VictoriaMetrics' agent.
    Vmagent,
    /// VictoriaMetrics, one process that keeps and answers.
    VictoriaMetrics,
    /// VictoriaMetrics' evaluator of rules.
    Vmalert,
    /// Alertmanager.
    Alertmanager,
    /// Alertmanager's own checker.
    Amtool,
    /// The exporter that hosts have already.
    NodeExporter,
    /// Chromium.
    Chromium,
    /// Chromium's driver.
    Chromedriver,
    /// `ib_write_bw` and its like.
    Perftest,
    /// iperf3.
    Iperf3,
    /// Python with `prometheus_client`.
    Python,
    /// Debian's checker of packages.
    Lintian,
    /// RPM.
    Rpm,
    /// RPM's checker of packages.
    Rpmlint,
    /// systemd's checker of units.
    SystemdAnalyze,
    /// Makes the Debian package.
    CargoDeb,
    /// Makes the RPM.
    CargoGenerateRpm,
    /// Licences and sources of crates.
    CargoDeny,
    /// Dockerfiles' checker.
    Hadolint,
    /// Python with Helm's library and the schemas of Kubernetes.
    Helm,
}

impl Tool {
    fn path(self) -> Option<PathBuf> {
        let name = match self {
            Self::Prometheus => "prometheus",
            Self::Curl => "curl",
            Self::Promtool => "promtool",
            Self::Vmagent => "vmagent",
            Self::VictoriaMetrics => "victoria-metrics",
            Self::Vmalert => "vmalert",
            Self::Alertmanager => "prometheus-alertmanager",
            Self::Amtool => "amtool",
            Self::NodeExporter => "prometheus-node-exporter",
            Self::Chromium => "chromium",
            Self::Chromedriver => "chromedriver",
            Self::Perftest => "ib_write_bw",
            Self::Iperf3 => "iperf3",
            Self::Lintian => "lintian",
            Self::Rpm => "rpm",
            Self::Rpmlint => "rpmlint",
            Self::SystemdAnalyze => "systemd-analyze",
            Self::Python => return cached("venv/bin/python"),
            Self::CargoDeb => return cached("tools/bin/cargo-deb"),
            Self::CargoGenerateRpm => return cached("tools/bin/cargo-generate-rpm"),
            Self::CargoDeny => return cached("packaging/bin/cargo-deny"),
            Self::Hadolint => return cached("packaging/bin/hadolint"),
            Self::Helm => return cached("packaging/bin/python"),
        };
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
    }
}

fn cached(path: &str) -> Option<PathBuf> {
    Some(root().join(".cache").join(path)).filter(|path| path.exists())
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where a tool is. Without it the test is skipped: that is a line on the terminal, one more in `target/skipped`,
/// which `make test` counts, and a failure where CI=true.
///
/// ```ignore
/// let Some(promtool) = require(Tool::Promtool) else { return };
/// ```
pub fn require(tool: Tool) -> Option<PathBuf> {
    let path = tool.path();
    if path.is_none() {
        skip(&format!("{tool:?} is not installed (tests/setup.sh installs it)"));
    }
    path
}

/// Notes that the running test is skipped.
pub fn skip(why: &str) {
    let test = thread::current().name().unwrap_or("test").to_owned();
    assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "{test}: {why}");
    let line = format!("skipped: {test}: {why}\n");
    // Past the test runner's capture: a skipped test must be seen.
    let _ = std::io::stderr().write_all(line.as_bytes());
    let list = OpenOptions::new().create(true).append(true).open(root().join("target/skipped"));
    let _ = list.and_then(|mut list| list.write_all(line.as_bytes()));
}

/// A series and its value, as a query gives it.
pub type Series = (BTreeMap<String, String>, f64);

/// A real Prometheus that scrapes one address.
pub struct Prometheus {
    server: Server,
}

impl Prometheus {
    /// One that scrapes `/metrics` of this address every second, as job `lanewatch`; none where it is not installed.
    pub fn scraping(target: SocketAddr) -> Option<Self> {
        Self::scraping_with(target, "")
    }

    /// The same with more lines in the scrape configuration.
    pub fn scraping_with(target: SocketAddr, more: &str) -> Option<Self> {
        let config = scrape_config(target) + more;
        Some(Self { server: stores::prometheus(TempDir::new().unwrap(), &config, &[])? })
    }

    /// What an instant query gives.
    pub fn query(&self, expression: &str) -> Vec<Series> {
        query(self.server.address, expression)
    }

    /// Asks until the answer suits.
    pub fn wait_for(&self, expression: &str, suits: impl Fn(&[Series]) -> bool) -> Vec<Series> {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let answer = self.query(expression);
            if suits(&answer) {
                return answer;
            }
            assert!(Instant::now() < end, "{expression} stayed {answer:?}; targets: {:?}", self.targets());
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until the one target's health and last error suit.
    pub fn wait_for_target(&self, suits: impl Fn(&str, &str) -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !self.targets().iter().any(|(health, error)| suits(health, error)) {
            assert!(Instant::now() < end, "the target stayed {:?}", self.targets());
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Health and last error of what is scraped.
    pub fn targets(&self) -> Vec<(String, String)> {
        targets(self.server.address)
    }
}

/// A real vmagent that scrapes one address.
pub struct Vmagent {
    server: Server,
    _sink: Toy,
}

impl Vmagent {
    /// One that scrapes `/metrics` of this address every second; what it collects goes nowhere.
    pub fn scraping(program: &Path, target: SocketAddr) -> Self {
        let (address, directory, sink) = (free_address(), TempDir::new().unwrap(), Toy::serve(""));
        let config = directory.path().join("scrape.yml");
        fs::write(&config, scrape_config(target)).unwrap();
        let mut command = Command::new(program);
        command.arg(format!("-promscrape.config={}", config.display()));
        command.arg(format!("-httpListenAddr={address}"));
        command.arg(format!("-remoteWrite.url=http://{}/write", sink.address));
        command.arg(format!("-remoteWrite.tmpDataPath={}", directory.path().join("queue").display()));
        Self { server: Server::spawn(command, address, directory, "/health"), _sink: sink }
    }

    /// Health and last error of what is scraped.
    pub fn targets(&self) -> Vec<(String, String)> {
        targets(self.server.address)
    }

    /// Waits until the target has been scraped and is healthy.
    pub fn wait_until_up(&self) {
        let end = Instant::now() + Duration::from_secs(30);
        while !self.targets().iter().any(|(health, _)| health == "up") {
            assert!(Instant::now() < end, "targets: {:?}\n{}", self.targets(), self.server.log());
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// What it has printed: complaints about an exposition are here.
    pub fn log(&self) -> String {
        self.server.log()
    }
}

/// A real node_exporter with its InfiniBand collector alone, on a host's `/sys`.
pub fn node_exporter(program: &Path, sysfs: &Path) -> Server {
    let (address, directory) = (free_address(), TempDir::new().unwrap());
    let mut command = Command::new(program);
    command.arg("--collector.disable-defaults").arg("--collector.infiniband").arg("--web.disable-exporter-metrics");
    command.arg(format!("--path.sysfs={}", sysfs.display())).arg(format!("--web.listen-address={address}"));
    Server::spawn(command, address, directory, "/")
}

/// What an instant query of a server gives that speaks Prometheus' API.
pub fn query(address: SocketAddr, expression: &str) -> Vec<Series> {
    let answer = json(address, &format!("/api/v1/query?query={}", escaped(expression)));
    assert_eq!(answer["status"], "success", "{expression}: {answer}");
    let result = answer["data"]["result"].as_array().unwrap();
    result.iter().map(|series| (labels(&series["metric"]), number(&series["value"][1]))).collect()
}

fn scrape_config(target: SocketAddr) -> String {
    format!(
        "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\n\
         scrape_configs:\n  - job_name: lanewatch\n    static_configs:\n      - targets: ['{target}']\n"
    )
}

fn targets(address: SocketAddr) -> Vec<(String, String)> {
    let answer = json(address, "/api/v1/targets?state=active");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let active = answer["data"]["activeTargets"].as_array().cloned().unwrap_or_default();
    active.iter().map(|target| (text(&target["health"]), text(&target["lastError"]))).collect()
}

fn json(address: SocketAddr, path: &str) -> Value {
    let answer = http::get(address, path).unwrap();
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}: {}", answer.text()))
}

fn labels(metric: &Value) -> BTreeMap<String, String> {
    let labels = metric.as_object().into_iter().flatten();
    labels.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

fn number(value: &Value) -> f64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

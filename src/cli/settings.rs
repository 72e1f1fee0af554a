//! What holds in the end: defaults, then the file, then the environment, then flags.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ArgMatches;

use super::args::collectors::collector_flags;
use super::args::{CommonArgs, LogFormat, LogLevel, WebArgs};
use super::config::policy::policy;
use super::config::probe::{ProbeSettings, probe};
use super::config::qid_map::layout;
use super::config::reader::TableReader;
use super::config::{self, ConfigError, ConfigFile};
use crate::bench::context::BenchmarkContext;
use crate::host::collector::{Filter, Setup};
use crate::host::fs::Fs;
use crate::host::io::Roots;
use crate::host::netlink::socket::route;
use crate::host::qid_map::QidMapLayout;
use crate::host::{COLLECTORS, Host, ON_DEMAND, Spec};
use crate::model::policy::Policy;

/// The port of the agent.
const PORT: &str = ":10015";

/// Settings of every command.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// What the file says.
    pub config: ConfigFile,
    /// Root, sysfs and procfs of the host.
    pub paths: (PathBuf, PathBuf, PathBuf),
    /// Which devices are read.
    pub filter: Filter,
    /// Which collectors run.
    pub collectors: Vec<Spec>,
    /// Where queue pair maps are, and how they look.
    pub qid_map: Option<Arc<QidMapLayout>>,
    /// The state directory.
    pub storage: PathBuf,
    /// Expectations and thresholds.
    pub policy: Arc<Policy>,
    /// Probes.
    pub probe: ProbeSettings,
    /// Log level.
    pub log_level: LogLevel,
    /// Log form.
    pub log_format: LogFormat,
}

/// Settings of HTTP.
#[derive(Debug, Clone)]
pub struct WebSettings {
    /// Addresses to listen on.
    pub listen: Vec<String>,
    /// Path of the metrics.
    pub telemetry_path: String,
    /// Most requests at once.
    pub max_requests: usize,
    /// Whether systemd hands over the sockets.
    pub systemd_socket: bool,
    /// The web configuration.
    pub config: Option<PathBuf>,
}

impl Settings {
    /// Puts them together.
    ///
    /// # Errors
    /// A file that cannot be used, or a value that is not allowed.
    pub fn new(common: &CommonArgs, matches: &ArgMatches) -> Result<Self, ConfigError> {
        let config = common.config.as_deref().map(config::read).transpose()?.unwrap_or_default();
        let file = common.config.clone();
        let source = file.clone().unwrap_or_else(|| PathBuf::from("command line"));
        let command_line = TableReader::new(Path::new("command line"), "--path.");
        tree(command_line, [("rootfs", &common.rootfs), ("sysfs", &common.sysfs), ("procfs", &common.procfs)])?;
        trees(&source, &config.path)?;
        web(&source, &config.web)?;
        let rootfs = common.rootfs.clone().or(config.path.rootfs.clone()).unwrap_or_else(|| PathBuf::from("/"));
        let sysfs = common.sysfs.clone().or(config.path.sysfs.clone()).unwrap_or_else(|| rootfs.join("sys"));
        let procfs = common.procfs.clone().or(config.path.procfs.clone()).unwrap_or_else(|| rootfs.join("proc"));
        let chosen = |flag: &str, given: Option<&String>, written: Option<&String>| match (given, written) {
            (Some(text), _) => {
                TableReader::new(Path::new("command line"), "--collector.").pattern(flag, text).map(Some)
            }
            (None, Some(text)) => TableReader::new(&source, "collector.").pattern(flag, text).map(Some),
            (None, None) => Ok(None),
        };
        let written = &config.collector;
        let filter = Filter {
            include: chosen("device-include", common.device_include.as_ref(), written.device_include.as_ref())?,
            exclude: chosen("device-exclude", common.device_exclude.as_ref(), written.device_exclude.as_ref())?,
        };
        let paths = (rootfs, sysfs, procfs);
        let collectors = collectors(&source, &config.collector, &collector_flags(matches))?;
        Ok(Self {
            qid_map: layout(&source, written.qid_map.as_ref(), &collectors, &paths)?,
            collectors,
            storage: common
                .storage
                .clone()
                .or(config.storage.path.clone())
                .unwrap_or_else(|| "/var/lib/lanewatch".into()),
            policy: Arc::new(policy(&source, &config.policy)?),
            probe: probe(&source, &config.probe)?,
            log_level: common.log_level.or(config.log.level).unwrap_or(LogLevel::Info),
            log_format: common.log_format.or(config.log.format).unwrap_or(LogFormat::Logfmt),
            paths,
            file,
            config,
            filter,
        })
    }

    /// The host, read through the file system: the running one, or a recorded one.
    pub fn host(&self) -> Host {
        let (root, sysfs, procfs) = self.paths.clone();
        let live = Fs::is_sysfs(&sysfs);
        Host {
            io: Arc::new(if live { Fs::new() } else { Fs::recorded() }),
            sysfs,
            procfs,
            roots: Roots { qid_map: self.qid_map.clone(), ..Roots::below(&root) },
            route: live.then(route),
            live,
        }
    }

    /// How this host measures.
    pub fn benchmark_context(&self) -> BenchmarkContext {
        let ProbeSettings { devices, parameters, rules, lock, .. } = self.probe.clone();
        BenchmarkContext { devices, parameters, rules, lock, host: self.host() }
    }

    /// What collectors are made with.
    pub fn setup(&self) -> Setup {
        Setup { host: self.host(), filter: self.filter.clone() }
    }

    /// Settings of HTTP.
    ///
    /// # Errors
    /// A flag with a value that is not allowed.
    pub fn web(&self, flags: &WebArgs) -> Result<WebSettings, ConfigError> {
        let file = &self.config.web;
        addresses(Path::new("command line"), "--web.listen-address", &flags.listen)?;
        max_requests(Path::new("command line"), "--web.max-requests", flags.max_requests)?;
        telemetry_path(Path::new("command line"), "--web.telemetry-path", flags.telemetry_path.as_deref())?;
        let listen = [&flags.listen, &file.listen_address].into_iter().find(|list| !list.is_empty());
        Ok(WebSettings {
            listen: listen.cloned().unwrap_or_else(|| vec![PORT.to_owned()]),
            telemetry_path: flags
                .telemetry_path
                .clone()
                .or(file.telemetry_path.clone())
                .unwrap_or("/metrics".to_owned()),
            max_requests: flags.max_requests.or(file.max_requests).unwrap_or(512),
            systemd_socket: flags.systemd_socket || file.systemd_socket.unwrap_or(false),
            config: flags.web_config.clone().or(file.config_file.clone()),
        })
    }
}

/// Checks every value of a file without using it.
///
/// # Errors
/// The first value that is not allowed.
pub fn validate(file: &Path, config: &ConfigFile) -> Result<(), ConfigError> {
    web(file, &config.web)?;
    policy(file, &config.policy)?;
    probe(file, &config.probe)?;
    let paths = ("/".into(), "/sys".into(), "/proc".into());
    layout(file, config.collector.qid_map.as_ref(), &collectors(file, &config.collector, &[])?, &paths)?;
    for (key, text) in
        [("device-include", &config.collector.device_include), ("device-exclude", &config.collector.device_exclude)]
    {
        text.as_deref().map(|text| TableReader::new(file, "collector.").pattern(key, text)).transpose()?;
    }
    Ok(())
}

/// A host that is named but not there is a slip of the pen, not a host without cards.
fn tree(read: TableReader<'_>, named: [(&str, &Option<PathBuf>); 3]) -> Result<(), ConfigError> {
    let named = named.into_iter().filter_map(|(key, path)| Some((key, path.as_ref()?)));
    for (key, path) in named {
        if !path.is_dir() {
            return Err(read.wrong(key, format!("{} is not a directory", path.display())));
        }
    }
    Ok(())
}

/// Where a file says that the host is.
///
/// # Errors
/// One of them is not there.
pub fn trees(file: &Path, paths: &config::PathConfig) -> Result<(), ConfigError> {
    let named = [("rootfs", &paths.rootfs), ("sysfs", &paths.sysfs), ("procfs", &paths.procfs)];
    tree(TableReader::new(file, "path."), named)
}

fn web(file: &Path, web: &config::WebConfig) -> Result<(), ConfigError> {
    addresses(file, "web.listen-address", &web.listen_address)?;
    max_requests(file, "web.max-requests", web.max_requests)?;
    telemetry_path(file, "web.telemetry-path", web.telemetry_path.as_deref())
}

/// 0 is no limit.
fn max_requests(file: &Path, key: &str, most: Option<usize>) -> Result<(), ConfigError> {
    TableReader::new(file, "").number(key, most, 0..=100_000).map(drop)
}

fn addresses(file: &Path, key: &str, addresses: &[String]) -> Result<(), ConfigError> {
    let names_a_port = |address: &&String| {
        let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        matches!(port, Some(Ok(_)))
    };
    let allowed = "an address such as :10015, 127.0.0.1:10015 or [::1]:10015";
    match addresses.iter().find(|address| !names_a_port(address)) {
        Some(address) => Err(TableReader::new(file, "").is_not(key, address, allowed)),
        None => Ok(()),
    }
}

fn telemetry_path(file: &Path, key: &str, path: Option<&str>) -> Result<(), ConfigError> {
    // What a request line carries as it is; other bytes would come encoded, and never match.
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-._~!$&'()*+,;=:@".contains(c);
    let allowed = |path: &&str| {
        let leads_down = path.split('/').skip(1).all(|name| !matches!(name, "" | "." | ".."));
        let taken = ["/-/", "/api/"].iter().any(|taken| path.starts_with(taken));
        path.starts_with('/') && leads_down && !taken && path.chars().all(plain)
    };
    match path.filter(|path| !allowed(path)) {
        Some(path) => {
            let message = "a path such as /metrics; / alone, /-/ and /api/ are taken";
            Err(TableReader::new(file, "").is_not(key, path, message))
        }
        None => Ok(()),
    }
}

fn collectors(file: &Path, table: &config::CollectorConfig, flags: &[(&str, bool)]) -> Result<Vec<Spec>, ConfigError> {
    for (key, list) in [("collector.disabled", &table.disabled), ("collector.enabled", &table.enabled)] {
        if let Some(unknown) = list.iter().find(|name| !COLLECTORS.iter().any(|spec| spec.name == **name)) {
            let names: Vec<&str> = COLLECTORS.iter().map(|spec| spec.name).collect();
            let message = format!("{unknown:?} is not a collector; the collectors are {}", names.join(", "));
            return Err(TableReader::new(file, "").wrong(key, message));
        }
    }
    let runs = |spec: &&Spec| {
        let flag = flags.iter().rev().find(|(name, _)| *name == spec.name).map(|(_, on)| *on);
        let named = |list: &[String]| list.iter().any(|name| *name == spec.name);
        let wanted = !ON_DEMAND.contains(&spec.name) || named(&table.enabled);
        flag.unwrap_or_else(|| wanted && !named(&table.disabled))
    };
    Ok(COLLECTORS.iter().filter(runs).copied().collect())
}

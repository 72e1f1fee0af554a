//! Settings that apply: flags before the environment, before the file, before the defaults.

use std::path::PathBuf;
use std::sync::Arc;

use clap::ArgMatches;

use super::args::collector_flags;
use super::args::values::{LogFormat, LogLevel};
use super::args::{CommonArgs, WebArgs};
use super::config::error::{ConfigErrors, ErrorList};
use super::config::files::host_paths;
use super::config::probe::{ProbeSettings, probe};
use super::config::reader::TableReader;
use super::config::schema::ConfigFile;
use super::config::{self, collector, policy, web};
use crate::bench::context::BenchmarkContext;
use crate::host::collector::{Filter, Setup};
use crate::host::ethtool::ioctl;
use crate::host::example::Example;
use crate::host::fs::Fs;
use crate::host::io::Roots;
use crate::host::netlink::socket::{Protocol, route};
use crate::host::recording::ReplayedHost;
use crate::host::{Host, HostIo, Spec};
use crate::model::policy::Policy;
use crate::model::sriov::QidMapLayout;

/// The port of the agent.
const PORT: &str = ":10015";

/// Settings of every command.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// Its content.
    pub config: ConfigFile,
    /// Whether the built-in example host is read.
    pub demo: bool,
    /// Root, sysfs and procfs of the host.
    pub paths: (PathBuf, PathBuf, PathBuf),
    /// Which devices are read.
    pub filter: Filter,
    /// Which collectors run.
    pub collectors: Vec<Spec>,
    /// The socket of the kubelet's PodResources API; `None` if it is not asked.
    pub kubelet_socket: Option<PathBuf>,
    /// Path and columns of queue pair maps; `None` if not configured.
    pub qid_map: Option<Arc<QidMapLayout>>,
    /// Whether ports of VFs beside their PF have every metric of a port.
    pub vf_ports: bool,
    /// The state directory.
    pub storage: PathBuf,
    /// Expectations and thresholds.
    pub policy: Arc<Policy>,
    /// Benchmarks.
    pub probe: ProbeSettings,
    /// Log level.
    pub log_level: LogLevel,
    /// Log format.
    pub log_format: LogFormat,
}

/// Settings of HTTP.
#[derive(Debug, Clone)]
pub struct WebSettings {
    /// Addresses to listen on.
    pub listen: Vec<String>,
    /// Path of the metrics.
    pub telemetry_path: String,
    /// Maximum concurrent requests.
    pub max_requests: usize,
    /// Whether systemd passes the sockets.
    pub systemd_socket: bool,
    /// The web configuration file.
    pub config: Option<PathBuf>,
    /// Whether a reload may ask clients for less than before.
    pub allow_weaker_reload: bool,
    /// Whether everyone may read the snapshot.
    pub public_snapshot: bool,
}

impl Settings {
    /// Puts flags, environment, file and defaults together.
    ///
    /// # Errors
    /// Every value that is not allowed, and a file that cannot be used.
    pub fn new(common: &CommonArgs, matches: &ArgMatches) -> Result<Self, ConfigErrors> {
        let errors = ErrorList::default();
        let config = common.config.as_deref().map(|file| config::read(file, &errors)).unwrap_or_default();
        let source = common.config.clone().unwrap_or_else(|| PathBuf::from("command line"));
        let table = |name| TableReader::new(&errors, &source, name);
        if !common.demo {
            host_paths(&table("path."), [&config.path.rootfs, &config.path.sysfs, &config.path.procfs]);
        }
        let flags = TableReader::of_flags(&errors, "--path.");
        host_paths(&flags, [&common.rootfs, &common.sysfs, &common.procfs]);
        web::web(&table("web."), &config.web);
        let rootfs = common.rootfs.clone().or(config.path.rootfs.clone()).unwrap_or_else(|| PathBuf::from("/"));
        let sysfs = common.sysfs.clone().or(config.path.sysfs.clone()).unwrap_or_else(|| rootfs.join("sys"));
        let procfs = common.procfs.clone().or(config.path.procfs.clone()).unwrap_or_else(|| rootfs.join("proc"));
        let paths = (rootfs, sysfs, procfs);
        let (include, exclude) = (common.device_include.as_deref(), common.device_exclude.as_deref());
        let given = collector::filter(&TableReader::of_flags(&errors, "--collector."), include, exclude);
        let written = &config.collector;
        // A flag replaces what the file says, and that need not be valid then.
        let filter = collector::filter(
            &table("collector."),
            written.device_include.as_deref().filter(|_| include.is_none()),
            written.device_exclude.as_deref().filter(|_| exclude.is_none()),
        );
        let filter = Filter { include: given.include.or(filter.include), exclude: given.exclude.or(filter.exclude) };
        let collectors = collector::collectors(&table("collector."), written, &collector_flags(matches));
        let kubelet_socket = match (&common.kubelet_socket, &written.kubelet_socket) {
            (Some(given), _) => {
                collector::kubelet_socket(&TableReader::of_flags(&errors, "--collector."), given, &paths.0)
            }
            (None, Some(written)) => collector::kubelet_socket(&table("collector."), written, &paths.0),
            (None, None) => None,
        };
        let settings = Self {
            kubelet_socket,
            qid_map: collector::layout(&table("collector."), written.qid_map.as_ref(), &collectors, &paths),
            collectors,
            vf_ports: common.vf_ports || written.vf_ports.unwrap_or(false),
            storage: common
                .storage
                .clone()
                .or(config.storage.path.clone())
                .unwrap_or_else(|| "/var/lib/lanewatch".into()),
            policy: Arc::new(policy::policy(&table("policy."), &config.policy)),
            probe: probe(&table("probe."), &config.probe),
            log_level: common.log_level.or(config.log.level).unwrap_or(LogLevel::Info),
            log_format: common.log_format.or(config.log.format).unwrap_or(LogFormat::Logfmt),
            paths,
            file: common.config.clone(),
            demo: common.demo,
            config,
            filter,
        };
        errors.into_result(settings)
    }

    /// The host: the running one, a recorded one, or the built-in example.
    pub fn host(&self) -> Host {
        if self.demo {
            return Example::at_fault().host();
        }
        let (root, sysfs, procfs) = self.paths.clone();
        let live = Fs::is_sysfs(&sysfs);
        let io: Arc<dyn HostIo> = match ReplayedHost::open(&root).filter(|_| !live) {
            Some(snapshot) => Arc::new(snapshot),
            None => Arc::new(if live { Fs::new() } else { Fs::recorded() }),
        };
        let route = io.netlink(Protocol::Route).or_else(|| live.then(route));
        let (kubelet_socket, qid_map) = (self.kubelet_socket.clone(), self.qid_map.clone());
        let roots = Roots { kubelet_socket, qid_map, ..Roots::below(&root) };
        let ethtool = io.ethtool().or_else(|| live.then(ioctl::kernel));
        Host { io, sysfs, procfs, roots, route, ethtool, live }
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
    /// Flags with values that are not allowed.
    pub fn web(&self, flags: &WebArgs) -> Result<WebSettings, ConfigErrors> {
        let (file, errors) = (&self.config.web, ErrorList::default());
        let read = TableReader::of_flags(&errors, "--web.");
        for address in &flags.listen {
            web::listen_address(&read, "listen-address", address);
        }
        web::max_requests(&read, flags.max_requests);
        web::telemetry_path(&read, flags.telemetry_path.as_deref());
        let listen = [&flags.listen, &file.listen_address].into_iter().find(|list| !list.is_empty());
        errors.into_result(WebSettings {
            listen: listen.cloned().unwrap_or_else(|| vec![PORT.to_owned()]),
            telemetry_path: flags
                .telemetry_path
                .clone()
                .or(file.telemetry_path.clone())
                .unwrap_or("/metrics".to_owned()),
            max_requests: flags.max_requests.or(file.max_requests).unwrap_or(512),
            systemd_socket: flags.systemd_socket || file.systemd_socket.unwrap_or(false),
            config: flags.web_config.clone().or(file.config_file.clone()),
            allow_weaker_reload: flags.allow_weaker_reload || file.allow_weaker_reload.unwrap_or(false),
            public_snapshot: flags.public_snapshot || file.public_snapshot.unwrap_or(false),
        })
    }
}

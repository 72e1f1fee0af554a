//! Mutual TLS in the place of a shared key: from the list of hosts to `/metrics`, and who is sent away.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::super::Scene;
use super::super::common::certs::{Authority, Pair, dns, write};
use super::super::common::run::{Group, free_address, to_its_end};
use super::super::common::tools::{Tool, require};
use super::{TIMEOUT, before, end, may_mount, stage, until, value};

const FAMILY: &str = "lanewatch_probe_server_requests_total";
const REFUSED: &str = "lanewatch_web_refused_clients_total";

/// Certificates of hosts, good ones and others, and what they are used for.
struct Certificates {
    scene: Scene,
    curl: PathBuf,
    ca: PathBuf,
    foreign_ca: PathBuf,
    good: Pair,
    /// Of the same authority, with another name.
    other_name: Pair,
    /// With the right name, of another authority.
    foreign: Pair,
    expired: Pair,
}

impl Certificates {
    fn new() -> Option<Self> {
        let curl = require(Tool::Curl).filter(|_| may_mount())?;
        let scene = stage("ok");
        let at = scene.directory.path();
        let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
        let (ca, foreign_ca) = (at.join("ca.pem"), at.join("foreign-ca.pem"));
        fs::write(&ca, &ours.pem).unwrap();
        fs::write(&foreign_ca, &theirs.pem).unwrap();
        write(at, "server", &ours.server(1));
        let name = || vec![dns("node.example.org")];
        let (good, expired) = (ours.client(name(), false), ours.client(name(), true));
        let (other, foreign) = (ours.client(vec![dns("guest.example.org")], false), theirs.client(name(), false));
        Some(Self {
            good: write(at, "good", &good),
            expired: write(at, "expired", &expired),
            other_name: write(at, "other", &other),
            foreign: write(at, "foreign", &foreign),
            curl,
            ca,
            foreign_ca,
            scene,
        })
    }

    /// The web configuration of an agent that asks its clients for certificates so.
    fn web(&self, name: &str, mode: &str, names: &str) -> PathBuf {
        let path = self.scene.path(name);
        let text = format!(
            "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n  client_auth_type: {mode}\n  \
             client_ca_file: ca.pem\n{names}"
        );
        fs::write(&path, text).unwrap();
        path
    }

    /// The configuration of an agent there that asks its peers with this certificate, or none, and trusts this authority.
    fn configure(&self, address: SocketAddr, probe: &str, peers: &str, own: Option<&Pair>, ca: &Path) -> PathBuf {
        let path = self.scene.path(&format!("lanewatch-{}.toml", address.port()));
        let own = own.map_or_else(String::new, |own| {
            format!("cert-file = '{}'\nkey-file = '{}'\n", own.certificate.display(), own.key.display())
        });
        let text = format!(
            "[probe]\nlock = '{lock}'\nduration = '1s'\npatience = '3m'\nmost-load = 100.0\nbudget = 0.1\n{probe}\n[probe.peers]\nname = \
             '{address}'\n{peers}\n[probe.peers.tls]\nca-file = '{ca}'\n{own}",
            lock = self.scene.path(&format!("lock-{}", address.port())).display(),
            ca = ca.display(),
        );
        fs::write(&path, text).unwrap();
        path
    }

    fn serve(&self, address: SocketAddr, config: &Path, web: &Path) -> Group {
        let mut command = before(&self.scene, &["serve", "--web.listen-address", &address.to_string()]);
        command.arg("--config.file").arg(config).arg("--web.config.file").arg(web);
        command.arg("--storage.path").arg(self.scene.path(&format!("state-{}", address.port())));
        let log = fs::File::create(self.scene.path(&format!("log-{}", address.port()))).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let agent = Group::spawn(&mut command);
        let ready = || (self.get(address, "/-/ready") == "ready\n").then_some(());
        until(Duration::from_secs(60), &self.log(address), ready);
        agent
    }

    fn log(&self, address: SocketAddr) -> String {
        fs::read_to_string(self.scene.path(&format!("log-{}", address.port()))).unwrap_or_default()
    }

    fn get(&self, address: SocketAddr, path: &str) -> String {
        let mut command = Command::new(&self.curl);
        command.args(["--silent", "--max-time", "10", "--cacert"]).arg(&self.ca);
        command.arg("--cert").arg(&self.good.certificate).arg("--key").arg(&self.good.key);
        let output = command.arg(format!("https://{address}{path}")).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn count(&self, address: SocketAddr, family: &str, label: &str) -> Option<f64> {
        value(&self.get(address, "/metrics"), &format!("{family}{{{label}}}"))
    }

    /// Waits until so many programs were started: counts in the metrics may be a second old.
    fn has_started(&self, address: SocketAddr, least: f64) {
        let started = || self.count(address, FAMILY, "result=\"started\"").filter(|count| *count >= least);
        until(Duration::from_secs(10), "programs started", started);
    }

    /// What `bench --peer` says, asked with this certificate.
    fn bench(&self, peer: SocketAddr, own: Option<&Pair>, ca: &Path) -> String {
        let config = self.configure(free_address(), "", "", own, ca);
        let state = self.scene.path("bench-state");
        fs::create_dir_all(&state).unwrap();
        let arguments = ["bench", "rxe0", "--force", "--peer", &peer.to_string(), "--config.file"];
        let mut command = before(&self.scene, &arguments);
        command.arg(&config).arg("--storage.path").arg(&state);
        to_its_end(command, Duration::from_secs(120)).stdout
    }
}

const NAMES: &str = "  client_allowed_sans: [node.example.org]\n";

#[test]
fn two_agents_know_each_other_by_their_certificates() {
    let Some(hosts) = Certificates::new() else { return };
    let addresses = [free_address(), free_address()];
    let list = addresses.map(|address| address.to_string());
    fs::write(hosts.scene.path("peers.yml"), format!("- targets: ['{}', '{}']\n", list[0], list[1])).unwrap();
    let peers = format!("serve = true\nslot = '10s'\nlist = '{}'", hosts.scene.path("peers.yml").display());
    let web = hosts.web("web.yml", "RequireAndVerifyClientCert", NAMES);
    let agents = addresses.map(|address| {
        let probe = "enabled = true\nprobes = ['rdma_peer']";
        hosts.serve(address, &hosts.configure(address, probe, &peers, Some(&hosts.good), &hosts.ca), &web)
    });
    for address in addresses {
        let series = "lanewatch_probe_bandwidth_bytes_per_second{probe=\"rdma_peer\",device=\"rxe0\",port=\"1\",\
                      direction=\"one_way\"}";
        let measured = until(TIMEOUT, series, || value(&hosts.get(address, "/metrics"), series));
        assert!((measured - 190.25e9 / 8.0).abs() < 1.0, "{measured}");
    }
    for address in addresses {
        hosts.has_started(address, 3.0);
        for why in ["no_certificate", "unknown_authority", "wrong_name"] {
            assert_eq!(hosts.count(address, REFUSED, &format!("reason=\"{why}\"")), Some(0.0), "{why}");
        }
    }
    agents.into_iter().for_each(end);
    hosts.scene.is_clean();
}

#[test]
fn certificates_that_will_not_do_start_nothing() {
    let Some(hosts) = Certificates::new() else { return };
    let address = free_address();
    let web = hosts.web("web.yml", "RequireAndVerifyClientCert", NAMES);
    let agent = hosts.serve(address, &hosts.configure(address, "", "serve = true", None, &hosts.ca), &web);
    for (own, ca, why) in [
        (None, &hosts.ca, "no_certificate"),
        (Some(&hosts.foreign), &hosts.ca, "unknown_authority"),
        (Some(&hosts.other_name), &hosts.ca, "wrong_name"),
        (Some(&hosts.expired), &hosts.ca, "expired"),
        // Who asks does not trust the server either.
        (Some(&hosts.good), &hosts.foreign_ca, "by_client"),
    ] {
        let label = format!("reason=\"{why}\"");
        assert_eq!(hosts.count(address, REFUSED, &label), Some(0.0), "{why}: there from the start");
        let text = hosts.bench(address, own, ca);
        assert!(
            text.contains("rdma_peer rxe0/1: inconclusive") && text.contains("did not start a server"),
            "{why}: {text}"
        );
        assert!(hosts.scene.notes().is_empty(), "{why}: {:?}", hosts.scene.notes());
        until(Duration::from_secs(10), why, || hosts.count(address, REFUSED, &label).filter(|count| *count >= 1.0));
        assert_eq!(hosts.count(address, FAMILY, "result=\"started\""), Some(0.0), "{why}");
    }
    let measured = hosts.bench(address, Some(&hosts.good), &hosts.ca);
    assert!(measured.contains("rdma_peer rxe0/1: ok\n") && measured.contains("190.2 Gb/s"), "{measured}");
    hosts.has_started(address, 3.0);
    end(agent);
    hosts.scene.is_clean();
}

#[test]
fn a_scraper_without_a_certificate_may_read_and_may_not_start_anything() {
    let Some(hosts) = Certificates::new() else { return };
    let address = free_address();
    let web = hosts.web("web.yml", "VerifyClientCertIfGiven", "");
    let agent = hosts.serve(address, &hosts.configure(address, "", "serve = true", None, &hosts.ca), &web);
    let text = hosts.bench(address, None, &hosts.ca);
    assert!(text.contains("unsigned: the connection has no verified client"), "{text}");
    assert_eq!(hosts.count(address, FAMILY, "result=\"unsigned\""), Some(1.0));
    assert!(hosts.scene.notes().is_empty());
    let measured = hosts.bench(address, Some(&hosts.other_name), &hosts.ca);
    assert!(measured.contains("rdma_peer rxe0/1: ok\n"), "any name will do here: {measured}");
    end(agent);
    hosts.scene.is_clean();
}

#[test]
fn an_agent_that_would_start_servers_for_everybody_does_not_start() {
    let Some(hosts) = Certificates::new() else { return };
    let web = hosts.scene.path("open.yml");
    fs::write(&web, "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n").unwrap();
    let address = free_address();
    let config = hosts.configure(address, "", "serve = true", None, &hosts.ca);
    let mut command = before(&hosts.scene, &["serve", "--web.listen-address", &address.to_string()]);
    command.arg("--config.file").arg(config).arg("--web.config.file").arg(web);
    command.arg("--storage.path").arg(hosts.scene.path("state"));
    let output = to_its_end(command, Duration::from_secs(60));
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("client_auth_type: RequireAndVerifyClientCert"), "{}", output.stderr);
}

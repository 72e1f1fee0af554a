//! `serve` with a web configuration, over a small host.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rcgen::SanType;
use tempfile::TempDir;

use crate::common::certs::{Authority, Pair, dns, write};
use crate::common::host::HostTree;
use crate::common::run::{Group, free_address, program};

/// A password, and its hash at a cost that people use.
pub const PASSWORD: &str = "open sesame";

/// The hash of [`PASSWORD`].
pub fn hash() -> String {
    bcrypt::hash(PASSWORD, 10).unwrap()
}

/// Certificates, a configuration, and the program with it.
pub struct Fixture {
    pub directory: TempDir,
    pub address: SocketAddr,
    pub authority: Authority,
    /// The authority's certificate.
    pub ca: PathBuf,
    /// Client certificates: a good one, one with another name, one that has expired, one of another authority.
    pub good: Pair,
    pub other_name: Pair,
    pub expired: Pair,
    pub foreign: Pair,
    pub group: Option<Group>,
}

impl Fixture {
    /// Certificates and a host; nothing runs yet.
    pub fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let at = directory.path();
        HostTree::new(2).write(&at.join("host")).unwrap();
        let (authority, foreign) = (Authority::new("ours"), Authority::new("theirs"));
        let ca = at.join("ca.crt");
        fs::write(&ca, &authority.pem).unwrap();
        write(at, "server", &authority.server(1));
        let address: SanType = SanType::IpAddress([192, 0, 2, 9].into());
        Self {
            good: write(at, "good", &authority.client(vec![dns("prometheus.example.org"), address], false)),
            other_name: write(at, "other", &authority.client(vec![dns("someone.example.org")], false)),
            expired: write(at, "expired", &authority.client(vec![dns("prometheus.example.org")], true)),
            foreign: write(at, "foreign", &foreign.client(vec![dns("prometheus.example.org")], false)),
            ca,
            authority,
            address: free_address(),
            directory,
            group: None,
        }
    }

    /// Runs the program with this web configuration.
    pub fn start(self, config: &str) -> Self {
        self.start_with(config, &[])
    }

    /// The same with more arguments; started again, it goes on where it was.
    pub fn start_with(mut self, config: &str, more: &[&str]) -> Self {
        self.configure(config);
        self.backdate("web.yml");
        let ready = self.log().matches("message=ready").count();
        let mut command = program();
        let at = self.directory.path();
        command.args(["serve", "--storage.path", "state", "--web.listen-address", &self.address.to_string()]);
        command.arg("--web.config.file").arg(at.join("web.yml")).arg("--path.rootfs").arg(at.join("host"));
        command.args(more);
        let log = fs::OpenOptions::new().create(true).append(true).open(at.join("log")).unwrap();
        command.current_dir(at).stdout(log.try_clone().unwrap()).stderr(log);
        self.group = Some(Group::spawn(&mut command));
        self.wait_for_log("message=ready", ready + 1);
        self
    }

    /// Writes the web configuration.
    pub fn configure(&self, config: &str) {
        fs::write(self.path("web.yml"), config).unwrap();
    }

    /// Makes a file one that was written a minute ago.
    pub fn backdate(&self, name: &str) {
        let file = fs::File::options().append(true).open(self.path(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).unwrap();
    }

    /// A path in the directory of the configuration.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What it has printed.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Waits until a text is in the log so many times.
    pub fn wait_for_log(&self, text: &str, times: usize) {
        let end = Instant::now() + Duration::from_secs(15);
        while self.log().matches(text).count() < times {
            assert!(Instant::now() < end, "{text:?} is not in the log {times} times\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// `tls_server_config` with the server's certificate, and more lines of it.
pub fn tls(more: &[&str]) -> String {
    let lines: Vec<String> = more.iter().map(|line| format!("  {line}\n")).collect();
    format!("tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n{}", lines.concat())
}

/// `basic_auth_users` with one user.
pub fn users() -> String {
    format!("basic_auth_users:\n  alice: {}\n", hash())
}

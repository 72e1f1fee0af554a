//! The packages in a clean Debian: what is there after they are installed, removed and purged.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::common::host::{GEN3, GEN4, HostTree, LinkEnd};
use crate::common::run::{Output, Server, free_address};
use crate::common::tools::{Tool, require, skip};
use crate::made::packages;
use crate::{root, run, succeed};

/// A copy of a clean Debian.
pub(crate) struct Debian(TempDir);

impl Debian {
    fn copied() -> Option<Self> {
        Self::copy_of(&root().join(".cache/debian"))
    }

    /// `None`, and the test skipped, if the clean one is missing or this is not root.
    pub(crate) fn copy_of(clean: &Path) -> Option<Self> {
        if !clean.join("made").exists() || !rustix::process::getuid().is_root() {
            skip("there is no Debian tree, or this is not root (tests/packaging/tree.sh makes one)");
            return None;
        }
        let copy = TempDir::new_in(root().join("target")).unwrap();
        succeed(Command::new("cp").args(["-a", "--reflink=auto"]).arg(clean.join(".")).arg(copy.path()));
        let mut host = HostTree::new(2);
        host.cards[1].device = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
        host.cards[1].upstream = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
        fs::create_dir(copy.path().join("host")).unwrap();
        host.write(&copy.path().join("host")).unwrap();
        // As tempfile makes it, only root could enter.
        fs::set_permissions(copy.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Some(Self(copy))
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.0.path().join(path)
    }

    fn there(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        run(Command::new("chroot").arg(self.0.path()).args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
    }

    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.code, Some(0), "{arguments:?}\n{}\n{}", output.stdout, output.stderr);
        output.stdout
    }

    fn user(&self) -> (u32, u32) {
        let line = self.succeed(&["getent", "passwd", "lanewatch"]);
        let mut fields = line.split(':').skip(2).map(|field| field.parse().unwrap());
        (fields.next().unwrap(), fields.next().unwrap())
    }

    /// The agent as its unit runs it, less the sandbox: as its user, with a state directory of its own.
    fn served(&self) {
        let (user, group) = self.user();
        let state = self.path("var/lib/lanewatch");
        fs::create_dir_all(&state).unwrap();
        std::os::unix::fs::chown(&state, Some(user), Some(group)).unwrap();
        let address = free_address();
        let mut command = Command::new("chroot");
        command.arg(format!("--userspec={user}:{group}")).arg(self.0.path());
        command.args([
            "/usr/bin/lanewatch",
            "serve",
            "--path.rootfs",
            "/host",
            "--config.file",
            "/etc/lanewatch/lanewatch.toml",
        ]);
        command.arg("--web.listen-address").arg(address.to_string());
        let server = Server::spawn(command, address, TempDir::new().unwrap(), "/-/ready");
        let metrics = server.get("/metrics").text();
        assert!(metrics.contains("lanewatch_device_info{device=\"mlx5_1\""), "{metrics}");
        assert!(!server.log().contains("running as root"), "{}", server.log());
        // What the agent still waits for would be pending in `check`, too.
        let began = std::time::Instant::now();
        while !server.get("/metrics").text().contains("lanewatch_finding{check=\"pcie_degraded\"") {
            assert!(began.elapsed() < std::time::Duration::from_secs(90), "{}", server.log());
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        server.group.signal(rustix::process::Signal::TERM);
        let mut server = server;
        assert!(server.group.wait(std::time::Duration::from_secs(10)).is_some(), "it does not end");
        assert!(fs::read_dir(&state).unwrap().count() > 0, "it has kept nothing");
    }

    /// What the installed program says of the recorded host.
    fn checked(&self) {
        let check = self.run(&["/usr/bin/lanewatch", "check", "--path.rootfs", "/host"]);
        assert_eq!(check.code, Some(2), "{}\n{}", check.stdout, check.stderr);
        assert!(check.stdout.contains("pcie_degraded 0000:0c:00.0"), "{}", check.stdout);
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn the_debian_package_comes_and_goes() {
    let (Some(made), Some(debian)) = (packages(), Debian::copied()) else { return };
    deb_comes_and_goes(&made.deb, &debian);
}

/// Installs the package, runs it, upgrades, removes and purges it.
pub(crate) fn deb_comes_and_goes(deb: &Path, debian: &Debian) {
    fs::copy(deb, debian.path("lanewatch.deb")).unwrap();
    debian.succeed(&["dpkg", "-i", "/lanewatch.deb"]);

    let (_, group) = debian.user();
    let configuration = debian.path("etc/lanewatch");
    assert_eq!((mode(&configuration), fs::metadata(&configuration).unwrap().gid()), (0o750, group));
    assert!(debian.there("etc/systemd/system/multi-user.target.wants/lanewatch.service"), "it starts with the host");
    assert!(
        !debian.there("etc/systemd/system/sockets.target.wants/lanewatch.socket"),
        "the socket is for those who ask"
    );
    assert_eq!(debian.succeed(&["dpkg", "--verify", "lanewatch"]), "");
    debian.checked();
    debian.served();

    // A second time is an upgrade: settings that were changed stay.
    let settings = debian.path("etc/default/lanewatch");
    fs::write(&settings, "ARGS=\"--no-collector.ethtool\"\n").unwrap();
    debian.succeed(&["dpkg", "--force-confold", "-i", "/lanewatch.deb"]);
    assert!(fs::read_to_string(&settings).unwrap().contains("--no-collector.ethtool"));
    debian.checked();

    debian.succeed(&["dpkg", "--remove", "lanewatch"]);
    for gone in ["usr/bin/lanewatch", "usr/lib/systemd/system/lanewatch.service", "usr/share/lanewatch"] {
        assert!(!debian.there(gone), "{gone}");
    }
    for kept in ["etc/default/lanewatch", "etc/lanewatch/lanewatch.toml", "var/lib/lanewatch"] {
        assert!(debian.there(kept), "{kept}");
    }
    fs::write(configuration.join("web.yml"), "{}").unwrap();

    debian.succeed(&["dpkg", "--purge", "lanewatch"]);
    for gone in ["etc/default/lanewatch", "etc/lanewatch", "var/lib/lanewatch"] {
        assert!(!debian.there(gone), "{gone}");
    }
    assert!(!debian.there("etc/systemd/system/multi-user.target.wants/lanewatch.service"));
    debian.user();
}

#[test]
fn the_rpm_comes_and_goes() {
    let (Some(made), Some(debian)) = (packages(), Debian::copied()) else { return };
    rpm_comes_and_goes(&made.rpm, &debian);
}

/// Installs the package, runs it, upgrades and removes it.
pub(crate) fn rpm_comes_and_goes(package: &Path, debian: &Debian) {
    let Some(rpm) = require(Tool::Rpm) else { return };
    let rpm = |arguments: &[&str]| {
        let mut command = Command::new(&rpm);
        command.arg("--root").arg(debian.0.path()).args(["--dbpath", "/rpmdb"]).args(arguments);
        succeed(&mut command);
    };
    // Its libraries and its shell are there, but no RPM says so.
    rpm(&["--nodeps", "--ignorearch", "-i", package.to_str().unwrap()]);
    let (_, group) = debian.user();
    assert_eq!(
        (mode(&debian.path("etc/lanewatch")), fs::metadata(debian.path("etc/lanewatch")).unwrap().gid()),
        (0o750, group)
    );
    assert!(debian.there("etc/sysconfig/lanewatch") && !debian.there("etc/default/lanewatch"));
    debian.checked();
    debian.served();
    fs::write(debian.path("etc/lanewatch/lanewatch.toml"), "# mine\n").unwrap();
    rpm(&["--nodeps", "--ignorearch", "--force", "-U", package.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(debian.path("etc/lanewatch/lanewatch.toml")).unwrap(), "# mine\n");
    debian.checked();

    rpm(&["-e", "lanewatch"]);
    for gone in ["usr/bin/lanewatch", "usr/lib/systemd/system/lanewatch.service", "etc/sysconfig/lanewatch"] {
        assert!(!debian.there(gone), "{gone}");
    }
    assert!(debian.there("etc/lanewatch/lanewatch.toml.rpmsave"), "what was changed is kept");
    assert!(debian.there("var/lib/lanewatch"), "state is kept");
}

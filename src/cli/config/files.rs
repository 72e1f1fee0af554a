//! What a configuration file names besides itself: files, directories and a program, as they are on this host now.
//!
//! A running agent goes on without some of them, such as a list of peers that has yet to be written. `config check`
//! reports each.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::error::ConfigError;
use super::reader::TableReader;
use super::schema::ConfigFile;
use crate::bench::peers::authentication::PeerKey;
use crate::bench::peers::schedule;
use crate::export::web::Web;
use crate::fleet::tls::{TlsFiles, config as tls};

/// Checks what the agent needs besides valid values; `open`: with the files that are named. Returns what works but
/// should be known.
pub fn check(read: &TableReader<'_>, config: &ConfigFile, open: bool) -> Vec<String> {
    let web = if open { on_this_host(read, config) } else { None };
    // Where the web configuration is not read, it may verify certificates.
    let verifies = match (&config.web.config_file, &web) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(_), Some(web)) => web.verifies_clients,
    };
    let peers = &config.probe.peers;
    if peers.serve == Some(true) && peers.key_file.is_none() && !verifies {
        read.error("probe.peers.key-file", NO_PEER_AUTHENTICATION);
    }
    web.map(|web| web.remarks).unwrap_or_default()
}

/// Why an agent does not start servers for peers.
pub const NO_PEER_AUTHENTICATION: &str = "is missing: without it the web configuration must verify clients' \
                                          certificates (client_auth_type: RequireAndVerifyClientCert)";

fn on_this_host(read: &TableReader<'_>, config: &ConfigFile) -> Option<Web> {
    let paths = &config.path;
    host_paths(&read.table("path."), [&paths.rootfs, &paths.sysfs, &paths.procfs]);
    if let Some(path) = &config.storage.path {
        state_directory(read, path);
    }
    if let Some(path) = &config.policy.maintenance.file {
        marker(read, "policy.maintenance.file", path);
    }
    for (index, path) in config.probe.busy_files.iter().enumerate() {
        absolute(read, &format!("probe.busy-files[{index}]"), path);
    }
    if let Some(path) = &config.probe.lock {
        marker(read, "probe.lock", path);
        let folder = path.parent().unwrap_or(path);
        if !folder.is_dir() {
            read.error("probe.lock", format!("{} is not a directory", folder.display()));
        }
    }
    if let Some(name) = config.probe.busy_command.first() {
        program(read, "probe.busy-command[0]", name);
    }
    peers(read, config);
    let path = config.web.config_file.as_ref()?;
    if !regular(read, "web.config-file", path) {
        return None;
    }
    Web::load(path).map_err(|error| read.add(ConfigError::from(error))).ok()
}

/// Checks where the host is: a host that is named but not there is a typo, not a host without cards.
pub fn host_paths(read: &TableReader<'_>, [rootfs, sysfs, procfs]: [&Option<PathBuf>; 3]) {
    let named = [("rootfs", rootfs), ("sysfs", sysfs), ("procfs", procfs)];
    for (key, path) in named.into_iter().filter_map(|(key, path)| Some((key, path.as_ref()?))) {
        if !path.is_dir() {
            read.error(key, format!("{} is not a directory", path.display()));
        }
    }
}

/// Made by the agent if it is missing, so something above it must be there.
fn state_directory(read: &TableReader<'_>, path: &Path) {
    absolute(read, "storage.path", path);
    let there = path.ancestors().find(|above| above.symlink_metadata().is_ok()).unwrap_or(path);
    if path.is_absolute() && !there.is_dir() {
        read.error("storage.path", format!("{} is not a directory", there.display()));
    }
}

/// A file that comes and goes.
fn marker(read: &TableReader<'_>, key: &str, path: &Path) {
    absolute(read, key, path);
    if path.is_dir() {
        read.error(key, format!("{} is a directory, not a file", path.display()));
    }
}

fn absolute(read: &TableReader<'_>, key: &str, path: &Path) {
    if !path.is_absolute() {
        read.not_allowed(key, &path.display().to_string(), "an absolute path, such as /run/maintenance");
    }
}

/// Whether this is a file that can be read now.
fn regular(read: &TableReader<'_>, key: &str, path: &Path) -> bool {
    let outcome = std::fs::metadata(path).and_then(|meta| {
        if meta.is_file() {
            std::fs::File::open(path).map(drop)
        } else {
            Err(std::io::Error::other("not a regular file"))
        }
    });
    if let Err(error) = &outcome {
        read.error(key, format!("{}: {error}", path.display()));
    }
    outcome.is_ok()
}

fn program(read: &TableReader<'_>, key: &str, name: &str) {
    let runs = |path: &Path| path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    if name.contains('/') {
        if !runs(Path::new(name)) {
            read.not_allowed(key, name, "a program");
        }
        return;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|folder| runs(&folder.join(name))) {
        read.error(key, format!("no program {name:?} in PATH"));
    }
}

fn peers(read: &TableReader<'_>, config: &ConfigFile) {
    let (read, peers) = (read.table("probe.peers."), &config.probe.peers);
    if let Some(path) = &peers.list
        && regular(&read, "list", path)
        && let Err(error) = schedule::read_peers(path)
    {
        read.error("list", error.to_string());
    }
    if let Some(path) = &peers.key_file
        && regular(&read, "key-file", path)
        && let Err(error) = PeerKey::read(path)
    {
        read.error("key-file", error.to_string());
    }
    let Some(files) = &peers.tls else { return };
    let named = [("ca-file", &files.ca_file), ("cert-file", &files.cert_file), ("key-file", &files.key_file)];
    let named = named.into_iter().filter_map(|(key, path)| Some((key, path.as_ref()?)));
    let unreadable = named.filter(|(key, path)| !regular(&read, &format!("tls.{key}"), path)).count();
    let identity = files.cert_file.clone().zip(files.key_file.clone());
    let whole = TlsFiles { authorities: files.ca_file.clone(), identity, insecure: false };
    if unreadable == 0
        && let Err(error) = tls(&whole)
    {
        read.error("tls", error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::cli::config::error::ErrorList;
    use crate::cli::config::parse;

    /// What is wrong with a file in which DIR stands for a directory with a few things.
    fn wrong(text: &str) -> Option<String> {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        fs::create_dir(dir.join("folder")).unwrap();
        fs::write(dir.join("file"), "no PEM, no list\n").unwrap();
        fs::write(dir.join("list.json"), "[{\"targets\": [\"node17:10015\"]}]").unwrap();
        fs::write(dir.join("key"), "0123456789abcdef0123456789abcdef\n").unwrap();
        fs::write(dir.join("program"), "#!/bin/sh\n").unwrap();
        fs::write(dir.join("web.yml"), "http_server_config: {http2: true}\n").unwrap();
        fs::write(dir.join("bad.yml"), "tls_server_config: {cert_file: missing.crt, key_file: key}\n").unwrap();
        for (name, mode) in [("key", 0o600), ("program", 0o755)] {
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let dir = dir.to_str().unwrap();
        let file = Path::new("lanewatch.toml");
        let errors = ErrorList::default();
        let config = parse(file, &text.replace("DIR", dir), &errors);
        check(&TableReader::new(&errors, file, ""), &config, true);
        errors.into_result(()).err().map(|error| error.to_string().replace(dir, "DIR"))
    }

    #[test]
    fn every_file_that_is_named_is_checked() {
        for (text, wanted) in [
            ("path.procfs = \"DIR/file\"", "path.procfs: DIR/file is not a directory"),
            ("storage.path = \"state\"", "storage.path: \"state\" is not an absolute path"),
            ("storage.path = \"DIR/file\"", "storage.path: DIR/file is not a directory"),
            ("storage.path = \"DIR/file/state\"", "storage.path: DIR/file is not a directory"),
            (
                "policy.maintenance.file = \"DIR/folder\"",
                "policy.maintenance.file: DIR/folder is a directory, not a file",
            ),
            ("policy.maintenance.file = \"run/m\"", "policy.maintenance.file: \"run/m\" is not an absolute path"),
            ("probe.busy-files = [\"DIR/x\", \"x\"]", "probe.busy-files[1]: \"x\" is not an absolute path"),
            ("probe.lock = \"DIR/folder\"", "probe.lock: DIR/folder is a directory, not a file"),
            ("probe.lock = \"DIR/none/lock\"", "probe.lock: DIR/none is not a directory"),
            ("probe.busy-command = [\"DIR/file\"]", "probe.busy-command[0]: \"DIR/file\" is not a program"),
            ("probe.busy-command = [\"lane-none\"]", "probe.busy-command[0]: no program \"lane-none\" in PATH"),
            ("probe.peers.list = \"DIR/none\"", "probe.peers.list: DIR/none: No such file or directory"),
            ("probe.peers.list = \"DIR/folder\"", "probe.peers.list: DIR/folder: not a regular file"),
            ("probe.peers.list = \"DIR/file\"", "probe.peers.list: DIR/file: it is not a list of groups such as"),
            ("probe.peers.key-file = \"DIR/none\"", "probe.peers.key-file: DIR/none: No such file or directory"),
            ("probe.peers.key-file = \"DIR/file\"", "probe.peers.key-file: DIR/file: other users can read the key"),
            ("probe.peers.tls.ca-file = \"DIR/none\"", "probe.peers.tls.ca-file: DIR/none: No such file or directory"),
            ("probe.peers.tls.ca-file = \"DIR/file\"", "probe.peers.tls: DIR/file: "),
            (
                "probe.peers.serve = true",
                "probe.peers.key-file: is missing: without it the web configuration must verify clients' certificates",
            ),
            (
                "probe.peers.serve = true\nweb.config-file = \"DIR/web.yml\"",
                "probe.peers.key-file: is missing: without it the web configuration",
            ),
            ("web.config-file = \"DIR/none.yml\"", "web.config-file: DIR/none.yml: No such file or directory"),
            ("web.config-file = \"DIR/folder\"", "web.config-file: DIR/folder: not a regular file"),
        ] {
            let wrong = wrong(text).unwrap_or_default();
            assert!(wrong.starts_with(&format!("lanewatch.toml: {wanted}")), "{text}: {wrong}");
        }
        let web = wrong("web.config-file = \"DIR/bad.yml\"").unwrap();
        assert!(web.starts_with("DIR/bad.yml: tls_server_config.cert_file: DIR/missing.crt: No such file"), "{web}");
    }

    #[test]
    fn files_that_are_there_or_come_and_go_are_accepted() {
        for text in [
            "",
            "storage.path = \"DIR/folder\"",
            "storage.path = \"DIR/new/state\"",
            "policy.maintenance.file = \"DIR/none/maintenance\"",
            "probe.busy-files = [\"DIR/none\", \"DIR/folder\"]",
            "probe.lock = \"DIR/lock\"",
            "probe.busy-command = [\"DIR/program\", \"-q\"]",
            "probe.busy-command = [\"sh\"]",
            "probe.peers.list = \"DIR/list.json\"\nprobe.peers.key-file = \"DIR/key\"",
            "web.config-file = \"DIR/web.yml\"",
        ] {
            assert_eq!(wrong(text), None, "{text}");
        }
    }
}

//! What a configuration file names besides itself: files, directories and a program, as they are on this host now.
//!
//! An agent that runs goes on without some of them, a list of peers that has yet to be written say. Who asks whether a
//! file is right wants to hear of each.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::reader::TableReader;
use super::{ConfigError, ConfigFile};
use crate::bench::peers::{key::PeerKey, list};
use crate::cli::settings::trees;
use crate::export::web::Web;
use crate::fleet::tls::{TlsFiles, config as tls};

/// Looks at all that is named. What works and yet should be known is a sentence each.
///
/// # Errors
/// The first that is not what it should be, with its key.
pub fn check(file: &Path, config: &ConfigFile) -> Result<Vec<String>, ConfigError> {
    let read = TableReader::new(file, "");
    trees(file, &config.path)?;
    if let Some(path) = &config.storage.path {
        state_directory(read, path)?;
    }
    if let Some(path) = &config.policy.maintenance.file {
        marker(read, "policy.maintenance.file", path)?;
    }
    for path in &config.probe.busy_files {
        absolute(read, "probe.busy-files", path)?;
    }
    if let Some(path) = &config.probe.lock {
        marker(read, "probe.lock", path)?;
        let folder = path.parent().unwrap_or(path);
        if !folder.is_dir() {
            return Err(read.wrong("probe.lock", format!("{} is not a directory", folder.display())));
        }
    }
    if let Some(name) = config.probe.busy_command.first() {
        program(read, "probe.busy-command", name)?;
    }
    peers(read, config)?;
    let Some(path) = &config.web.config_file else { return Ok(Vec::new()) };
    regular(read, "web.config-file", path)?;
    Ok(Web::load(path)?.remarks)
}

/// Made by the agent where it is missing, so something above it must be there.
fn state_directory(read: TableReader<'_>, path: &Path) -> Result<(), ConfigError> {
    absolute(read, "storage.path", path)?;
    let there = path.ancestors().find(|above| above.symlink_metadata().is_ok()).unwrap_or(path);
    if there.is_dir() {
        return Ok(());
    }
    Err(read.wrong("storage.path", format!("{} is not a directory", there.display())))
}

/// A file that comes and goes.
fn marker(read: TableReader<'_>, key: &str, path: &Path) -> Result<(), ConfigError> {
    absolute(read, key, path)?;
    if path.is_dir() {
        return Err(read.wrong(key, format!("{} is a directory, not a file", path.display())));
    }
    Ok(())
}

fn absolute(read: TableReader<'_>, key: &str, path: &Path) -> Result<(), ConfigError> {
    if path.is_absolute() {
        return Ok(());
    }
    let message = format!("{:?} is not a path from the root, such as /run/maintenance", path.display().to_string());
    Err(read.wrong(key, message))
}

/// A file that can be read now.
fn regular(read: TableReader<'_>, key: &str, path: &Path) -> Result<(), ConfigError> {
    let wrong = |why: &dyn std::fmt::Display| read.wrong(key, format!("{}: {why}", path.display()));
    let meta = std::fs::metadata(path).map_err(|error| wrong(&error))?;
    if !meta.is_file() {
        return Err(wrong(&"is not a regular file"));
    }
    std::fs::File::open(path).map(drop).map_err(|error| wrong(&error))
}

fn program(read: TableReader<'_>, key: &str, name: &str) -> Result<(), ConfigError> {
    let runs = |path: &Path| path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    if name.contains('/') {
        return if runs(Path::new(name)) { Ok(()) } else { Err(read.is_not(key, name, "a program")) };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| runs(&folder.join(name))) {
        return Ok(());
    }
    Err(read.wrong(key, format!("{name:?} is a program in no directory of PATH")))
}

fn peers(read: TableReader<'_>, config: &ConfigFile) -> Result<(), ConfigError> {
    let peers = &config.probe.peers;
    if let Some(path) = &peers.list {
        regular(read, "probe.peers.list", path)?;
        list::read(path).map_err(|error| read.wrong("probe.peers.list", error.to_string()))?;
    }
    if let Some(path) = &peers.key_file {
        regular(read, "probe.peers.key-file", path)?;
        PeerKey::read(path).map_err(|error| read.wrong("probe.peers.key-file", error.to_string()))?;
    }
    let Some(files) = &peers.tls else { return Ok(()) };
    let named = [("ca-file", &files.ca_file), ("cert-file", &files.cert_file), ("key-file", &files.key_file)];
    for (key, path) in named.into_iter().filter_map(|(key, path)| Some((key, path.as_ref()?))) {
        regular(read, &format!("probe.peers.tls.{key}"), path)?;
    }
    let identity = files.cert_file.clone().zip(files.key_file.clone());
    let whole = TlsFiles { authorities: files.ca_file.clone(), identity, insecure: false };
    tls(&whole).map(drop).map_err(|error| read.wrong("probe.peers.tls", error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
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
        let config = parse(file, &text.replace("DIR", dir)).unwrap();
        check(file, &config).err().map(|error| error.to_string().replace(dir, "DIR"))
    }

    #[test]
    fn all_that_is_named_is_looked_at() {
        for (text, wanted) in [
            ("path.procfs = \"DIR/file\"", "path.procfs: DIR/file is not a directory"),
            ("storage.path = \"state\"", "storage.path: \"state\" is not a path from the root"),
            ("storage.path = \"DIR/file\"", "storage.path: DIR/file is not a directory"),
            ("storage.path = \"DIR/file/state\"", "storage.path: DIR/file is not a directory"),
            (
                "policy.maintenance.file = \"DIR/folder\"",
                "policy.maintenance.file: DIR/folder is a directory, not a file",
            ),
            ("policy.maintenance.file = \"run/m\"", "policy.maintenance.file: \"run/m\" is not a path from the root"),
            ("probe.busy-files = [\"DIR/x\", \"x\"]", "probe.busy-files: \"x\" is not a path from the root"),
            ("probe.lock = \"DIR/folder\"", "probe.lock: DIR/folder is a directory, not a file"),
            ("probe.lock = \"DIR/none/lock\"", "probe.lock: DIR/none is not a directory"),
            ("probe.busy-command = [\"DIR/file\"]", "probe.busy-command: \"DIR/file\" is not a program"),
            (
                "probe.busy-command = [\"lane-none\"]",
                "probe.busy-command: \"lane-none\" is a program in no directory of",
            ),
            ("probe.peers.list = \"DIR/none\"", "probe.peers.list: DIR/none: No such file or directory"),
            ("probe.peers.list = \"DIR/folder\"", "probe.peers.list: DIR/folder: is not a regular file"),
            ("probe.peers.list = \"DIR/file\"", "probe.peers.list: DIR/file: it is not a list of groups such as"),
            ("probe.peers.key-file = \"DIR/none\"", "probe.peers.key-file: DIR/none: No such file or directory"),
            (
                "probe.peers.key-file = \"DIR/file\"",
                "probe.peers.key-file: DIR/file: everyone on this host may use the key",
            ),
            ("probe.peers.tls.ca-file = \"DIR/none\"", "probe.peers.tls.ca-file: DIR/none: No such file or directory"),
            ("probe.peers.tls.ca-file = \"DIR/file\"", "probe.peers.tls: DIR/file: "),
            ("web.config-file = \"DIR/none.yml\"", "web.config-file: DIR/none.yml: No such file or directory"),
            ("web.config-file = \"DIR/folder\"", "web.config-file: DIR/folder: is not a regular file"),
        ] {
            let wrong = wrong(text).unwrap_or_default();
            assert!(wrong.starts_with(&format!("lanewatch.toml: {wanted}")), "{text}: {wrong}");
        }
        let web = wrong("web.config-file = \"DIR/bad.yml\"").unwrap();
        assert!(web.starts_with("DIR/bad.yml: tls_server_config.cert_file: DIR/missing.crt: No such file"), "{web}");
    }

    #[test]
    fn what_is_there_is_well_and_so_is_what_comes_and_goes() {
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

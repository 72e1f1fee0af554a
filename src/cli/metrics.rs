//! `lanewatch metrics`: the exposition once, to standard output or to a file for the textfile collector.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::args::MetricsArgs;
use super::error::CliError;
use super::one_shot::read_once;
use super::output::print;
use super::settings::Settings;
use crate::export::{AgentState, Format, Process, encode};

/// Looks at the host once and writes its metrics.
///
/// # Errors
/// The host cannot be looked at, or the file cannot be written; an old file stays then.
pub fn run(settings: &Settings, args: &MetricsArgs) -> Result<ExitCode, CliError> {
    let report = read_once(settings, Duration::ZERO, Duration::from_secs(10))?;
    let format = if args.openmetrics { Format::OpenMetrics } else { Format::Text };
    let mut text = String::new();
    let agent = AgentState { vf_ports: settings.vf_ports, ..AgentState::default() };
    // node_exporter serves `process_*` of its own beside the file: a second one is an error at every scrape.
    let process = if args.textfile.is_some() { Process::default() } else { Process::read() };
    encode(format, &report, &Arc::new(agent), process, &mut text).map_err(anyhow::Error::from)?;
    match &args.textfile {
        None => Ok(print(&text)?),
        Some(path) => {
            replace(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Writes beside the file and renames, so that nobody ever reads half of it. Readable by everyone, as node_exporter
/// runs as another user. Whoever else can write to the directory must not be able to lead this elsewhere: it stays open
/// meanwhile, the new file has a name that nobody can guess and is never opened if it exists, and links of others are not
/// followed.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = destination(path)?;
    let name = path.file_name().ok_or_else(|| unusable("not a file"))?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = rustix::fs::open(directory, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
            return Err(unusable("not a regular file"));
        }
        Ok(_) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let mut random = [0; 8];
    SystemRandom::new().fill(&mut random).map_err(|_| io::Error::other("the system provides no random numbers"))?;
    // A name that does not end in .prom: the textfile collector must not see it.
    let new = format!(".{}.{:016x}", name.to_string_lossy(), u64::from_ne_bytes(random));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, &*new, flags, Mode::from_raw_mode(0o644))?;
    let write = || {
        let mut file = File::from(file);
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(rustix::fs::renameat(&directory, &*new, &directory, name)?)
    };
    write().inspect_err(|_: &io::Error| {
        let _ = rustix::fs::unlinkat(&directory, &*new, AtFlags::empty());
    })
}

/// The file that is replaced: where a link leads that only this user or root can have made, in a directory that only
/// they can change.
fn destination(path: &Path) -> io::Result<PathBuf> {
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_symlink() => meta,
        _ => return Ok(path.to_owned()),
    };
    let own = |uid: u32| uid == 0 || uid == rustix::process::geteuid().as_raw();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = std::fs::metadata(parent)?;
    if !own(meta.uid()) || !own(directory.uid()) || directory.mode() & 0o022 != 0 {
        return Err(unusable("it is a symbolic link that other users can change: name its target instead"));
    }
    std::fs::canonicalize(path).or_else(|_| Ok(parent.join(std::fs::read_link(path)?)))
}

fn unusable(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_link_in_a_directory_of_others_is_not_followed() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("shared")).unwrap();
        fs::write(at("precious"), "kept").unwrap();
        symlink(at("precious"), at("shared/host.prom")).unwrap();
        for (mode, followed) in [(0o777, false), (0o1777, false), (0o775, false), (0o755, true)] {
            fs::write(at("precious"), "kept").unwrap();
            fs::set_permissions(at("shared"), fs::Permissions::from_mode(mode)).unwrap();
            let outcome = replace(&at("shared/host.prom"), b"metrics");
            assert_eq!(outcome.is_ok(), followed, "{mode:o} {outcome:?}");
            assert_eq!(fs::read_to_string(at("precious")).unwrap(), if followed { "metrics" } else { "kept" });
        }
    }

    #[test]
    fn nothing_is_left_behind_and_what_is_no_file_stays() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("host.prom");
        replace(&file, b"one").unwrap();
        replace(&file, b"two").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert!(replace(folder.path(), b"x").is_err());
        fs::create_dir(folder.path().join("directory.prom")).unwrap();
        assert!(replace(&folder.path().join("directory.prom"), b"x").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}

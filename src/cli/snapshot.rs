//! `lanewatch snapshot`: everything that was read of this host in one pass, in an archive that can be read again.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use super::args::SnapshotArgs;
use super::error::CliError;
use super::output::print;
use super::settings::Settings;
use crate::host::collector::Setup;
use crate::host::recording::{Entries, RecordedEntry, Recording, Scrubber};
use crate::model::time::{rfc3339, unix_seconds};
use crate::model::units::counted;
use crate::watch::clock::SystemClock;
use crate::watch::{Engine, Poller};

/// When to give up on devices that do not answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Records the host and writes the archive.
///
/// # Errors
/// The file is there already or cannot be written, or the host cannot be looked at.
pub fn run(settings: &Settings, args: &SnapshotArgs) -> Result<ExitCode, CliError> {
    let name = args.output.display();
    let taken = || CliError::Usage(format!("{name} exists already and is not overwritten"));
    if args.output.symlink_metadata().is_ok() {
        return Err(taken());
    }
    let (entries, stuck) = record(settings)?;
    let mut scrubber = Scrubber::default();
    let entries = if args.keep_identifiers { entries } else { scrubber.scrub(&entries) };
    let file = match OpenOptions::new().write(true).create_new(true).open(&args.output) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(taken()),
        Err(error) => return Err(CliError::Other(anyhow::Error::new(error).context(format!("cannot write {name}")))),
    };
    let written = write(file, &entries, &readme(args.keep_identifiers), SystemTime::now());
    if written.is_err() {
        // Half an archive is none.
        let _ = std::fs::remove_file(&args.output);
    }
    written.with_context(|| format!("cannot write {name}"))?;
    let count = |wanted: fn(&RecordedEntry) -> bool| entries.values().filter(|entry| wanted(entry)).count();
    let mut said = format!(
        "wrote {name}: {}, {}, {} that could not be read\n",
        counted(count(|entry| matches!(entry, RecordedEntry::File(_))), "file"),
        counted(count(|entry| matches!(entry, RecordedEntry::Link(_))), "link"),
        counted(count(|entry| *entry == RecordedEntry::Unreadable), "file"),
    );
    if args.keep_identifiers {
        said.push_str("GUIDs, addresses and the host's name are in it as they are\n");
    } else {
        let line = "identifiers were replaced: GUIDs, MAC and IP addresses, the host's name";
        let _ = writeln!(said, "{line} ({} in all); review it before you share it", scrubber.replaced());
    }
    for what in stuck {
        let _ = writeln!(said, "{what} did not respond and is missing");
    }
    Ok(print(said.as_bytes())?)
}

/// What one pass over the host read, and what did not answer.
fn record(settings: &Settings) -> anyhow::Result<(Entries, Vec<String>)> {
    let (recording, host) = Recording::of(&settings.host());
    let setup = Setup { host, filter: settings.filter.clone() };
    let engine = Engine::new(Arc::clone(&settings.policy), true);
    // Who holds what is in files of processes and of libvirt, and the machine's identity names it: not recorded.
    let private = ["holders", "machine"];
    let specs = settings.collectors.iter().copied().filter(|spec| !private.contains(&spec.name));
    let mut poller =
        Poller::new(&setup, specs, Arc::new(SystemClock), engine, None).context("cannot start the poller")?;
    let report = poller.pass(LIMIT);
    let stuck = report.snapshot.collectors.iter().flat_map(|collector| &collector.stuck).map(ToString::to_string);
    Ok((recording.entries(), stuck.collect()))
}

fn readme(kept: bool) -> String {
    let identifiers = if kept {
        "GUIDs, addresses and the host's name are as they were on the host."
    } else {
        "GUIDs, MAC and IP addresses and the host's name were replaced, the same by the same everywhere."
    };
    format!(
        "A host as lanewatch {} read it at {}.\n\
         {identifiers}\n\
         A file that could not be read is a directory that holds .keep. Files that were not read are not here.\n\
         \n\
         Unpack this into an empty directory DIR, then:\n\
         \n\
         \x20   lanewatch check --path.rootfs=DIR\n\
         \x20   lanewatch explain --path.rootfs=DIR\n",
        env!("CARGO_PKG_VERSION"),
        rfc3339(SystemTime::now()),
    )
}

/// Writes the archive: the note, then `sys/` and `proc/`.
fn write(file: File, entries: &Entries, readme: &str, now: SystemTime) -> io::Result<()> {
    let mut archive = Archive { tar: Builder::new(GzEncoder::new(file, Compression::default())), now };
    archive.file(Path::new("README.txt"), readme.as_bytes())?;
    for root in ["sys", "proc"] {
        archive.directory(Path::new(root))?;
    }
    for (path, entry) in entries {
        match entry {
            RecordedEntry::Directory => archive.directory(path)?,
            RecordedEntry::File(content) => archive.file(path, content)?,
            RecordedEntry::Link(target) => archive.link(path, target)?,
            RecordedEntry::Unreadable => {
                archive.directory(path)?;
                archive.file(&path.join(".keep"), b"")?;
            }
        }
    }
    let mut file = archive.tar.into_inner()?.finish()?;
    file.flush()?;
    file.sync_all()
}

struct Archive {
    tar: Builder<GzEncoder<File>>,
    now: SystemTime,
}

impl Archive {
    fn header(&self, kind: EntryType, mode: u32, size: usize) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds since 1970")]
        header.set_mtime(unix_seconds(self.now) as u64);
        header.set_size(u64::try_from(size).unwrap_or(u64::MAX));
        header
    }

    fn directory(&mut self, path: &Path) -> io::Result<()> {
        let mut header = self.header(EntryType::Directory, 0o755, 0);
        self.tar.append_data(&mut header, path, io::empty())
    }

    fn file(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut header = self.header(EntryType::Regular, 0o644, content.len());
        self.tar.append_data(&mut header, path, content)
    }

    fn link(&mut self, path: &Path, target: &Path) -> io::Result<()> {
        let mut header = self.header(EntryType::Symlink, 0o777, 0);
        self.tar.append_link(&mut header, path, target)
    }
}

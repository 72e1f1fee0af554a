//! `lanewatch snapshot`: everything that was read of this host in one pass, in an archive that can be read again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use super::args::SnapshotArgs;
use super::error::CliError;
use super::output::print;
use super::settings::Settings;
use crate::host::Host;
use crate::host::collector::Setup;
use crate::host::recording::{FILE, KEPT, Manifest, Recorded, RecordedEntry, Recording, Scrubber, allowed};
use crate::model::time::{rfc3339, unix_seconds};
use crate::model::units::{counted, counted_as};
use crate::watch::clock::SystemClock;
use crate::watch::{Engine, Poller};

/// When to give up on devices that do not answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Records the host and writes the archive, or lists what is in one.
///
/// # Errors
/// The file is there already or cannot be written, or the host cannot be looked at.
pub fn run(settings: &Settings, args: &SnapshotArgs) -> Result<ExitCode, CliError> {
    if let Some(archive) = &args.list {
        return list(archive);
    }
    let Some(output) = &args.output else {
        return Err(CliError::Usage("give --output FILE, or --list FILE".to_owned()));
    };
    let name = output.display();
    let taken = || CliError::Usage(format!("{name} already exists and is not overwritten"));
    if output.symlink_metadata().is_ok() {
        return Err(taken());
    }
    let (recorded, host, stuck) = record(settings)?;
    let mut scrubber = if args.keep_identifiers { Scrubber::keeping() } else { Scrubber::default() };
    let recorded = allowed(&recorded, &mut scrubber, &host);
    let file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(output) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(taken()),
        Err(error) => return Err(CliError::Other(anyhow::Error::new(error).context(format!("cannot write {name}")))),
    };
    let written = write(file, &recorded, &readme(args.keep_identifiers), SystemTime::now());
    if written.is_err() {
        // Half an archive is none.
        let _ = std::fs::remove_file(output);
    }
    written.with_context(|| format!("cannot write {name}"))?;
    let count = |wanted: fn(&RecordedEntry) -> bool| recorded.entries.values().filter(|entry| wanted(entry)).count();
    let mut said = format!(
        "wrote {name}: {}, {}, {} that could not be read\n",
        counted(count(|entry| matches!(entry, RecordedEntry::File(_))), "file"),
        counted(count(|entry| matches!(entry, RecordedEntry::Link(_))), "link"),
        counted(count(|entry| matches!(entry, RecordedEntry::Unreadable(_))), "file"),
    );
    if args.keep_identifiers {
        said.push_str("it contains GUIDs, addresses and names unchanged\n");
    } else {
        let replaced: Vec<String> =
            scrubber.replaced().into_iter().map(|(kind, count)| counted_as(count, kind, &plural(kind))).collect();
        let replaced = if replaced.is_empty() { "none".to_owned() } else { replaced.join(", ") };
        let _ = writeln!(said, "identifiers were replaced: {replaced}; review it before you share it (--list {name})");
    }
    for what in stuck {
        let _ = writeln!(said, "{what} did not respond and is missing");
    }
    Ok(print(&said)?)
}

fn plural(kind: &str) -> String {
    if kind.ends_with("ss") { format!("{kind}es") } else { format!("{kind}s") }
}

/// What one pass over the host read, and what did not answer.
fn record(settings: &Settings) -> anyhow::Result<(Recorded, Host, Vec<String>)> {
    let host = settings.host();
    let (recording, recorded_host) = Recording::of(&host);
    let setup = Setup { host: recorded_host, filter: settings.filter.clone() };
    let engine = Engine::new(Arc::clone(&settings.policy), true);
    let specs = settings.collectors.iter().copied();
    let mut poller =
        Poller::new(&setup, specs, Arc::new(SystemClock), engine, None).context("cannot start the poller")?;
    let report = poller.pass(LIMIT);
    let stuck = report.snapshot.collectors.iter().flat_map(|collector| &collector.stuck).map(ToString::to_string);
    Ok((recording.recorded(), host, stuck.collect()))
}

/// Prints what is in an archive: kind, size and path of each entry, then the sums by source.
fn list(path: &Path) -> Result<ExitCode, CliError> {
    let name = path.display();
    let opened = File::open(path).map_err(|error| CliError::Usage(format!("{name}: {error}")))?;
    let mut archive = tar::Archive::new(GzDecoder::new(opened));
    let mut out = String::new();
    let mut sources: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    let read = |error: io::Error| CliError::Usage(format!("{name} is not a snapshot: {error}"));
    for entry in archive.entries().map_err(read)? {
        let entry = entry.map_err(read)?;
        let (path, size) = (entry.path().map_err(read)?.into_owned(), entry.size());
        let kind = entry.header().entry_type();
        let target = entry.link_name().map_err(read)?.map(|target| format!(" -> {}", target.display()));
        let word = if kind.is_dir() {
            "directory"
        } else if kind.is_symlink() {
            "link"
        } else {
            "file"
        };
        let _ = writeln!(out, "{word:<9} {size:>8}  {}{}", path.display(), target.unwrap_or_default());
        if !kind.is_dir() {
            let sum = sources.entry(source(&path)).or_default();
            *sum = (sum.0 + 1, sum.1.saturating_add(size));
        }
    }
    out.push('\n');
    for (source, (count, bytes)) in sources {
        let _ = writeln!(out, "{source}: {}, {bytes} bytes", counted_as(count, "entry", "entries"));
    }
    Ok(print(&out)?)
}

/// Where an entry comes from, for people.
fn source(path: &Path) -> String {
    let mut parts = path.iter().map(|part| part.to_string_lossy().into_owned());
    let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    match (first.as_str(), second.as_str()) {
        ("proc", process) if process.bytes().all(|byte| byte.is_ascii_digit()) => "processes".to_owned(),
        ("kmsg" | "dmesg.txt", _) => "kernel log".to_owned(),
        ("etc" | "run", "libvirt") => "libvirt".to_owned(),
        (manifest, _) if manifest == FILE => "netlink, ethtool, namespaces and what could not be read".to_owned(),
        _ => first,
    }
}

fn readme(kept: bool) -> String {
    let identifiers = if kept {
        "Identifiers are as they were on the host: GUIDs, MAC and IP addresses, UUIDs, names of the host, of virtual\n\
         machines, network namespaces and programs."
    } else {
        "Identifiers were replaced, each by the same value everywhere: GUIDs, MAC and IP addresses, UUIDs, names of the\n\
         host, of virtual machines, network namespaces and programs."
    };
    format!(
        "A host as lanewatch {} read it at {}.\n\
         {identifiers}\n\
         A directory that contains .keep stands for a file that could not be read; {FILE} has the reason, and what\n\
         was read from other sources than files. Files that lanewatch did not read are not included. Of the kernel log,\n\
         kernel arguments, processes and virtual machines, only what lanewatch understands is included.\n\
         \n\
         Unpack this into an empty directory DIR, then:\n\
         \n\
         \x20   lanewatch check --path.rootfs=DIR\n\
         \x20   lanewatch explain --path.rootfs=DIR\n",
        env!("CARGO_PKG_VERSION"),
        rfc3339(SystemTime::now()),
    )
}

/// Writes the archive: the note, what no file can hold, then the files.
fn write(file: File, recorded: &Recorded, readme: &str, now: SystemTime) -> io::Result<()> {
    let mut archive = Archive { tar: Builder::new(GzEncoder::new(file, Compression::default())), now };
    archive.file(Path::new("README.txt"), readme.as_bytes())?;
    archive.file(Path::new(FILE), &Manifest::of(recorded).encode()?)?;
    for root in ["sys", "proc"] {
        archive.directory(Path::new(root))?;
    }
    for (path, entry) in &recorded.entries {
        match entry {
            RecordedEntry::Directory => archive.directory(path)?,
            RecordedEntry::File(content) => archive.file(path, content)?,
            RecordedEntry::Link(target) => archive.link(path, target)?,
            RecordedEntry::Unreadable(_) => {
                archive.directory(path)?;
                archive.file(&path.join(KEPT), b"")?;
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

//! A recorded case: a folder with `expect.toml` and a host, as files or as one text, staged reading by reading.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::archive::{self, Archive};
use crate::common::iplink;
use crate::common::tree::Tree;
use crate::expect::{Expect, STEP};

/// Name of the file that holds a whole host as text.
const ARCHIVE: &str = "host.txt";

/// A case and what is expected of it.
#[derive(Debug)]
pub struct Case {
    /// Folder, with `/hostA` for one of several hosts.
    pub name: String,
    /// What must and must not be said.
    pub expect: Expect,
    folder: PathBuf,
}

/// One reading of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// When the host becomes what it is at this reading, since the start.
    pub at: Duration,
    /// When it is judged: just before the next reading, after the last one a step later.
    pub judged: Duration,
}

/// A case that can be read: a directory in which `sys`, `proc` and raw inputs appear reading by reading.
#[derive(Debug)]
pub struct Stage {
    /// The readings.
    pub moments: Vec<Moment>,
    entries: Vec<BTreeMap<String, PathBuf>>,
    directory: TempDir,
}

/// How long before the next reading "just before" is.
const JUST: Duration = Duration::from_millis(1);

impl Case {
    /// Every case in a folder, by name. Folders without `expect.toml` are none.
    pub fn all(folder: &Path) -> Result<Vec<Self>, String> {
        let mut cases = Vec::new();
        for entry in names(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
            Self::load(&folder.join(&entry), &entry, &mut cases)?;
            for host in names(&folder.join(&entry)).unwrap_or_default() {
                if host.starts_with("host") && host != ARCHIVE {
                    Self::load(&folder.join(&entry).join(&host), &format!("{entry}/{host}"), &mut cases)?;
                }
            }
        }
        Ok(cases)
    }

    fn load(folder: &Path, name: &str, cases: &mut Vec<Self>) -> Result<(), String> {
        if let Ok(text) = fs::read_to_string(folder.join("expect.toml")) {
            let expect = Expect::parse(&text).map_err(|error| format!("{name}/expect.toml: {error}"))?;
            cases.push(Self { name: name.to_owned(), expect, folder: folder.to_owned() });
        }
        Ok(())
    }

    /// Makes the case readable; its first reading is what is there then.
    pub fn stage(&self) -> Result<Stage, String> {
        let directory = TempDir::new().map_err(|error| error.to_string())?;
        let mut sources = self.sources(directory.path())?;
        let completed = directory.path().join("completed");
        name_interfaces(&mut sources, &completed).map_err(|error| error.to_string())?;
        let last = sources.keys().map(|(_, reading)| *reading).max().unwrap_or(0);
        let times = self.expect.times(last + 1)?;
        if let Some(beyond) = self.expect.readings().find(|reading| *reading >= times.len()) {
            return Err(format!("at = {beyond}, but there are {} readings", times.len()));
        }
        let entries = merged(&sources, times.len(), &directory.path().join("merged"));
        let entries = entries.map_err(|error| error.to_string())?;
        let stage = Stage { moments: moments(&times), entries, directory };
        fs::create_dir_all(stage.host()).and_then(|()| stage.show(0)).map_err(|error| error.to_string())?;
        Ok(stage)
    }

    /// Where each entry is, by name and reading.
    fn sources(&self, scratch: &Path) -> Result<BTreeMap<(String, usize), PathBuf>, String> {
        let mut sources = BTreeMap::new();
        if let Ok(text) = fs::read_to_string(self.folder.join(ARCHIVE)) {
            let archive: Archive = archive::parse(&text).map_err(|error| format!("{ARCHIVE}: {error}"))?;
            for (name, tree) in &archive {
                let path = scratch.join("trees").join(name);
                unpack(tree, &path).map_err(|error| format!("{name}: {error}"))?;
                sources.insert(top_and_reading(name), path);
            }
            return Ok(sources);
        }
        for name in names(&self.folder).map_err(|error| error.to_string())? {
            if !name.starts_with("expect.") {
                let path = self.folder.join(&name).canonicalize().map_err(|error| format!("{name}: {error}"))?;
                sources.insert(top_and_reading(&name), path);
            }
        }
        Ok(sources)
    }
}

impl Stage {
    /// The directory that is read: `sys`, `proc`, `kmsg` and so on are links in it.
    pub fn host(&self) -> PathBuf {
        self.directory.path().join("host")
    }

    /// Puts a reading's entries in place, each in one step.
    pub fn show(&self, reading: usize) -> io::Result<()> {
        for (name, source) in &self.entries[reading] {
            let (link, next) = (self.host().join(name), self.directory.path().join("next"));
            if fs::read_link(&link).ok().as_ref() != Some(source) {
                symlink(source, &next)?;
                fs::rename(next, link)?;
            }
        }
        Ok(())
    }
}

/// Gives a PF its interface where `ip-link.txt` names one and the recorded tree shows none.
fn name_interfaces(sources: &mut BTreeMap<(String, usize), PathBuf>, scratch: &Path) -> io::Result<()> {
    let (text, tree) = (("ip-link.txt".to_owned(), 0), ("sys".to_owned(), 0));
    let (Some(text), Some(sys)) = (sources.get(&text), sources.get(&tree)) else { return Ok(()) };
    let interfaces = iplink::parse(&fs::read_to_string(text)?);
    let ([interface], false) = (interfaces.as_slice(), sys.join("class/net").exists()) else { return Ok(()) };
    copy(sys, scratch)?;
    if let Some(pf) = find(&scratch.join("devices"), "sriov_totalvfs")? {
        let directory = pf.join("net").join(&interface.name);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("type"), format!("{}\n", interface.hardware))?;
    }
    sources.insert(tree, scratch.to_owned());
    Ok(())
}

/// The first directory at or below this one that has an entry of this name.
fn find(folder: &Path, name: &str) -> io::Result<Option<PathBuf>> {
    if folder.join(name).exists() {
        return Ok(Some(folder.to_owned()));
    }
    for entry in names(folder)? {
        let path = folder.join(entry);
        if path.symlink_metadata()?.is_dir()
            && let Some(found) = find(&path, name)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// What is there at each reading. A later tree replaces the entries at its top, and keeps the others of the tree
/// before it.
fn merged(
    sources: &BTreeMap<(String, usize), PathBuf>,
    readings: usize,
    scratch: &Path,
) -> io::Result<Vec<BTreeMap<String, PathBuf>>> {
    let mut now: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut all = Vec::new();
    for reading in 0..readings {
        for ((name, _), source) in sources.iter().filter(|((_, at), _)| *at == reading) {
            let before = now.insert(name.clone(), source.clone());
            if let Some(before) = before.filter(|_| source.is_dir()) {
                let tree = scratch.join(format!("{name}.t{reading}"));
                copy(source, &tree)?;
                for kept in names(&before)?.into_iter().filter(|kept| tree.join(kept).symlink_metadata().is_err()) {
                    copy(&before.join(&kept), &tree.join(&kept))?;
                }
                now.insert(name.clone(), tree);
            }
        }
        all.push(now.clone());
    }
    Ok(all)
}

/// Copies a tree, its links as they are.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let kind = from.symlink_metadata()?.file_type();
    if kind.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if !kind.is_dir() {
        return fs::write(to, fs::read(from)?);
    }
    fs::create_dir_all(to)?;
    names(from)?.iter().try_for_each(|name| copy(&from.join(name), &to.join(name)))
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// `sys.t2` is `sys` at reading 2, `ip-link.t1.txt` is `ip-link.txt` at reading 1.
fn top_and_reading(name: &str) -> (String, usize) {
    let (stem, extension) = name.strip_suffix(".txt").map_or((name, ""), |stem| (stem, ".txt"));
    let number = |(top, number): (&str, &str)| Some((format!("{top}{extension}"), number.parse().ok()?));
    let later = stem.rsplit_once(".t").and_then(number);
    later.unwrap_or_else(|| (name.to_owned(), 0))
}

/// A section that is one file has one entry with an empty path.
fn unpack(tree: &Tree, path: &Path) -> io::Result<()> {
    match tree.text("") {
        Some(content) => fs::create_dir_all(path.parent().unwrap_or(path)).and_then(|()| fs::write(path, content)),
        None => tree.write(path),
    }
}

fn moments(times: &[Duration]) -> Vec<Moment> {
    let step = match times {
        [.., before, last] => last.saturating_sub(*before),
        _ => STEP,
    };
    let last = times.last().map(|last| *last + step);
    let ends = times.iter().skip(1).copied().chain(last);
    times.iter().zip(ends).map(|(at, end)| Moment { at: *at, judged: end.saturating_sub(JUST) }).collect()
}

#[test]
fn a_later_tree_replaces_only_what_it_has() {
    let folder = TempDir::new().unwrap();
    let case = folder.path().join("one");
    fs::create_dir(&case).unwrap();
    let text =
        "== sys\na: 0\nb/c: 0\nb/d: 0\n== sys.t2\na: 2\n== proc\nb: 0\n== proc.t1\nb: 1\n== dmesg.txt:\n  line\n";
    fs::write(case.join("host.txt"), text).unwrap();
    fs::write(case.join("expect.toml"), "at = [\"0s\", \"10s\", \"30s\", \"40s\"]\nstatus = \"ok\"\n").unwrap();
    let cases = Case::all(folder.path()).unwrap();
    let stage = cases[0].stage().unwrap();
    let judged: Vec<_> = stage.moments.iter().map(|moment| moment.judged.as_millis()).collect();
    assert_eq!(judged, [9_999, 29_999, 39_999, 49_999]);
    let read = |path: &str| fs::read_to_string(stage.host().join(path)).unwrap();
    for (reading, expected) in [("0\n", "0\n"), ("0\n", "1\n"), ("2\n", "1\n"), ("2\n", "1\n")].into_iter().enumerate()
    {
        stage.show(reading).unwrap();
        assert_eq!((read("sys/a").as_str(), read("proc/b").as_str()), expected, "reading {reading}");
        assert_eq!((read("sys/b/d").as_str(), read("dmesg.txt").as_str()), ("0\n", "line\n"));
    }
}

#[test]
fn two_hosts_are_two_cases() {
    let folder = TempDir::new().unwrap();
    for host in ["hostA", "hostB"] {
        fs::create_dir_all(folder.path().join("pair").join(host).join("sys")).unwrap();
        fs::write(folder.path().join("pair").join(host).join("expect.toml"), "").unwrap();
    }
    let cases = Case::all(folder.path()).unwrap();
    let names: Vec<_> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names, ["pair/hostA", "pair/hostB"]);
    assert_eq!(cases[0].stage().unwrap().moments.len(), 1);
}

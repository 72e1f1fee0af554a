//! Queue pair maps of out-of-tree stacks. No mainline kernel has such a file: this collector reads nothing unless the
//! configuration gives its path and layout.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, ReadContext, Spec};
use super::function::function_of;
use super::io::{Host, reason_of};
use super::text;
use crate::model::ids::PciAddress;
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use crate::model::sriov::{QidMap, QidMapColumn, QidMapLayout};

/// The collector.
pub const SPEC: Spec = Spec {
    name: "qid_map",
    about: "Queue pair maps of out-of-tree stacks, as described in [collector.qid-map]; no mainline kernel has them",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(10),
    fresh: false,
    make: |setup| Box::new(QidMapCollector { layout: setup.host.roots.qid_map.clone() }),
};

/// Longest file that is read, in bytes.
const LONGEST: usize = 4 << 20;

/// Most files that a pattern may name.
const MOST_FILES: usize = 4096;

/// Most states that are counted by name for a PF; further ones are `other`.
const MOST_STATES: usize = 16;

struct QidMapCollector {
    layout: Option<Arc<QidMapLayout>>,
}

impl Collector for QidMapCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let Some(layout) = &self.layout else { return Ok(Vec::new()) };
        let mut pfs = BTreeSet::new();
        for file in files(cx, layout)? {
            match pf_of(&file) {
                Some(pf) => drop(pfs.insert(pf)),
                None => cx.fault(&file, ReadError::Malformed),
            }
        }
        Ok(pfs.into_iter().map(|pf| Discovered { key: Arc::from(pf.to_string()), device: None }).collect())
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        Box::new(QidMapReader { pf: found.key.parse().ok(), layout: self.layout.clone(), seen: false })
    }
}

struct QidMapReader {
    pf: Option<PciAddress>,
    layout: Option<Arc<QidMapLayout>>,
    /// Whether the PF ever had such a file; without one it belongs to another stack.
    seen: bool,
}

impl DeviceReader for QidMapReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let (Some(pf), Some(layout)) = (self.pf, self.layout.clone()) else { return Vec::new() };
        let Ok(files) = files(cx, &layout) else { return Vec::new() };
        let mut map = QidMap { pf, vfs: BTreeMap::new(), twice: Vec::new(), trouble: None };
        let mut claims: BTreeMap<u64, BTreeSet<(u32, Option<u64>)>> = BTreeMap::new();
        let mut states: BTreeSet<Arc<str>> = BTreeSet::new();
        for file in files.iter().filter(|file| pf_of(file) == Some(pf)) {
            let bytes = match content(cx.host, file) {
                Ok(bytes) => bytes,
                Err(error) => {
                    if let Some(reason) = reason_of(&error) {
                        cx.fault(file, reason);
                        map.trouble = Some(reason);
                    }
                    continue;
                }
            };
            self.seen = true;
            let text = String::from_utf8_lossy(&bytes);
            let (entries, malformed) = layout.entries(&text);
            let number = file.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse::<u32>().ok());
            let mut odd = malformed > 0;
            for entry in entries {
                let Some(vf) = entry.vf.or(number) else {
                    odd = true;
                    continue;
                };
                claims.entry(entry.global).or_default().insert((vf, entry.local));
                let known = states.get(entry.state).cloned();
                let state = known.unwrap_or_else(|| {
                    let state = Arc::from(if states.len() < MOST_STATES { entry.state } else { "other" });
                    states.insert(Arc::clone(&state));
                    state
                });
                *map.vfs.entry(vf).or_default().entry(state).or_default() += 1;
            }
            if odd {
                cx.fault(file, ReadError::Malformed);
                map.trouble = Some(ReadError::Malformed);
            }
        }
        let twice = claims.into_iter().filter(|(_, claims)| claims.len() > 1);
        map.twice = twice
            .map(|(global, claims)| {
                let vfs: BTreeSet<u32> = claims.into_iter().map(|(vf, _)| vf).collect();
                (global, vfs.into_iter().collect())
            })
            .collect();
        if self.seen { vec![Arc::new(map)] } else { Vec::new() }
    }
}

/// The PF in whose directory a file is.
fn pf_of(file: &Path) -> Option<PciAddress> {
    function_of(file.parent()?).map(|(_, address)| address)
}

fn content(host: &Host, file: &Path) -> io::Result<Vec<u8>> {
    let mut open = host.io.open(file)?;
    let (mut all, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let length = open.read_at(u64::try_from(all.len()).unwrap_or(u64::MAX), &mut chunk)?;
        if length == 0 {
            return Ok(all);
        }
        all.extend(chunk.get(..length).unwrap_or_default());
        if all.len() > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// The files that a pattern names, by their real directories, each once.
fn files(cx: &mut ReadContext<'_>, layout: &QidMapLayout) -> Result<BTreeSet<PathBuf>, ReadError> {
    // A host root may be relative (`--path.rootfs=recorded`).
    let top = if layout.path.is_absolute() { PathBuf::from("/") } else { PathBuf::new() };
    let mut places = BTreeSet::from([top.clone()]);
    let mut parts = layout.path.components().peekable();
    while let Some(part) = parts.next() {
        let name = match part {
            Component::Normal(name) => name,
            Component::ParentDir => {
                places = places.into_iter().map(|place| place.join("..")).collect();
                continue;
            }
            _ => continue,
        };
        let (name, last) = (name.to_string_lossy(), parts.peek().is_none());
        let mut next = BTreeSet::new();
        for place in &places {
            let names = if name.contains(['*', '?']) {
                cx.list(place)?.into_iter().filter(|other| matches(&name, other)).collect()
            } else {
                vec![name.clone().into_owned()]
            };
            for path in names.iter().map(|name| place.join(name)) {
                if last {
                    next.insert(path);
                    continue;
                }
                match cx.host.resolve(&path) {
                    Ok(path) => drop(next.insert(path)),
                    Err(error) => {
                        if let Some(reason) = reason_of(&error) {
                            cx.fault(&path, reason);
                        }
                    }
                }
            }
        }
        places = next;
        if places.len() > MOST_FILES {
            cx.fault(&layout.path, ReadError::Malformed);
            return Err(ReadError::Malformed);
        }
    }
    places.remove(&top);
    Ok(places)
}

/// Whether a name matches a pattern: `*` is any characters, `?` is one.
fn matches(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.chars(), name.chars());
    // Where to continue after the last `*` takes one more character.
    let mut again = None;
    loop {
        let (next, rest) = (pattern.clone().next(), name.clone());
        match (next, name.next()) {
            (Some('*'), _) => {
                pattern.next();
                name = rest;
                again = Some((pattern.clone(), name.clone()));
            }
            (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == '?' || wanted == found => drop(pattern.next()),
            _ => {
                let Some((after, taken)) = &mut again else { return false };
                if taken.next().is_none() {
                    return false;
                }
                (pattern, name) = (after.clone(), taken.clone());
            }
        }
    }
}

/// One entry of a map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct QidMapEntry<'a> {
    vf: Option<u32>,
    local: Option<u64>,
    global: u64,
    /// Empty if no column has it.
    state: &'a str,
}

/// Longest word that counts as a state.
const LONGEST_STATE: usize = 24;

impl QidMapLayout {
    /// The entries of a text, and the number of malformed lines. Blank lines, comments (`#`) and a first line without
    /// any number, which names the columns, are skipped.
    fn entries<'a>(&self, text: &'a str) -> (Vec<QidMapEntry<'a>>, usize) {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (mut entries, mut malformed) = (Vec::new(), 0);
        for (index, line) in lines.enumerate() {
            match self.entry(line) {
                Some(entry) => entries.push(entry),
                None if index == 0 && !cells(line).any(|cell| self.number(cell).is_some()) => {}
                None => malformed += 1,
            }
        }
        (entries, malformed)
    }

    fn entry<'a>(&self, line: &'a str) -> Option<QidMapEntry<'a>> {
        let mut entry = QidMapEntry { vf: None, local: None, global: 0, state: "" };
        let mut cells = cells(line);
        for column in &self.columns {
            let cell = cells.next()?;
            match column {
                QidMapColumn::Vf => entry.vf = Some(u32::try_from(self.number(cell)?).ok()?),
                QidMapColumn::Local => entry.local = Some(self.number(cell)?),
                QidMapColumn::Global => entry.global = self.number(cell)?,
                QidMapColumn::State => entry.state = Some(cell).filter(|cell| is_state(cell))?,
                QidMapColumn::Other => {}
            }
        }
        Some(entry)
    }

    fn number(&self, cell: &str) -> Option<u64> {
        if self.hexadecimal || cell.starts_with("0x") {
            return text::parse_hex(cell.as_bytes());
        }
        text::parse_decimal(cell.as_bytes())
    }
}

fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| c.is_whitespace() || [',', ';', '|'].contains(&c)).filter(|cell| !cell.is_empty())
}

fn is_state(cell: &str) -> bool {
    cell.len() <= LONGEST_STATE && cell.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::io::Errno;

    use super::{QidMapColumn, *};
    use crate::host::collector::{Depth, Filter, Setup};
    use crate::host::memory::MemoryHost;
    use crate::model::time::BootTime;

    const PF: &str = "/sys/devices/pci0000:98/0000:98:00.0";

    fn layout() -> Arc<QidMapLayout> {
        Arc::new(QidMapLayout {
            path: PathBuf::from("/sys/class/infiniband/*/device/sriov/*/qid_map"),
            columns: vec![QidMapColumn::Vf, QidMapColumn::Local, QidMapColumn::Global, QidMapColumn::State],
            hexadecimal: false,
        })
    }

    /// A PF with two RDMA devices and a directory for each of some VFs.
    fn host() -> Arc<MemoryHost> {
        let memory = Arc::new(MemoryHost::new());
        for device in ["mlx5_4", "mlx5_5"] {
            memory.set(format!("{PF}/infiniband/{device}/fw_ver"), "1\n");
            memory.symlink(format!("{PF}/infiniband/{device}/device"), "../../../0000:98:00.0");
            memory.symlink(
                format!("/sys/class/infiniband/{device}"),
                format!("../../devices/pci0000:98/0000:98:00.0/infiniband/{device}"),
            );
        }
        memory.directory("/sys/class/infiniband/rxe0");
        memory
    }

    /// What is found, and what went wrong: sources and reasons.
    fn read(memory: &Arc<MemoryHost>, layout: Option<Arc<QidMapLayout>>) -> (Vec<QidMap>, Vec<(String, ReadError)>) {
        let mut host = memory.host();
        host.roots.qid_map = layout;
        let mut collector = (SPEC.make)(&Setup { host: host.clone(), filter: Filter::default() });
        let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
        let found = collector.discover(&mut cx).unwrap();
        let facts: Vec<Fact> = found.iter().flat_map(|found| collector.open(found).read(&mut cx)).collect();
        let maps = facts.iter().map(|fact| fact.downcast_ref::<QidMap>().unwrap().clone()).collect();
        (maps, cx.faults.iter().map(|fault| (fault.source.to_string(), fault.reason)).collect())
    }

    #[test]
    fn entries_by_state_and_numbers_claimed_twice() {
        let memory = host();
        memory.set(format!("{PF}/sriov/0/qid_map"), "vf lqpn gqpn state\n0 1 257 RTS\n0 2 258 RTS\n0 3 259 INIT\n");
        // The same entry again is the same claim.
        memory.set(format!("{PF}/sriov/1/qid_map"), "vf lqpn gqpn state\n1 1 513 RTS\n1 2 258 RTS\n1 2 258 RTS\n");
        memory.set(format!("{PF}/sriov/2/qid_map"), "vf lqpn gqpn state\n");
        let (maps, faults) = read(&memory, Some(layout()));
        assert_eq!(faults, []);
        let [map] = maps.as_slice() else { panic!("{maps:?}") };
        assert_eq!(map.pf.to_string(), "0000:98:00.0");
        let states: Vec<(String, u64)> = map.states().into_iter().map(|(state, n)| (state.to_string(), n)).collect();
        assert_eq!(states, [("INIT".to_owned(), 1), ("RTS".to_owned(), 5)]);
        assert_eq!(map.twice, [(258, vec![0, 1])]);
        assert_eq!((map.vfs.keys().copied().collect::<Vec<_>>(), map.trouble), (vec![0, 1], None));
    }

    #[test]
    fn without_a_layout_nothing_is_read() {
        let memory = host();
        memory.set(format!("{PF}/sriov/0/qid_map"), "0 1 257 RTS\n");
        assert_eq!(read(&memory, None), (vec![], vec![]));
    }

    #[test]
    fn without_map_files_there_are_no_facts_and_no_faults() {
        assert_eq!(read(&Arc::new(MemoryHost::new()), Some(layout())), (vec![], vec![]));
        let memory = host();
        assert_eq!(read(&memory, Some(layout())), (vec![], vec![]));
        // Another stack's files.
        memory.set(format!("{PF}/sriov/0/policy"), "Follow\n");
        assert_eq!(read(&memory, Some(layout())), (vec![], vec![]));
    }

    #[test]
    fn the_number_of_a_directory_is_that_of_its_vf() {
        let memory = host();
        memory.set(format!("{PF}/sriov/7/qid_map"), "0x101 RTS\n");
        let columns = vec![QidMapColumn::Global, QidMapColumn::State];
        let (maps, faults) = read(&memory, Some(Arc::new(QidMapLayout { columns, ..(*layout()).clone() })));
        assert_eq!((faults.len(), maps[0].vfs.keys().copied().collect::<Vec<_>>()), (0, vec![7]));
    }

    #[test]
    fn a_malformed_file_affects_only_itself() {
        let memory = host();
        memory.set(format!("{PF}/sriov/0/qid_map"), "0 1 257 RTS\n");
        memory.fail(format!("{PF}/sriov/1/qid_map"), Errno::IO);
        memory.set(format!("{PF}/sriov/2/qid_map"), "2 1 what\n2 2 600 RTS\n");
        let (maps, faults) = read(&memory, Some(layout()));
        let expected = [("1", ReadError::Io), ("2", ReadError::Malformed)];
        let expected = expected.map(|(vf, reason)| (format!("{PF}/sriov/{vf}/qid_map"), reason));
        assert_eq!(faults, expected);
        assert_eq!((maps[0].vfs.len(), maps[0].trouble), (2, Some(ReadError::Malformed)));
    }

    #[test]
    fn a_host_below_a_relative_root_is_read() {
        let memory = Arc::new(MemoryHost::new());
        let pf = "../old/host/sys/devices/pci0000:98/0000:98:00.0";
        memory.set(format!("{pf}/sriov/0/qid_map"), "0 1 257 RTS\n");
        let path = PathBuf::from("../old/host/sys/devices/*/*/sriov/*/qid_map");
        let (maps, faults) = read(&memory, Some(Arc::new(QidMapLayout { path, ..(*layout()).clone() })));
        assert_eq!((faults.len(), maps.len()), (0, 1), "{faults:?}");
        assert_eq!(maps[0].vfs.len(), 1);
    }

    #[test]
    fn states_beyond_the_limit_are_other() {
        let memory = host();
        let entries: Vec<String> = (0..40).map(|n| format!("0 {n} {n} S{n:02}\n")).collect();
        memory.set(format!("{PF}/sriov/0/qid_map"), entries.concat());
        let (maps, _) = read(&memory, Some(layout()));
        let states = maps[0].states();
        assert_eq!((states.len(), states["other"]), (MOST_STATES + 1, 24));
    }

    #[test]
    fn names_and_patterns() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "mlx5_0", true),
            ("mlx5_*", "mlx5_0", true),
            ("mlx5_*", "mlx4_0", false),
            ("*_?", "mlx5_0", true),
            ("*_?", "mlx5_10", false),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("", "a", false),
            ("qid_map", "qid_map", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    proptest! {
        #[test]
        fn patterns_match_like_regular_expressions(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            let text = pattern.replace('?', ".").replace('*', ".*");
            prop_assert_eq!(matches(&pattern, &name), Filter::pattern(&text).unwrap().is_match(&name));
        }
    }

    fn layout_of(columns: &[QidMapColumn], hexadecimal: bool) -> QidMapLayout {
        QidMapLayout { path: PathBuf::new(), columns: columns.to_vec(), hexadecimal }
    }

    const ALL: [QidMapColumn; 4] = [QidMapColumn::Vf, QidMapColumn::Local, QidMapColumn::Global, QidMapColumn::State];

    fn entry(vf: u32, local: u64, global: u64, state: &str) -> QidMapEntry<'_> {
        QidMapEntry { vf: Some(vf), local: Some(local), global, state }
    }

    #[test]
    fn rows_of_many_forms() {
        let text = "VF  LQPN  GQPN  STATE\n\n# a remark\n3 12 0x400c RTS extra\n3, 13, 16397, RTR\n 4|1|7|INIT \n";
        let expected = vec![entry(3, 12, 0x400c, "RTS"), entry(3, 13, 16397, "RTR"), entry(4, 1, 7, "INIT")];
        assert_eq!(layout_of(&ALL, false).entries(text), (expected, 0));
        assert_eq!(layout_of(&ALL, true).entries("a 1f 0x20 RTS\n"), (vec![entry(10, 0x1f, 0x20, "RTS")], 0));
        let columns = [QidMapColumn::Other, QidMapColumn::Global];
        let expected = vec![QidMapEntry { vf: None, local: None, global: 9, state: "" }];
        assert_eq!(layout_of(&columns, false).entries("x 9\n"), (expected, 0));
    }

    #[test]
    fn what_is_no_row_is_counted() {
        let layout = layout_of(&ALL, false);
        assert_eq!(layout.entries(""), (vec![], 0));
        // A number in the first line: no names of columns.
        assert_eq!(layout.entries("3 12\n3 12 14 RTS\n3 -1 14 RTS\n4294967296 1 1 RTS\n3 1 2 r\u{e9}\n").1, 4);
        assert_eq!(layout.entries("usage: echo 1 > qid_map\n"), (vec![], 1));
    }

    proptest! {
        #[test]
        fn any_input_parses_without_a_panic(text in "(?s).{0,200}", hexadecimal in any::<bool>(), order in 0usize..24) {
            let mut columns = ALL.to_vec();
            columns.rotate_left(order % 4);
            let (entries, malformed) = layout_of(&columns, hexadecimal).entries(&text);
            prop_assert!(entries.len() + malformed <= text.lines().count());
        }

        #[test]
        fn entries_survive_their_text(
            entries in proptest::collection::vec((any::<u32>(), any::<u64>(), any::<u64>(), "[A-Z]{1,8}"), 0..30),
            separator in "[ \t,;|]{1,3}", hexadecimal in any::<bool>(),
        ) {
            let line = |(vf, local, global, state): &(u32, u64, u64, String)| {
                let cells = if hexadecimal {
                    [format!("{vf:x}"), format!("{local:x}"), format!("0x{global:x}"), state.clone()]
                } else {
                    [vf.to_string(), local.to_string(), global.to_string(), state.clone()]
                };
                cells.join(&separator) + "\n"
            };
            let text: String = entries.iter().map(line).collect();
            let expected: Vec<QidMapEntry<'_>> = entries.iter().map(|(vf, local, global, s)| entry(*vf, *local, *global, s)).collect();
            prop_assert_eq!(layout_of(&ALL, hexadecimal).entries(&text), (expected, 0));
        }
    }
}

//! Queue pair maps of stacks outside of the kernel's tree. No mainline kernel has such a file: this collector reads
//! nothing unless the configuration says where one is and how its entries look.

pub mod layout;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, ReadContext, Spec};
use super::function::function_of;
use super::io::{Host, reason_of};
use crate::model::ids::PciAddress;
use crate::model::qid::QidMap;
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use layout::QidMapLayout;

/// The collector.
pub const SPEC: Spec = Spec {
    name: "qid_map",
    about: "Queue pair maps of stacks that have such a file (no mainline kernel does), as [collector.qid-map] describes it",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(10),
    fresh: false,
    make: |setup| Box::new(QidMapCollector { layout: setup.host.roots.qid_map.clone() }),
};

/// Longest file that is read, in bytes.
const LONGEST: usize = 4 << 20;

/// Most files that a pattern may name.
const MOST_FILES: usize = 4096;

/// Most states that are told apart for a PF; further ones are `other`.
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
    /// Whether the PF ever had such a file: without any it is of another stack.
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
    let mut places = BTreeSet::from([PathBuf::from("/")]);
    let mut parts = layout.path.components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else { continue };
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
    places.remove(Path::new("/"));
    Ok(places)
}

/// Whether a name is of a pattern: `*` is any characters, `?` is one.
fn matches(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.chars(), name.chars());
    // Where to go on after the last `*` has taken one more character.
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

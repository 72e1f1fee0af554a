//! Interfaces of PCI functions in other network namespaces, through the `/sys` that a process there has mounted
//! (`sys/class/net` below `/proc/<pid>/root`).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{content, hides_target, is_refusal, owner, pids};
use crate::host::collector::{DeviceReader, ReadContext};
use crate::host::function::address_of;
use crate::model::holder::{MissingAccess, NamespaceInterface, Namespaces, NetworkNamespace};
use crate::model::snapshot::Fact;

/// Every this many passes the namespaces of all processes are read; in between, those of new processes.
const ALL: u64 = 4;

/// How many processes of a namespace are tried before its interfaces count as hidden.
const TRIES: usize = 4;

/// The reader.
#[derive(Default)]
pub(super) struct NamespaceReader {
    passes: u64,
    /// The network namespace of each process, or the missing permission.
    known: BTreeMap<u32, Result<u64, MissingAccess>>,
}

impl DeviceReader for NamespaceReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let unseen = |missing| Namespaces { missing: Some(missing), ..Namespaces::default() };
        let Ok(pids) = pids(cx) else { return vec![Arc::new(unseen(MissingAccess::Processes))] };
        let own = match [namespace(cx, "self"), namespace(cx, "1")] {
            [Some(Ok(own)), _] | [_, Some(Ok(own))] => own,
            [Some(Err(missing)), _] | [_, Some(Err(missing))] => return vec![Arc::new(unseen(missing))],
            [None, None] => return vec![Arc::new(unseen(MissingAccess::Processes))],
        };
        if self.passes.is_multiple_of(ALL) {
            self.known.clear();
        }
        self.passes += 1;
        self.known.retain(|pid, _| pids.binary_search(pid).is_ok());
        for pid in pids {
            if let Entry::Vacant(entry) = self.known.entry(pid)
                && let Some(namespace) = namespace(cx, &pid.to_string())
            {
                entry.insert(namespace);
            }
        }
        let mut members: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (pid, number) in &self.known {
            if let Some(number) = number.ok().filter(|number| *number != own) {
                members.entry(number).or_default().push(*pid);
            }
        }
        let names = names(cx);
        let mut found =
            Namespaces { missing: self.known.values().find_map(|seen| seen.err()), ..Namespaces::default() };
        for (number, name) in names.iter().filter(|(number, _)| **number != own && !members.contains_key(number)) {
            // No process is in it, so it cannot be inspected.
            tracing::trace!(number, "a namespace without processes");
            found.empty.push(Arc::clone(name));
        }
        let mut opaque = false;
        for (number, pids) in members {
            let name = names.get(&number).map_or_else(|| Arc::from(number.to_string()), Arc::clone);
            let mut missing = None;
            let seen = pids
                .iter()
                .take(TRIES)
                .find_map(|pid| interfaces(cx, *pid, &name).map_err(|hidden| missing = missing.or(Some(hidden))).ok());
            let Some(interfaces) = seen else {
                opaque = true;
                found.missing = found.missing.or(missing);
                continue;
            };
            let owner = pids.iter().find_map(|pid| owner(cx, *pid));
            found.seen.push(NetworkNamespace { name, owner });
            found.interfaces.extend(interfaces);
        }
        if !found.empty.is_empty() {
            // Another that is hidden may be the one as well.
            if opaque || found.missing.is_some() {
                found.empty.clear();
            }
            found.missing = found.missing.or(Some(MissingAccess::Namespace));
        }
        vec![Arc::new(found)]
    }
}

/// The number of a process's network namespace (`net:[4026531840]`), or the missing permission. `None` if the process
/// has ended.
fn namespace(cx: &ReadContext<'_>, process: &str) -> Option<Result<u64, MissingAccess>> {
    let target = match cx.host.io.link(&cx.host.procfs.join(process).join("ns/net")) {
        Ok(target) => target,
        Err(error) => return is_refusal(&error).then(|| Err(hides_target(cx.host.io.capabilities()))),
    };
    let number = target.to_str()?.strip_prefix("net:[")?.strip_suffix(']')?.parse();
    number.ok().map(Ok)
}

/// Named namespaces by number: the files that they are mounted on.
fn names(cx: &ReadContext<'_>) -> BTreeMap<u64, Arc<str>> {
    let directory = &cx.host.roots.netns;
    let names = cx.host.io.list(directory).unwrap_or_default();
    let number = |name: &String| cx.host.io.stamp(&directory.join(name)).ok().map(|stamp| stamp.identity.1);
    names.iter().filter_map(|name| Some((number(name)?, crate::model::text::name(name)))).collect()
}

/// The interfaces of PCI functions that a process sees, or the missing permission. Its `/sys` may belong to another
/// namespace.
fn interfaces(cx: &ReadContext<'_>, pid: u32, namespace: &Arc<str>) -> Result<Vec<NamespaceInterface>, MissingAccess> {
    let process = cx.host.procfs.join(pid.to_string());
    let class = process.join("root").join("sys/class/net");
    let hidden = |error: io::Error| {
        if is_refusal(&error) { hides_target(cx.host.io.capabilities()) } else { MissingAccess::Namespace }
    };
    let listed: BTreeSet<String> =
        cx.host.io.list(&class).map_err(hidden)?.into_iter().filter(|name| name != "bonding_masters").collect();
    let devices = content(&*cx.host.io, &process.join("net/dev"), 64 * 1024).map_err(hidden)?;
    if listed != devices_of(&String::from_utf8_lossy(&devices)) {
        return Err(MissingAccess::Namespace);
    }
    let function = |name: &String| {
        let target = cx.host.io.link(&class.join(name)).ok()?;
        // `../../devices/pci0000:97/…/0000:98:00.1/net/eth0`
        target.ancestors().skip(1).find_map(address_of_path)
    };
    let owner = owner(cx, pid);
    let found = listed.iter().filter_map(|name| {
        let (netdev, namespace, owner) = (Arc::from(name.as_str()), Arc::clone(namespace), owner.clone());
        Some(NamespaceInterface { address: function(name)?, netdev, namespace, owner })
    });
    Ok(found.collect())
}

fn address_of_path(path: &Path) -> Option<crate::model::ids::PciAddress> {
    address_of(path)
}

/// The names in `/proc/<pid>/net/dev`.
pub(super) fn devices_of(text: &str) -> BTreeSet<String> {
    text.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_parses_without_a_panic(text in any::<String>(), names in proptest::collection::btree_set("[a-z0-9.@]{1,15}", 0..5)) {
            let _ = devices_of(&text);
            let rows: Vec<String> = names.iter().map(|name| format!("{name:>6}: 0 1 2\n")).collect();
            prop_assert_eq!(devices_of(&format!("Inter-|\n face |\n{}", rows.concat())), names);
        }
    }
}

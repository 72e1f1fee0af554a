//! Who holds functions that were given away: processes with vfio or uio open, libvirt's domains, other network
//! namespaces. Everything is read; nothing is asked of hardware.

pub mod libvirt;
mod namespaces;
mod processes;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, GoneReader, ReadContext, Setup, Spec};
use super::io::{Capabilities, HostIo, reason_of};
use crate::model::holder::MissingAccess;
use crate::model::reading::ReadError;

/// The collector of holders.
pub const SPEC: Spec = Spec {
    name: "holders",
    about: "Who holds VFs: processes with vfio or uio open, libvirt domains, network namespaces",
    interval: Duration::from_secs(15),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |_: &Setup| Box::new(HolderCollector),
};

const PROCESSES: &str = "processes";
const LIBVIRT: &str = "libvirt";
const NAMESPACES: &str = "namespaces";

struct HolderCollector;

impl Collector for HolderCollector {
    fn discover(&mut self, _: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let found = |key: &str| Discovered { key: Arc::from(key), device: None };
        Ok(vec![found(LIBVIRT), found(NAMESPACES), found(PROCESSES)])
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        match &*found.key {
            PROCESSES => Box::new(processes::ProcessReader::default()),
            LIBVIRT => Box::new(libvirt::LibvirtReader::default()),
            NAMESPACES => Box::new(namespaces::NamespaceReader::default()),
            _ => Box::new(GoneReader),
        }
    }
}

fn is_refusal(error: &io::Error) -> bool {
    reason_of(error) == Some(ReadError::Permission)
}

/// What hides where a descriptor or namespace of a process leads.
const fn hides_target(capabilities: Capabilities) -> MissingAccess {
    if capabilities.ptrace { MissingAccess::Refused } else { MissingAccess::Ptrace }
}

/// What hides the list of a process's descriptors.
const fn hides_list(capabilities: Capabilities) -> MissingAccess {
    match (capabilities.search, capabilities.ptrace) {
        (false, false) => MissingAccess::Descriptors,
        (false, true) => MissingAccess::Search,
        (true, _) => hides_target(capabilities),
    }
}

/// The beginning of a file, at most so many bytes.
fn content(io: &dyn HostIo, path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let length = io.open(path)?.read(&mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

/// The numbers of the processes that `/proc` shows.
fn pids(cx: &ReadContext<'_>) -> io::Result<Vec<u32>> {
    let names = cx.host.io.list(&cx.host.procfs)?;
    let mut pids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// The pod that a process belongs to, by UID, from its control group: `…/kubepods-burstable-pod<uid>.slice/…` or
/// `…/kubepods/burstable/pod<uid>/…`.
fn pod(cx: &ReadContext<'_>, pid: u32) -> Option<Arc<str>> {
    let bytes = content(&*cx.host.io, &cx.host.procfs.join(pid.to_string()).join("cgroup"), 4096).ok()?;
    pod_of(std::str::from_utf8(&bytes).ok()?)
}

fn pod_of(cgroup: &str) -> Option<Arc<str>> {
    let parts = cgroup.lines().filter(|line| line.contains("kubepods")).flat_map(|line| line.split('/'));
    for part in parts {
        let part = part.strip_suffix(".slice").unwrap_or(part);
        let Some((_, uid)) = part.rsplit_once("pod") else { continue };
        let uid: String = uid.chars().map(|c| if c == '_' { '-' } else { c }).collect();
        let known = uid.len() >= 8 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if known {
            return Some(Arc::from(uid));
        }
    }
    None
}

//! Processes that have functions open (`/proc/<pid>/fd`, `fdinfo`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::qemu::parse_command_line;
use super::{content, hides_list, hides_target, is_refusal, owner, pids};
use crate::host::collector::{DeviceReader, ReadContext};
use crate::host::function::address_of;
use crate::host::io::reason_of;
use crate::model::holder::{Claim, DeviceFile, Domain, MissingAccess, Opener, Openers};
use crate::model::snapshot::Fact;
use crate::model::sriov::is_user_space;
use crate::model::text;

/// Longest command line that is read: libvirt's are some 10 KiB.
const COMMAND_LINE: usize = 64 * 1024;

/// Every so many passes all processes are inspected into; in between, those that are new, have functions open, or are
/// known to open them.
const ALL: u64 = 4;

/// The reader.
#[derive(Default)]
pub(super) struct ProcessReader {
    passes: u64,
    /// Processes that were inspected, and what they had open.
    known: BTreeMap<u32, Option<Opener>>,
    missing: Option<MissingAccess>,
    /// QEMUs by their command lines.
    machines: BTreeMap<u32, Domain>,
}

impl DeviceReader for ProcessReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let pids = match pids(cx) {
            Ok(pids) => pids,
            Err(error) => {
                if let Some(reason) = reason_of(&error) {
                    let procfs = cx.host.procfs.clone();
                    cx.fault(&procfs, reason);
                }
                return vec![Arc::new(Openers::default())];
            }
        };
        if pids.is_empty() {
            return vec![Arc::new(Openers::default())];
        }
        if !has_given_away(cx) {
            // Nothing can be open, so no process needs to be inspected.
            self.known.clear();
            self.machines.clear();
            self.passes = 0;
            return vec![Arc::new(Openers { visible: true, ..Openers::default() })];
        }
        let all = self.passes.is_multiple_of(ALL);
        self.passes += 1;
        self.known.retain(|pid, _| pids.binary_search(pid).is_ok());
        self.machines.retain(|pid, _| pids.binary_search(pid).is_ok());
        let mut missing = self.missing.filter(|_| !all);
        for pid in pids {
            let due = all || self.known.get(&pid).is_none_or(Option::is_some) || opens_functions(cx, pid);
            if due {
                let inspected = inspect(cx, pid);
                match machine(cx, pid) {
                    Some(machine) if inspected.is_ok() => drop(self.machines.insert(pid, without_claims(machine))),
                    Some(machine) => drop(self.machines.insert(pid, machine)),
                    None => drop(self.machines.remove(&pid)),
                }
                match inspected {
                    Ok(opener) => {
                        self.known.insert(pid, opener);
                    }
                    Err(ProcessError::Hidden(what)) => missing = Some(what),
                    // It has ended.
                    Err(ProcessError::Ended) => {
                        self.known.remove(&pid);
                    }
                }
            }
        }
        self.missing = missing;
        let openers = self.known.values().flatten().cloned().collect();
        let machines = self.machines.values().cloned().collect();
        vec![Arc::new(Openers { openers, missing, visible: true, machines })]
    }
}

/// A QEMU by its command line; `None` for any other process.
fn machine(cx: &ReadContext<'_>, pid: u32) -> Option<Domain> {
    let program = name(cx, pid).filter(|name| name.starts_with("qemu") || &**name == "kvm")?;
    let line = content(&*cx.host.io, &cx.host.procfs.join(pid.to_string()).join("cmdline"), COMMAND_LINE).ok()?;
    let line = parse_command_line(&line)?;
    let claim = |address| Claim { address, mac: None, vlan: None, present: None };
    Some(Domain {
        name: line.domain.unwrap_or_else(|| Arc::from(format!("{program} {pid}"))),
        live: true,
        pid: Some(pid),
        incoming: line.incoming,
        claims: line.functions.into_iter().map(claim).collect(),
        ..Domain::default()
    })
}

/// A machine whose descriptors are seen claims nothing by its command line: what it has open is what it holds.
fn without_claims(machine: Domain) -> Domain {
    Domain { claims: Vec::new(), ..machine }
}

/// Whether any function is bound to a driver for user space.
fn has_given_away(cx: &ReadContext<'_>) -> bool {
    let io = &cx.host.io;
    let drivers = cx.host.sysfs.join("bus/pci/drivers");
    let names = io.list(&drivers).unwrap_or_default();
    names.iter().filter(|name| is_user_space(name)).any(|name| {
        io.list(&drivers.join(name)).is_ok_and(|entries| entries.iter().any(|e| address_of(Path::new(e)).is_some()))
    })
}

/// Whether a process is of a kind that opens functions while it runs.
fn opens_functions(cx: &ReadContext<'_>, pid: u32) -> bool {
    name(cx, pid).is_some_and(|name| {
        ["qemu", "kvm", "cloud-hyp", "firecracker", "crosvm", "dpdk", "vpp", "ovs-vswitchd"]
            .iter()
            .any(|start| name.starts_with(start))
    })
}

fn name(cx: &ReadContext<'_>, pid: u32) -> Option<Arc<str>> {
    let bytes = content(&*cx.host.io, &cx.host.procfs.join(pid.to_string()).join("comm"), 64).ok()?;
    std::str::from_utf8(&bytes).ok().map(|text| text::name(text.trim_end()))
}

/// Why a process was not inspected.
enum ProcessError {
    /// A permission is missing.
    Hidden(MissingAccess),
    /// It has ended.
    Ended,
}

/// The functions that a process has open; `None` if there are none.
fn inspect(cx: &ReadContext<'_>, pid: u32) -> Result<Option<Opener>, ProcessError> {
    let directory = cx.host.procfs.join(pid.to_string());
    let descriptors = directory.join("fd");
    let mut handles = Vec::new();
    let capabilities = || cx.host.io.capabilities();
    let listed = cx.host.io.list(&descriptors).map_err(|error| {
        if is_refusal(&error) { ProcessError::Hidden(hides_list(capabilities())) } else { ProcessError::Ended }
    })?;
    for descriptor in listed {
        let target = match cx.host.io.link(&descriptors.join(&descriptor)) {
            Ok(target) => target,
            Err(error) if is_refusal(&error) => return Err(ProcessError::Hidden(hides_target(capabilities()))),
            Err(_) => continue,
        };
        let Some(target) = target.to_str() else { continue };
        if target.starts_with("anon_inode:") && target.contains("vfio-device") {
            let info = content(&*cx.host.io, &directory.join("fdinfo").join(&descriptor), 4096).unwrap_or_default();
            handles.extend(std::str::from_utf8(&info).ok().and_then(function));
        } else {
            handles.extend(device_file_of(target));
        }
    }
    if handles.is_empty() {
        return Ok(None);
    }
    handles.sort_unstable();
    handles.dedup();
    let line = content(&*cx.host.io, &directory.join("cmdline"), COMMAND_LINE).unwrap_or_default();
    let stat = content(&*cx.host.io, &directory.join("stat"), 1024).unwrap_or_default();
    Ok(Some(Opener {
        pid,
        name: name(cx, pid).unwrap_or_else(|| Arc::from(pid.to_string())),
        domain: parse_command_line(&line).and_then(|line| line.domain),
        owner: owner(cx, pid),
        handles,
        started: start_time(&stat),
    }))
}

/// `starttime`, the 22nd field of `/proc/<pid>/stat`. The name in the second one may hold spaces and brackets.
pub(super) fn start_time(stat: &[u8]) -> Option<u64> {
    let after = stat.rsplit(|byte| *byte == b')').next().filter(|after| after.len() < stat.len())?;
    std::str::from_utf8(after).ok()?.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// What a descriptor's target is: `/dev/vfio/40`, `/dev/vfio/noiommu-3`, `/dev/vfio/devices/vfio3`, `/dev/uio2`.
pub(super) fn device_file_of(target: &str) -> Option<DeviceFile> {
    let node = target.strip_prefix("/dev/")?;
    let node = node.strip_suffix(" (deleted)").unwrap_or(node);
    if node.starts_with("vfio/devices/vfio") {
        return Some(DeviceFile::Node(Arc::from(node)));
    }
    if let Some(group) = node.strip_prefix("vfio/") {
        return group.strip_prefix("noiommu-").unwrap_or(group).parse().ok().map(DeviceFile::Group);
    }
    let number = node.strip_prefix("uio")?;
    number.parse::<u32>().ok().map(|_| DeviceFile::Node(Arc::from(node)))
}

/// The function that `fdinfo` of a vfio device names: `vfio-device-syspath: /sys/devices/…/0000:e8:00.0`.
pub(super) fn function(info: &str) -> Option<DeviceFile> {
    let path = info.lines().find_map(|line| line.strip_prefix("vfio-device-syspath:"))?;
    address_of(Path::new(path.trim())).map(DeviceFile::Function)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn descriptors() {
        assert_eq!(device_file_of("/dev/vfio/40"), Some(DeviceFile::Group(40)));
        assert_eq!(device_file_of("/dev/vfio/noiommu-3"), Some(DeviceFile::Group(3)));
        assert_eq!(device_file_of("/dev/vfio/devices/vfio3"), Some(DeviceFile::Node("vfio/devices/vfio3".into())));
        assert_eq!(device_file_of("/dev/uio2"), Some(DeviceFile::Node("uio2".into())));
        assert_eq!(
            (device_file_of("/dev/vfio/vfio"), device_file_of("/dev/null"), device_file_of("socket:[1]")),
            (None, None, None)
        );
        let info =
            "pos:\t0\nflags:\t02000002\nvfio-device-syspath: /sys/devices/pci0000:e0/0000:e0:01.1/0000:e8:00.0\n";
        assert_eq!(function(info), Some(DeviceFile::Function("0000:e8:00.0".parse().unwrap())));
    }

    #[test]
    fn a_name_with_brackets_does_not_shift_the_start_time() {
        let stat = b"4242 (q) S 1 (x) S 1 4242 4242 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 4 0 123456 1000 200 1844";
        assert_eq!(start_time(stat), Some(123_456));
        assert_eq!((start_time(b""), start_time(b"1 (init) S 0"), start_time(b"no bracket")), (None, None, None));
    }

    proptest! {
        #[test]
        fn any_input_parses_without_a_panic(text in ".{0,60}", bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = (device_file_of(&text), function(&text), start_time(&bytes));
        }
    }
}

//! What collectors understand of processes and domains, written as files that say nothing else: for recordings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::cgroup::owner;
use super::processes::{device_file_of, function, start_time};
use super::qemu::{CommandLine, parse_command_line};
use crate::host::recording::entries::RecordedEntry;
use crate::host::recording::scrub::{NameKind, Scrubber};
use crate::model::holder::{CgroupOwner, Domain};
use crate::model::reading::ReadError;
use crate::model::sriov::Mac;

/// How the names of programs start that are no secret.
const PROGRAMS: [&str; 16] = [
    "qemu",
    "kvm",
    "cloud-hyp",
    "firecracker",
    "crosvm",
    "dpdk",
    "testpmd",
    "vpp",
    "ovs-vswitchd",
    "irqbalance",
    "systemd",
    "init",
    "spdk",
    "virtiofsd",
    "libvirtd",
    "ib_",
];

/// Whether a program's name is no secret.
fn is_known_program(name: &str) -> bool {
    PROGRAMS.iter().any(|start| name.starts_with(start))
}

/// A domain's file: its name, state, and the functions that it was given.
pub fn domain(domain: &Domain, scrubber: &mut Scrubber) -> String {
    let name = scrubber.name(NameKind::Domain, &domain.name);
    let mut devices = String::new();
    for claim in &domain.claims {
        let address = claim.address;
        let mac = claim.mac.map(|mac| format!("<mac address='{}'/>", replaced(mac, scrubber))).unwrap_or_default();
        let vlan = claim.vlan.map(|id| format!("<vlan><tag id='{id}'/></vlan>")).unwrap_or_default();
        let _ = writeln!(
            devices,
            "<interface type='hostdev'>{mac}<source><address type='pci' domain='0x{:04x}' bus='0x{:02x}' \
             slot='0x{:02x}' function='0x{:x}'/></source>{vlan}</interface>",
            address.domain, address.bus, address.device, address.function
        );
    }
    let id = domain.id.map(|id| format!(" id='{id}'")).unwrap_or_default();
    let name = quick_xml::escape::escape(&name);
    let is_uuid =
        |text: &&str| text.len() == 36 && text.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-');
    let uuid = domain.identity.uuid.as_deref().filter(is_uuid).map(|uuid| scrubber.uuid_text(uuid));
    let uuid = uuid.map(|uuid| format!("<uuid>{uuid}</uuid>")).unwrap_or_default();
    let body = format!("<domain type='kvm'{id}><name>{name}</name>{uuid}<devices>\n{devices}</devices></domain>\n");
    let Some(state) = &domain.state else { return body };
    let word = |word: &str| word.chars().filter(|c| c.is_ascii_lowercase() || " -".contains(*c)).collect::<String>();
    let reason = domain.reason.as_deref().map(|reason| format!(" reason='{}'", word(reason))).unwrap_or_default();
    let pid = domain.pid.unwrap_or(0);
    let job = if domain.incoming_job { "<job async='migration in'/>\n" } else { "" };
    format!("<domstatus state='{}'{reason} pid='{pid}'>\n{job}{body}</domstatus>\n", word(state))
}

fn replaced(mac: Mac, scrubber: &mut Scrubber) -> String {
    scrubber.text(&mac.to_string())
}

/// The files of a process, relative to its directory, that may leave the host; none for a process that holds no function
/// and is in the agent's own network namespace. `refused`: what could not be read of processes so far; of those that
/// hide the same, one is enough.
pub fn process(
    pid: &str,
    entries: &BTreeMap<PathBuf, RecordedEntry>,
    own: Option<&Path>,
    refused: &mut BTreeSet<(&'static str, ReadError)>,
    scrubber: &mut Scrubber,
) -> BTreeMap<PathBuf, RecordedEntry> {
    let mut kept = BTreeMap::new();
    if pid == "self" {
        for name in ["ns/net", "uid_map", "status"] {
            if let Some(entry) = entries.get(Path::new(name)).and_then(|entry| own_file(name, entry)) {
                kept.insert(PathBuf::from(name), entry);
            }
        }
        return kept;
    }
    let content = |name: &str| match entries.get(Path::new(name)) {
        Some(RecordedEntry::File(content)) => Some(content.as_slice()),
        _ => None,
    };
    let text = |name: &str| content(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let name = text("comm").map(|name| name.trim_end().to_owned());
    let line = content("cmdline").and_then(parse_command_line);
    let mut held = BTreeMap::new();
    let mut hides = false;
    for (path, entry) in entries {
        let what = match path.iter().next().and_then(|first| first.to_str()) {
            Some("fd") => "fd",
            Some("ns") => "ns",
            Some("root") => "root",
            _ => continue,
        };
        match entry {
            RecordedEntry::Unreadable(reason) => {
                held.insert(path.clone(), entry.clone());
                hides |= refused.insert((what, *reason));
            }
            RecordedEntry::Link(target) if what == "fd" => {
                let target = target.to_str().unwrap_or_default();
                let number = path.file_name().map_or(path.as_path(), Path::new);
                if target.starts_with("anon_inode:") && target.contains("vfio-device") {
                    held.insert(path.clone(), entry.clone());
                    let info = text(&format!("fdinfo/{}", number.display())).unwrap_or_default();
                    if function(&info).is_some()
                        && let Some(line) = info.lines().find(|line| line.starts_with("vfio-device-syspath:"))
                    {
                        let line = format!("{}\n", scrubber.text(line));
                        held.insert(Path::new("fdinfo").join(number), RecordedEntry::File(line.into_bytes()));
                    }
                } else if device_file_of(target).is_some() {
                    held.insert(path.clone(), entry.clone());
                }
            }
            _ => {}
        }
    }
    let holds = held.values().any(|entry| !matches!(entry, RecordedEntry::Unreadable(_)));
    let namespace = match entries.get(Path::new("ns/net")) {
        Some(RecordedEntry::Link(target)) => Some(target.as_path()),
        _ => None,
    };
    let is_elsewhere = namespace.is_some() && namespace != own;
    let balances = name.as_deref() == Some("irqbalance");
    if !(pid == "1" || holds || hides || is_elsewhere || balances || line.is_some()) {
        return kept;
    }
    kept.insert(PathBuf::new(), RecordedEntry::Directory);
    if entries.contains_key(Path::new("fd")) {
        kept.insert(PathBuf::from("fd"), RecordedEntry::Directory);
    }
    kept.extend(held);
    let mut put = |path: &str, text: String| kept.insert(PathBuf::from(path), RecordedEntry::File(text.into_bytes()));
    if let Some(name) = &name {
        let name = if is_known_program(name) { name.clone() } else { scrubber.name(NameKind::Program, name) };
        put("comm", format!("{name}\n"));
    }
    if let Some(line) = line {
        put("cmdline", command_line(&line, name.as_deref(), scrubber));
    }
    if let Some(group) = text("cgroup") {
        let owner = owner(&group);
        let pod = owner.as_ref().and_then(CgroupOwner::pod).map(|pod| scrubber.uuid_text(pod));
        let group = pod.map(|pod| format!("/kubepods.slice/kubepods-pod{}.slice/container", pod.replace('-', "_")));
        put("cgroup", format!("0::{}\n", group.as_deref().unwrap_or("/")));
    }
    if let Some(started) = content("stat").and_then(start_time) {
        put("stat", format!("{pid} (x) S{} {started}\n", " 0".repeat(18)));
    }
    if let Some(namespace) = namespace {
        kept.insert(PathBuf::from("ns/net"), RecordedEntry::Link(namespace.to_owned()));
    }
    if is_elsewhere {
        interfaces(entries, scrubber, &mut kept);
    }
    kept
}

/// What says of the agent itself what it may see.
fn own_file(name: &str, entry: &RecordedEntry) -> Option<RecordedEntry> {
    match (name, entry) {
        ("ns/net", _) => Some(entry.clone()),
        ("uid_map", RecordedEntry::File(content)) => {
            let plain = content.iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_whitespace());
            plain.then(|| entry.clone())
        }
        (_, RecordedEntry::File(content)) => {
            let status = String::from_utf8_lossy(content);
            let line = status.lines().find(|line| line.starts_with("CapEff:"))?;
            let digits = line.trim_start_matches("CapEff:").trim();
            let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            plain.then(|| RecordedEntry::File(format!("CapEff:\t{digits}\n").into_bytes()))
        }
        _ => None,
    }
}

/// QEMU's command line with what is understood of it.
fn command_line(line: &CommandLine, name: Option<&str>, scrubber: &mut Scrubber) -> String {
    let program = name.filter(|name| name.starts_with("qemu") || *name == "kvm").unwrap_or("qemu");
    let mut arguments = vec![program.to_owned()];
    if let Some(domain) = &line.domain {
        let domain = scrubber.name(NameKind::Domain, domain).replace(',', ",,");
        arguments.extend(["-name".to_owned(), format!("guest={domain}")]);
    }
    if line.incoming {
        arguments.extend(["-incoming".to_owned(), "defer".to_owned()]);
    }
    for function in &line.functions {
        arguments.extend(["-device".to_owned(), format!("vfio-pci,host={function}")]);
    }
    arguments.join("\0") + "\0"
}

/// The interfaces of another namespace.
fn interfaces(
    entries: &BTreeMap<PathBuf, RecordedEntry>,
    scrubber: &mut Scrubber,
    kept: &mut BTreeMap<PathBuf, RecordedEntry>,
) {
    let class = Path::new("root/sys/class/net");
    for (path, entry) in entries.iter().filter(|(path, _)| path.starts_with(class)) {
        let entry = match entry {
            RecordedEntry::Link(target) => RecordedEntry::Link(scrubber.path(target)),
            RecordedEntry::Directory => RecordedEntry::Directory,
            _ => continue,
        };
        kept.insert(scrubber.path(path), entry);
    }
    if let Some(RecordedEntry::File(content)) = entries.get(Path::new("net/dev")) {
        let mut table = "Inter-|\n face |\n".to_owned();
        for name in super::namespaces::devices_of(&String::from_utf8_lossy(content)) {
            let _ = writeln!(table, "{}: 0", scrubber.path(Path::new(&name)).display());
        }
        kept.insert(PathBuf::from("net/dev"), RecordedEntry::File(table.into_bytes()));
    }
}

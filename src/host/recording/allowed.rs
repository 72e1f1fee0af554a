//! What of a recording may leave the host, source by source. Whatever is not on a list here is left out; free text is
//! written anew from what collectors understand of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::contents::{IDENTIFIERS, MODELS, PRODUCTS, VENDORS, WORDS, cpu_flags, is_numeric, known_part};
use super::drivers;
use super::entries::{Entries, Recorded, RecordedEntry, is_process};
use super::netlink;
use super::scrub::{NameKind, Scrubber};
use crate::host::holders::{self, libvirt};
use crate::host::kmsg;
use crate::host::posture::ARGUMENTS;

/// The recording with what may leave, and with identifiers replaced.
pub fn allowed(recorded: &Recorded, scrubber: &mut Scrubber, names: &dyn kmsg::speaker::Names) -> Recorded {
    if let Some(name) = text_of(&recorded.entries, "proc/sys/kernel/hostname") {
        scrubber.learn_host(&name);
    }
    let mut filter = Filter { scrubber, names, devices: devices(&recorded.entries), out: Recorded::default() };
    filter.out.capabilities = recorded.capabilities;
    let mut processes: BTreeMap<String, BTreeMap<PathBuf, RecordedEntry>> = BTreeMap::new();
    for (path, entry) in &recorded.entries {
        let mut parts = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
        let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        match first.as_str() {
            "proc" if is_process(&second) => {
                let rest = path.components().skip(2).collect();
                processes.entry(second).or_default().insert(rest, entry.clone());
            }
            "proc" => filter.proc(path, entry),
            "sys" => filter.sys(path, entry),
            "etc" | "run" => filter.other(path, entry),
            "kmsg" | "dmesg.txt" => filter.log(path, entry),
            _ => {}
        }
    }
    filter.processes(&processes);
    filter.memory_limit(&recorded.entries);
    if recorded.is_live {
        filter.configured_vfs(&recorded.entries);
    }
    for (name, number) in &recorded.namespaces {
        let name = filter.scrubber.name(NameKind::Namespace, name);
        filter.put(Path::new("run/netns").join(&name), file(""));
        filter.out.namespaces.insert(name, *number);
    }
    let exchanges = netlink::allowed(&recorded.exchanges, filter.scrubber);
    let drivers = drivers::allowed(&recorded.drivers, filter.scrubber);
    Recorded { exchanges, drivers, ..filter.out }
}

fn file(text: &str) -> RecordedEntry {
    RecordedEntry::File(text.as_bytes().to_vec())
}

fn text(entry: &RecordedEntry) -> Option<&str> {
    match entry {
        RecordedEntry::File(content) => std::str::from_utf8(content).ok(),
        _ => None,
    }
}

fn text_of(entries: &Entries, path: &str) -> Option<String> {
    entries.get(Path::new(path)).and_then(text).map(|text| text.trim().to_owned())
}

/// Names of the RDMA devices.
fn devices(entries: &Entries) -> BTreeSet<String> {
    let class = Path::new("sys/class/infiniband");
    let below = entries.keys().filter_map(|path| path.strip_prefix(class).ok()?.components().next());
    below.map(|name| name.as_os_str().to_string_lossy().into_owned()).collect()
}

struct Filter<'a> {
    scrubber: &'a mut Scrubber,
    names: &'a dyn kmsg::speaker::Names,
    devices: BTreeSet<String>,
    out: Recorded,
}

impl Filter<'_> {
    fn put(&mut self, path: PathBuf, entry: RecordedEntry) {
        self.out.entries.insert(path, entry);
    }

    fn sys(&mut self, path: &Path, entry: &RecordedEntry) {
        if path.starts_with("sys/fs/cgroup") {
            return;
        }
        let entry = match entry {
            RecordedEntry::Directory | RecordedEntry::Unreadable(_) => entry.clone(),
            RecordedEntry::Link(target) => RecordedEntry::Link(self.scrubber.path(target)),
            RecordedEntry::File(content) => match self.sys_file(path, content) {
                Some(content) => RecordedEntry::File(content),
                None => return,
            },
        };
        let path = self.scrubber.path(path);
        self.put(path, entry);
    }

    /// What may leave of a file's content.
    fn sys_file(&mut self, path: &Path, content: &[u8]) -> Option<Vec<u8>> {
        let name = path.file_name()?.to_str()?;
        // The registers that were read: headers of capabilities and switches of ACS.
        if name == "config" && path.starts_with("sys/devices") && std::str::from_utf8(content).is_err() {
            return Some(content.to_vec());
        }
        let text = std::str::from_utf8(content).ok()?;
        let parent = path.parent()?.file_name()?.to_str().unwrap_or_default();
        let safe = match name {
            "product_uuid" => self.scrubber.uuid_text(text.trim()) + "\n",
            "sys_vendor" => known_part(text, &VENDORS),
            "product_name" => known_part(text, &PRODUCTS),
            "node_desc" => self.node_description(text),
            _ if IDENTIFIERS.contains(&name) || parent == "gids" => self.scrubber.text(text),
            _ if parent == "msi_irqs" => if text.trim() == "msi" { "msi\n" } else { "msix\n" }.to_owned(),
            _ if MODELS.contains(&name) => self.model(text)?,
            _ if is_numeric(text) => self.scrubber.text(text),
            _ if WORDS.contains(&name) || parent == "types" || parent == "ndevs" => self.scrubber.text(text),
            // Of a driver's own: words that every such driver has.
            _ => return None,
        };
        Some(safe.into_bytes())
    }

    /// `node17 mlx5_0`: the host's name and the device's; whatever else an operator wrote is left out.
    fn node_description(&mut self, description: &str) -> String {
        if self.scrubber.keeps() {
            return description.to_owned();
        }
        let replaced = self.scrubber.text(description);
        let stays = |word: &&str| {
            let is_host = word.strip_prefix("host-").is_some_and(|number| number.parse::<u32>().is_ok());
            is_host || self.devices.contains(*word) || word.starts_with("HCA-")
        };
        let words: Vec<&str> = replaced.split_whitespace().filter(stays).collect();
        words.join(" ") + "\n"
    }

    /// A model's or a version's name: one short word with a number in it.
    fn model(&mut self, text: &str) -> Option<String> {
        if self.scrubber.keeps() {
            return Some(text.to_owned());
        }
        let word = text.split_ascii_whitespace().next()?;
        let sign = |c: char| c.is_ascii_alphanumeric() || "._:+~()-".contains(c);
        let is_one = word.len() <= 48 && word.chars().all(sign) && word.bytes().any(|byte| byte.is_ascii_digit());
        // Four numbers are a version here, not an address.
        is_one.then(|| self.scrubber.without_names(word) + "\n")
    }

    fn proc(&mut self, path: &Path, entry: &RecordedEntry) {
        let name = path.strip_prefix("proc").unwrap_or(path).to_string_lossy().into_owned();
        let entry = match entry {
            RecordedEntry::Directory => match name.as_str() {
                "" | "sys" | "sys/kernel" | "irq" => entry.clone(),
                _ if name.starts_with("irq/") => entry.clone(),
                _ => return,
            },
            RecordedEntry::Unreadable(_) => entry.clone(),
            RecordedEntry::Link(_) => return,
            RecordedEntry::File(content) => {
                let Ok(text) = std::str::from_utf8(content) else { return };
                let Some(text) = self.proc_file(&name, text) else { return };
                file(&text)
            }
        };
        self.put(path.to_owned(), entry);
    }

    fn proc_file(&mut self, name: &str, text: &str) -> Option<String> {
        Some(match name {
            "sys/kernel/hostname" => self.scrubber.name_of_host(text.trim()) + "\n",
            "sys/kernel/osrelease" => self.model(text)?,
            "sys/kernel/random/boot_id" => self.scrubber.uuid_text(text.trim()) + "\n",
            "cmdline" => self.arguments(text),
            "cpuinfo" => cpu_flags(text),
            "interrupts" => self.scrubber.text(text),
            _ if is_numeric(text) => self.scrubber.text(text),
            _ => return None,
        })
    }

    /// The kernel arguments that matter, with values of few signs.
    fn arguments(&mut self, text: &str) -> String {
        let plain = |value: &str| value.chars().all(|c| c.is_ascii_alphanumeric() || ",:.=_-+@/".contains(c));
        let allowed = |argument: &&str| {
            let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
            ARGUMENTS.contains(&name) && plain(value)
        };
        let arguments: Vec<String> =
            text.split_ascii_whitespace().filter(allowed).map(|argument| self.scrubber.text(argument)).collect();
        arguments.join(" ") + "\n"
    }

    /// Definitions and states of virtual machines, and the socket by which irqbalance is known.
    fn other(&mut self, path: &Path, entry: &RecordedEntry) {
        let folder = [
            "etc",
            "etc/libvirt",
            "etc/libvirt/qemu",
            "run",
            "run/libvirt",
            "run/libvirt/qemu",
            "run/irqbalance",
            "run/netns",
        ];
        if folder.iter().any(|folder| path == Path::new(folder)) {
            self.put(path.to_owned(), entry.clone());
            return;
        }
        let (parent, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default().to_string_lossy());
        if parent == Path::new("run") || parent == Path::new("run/irqbalance") {
            if name.starts_with("irqbalance") {
                self.put(parent.join("irqbalance1.sock"), file(""));
            }
            return;
        }
        let is_domain = parent == Path::new("etc/libvirt/qemu") || parent == Path::new("run/libvirt/qemu");
        let Some(stem) = name.strip_suffix(".xml").filter(|_| is_domain) else { return };
        let (stem, entry) = match entry {
            RecordedEntry::File(content) => match libvirt::domain(content) {
                Some(domain) => {
                    let name = self.scrubber.name(NameKind::Domain, &domain.name);
                    (name, file(&holders::recorded::domain(&domain, self.scrubber)))
                }
                None => (self.scrubber.name(NameKind::Domain, stem), file("malformed\n")),
            },
            RecordedEntry::Unreadable(reason) => {
                (self.scrubber.name(NameKind::Domain, stem), RecordedEntry::Unreadable(*reason))
            }
            _ => return,
        };
        self.put(parent.join(format!("{stem}.xml")), entry);
    }

    fn log(&mut self, path: &Path, entry: &RecordedEntry) {
        let entry = match entry {
            RecordedEntry::File(content) => {
                let log = String::from_utf8_lossy(content);
                let scrubber = &mut *self.scrubber;
                let kept = kmsg::reduce(&log, path == Path::new("kmsg"), self.names, |text| scrubber.text(text));
                file(&kept)
            }
            other => other.clone(),
        };
        self.put(path.to_owned(), entry);
    }

    fn processes(&mut self, processes: &BTreeMap<String, BTreeMap<PathBuf, RecordedEntry>>) {
        let namespace = |process: &str| match processes.get(process)?.get(Path::new("ns/net"))? {
            RecordedEntry::Link(target) => Some(target.clone()),
            _ => None,
        };
        let own = namespace("self").or_else(|| namespace("1"));
        let mut refused = BTreeSet::new();
        for (name, entries) in processes {
            let kept = holders::recorded::process(name, entries, own.as_deref(), &mut refused, self.scrubber);
            for (path, entry) in kept {
                self.put(Path::new("proc").join(name).join(path), entry);
            }
        }
        if processes.contains_key("self") {
            self.put(PathBuf::from("proc/self/cgroup"), file("0::/agent\n"));
        }
    }

    /// The agent's memory limit, without the names of the control groups that set it.
    fn memory_limit(&mut self, entries: &Entries) {
        let limits = entries
            .iter()
            .filter(|(path, _)| path.starts_with("sys/fs/cgroup"))
            .filter_map(|(_, entry)| text(entry)?.trim().parse::<u64>().ok());
        if let Some(least) = limits.min() {
            self.put(PathBuf::from("sys/fs/cgroup/agent/memory.max"), file(&format!("{least}\n")));
        }
    }

    /// How many VFs there should be. On a running host that is not read from its file, which waits for a lock.
    fn configured_vfs(&mut self, entries: &Entries) {
        let mut counts: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for path in entries.keys() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Some(parent) = path.parent() else { continue };
            if name == "sriov_totalvfs" {
                counts.entry(parent.to_owned()).or_default();
            } else if name.starts_with("virtfn") {
                *counts.entry(parent.to_owned()).or_default() += 1;
            }
        }
        for (directory, count) in counts {
            let path = directory.join("sriov_numvfs");
            if !entries.contains_key(&path) {
                let path = self.scrubber.path(&path);
                self.put(path, file(&format!("{count}\n")));
            }
        }
    }
}

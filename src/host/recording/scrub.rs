//! Replaces identifiers in recorded texts and names, each one consistently.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Entries, RecordedEntry};

/// Files of free text that may contain the host name.
const FREE_TEXT: [&str; 5] = ["hostname", "node_desc", "board_id", "hca_type", "fw_ver"];

/// Identifiers that stay: zero, broadcast and the default subnet.
const NOBODY: u64 = 0;
const LINK_LOCAL: u64 = 0xfe80_0000_0000_0000;

/// Identifiers seen so far, with their replacements.
#[derive(Debug, Default)]
pub struct Scrubber {
    host: Option<String>,
    guids: BTreeMap<u64, u64>,
    macs: BTreeMap<u64, u64>,
    addresses: BTreeMap<u64, u64>,
}

impl Scrubber {
    /// The entries with GUIDs, MAC and IP addresses, the host's name and the boot's identifier replaced.
    pub fn scrub(&mut self, entries: &Entries) -> Entries {
        let host = entries.get(Path::new("proc/sys/kernel/hostname"));
        self.host = match host {
            Some(RecordedEntry::File(name)) => Some(String::from_utf8_lossy(name).trim().to_owned()),
            _ => None,
        };
        self.host = self.host.take().filter(|name| !name.is_empty() && name != "(none)");
        entries.iter().map(|(path, entry)| (self.path(path), self.entry(path, entry))).collect()
    }

    /// How many identifiers were replaced.
    pub fn replaced(&self) -> usize {
        self.guids.len() + self.macs.len() + self.addresses.len() + usize::from(self.host.is_some())
    }

    fn entry(&mut self, path: &Path, entry: &RecordedEntry) -> RecordedEntry {
        match entry {
            RecordedEntry::Directory | RecordedEntry::Unreadable => entry.clone(),
            RecordedEntry::Link(target) => RecordedEntry::Link(self.path(target)),
            RecordedEntry::File(content) => match std::str::from_utf8(content) {
                Ok(text) => RecordedEntry::File(self.content(path, text).into_bytes()),
                Err(_) => entry.clone(),
            },
        }
    }

    fn content(&mut self, path: &Path, text: &str) -> String {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name == "boot_id" {
            return "00000000-0000-4000-8000-000000000001\n".to_owned();
        }
        let text = self.text(text);
        let host = self.host.as_deref().filter(|_| FREE_TEXT.contains(&name));
        host.map_or_else(|| text.clone(), |host| without_host(&text, host))
    }

    fn path(&mut self, path: &Path) -> PathBuf {
        path.components()
            .map(|part| match part.as_os_str().to_str() {
                Some(name) => PathBuf::from(self.text(name)),
                None => PathBuf::from(part.as_os_str()),
            })
            .collect()
    }

    /// A text with the identifiers in its words replaced. A word is letters, digits and colons.
    fn text(&mut self, text: &str) -> String {
        let of_word = |c: char| c.is_ascii_alphanumeric() || c == ':';
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let (word, after) = rest.split_at(rest.find(|c| !of_word(c)).unwrap_or(rest.len()));
            out.push_str(&self.word(word).unwrap_or_else(|| word.to_owned()));
            let (between, after) = after.split_at(after.find(of_word).unwrap_or(after.len()));
            out.push_str(between);
            rest = after;
        }
        out
    }

    /// The replacement of an identifier; `None` for any other word.
    fn word(&mut self, word: &str) -> Option<String> {
        if !word.contains(':') {
            return self.embedded(word);
        }
        let groups: Vec<&str> = word.split(':').collect();
        let width = groups.first()?.len();
        if !groups.iter().all(|group| group.len() == width && group.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            return None;
        }
        let values: Vec<u64> = groups.iter().filter_map(|group| u64::from_str_radix(group, 16).ok()).collect();
        match (width, values.as_slice()) {
            (4, [_, _, _, _]) => Some(quads(self.guid(joined(&values, 16)))),
            (4, [prefix @ .., _, _, _, _]) if prefix.len() == 4 => {
                let (prefix, interface) = (joined(prefix, 16), joined(values.get(4..)?, 16));
                Some(self.gid(prefix, interface))
            }
            (2, [_, _, _, _, _, _]) => Some(octets(self.mac(joined(&values, 8)), 6)),
            // IPoIB: flags and queue pair, then a GID.
            (2, [head @ .., _, _, _, _, _, _, _, _]) if head.len() == 12 => {
                let guid = self.guid(joined(values.get(12..)?, 8));
                let head: Vec<String> = head.iter().map(|octet| format!("{octet:02x}")).collect();
                Some(format!("{}:{}", head.join(":"), octets(guid, 8)))
            }
            _ => None,
        }
    }

    /// Names that udev makes of a GUID or a MAC address: `rocex` or `enx` and sixteen or twelve hexadecimal digits.
    fn embedded(&mut self, word: &str) -> Option<String> {
        let (prefix, digits) = word.rsplit_once('x')?;
        let letters = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_lowercase());
        if !letters || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let value = u64::from_str_radix(digits, 16).ok()?;
        match digits.len() {
            16 => Some(format!("{prefix}x{:016x}", self.guid(value))),
            12 => Some(format!("{prefix}x{:012x}", self.mac(value))),
            _ => None,
        }
    }

    fn gid(&mut self, prefix: u64, interface: u64) -> String {
        if prefix == NOBODY && interface >> 32 == 0xffff {
            // 10.0.0.1 and so on, in place of an IPv4 address.
            let next = 0x0a00_0001 + count(&self.addresses);
            let address = *self.addresses.entry(interface & 0xffff_ffff).or_insert(next);
            return format!("{}:{}", quads(NOBODY), quads(0xffff << 32 | address));
        }
        let prefix = if prefix == LINK_LOCAL { prefix } else { self.guid(prefix) };
        format!("{}:{}", quads(prefix), quads(self.guid(interface)))
    }

    fn guid(&mut self, guid: u64) -> u64 {
        if guid == NOBODY {
            return guid;
        }
        let next = 0x0200_00ff_fe00_0001 + count(&self.guids);
        *self.guids.entry(guid).or_insert(next)
    }

    fn mac(&mut self, mac: u64) -> u64 {
        if mac == NOBODY || mac == 0xffff_ffff_ffff {
            return mac;
        }
        let next = 0x0200_0000_0001 + count(&self.macs);
        *self.macs.entry(mac).or_insert(next)
    }
}

fn count(map: &BTreeMap<u64, u64>) -> u64 {
    u64::try_from(map.len()).unwrap_or(u64::MAX)
}

/// The number that groups of so many bits make.
fn joined(groups: &[u64], bits: u32) -> u64 {
    groups.iter().fold(0, |value, group| value << bits | group)
}

/// `0200:00ff:fe00:0001`.
fn quads(value: u64) -> String {
    let quad = |shift: u32| format!("{:04x}", value >> shift & 0xffff);
    [48, 32, 16, 0].map(quad).join(":")
}

/// The last so many octets: `02:00:00:00:00:01`.
fn octets(value: u64, count: usize) -> String {
    let octets = value.to_be_bytes().map(|octet| format!("{octet:02x}"));
    octets.get(8 - count.min(8)..).unwrap_or_default().join(":")
}

/// A text with a host's name, whole or up to its first dot, replaced where it stands as a word.
fn without_host(text: &str, host: &str) -> String {
    let short = host.split('.').next().unwrap_or(host);
    let of_name = |c: char| c.is_alphanumeric() || c == '-';
    let mut out = text.to_owned();
    for name in [host, short] {
        let mut done = String::with_capacity(out.len());
        let mut rest = out.as_str();
        while let Some(at) = rest.find(name) {
            let (before, found) = rest.split_at(at);
            let after = found.get(name.len()..).unwrap_or_default();
            let whole = !before.ends_with(of_name) && !after.starts_with(of_name);
            done.push_str(before);
            done.push_str(if whole { "host-1" } else { name });
            rest = after;
        }
        done.push_str(rest);
        out = done;
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scrubbed(text: &str) -> String {
        Scrubber::default().text(text)
    }

    #[test]
    fn identifiers_and_other_words() {
        for (text, expected) in [
            ("b83f:d203:00aa:1000\n", "0200:00ff:fe00:0001\n"),
            ("0000:0000:0000:0000", "0000:0000:0000:0000"),
            ("fe80:0000:0000:0000:b83f:d203:00aa:1000", "fe80:0000:0000:0000:0200:00ff:fe00:0001"),
            ("0000:0000:0000:0000:0000:ffff:c0a8:0102", "0000:0000:0000:0000:0000:ffff:0a00:0001"),
            ("2001:0db8:0000:0001:b83f:d2ff:fe00:1000", "0200:00ff:fe00:0001:0200:00ff:fe00:0002"),
            ("b8:3f:d2:01:02:03", "02:00:00:00:00:01"),
            (
                "00:00:10:29:fe:80:00:00:00:00:00:00:b8:3f:d2:03:00:aa:10:00",
                "00:00:10:29:fe:80:00:00:00:00:00:00:02:00:00:ff:fe:00:00:01",
            ),
            ("rocexb83fd20300aa1000", "rocex020000fffe000001"),
            ("enxb83fd2010203", "enx020000000001"),
            ("MT_0000000223", "MT_0000000223"),
            ("20.39.3004", "20.39.3004"),
            ("0000:98:00.0", "0000:98:00.0"),
            ("pci0000:97", "pci0000:97"),
            ("200 Gb/sec (4X HDR)", "200 Gb/sec (4X HDR)"),
            ("0x15b3", "0x15b3"),
            ("0-15,32-47", "0-15,32-47"),
        ] {
            assert_eq!(scrubbed(text), expected, "{text}");
        }
    }

    #[test]
    fn equal_identifiers_get_equal_replacements() {
        let mut scrubber = Scrubber::default();
        let first = scrubber.text("b83f:d203:00aa:1000 b83f:d203:00aa:1001 ibxb83fd20300aa1000");
        assert_eq!(first, "0200:00ff:fe00:0001 0200:00ff:fe00:0002 ibx020000fffe000001");
        assert_eq!(scrubber.text("fe80:0000:0000:0000:b83f:d203:00aa:1001"), "fe80:0000:0000:0000:0200:00ff:fe00:0002");
        assert_eq!(scrubber.replaced(), 2);
    }

    #[test]
    fn a_host_name_is_replaced_in_free_text_alone() {
        let entries = Entries::from([
            (PathBuf::from("proc/sys/kernel/hostname"), RecordedEntry::File(b"node1.example.org\n".to_vec())),
            (PathBuf::from("sys/d/node_desc"), RecordedEntry::File(b"node1 mlx5_0, node10\n".to_vec())),
            (PathBuf::from("sys/devices/system/node/node1/cpulist"), RecordedEntry::File(b"0-3\n".to_vec())),
            (
                PathBuf::from("sys/d/rocexb83fd20300aa1000/x"),
                RecordedEntry::Link(PathBuf::from("../rocexb83fd20300aa1000")),
            ),
        ]);
        let out = Scrubber::default().scrub(&entries);
        let text = |path: &str| match out.get(Path::new(path)) {
            Some(RecordedEntry::File(content)) => String::from_utf8(content.clone()).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(text("proc/sys/kernel/hostname"), "host-1\n");
        assert_eq!(text("sys/d/node_desc"), "host-1 mlx5_0, node10\n");
        assert_eq!(text("sys/devices/system/node/node1/cpulist"), "0-3\n");
        let link = out.get(Path::new("sys/d/rocex020000fffe000001/x"));
        assert_eq!(link, Some(&RecordedEntry::Link(PathBuf::from("../rocex020000fffe000001"))));
    }

    proptest! {
        #[test]
        fn any_text_is_scrubbed_and_keeps_its_length(text in ".{0,200}") {
            prop_assert_eq!(scrubbed(&text).len(), text.len());
        }

        #[test]
        fn any_guid_goes(guid in 1u64..0x0200_0000_0000_0000) {
            let text = scrubbed(&format!("{} fe80:0000:0000:0000:{}", quads(guid), quads(guid)));
            prop_assert!(!text.contains(&quads(guid)));
        }
    }
}

//! Replaces identifiers, each one by the same everywhere: by its form where it has one (MAC, GUID, GID, IP address, UUID),
//! by its place where it is a name (host, domain, pod, namespace, program).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// Identifiers that stay: zero, broadcast and the default subnet.
const NOBODY: u64 = 0;
const LINK_LOCAL: u64 = 0xfe80_0000_0000_0000;

/// Shortest name that is replaced wherever it stands as a word: shorter ones are words of other things, too.
const SHORTEST_NAME: usize = 3;

/// What a name is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NameKind {
    /// The host.
    Host,
    /// A virtual machine.
    Domain,
    /// A network namespace.
    Namespace,
    /// A program that is not a known one.
    Program,
    /// A control group.
    Group,
}

impl NameKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Domain => "domain",
            Self::Namespace => "netns",
            Self::Program => "program",
            Self::Group => "group",
        }
    }
}

/// Identifiers seen so far, with their replacements.
#[derive(Debug, Default)]
pub struct Scrubber {
    /// Whether everything stays as it is.
    keeps: bool,
    names: BTreeMap<(NameKind, String), String>,
    guids: BTreeMap<u64, u64>,
    macs: BTreeMap<u64, u64>,
    addresses: BTreeMap<IpAddr, IpAddr>,
    uuids: BTreeMap<u128, u128>,
}

impl Scrubber {
    /// Replaces nothing.
    pub fn keeping() -> Self {
        Self { keeps: true, ..Self::default() }
    }

    /// Whether identifiers stay as they are.
    pub fn keeps(&self) -> bool {
        self.keeps
    }

    /// How many identifiers were replaced, by kind.
    pub fn replaced(&self) -> Vec<(&'static str, usize)> {
        let counts = [
            ("GUID", self.guids.len()),
            ("MAC address", self.macs.len()),
            ("IP address", self.addresses.len()),
            ("UUID", self.uuids.len()),
            ("name", self.names.len()),
        ];
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// The replacement of a name: `domain-1`. An empty one stays.
    pub fn name(&mut self, kind: NameKind, name: &str) -> String {
        if self.keeps || name.is_empty() {
            return name.to_owned();
        }
        let number = self.names.keys().filter(|(other, _)| *other == kind).count() + 1;
        self.names.entry((kind, name.to_owned())).or_insert_with(|| format!("{}-{number}", kind.as_str())).clone()
    }

    /// Learns the host's name, so that it is replaced in texts, too.
    pub fn learn_host(&mut self, name: &str) {
        let name = name.trim();
        if name.is_empty() || name == "(none)" {
            return;
        }
        let replacement = self.name(NameKind::Host, name);
        if let Some((short, _)) = name.split_once('.')
            && !self.keeps
        {
            self.names.insert((NameKind::Host, short.to_owned()), replacement);
        }
    }

    /// The replacement of the host's name, as `/proc` has it.
    pub fn name_of_host(&mut self, name: &str) -> String {
        if name == "(none)" { name.to_owned() } else { self.name(NameKind::Host, name) }
    }

    /// A path with the identifiers in each of its names replaced.
    pub fn path(&mut self, path: &Path) -> PathBuf {
        path.components()
            .map(|part| match part.as_os_str().to_str() {
                Some(name) => PathBuf::from(self.identifiers(name)),
                None => PathBuf::from(part.as_os_str()),
            })
            .collect()
    }

    /// A text with identifiers and known names replaced.
    pub fn text(&mut self, text: &str) -> String {
        if self.keeps {
            return text.to_owned();
        }
        let text = self.without_names(text);
        self.identifiers(&text)
    }

    /// A text with every known name replaced where it stands as a word, longest first.
    pub fn without_names(&self, text: &str) -> String {
        let mut names: Vec<(&str, &str)> = self
            .names
            .iter()
            .filter(|((_, name), _)| name.len() >= SHORTEST_NAME && name.bytes().any(|byte| byte.is_ascii_alphabetic()))
            .map(|((_, name), replacement)| (name.as_str(), replacement.as_str()))
            .collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let mut text = text.to_owned();
        for (name, replacement) in names {
            if text.contains(name) {
                text = with_word_replaced(&text, name, replacement);
            }
        }
        text
    }

    /// A text with the identifiers in its words replaced. A word is letters, digits, colons, dots, dashes and underscores.
    fn identifiers(&mut self, text: &str) -> String {
        if self.keeps {
            return text.to_owned();
        }
        let of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '.' | '-' | '_');
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let (word, after) = rest.split_at(rest.find(|c| !of_word(c)).unwrap_or(rest.len()));
            out.push_str(&self.word(word));
            let (between, after) = after.split_at(after.find(of_word).unwrap_or(after.len()));
            out.push_str(between);
            rest = after;
        }
        out
    }

    /// A word, or its replacement. What stands around an identifier in it (`[fe80::1]:5`, `pod<uuid>.slice`, `rocex<guid>`)
    /// stays.
    fn word(&mut self, word: &str) -> String {
        if let Some(whole) = self.whole(word) {
            return whole;
        }
        if let Some((at, length)) = uuid_in(word) {
            let (before, rest) = word.split_at(at);
            let (uuid, after) = rest.split_at(length);
            return format!("{}{}{}", self.word(before), self.uuid_text(uuid), self.word(after));
        }
        // Punctuation at the ends belongs to the sentence.
        let trimmed = word.trim_matches(|c| matches!(c, ':' | '.' | '-' | '_'));
        if trimmed.len() < word.len() && !trimmed.is_empty() {
            let at = word.find(trimmed).unwrap_or(0);
            let (before, rest) = word.split_at(at);
            let after = rest.get(trimmed.len()..).unwrap_or_default();
            return format!("{before}{}{after}", self.word(trimmed));
        }
        if let Some((at, length)) = ipv4_in(word) {
            let (before, rest) = word.split_at(at);
            let (address, after) = rest.split_at(length);
            let address =
                address.parse().map_or_else(|_| address.to_owned(), |v4| self.address(IpAddr::V4(v4)).to_string());
            return format!("{}{address}{}", self.word(before), self.word(after));
        }
        for separator in ['_', '-', '.'] {
            if let Some((first, rest)) = word.split_once(separator) {
                return format!("{}{separator}{}", self.word(first), self.word(rest));
            }
        }
        if let Some((before, replacement, after)) = self.groups_in(word) {
            return format!("{}{replacement}{}", self.word(&before), self.word(&after));
        }
        // `eth0:b8:3f:…`: a name and an address.
        if let Some((first, rest)) = word.split_once(':')
            && !first.bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            return format!("{}:{}", self.word(first), self.word(rest));
        }
        word.to_owned()
    }

    /// The replacement of a word that is an identifier as a whole.
    fn whole(&mut self, word: &str) -> Option<String> {
        if word.contains(':') {
            return self.groups(word, ':').or_else(|| self.ipv6(word));
        }
        if word.matches('-').count() == 5 {
            return self.groups(word, '-');
        }
        if let Ok(address) = word.parse::<Ipv4Addr>() {
            return Some(self.address(address.into()).to_string());
        }
        self.embedded(word)
    }

    /// Groups of hexadecimal digits of one length.
    fn groups(&mut self, word: &str, separator: char) -> Option<String> {
        let groups: Vec<&str> = word.split(separator).collect();
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
            (2, [_, _, _, _, _, _]) => Some(octets(self.mac(joined(&values, 8)), 6, separator)),
            (2, [_, _, _, _, _, _, _, _]) => Some(octets(self.guid(joined(&values, 8)), 8, separator)),
            // IPoIB: flags and queue pair, then a GID.
            (2, [head @ .., _, _, _, _, _, _, _, _]) if head.len() == 12 => {
                let guid = self.guid(joined(values.get(12..)?, 8));
                let prefix = joined(head.get(4..)?, 8);
                let prefix = if prefix == LINK_LOCAL || is_multicast(prefix) { prefix } else { self.guid(prefix) };
                let queue: Vec<String> = head.iter().take(4).map(|octet| format!("{octet:02x}")).collect();
                let (prefix, guid) = (octets(prefix, 8, separator), octets(guid, 8, separator));
                Some(format!("{}:{prefix}:{guid}", queue.join(":")))
            }
            _ => None,
        }
    }

    /// Groups that are an identifier, among others in a word: what stands before them, their replacement, what follows.
    fn groups_in(&mut self, word: &str) -> Option<(String, String, String)> {
        let parts: Vec<&str> = word.split(':').collect();
        for size in [20, 8, 6, 4] {
            for (at, window) in parts.windows(size).enumerate() {
                if parts.len() > size
                    && let Some(replacement) = self.groups(&window.join(":"), ':')
                {
                    let before: String = parts.iter().take(at).flat_map(|part| [*part, ":"]).collect();
                    let after: String = parts.iter().skip(at + size).flat_map(|part| [":", *part]).collect();
                    return Some((before, replacement, after));
                }
            }
        }
        None
    }

    /// An IPv6 address in any other form.
    fn ipv6(&mut self, word: &str) -> Option<String> {
        let address: Ipv6Addr = word.parse().ok()?;
        let (prefix, interface) = halves(address);
        let text = self.gid(prefix, interface);
        Some(text.parse::<Ipv6Addr>().map_or(text, |address| address.to_string()))
    }

    /// Digits without separators: `0x0c42a10300f71b2e`, and names that udev makes of a GUID or a MAC address, `rocex` or
    /// `enx` and sixteen or twelve of them.
    fn embedded(&mut self, word: &str) -> Option<String> {
        let (prefix, digits) = word.rsplit_once('x').map_or(("", word), |(prefix, digits)| (prefix, digits));
        let letters = prefix.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'0');
        if !letters || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let is_bare = digits.len() == word.len();
        // A count has no letters, as a rule.
        if is_bare && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let value = u64::from_str_radix(digits, 16).ok()?;
        let x = if is_bare { "" } else { "x" };
        match digits.len() {
            16 => Some(format!("{prefix}{x}{:016x}", self.guid(value))),
            12 => Some(format!("{prefix}{x}{:012x}", self.mac(value))),
            _ => None,
        }
    }

    /// The kernel's form of the replacement of a GID.
    pub fn gid(&mut self, prefix: u64, interface: u64) -> String {
        if prefix == NOBODY && interface >> 32 == 0xffff {
            #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
            let address = Ipv4Addr::from_bits(interface as u32);
            let IpAddr::V4(address) = self.address(address.into()) else { return String::new() };
            return format!("{}:{}", quads(NOBODY), quads(0xffff << 32 | u64::from(address.to_bits())));
        }
        // `::` and `::1`, and groups that belong to nobody.
        if (prefix == NOBODY && interface < 2) || is_multicast(prefix) {
            return format!("{}:{}", quads(prefix), quads(interface));
        }
        let prefix = if prefix == LINK_LOCAL { prefix } else { self.guid(prefix) };
        format!("{}:{}", quads(prefix), quads(self.guid(interface)))
    }

    /// The replacement of an IP address; loopback, broadcast and the unspecified one stay.
    pub fn address(&mut self, address: IpAddr) -> IpAddr {
        if self.keeps || address.is_loopback() || address.is_unspecified() || address.is_multicast() {
            return address;
        }
        match address {
            // A netmask or broadcast address.
            IpAddr::V4(v4) if v4.octets().starts_with(&[255]) => address,
            IpAddr::V4(_) => {
                // 198.18.0.1 and so on: addresses for benchmarks, which no host has.
                let next = 0xc612_0001_u32.saturating_add(u32::try_from(self.addresses.len()).unwrap_or(u32::MAX));
                *self.addresses.entry(address).or_insert_with(|| Ipv4Addr::from_bits(next).into())
            }
            IpAddr::V6(v6) => {
                let (prefix, interface) = halves(v6);
                self.gid(prefix, interface).parse().unwrap_or(address)
            }
        }
    }

    /// The replacement of a GUID; zero stays. One that is made of a MAC address is made of its replacement.
    pub fn guid(&mut self, guid: u64) -> u64 {
        if self.keeps || guid == NOBODY || guid == u64::MAX {
            return guid;
        }
        if let Some(mac) = mac_in(guid) {
            let replacement = guid_of(self.mac(mac));
            return *self.guids.entry(guid).or_insert(replacement);
        }
        let next = 0x0200_00ff_fe00_0001 + count(&self.guids);
        *self.guids.entry(guid).or_insert(next)
    }

    /// The replacement of a MAC address; zero and broadcast stay.
    pub fn mac(&mut self, mac: u64) -> u64 {
        if self.keeps || mac == NOBODY || mac == 0xffff_ffff_ffff {
            return mac;
        }
        let next = 0x0200_0000_0001 + count(&self.macs);
        *self.macs.entry(mac).or_insert(next)
    }

    /// The replacement of a UUID in its own form; for any other text, the text.
    pub fn uuid_text(&mut self, text: &str) -> String {
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let (Ok(value), false) = (u128::from_str_radix(&digits, 16), self.keeps) else { return text.to_owned() };
        if value == 0 || value == u128::MAX {
            return text.to_owned();
        }
        let next = 0x4000_8000_0000_0000_0001 + u128::from(u64::try_from(self.uuids.len()).unwrap_or(u64::MAX));
        let value = *self.uuids.entry(value).or_insert(next);
        let separator = if text.contains('_') { '_' } else { '-' };
        let digits = format!("{value:032x}");
        let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
        [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join(&separator.to_string())
    }
}

/// The MAC address in a GUID (EUI-64: `ff:fe` in the middle, one bit of the first byte inverted).
fn mac_in(guid: u64) -> Option<u64> {
    let is_made_of_one = guid >> 24 & 0xffff == 0xfffe;
    is_made_of_one.then_some((guid >> 40 << 24 | guid & 0xff_ffff) ^ 0x0200_0000_0000)
}

/// The GUID that is made of a MAC address.
const fn guid_of(mac: u64) -> u64 {
    let mac = mac ^ 0x0200_0000_0000;
    mac >> 24 << 40 | 0xfffe << 24 | mac & 0xff_ffff
}

const fn is_multicast(prefix: u64) -> bool {
    prefix >> 56 == 0xff
}

fn halves(address: Ipv6Addr) -> (u64, u64) {
    let bits = address.to_bits();
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    let halves = ((bits >> 64) as u64, bits as u64);
    halves
}

fn count(map: &BTreeMap<u64, u64>) -> u64 {
    u64::try_from(map.len()).unwrap_or(u64::MAX)
}

/// Where a UUID stands in a word, and how long it is: 8-4-4-4-12 digits, between dashes or underscores.
fn uuid_in(word: &str) -> Option<(usize, usize)> {
    const LENGTH: usize = 36;
    let is_uuid = |text: &[u8]| {
        let separator = text.get(8).copied().filter(|byte| matches!(byte, b'-' | b'_'));
        separator.is_some_and(|separator| {
            text.iter().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => *byte == separator,
                _ => byte.is_ascii_hexdigit(),
            })
        })
    };
    word.as_bytes().windows(LENGTH).position(is_uuid).map(|at| (at, LENGTH))
}

/// Where an IPv4 address stands in a word, and how long it is.
fn ipv4_in(word: &str) -> Option<(usize, usize)> {
    let of_address = |c: char| c.is_ascii_digit() || c == '.';
    let mut at = 0;
    while let Some(start) = word.get(at..)?.find(|c: char| c.is_ascii_digit()).map(|found| found + at) {
        let rest = word.get(start..)?;
        let end = rest.find(|c| !of_address(c)).unwrap_or(rest.len());
        let run = rest.get(..end)?;
        // Of more than four numbers, the first four.
        let length = run.match_indices('.').nth(3).map_or(run.len(), |(dot, _)| dot);
        if run.get(..length)?.parse::<Ipv4Addr>().is_ok() {
            return Some((start, length));
        }
        at = start + end.max(1);
    }
    None
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
fn octets(value: u64, count: usize, separator: char) -> String {
    let octets = value.to_be_bytes().map(|octet| format!("{octet:02x}"));
    octets.get(8 - count.min(8)..).unwrap_or_default().join(&separator.to_string())
}

/// A text with a name replaced where it stands as a word.
fn with_word_replaced(text: &str, name: &str, replacement: &str) -> String {
    let of_name = |c: char| c.is_alphanumeric();
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let (before, found) = rest.split_at(at);
        let after = found.get(name.len()..).unwrap_or_default();
        let whole = !before.ends_with(of_name) && !after.starts_with(of_name);
        done.push_str(before);
        done.push_str(if whole { replacement } else { name });
        rest = after;
    }
    done.push_str(rest);
    done
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
            ("0000:0000:0000:0000:0000:ffff:c0a8:0102", "0000:0000:0000:0000:0000:ffff:c612:0001"),
            ("2001:0db8:0000:0001:b83f:d2ff:fe00:1000", "0200:00ff:fe00:0001:0000:00ff:fe00:0001"),
            ("b8:3f:d2:01:02:03", "02:00:00:00:00:01"),
            ("b8-3f-d2-01-02-03", "02-00-00-00-00-01"),
            (
                "00:00:10:29:fe:80:00:00:00:00:00:00:b8:3f:d2:03:00:aa:10:00",
                "00:00:10:29:fe:80:00:00:00:00:00:00:02:00:00:ff:fe:00:00:01",
            ),
            ("rocexb83fd20300aa1000", "rocex020000fffe000001"),
            ("enxb83fd2010203", "enx020000000001"),
            ("b8:3f:d2:01:02:03:x eth0:b8:3f:d2:01:02:03", "02:00:00:00:00:01:x eth0:02:00:00:00:00:01"),
            ("0xb83fd20300aa1000", "0x020000fffe000001"),
            ("from 192.0.2.77:4420, 2001:db8::77.", "from 198.18.0.1:4420, 200:ff:fe00:1:200:ff:fe00:2."),
            ("[fe80::b8:1]:10015", "[fe80::200:ff:fe00:1]:10015"),
            ("gw-192.0.2.77.local 192.0.2.77_a", "gw-198.18.0.1.local 198.18.0.1_a"),
            ("127.0.0.1 ::1 0.0.0.0 255.255.255.0", "127.0.0.1 ::1 0.0.0.0 255.255.255.0"),
            (
                "kubepods-burstable-pod3b1f0a52_1111_4222_8333_944444444444.slice",
                "kubepods-burstable-pod00000000_0000_4000_8000_000000000001.slice",
            ),
            ("4c4c4544-0042-4a10-8058-b6c04f564e32", "00000000-0000-4000-8000-000000000001"),
            ("MT_0000000223", "MT_0000000223"),
            ("20.39.3004", "20.39.3004"),
            ("0000:98:00.0", "0000:98:00.0"),
            ("mlx5_core 0000:98:00.0: AER: x", "mlx5_core 0000:98:00.0: AER: x"),
            ("pci0000:97", "pci0000:97"),
            ("200 Gb/sec (4X HDR)", "200 Gb/sec (4X HDR)"),
            ("0x15b3 123456789012 1234567890123456", "0x15b3 123456789012 1234567890123456"),
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
        assert_eq!(scrubber.replaced(), [("GUID", 2)]);
        assert_eq!(scrubber.name(NameKind::Domain, "train7"), "domain-1");
        assert_eq!(scrubber.name(NameKind::Domain, "train8"), "domain-2");
        assert_eq!(scrubber.name(NameKind::Program, "train7"), "program-1");
        assert_eq!(scrubber.name(NameKind::Domain, "train7"), "domain-1");
    }

    #[test]
    fn a_guid_that_is_made_of_a_mac_address_stays_so() {
        let mut scrubber = Scrubber::default();
        assert_eq!(scrubber.text("0c42:a1ff:fe00:1234 0e:42:a1:00:12:34"), "0000:00ff:fe00:0001 02:00:00:00:00:01");
        assert_eq!(scrubber.text("0e:42:a1:00:12:35 0c42:a1ff:fe00:1235"), "02:00:00:00:00:02 0000:00ff:fe00:0002");
    }

    #[test]
    fn known_names_are_replaced_as_words() {
        let mut scrubber = Scrubber::default();
        scrubber.learn_host("node1.example.org\n");
        let text = "node1 mlx5_0, node10, node1.example.org: up";
        assert_eq!(scrubber.text(text), "host-1 mlx5_0, node10, host-1: up");
        // In a path a name may be a word of the kernel's.
        assert_eq!(
            scrubber.path(Path::new("sys/devices/system/node/node1")),
            Path::new("sys/devices/system/node/node1")
        );
        assert_eq!(Scrubber::keeping().text(text), text);
    }

    proptest! {
        #[test]
        fn any_text_is_scrubbed_without_a_panic(text in ".{0,200}", like in "[0-9a-fx:._ -]{0,80}") {
            let _ = (scrubbed(&text), scrubbed(&like));
        }

        #[test]
        fn any_identifier_goes(guid in 1u64..0x0200_0000_0000_0000, v4 in 0x0b00_0000u32..0x7f00_0000, v6 in any::<u128>()) {
            let v6 = Ipv6Addr::from_bits(v6 >> 8 | 0x20 << 120);
            let v4 = Ipv4Addr::from_bits(v4);
            let text = format!("{} fe80:0000:0000:0000:{} [{v6}]:80 ({v4}) {v4}:443", quads(guid), quads(guid));
            let text = scrubbed(&text);
            prop_assert!(!text.contains(&quads(guid)) && !text.contains(&v6.to_string()), "{}", text);
            prop_assert!(!text.split(|c: char| !c.is_ascii_digit() && c != '.').any(|word| word == v4.to_string()), "{}", text);
        }
    }
}

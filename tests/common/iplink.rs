//! Replies of route netlink, byte for byte as the kernel makes them, from the text that `ip link` prints.

/// One interface of a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// Index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Hardware type: 1 Ethernet, 32 InfiniBand.
    pub hardware: u16,
    /// How many VFs the kernel announces.
    pub announced: u32,
    /// Those it lists.
    pub vfs: Vec<Vf>,
}

/// One VF of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vf {
    /// Number.
    pub number: u32,
    /// MAC address, or what stands for it.
    pub address: Vec<u8>,
    /// Broadcast address, with kernels that say it.
    pub broadcast: Option<Vec<u8>>,
    /// VLAN identifier, priority and protocol.
    pub vlan: (u32, u32, u16),
    /// Least and most rate, Mb/s.
    pub rates: (u32, u32),
    /// Spoof checking, link state, query of RSS, trust; what the driver does not say is absent.
    pub spoof_check: Option<u32>,
    pub link: Option<u32>,
    pub query_rss: Option<u32>,
    pub trust: Option<u32>,
    /// Node and port GUID.
    pub guids: Option<(u64, u64)>,
    /// Packets, bytes, broadcast, multicast, drops in the order of the kernel's types 0 to 5, 7, 8.
    pub statistics: Option<[u64; 8]>,
}

/// Reads a text; lines that say nothing of VFs are skipped.
pub fn parse(text: &str) -> Vec<Interface> {
    let mut interfaces: Vec<Interface> = Vec::new();
    for line in text.lines() {
        let words = line.trim();
        if let Some((index, rest)) = words.split_once(": ").filter(|(index, _)| index.parse::<u32>().is_ok()) {
            let name = rest.split([':', '@']).next().unwrap_or_default().to_owned();
            interfaces.push(Interface { index: index.parse().unwrap(), name, hardware: 1, ..Interface::default() });
        } else if let Some(interface) = interfaces.last_mut() {
            if words.starts_with("link/infiniband") {
                interface.hardware = 32;
            } else if let Some(vf) = words.strip_prefix("vf ") {
                interface.vfs.push(vf_of(vf));
                interface.announced = u32::try_from(interface.vfs.len()).unwrap();
            }
        }
    }
    interfaces
}

fn vf_of(line: &str) -> Vf {
    let (number, rest) = line.trim().split_once(char::is_whitespace).expect("a number and more");
    let mut vf = Vf { number: number.parse().unwrap(), ..Vf::default() };
    for field in rest.split(',').map(str::trim) {
        let words: Vec<&str> = field.split_whitespace().collect();
        match words.as_slice() {
            ["MAC", mac] => vf.address = bytes(mac),
            ["link/ether" | "link/infiniband", address, rest @ ..] => {
                vf.address = bytes(address);
                vf.broadcast = rest.get(1).map(|broadcast| bytes(broadcast));
            }
            ["vlan", "protocol", "802.1ad"] => vf.vlan.2 = 0x88a8,
            ["vlan", "protocol", _] => vf.vlan.2 = 0x8100,
            ["vlan", id] => (vf.vlan.0, vf.vlan.2) = (id.parse().unwrap(), 0x8100),
            ["qos", qos] => vf.vlan.1 = qos.parse().unwrap(),
            ["max_tx_rate", rate] => vf.rates.1 = megabits(rate),
            ["min_tx_rate", rate] => vf.rates.0 = megabits(rate),
            ["spoof", "checking", word] => vf.spoof_check = Some(u32::from(*word == "on")),
            ["trust", word] => vf.trust = Some(u32::from(*word == "on")),
            ["query_rss", word] => vf.query_rss = Some(u32::from(*word == "on")),
            ["link-state", word] => {
                let code = ["auto", "enable", "disable"].iter().position(|known| known == word);
                vf.link = code.and_then(|code| u32::try_from(code).ok());
            }
            ["NODE_GUID", text] => vf.guids.get_or_insert((0, 0)).0 = guid(text),
            ["PORT_GUID", text] => vf.guids.get_or_insert((0, 0)).1 = guid(text),
            _ => {}
        }
    }
    vf
}

fn bytes(text: &str) -> Vec<u8> {
    text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn guid(text: &str) -> u64 {
    bytes(text).into_iter().fold(0, |value, byte| value << 8 | u64::from(byte))
}

fn megabits(text: &str) -> u32 {
    text.trim_end_matches("Mbps").parse().unwrap()
}

/// What a request asks: the interface's name, and whether for statistics.
///
/// Other requests than RTM_GETLINK ask about no interface.
pub fn asked(request: &[u8]) -> (String, bool) {
    if request[4..6] != 18u16.to_ne_bytes() {
        return (String::new(), false);
    }
    let mut rest = &request[32..];
    let (mut name, mut mask) = (String::new(), 0);
    while rest.len() >= 4 {
        let length = usize::from(u16::from_ne_bytes([rest[0], rest[1]]));
        let value = &rest[4..length];
        match u16::from_ne_bytes([rest[2], rest[3]]) {
            3 => name = String::from_utf8(value.split(|byte| *byte == 0).next().unwrap().to_vec()).unwrap(),
            29 => mask = u32::from_ne_bytes(value.try_into().unwrap()),
            _ => {}
        }
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    (name, mask & 8 == 0)
}

impl Interface {
    /// The reply to a request for this interface, without the message's header. As in the kernel, nests have no flag
    /// and a length that does not fit into 16 bits wraps.
    pub fn reply(&self, statistics: bool) -> Vec<u8> {
        let mut out = vec![0, 0];
        out.extend(self.hardware.to_ne_bytes());
        out.extend(self.index.to_ne_bytes());
        out.extend([0x43, 0x10, 1, 0, 0, 0, 0, 0]);
        let mut name = self.name.clone().into_bytes();
        name.push(0);
        put(&mut out, 3, &name);
        put(&mut out, 13, &1000u32.to_ne_bytes());
        put(&mut out, 1, &[2, 0, 0, 0, 0, 1]);
        put(&mut out, 21, &self.announced.to_ne_bytes());
        if !self.vfs.is_empty() {
            let list: Vec<u8> = self.vfs.iter().flat_map(|vf| vf.info(statistics)).collect();
            put(&mut out, 22, &list);
        }
        // IFLA_PORT_SELF, IFLA_AF_SPEC
        put(&mut out, 25, &[]);
        put(&mut out, 26, &[8, 0, 2, 0, 4, 0, 1, 0]);
        out
    }
}

impl Vf {
    fn info(&self, statistics: bool) -> Vec<u8> {
        let number = self.number;
        let words = |values: &[u32]| -> Vec<u8> {
            std::iter::once(&number).chain(values).flat_map(|value| value.to_ne_bytes()).collect()
        };
        let padded = |address: &[u8]| {
            let mut all = address.to_vec();
            all.resize(32, 0);
            all
        };
        let mut out = Vec::new();
        let mut mac = words(&[]);
        mac.extend(padded(&self.address));
        put(&mut out, 1, &mac);
        if let Some(broadcast) = &self.broadcast {
            put(&mut out, 13, &padded(broadcast));
        }
        put(&mut out, 2, &words(&[self.vlan.0, self.vlan.1]));
        put(&mut out, 6, &words(&[self.rates.0, self.rates.1]));
        put(&mut out, 3, &words(&[self.rates.1]));
        for (kind, value) in [(4, self.spoof_check), (5, self.link), (7, self.query_rss), (9, self.trust)] {
            if let Some(value) = value {
                put(&mut out, kind, &words(&[value]));
            }
        }
        if let Some((node, port)) = self.guids {
            for (kind, guid) in [(10, node), (11, port)] {
                let mut value = words(&[0]);
                value.extend(guid.to_ne_bytes());
                put(&mut out, kind, &value);
            }
        }
        if self.broadcast.is_some() {
            let mut vlan = words(&[self.vlan.0, self.vlan.1]);
            vlan.extend(self.vlan.2.to_be_bytes());
            vlan.extend([0, 0]);
            let mut list = Vec::new();
            put(&mut list, 1, &vlan);
            put(&mut out, 12, &list);
        }
        if let Some(values) = self.statistics.filter(|_| statistics) {
            let mut nest = Vec::new();
            for (kind, value) in [0, 1, 2, 3, 4, 5, 7, 8].into_iter().zip(values) {
                put(&mut nest, kind, &value.to_ne_bytes());
            }
            put(&mut out, 8, &nest);
        }
        let mut info = Vec::new();
        put(&mut info, 1, &out);
        info
    }
}

/// One attribute, padded to four bytes.
fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    #[allow(clippy::cast_possible_truncation, reason = "as the kernel does")]
    let length = (value.len() + 4) as u16;
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

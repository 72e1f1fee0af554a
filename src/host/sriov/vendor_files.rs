//! `<pf>/sriov/<n>/`: files of some vendors' out-of-tree drivers.
//!
//! Several of their Ethernet files answer with a usage text and no value; `config` and `stats` have the values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::host::collector::ReadContext;
use crate::host::file::{Attribute, AttributeFile};
use crate::host::text;
use crate::model::ids::Guid;
use crate::model::reading::{ReadError, Reading};
use crate::model::sriov::{Mac, VfConfig, VfLink, VfTraffic, Vlan};

/// The files of one VF.
pub(super) struct VendorFiles {
    directory: PathBuf,
    listed: bool,
    node: Attribute,
    port: Attribute,
    policy: Attribute,
    config: Attribute,
    stats: Attribute,
}

impl VendorFiles {
    pub(super) fn new(pf: &Path, number: u32) -> Self {
        let directory = pf.join("sriov").join(number.to_string());
        let file = |name| Attribute::new(&directory, name);
        Self {
            node: file("node"),
            port: file("port"),
            policy: file("policy"),
            config: file("config"),
            stats: file("stats"),
            listed: false,
            directory,
        }
    }

    /// Configuration and traffic, as far as the files have them. Each read is a firmware command, so only what no other
    /// source has is read.
    pub(super) fn read(
        &mut self,
        cx: &mut ReadContext<'_>,
        known: Option<VfConfig>,
        traffic: Option<VfTraffic>,
    ) -> (Option<VfConfig>, Option<VfTraffic>) {
        if !self.listed {
            let listed = cx.host.io.list(&self.directory);
            self.listed = listed.is_ok();
            let names = listed.unwrap_or_default();
            self.all().for_each(|file| file.relist(&names));
        }
        let config = if known.is_some() { None } else { self.config(cx) };
        let traffic = if traffic.is_some() { None } else { self.stats.read(cx, stats).value() };
        (config, traffic)
    }

    fn config(&mut self, cx: &mut ReadContext<'_>) -> Option<VfConfig> {
        let ethernet = self.config.read(cx, config).value();
        if ethernet.is_some() {
            return ethernet;
        }
        let config = VfConfig {
            node_guid: self.node.read(cx, guid).value(),
            port_guid: self.port.read(cx, guid).value(),
            link: self.policy.read(cx, policy).value(),
            ..VfConfig::default()
        };
        (config != VfConfig::default()).then_some(config)
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Attribute> {
        [&mut self.node, &mut self.port, &mut self.policy, &mut self.config, &mut self.stats].into_iter()
    }

    pub(super) fn quarantined(&mut self) -> usize {
        self.all().filter(|file| file.is_quarantined()).count()
    }
}

/// Whether a driver answers with how to write a file instead of its value.
fn is_usage(bytes: &[u8]) -> bool {
    bytes.starts_with(b"usage")
}

/// `00:11:22:03:00:aa:00:01`, and a colon more with some versions.
fn guid(bytes: &[u8]) -> Reading<Guid> {
    if is_usage(bytes) {
        return Reading::Absent;
    }
    text::parsed(bytes, |text| {
        let mut value = 0u64;
        let groups: Vec<&str> = text.trim_end_matches(':').split(':').collect();
        for group in &groups {
            value = value << 8 | u64::from(u8::from_str_radix(group, 16).ok().filter(|_| group.len() == 2)?);
        }
        (groups.len() == 8).then_some(Guid(value))
    })
}

fn policy(bytes: &[u8]) -> Reading<VfLink> {
    match bytes {
        b"Follow" => Reading::Value(VfLink::Auto),
        b"Up" => Reading::Value(VfLink::Enable),
        b"Down" => Reading::Value(VfLink::Disable),
        _ if is_usage(bytes) => Reading::Absent,
        _ => Reading::Unreadable(ReadError::Malformed),
    }
}

/// `NAME : VALUE` by lines.
fn pairs(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.split_once(':').map(|(name, value)| (name.trim(), value.trim()))).collect()
}

fn config(bytes: &[u8]) -> Reading<VfConfig> {
    if is_usage(bytes) {
        return Reading::Absent;
    }
    text::parsed(bytes, |text| {
        let pairs = pairs(text);
        let get = |name: &str| pairs.get(name).copied();
        let switch = |name: &str| match get(name) {
            Some("ON") => Some(true),
            Some("OFF") => Some(false),
            _ => None,
        };
        let number = |name: &str| text::parse_decimal(get(name)?.as_bytes());
        let small = |name: &str| u32::try_from(number(name)?).ok();
        let protocol = match get("VLAN Proto") {
            Some("802.1Q" | "802.1q") => Some(0x8100),
            Some("802.1AD" | "802.1ad") => Some(0x88a8),
            _ => None,
        };
        let id = number("VLAN").and_then(|id| u16::try_from(id).ok());
        let qos = number("QoS").and_then(|qos| u8::try_from(qos).ok()).unwrap_or(0);
        get("VF")?;
        Some(VfConfig {
            mac: get("MAC").and_then(Mac::parse),
            vlan: id.map(|id| Vlan { id, qos, protocol: protocol.filter(|_| id != 0) }),
            min_rate: small("MinTxRate"),
            max_rate: small("MaxTxRate"),
            trust: switch("Trust"),
            spoof_check: switch("SpoofCheck"),
            link: get("LinkState").and_then(|word| policy(word.as_bytes()).value()),
            node_guid: None,
            port_guid: None,
        })
    })
}

fn stats(bytes: &[u8]) -> Reading<VfTraffic> {
    if is_usage(bytes) {
        return Reading::Absent;
    }
    text::parsed(bytes, |text| {
        let pairs = pairs(text);
        let number = |name: &str| text::parse_decimal(pairs.get(name)?.as_bytes());
        let traffic = VfTraffic {
            received_packets: number("rx_packets"),
            transmitted_packets: number("tx_packets"),
            received_bytes: number("rx_bytes"),
            transmitted_bytes: number("tx_bytes"),
            received_dropped: number("rx_dropped"),
            transmitted_dropped: number("tx_dropped"),
        };
        (traffic != VfTraffic::default()).then_some(traffic)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_and_usage_texts() {
        let text = b"VF         : 0\nMAC        : 02:00:00:00:00:07\nVLAN       : 42\nQoS        : 3\n\
                     VLAN Proto : 802.1Q\nSpoofCheck : ON\nTrust      : OFF\nLinkState  : Follow\nMinTxRate  : 0\n\
                     MaxTxRate  : 1000\nVGT+       : OFF\nRateGroup  : 0";
        let Reading::Value(found) = config(text) else { panic!() };
        assert_eq!(found.mac, Mac::parse("02:00:00:00:00:07"));
        assert_eq!(found.vlan, Some(Vlan { id: 42, qos: 3, protocol: Some(0x8100) }));
        assert_eq!((found.trust, found.spoof_check, found.link), (Some(false), Some(true), Some(VfLink::Auto)));
        assert_eq!((found.min_rate, found.max_rate), (Some(0), Some(1000)));
        assert_eq!(guid(b"00:11:22:03:00:aa:00:01"), Reading::Value(Guid(0x0011_2203_00aa_0001)));
        assert_eq!(guid(b"00:11:22:03:00:aa:00:01:"), Reading::Value(Guid(0x0011_2203_00aa_0001)));
        assert_eq!(policy(b"Invalid policy"), Reading::Unreadable(ReadError::Malformed));
        let usage = b"usage: write <Up|Down|Follow> to set VF Mac Address";
        assert_eq!((guid(usage), policy(usage), config(usage)), (Reading::Absent, Reading::Absent, Reading::Absent));
        let Reading::Value(found) = stats(b"tx_packets    : 5011\ntx_bytes      : 1\nrx_dropped    : 2") else {
            panic!()
        };
        assert_eq!(
            (found.transmitted_packets, found.received_dropped, found.received_bytes),
            (Some(5011), Some(2), None)
        );
    }

    proptest! {
        #[test]
        fn any_input_parses_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = (guid(&bytes), policy(&bytes), config(&bytes), stats(&bytes));
        }
    }
}

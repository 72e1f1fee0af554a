//! Offloads over generic netlink (`ETHTOOL_MSG_FEATURES_GET`, `uapi/linux/ethtool_netlink.h`). Bytes in, facts out.

use std::collections::BTreeSet;

use crate::host::ethtool::access::Feature;
use crate::host::ethtool::standard::header;
use crate::host::netlink::message::{Attributes, text};
use crate::model::net::Offload;

/// The command.
pub(super) const GET: u8 = 11;

const HEADER: u16 = 1;
const CHANGEABLE: u16 = 2;
const ACTIVE: u16 = 4;
const NEVER_CHANGED: u16 = 5;

const BITSET_NOMASK: u16 = 1;
const BITSET_BITS: u16 = 3;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// The kernel's names for those that matter for RDMA ports and VFs.
const NAMES: [&str; 16] = [
    "rx-checksum",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv4",
    "tx-checksum-ipv6",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
    "tx-generic-segmentation",
    "rx-gro",
    "rx-gro-hw",
    "rx-lro",
    "rx-ntuple-filter",
    "rx-hashing",
    "rx-vlan-hw-parse",
    "tx-vlan-hw-insert",
    "rx-vlan-filter",
    "hw-tc-offload",
];

/// Whether collectors know an offload of this name.
pub fn is_known_offload(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Attributes of a request about an interface. It asks for names, because bit numbers differ between kernels.
pub(super) fn request(netdev: &str) -> Vec<u8> {
    header(HEADER, netdev, 0)
}

/// Reads the attributes of a reply.
pub(super) fn offloads(reply: Attributes<'_>) -> Vec<Offload> {
    let (mut changeable, mut active, mut never) = (BTreeSet::new(), None, BTreeSet::new());
    for (kind, value) in reply {
        match kind {
            CHANGEABLE => changeable = set(value),
            ACTIVE => active = Some(set(value)),
            NEVER_CHANGED => never = set(value),
            _ => {}
        }
    }
    let Some(active) = active else { return Vec::new() };
    // A feature that the driver lacks is off and fixed, as `ethtool -k` shows it.
    let offload = |name: &&'static str| Offload {
        name,
        on: active.contains(name),
        fixed: !changeable.contains(name) || never.contains(name),
    };
    NAMES.iter().map(offload).collect()
}

/// The known offloads in the ioctl's list: name, on, fixed.
pub(super) fn listed(features: &[Feature]) -> Vec<Offload> {
    let offload = |name: &&'static str| {
        let (_, on, fixed) = features.iter().find(|(known, _, _)| known == name)?;
        Some(Offload { name, on: *on, fixed: *fixed })
    };
    NAMES.iter().filter_map(offload).collect()
}

/// The known names in a set of bits: all of a list without a mask, those with a value of one with a mask.
fn set(bitset: &[u8]) -> BTreeSet<&'static str> {
    let listed = Attributes::new(bitset).any(|(kind, _)| kind == BITSET_NOMASK);
    let bits = Attributes::new(bitset).filter_map(|(kind, value)| (kind == BITSET_BITS).then_some(value));
    let name = |(_, bit): (u16, &[u8])| {
        let mut parts = Attributes::new(bit);
        let name = parts.clone().find_map(|(kind, value)| if kind == BIT_NAME { text(value) } else { None })?;
        let set = listed || parts.any(|(kind, _)| kind == BIT_VALUE);
        NAMES.iter().copied().find(|known| set && *known == name)
    };
    bits.flat_map(Attributes::new).filter_map(name).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::netlink::message::NESTED;
    use crate::host::netlink::message::tests::attribute;

    fn bitset(kind: u16, masked: bool, bits: &[(&str, bool)]) -> Vec<u8> {
        let bit = |(index, (name, set)): (u32, &(&str, bool))| {
            let mut out = attribute(1, &index.to_ne_bytes());
            out.extend(attribute(BIT_NAME, &[name.as_bytes(), &[0]].concat()));
            if masked && *set {
                out.extend(attribute(BIT_VALUE, &[]));
            }
            attribute(1 | NESTED, &out)
        };
        let shown = (0..).zip(bits).filter(|(_, (_, set))| masked || *set);
        let bits: Vec<u8> = shown.flat_map(bit).collect();
        let mut out = if masked { Vec::new() } else { attribute(BITSET_NOMASK, &[]) };
        out.extend(attribute(2, &64u32.to_ne_bytes()));
        out.extend(attribute(BITSET_BITS | NESTED, &bits));
        attribute(kind | NESTED, &out)
    }

    /// A reply with these features: name, on, changeable.
    pub(crate) fn features_reply(features: &[(&str, bool, bool)]) -> Vec<u8> {
        let changeable: Vec<_> = features.iter().map(|(name, _, changeable)| (*name, *changeable)).collect();
        let active: Vec<_> = features.iter().map(|(name, on, _)| (*name, *on)).collect();
        let never: Vec<_> = features.iter().map(|(name, _, _)| (*name, *name == "netns-local")).collect();
        let header = attribute(HEADER | NESTED, &attribute(2, b"eth2\0"));
        [
            header,
            bitset(2, true, &changeable),
            bitset(3, false, &active),
            bitset(4, false, &active),
            bitset(5, true, &never),
        ]
        .concat()
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn byte_for_byte() {
        #[rustfmt::skip]
        let expected = [
            24, 0, 1, 0x80, 9, 0, 2, 0, b'e', b't', b'h', b'2', 0, 0, 0, 0, 8, 0, 3, 0, 0, 0, 0, 0,
        ];
        assert_eq!(request("eth2"), expected);
        #[rustfmt::skip]
        let reply = [
            44, 0, 4, 0x80,
            4, 0, 1, 0, 8, 0, 2, 0, 64, 0, 0, 0,
            28, 0, 3, 0x80, 24, 0, 1, 0x80,
            8, 0, 1, 0, 19, 0, 0, 0,
            11, 0, 2, 0, b'r', b'x', b'-', b'l', b'r', b'o', 0, 0,
        ];
        let seen = offloads(Attributes::new(&reply));
        let lro = seen.iter().find(|offload| offload.name == "rx-lro");
        assert_eq!(lro, Some(&Offload { name: "rx-lro", on: true, fixed: true }));
        for end in 0..reply.len() {
            let _ = offloads(Attributes::new(&reply[..end]));
        }
    }

    #[test]
    fn on_off_and_fixed() {
        let reply = features_reply(&[
            ("hw-tc-offload", true, true),
            ("rx-lro", false, true),
            ("rx-vlan-filter", true, false),
            ("netns-local", true, true),
            ("a-feature-of-tomorrow", true, true),
        ]);
        let seen = offloads(Attributes::new(&reply));
        let of =
            |name: &str| seen.iter().find(|offload| offload.name == name).map(|offload| (offload.on, offload.fixed));
        assert_eq!(seen.len(), NAMES.len());
        assert_eq!(of("hw-tc-offload"), Some((true, false)));
        assert_eq!(of("rx-lro"), Some((false, false)));
        assert_eq!(of("rx-vlan-filter"), Some((true, true)));
        assert_eq!(of("rx-gro-hw"), Some((false, true)), "the driver does not have it");
        assert_eq!(offloads(Attributes::new(&[])), []);
    }

    proptest! {
        #[test]
        fn any_reply_parses_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(offloads(Attributes::new(&bytes)).len() <= NAMES.len());
            prop_assert!(set(&bytes).len() <= NAMES.len());
        }
    }
}

//! Data Centre Bridging over route netlink (`RTM_GETDCB`, `uapi/linux/dcbnl.h`). Bytes in, facts out.

use crate::host::netlink::message;
use crate::host::netlink::message::{Attributes, number8, put_text};
use crate::model::net::{Dcb, Pfc, Priorities, PriorityTrust};

const RTM_GETDCB: u16 = 78;
const CMD_IEEE_GET: u8 = 21;
const ATTR_IFNAME: u16 = 1;
const ATTR_IEEE: u16 = 13;
const ATTR_DCBX: u16 = 14;

const IEEE_PFC: u16 = 2;
const IEEE_APP_TABLE: u16 = 3;
const APP_TRUST_TABLE: u16 = 11;

/// `struct dcbmsg`: family, command, two bytes of nothing.
const DCBMSG: usize = 4;

/// Selectors of applications: Ethernet type, UDP port, any port, DSCP.
const BY_ETHERTYPE: u8 = 1;
const BY_UDP_PORT: u8 = 3;
const BY_ANY_PORT: u8 = 4;
const BY_DSCP: u8 = 5;
const BY_PCP: u8 = 255;

/// EtherType of RoCE v1 and UDP port of RoCE v2.
const ROCE_ETHERTYPE: u16 = 0x8915;
const ROCE_PORT: u16 = 4791;

/// Bits of the DCBX mode: by the host, by the firmware.
const DCBX_HOST: u8 = 1;
const DCBX_FIRMWARE: u8 = 2;

/// Encodes a request about an interface.
pub(super) fn request(interface: &str) -> Vec<u8> {
    let mut payload = vec![0, CMD_IEEE_GET, 0, 0];
    put_text(&mut payload, ATTR_IFNAME, interface);
    message::request_of(RTM_GETDCB, false, &payload)
}

/// Parses a reply (the message without its header). `by_dscp_alone`: whether the driver trusts DSCP exactly when its
/// table has DSCP entries, as mlx5_core does.
pub(super) fn reply(reply: &[u8], by_dscp_alone: bool) -> Dcb {
    let mut dcb = Dcb::default();
    if reply.get(1) != Some(&CMD_IEEE_GET) {
        return dcb;
    }
    for (kind, value) in Attributes::new(reply.get(DCBMSG..).unwrap_or_default()) {
        match kind {
            ATTR_IEEE => ieee(value, by_dscp_alone, &mut dcb),
            ATTR_DCBX => {
                dcb.dcbx = match number8(value) {
                    Some(mode) if mode & DCBX_FIRMWARE != 0 => Some("firmware"),
                    Some(mode) if mode & DCBX_HOST != 0 => Some("host"),
                    _ => None,
                };
            }
            _ => {}
        }
    }
    dcb
}

fn ieee(nest: &[u8], by_dscp_alone: bool, dcb: &mut Dcb) {
    let (mut said, mut listed) = (None, None);
    for (kind, value) in Attributes::new(nest) {
        match kind {
            IEEE_PFC => dcb.pfc = pfc(value),
            IEEE_APP_TABLE => {
                let entries = || Attributes::new(value).filter_map(|(_, entry)| app(entry));
                let roce = |(selector, _, protocol): &(u8, u8, u16)| match *selector {
                    BY_ETHERTYPE => *protocol == ROCE_ETHERTYPE,
                    BY_UDP_PORT | BY_ANY_PORT => *protocol == ROCE_PORT,
                    _ => false,
                };
                dcb.roce_priority = entries().find(roce).map(|(_, priority, _)| priority);
                let by_dscp = entries().any(|(selector, _, _)| selector == BY_DSCP);
                listed = if by_dscp { Some(PriorityTrust::Dscp) } else { by_dscp_alone.then_some(PriorityTrust::Pcp) };
            }
            APP_TRUST_TABLE => {
                said = Attributes::new(value).find_map(|(_, selector)| match number8(selector) {
                    Some(BY_DSCP) => Some(PriorityTrust::Dscp),
                    Some(BY_PCP) => Some(PriorityTrust::Pcp),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    dcb.trust = said.or(listed);
}

/// `struct ieee_pfc`: capacity, enabled, one byte, a gap, delay of 16 bits, a gap; then eight counts each of frames
/// sent and received.
fn pfc(value: &[u8]) -> Option<Pfc> {
    let enabled = Priorities(*value.get(1)?);
    let counts = |from: usize| -> Option<[u64; 8]> {
        let mut counts = [0; 8];
        let (chunks, _) = value.get(from..from + 64)?.as_chunks::<8>();
        counts.iter_mut().zip(chunks).for_each(|(count, bytes)| *count = u64::from_ne_bytes(*bytes));
        Some(counts)
    };
    let frames = counts(8).zip(counts(72));
    let counted = frames.filter(|(sent, received)| sent.iter().chain(received).any(|count| *count > 0));
    Some(Pfc { enabled, frames: counted })
}

/// `struct dcb_app`: selector, priority, protocol of 16 bits in host order.
fn app(value: &[u8]) -> Option<(u8, u8, u16)> {
    let [selector, priority, low, high] = *value.first_chunk()?;
    Some((selector, priority, u16::from_ne_bytes([low, high])))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::netlink::message::tests::attribute;

    /// `struct ieee_pfc` with these frames sent and received.
    fn pfc_struct(enabled: u8, sent: [u64; 8], received: [u64; 8]) -> Vec<u8> {
        let counts = sent.iter().chain(&received).flat_map(|count| count.to_ne_bytes());
        [8, enabled, 0, 0, 0, 0, 0, 0].into_iter().chain(counts).collect()
    }

    /// A reply about `eth2`: priorities with PFC, application entries, trusted selectors where the driver says them.
    pub(crate) fn dcb_reply(
        enabled: u8,
        sent: [u64; 8],
        received: [u64; 8],
        apps: &[(u8, u8, u16)],
        trust: Option<&[u8]>,
    ) -> Vec<u8> {
        let entry = |(selector, priority, protocol): &(u8, u8, u16)| {
            attribute(1, &[&[*selector, *priority][..], &protocol.to_ne_bytes()].concat())
        };
        let apps: Vec<u8> = apps.iter().flat_map(entry).collect();
        let mut ieee = [attribute(1, &[0; 59]), attribute(IEEE_PFC, &pfc_struct(enabled, sent, received))].concat();
        ieee.extend(attribute(IEEE_APP_TABLE, &apps));
        if let Some(selectors) = trust {
            let selectors: Vec<u8> = selectors.iter().flat_map(|selector| attribute(1, &[*selector])).collect();
            ieee.extend(attribute(APP_TRUST_TABLE | 0x8000, &selectors));
        }
        let mut out = vec![0, CMD_IEEE_GET, 0, 0];
        out.extend(attribute(ATTR_IFNAME, b"eth2\0"));
        out.extend(attribute(ATTR_IEEE, &ieee));
        out.extend(attribute(ATTR_DCBX, &[0x09]));
        out
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn byte_for_byte() {
        let expected = [
            32, 0, 0, 0, 78, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, // nlmsghdr
            0, 21, 0, 0, 9, 0, 1, 0, b'e', b't', b'h', b'2', 0, 0, 0, 0,
        ];
        assert_eq!(request("eth2"), expected);
        #[rustfmt::skip]
        let mut said = vec![
            0, 21, 0, 0,
            9, 0, 1, 0, b'e', b't', b'h', b'2', 0, 0, 0, 0,
            164, 0, 13, 0,
            140, 0, 2, 0, 8, 0b1000, 0, 0, 0, 0, 0, 0,
        ];
        let mut counts = [0u8; 128];
        (counts[24], counts[64 + 25]) = (7, 1);
        said.extend(counts);
        said.extend([20, 0, 3, 0, 8, 0, 1, 0, 5, 3, 26, 0, 8, 0, 1, 0, 3, 3, 0xb7, 0x12]);
        said.extend([5, 0, 14, 0, 0x0a, 0, 0, 0]);
        let mut frames = ([0; 8], [0; 8]);
        (frames.0[3], frames.1[3]) = (7, 256);
        let dcb = Dcb {
            pfc: Some(Pfc { enabled: Priorities(8), frames: Some(frames) }),
            trust: Some(PriorityTrust::Dscp),
            roce_priority: Some(3),
            dcbx: Some("firmware"),
        };
        assert_eq!(reply(&said, true), dcb);
        for end in 0..said.len() {
            let _ = reply(&said[..end], true);
        }
    }

    #[test]
    fn trust_is_reported_or_follows_from_the_table() {
        let (none, trust) = ([0; 8], |apps: &[(u8, u8, u16)], table: Option<&[u8]>, alone| {
            reply(&dcb_reply(8, [0; 8], [0; 8], apps, table), alone).trust
        });
        let dscp = (BY_DSCP, 3, 26);
        assert_eq!(trust(&[dscp], None, true), Some(PriorityTrust::Dscp));
        assert_eq!(trust(&[(BY_ETHERTYPE, 3, ROCE_ETHERTYPE)], None, true), Some(PriorityTrust::Pcp));
        assert_eq!(trust(&[], None, false), None, "other drivers do not say");
        assert_eq!(trust(&[], Some(&[BY_DSCP, BY_PCP]), false), Some(PriorityTrust::Dscp));
        assert_eq!(trust(&[dscp], Some(&[BY_PCP]), false), Some(PriorityTrust::Pcp));
        let dcb = reply(&dcb_reply(0, none, none, &[(BY_ETHERTYPE, 5, ROCE_ETHERTYPE)], None), false);
        assert_eq!((dcb.roce_priority, dcb.dcbx), (Some(5), Some("host")));
        assert_eq!(dcb.pfc, Some(Pfc { enabled: Priorities(0), frames: None }), "what is not counted is not 0");
    }

    #[test]
    fn a_reply_to_another_question_says_nothing() {
        assert_eq!(reply(&[0, 0, 1, 0, 2, 0, 0, 0], true), Dcb::default());
        assert_eq!(reply(&[], true), Dcb::default());
    }

    proptest! {
        #[test]
        fn any_reply_parses_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), alone: bool) {
            let _ = reply(&bytes, alone);
            let _ = reply(&[&[0, CMD_IEEE_GET, 0, 0][..], &bytes].concat(), alone);
            let _ = reply(&[&[0, CMD_IEEE_GET, 0, 0][..], &attribute(ATTR_IEEE, &bytes)].concat(), alone);
        }

        #[test]
        fn counts_survive(enabled: u8, sent: [u64; 8], received: [u64; 8]) {
            let pfc = reply(&dcb_reply(enabled, sent, received, &[], None), false).pfc.unwrap();
            prop_assert_eq!(pfc.enabled.0, enabled);
            if let Some(frames) = pfc.frames {
                prop_assert_eq!(frames, (sent, received));
            }
        }
    }
}

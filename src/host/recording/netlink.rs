//! Netlink in recordings: requests and replies, reduced to the attributes that collectors read.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::scrub::Scrubber;
use crate::host::netlink::message::{Attributes, put};
use crate::host::netlink::socket::{NetlinkConnection, NetlinkConnector, Protocol};

/// One request and what the kernel said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// The protocol.
    pub protocol: Protocol,
    /// The request, with its header.
    #[serde(with = "hex")]
    pub request: Vec<u8>,
    /// The payloads of the replies.
    #[serde(with = "hex::list", default, skip_serializing_if = "Vec::is_empty")]
    pub replies: Vec<Vec<u8>>,
    /// The errno in place of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

/// Exchanges of a recording, in their order.
pub(super) type Exchanges = Arc<Mutex<Vec<Exchange>>>;

/// Records what is said over a connection. Requests that make hardware work, and for which files are read instead, are
/// refused.
pub(super) fn recording(protocol: Protocol, connect: NetlinkConnector, into: &Exchanges) -> NetlinkConnector {
    let into = Arc::clone(into);
    Arc::new(move || {
        let connection = connect()?;
        Ok(Box::new(RecordedConnection { protocol, connection, into: Arc::clone(&into) }))
    })
}

struct RecordedConnection {
    protocol: Protocol,
    connection: Box<dyn NetlinkConnection>,
    into: Exchanges,
}

impl NetlinkConnection for RecordedConnection {
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let outcome = self.connection.ask(request);
        let (replies, errno) = match &outcome {
            Ok(replies) => (replies.clone(), None),
            Err(error) => (Vec::new(), error.raw_os_error()),
        };
        // Without an errno nothing was said.
        if outcome.is_ok() || errno.is_some() {
            let exchange = Exchange { protocol: self.protocol, request: request.to_vec(), replies, errno };
            self.into.lock().unwrap_or_else(PoisonError::into_inner).push(exchange);
        }
        outcome
    }
}

/// Replays what was recorded. The last answer to a request counts.
pub(super) fn replaying(protocol: Protocol, exchanges: &[Exchange]) -> Option<NetlinkConnector> {
    let of_protocol = exchanges.iter().filter(|exchange| exchange.protocol == protocol);
    let answers: BTreeMap<Vec<u8>, Exchange> =
        of_protocol.map(|exchange| (exchange.request.clone(), exchange.clone())).collect();
    let answers = Arc::new(answers);
    (!answers.is_empty())
        .then(|| -> NetlinkConnector { Arc::new(move || Ok(Box::new(ReplayedConnection(Arc::clone(&answers))))) })
}

struct ReplayedConnection(Arc<BTreeMap<Vec<u8>, Exchange>>);

impl NetlinkConnection for ReplayedConnection {
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        match self.0.get(request) {
            Some(Exchange { errno: Some(errno), .. }) => Err(io::Error::from_raw_os_error(*errno)),
            Some(exchange) => Ok(exchange.replies.clone()),
            None => Err(Errno::OPNOTSUPP.into()),
        }
    }
}

/// What an attribute may hold.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// A number, a set of bits, or numbers beside each other.
    Numbers,
    /// A name of the kernel's: of a counter, a reporter, a family.
    Word,
    /// The name of an interface or a device.
    Name,
    /// A number, then a MAC address or what stands for it.
    NumberedMac,
    /// A number, then a GUID.
    NumberedGuid,
    /// Attributes.
    Nest(&'static [(u16, Shape)]),
    /// Attributes, whose types count from 0.
    NestFromZero(&'static [(u16, Shape)]),
    /// Attributes of any type, all of this shape.
    NestOfAny(&'static Shape),
}

use Shape::{Name, Nest, NestFromZero, NestOfAny, NumberedGuid, NumberedMac, Numbers, Word};

/// `include/uapi/rdma/rdma_netlink.h`
const NLDEV: &[(u16, Shape)] = &[
    (1, Numbers),
    (2, Name),
    (3, Numbers),
    (15, Nest(&[(16, Nest(&[(17, Word), (18, Numbers)]))])),
    (19, Nest(&[(20, Nest(&[(26, Numbers), (27, Numbers)]))])),
    (66, Numbers),
    (93, Numbers),
];

/// `RTM_GETLINK` (`include/uapi/linux/if_link.h`)
const LINK: &[(u16, Shape)] = &[(3, Name), (21, Numbers), (22, Nest(&[(1, Nest(VF))])), (29, Numbers)];
const VF: &[(u16, Shape)] = &[
    (1, NumberedMac),
    (2, Numbers),
    (3, Numbers),
    (4, Numbers),
    (5, Numbers),
    (6, Numbers),
    (
        8,
        NestFromZero(&[
            (0, Numbers),
            (1, Numbers),
            (2, Numbers),
            (3, Numbers),
            (4, Numbers),
            (5, Numbers),
            (7, Numbers),
            (8, Numbers),
        ]),
    ),
    (9, Numbers),
    (10, NumberedGuid),
    (11, NumberedGuid),
    (12, Nest(&[(1, Numbers)])),
];

/// `RTM_GETDCB` (`include/uapi/linux/dcbnl.h`)
const DCB: &[(u16, Shape)] =
    &[(1, Name), (13, Nest(&[(2, Numbers), (3, NestOfAny(&Numbers)), (11, NestOfAny(&Numbers))])), (14, Numbers)];

/// The family that knows the others (`include/uapi/linux/genetlink.h`)
const CONTROL: &[(u16, Shape)] = &[(1, Numbers), (2, Word)];

/// `include/uapi/linux/devlink.h`
const DEVLINK: &[(u16, Shape)] = &[
    (1, Word),
    (2, Name),
    (114, Nest(&[(115, Word), (116, Numbers), (117, Numbers), (118, Numbers), (121, Numbers)])),
];

/// `ETHTOOL_MSG_FEATURES_GET`, `…_LINKSTATE_GET`, `…_STATS_GET`, `…_PAUSE_GET`, `…_FEC_GET` (`include/uapi/linux/ethtool_netlink.h`)
const HEADER: Shape = Nest(&[(1, Numbers), (2, Name), (3, Numbers)]);
const BITS: Shape = Nest(&[
    (1, Numbers),
    (2, Numbers),
    (3, Nest(&[(1, Nest(&[(1, Numbers), (2, Word), (3, Numbers)]))])),
    (4, Numbers),
    (5, Numbers),
]);
const FEATURES: &[(u16, Shape)] = &[(1, HEADER), (2, BITS), (3, BITS), (4, BITS), (5, BITS)];
const STATS: &[(u16, Shape)] = &[
    (2, HEADER),
    (3, BITS),
    (4, Nest(&[(1, Numbers), (2, Numbers), (3, Numbers), (4, NestOfAny(&Numbers))])),
    (5, Numbers),
];
const LINK_STATE: &[(u16, Shape)] =
    &[(1, HEADER), (2, Numbers), (3, Numbers), (4, Numbers), (5, Numbers), (6, Numbers), (7, Numbers)];
const PAUSE: &[(u16, Shape)] = &[(1, HEADER), (2, Numbers), (3, Numbers), (4, Numbers), (5, NestOfAny(&Numbers))];
const FEC: &[(u16, Shape)] = &[(1, HEADER), (2, BITS), (3, Numbers), (4, Numbers), (5, NestOfAny(&Numbers))];

const MESSAGE_HEADER: usize = 16;
const RTM_GETLINK: u16 = 18;
const RTM_GETDCB: u16 = 78;
const CONTROL_FAMILY: u16 = 16;
const NLDEV_CLIENT: u16 = 5;

/// Which attributes of messages may leave, and how long the header before them is.
struct Filter<'a> {
    scrubber: &'a mut Scrubber,
    /// Names of generic netlink's families by number.
    families: BTreeMap<u16, String>,
}

/// The exchanges with what may leave alone. Those of unknown requests are left out.
pub(super) fn allowed(exchanges: &[Exchange], scrubber: &mut Scrubber) -> Vec<Exchange> {
    let mut filter = Filter { scrubber, families: BTreeMap::new() };
    exchanges.iter().filter_map(|exchange| filter.exchange(exchange)).collect()
}

impl Filter<'_> {
    fn exchange(&mut self, exchange: &Exchange) -> Option<Exchange> {
        let kind = u16::from_ne_bytes(*exchange.request.get(4..)?.first_chunk()?);
        let (header, payload) = exchange.request.split_at_checked(MESSAGE_HEADER)?;
        let (fixed, shapes) = self.shapes(exchange.protocol, kind, payload)?;
        if kind == CONTROL_FAMILY && exchange.protocol == Protocol::Generic {
            self.learn_family(payload, &exchange.replies);
        }
        let payload = self.message(payload, fixed, shapes)?;
        let mut request = header.to_vec();
        let length = u32::try_from(MESSAGE_HEADER + payload.len()).ok()?;
        request.splice(0..4, length.to_ne_bytes());
        request.extend(payload);
        let mut replies = Vec::new();
        for reply in &exchange.replies {
            replies.push(self.message(reply, fixed, shapes)?);
        }
        Some(Exchange { protocol: exchange.protocol, request, replies, errno: exchange.errno })
    }

    fn shapes(&self, protocol: Protocol, kind: u16, payload: &[u8]) -> Option<(usize, &'static [(u16, Shape)])> {
        match protocol {
            Protocol::Rdma if kind >> 10 == NLDEV_CLIENT => Some((0, NLDEV)),
            Protocol::Route if kind == RTM_GETLINK => Some((16, LINK)),
            Protocol::Route if kind == RTM_GETDCB => Some((4, DCB)),
            Protocol::Generic if kind == CONTROL_FAMILY => Some((4, CONTROL)),
            Protocol::Generic => match (self.families.get(&kind).map(String::as_str)?, payload.first()?) {
                ("devlink", _) => Some((4, DEVLINK)),
                ("ethtool", 6) => Some((4, LINK_STATE)),
                ("ethtool", 11) => Some((4, FEATURES)),
                ("ethtool", 32) => Some((4, STATS)),
                ("ethtool", 21) => Some((4, PAUSE)),
                ("ethtool", 29) => Some((4, FEC)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Learns the number of the family that was asked for by name.
    fn learn_family(&mut self, request: &[u8], replies: &[Vec<u8>]) {
        let attribute = |message: &[u8], wanted: u16| {
            let mut attributes = Attributes::new(message.get(4..).unwrap_or_default());
            attributes.find_map(|(kind, value)| (kind == wanted).then(|| value.to_vec()))
        };
        let Some(name) = attribute(request, 2) else { return };
        for reply in replies {
            if let Some([a, b, ..]) = attribute(reply, 1).as_deref() {
                self.families.insert(u16::from_ne_bytes([*a, *b]), text(&name));
            }
        }
    }

    /// A message: what stands before the attributes, and those that may leave. `None` if it does not fit any more.
    fn message(&mut self, bytes: &[u8], fixed: usize, shapes: &[(u16, Shape)]) -> Option<Vec<u8>> {
        let (fixed, rest) = bytes.split_at_checked(fixed)?;
        let mut out = fixed.to_vec();
        self.attributes(Attributes::new(rest), shapes, &mut out)?;
        Some(out)
    }

    fn attributes(&mut self, mut from: Attributes<'_>, shapes: &[(u16, Shape)], out: &mut Vec<u8>) -> Option<()> {
        while let Some((kind, flags, value)) = from.next_with_flags() {
            let Some((_, shape)) = shapes.iter().find(|(known, _)| *known == kind) else { continue };
            let value = self.value(value, *shape)?;
            u16::try_from(value.len() + 4).ok()?;
            // A request is found again by its bytes, so its flags stay.
            put(out, kind | flags, &value);
        }
        Some(())
    }

    fn value(&mut self, value: &[u8], shape: Shape) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match shape {
            Shape::Numbers => out.extend(value),
            Shape::Word | Shape::Name => {
                out.extend(self.scrubber.text(&text(value)).bytes());
                // As the kernel sends it.
                if value.last() == Some(&0) {
                    out.push(0);
                }
            }
            Shape::NumberedMac => {
                let (number, address) = value.split_at_checked(4)?;
                out.extend(number);
                out.extend(self.address(address));
            }
            Shape::NumberedGuid => {
                let (number, rest) = value.split_at_checked(4)?;
                // `struct ifla_vf_guid` has four bytes of nothing before the GUID.
                let (nothing, guid) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
                out.extend(number);
                out.extend(nothing);
                out.extend(self.scrubber.guid(u64::from_ne_bytes(*guid.first_chunk()?)).to_ne_bytes());
            }
            Shape::Nest(shapes) => self.attributes(Attributes::new(value), shapes, &mut out)?,
            Shape::NestFromZero(shapes) => self.attributes(Attributes::from_zero(value), shapes, &mut out)?,
            Shape::NestOfAny(shape) => {
                let mut from = Attributes::from_zero(value);
                while let Some((kind, flags, value)) = from.next_with_flags() {
                    put(&mut out, kind | flags, &self.value(value, *shape)?);
                }
            }
        }
        Some(out)
    }

    /// The 32 bytes of `struct ifla_vf_mac`: of an Ethernet VF six of them, of an InfiniBand VF twenty.
    fn address(&mut self, address: &[u8]) -> Vec<u8> {
        let mut out = vec![0; address.len()];
        let is_infiniband = address.get(6..).unwrap_or_default().iter().any(|byte| *byte != 0);
        let (from, length) = if is_infiniband { (12, 8) } else { (0, 6) };
        let Some(identifier) = address.get(from..from + length) else { return out };
        let number = identifier.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let number = if is_infiniband { self.scrubber.guid(number) } else { self.scrubber.mac(number) };
        let bytes = number.to_be_bytes();
        for (to, byte) in out.iter_mut().skip(from).zip(bytes.iter().skip(8 - length)) {
            *to = *byte;
        }
        out
    }
}

fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or_default()).into_owned()
}

/// Bytes as hexadecimal digits.
mod hex {
    use std::fmt::Write as _;

    use serde::{Deserialize as _, Deserializer, Serializer};

    fn encode(bytes: &[u8]) -> String {
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    fn decode(text: &str) -> Option<Vec<u8>> {
        let digits: Option<Vec<u8>> =
            text.chars().map(|digit| digit.to_digit(16).and_then(|value| u8::try_from(value).ok())).collect();
        Some(digits?.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
    }

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        decode(&text).ok_or_else(|| serde::de::Error::custom("not hexadecimal digits"))
    }

    pub(super) mod list {
        use serde::{Deserialize as _, Deserializer, Serializer};

        pub(crate) fn serialize<S: Serializer>(list: &[Vec<u8>], serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_seq(list.iter().map(|bytes| super::encode(bytes)))
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<u8>>, D::Error> {
            let list = Vec::<String>::deserialize(deserializer)?;
            list.iter()
                .map(|text| super::decode(text))
                .collect::<Option<_>>()
                .ok_or_else(|| serde::de::Error::custom("not hexadecimal digits"))
        }
    }
}

//! Netlink messages (`struct nlmsghdr`) and attributes (`struct nlattr`).
//!
//! Headers are written and read by netlink-packet-core. Attributes are walked here instead of with its `NlasIterator`:
//! that one hides where it stopped, which the VF list with its wrapped length needs, and its writer panics on a value
//! that is too long.

use std::io;

use netlink_packet_core::{
    Emitable as _, NLA_F_NESTED, NLA_TYPE_MASK, NLM_F_DUMP, NLM_F_MULTIPART, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NLMSG_NOOP, NLMSG_OVERRUN, NetlinkBuffer, NetlinkHeader,
};

const HEADER: usize = 16;

/// A request with 32-bit attributes. Its sequence number is 0 until [`number`] sets it.
pub fn request(kind: u16, dump: bool, attributes: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(attributes.len() * 8);
    for (kind, value) in attributes {
        put(&mut payload, *kind, &value.to_ne_bytes());
    }
    request_of(kind, dump, &payload)
}

/// A request with this payload. Its sequence number is 0 until [`number`] sets it.
pub fn request_of(kind: u16, dump: bool, payload: &[u8]) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.length = u32::try_from(HEADER + payload.len()).unwrap_or(u32::MAX);
    header.message_type = kind;
    header.flags = NLM_F_REQUEST | if dump { NLM_F_DUMP } else { 0 };
    let mut out = vec![0; HEADER];
    header.emit(&mut out);
    out.extend_from_slice(payload);
    out
}

/// Sets a request's sequence number, by which its replies are known.
pub fn number(request: &mut [u8], sequence: u32) {
    if let Ok(mut message) = NetlinkBuffer::new_checked(request) {
        message.set_sequence_number(sequence);
    }
}

/// Takes the payloads of the replies to a request out of a datagram; true when no more will come. Messages with
/// another sequence number (replies to a request that was given up) are skipped.
///
/// # Errors
/// The errno the kernel answered with; `InvalidData` for what is no netlink message.
pub fn collect(datagram: &[u8], sequence: u32, into: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let message = NetlinkBuffer::new_checked(rest).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let length = usize::try_from(message.length()).unwrap_or(usize::MAX);
        let payload = message.payload();
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        if message.sequence_number() != sequence {
            continue;
        }
        match message.message_type() {
            NLMSG_NOOP => {}
            NLMSG_ERROR | NLMSG_DONE => return status(payload).map(|()| true),
            NLMSG_OVERRUN => return Err(io::ErrorKind::InvalidData.into()),
            _ => {
                into.push(payload.to_vec());
                if message.flags() & NLM_F_MULTIPART == 0 {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// The status at the start of an error or end message: zero or a negated errno; a missing one is success.
fn status(payload: &[u8]) -> io::Result<()> {
    let code = payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}

/// Iterates over attributes and ends at the first incomplete one. Padding (type 0) is skipped, except in nests that
/// have a type 0 of their own.
#[derive(Debug, Clone)]
pub struct Attributes<'a> {
    rest: &'a [u8],
    from_zero: bool,
}

impl<'a> Attributes<'a> {
    /// The attributes in a message's payload or in a nest.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, from_zero: false }
    }

    /// The attributes in a nest whose types count from 0 (`IFLA_VF_STATS`).
    pub fn from_zero(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, from_zero: true }
    }

    /// What follows the attributes taken so far.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Attributes<'a> {
    /// The next attribute with its type, the flags of its type, and its value.
    pub fn next_with_flags(&mut self) -> Option<(u16, u16, &'a [u8])> {
        loop {
            let [l0, l1, t0, t1] = *self.rest.first_chunk()?;
            let length = usize::from(u16::from_ne_bytes([l0, l1]));
            let Some(value) = self.rest.get(4..length) else {
                self.rest = &[];
                return None;
            };
            self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            let kind = u16::from_ne_bytes([t0, t1]);
            let flags = kind & !NLA_TYPE_MASK;
            if kind != flags || self.from_zero {
                return Some((kind & NLA_TYPE_MASK, flags, value));
            }
        }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.next_with_flags().map(|(kind, _, value)| (kind, value))
    }
}

/// Flag of a type whose value consists of attributes.
pub const NESTED: u16 = NLA_F_NESTED;

/// Appends an attribute to a request.
pub fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Appends a text with the NUL that the kernel requires.
pub fn put_text(out: &mut Vec<u8>, kind: u16, text: &str) {
    put(out, kind, &[text.as_bytes(), &[0]].concat());
}

/// An 8-bit number.
pub fn number8(value: &[u8]) -> Option<u8> {
    value.first().copied()
}

/// A 16-bit number in host order.
pub fn number16(value: &[u8]) -> Option<u16> {
    value.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// A 32-bit number in host order.
pub fn number32(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A 64-bit number in host order.
pub fn number64(value: &[u8]) -> Option<u64> {
    value.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// A text up to its first NUL, if there is one.
pub fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value.split(|byte| *byte == 0).next()?).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A message as the kernel lays it out.
    pub(crate) fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = u32::try_from(HEADER + payload.len()).unwrap().to_ne_bytes().to_vec();
        out.extend_from_slice(&kind.to_ne_bytes());
        out.extend_from_slice(&flags.to_ne_bytes());
        out.extend_from_slice(&sequence.to_ne_bytes());
        out.extend_from_slice(&4711u32.to_ne_bytes());
        out.extend_from_slice(payload);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    #[test]
    fn a_request_is_a_header_and_attributes() {
        let mut bytes = request(0x1405, false, &[(1, 2), (3, 1)]);
        number(&mut bytes, 9);
        #[rustfmt::skip]
        let expected = [
            32, 0, 0, 0, 0x05, 0x14, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0,
            8, 0, 1, 0, 2, 0, 0, 0, 8, 0, 3, 0, 1, 0, 0, 0,
        ];
        if cfg!(target_endian = "little") {
            assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn a_dump_ends_at_done() {
        let mut got = Vec::new();
        let part = [message(0x1401, 2, 5, b"one."), message(0x1401, 2, 5, b"two.")].concat();
        assert!(!collect(&part, 5, &mut got).unwrap());
        assert!(collect(&message(3, 2, 5, &0i32.to_ne_bytes()), 5, &mut got).unwrap());
        assert_eq!(got, [b"one.", b"two."]);
        let failed = collect(&message(3, 2, 5, &(-22i32).to_ne_bytes()), 5, &mut got).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(22));
    }

    #[test]
    fn a_single_reply_completes_and_foreign_replies_are_skipped() {
        let mut got = Vec::new();
        assert!(!collect(&message(0x1405, 0, 4, b"late"), 5, &mut got).unwrap());
        assert!(collect(&message(0x1405, 0, 5, b"mine"), 5, &mut got).unwrap());
        assert_eq!(got, [b"mine"]);
        let refused = collect(&message(2, 0, 5, &(-95i32).to_ne_bytes()), 5, &mut got).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(95));
        assert_eq!(collect(&[1, 2, 3], 5, &mut got).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    proptest! {
        #[test]
        fn collecting_ends_on_any_datagram(bytes in proptest::collection::vec(any::<u8>(), 0..256), sequence in any::<u32>()) {
            let mut got = Vec::new();
            let _ = collect(&bytes, sequence, &mut got);
            prop_assert!(got.iter().map(|payload| payload.len() + HEADER).sum::<usize>() <= bytes.len());
        }
    }

    /// An attribute as the kernel lays it out.
    pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len() + 4).unwrap();
        let mut out = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        out.extend_from_slice(value);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    #[test]
    fn flags_and_padding_are_stripped() {
        let bytes = [attribute(0x8050, b"abc"), attribute(0, &[]), attribute(3, &7u32.to_ne_bytes())].concat();
        let seen: Vec<_> = Attributes::new(&bytes).collect();
        assert_eq!(seen, [(0x50, &b"abc"[..]), (3, &7u32.to_ne_bytes()[..])]);
    }

    #[test]
    fn truncated_values_are_none() {
        assert_eq!((number8(&[]), number32(&[1, 2, 3]), number64(&[0; 7])), (None, None, None));
        assert_eq!(text(b"mlx5_0\0junk"), Some("mlx5_0"));
        assert_eq!(text(b"mlx5_0"), Some("mlx5_0"));
        assert_eq!(text(b"\xff\0"), None);
    }

    proptest! {
        #[test]
        fn iteration_ends_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let total: usize = Attributes::new(&bytes).map(|(_, value)| value.len() + 4).sum();
            prop_assert!(total <= bytes.len());
        }

        #[test]
        fn attributes_survive_their_layout(
            list in proptest::collection::vec((1u16..0x3fff, proptest::collection::vec(any::<u8>(), 0..20)), 0..8),
        ) {
            let bytes: Vec<u8> = list.iter().flat_map(|(kind, value)| attribute(*kind, value)).collect();
            let mut written = Vec::new();
            for (kind, value) in &list {
                put(&mut written, *kind, value);
            }
            prop_assert_eq!(&written, &bytes);
            let seen: Vec<_> = Attributes::new(&bytes).map(|(kind, value)| (kind, value.to_vec())).collect();
            prop_assert_eq!(seen, list);
        }
    }
}

//! Netlink messages: a header of 16 bytes (`struct nlmsghdr`) and what follows it.

use std::io;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_MULTIPART, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, NetlinkBuffer,
};

const HEADER: usize = 16;

/// A request with 32-bit attributes. Its sequence number is 0 until [`number`] sets it.
pub fn request(kind: u16, dump: bool, attributes: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(attributes.len() * 8);
    for (kind, value) in attributes {
        payload.extend_from_slice(&8u16.to_ne_bytes());
        payload.extend_from_slice(&kind.to_ne_bytes());
        payload.extend_from_slice(&value.to_ne_bytes());
    }
    request_of(kind, dump, &payload)
}

/// A request with this payload. Its sequence number is 0 until [`number`] sets it.
pub fn request_of(kind: u16, dump: bool, payload: &[u8]) -> Vec<u8> {
    let length = HEADER + payload.len();
    let flags = NLM_F_REQUEST | if dump { NLM_F_DUMP } else { 0 };
    let mut out = Vec::with_capacity(length);
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&flags.to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
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

/// The status at the beginning of an error or end message: zero or a negated errno; none is success.
fn status(payload: &[u8]) -> io::Result<()> {
    let code = payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn one_reply_is_complete_and_another_requests_is_not_ours() {
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
        fn any_datagram_ends(bytes in proptest::collection::vec(any::<u8>(), 0..256), sequence in any::<u32>()) {
            let mut got = Vec::new();
            let _ = collect(&bytes, sequence, &mut got);
            prop_assert!(got.iter().map(|payload| payload.len() + HEADER).sum::<usize>() <= bytes.len());
        }
    }
}

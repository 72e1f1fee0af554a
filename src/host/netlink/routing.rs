//! Route lookup (`RTM_GETROUTE`; `uapi/linux/rtnetlink.h`).

use std::io;
use std::net::IpAddr;

use super::message;
use super::message::{Attributes, number32};
use super::socket::NetlinkConnection;

const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
/// `RTN_LOCAL`: to this host itself.
const LOCAL: u8 = 2;
/// `struct rtmsg`.
const RTMSG: usize = 12;
/// Where its type is.
const TYPE: usize = 7;

/// The route to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Whether the address is this host's own, so that everything sent there goes over the loopback interface.
    pub local: bool,
    /// Index of the interface that it leaves by.
    pub interface: Option<u32>,
}

/// Looks up the route to an address.
///
/// # Errors
/// The errno that the kernel answered with; `InvalidData` if the reply is not a route.
pub fn lookup(kernel: &mut dyn NetlinkConnection, address: IpAddr) -> io::Result<Route> {
    let replies = kernel.ask(&request(address))?;
    replies.first().and_then(|reply| route(reply)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn request(address: IpAddr) -> Vec<u8> {
    let (family, bytes) = match address {
        IpAddr::V4(address) => (2u8, address.octets().to_vec()),
        IpAddr::V6(address) => (10u8, address.octets().to_vec()),
    };
    let bits = u8::try_from(bytes.len() * 8).unwrap_or(u8::MAX);
    let mut payload = vec![family, bits];
    payload.resize(RTMSG, 0);
    payload.extend_from_slice(&u16::try_from(4 + bytes.len()).unwrap_or(u16::MAX).to_ne_bytes());
    payload.extend_from_slice(&RTA_DST.to_ne_bytes());
    payload.extend_from_slice(&bytes);
    message::request_of(RTM_GETROUTE, false, &payload)
}

fn route(reply: &[u8]) -> Option<Route> {
    let kind = reply.get(TYPE).copied()?;
    let mut attributes = Attributes::new(reply.get(RTMSG..)?);
    let interface = attributes.find(|(kind, _)| *kind == RTA_OIF).and_then(|(_, value)| number32(value));
    Some(Route { local: kind == LOCAL, interface })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::netlink::socket::route as connect;

    #[test]
    fn the_running_kernel_knows_its_own_addresses() {
        let Ok(mut kernel) = connect()() else { return };
        for address in ["127.0.0.1", "::1"] {
            // A kernel without IPv6 rejects the request.
            match lookup(&mut *kernel, address.parse().unwrap()) {
                Ok(route) => assert!(route.local, "{address}"),
                Err(error) => assert!(error.raw_os_error().is_some(), "{address}: {error}"),
            }
        }
        assert!(lookup(&mut *kernel, "127.0.0.1".parse().unwrap()).is_ok_and(|route| route.interface == Some(1)));
    }

    #[test]
    fn a_route_to_another_host_names_its_interface() {
        let mut reply = vec![2, 32, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0];
        reply.extend_from_slice(&[8, 0, 4, 0]);
        reply.extend_from_slice(&7u32.to_ne_bytes());
        if cfg!(target_endian = "little") {
            assert_eq!(route(&reply), Some(Route { local: false, interface: Some(7) }));
        }
        assert_eq!(route(&reply[..11]), None);
    }

    proptest! {
        #[test]
        fn any_reply_parses_without_a_panic(reply in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = route(&reply);
        }
    }
}

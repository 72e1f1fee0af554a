//! Statistics and offloads of an interface over `SIOCETHTOOL`, and the blocks that the kernel fills in.
//!
//! Drivers' own statistics exist only in this ioctl: ethtool netlink has the standard groups and the names, not these
//! values. Kernels without ethtool netlink report offloads here, too. The ioctl needs `unsafe`, because the kernel
//! writes through a pointer within the request.

#![expect(unsafe_code, reason = "the kernel writes through a pointer within the request")]

use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};
use rustix::net::{AddressFamily, SocketType};

use super::access::{EthtoolAccess, EthtoolConnection, EthtoolConnector, Feature};
use crate::host::netlink::socket;

const SIOCETHTOOL: Opcode = 0x8946;
const GET_STRINGS: u32 = 0x1b;
const GET_STATS: u32 = 0x1d;
const GET_SET_INFO: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
/// The set of statistics (`ETH_SS_STATS`).
const STATISTICS: u32 = 1;
/// The set of offloads (`ETH_SS_FEATURES`).
const FEATURES: u32 = 4;
/// Most statistics that a driver may have; the largest have some thousands.
const MOST: usize = 1 << 16;

/// `struct ifreq` with a pointer, padded to more than its size on every architecture.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    data: *mut c_void,
    rest: [u64; 2],
}

// SAFETY: the opcode is SIOCETHTOOL, whose argument is a `struct ifreq`; `InterfaceRequest` has its layout and at least its
// size. It writes to the request and to what `data` points at, for which the caller of `ask` is responsible.
unsafe impl Ioctl for InterfaceRequest {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        SIOCETHTOOL
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// Access to the drivers of the running kernel.
pub fn kernel() -> EthtoolAccess {
    let statistics: EthtoolConnector = Arc::new(|| Ok(Box::new(EthtoolSocket::new()?)));
    EthtoolAccess { statistics, netlink: Some(socket::generic()) }
}

/// A socket for `SIOCETHTOOL` on the running kernel.
#[derive(Debug)]
pub struct EthtoolSocket {
    socket: OwnedFd,
}

impl EthtoolSocket {
    /// Opens the socket that ioctls need.
    ///
    /// # Errors
    /// The system has no more sockets.
    pub fn new() -> io::Result<Self> {
        Ok(Self { socket: rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)? })
    }

    /// Sends a command block; the kernel writes its answer into it.
    ///
    /// The kernel writes as much as the interface has at that moment and ignores the size that the block states, so
    /// every block has room for twice the number counted just before, plus 4096 entries.
    fn ask(&self, netdev: &str, block: &mut [u64]) -> io::Result<()> {
        let mut name = [0; 16];
        let text = netdev.as_bytes();
        if text.len() >= name.len() {
            return Err(rustix::io::Errno::NODEV.into());
        }
        name.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        let request = InterfaceRequest { name, data: block.as_mut_ptr().cast(), rest: [0; 2] };
        // SAFETY: `data` points at `block`, which is borrowed mutably for the whole call, begins with a command that
        // the kernel knows, is aligned to 8 bytes, and has room for the answer as described above.
        unsafe { ioctl(&self.socket, request) }?;
        Ok(())
    }

    fn room(count: usize, bytes: usize) -> Vec<u64> {
        vec![0; 2 + (most(count) * bytes).div_ceil(8)]
    }

    fn count_of(&self, netdev: &str, set: u32) -> io::Result<usize> {
        // struct ethtool_sset_info: cmd, reserved, mask, data.
        let mut block = [pair(GET_SET_INFO, 0), 1 << set, 0, 0];
        self.ask(netdev, &mut block)?;
        let [_, mask, data, _] = block;
        let count = if mask == 0 { 0 } else { first(data) };
        if count > MOST { Err(io::ErrorKind::InvalidData.into()) } else { Ok(count) }
    }

    fn names_of(&self, netdev: &str, set: u32, count: usize) -> io::Result<Vec<String>> {
        let mut block = Self::room(count.min(MOST), NAME);
        if let [head, length, ..] = &mut *block {
            *head = pair(GET_STRINGS, set);
            *length = pair(u32::try_from(count).unwrap_or(0), 0);
        }
        self.ask(netdev, &mut block)?;
        Ok(names(&block, count))
    }
}

impl EthtoolConnection for EthtoolSocket {
    fn count(&self, netdev: &str) -> io::Result<usize> {
        self.count_of(netdev, STATISTICS)
    }

    fn names(&self, netdev: &str, count: usize) -> io::Result<Vec<String>> {
        self.names_of(netdev, STATISTICS, count)
    }

    fn values(&self, netdev: &str, count: usize) -> io::Result<Vec<u64>> {
        let mut block = Self::room(count.min(MOST), 8);
        if let Some(head) = block.first_mut() {
            *head = pair(GET_STATS, u32::try_from(count).unwrap_or(0));
        }
        self.ask(netdev, &mut block)?;
        Ok(values(&block))
    }

    fn features(&self, netdev: &str) -> io::Result<Vec<Feature>> {
        let count = self.count_of(netdev, FEATURES)?;
        let names = self.names_of(netdev, FEATURES, count)?;
        let groups = count.div_ceil(32);
        let mut block = Self::room(groups, 16);
        if let Some(head) = block.first_mut() {
            *head = pair(GET_FEATURES, u32::try_from(groups).unwrap_or(0));
        }
        self.ask(netdev, &mut block)?;
        Ok(features(names, &block))
    }
}

/// Bytes of a name (`ETH_GSTRING_LEN`).
const NAME: usize = 32;

/// Most entries that the kernel may write after it reported this count.
const fn most(count: usize) -> usize {
    count.saturating_mul(2).saturating_add(4096)
}

/// Two 32-bit numbers as they lie in memory.
fn pair(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// The first of two 32-bit numbers.
fn first(pair: u64) -> usize {
    let [a, b, c, d, ..] = pair.to_ne_bytes();
    usize::try_from(u32::from_ne_bytes([a, b, c, d])).unwrap_or(0)
}

/// The second.
fn second(pair: u64) -> usize {
    let [_, _, _, _, e, f, g, h] = pair.to_ne_bytes();
    usize::try_from(u32::from_ne_bytes([e, f, g, h])).unwrap_or(0)
}

/// The names of a set (`struct ethtool_gstrings`: cmd, string_set, len, data; they begin at the twelfth byte), at most
/// as many as the kernel may write where `count` were counted.
fn names(block: &[u64], count: usize) -> Vec<String> {
    let length = block.get(1).map_or(0, |length| first(*length)).min(most(count));
    let bytes = block.iter().flat_map(|word| word.to_ne_bytes()).skip(12).take(length.saturating_mul(NAME));
    let bytes: Vec<u8> = bytes.collect();
    let name = |name: &[u8]| {
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        crate::model::text::visible(String::from_utf8_lossy(name.get(..end).unwrap_or_default()).trim()).into_owned()
    };
    bytes.chunks_exact(NAME).map(name).collect()
}

/// Offloads by their names (`struct ethtool_gfeatures`: cmd, size, and for each 32 of them available, requested, active,
/// never_changed): whether each is on, and whether it can't be changed.
fn features(names: Vec<String>, block: &[u64]) -> Vec<Feature> {
    let bit = |index: usize, of: usize| {
        let word = block.get(1 + index / 32 * 2 + of / 2).copied().unwrap_or(0);
        let half = if of.is_multiple_of(2) { first(word) } else { second(word) };
        half >> (index % 32) & 1 == 1
    };
    let feature = |(index, name)| (name, bit(index, 2), !bit(index, 0) || bit(index, 3));
    names.into_iter().enumerate().map(feature).collect()
}

/// The values of statistics (`struct ethtool_stats`: cmd, n_stats, data).
fn values(block: &[u64]) -> Vec<u64> {
    let length = block.first().map_or(0, |head| second(*head));
    block.iter().skip(1).take(length).copied().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_running_kernel_answers() {
        let kernel = EthtoolSocket::new().unwrap();
        assert_eq!(kernel.count("no-such-dev").unwrap_err().raw_os_error(), Some(19));
        assert!(kernel.count("a-name-that-is-far-too-long").is_err());
        for entry in std::fs::read_dir("/sys/class/net").into_iter().flatten() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let Ok(count) = kernel.count(&name) else { continue };
            if count > 0 {
                let (names, values) = (kernel.names(&name, count).unwrap(), kernel.values(&name, count).unwrap());
                assert_eq!((names.len(), values.len()), (count, count), "{name}");
                assert!(names.iter().all(|name| !name.is_empty()), "{names:?}");
            }
        }
    }

    /// A block whose names begin at the twelfth byte.
    fn strings(length: u32, texts: &[&[u8]]) -> Vec<u64> {
        let mut bytes = [0x1bu32.to_ne_bytes(), 1u32.to_ne_bytes(), length.to_ne_bytes()].concat();
        for text in texts {
            bytes.extend(text.iter().chain(std::iter::repeat(&0)).take(NAME));
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn names_end_at_a_zero_or_at_their_field() {
        let long = [b'x'; NAME];
        let block = strings(4, &[b"rx_packets", b"  tx_discards", &long, b"bad\xff"]);
        assert_eq!(names(&block, 4), ["rx_packets", "tx_discards", &"x".repeat(NAME), "bad\u{fffd}"]);
        assert_eq!(names(&strings(u32::MAX, &[b"one"]), 1), ["one"], "no more than there is room for");
        assert_eq!(names(&[], 9), [""; 0]);
    }

    #[test]
    fn offloads_are_bits_of_each_32() {
        // Of 33: the first is available and on, the last neither and fixed.
        let block = [pair(0x3a, 2), pair(1, 1), pair(1, 0), pair(0, 0), pair(1, 1)];
        let told = features((0..33).map(|n| n.to_string()).collect(), &block);
        assert_eq!((&told[0], &told[1]), (&("0".into(), true, false), &("1".into(), false, true)));
        assert_eq!(told[32], ("32".into(), true, true));
        assert_eq!(features(vec!["a".into()], &[]), [("a".into(), false, true)]);
    }

    #[test]
    fn values_are_as_many_as_the_block_says_and_has() {
        assert_eq!(values(&[pair(0x1d, 2), 7, 8, 9]), [7, 8]);
        assert_eq!(values(&[pair(0x1d, 9), 7]), [7]);
        assert_eq!(values(&[]), [0; 0]);
    }

    proptest! {
        #[test]
        fn any_block_parses_without_a_panic(block in proptest::collection::vec(any::<u64>(), 0..40), count in any::<usize>()) {
            let told = names(&block, count);
            prop_assert!(told.len() <= block.len() * 8 / NAME);
            prop_assert_eq!(features(told.clone(), &block).len(), told.len());
            prop_assert!(values(&block).len() <= block.len());
        }
    }
}

//! The running kernel's statistics of an interface (`SIOCETHTOOL`).
//!
//! Drivers' own statistics are to be had by this ioctl alone: ethtool over netlink has the standard groups and the
//! names, not these values. Kernels before that netlink tell their offloads by it, too. It is the one place where this program says `unsafe`: the kernel writes through a pointer
//! within the request, which no safe wrapper can check.

#![expect(unsafe_code, reason = "the kernel writes through a pointer within the request")]

use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};
use rustix::net::{AddressFamily, SocketType, socket};

use super::EthtoolConnection;
use super::block::{self, NAME, first, most, pair};

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
// size. It writes to the request and to what `data` points at, which the caller of `ask` answers for.
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

/// Asks the running kernel.
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
        Ok(Self { socket: socket(AddressFamily::INET, SocketType::DGRAM, None)? })
    }

    /// Asks with a command block, which the kernel writes its answer into.
    ///
    /// The kernel writes as much as the interface has at that moment, whatever the block says it has room for: every
    /// block has room for twice of what was counted just before, and four thousand more.
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
        Ok(block::names(&block, count))
    }

    /// Offloads by the kernel's names: whether each is on, and whether it can't be changed.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn features(&self, netdev: &str) -> io::Result<Vec<(String, bool, bool)>> {
        let count = self.count_of(netdev, FEATURES)?;
        let names = self.names_of(netdev, FEATURES, count)?;
        let groups = count.div_ceil(32);
        let mut block = Self::room(groups, 16);
        if let Some(head) = block.first_mut() {
            *head = pair(GET_FEATURES, u32::try_from(groups).unwrap_or(0));
        }
        self.ask(netdev, &mut block)?;
        Ok(block::features(names, &block))
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
        Ok(block::values(&block))
    }
}

#[cfg(test)]
mod tests {
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
}

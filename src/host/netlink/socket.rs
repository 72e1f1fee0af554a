//! The socket to the kernel.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};

use super::{message, nldev};

/// Someone who answers requests of a netlink protocol.
pub trait Nldev: Send {
    /// Sends a request; the payloads of all its replies, without their headers.
    ///
    /// # Errors
    /// The errno that the kernel answered with; an error without errno when no answer came.
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>>;
}

/// Makes a connection; where there is none (a recorded host), nobody is asked.
pub type Connect = Arc<dyn Fn() -> io::Result<Box<dyn Nldev>> + Send + Sync>;

/// Connects to the running kernel.
pub fn kernel() -> Connect {
    Arc::new(|| Ok(Box::new(Kernel::connect(nldev::PROTOCOL)?)))
}

/// Connects to the running kernel's route netlink, which speaks of the interfaces in the agent's own namespace.
pub fn route() -> Connect {
    Arc::new(|| Ok(Box::new(Kernel::connect(NETLINK_ROUTE)?)))
}

/// Connects to the running kernel's generic netlink, on which families such as `ethtool` and `devlink` speak.
pub fn generic() -> Connect {
    Arc::new(|| Ok(Box::new(Kernel::connect(NETLINK_GENERIC)?)))
}

/// How long an answer that is not there yet is waited for: the kernel answers within the call that asks, so this
/// ends only for an answer that was lost.
const STEP: Duration = Duration::from_millis(1);
const STEPS: u32 = 1000;

struct Kernel {
    socket: Socket,
    sequence: u32,
}

impl Kernel {
    fn connect(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// One datagram from the kernel.
    fn receive(&self) -> io::Result<Vec<u8>> {
        for _ in 0..STEPS {
            match self.socket.recv_from_full() {
                Ok((datagram, sender)) if sender.port_number() == 0 => return Ok(datagram),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(STEP),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Nldev for Kernel {
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = request.to_vec();
        message::number(&mut request, self.sequence);
        self.socket.send(&request, 0)?;
        let mut replies = Vec::new();
        while !message::collect(&self.receive()?, self.sequence, &mut replies)? {}
        Ok(replies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// rtnetlink's RTM_GETLINK speaks the same protocol and is on every kernel.
    #[test]
    fn the_running_kernel_answers() {
        const ROUTE: isize = 0;
        const GET_LINK: u16 = 18;
        let Ok(mut kernel) = Kernel::connect(ROUTE) else { return };
        let links = kernel.ask(&message::request(GET_LINK, true, &[(0, 0), (0, 0)])).unwrap();
        assert!(!links.is_empty());
        let unknown = message::request(GET_LINK, false, &[(0, u32::MAX), (0, 0)]);
        let error = kernel.ask(&unknown).unwrap_err();
        assert!(error.raw_os_error().is_some(), "{error}");
        assert_eq!(kernel.ask(&message::request(GET_LINK, true, &[(0, 0), (0, 0)])).unwrap().len(), links.len());
    }
}

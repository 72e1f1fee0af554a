//! Netlink sockets: connections to the running kernel, and the trait behind which tests fake one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};
use rustix::net::RecvFlags;

use super::{message, nldev};

/// A connection that answers requests of a netlink protocol.
pub trait NetlinkConnection: Send {
    /// Sends a request and returns the payloads of all its replies, without their headers.
    ///
    /// # Errors
    /// The errno that the kernel answered with; an error without errno when no answer came.
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>>;
}

/// Opens a netlink connection.
pub type NetlinkConnector = Arc<dyn Fn() -> io::Result<Box<dyn NetlinkConnection>> + Send + Sync>;

/// A connection that is opened at the first request and kept; it is dropped when a request gets no answer.
pub struct LazyConnection {
    connect: NetlinkConnector,
    connection: Option<Box<dyn NetlinkConnection>>,
}

impl LazyConnection {
    /// Nothing is asked yet.
    pub fn new(connect: NetlinkConnector) -> Self {
        Self { connect, connection: None }
    }

    /// Whether the connection is open, that is, the last request was answered.
    pub fn is_open(&self) -> bool {
        self.connection.is_some()
    }
}

impl NetlinkConnection for LazyConnection {
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            empty => empty.insert((self.connect)()?),
        };
        let replies = connection.ask(request);
        if replies.as_ref().is_err_and(|error| error.raw_os_error().is_none()) {
            self.connection = None;
        }
        replies
    }
}

/// A netlink protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Devices of RDMA.
    Rdma,
    /// Interfaces.
    Route,
    /// Families with names, such as `ethtool` and `devlink`.
    Generic,
}

impl Protocol {
    /// Connects to the running kernel's.
    pub fn connector(self) -> NetlinkConnector {
        match self {
            Self::Rdma => kernel(),
            Self::Route => route(),
            Self::Generic => generic(),
        }
    }
}

/// Connects to the running kernel's rdma netlink.
pub fn kernel() -> NetlinkConnector {
    Arc::new(|| Ok(Box::new(KernelConnection::connect(nldev::PROTOCOL)?)))
}

/// Connects to the running kernel's route netlink, which shows the interfaces of the agent's own network namespace.
pub fn route() -> NetlinkConnector {
    Arc::new(|| Ok(Box::new(KernelConnection::connect(NETLINK_ROUTE)?)))
}

/// Connects to the running kernel's generic netlink, with families such as `ethtool` and `devlink`.
pub fn generic() -> NetlinkConnector {
    Arc::new(|| Ok(Box::new(KernelConnection::connect(NETLINK_GENERIC)?)))
}

/// How long to wait for an answer. The kernel answers within the send call, so the wait ends only after an answer was
/// lost.
const STEP: Duration = Duration::from_millis(1);
const STEPS: u32 = 1000;

/// The kernel's port.
const FROM_KERNEL: u32 = 0;

struct KernelConnection {
    socket: Socket,
    sequence: u32,
}

impl KernelConnection {
    fn connect(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// One datagram from this port; datagrams of other senders are dropped.
    fn receive(&self, port: u32) -> io::Result<Vec<u8>> {
        for _ in 0..STEPS {
            match self.datagram() {
                Ok((datagram, sender)) if sender == port => return Ok(datagram),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(STEP),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// The next datagram and its sender's port. Its length is peeked first, because no fixed buffer fits the VFs of
    /// every card; a datagram longer than announced would be cut off and is an error.
    fn datagram(&self) -> io::Result<(Vec<u8>, u32)> {
        let flags = |flags: RecvFlags| i32::from_ne_bytes(flags.bits().to_ne_bytes());
        let (length, _) = self.socket.recv_from(&mut Vec::new(), flags(RecvFlags::PEEK | RecvFlags::TRUNC))?;
        let mut datagram = Vec::with_capacity(length);
        let (received, sender) = self.socket.recv_from(&mut datagram, flags(RecvFlags::TRUNC))?;
        if received > datagram.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a netlink message was cut off"));
        }
        Ok((datagram, sender.port_number()))
    }
}

impl NetlinkConnection for KernelConnection {
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = request.to_vec();
        message::number(&mut request, self.sequence);
        self.socket.send(&request, 0)?;
        let mut replies = Vec::new();
        while !message::collect(&self.receive(FROM_KERNEL)?, self.sequence, &mut replies)? {}
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
        let Ok(mut kernel) = KernelConnection::connect(ROUTE) else { return };
        let links = kernel.ask(&message::request(GET_LINK, true, &[(0, 0), (0, 0)])).unwrap();
        assert!(!links.is_empty());
        let unknown = message::request(GET_LINK, false, &[(0, u32::MAX), (0, 0)]);
        let error = kernel.ask(&unknown).unwrap_err();
        assert!(error.raw_os_error().is_some(), "{error}");
        assert_eq!(kernel.ask(&message::request(GET_LINK, true, &[(0, 0), (0, 0)])).unwrap().len(), links.len());
    }
    /// User space may speak to itself on this protocol: what is sent is as long as the test wants it.
    #[test]
    fn an_answer_of_any_length_is_received_whole() {
        const AMONG_USERS: isize = 2;
        let Ok(mut socket) = Socket::new(AMONG_USERS) else { return };
        // Not connected to the kernel, which would exclude other senders.
        let own = socket.bind_auto().unwrap();
        socket.set_non_blocking(true).unwrap();
        let receiver = KernelConnection { socket, sequence: 0 };
        let mut sender = Socket::new(AMONG_USERS).unwrap();
        let port = sender.bind_auto().unwrap().port_number();
        for length in [16, 4096, 4097, 32 << 10, 65_536, 100_001] {
            let sent: Vec<u8> = (0..length).map(|at: u32| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
            sender.send_to(&sent, &own, 0).unwrap();
            assert!(receiver.receive(port).unwrap() == sent, "{length} bytes");
        }
        assert_eq!(receiver.receive(port).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}

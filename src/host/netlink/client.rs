//! Client of rdma netlink for one device: its index there, and the commands that the kernel supports.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use super::nldev::{self, NldevCommand};
use super::socket::{LazyConnection, NetlinkConnection, NetlinkConnector};
use crate::host::collector::ReadContext;
use crate::host::io::reason_of;
use crate::model::ids::DeviceName;
use crate::model::reading::ReadError;
use crate::model::time::BootTime;

/// How long an unsupported command is not sent again.
const NOT_OFFERED: Duration = Duration::from_secs(10 * 60);
/// How long a device that netlink does not list is not searched for again.
const NOT_SHOWN: Duration = Duration::from_secs(60);

/// The outcome of a query.
#[derive(Debug, PartialEq, Eq)]
pub enum QueryOutcome {
    /// The attributes of the reply.
    Reply(Vec<u8>),
    /// Netlink has no answer; files may.
    Silent,
    /// The driver failed to answer; reading files would fail the same way.
    Failed(ReadError),
}

/// The [`ReadError`] of an answer. A counter set too large for a message and a kernel without rdma netlink count as not
/// supported.
fn reason_of_answer(error: &io::Error) -> Option<ReadError> {
    const ABSENT: [Errno; 3] = [Errno::MSGSIZE, Errno::PROTONOSUPPORT, Errno::AFNOSUPPORT];
    let absent = ABSENT.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
    if absent { Some(ReadError::NotSupported) } else { reason_of(error) }
}

/// Queries one RDMA device over rdma netlink.
pub struct RdmaNetlinkClient {
    device: DeviceName,
    connection: LazyConnection,
    index: Option<u32>,
    not_shown_until: Option<BootTime>,
    not_offered: Vec<(NldevCommand, BootTime)>,
    concurrent: Option<bool>,
}

impl RdmaNetlinkClient {
    /// Nothing is asked yet.
    pub fn new(device: DeviceName, connect: NetlinkConnector) -> Self {
        let (connection, not_offered) = (LazyConnection::new(connect), Vec::new());
        Self { device, connection, index: None, not_shown_until: None, not_offered, concurrent: None }
    }

    /// Forgets the device's index, after a device of this name was added again.
    pub fn forget(&mut self) {
        self.index = None;
        self.not_shown_until = None;
    }

    /// How many commands are quarantined.
    pub fn not_offered(&self) -> usize {
        self.not_offered.len()
    }

    /// Whether the kernel answers about one device while another one hangs.
    ///
    /// Before Linux 5.4 a mutex was held during every request, so one wedged card blocked all. A kernel that reports
    /// copy-on-fork (5.13) has a reader lock.
    pub fn is_concurrent(&mut self) -> bool {
        if let Some(known) = self.concurrent {
            return known;
        }
        let known = self
            .connection
            .ask(&nldev::system_request())
            .is_ok_and(|replies| replies.first().is_some_and(|reply| nldev::system(reply).copy_on_fork.is_some()));
        *self.concurrent.insert(known)
    }

    /// Queries the device or one of its ports. A failure is recorded as a fault under the command's name; an
    /// unsupported command, once.
    pub fn ask(&mut self, cx: &mut ReadContext<'_>, op: NldevCommand, port: Option<u32>) -> QueryOutcome {
        if self.not_offered.iter().any(|(refused, until)| *refused == op && cx.now < *until) {
            return QueryOutcome::Silent;
        }
        match self.answer(cx.now, op, port) {
            Ok(reply) => {
                self.not_offered.retain(|(refused, _)| *refused != op);
                reply.map_or(QueryOutcome::Silent, QueryOutcome::Reply)
            }
            Err(error) => self.failed(cx, op, port, &error),
        }
    }

    /// All replies of a dump about the device; `None` if netlink has no answer. Failures are recorded as [`Self::ask`]
    /// does.
    pub fn list(&mut self, cx: &mut ReadContext<'_>, op: NldevCommand) -> Option<Vec<Vec<u8>>> {
        if self.not_offered.iter().any(|(refused, until)| *refused == op && cx.now < *until) {
            return None;
        }
        let replies = match self.index(cx.now) {
            Ok(Some(index)) => self.connection.ask(&nldev::dump(op, index)),
            Ok(None) => return None,
            Err(error) => Err(error),
        };
        match replies {
            Ok(replies) if replies.iter().all(|reply| self.is_mine(reply)) => Some(replies),
            Ok(_) => {
                self.index = None;
                None
            }
            Err(error) => {
                self.failed(cx, op, None, &error);
                None
            }
        }
    }

    fn failed(
        &mut self,
        cx: &mut ReadContext<'_>,
        op: NldevCommand,
        port: Option<u32>,
        error: &io::Error,
    ) -> QueryOutcome {
        let Some(reason) = reason_of_answer(error) else { return QueryOutcome::Silent };
        // Without an open connection the request never reached the driver, so files may work.
        let asked = self.connection.is_open() && matches!(reason, ReadError::Io | ReadError::Timeout | ReadError::Gone);
        let again = match self.not_offered.iter_mut().find(|(refused, _)| *refused == op) {
            _ if asked => false,
            Some((_, until)) => {
                *until = cx.now.after(NOT_OFFERED);
                true
            }
            None => {
                self.not_offered.push((op, cx.now.after(NOT_OFFERED)));
                false
            }
        };
        if !again {
            let slash = port.map(|port| format!("/{port}")).unwrap_or_default();
            cx.fault(Path::new(&format!("{} {}{slash}", op.as_str(), self.device)), reason);
        }
        if asked { QueryOutcome::Failed(reason) } else { QueryOutcome::Silent }
    }

    /// The reply; `None` if netlink does not list the device. Tries once more if the index now belongs to another
    /// device.
    fn answer(&mut self, now: BootTime, op: NldevCommand, port: Option<u32>) -> io::Result<Option<Vec<u8>>> {
        for _ in 0..2 {
            let Some(index) = self.index(now)? else { return Ok(None) };
            match self.connection.ask(&nldev::request(op, index, port)) {
                Ok(replies) => match replies.into_iter().next() {
                    Some(reply) if self.is_mine(&reply) => return Ok(Some(reply)),
                    Some(_) => {}
                    None => return Err(io::ErrorKind::InvalidData.into()),
                },
                // EINVAL means either an unknown index or an unsupported command.
                Err(error) if error.raw_os_error() != Some(Errno::INVAL.raw_os_error()) => return Err(error),
                Err(error) => {
                    let named = self.connection.ask(&nldev::request(NldevCommand::Get, index, None));
                    if named.is_ok_and(|replies| replies.first().is_some_and(|reply| self.is_mine(reply))) {
                        return Err(error);
                    }
                }
            }
            self.index = None;
        }
        Ok(None)
    }

    fn is_mine(&self, reply: &[u8]) -> bool {
        nldev::device(reply).name.is_none_or(|name| name == self.device.as_str())
    }

    fn index(&mut self, now: BootTime) -> io::Result<Option<u32>> {
        if self.index.is_some() || self.not_shown_until.is_some_and(|until| now < until) {
            return Ok(self.index);
        }
        let replies = self.connection.ask(&nldev::dump_devices())?;
        let mut devices = replies.iter().map(|reply| nldev::device(reply));
        self.index = devices.find(|device| device.name == Some(self.device.as_str())).and_then(|device| device.index);
        self.not_shown_until = if self.index.is_none() { Some(now.after(NOT_SHOWN)) } else { None };
        Ok(self.index)
    }
}

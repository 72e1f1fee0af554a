//! Asks route netlink for a PF's VF list, with less where the whole does not fit.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::rtnl::{self, VfList};
use crate::host::collector::ReadContext;
use crate::host::io::reason_of;
use crate::host::netlink::socket::{LazyConnection, NetlinkConnection, NetlinkConnector};
use crate::model::reading::ReadError;
use crate::model::sriov::VfDetail;
use crate::model::time::BootTime;

/// How long what the kernel refused is not asked for again.
const PAUSE: Duration = Duration::from_secs(10 * 60);

/// A connection of one PF's reader.
pub(super) struct VfListClient {
    connection: Option<LazyConnection>,
    /// Until when statistics are not asked for.
    too_long: Option<BootTime>,
    /// Until when nothing is asked for, and why.
    refused: Option<(BootTime, ReadError)>,
}

impl VfListClient {
    pub(super) fn new(connect: Option<NetlinkConnector>) -> Self {
        Self { connection: connect.map(LazyConnection::new), too_long: None, refused: None }
    }

    /// The VF list of the first of these interfaces that has one.
    pub(super) fn ask(&mut self, cx: &mut ReadContext<'_>, interfaces: &[Arc<str>]) -> (Option<VfList>, VfDetail) {
        if self.connection.is_none() || interfaces.is_empty() {
            return (None, VfDetail::NotAsked);
        }
        if let Some((_, reason)) = self.refused.filter(|(until, _)| cx.now < *until) {
            return (None, VfDetail::Unavailable(reason));
        }
        let mut detail = VfDetail::NotAsked;
        for interface in interfaces {
            let statistics = self.too_long.is_none_or(|until| cx.now >= until);
            match self.ask_about(cx.now, interface, statistics) {
                Ok((list, statistics)) => {
                    (self.refused, detail) = (None, VfDetail::Full);
                    if list.announced.is_some() || !list.entries.is_empty() {
                        let detail = if statistics { VfDetail::Full } else { VfDetail::WithoutStatistics };
                        return (Some(list), detail);
                    }
                }
                Err(error) => {
                    let Some(reason) = reason(&error) else { continue };
                    if self.refused.is_none() {
                        cx.fault(Path::new(&format!("RTM_GETLINK {interface}")), reason);
                    }
                    self.refused = Some((cx.now.after(PAUSE), reason));
                    detail = VfDetail::Unavailable(reason);
                }
            }
        }
        (None, detail)
    }

    /// The list, and whether it has statistics. A list that does not fit into a message is asked for without them.
    fn ask_about(&mut self, now: BootTime, interface: &str, statistics: bool) -> io::Result<(VfList, bool)> {
        if statistics {
            match self.exchange(&rtnl::request(interface, true)) {
                Ok(reply) => {
                    let list = rtnl::list(&reply);
                    if !list.cut {
                        return Ok((list, true));
                    }
                }
                Err(error) if error.raw_os_error() != Some(Errno::MSGSIZE.raw_os_error()) => return Err(error),
                Err(_) => {}
            }
            self.too_long = Some(now.after(PAUSE));
        }
        Ok((rtnl::list(&self.exchange(&rtnl::request(interface, false))?), false))
    }

    fn exchange(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        let connection = self.connection.as_mut().ok_or(io::ErrorKind::NotFound)?;
        connection.ask(request)?.into_iter().next().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Why there is no list; none for an interface that went away meanwhile.
fn reason(error: &io::Error) -> Option<ReadError> {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NODEV) => None,
        Some(Errno::MSGSIZE) => Some(ReadError::NotSupported),
        _ => reason_of(error),
    }
}

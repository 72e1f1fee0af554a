//! One interface's settings.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::{NetdevLocation, ReadFeatures, dcb, features};
use crate::host::collector::{DeviceReader, ReadContext};
use crate::host::ethtool::standard::{FAMILY, refused};
use crate::host::file::PolledFile;
use crate::host::io::reason_of;
use crate::host::netlink::generic::{self, GenericFamily, is};
use crate::host::netlink::socket::{LazyConnection, NetlinkConnection, NetlinkConnector};
use crate::host::text;
use crate::model::netsetup::{Dcb, Ecn, Ipoib, NetdevSetup, Offload, Priorities, PriorityTrust};
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;

/// How long what an interface does not offer is not asked for.
const NOT_OFFERED: Duration = Duration::from_secs(10 * 60);

pub(super) struct NetdevSetupReader {
    netdev: Arc<str>,
    location: NetdevLocation,
    route: Option<LazyConnection>,
    no_dcb_until: Option<BootTime>,
    family: Option<GenericFamily>,
    ioctl: Option<ReadFeatures>,
    no_features_until: Option<BootTime>,
}

impl NetdevSetupReader {
    pub(super) fn new(netdev: Arc<str>, location: NetdevLocation) -> Self {
        Self { netdev, location, route: None, no_dcb_until: None, family: None, ioctl: None, no_features_until: None }
    }

    /// Gives it whom to ask; a recorded host has files alone.
    pub(super) fn asking(
        self,
        route: Option<NetlinkConnector>,
        generic: Option<NetlinkConnector>,
        ioctl: Option<ReadFeatures>,
    ) -> Self {
        Self {
            route: route.map(LazyConnection::new),
            family: generic.map(|connect| GenericFamily::new(FAMILY, connect)),
            ioctl,
            ..self
        }
    }

    fn dcb(&mut self, cx: &mut ReadContext<'_>) -> Dcb {
        if self.no_dcb_until.is_some_and(|until| cx.now < until) {
            return Dcb::default();
        }
        self.no_dcb_until = None;
        let driver = cx.host.io.link(&self.location.function.join("driver")).ok();
        // This driver goes by DSCP from the first entry for DSCP to the last.
        let by_dscp_alone = driver.is_some_and(|driver| driver.ends_with("mlx5_core"));
        match self.ask_route() {
            Ok(replies) => replies.first().map(|reply| dcb::reply(reply, by_dscp_alone)).unwrap_or_default(),
            Err(error) => {
                if self.failed(cx, "RTM_GETDCB", &error) {
                    self.no_dcb_until = Some(cx.now.after(NOT_OFFERED));
                }
                Dcb::default()
            }
        }
    }

    fn ask_route(&mut self) -> io::Result<Vec<Vec<u8>>> {
        self.route.as_mut().map_or_else(|| Ok(Vec::new()), |route| route.ask(&dcb::request(&self.netdev)))
    }

    /// Over netlink, or by the ioctl where that is not offered.
    fn offloads(&mut self, cx: &mut ReadContext<'_>) -> Vec<Offload> {
        if self.no_features_until.is_some_and(|until| cx.now < until) {
            return Vec::new();
        }
        self.no_features_until = None;
        let said = match &mut self.family {
            Some(family) => family.ask(cx.now, features::GET, false, &features::request(&self.netdev)),
            None => Ok(None),
        };
        let listed = match said {
            Ok(Some(replies)) => {
                let reply = replies.first();
                return reply.map(|reply| features::offloads(generic::attributes(reply))).unwrap_or_default();
            }
            Err(error) if !refused(&error) => Err(error),
            Ok(None) | Err(_) => match &self.ioctl {
                Some(ioctl) => ioctl(&self.netdev),
                None => Ok(Vec::new()),
            },
        };
        match listed {
            Ok(listed) => {
                if listed.is_empty() {
                    self.no_features_until = Some(cx.now.after(NOT_OFFERED));
                }
                features::listed(&listed)
            }
            Err(error) => {
                if self.failed(cx, "ETHTOOL_MSG_FEATURES_GET", &error) {
                    self.no_features_until = Some(cx.now.after(NOT_OFFERED));
                }
                Vec::new()
            }
        }
    }

    /// Notes an error, unless it says that there is no such thing or no such interface; true for no such thing.
    fn failed(&self, cx: &mut ReadContext<'_>, what: &str, error: &io::Error) -> bool {
        let refused = refused(error);
        if !refused && !is(error, &[Errno::NODEV]) {
            let reason = reason_of(error).unwrap_or(ReadError::Io);
            cx.fault(Path::new(&format!("{what} {}", self.netdev)), reason);
        }
        refused
    }

    fn file<T>(&self, cx: &mut ReadContext<'_>, name: &str, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Option<T> {
        PolledFile::new(self.location.directory.join(name)).read_unless_down(cx, parse).value()
    }

    fn ipoib(&self, cx: &mut ReadContext<'_>) -> Option<Ipoib> {
        let mode = self.file(cx, "mode", text::label)?;
        let user_multicast = self.file(cx, "umcast", text::counter).map(|on| on != 0);
        Some(Ipoib { mode, user_multicast })
    }

    /// `qos/trust` of out-of-tree drivers.
    fn trust(&self, cx: &mut ReadContext<'_>) -> Option<PriorityTrust> {
        match &*self.file(cx, "qos/trust", text::label)? {
            "dscp" => Some(PriorityTrust::Dscp),
            "pcp" => Some(PriorityTrust::Pcp),
            _ => None,
        }
    }

    /// `ecn/roce_{np,rp}/enable/<priority>` of out-of-tree drivers.
    fn ecn(&self, cx: &mut ReadContext<'_>) -> Option<Ecn> {
        let mut point = |name: &str| {
            let directory = format!("ecn/{name}/enable");
            let names = cx.host.io.list(&self.location.directory.join(&directory)).ok()?;
            let on = (0..8u8).filter(|priority| {
                names.contains(&priority.to_string())
                    && self.file(cx, &format!("{directory}/{priority}"), text::counter).is_some_and(|on| on != 0)
            });
            Some(Priorities(on.fold(0, |set, priority| set | 1 << priority)))
        };
        let notifies = point("roce_np")?;
        Some(Ecn { notifies, reacts: point("roce_rp")? })
    }
}

impl DeviceReader for NetdevSetupReader {
    /// Nothing for an interface that says nothing.
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let mut dcb = self.dcb(cx);
        dcb.trust = self.trust(cx).or(dcb.trust);
        let setup = NetdevSetup {
            netdev: Arc::clone(&self.netdev),
            pci_address: self.location.pci_address,
            device: self.location.device.clone(),
            dcb,
            ecn: self.ecn(cx),
            ipoib: self.ipoib(cx),
            offloads: self.offloads(cx),
            at: cx.now,
        };
        let silent =
            setup.dcb == Dcb::default() && setup.ecn.is_none() && setup.ipoib.is_none() && setup.offloads.is_empty();
        if silent { Vec::new() } else { vec![Arc::new(setup)] }
    }

    fn quarantined(&self) -> usize {
        let features = self.no_features_until.filter(|_| self.family.is_some() || self.ioctl.is_some());
        usize::from(self.no_dcb_until.is_some()) + usize::from(features.is_some())
    }
}

//! One interface's settings.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::{Ioctl, Place, dcb, features};
use crate::host::collector::{Lane, Pass};
use crate::host::ethtool::standard::{FAMILY, refused};
use crate::host::file::Watched;
use crate::host::io::reason_of;
use crate::host::netlink::generic::{self, Family, is};
use crate::host::netlink::socket::{Connect, Kept, Nldev};
use crate::host::text;
use crate::model::netsetup::{Dcb, Ecn, Ipoib, NetdevSetup, Offload, Priorities, PriorityTrust};
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;

/// How long what an interface does not offer is not asked for.
const NOT_OFFERED: Duration = Duration::from_secs(10 * 60);

pub(super) struct SetupLane {
    netdev: Arc<str>,
    place: Place,
    route: Option<Kept>,
    no_dcb_until: Option<BootTime>,
    family: Option<Family>,
    ioctl: Option<Ioctl>,
    no_features_until: Option<BootTime>,
}

impl SetupLane {
    pub(super) fn new(netdev: Arc<str>, place: Place) -> Self {
        Self { netdev, place, route: None, no_dcb_until: None, family: None, ioctl: None, no_features_until: None }
    }

    /// Gives it whom to ask; a recorded host has files alone.
    pub(super) fn asking(self, route: Option<Connect>, generic: Option<Connect>, ioctl: Option<Ioctl>) -> Self {
        Self { route: route.map(Kept::new), family: generic.map(|connect| Family::new(FAMILY, connect)), ioctl, ..self }
    }

    fn dcb(&mut self, pass: &mut Pass<'_>) -> Dcb {
        if self.no_dcb_until.is_some_and(|until| pass.now < until) {
            return Dcb::default();
        }
        self.no_dcb_until = None;
        let driver = pass.host.io.link(&self.place.function.join("driver")).ok();
        // This driver goes by DSCP from the first entry for DSCP to the last.
        let by_dscp_alone = driver.is_some_and(|driver| driver.ends_with("mlx5_core"));
        match self.ask_route() {
            Ok(replies) => replies.first().map(|reply| dcb::reply(reply, by_dscp_alone)).unwrap_or_default(),
            Err(error) => {
                if self.failed(pass, "RTM_GETDCB", &error) {
                    self.no_dcb_until = Some(pass.now.after(NOT_OFFERED));
                }
                Dcb::default()
            }
        }
    }

    fn ask_route(&mut self) -> io::Result<Vec<Vec<u8>>> {
        self.route.as_mut().map_or_else(|| Ok(Vec::new()), |route| route.ask(&dcb::request(&self.netdev)))
    }

    /// Over netlink, or by the ioctl where that is not offered.
    fn offloads(&mut self, pass: &mut Pass<'_>) -> Vec<Offload> {
        if self.no_features_until.is_some_and(|until| pass.now < until) {
            return Vec::new();
        }
        self.no_features_until = None;
        let said = match &mut self.family {
            Some(family) => family.ask(pass.now, features::GET, false, &features::request(&self.netdev)),
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
                    self.no_features_until = Some(pass.now.after(NOT_OFFERED));
                }
                features::listed(&listed)
            }
            Err(error) => {
                if self.failed(pass, "ETHTOOL_MSG_FEATURES_GET", &error) {
                    self.no_features_until = Some(pass.now.after(NOT_OFFERED));
                }
                Vec::new()
            }
        }
    }

    /// Notes an error, unless it says that there is no such thing or no such interface; true for no such thing.
    fn failed(&self, pass: &mut Pass<'_>, what: &str, error: &io::Error) -> bool {
        let refused = refused(error);
        if !refused && !is(error, &[Errno::NODEV]) {
            let reason = reason_of(error).unwrap_or(ReadError::Io);
            pass.fault(Path::new(&format!("{what} {}", self.netdev)), reason);
        }
        refused
    }

    fn file<T>(&self, pass: &mut Pass<'_>, name: &str, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Option<T> {
        Watched::new(self.place.directory.join(name)).read_unless_down(pass, parse).value()
    }

    fn ipoib(&self, pass: &mut Pass<'_>) -> Option<Ipoib> {
        let mode = self.file(pass, "mode", text::label)?;
        let user_multicast = self.file(pass, "umcast", text::counter).map(|on| on != 0);
        Some(Ipoib { mode, user_multicast })
    }

    /// `qos/trust` of out-of-tree drivers.
    fn trust(&self, pass: &mut Pass<'_>) -> Option<PriorityTrust> {
        match &*self.file(pass, "qos/trust", text::label)? {
            "dscp" => Some(PriorityTrust::Dscp),
            "pcp" => Some(PriorityTrust::Pcp),
            _ => None,
        }
    }

    /// `ecn/roce_{np,rp}/enable/<priority>` of out-of-tree drivers.
    fn ecn(&self, pass: &mut Pass<'_>) -> Option<Ecn> {
        let mut point = |name: &str| {
            let directory = format!("ecn/{name}/enable");
            let names = pass.host.io.list(&self.place.directory.join(&directory)).ok()?;
            let on = (0..8u8).filter(|priority| {
                names.contains(&priority.to_string())
                    && self.file(pass, &format!("{directory}/{priority}"), text::counter).is_some_and(|on| on != 0)
            });
            Some(Priorities(on.fold(0, |set, priority| set | 1 << priority)))
        };
        let notifies = point("roce_np")?;
        Some(Ecn { notifies, reacts: point("roce_rp")? })
    }
}

impl Lane for SetupLane {
    /// Nothing for an interface that says nothing.
    fn read(&mut self, pass: &mut Pass<'_>) -> Vec<Fact> {
        let mut dcb = self.dcb(pass);
        dcb.trust = self.trust(pass).or(dcb.trust);
        let setup = NetdevSetup {
            netdev: Arc::clone(&self.netdev),
            pci_address: self.place.pci_address,
            device: self.place.device.clone(),
            dcb,
            ecn: self.ecn(pass),
            ipoib: self.ipoib(pass),
            offloads: self.offloads(pass),
            at: pass.now,
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

//! One port of a device: its files, and what netlink says in their stead.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::counters::{CounterDirs, CounterSource, stamp};
use super::identity::once;
use super::parse;
use crate::host::collector::ReadContext;
use crate::host::file::PolledFile;
use crate::host::io::DirStamp;
use crate::host::netlink::client::{QueryOutcome, RdmaNetlinkClient};
use crate::host::netlink::nldev::{self, NldevCommand};
use crate::host::text;
use crate::model::ids::Guid;
use crate::model::rdma::{LinkLayer, PhysicalState, Port, PortRate, PortState};
use crate::model::reading::Reading;

/// How much of a port a pass reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct PortScope {
    /// Counters and everything else that may change.
    pub(super) full: bool,
    /// What seldom changes.
    pub(super) seldom: bool,
}

/// A port and the files it is read from.
pub(super) struct PortFiles {
    number: u32,
    dir: PathBuf,
    stamp: Option<DirStamp>,
    state_file: PolledFile,
    physical_state_file: PolledFile,
    rate_file: PolledFile,
    lid_file: PolledFile,
    sm_lid_file: PolledFile,
    counters: CounterDirs,
    link_layer: Option<LinkLayer>,
    guid: Option<Guid>,
    netdev: Option<Arc<str>>,
    state: Reading<PortState>,
    physical_state: Reading<PhysicalState>,
    rate: Reading<PortRate>,
    lids: (Option<u32>, Option<u32>),
}

impl PortFiles {
    /// A port in the `ports` directory of a device; nothing is read yet.
    pub(super) fn new(ports: &Path, number: u32) -> Self {
        let dir = ports.join(number.to_string());
        let file = |name: &str| PolledFile::new(dir.join(name));
        Self {
            number,
            stamp: None,
            state_file: file("state"),
            physical_state_file: file("phys_state"),
            rate_file: file("rate"),
            lid_file: file("lid"),
            sm_lid_file: file("sm_lid"),
            counters: CounterDirs::of_port(&dir),
            link_layer: None,
            guid: None,
            netdev: None,
            state: Reading::Absent,
            physical_state: Reading::Absent,
            rate: Reading::Absent,
            lids: (None, None),
            dir,
        }
    }

    /// Looks whether the port is still the one it was; true when it is another one or its counters are.
    pub(super) fn refresh(&mut self, cx: &mut ReadContext<'_>) -> bool {
        let Ok(now) = stamp(cx, &self.dir) else { return false };
        let another = now != self.stamp;
        if another {
            if let Some(ports) = self.dir.parent() {
                *self = Self::new(ports, self.number);
            }
            self.stamp = now;
        }
        self.counters.refresh(cx) || another
    }

    /// Reads the port; none when its directory is not there.
    ///
    /// Each of `state`, `phys_state`, `rate`, `lid` and `sm_lid` makes the driver query the port anew; netlink tells
    /// all but the rate from one query.
    pub(super) fn read(
        &mut self,
        cx: &mut ReadContext<'_>,
        scope: PortScope,
        client: Option<&mut RdmaNetlinkClient>,
    ) -> Option<Port> {
        self.stamp?;
        if scope.seldom && self.link_layer.is_none() {
            self.link_layer = once(cx, &self.dir.join("link_layer"), parse::link_layer);
        }
        let mut client = client;
        let answer = match &mut client {
            Some(client) => client.ask(cx, NldevCommand::PortGet, Some(self.number)),
            None => QueryOutcome::Silent,
        };
        let before = (self.state, self.physical_state);
        self.read_states(cx, &answer);
        let moved = before != (self.state, self.physical_state);
        if moved && self.rate_file.is_quarantined() {
            self.rate_file = PolledFile::new(self.dir.join("rate"));
        }
        if scope.full || moved {
            // Of a port that is down, `rate` says nothing, something wrong, or EINVAL.
            let active = matches!(self.state, Reading::Value(PortState::Active | PortState::ActiveDefer));
            self.rate = if active { self.rate_file.read(cx, parse::rate) } else { Reading::Absent };
            // Ethernet has no subnet manager and no LIDs; netlink leaves them out, the files say 0.
            if answer == QueryOutcome::Silent && self.link_layer != Some(LinkLayer::Ethernet) {
                let lid = self.lid_file.read(cx, parse::lid).value();
                self.lids = (lid, self.sm_lid_file.read(cx, parse::lid).value());
            }
        }
        if scope.seldom {
            self.read_seldom(cx);
        }
        if let QueryOutcome::Reply(reply) = &answer {
            self.take_netdev(nldev::port(reply).netdev);
        }
        if scope.full {
            self.read_counters(cx, client);
        }
        Some(self.port())
    }

    fn read_states(&mut self, cx: &mut ReadContext<'_>, answer: &QueryOutcome) {
        let told = match answer {
            QueryOutcome::Failed(reason) => {
                (self.state, self.physical_state) = (Reading::Unreadable(*reason), Reading::Unreadable(*reason));
                self.lids = (None, None);
                return;
            }
            QueryOutcome::Reply(reply) => nldev::port(reply),
            QueryOutcome::Silent => nldev::PortAttributes::default(),
        };
        self.state = match told.state {
            Some(code) => PortState::from_code(code).into(),
            None => self.state_file.read(cx, parse::state),
        };
        self.physical_state = match told.physical_state {
            Some(code) => PhysicalState::from_code(code).into(),
            None => self.physical_state_file.read(cx, parse::physical_state),
        };
        if matches!(answer, QueryOutcome::Reply(_)) {
            self.lids = (told.lid, told.sm_lid);
        }
    }

    /// The GID table's first entry, from the kernel's memory.
    fn read_seldom(&mut self, cx: &mut ReadContext<'_>) {
        self.guid = once(cx, &self.dir.join("gids/0"), parse::gid);
        // EINVAL is how the kernel says that the entry has no interface, as on every InfiniBand port.
        let netdev = PolledFile::new(self.dir.join("gid_attrs/ndevs/0")).read_unless_down(cx, text::label);
        self.netdev = netdev.value();
    }

    fn take_netdev(&mut self, name: Option<&str>) {
        if name.is_some() && self.netdev.as_deref() != name {
            self.netdev = name.map(Arc::from);
        }
    }

    fn read_counters(&mut self, cx: &mut ReadContext<'_>, client: Option<&mut RdmaNetlinkClient>) {
        let answer = match client {
            Some(client) if self.counters.has_hardware() => client.ask(cx, NldevCommand::StatGet, Some(self.number)),
            _ => QueryOutcome::Silent,
        };
        let source = match &answer {
            QueryOutcome::Reply(reply) => CounterSource::Reply(reply),
            QueryOutcome::Silent => CounterSource::Files,
            QueryOutcome::Failed(_) => CounterSource::Nothing,
        };
        self.counters.read(cx, &source);
    }

    fn port(&self) -> Port {
        Port {
            number: self.number,
            link_layer: self.link_layer.clone(),
            state: self.state,
            physical_state: self.physical_state,
            rate: self.rate,
            lid: self.lids.0,
            sm_lid: self.lids.1,
            netdev: self.netdev.clone(),
            guid: self.guid,
            pma: self.counters.pma(),
            hardware: self.counters.hardware(),
        }
    }

    /// How many of its files are left alone for now.
    pub(super) fn quarantined(&self) -> usize {
        let files = [&self.state_file, &self.physical_state_file, &self.rate_file, &self.lid_file, &self.sm_lid_file];
        files.into_iter().filter(|file| file.is_quarantined()).count() + self.counters.quarantined()
    }
}

//! Windows over counters of loss and congestion on Ethernet ports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::model::history::{CounterWindow, History};
use crate::model::ids::PortKey;
use crate::model::net;
use crate::model::net::{NetdevSetup, PFC_FRAMES};
use crate::model::net::{NetdevStatistics, StatisticKind};
use crate::model::rdma::{LinkLayer, RdmaDevice};
use crate::model::snapshot::Snapshot;
use crate::model::time::BootTime;

/// The time that windows look back.
pub const SPAN: Duration = Duration::from_secs(300);

/// When each source was last taken.
#[derive(Debug, Default)]
pub struct RoceWindows {
    netdevs: BTreeMap<Arc<str>, BootTime>,
    setups: BTreeMap<Arc<str>, BootTime>,
    ports: BTreeMap<PortKey, BootTime>,
}

impl RoceWindows {
    /// Takes a pass into the windows.
    pub fn observe(&mut self, history: &mut History, snapshot: &Snapshot) {
        for statistics in snapshot.all::<NetdevStatistics>() {
            if self.netdevs.insert(Arc::clone(&statistics.netdev), statistics.at) == Some(statistics.at) {
                continue;
            }
            let windows = history.netdevs.entry(Arc::clone(&statistics.netdev)).or_default();
            for (statistic, value) in statistics.iter().filter(|(known, _)| known.meaning != StatisticKind::Percent) {
                let window = windows.entry(Arc::clone(&statistic.name)).or_insert_with(|| CounterWindow::new(SPAN));
                window.push(statistics.at, value);
            }
        }
        for setup in snapshot.all::<NetdevSetup>() {
            if self.setups.insert(Arc::clone(&setup.netdev), setup.at) == Some(setup.at) {
                continue;
            }
            // Frames that were not counted before the first one was: from none on.
            let Some(pfc) = setup.dcb.pfc else { continue };
            let windows = history.netdevs.entry(Arc::clone(&setup.netdev)).or_default();
            let window = windows.entry(Arc::from(PFC_FRAMES)).or_insert_with(|| CounterWindow::new(SPAN));
            window.push(setup.at, pfc.total().unwrap_or(0));
        }
        for device in snapshot.devices() {
            self.observe_device(history, device);
        }
    }

    fn observe_device(&mut self, history: &mut History, device: &RdmaDevice) {
        for port in device.ports.iter().filter(|port| port.link_layer == Some(LinkLayer::Ethernet)) {
            let key = PortKey { device: device.name.clone(), port: port.number };
            if self.ports.insert(key.clone(), device.counters_at) == Some(device.counters_at) {
                continue;
            }
            let windows = history.roce.entry(key).or_default();
            for name in net::roce_counters() {
                if let Some(value) = port.counter(name) {
                    windows.entry(name).or_insert_with(|| CounterWindow::new(SPAN)).push(device.counters_at, value);
                }
            }
        }
    }

    /// Forgets a port that is gone.
    pub fn forget_port(&mut self, key: &PortKey) {
        self.ports.remove(key);
    }

    /// Forgets an interface that is gone.
    pub fn forget_netdev(&mut self, netdev: &str) {
        self.netdevs.remove(netdev);
        self.setups.remove(netdev);
    }
}

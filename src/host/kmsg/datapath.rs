//! What `hv_netvsc` and `net_failover` say of an interface and its VF, in the words of `drivers/net/hyperv/netvsc.c`,
//! `drivers/net/hyperv/netvsc_drv.c` and `drivers/net/net_failover.c`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::record::When;
use crate::model::datapath::{DataPathLog, LOSSES_REMEMBERED, MOST_LOSSES};
use crate::model::time::BootTime;

/// Most interfaces: a guest has some.
const MOST_INTERFACES: usize = 64;

/// What a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// The VF is used from now on.
    ToVf,
    /// The hypervisor's path is used from now on.
    FromVf,
    /// The host gave a VF.
    Returned,
    /// The host takes the VF back.
    Revoked,
    /// The VF went away, and its path with it.
    RevokedFromVf,
    /// The VF came, and is used once it is up.
    ReturnedToVf,
}

/// The interface that a line is about, and what it says.
fn read(text: &str) -> Option<(&str, Said)> {
    if let Some((before, after)) = text.split_once(": Data path switched ") {
        let said = if after.starts_with("to VF: ") { Said::ToVf } else { Said::FromVf };
        return after.contains("VF: ").then_some(before).and_then(|before| named(before, said));
    }
    if let Some((before, after)) = text.split_once(": VF slot ") {
        let (slot, what) = after.split_once(' ')?;
        let said = match what {
            "added" => Said::Returned,
            "removed" => Said::Revoked,
            _ => return None,
        };
        return slot.bytes().all(|byte| byte.is_ascii_digit()).then_some(before).and_then(|before| named(before, said));
    }
    let (before, after) = text.split_once(": failover primary slave:")?;
    let said = match after.rsplit_once(' ')?.1 {
        "registered" => Said::ReturnedToVf,
        "unregistered" => Said::RevokedFromVf,
        _ => return None,
    };
    named(before, said)
}

/// `hv_netvsc <device> eth0`, with its state behind it while the interface is being made or removed.
fn named(before: &str, said: Said) -> Option<(&str, Said)> {
    let names = before.split(" (").next().unwrap_or(before);
    Some((names.rsplit(' ').next().filter(|name| !name.is_empty())?, said))
}

/// What was said, by interface.
#[derive(Debug, Default)]
pub(super) struct DataPathLogs {
    by_interface: BTreeMap<Arc<str>, DataPathLog>,
    /// Lines whose time is not settled yet.
    pending: Vec<(When, Arc<str>, Said, bool)>,
}

impl DataPathLogs {
    /// Takes a line; `is_new`: it came since the agent started.
    pub(super) fn take(&mut self, text: &str, when: When, is_new: bool) {
        if let Some((netdev, said)) = read(text) {
            self.pending.push((when, Arc::from(netdev), said, is_new));
        }
    }

    /// Takes in what came, with its time.
    pub(super) fn settle(&mut self, at: impl Fn(When) -> BootTime) {
        for (when, netdev, said, is_new) in std::mem::take(&mut self.pending) {
            if !self.by_interface.contains_key(&netdev) && self.by_interface.len() >= MOST_INTERFACES {
                continue;
            }
            let log = self
                .by_interface
                .entry(Arc::clone(&netdev))
                .or_insert_with(|| DataPathLog { netdev, ..DataPathLog::default() });
            let switched = matches!(said, Said::ToVf | Said::FromVf | Said::RevokedFromVf | Said::ReturnedToVf);
            log.switched += u64::from(is_new && switched);
            log.revoked += u64::from(is_new && matches!(said, Said::Revoked | Said::RevokedFromVf));
            log.returned += u64::from(is_new && matches!(said, Said::Returned | Said::ReturnedToVf));
            if matches!(said, Said::FromVf | Said::RevokedFromVf) {
                log.left.push(at(when));
                let surplus = log.left.len().saturating_sub(MOST_LOSSES);
                log.left.drain(..surplus);
            }
        }
    }

    /// What was said, without what is long ago.
    pub(super) fn logs(&mut self, now: BootTime) -> Vec<DataPathLog> {
        for log in self.by_interface.values_mut() {
            log.left.retain(|at| now.since(*at) <= LOSSES_REMEMBERED);
        }
        self.by_interface.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_drivers_own_words() {
        let device = "hv_netvsc 000d3a6c-71f2-000d-3a6c-71f2000d3a6c";
        for (line, expected) in [
            (format!("{device} eth0: Data path switched to VF: enP40338s1"), Some(("eth0", Said::ToVf))),
            (format!("{device} eth0: Data path switched from VF: enP40338s1"), Some(("eth0", Said::FromVf))),
            (format!("{device} eth0: VF slot 1 added"), Some(("eth0", Said::Returned))),
            (format!("{device} eth1 (unregistering): VF slot 12 removed"), Some(("eth1", Said::Revoked))),
            (format!("{device} eth0: VF registering: enP40338s1"), None),
            (format!("{device} eth0: VF unregistering: enP40338s1"), None),
            (format!("{device} eth0: VF slot one removed"), None),
            (
                "virtio_net virtio0 ens3: failover primary slave:ens4 registered".to_owned(),
                Some(("ens3", Said::ReturnedToVf)),
            ),
            (
                "virtio_net virtio0 ens3: failover primary slave:ens4 unregistered".to_owned(),
                Some(("ens3", Said::RevokedFromVf)),
            ),
            ("virtio_net virtio0 ens3: failover standby slave:ens3nsby registered".to_owned(), None),
            ("virtio_net virtio0 ens3: failover master:ens3 registered".to_owned(), None),
        ] {
            assert_eq!(read(&line), expected, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in any::<String>(), like in "[a-z0-9 ]{0,8}: (Data path switched|VF slot|failover primary slave:)[a-zA-Z0-9 :]{0,16}") {
            let _ = (read(&text), read(&like));
        }
    }
}

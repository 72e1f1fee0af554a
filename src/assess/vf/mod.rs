//! VFs: counts, holders, identities, configuration, and whether the map can be trusted.

pub(super) mod config;
mod counts;
pub mod holders;
mod holding;
mod identity;
mod stale;

use std::collections::BTreeMap;

use super::View;
use super::limits::VF_HOLD;
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::holder::Holder;
use crate::model::ids::PciAddress;
use crate::model::reason::FindingReason;
use crate::model::sriov::QidMap;
use crate::model::sriov::{Pf, Vf, VfKey};
use crate::model::vfmap::MappedVf;
use holders::HolderSources;

/// What the checks of VFs look at.
struct Scene<'a> {
    view: &'a View<'a>,
    sources: HolderSources<'a>,
    pfs: Vec<&'a Pf>,
    /// Queue pair maps by PF, where there are any.
    qid_maps: BTreeMap<PciAddress, &'a QidMap>,
}

impl<'a> Scene<'a> {
    /// Every VF with its PF and its row in the map.
    fn vfs(&self) -> impl Iterator<Item = Seen<'a>> {
        let map = &self.view.history.vf_map;
        self.pfs.iter().copied().flat_map(move |pf| {
            pf.vfs.iter().filter_map(move |vf| {
                let key = VfKey { pf: pf.address, vf: vf.number };
                Some(Seen { pf, vf, key, row: map.vfs.get(&key)? })
            })
        })
    }

    /// The VF behind an address.
    fn at(&self, address: PciAddress) -> Option<Seen<'a>> {
        self.vfs().find(|seen| seen.vf.address == Some(address))
    }
}

/// One VF.
#[derive(Clone, Copy)]
struct Seen<'a> {
    pf: &'a Pf,
    vf: &'a Vf,
    key: VfKey,
    row: &'a MappedVf,
}

impl Seen<'_> {
    fn subject(&self) -> Subject {
        Subject::Vf(self.key)
    }

    /// Its name with its address and holder, for sentences.
    fn name(&self) -> String {
        let at = self.vf.address.map(|address| format!(" ({address})")).unwrap_or_default();
        format!("VF {} of {}{at}", self.key.vf, self.key.pf)
    }

    /// An interface of its PF, for commands.
    fn interface(&self) -> &str {
        self.pf.netdevs.first().map_or("PF", |name| name)
    }

    fn condition(&self, check: Check, severity: Severity, reason: FindingReason, summary: String) -> Condition {
        let holder = &self.row.holder;
        Condition::new(check, self.subject(), severity, reason, summary)
            .address(self.vf.address)
            .device(self.vf.devices.first().cloned())
            .with_evidence("driver", self.vf.driver.as_deref())
            .with_evidence("holder_kind", Some(holder.kind()))
            .with_evidence("holder", Some(holder.name()).filter(|name| !name.is_empty()))
            .with_holder_names(holder)
            .hold(VF_HOLD)
    }

    /// Whether someone besides this host's own drivers uses it, as far as can be told.
    fn is_used(&self) -> bool {
        let hidden = matches!(self.row.holder, Holder::Unknown(_)) && self.vf.is_for_user_space();
        self.row.holder.is_guest() || hidden
    }
}

/// Every check of VFs.
pub fn all(view: &View<'_>, verdicts: &mut Verdicts) {
    let qid_maps = view.snapshot.all::<QidMap>().map(|map| (map.pf, map)).collect();
    let scene =
        Scene { view, sources: HolderSources::new(view.snapshot), pfs: view.snapshot.all::<Pf>().collect(), qid_maps };
    counts::mismatch(&scene, verdicts);
    counts::unmatched(&scene, verdicts);
    counts::pf_down(&scene, verdicts);
    config::link_disabled(&scene, verdicts);
    holding::orphan(&scene, verdicts);
    holding::dangling(&scene, verdicts);
    holding::group_shared(&scene, verdicts);
    holding::driver(&scene, verdicts);
    identity::zero(&scene, verdicts);
    identity::duplicate(&scene, verdicts);
    identity::changed(&scene, verdicts);
    config::leftover(&scene, verdicts);
    config::drifted(&scene, verdicts);
    stale::map(&scene, verdicts);
}

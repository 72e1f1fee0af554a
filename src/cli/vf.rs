//! `lanewatch vf`: the VF map, who holds what, since when.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use super::args::{Vf as Flags, VfFormat};
use super::failure::Failure;
use super::look::look;
use super::lookup::is_named;
use super::moment::moment;
use super::print;
use super::settings::Settings;
use crate::export::{json, text};
use crate::model::event::{Event, EventKind};
use crate::model::sriov::Pf;
use crate::model::time::rfc3339;
use crate::watch::store::Store;

/// Shows the map.
///
/// # Errors
/// There is no such PF, the time is not one, or the host cannot be looked at.
pub fn run(settings: &Settings, flags: &Flags) -> Result<ExitCode, Failure> {
    let since = flags.since.as_deref().map(|text| moment(text, SystemTime::now())).transpose()?;
    let report = look(settings, Duration::ZERO, flags.timeout)?;
    let mut pfs: Vec<&Pf> = report.snapshot.all().collect();
    pfs.sort_by_key(|pf| pf.address);
    if let Some(name) = &flags.pf {
        let known: Vec<String> = pfs.iter().map(|pf| pf.address.to_string()).collect();
        pfs.retain(|pf| is_named(pf, name));
        if pfs.is_empty() {
            let there =
                if known.is_empty() { "there is none".to_owned() } else { format!("there is {}", known.join(", ")) };
            return Err(Failure::Usage(format!("no PF {name:?} here; {there}")));
        }
    }
    let changes = since.map(|since| changes(settings, &pfs, flags.pf.is_some(), since));
    let text = match flags.format {
        VfFormat::Text => text::vf::map(&report, &pfs, changes.as_deref()),
        VfFormat::Json => {
            let document = json::vf::map(&report, &pfs, changes.as_deref().unwrap_or_default());
            serde_json::to_string_pretty(&document).map_err(anyhow::Error::from)? + "\n"
        }
    };
    print(text.as_bytes())
}

/// What the agent's journal says of VFs since a time, of these PFs or of all; oldest first.
fn changes(settings: &Settings, pfs: &[&Pf], only: bool, since: SystemTime) -> Vec<Event> {
    let from = rfc3339(since);
    let about = |event: &Event| {
        let of_pf = |pf: &&Pf| event.subject.starts_with(&pf.address.to_string());
        !only || event.kind == EventKind::Migration || pfs.iter().any(of_pf)
    };
    let events = Store::new(settings.storage.clone()).peek().events;
    let kinds = [EventKind::VfChanged, EventKind::Migration];
    // Times of one form compare as texts.
    events.into_iter().filter(|event| kinds.contains(&event.kind) && event.time >= from && about(event)).collect()
}

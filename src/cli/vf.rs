//! `lanewatch vf`: the VF map, who holds what, since when.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use super::args::VfArgs;
use super::args::values::parse_time;
use super::args::values::{Color, DocumentFormat};
use super::error::CliError;
use super::one_shot::read_once;
use super::output::{print, print_styled, style};
use super::selection::pf_matches;
use super::settings::Settings;
use crate::export::{json, text};
use crate::model::finding::{Event, EventKind};
use crate::model::sriov::Pf;
use crate::model::time::rfc3339;
use crate::watch::store::Store;

/// Shows the map.
///
/// # Errors
/// There is no such PF, the time is not one, or the host cannot be looked at.
pub fn run(settings: &Settings, args: &VfArgs) -> Result<ExitCode, CliError> {
    let since =
        args.since.as_deref().map(|text| parse_time(text, SystemTime::now())).transpose().map_err(CliError::Usage)?;
    let report = read_once(settings, Duration::ZERO, args.timeout)?;
    let mut pfs: Vec<&Pf> = report.snapshot.all().collect();
    pfs.sort_by_key(|pf| pf.address);
    if let Some(name) = &args.pf {
        let known: Vec<String> = pfs.iter().map(|pf| pf.address.to_string()).collect();
        pfs.retain(|pf| pf_matches(pf, name));
        if pfs.is_empty() {
            let there =
                if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
            return Err(CliError::Usage(format!("no PF {name:?} on this host; {there}")));
        }
    }
    let changes = since.map(|since| changes(settings, &pfs, args.pf.is_some(), since));
    let style = style(Color::Auto);
    let text = match args.format {
        DocumentFormat::Text => text::vf::map(&report, &pfs, changes.as_deref(), &style),
        DocumentFormat::Json => {
            let document = json::vf::map(&report, &pfs, changes.as_deref().unwrap_or_default());
            return Ok(print(&(serde_json::to_string_pretty(&document).map_err(anyhow::Error::from)? + "\n"))?);
        }
    };
    Ok(print_styled(&text, &style)?)
}

/// What the agent's journal says of VFs since a time, of these PFs or of all; oldest first.
fn changes(settings: &Settings, pfs: &[&Pf], only: bool, since: SystemTime) -> Vec<Event> {
    let from = rfc3339(since);
    let about = |event: &Event| {
        let of_pf = |pf: &&Pf| event.subject.starts_with(&pf.address.to_string());
        !only || event.kind == EventKind::Migration || pfs.iter().any(of_pf)
    };
    if settings.demo {
        return Vec::new();
    }
    let events = Store::new(settings.storage.clone()).events();
    let kinds = [EventKind::VfChanged, EventKind::Migration];
    // Times of one form compare as texts.
    events.into_iter().filter(|event| kinds.contains(&event.kind) && event.time >= from && about(event)).collect()
}

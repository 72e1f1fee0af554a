//! `lanewatch vf`: the VF map, who holds what, since when.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use super::args::{Vf as Flags, VfFormat};
use super::failure::Failure;
use super::look::look;
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

/// Whether a PF goes by this name: its address, with or without the domain, an interface or an RDMA device.
fn is_named(pf: &Pf, name: &str) -> bool {
    let address = pf.address.to_string();
    address == name
        || address.strip_prefix("0000:") == Some(name)
        || pf.netdevs.iter().any(|netdev| **netdev == *name)
        || pf.devices.iter().any(|device| device.as_str() == name)
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

/// A moment: RFC 3339, or how long ago.
fn moment(text: &str, now: SystemTime) -> Result<SystemTime, Failure> {
    let ago = humantime::parse_duration(text).ok().and_then(|time| now.checked_sub(time));
    ago.or_else(|| humantime::parse_rfc3339_weak(text).ok()).ok_or_else(|| {
        Failure::Usage(format!("{text:?} is no time: how long ago (30m, 2h, 1d), or 2026-01-31T12:00:00Z"))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moments() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        assert_eq!(moment("1h", now).ok(), Some(now - Duration::from_secs(3600)));
        assert_eq!(moment(&rfc3339(now), SystemTime::UNIX_EPOCH).ok(), Some(now));
        assert!(moment("yesterday", now).is_err());
        for (text, time) in [("90000d", "1970-01-01T00:00:00Z"), ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z")] {
            assert_eq!(moment(text, now).map(rfc3339).ok().as_deref(), Some(time), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_a_moment(text in any::<String>(), like in "[0-9]{1,22}(ns|s|m|h|d|y|T|Z|-|:){0,3}") {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
            let _ = (moment(&text, now).map(rfc3339).is_ok(), moment(&like, now).map(rfc3339).is_ok());
        }
    }
}

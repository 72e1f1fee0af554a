//! The audit of a fleet: as text, as CSV, as JSON.

pub mod csv;
pub mod json;
pub mod text;

use crate::fleet::facts::HostId;
use crate::fleet::host::Sums;
use crate::fleet::tally::Fleet;
use crate::model::units::BytesPerSecond;

/// The causes for which bandwidth is stranded, with their words.
fn causes(sums: &Sums) -> [(&'static str, BytesPerSecond); 5] {
    [
        ("degraded links", sums.degraded),
        ("slots", sums.slot),
        ("by design", sums.design),
        ("ports down", sums.down),
        ("devices gone", sums.missing),
    ]
}

/// A host's name for people: its `instance`, after its job where there are several.
fn name(fleet: &Fleet, id: &HostId) -> String {
    let values =
        fleet.identity.iter().zip(id.0.iter()).filter(|(label, _)| *label != "job" || fleet.identity.len() == 1);
    let words: Vec<&str> = values.map(|(_, value)| &**value).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests;

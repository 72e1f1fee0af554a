//! Network interfaces of a PF: its own, and in switchdev mode the representors of its VFs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::vf::stamp;
use crate::host::collector::Pass;
use crate::host::file::Watched;
use crate::host::text;
use crate::model::reading::{ReadError, Reading};
use crate::model::sriov::Fabric;

/// One interface.
pub(super) struct Interface {
    pub(super) name: Arc<str>,
    directory: PathBuf,
    hardware: Option<u64>,
    operstate: Watched,
    /// The VF that it represents; none inside for the PF's own. Not asked for while the PF has one interface only.
    part: Option<Part>,
}

/// What an interface is in its card's switch (`phys_port_name`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The card's own port (`p0`), or an interface of a card without a switch.
    Own,
    /// The representor of a VF (`pf0vf3`).
    Vf(u32),
    /// Another representor (`pf0`, `pf0sf88`).
    Other,
}

impl Interface {
    pub(super) fn new(parent: &Path, name: &str) -> Self {
        let directory = parent.join(name);
        Self {
            name: Arc::from(name),
            hardware: None,
            operstate: Watched::new(directory.join("operstate")),
            part: None,
            directory,
        }
    }

    /// What it is. Only a PF with several interfaces can have representors.
    pub(super) fn part(&mut self, pass: &mut Pass<'_>, alone: bool) -> Part {
        if alone {
            return Part::Own;
        }
        *self.part.get_or_insert_with(|| {
            let mut file = Watched::new(self.directory.join("phys_port_name"));
            // Ordinary cards refuse this file.
            match file.read_unless_down(pass, text::label) {
                Reading::Value(name) => part(&name),
                Reading::Absent | Reading::Unreadable(_) => Part::Own,
            }
        })
    }

    /// What it runs on (`type`).
    pub(super) fn fabric(&mut self, pass: &mut Pass<'_>) -> Option<Fabric> {
        if self.hardware.is_none() {
            self.hardware = Watched::new(self.directory.join("type")).read(pass, text::counter).value();
        }
        match self.hardware? {
            1 => Some(Fabric::Ethernet),
            32 => Some(Fabric::InfiniBand),
            _ => None,
        }
    }

    /// Whether it is up; absent where it does not say.
    pub(super) fn up(&mut self, pass: &mut Pass<'_>) -> Reading<bool> {
        self.operstate.read(pass, up)
    }

    /// Which making of the interface this is.
    pub(super) fn instance(&self, pass: &mut Pass<'_>) -> Option<u64> {
        stamp(pass, &self.directory)
    }
}

fn up(bytes: &[u8]) -> Reading<bool> {
    match bytes {
        b"up" => Reading::Value(true),
        b"down" | b"lowerlayerdown" | b"notpresent" => Reading::Value(false),
        b"unknown" | b"dormant" | b"testing" => Reading::Absent,
        _ => Reading::Unreadable(ReadError::Malformed),
    }
}

/// `p0`, `p0s1`, `pf0`, `pf0vf3`, `pf0sf88`, with `c1` in front for another controller.
fn part(name: &str) -> Part {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let name = match name.strip_prefix('c') {
        Some(rest) if digits(rest) > 0 => rest.get(digits(rest)..).unwrap_or_default(),
        _ => name,
    };
    let Some(rest) = name.strip_prefix("pf") else { return Part::Own };
    let rest = rest.get(digits(rest)..).unwrap_or_default();
    rest.strip_prefix("vf").and_then(|number| number.parse().ok()).map_or(Part::Other, Part::Vf)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ports_and_representors() {
        for (name, expected) in [
            ("p0", Part::Own),
            ("p1s2", Part::Own),
            ("pf0", Part::Other),
            ("pf0vf3", Part::Vf(3)),
            ("c1pf0vf12", Part::Vf(12)),
            ("pf1sf88", Part::Other),
            ("7", Part::Own),
        ] {
            assert_eq!(part(name), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn whatever_stands_there(name in "[a-z0-9é]{0,12}") {
            let _ = (part(&name), up(name.as_bytes()));
        }
    }
}

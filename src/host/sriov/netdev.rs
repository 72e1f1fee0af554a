//! Network interfaces of a PF: its own, and in switchdev mode the representors of its VFs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::vf::stamp;
use crate::host::collector::ReadContext;
use crate::host::file::{PolledFile, read_once};
use crate::host::text;
use crate::model::reading::{ReadError, Reading};
use crate::model::sriov::Fabric;

/// One interface.
pub(super) struct PfNetdev {
    pub(super) name: Arc<str>,
    directory: PathBuf,
    hardware: Option<u64>,
    operstate: PolledFile,
    /// Its role in the card's switch; `None` while the PF has one interface only.
    switch_role: Option<SwitchRole>,
}

/// Role of an interface in its card's switch (`phys_port_name`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SwitchRole {
    /// The card's own port (`p0`), or an interface of a card without a switch.
    Own,
    /// The representor of a VF (`pf0vf3`).
    Vf(u32),
    /// Another representor (`pf0`, `pf0sf88`).
    Other,
}

impl PfNetdev {
    pub(super) fn new(parent: &Path, name: &str) -> Self {
        let directory = parent.join(name);
        Self {
            name: Arc::from(name),
            hardware: None,
            operstate: PolledFile::new(directory.join("operstate")),
            switch_role: None,
            directory,
        }
    }

    /// Its role. Only a PF with several interfaces can have representors.
    pub(super) fn switch_role(&mut self, cx: &mut ReadContext<'_>, alone: bool) -> SwitchRole {
        if alone {
            return SwitchRole::Own;
        }
        *self.switch_role.get_or_insert_with(|| {
            let mut file = PolledFile::new(self.directory.join("phys_port_name"));
            // Cards without a switch reject reads of this file.
            match file.read_unless_down(cx, text::label) {
                Reading::Value(name) => switch_role(&name),
                Reading::Absent | Reading::Unreadable(_) => SwitchRole::Own,
            }
        })
    }

    /// Its fabric (`type`).
    pub(super) fn fabric(&mut self, cx: &mut ReadContext<'_>) -> Option<Fabric> {
        if self.hardware.is_none() {
            self.hardware = read_once(cx, &self.directory.join("type"), text::counter);
        }
        match self.hardware? {
            1 => Some(Fabric::Ethernet),
            32 => Some(Fabric::InfiniBand),
            _ => None,
        }
    }

    /// Whether it is up; absent if unknown.
    pub(super) fn up(&mut self, cx: &mut ReadContext<'_>) -> Reading<bool> {
        self.operstate.read(cx, up)
    }

    /// Identity of the interface: changes when it is created again.
    pub(super) fn instance(&self, cx: &mut ReadContext<'_>) -> Option<u64> {
        stamp(cx, &self.directory)
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
fn switch_role(name: &str) -> SwitchRole {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let name = match name.strip_prefix('c') {
        Some(rest) if digits(rest) > 0 => rest.get(digits(rest)..).unwrap_or_default(),
        _ => name,
    };
    let Some(rest) = name.strip_prefix("pf") else { return SwitchRole::Own };
    let rest = rest.get(digits(rest)..).unwrap_or_default();
    rest.strip_prefix("vf").and_then(|number| number.parse().ok()).map_or(SwitchRole::Other, SwitchRole::Vf)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ports_and_representors() {
        for (name, expected) in [
            ("p0", SwitchRole::Own),
            ("p1s2", SwitchRole::Own),
            ("pf0", SwitchRole::Other),
            ("pf0vf3", SwitchRole::Vf(3)),
            ("c1pf0vf12", SwitchRole::Vf(12)),
            ("pf1sf88", SwitchRole::Other),
            ("7", SwitchRole::Own),
        ] {
            assert_eq!(switch_role(name), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_input_parses_without_a_panic(name in "[a-z0-9é]{0,12}") {
            let _ = (switch_role(&name), up(name.as_bytes()));
        }
    }
}

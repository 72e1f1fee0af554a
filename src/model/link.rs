//! The physical link of a network interface: why it is down, in the words of the kernel.

use std::fmt;
use std::sync::Arc;

/// Why an interface has no link, as its driver says (`enum ethtool_link_ext_state` and its substates,
/// `include/uapi/linux/ethtool.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkCause {
    /// The state's number. 0 is a state of its own (autonegotiation), not its absence.
    pub state: u8,
    /// The substate's number within the state, from 1; `None` if the driver gives none.
    pub substate: Option<u8>,
}

/// States by number, and their substates from 1, in the words that `ethtool` prints.
const STATES: [(&str, &[&str]); 11] = [
    (
        "Autoneg",
        &[
            "No partner detected",
            "Ack not received",
            "Next page exchange failed",
            "No partner detected during force mode",
            "FEC mismatch during override",
            "No HCD",
        ],
    ),
    (
        "Link training failure",
        &[
            "KR frame lock not acquired",
            "KR link inhibit timeout",
            "KR Link partner did not set receiver ready",
            "Remote side is not ready yet",
        ],
    ),
    (
        "Logical mismatch",
        &[
            "PCS did not acquire block lock",
            "PCS did not acquire AM lock",
            "PCS did not get align_status",
            "FC FEC is not locked",
            "RS FEC is not locked",
        ],
    ),
    (
        "Bad signal integrity",
        &["Large number of physical errors", "Unsupported rate", "Serdes reference clock lost", "Serdes ALOS"],
    ),
    ("No cable", &[]),
    ("Cable issue", &["Unsupported cable", "Cable test failure"]),
    ("EEPROM issue", &[]),
    ("Calibration failure", &[]),
    ("Power budget exceeded", &[]),
    ("Overheat", &[]),
    ("Module", &["CMIS module is not in ModuleReady state"]),
];

impl LinkCause {
    fn words(self) -> (Option<&'static str>, Option<&'static str>) {
        let Some((state, substates)) = STATES.get(usize::from(self.state)) else { return (None, None) };
        let substate = self.substate.and_then(|number| substates.get(usize::from(number).checked_sub(1)?));
        (Some(state), substate.copied())
    }

    /// The state as a label value: `bad_signal_integrity`; the number if it has no word.
    pub fn state_label(self) -> String {
        self.words().0.map_or_else(|| self.state.to_string(), snake)
    }

    /// The substate as a label value: `large_number_of_physical_errors`; the number if it has no word, empty if there
    /// is none.
    pub fn substate_label(self) -> String {
        let number = || self.substate.map(|number| number.to_string()).unwrap_or_default();
        self.words().1.map_or_else(number, snake)
    }
}

/// A text as a label value: lower case, with underscores.
fn snake(text: &str) -> String {
    text.chars().map(|char| if char.is_ascii_alphanumeric() { char.to_ascii_lowercase() } else { '_' }).collect()
}

impl fmt::Display for LinkCause {
    /// As `ethtool` prints it: `Bad signal integrity, Large number of physical errors`; numbers where there is no word.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (state, substate) = self.words();
        match state {
            Some(state) => f.write_str(state)?,
            None => write!(f, "state {}", self.state)?,
        }
        match (substate, self.substate) {
            (Some(substate), _) => write!(f, ", {substate}"),
            (None, Some(number)) => write!(f, ", substate {number}"),
            (None, None) => Ok(()),
        }
    }
}

/// What the driver says of an interface's link (ethtool netlink, `LINKSTATE_GET`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetdevLink {
    /// The interface.
    pub netdev: Arc<str>,
    /// Why it is down; `None` if the driver gives no reason.
    pub cause: Option<LinkCause>,
    /// How often in a row the driver gave this answer while the link was down.
    pub answers: u32,
}

/// Answers in a row from which on a reason is steady: firmware changes it while it tries to bring the link up.
pub const STEADY_ANSWERS: u32 = 3;

impl NetdevLink {
    /// Whether the driver gave the same answer often enough.
    pub const fn is_steady(&self) -> bool {
        self.answers >= STEADY_ANSWERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_ethtool() {
        let cause = |state, substate| LinkCause { state, substate };
        for (cause, text, labels) in [
            (cause(0, None), "Autoneg", ["autoneg", ""]),
            (cause(0, Some(6)), "Autoneg, No HCD", ["autoneg", "no_hcd"]),
            (
                cause(3, Some(1)),
                "Bad signal integrity, Large number of physical errors",
                ["bad_signal_integrity", "large_number_of_physical_errors"],
            ),
            (
                cause(10, Some(1)),
                "Module, CMIS module is not in ModuleReady state",
                ["module", "cmis_module_is_not_in_moduleready_state"],
            ),
            (cause(4, Some(9)), "No cable, substate 9", ["no_cable", "9"]),
            (cause(12, None), "state 12", ["12", ""]),
            (cause(200, Some(0)), "state 200, substate 0", ["200", "0"]),
        ] {
            assert_eq!(cause.to_string(), text);
            assert_eq!([cause.state_label(), cause.substate_label()], labels);
        }
    }
}

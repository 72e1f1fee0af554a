//! What happens to the second card, and when.

use std::time::Duration;

/// How the second card is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its link is at 16 GT/s x16.
    Healthy,
    /// Its link has trained to 8 GT/s x8.
    Degraded,
    /// Its port has lost its link.
    LinkLost,
}

/// The link degrades so soon that a visitor sees it, and stays so for a minute and a half.
const DEGRADES: u64 = 8;
const RECOVERS: u64 = 98;
/// The port is gone for longer than the pause between two readings.
const LOSES_LINK: u64 = 150;
const REGAINS_LINK: u64 = 158;
/// How long it is until all begins again.
const ROUND: u64 = 210;
/// The port loses its link in one round of so many (six hours): the warning stays for an hour, and three of them in
/// twelve hours would be critical.
const FLAPS_EVERY: u64 = 108;

/// How the second card is at a time since the beginning.
pub fn phase(now: Duration) -> Phase {
    match now.as_secs() % ROUND {
        DEGRADES..RECOVERS => Phase::Degraded,
        LOSES_LINK..REGAINS_LINK if round(now).is_multiple_of(FLAPS_EVERY) => Phase::LinkLost,
        _ => Phase::Healthy,
    }
}

/// How often all has begun again.
pub(super) fn round(now: Duration) -> u64 {
    now.as_secs() / ROUND
}

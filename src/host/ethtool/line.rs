//! Errors on a line, from what FEC counts (`ETHTOOL_MSG_FEC_GET`) and from drivers' own statistics.

use std::sync::Arc;

use crate::model::line::{FecBin, FecMode, LineErrors};
use crate::model::time::BootTime;

/// What error correction counted, by the kernel's lists: all lanes together, and then each lane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FecCounts {
    /// Codewords with errors that were corrected.
    pub corrected: Vec<u64>,
    /// Codewords that could not be corrected.
    pub lost: Vec<u64>,
    /// Bits that were corrected.
    pub bits: Vec<u64>,
    /// Codewords by the number of symbols that were corrected.
    pub bins: Vec<FecBin>,
}

/// Bits that FEC corrected, by drivers' names: before correction they were wrong.
const CORRECTED_BITS: [&str; 2] = ["rx_corrected_bits_phy", "rx_corrected_bits"];
const CORRECTED_CODEWORDS: [&str; 1] = ["rx_fec_corrected_blocks"];
const LOST_CODEWORDS: [&str; 1] = ["rx_fec_uncorrectable_blocks"];
/// Symbols that were wrong after all correction.
const SYMBOL_ERRORS: [&str; 2] = ["rx_pcs_symbol_err_phy", "rx_pcs_symbol_err"];
const LINK_DOWNS: [&str; 2] = ["link_down_events_phy", "link_down_events"];

/// Lanes of `rx_err_lane_<n>_phy`; a lane that would be beyond is of no cable.
const MOST_LANES: u8 = 8;

/// What is counted of a line; `None` if nothing is.
pub fn line_errors(
    netdev: &Arc<str>,
    fec: Option<FecMode>,
    counts: &FecCounts,
    statistics: impl Fn(&str) -> Option<u64>,
    at: BootTime,
) -> Option<LineErrors> {
    let named = |names: &[&str]| names.iter().find_map(|name| statistics(name));
    let total = |counts: &[u64], names: &[&str]| counts.first().copied().or_else(|| named(names));
    let own_lanes: Vec<u64> =
        (0..MOST_LANES).map_while(|lane| statistics(&format!("rx_err_lane_{lane}_phy"))).collect();
    let lanes_are_statistics = !own_lanes.is_empty();
    let lanes = if lanes_are_statistics { own_lanes } else { counts.bits.get(1..).unwrap_or_default().to_vec() };
    let errors = LineErrors {
        netdev: Arc::clone(netdev),
        fec,
        corrected_bits: total(&counts.bits, &CORRECTED_BITS),
        lanes,
        lanes_are_statistics,
        corrected_codewords: total(&counts.corrected, &CORRECTED_CODEWORDS),
        lost_codewords: total(&counts.lost, &LOST_CODEWORDS),
        symbol_errors: named(&SYMBOL_ERRORS),
        bins: counts.bins.clone(),
        link_downs: named(&LINK_DOWNS),
        at,
    };
    let counts_something = errors.corrected_bits.is_some()
        || errors.corrected_codewords.is_some()
        || errors.lost_codewords.is_some()
        || errors.symbol_errors.is_some()
        || !errors.lanes.is_empty()
        || !errors.bins.is_empty();
    counts_something.then_some(errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(counts: &FecCounts, statistics: &[(&str, u64)]) -> Option<LineErrors> {
        let find = |name: &str| statistics.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        line_errors(&Arc::from("eth2"), Some(FecMode::Rs), counts, find, BootTime(0))
    }

    #[test]
    fn each_drivers_names_mean_the_same() {
        let mlx5 = [
            ("rx_corrected_bits_phy", 90),
            ("rx_err_lane_0_phy", 10),
            ("rx_err_lane_1_phy", 80),
            ("rx_pcs_symbol_err_phy", 3),
            ("link_down_events_phy", 2),
        ];
        let counts = FecCounts { corrected: vec![70], lost: vec![1], ..FecCounts::default() };
        let errors = made(&counts, &mlx5).unwrap();
        assert_eq!((errors.corrected_bits, errors.lanes, errors.lanes_are_statistics), (Some(90), vec![10, 80], true));
        assert_eq!((errors.corrected_codewords, errors.lost_codewords), (Some(70), Some(1)));
        assert_eq!((errors.symbol_errors, errors.link_downs), (Some(3), Some(2)));
        let bnxt = [
            ("rx_corrected_bits", 90),
            ("rx_fec_corrected_blocks", 70),
            ("rx_fec_uncorrectable_blocks", 1),
            ("rx_pcs_symbol_err", 3),
            ("link_down_events", 2),
        ];
        let errors = made(&FecCounts::default(), &bnxt).unwrap();
        assert_eq!((errors.corrected_bits, errors.corrected_codewords), (Some(90), Some(70)));
        assert_eq!((errors.lost_codewords, errors.symbol_errors, errors.link_downs), (Some(1), Some(3), Some(2)));
        // Lanes that FEC itself counts.
        let errors = made(&FecCounts { bits: vec![9, 4, 5], ..FecCounts::default() }, &[]).unwrap();
        assert_eq!((errors.corrected_bits, errors.lanes, errors.lanes_are_statistics), (Some(9), vec![4, 5], false));
        assert_eq!(made(&FecCounts::default(), &[("rx_discards_phy", 4), ("link_down_events", 1)]), None);
    }
}

//! Which of a driver's statistics are known, and what they mean. Drivers have hundreds, by queue and by size of
//! packet; only what is in this table becomes a metric.

use crate::model::counter::CounterClass::{self, Congestion, Error, Other};
use crate::model::net::{PauseDirection, StatisticKind};

/// Names with their class.
type KnownStatistic = (&'static str, CounterClass);

/// `drivers/net/ethernet/mellanox/mlx5/core/en_stats.c`.
#[rustfmt::skip]
const MLX5: &[KnownStatistic] = &[
    ("rx_discards_phy", Congestion), ("tx_discards_phy", Congestion), ("rx_out_of_buffer", Congestion),
    ("rx_buffer_passed_thres_phy", Congestion), ("outbound_pci_buffer_overflow", Congestion),
    ("outbound_pci_stalled_rd_events", Congestion), ("outbound_pci_stalled_wr_events", Congestion),
    ("dev_internal_queue_oob", Congestion), ("dev_out_of_buffer", Congestion), ("rx_steer_missed_packets", Other),
    ("tx_pause_storm_warning_events", Congestion), ("tx_pause_storm_error_events", Error),
    ("rx_global_pause", Congestion), ("tx_global_pause", Congestion),
    ("rx_crc_errors_phy", Error), ("rx_symbol_err_phy", Error), ("rx_pcs_symbol_err_phy", Error),
    ("rx_in_range_len_errors_phy", Error), ("rx_out_of_range_len_phy", Error), ("rx_oversize_pkts_phy", Error),
    ("rx_fragments_phy", Error), ("rx_jabbers_phy", Error), ("rx_unsupported_op_phy", Error), ("tx_errors_phy", Error),
    ("rx_corrected_bits_phy", Other), ("link_down_events_phy", Error), ("module_unplug", Other),
    ("total_success_recovery_phy", Other),
    ("module_bus_stuck", Error), ("module_high_temp", Error), ("module_bad_shorted", Error),
    ("rx_pci_signal_integrity", Error), ("tx_pci_signal_integrity", Error),
];

/// `drivers/net/ethernet/intel/ice/ice_ethtool.c`.
#[rustfmt::skip]
const ICE: &[KnownStatistic] = &[
    ("rx_dropped.nic", Congestion), ("tx_dropped_link_down.nic", Error), ("rx_crc_errors.nic", Error),
    ("tx_errors.nic", Error), ("illegal_bytes.nic", Error), ("mac_local_faults.nic", Error),
    ("mac_remote_faults.nic", Error), ("tx_timeout.nic", Error), ("rx_undersize.nic", Error),
    ("rx_fragments.nic", Error), ("rx_oversize.nic", Error), ("rx_jabber.nic", Error), ("link_xoff_rx.nic", Congestion),
    ("link_xoff_tx.nic", Congestion),
];

/// `drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c`.
#[rustfmt::skip]
const BNXT: &[KnownStatistic] = &[
    ("rx_total_discard_pkts", Congestion), ("tx_total_discard_pkts", Congestion), ("rx_stat_discard", Congestion),
    ("rx_fcs_err_frames", Error), ("rx_align_err_frames", Error), ("rx_pause_frames", Congestion),
    ("tx_pause_frames", Congestion), ("link_down_events", Error), ("continuous_pause_events", Congestion),
    ("rx_buffer_passed_threshold", Congestion), ("rx_pcs_symbol_err", Error), ("rx_corrected_bits", Other),
    ("rx_fec_corrected_blocks", Other), ("rx_fec_uncorrectable_blocks", Error), ("rx_total_l4_csum_errors", Error),
    ("tx_err", Error), ("rx_runt_frames", Error), ("rx_jbr_frames", Error),
];

/// Meaning of a statistic by its name; `None` if it is unknown.
pub fn meaning(name: &str) -> Option<StatisticKind> {
    let listed = [MLX5, ICE, BNXT].into_iter().flatten().find(|(known, _)| *known == name);
    if let Some((_, class)) = listed {
        return Some(StatisticKind::Event(*class));
    }
    if matches!(name, "outbound_pci_stalled_rd" | "outbound_pci_stalled_wr") {
        return Some(StatisticKind::Percent);
    }
    mlx5(name).or_else(|| bnxt(name)).or_else(|| ice(name))
}

/// `rx_prio3_pause`, `tx_prio3_pause_duration`, `rx_global_pause_duration`, `rx_prio3_discards`; lanes of the line.
fn mlx5(name: &str) -> Option<StatisticKind> {
    if name.starts_with("rx_err_lane_") && name.ends_with("_phy") {
        return Some(StatisticKind::Event(Error));
    }
    let (direction, rest) = directed(name)?;
    if rest == "global_pause_duration" {
        return Some(StatisticKind::PauseMicroseconds { priority: None, direction });
    }
    let (priority, what) = numbered(rest.strip_prefix("prio")?)?;
    match what {
        "_pause" => Some(StatisticKind::PfcFrames { priority, direction }),
        "_pause_duration" => Some(StatisticKind::PauseMicroseconds { priority: Some(priority), direction }),
        "_pause_transition" | "_discards" | "_buf_discard" | "_cong_discard" | "_marked" => {
            Some(StatisticKind::Event(Congestion))
        }
        _ => None,
    }
}

/// `rx_pfc_ena_frames_pri3`, `pfc_pri3_tx_duration_us`.
fn bnxt(name: &str) -> Option<StatisticKind> {
    if let Some((direction, rest)) = directed(name) {
        let (priority, rest) = numbered(rest.strip_prefix("pfc_ena_frames_pri")?)?;
        return rest.is_empty().then_some(StatisticKind::PfcFrames { priority, direction });
    }
    let (priority, rest) = numbered(name.strip_prefix("pfc_pri")?)?;
    let (direction, rest) = directed(rest.strip_prefix('_')?)?;
    match rest {
        "duration_us" => Some(StatisticKind::PauseMicroseconds { priority: Some(priority), direction }),
        "transitions" => Some(StatisticKind::Event(Congestion)),
        _ => None,
    }
}

/// `tx_priority_3_xoff.nic`; the frames that end a pause (`xon`) are none.
fn ice(name: &str) -> Option<StatisticKind> {
    let (direction, rest) = directed(name)?;
    let (priority, rest) = numbered(rest.strip_prefix("priority_")?)?;
    (rest == "_xoff.nic").then_some(StatisticKind::PfcFrames { priority, direction })
}

fn directed(name: &str) -> Option<(PauseDirection, &str)> {
    let received = name.strip_prefix("rx_").map(|rest| (PauseDirection::Received, rest));
    received.or_else(|| name.strip_prefix("tx_").map(|rest| (PauseDirection::Transmitted, rest)))
}

/// A priority, 0 to 7, and what follows it.
fn numbered(text: &str) -> Option<(u8, &str)> {
    let (first, rest) = text.split_at_checked(1)?;
    let priority = first.parse().ok().filter(|priority| *priority < 8)?;
    (!rest.starts_with(|next: char| next.is_ascii_digit())).then_some((priority, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_every_driver() {
        use PauseDirection::{Received, Transmitted};
        let table = [
            ("rx_discards_phy", Some(StatisticKind::Event(Congestion))),
            ("rx_prio3_pause", Some(StatisticKind::PfcFrames { priority: 3, direction: Received })),
            (
                "tx_prio0_pause_duration",
                Some(StatisticKind::PauseMicroseconds { priority: Some(0), direction: Transmitted }),
            ),
            (
                "rx_global_pause_duration",
                Some(StatisticKind::PauseMicroseconds { priority: None, direction: Received }),
            ),
            ("rx_prio7_discards", Some(StatisticKind::Event(Congestion))),
            ("rx_prio3_bytes", None),
            ("rx_prio8_pause", None),
            ("rx_prio33_pause", None),
            ("outbound_pci_stalled_rd", Some(StatisticKind::Percent)),
            ("outbound_pci_stalled_rd_events", Some(StatisticKind::Event(Congestion))),
            ("rx_err_lane_0_phy", Some(StatisticKind::Event(Error))),
            ("tx_pfc_ena_frames_pri4", Some(StatisticKind::PfcFrames { priority: 4, direction: Transmitted })),
            (
                "pfc_pri4_rx_duration_us",
                Some(StatisticKind::PauseMicroseconds { priority: Some(4), direction: Received }),
            ),
            ("rx_priority_5_xoff.nic", Some(StatisticKind::PfcFrames { priority: 5, direction: Received })),
            ("rx_priority_5_xon.nic", None),
            ("rx_queue_3_packets", None),
            ("", None),
        ];
        for (name, expected) in table {
            assert_eq!(meaning(name), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_name_is_looked_up_without_a_panic(name in any::<String>(), like in "(rx|tx|pfc)_(prio|pri|priority_|pfc_ena_frames_pri)?[0-9]{0,2}[a-z_.]{0,16}") {
            let _ = (meaning(&name), meaning(&like));
        }
    }
}

//! Counters of a port as the kernel names them: what each one counts, in which unit, and where it stops counting.

use std::sync::Arc;

/// What an event counter is about: the `class` label of `lanewatch_port_events_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CounterClass {
    /// Something was broken or lost on this link or by this device.
    Error,
    /// The fabric or the host could not keep up.
    Congestion,
    /// Sent again, or asked to be.
    Retransmission,
    /// Normal when connections end.
    Teardown,
    /// Work done.
    Traffic,
    /// Not known to this version.
    Other,
}

impl CounterClass {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Congestion => "congestion",
            Self::Retransmission => "retransmission",
            Self::Teardown => "teardown",
            Self::Traffic => "traffic",
            Self::Other => "other",
        }
    }
}

/// Which family a counter's value belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterKind {
    /// Received bytes: the raw value times `unit` (4 for InfiniBand's 32-bit words, 1 where the driver says bytes).
    ReceivedBytes {
        /// Bytes per raw count.
        unit: u64,
    },
    /// Transmitted bytes: the raw value times `unit`.
    TransmittedBytes {
        /// Bytes per raw count.
        unit: u64,
    },
    /// Received packets.
    ReceivedPackets,
    /// Transmitted packets.
    TransmittedPackets,
    /// Ticks (of a length only the device knows) with data to send and no credit.
    TransmitWait,
    /// An event of a class.
    Event(CounterClass),
    /// A level, not a counter (bnxt_re's `active_qps`).
    Level,
}

/// Which directory a counter file stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterDirectory {
    /// `ports/<n>/counters`: InfiniBand performance management; narrow fields that stop at their maximum.
    Pma,
    /// `hw_counters` of a port or a device: the driver's own.
    Hardware,
}

/// One counter file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// File name, as the kernel spells it.
    pub name: Arc<str>,
    /// What its value means.
    pub meaning: CounterKind,
    /// The raw value at which the field stands still, where it does.
    pub limit: Option<u64>,
}

/// The counters of a port or device in a fixed order, shared by all readings of it.
pub type CounterLayout = Arc<[Counter]>;

/// One reading of a layout's counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// What is read.
    pub layout: CounterLayout,
    /// Raw values in the layout's order; none where the file could not be read.
    pub values: Vec<Option<u64>>,
}

impl Counters {
    /// Counters and their raw values, those that could not be read left out.
    pub fn iter(&self) -> impl Iterator<Item = (&Counter, u64)> {
        self.layout.iter().zip(&self.values).filter_map(|(counter, value)| value.map(|value| (counter, value)))
    }

    /// The raw value of the counter of this name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find_map(|(counter, value)| (*counter.name == *name).then_some(value))
    }

    /// The counters that stand at their field's maximum and no longer count. A greater value proves a wider field.
    pub fn saturated(&self) -> impl Iterator<Item = &Counter> {
        self.iter().filter_map(|(counter, value)| counter.limit.is_some_and(|limit| value == limit).then_some(counter))
    }

    /// The value for a meaning in its family's unit, without a counter that has stopped counting.
    pub fn total(&self, wanted: impl Fn(CounterKind) -> Option<u64>) -> Option<u64> {
        self.iter().find_map(|(counter, value)| wanted(counter.meaning).map(|unit| value.saturating_mul(unit)))
    }
}

/// Names the counters of one directory pair; where both directories have a name, or both count bytes, the PMA's
/// stands and the driver's is kept as an event or left out.
pub fn layout(pma: &[Arc<str>], hardware: &[Arc<str>]) -> (CounterLayout, CounterLayout) {
    let extended = pma.iter().any(|name| name.starts_with("unicast_"));
    let pma_counters: Vec<Counter> = pma
        .iter()
        .filter(|name| is_counter(name))
        .map(|name| Counter {
            name: Arc::clone(name),
            meaning: meaning(name, CounterDirectory::Pma),
            limit: pma_limit(name, extended),
        })
        .collect();
    let hardware_counters = hardware
        .iter()
        .filter(|name| is_counter(name) && !pma.contains(name))
        .map(|name| {
            let meaning = match meaning(name, CounterDirectory::Hardware) {
                family @ (CounterKind::Event(_) | CounterKind::Level) => family,
                family if pma_counters.iter().any(|c| same_family(c.meaning, family)) => {
                    CounterKind::Event(CounterClass::Traffic)
                }
                family => family,
            };
            Counter { name: Arc::clone(name), meaning, limit: None }
        })
        .collect();
    (pma_counters.into(), hardware_counters)
}

fn same_family(left: CounterKind, right: CounterKind) -> bool {
    std::mem::discriminant(&left) == std::mem::discriminant(&right)
}

/// Whether a file of a counter directory is one; `lifespan` is the cache time of the others.
pub fn is_counter(name: &str) -> bool {
    name != "lifespan" && !name.starts_with('.')
}

/// Where a PMA field stops: their widths are 4, 8, 16 or 32 bits. Data and packet counters have 64 bits when the
/// port has the extended set, which shows by its unicast counters, and 32 otherwise.
fn pma_limit(name: &str, extended: bool) -> Option<u64> {
    let bits = match name {
        "local_link_integrity_errors" | "excessive_buffer_overrun_errors" => 4,
        "link_error_recovery" | "link_downed" | "port_xmit_constraint_errors" | "port_rcv_constraint_errors" => 8,
        "symbol_error"
        | "port_rcv_errors"
        | "port_rcv_remote_physical_errors"
        | "port_rcv_switch_relay_errors"
        | "port_xmit_discards"
        | "VL15_dropped" => 16,
        "port_xmit_wait" => 32,
        "port_xmit_data" | "port_rcv_data" | "port_xmit_packets" | "port_rcv_packets" if !extended => 32,
        _ => return None,
    };
    Some((1 << bits) - 1)
}

/// What a counter of this name means.
pub fn meaning(name: &str, group: CounterDirectory) -> CounterKind {
    match (group, name) {
        (CounterDirectory::Pma, "port_rcv_data") => CounterKind::ReceivedBytes { unit: 4 },
        (CounterDirectory::Pma, "port_xmit_data") => CounterKind::TransmittedBytes { unit: 4 },
        (CounterDirectory::Pma, "port_rcv_packets")
        | (CounterDirectory::Hardware, "rx_pkts" | "rx_pkt" | "rcvd_pkts") => CounterKind::ReceivedPackets,
        (CounterDirectory::Pma, "port_xmit_packets")
        | (CounterDirectory::Hardware, "tx_pkts" | "tx_pkt" | "sent_pkts") => CounterKind::TransmittedPackets,
        (CounterDirectory::Pma, "port_xmit_wait") => CounterKind::TransmitWait,
        (CounterDirectory::Hardware, "rx_bytes") => CounterKind::ReceivedBytes { unit: 1 },
        (CounterDirectory::Hardware, "tx_bytes") => CounterKind::TransmittedBytes { unit: 1 },
        (CounterDirectory::Hardware, name) if is_level(name) => CounterKind::Level,
        _ => CounterKind::Event(class(name)),
    }
}

/// Levels among the drivers' counters (bnxt_re, mana).
fn is_level(name: &str) -> bool {
    name.starts_with("active_")
        || name.starts_with("watermark_")
        || matches!(name, "db_fifo_register" | "current_rate" | "num_qps_congested")
}

/// The class of an event counter; names unknown to this version are [`CounterClass::Other`].
pub fn class(name: &str) -> CounterClass {
    let name = name.strip_prefix("vport_").unwrap_or(name);
    let listed = [
        (ERRORS, CounterClass::Error),
        (CONGESTION, CounterClass::Congestion),
        (RETRANSMISSION, CounterClass::Retransmission),
        (TEARDOWN, CounterClass::Teardown),
    ];
    match listed.iter().find(|(names, _)| names.contains(&name)) {
        Some((_, class)) => *class,
        None if is_traffic(name) => CounterClass::Traffic,
        None => CounterClass::Other,
    }
}

#[rustfmt::skip]
const ERRORS: &[&str] = &[
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors", "port_xmit_constraint_errors", "port_rcv_constraint_errors",
    "local_link_integrity_errors", "excessive_buffer_overrun_errors", "VL15_dropped", "rx_icrc_encapsulated",
    "req_remote_access_errors", "resp_remote_access_errors", "req_remote_invalid_request", "resp_local_length_error",
    "req_cqe_error", "resp_cqe_error", "req_transport_retries_exceeded", "req_rnr_retries_exceeded",
    "retry_exceeded_err", "retry_rnr_exceeded_err", "completer_retry_err", "send_err", "max_retry_exceeded",
    "unrecoverable_err", "bad_resp_err", "local_qp_op_err", "local_protection_err", "mem_mgmt_op_err",
    "remote_invalid_req_err", "remote_access_err", "remote_op_err", "rx_drops", "cmds_err", "no_completion_cmds",
    "rdma_read_wr_err", "rdma_write_wr_err", "rx_err_pkt", "tx_err_pkt", "rx_roce_errors", "tx_roce_errors",
    "rx_roce_discards", "tx_roce_discards", "recoverable_errors", "ip4InDiscards", "ip6InDiscards",
    "ip4InTruncatedPkts", "ip6InTruncatedPkts", "ip4OutNoRoutes", "ip6OutNoRoutes", "tcpInOptErrors",
    "tcpInProtoErrors", "rxVlanErrors",
];

#[rustfmt::skip]
const CONGESTION: &[&str] = &[
    "port_xmit_discards", "out_of_buffer", "rx_out_of_buffer", "np_cnp_sent", "np_ecn_marked_roce_packets",
    "rp_cnp_handled", "rp_cnp_ignored", "cc_rx_ce_pkts", "cc_rx_cnp_pkts", "cc_tx_cnp_pkts", "rnr_nak_retry_err",
    "rnr_naks_rcvd", "roce_slow_restart", "roce_slow_restart_cnps", "roce_slow_restart_trans", "cnpHandled",
    "cnpIgnored", "cnpSent", "RxECNMrkd", "rx_cnp_pkts", "tx_cnp_pkts", "rx_cnp_pkt", "tx_cnp_pkt",
    "rx_ecn_marked_pkts", "pacing_reschedule", "pacing_complete", "pacing_alerts", "rcvd_rnr_err", "send_rnr_err",
    "received_cnps", "sent_cnps", "received_ecns", "oos_drop_count",
];

#[rustfmt::skip]
const RETRANSMISSION: &[&str] = &[
    "duplicate_request", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err", "out_of_sequence",
    "roce_adp_retrans", "roce_adp_retrans_to", "tcpRetransSegs", "to_retransmits", "seq_err_naks_rcvd",
    "missing_resp", "dup_req", "out_of_seq_request", "rcvd_seq_err", "retrans_pkts", "retrans_bytes",
    "retrans_timeout_events",
];

const TEARDOWN: &[&str] = &["req_cqe_flush_error", "resp_cqe_flush_error"];

fn is_traffic(name: &str) -> bool {
    const PREFIXES: [&str; 9] =
        ["unicast_", "multicast_", "rdma_", "send_", "recv_", "ip4In", "ip4Out", "ip6In", "ip6Out"];
    const EXACT: [&str; 23] = [
        "rx_write_requests",
        "rx_read_requests",
        "rx_atomic_requests",
        "rx_dct_connect",
        "iwInRdmaReads",
        "iwInRdmaSends",
        "iwInRdmaWrites",
        "iwOutRdmaReads",
        "iwOutRdmaSends",
        "iwOutRdmaWrites",
        "iwRdmaBnd",
        "iwRdmaInv",
        "RxUDP",
        "TxUDP",
        "tcpInSegs",
        "tcpOutSegs",
        "submitted_cmds",
        "completed_cmds",
        "keep_alive_rcvd",
        "tx_read_resp",
        "rx_read_resp",
        "rx_roce_good_pkts",
        "rx_roce_good_bytes",
    ];
    EXACT.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(list: &[&str]) -> Vec<Arc<str>> {
        list.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn data_counters_are_words_of_four_bytes_only_in_the_pma() {
        let (pma, hardware) =
            layout(&names(&["port_rcv_data", "unicast_rcv_packets"]), &names(&["rx_bytes", "tx_bytes", "lifespan"]));
        let of = |layout: &CounterLayout, name: &str| layout.iter().find(|c| &*c.name == name).map(|c| c.meaning);
        assert_eq!(of(&pma, "port_rcv_data"), Some(CounterKind::ReceivedBytes { unit: 4 }));
        // The port's bytes are the PMA's; the driver's own count stays visible and is not a second series of the family.
        assert_eq!(of(&hardware, "rx_bytes"), Some(CounterKind::Event(CounterClass::Traffic)));
        assert_eq!(of(&hardware, "tx_bytes"), Some(CounterKind::TransmittedBytes { unit: 1 }));
        assert_eq!(of(&hardware, "lifespan"), None);
    }

    #[test]
    fn a_name_in_both_directories_is_read_once() {
        let (pma, hardware) = layout(&names(&["link_downed"]), &names(&["link_downed", "sent_pkts"]));
        assert_eq!(pma.len(), 1);
        assert_eq!(hardware.iter().map(|c| c.name.to_string()).collect::<Vec<_>>(), ["sent_pkts"]);
    }

    #[test]
    fn fields_stop_at_their_width() {
        let (plain, _) = layout(&names(&["port_rcv_data", "link_downed", "local_link_integrity_errors"]), &[]);
        let counters = Counters { layout: plain, values: vec![Some(0xffff_ffff), Some(254), Some(15)] };
        assert_eq!(
            counters.saturated().map(|c| c.name.to_string()).collect::<Vec<_>>(),
            ["port_rcv_data", "local_link_integrity_errors"]
        );
        let (extended, _) = layout(&names(&["port_rcv_data", "unicast_rcv_packets"]), &[]);
        let counters = Counters { layout: extended, values: vec![Some(0xffff_ffff), Some(1)] };
        assert_eq!(counters.saturated().count(), 0);
    }

    #[test]
    fn classes_follow_the_definitions() {
        assert_eq!(class("rnr_nak_retry_err"), CounterClass::Congestion);
        assert_eq!(class("req_cqe_flush_error"), CounterClass::Teardown);
        assert_eq!(class("vport_out_of_buffer"), CounterClass::Congestion);
        assert_eq!(class("RxTidFLGMs,32"), CounterClass::Other);
        assert_eq!(class("ip4InOctets"), CounterClass::Traffic);
    }

    proptest! {
        #[test]
        fn no_name_breaks_the_tables(name in any::<String>(), like in "[a-z0-9_]{0,24}") {
            for name in [&*name, &*like] {
                let _ = (is_counter(name), class(name), meaning(name, CounterDirectory::Pma), meaning(name, CounterDirectory::Hardware));
            }
        }
    }
}

//! Counters of RDMA devices that tell of loss and congestion on Ethernet, by the drivers' own names (mlx5, irdma,
//! bnxt_re, mana, hns).

/// Signs that packets were lost on the way.
pub const LOST: &[&str] = &[
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "oos_drop_count",
    "seq_err_naks_rcvd",
    "to_retransmits",
    "responder_oos",
    "requester_oos_nak",
    "requester_timeout",
];

/// Signs that somebody marks packets, or slows down when they are marked.
pub const CONTROLLED: &[&str] = &[
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
    "cnpSent",
    "RxECNMrkd",
    "cnpHandled",
    "tx_cnp_pkts",
    "rx_cnp_pkts",
    "rx_ecn_marked_pkts",
    "sent_cnps",
    "received_cnps",
    "received_ecns",
    "tx_cnp_pkt",
    "rx_cnp_pkt",
];

/// Requests to slow down that were ignored.
pub const IGNORED: &[&str] = &["rp_cnp_ignored", "cnpIgnored"];

/// RDMA packets that the device itself dropped.
pub const DISCARDED: &[&str] = &["rx_roce_discards", "tx_roce_discards", "ip4InDiscards", "ip6InDiscards"];

/// All of them.
pub fn all() -> impl Iterator<Item = &'static str> {
    [LOST, CONTROLLED, IGNORED, DISCARDED].into_iter().flatten().copied()
}

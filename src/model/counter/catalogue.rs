//! Which counters each driver has, from its source, and what they count.

use super::CounterClass::{self, Congestion, Error, Other, Retransmission, Teardown, Traffic};

/// The counters of a driver.
#[derive(Debug, Clone, Copy)]
pub struct DriverCounters {
    /// The driver; `InfiniBand` for those of performance management, which several have.
    pub driver: &'static str,
    /// Where the kernel's source names them.
    pub file: &'static str,
    /// Their names by class; bytes and packets stand with [`Traffic`].
    pub classes: &'static [(CounterClass, &'static [&'static str])],
    /// Levels, not counters.
    pub levels: &'static [&'static str],
}

impl DriverCounters {
    /// How many names it has.
    pub fn count(&self) -> usize {
        self.classes.iter().map(|(_, names)| names.len()).sum::<usize>() + self.levels.len()
    }
}

/// All drivers of Linux 6.12 that count, and mana as of 6.13. siw, mthca, qib, usnic, pvrdma, qedr and ocrdma have no
/// `hw_counters`. hfi1 has further names by a rule ([`super::class`]): what ends in `Err`, and numbers at the end of a name
/// for virtual lanes, engines and contexts.
#[rustfmt::skip]
pub const DRIVERS: &[DriverCounters] = &[
    DriverCounters { driver: "InfiniBand", file: "drivers/infiniband/core/sysfs.c", classes: &[
        (Error, &["symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors",
            "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors", "port_xmit_constraint_errors",
            "port_rcv_constraint_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors",
            "VL15_dropped"]),
        (Congestion, &["port_xmit_discards", "port_xmit_wait"]),
        (Traffic, &["port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "unicast_rcv_packets",
            "unicast_xmit_packets", "multicast_rcv_packets", "multicast_xmit_packets"]),
    ], levels: &[] },
    DriverCounters { driver: "mlx5_ib", file: "drivers/infiniband/hw/mlx5/counters.c", classes: &[
        (Error, &["rx_icrc_encapsulated", "req_remote_access_errors", "resp_remote_access_errors",
            "req_remote_invalid_request", "resp_local_length_error", "req_cqe_error", "resp_cqe_error",
            "req_transport_retries_exceeded", "req_rnr_retries_exceeded", "vport_resp_local_length_error",
            "vport_resp_cqe_error", "vport_req_cqe_error", "vport_req_remote_invalid_request",
            "vport_req_remote_access_errors", "vport_resp_remote_access_errors",
            "vport_req_transport_retries_exceeded", "vport_req_rnr_retries_exceeded"]),
        (Congestion, &["out_of_buffer", "np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled", "rp_cnp_ignored",
            "cc_rx_ce_pkts", "cc_rx_cnp_pkts", "cc_tx_cnp_pkts", "rnr_nak_retry_err", "roce_slow_restart",
            "roce_slow_restart_cnps", "roce_slow_restart_trans", "vport_out_of_buffer", "vport_rnr_nak_retry_err",
            "vport_roce_slow_restart", "vport_roce_slow_restart_cnps", "vport_roce_slow_restart_trans"]),
        (Retransmission, &["duplicate_request", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err",
            "out_of_sequence", "roce_adp_retrans", "roce_adp_retrans_to", "vport_out_of_sequence",
            "vport_duplicate_request", "vport_packet_seq_err", "vport_implied_nak_seq_err",
            "vport_local_ack_timeout_err", "vport_roce_adp_retrans", "vport_roce_adp_retrans_to"]),
        (Teardown, &["req_cqe_flush_error", "resp_cqe_flush_error", "vport_resp_cqe_flush_error",
            "vport_req_cqe_flush_error"]),
        (Traffic, &["rx_write_requests", "rx_read_requests", "rx_atomic_requests", "rx_dct_connect",
            "vport_rx_write_requests", "vport_rx_read_requests", "vport_rx_atomic_requests",
            "vport_rx_dct_connect"]),
    ], levels: &[] },
    DriverCounters { driver: "mlx4_ib", file: "drivers/infiniband/hw/mlx4/main.c", classes: &[
        (Error, &["rq_num_lle", "sq_num_lle", "rq_num_lqpoe", "sq_num_lqpoe", "rq_num_lpe", "sq_num_lpe",
            "sq_num_mwbe", "sq_num_bre", "sq_num_rire", "rq_num_rire", "sq_num_rae", "rq_num_rae", "sq_num_roe",
            "sq_num_tree", "sq_num_rree", "num_cqovf"]),
        (Congestion, &["rq_num_rnr", "sq_num_rnr", "rq_num_udsdprd"]),
        (Retransmission, &["rq_num_oos", "sq_num_oos", "rq_num_dup", "sq_num_to"]),
        (Teardown, &["rq_num_wrfe", "sq_num_wrfe"]),
    ], levels: &[] },
    DriverCounters { driver: "irdma", file: "drivers/infiniband/hw/irdma/verbs.c", classes: &[
        (Error, &["ip4InDiscards", "ip6InDiscards", "ip4InTruncatedPkts", "ip6InTruncatedPkts", "ip4OutNoRoutes",
            "ip6OutNoRoutes", "tcpInOptErrors", "tcpInProtoErrors", "rxVlanErrors"]),
        (Congestion, &["cnpHandled", "cnpIgnored", "cnpSent", "RxECNMrkd"]),
        (Retransmission, &["tcpRetransSegs"]),
        (Traffic, &["ip4InOctets", "ip4InPkts", "ip4InReasmRqd", "ip4InMcastPkts", "ip4OutOctets", "ip4OutPkts",
            "ip4OutSegRqd", "ip4OutMcastPkts", "ip6InOctets", "ip6InPkts", "ip6InReasmRqd", "ip6InMcastPkts",
            "ip6OutOctets", "ip6OutPkts", "ip6OutSegRqd", "ip6OutMcastPkts", "tcpInSegs", "tcpOutSegs",
            "iwInRdmaReads", "iwInRdmaSends", "iwInRdmaWrites", "iwOutRdmaReads", "iwOutRdmaSends", "iwOutRdmaWrites",
            "iwRdmaBnd", "iwRdmaInv", "ip4InMcastOctets", "ip4OutMcastOctets", "ip6InMcastOctets",
            "ip6OutMcastOctets", "RxUDP", "TxUDP"]),
    ], levels: &[] },
    DriverCounters { driver: "bnxt_re", file: "drivers/infiniband/hw/bnxt_re/hw_counters.c", classes: &[
        (Error, &["recoverable_errors", "tx_roce_errors", "tx_roce_discards", "rx_roce_errors", "rx_roce_discards",
            "max_retry_exceeded", "unrecoverable_err", "bad_resp_err", "local_qp_op_err", "local_protection_err",
            "mem_mgmt_op_err", "remote_invalid_req_err", "remote_access_err", "remote_op_err", "res_exceed_max",
            "res_length_mismatch", "res_exceeds_wqe", "res_opcode_err", "res_rx_invalid_rkey", "res_rx_domain_err",
            "res_rx_no_perm", "res_rx_range_err", "res_tx_invalid_rkey", "res_tx_domain_err", "res_tx_no_perm",
            "res_tx_range_err", "res_irrq_oflow", "res_unsup_opcode", "res_unaligned_atomic", "res_rem_inv_err",
            "res_mem_err", "res_srq_err", "res_cmp_err", "res_invalid_dup_rkey", "res_wqe_format_err",
            "res_cq_load_err", "res_srq_load_err", "res_tx_pci_err", "res_rx_pci_err"]),
        (Congestion, &["rnr_naks_rcvd", "oos_drop_count", "rx_out_of_buffer", "tx_cnp_pkts", "rx_cnp_pkts",
            "rx_ecn_marked_pkts", "pacing_reschedule", "pacing_complete", "pacing_alerts"]),
        (Retransmission, &["to_retransmits", "seq_err_naks_rcvd", "missing_resp", "dup_req"]),
        (Traffic, &["rx_pkts", "rx_bytes", "tx_pkts", "tx_bytes", "resize_cq_cnt", "tx_atomic_req", "tx_read_req",
            "tx_read_resp", "tx_write_req", "tx_send_req", "tx_roce_only_pkts", "tx_roce_only_bytes", "rx_atomic_req",
            "rx_read_req", "rx_read_resp", "rx_write_req", "rx_send_req", "rx_roce_only_pkts", "rx_roce_only_bytes",
            "rx_roce_good_pkts", "rx_roce_good_bytes"]),
    ], levels: &["active_pds", "active_ahs", "active_qps", "active_rc_qps", "active_ud_qps", "active_srqs", "active_cqs",
        "active_mrs", "active_mws", "watermark_pds", "watermark_ahs", "watermark_qps", "watermark_rc_qps",
        "watermark_ud_qps", "watermark_srqs", "watermark_cqs", "watermark_mrs", "watermark_mws",
        "db_fifo_register"] },
    DriverCounters { driver: "efa", file: "drivers/infiniband/hw/efa/efa_verbs.c", classes: &[
        (Error, &["rx_drops", "cmds_err", "no_completion_cmds", "alloc_pd_err", "create_qp_err", "create_cq_err",
            "reg_mr_err", "alloc_ucontext_err", "create_ah_err", "mmap_err", "rdma_read_wr_err", "rdma_write_wr_err",
            "impaired_remote_conn_events", "unresponsive_remote_events"]),
        (Retransmission, &["retrans_pkts", "retrans_bytes", "retrans_timeout_events"]),
        (Traffic, &["tx_bytes", "tx_pkts", "rx_bytes", "rx_pkts", "send_bytes", "send_wrs", "recv_bytes", "recv_wrs",
            "rdma_read_wrs", "rdma_read_bytes", "rdma_read_resp_bytes", "rdma_write_wrs", "rdma_write_bytes",
            "rdma_write_recv_bytes", "submitted_cmds", "completed_cmds", "keep_alive_rcvd"]),
    ], levels: &[] },
    DriverCounters { driver: "erdma", file: "drivers/infiniband/hw/erdma/erdma_verbs.c", classes: &[
        (Error, &["tx_disable_drop_cnt", "rx_disable_drop_cnt"]),
        (Congestion, &["tx_bps_limit_drop_cnt", "tx_pps_limit_drop_cnt", "rx_bps_limit_drop_cnt",
            "rx_pps_limit_drop_cnt"]),
        (Traffic, &["tx_reqs_cnt", "tx_packets_cnt", "tx_bytes_cnt", "rx_packets_cnt", "rx_bytes_cnt"]),
    ], levels: &[] },
    DriverCounters { driver: "hns_roce", file: "drivers/infiniband/hw/hns/hns_roce_main.c", classes: &[
        (Error, &["rx_err_pkt", "tx_err_pkt", "trp_get_mpt_err_pkt", "trp_get_irrl_err_pkt"]),
        (Congestion, &["rx_cnp_pkt", "tx_cnp_pkt", "ecn_doorbell"]),
        (Traffic, &["rx_rc_pkt", "rx_uc_pkt", "rx_ud_pkt", "rx_xrc_pkt", "rx_pkt", "tx_rc_pkt", "tx_uc_pkt",
            "tx_ud_pkt", "tx_xrc_pkt", "tx_pkt", "rx_buffer", "trp_rx_sof", "cq_cqe", "cq_poe", "cq_notify"]),
    ], levels: &[] },
    DriverCounters { driver: "mana_ib", file: "drivers/infiniband/hw/mana/counters.c", classes: &[
        (Error, &["nak_inv_req", "nak_access_error", "nak_opp_error", "nak_inv_read", "responder_local_len_error",
            "requestor_local_prot_error", "responder_rem_access_error", "responder_local_qp_error",
            "responder_malformed_wqe", "general_hw_error", "requester_rnr_nak_retries_exceeded",
            "requester_retries_exceeded"]),
        (Congestion, &["requester_rnr_nak", "responder_rnr_nak", "received_cnps", "sent_cnps", "received_ecns"]),
        (Retransmission, &["requester_timeout", "requester_oos_nak", "responder_oos", "responder_dup_request",
            "requester_implicit_nak", "requester_readresp_psn_mismatch"]),
        (Traffic, &["rx_bytes", "tx_bytes"]),
    ], levels: &["current_rate", "num_qps_congested"] },
    DriverCounters { driver: "iw_cxgb4", file: "drivers/infiniband/hw/cxgb4/provider.c", classes: &[
        (Retransmission, &["ip4RetransSegs", "ip6RetransSegs"]),
        (Teardown, &["ip4OutRsts", "ip6OutRsts"]),
        (Traffic, &["ip4InSegs", "ip4OutSegs", "ip6InSegs", "ip6OutSegs"]),
    ], levels: &[] },
    DriverCounters { driver: "rdma_rxe", file: "drivers/infiniband/sw/rxe/rxe_hw_counters.c", classes: &[
        (Error, &["retry_exceeded_err", "retry_rnr_exceeded_err", "completer_retry_err", "send_err", "link_downed"]),
        (Congestion, &["rcvd_rnr_err", "send_rnr_err"]),
        (Retransmission, &["duplicate_request", "out_of_seq_request", "rcvd_seq_err"]),
        (Traffic, &["sent_pkts", "rcvd_pkts", "ack_deferred", "rdma_sends", "rdma_recvs"]),
    ], levels: &[] },
    DriverCounters { driver: "hfi1", file: "drivers/infiniband/hw/hfi1/chip.c", classes: &[
        (Error, &["RcvOverflow", "RxEbpCnt", "RxTIDFullEr", "RxTIDInvalid", "DcDroppedPkt", "DcTotCrc", "DcCrcLn0",
            "DcCrcLn1", "DcCrcLn2", "DcCrcLn3", "DcMultLn", "DcLinkSeqCrc", "DcReinitPeer", "DcMiscFlg",
            "DcStsTxMbe", "SDMAErrCt", "SwLinkDown", "UnknownFrame", "OtherNak", "PktDrop", "TxInvalLen",
            "TxUnderrun", "TxDropped", "CceErrStatusAggregatedCnt", "CceCli1AsyncFifoDbgParityError",
            "CceCli1AsyncFifoRxdmaParityError", "DRIVER_Tx_Errs", "DRIVER_Rcv_Errs", "DRIVER_HW_Errs",
            "DRIVER_RcvLen_Errs", "MISC_PLL_LOCK_FAIL_ERR", "MISC_MBIST_FAIL_ERR", "MISC_INVALID_EEP_CMD_ERR",
            "MISC_EFUSE_DONE_PARITY_ERR", "MISC_EFUSE_WRITE_ERR", "MISC_EFUSE_READ_BAD_ADDR_ERR",
            "MISC_EFUSE_CSR_PARITY_ERR", "MISC_FW_AUTH_FAILED_ERR", "MISC_KEY_MISMATCH_ERR",
            "MISC_SBUS_WRITE_FAILED_ERR", "MISC_CSR_WRITE_BAD_ADDR_ERR", "MISC_CSR_READ_BAD_ADDR_ERR",
            "MISC_CSR_PARITY_ERR"]),
        (Congestion, &["XmitDscd", "XmitDscdVl", "DcRcvBbl", "DcRcvBblVl", "DcMarkFcn", "DcMarkFcnVl", "DcRcvFcn",
            "DcRcvFcnVl", "DcRcvBcn", "DcRcvBcnVl", "RnrNak", "RcCrWait", "TxFlowStall", "TxWait", "TxWaitVL",
            "vTxWait", "PioWait", "PioDrain", "KmemWait", "TidWait", "DmaWait", "RcvLimit", "RcvHdrOvr",
            "CcePciCrSt", "CcePciTrSt", "CcePioWrSt", "DRIVER_NoPIOBufs", "DRIVER_EgrBufFull", "DRIVER_EgrHdrFull"]),
        (Retransmission, &["RcTimeOut", "RcResend", "SeqNak", "RcSeqNak", "RcDupRew", "RdmaSeq", "DcTxReplay", "DcRxReplay",
            "RxTidFLGMs", "RxTidFLSMs"]),
        (Traffic, &["TxPkt", "TxWords", "TxFlitVL", "TxPktVL", "RxPkt", "RxWords", "SwLinkUp", "LoopPkts", "RcAcks",
            "RcQacks", "RcDelayComp", "DcMcXmitPkts", "DcMcRcvPkts", "DcRxFCntl", "DcXmitFCntl", "DcXmitFlits",
            "DcRcvFlits", "DcXmitPkts", "DcRcvPkts", "DcRxFlitVl", "DcRxPktVl", "DcGoodLTP", "DcAccLTP",
            "DcPrfRxFlit", "DcPrfTxFlit", "DcPrfClk", "DcPauseComp", "Intr", "SDMAInt", "SDMAIdInt", "SDMAPrIntCn",
            "SDEDscFdCn", "SendSched", "CceErrInt", "CceSdmaInt", "CceMiscInt", "CceRcvAvInt", "CceRcvUrgInt",
            "CceSndCrInt", "DRIVER_KernIntr", "DRIVER_ErrorIntr"]),
        (Other, &["DcXmitCorr", "DcRcvCorrCnt", "DcSbe", "DcStsTxSbe", "DcEsc0", "DcEsc1", "DcEsc0Plus2", "Unaligned",
            "SeqDrop0", "RxCtxEgrS"]),
    ], levels: &["DcFltCrdts", "DRIVER_CtxtsOpen"] },
];

/// Every name with its class.
pub fn names() -> impl Iterator<Item = (&'static str, CounterClass)> {
    DRIVERS
        .iter()
        .flat_map(|driver| driver.classes.iter().flat_map(|(class, names)| names.iter().map(|name| (*name, *class))))
}

/// Whether a name is a level's.
pub fn is_level(name: &str) -> bool {
    DRIVERS.iter().any(|driver| driver.levels.contains(&name))
}

/// A counter of the catalogue by its name.
pub fn find(name: &str) -> Option<(&'static str, CounterClass)> {
    names().find(|(other, _)| *other == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_name_means_the_same_in_every_driver() {
        let mut seen: BTreeMap<&str, CounterClass> = BTreeMap::new();
        for (name, class) in names() {
            assert_eq!(*seen.entry(name).or_insert(class), class, "{name}");
        }
        assert!(seen.len() > 250, "{}", seen.len());
    }

    #[test]
    fn a_driver_lists_a_counter_once() {
        for driver in DRIVERS {
            let mut all: Vec<&str> = driver.classes.iter().flat_map(|(_, names)| *names).copied().collect();
            let before = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), before, "{}", driver.driver);
        }
    }
}

//! Reasons of findings: a closed set, the `reason` label and JSON key.

use std::fmt;

use super::benchmark::Failure;
use super::kmsg::MessageKind;
use super::labels::label_enum;
use super::pcie::AerSeverity;
use super::vfmap::Signal;

label_enum! {
    /// Why a check found something, as one word of the check's closed set.
    FindingReason {
        /// The learned baseline expects it.
        Baseline = "baseline",
        /// The policy expects it.
        Policy = "policy",
        /// The link is up and no subnet manager has configured it.
        NoSubnetManager = "no_subnet_manager",
        /// The network interface has no carrier.
        NoCarrier = "no_carrier",
        /// Switched off by an administrator or a tool.
        Disabled = "disabled",
        /// No cable is seen in the cage.
        NoCable = "no_cable",
        /// The card does not accept the cable or module, or it does not support the rate.
        CableUnsupported = "cable_unsupported",
        /// The signal is too bad for a link.
        SignalBad = "signal_bad",
        /// Link training or autonegotiation fails.
        TrainingFailed = "training_failed",
        /// The two ends have different settings.
        SettingsDiffer = "settings_differ",
        /// The other end does not respond.
        NoPartner = "no_partner",
        /// No link partner.
        Polling = "polling",
        /// The link keeps training.
        Training = "training",
        /// Down for another cause.
        Down = "down",
        /// Most ports of the same model run faster.
        Peers = "peers",
        /// The link was lost and came back.
        LinkLost = "link_lost",
        /// Opened contexts of an RDMA device.
        HcaHandle = "hca_handle",
        /// Objects of an RDMA device: queue pairs, memory regions and the like.
        HcaObject = "hca_object",
        /// Counter of this name.
        SymbolError = "symbol_error",
        /// Counter of this name.
        LinkErrorRecovery = "link_error_recovery",
        /// Counter of this name.
        PortRcvErrors = "port_rcv_errors",
        /// Counter of this name.
        PortXmitDiscards = "port_xmit_discards",
        /// Counter of this name.
        LocalAckTimeoutErr = "local_ack_timeout_err",
        /// Counter of this name.
        ExcessiveBufferOverrunErrors = "excessive_buffer_overrun_errors",
        /// Counter of this name.
        LocalLinkIntegrityErrors = "local_link_integrity_errors",
        /// A counter of the driver's own, which the finding names.
        DriverCounter = "driver_counter",
        /// A card with a driver and without the RDMA device that others of its model have.
        NoRdmaDevice = "no_rdma_device",
        /// A counter stopped at its maximum.
        Saturated = "saturated",
        /// Configuration space reads all ones.
        AllOnes = "all_ones",
        /// Speed and width are degraded.
        SpeedAndWidth = "speed_and_width",
        /// The speed is degraded.
        Speed = "speed",
        /// The width is degraded.
        Width = "width",
        /// The slot is the limit.
        Slot = "slot",
        /// The limiting link is degraded.
        LinkDegraded = "link_degraded",
        /// The limiting link is limited by its slot.
        SlotLimited = "slot_limited",
        /// The limiting link runs at all that the card can do.
        ByDesign = "by_design",
        /// Corrected errors only.
        Correctable = "correctable",
        /// Nonfatal errors.
        Nonfatal = "nonfatal",
        /// Fatal errors.
        Fatal = "fatal",
        /// Fewer or more `virtfn` links than VFs requested.
        Links = "links",
        /// Netlink lists another number of VFs.
        NetlinkList = "netlink_list",
        /// No port is up, or a benchmark met a port that is down.
        PortDown = "port_down",
        /// No interface of the PF is up.
        InterfaceDown = "interface_down",
        /// No process has the VF open.
        NotHeld = "not_held",
        /// A pool keeps it for guests that are still to come.
        IdlePool = "idle_pool",
        /// Its interface is in no network namespace.
        NoInterface = "no_interface",
        /// There is no such function.
        Gone = "gone",
        /// More than one domain claims it.
        ClaimedTwice = "claimed_twice",
        /// Another holder has it.
        HeldByOther = "held_by_other",
        /// Its IOMMU group has other functions.
        NotIsolated = "not_isolated",
        /// Another driver is bound than `driver_override` names.
        OverrideIgnored = "override_ignored",
        /// A GUID is all ones.
        GuidAllOnes = "guid_all_ones",
        /// A GUID is zero.
        GuidZero = "guid_zero",
        /// A duplicate GUID, or a GUID left over.
        Guid = "guid",
        /// A duplicate MAC address, or one left over.
        Mac = "mac",
        /// Changed while its holder had it.
        UnderHolder = "under_holder",
        /// The machine had a VF of another identity.
        OtherVf = "other_vf",
        /// A VLAN left over.
        Vlan = "vlan",
        /// Trust left over.
        Trust = "trust",
        /// A rate limit left over.
        Rate = "rate",
        /// The PF keeps its link down.
        LinkDisabled = "link_disabled",
        /// The domain wants other settings.
        DiffersFromClaim = "differs_from_claim",
        /// Signal of this name.
        DomainAppeared = "domain_appeared",
        /// Signal of this name.
        DomainGone = "domain_gone",
        /// Signal of this name.
        HolderChanged = "holder_changed",
        /// Signal of this name.
        VfRecreated = "vf_recreated",
        /// Signal of this name.
        PfReprobed = "pf_reprobed",
        /// Signal of this name.
        GroupRenumbered = "group_renumbered",
        /// Signal of this name.
        FunctionRemoved = "function_removed",
        /// Signal of this name.
        FunctionAdded = "function_added",
        /// Signal of this name.
        DataPathSwitched = "data_path_switched",
        /// Signal of this name.
        VfRevoked = "vf_revoked",
        /// Signal of this name.
        VfReturned = "vf_returned",
        /// A guest's interface uses the hypervisor's path instead of its VF.
        SyntheticPath = "synthetic_path",
        /// Signal of this name.
        ClockStepped = "clock_stepped",
        /// Signal of this name.
        MachineForked = "machine_forked",
        /// Signal of this name.
        MachineChanged = "machine_changed",
        /// A detach did not finish.
        DetachFailed = "detach_failed",
        /// One global queue pair number has two entries.
        QidClaimedTwice = "qid_claimed_twice",
        /// Only invalid entries in the queue pair map.
        QidInvalid = "qid_invalid",
        /// No entry in the queue pair map.
        QidMap = "qid_map",
        /// Isolated CPUs serve interrupts.
        IsolatedCpu = "isolated_cpu",
        /// CPUs of another NUMA node serve interrupts.
        OtherNode = "other_node",
        /// Several vectors share one CPU.
        SameCpu = "same_cpu",
        /// One queue has most of the traffic.
        OneQueue = "one_queue",
        /// Fewer vectors on the own NUMA node than before.
        OffNode = "off_node",
        /// The driver's watchdog saw a pause storm.
        PauseStorm = "pause_storm",
        /// This host pauses the network.
        PauseSent = "pause_sent",
        /// The network pauses this host.
        PauseReceived = "pause_received",
        /// Packets are dropped.
        Discards = "discards",
        /// Packets are lost, and neither PFC nor ECN reacts.
        NoCongestionControl = "no_congestion_control",
        /// Packets are lost although PFC or ECN is active.
        LossDespiteControl = "loss_despite_control",
        /// Congestion notifications are ignored.
        CnpIgnored = "cnp_ignored",
        /// Below this host's own history.
        BelowHistory = "below_history",
        /// Below what the path can carry.
        BelowCeiling = "below_ceiling",
        /// No data moved, for another cause.
        Failed = "failed",
        /// A benchmark failed with this error.
        TcpSetup = "tcp_setup",
        /// A benchmark failed with this error.
        DeviceMissing = "device_missing",
        /// A benchmark failed with this error.
        QpSetup = "qp_setup",
        /// A benchmark failed with this error.
        Completion = "completion_error",
        /// A benchmark failed with this error.
        MemoryRegistration = "memory_registration",
        /// A benchmark failed with this error.
        Resources = "resources",
        /// Kernel message of this kind.
        DeviceHealth = "device_health",
        /// Kernel message of this kind.
        FirmwareFatal = "firmware_fatal",
        /// Kernel message of this kind.
        CommandTimeout = "command_timeout",
        /// Kernel message of this kind.
        AerFatal = "aer_fatal",
        /// Kernel message of this kind.
        Dpc = "dpc",
        /// Kernel message of this kind.
        AerNonfatal = "aer_nonfatal",
        /// Kernel message of this kind.
        IommuFault = "iommu_fault",
        /// Kernel message of this kind.
        PcieBandwidthLimited = "pcie_bandwidth_limited",
        /// Kernel message of this kind.
        ModuleError = "module_error",
        /// Kernel message of this kind.
        HighTemperature = "high_temperature",
        /// Kernel message of this kind.
        TxTimeout = "tx_timeout",
        /// Kernel message of this kind.
        MediaMisconfigured = "media_misconfigured",
        /// Kernel message of this kind.
        VfioError = "vfio_error",
        /// Kernel message of this kind.
        QpError = "qp_error",
        /// Kernel message of this kind.
        PcieSlotPower = "pcie_slot_power",
        /// Kernel message of this kind.
        ModulePlugged = "module_plugged",
        /// Kernel message of this kind.
        RegisterDenied = "register_denied",
        /// Kernel message of this kind.
        FirmwareReset = "firmware_reset",
        /// Kernel message of this kind.
        VfReset = "vf_reset",
        /// Kernel message of this kind.
        VfDenied = "vf_denied",
        /// Kernel message of this kind.
        LinkUp = "link_up",
        /// Kernel message of this kind.
        LinkDown = "link_down",
        /// Kernel message of this kind.
        AerCorrectable = "aer_correctable",
        /// Codewords could not be corrected: data was lost.
        CodewordsLost = "codewords_lost",
        /// Too many bits are wrong before correction.
        RawErrors = "raw_errors",
        /// Codewords take nearly all that can be corrected.
        FecMargin = "fec_margin",
        /// One lane is much worse than the others.
        LaneUneven = "lane_uneven",
        /// The module says that it has a fault.
        StateFault = "state_fault",
        /// A value is beyond the module's own limits.
        Limits = "limits",
        /// A lane receives too little light.
        ReceiveLow = "receive_low",
        /// A lane sends too little light.
        TransmitLow = "transmit_low",
        /// A sensor of the card's chip.
        Asic = "asic",
        /// A sensor of the card's module.
        Module = "module",
        /// A sensor of the card.
        Sensor = "sensor",
        /// Firmware versions differ.
        Firmware = "firmware",
        /// A device has no NUMA node.
        Numa = "numa",
        /// ACS redirects peer-to-peer traffic.
        Acs = "acs",
        /// CPU frequency governor.
        Governor = "governor",
        /// IOMMU mode.
        Iommu = "iommu",
        /// Automatic NUMA balancing.
        NumaBalancing = "numa_balancing",
        /// The agent's network namespace.
        NetworkNamespace = "network_namespace",
        /// Driver versions differ.
        Drivers = "drivers",
        /// Forced ASPM.
        Aspm = "aspm",
        /// Kernel message of this kind.
        CommandFailed = "command_failed",
        /// Kernel message of this kind.
        ProbeFailed = "probe_failed",
        /// A card has no driver.
        NoDriver = "no_driver",
        /// Kernel message of this kind.
        CardRemoved = "card_removed",
        /// Kernel message of this kind.
        SlotPower = "slot_power",
        /// Kernel message of this kind, or the driver's reason for a link that is down.
        ModuleHot = "module_hot",
        /// Kernel message of this kind, or the driver's reason for a link that is down.
        ModuleFault = "module_fault",
        /// Kernel message of this kind, or the driver's reason for a link that is down.
        ModulePower = "module_power",
        /// Kernel message of this kind.
        ModuleUnsupported = "module_unsupported",
        /// Kernel message of this kind, or the driver's reason for a link that is down.
        CableFault = "cable_fault",
        /// Kernel message of this kind.
        VfResetFailed = "vf_reset_failed",
        /// Kernel message of this kind.
        SriovFailed = "sriov_failed",
        /// Kernel message of this kind.
        RemovalBlocked = "removal_blocked",
    }
}

impl fmt::Display for FindingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Takes over the words of another set, variant by variant.
macro_rules! reasons_of {
    ($other:ident: $($variant:ident)+) => {
        impl From<$other> for FindingReason {
            fn from(other: $other) -> Self {
                match other { $($other::$variant => Self::$variant,)+ }
            }
        }
    };
}

reasons_of!(AerSeverity: Correctable Nonfatal Fatal);
reasons_of!(Signal: DomainAppeared DomainGone HolderChanged VfRecreated PfReprobed GroupRenumbered FunctionRemoved FunctionAdded DataPathSwitched VfRevoked VfReturned ClockStepped MachineForked MachineChanged);
reasons_of!(MessageKind: DeviceHealth FirmwareFatal CommandTimeout AerFatal Dpc AerNonfatal IommuFault CommandFailed ProbeFailed PcieBandwidthLimited CardRemoved SlotPower ModuleError ModuleHot ModuleFault ModulePower ModuleUnsupported CableFault HighTemperature TxTimeout MediaMisconfigured VfioError VfResetFailed SriovFailed RemovalBlocked QpError PcieSlotPower ModulePlugged RegisterDenied FirmwareReset VfReset VfDenied LinkUp LinkDown AerCorrectable);
reasons_of!(Failure: PortDown DeviceMissing TcpSetup QpSetup Completion MemoryRegistration Resources);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_read_back_from_its_word() {
        for reason in FindingReason::ALL {
            assert_eq!(FindingReason::parse(reason.as_str()), Some(*reason));
        }
        assert_eq!(FindingReason::parse("no_such_reason"), None);
    }

    #[test]
    fn words_of_other_sets_stay_the_same() {
        for signal in Signal::ALL {
            assert_eq!(FindingReason::from(*signal).as_str(), signal.as_str());
        }
        for kind in MessageKind::ALL {
            assert_eq!(FindingReason::from(*kind).as_str(), kind.as_str());
        }
        for failure in Failure::ALL {
            assert_eq!(FindingReason::from(*failure).as_str(), failure.as_str());
        }
        for severity in AerSeverity::ALL {
            assert_eq!(FindingReason::from(severity).as_str(), severity.as_str());
        }
    }
}

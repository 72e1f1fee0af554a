//! Kernel messages about watched hardware: a closed list of kinds, each with the severity that its meaning has.

use std::sync::Arc;

use super::check::Severity;
use super::datapath::DataPathLog;
use super::ids::{DeviceName, PciAddress};
use super::labels::label_enum;
use super::time::BootTime;

label_enum! {
    /// Whose source has the line: the `driver` label.
    MessageSource {
        /// NVIDIA ConnectX-4 and later, the function's part.
        Mlx5Core = "mlx5_core",
        /// NVIDIA ConnectX-4 and later, the RDMA device's part.
        Mlx5Ib = "mlx5_ib",
        /// Mellanox ConnectX-3, the function's part.
        Mlx4Core = "mlx4_core",
        /// Mellanox ConnectX-3, its interfaces.
        Mlx4En = "mlx4_en",
        /// Mellanox ConnectX-3, the RDMA device's part.
        Mlx4Ib = "mlx4_ib",
        /// Mellanox InfiniHost.
        IbMthca = "ib_mthca",
        /// Intel E810 and later.
        Ice = "ice",
        /// Intel's RDMA driver.
        Irdma = "irdma",
        /// Intel's driver of VFs.
        Iavf = "iavf",
        /// Intel X710 and X722.
        I40e = "i40e",
        /// Broadcom.
        BnxtEn = "bnxt_en",
        /// Broadcom's RDMA driver.
        BnxtRe = "bnxt_re",
        /// Elastic Fabric Adapter.
        Efa = "efa",
        /// Alibaba's elastic RDMA.
        Erdma = "erdma",
        /// Microsoft Azure, the function's part.
        Mana = "mana",
        /// Microsoft Azure, the RDMA device's part.
        ManaIb = "mana_ib",
        /// HiSilicon, the function's part.
        Hns3 = "hns3",
        /// HiSilicon, the RDMA device's part.
        HnsRoce = "hns_roce",
        /// Marvell FastLinQ, the function's part.
        Qed = "qed",
        /// Marvell FastLinQ, its interfaces.
        Qede = "qede",
        /// Marvell FastLinQ, the RDMA device's part.
        Qedr = "qedr",
        /// Chelsio, the function's part.
        Cxgb4 = "cxgb4",
        /// Chelsio, the RDMA device's part.
        IwCxgb4 = "iw_cxgb4",
        /// AMD Pensando.
        Ionic = "ionic",
        /// Cornelis Omni-Path.
        Hfi1 = "hfi1",
        /// Intel True Scale.
        IbQib = "ib_qib",
        /// Emulex, the function's part.
        Be2net = "be2net",
        /// Emulex, the RDMA device's part.
        Ocrdma = "ocrdma",
        /// Cisco.
        UsnicVerbs = "usnic_verbs",
        /// VMware's virtual device.
        VmwPvrdma = "vmw_pvrdma",
        /// RoCE in software.
        RdmaRxe = "rdma_rxe",
        /// iWARP in software.
        Siw = "siw",
        /// The kernel's RDMA core.
        IbCore = "ib_core",
        /// IP over InfiniBand.
        IbIpoib = "ib_ipoib",
        /// PCIe ports and error reporting, whatever driver the function has.
        Pcieport = "pcieport",
        /// The kernel's PCI core, whatever driver the function has.
        Pci = "pci",
        /// Slots whose cards may be changed while the host runs.
        Pciehp = "pciehp",
        /// Pass-through to guests.
        VfioPci = "vfio-pci",
        /// The IOMMU: Intel's, AMD's or Arm's.
        Iommu = "iommu",
    }
}

/// Drivers that have one card together: the one of the PCI function first. The kernel prints the name of the
/// function's driver before what the others say of an RDMA device or an interface.
const FAMILIES: &[&[MessageSource]] = &[
    &[MessageSource::Mlx5Core, MessageSource::Mlx5Ib],
    &[MessageSource::Mlx4Core, MessageSource::Mlx4En, MessageSource::Mlx4Ib],
    &[MessageSource::IbMthca],
    &[MessageSource::Ice, MessageSource::I40e, MessageSource::Iavf, MessageSource::Irdma],
    &[MessageSource::BnxtEn, MessageSource::BnxtRe],
    &[MessageSource::Efa],
    &[MessageSource::Erdma],
    &[MessageSource::Mana, MessageSource::ManaIb],
    &[MessageSource::Hns3, MessageSource::HnsRoce],
    &[MessageSource::Qed, MessageSource::Qede, MessageSource::Qedr],
    &[MessageSource::Cxgb4, MessageSource::IwCxgb4],
    &[MessageSource::Ionic],
    &[MessageSource::Hfi1],
    &[MessageSource::IbQib],
    &[MessageSource::Be2net, MessageSource::Ocrdma],
    &[MessageSource::UsnicVerbs],
    &[MessageSource::VmwPvrdma],
    &[MessageSource::RdmaRxe],
    &[MessageSource::Siw],
    &[MessageSource::IbCore],
    &[MessageSource::IbIpoib],
    &[MessageSource::Pcieport, MessageSource::Pciehp, MessageSource::Pci],
    &[MessageSource::VfioPci],
    &[MessageSource::Iommu],
];

impl MessageSource {
    /// Whether it speaks of RDMA hardware only. The others speak of any device.
    pub const fn is_of_rdma(self) -> bool {
        !matches!(self, Self::Pcieport | Self::Pci | Self::Pciehp | Self::VfioPci | Self::Iommu)
    }

    /// Whether it has the RDMA device and not the PCI function, or both in one.
    pub const fn is_rdma_part(self) -> bool {
        matches!(
            self,
            Self::Mlx5Ib
                | Self::Mlx4Ib
                | Self::IbMthca
                | Self::Irdma
                | Self::BnxtRe
                | Self::Efa
                | Self::Erdma
                | Self::ManaIb
                | Self::HnsRoce
                | Self::Qedr
                | Self::IwCxgb4
                | Self::Hfi1
                | Self::IbQib
                | Self::Ocrdma
                | Self::UsnicVerbs
                | Self::VmwPvrdma
                | Self::RdmaRxe
                | Self::Siw
                | Self::IbCore
        )
    }

    /// The drivers of its card, itself among them.
    pub fn family(self) -> &'static [Self] {
        FAMILIES.iter().find(|family| family.contains(&self)).copied().unwrap_or_default()
    }

    /// The driver of this name; `None` if it is not one whose lines are known. Names of modules and of auxiliary
    /// drivers (`bnxt_re.bnxt_re`, `mlx5_core.rdma`) count, too.
    pub fn by_name(name: &str) -> Option<Self> {
        let name = name.split_once('.').map_or(name, |(module, _)| module);
        let known = Self::ALL.iter().copied().find(|driver| driver.as_str() == name && *driver != Self::Iommu);
        known.or(match name {
            "hclge" | "hclgevf" | "hns3_enet" => Some(Self::Hns3),
            "hns_roce_hw_v2" => Some(Self::HnsRoce),
            "ionic_rdma" => Some(Self::Ionic),
            "rxe" => Some(Self::RdmaRxe),
            "infiniband_qib" | "qib" => Some(Self::IbQib),
            "cxgb4vf" => Some(Self::Cxgb4),
            "enic" | "usnic" => Some(Self::UsnicVerbs),
            "DMAR" | "AMD-Vi" => Some(Self::Iommu),
            _ => None,
        })
    }
}

label_enum! {
    /// What it said: the `kind` label.
    MessageKind {
        /// The device's firmware no longer answers its driver, or the driver gave the device up.
        DeviceHealth = "device_health",
        /// The firmware says that it failed.
        FirmwareFatal = "firmware_fatal",
        /// A command to the firmware was not answered.
        CommandTimeout = "command_timeout",
        /// A PCIe link is no longer reliable, or could not be recovered.
        AerFatal = "aer_fatal",
        /// A port cut its link off to contain an error.
        Dpc = "dpc",
        /// A PCIe transaction was lost.
        AerNonfatal = "aer_nonfatal",
        /// A device reached for memory that is not its own.
        IommuFault = "iommu_fault",
        /// The firmware refused a command that a connection or the driver needs.
        CommandFailed = "command_failed",
        /// A driver could not take a function over.
        ProbeFailed = "probe_failed",
        /// A link carries less than its device could.
        PcieBandwidthLimited = "pcie_bandwidth_limited",
        /// A card left its slot, or its slot lost the link.
        CardRemoved = "card_removed",
        /// Ports are off, or a slot is, since the slot does not give enough power.
        SlotPower = "slot_power",
        /// A cable or module does not work.
        ModuleError = "module_error",
        /// A module is too hot.
        ModuleHot = "module_hot",
        /// A module does not respond, or switched itself off.
        ModuleFault = "module_fault",
        /// A module draws more power than its cage may give.
        ModulePower = "module_power",
        /// A module that this card does not accept.
        ModuleUnsupported = "module_unsupported",
        /// A bad or shorted cable.
        CableFault = "cable_fault",
        /// The device is too hot.
        HighTemperature = "high_temperature",
        /// A transmit queue stands still.
        TxTimeout = "tx_timeout",
        /// The port cannot use its module, or is set up wrongly for it.
        MediaMisconfigured = "media_misconfigured",
        /// A function that is passed through could not be restored.
        VfioError = "vfio_error",
        /// A function did not come back from its reset.
        VfResetFailed = "vf_reset_failed",
        /// VFs could not be created.
        SriovFailed = "sriov_failed",
        /// A function should be taken away, and who uses it does not let it go.
        RemovalBlocked = "removal_blocked",
        /// A queue pair ended with an error.
        QpError = "qp_error",
        /// The slot says that it has less power than the card may draw. Cards that work say it too.
        PcieSlotPower = "pcie_slot_power",
        /// A cable or module was plugged, unplugged or switched off.
        ModulePlugged = "module_plugged",
        /// The firmware denied access to a register, as it does on restricted functions.
        RegisterDenied = "register_denied",
        /// The firmware was reset.
        FirmwareReset = "firmware_reset",
        /// A VF was reset by its PF.
        VfReset = "vf_reset",
        /// A VF asked for what its PF does not allow.
        VfDenied = "vf_denied",
        /// A link came up.
        LinkUp = "link_up",
        /// A link went down.
        LinkDown = "link_down",
        /// A PCIe error that was repaired.
        AerCorrectable = "aer_correctable",
    }
}

impl MessageKind {
    /// How bad one such message is.
    pub const fn severity(self) -> Severity {
        match self {
            Self::DeviceHealth | Self::FirmwareFatal | Self::CommandTimeout | Self::AerFatal | Self::Dpc => {
                Severity::Critical
            }
            Self::AerNonfatal
            | Self::IommuFault
            | Self::CommandFailed
            | Self::ProbeFailed
            | Self::PcieBandwidthLimited
            | Self::CardRemoved
            | Self::SlotPower
            | Self::ModuleError
            | Self::ModuleHot
            | Self::ModuleFault
            | Self::ModulePower
            | Self::ModuleUnsupported
            | Self::CableFault
            | Self::HighTemperature
            | Self::TxTimeout
            | Self::MediaMisconfigured
            | Self::VfioError
            | Self::VfResetFailed
            | Self::SriovFailed
            | Self::RemovalBlocked
            | Self::QpError => Severity::Warning,
            Self::PcieSlotPower
            | Self::ModulePlugged
            | Self::RegisterDenied
            | Self::FirmwareReset
            | Self::VfReset
            | Self::VfDenied
            | Self::LinkUp
            | Self::LinkDown
            | Self::AerCorrectable => Severity::Info,
        }
    }
}

/// Moments kept of each group: enough to see how often lately.
pub const RECENT_TIMES: usize = 8;

/// Messages of one kind about one thing.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageGroup {
    /// Who said it.
    pub driver: MessageSource,
    /// What.
    pub kind: MessageKind,
    /// The PCI function that it names.
    pub address: Option<PciAddress>,
    /// The RDMA device that it names.
    pub device: Option<DeviceName>,
    /// Whether a driver of RDMA hardware has the function.
    pub of_rdma: bool,
    /// When the last ones were, oldest first; at most [`RECENT_TIMES`].
    pub moments: Vec<BootTime>,
    /// How many there were within the log and since.
    pub count: u64,
    /// The last one's words, cut to a line.
    pub text: Arc<str>,
    /// The last one's sequence number, where the log has numbers.
    pub sequence: Option<u64>,
}

impl MessageGroup {
    /// When the last one was.
    pub fn last(&self) -> Option<BootTime> {
        self.moments.last().copied()
    }
}

/// What the kernel log says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KernelLog {
    /// Messages that came since the start, by driver and kind.
    pub counts: Vec<((MessageSource, MessageKind), u64)>,
    /// Messages about one thing, from before the start too, none older than an hour.
    pub groups: Vec<MessageGroup>,
    /// Records that the kernel dropped before they could be read.
    pub lost: u64,
    /// How often that happened.
    pub overruns: u64,
    /// How often it said, since the start, that the machine was restored from a snapshot or cloned (vmgenid).
    pub forks: u64,
    /// What it said of interfaces that are joined with a VF.
    pub data_paths: Vec<DataPathLog>,
    /// Sequence number of the first record that was read.
    pub first: Option<u64>,
    /// Sequence number of the last record that was read.
    pub last: Option<u64>,
}

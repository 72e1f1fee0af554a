//! Kernel messages about watched hardware: a closed list of kinds, each with the severity that its meaning has.

use std::sync::Arc;

use super::check::Severity;
use super::ids::{DeviceName, PciAddress};
use super::labels::label_enum;
use super::time::BootTime;

label_enum! {
    /// Who said it: the `driver` label.
    MessageSource {
        /// NVIDIA's driver, the function's part.
        Mlx5Core = "mlx5_core",
        /// NVIDIA's driver, the RDMA device's part.
        Mlx5Ib = "mlx5_ib",
        /// Intel E810 and later.
        Ice = "ice",
        /// Intel's RDMA driver.
        Irdma = "irdma",
        /// Intel's driver of VFs.
        Iavf = "iavf",
        /// Intel X710.
        I40e = "i40e",
        /// Broadcom.
        BnxtEn = "bnxt_en",
        /// Broadcom's RDMA driver.
        BnxtRe = "bnxt_re",
        /// Elastic Fabric Adapter.
        Efa = "efa",
        /// PCIe ports and error reporting, whatever driver the function has.
        Pcieport = "pcieport",
        /// Pass-through to guests.
        VfioPci = "vfio-pci",
        /// Intel's and AMD's IOMMU.
        Iommu = "iommu",
    }
}

impl MessageSource {
    /// Whether it speaks of RDMA hardware only. The others speak of any device.
    pub const fn is_of_rdma(self) -> bool {
        !matches!(self, Self::Pcieport | Self::VfioPci | Self::Iommu)
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
        /// A link carries less than its device could.
        PcieBandwidthLimited = "pcie_bandwidth_limited",
        /// A cable or module does not work.
        ModuleError = "module_error",
        /// The device is too hot.
        HighTemperature = "high_temperature",
        /// A transmit queue stands still.
        TxTimeout = "tx_timeout",
        /// The port cannot use its module, or is set up wrongly for it.
        MediaMisconfigured = "media_misconfigured",
        /// A function that is passed through could not be reset or restored.
        VfioError = "vfio_error",
        /// A queue pair ended with an error.
        QpError = "qp_error",
        /// The slot says that it has less power than the card may draw. Cards that work say it too.
        PcieSlotPower = "pcie_slot_power",
        /// A cable or module was plugged or unplugged.
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
            | Self::PcieBandwidthLimited
            | Self::ModuleError
            | Self::HighTemperature
            | Self::TxTimeout
            | Self::MediaMisconfigured
            | Self::VfioError
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
    /// Sequence number of the first record that was read.
    pub first: Option<u64>,
    /// Sequence number of the last record that was read.
    pub last: Option<u64>,
}

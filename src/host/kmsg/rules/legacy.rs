//! Cards that are no longer made: True Scale, Emulex, Cisco.

use super::Caller::{Function, FunctionOfDevice, Interface, Module};
use super::{Source, line};
use crate::model::kmsg::{MessageKind, MessageSource};

const QIB: &[MessageSource] = &[MessageSource::IbQib];
const BE2NET: &[MessageSource] = &[MessageSource::Be2net];
const OCRDMA: &[MessageSource] = &[MessageSource::Ocrdma];
const USNIC: &[MessageSource] = &[MessageSource::UsnicVerbs];

#[rustfmt::skip]
pub(super) const SOURCES: &[Source] = &[
    Source { drivers: QIB, file: "drivers/infiniband/hw/qib/qib_iba7322.c", lines: &[
        line(FunctionOfDevice, "Fatal Hardware Error, no longer usable, SN %.16s", MessageKind::DeviceHealth),
        line(FunctionOfDevice, "HCA unusable until powercycled", MessageKind::DeviceHealth),
        line(FunctionOfDevice, "Read of hardware error status failed (all bits set); ignoring", MessageKind::DeviceHealth),
        line(FunctionOfDevice, "%s hardware error", MessageKind::FirmwareFatal),
        line(FunctionOfDevice, "Failed to initialize after reset, unusable", MessageKind::DeviceHealth),
        line(FunctionOfDevice, "Got reset, requires re-init (unload and reload driver)", MessageKind::DeviceHealth),
    ]},
    Source { drivers: QIB, file: "drivers/infiniband/hw/qib/qib_intr.c", lines: &[
        line(FunctionOfDevice, "Read of chip interrupt status failed disabling interrupts", MessageKind::DeviceHealth),
    ]},
    Source { drivers: QIB, file: "drivers/infiniband/hw/qib/qib_qsfp.c", lines: &[
        line(FunctionOfDevice, "QSFP interface bus stuck non-idle", MessageKind::ModuleFault),
        line(FunctionOfDevice, "QSFP failed even retrying", MessageKind::ModuleFault),
    ]},
    Source { drivers: BE2NET, file: "drivers/net/ethernet/emulex/benet/be_main.c", lines: &[
        line(Function, "Unrecoverable HW error detected: 0x%x", MessageKind::DeviceHealth),
        line(Function, "Error detected in the adapter", MessageKind::DeviceHealth),
        line(Function, "Error detected in the card", MessageKind::DeviceHealth),
        line(Function, "Reset failed .. Reboot server", MessageKind::DeviceHealth),
        line(Function, "Recoverable HW error detected", MessageKind::FirmwareReset),
        line(Function, "Initiating reset due to tx timeout", MessageKind::TxTimeout),
        line(Interface, "Link is %s", MessageKind::LinkUp),
    ]},
    Source { drivers: BE2NET, file: "drivers/net/ethernet/emulex/benet/be_cmds.c", lines: &[
        line(Function, "FW not responding", MessageKind::CommandTimeout),
        line(Function, "POST timeout; stage=%#x", MessageKind::ProbeFailed),
    ]},
    Source { drivers: OCRDMA, file: "drivers/infiniband/hw/ocrdma/ocrdma_hw.c", lines: &[
        line(Function, "Fatal event received", MessageKind::FirmwareFatal),
        line(Module(""), "mailbox timeout: fw not responding", MessageKind::CommandTimeout),
        line(Module("ocrdma0:"), "Async event - qpid %u is not valid", MessageKind::QpError),
    ]},
    Source { drivers: OCRDMA, file: "drivers/infiniband/hw/ocrdma/ocrdma_verbs.c", lines: &[
        line(Module(""), "%s(%d) fw not responding.", MessageKind::CommandTimeout),
    ]},
    Source { drivers: USNIC, file: "drivers/infiniband/hw/usnic/usnic_fwd.c", lines: &[
        line(Module("usnic_verbs:usnic_fwd_devcmd_locked:45: "), "Dev %s vnic idx %u cmd %u failed with status %d", MessageKind::CommandFailed),
        line(Module("usnic_verbs:usnic_fwd_dev_ready_locked:90: "), "Forwarding dev %s not ready with status %d", MessageKind::CommandFailed),
    ]},
    Source { drivers: USNIC, file: "drivers/infiniband/hw/usnic/usnic_ib_main.c", lines: &[
        line(Module("usnic_verbs:usnic_ib_pci_probe:560: "), "Failed to enable %s with err %d", MessageKind::ProbeFailed),
        line(Module("usnic_verbs:usnic_ib_handle_usdev_event:200: "), "Link DOWN on %s", MessageKind::LinkDown),
        line(Module("usnic_verbs:usnic_ib_handle_usdev_event:200: "), "Link UP on %s", MessageKind::LinkUp),
    ]},
];

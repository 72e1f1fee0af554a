//! The kernel's PCI core, slots, pass-through: what is said of a function, whatever its driver.

use super::Caller::{Function, Module};
use super::{Source, line, older, with};
use crate::model::kmsg::{MessageKind, MessageSource};

const PCI: &[MessageSource] = &[MessageSource::Pci];
const PORT: &[MessageSource] = &[MessageSource::Pcieport];
const SLOT: &[MessageSource] = &[MessageSource::Pciehp];
const VFIO: &[MessageSource] = &[MessageSource::VfioPci];
/// Those that ask the kernel to say what their link carries.
const NETWORK: &[MessageSource] = &[
    MessageSource::Mlx5Core,
    MessageSource::Mlx4Core,
    MessageSource::Ice,
    MessageSource::I40e,
    MessageSource::Iavf,
    MessageSource::BnxtEn,
    MessageSource::Cxgb4,
    MessageSource::Ionic,
    MessageSource::Qed,
];

#[rustfmt::skip]
pub(super) const SOURCES: &[Source] = &[
    Source { drivers: NETWORK, file: "drivers/pci/pci.c", lines: &[
        line(Function, "available PCIe bandwidth, limited by %s x%d link at %s", MessageKind::PcieBandwidthLimited),
    ]},
    Source { drivers: VFIO, file: "drivers/vfio/pci/vfio_pci_core.c", lines: &[
        line(Function, "Relaying device request to user (#%u)", MessageKind::RemovalBlocked),
        line(Function, "No device request channel registered, blocked until released by user", MessageKind::RemovalBlocked),
    ]},
    Source { drivers: VFIO, file: "drivers/vfio/pci/vfio_pci_config.c", lines: &[
        line(Function, "%s: reset recovery - restoring BARs", MessageKind::VfioError),
    ]},
    Source { drivers: VFIO, file: "drivers/pci/pci.c", lines: &[
        with(Function, "Unable to change power state from %s to %s, device inaccessible", "to D0", MessageKind::VfioError),
    ]},
    Source { drivers: SLOT, file: "drivers/pci/hotplug/pciehp_ctrl.c", lines: &[
        line(Module("pcieport 0000:40:01.0: pciehp: "), "Slot(%s): Power fault", MessageKind::SlotPower),
        line(Module("pcieport 0000:40:01.0: pciehp: "), "Slot(%s): Link Down", MessageKind::CardRemoved),
        line(Module("pcieport 0000:40:01.0: pciehp: "), "Slot(%s): Card not present", MessageKind::CardRemoved),
    ]},
    Source { drivers: SLOT, file: "drivers/pci/hotplug/pciehp_hpc.c", lines: &[
        line(Module("pcieport 0000:40:01.0: pciehp: "), "Slot(%s): Cannot train link: status %#06x", MessageKind::CardRemoved),
        line(Module("pcieport 0000:40:01.0: pciehp: "), "Slot(%s): No link", MessageKind::CardRemoved),
    ]},
    Source { drivers: PORT, file: "drivers/pci/pcie/dpc.c", lines: &[
        line(Module("pcieport 0000:40:01.0: DPC: "), "containment event, status:%#06x", MessageKind::Dpc),
    ]},
    Source { drivers: PCI, file: "drivers/pci/pci.c", lines: &[
        line(Function, "not ready %dms after %s; giving up", MessageKind::VfResetFailed),
        line(Function, "timed out waiting for pending transaction; performing function level reset anyway", MessageKind::VfResetFailed),
        line(Function, "Device config space inaccessible; unable to %s", MessageKind::DeviceHealth),
        with(Function, "Unable to change power state from %s to %s, device inaccessible", "to D0", MessageKind::DeviceHealth),
    ]},
    Source { drivers: PCI, file: "drivers/pci/iov.c", lines: &[
        line(Function, "not enough MMIO resources for SR-IOV", MessageKind::SriovFailed),
        line(Function, "can't enable %d VFs (bus %02x out of range of %pR)", MessageKind::SriovFailed),
        line(Function, "SR-IOV: IOV BARS not allocated", MessageKind::SriovFailed),
        line(Function, "failure %d from pcibios_sriov_enable()", MessageKind::SriovFailed),
    ]},
    Source { drivers: PCI, file: "drivers/base/dd.c", lines: &[
        line(Function, "probe with driver %s failed with error %d", MessageKind::ProbeFailed),
        older(Module("mlx5_core: "), "probe of %s failed with error %d", MessageKind::ProbeFailed),
    ]},
];

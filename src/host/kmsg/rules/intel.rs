//! Intel E810, X710, X722, their VFs and their RDMA part.

use super::Caller::{Function, Interface, RdmaDevice};
use super::{Source, line, older};
use crate::model::kmsg::{MessageKind, MessageSource};

const ICE: &[MessageSource] = &[MessageSource::Ice];
const I40E: &[MessageSource] = &[MessageSource::I40e];
const IAVF: &[MessageSource] = &[MessageSource::Iavf];
const IRDMA: &[MessageSource] = &[MessageSource::Irdma];
const ANY: &[MessageSource] = &[MessageSource::Ice, MessageSource::I40e, MessageSource::Iavf];

#[rustfmt::skip]
pub(super) const SOURCES: &[Source] = &[
    Source { drivers: IRDMA, file: "drivers/infiniband/hw/irdma/hw.c", lines: &[
        line(RdmaDevice, "abnormal ae_id = 0x%x bool qp=%d qp_id = %d, ae_src=%d", MessageKind::QpError),
        line(RdmaDevice, "cqp opcode = 0x%x maj_err_code = 0x%x min_err_code = 0x%x", MessageKind::CommandFailed),
        line(RdmaDevice, "Flush QP[%d] failed, SQ has more work", MessageKind::QpError),
        line(RdmaDevice, "fatal QP event: SQ in error but not flushed, qp: %d", MessageKind::QpError),
        line(Function, "HW runtime init FAIL status = %d last cmpl = %d", MessageKind::ProbeFailed),
        line(Function, "IRDMA hardware initialization FAILED init_state=%d status=%d", MessageKind::ProbeFailed),
    ]},
    Source { drivers: IRDMA, file: "drivers/infiniband/hw/irdma/main.c", lines: &[
        line(RdmaDevice, "critical PE Error, GLPE_CRITERR=0x%08x", MessageKind::DeviceHealth),
        line(RdmaDevice, "HMC Error", MessageKind::DeviceHealth),
        line(RdmaDevice, "PE Push Error", MessageKind::DeviceHealth),
        line(RdmaDevice, "Requesting a reset", MessageKind::DeviceHealth),
    ]},
    Source { drivers: IRDMA, file: "drivers/infiniband/hw/irdma/utils.c", lines: &[
        line(RdmaDevice, "[%s Error][op_code=%d] status=%d waiting=%d completion_err=%d maj=0x%x min=0x%x", MessageKind::CommandFailed),
    ]},
    Source { drivers: IRDMA, file: "drivers/infiniband/hw/irdma/verbs.c", lines: &[
        line(RdmaDevice, "modify_qp timed out waiting for suspend. qp_id = %d, last_ae = 0x%x", MessageKind::CommandTimeout),
    ]},
    Source { drivers: ICE, file: "drivers/net/ethernet/intel/ice/ice_main.c", lines: &[
        line(Interface, "tx_timeout recovery unsuccessful, device is in unrecoverable state.", MessageKind::DeviceHealth),
        line(Function, "%s failed, device is unrecoverable", MessageKind::DeviceHealth),
        line(Function, "%s: unrecoverable device error %d", MessageKind::DeviceHealth),
        line(Function, "Error resetting device. Please reload the driver", MessageKind::DeviceHealth),
        line(Function, "An error occurred on the device while loading the DDP package.  The device will be reset.", MessageKind::FirmwareReset),
        line(Function, "Device failed to load the FW for the external PHY.", MessageKind::DeviceHealth),
        line(Interface, "Potential misconfiguration of the Ethernet port detected.", MessageKind::MediaMisconfigured),
        line(Function, "Rx/Tx is disabled on this device because an unsupported module type was detected.", MessageKind::ModuleUnsupported),
        line(Function, "An unsupported module type was detected.", MessageKind::ModuleUnsupported),
        line(Function, "The installed module is incompatible with the device's NVM image. Cannot start link", MessageKind::ModuleUnsupported),
        line(Function, "The module's power requirements exceed the device's power supply. Cannot start link", MessageKind::ModulePower),
        line(Function, "PF-to-VF reset on PF %d VF %d due to MDD event", MessageKind::VfReset),
        line(Function, "Malicious Driver Detection event", MessageKind::VfDenied),
        line(Interface, "NIC Link is Down", MessageKind::LinkDown),
        line(Interface, "NIC Link is up", MessageKind::LinkUp),
    ]},
    Source { drivers: ICE, file: "drivers/net/ethernet/intel/ice/ice_sriov.c", lines: &[
        line(Function, "Failed to enable SR-IOV: %d", MessageKind::SriovFailed),
        line(Function, "Not enough resources for %d VFs, err %d. Try with fewer number of VFs", MessageKind::SriovFailed),
        line(Function, "Only %d MSI-X interrupts available for SR-IOV.", MessageKind::SriovFailed),
        line(Function, "Failed to start %d VFs, err %d", MessageKind::SriovFailed),
        line(Function, "VF %u PCI transactions stuck", MessageKind::VfResetFailed),
    ]},
    Source { drivers: ICE, file: "drivers/net/ethernet/intel/ice/ice_virtchnl.c", lines: &[
        line(Function, "VF attempting to override administratively set MAC address", MessageKind::VfDenied),
        line(Function, "is not trusted, switch the VF to trusted mode", MessageKind::VfDenied),
        older(Function, "is not trusted, switch the VF to trusted", MessageKind::VfDenied),
    ]},
    Source { drivers: I40E, file: "drivers/net/ethernet/intel/i40e/i40e_main.c", lines: &[
        line(Interface, "tx_timeout recovery unsuccessful, device is in non-recoverable state.", MessageKind::DeviceHealth),
        line(Function, "HMC error interrupt", MessageKind::DeviceHealth),
        line(Function, "Firmware recovery mode detected. Limiting functionality.", MessageKind::DeviceHealth),
        line(Function, "Entering recovery mode due to repeated FW resets.", MessageKind::DeviceHealth),
        line(Function, "Rx/Tx is disabled on this device because the module does not meet thermal requirements.", MessageKind::ModuleHot),
        line(Function, "Rx/Tx is disabled on this device because an unsupported SFP module type was detected.", MessageKind::ModuleUnsupported),
        line(Function, "Malicious Driver Detection event", MessageKind::VfDenied),
        line(Interface, "NIC Link is Down", MessageKind::LinkDown),
        line(Interface, "NIC Link is Up", MessageKind::LinkUp),
    ]},
    Source { drivers: I40E, file: "drivers/net/ethernet/intel/i40e/i40e_virtchnl_pf.c", lines: &[
        line(Function, "Failed to enable SR-IOV: %d", MessageKind::SriovFailed),
        line(Function, "VF reset check timeout on VF %d", MessageKind::VfResetFailed),
        line(Function, "VF attempting to override administratively set MAC address", MessageKind::VfDenied),
        line(Function, "VF is not trusted, switch the VF to trusted", MessageKind::VfDenied),
        older(Function, "VF %d failed opcode %d, retval: %d", MessageKind::VfDenied),
    ]},
    Source { drivers: IAVF, file: "drivers/net/ethernet/intel/iavf/iavf_virtchnl.c", lines: &[
        line(Function, "Reset indication received from the PF", MessageKind::VfReset),
        older(Function, "Reset warning received from the PF", MessageKind::VfReset),
        line(Function, "Failed to add MAC filter, error %s", MessageKind::VfDenied),
        line(Interface, "NIC Link is Down", MessageKind::LinkDown),
        line(Interface, "NIC Link is Up Speed is %s Full Duplex", MessageKind::LinkUp),
    ]},
    Source { drivers: IAVF, file: "drivers/net/ethernet/intel/iavf/iavf_main.c", lines: &[
        line(Function, "Admin queue timeout", MessageKind::CommandTimeout),
    ]},
    // The vendor's own modules share these texts among their drivers.
    Source { drivers: ANY, file: "drivers/net/ethernet/intel/ice/ice_main.c", lines: &[
        line(Interface, "tx_timeout: VSI_num: %d, Q %u, NTC: 0x%x, HW_HEAD: 0x%x, NTU: 0x%x, INT: 0x%x", MessageKind::TxTimeout),
        older(Interface, "tx_timeout", MessageKind::TxTimeout),
        older(Function, "Firmware recovery mode detected. Limiting functionality.", MessageKind::DeviceHealth),
        older(Function, "is-configuration of the Ethernet port detected", MessageKind::MediaMisconfigured),
        older(Function, "misconfiguration of the Ethernet port", MessageKind::MediaMisconfigured),
        older(Function, "unsupported module type", MessageKind::ModuleUnsupported),
        older(Function, "The installed module is incompatible with the device's NVM image", MessageKind::ModuleUnsupported),
        older(Function, "module's power requirements exceed", MessageKind::ModulePower),
        older(Function, "VF %d failed opcode %d", MessageKind::VfDenied),
    ]},
];

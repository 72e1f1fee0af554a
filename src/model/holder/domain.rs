//! Virtual machines as their managers describe them: domains of libvirt, machines of Proxmox VE, and what claims functions.

use std::sync::Arc;

use crate::model::ids::PciAddress;
use crate::model::labels::label_enum;
use crate::model::sriov::{Mac, VfConfig};

/// A PCI function that a domain's definition names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The function on this host.
    pub address: PciAddress,
    /// The MAC address that the domain wants for it.
    pub mac: Option<Mac>,
    /// The VLAN that the domain wants for it.
    pub vlan: Option<u16>,
    /// Whether there is such a function here; `None` if the host shows no functions.
    pub present: Option<bool>,
}

impl Claim {
    /// Whether the PF makes something else of the function than the domain wants. A MAC address that nobody set is none.
    pub fn differs(&self, config: &VfConfig) -> bool {
        self.wrong_mac(config).is_some() || self.wrong_vlan(config).is_some()
    }

    /// The MAC address that is wanted and that which it has, where they differ.
    pub fn wrong_mac(&self, config: &VfConfig) -> Option<(Mac, Mac)> {
        self.mac.zip(config.mac).filter(|(wanted, mac)| !mac.is_zero() && wanted != mac)
    }

    /// The VLAN that is wanted and that which it has, where they differ.
    pub fn wrong_vlan(&self, config: &VfConfig) -> Option<(u16, u16)> {
        self.vlan.zip(config.vlan.map(|vlan| vlan.id)).filter(|(wanted, vlan)| wanted != vlan)
    }
}

label_enum! {
    /// What manages virtual machines: the `manager` label of `lanewatch_vf_vm_info`.
    VmManager {
        /// Libvirt without a manager that is known.
        Libvirt = "libvirt",
        /// OpenStack Nova.
        OpenStack = "openstack",
        /// oVirt and its kin.
        Ovirt = "ovirt",
        /// Proxmox VE.
        Proxmox = "proxmox",
    }
}

/// How a virtual machine is called outside of its host. What is not said is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmIdentity {
    /// Its manager.
    pub manager: Option<VmManager>,
    /// Its UUID (that of the OpenStack instance, too).
    pub uuid: Option<Arc<str>>,
    /// Its name there: an OpenStack instance's name, a Proxmox machine's number.
    pub title: Option<Arc<str>>,
    /// The OpenStack project it belongs to, by UUID.
    pub project: Option<Arc<str>>,
}

/// A domain as libvirt's files describe it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Domain {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it runs, as far as the file says: a live status, or a definition with an `id`.
    pub live: bool,
    /// Its state (`running`, `paused`, …), from the live status only.
    pub state: Option<Arc<str>>,
    /// Why it is in that state (`booted`, `migrated`, …).
    pub reason: Option<Arc<str>>,
    /// Its QEMU's process.
    pub pid: Option<u32>,
    /// Its identifier on this host: another number at each start.
    pub id: Option<u32>,
    /// Whether its memory comes from elsewhere: a QEMU that was started with `-incoming` (a migration, or a saved image),
    /// or a live status with a job that moves it here.
    pub incoming: bool,
    /// Whether it is being moved here right now (`<job async='migration in'>`).
    pub incoming_job: bool,
    /// Functions it names.
    pub claims: Vec<Claim>,
    /// What its manager calls it.
    pub identity: VmIdentity,
}

impl Domain {
    /// Whether its guest went on here from a state that was made elsewhere or before: a migration, a saved image, a
    /// snapshot. Its devices then have a past that this host's functions don't share.
    pub fn arrived(&self) -> bool {
        let running = !matches!(self.state.as_deref(), Some("paused"));
        let reason = match self.reason.as_deref() {
            Some("migrated" | "restored" | "from snapshot") => true,
            // The source says so, too, while it is paused.
            Some("post-copy" | "post-copy failed") => running,
            _ => false,
        };
        self.incoming || reason
    }

    /// Whether its guest runs and nothing is being done to it, so that a function which is claimed from now on was
    /// attached while it ran.
    pub fn is_settled(&self) -> bool {
        self.live && self.state.as_deref() == Some("running") && !self.incoming_job
    }
}

/// What libvirt's directories show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Libvirt {
    /// Domains; one that runs by its live status, others by their definition.
    pub domains: Vec<Domain>,
    /// Whether what is there could be read.
    pub readable: bool,
    /// Whether the directory of live statuses is there, so that a domain without one does not run.
    pub has_live: bool,
}

/// A machine of Proxmox VE by its configuration (`/etc/pve/qemu-server/<vmid>.conf`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxmoxVm {
    /// Its number.
    pub number: Arc<str>,
    /// Its name, which others may have, too.
    pub name: Option<Arc<str>>,
    /// Its UUID (`smbios1: uuid=…`).
    pub uuid: Option<Arc<str>>,
    /// Functions that it is given; without a function number all of the device.
    pub functions: Vec<(PciAddress, GivenFunctions)>,
}

/// How much of a PCI device is given to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenFunctions {
    /// One function.
    One,
    /// Every function.
    All,
}

impl ProxmoxVm {
    /// Whether it is given a function.
    pub fn is_given(&self, address: PciAddress) -> bool {
        self.functions.iter().any(|(given, extent)| {
            let of_device = PciAddress { function: address.function, ..*given };
            *given == address || (*extent == GivenFunctions::All && of_device == address)
        })
    }
}

/// Machines of Proxmox VE.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxmox {
    /// Those of this node.
    pub machines: Vec<ProxmoxVm>,
}

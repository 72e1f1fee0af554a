//! PFs and their VFs as the host shows them: counts, configuration, identity (`/sys/bus/pci/devices/<pf>/virtfn*`,
//! `RTM_GETLINK`, `<pf>/sriov/<n>`).

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::ids::{DeviceName, Guid, PciAddress, text_serde};
use super::reading::{ReadError, Reading};

/// One VF by its PF and its number there, from 0. Written `0000:98:00.0/vf3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VfKey {
    /// The PF.
    pub pf: PciAddress,
    /// The number that `virtfn<n>` and netlink give it.
    pub vf: u32,
}

impl fmt::Display for VfKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/vf{}", self.pf, self.vf)
    }
}

text_serde!(VfKey, |text: &str| text.parse().ok());

impl std::str::FromStr for VfKey {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (pf, vf) = text.split_once("/vf").ok_or(())?;
        Ok(Self { pf: pf.parse().map_err(|_| ())?, vf: vf.parse().map_err(|_| ())? })
    }
}

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Whether nobody set it.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 6]
    }

    /// Six groups of two hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 6];
        let mut groups = text.split(':');
        for byte in &mut bytes {
            let digits = |group: &&str| group.len() == 2 && group.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = groups.next().filter(digits).and_then(|group| u8::from_str_radix(group, 16).ok())?;
        }
        groups.next().is_none().then_some(Self(bytes))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

text_serde!(Mac, Mac::parse);

/// A VLAN that the PF puts a VF into; none is [`Vlan::NONE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vlan {
    /// 1 to 4094; 0 for none.
    pub id: u16,
    /// Priority, 0 to 7.
    pub qos: u8,
    /// EtherType of the tag: 0x8100 (802.1Q) or 0x88a8 (802.1ad); `None` if the host does not say.
    pub protocol: Option<u16>,
}

impl Vlan {
    /// No VLAN.
    pub const NONE: Self = Self { id: 0, qos: 0, protocol: None };

    /// The protocol as `ip` writes it.
    pub fn protocol_name(self) -> Option<&'static str> {
        match self.protocol? {
            0x8100 => Some("802.1Q"),
            0x88a8 => Some("802.1ad"),
            _ => None,
        }
    }
}

/// Whether a VF's link follows the PF's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VfLink {
    /// Follows the PF (also what the kernel says where a driver does not).
    Auto,
    /// Always up.
    Enable,
    /// Always down.
    Disable,
}

impl VfLink {
    /// `ip`'s word, the `link_state` label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Enable => "enable",
            Self::Disable => "disable",
        }
    }
}

/// What the PF makes of a VF. Each is `None` if no source says it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VfConfig {
    /// Administrative MAC address, Ethernet only; zero when nobody set one.
    pub mac: Option<Mac>,
    /// VLAN, Ethernet only.
    pub vlan: Option<Vlan>,
    /// Least transmit rate in Mb/s; 0 for none.
    pub min_rate: Option<u32>,
    /// Most transmit rate in Mb/s; 0 for no limit.
    pub max_rate: Option<u32>,
    /// Whether it may do what only trusted functions may.
    pub trust: Option<bool>,
    /// Whether its source addresses are checked.
    pub spoof_check: Option<bool>,
    /// Its link.
    pub link: Option<VfLink>,
    /// Administrative node GUID, InfiniBand only; zero when nobody set one.
    pub node_guid: Option<Guid>,
    /// Administrative port GUID, InfiniBand only.
    pub port_guid: Option<Guid>,
}

impl VfConfig {
    /// This, and what it lacks from another source.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            mac: self.mac.or(other.mac),
            vlan: self.vlan.or(other.vlan),
            min_rate: self.min_rate.or(other.min_rate),
            max_rate: self.max_rate.or(other.max_rate),
            trust: self.trust.or(other.trust),
            spoof_check: self.spoof_check.or(other.spoof_check),
            link: self.link.or(other.link),
            node_guid: self.node_guid.or(other.node_guid),
            port_guid: self.port_guid.or(other.port_guid),
        }
    }
}

/// Traffic of a VF as its PF counts it. On mlx5 Ethernet it has the RDMA traffic in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VfTraffic {
    /// Packets received.
    pub received_packets: Option<u64>,
    /// Packets transmitted.
    pub transmitted_packets: Option<u64>,
    /// Bytes received.
    pub received_bytes: Option<u64>,
    /// Bytes transmitted.
    pub transmitted_bytes: Option<u64>,
    /// Packets dropped on receipt.
    pub received_dropped: Option<u64>,
    /// Packets dropped on transmission.
    pub transmitted_dropped: Option<u64>,
}

impl VfTraffic {
    /// Whether nothing of it is above zero.
    pub fn is_zero(&self) -> bool {
        [
            self.received_packets,
            self.transmitted_packets,
            self.received_bytes,
            self.transmitted_bytes,
            self.received_dropped,
            self.transmitted_dropped,
        ]
        .into_iter()
        .flatten()
        .all(|count| count == 0)
    }
}

/// One VF.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vf {
    /// Its number.
    pub number: u32,
    /// The PCI function that `virtfn<n>` leads to; none for one that only netlink knows.
    pub address: Option<PciAddress>,
    /// Whether its removal has begun: the kernel has taken `virtfn<n>` away, and the function is still there because
    /// somebody has it open.
    pub leaving: bool,
    /// Which making of the function this is: another number when it was removed and made again.
    pub instance: u64,
    /// Bound driver; none when no driver is bound.
    pub driver: Option<Arc<str>>,
    /// The only driver that may bind (`driver_override`).
    pub driver_override: Option<Arc<str>>,
    /// IOMMU group.
    pub iommu_group: Option<u32>,
    /// Other functions of the group that are no bridges.
    pub group_shared_with: Arc<[PciAddress]>,
    /// Configuration; none when no source has this VF ("detail unavailable").
    pub config: Option<VfConfig>,
    /// Traffic.
    pub traffic: Option<VfTraffic>,
    /// Interrupt vectors that its driver has (`msi_irqs/`).
    pub msix: Option<u32>,
    /// Network interfaces in the namespace that this sysfs shows.
    pub netdevs: Vec<Arc<str>>,
    /// RDMA devices that this sysfs shows.
    pub devices: Vec<DeviceName>,
    /// Its character device for user space drivers: `vfio/devices/vfio3` or `uio2`, below `/dev`.
    pub node: Option<Arc<str>>,
    /// Its representor in switchdev mode.
    pub representor: Option<Arc<str>>,
}

impl Vf {
    /// Whether a driver for user space is bound: vfio-pci and its variants, uio.
    pub fn is_for_user_space(&self) -> bool {
        self.driver.as_deref().is_some_and(is_user_space)
    }
}

/// Whether a driver gives functions to user space.
pub fn is_user_space(driver: &str) -> bool {
    driver.contains("vfio") || driver.contains("uio") || driver == "pci-stub" || driver == "pciback"
}

/// What a PF's ports carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fabric {
    /// Ethernet.
    Ethernet,
    /// InfiniBand.
    InfiniBand,
}

/// How far the details of a PF's VFs could be read over netlink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VfDetail {
    /// Everything.
    Full,
    /// The list did not fit with statistics: without them.
    WithoutStatistics,
    /// There is nobody to ask: no network interface here, or a recorded host.
    #[default]
    NotAsked,
    /// Asked in vain.
    Unavailable(ReadError),
}

/// One PF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pf {
    /// Its address.
    pub address: PciAddress,
    /// Bound driver.
    pub driver: Option<Arc<str>>,
    /// IOMMU group, of one that a driver for user space has.
    pub iommu_group: Option<u32>,
    /// Its character device for such a driver, below `/dev`.
    pub node: Option<Arc<str>>,
    /// Ethernet or InfiniBand, where the host says.
    pub fabric: Option<Fabric>,
    /// How many VFs there can be (`sriov_totalvfs`).
    pub limit: Option<u32>,
    /// How many VFs were asked for (`sriov_numvfs`); absent while the kernel holds the answer back, as it does while
    /// VFs are made.
    pub configured: Option<u32>,
    /// How many VFs netlink lists; none when it was not asked or did not answer.
    pub reported: Option<u32>,
    /// How many VFs netlink says there are (`IFLA_NUM_VF`).
    pub announced: Option<u32>,
    /// Network interfaces of the PF itself, without representors.
    pub netdevs: Vec<Arc<str>>,
    /// RDMA devices of the PF itself.
    pub devices: Vec<DeviceName>,
    /// Whether one of its interfaces is up (`operstate`); none when none says.
    pub up: Reading<bool>,
    /// Whether the card's switch is in switchdev mode, where there are representors.
    pub switchdev: bool,
    /// Which binding of the driver this is: another number when the PF was probed again; none while it has no
    /// interface or device.
    pub probe: Option<u64>,
    /// How far netlink told the details.
    pub detail: VfDetail,
    /// Its VFs by number.
    pub vfs: Vec<Vf>,
}

impl Pf {
    /// A PF of which nothing else is known.
    pub fn at(address: PciAddress) -> Self {
        Self {
            address,
            driver: None,
            iommu_group: None,
            node: None,
            fabric: None,
            limit: None,
            configured: None,
            reported: None,
            announced: None,
            netdevs: Vec::new(),
            devices: Vec::new(),
            up: Reading::Absent,
            switchdev: false,
            probe: None,
            detail: VfDetail::NotAsked,
            vfs: Vec::new(),
        }
    }

    /// Why nothing is known of how a VF is configured; `None` if it is known.
    pub fn unconfigured(&self, vf: &Vf) -> Option<String> {
        if vf.config.is_some() {
            return None;
        }
        Some(match self.detail {
            VfDetail::Unavailable(reason) => format!("netlink does not report it ({})", reason.as_str()),
            VfDetail::NotAsked if self.netdevs.is_empty() => {
                "the PF has no network interface in this namespace to query over netlink".to_owned()
            }
            VfDetail::NotAsked => "netlink is not available for a recorded host".to_owned(),
            VfDetail::Full | VfDetail::WithoutStatistics => "not listed over netlink".to_owned(),
        })
    }

    /// How many VFs have a PCI function here.
    pub fn present(&self) -> usize {
        self.vfs.iter().filter(|vf| vf.address.is_some()).count()
    }
}

/// Entries of one VF by state, in the stack's own words.
pub type QueueStates = BTreeMap<Arc<str>, u64>;

/// The map of one PF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QidMap {
    /// The PF.
    pub pf: PciAddress,
    /// Entries by VF and state; a VF without any is not in it.
    pub vfs: BTreeMap<u32, QueueStates>,
    /// Global numbers that stand in more than one entry, and the VFs of those entries in order.
    pub twice: Vec<(u64, Vec<u32>)>,
    /// Why something could not be read, so that a VF which is missing may be there.
    pub trouble: Option<ReadError>,
}

/// The state of an entry that maps nothing any more.
const INVALID: &str = "INVALID";

impl QidMap {
    /// Whether a VF has entries and each of them is invalid.
    pub fn is_invalid(&self, vf: u32) -> bool {
        let states = self.vfs.get(&vf);
        states
            .is_some_and(|states| !states.is_empty() && states.keys().all(|state| state.eq_ignore_ascii_case(INVALID)))
    }

    /// Entries of all VFs by state.
    pub fn states(&self) -> QueueStates {
        let mut all = QueueStates::new();
        for (state, count) in self.vfs.values().flatten() {
            *all.entry(Arc::clone(state)).or_default() += count;
        }
        all
    }
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QidMapColumn {
    /// The VF's number; if no column has it, the file's directory does (`sriov/3/qid_map`).
    Vf,
    /// The queue pair's number in the VF.
    Local,
    /// The queue pair's number on the wire.
    Global,
    /// Its state, a word.
    State,
    /// Ignored.
    Other,
}

impl QidMapColumn {
    /// Names in the configuration.
    pub const ALL: [(&'static str, Self); 5] = [
        ("vf", Self::Vf),
        ("local", Self::Local),
        ("global", Self::Global),
        ("state", Self::State),
        ("-", Self::Other),
    ];
}

/// Path and layout of the maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QidMapLayout {
    /// Path with `*` and `?` in its names, below the host root.
    pub path: PathBuf,
    /// Columns from the left; further ones are ignored. One of them is the global number.
    pub columns: Vec<QidMapColumn>,
    /// Whether numbers without `0x` are hexadecimal.
    pub hexadecimal: bool,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_is_digits_alone() {
        assert_eq!(Mac::parse("52:54:00:aB:0c:01"), Some(Mac([0x52, 0x54, 0, 0xab, 0x0c, 1])));
        for wrong in ["", "52:54:00:ab:0c", "52:54:00:ab:0c:01:02", "+1:54:00:ab:0c:01", "5:54:00:ab:0c:01"] {
            assert_eq!(Mac::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parsers(text in any::<String>(), like in "[0-9a-f:+/v.]{0,24}") {
            let _ = (Mac::parse(&text), text.parse::<VfKey>(), like.parse::<VfKey>());
            if let Some(mac) = Mac::parse(&like) {
                prop_assert_eq!(mac.to_string(), like);
            }
        }

        #[test]
        fn addresses_survive_their_text(bytes in any::<[u8; 6]>()) {
            prop_assert_eq!(Mac::parse(&Mac(bytes).to_string()), Some(Mac(bytes)));
        }
    }
}

//! Names of things: PCI addresses, RDMA devices, ports and GUIDs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::text;

/// Serializes a type as the text that it displays, and reads it back.
macro_rules! text_serde {
    ($name:ty, $parse:expr) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                let parse: fn(&str) -> Option<Self> = $parse;
                parse(&text)
                    .ok_or_else(|| serde::de::Error::custom(format_args!("{text:?} is not a {}", stringify!($name))))
            }
        }
    };
}

pub(super) use text_serde;

/// A PCI function's address, `dddd:bb:dd.f`; the domain has four hex digits or, where it is larger (VMD, Hyper-V),
/// up to eight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// PCI domain (segment).
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device (slot) number, 0–31.
    pub device: u8,
    /// Function number, 0–7.
    pub function: u8,
}

impl PciAddress {
    /// The address of a VF of this PF, by `sriov_offset` and `sriov_stride`; `None` beyond the last bus.
    pub fn vf(self, offset: u32, stride: u32, number: u32) -> Option<Self> {
        let own = u32::from(self.bus) << 8 | u32::from(self.device) << 3 | u32::from(self.function);
        let id = u16::try_from(own.checked_add(offset)?.checked_add(stride.checked_mul(number)?)?).ok()?;
        let [bus, rest] = id.to_be_bytes();
        Some(Self { bus, device: rest >> 3, function: rest & 7, ..self })
    }
}

/// What a text that should be a PCI address was instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a PCI address (dddd:bb:dd.f)")]
pub struct InvalidPciAddress(String);

impl FromStr for PciAddress {
    type Err = InvalidPciAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_address(text).ok_or_else(|| InvalidPciAddress(text.chars().take(64).collect()))
    }
}

fn parse_address(text: &str) -> Option<PciAddress> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let hex = |digits: &str, least: usize, most: usize| {
        let fits = (least..=most).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
        fits.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    };
    let device = hex(device, 2, 2).and_then(|d| u8::try_from(d).ok()).filter(|d| *d < 32)?;
    let function = hex(function, 1, 1).and_then(|f| u8::try_from(f).ok()).filter(|f| *f < 8)?;
    Some(PciAddress { domain: hex(domain, 4, 8)?, bus: u8::try_from(hex(bus, 2, 2)?).ok()?, device, function })
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

text_serde!(PciAddress, |text: &str| text.parse().ok());

/// An EUI-64 as the kernel prints it, `0011:2233:4455:6677`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub u64);

impl Guid {
    /// Whether nobody set this GUID.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Reads the kernel's text form: groups of four hex digits, four of them for a GUID.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_groups(text.split(':'))
    }

    fn from_groups<'a>(groups: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut value = 0u64;
        let mut seen = 0;
        for group in groups {
            if group.len() != 4 || !group.bytes().all(|b| b.is_ascii_hexdigit()) {
                return None;
            }
            value = (value << 16) | u64::from(u16::from_str_radix(group, 16).ok()?);
            seen += 1;
        }
        (seen == 4).then_some(Self(value))
    }

    /// The interface half of a GID (`fe80:…`, eight groups), which on an InfiniBand port is the port GUID.
    /// None for an empty slot and for an address without a subnet prefix (an IPv4-mapped GID).
    pub fn from_gid(text: &str) -> Option<Self> {
        let groups: Vec<&str> = text.split(':').collect();
        let (prefix, interface) = groups.split_at_checked(4)?;
        let prefix = Self::from_groups(prefix.iter().copied())?;
        let interface = Self::from_groups(interface.iter().copied())?;
        (!prefix.is_zero() && !interface.is_zero()).then_some(interface)
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, h, i] = self.0.to_be_bytes();
        write!(f, "{a:02x}{b:02x}:{c:02x}{d:02x}:{e:02x}{g:02x}:{h:02x}{i:02x}")
    }
}

text_serde!(Guid, Guid::parse);

/// The name of an RDMA device as the kernel gives it: `mlx5_0`, `rocep193s0f0`. It says nothing about the driver.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeviceName(Arc<str>);

impl DeviceName {
    /// Wraps a kernel name; the kernel allows any character in it but a slash.
    pub fn new(name: &str) -> Self {
        Self(text::name(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialOrd for DeviceName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DeviceName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        natural(&self.0, &other.0)
    }
}

text_serde!(DeviceName, |text: &str| Some(DeviceName::new(text)));

/// Orders names the way people count: `mlx5_2` before `mlx5_10`.
pub fn natural(left: &str, right: &str) -> std::cmp::Ordering {
    if left == right {
        return std::cmp::Ordering::Equal;
    }
    let mut a = left.as_bytes();
    let mut b = right.as_bytes();
    loop {
        let (Some(&x), Some(&y)) = (a.first(), b.first()) else {
            return a.len().cmp(&b.len()).then_with(|| left.cmp(right));
        };
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let (number_a, rest_a) = leading_number(a);
            let (number_b, rest_b) = leading_number(b);
            let order = number_a.len().cmp(&number_b.len()).then_with(|| number_a.cmp(number_b));
            if order.is_ne() {
                return order;
            }
            (a, b) = (rest_a, rest_b);
        } else if x == y {
            (a, b) = (a.split_at(1).1, b.split_at(1).1);
        } else {
            return x.cmp(&y);
        }
    }
}

/// Splits off leading digits, without their leading zeros.
fn leading_number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let zeros = digits.iter().position(|b| *b != b'0').unwrap_or(digits.len());
    (digits.split_at(zeros).1, rest)
}

/// One port of an RDMA device; ports are numbered from 1. Written `mlx5_3/1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortKey {
    /// The device.
    pub device: DeviceName,
    /// Port number, from 1.
    pub port: u32,
}

impl PortKey {
    /// Reads `mlx5_3/1`.
    pub fn parse(text: &str) -> Option<Self> {
        let (device, port) = text.rsplit_once('/')?;
        Some(Self { device: DeviceName::new(device), port: port.parse().ok()? })
    }
}

text_serde!(PortKey, PortKey::parse);

impl fmt::Display for PortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.device, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_of_every_domain_size() {
        for text in ["0000:b2:00.0", "10000:01:1f.7", "abcdef01:ff:00.1"] {
            assert_eq!(text.parse::<PciAddress>().map(|a| a.to_string()), Ok(text.to_owned()));
        }
        for text in
            ["b2:00.0", "0000:b2:00", "0000:b2:20.0", "0000:b2:00.8", "0000:b2:0.0", "0000:b2:00.0 ", "+000:b2:00.0"]
        {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn guids_print_as_the_kernel_does() {
        let guid = Guid::parse("0c42:a103:0065:2ee2");
        assert_eq!(guid, Some(Guid(0x0c42_a103_0065_2ee2)));
        assert_eq!(guid.map(|g| g.to_string()).as_deref(), Some("0c42:a103:0065:2ee2"));
        assert_eq!(Guid::parse("0c42:a103:0065"), None);
        assert_eq!(Guid::parse("0c42:a103:0065:2ee"), None);
    }

    #[test]
    fn a_port_guid_is_the_interface_half_of_its_first_gid() {
        assert_eq!(Guid::from_gid("fe80:0000:0000:0000:0c42:a103:0065:2ee2"), Some(Guid(0x0c42_a103_0065_2ee2)));
        assert_eq!(Guid::from_gid("0000:0000:0000:0000:0000:0000:0000:0000"), None);
        assert_eq!(Guid::from_gid("0000:0000:0000:0000:0000:ffff:c0a8:0101"), None);
        assert_eq!(Guid::from_gid("fe80::1"), None);
    }

    #[test]
    fn devices_sort_as_people_count() {
        let mut names = ["mlx5_10", "mlx5_2", "mlx5_bond_0", "ibp9s0", "mlx5_02"].map(DeviceName::new);
        names.sort();
        assert_eq!(names.map(|n| n.to_string()), ["ibp9s0", "mlx5_02", "mlx5_2", "mlx5_10", "mlx5_bond_0"]);
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parsers(text in any::<String>()) {
            let _ = text.parse::<PciAddress>();
            let _ = Guid::parse(&text);
            let _ = Guid::from_gid(&text);
        }

        #[test]
        fn an_address_survives_its_text(domain in any::<u32>(), bus in any::<u8>(), device in 0u8..32, function in 0u8..8) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn natural_order_is_total(a in "[a-z0-9_]{0,6}", b in "[a-z0-9_]{0,6}", c in "[a-z0-9_]{0,6}") {
            prop_assert_eq!(natural(&a, &b), natural(&b, &a).reverse());
            if natural(&a, &b).is_le() && natural(&b, &c).is_le() {
                prop_assert!(natural(&a, &c).is_le());
            }
            prop_assert_eq!(natural(&a, &b).is_eq(), a == b);
        }
    }
}

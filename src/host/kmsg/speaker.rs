//! The names before a driver's own words (driver, function, device or interface, in the ways in which the kernel prints
//! them), and what the host knows of these names: the PCI function behind each, and its driver.

use std::path::Path;

use super::super::function::{address_of, function_of};
use super::super::io::Host;
use crate::model::ids::PciAddress;
use crate::model::kmsg::MessageSource;

/// The names at the start of a line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Speaker<'a> {
    /// The driver that the line names: the PCI function's, for lines of drivers above it.
    pub driver: Option<MessageSource>,
    /// The function.
    pub address: Option<PciAddress>,
    /// An RDMA device, an interface or an auxiliary device.
    pub name: Option<&'a str>,
    /// Whether the name can only be one of an RDMA device.
    pub is_rdma: bool,
    /// What follows.
    pub text: &'a str,
}

impl<'a> Speaker<'a> {
    /// Reads the names.
    pub fn of(line: &'a str) -> Self {
        if let Some(watched) = line.strip_prefix("NETDEV WATCHDOG: ") {
            let (name, rest) = watched.split_once(" (").unwrap_or(("", watched));
            let driver = rest.split_once(')').and_then(|(driver, _)| MessageSource::by_name(driver));
            return Self { driver, name: word(name), text: line, ..Self::default() };
        }
        if let Some(speaker) = Self::bracketed(line) {
            return speaker;
        }
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        if let Some(module) = first.strip_prefix('<').and_then(|first| first.strip_suffix('>')) {
            return Self { driver: MessageSource::by_name(module), text: rest, ..Self::default() };
        }
        if first.contains(':') {
            return Self::module(line, first, rest);
        }
        let driver = MessageSource::by_name(first);
        let (second, after) = rest.split_once(' ').unwrap_or((rest, ""));
        if let Some(second) = second.strip_suffix(':') {
            let text = after.trim_start();
            return match second.parse() {
                Ok(address) => Self { driver, address: Some(address), text, ..Self::default() }.with_device_first(),
                Err(_) if driver.is_none() && first != "infiniband" => Self { text: line, ..Self::default() },
                Err(_) => Self { driver, name: word(second), is_rdma: first == "infiniband", text, ..Self::default() },
            };
        }
        let Ok(address) = second.parse() else {
            let text = if driver.is_some() { rest } else { line };
            return Self { driver, text, ..Self::default() };
        };
        // A device or interface stands between address and text; an interface may have its state behind it.
        let (names, text) = after.split_once(": ").unwrap_or(("", after));
        let name = names.split(' ').next().filter(|name| names.len() == name.len() || names.ends_with(')'));
        Self { driver, address: Some(address), name: name.and_then(word), is_rdma: false, text: text.trim_start() }
    }

    /// `[qed_mcp_cmd:543(ens2f0-0)]text`.
    fn bracketed(line: &'a str) -> Option<Self> {
        let (inner, text) = line.strip_prefix('[')?.split_once(")]")?;
        let (place, name) = inner.split_once('(')?;
        let driver = ["qedr", "qede", "qed"].into_iter().find(|driver| place.starts_with(&format!("{driver}_")))?;
        // The function's number in the card follows the interface's name.
        let name = match name.rsplit_once('-') {
            Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => name,
        };
        Some(Self { driver: MessageSource::by_name(driver), name: word(name), text, ..Self::default() })
    }

    /// `siw: text`, `mlx4_en: eth0: text`, `ib0: text`, or a driver's own function in the place of its name
    /// (`mlx5_port_module_event:1131:(pid 0): text`), with the RDMA device first on kernels before 4.19
    /// (`rocep1s0:dump_cqe:278:(pid 0): text`).
    fn module(line: &'a str, first: &'a str, rest: &'a str) -> Self {
        let (name, after) = first.split_once(':').unwrap_or((first, ""));
        // Its number may follow the name, and its words at once.
        let numbered = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        if numbered == "ocrdma" && !after.is_empty() {
            let at = name.len() + 1;
            let driver = MessageSource::by_name(numbered);
            return Self { driver, text: line.get(at..).unwrap_or_default(), ..Self::default() };
        }
        if let [device, function, line, "(pid"] = first.split(':').collect::<Vec<_>>().as_slice()
            && !function.is_empty()
            && line.parse::<u32>().is_ok()
        {
            let text = rest.split_once("): ").map_or(rest, |(_, text)| text);
            return Self { name: word(device), is_rdma: true, text, ..Self::default() };
        }
        let of_function = || name.starts_with("mlx5_").then_some(MessageSource::Mlx5Core);
        let driver = MessageSource::by_name(name).or_else(of_function);
        if driver == Some(MessageSource::Mlx4En) {
            let (interface, text) = rest.split_once(": ").unwrap_or(("", rest));
            return Self { driver, name: word(interface), text, ..Self::default() };
        }
        if let Some((device, _)) = name.split_once('/') {
            return Self { driver, name: word(device), is_rdma: true, text: rest, ..Self::default() };
        }
        let alone = first.strip_suffix(':').filter(|name| driver.is_none() && !name.contains(':'));
        // IP over InfiniBand names its interface alone.
        let is_ipoib = alone.is_some_and(|name| name.starts_with("ib"));
        let driver = driver.or(is_ipoib.then_some(MessageSource::IbIpoib));
        Self { driver, name: alone.and_then(word), text: rest, ..Self::default() }
    }

    /// `hfi1 0000:05:00.0: hfi1_0: text`: some drivers put the RDMA device first in their words.
    fn with_device_first(mut self) -> Self {
        if matches!(self.driver, Some(MessageSource::Hfi1 | MessageSource::IbQib))
            && let Some((name, text)) = self.text.split_once(": ").filter(|(name, _)| !name.contains(' '))
        {
            (self.name, self.is_rdma, self.text) = (word(name), true, text);
        }
        self
    }

    /// An address within the words, of lines that name nothing before them.
    pub fn address_in_text(&self) -> Option<PciAddress> {
        let words = self.text.split([' ', ',', ';', '(', ')', '[', ']']);
        words.map(|word| word.trim_end_matches([':', '.'])).find_map(|word| word.parse().ok())
    }
}

fn word(name: &str) -> Option<&str> {
    Some(name).filter(|name| !name.is_empty() && !name.contains(' '))
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The PCI function; `None` for a device in software.
    pub address: Option<PciAddress>,
    /// The driver that has the function; `None` if its lines are not known.
    pub driver: Option<MessageSource>,
    /// Whether the name is one of an RDMA device.
    pub is_rdma: bool,
}

/// Answers what a name stands for.
pub trait Names {
    /// The owner of an RDMA device, an interface or an auxiliary device of this name.
    fn owner(&self, name: &str) -> Option<Owner>;

    /// The driver that has a function.
    fn driver(&self, address: PciAddress) -> Option<MessageSource>;

    /// Whether a driver of RDMA hardware has a function, or the PF that it is a VF of.
    fn is_of_rdma(&self, address: PciAddress) -> bool;

    /// The function that an address without a domain (`41:00.2`) names. Domain 0 is taken where more than one host
    /// bridge has such a function, or none.
    fn in_some_domain(&self, bus_address: &str) -> Option<PciAddress>;
}

/// Of a log whose host is not known.
#[derive(Debug, Clone, Copy)]
pub struct NoNames;

impl Names for NoNames {
    fn owner(&self, _: &str) -> Option<Owner> {
        None
    }

    fn driver(&self, _: PciAddress) -> Option<MessageSource> {
        None
    }

    fn is_of_rdma(&self, _: PciAddress) -> bool {
        false
    }

    fn in_some_domain(&self, bus_address: &str) -> Option<PciAddress> {
        format!("0000:{bus_address}").parse().ok()
    }
}

impl Names for Host {
    fn owner(&self, name: &str) -> Option<Owner> {
        // A name with a separator would lead elsewhere.
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return None;
        }
        ["class/infiniband", "class/net", "bus/auxiliary/devices"].into_iter().find_map(|class| {
            let target = self.io.link(&self.sysfs.join(class).join(name)).ok()?;
            let address = function_of(&target).map(|(_, address)| address);
            let driver = address.and_then(|address| self.driver(address));
            Some(Owner { address, driver, is_rdma: class == "class/infiniband" })
        })
    }

    fn driver(&self, address: PciAddress) -> Option<MessageSource> {
        let function = self.resolve(&self.sysfs.join(format!("bus/pci/devices/{address}"))).ok()?;
        let driver = self.io.link(&function.join("driver")).ok()?;
        MessageSource::by_name(driver.file_name()?.to_str()?)
    }

    fn is_of_rdma(&self, address: PciAddress) -> bool {
        let is_of_rdma = |address| self.driver(address).is_some_and(MessageSource::is_of_rdma);
        let physical = || {
            let function = self.resolve(&self.sysfs.join(format!("bus/pci/devices/{address}"))).ok()?;
            address_of(&self.io.link(&function.join("physfn")).ok()?)
        };
        is_of_rdma(address) || physical().is_some_and(is_of_rdma)
    }

    fn in_some_domain(&self, bus_address: &str) -> Option<PciAddress> {
        let plain: Option<PciAddress> = NoNames.in_some_domain(bus_address);
        let devices = self.sysfs.join("bus/pci/devices");
        let listed = self.io.list(&devices).unwrap_or_default();
        let mut known = listed.iter().filter_map(|name| address_of(Path::new(name)));
        let same = |other: &PciAddress| {
            plain.is_some_and(|plain| {
                (other.bus, other.device, other.function) == (plain.bus, plain.device, plain.function)
            })
        };
        let Some(first) = known.find(same) else { return plain };
        if Some(first) == plain || known.any(|other| same(&other)) { plain } else { Some(first) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_every_form() {
        let table = [
            ("mlx5_core 0000:98:00.0: text", "mlx5_core", "0000:98:00.0", "", "text"),
            ("mlx5_core 0000:41:00.0 enp65s0f0: text: more", "mlx5_core", "0000:41:00.0", "enp65s0f0", "text: more"),
            ("mlx5_core 0000:41:00.0 eth0 (uninitialized): text", "mlx5_core", "0000:41:00.0", "eth0", "text"),
            ("ice 0000:07:00.1 rocep7s0f1: text", "ice", "0000:07:00.1", "rocep7s0f1", "text"),
            ("infiniband bnxt_re0: text", "", "", "bnxt_re0", "text"),
            ("bnxt_re.bnxt_re bnxt_en.rdma.0: text", "bnxt_re", "", "bnxt_en.rdma.0", "text"),
            ("hfi1 0000:05:00.0: hfi1_0: text", "hfi1", "0000:05:00.0", "hfi1_0", "text"),
            ("mlx5_port_module_event:1131:(pid 0): text", "mlx5_core", "", "", "0): text"),
            ("rocep1s0:dump_cqe:278:(pid 0): text", "", "", "rocep1s0", "text"),
            ("<mlx4_ib> mlx4_ib_modify_qp: text", "mlx4_ib", "", "", "mlx4_ib_modify_qp: text"),
            ("mlx4_en: enp5s0: text", "mlx4_en", "", "enp5s0", "text"),
            ("[qed_mcp_cmd:543(ens2f0-0)]text", "qed", "", "ens2f0", "text"),
            ("[qedr_create_qp:12(qedr0)]text", "qedr", "", "qedr0", "text"),
            ("ib0: text", "ib_ipoib", "", "ib0", "text"),
            ("siw: text", "siw", "", "", "text"),
            ("NETDEV WATCHDOG: eth0 (ice): text", "ice", "", "eth0", "NETDEV WATCHDOG: eth0 (ice): text"),
            ("mana 7870:00:00.0: text", "mana", "7870:00:00.0", "", "text"),
            ("eth7 0000:01:00.0: text", "", "0000:01:00.0", "", "text"),
            ("mlx5_0/1: text", "mlx5_core", "", "mlx5_0", "text"),
            ("ocrdma0:text more", "ocrdma", "", "", "text more"),
            ("no names at all", "", "", "", "no names at all"),
        ];
        for (line, driver, address, name, text) in table {
            let speaker = Speaker::of(line);
            assert_eq!(speaker.driver.map(MessageSource::as_str).unwrap_or_default(), driver, "{line}");
            assert_eq!(speaker.address.map(|address| address.to_string()).unwrap_or_default(), address, "{line}");
            assert_eq!(speaker.name.unwrap_or_default(), name, "{line}");
            assert_eq!(speaker.text, text, "{line}");
        }
    }
}

//! QEMU's command line: the domain, whether its state comes from elsewhere, and the functions that it was given.
//!
//! Every user may read `/proc/<pid>/cmdline`, so this is what is left to go by where descriptors are hidden. What is
//! plugged or unplugged while the guest runs is not in it, and with iommufd libvirt passes an open file without any
//! address.

use std::sync::Arc;

use serde_json::Value;

use crate::host::function::address_of;
use crate::model::ids::PciAddress;
use crate::model::text;

/// What a command line of QEMU says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// `-name guest=vm1,debug-threads=on`, `-name vm1`.
    pub(super) domain: Option<Arc<str>>,
    /// `-incoming …`: its memory comes from a migration or a saved image.
    pub(super) incoming: bool,
    /// Functions of `-device vfio-pci,…`, in order, each once.
    pub(super) functions: Vec<PciAddress>,
}

/// Reads a command line, arguments separated by NUL; `None` if the program isn't QEMU.
pub(super) fn parse_command_line(line: &[u8]) -> Option<CommandLine> {
    let mut arguments = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let program = arguments.next()?;
    let program = program.rsplit('/').next()?;
    if !program.starts_with("qemu") && program != "kvm" {
        return None;
    }
    let mut found = CommandLine::default();
    while let Some(argument) = arguments.next() {
        // One dash and two are the same to QEMU.
        match argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) {
            Some("name") => found.domain = arguments.next().and_then(|value| guest_name(&value)),
            Some("incoming") => found.incoming = arguments.next().is_some(),
            Some("device") => {
                let function = arguments.next().and_then(|value| function_of(&value));
                if let Some(function) = function.filter(|function| !found.functions.contains(function)) {
                    found.functions.push(function);
                }
            }
            _ => {}
        }
    }
    Some(found)
}

/// The guest's name in the value of `-name`. A comma in a name is written twice.
fn guest_name(value: &str) -> Option<Arc<str>> {
    let value = value.replace(",,", "\0");
    let mut fields = value.split(',');
    let guest = fields.clone().find_map(|field| field.strip_prefix("guest="));
    let name = guest.or_else(|| fields.next().filter(|field| !field.contains('=')))?;
    Some(text::name(&name.replace('\0', ",")))
}

/// The function in the value of `-device`, as keys and values or as a JSON object; `None` for any other device, a
/// mediated one among them.
fn function_of(value: &str) -> Option<PciAddress> {
    let is_vfio = |driver: &str| driver.starts_with("vfio-pci");
    if value.trim_start().starts_with('{') {
        let object: Value = serde_json::from_str(value).ok()?;
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        return function(text("host"), text("sysfsdev")).filter(|_| text("driver").is_some_and(is_vfio));
    }
    let mut fields = value.split(',');
    let first = fields.next()?;
    let driver = first.strip_prefix("driver=").unwrap_or(first);
    let field = |key: &str| fields.clone().find_map(|field| field.strip_prefix(key)?.strip_prefix('='));
    function(field("host"), field("sysfsdev")).filter(|_| is_vfio(driver))
}

/// `98:00.1` is in domain 0. Of a path the last part counts: `/sys/bus/pci/devices/0000:98:00.1`.
fn function(host: Option<&str>, sysfsdev: Option<&str>) -> Option<PciAddress> {
    let host = host.map(|host| if host.matches(':').count() == 1 { format!("0000:{host}") } else { host.to_owned() });
    host.and_then(|host| host.parse().ok()).or_else(|| address_of(sysfsdev?.trim_end_matches('/').as_ref()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(line: &str) -> Option<CommandLine> {
        parse_command_line(line.replace(' ', "\0").as_bytes())
    }

    #[test]
    fn names_of_domains() {
        let name = |line: &str| of(line).and_then(|line| line.domain);
        assert_eq!(name("/usr/bin/qemu-system-x86_64 -name guest=vm1,debug-threads=on -S").as_deref(), Some("vm1"));
        assert_eq!(name("/usr/libexec/qemu-kvm -name vm2 -m 4").as_deref(), Some("vm2"));
        assert_eq!(name("kvm -m 4 -name guest=a,,b").as_deref(), Some("a,b"));
        assert_eq!(of("/usr/bin/dpdk-testpmd -name guest=vm1"), None);
        assert_eq!(name("/usr/bin/qemu-system-x86_64 -name"), None);
    }

    #[test]
    fn functions_in_every_spelling() {
        let functions = |line: &str| of(line).unwrap().functions.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(functions("qemu-system-x86_64 -device vfio-pci,host=41:00.2"), ["0000:41:00.2"]);
        assert_eq!(
            functions(
                "qemu-kvm -device vfio-pci,host=0001:41:00.2,id=hostdev0,addr=0x0 --device driver=vfio-pci,host=c1:00.3"
            ),
            ["0001:41:00.2", "0000:c1:00.3"]
        );
        assert_eq!(functions("kvm -device vfio-pci,id=n,sysfsdev=/sys/bus/pci/devices/0000:41:00.4"), ["0000:41:00.4"]);
        let json = "qemu-kvm -device {\"driver\":\"vfio-pci\",\"host\":\"0000:41:00.5\",\"id\":\"hostdev0\"}";
        assert_eq!(functions(json), ["0000:41:00.5"]);
        // Mediated devices, an open file in place of an address, and other devices name no function.
        for none in [
            "kvm -device vfio-pci,sysfsdev=/sys/bus/mdev/devices/11111111-2222-4333-8444-5555555555aa",
            "kvm -device {\"driver\":\"vfio-pci\",\"iommufd\":\"iommufd0\",\"fd\":\"23\"}",
            "kvm -device virtio-net-pci,host=41:00.2",
            "kvm -device",
        ] {
            assert_eq!(functions(none), [""; 0], "{none}");
        }
        assert_eq!(functions("kvm -device vfio-pci,host=41:00.2 -device vfio-pci,host=0000:41:00.2").len(), 1);
    }

    #[test]
    fn a_state_from_elsewhere() {
        assert!(of("/usr/bin/qemu-system-x86_64 -name guest=vm1 -incoming defer").unwrap().incoming);
        assert!(!of("/usr/bin/qemu-system-x86_64 -name guest=vm1").unwrap().incoming);
    }

    proptest! {
        #[test]
        fn every_address_is_found_in_every_spelling(bus in any::<u8>(), slot in 0u8..32, function in 0u8..8) {
            let address = PciAddress { domain: 0, bus, device: slot, function };
            for value in [
                format!("vfio-pci,host={address}"),
                format!("vfio-pci,id=a,host={}", address.to_string().trim_start_matches("0000:")),
                format!("vfio-pci,sysfsdev=/sys/bus/pci/devices/{address}"),
                format!("{{\"driver\":\"vfio-pci\",\"host\":\"{address}\"}}"),
            ] {
                let line = format!("qemu-kvm\0-device\0{value}\0");
                prop_assert_eq!(parse_command_line(line.as_bytes()).unwrap().functions, [address]);
            }
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let line = [b"kvm\0-device\0".as_slice(), &bytes].concat();
            prop_assert!(parse_command_line(&line).is_some());
            let _ = parse_command_line(&bytes);
        }
    }
}

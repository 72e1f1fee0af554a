//! What the host runs on: hardware, or whose hypervisor.

use super::{beginning, line};
use crate::host::collector::ReadContext;
use crate::host::text;

/// Makers' and products' names in the firmware's tables, and the hypervisor that they stand for.
const NAMES: [(&str, &str); 11] = [
    ("QEMU", "kvm"),
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("Google Compute Engine", "kvm"),
    ("Amazon EC2", "amazon"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("Microsoft Corporation Virtual Machine", "microsoft"),
    ("Xen", "xen"),
    ("innotek GmbH", "oracle"),
    ("Parallels", "parallels"),
];

/// The hypervisor, `none` for hardware, nothing where the host does not say.
pub(super) fn virtualization(cx: &mut ReadContext<'_>) -> Option<&'static str> {
    let dmi = cx.host.sysfs.join("class/dmi/id");
    let mut name = |file: &str| line(cx, dmi.join(file), text::label);
    let (vendor, product) = (name("sys_vendor"), name("product_name"));
    let names = format!("{} {}", vendor.as_deref().unwrap_or_default(), product.as_deref().unwrap_or_default());
    let known = NAMES.iter().find(|(part, _)| names.contains(part)).map(|(_, kind)| *kind);
    // Metal instances have the cloud's names and no hypervisor.
    let under = under_hypervisor(cx);
    match (known, under) {
        (_, Some(false)) => Some("none"),
        (Some(kind), _) => Some(kind),
        (None, Some(true)) => Some("vm-other"),
        (None, None) => None,
    }
}

/// Whether the CPU says that it is virtual (x86: a flag in `/proc/cpuinfo`); none where it does not say either way.
fn under_hypervisor(cx: &mut ReadContext<'_>) -> Option<bool> {
    let path = cx.host.procfs.join("cpuinfo");
    let text = beginning(cx, &path)?;
    let flags = text.lines().find(|line| line.starts_with("flags"))?;
    Some(flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

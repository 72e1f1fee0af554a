//! How the host is set up, as `check --verbose` says it.

use std::fmt::Write as _;

use super::check::wrapped;
use crate::model::posture::{Acs, PciIsolation, Posture};
use crate::model::snapshot::Snapshot;

/// Width of the column of names.
const NAMES: usize = 17;

/// A line for each thing that the host says; nothing of a host that says nothing.
pub(super) fn posture(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    let mut row = |name: &str, text: &str| {
        let text = wrapped(text, &" ".repeat(NAMES));
        let _ = write!(out, "{name:<NAMES$}{}", text.get(NAMES..).unwrap_or_default());
    };
    if let Some(posture) = snapshot.all::<Posture>().next() {
        for (name, text) in of_host(posture) {
            row(name, &text);
        }
    }
    let mut functions: Vec<&PciIsolation> = snapshot.all().collect();
    functions.sort_by_key(|function| function.address);
    functions.dedup_by_key(|function| function.address);
    let (hidden, shown): (Vec<&PciIsolation>, Vec<&PciIsolation>) =
        functions.into_iter().partition(|function| function.acs == Some(Acs::Hidden));
    for function in &shown {
        let acs = function.acs.map(|acs| format!("ACS {acs}"));
        let ari = function.ari.map(|on| format!("ARI {}", if on { "on" } else { "off" }));
        let parts: Vec<String> = acs.into_iter().chain(ari).collect();
        row(&function.address.to_string(), &parts.join(", "));
    }
    if !hidden.is_empty() {
        let on = |on: bool| -> Vec<String> {
            let those = hidden.iter().filter(|function| function.ari == Some(on));
            those.map(|function| function.address.to_string()).collect()
        };
        let list = |word: &str, addresses: Vec<String>| {
            if addresses.is_empty() { String::new() } else { format!("; ARI {word}: {}", addresses.join(", ")) }
        };
        let text = format!(
            "ACS of {} functions is not readable without CAP_SYS_ADMIN{}{}",
            hidden.len(),
            list("on", on(true)),
            list("off", on(false))
        );
        row("isolation", &text);
    }
    if out.is_empty() { out } else { format!("\nhost             setup\n{out}") }
}

fn of_host(posture: &Posture) -> Vec<(&'static str, String)> {
    let list = |parts: Vec<String>| (!parts.is_empty()).then(|| parts.join(", "));
    let governors = posture.governors.iter().map(|(governor, cpus)| format!("{governor} ({cpus} CPUs)")).collect();
    let pages = posture.hugepages.iter().filter(|(_, (all, _))| *all > 0);
    let pages = pages.map(|(size, (all, free))| format!("{all} of {size} kB, {free} free")).collect();
    let drivers = posture.driver_versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
    let rows = [
        ("virtualization", posture.virtualization.map(str::to_owned)),
        ("IOMMU", posture.iommu.as_deref().map(str::to_owned)),
        ("kernel arguments", list(posture.arguments.iter().map(ToString::to_string).collect())),
        ("rdma namespaces", posture.rdma_netns_mode.map(str::to_owned)),
        ("governors", list(governors)),
        ("NUMA balancing", posture.numa_balancing.map(switch)),
        ("huge pages", list(pages)),
        ("drivers", list(drivers)),
    ];
    rows.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
}

#[cfg(test)]
mod tests {
    use crate::export::testing;
    use crate::model::snapshot::Snapshot;

    #[test]
    fn what_a_host_says_of_itself() {
        let text = super::posture(&testing::report().snapshot);
        for line in [
            "\nhost             setup\n",
            "\nvirtualization   none\n",
            "\nIOMMU            DMA-FQ\n",
            "\nkernel arguments intel_iommu=on, isolcpus=2-5\n",
            "\ngovernors        performance (64 CPUs)\n",
            "\nNUMA balancing   off\n",
            "\n0000:97:02.0     ACS source_validation,request_redirect,completion_redirect,upstream_forwarding\n",
            "\n0000:98:00.0     ACS none, ARI on\n",
            "\nisolation        ACS of 2 functions is not readable without CAP_SYS_ADMIN; ARI on: 0000:3b:00.0\n",
        ] {
            assert!(text.contains(line), "{line:?} in\n{text}");
        }
    }

    #[test]
    fn nothing_of_a_host_that_says_nothing() {
        assert_eq!(super::posture(&Snapshot::new(testing::now(), [], Vec::new())), "");
    }
}

//! How well functions are kept apart on PCIe, as `check --verbose` says it: access control and alternative routing.

use std::fmt::Write as _;

use super::check::wrapped;
use crate::model::count::counted;
use crate::model::posture::{Acs, PciIsolation};
use crate::model::snapshot::Snapshot;

/// Width of the column of names.
const NAMES: usize = 17;

/// A line for each function and port above, and one for those that hide it; nothing of a host that says nothing.
pub(super) fn isolation(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    let mut row = |name: &str, text: &str| {
        let text = wrapped(text, &" ".repeat(NAMES));
        let _ = write!(out, "{name:<NAMES$}{}", text.get(NAMES..).unwrap_or_default());
    };
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
            "ACS of {} is not readable without CAP_SYS_ADMIN{}{}",
            counted(hidden.len(), "function"),
            list("on", on(true)),
            list("off", on(false))
        );
        row("not readable", &text);
    }
    if out.is_empty() { out } else { format!("\nfunction         isolation\n{out}") }
}

#[cfg(test)]
mod tests {
    use crate::export::testing;
    use crate::model::snapshot::Snapshot;

    #[test]
    fn what_can_be_read_and_what_cannot() {
        let text = super::isolation(&testing::report().snapshot);
        for line in [
            "\nfunction         isolation\n",
            "\n0000:97:02.0     ACS source_validation,request_redirect,completion_redirect,upstream_forwarding\n",
            "\n0000:98:00.0     ACS none, ARI on\n",
            "\nnot readable     ACS of 2 functions is not readable without CAP_SYS_ADMIN; ARI on: 0000:3b:00.0\n",
        ] {
            assert!(text.contains(line), "{line:?} in\n{text}");
        }
    }

    #[test]
    fn nothing_of_a_host_that_says_nothing() {
        assert_eq!(super::isolation(&Snapshot::new(testing::now(), [], Vec::new())), "");
    }
}

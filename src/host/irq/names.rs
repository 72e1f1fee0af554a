//! Whose a vector is by the names in its row, for hosts that do not list a function's vectors (`msi_irqs`).

use super::table::RowNames;

/// Whether a row belongs to this function: its address in the name of an action (`mlx5_comp0@pci:0000:98:00.0`,
/// `ice-0000:84:00.0:misc`) or of the chip (`IR-PCI-MSIX-0000:98:00.0`), or one of its interfaces in the name of a
/// queue (`eth2-TxRx-0`, `ice-eth2-rx-3`).
pub(super) fn belongs(names: &RowNames<'_>, address: &str, interfaces: &[String]) -> bool {
    names.chip.strip_suffix(address).is_some_and(|before| before.ends_with('-'))
        || names.actions.split(", ").any(|action| names_address(action, address) || names_queue(action, interfaces))
}

fn names_address(action: &str, address: &str) -> bool {
    // An address within a longer one (a domain of five digits) is another's.
    let whole = |at: usize| !action[..at].ends_with(|char: char| char.is_ascii_hexdigit());
    action.match_indices(address).any(|(at, _)| whole(at))
}

fn names_queue(action: &str, interfaces: &[String]) -> bool {
    let action = action.strip_prefix("ice-").unwrap_or(action);
    interfaces.iter().any(|name| {
        let rest = action.strip_prefix(&**name).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|rest| ["TxRx-", "rx-", "tx-"].iter().any(|queue| rest.starts_with(queue)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names<'a>(chip: &'a str, actions: &'a str) -> RowNames<'a> {
        RowNames { chip, actions }
    }

    #[test]
    fn names_of_every_driver() {
        let (address, interfaces) = ("0000:84:00.0", ["eth2".to_owned()]);
        let own = [
            ("IR-PCI-MSIX-0000:84:00.0", ""),
            ("PCI-MSI", "mlx5_comp0@pci:0000:84:00.0"),
            ("PCI-MSI", "ice-0000:84:00.0:misc"),
            ("PCI-MSI", "irdma-0000:84:00.0-CEQ-3"),
            ("PCI-MSI", "ice-eth2-TxRx-0"),
            ("PCI-MSI", "other, eth2-TxRx-7"),
        ];
        for (chip, actions) in own {
            assert!(belongs(&names(chip, actions), address, &interfaces), "{chip} {actions}");
        }
        let other = [
            ("IR-PCI-MSIX-0000:84:00.1", "x"),
            ("PCI-MSI", "mlx5_comp0@pci:10000:84:00.0"),
            ("PCI-MSI", "eth20-TxRx-0"),
            ("PCI-MSI", "eth2"),
            ("IO-APIC", "timer"),
            ("", ""),
        ];
        for (chip, actions) in other {
            assert!(!belongs(&names(chip, actions), address, &interfaces), "{chip} {actions}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_them(chip in any::<String>(), actions in any::<String>()) {
            let _ = belongs(&names(&chip, &actions), "0000:84:00.0", &["e".to_owned()]);
        }
    }
}

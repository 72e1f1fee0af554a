//! `/proc/interrupts` as a stream: rows of counts by CPU, of which only the wanted ones are parsed.
//!
//! The header names the CPUs that are online; a row has a number, a colon, one count for each of them, the chip, mostly
//! its line there, and the names of the actions. Architectures add rows of their own with letters and other columns.

use std::io;

use crate::host::io::OpenFile;

/// Bytes read at once.
const CHUNK: usize = 64 * 1024;

/// Longest row: 8192 CPUs take 90 KiB. A longer one is skipped.
const LONGEST_ROW: usize = 1024 * 1024;

/// Buffers that are reused from one pass to the next.
#[derive(Debug, Default)]
pub struct TableBuffer {
    window: Vec<u8>,
    columns: Vec<u32>,
    counts: Vec<(u32, u32)>,
}

/// Receives the rows of the table.
pub trait RowVisitor {
    /// Whether to parse the row of this interrupt. If not, [`Self::wants_named`] is asked with its names.
    fn wants(&mut self, irq: u32) -> bool;

    /// Whether to parse a row because of the names after its counts.
    fn wants_named(&mut self, _irq: u32, _tail: &RowNames<'_>) -> bool {
        false
    }

    /// Takes a row: its non-zero counts by CPU, and the names after them. `None` if the row does not fit the header,
    /// because a CPU came or went during the read.
    fn row(&mut self, irq: u32, counts: Option<&[(u32, u32)]>, names: &RowNames<'_>);
}

/// The names after the counts of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowNames<'a> {
    /// The interrupt chip: `IR-PCI-MSIX-0000:01:00.0`.
    pub chip: &'a str,
    /// Names of the actions, joined by `, `; empty if the interrupt has no handler.
    pub actions: &'a str,
}

/// Reads a whole table; how many rows it had. Memory does not grow with the file, only with its longest row.
///
/// # Errors
/// What reading the file failed with; `InvalidData` for a file that has no header of CPUs.
pub fn read(file: &mut dyn OpenFile, buffer: &mut TableBuffer, rows: &mut impl RowVisitor) -> io::Result<usize> {
    let (mut offset, mut filled, mut seen, mut skipping) = (0u64, 0usize, 0usize, false);
    let mut header = true;
    loop {
        if buffer.window.len() < filled + CHUNK {
            buffer.window.resize(filled + CHUNK, 0);
        }
        let room = buffer.window.get_mut(filled..).unwrap_or_default();
        let length = file.read_at(offset, room)?;
        let ended = length == 0;
        offset += length as u64;
        filled += length;
        let TableBuffer { window, columns, counts } = buffer;
        let mut rest = window.get(..filled).unwrap_or_default();
        while let Some((line, after)) = split_line(rest, ended) {
            rest = after;
            if std::mem::take(&mut skipping) {
                continue;
            }
            if header {
                header = false;
                parse_header(line, columns).ok_or(io::ErrorKind::InvalidData)?;
            } else {
                seen += 1;
                parse_row(line, columns, counts, rows);
            }
        }
        let (used, left) = (filled - rest.len(), rest.len());
        if ended {
            return if header { Err(io::ErrorKind::InvalidData.into()) } else { Ok(seen) };
        }
        if left > LONGEST_ROW {
            skipping = true;
            filled = 0;
        } else {
            window.copy_within(used..filled, 0);
            filled = left;
        }
    }
}

/// The first line of a text and what follows it; at the end of the file a line needs no newline.
fn split_line(text: &[u8], ended: bool) -> Option<(&[u8], &[u8])> {
    match text.iter().position(|byte| *byte == b'\n') {
        Some(at) => Some((text.get(..at)?, text.get(at + 1..)?)),
        None if ended && !text.is_empty() => Some((text, &[])),
        None => None,
    }
}

/// `CPU0 CPU1 CPU4 …`: the CPUs of the columns.
fn parse_header(line: &[u8], columns: &mut Vec<u32>) -> Option<()> {
    columns.clear();
    for word in line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        let (cpu, []) = digits(word.strip_prefix(b"CPU")?)? else { return None };
        columns.push(cpu);
    }
    (!columns.is_empty()).then_some(())
}

fn parse_row(line: &[u8], columns: &[u32], counts: &mut Vec<(u32, u32)>, rows: &mut impl RowVisitor) {
    let Some((irq, rest)) = digits(line.trim_ascii_start()) else { return };
    let Some(rest) = rest.strip_prefix(b":") else { return };
    if rows.wants(irq) {
        let (complete, rest) = parse_counts(rest, columns, counts);
        rows.row(irq, complete.then_some(&**counts), &parse_tail(rest));
        return;
    }
    // Only the names, after the last count.
    let after = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b' ').unwrap_or(rest.len());
    let names = parse_tail(rest.get(after..).unwrap_or_default());
    if rows.wants_named(irq, &names) {
        let (complete, rest) = parse_counts(rest, columns, counts);
        rows.row(irq, complete.then_some(&**counts), &parse_tail(rest));
    }
}

/// Parses one count for each column. False if there are more or fewer, or one is not a 32-bit number.
fn parse_counts<'a>(mut rest: &'a [u8], columns: &[u32], counts: &mut Vec<(u32, u32)>) -> (bool, &'a [u8]) {
    counts.clear();
    for cpu in columns {
        match digits(rest.trim_ascii_start()) {
            Some((count, after)) if ends_word(after) => {
                rest = after;
                if count > 0 {
                    counts.push((*cpu, count));
                }
            }
            _ => return (false, rest),
        }
    }
    let one_more = digits(rest.trim_ascii_start()).is_some_and(|(_, after)| ends_word(after));
    (!one_more, rest)
}

fn ends_word(rest: &[u8]) -> bool {
    rest.first().is_none_or(u8::is_ascii_whitespace)
}

/// Leading digits as a 32-bit number, and what follows them.
fn digits(text: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0u32;
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value.checked_mul(10)?.checked_add(u32::from(digit))?;
        rest = after;
    }
    (rest.len() < text.len()).then_some((value, rest))
}

/// `  IR-PCI-MSIX-0000:01:00.0    1-edge      mlx5_comp0@pci:…` on x86, `  GICv3  27 Level     arch_timer` where the
/// trigger is told, `  PCI-MSI  mlx5_comp0@pci:…` where a chip has no lines (s390). A chip's name may have more than one
/// word (`SiFive PLIC`); two spaces stand before the names of the actions.
fn parse_tail(rest: &[u8]) -> RowNames<'_> {
    // An action's name may be any bytes; the valid text before the first bad byte is enough to identify it.
    let text = match std::str::from_utf8(rest) {
        Ok(text) => text,
        Err(error) => rest.get(..error.valid_up_to()).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or(""),
    };
    let text = text.trim_start();
    let (_, mut rest) = word(text);
    while let Some(next) = rest.strip_prefix(' ').filter(|next| !next.starts_with(' ')) {
        let (name, after) = word(next);
        if name.is_empty() || is_line(name) || is_trigger(name) {
            break;
        }
        rest = after;
    }
    let chip = text.get(..text.len() - rest.len()).unwrap_or_default();
    for part in [is_line, is_trigger, is_handler] {
        let (name, after) = word(rest);
        if part(name) {
            rest = after;
        }
    }
    RowNames { chip, actions: rest.trim() }
}

/// A line of the chip, with the name of the flow handler where nothing stands between: `27`, `1-edge`.
fn is_line(word: &str) -> bool {
    let number = word.split_once('-').map_or(word, |(number, _)| number);
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// `Level`, `Edge`, or the same with the name of the flow handler.
fn is_trigger(word: &str) -> bool {
    ["Level", "Edge"].iter().any(|name| word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || is_handler(rest)))
}

/// `-fasteoi`.
fn is_handler(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-')
}

/// The first word of a text, and what follows it.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()))
}

/// Whether a row belongs to this function, on hosts that do not list a function's vectors (`msi_irqs`): its address is
/// in the name of an action (`mlx5_comp0@pci:0000:98:00.0`, `ice-0000:84:00.0:misc`) or of the chip
/// (`IR-PCI-MSIX-0000:98:00.0`), or one of its interfaces in the name of a queue (`eth2-TxRx-0`, `ice-eth2-rx-3`).
pub(super) fn belongs(names: &RowNames<'_>, address: &str, interfaces: &[String]) -> bool {
    names.chip.strip_suffix(address).is_some_and(|before| before.ends_with('-'))
        || names.actions.split(", ").any(|action| names_address(action, address) || names_queue(action, interfaces))
}

fn names_address(action: &str, address: &str) -> bool {
    // An address within a longer one (a domain of five digits) belongs to another function.
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
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A file that gives a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl OpenFile for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.read_at(0, buffer)
        }

        fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
            let rest = self.0.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
            Ok(buffer.iter_mut().take(self.1).zip(rest).map(|(to, from)| *to = *from).count())
        }
    }

    /// Counts, chip, actions.
    type Row = (Option<Vec<(u32, u32)>>, String, String);

    #[derive(Default)]
    struct RowCollector {
        only: Option<u32>,
        rows: BTreeMap<u32, Row>,
    }

    impl RowVisitor for RowCollector {
        fn wants(&mut self, irq: u32) -> bool {
            self.only.is_none_or(|only| only == irq)
        }

        fn row(&mut self, irq: u32, counts: Option<&[(u32, u32)]>, names: &RowNames<'_>) {
            let row = (counts.map(<[_]>::to_vec), names.chip.to_owned(), names.actions.to_owned());
            self.rows.insert(irq, row);
        }
    }

    fn rows(text: &[u8], step: usize) -> (io::Result<usize>, RowCollector) {
        let mut all = RowCollector::default();
        let seen = read(&mut Slow(text, step), &mut TableBuffer::default(), &mut all);
        (seen, all)
    }

    const TABLE: &str = "           CPU0       CPU2       CPU3\n\
        \x20  0:         37          0          0  IR-IO-APIC   2-edge      timer\n\
        \x20 16:          0          0          0  IR-IO-APIC  16-fasteoi   ehci_hcd:usb1, mmc0\n\
        \x20 30:          1          0 4294967295  IR-PCI-MSI 458752-edge\n\
        \x20 99:        324          0       4360  IR-PCI-MSIX-0000:01:00.0    1-edge      mlx5_comp0@pci:0000:01:00.0\n\
        100:          5          0          0  ITS-MSI 524288 Edge      a name with  spaces\n\
        101:          5          0          0     GICv3  27 Level     arch_timer\n\
        102:          5          0  PCI-MSI  1-edge   too few\n\
        103:          5          0          0          7  PCI-MSI  1-edge   too many\n\
        104: 4294967296          0          0  PCI-MSI  1-edge   too large\n\
        NMI:          3          3          3   Non-maskable interrupts\n\
        ERR:          0\n MIS:          0\n";

    #[test]
    fn rows_of_every_form() {
        for step in [1, 7, 4096] {
            let (seen, all) = rows(TABLE.as_bytes(), step);
            assert_eq!(seen.unwrap(), 12);
            let row = |irq: u32| all.rows[&irq].clone();
            let text = str::to_owned;
            assert_eq!(row(0), (Some(vec![(0, 37)]), text("IR-IO-APIC"), text("timer")));
            assert_eq!(row(16), (Some(vec![]), text("IR-IO-APIC"), text("ehci_hcd:usb1, mmc0")));
            assert_eq!(row(30), (Some(vec![(0, 1), (3, u32::MAX)]), text("IR-PCI-MSI"), text("")));
            assert_eq!(row(99).0, Some(vec![(0, 324), (3, 4360)]));
            assert_eq!(row(99).2, "mlx5_comp0@pci:0000:01:00.0");
            assert_eq!(row(100).2, "a name with  spaces");
            assert_eq!(row(101), (Some(vec![(0, 5)]), text("GICv3"), text("arch_timer")));
            assert_eq!((row(102).0, row(103).0, row(104).0), (None, None, None));
            assert_eq!(all.rows.len(), 9);
        }
    }

    #[test]
    fn a_file_without_a_header_is_an_error() {
        for wrong in ["", "\n", "CPU0 CPUx\n", "  0:   1\n", "CPU4294967296\n"] {
            assert_eq!(rows(wrong.as_bytes(), 9).0.unwrap_err().kind(), io::ErrorKind::InvalidData, "{wrong:?}");
        }
        assert_eq!(rows(b"CPU0\n 1:  2 a 0-edge b", 3).1.rows.len(), 1);
    }

    #[test]
    fn rows_of_every_architecture() {
        let table = [
            (
                "IR-PCI-MSIX-0000:01:00.0    1-edge      mlx5_comp0@pci:0000:01:00.0",
                "IR-PCI-MSIX-0000:01:00.0",
                "mlx5_comp0@pci:0000:01:00.0",
            ),
            ("IR-IO-APIC   16-fasteoi   ehci_hcd:usb1, mmc0", "IR-IO-APIC", "ehci_hcd:usb1, mmc0"),
            (
                "ITS-PCI-MSIX-0000:01:00.0   3 Edge      mlx5_comp2@pci:0000:01:00.0",
                "ITS-PCI-MSIX-0000:01:00.0",
                "mlx5_comp2@pci:0000:01:00.0",
            ),
            ("ITS-MSI 536870913 Edge      mlx5_async0@pci:0004:01:00.0", "ITS-MSI", "mlx5_async0@pci:0004:01:00.0"),
            ("  GICv3  27 Level     arch_timer", "GICv3", "arch_timer"),
            ("XIVE-IRQ 2097187 Edge      mlx5_comp4@pci:0033:01:00.0", "XIVE-IRQ", "mlx5_comp4@pci:0033:01:00.0"),
            ("XIVE-IPI   0 Edge      IPI-0", "XIVE-IPI", "IPI-0"),
            (
                "PCI-MSIX-0000:02:00.0   5-edge      mlx5_comp1@pci:0000:02:00.0",
                "PCI-MSIX-0000:02:00.0",
                "mlx5_comp1@pci:0000:02:00.0",
            ),
            ("PCH MSI  14  Edge     mlx5_comp1@pci:0000:02:00.0", "PCH MSI", "mlx5_comp1@pci:0000:02:00.0"),
            (
                "AVEC-PCI-MSIX-0000:02:00.0   1-edge      mlx5_comp0@pci:0000:02:00.0",
                "AVEC-PCI-MSIX-0000:02:00.0",
                "mlx5_comp0@pci:0000:02:00.0",
            ),
            (
                "IMSIC-PCI-MSIX-0001:01:00.0   0 Edge      mlx5_async0@pci:0001:01:00.0",
                "IMSIC-PCI-MSIX-0001:01:00.0",
                "mlx5_async0@pci:0001:01:00.0",
            ),
            ("SiFive PLIC  10 Edge      virtio0", "SiFive PLIC", "virtio0"),
            ("RISC-V INTC   5 Edge      riscv-timer", "RISC-V INTC", "riscv-timer"),
            (" PCI-MSI      mlx5_comp0@pci:0001:00:00.0", "PCI-MSI", "mlx5_comp0@pci:0001:00:00.0"),
            (" PCI-MSI  a name with 12 words", "PCI-MSI", "a name with 12 words"),
            ("GICv3  27 Level    -fasteoi  arch_timer", "GICv3", "arch_timer"),
            ("PCI-MSI      Edge      name", "PCI-MSI", "name"),
            ("None", "None", ""),
            ("", "", ""),
        ];
        for (tail, chip, actions) in table {
            assert_eq!(parse_tail(tail.as_bytes()), RowNames { chip, actions }, "{tail}");
        }
    }

    #[test]
    fn an_endless_row_is_skipped() {
        let long = format!("CPU0\n 1: 2 chip 0-edge {}\n 2: 3 chip 0-edge b\n", "x".repeat(3 * LONGEST_ROW));
        let mut all = RowCollector::default();
        let mut buffer = TableBuffer::default();
        read(&mut Slow(long.as_bytes(), CHUNK), &mut buffer, &mut all).unwrap();
        assert_eq!(all.rows.keys().copied().collect::<Vec<_>>(), [2]);
        assert!(buffer.window.len() < 2 * LONGEST_ROW);
    }

    #[test]
    fn memory_does_not_grow_with_the_file() {
        let row = format!(" 7: {} chip 0-edge name\n", "      12345".repeat(512));
        let header = (0..512).map(|cpu| format!("CPU{cpu}")).collect::<Vec<_>>().join(" ");
        let table = format!("{header}\n{}", row.repeat(500));
        let (mut buffer, mut all) = (TableBuffer::default(), RowCollector { only: Some(8), ..RowCollector::default() });
        assert_eq!(read(&mut Slow(table.as_bytes(), usize::MAX), &mut buffer, &mut all).unwrap(), 500);
        assert!(buffer.window.len() <= 2 * CHUNK && all.rows.is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), step in 1usize..64) {
            let _ = rows(&bytes, step);
            let _ = rows(&[b"CPU0 CPU1\n", &*bytes].concat(), step);
        }

        #[test]
        fn near_tables_parse_without_a_panic(text in "( *[0-9]{1,11}:?( +[0-9]{1,11}){0,4} +[A-Za-z:-]{0,9}\n?){0,6}", step in 1usize..64) {
            let _ = rows(format!("CPU0 CPU1\n{text}").as_bytes(), step);
        }

        #[test]
        fn counts_survive_their_row(
            row in proptest::collection::btree_map(0u32..4096, any::<u32>(), 1..40),
            irq in any::<u32>(),
            step in 1usize..64,
        ) {
            let header = row.keys().map(|cpu| format!("CPU{cpu:<8}")).collect::<Vec<_>>().join(" ");
            let counts = row.values().map(|count| format!("{count:>10}")).collect::<Vec<_>>().join(" ");
            let (seen, all) = rows(format!("    {header}\n{irq:>4}: {counts} PCI-MSI 0-edge  x y\n").as_bytes(), step);
            prop_assert_eq!(seen.unwrap(), 1);
            let expected: Vec<(u32, u32)> = row.into_iter().filter(|(_, count)| *count > 0).collect();
            prop_assert_eq!(all.rows[&irq].clone(), (Some(expected), "PCI-MSI".to_owned(), "x y".to_owned()));
        }
    }

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
        fn any_text_parses_without_a_panic(chip in any::<String>(), actions in any::<String>()) {
            let _ = belongs(&names(&chip, &actions), "0000:84:00.0", &["e".to_owned()]);
        }
    }
}

//! Where the files are and how their entries look, as the configuration says; and what a text of such entries holds.

use std::path::PathBuf;

use crate::host::text;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QidMapColumn {
    /// The VF's number; where no column has it, the directory of the file does (`sriov/3/qid_map`).
    Vf,
    /// The queue pair's number in the VF.
    Local,
    /// The queue pair's number on the wire.
    Global,
    /// Its state, a word.
    State,
    /// Nothing of interest.
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

/// Where and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QidMapLayout {
    /// Path with `*` and `?` in its names, below the host root.
    pub path: PathBuf,
    /// Columns from the left; what follows them is of no interest. One of them is the global number.
    pub columns: Vec<QidMapColumn>,
    /// Whether numbers without `0x` are hexadecimal.
    pub hexadecimal: bool,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QidMapEntry<'a> {
    pub(super) vf: Option<u32>,
    pub(super) local: Option<u64>,
    pub(super) global: u64,
    /// Empty where no column has it.
    pub(super) state: &'a str,
}

/// The longest word that is a state.
const LONGEST_STATE: usize = 24;

impl QidMapLayout {
    /// The entries of a text, and how many lines are none. Blank lines and those that begin with `#` are skipped, and so
    /// is a first line without any number, which names the columns.
    pub(super) fn entries<'a>(&self, text: &'a str) -> (Vec<QidMapEntry<'a>>, usize) {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (mut entries, mut malformed) = (Vec::new(), 0);
        for (index, line) in lines.enumerate() {
            match self.entry(line) {
                Some(entry) => entries.push(entry),
                None if index == 0 && !cells(line).any(|cell| self.number(cell).is_some()) => {}
                None => malformed += 1,
            }
        }
        (entries, malformed)
    }

    fn entry<'a>(&self, line: &'a str) -> Option<QidMapEntry<'a>> {
        let mut entry = QidMapEntry { vf: None, local: None, global: 0, state: "" };
        let mut cells = cells(line);
        for column in &self.columns {
            let cell = cells.next()?;
            match column {
                QidMapColumn::Vf => entry.vf = Some(u32::try_from(self.number(cell)?).ok()?),
                QidMapColumn::Local => entry.local = Some(self.number(cell)?),
                QidMapColumn::Global => entry.global = self.number(cell)?,
                QidMapColumn::State => entry.state = Some(cell).filter(|cell| is_state(cell))?,
                QidMapColumn::Other => {}
            }
        }
        Some(entry)
    }

    fn number(&self, cell: &str) -> Option<u64> {
        if self.hexadecimal || cell.starts_with("0x") {
            return text::parse_hex(cell.as_bytes());
        }
        text::parse_decimal(cell.as_bytes())
    }
}

fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| c.is_whitespace() || [',', ';', '|'].contains(&c)).filter(|cell| !cell.is_empty())
}

fn is_state(cell: &str) -> bool {
    cell.len() <= LONGEST_STATE && cell.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layout(columns: &[QidMapColumn], hexadecimal: bool) -> QidMapLayout {
        QidMapLayout { path: PathBuf::new(), columns: columns.to_vec(), hexadecimal }
    }

    const ALL: [QidMapColumn; 4] = [QidMapColumn::Vf, QidMapColumn::Local, QidMapColumn::Global, QidMapColumn::State];

    fn entry(vf: u32, local: u64, global: u64, state: &str) -> QidMapEntry<'_> {
        QidMapEntry { vf: Some(vf), local: Some(local), global, state }
    }

    #[test]
    fn rows_of_many_forms() {
        let text = "VF  LQPN  GQPN  STATE\n\n# a remark\n3 12 0x400c RTS extra\n3, 13, 16397, RTR\n 4|1|7|INIT \n";
        let expected = vec![entry(3, 12, 0x400c, "RTS"), entry(3, 13, 16397, "RTR"), entry(4, 1, 7, "INIT")];
        assert_eq!(layout(&ALL, false).entries(text), (expected, 0));
        assert_eq!(layout(&ALL, true).entries("a 1f 0x20 RTS\n"), (vec![entry(10, 0x1f, 0x20, "RTS")], 0));
        let columns = [QidMapColumn::Other, QidMapColumn::Global];
        let expected = vec![QidMapEntry { vf: None, local: None, global: 9, state: "" }];
        assert_eq!(layout(&columns, false).entries("x 9\n"), (expected, 0));
    }

    #[test]
    fn what_is_no_row_is_counted() {
        let layout = layout(&ALL, false);
        assert_eq!(layout.entries(""), (vec![], 0));
        // A number in the first line: no names of columns.
        assert_eq!(layout.entries("3 12\n3 12 14 RTS\n3 -1 14 RTS\n4294967296 1 1 RTS\n3 1 2 r\u{e9}\n").1, 4);
        assert_eq!(layout.entries("usage: echo 1 > qid_map\n"), (vec![], 1));
    }

    proptest! {
        #[test]
        fn whatever_stands_there(text in "(?s).{0,200}", hexadecimal in any::<bool>(), order in 0usize..24) {
            let mut columns = ALL.to_vec();
            columns.rotate_left(order % 4);
            let (entries, malformed) = layout(&columns, hexadecimal).entries(&text);
            prop_assert!(entries.len() + malformed <= text.lines().count());
        }

        #[test]
        fn what_was_written_is_read(
            entries in proptest::collection::vec((any::<u32>(), any::<u64>(), any::<u64>(), "[A-Z]{1,8}"), 0..30),
            separator in "[ \t,;|]{1,3}", hexadecimal in any::<bool>(),
        ) {
            let line = |(vf, local, global, state): &(u32, u64, u64, String)| {
                let cells = if hexadecimal {
                    [format!("{vf:x}"), format!("{local:x}"), format!("0x{global:x}"), state.clone()]
                } else {
                    [vf.to_string(), local.to_string(), global.to_string(), state.clone()]
                };
                cells.join(&separator) + "\n"
            };
            let text: String = entries.iter().map(line).collect();
            let expected: Vec<QidMapEntry<'_>> = entries.iter().map(|(vf, local, global, s)| entry(*vf, *local, *global, s)).collect();
            prop_assert_eq!(layout(&ALL, hexadecimal).entries(&text), (expected, 0));
        }
    }
}

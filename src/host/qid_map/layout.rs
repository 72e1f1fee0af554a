//! Where the files are and how their rows look, as the configuration says; and what a text of such rows holds.

use std::path::PathBuf;

use crate::host::text;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
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

impl Column {
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
pub struct Layout {
    /// Path with `*` and `?` in its names, below the host root.
    pub path: PathBuf,
    /// Columns from the left; what follows them is of no interest. One of them is the global number.
    pub columns: Vec<Column>,
    /// Whether numbers without `0x` are hexadecimal.
    pub hexadecimal: bool,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row<'a> {
    pub(super) vf: Option<u32>,
    pub(super) local: Option<u64>,
    pub(super) global: u64,
    /// Empty where no column has it.
    pub(super) state: &'a str,
}

/// The longest word that is a state.
const LONGEST_STATE: usize = 24;

impl Layout {
    /// The rows of a text, and how many lines are none. Blank lines and those that begin with `#` are skipped, and so
    /// is a first line without any number, which names the columns.
    pub(super) fn rows<'a>(&self, text: &'a str) -> (Vec<Row<'a>>, usize) {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (mut rows, mut malformed) = (Vec::new(), 0);
        for (index, line) in lines.enumerate() {
            match self.row(line) {
                Some(row) => rows.push(row),
                None if index == 0 && !cells(line).any(|cell| self.number(cell).is_some()) => {}
                None => malformed += 1,
            }
        }
        (rows, malformed)
    }

    fn row<'a>(&self, line: &'a str) -> Option<Row<'a>> {
        let mut row = Row { vf: None, local: None, global: 0, state: "" };
        let mut cells = cells(line);
        for column in &self.columns {
            let cell = cells.next()?;
            match column {
                Column::Vf => row.vf = Some(u32::try_from(self.number(cell)?).ok()?),
                Column::Local => row.local = Some(self.number(cell)?),
                Column::Global => row.global = self.number(cell)?,
                Column::State => row.state = Some(cell).filter(|cell| is_state(cell))?,
                Column::Other => {}
            }
        }
        Some(row)
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

    fn layout(columns: &[Column], hexadecimal: bool) -> Layout {
        Layout { path: PathBuf::new(), columns: columns.to_vec(), hexadecimal }
    }

    const ALL: [Column; 4] = [Column::Vf, Column::Local, Column::Global, Column::State];

    fn row(vf: u32, local: u64, global: u64, state: &str) -> Row<'_> {
        Row { vf: Some(vf), local: Some(local), global, state }
    }

    #[test]
    fn rows_of_many_forms() {
        let text = "VF  LQPN  GQPN  STATE\n\n# a remark\n3 12 0x400c RTS extra\n3, 13, 16397, RTR\n 4|1|7|INIT \n";
        let expected = vec![row(3, 12, 0x400c, "RTS"), row(3, 13, 16397, "RTR"), row(4, 1, 7, "INIT")];
        assert_eq!(layout(&ALL, false).rows(text), (expected, 0));
        assert_eq!(layout(&ALL, true).rows("a 1f 0x20 RTS\n"), (vec![row(10, 0x1f, 0x20, "RTS")], 0));
        let columns = [Column::Other, Column::Global];
        let expected = vec![Row { vf: None, local: None, global: 9, state: "" }];
        assert_eq!(layout(&columns, false).rows("x 9\n"), (expected, 0));
    }

    #[test]
    fn what_is_no_row_is_counted() {
        let layout = layout(&ALL, false);
        assert_eq!(layout.rows(""), (vec![], 0));
        // A number in the first line: no names of columns.
        assert_eq!(layout.rows("3 12\n3 12 14 RTS\n3 -1 14 RTS\n4294967296 1 1 RTS\n3 1 2 r\u{e9}\n").1, 4);
        assert_eq!(layout.rows("usage: echo 1 > qid_map\n"), (vec![], 1));
    }

    proptest! {
        #[test]
        fn whatever_stands_there(text in "(?s).{0,200}", hexadecimal in any::<bool>(), order in 0usize..24) {
            let mut columns = ALL.to_vec();
            columns.rotate_left(order % 4);
            let (rows, malformed) = layout(&columns, hexadecimal).rows(&text);
            prop_assert!(rows.len() + malformed <= text.lines().count());
        }

        #[test]
        fn what_was_written_is_read(
            rows in proptest::collection::vec((any::<u32>(), any::<u64>(), any::<u64>(), "[A-Z]{1,8}"), 0..30),
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
            let text: String = rows.iter().map(line).collect();
            let expected: Vec<Row<'_>> = rows.iter().map(|(vf, local, global, s)| row(*vf, *local, *global, s)).collect();
            prop_assert_eq!(layout(&ALL, hexadecimal).rows(&text), (expected, 0));
        }
    }
}

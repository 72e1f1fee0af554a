//! The tables of nccl-tests (`all_reduce_perf`, `sendrecv_perf`, ...): bus bandwidth by size. Columns are known by their
//! headings, which differ between releases; launchers such as mpirun put a rank before each line.

use super::perftest::can_be;
use crate::model::units::{BytesPerSecond, total};

/// Longest text that is read, in bytes.
const LONGEST: usize = 4 << 20;

/// One size of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BusBandwidth {
    /// Size of the operation in bytes.
    pub size: u64,
    /// Bus bandwidth, the better of out-of-place and in-place.
    pub bandwidth: BytesPerSecond,
}

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NcclReport {
    /// The program: `all_reduce_perf`; `None` if its release does not print it.
    pub test: Option<String>,
    /// The table, in its order.
    pub sizes: Vec<BusBandwidth>,
    /// Values that arrived wrong, all sizes together.
    pub wrong_values: u64,
}

impl NcclReport {
    /// The size with the highest bus bandwidth. The program's own average includes small sizes, which say nothing of a
    /// link.
    pub fn best(&self) -> Option<&BusBandwidth> {
        self.sizes.iter().max_by(|a, b| a.bandwidth.0.total_cmp(&b.bandwidth.0))
    }
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NcclError {
    /// It has no table of nccl-tests.
    #[error("not an nccl-tests report")]
    NotAReport,
    /// The program reported an error.
    #[error("nccl-tests: {0}")]
    Program(String),
    /// The table is empty.
    #[error("the nccl-tests run did not finish: its table is empty")]
    Unfinished,
    /// A value is out of range.
    #[error("the bus bandwidth is out of range: negative, zero or above 10 Tb/s")]
    Impossible,
}

/// Reads what a program of nccl-tests printed.
///
/// # Errors
/// See [`NcclError`].
pub fn from_text(text: &str) -> Result<NcclReport, NcclError> {
    if text.len() > LONGEST {
        return Err(NcclError::NotAReport);
    }
    let mut report = NcclReport::default();
    let mut columns: Option<Vec<&str>> = None;
    let mut error = None;
    let mut impossible = false;
    for line in text.lines() {
        // `[1,0]<stdout>:` of mpirun --tag-output.
        let line = line.split_once("<stdout>:").map_or(line, |(_, rest)| rest).trim();
        if let Some(comment) = line.strip_prefix('#') {
            let words: Vec<&str> = comment.split_whitespace().collect();
            if let Some((_, name)) = comment.split_once("Collective test starting:") {
                report.test = Some(name.trim().to_owned());
            } else if words.first() == Some(&"size") && words.contains(&"busbw") {
                columns = Some(words);
            }
        } else if line.contains("Test NCCL failure") || line.contains("Test CUDA failure") {
            error = error.or_else(|| Some(line.chars().take(200).collect::<String>()));
        } else if let Some(columns) = &columns {
            impossible |= !take_row(&mut report, columns, line);
        }
    }
    match (error, columns) {
        (Some(error), _) => Err(NcclError::Program(error)),
        (None, None) => Err(NcclError::NotAReport),
        _ if impossible => Err(NcclError::Impossible),
        _ if report.sizes.is_empty() => Err(NcclError::Unfinished),
        _ => Ok(report),
    }
}

/// Takes a row of the table; false if its bandwidth is out of range. Other lines are passed over.
fn take_row(report: &mut NcclReport, columns: &[&str], line: &str) -> bool {
    let cells: Vec<&str> = line.split_whitespace().collect();
    let Some(size) = cells.first().and_then(|cell| cell.parse::<u64>().ok()) else { return true };
    if cells.len() != columns.len() {
        return true;
    }
    let of = |name: &'static str| columns.iter().zip(&cells).filter(move |(column, _)| **column == name);
    // An operation without an in-place form has `N/A` there.
    let gigabytes = of("busbw")
        .filter_map(|(_, cell)| cell.parse::<f64>().ok())
        .fold(None, |best: Option<f64>, value| Some(best.map_or(value, |best| best.max(value))));
    let Some(gigabytes) = gigabytes else { return true };
    let wrong = total(of("#wrong").filter_map(|(_, cell)| cell.parse::<u64>().ok()));
    report.wrong_values = report.wrong_values.saturating_add(wrong);
    let bandwidth = BytesPerSecond(gigabytes * 1e9);
    // The smallest sizes are rounded to 0.00.
    if gigabytes == 0.0 {
        return true;
    }
    if can_be(bandwidth) {
        report.sizes.push(BusBandwidth { size, bandwidth });
    }
    can_be(bandwidth)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADING: &str = "# Collective test starting: all_reduce_perf\n\
        #                                                              out-of-place                       in-place          \n\
        #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
        #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n";

    const ROWS: &str = "           8             2     float     sum      -1    31.20    0.00    0.00      0    30.90    0.00    0.00      0\n\
           536870912     134217728     float     sum      -1   5202.3  103.20  193.50      0   5377.7   99.83  187.19      0\n\
          1073741824     268435456     float     sum      -1    10314  104.11  195.20      0    10339  103.85  194.73      0\n\
        # Out of bounds values : 0 OK\n# Avg bus bandwidth    : 128.414 \n";

    #[test]
    fn the_best_size_counts_and_not_the_average() {
        let report = from_text(&format!("{HEADING}{ROWS}")).unwrap();
        assert_eq!((report.test.as_deref(), report.sizes.len(), report.wrong_values), (Some("all_reduce_perf"), 2, 0));
        let best = report.best().unwrap();
        assert_eq!(best.size, 1_073_741_824);
        assert!((best.bandwidth.0 - 195.2e9).abs() < 1.0);
    }

    #[test]
    fn lines_of_mpirun_and_an_operation_without_an_in_place_form() {
        let row = "  67108864   16777216   float   none   -1   1201.5   55.85   52.36    0   N/A   N/A   N/A   N/A";
        let lines: Vec<String> =
            format!("{HEADING}{row}\n").lines().map(|line| format!("[1,0]<stdout>:{line}")).collect();
        let text = lines.join("\n");
        let report = from_text(&text).unwrap();
        assert!((report.best().unwrap().bandwidth.0 - 52.36e9).abs() < 1.0);
    }

    #[test]
    fn wrong_values_are_counted() {
        let text = format!("{HEADING}{ROWS}").replace("193.50      0", "193.50      7");
        assert_eq!(from_text(&text).unwrap().wrong_values, 7);
    }

    #[test]
    fn what_is_no_result() {
        assert_eq!(from_text(""), Err(NcclError::NotAReport));
        assert_eq!(from_text(HEADING), Err(NcclError::Unfinished));
        assert_eq!(from_text(&format!("{HEADING}{}", ROWS.replace("195.20", "195e30"))), Err(NcclError::Impossible));
        let failed = "node7: Test NCCL failure common.cu:1279 'unhandled system error'\n";
        assert!(matches!(from_text(failed), Err(NcclError::Program(text)) if text.contains("unhandled system error")));
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in ".{0,300}", cells in "[0-9a-zA-Z./ -]{0,120}") {
            let _ = (from_text(&text), from_text(&format!("{HEADING}{cells}\n")));
        }

        #[test]
        fn a_table_gives_back_its_best_value(values in proptest::collection::vec((1u64..1 << 40, 0.01f64..1_000.0), 1..20)) {
            let rows: Vec<String> = values
                .iter()
                .map(|(size, value)| format!("{size} 1 float sum -1 10.0 1.0 {value} 0 10.0 1.0 0.01 0"))
                .collect();
            let rows = rows.join("\n");
            let best = *from_text(&format!("{HEADING}{rows}")).unwrap().best().unwrap();
            let expected = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
            prop_assert!((best.bandwidth.0 - expected * 1e9).abs() < 1.0);
        }
    }
}

//! What came of a program's run: values, a failure of the device or the way, or trouble of the tool itself, which says
//! nothing of the device.

use super::perftest::{BandwidthUnit, PerftestJsonError, PerftestReport, from_json, from_text};
use super::process::ProcessExit;
use crate::model::benchmark::Failure;

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum PerftestOutcome {
    /// It measured.
    Measured(Box<PerftestReport>),
    /// Data could not be moved.
    Failed(Failure, String),
    /// The tool got into trouble: a word for it, and a sentence.
    Inconclusive(&'static str, String),
}

/// Judges how perftest ended, by its exit, what it printed, and its result file (if it wrote one), whose bandwidths are
/// in `unit`. `name` is the program's.
pub fn classify(name: &str, ended: &ProcessExit, file: Option<&str>, unit: BandwidthUnit) -> PerftestOutcome {
    let text = from_text(&ended.output);
    let document = file.map(|file| from_json(file, unit));
    let odd = |reason, text| PerftestOutcome::Inconclusive(reason, text);
    if let Some(trouble) = &text.trouble {
        return PerftestOutcome::Failed(trouble.failure, trouble.text.clone());
    }
    if ended.output.contains("Couldn't listen") {
        return odd("port_taken", format!("{name}: its TCP port is in use"));
    }
    if ended.timed_out {
        return odd("timeout", format!("{name} timed out and was killed"));
    }
    if ended.flooded {
        return odd("garbage", format!("{name} printed too much and was killed"));
    }
    let impossible = text.impossible || matches!(document, Some(Err(PerftestJsonError::Impossible { .. })));
    if impossible {
        return odd("impossible_value", format!("{name} reported an impossible value"));
    }
    if let Some(signal) = ended.signal {
        return odd("crashed", format!("{name} was killed by signal {signal}"));
    }
    let measured = match document {
        Some(Ok(report)) => Some(report),
        // The file may be another run's or in no form that is known; the text has its unit with it.
        Some(Err(_)) | None => text.has_values().then_some(text),
    };
    match (measured, ended.code) {
        (Some(report), Some(0)) => PerftestOutcome::Measured(Box::new(report)),
        (Some(_), code) => {
            let code = code.map_or("none".to_owned(), |code| code.to_string());
            odd(
                "exit_status",
                format!("{name} failed after the measurement (exit status {code}): its value is discarded"),
            )
        }
        (None, code) => {
            let said = ended.output.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("---"));
            let said = said.map(|line| format!(": {}", line.chars().take(120).collect::<String>())).unwrap_or_default();
            let code = code.map_or("none".to_owned(), |code| code.to_string());
            odd("no_result", format!("{name} printed no result (exit status {code}){said}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 65536      5000             \
                         91.10              91.02\t\t     0.173607\n";
    const FILE: &str = "{\"results\": {\"MsgSize\": 65536, \"BW_average\": 90.5}}";

    fn ended(output: &str) -> ProcessExit {
        ProcessExit { code: Some(0), signal: None, timed_out: false, flooded: false, output: output.to_owned() }
    }

    fn of(ended: &ProcessExit, file: Option<&str>) -> PerftestOutcome {
        classify("ib_write_bw", ended, file, BandwidthUnit::GigabitsPerSecond)
    }

    fn word(attempt: &PerftestOutcome) -> &'static str {
        match attempt {
            PerftestOutcome::Measured(_) => "measured",
            PerftestOutcome::Failed(failure, _) => failure.as_str(),
            PerftestOutcome::Inconclusive(reason, _) => reason,
        }
    }

    fn gbits(attempt: &PerftestOutcome) -> f64 {
        let PerftestOutcome::Measured(report) = attempt else { return f64::NAN };
        report.best().map_or(f64::NAN, |row| row.average.gbits())
    }

    #[test]
    fn the_file_comes_before_the_text_and_the_text_before_nothing() {
        assert!((gbits(&of(&ended(TABLE), Some(FILE))) - 90.5).abs() < 1e-9);
        assert!((gbits(&of(&ended(TABLE), Some("}{ overwritten"))) - 91.02).abs() < 1e-9);
        assert!((gbits(&of(&ended(TABLE), None)) - 91.02).abs() < 1e-9);
    }

    #[test]
    fn tool_trouble_is_no_failure() {
        let hung = ProcessExit { timed_out: true, code: None, signal: Some(15), ..ended("") };
        let cases = [
            (hung, None, "timeout"),
            (ProcessExit { flooded: true, code: None, signal: Some(9), ..ended("yyyy") }, None, "garbage"),
            (ProcessExit { code: None, signal: Some(11), ..ended("") }, None, "crashed"),
            (ProcessExit { code: Some(1), ..ended(TABLE) }, Some(FILE), "exit_status"),
            (ended("hello"), None, "no_result"),
            (ProcessExit { code: Some(1), ..ended("") }, None, "no_result"),
            (ended(&TABLE.replace("91.02", "-4.10")), None, "impossible_value"),
            (ended(""), Some("{\"BW_average\": -3}"), "impossible_value"),
            (ProcessExit { code: Some(1), ..ended("Couldn't listen to port 18515\n") }, None, "port_taken"),
        ];
        for (ended, file, expected) in cases {
            assert_eq!(word(&of(&ended, file)), expected, "{ended:?}");
        }
    }

    #[test]
    fn a_trouble_that_is_named_comes_before_a_timeout() {
        let text = "Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n";
        let hung = ProcessExit { timed_out: true, code: None, signal: Some(9), ..ended(text) };
        assert_eq!(word(&of(&hung, None)), "completion_error");
    }
}

//! `lanewatch explain --read`: what somebody else's mstlink or ethtool said of a link.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use super::error::CliError;
use super::output::print;
use super::pasted_file;
use crate::assess::pasted::remarks;
use crate::export::path::module_lines;
use crate::host::pasted::{Pasted, read};

/// Reads outputs, and says what they mean. Exits with 1 if one of them shows a problem.
pub(super) fn run(files: &[PathBuf]) -> Result<ExitCode, CliError> {
    let (mut out, mut problem) = (String::new(), false);
    for file in files {
        let text = pasted_file::contents(file)?;
        let pasted = read(&text);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}:", pasted_file::called(file));
        for line in facts(&pasted) {
            let _ = writeln!(out, "  {line}");
        }
        for remark in remarks(&pasted) {
            problem |= remark.is_problem;
            let _ = writeln!(out, "  {}{}", if remark.is_problem { "! " } else { "" }, remark.text);
        }
    }
    print(&out)?;
    Ok(if problem { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What an output is about.
fn facts(pasted: &Pasted) -> Vec<String> {
    match pasted {
        Pasted::Firmware(link) => {
            let parts = [&link.state, &link.speed, &link.fec].into_iter().flatten().map(|text| &**text);
            let mut lines = vec![format!("link: {}", parts.collect::<Vec<_>>().join(", "))];
            lines.extend(link.recommendation.as_ref().map(|text| format!("firmware: {text}")));
            if let (Some(identity), Some(values)) = (&link.identity, &link.values) {
                lines.extend(module_lines(identity, &link.limits, Some(values)));
            }
            lines
        }
        Pasted::Module(module) => module_lines(&module.0, &module.1, Some(&module.2)),
        Pasted::Statistics(statistics) => vec![format!("{} statistics", statistics.len())],
        Pasted::Nothing(_) => Vec::new(),
    }
}

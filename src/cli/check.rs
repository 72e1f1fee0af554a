//! `lanewatch check`.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::args::CheckArgs;
use super::args::values::{CheckFormat, Color, ExitMap};
use super::error::CliError;
use super::one_shot::read_once;
use super::output::{print, print_styled, style};
use super::settings::Settings;
use crate::export::json as documents;
use crate::export::text::check::{self, CheckText};
use crate::model::check::Status;
use crate::watch::clock::{Clock as _, SystemClock};
use crate::watch::store::Store;

/// Looks at the host and says what is wrong.
///
/// # Errors
/// The host cannot be looked at.
pub fn run(settings: &Settings, args: &CheckArgs) -> Result<ExitCode, CliError> {
    let began = Some(SystemClock.now().tick);
    let report = read_once(settings, args.sample, args.timeout)?;
    let hidden = args.strict && !report.limited.is_empty();
    let status = if hidden { report.status.max(Status::Unknown) } else { report.status };
    let trouble = if settings.demo { None } else { Store::new(settings.storage.clone()).trouble() };
    let note = |before: &str| trouble.as_ref().map_or_else(String::new, |trouble| format!("{before}{trouble}\n"));
    let style = style(Color::Auto);
    let text = match args.format {
        CheckFormat::Text => {
            let options = CheckText { verbose: args.verbose, style: style.clone(), began };
            check::text(&report, status, &options) + &note("\nnote     ")
        }
        CheckFormat::Nagios => check::nagios(&report, status) + &note("note: ").replace('|', "/"),
        CheckFormat::Npd => check::npd(&report, status),
        CheckFormat::Json => {
            let mut document = documents::findings(&report, status);
            if let (Some(trouble), Value::Object(map)) = (trouble, &mut document) {
                map.insert("notes".to_owned(), json!([trouble]));
            }
            serde_json::to_string_pretty(&document).map_err(anyhow::Error::from)? + "\n"
        }
    };
    if args.format == CheckFormat::Text { print_styled(&text, &style) } else { print(&text) }?;
    let usual = if args.format == CheckFormat::Npd { ExitMap::Npd } else { ExitMap::Nagios };
    Ok(ExitCode::from(code(status, args.exit_map.unwrap_or(usual))))
}

/// The exit code of a status.
fn code(status: Status, map: ExitMap) -> u8 {
    match (map, status) {
        (_, Status::Ok) => 0,
        (ExitMap::Nagios, Status::Critical) | (ExitMap::Npd, Status::Unknown) => 2,
        (ExitMap::Nagios, Status::Unknown) => 3,
        (ExitMap::Nagios, Status::Warning) | (ExitMap::Npd | ExitMap::Binary, _) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_mean_what_their_readers_think() {
        let codes =
            |map| [Status::Ok, Status::Warning, Status::Critical, Status::Unknown].map(|status| code(status, map));
        assert_eq!(codes(ExitMap::Nagios), [0, 1, 2, 3]);
        assert_eq!(codes(ExitMap::Npd), [0, 1, 1, 2]);
        assert_eq!(codes(ExitMap::Binary), [0, 1, 1, 1]);
    }
}

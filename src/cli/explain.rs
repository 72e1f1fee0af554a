//! `lanewatch explain`: the lane of a device, hop by hop.

use std::process::ExitCode;
use std::time::Duration;

use super::args::{Color, ExplainArgs};
use super::error::CliError;
use super::one_shot::read_once;
use super::output::print;
use super::output::{wants_colour, writes_unicode};
use super::selection::{Selection, select};
use super::settings::Settings;
use crate::export::lane::lanes;
use crate::export::text::explain;
use crate::export::text::given::{explained, given};
use crate::export::text::paint::Paint;
use crate::model::sriov::Pf;

/// When to give up on devices that do not answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Draws the lane of the device that was named, or of every device.
///
/// # Errors
/// There is no such device or port, or the host cannot be looked at.
pub fn run(settings: &Settings, args: &ExplainArgs) -> Result<ExitCode, CliError> {
    let report = read_once(settings, Duration::ZERO, LIMIT)?;
    let lanes = lanes(&report);
    let paint = paint(args.color);
    let given: Vec<&Pf> = report.snapshot.all::<Pf>().filter(|pf| given(&report, pf).is_some()).collect();
    let (wanted, port, pfs) = match &args.device {
        Some(name) => match select(&report, &lanes, name)? {
            Selection::Paths(lanes, port) => (lanes, port, Vec::new()),
            Selection::Pf(pf) => (Vec::new(), None, vec![pf]),
        },
        None => (lanes.iter().collect(), None, given),
    };
    let drawn = wanted.into_iter().map(|lane| explain::lane(&report, lane, port, paint));
    let drawn: Vec<String> = drawn.chain(pfs.into_iter().map(|pf| explained(&report, pf))).collect();
    if drawn.is_empty() {
        return Ok(print(b"no RDMA device here\n")?);
    }
    let drawn = drawn.join("\n");
    Ok(print(if writes_unicode() { drawn } else { explain::ascii(&drawn) }.as_bytes())?)
}

/// Colours are for terminals, and for those who ask.
fn paint(when: Color) -> Paint {
    Paint(match when {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => wants_colour(&std::io::stdout()),
    })
}

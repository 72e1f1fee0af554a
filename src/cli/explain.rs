//! `lanewatch explain`: the lane of a device, hop by hop.

use std::process::ExitCode;
use std::time::Duration;

use super::args::{Color, Explain as Flags};
use super::failure::Failure;
use super::look::look;
use super::lookup::{Named, named};
use super::print;
use super::settings::Settings;
use super::terminal::{wants_colour, writes_unicode};
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
pub fn run(settings: &Settings, flags: &Flags) -> Result<ExitCode, Failure> {
    let report = look(settings, Duration::ZERO, LIMIT)?;
    let lanes = lanes(&report);
    let paint = paint(flags.color);
    let given: Vec<&Pf> = report.snapshot.all::<Pf>().filter(|pf| given(&report, pf).is_some()).collect();
    let (wanted, port, pfs) = match &flags.device {
        Some(name) => match named(&report, &lanes, name)? {
            Named::Lanes(lanes, port) => (lanes, port, Vec::new()),
            Named::Pf(pf) => (Vec::new(), None, vec![pf]),
        },
        None => (lanes.iter().collect(), None, given),
    };
    let drawn = wanted.into_iter().map(|lane| explain::lane(&report, lane, port, paint));
    let drawn: Vec<String> = drawn.chain(pfs.into_iter().map(|pf| explained(&report, pf))).collect();
    if drawn.is_empty() {
        return print(b"no RDMA device here\n");
    }
    let drawn = drawn.join("\n");
    print(if writes_unicode() { drawn } else { explain::ascii(&drawn) }.as_bytes())
}

/// Colours are for terminals, and for those who ask.
fn paint(when: Color) -> Paint {
    Paint(match when {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => wants_colour(&std::io::stdout()),
    })
}

//! `lanewatch explain`: the path of a device, hop by hop.

use std::process::ExitCode;
use std::time::Duration;

use super::args::explain::ExplainArgs;
use super::error::CliError;
use super::explain_read;
use super::one_shot::read_once;
use super::output::{print, print_styled, style, writes_unicode};
use super::selection::{Selection, select};
use super::settings::Settings;
use crate::export::path::diagrams;
use crate::export::text::vf::{explain_pf, explain_vf, given_away};
use crate::export::text::{explain, topo};
use crate::model::sriov::Pf;
use crate::watch::clock::{Clock as _, SystemClock};

/// When to give up on devices that do not answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Draws the path of the device that was named, or of every device.
///
/// # Errors
/// There is no such device or port, or the host cannot be looked at.
pub fn run(settings: &Settings, args: &ExplainArgs) -> Result<ExitCode, CliError> {
    if !args.read.is_empty() {
        return explain_read::run(&args.read);
    }
    let began = Some(SystemClock.now().tick);
    let report = read_once(settings, Duration::ZERO, LIMIT)?;
    if let Some(node) = args.device.as_deref().and_then(numa_node) {
        let drawn = topo::tree(&report, Some(node), &style(args.color));
        let none = || CliError::Usage(format!("no GPU, network card or NVMe drive found on NUMA node {node}"));
        let drawn = drawn.ok_or_else(none)?;
        return Ok(print(&format!("{}\n", drawn.trim_end()))?);
    }
    let diagrams = diagrams(&report);
    let style = style(args.color);
    let given: Vec<&Pf> = report.snapshot.all::<Pf>().filter(|pf| given_away(&report, pf).is_some()).collect();
    let (wanted, port, pfs) = match &args.device {
        Some(name) => match select(&report, &diagrams, name)? {
            Selection::Paths(lanes, port) => (lanes, port, Vec::new()),
            Selection::Vf(pf, vf) => {
                let path = pf.devices.first().and_then(|name| diagrams.iter().find(|path| path.device.name == *name));
                let path = path.map(|path| explain::path(&report, path, None, &style, began)).unwrap_or_default();
                let drawn = explain_vf(&report, pf, vf, &style) + &path;
                return Ok(print_styled(&if writes_unicode() { drawn } else { explain::ascii(&drawn) }, &style)?);
            }
            Selection::Pf(pf) => (Vec::new(), None, vec![pf]),
        },
        None => (diagrams.iter().collect(), None, given),
    };
    let drawn = wanted.into_iter().map(|diagram| explain::path(&report, diagram, port, &style, began));
    let drawn: Vec<String> = drawn.chain(pfs.into_iter().map(|pf| explain_pf(&report, pf))).collect();
    if drawn.is_empty() {
        return Ok(print("no RDMA devices found\n")?);
    }
    let drawn = drawn.join("\n");
    Ok(print_styled(&if writes_unicode() { drawn } else { explain::ascii(&drawn) }, &style)?)
}

/// The number in `node0`; `None` if it is the name of something else.
fn numa_node(name: &str) -> Option<u32> {
    name.strip_prefix("node")?.parse().ok()
}

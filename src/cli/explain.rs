//! `lanewatch explain`: the lane of a device, hop by hop.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use super::args::{Color, Explain as Flags};
use super::failure::Failure;
use super::look::look;
use super::print;
use super::settings::Settings;
use crate::export::lane::{Lane, lanes};
use crate::export::text::explain;
use crate::export::text::paint::Paint;

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
    let (wanted, port) = match &flags.device {
        Some(name) => named(&lanes, name)?,
        None => (lanes.iter().collect(), None),
    };
    let drawn: Vec<String> = wanted.into_iter().map(|lane| explain::lane(&report, lane, port, paint)).collect();
    if drawn.is_empty() {
        return print(b"no RDMA device here\n");
    }
    let drawn = drawn.join("\n");
    print(if writes_unicode() { drawn } else { explain::ascii(&drawn) }.as_bytes())
}

/// The lane of a device or of one of its ports (`mlx5_3`, `mlx5_3/1`).
fn named<'a>(lanes: &'a [Lane<'a>], name: &str) -> Result<(Vec<&'a Lane<'a>>, Option<u32>), Failure> {
    let find = |device: &str| lanes.iter().find(|lane| lane.device.name.as_str() == device);
    if let Some(lane) = find(name) {
        return Ok((vec![lane], None));
    }
    if let Some((device, port)) = name.rsplit_once('/')
        && let Some(lane) = find(device)
    {
        let number = port.parse().ok().filter(|n| lane.ports.iter().any(|end| end.port.number == *n));
        let ports: Vec<String> = lane.ports.iter().map(|end| end.port.number.to_string()).collect();
        let unknown = || Failure::Usage(format!("{device} has no port {port:?}; its ports are {}", ports.join(", ")));
        return Ok((vec![lane], Some(number.ok_or_else(unknown)?)));
    }
    let names: Vec<&str> = lanes.iter().map(|lane| lane.device.name.as_str()).collect();
    let there = if names.is_empty() { "there is none".to_owned() } else { format!("there is {}", names.join(", ")) };
    Err(Failure::Usage(format!("no RDMA device {name:?} here; {there}")))
}

/// Whether the locale's characters are Unicode: what is set first of these says so, and where nothing is, none are.
fn writes_unicode() -> bool {
    let set = |name: &&str| std::env::var_os(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set).unwrap_or_default();
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Colours are for terminals, and for those who ask.
fn paint(when: Color) -> Paint {
    let unwanted = || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Paint(match when {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => std::io::stdout().is_terminal() && !unwanted(),
    })
}

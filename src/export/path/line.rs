//! The physical end of a port: why it has no link, its cable or module, errors on the line.

use crate::assess::limits::RAW_END;
use crate::assess::link_quality::raw_limit;
use crate::model::firmware_link::{FirmwareLink, FirmwareReport};
use crate::model::health::NicTemperature;
use crate::model::ids::PortKey;
use crate::model::line::{FecCode, LineSummary};
use crate::model::link::NetdevLink;
use crate::model::module::{CableTechnology, Limits, Module, ModuleIdentity, ModuleLimits, ModuleValues, dbm};
use crate::model::rdma::{Port, RdmaDevice};
use crate::watch::HostReport;

/// What is known of the physical end of a port, a line of text each.
pub(super) fn line_lines(report: &HostReport, device: &RdmaDevice, port: &Port, key: &PortKey) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(netdev) = port.netdev.as_deref() {
        let link = report.snapshot.all::<NetdevLink>().find(|link| *link.netdev == *netdev);
        out.extend(link.map(|link| match link.cause {
            Some(cause) => format!("no link: {cause}"),
            None => "no link, and the driver gives no reason".to_owned(),
        }));
        let module = Module::of(&report.snapshot, port);
        out.extend(
            module
                .into_iter()
                .flat_map(|module| module_lines(&module.identity, &module.limits, module.values.as_ref())),
        );
        let technology = module.map(|module| module.identity.technology);
        out.extend(report.lines.get(netdev).and_then(|summary| errors(summary, technology)));
    }
    let said = FirmwareReport::of(&report.snapshot, device, port);
    out.extend(said.and_then(|said| firmware(&said.link)));
    let sensors: Vec<String> = report
        .snapshot
        .all::<NicTemperature>()
        .filter(|sensor| device.identity.pci_address == Some(sensor.pci_address))
        .map(|sensor| {
            let limit = sensor.critical.map(|critical| format!(" (limit {critical})")).unwrap_or_default();
            format!("{} {}{limit}", sensor.sensor, sensor.value)
        })
        .collect();
    if !sensors.is_empty() {
        out.push(format!("temperature: {}", sensors.join(", ")));
    }
    let flaps = report.flaps.get(key).copied().unwrap_or(0);
    if flaps > 0 {
        out.push(format!("lost its link and got it back {flaps}x in 24 h"));
    }
    out
}

/// What the card's firmware says.
fn firmware(link: &FirmwareLink) -> Option<String> {
    let mut parts: Vec<String> = link.recommendation.as_deref().map(str::to_owned).into_iter().collect();
    parts.extend(link.raw_ratio.map(|raw| format!("errors before correction {}", ratio(raw))));
    parts.extend(link.symbol_ratio.or(link.effective_ratio).map(|lost| format!("after it {}", ratio(lost))));
    parts.extend(link.observed_seconds.map(|seconds| format!("counted for {:.0} min", seconds / 60.0)));
    (!parts.is_empty()).then(|| format!("firmware: {}", parts.join("; ")))
}

/// Errors before and after correction, and how much more the line bears.
fn errors(summary: &LineSummary, technology: Option<CableTechnology>) -> Option<String> {
    let line = summary.line?;
    let mut parts = Vec::new();
    if let Some(raw) = summary.raw {
        let bears = match line.code {
            Some(FecCode::Rs544) => RAW_END,
            _ => raw_limit(line, technology),
        };
        let margin = if raw > 0.0 && raw < bears {
            format!(", 1/{:.0} of what FEC copes with", bears / raw)
        } else if raw > 0.0 {
            ", more than FEC copes with".to_owned()
        } else {
            String::new()
        };
        parts.push(format!("errors before correction {}{margin}", ratio(raw)));
    }
    if let Some(worst) = summary.worst_lane.filter(|worst| worst.raw > 0.0) {
        parts.push(format!("worst lane {} {}", worst.lane, ratio(worst.raw)));
    }
    parts.extend(summary.lost.map(|lost| {
        if lost > 0.0 {
            format!("{} of the codewords lost", ratio(lost))
        } else {
            "no codeword lost in 12 min".to_owned()
        }
    }));
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// A module: what it is, how it does, and the light of its lanes.
pub fn module_lines(identity: &ModuleIdentity, limits: &ModuleLimits, values: Option<&ModuleValues>) -> Vec<String> {
    let mut what = vec![identity.form.as_str().to_ascii_uppercase(), identity.technology.words().to_owned()];
    let names = [&identity.vendor, &identity.part_number].into_iter().flatten().map(|text| &**text);
    let names = names.collect::<Vec<&str>>().join(" ");
    what.extend(Some(names).filter(|names| !names.is_empty()));
    what.extend(identity.serial_number.as_deref().map(|serial| format!("serial number {serial}")));
    what.extend(identity.length.map(|length| format!("{length} m")));
    what.extend(values.and_then(|values| values.temperature).map(|temperature| temperature.to_string()));
    what.extend(values.and_then(|values| values.state).map(|state| state.as_str().replace('_', " ")));
    let mut out = vec![format!("module: {}", what.join(", "))];
    for (number, lane) in values.into_iter().flat_map(|values| values.lanes.iter().enumerate()) {
        let side = |word: &str, power: Option<f64>, limits: Option<Limits>| {
            let bar = power.zip(limits).map(|(power, limits)| format!(" {}", bar(power, limits))).unwrap_or_default();
            power.map(|power| format!("{word}{bar} {}", dbm(power)))
        };
        let sides = [side("receives", lane.receive, limits.receive), side("sends", lane.transmit, limits.transmit)];
        let sides: Vec<String> = sides.into_iter().flatten().collect();
        out.extend((!sides.is_empty()).then(|| format!("lane {number} {}", sides.join(", "))));
    }
    out
}

/// Cells of a bar.
const CELLS: u8 = 10;

/// Where a power is between a module's low and high alarm limit, on a scale of dB: `[====......]`; `[!.........]` below.
fn bar(power: f64, limits: Limits) -> String {
    let decibel = |watts: f64| 10.0 * watts.max(1e-9).log10();
    let (low, high) = (decibel(limits.low_alarm), decibel(limits.high_alarm));
    let share = ((decibel(power) - low) / (high - low).max(0.1)).clamp(0.0, 1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 10")]
    let filled = ((share * f64::from(CELLS)).round() as u8).clamp(1, CELLS);
    let cell = if power < limits.low_alarm { "!" } else { "=" };
    format!("[{}{}]", cell.repeat(usize::from(filled)), ".".repeat(usize::from(CELLS - filled)))
}

/// A ratio of errors: `5e-10`, `none`.
fn ratio(ratio: f64) -> String {
    if ratio > 0.0 { format!("{ratio:.0e}") } else { "none".to_owned() }
}

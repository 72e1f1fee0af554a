//! Modules and cables, where they are read.

use crate::export::family::{FIRST_RELEASE, Family, Label, MetricKind, Series};
use crate::export::view::ReportView;
use crate::model::module::{
    CableTechnology, Limits, Module, ModuleForm, ModuleLane, ModuleLimits, ModuleState, ModuleValues,
};

/// The families, in the order of the exposition.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_module_info",
        kind: MetricKind::Info,
        help: "The module or cable of an interface (EEPROM, over lanewatch-module-reader).",
        labels: &[
            "netdev",
            "pci_address",
            "form",
            "technology",
            "vendor",
            "part_number",
            "serial_number",
            "revision",
            "firmware_version",
            "length",
        ],
        worst: "1 an interface",
        since: FIRST_RELEASE,
        write: info,
    },
    Family {
        name: "lanewatch_module_state",
        kind: MetricKind::Gauge,
        help: "The state of a module with CMIS: 1 for the one it has (EEPROM).",
        labels: &["netdev", "state"],
        worst: "5 an interface",
        since: FIRST_RELEASE,
        write: |view, out| {
            each_value(view, |netdev, values| {
                for state in values.state.iter().flat_map(|_| ModuleState::ALL) {
                    out.gauge(&[netdev, state.as_str().into()], values.state == Some(*state));
                }
            });
        },
    },
    Family {
        name: "lanewatch_module_temperature_celsius",
        kind: MetricKind::Gauge,
        help: "Temperature of a module (EEPROM).",
        labels: NETDEV,
        worst: "1 an interface",
        since: FIRST_RELEASE,
        write: |view, out| {
            each_value(view, |netdev, values| {
                out.known(&[netdev], values.temperature.map(|temperature| temperature.0));
            });
        },
    },
    Family {
        name: "lanewatch_module_voltage_volts",
        kind: MetricKind::Gauge,
        help: "Supply voltage of a module (EEPROM).",
        labels: NETDEV,
        worst: "1 an interface",
        since: FIRST_RELEASE,
        write: |view, out| each_value(view, |netdev, values| out.known(&[netdev], values.voltage)),
    },
    lanes("lanewatch_module_receive_power_watts", "Light that a lane of a module receives (EEPROM).", |view, out| {
        each_lane(view, out, |lane| lane.receive);
    }),
    lanes("lanewatch_module_transmit_power_watts", "Light that a lane of a module sends (EEPROM).", |view, out| {
        each_lane(view, out, |lane| lane.transmit);
    }),
    lanes(
        "lanewatch_module_bias_current_amperes",
        "Current of the laser of a lane of a module (EEPROM).",
        |view, out| each_lane(view, out, |lane| lane.bias),
    ),
    limits(
        "lanewatch_module_temperature_limit_celsius",
        "Limits of a module's temperature, by the module itself (EEPROM).",
        |view, out| each_limit(view, out, |limits| limits.temperature),
    ),
    limits(
        "lanewatch_module_receive_power_limit_watts",
        "Limits of the light that a lane receives, by the module itself (EEPROM).",
        |view, out| each_limit(view, out, |limits| limits.receive),
    ),
    limits(
        "lanewatch_module_transmit_power_limit_watts",
        "Limits of the light that a lane sends, by the module itself (EEPROM).",
        |view, out| each_limit(view, out, |limits| limits.transmit),
    ),
    limits(
        "lanewatch_module_bias_current_limit_amperes",
        "Limits of the current of a lane's laser, by the module itself (EEPROM).",
        |view, out| each_limit(view, out, |limits| limits.bias),
    ),
];

const NETDEV: &[&str] = &["netdev"];

/// A gauge of every lane.
const fn lanes(name: &'static str, help: &'static str, write: fn(&ReportView<'_>, &mut Series<'_, '_>)) -> Family {
    Family {
        name,
        kind: MetricKind::Gauge,
        help,
        labels: &["netdev", "lane"],
        worst: "8 an interface, 16 with two banks",
        since: FIRST_RELEASE,
        write,
    }
}

/// A gauge of every limit.
const fn limits(name: &'static str, help: &'static str, write: fn(&ReportView<'_>, &mut Series<'_, '_>)) -> Family {
    Family {
        name,
        kind: MetricKind::Gauge,
        help,
        labels: &["netdev", "level"],
        worst: "4 an interface",
        since: FIRST_RELEASE,
        write,
    }
}

fn modules<'a>(view: &ReportView<'a>) -> Vec<&'a Module> {
    let mut all: Vec<&Module> = view.report.snapshot.all().collect();
    all.sort_by(|a, b| a.netdev.cmp(&b.netdev));
    all.dedup_by(|a, b| a.netdev == b.netdev);
    all
}

fn info(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for module in modules(view) {
        let identity = &module.identity;
        let length = identity.length.map(|length| format!("{length} m"));
        out.info(&[
            (&module.netdev).into(),
            module.pci_address.into(),
            ModuleForm::as_str(identity.form).into(),
            CableTechnology::as_str(identity.technology).into(),
            identity.vendor.as_deref().into(),
            identity.part_number.as_deref().into(),
            identity.serial_number.as_deref().into(),
            identity.revision.as_deref().into(),
            identity.firmware_version.as_deref().into(),
            length.as_deref().into(),
        ]);
    }
}

fn each_value<'a>(view: &ReportView<'a>, mut write: impl FnMut(Label<'a>, &ModuleValues)) {
    for module in modules(view) {
        if let Some(values) = &module.values {
            write((&module.netdev).into(), values);
        }
    }
}

fn each_lane(view: &ReportView<'_>, out: &mut Series<'_, '_>, of: fn(&ModuleLane) -> Option<f64>) {
    each_value(view, |netdev, values| {
        for (number, lane) in (0u32..).zip(&values.lanes) {
            out.known(&[netdev, number.into()], of(lane));
        }
    });
}

fn each_limit(view: &ReportView<'_>, out: &mut Series<'_, '_>, of: fn(&ModuleLimits) -> Option<Limits>) {
    for module in modules(view) {
        for (level, limit) in of(&module.limits).iter().flat_map(Limits::levels) {
            out.gauge(&[(&module.netdev).into(), level.into()], limit);
        }
    }
}

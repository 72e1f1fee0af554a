//! PCI functions: their interrupts and what their drivers report about health.

use crate::export::family::{FIRST_RELEASE, Family, Label, MetricKind};
use crate::export::view::ReportView;
use crate::model::health::{FunctionHealth, NicTemperature, Reporter};
use crate::model::ids::PciAddress;
use crate::model::irq::{IrqSummary, Locality};
use crate::model::pcie::FunctionKind;

/// Interrupts of the watched functions.
pub const INTERRUPTS: &[Family] = &[
    Family {
        name: "lanewatch_irq_vectors",
        kind: MetricKind::Gauge,
        help: "Interrupt vectors of a function by locality of their CPU to its NUMA node (msi_irqs, \
               /proc/irq/<n>/effective_affinity_list).",
        labels: LOCALITY,
        worst: "3 per function, without VFs",
        since: FIRST_RELEASE,
        write: |view, out| {
            each(view, |address, summary| {
                for (locality, count) in of(summary, summary.vectors) {
                    out.gauge(&[address.into(), locality.as_str().into()], count);
                }
            });
        },
    },
    Family {
        name: "lanewatch_irq_interrupts_total",
        kind: MetricKind::Counter,
        help: "Interrupts of a function by locality of the CPU that served them; survives 32-bit wraps, CPU \
               hotplug and driver reloads (/proc/interrupts).",
        labels: LOCALITY,
        worst: "3 per function, without VFs",
        since: FIRST_RELEASE,
        write: |view, out| {
            each(view, |address, summary| {
                for (locality, count) in summary.interrupts.into_iter().flat_map(|counts| of(summary, counts)) {
                    out.counter(&[address.into(), locality.as_str().into()], count);
                }
            });
        },
    },
    Family {
        name: "lanewatch_irq_busiest_cpu_ratio",
        kind: MetricKind::Gauge,
        help: "Share of a function's interrupts that its busiest CPU served, in the last interval with \
               interrupts (/proc/interrupts).",
        labels: &["pci_address"],
        worst: "1 per function, without VFs",
        since: FIRST_RELEASE,
        write: |view, out| {
            each(view, |address, summary| out.known(&[address.into()], summary.busiest.map(|(_, share)| share)));
        },
    },
    Family {
        name: "lanewatch_irq_affinity_changes_total",
        kind: MetricKind::Counter,
        help: "Changes of the CPUs that serve a function's vectors since the agent started \
               (/proc/irq/<n>/effective_affinity_list).",
        labels: &["pci_address"],
        worst: "1 per function, without VFs",
        since: FIRST_RELEASE,
        write: |view, out| {
            each(view, |address, summary| out.counter(&[address.into()], summary.affinity_changes));
        },
    },
];

const LOCALITY: &[&str] = &["pci_address", "locality"];

/// VFs by the hundred stay within the budget of series: findings speak for their interrupts.
fn each(view: &ReportView<'_>, mut write: impl FnMut(PciAddress, &IrqSummary)) {
    for (address, summary) in &view.report.irqs {
        let vf = view.function(*address).is_some_and(|f| matches!(f.kind, FunctionKind::Virtual { .. }));
        // A function without vectors (no driver) has nothing to say.
        if summary.vectors != [0; 3] && !vf {
            write(*address, summary);
        }
    }
}

/// Where the function's place is known, local and remote, and unknown if there is any; else unknown alone.
fn of(summary: &IrqSummary, counts: [u64; 3]) -> impl Iterator<Item = (Locality, u64)> {
    let placed = summary.placed;
    let shown = move |(locality, count): &(Locality, u64)| (*locality != Locality::Unknown) == placed || *count > 0;
    Locality::ALL.into_iter().zip(counts).filter(shown)
}

const REPORTERS: &str = "1 per reporter, of which mlx5 has 5 per function and no function more than 16; absent for VFs beside \
                         their PF";

/// Health reporters of drivers, and temperatures.
pub const HEALTH: &[Family] = &[
    Family {
        name: "lanewatch_health_reporter_healthy",
        kind: MetricKind::Gauge,
        help: "Whether a devlink health reporter of a function is healthy (DEVLINK_CMD_HEALTH_REPORTER_GET).",
        labels: &["pci_address", "device", "reporter"],
        worst: REPORTERS,
        since: FIRST_RELEASE,
        write: |view, out| each_reporter(view, |labels, reporter| out.gauge(labels, !reporter.in_error)),
    },
    Family {
        name: "lanewatch_health_reporter_errors_total",
        kind: MetricKind::Counter,
        help: "Errors that a devlink health reporter of a function reported (DEVLINK_CMD_HEALTH_REPORTER_GET).",
        labels: &["pci_address", "device", "reporter"],
        worst: REPORTERS,
        since: FIRST_RELEASE,
        write: |view, out| each_reporter(view, |labels, reporter| out.counter(labels, reporter.errors)),
    },
    Family {
        name: "lanewatch_health_reporter_recoveries_total",
        kind: MetricKind::Counter,
        help: "Successful recoveries of a devlink health reporter of a function \
               (DEVLINK_CMD_HEALTH_REPORTER_GET).",
        labels: &["pci_address", "device", "reporter"],
        worst: REPORTERS,
        since: FIRST_RELEASE,
        write: |view, out| each_reporter(view, |labels, reporter| out.counter(labels, reporter.recoveries)),
    },
    Family {
        name: "lanewatch_nic_temperature_celsius",
        kind: MetricKind::Gauge,
        help: "Temperature of a sensor of a card (/sys/bus/pci/devices/<address>/hwmon/hwmon*/temp*_input).",
        labels: &["pci_address", "sensor"],
        worst: SENSORS,
        since: FIRST_RELEASE,
        write: |view, out| each_sensor(view, |labels, sensor| out.gauge(labels, sensor.value.0)),
    },
    Family {
        name: "lanewatch_nic_temperature_critical_celsius",
        kind: MetricKind::Gauge,
        help: "Temperature at which a sensor of a card is critical, by the card itself (hwmon*/temp*_crit).",
        labels: &["pci_address", "sensor"],
        worst: SENSORS,
        since: FIRST_RELEASE,
        write: |view, out| {
            each_sensor(view, |labels, sensor| out.known(labels, sensor.critical.map(|critical| critical.0)));
        },
    },
];

const SENSORS: &str = "6 per PF; mlx5 has 1 for the chip and 1 for the module";

fn each_sensor(view: &ReportView<'_>, mut write: impl FnMut(&[Label<'_>], &NicTemperature)) {
    let mut all: Vec<&NicTemperature> = view.report.snapshot.all().collect();
    all.sort_by(|a, b| (a.pci_address, &a.sensor).cmp(&(b.pci_address, &b.sensor)));
    all.dedup_by(|a, b| (a.pci_address, &a.sensor) == (b.pci_address, &b.sensor));
    for sensor in all {
        write(&[sensor.pci_address.into(), Label::from(&sensor.sensor)], sensor);
    }
}

fn each_reporter(view: &ReportView<'_>, mut write: impl FnMut(&[Label<'_>], &Reporter)) {
    let mut all: Vec<&FunctionHealth> = view.report.snapshot.all().collect();
    all.sort_by_key(|health| health.pci_address);
    all.dedup_by_key(|health| health.pci_address);
    for health in all {
        for reporter in &health.reporters {
            let labels = [health.pci_address.into(), health.device.as_str().into(), Label::from(&reporter.name)];
            write(&labels, reporter);
        }
    }
}

//! Probes.

use crate::bench::peers::request::RequestResult;
use crate::export::family::{FIRST_RELEASE, Family, Label, MetricKind};
use crate::export::view::ReportView;
use crate::model::benchmark::{Benchmark, BenchmarkKey, BenchmarkRun, Outcome, SkipReason};
use crate::model::ids::DeviceName;
use crate::model::time::unix_seconds;
use crate::model::units::total;

/// The families, in the order of the exposition.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_probe_runs_total",
        kind: MetricKind::Counter,
        help: "Runs of a benchmark since the agent started, by result.",
        labels: &["probe", "device", "port", "result"],
        worst: "5 per probe and port",
        since: FIRST_RELEASE,
        write: |view, out| {
            for (key, past) in &*view.report.probes {
                for (outcome, count) in Outcome::ALL.iter().zip(past.counts) {
                    let [probe, device, port] = labels(key);
                    out.counter(&[probe, device, port, outcome.as_str().into()], count);
                }
            }
        },
    },
    Family {
        name: "lanewatch_probe_skipped_runs_total",
        kind: MetricKind::Counter,
        help: "Runs of a benchmark that were skipped since the agent started, by reason.",
        labels: &["probe", "reason"],
        worst: "11 per probe",
        since: FIRST_RELEASE,
        write: |view, out| {
            for probe in Benchmark::ALL {
                let pasts = || view.report.probes.iter().filter(|(key, _)| key.probe == *probe);
                if pasts().next().is_none() {
                    continue;
                }
                for reason in SkipReason::ALL {
                    let count = total(pasts().filter_map(|(_, past)| past.skips.get(reason)).copied());
                    out.counter(&[probe.as_str().into(), reason.as_str().into()], count);
                }
            }
        },
    },
    Family {
        name: "lanewatch_probe_server_requests_total",
        kind: MetricKind::Counter,
        help: "Requests of peers to start a benchmark server since the agent started, by result; absent if this \
               agent starts none.",
        labels: &["result"],
        worst: "12",
        since: FIRST_RELEASE,
        write: |view, out| {
            for (result, count) in RequestResult::ALL.iter().zip(view.agent.probe_requests.into_iter().flatten()) {
                out.counter(&[result.as_str().into()], count);
            }
        },
    },
    Family {
        name: "lanewatch_probe_bandwidth_bytes_per_second",
        kind: MetricKind::Gauge,
        help: "Payload bandwidth of the last run of a benchmark; the sum for both directions.",
        labels: &["probe", "device", "port", "direction"],
        worst: "2 per probe and port",
        since: FIRST_RELEASE,
        write: |view, out| {
            each(view, |[probe, device, port], run| {
                for (direction, value) in &run.measured.bandwidth {
                    out.gauge(&[probe, device, port, direction.as_str().into()], *value);
                }
            });
        },
    },
    Family {
        name: "lanewatch_probe_latency_seconds",
        kind: MetricKind::Gauge,
        help: "Latency that the last run of a benchmark measured: half a round trip for writes, a full one for \
               reads.",
        labels: &["probe", "device", "port", "direction", "statistic"],
        worst: "12 per probe and port",
        since: FIRST_RELEASE,
        write: |view, out| {
            each(view, |[probe, device, port], run| {
                for (direction, statistic, value) in &run.measured.latency {
                    out.gauge(&[probe, device, port, direction.as_str().into(), statistic.as_str().into()], *value);
                }
            });
        },
    },
    Family {
        name: "lanewatch_probe_ceiling_bytes_per_second",
        kind: MetricKind::Gauge,
        help: "Maximum payload bandwidth of a benchmark's path one way at its last run: the lowest of port rates and PCIe paths, minus protocol overhead.",
        labels: PORT,
        worst: "1 per probe and port",
        since: FIRST_RELEASE,
        write: |view, out| {
            each(view, |labels, run| out.known(&labels, run.ceiling.map(|ceiling| ceiling.0)));
        },
    },
    Family {
        name: "lanewatch_probe_last_run_timestamp_seconds",
        kind: MetricKind::Gauge,
        help: "Last run of a benchmark, whatever its result, in seconds since 1970; skipped runs do not count.",
        labels: PORT,
        worst: "1 per probe and port",
        since: FIRST_RELEASE,
        write: |view, out| {
            for (key, past) in &*view.report.probes {
                out.known(&labels(key), past.last.as_ref().map(|run| unix_seconds(run.at)));
            }
        },
    },
    Family {
        name: "lanewatch_probe_duration_seconds",
        kind: MetricKind::Gauge,
        help: "Duration of the last run of a benchmark.",
        labels: PORT,
        worst: "1 per probe and port",
        since: FIRST_RELEASE,
        write: |view, out| {
            for (key, past) in &*view.report.probes {
                out.known(&labels(key), past.last.as_ref().map(|run| run.took.as_secs_f64()));
            }
        },
    },
    Family {
        name: "lanewatch_maintenance",
        kind: MetricKind::Gauge,
        help: "Is 1 while the host is in maintenance: findings are acknowledged, and no benchmark runs.",
        labels: &[],
        worst: "1",
        since: FIRST_RELEASE,
        write: |view, out| out.gauge(&[], view.report.maintenance.is_some()),
    },
];

const PORT: &[&str] = &["probe", "device", "port"];

fn labels(key: &BenchmarkKey) -> [Label<'_>; 3] {
    [key.probe.as_str().into(), key.device().map(DeviceName::as_str).into(), key.port.as_ref().map(|p| p.port).into()]
}

/// Each probe with its last run that measured something.
fn each<'a>(view: &ReportView<'a>, mut write: impl FnMut([Label<'a>; 3], &'a BenchmarkRun)) {
    for (key, past) in &*view.report.probes {
        if let Some(run) = &past.measured {
            write(labels(key), run);
        }
    }
}

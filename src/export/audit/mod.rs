//! The audit of a fleet as documents for programs; [`text`] has the tables for people, [`trend`] the
//! comparison of several moments.
//!
//! CSV (RFC 4180) is one table at a time, with bandwidth in bytes per second, as in the metrics. JSON is versioned: fields
//! are added, none is renamed or removed within a schema.

pub mod text;
pub mod trend;

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::fleet::cables::{Cable, CableEnd};
use crate::fleet::facts::HostId;
use crate::fleet::host::Sums;
use crate::fleet::tally::{ExcludedHosts, Fleet, ModelFirmware};
use crate::model::time::rfc3339;

/// Which table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Sums by group.
    Groups,
    /// The hosts with most stranded.
    Hosts,
    /// What to do.
    Fixes,
    /// Devices by model and firmware.
    Firmware,
    /// Hosts that are not in the sums, and why.
    Excluded,
    /// Cables between two hosts, and which receiver is bad.
    Cables,
}

const SUMS: [&str; 23] = [
    "hosts",
    "devices",
    "ports",
    "active_ports",
    "down_ports",
    "missing_devices",
    "rateless_ports",
    "installed_bytes_per_second",
    "usable_bytes_per_second",
    "stranded_bytes_per_second",
    "degraded_bytes_per_second",
    "slot_bytes_per_second",
    "design_bytes_per_second",
    "down_bytes_per_second",
    "missing_bytes_per_second",
    "unknown_bytes_per_second",
    "vf_less_bytes_per_second",
    "vfs_limit",
    "vfs_configured",
    "vfs_held",
    "vfs_on_host",
    "vfs_free",
    "vfs_unknown",
];

fn cells(sums: &Sums) -> [String; 23] {
    let rates = [
        sums.installed,
        sums.usable,
        sums.stranded(),
        sums.degraded,
        sums.slot,
        sums.design,
        sums.down,
        sums.missing,
        sums.unknown,
        sums.vf_less,
    ];
    let [installed, usable, stranded, degraded, slot, design, down, missing, unknown, vf_less] =
        rates.map(|rate| rate.0.to_string());
    let counts = [sums.hosts, sums.devices, sums.ports, sums.active_ports, sums.down_ports, sums.missing_devices];
    let [hosts, devices, ports, active, down_ports, missing_devices] = counts.map(|count| count.to_string());
    let vfs = [sums.vfs.limit, sums.vfs.configured, sums.vfs.held, sums.vfs.on_host, sums.vfs.free, sums.vfs.unknown];
    let [limit, configured, held, on_host, free, vfs_unknown] = vfs.map(|count| count.to_string());
    let rateless = sums.rateless_ports.to_string();
    [
        hosts,
        devices,
        ports,
        active,
        down_ports,
        missing_devices,
        rateless,
        installed,
        usable,
        stranded,
        degraded,
        slot,
        design,
        down,
        missing,
        unknown,
        vf_less,
        limit,
        configured,
        held,
        on_host,
        free,
        vfs_unknown,
    ]
}

/// A table with its heading.
///
/// # Errors
/// None that a fleet can cause.
pub fn csv_table(fleet: &Fleet, table: Table) -> Result<String, csv::Error> {
    let mut out = writer();
    let by = || fleet.by.iter().map(String::as_str);
    let identity = || fleet.identity.iter().map(String::as_str);
    let values = |id: &HostId| id.0.iter().map(ToString::to_string).collect::<Vec<_>>();
    match table {
        Table::Groups => {
            out.write_record(by().chain(SUMS))?;
            for (group, sums) in &fleet.groups {
                out.write_record(group.iter().cloned().chain(cells(sums)))?;
            }
        }
        Table::Hosts => {
            out.write_record(identity().chain(by()).chain(SUMS))?;
            for line in &fleet.worst {
                out.write_record(
                    values(&line.id).into_iter().chain(line.group.iter().cloned()).chain(cells(&line.sums)),
                )?;
            }
        }
        Table::Fixes => {
            out.write_record(identity().chain(["action", "subject", "devices", "gain_bytes_per_second"]))?;
            for fix in &fleet.fixes {
                let devices: Vec<&str> = fix.devices.iter().map(String::as_str).collect();
                let own =
                    [fix.action.as_str().to_owned(), fix.subject.clone(), devices.join(" "), fix.gain.0.to_string()];
                out.write_record(values(&fix.host).into_iter().chain(own))?;
            }
        }
        Table::Excluded => {
            out.write_record(identity().chain(["reason"]))?;
            for (reason, hosts) in [("dead", &fleet.unreachable), ("stale", &fleet.stale), ("twice", &fleet.duplicate)]
            {
                for host in &hosts.first {
                    out.write_record(values(host).into_iter().chain([reason.to_owned()]))?;
                }
            }
        }
        Table::Cables => {
            let own =
                ["netdev", "vendor", "part_number", "serial_number", "raw_bit_error_ratio", "lost_codeword_ratio"];
            let other = ["other_end", "other_netdev", "other_raw_bit_error_ratio", "direction"];
            out.write_record(identity().chain(own).chain(other))?;
            for cable in &fleet.cables {
                let Cable { vendor, part_number, serial_number, worse, better } = cable;
                let lost = worse.lost.map(|lost| lost.to_string()).unwrap_or_default();
                let (raw, other_raw) = (worse.raw.to_string(), better.raw.to_string());
                let (host, direction) = (values(&better.host).join(" "), cable.direction().as_str());
                let own = [&worse.netdev, vendor, part_number, serial_number, &raw, &lost];
                let other = [&*host, &better.netdev, &other_raw, direction];
                let own = own.into_iter().map(String::as_str).chain(other).map(str::to_owned);
                out.write_record(values(&worse.host).into_iter().chain(own))?;
            }
        }
        Table::Firmware => {
            out.write_record(["hca_type", "board_id", "firmware_version", "devices", "hosts", "usual"])?;
            for ((kind, board), line) in &fleet.models {
                for (version, count) in &line.0 {
                    let usual = if line.usual() == Some(version) { "yes" } else { "no" };
                    let (devices, hosts) = (count.devices.to_string(), count.hosts.to_string());
                    out.write_record([kind, board, version, &devices, &hosts, usual])?;
                }
            }
        }
    }
    finish(out)
}

fn writer() -> csv::Writer<Vec<u8>> {
    csv::WriterBuilder::new().terminator(csv::Terminator::Any(b'\n')).from_writer(Vec::new())
}

fn finish(out: csv::Writer<Vec<u8>>) -> Result<String, csv::Error> {
    let bytes = out.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Rows as CSV.
fn csv_text(rows: Vec<Vec<String>>) -> Result<String, csv::Error> {
    let mut out = writer();
    for row in rows {
        out.write_record(row)?;
    }
    finish(out)
}

/// Version of the document.
const SCHEMA: u32 = 1;

/// A host's identity by label.
fn identity(fleet: &Fleet, id: &HostId) -> Map<String, Value> {
    fleet.identity.iter().zip(id.0.iter()).map(|(label, value)| (label.clone(), json!(value))).collect()
}

/// A group's values by label.
fn labels(fleet: &Fleet, values: &[String]) -> Map<String, Value> {
    fleet.by.iter().zip(values).map(|(label, value)| (label.clone(), json!(value))).collect()
}

/// How many hosts are left out, and the first of them.
fn left_out(fleet: &Fleet, hosts: &ExcludedHosts) -> Value {
    json!({"count": hosts.count, "first": hosts.first.iter().map(|id| identity(fleet, id)).collect::<Vec<_>>()})
}

/// The document.
///
/// # Errors
/// None that a fleet can cause.
pub fn json_document(fleet: &Fleet, exceeded: &[String]) -> Result<String, serde_json::Error> {
    let identity = |id: &HostId| identity(fleet, id);
    let labels = |values: &[String]| labels(fleet, values);
    let left_out = |hosts: &ExcludedHosts| left_out(fleet, hosts);
    let end = |end: &CableEnd| {
        json!({
            "host": identity(&end.host),
            "netdev": end.netdev,
            "raw_bit_error_ratio": end.raw,
            "lost_codeword_ratio": end.lost,
        })
    };
    let cable = |cable: &Cable| {
        json!({
            "vendor": cable.vendor,
            "part_number": cable.part_number,
            "serial_number": cable.serial_number,
            "direction": cable.direction().as_str(),
            "worse_end": end(&cable.worse),
            "better_end": end(&cable.better),
        })
    };
    let mut groups = Vec::new();
    for (values, sums) in &fleet.groups {
        groups.push(with("labels", labels(values), sums)?);
    }
    let mut worst = Vec::new();
    for line in &fleet.worst {
        let mut host = with("host", identity(&line.id), &line.sums)?;
        host.insert("labels".to_owned(), labels(&line.group).into());
        worst.push(host);
    }
    let fixes = fleet.fixes.iter().map(|fix| {
        json!({
            "host": identity(&fix.host),
            "action": fix.action,
            "subject": fix.subject,
            "devices": fix.devices,
            "gain_bytes_per_second": fix.gain,
        })
    });
    let document = json!({
        "schema": SCHEMA,
        "time": rfc3339(moment(fleet.time)),
        "identity": fleet.identity,
        "by": fleet.by,
        "fleet": with("stranded_bytes_per_second", json!(fleet.total.stranded()), &fleet.total)?,
        "left_out": {
            "dead": left_out(&fleet.unreachable),
            "stale": left_out(&fleet.stale),
            "twice": left_out(&fleet.duplicate),
        },
        "groups": groups,
        "models": fleet.models.iter().map(|((kind, board), line)| model(kind, board, line)).collect::<Vec<_>>(),
        "worst_hosts": worst,
        "fixes": fixes.collect::<Vec<_>>(),
        "cables": fleet.cables.iter().map(cable).collect::<Vec<_>>(),
        "all_fixes": {"count": fleet.all_fixes.0, "gain_bytes_per_second": fleet.all_fixes.1},
        "exceeded": exceeded,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// Sums with one thing before them.
fn with(name: &str, value: impl Into<Value>, sums: &Sums) -> Result<Map<String, Value>, serde_json::Error> {
    let mut map = Map::from_iter([(name.to_owned(), value.into())]);
    if let Value::Object(sums) = serde_json::to_value(sums)? {
        map.extend(sums);
    }
    Ok(map)
}

fn model(kind: &str, board: &str, line: &ModelFirmware) -> Value {
    let firmware = line
        .0
        .iter()
        .map(|(version, count)| json!({"version": version, "devices": count.devices, "hosts": count.hosts}));
    json!({
        "hca_type": kind,
        "board_id": board,
        "usual_firmware": line.usual(),
        "skewed_devices": line.skewed(),
        "firmware": firmware.collect::<Vec<_>>(),
    })
}

/// A moment in seconds since 1970.
pub(super) fn moment(seconds: f64) -> SystemTime {
    let since = Duration::try_from_secs_f64(seconds.floor()).unwrap_or_default();
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::testing::committed;
    use super::*;
    use crate::fleet::facts::HostId;
    use crate::fleet::host::{Repair, RepairKind, Sums, VfSums};
    use crate::fleet::tally::{ExcludedHosts, FirmwareCount, Fleet, HostSums, ModelFirmware};
    use crate::model::units::BytesPerSecond;

    fn id(name: &str) -> HostId {
        HostId(["lanewatch".into(), name.into()].into())
    }

    fn fleet() -> Fleet {
        let gbits = BytesPerSecond::from_gbits;
        let total = Sums {
            hosts: 3,
            devices: 6,
            ports: 6,
            active_ports: 5,
            down_ports: 1,
            installed: gbits(1200.0),
            usable: gbits(863.0),
            degraded: gbits(137.0),
            down: gbits(200.0),
            vf_less: gbits(200.0),
            vfs: VfSums { limit: 32, configured: 16, held: 9, on_host: 1, free: 5, unknown: 1 },
            ..Sums::default()
        };
        let firmware = [("20.31.1014", 5, 3), ("20.39.3004", 1, 1)];
        let firmware = firmware.map(|(version, devices, hosts)| (version.to_owned(), FirmwareCount { devices, hosts }));
        let fix = |action, subject: &str, device: &str, gain| Repair {
            host: id("n2:10015"),
            action,
            subject: subject.to_owned(),
            devices: BTreeSet::from([device.to_owned()]),
            gain: gbits(gain),
        };
        let end = |host: &str, raw, lost| CableEnd { host: id(host), netdev: "eth2".to_owned(), raw, lost };
        Fleet {
            time: 1_790_000_000.25,
            identity: vec!["job".to_owned(), "instance".to_owned()],
            by: vec!["rack".to_owned()],
            total,
            groups: BTreeMap::from([(vec!["r\"1\", left".to_owned()], total)]),
            models: BTreeMap::from([(("MT4123".to_owned(), "TST1".to_owned()), ModelFirmware(firmware.into()))]),
            worst: vec![HostSums {
                id: id("n2:10015"),
                group: vec!["r\"1\", left".to_owned()],
                sums: Sums { hosts: 1, ..total },
            }],
            fixes: vec![
                fix(RepairKind::BringUpPort, "mlx5_1/1", "mlx5_1", 200.0),
                fix(RepairKind::FixLink, "0000:b2:00.0", "mlx5_0", 137.0),
            ],
            all_fixes: (2, gbits(337.0)),
            cables: vec![Cable {
                vendor: "ACME".to_owned(),
                part_number: "AOC-10M".to_owned(),
                serial_number: "SN0007".to_owned(),
                worse: end("n2:10015", 2e-5, Some(0.0)),
                better: end("n1:10015", 1e-9, None),
            }],
            unreachable: ExcludedHosts { count: 5, first: vec![id("n7:10015")] },
            stale: ExcludedHosts::default(),
            duplicate: ExcludedHosts { count: 1, first: vec![id("n1.example:10015")] },
        }
    }

    #[test]
    fn golden_text() {
        committed("tests/golden/audit.txt", &text::report(&fleet()));
        let empty = text::report(&Fleet::default());
        assert!(
            empty.starts_with("0 Gb/s of 0 Gb/s installed is usable (-): 0 hosts, 0 devices, 0 ports at "),
            "{empty}"
        );
    }

    /// The bandwidth in Gb/s of the lines that begin with some text.
    fn gbits_of(report: &str, is: impl Fn(&str) -> bool) -> f64 {
        let words = report.lines().filter(|line| is(line)).filter_map(|line| line.split(" Gb/s").next());
        words.filter_map(|line| line.split_whitespace().next_back()?.parse::<f64>().ok()).sum()
    }

    #[test]
    fn every_sum_of_the_text_adds_up() {
        let gbits = BytesPerSecond::from_gbits;
        let mut fleet = fleet();
        fleet.total.unknown = gbits(80.0);
        fleet.total.usable = gbits(783.0);
        let report = text::report(&fleet);
        let stranded = gbits_of(&report, |line| line.starts_with("stranded  "));
        let unknown = gbits_of(&report, |line| line.starts_with("unknown  "));
        let parts = gbits_of(&report, |line| line.starts_with("  ") && line.contains(" Gb/s"));
        assert!((stranded - 337.0).abs() < 1e-9 && (stranded - parts).abs() < 1e-9, "{report}");
        assert!((783.0 + stranded + unknown - 1200.0).abs() < 1e-9, "{report}");
    }

    #[test]
    fn csv_has_unknown_vfs_and_the_hosts_that_are_left_out() {
        let groups = csv_table(&fleet(), Table::Groups).unwrap();
        let line = |index: usize| groups.lines().nth(index).unwrap().to_owned();
        assert!(line(0).ends_with("vfs_free,vfs_unknown") && line(1).ends_with(",5,1"), "{groups}");
        let excluded = csv_table(&fleet(), Table::Excluded).unwrap();
        assert_eq!(excluded, "job,instance,reason\nlanewatch,n7:10015,dead\nlanewatch,n1.example:10015,twice\n");
    }

    #[test]
    fn golden_json() {
        committed("tests/golden/audit.json", &json_document(&fleet(), &["down: 1".to_owned()]).unwrap());
    }

    #[test]
    fn golden_csv() {
        let tables = [Table::Groups, Table::Hosts, Table::Fixes, Table::Firmware, Table::Excluded, Table::Cables]
            .map(|which| csv_table(&fleet(), which).unwrap());
        committed("tests/golden/audit.csv", &tables.join("\n"));
    }
}

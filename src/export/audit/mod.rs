//! The audit of a fleet: as text, as CSV, as JSON.

pub mod csv;
pub mod json;
pub mod text;

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::csv::{Table, table};
    use super::{json, text};
    use crate::export::testing::committed;
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
        let groups = table(&fleet(), Table::Groups).unwrap();
        let line = |index: usize| groups.lines().nth(index).unwrap().to_owned();
        assert!(line(0).ends_with("vfs_free,vfs_unknown") && line(1).ends_with(",5,1"), "{groups}");
        let excluded = table(&fleet(), Table::Excluded).unwrap();
        assert_eq!(excluded, "job,instance,reason\nlanewatch,n7:10015,dead\nlanewatch,n1.example:10015,twice\n");
    }

    #[test]
    fn golden_json() {
        committed("tests/golden/audit.json", &json::document(&fleet(), &["down: 1".to_owned()]).unwrap());
    }

    #[test]
    fn golden_csv() {
        let tables = [Table::Groups, Table::Hosts, Table::Fixes, Table::Firmware, Table::Excluded]
            .map(|which| table(&fleet(), which).unwrap());
        committed("tests/golden/audit.csv", &tables.join("\n"));
    }
}

//! The audit as CSV (RFC 4180), one table at a time. Bandwidth is in bytes per second, as in the metrics.

use csv::{Terminator, WriterBuilder};

use crate::fleet::facts::HostId;
use crate::fleet::host::Sums;
use crate::fleet::tally::Fleet;

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
pub fn table(fleet: &Fleet, table: Table) -> Result<String, csv::Error> {
    let mut out = WriterBuilder::new().terminator(Terminator::Any(b'\n')).from_writer(Vec::new());
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
    let bytes = out.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

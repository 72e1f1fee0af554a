//! The audit as JSON. Versioned: fields are added, none is renamed or removed within a schema.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::fleet::facts::HostId;
use crate::fleet::host::Sums;
use crate::fleet::tally::{ExcludedHosts, Fleet, ModelFirmware};
use crate::model::time::rfc3339;

/// Version of the document.
const SCHEMA: u32 = 1;

/// The document.
///
/// # Errors
/// None that a fleet can cause.
pub fn document(fleet: &Fleet, exceeded: &[String]) -> Result<String, serde_json::Error> {
    let identity = |id: &HostId| {
        let pairs = fleet.identity.iter().zip(id.0.iter());
        pairs.map(|(label, value)| (label.clone(), json!(value))).collect::<Map<_, _>>()
    };
    let labels = |values: &[String]| {
        fleet.by.iter().zip(values).map(|(label, value)| (label.clone(), json!(value))).collect::<Map<_, _>>()
    };
    let left_out = |hosts: &ExcludedHosts| json!({"count": hosts.count, "first": hosts.first.iter().map(identity).collect::<Vec<_>>()});
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

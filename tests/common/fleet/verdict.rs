//! Holds what an audit says, as JSON, against what was planted.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{CheckResult, Fleet, Planted, site};

/// Bandwidth in bytes per second against Gb/s.
fn same(what: &str, bytes: &Value, gbits: f64) {
    let found = bytes.as_f64().unwrap_or_else(|| panic!("{what}: {bytes}")) * 8.0 / 1e9;
    assert!((found - gbits).abs() <= 1e-9 * gbits.abs().max(1.0), "{what}: {found} Gb/s, planted {gbits}");
}

fn sums(what: &str, found: &Value, planted: &Planted) {
    let truth = &planted.truth;
    let [ports, active, down, missing, rateless] = truth.ports;
    let counts = [
        ("hosts", planted.hosts),
        ("devices", truth.devices),
        ("ports", ports),
        ("active_ports", active),
        ("down_ports", down),
        ("missing_devices", missing),
        ("rateless_ports", rateless),
    ];
    for (name, count) in counts {
        assert_eq!(found[name], count, "{what}: {name}");
    }
    for (name, count) in ["limit", "configured", "held", "on_host", "free", "unknown"].iter().zip(truth.vfs) {
        assert_eq!(found["vfs"][name], count, "{what}: VFs {name}");
    }
    let [degraded, slot, design, gone_down, gone] = truth.stranded;
    let rates = [
        ("installed", truth.installed),
        ("usable", truth.usable),
        ("degraded", degraded),
        ("slot", slot),
        ("design", design),
        ("down", gone_down),
        ("missing", gone),
        ("unknown", 0.0),
        ("vf_less", truth.vf_less),
    ];
    for (name, gbits) in rates {
        same(&format!("{what}: {name}"), &found[format!("{name}_bytes_per_second")], gbits);
    }
}

/// Panics on the first difference. The audit is by `site`, with lists as long as the fleet.
pub fn agree(fleet: &Fleet, audit: &Value) {
    assert_eq!(audit["schema"], 1);
    sums("fleet", &audit["fleet"], &fleet.planted(|_| true));
    for name in ["ams", "fra", "iad"] {
        let groups = audit["groups"].as_array().unwrap();
        let group = groups.iter().find(|group| group["labels"]["site"] == name).unwrap();
        sums(name, group, &fleet.planted(|host| site(host.number) == name));
    }
    for (name, standing) in [("dead", CheckResult::Dead), ("stale", CheckResult::Stale), ("twice", CheckResult::Twice)]
    {
        assert_eq!(audit["left_out"][name]["count"], fleet.count(standing), "{name}");
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut fixes = BTreeMap::new();
    for fix in audit["fixes"].as_array().unwrap() {
        let key = (text(&fix["host"]["instance"]), text(&fix["action"]), text(&fix["subject"]));
        assert!(fixes.insert(key, fix["gain_bytes_per_second"].clone()).is_none(), "{fix} comes twice");
    }
    let planted = fleet.fixes();
    let (found, wanted): (Vec<_>, Vec<_>) = (fixes.keys().collect(), planted.keys().collect());
    assert_eq!(found, wanted, "what is to be done");
    for (key, gain) in &planted {
        same(&format!("{key:?}"), &fixes[key], *gain);
    }
    let gains: Vec<f64> =
        audit["fixes"].as_array().unwrap().iter().map(|fix| fix["gain_bytes_per_second"].as_f64().unwrap()).collect();
    assert!(gains.is_sorted_by(|a, b| a >= b), "most first");
    let mut firmware = BTreeMap::new();
    for model in audit["models"].as_array().unwrap() {
        for version in model["firmware"].as_array().unwrap() {
            let key = (text(&model["hca_type"]), text(&version["version"]));
            firmware.insert(key, version["devices"].as_u64().unwrap());
        }
    }
    assert_eq!(firmware, fleet.firmware());
}

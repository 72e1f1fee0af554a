//! Cards that are too hot, by the limits of their own sensors.

use std::collections::BTreeMap;

use super::View;
use super::limits::{HOT_HOLD, HOT_MARGIN, MODULE_HOT};
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::health::NicTemperature;
use crate::model::ids::PciAddress;
use crate::model::module::Module;
use crate::model::reason::FindingReason;
use crate::model::units::Celsius;

/// `nic_hot`: a sensor reaches its own limit, or is near it. The functions of a card show the same sensors: the first one
/// that is hot speaks for all.
pub fn hot(view: &View<'_>, verdicts: &mut Verdicts) {
    let mut cards: BTreeMap<(u32, u8, u8), BTreeMap<PciAddress, Vec<&NicTemperature>>> = BTreeMap::new();
    for sensor in view.snapshot.all::<NicTemperature>() {
        let PciAddress { domain, bus, device, .. } = sensor.pci_address;
        cards.entry((domain, bus, device)).or_default().entry(sensor.pci_address).or_default().push(sensor);
    }
    for functions in cards.into_values() {
        let mut found = false;
        for (address, sensors) in functions {
            let worst = sensors.iter().filter_map(|sensor| judge(sensor)).max_by(|a, b| a.over.total_cmp(&b.over));
            match worst {
                _ if sensors.iter().all(|sensor| sensor.critical.is_none()) => verdicts.skipped(Check::NicHot),
                Some(hot) if !found => {
                    verdicts.found(hot.condition(view, address));
                    found = true;
                }
                _ => verdicts.ok(Check::NicHot),
            }
        }
    }
    for module in view.snapshot.all::<Module>() {
        without_limits(view, module, verdicts);
    }
}

/// A module that says how hot it is, and not how hot it may get.
fn without_limits(view: &View<'_>, module: &Module, verdicts: &mut Verdicts) {
    let temperature = module.values.as_ref().and_then(|values| values.temperature);
    let Some(temperature) = temperature.filter(|_| module.limits.temperature.is_none()) else { return };
    if temperature.0 <= MODULE_HOT {
        return;
    }
    let address = module.pci_address;
    let known = |found: &Condition| found.check == Check::NicHot && found.subject == Subject::Pci(address);
    if verdicts.conditions.iter().any(known) {
        return;
    }
    let device = view.snapshot.devices().find(|device| device.identity.pci_address == Some(address));
    let summary = format!(
        "the module of {} ({address}) is at {temperature} and names no limit; above {MODULE_HOT} °C is hot: check airflow and \
         fans.",
        module.netdev
    );
    verdicts.found(
        Condition::new(Check::NicHot, Subject::Pci(address), Severity::Warning, FindingReason::Module, summary)
            .device(device.map(|device| device.name.clone()))
            .with_evidence("module_temperature_celsius", Some(temperature.0))
            .hold(HOT_HOLD),
    );
}

/// A sensor that is near or over its limit.
struct Hot<'a> {
    sensor: &'a NicTemperature,
    critical: Celsius,
    /// Degrees above the limit; negative below it.
    over: f64,
}

fn judge(sensor: &NicTemperature) -> Option<Hot<'_>> {
    let critical = sensor.critical?;
    let over = sensor.value.0 - critical.0;
    (over >= -HOT_MARGIN).then_some(Hot { sensor, critical, over })
}

impl Hot<'_> {
    fn condition(&self, view: &View<'_>, address: PciAddress) -> Condition {
        let Self { sensor, critical, over } = self;
        let severity = if *over >= 0.0 { Severity::Critical } else { Severity::Warning };
        let reason = part(&sensor.sensor);
        let device = view.snapshot.devices().find(|device| device.identity.pci_address == Some(address));
        let device = device.map(|device| device.name.clone());
        let name = device.as_ref().map_or_else(|| address.to_string(), |device| format!("{device} ({address})"));
        let (what, advice) = match reason {
            FindingReason::Module => {
                ("its module", "check airflow and fans; if other modules are cool, reseat or replace this one")
            }
            FindingReason::Asic => ("its chip", "check fans, filters and the airflow at this slot"),
            _ => ("a sensor", "check fans, filters and the airflow at this slot"),
        };
        let limit = if *over >= 0.0 { "its limit is" } else { "close to its limit of" };
        let summary =
            format!("{name}: {what} ({}) is at {}, {limit} {critical}: {advice}.", sensor.sensor, sensor.value);
        Condition::new(Check::NicHot, Subject::Pci(address), severity, reason, summary)
            .device(device)
            .with_evidence("sensor", Some(&*sensor.sensor))
            .with_evidence("nic_temperature_celsius", Some(sensor.value.0))
            .with_evidence("nic_temperature_critical_celsius", Some(critical.0))
            .hold(HOT_HOLD)
    }
}

/// What a sensor is of, as far as its label says.
fn part(label: &str) -> FindingReason {
    let label = label.to_ascii_lowercase();
    if label.contains("module") {
        FindingReason::Module
    } else if label.contains("asic") {
        FindingReason::Asic
    } else {
        FindingReason::Sensor
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::assess::testing::{self, seen};
    use crate::model::module::ModuleValues;
    use crate::model::snapshot::Fact;

    fn sensor(address: &str, label: &str, value: f64, critical: Option<f64>) -> Fact {
        Arc::new(NicTemperature {
            pci_address: address.parse().unwrap(),
            sensor: Arc::from(label),
            value: Celsius(value),
            critical: critical.map(Celsius),
        })
    }

    fn judged(sensors: Vec<Fact>) -> Verdicts {
        seen(sensors, |view| {
            let mut verdicts = Verdicts::default();
            hot(view, &mut verdicts);
            verdicts
        })
    }

    #[test]
    fn a_sensor_is_judged_by_its_own_limit() {
        for (label, value, critical, expected) in [
            ("asic", 99.875, Some(105.0), None),
            ("asic", 100.0, Some(105.0), Some((Severity::Warning, FindingReason::Asic))),
            ("Module0", 105.0, Some(105.0), Some((Severity::Critical, FindingReason::Module))),
            ("sensor3", 130.0, Some(105.0), Some((Severity::Critical, FindingReason::Sensor))),
            ("sensor3", 130.0, None, None),
        ] {
            let verdicts = judged(vec![sensor("0000:81:00.0", label, value, critical)]);
            let found = verdicts.conditions.first().map(|found| (found.severity, found.reason));
            assert_eq!(found, expected, "{label} {value}");
        }
    }

    #[test]
    fn the_functions_of_a_card_make_one_finding() {
        let hot = |address| sensor(address, "asic", 110.0, Some(105.0));
        let verdicts = judged(vec![hot("0000:81:00.1"), hot("0000:81:00.0"), hot("0000:82:00.0")]);
        let subjects: Vec<String> = verdicts.conditions.iter().map(|found| found.subject.to_string()).collect();
        assert_eq!(subjects, ["0000:81:00.0", "0000:82:00.0"]);
        assert!(
            verdicts.conditions[0].summary.contains("its chip (asic) is at 110 °C, its limit is 105 °C: check fans")
        );
    }

    /// A module without limits of its own.
    fn module(address: &str, netdev: &str, degrees: f64) -> Fact {
        let values =
            ModuleValues { state: None, temperature: Some(Celsius(degrees)), voltage: None, lanes: Vec::new() };
        Arc::new(Module { values: Some(values), ..testing::module(netdev, address) })
    }

    #[test]
    fn a_hot_module_without_limits_adds_nothing_to_what_the_sensors_of_its_function_say() {
        let found = |facts| -> Vec<(String, Severity)> {
            let conditions = judged(facts).conditions;
            conditions.into_iter().map(|found| (found.subject.to_string(), found.severity)).collect()
        };
        let address = "0000:81:00.0";
        assert_eq!(found(vec![module(address, "eth2", 70.0)]), []);
        let warned = (address.to_owned(), Severity::Warning);
        assert_eq!(found(vec![module(address, "eth2", 71.0), module(address, "eth3", 90.0)]), [warned]);
        let sensed = vec![module(address, "eth2", 71.0), sensor(address, "asic", 110.0, Some(105.0))];
        assert_eq!(found(sensed), [(address.to_owned(), Severity::Critical)]);
    }
}

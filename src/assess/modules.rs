//! Modules with a fault, and lanes with too little light, by the modules' own limits.

use std::fmt::Write as _;

use super::View;
use super::limits::{LANE_DARKER, MODULE_HOLD};
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::ids::PortKey;
use crate::model::module::{Limits, Module, ModuleLane, ModuleLimits, ModuleState, ModuleValues, dbm};
use crate::model::rdma::{Port, RdmaDevice};
use crate::model::reason::FindingReason;

/// All ports; no port if no modules are read, so that hosts without that have no subjects.
fn ports<'a>(view: &'a View<'_>) -> impl Iterator<Item = (&'a RdmaDevice, &'a Port, PortKey)> {
    let are_read = view.snapshot.all::<Module>().next().is_some();
    super::ports::ports(view).filter(move |_| are_read)
}

/// `module_fault`: a module says that it has a fault, or its temperature is beyond its alarm limits. Of a port that is
/// down, it is the reason and no finding of its own.
pub fn fault(view: &View<'_>, verdicts: &mut Verdicts) {
    for (device, port, key) in ports(view) {
        let Some((module, values)) =
            Module::of(view.snapshot, port).and_then(|module| Some((module, module.values.as_ref()?)))
        else {
            verdicts.skipped(Check::ModuleFault);
            continue;
        };
        let Some((reason, text)) = fault_of(&module.limits, values) else {
            verdicts.ok(Check::ModuleFault);
            continue;
        };
        let subject = Subject::Port(key.clone());
        let is_down = |condition: &&mut Condition| condition.check == Check::PortDown && condition.subject == subject;
        if let Some(down) = verdicts.conditions.iter_mut().find(is_down) {
            down.reason =
                if reason == FindingReason::Limits { FindingReason::ModuleHot } else { FindingReason::ModuleFault };
            // Writing to a string cannot fail.
            let _ = write!(down.summary, " And {text}.");
            verdicts.ok(Check::ModuleFault);
            continue;
        }
        let summary = format!("{key}: {text}. Reseat the module, then replace it.");
        verdicts.found(
            Condition::new(Check::ModuleFault, subject, Severity::Warning, reason, summary)
                .address(device.identity.pci_address)
                .with_evidence("module_state", values.state.map(ModuleState::as_str))
                .with_evidence("module_temperature_celsius", values.temperature.map(|temperature| temperature.0))
                .hold(MODULE_HOLD),
        );
    }
}

pub(super) fn fault_of(limits: &ModuleLimits, values: &ModuleValues) -> Option<(FindingReason, String)> {
    if values.state == Some(ModuleState::Fault) {
        return Some((FindingReason::StateFault, "its module reports a fault (CMIS state ModuleFault)".to_owned()));
    }
    let (temperature, limits) = values.temperature.zip(limits.temperature)?;
    let beyond = temperature.0 > limits.high_alarm || temperature.0 < limits.low_alarm;
    beyond.then(|| {
        let text = format!(
            "its module is at {temperature}, outside of its limits ({:.0} to {:.0} °C)",
            limits.low_alarm, limits.high_alarm
        );
        (FindingReason::Limits, text)
    })
}

/// A lane that has less light than it should.
pub(super) struct Dim {
    severity: Severity,
    reason: FindingReason,
    lane: usize,
    /// What it has, and what it should have.
    pub(super) text: String,
}

/// `module_light`: a lane of an active port receives or sends less light than the module's own limits allow, or much less
/// than the other lanes. Limits that are missing or make no sense give no verdict.
pub fn light(view: &View<'_>, verdicts: &mut Verdicts) {
    for (device, port, key) in ports(view) {
        let module = Module::of(view.snapshot, port).filter(|_| port.is_active());
        let values = module.and_then(|module| Some((module, module.values.as_ref()?)));
        let Some((module, values)) = values.filter(|(_, values)| !values.lanes.is_empty()) else {
            verdicts.skipped(Check::ModuleLight);
            continue;
        };
        let Some(dim) = dimmest(&module.limits, values) else {
            verdicts.ok(Check::ModuleLight);
            continue;
        };
        let advice = match dim.reason {
            FindingReason::TransmitLow => "Its own laser is weak: replace the module at the next opportunity",
            _ => "Clean the connectors at both ends, then check what the other end sends in that lane",
        };
        let lane = values.lanes.get(dim.lane).copied().unwrap_or_default();
        verdicts.found(
            Condition::new(
                Check::ModuleLight,
                Subject::Port(key.clone()),
                dim.severity,
                dim.reason,
                format!("{key}: {}. {advice}.", dim.text),
            )
            .address(device.identity.pci_address)
            .with_evidence("lane", Some(dim.lane))
            .with_evidence("module_receive_power_watts", lane.receive)
            .with_evidence("module_transmit_power_watts", lane.transmit)
            .hold(MODULE_HOLD),
        );
    }
}

pub(super) fn dimmest(limits: &ModuleLimits, values: &ModuleValues) -> Option<Dim> {
    type Side = (fn(&ModuleLane) -> Option<f64>, Option<Limits>, FindingReason, &'static str);
    let sides: [Side; 2] = [
        (|lane| lane.receive, limits.receive, FindingReason::ReceiveLow, "receives"),
        (|lane| lane.transmit, limits.transmit, FindingReason::TransmitLow, "sends"),
    ];
    let mut found: Option<Dim> = None;
    for (power, limits, reason, verb) in sides {
        let powers: Vec<(usize, f64)> =
            values.lanes.iter().enumerate().filter_map(|(lane, values)| Some((lane, power(values)?))).collect();
        let Some((lane, least)) = powers.iter().copied().min_by(|(_, a), (_, b)| a.total_cmp(b)) else { continue };
        let below = limits.and_then(|limits| {
            let (severity, word, limit) = if least < limits.low_alarm {
                (Severity::Warning, "alarm", limits.low_alarm)
            } else if least < limits.low_warning {
                (Severity::Info, "warning", limits.low_warning)
            } else {
                return None;
            };
            let text = format!("lane {lane} {verb} {}, below the module's {word} limit of {}", dbm(least), dbm(limit));
            Some(Dim { severity, reason, lane, text })
        });
        let uneven = || {
            let mut others: Vec<f64> =
                powers.iter().filter(|(other, _)| *other != lane).map(|(_, power)| *power).collect();
            others.sort_by(f64::total_cmp);
            let median = others.get(others.len() / 2).copied()?;
            (limits.is_some() && least * LANE_DARKER <= median).then(|| Dim {
                severity: Severity::Info,
                reason: FindingReason::LaneUneven,
                lane,
                text: format!("lane {lane} {verb} {}, the other lanes {}", dbm(least), dbm(median)),
            })
        };
        if let Some(dim) = below.or_else(uneven)
            && found.as_ref().is_none_or(|known| known.severity < dim.severity)
        {
            found = Some(dim);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::assess::testing::{self, seen};
    use crate::model::counter::Counters;
    use crate::model::ids::DeviceName;
    use crate::model::rdma::{DeviceIdentity, LinkLayer, PhysicalState, PortState};
    use crate::model::reading::Reading;
    use crate::model::time::BootTime;
    use crate::model::units::Celsius;

    fn judged(
        receive: [f64; 4],
        temperature: f64,
        state: ModuleState,
        limits: bool,
        before: Vec<Condition>,
    ) -> Verdicts {
        let port = Port {
            number: 1,
            link_layer: Some(LinkLayer::Ethernet),
            state: Reading::Value(PortState::Active),
            physical_state: Reading::Value(PhysicalState::LinkUp),
            rate: Reading::Absent,
            lid: None,
            sm_lid: None,
            netdev: Some(Arc::from("eth2")),
            guid: None,
            pma: Counters::default(),
            hardware: Counters::default(),
        };
        let device = RdmaDevice {
            name: DeviceName::new("mlx5_0"),
            identity: Arc::new(DeviceIdentity::default()),
            ports: vec![port],
            counters: Counters::default(),
            counters_at: BootTime(0),
        };
        let light = Limits::new(0.1e-3, 0.15e-3, 1.5e-3, 2e-3).filter(|_| limits);
        let lane = |receive| ModuleLane { receive: Some(receive), transmit: Some(1e-3), bias: None };
        let module = Module {
            limits: ModuleLimits {
                temperature: Limits::new(-5.0, 0.0, 70.0, 75.0),
                receive: light,
                transmit: light,
                ..ModuleLimits::default()
            },
            values: Some(ModuleValues {
                state: Some(state),
                temperature: Some(Celsius(temperature)),
                voltage: None,
                lanes: receive.map(lane).to_vec(),
            }),
            ..testing::module("eth2", "0000:81:00.0")
        };
        seen(vec![Arc::new(device), Arc::new(module)], |view| {
            let mut verdicts = Verdicts { conditions: before, ..Verdicts::default() };
            fault(view, &mut verdicts);
            light_of(view, &mut verdicts);
            verdicts
        })
    }

    use super::light as light_of;

    fn found(verdicts: &Verdicts) -> Vec<(Check, Severity, FindingReason)> {
        verdicts.conditions.iter().map(|found| (found.check, found.severity, found.reason)).collect()
    }

    #[test]
    fn light_is_judged_by_the_modules_own_limits() {
        let light = |receive, limits| judged(receive, 50.0, ModuleState::Ready, limits, Vec::new());
        for (lane, expected) in [
            (0.5e-3, vec![]),
            (0.14e-3, vec![(Check::ModuleLight, Severity::Info, FindingReason::ReceiveLow)]),
            (0.05e-3, vec![(Check::ModuleLight, Severity::Warning, FindingReason::ReceiveLow)]),
            (0.0, vec![(Check::ModuleLight, Severity::Warning, FindingReason::ReceiveLow)]),
        ] {
            assert_eq!(found(&light([0.5e-3, 0.5e-3, lane, 0.5e-3], true)), expected, "{lane}");
            assert_eq!(found(&light([0.5e-3, 0.5e-3, lane, 0.5e-3], false)), vec![], "without limits no verdict");
        }
        let uneven = light([1e-3, 1e-3, 0.4e-3, 1e-3], true);
        assert_eq!(found(&uneven), [(Check::ModuleLight, Severity::Info, FindingReason::LaneUneven)]);
        let dark = light([0.5e-3, 0.5e-3, 0.0, 0.5e-3], true);
        let said =
            "mlx5_0/1: lane 2 receives no light, below the module's alarm limit of -10.0 dBm. Clean the connectors";
        assert!(dark.conditions[0].summary.starts_with(said), "{}", dark.conditions[0].summary);
    }

    #[test]
    fn a_fault_is_a_finding_or_the_reason_of_a_port_that_is_down() {
        let module = |temperature, state, before| judged([0.5e-3; 4], temperature, state, true, before);
        assert_eq!(found(&module(74.0, ModuleState::Ready, vec![])), vec![]);
        let hot = module(76.0, ModuleState::Ready, vec![]);
        assert_eq!(found(&hot), [(Check::ModuleFault, Severity::Warning, FindingReason::Limits)]);
        let broken = module(50.0, ModuleState::Fault, vec![]);
        assert_eq!(found(&broken), [(Check::ModuleFault, Severity::Warning, FindingReason::StateFault)]);
        let subject = Subject::Port(PortKey { device: DeviceName::new("mlx5_0"), port: 1 });
        let text = "It is down.".to_owned();
        let down = Condition::new(Check::PortDown, subject, Severity::Critical, FindingReason::NoCarrier, text);
        let joined = module(50.0, ModuleState::Fault, vec![down]);
        assert_eq!(found(&joined), [(Check::PortDown, Severity::Critical, FindingReason::ModuleFault)]);
        assert!(joined.conditions[0].summary.ends_with("And its module reports a fault (CMIS state ModuleFault)."));
    }
}

use std::time::Duration;

use super::*;
use crate::host::COLLECTORS;
use crate::host::collector::{Depth, Filter, ReadContext, Setup};
use crate::model::pcie::PciFunction;
use crate::model::rdma::RdmaDevice;
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;

/// Everything the collectors read of the host, and what failed.
fn facts(example: &Example) -> (Vec<Fact>, Vec<String>) {
    let setup = Setup { host: example.host(), filter: Filter::default() };
    let mut cx = ReadContext::new(&setup.host, BootTime(0), Depth::Full);
    let mut facts = Vec::new();
    for spec in COLLECTORS {
        let mut collector = (spec.make)(&setup);
        for found in collector.discover(&mut cx).unwrap() {
            facts.extend(collector.open(&found).read(&mut cx));
        }
    }
    (facts, cx.faults.iter().map(|fault| format!("{} {:?}", fault.source, fault.reason)).collect())
}

fn of<T: Clone + 'static>(facts: &[Fact]) -> Vec<T> {
    facts.iter().filter_map(|fact| fact.downcast_ref::<T>().cloned()).collect()
}

fn bandwidths(facts: &[Fact]) -> Vec<String> {
    let topology = crate::model::topology::Topology::new(of::<PciFunction>(facts).iter());
    topology
        .links
        .values()
        .filter(|link| link.upstream.is_some())
        .map(|link| link.bandwidth().unwrap().to_string())
        .collect()
}

#[test]
fn it_reads_without_a_fault_in_every_phase() {
    let mut example = Example::new();
    for second in [0, 5, 60, 99, 155, 205, 300] {
        example.advance(Duration::from_secs(second));
        let (facts, faults) = facts(&example);
        assert!(faults.is_empty(), "{second}: {faults:?}");
        let devices: Vec<RdmaDevice> = of(&facts);
        assert_eq!(devices.len(), 2);
        for device in &devices {
            assert_eq!(device.ports[0].pma.values.len(), 21);
            assert_eq!(device.ports[0].hardware.values.len(), 29);
            assert!(device.ports[0].counters().count() == 50);
        }
        let slow = phase(Duration::from_secs(second)) == Phase::Degraded;
        assert_eq!(bandwidths(&facts), ["252.1 Gb/s", if slow { "63.0 Gb/s" } else { "252.1 Gb/s" }], "{second}");
    }
}

#[test]
fn the_story_repeats_and_flaps_seldom() {
    let at = |second| phase(Duration::from_secs(second));
    assert_eq!([at(0), at(7), at(8), at(97), at(98)].map(|p| p == Phase::Degraded), [false, false, true, true, false]);
    assert_eq!([at(150), at(157), at(158)].map(|p| p == Phase::LinkLost), [true, true, false]);
    assert_eq!(at(210 + 20), Phase::Degraded);
    assert_eq!(at(210 + 152), Phase::Healthy);
    assert_eq!(at(210 * 108 + 152), Phase::LinkLost);
}

#[test]
fn counters_move_at_the_rates_of_the_story() {
    let mut example = Example::new();
    let moved = |example: &Example| -> Vec<u64> {
        of::<RdmaDevice>(&facts(example).0).iter().map(|d| d.ports[0].counter("port_rcv_data").unwrap() * 4).collect()
    };
    let mut gbits = |from: u64, to: u64| -> Vec<u64> {
        (example.now.as_secs() + 1..=from).for_each(|s| example.advance(Duration::from_secs(s)));
        let before = moved(&example);
        (from + 1..=to).for_each(|s| example.advance(Duration::from_secs(s)));
        moved(&example)
            .iter()
            .zip(before)
            .map(|(after, before)| (after - before) * 8 / (to - from) / 1_000_000_000)
            .collect()
    };
    let healthy = gbits(0, 7);
    assert!(healthy.iter().all(|rate| (174..=182).contains(rate)), "{healthy:?}");
    let degraded = gbits(20, 40);
    assert!((174..=182).contains(&degraded[0]) && (55..=58).contains(&degraded[1]), "{degraded:?}");
    let lost = gbits(151, 157);
    assert_eq!(lost[1], 0);
    let device = &of::<RdmaDevice>(&facts(&example).0)[1];
    assert_eq!(device.ports[0].counter("link_downed"), Some(1));
    assert!(!device.ports[0].is_active());
}

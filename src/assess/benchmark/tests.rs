#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::*;
use crate::model::ids::DeviceName;

fn gbits(value: f64) -> BytesPerSecond {
    BytesPerSecond::from_gbits(value)
}

fn key(probe: Benchmark) -> BenchmarkKey {
    BenchmarkKey { probe, port: Some(PortKey { device: DeviceName::new("mlx5_7"), port: 1 }) }
}

fn one_way(value: f64) -> Measurements {
    Measurements { bandwidth: vec![(Direction::OneWay, gbits(value).0)], latency: Vec::new() }
}

/// 200 Gb/s behind 8 GT/s x8.
fn narrow() -> Ceiling {
    Ceiling::new(Some(gbits(200.0)), Some(gbits(8.0 * 8.0 * 128.0 / 130.0)), efficiency(256, false)).unwrap()
}

fn judged(measured: &Measurements, ceiling: Option<&Ceiling>) -> RunAssessment {
    judge(&key(Benchmark::RdmaPeer), measured, ceiling, true, None)
}

#[test]
fn payload_and_flit_take_their_share() {
    assert!((efficiency(256, false) - 256.0 / 280.0).abs() < 1e-12);
    assert!((efficiency(512, true) - 512.0 / 536.0 * 0.921_875).abs() < 1e-12);
    assert!(efficiency(0, false) > 0.0);
}

#[test]
fn the_narrow_link_is_named() {
    let said = judged(&one_way(60.26), Some(&narrow()));
    assert_eq!(said.outcome, Outcome::Ok);
    assert_eq!(said.text, "60.3 Gb/s is 96 % of the PCIe path (63.0): PCIe-bound, not SR-IOV, not the cable");
}

#[test]
fn a_wide_link_leaves_the_port_as_the_limit() {
    let wide = Ceiling::new(Some(gbits(200.0)), Some(gbits(252.1)), efficiency(256, false)).unwrap();
    assert!(!wide.by_path && (wide.payload.gbits() - 200.0).abs() < 1e-9);
    assert_eq!(judged(&one_way(195.7), Some(&wide)).text, "195.7 Gb/s is 98 % of the port's rate (200 Gb/s)");
    let slow = judged(&one_way(13.2), Some(&wide));
    assert_eq!((slow.outcome, slow.reason), (Outcome::Slow, "below_ceiling"));
    assert!(slow.text.starts_with("13.2 Gb/s is 7 % of what the path can carry (200 Gb/s)"), "{}", slow.text);
}

#[test]
fn the_worse_end_is_the_ceiling() {
    let wide = Ceiling::new(Some(gbits(200.0)), Some(gbits(252.1)), 0.9).unwrap();
    assert_eq!(wide.clone().and(Some(narrow())), narrow());
    assert_eq!(narrow().and(None), narrow());
    assert_eq!(Ceiling::new(None, None, 0.9), None);
}

#[test]
fn a_sum_of_both_directions_meets_no_one_way_ceiling() {
    let both = |value: f64| Measurements { bandwidth: vec![(Direction::Both, gbits(value).0)], latency: Vec::new() };
    let said = judged(&both(111.7), Some(&narrow()));
    assert_eq!((said.outcome, said.text.as_str()), (Outcome::Ok, "111.7 Gb/s (sum of both directions)"));
    assert_eq!(judged(&both(20.0), Some(&narrow())).outcome, Outcome::Ok, "half of a sum may be one way alone");
    assert_eq!(judged(&both(140.0), Some(&narrow())).outcome, Outcome::Inconclusive);
}

#[test]
fn what_cannot_be_is_not_believed() {
    for value in [f64::NAN, f64::INFINITY, -3.0, 0.0, 70.0] {
        let said = judged(&one_way(value), Some(&narrow()));
        assert_eq!((said.outcome, said.reason), (Outcome::Inconclusive, "impossible_value"), "{value}");
    }
    assert_eq!(judged(&Measurements::default(), None).outcome, Outcome::Inconclusive);
    let wide = Ceiling::new(Some(gbits(100.0)), Some(gbits(252.1)), efficiency(256, false)).unwrap();
    let loopback = judge(&key(Benchmark::RdmaLoopback), &one_way(180.0), Some(&wide), true, None);
    assert_eq!(loopback.outcome, Outcome::Ok, "inside the card the port's rate is no limit");
}

#[test]
fn tcp_software_and_latency_meet_their_past_alone() {
    let mut past = BenchmarkHistory::default();
    let measured = |gbits: f64, us: f64| Measurements {
        latency: vec![(Direction::Write, Statistic::Typical, us * 1e-6)],
        ..one_way(gbits)
    };
    let record = |past: &mut BenchmarkHistory, at: u64, measured: Measurements| {
        past.record(BenchmarkRun {
            key: key(Benchmark::TcpPeer),
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(at),
            took: Duration::from_secs(5),
            outcome: Outcome::Ok,
            reason: Arc::from("as_usual"),
            text: Arc::from(""),
            measured,
            ceiling: None,
            profile: Arc::from("p"),
            peer: None,
            function: None,
        });
    };
    (0..3).for_each(|n| record(&mut past, n * 1_000, measured(20.0, 2.0)));
    let said = |probe, m: &Measurements, hardware| judge(&key(probe), m, Some(&narrow()), hardware, Some((&past, "p")));
    assert_eq!(said(Benchmark::TcpPeer, &measured(19.0, 2.0), true).outcome, Outcome::Ok);
    assert_eq!(said(Benchmark::RdmaPeer, &measured(19.0, 2.0), false).outcome, Outcome::Ok, "software RDMA");
    let slow = said(Benchmark::TcpPeer, &measured(17.0, 2.0), true);
    assert_eq!((slow.outcome, slow.reason), (Outcome::Slow, "below_history"));
    assert_eq!(slow.text, "17 Gb/s is 85 % of the usual 20 Gb/s on this host");
    let late = said(Benchmark::TcpPeer, &measured(20.0, 3.0), true);
    assert_eq!((late.outcome, late.text.as_str()), (Outcome::Slow, "a write takes 3.00 us; usual on this host: 2.00 us"));
    let other = judge(&key(Benchmark::TcpPeer), &measured(2.0, 9.0), None, true, Some((&past, "other")));
    assert_eq!(other.outcome, Outcome::Ok, "profiles do not compare");
}

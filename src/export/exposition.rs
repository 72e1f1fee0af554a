//! From a report to text: OpenMetrics 1.0 and the text format 0.0.4, through prometheus-client's encoders.
//!
//! Samples go straight from the facts into the text; labels are borrowed.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text, text};
use prometheus_client::registry::{Registry, Unit};

use super::agent::{AgentState, Process};
use super::catalogue;
use super::family::Series;
use super::view::ReportView;
use crate::watch::HostReport;

/// An exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The `Content-Type` of an answer in this format.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Writes every family of the catalogue.
///
/// # Errors
/// Only those of `out`: a report always has an encoding.
pub fn encode(
    format: Format,
    report: &Arc<HostReport>,
    agent: &Arc<AgentState>,
    process: Process,
    out: &mut impl fmt::Write,
) -> fmt::Result {
    let mut registry = Registry::default();
    let exposition = Exposition { report: Arc::clone(report), agent: Arc::clone(agent), process };
    registry.register_collector(Box::new(exposition));
    match format {
        Format::Text => prometheus_text::encode(out, &registry),
        Format::OpenMetrics => text::encode(out, &registry),
    }
}

#[derive(Debug)]
struct Exposition {
    report: Arc<HostReport>,
    agent: Arc<AgentState>,
    process: Process,
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let view = ReportView::new(&self.report, &self.agent, self.process);
        for family in catalogue::families() {
            let unit = family.unit().map(|unit| Unit::Other(unit.to_owned()));
            let mut series = Series::new(family, unit.as_ref(), &mut encoder);
            (family.write)(&view, &mut series);
            series.end()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::export::testing;
    use crate::model::ids::DeviceName;
    use crate::model::rdma::{DeviceIdentity, Port, RdmaDevice};

    fn text_of(format: Format, report: HostReport) -> String {
        let mut out = String::new();
        encode(format, &Arc::new(report), &testing::agent(), testing::process(), &mut out).unwrap();
        out
    }

    #[test]
    fn golden_text() {
        testing::committed("tests/golden/metrics.txt", &text_of(Format::Text, testing::report()));
    }

    #[test]
    fn golden_openmetrics() {
        testing::committed("tests/golden/openmetrics.txt", &text_of(Format::OpenMetrics, testing::report()));
    }

    #[test]
    fn counters_are_exact_beyond_2_to_the_53() {
        let text = text_of(Format::Text, testing::report());
        let packets = "lanewatch_port_received_packets_total{device=\"mlx5_3\",port=\"1\"} 18446744073709551615\n";
        assert!(text.contains(packets), "{text}");
        let bytes = "lanewatch_port_received_bytes_total{device=\"mlx5_3\",port=\"1\"} 36028797018963972\n";
        assert!(text.contains(bytes), "{text}");
    }

    #[test]
    fn odd_label_values_are_escaped_in_both_formats() {
        for format in [Format::Text, Format::OpenMetrics] {
            let text = text_of(format, testing::report());
            assert!(text.contains(r#"board_id="a \"quoted\" board\\\nsecond line","#), "{text}");
        }
    }

    #[test]
    fn what_is_unknown_has_no_sample() {
        let text = text_of(Format::Text, testing::report());
        assert!(!text.contains("lanewatch_port_state{device=\"mlx5_10\""));
        assert!(!text.contains("lanewatch_port_physical_state{device=\"mlx5_10\""));
        assert!(!text.contains("lanewatch_pcie_link_speed_transfers_per_second{pci_address=\"0000:3b:00.0\"}"));
        assert!(!text.contains("counter=\"symbol_error\""));
        assert!(!text.contains("lanewatch_pcie_aer_events_total{pci_address=\"0000:98:00.1\""));
        assert!(!text.contains("lanewatch_port_rate_bytes_per_second{device=\"bnxt_re0\""));
    }

    /// Series names and label sets of an exposition in the text format, with each family's lines in one piece.
    fn check(text: &str) -> usize {
        let mut seen = BTreeSet::new();
        let mut families = BTreeSet::new();
        let mut family = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split(' ').next().unwrap();
                assert!(families.insert(family.to_owned()), "{family} comes twice");
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                value.parse::<f64>().unwrap();
                assert_eq!(series.split('{').next().unwrap(), family);
                assert!(seen.insert(series.to_owned()), "{series} comes twice");
            }
        }
        let known: BTreeMap<_, _> = catalogue::families().map(|row| (row.name, row)).collect();
        for name in families {
            assert!(known.contains_key(name.as_str()), "{name} is not in the catalogue");
        }
        seen.len()
    }

    #[test]
    fn every_series_is_unique_and_its_family_in_one_piece() {
        assert!(check(&text_of(Format::Text, testing::report())) > 100);
        check(&text_of(Format::Text, testing::report_of(Vec::new())));
    }

    #[test]
    fn openmetrics_ends_and_says_the_same() {
        let open = text_of(Format::OpenMetrics, testing::report());
        assert!(open.ends_with("\n# EOF\n"));
        let samples = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        // The CPU seconds are a float counter, which both encoders print alike too.
        assert_eq!(samples(&open), samples(&text_of(Format::Text, testing::report())));
        for line in open.lines() {
            if let Some((family, unit)) = line.strip_prefix("# UNIT ").and_then(|rest| rest.split_once(' ')) {
                assert!(family.ends_with(&format!("_{unit}")), "{line}");
            }
        }
    }

    #[test]
    fn a_writer_that_fails_is_an_error_and_nothing_more() {
        struct Full(usize);
        impl fmt::Write for Full {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0 = self.0.checked_sub(text.len()).ok_or(fmt::Error)?;
                Ok(())
            }
        }
        for room in [0, 5_000, 9_000] {
            let report = Arc::new(testing::report());
            assert!(encode(Format::Text, &report, &testing::agent(), testing::process(), &mut Full(room)).is_err());
        }
    }

    prop_compose! {
        fn any_device()(
            name in "[a-z]{1,3}_[0-9]{1,2}",
            board in any::<String>(),
            netdev in any::<String>(),
            numbers in proptest::collection::vec(0u32..4, 0..4),
            names in proptest::collection::btree_set("[a-z_]{1,12}|port_rcv_data|rx_bytes|tx_pkts|active_qps", 0..6),
            value in any::<u64>(),
        ) -> RdmaDevice {
            let list: Vec<(&str, Option<u64>)> = names.iter().map(|name| (name.as_str(), Some(value))).collect();
            let counters = testing::counters(&list, true);
            let template = testing::report().snapshot.device(&DeviceName::new("mlx5_3")).unwrap().clone();
            let port = template.ports.first().unwrap().clone();
            RdmaDevice {
                name: DeviceName::new(&name),
                identity: Arc::new(DeviceIdentity { board_id: Some(Arc::from(board)), ..DeviceIdentity::default() }),
                ports: numbers
                    .into_iter()
                    .map(|number| Port {
                        number,
                        netdev: Some(Arc::from(netdev.as_str())),
                        hardware: counters.clone(),
                        ..port.clone()
                    })
                    .collect(),
                counters: counters.clone(),
                ..template
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_report_makes_a_series_twice(devices in proptest::collection::vec(any_device(), 0..6)) {
            check(&text_of(Format::Text, testing::report_of(devices)));
        }
    }
}

//! From a report to text: OpenMetrics 1.0 and the text format 0.0.4, through prometheus-client's encoders.
//!
//! Samples go straight from the facts into the text; labels are borrowed.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabel as _, EncodeLabelSet, EncodeLabelValue, LabelSetEncoder,
    LabelValueEncoder, MetricEncoder, NoLabelSet, prometheus_text, text,
};
use prometheus_client::registry::{Registry, Unit};

use super::agent::{AgentState, Process};
use super::catalogue::{self, Family, Kind};
use crate::assess::lane::PortLane;
use crate::model::finding::Subject;
use crate::model::ids::{Guid, PciAddress, PortKey};
use crate::model::pcie::PciFunction;
use crate::model::rdma::{Port, RdmaDevice};
use crate::model::units::{Lanes, TransfersPerSecond};
use crate::watch::Report;

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
    report: &Arc<Report>,
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
    report: Arc<Report>,
    agent: Arc<AgentState>,
    process: Process,
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let content = Content::new(&self.report, &self.agent, self.process);
        for family in catalogue::families() {
            let unit = family.unit().map(|unit| Unit::Other(unit.to_owned()));
            let mut series =
                Series { family, unit: unit.as_ref(), state: State::Unopened(&mut encoder), result: Ok(()) };
            (family.write)(&content, &mut series);
            series.result?;
        }
        Ok(())
    }
}

/// What an exposition is made from: a report, its devices and functions in natural order, and the agent's own state.
pub struct Content<'a> {
    /// The report.
    pub report: &'a Report,
    /// The agent.
    pub agent: &'a AgentState,
    /// The agent's process.
    pub process: Process,
    /// RDMA devices in natural order of their names.
    pub devices: Vec<&'a RdmaDevice>,
    /// Their ports.
    pub ports: Vec<PortRow<'a>>,
    /// PCI functions in order of their addresses.
    pub functions: Vec<&'a PciFunction>,
}

/// One port with its device and what its path leaves of its rate.
pub struct PortRow<'a> {
    /// The device.
    pub device: &'a RdmaDevice,
    /// The port.
    pub port: &'a Port,
    /// Rate, ceiling and share.
    pub lane: Option<&'a PortLane>,
}

impl<'a> PortRow<'a> {
    /// The `device` and `port` labels.
    pub fn labels(&self) -> [Label<'a>; 2] {
        [self.device.name.as_str().into(), self.port.number.into()]
    }
}

impl<'a> Content<'a> {
    /// Sorts what a report has. Of things that claim the same name the first stands: a series must be unique.
    pub fn new(report: &'a Report, agent: &'a AgentState, process: Process) -> Self {
        let mut devices: Vec<&RdmaDevice> = report.snapshot.devices().collect();
        devices.sort_by(|a, b| a.name.cmp(&b.name));
        devices.dedup_by(|a, b| a.name == b.name);
        let mut functions: Vec<&PciFunction> = report.snapshot.all().collect();
        functions.sort_by_key(|function| function.address);
        functions.dedup_by_key(|function| function.address);
        let mut ports = Vec::with_capacity(devices.len());
        for device in &devices {
            let first = ports.len();
            for port in &device.ports {
                let key = PortKey { device: device.name.clone(), port: port.number };
                ports.push(PortRow { device, port, lane: report.lanes.ports.get(&key) });
            }
            if let Some(of_device) = ports.get_mut(first..) {
                of_device.sort_by_key(|row| row.port.number);
            }
        }
        ports.dedup_by(|a, b| a.port.number == b.port.number && a.device.name == b.device.name);
        Self { report, agent, process, devices, ports, functions }
    }

    /// The PCI function at an address, if it is watched.
    pub fn function(&self, address: PciAddress) -> Option<&'a PciFunction> {
        let index = self.functions.binary_search_by_key(&address, |function| function.address).ok()?;
        self.functions.get(index).copied()
    }
}

/// A label value, borrowed from the facts.
#[derive(Debug, Clone, Copy)]
pub enum Label<'a> {
    /// Text, empty when unknown.
    Text(&'a str),
    /// A number.
    Number(u32),
    /// A PCI address.
    Address(PciAddress),
    /// A GUID.
    Guid(Guid),
    /// The subject of a finding.
    Subject(&'a Subject),
    /// A port's width, `4X`.
    Width(u8),
    /// A PCIe speed, `16 GT/s`.
    Speed(TransfersPerSecond),
    /// A PCIe width, `x8`.
    Lanes(Lanes),
}

impl EncodeLabelValue for Label<'_> {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => encoder.write_str(text),
            Self::Number(number) => EncodeLabelValue::encode(number, encoder),
            Self::Address(address) => write!(encoder, "{address}"),
            Self::Guid(guid) => write!(encoder, "{guid}"),
            Self::Subject(subject) => write!(encoder, "{subject}"),
            Self::Width(width) => write!(encoder, "{width}X"),
            Self::Speed(speed) => write!(encoder, "{speed}"),
            Self::Lanes(lanes) => write!(encoder, "{lanes}"),
        }
    }
}

impl<'a> From<&'a str> for Label<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a Arc<str>> for Label<'a> {
    fn from(text: &'a Arc<str>) -> Self {
        Self::Text(text)
    }
}

impl From<u32> for Label<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number)
    }
}

impl From<PciAddress> for Label<'_> {
    fn from(address: PciAddress) -> Self {
        Self::Address(address)
    }
}

impl From<Guid> for Label<'_> {
    fn from(guid: Guid) -> Self {
        Self::Guid(guid)
    }
}

impl<'a, T: Into<Label<'a>>> From<Option<T>> for Label<'a> {
    /// What is unknown is an empty label value.
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Text(""), Into::into)
    }
}

struct Labels<'a> {
    names: &'static [&'static str],
    values: &'a [Label<'a>],
}

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        for (name, value) in self.names.iter().zip(self.values) {
            (*name, *value).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

/// Where a family's write puts its samples. HELP and TYPE come with the first one.
pub struct Series<'s, 'e> {
    family: &'static Family,
    unit: Option<&'s Unit>,
    state: State<'s, 'e>,
    result: fmt::Result,
}

enum State<'s, 'e> {
    Unopened(&'s mut DescriptorEncoder<'e>),
    Open(MetricEncoder<'s>),
    Failed,
}

impl<'s> Series<'s, '_> {
    /// A gauge. Label values stand in the order of the family's names.
    pub fn gauge(&mut self, labels: &[Label<'_>], value: impl Gauge) {
        debug_assert_eq!(self.family.kind, Kind::Gauge, "{}", self.family.name);
        self.sample(labels, |metric, labels| value.put(&mut metric.encode_family(labels)?));
    }

    /// A gauge where its value is known; what is unknown has no sample.
    pub fn known(&mut self, labels: &[Label<'_>], value: Option<impl Gauge>) {
        if let Some(value) = value {
            self.gauge(labels, value);
        }
    }

    /// A counter, exact to the last unit.
    pub fn counter(&mut self, labels: &[Label<'_>], value: u64) {
        debug_assert_eq!(self.family.kind, Kind::Counter, "{}", self.family.name);
        self.sample(labels, |metric, labels| {
            metric.encode_family(labels)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)
        });
    }

    /// A counter of seconds.
    pub fn seconds(&mut self, labels: &[Label<'_>], value: f64) {
        debug_assert_eq!(self.family.kind, Kind::Counter, "{}", self.family.name);
        self.sample(labels, |metric, labels| {
            metric.encode_family(labels)?.encode_counter::<NoLabelSet, f64, f64>(&value, None)
        });
    }

    /// An info metric: labels, and the value 1.
    pub fn info(&mut self, labels: &[Label<'_>]) {
        debug_assert_eq!(self.family.kind, Kind::Info, "{}", self.family.name);
        self.sample(labels, |metric, labels| metric.encode_info(labels));
    }

    fn sample(&mut self, labels: &[Label<'_>], write: impl FnOnce(&mut MetricEncoder<'s>, &Labels<'_>) -> fmt::Result) {
        debug_assert_eq!(self.family.labels.len(), labels.len(), "labels of {}", self.family.name);
        if self.result.is_err() {
            return;
        }
        let labels = Labels { names: self.family.labels, values: labels };
        self.result = self.open().and_then(|metric| write(metric, &labels));
    }

    fn open(&mut self) -> Result<&mut MetricEncoder<'s>, fmt::Error> {
        if let State::Unopened(_) = self.state
            && let State::Unopened(encoder) = std::mem::replace(&mut self.state, State::Failed)
        {
            let Family { help, kind, .. } = self.family;
            let metric = encoder.encode_descriptor(self.family.stem(), help, self.unit, kind.metric_type())?;
            self.state = State::Open(metric);
        }
        match &mut self.state {
            State::Open(metric) => Ok(metric),
            State::Unopened(_) | State::Failed => Err(fmt::Error),
        }
    }
}

/// A value that a gauge can have.
pub trait Gauge {
    /// Writes it.
    #[doc(hidden)]
    fn put(self, metric: &mut MetricEncoder<'_>) -> fmt::Result;
}

macro_rules! whole {
    ($($number:ty),+) => {$(
        impl Gauge for $number {
            fn put(self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
                metric.encode_gauge(&self)
            }
        }
    )+};
}

whole!(u32, u64, usize);

impl Gauge for bool {
    fn put(self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        metric.encode_gauge(&u32::from(self))
    }
}

impl Gauge for f64 {
    /// Whole numbers as whole numbers, which every reader takes and people can read.
    fn put(self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if self.fract() == 0.0 && self.abs() < EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
            return encode_gauge(metric, &(self as i64));
        }
        encode_gauge(metric, &self)
    }
}

fn encode_gauge(metric: &mut MetricEncoder<'_>, value: &impl EncodeGaugeValue) -> fmt::Result {
    metric.encode_gauge(value)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::export::testing;
    use crate::model::ids::DeviceName;
    use crate::model::rdma::DeviceIdentity;

    fn text_of(format: Format, report: Report) -> String {
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

//! A metric family and the series it writes.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabel as _, EncodeLabelSet, EncodeLabelValue, LabelSetEncoder,
    LabelValueEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::view::ReportView;
use crate::model::finding::Subject;
use crate::model::ids::{Guid, PciAddress};
use crate::model::sriov::Mac;
use crate::model::text::{CUT, visible_lines};

/// The release that brought the first families.
pub const FIRST_RELEASE: &str = "0.1.0";

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only rises, or starts again.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Labels, and the value 1; a gauge in the text format 0.0.4.
    Info,
}

impl MetricKind {
    /// The encoder's type.
    const fn metric_type(self) -> MetricType {
        match self {
            Self::Counter => MetricType::Counter,
            Self::Gauge => MetricType::Gauge,
            Self::Info => MetricType::Info,
        }
    }

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Info => "info",
        }
    }
}

/// One family.
pub struct Family {
    /// Name of its series: with `_total` for a counter and `_info` for an info metric.
    pub name: &'static str,
    /// Type.
    pub kind: MetricKind,
    /// One sentence that ends in a period and names the kernel file.
    pub help: &'static str,
    /// Label names, in the order of the samples' values.
    pub labels: &'static [&'static str],
    /// The most series it can have on a host.
    pub worst: &'static str,
    /// The first version that has it.
    pub since: &'static str,
    /// Writes its samples.
    pub write: fn(&ReportView<'_>, &mut Series<'_, '_>),
}

/// Units a name may end in, longer ones first.
const UNITS: &[&str] = &[
    "transfers_per_second",
    "bytes_per_second",
    "seconds",
    "bytes",
    "lanes",
    "ticks",
    "celsius",
    "volts",
    "watts",
    "amperes",
];

impl Family {
    /// The name without the suffix of its type.
    pub fn base(&self) -> &'static str {
        let suffix = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            MetricKind::Gauge => "",
        };
        self.name.strip_suffix(suffix).unwrap_or(self.name)
    }

    /// The unit its name ends in.
    pub fn unit(&self) -> Option<&'static str> {
        let measured = self.kind != MetricKind::Info;
        UNITS.iter().copied().find(|unit| measured && self.base().strip_suffix(unit).is_some_and(|s| s.ends_with('_')))
    }

    /// The name without type suffix and unit, as the encoder wants it.
    fn stem(&self) -> &'static str {
        let base = self.base();
        let stem = self.unit().and_then(|unit| base.strip_suffix(unit)?.strip_suffix('_'));
        stem.unwrap_or(base)
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
    /// A MAC address.
    Mac(Mac),
    /// The subject of a finding.
    Subject(&'a Subject),
    /// A port's width, `4X`.
    Width(u8),
}

/// Longest text of a label, in bytes. Prometheus drops a whole scrape for one label that is longer than its limit.
const LONGEST_LABEL: usize = 512;

/// A text that fits into a label: what acts on a terminal is escaped, but newlines are the format's own business.
fn label(text: &str) -> Cow<'_, str> {
    let text = visible_lines(text);
    if text.len() <= LONGEST_LABEL {
        return text;
    }
    let room = LONGEST_LABEL - CUT.len_utf8();
    let end = (0..=room).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    Cow::Owned(format!("{}{CUT}", text.get(..end).unwrap_or_default()))
}

impl EncodeLabelValue for Label<'_> {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => encoder.write_str(&label(text)),
            Self::Number(number) => EncodeLabelValue::encode(number, encoder),
            Self::Address(address) => write!(encoder, "{address}"),
            Self::Guid(guid) => write!(encoder, "{guid}"),
            Self::Mac(mac) => write!(encoder, "{mac}"),
            Self::Subject(subject) => encoder.write_str(&label(&subject.to_string())),
            Self::Width(width) => write!(encoder, "{width}X"),
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

impl From<Mac> for Label<'_> {
    fn from(mac: Mac) -> Self {
        Self::Mac(mac)
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
    state: EncoderState<'s, 'e>,
    result: fmt::Result,
}

enum EncoderState<'s, 'e> {
    Unopened(&'s mut DescriptorEncoder<'e>),
    Open(MetricEncoder<'s>),
    Failed,
}

impl<'s, 'e> Series<'s, 'e> {
    pub(super) fn new(family: &'static Family, unit: Option<&'s Unit>, encoder: &'s mut DescriptorEncoder<'e>) -> Self {
        Self { family, unit, state: EncoderState::Unopened(encoder), result: Ok(()) }
    }

    /// Whether all was written.
    pub(super) fn end(self) -> fmt::Result {
        self.result
    }

    /// A gauge. Label values stand in the order of the family's names.
    pub fn gauge(&mut self, labels: &[Label<'_>], value: impl Gauge) {
        debug_assert_eq!(self.family.kind, MetricKind::Gauge, "{}", self.family.name);
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
        debug_assert_eq!(self.family.kind, MetricKind::Counter, "{}", self.family.name);
        self.sample(labels, |metric, labels| {
            metric.encode_family(labels)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)
        });
    }

    /// A counter of seconds.
    pub fn seconds(&mut self, labels: &[Label<'_>], value: f64) {
        debug_assert_eq!(self.family.kind, MetricKind::Counter, "{}", self.family.name);
        self.sample(labels, |metric, labels| {
            metric.encode_family(labels)?.encode_counter::<NoLabelSet, f64, f64>(&value, None)
        });
    }

    /// An info metric: labels, and the value 1.
    pub fn info(&mut self, labels: &[Label<'_>]) {
        debug_assert_eq!(self.family.kind, MetricKind::Info, "{}", self.family.name);
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
        if let EncoderState::Unopened(_) = self.state
            && let EncoderState::Unopened(encoder) = std::mem::replace(&mut self.state, EncoderState::Failed)
        {
            let Family { help, kind, .. } = self.family;
            let metric = encoder.encode_descriptor(self.family.stem(), help, self.unit, kind.metric_type())?;
            self.state = EncoderState::Open(metric);
        }
        match &mut self.state {
            EncoderState::Open(metric) => Ok(metric),
            EncoderState::Unopened(_) | EncoderState::Failed => Err(fmt::Error),
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

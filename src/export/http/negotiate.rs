//! Which format and coding a scraper gets, from its `Accept` and `Accept-Encoding`.

use crate::export::exposition::Format;

/// The format for these `Accept` header values; the text format 0.0.4 where nothing else is asked for.
///
/// A format's quality is that of the most specific range that matches it. Of equal qualities the format that is
/// named beats one that a wildcard matches, then the one named first.
pub(super) fn format<'a>(accept: impl Iterator<Item = &'a str>) -> Format {
    let ranges: Vec<Range<'_>> = accept.flat_map(|value| value.split(',')).filter_map(Range::parse).collect();
    let text = best(&ranges, "text", "plain", "0.0.4");
    let open = best(&ranges, "application", "openmetrics-text", "1.0.0");
    match (open, text) {
        (Some(open), None) if open.quality > 0 => Format::OpenMetrics,
        (Some(open), Some(text)) if open.quality > text.quality => Format::OpenMetrics,
        (Some(open), Some(text)) if open.quality == text.quality && open.quality > 0 => {
            let named = |rank: &Rank| (rank.precision.min(NAMED), std::cmp::Reverse(rank.position));
            if named(&open) > named(&text) { Format::OpenMetrics } else { Format::Text }
        }
        _ => Format::Text,
    }
}

/// Whether to send gzip: it is offered, and not liked less than sending the text as it is.
pub(super) fn gzip<'a>(accept_encoding: impl Iterator<Item = &'a str>) -> bool {
    let (mut gzip, mut any, mut identity) = (None, None, None);
    for coding in accept_encoding.flat_map(|value| value.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let Some(quality) = quality(parts) else { continue };
        let slot = match name {
            "*" => &mut any,
            _ if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") => &mut gzip,
            _ if name.eq_ignore_ascii_case("identity") => &mut identity,
            _ => continue,
        };
        *slot = Some(slot.unwrap_or(0).max(quality));
    }
    gzip.or(any).is_some_and(|gzip| gzip > 0 && gzip >= identity.unwrap_or(0))
}

/// How precisely a range names a format: `*/*`, `type/*`, the format, the format and its version.
const NAMED: u8 = 2;

struct Range<'a> {
    kind: &'a str,
    subtype: &'a str,
    version: Option<&'a str>,
    quality: u16,
}

#[derive(Clone, Copy)]
struct Rank {
    precision: u8,
    quality: u16,
    position: usize,
}

impl<'a> Range<'a> {
    /// One element of an `Accept` list; none for one that is not what the header's grammar says.
    fn parse(element: &'a str) -> Option<Self> {
        let mut parts = element.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let version = parts.clone().find_map(|parameter| parameter_of(parameter, "version"));
        Some(Self { kind: kind.trim(), subtype: subtype.trim(), version, quality: quality(parts)? })
    }

    fn precision(&self, kind: &str, subtype: &str, version: &str) -> Option<u8> {
        match (self.kind, self.subtype) {
            ("*", "*") => Some(0),
            (k, "*") if k.eq_ignore_ascii_case(kind) => Some(1),
            (k, s) if k.eq_ignore_ascii_case(kind) && s.eq_ignore_ascii_case(subtype) => match self.version {
                None => Some(NAMED),
                Some(asked) => (asked == version).then_some(NAMED + 1),
            },
            _ => None,
        }
    }
}

fn best(ranges: &[Range<'_>], kind: &str, subtype: &str, version: &str) -> Option<Rank> {
    let matching = ranges.iter().enumerate().filter_map(|(position, range)| {
        let precision = range.precision(kind, subtype, version)?;
        Some(Rank { precision, quality: range.quality, position })
    });
    matching
        .reduce(|best, next| if (next.precision, next.quality) > (best.precision, best.quality) { next } else { best })
}

fn parameter_of<'a>(parameter: &'a str, name: &str) -> Option<&'a str> {
    let (key, value) = parameter.split_once('=')?;
    key.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"'))
}

/// The quality in thousandths, 1,000 where none is given; none for what is not a quality.
fn quality<'a>(mut parameters: impl Iterator<Item = &'a str>) -> Option<u16> {
    let Some(text) = parameters.find_map(|parameter| parameter_of(parameter, "q")) else { return Some(1_000) };
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if !matches!(whole, "0" | "1") || decimals.len() > 3 || !decimals.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let thousandths = format!("{whole}{decimals:0<3}").parse().ok()?;
    (thousandths <= 1_000).then_some(thousandths)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn negotiated(accept: &str) -> Format {
        format(std::iter::once(accept))
    }

    #[test]
    fn what_scrapers_send() {
        use Format::{OpenMetrics, Text};
        let table = [
            // Prometheus 2.x.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OpenMetrics,
            ),
            ("application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", Text),
            // Prometheus 3.x.
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                OpenMetrics,
            ),
            // Prometheus 3.x with native histograms: protobuf first.
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,\
                 application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.4,\
                 */*;q=0.3",
                OpenMetrics,
            ),
            // Prometheus 3.x told to scrape text 0.0.4.
            ("text/plain;version=0.0.4;q=0.6,*/*;q=0.5", Text),
            // vmagent.
            ("text/plain;version=0.0.4;q=1,*/*;q=0.1", Text),
            // Telegraf.
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
                Text,
            ),
            // Datadog, without and with its latest-spec option.
            ("text/plain", Text),
            ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1", OpenMetrics),
            // metricbeat.
            ("application/openmetrics-text; version=1.0.0; charset=utf-8,text/plain", OpenMetrics),
            // curl, Chromium.
            ("*/*", Text),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,\
                 application/signed-exchange;v=b3;q=0.7",
                Text,
            ),
        ];
        for (accept, expected) in table {
            assert_eq!(negotiated(accept), expected, "{accept}");
        }
        assert_eq!(format(std::iter::empty()), Text);
    }

    #[test]
    fn qualities_and_wildcards() {
        use Format::{OpenMetrics, Text};
        let table = [
            ("application/openmetrics-text", OpenMetrics),
            ("Application/OpenMetrics-Text ; Version=\"1.0.0\" ; Q=0.1", OpenMetrics),
            ("application/openmetrics-text;q=0", Text),
            ("application/openmetrics-text;q=0,*/*", Text),
            ("application/openmetrics-text;q=0.001,text/plain;q=0", OpenMetrics),
            ("application/openmetrics-text;q=0.5,text/plain;q=0.6", Text),
            ("application/openmetrics-text,text/plain", OpenMetrics),
            ("text/plain,application/openmetrics-text", Text),
            ("*/*,application/openmetrics-text", OpenMetrics),
            ("application/*", OpenMetrics),
            ("text/*, application/*;q=0.9", Text),
            ("application/openmetrics-text;version=2.0.0", Text),
            ("application/openmetrics-text;version=2.0.0,application/openmetrics-text;q=0.2", OpenMetrics),
            ("application/openmetrics-text;q=2", Text),
            ("application/openmetrics-text;q=", Text),
            ("application/openmetrics-text;q=-1", Text),
            ("application/json", Text),
            ("", Text),
            (",;/,;;=,", Text),
        ];
        for (accept, expected) in table {
            assert_eq!(negotiated(accept), expected, "{accept}");
        }
    }

    #[test]
    fn several_headers_are_one_list() {
        let values = ["text/plain;q=0.1", "application/openmetrics-text"];
        assert_eq!(format(values.into_iter()), Format::OpenMetrics);
    }

    #[test]
    fn codings() {
        let table = [
            ("gzip", true),
            ("gzip, deflate, br, zstd", true),
            ("deflate, x-GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip;q=0.000", false),
            ("gzip;q=nonsense", false),
            ("*", true),
            ("*;q=0", false),
            ("gzip;q=0, *", false),
            ("identity", false),
            ("identity;q=1, gzip;q=0.5", false),
            ("identity;q=0.5, gzip", true),
            ("notgzip", false),
            ("", false),
        ];
        for (offered, expected) in table {
            assert_eq!(gzip(std::iter::once(offered)), expected, "{offered}");
        }
        assert!(!gzip(std::iter::empty()));
    }

    proptest! {
        #[test]
        fn no_header_panics(text in "[ -~]{0,80}") {
            let _ = (negotiated(&text), gzip(std::iter::once(text.as_str())));
        }
    }
}

//! iperf3's JSON. It ends with success even where it says `error`.

use serde_json::Value;

use super::perftest::can_be;
use crate::model::units::BytesPerSecond;

/// Longest document that is looked at, in bytes.
const LONGEST: usize = 4 << 20;

/// What a run said.
#[derive(Debug, Clone, PartialEq)]
pub struct IperfReport {
    /// What arrived, all streams together.
    pub received: BytesPerSecond,
    /// What arrived the other way at the same time.
    pub reverse: Option<BytesPerSecond>,
    /// Segments sent again; none where the sender's system does not count them.
    pub retransmits: Option<u64>,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IperfError {
    /// The program says so.
    #[error("iperf3 says: {0}")]
    Program(String),
    /// It is no report.
    #[error("it is no report of iperf3")]
    NotAReport,
    /// A value cannot be.
    #[error("iperf3's bandwidth cannot be: negative, zero, or beyond what any lane carries")]
    Impossible,
}

/// Reads what `iperf3 --json` printed; lines before it are passed over.
///
/// # Errors
/// See [`IperfError`].
pub fn from_json(text: &str) -> Result<IperfReport, IperfError> {
    let from = text.find('{').filter(|_| text.len() <= LONGEST).ok_or(IperfError::NotAReport)?;
    let mut documents = serde_json::Deserializer::from_str(text.get(from..).unwrap_or_default()).into_iter::<Value>();
    let document = documents.next().and_then(Result::ok).ok_or(IperfError::NotAReport)?;
    if let Some(error) = document.get("error").and_then(Value::as_str) {
        return Err(IperfError::Program(error.chars().take(200).collect()));
    }
    let end = document.get("end").ok_or(IperfError::NotAReport)?;
    let rate = |name: &str| end.get(name)?.get("bits_per_second")?.as_f64();
    let received = rate("sum_received").or_else(|| rate("sum")).ok_or(IperfError::NotAReport)?;
    let reverse = rate("sum_received_bidir_reverse");
    if [Some(received), reverse].into_iter().flatten().any(|rate| !can_be(BytesPerSecond(rate / 8.0))) {
        return Err(IperfError::Impossible);
    }
    let sum = end.get("sum_sent").or_else(|| end.get("sum"));
    Ok(IperfReport {
        received: BytesPerSecond(received / 8.0),
        reverse: reverse.map(|rate| BytesPerSecond(rate / 8.0)),
        retransmits: sum.and_then(|sum| sum.get("retransmits")?.as_u64()),
        seconds: sum.and_then(|sum| sum.get("seconds")?.as_f64()).unwrap_or_default(),
    })
}

/// Whether an error that it says is that nobody answered.
pub fn is_unreachable(said: &str) -> bool {
    said.contains("unable to connect")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_arrived_counts() {
        let text = r#"warning: odd
            {"start":{},"intervals":[],"end":{"streams":[],
            "sum_sent":{"seconds":5.0,"bytes":9,"bits_per_second":6.2e10,"retransmits":12},
            "sum_received":{"seconds":5.0,"bytes":9,"bits_per_second":5.87e10}}}"#;
        let report = from_json(text).unwrap();
        assert!((report.received.gbits() - 58.7).abs() < 1e-9);
        assert_eq!((report.reverse, report.retransmits), (None, Some(12)));
    }

    #[test]
    fn both_ways_are_two_values() {
        let text = r#"{"end":{"sum_received":{"bits_per_second":4e10},
            "sum_received_bidir_reverse":{"bits_per_second":2e10}}}"#;
        let report = from_json(text).unwrap();
        assert_eq!(report.reverse.map(BytesPerSecond::gbits), Some(20.0));
    }

    #[test]
    fn an_error_comes_with_success() {
        let text = r#"{"start":{"connected":[],"version":"iperf 3.12"},"intervals":[],"end":{},
            "error":"unable to connect to server: Connection refused"}"#;
        let said = "unable to connect to server: Connection refused".to_owned();
        assert_eq!(from_json(text), Err(IperfError::Program(said)));
    }

    #[test]
    fn what_cannot_be() {
        for text in ["", "[]", "{", r#"{"end":{}}"#, r#"{"end":{"sum_received":{"bits_per_second":"fast"}}}"#] {
            assert_eq!(from_json(text), Err(IperfError::NotAReport), "{text}");
        }
        for rate in ["-1.0", "0", "1e30"] {
            let text = format!(r#"{{"end":{{"sum_received":{{"bits_per_second":{rate}}}}}}}"#);
            assert_eq!(from_json(&text), Err(IperfError::Impossible), "{rate}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in ".{0,200}") {
            let _ = from_json(&text);
        }

        #[test]
        fn what_is_read_is_possible(rate in any::<f64>()) {
            let text = format!(r#"{{"end":{{"sum_received":{{"bits_per_second":{rate}}}}}}}"#);
            if let Ok(report) = from_json(&text) {
                prop_assert!(report.received.0.is_finite() && report.received.0 > 0.0);
            }
        }
    }
}

//! Answers of the Prometheus HTTP API: instant vectors and scalars, and errors.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

/// The labels of a series.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(Vec<(Box<str>, Box<str>)>);

impl Labels {
    /// The value of a label; empty where it is not there, which is the same thing in Prometheus.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(label, _)| **label == *name).map_or("", |(_, value)| value)
    }

    /// The names of the labels, in the order of the answer.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(labels: I) -> Self {
        Self(labels.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Labels, M::Error> {
                let mut labels = Vec::with_capacity(map.size_hint().unwrap_or(8));
                while let Some(pair) = map.next_entry()? {
                    labels.push(pair);
                }
                Ok(Labels(labels))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// One series with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its labels.
    pub labels: Labels,
    /// Its value.
    pub value: f64,
}

/// A moment in seconds since 1970, and a value as text.
#[derive(Deserialize)]
struct Sample(#[expect(dead_code, reason = "all samples of an answer have one time")] f64, String);

impl Sample {
    fn value(&self) -> Option<f64> {
        match &*self.1 {
            "+Inf" => Some(f64::INFINITY),
            "-Inf" => Some(f64::NEG_INFINITY),
            text => text.parse().ok(),
        }
    }
}

#[derive(Deserialize)]
struct Element {
    metric: Labels,
    value: Sample,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
    Vector(Vec<Element>),
    Scalar(Sample),
}

#[derive(Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
enum Document {
    Success {
        data: Data,
    },
    Error {
        #[serde(default, rename = "errorType")]
        kind: String,
        #[serde(default)]
        error: String,
    },
}

/// Why an answer has no rows.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The server says so itself.
    #[error("{0}")]
    Refused(String),
    /// It is not what the API says.
    #[error("not a response of the Prometheus API: {0}")]
    Malformed(String),
}

/// Reads an answer. A scalar is one row without labels.
///
/// # Errors
/// The server's own error, or that the text is no answer of this API.
pub fn parse_series(body: &[u8]) -> Result<Vec<Series>, AnswerError> {
    let document = serde_json::from_slice(body).map_err(|error| AnswerError::Malformed(error.to_string()))?;
    let row = |(labels, sample): (Labels, Sample)| {
        let value = sample.value().ok_or_else(|| AnswerError::Malformed(format!("{:?} is not a number", sample.1)))?;
        Ok(Series { labels, value })
    };
    match document {
        Document::Error { kind, error } => Err(AnswerError::Refused(message(&kind, &error))),
        Document::Success { data: Data::Scalar(sample) } => Ok(vec![row((Labels::default(), sample))?]),
        Document::Success { data: Data::Vector(elements) } => {
            elements.into_iter().map(|element| row((element.metric, element.value))).collect()
        }
    }
}

/// What a server says in a body that comes with an error status: its own words, or the start of whatever it is.
pub fn error_message(body: &[u8]) -> String {
    if let Ok(Document::Error { kind, error }) = serde_json::from_slice(body) {
        return message(&kind, &error);
    }
    let text = String::from_utf8_lossy(body);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(200).collect()
}

fn message(kind: &str, error: &str) -> String {
    let line = error.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().take(300).collect();
    if kind.is_empty() { line } else { format!("{kind}: {line}") }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "numbers that are exact")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn vectors_and_scalars() {
        let body = br#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"job":"a","device":"mlx5_0"},"value":[1790000000.5,"25000000000"]},
            {"metric":{},"value":[1790000000,"+Inf"]}]},"warnings":["w"]}"#;
        let rows = parse_series(body).unwrap();
        assert_eq!((rows[0].labels.get("device"), rows[0].labels.get("port"), rows[0].value), ("mlx5_0", "", 25e9));
        assert_eq!(rows[1].value, f64::INFINITY);
        let scalar =
            super::parse_series(br#"{"status":"success","data":{"resultType":"scalar","result":[1,"7"]}}"#).unwrap();
        assert_eq!(scalar, [Series { labels: Labels::default(), value: 7.0 }]);
        let empty = super::parse_series(
            br#"{"status":"success","isPartial":false,"data":{"resultType":"vector","result":[]}}"#,
        );
        assert_eq!(empty.unwrap(), []);
    }

    #[test]
    fn what_is_no_answer_is_said_so() {
        let refused =
            parse_series(br#"{"status":"error","errorType":"bad_data","error":"parse error:\n at 1"}"#).unwrap_err();
        assert_eq!(refused.to_string(), "bad_data: parse error: at 1");
        for text in ["", "{", "<html>", r#"{"status":"success"}"#, "[]", "null"] {
            assert!(matches!(parse_series(text.as_bytes()), Err(AnswerError::Malformed(_))), "{text}");
        }
        let matrix = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
        assert!(parse_series(matrix.as_bytes()).unwrap_err().to_string().contains("matrix"));
        let odd = r#"{"status":"success","data":{"resultType":"scalar","result":[1,"seven"]}}"#;
        assert!(parse_series(odd.as_bytes()).is_err());
        assert_eq!(error_message(b"<html>\n <b>Bad  Gateway</b>"), "<html> <b>Bad Gateway</b>");
        assert_eq!(error_message(br#"{"status":"error","error":"no org id"}"#), "no org id");
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_series(&bytes);
            error_message(&bytes);
        }

        #[test]
        fn half_an_answer_is_none(cut in 0usize..130) {
            let body = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"job":"a"},"value":[1,"2"]}]}}"#;
            prop_assume!(cut < body.len());
            prop_assert!(parse_series(&body.as_bytes()[..cut]).is_err());
        }
    }
}

//! Reads the text exposition, version 0.0.4, and strictly: what is wrong is an error with its line.

use std::collections::BTreeMap;

/// One line of an exposition.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Name of the series.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Value.
    pub value: f64,
    /// The value as it was written: exact beyond 2^53 too.
    pub text: String,
}

impl Sample {
    /// Whether the name is this and the labels are among those of the sample.
    pub fn is(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.name == name && labels.iter().all(|(key, value)| self.labels.get(key) == Some(value))
    }
}

/// Every sample of an exposition, in its order.
pub fn parse(text: &str) -> Result<Vec<Sample>, String> {
    let mut samples = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        samples.push(sample(line).ok_or_else(|| format!("line {}: not a sample: {line}", number + 1))?);
    }
    Ok(samples)
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))?;
    let (name, mut rest) = line.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = label_set(inside, &mut labels)?;
    }
    // A timestamp may follow; the value is the first word.
    let text = rest.strip_prefix(' ')?.split(' ').next()?;
    let value = match text {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        "NaN" => f64::NAN,
        number => number.parse().ok()?,
    };
    Some(Sample { name: name.to_owned(), labels, value, text: text.to_owned() })
}

/// Reads labels up to the closing brace; what follows it.
fn label_set<'a>(mut rest: &'a str, labels: &mut BTreeMap<String, String>) -> Option<&'a str> {
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some(after);
        }
        let (key, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    quoted @ ('\\' | '"') => quoted,
                    _ => return None,
                }),
                (_, other) => value.push(other),
            }
        };
        if labels.insert(key.to_owned(), value).is_some() {
            return None;
        }
        rest = &after[end..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

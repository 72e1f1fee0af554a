//! Reads what can be read of a state: a malformed entry costs only itself.
//!
//! A state is read as a whole first. Only if that fails is each entry tried alone, in a state that has nothing else, and
//! those that cannot be read are left out.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The collections whose entries stand for themselves.
const COLLECTIONS: &[&[&str]] = &[
    &["baseline", "devices"],
    &["flaps"],
    &["findings"],
    &["pending"],
    &["vf_map", "pfs"],
    &["vf_map", "vfs"],
    &["vf_map", "gone"],
    &["vf_map", "domains"],
    &["vf_map", "machines"],
    &["vf_map", "machines_seen"],
    &["vf_map", "signals"],
    &["applied"],
];

/// Histories of benchmarks; of a malformed one, each part is tried alone.
const BENCHMARKS: &str = "probes";

/// Reads a state; what was left out of it, one sentence each.
///
/// # Errors
/// The bytes are no JSON object.
pub(super) fn state<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<(T, Vec<String>)> {
    let error = match serde_json::from_slice(bytes) {
        Ok(state) => return Ok((state, Vec::new())),
        Err(error) => error,
    };
    let Ok(Value::Object(fields)) = serde_json::from_slice(bytes) else { return Err(error) };
    let parse = |state: Value| serde_json::from_value::<T>(state).map(drop);
    let mut salvage = Salvage { kept: Map::new(), left_out: Vec::new(), parse };
    for (name, value) in fields {
        salvage.part(&mut vec![name], value);
    }
    let state = serde_json::from_value(Value::Object(salvage.kept))?;
    Ok((state, salvage.left_out))
}

struct Salvage {
    kept: Map<String, Value>,
    left_out: Vec<String>,
    /// Whether this can be read as a state.
    parse: fn(Value) -> serde_json::Result<()>,
}

impl Salvage {
    /// Takes a part of the state, or what can be read of it.
    fn part(&mut self, path: &mut Vec<String>, value: Value) {
        let is = |known: &[&str]| known.iter().copied().eq(path.iter().map(String::as_str));
        let leads = |known: &&[&str]| known.len() > path.len() && known.iter().zip(&*path).all(|(a, b)| *a == b);
        match (self.readable(path, &value), value) {
            (Ok(()), value) => put(&mut self.kept, path, value),
            (Err(_), Value::Object(entries)) if COLLECTIONS.iter().any(|known| is(known)) => {
                let keep = |(key, value): (String, Value)| {
                    self.keeps(path, &key, &object(&key, &value)).then_some((key, value))
                };
                let kept = entries.into_iter().filter_map(keep).collect();
                put(&mut self.kept, path, Value::Object(kept));
            }
            (Err(_), Value::Array(items)) if COLLECTIONS.iter().any(|known| is(known)) => {
                let numbered = items.into_iter().enumerate();
                let keep = |(number, item): (usize, Value)| {
                    self.keeps(path, &number.to_string(), &Value::from(vec![item.clone()])).then_some(item)
                };
                let kept = numbered.filter_map(keep).collect();
                put(&mut self.kept, path, Value::Array(kept));
            }
            (Err(_), Value::Array(histories)) if is(&[BENCHMARKS]) => {
                let numbered = histories.into_iter().enumerate();
                let kept = numbered.filter_map(|(number, history)| self.history(path, number, history)).collect();
                put(&mut self.kept, path, Value::Array(kept));
            }
            (Err(_), Value::Object(parts)) if COLLECTIONS.iter().any(leads) => {
                for (name, value) in parts {
                    path.push(name);
                    self.part(path, value);
                    path.pop();
                }
            }
            (Err(error), _) => self.leave_out(&path.join("."), &error),
        }
    }

    /// Whether a collection with this entry alone can be read; if not, the entry is left out.
    fn keeps(&mut self, path: &[String], entry: &str, alone: &Value) -> bool {
        let outcome = self.readable(path, alone);
        if let Err(error) = &outcome {
            self.leave_out(&format!("{}.{entry}", path.join(".")), error);
        }
        outcome.is_ok()
    }

    /// What can be read of the history of one benchmark.
    fn history(&mut self, path: &[String], number: usize, history: Value) -> Option<Value> {
        let Value::Object(fields) = history else {
            self.keeps(path, &number.to_string(), &Value::Array(vec![history]));
            return None;
        };
        let (key, parts): (Map<String, Value>, Vec<_>) = {
            let (key, parts): (Vec<_>, Vec<_>) =
                fields.into_iter().partition(|(name, _)| matches!(&**name, "probe" | "port"));
            (key.into_iter().collect(), parts)
        };
        let at = format!("{}.{number}", path.join("."));
        let mut kept = key;
        if let Err(error) = self.readable_history(path, &kept) {
            self.leave_out(&at, &error);
            return None;
        }
        for (name, value) in parts {
            let mut alone = kept.clone();
            alone.insert(name.clone(), value.clone());
            match (self.readable_history(path, &alone), value) {
                (Ok(()), _) => kept = alone,
                (Err(_), Value::Array(items)) => {
                    let mut good = Vec::new();
                    for (place, item) in items.into_iter().enumerate() {
                        alone.insert(name.clone(), Value::Array(vec![item.clone()]));
                        match self.readable_history(path, &alone) {
                            Ok(()) => good.push(item),
                            Err(error) => self.leave_out(&format!("{at}.{name}.{place}"), &error),
                        }
                    }
                    kept.insert(name, Value::Array(good));
                }
                (Err(error), _) => self.leave_out(&format!("{at}.{name}"), &error),
            }
        }
        Some(Value::Object(kept))
    }

    fn readable_history(&self, path: &[String], history: &Map<String, Value>) -> serde_json::Result<()> {
        self.readable(path, &Value::Array(vec![Value::Object(history.clone())]))
    }

    /// Whether a state that has only this value, at this path, can be read.
    fn readable(&self, path: &[String], value: &Value) -> serde_json::Result<()> {
        (self.parse)(path.iter().rev().fold(value.clone(), |value, name| object(name, &value)))
    }

    fn leave_out(&mut self, path: &str, error: &serde_json::Error) {
        self.left_out.push(format!("ignoring malformed {path}: {error}"));
    }
}

fn object(key: &str, value: &Value) -> Value {
    Value::Object(Map::from_iter([(key.to_owned(), value.clone())]))
}

/// Puts a value at a path, below objects that are made as needed.
fn put(fields: &mut Map<String, Value>, path: &[String], value: Value) {
    match path {
        [] => {}
        [name] => {
            fields.insert(name.clone(), value);
        }
        [name, rest @ ..] => {
            let below = fields.entry(name.clone()).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(below) = below {
                put(below, rest, value);
            }
        }
    }
}

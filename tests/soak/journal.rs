//! What an agent has written of what happened.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Every event in a state directory, oldest first.
pub fn events(state: &Path) -> Vec<Value> {
    let read = |name: &str| fs::read_to_string(state.join(name)).unwrap_or_default();
    let text = read("events.1.jsonl") + &read("events.jsonl");
    text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// How many events of a kind there are, the text of which has this in it.
pub fn count(events: &[Value], kind: &str, part: &str) -> usize {
    let of = |event: &&Value| event["kind"] == kind && event["text"].as_str().is_some_and(|text| text.contains(part));
    events.iter().filter(of).count()
}

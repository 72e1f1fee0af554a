//! The configuration file: reading it, and finding every error in it at once.

pub mod collector;
pub mod error;
pub mod files;
pub mod policy;
pub mod probe;
pub mod reader;
pub mod reference;
pub mod schema;
pub mod web;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_path_to_error::Segment;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use crate::host::fs::read_regular;
use error::{ConfigError, ConfigErrors, ErrorList};
use reader::TableReader;
use schema::ConfigFile;

/// Longest configuration file, in bytes.
const LONGEST: u64 = 1 << 20;

/// Most errors that are listed.
const MOST_ERRORS: usize = 50;

/// Reads a file. Keys with errors are left out and reported.
pub fn read(file: &Path, errors: &ErrorList) -> ConfigFile {
    let text = read_regular(file, LONGEST)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)));
    match text {
        Ok(text) => parse(file, &text, errors),
        Err(source) => {
            errors.push(ConfigError::Unreadable { file: file.to_owned(), source });
            ConfigFile::default()
        }
    }
}

/// Parses the text of a file, as [`read`] does.
///
/// Serde stops at the first error. It is taken out of the document and the rest is read again, until none is left.
pub fn parse(file: &Path, text: &str, errors: &ErrorList) -> ConfigFile {
    let (mut document, syntax) = DeTable::parse_recoverable(text);
    if !syntax.is_empty() {
        for error in syntax.iter().take(MOST_ERRORS) {
            errors.push(malformed(file, text, String::new(), error));
        }
        return ConfigFile::default();
    }
    for _ in 0..MOST_ERRORS {
        match serde_path_to_error::deserialize(Deserializer::from(document.clone())) {
            Ok(config) => return ConfigFile { values: values(document.get_ref()), ..config },
            Err(error) => {
                errors.push(malformed(file, text, error.path().to_string(), error.inner()));
                let path: Vec<Segment> = error.path().iter().cloned().collect();
                let missing = error.inner().message().strip_prefix("missing field `");
                let missing = missing.and_then(|rest| rest.strip_suffix('`'));
                if !repair_table(document.get_mut(), &path, missing) {
                    break;
                }
            }
        }
    }
    ConfigFile::default()
}

/// Checks every value of a configuration without using it.
pub fn validate(file: &Path, config: &ConfigFile, errors: &ErrorList) {
    let read = |table| TableReader::new(errors, file, table);
    web::web(&read("web."), &config.web);
    policy::policy(&read("policy."), &config.policy);
    probe::probe(&read("probe."), &config.probe);
    let (table, collector) = (read("collector."), &config.collector);
    collector::filter(&table, collector.device_include.as_deref(), collector.device_exclude.as_deref());
    let collectors = collector::collectors(&table, collector, &[]);
    let paths = (PathBuf::from("/"), PathBuf::from("/sys"), PathBuf::from("/proc"));
    if let Some(socket) = &collector.kubelet_socket {
        collector::kubelet_socket(&table, socket, &paths.0);
    }
    collector::layout(&table, collector.qid_map.as_ref(), &collectors, &paths);
}

/// Reads and checks a file; `files`: also what it names on this host. Returns what works but should be known.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check(file: &Path, files: bool) -> Result<(ConfigFile, Vec<String>), ConfigErrors> {
    let errors = ErrorList::default();
    let config = read(file, &errors);
    validate(file, &config, &errors);
    let remarks = files::check(&TableReader::new(&errors, file, ""), &config, files);
    errors.into_result((config, remarks))
}

fn malformed(file: &Path, text: &str, key: String, error: &toml::de::Error) -> ConfigError {
    let position = error.span().map(|span| {
        let before = text.get(..span.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        format!(":{line}:{}", before.rsplit('\n').next().unwrap_or_default().chars().count() + 1)
    });
    let mut message = plain(error.message());
    if message == "duplicate key"
        && let Some(name) = error.span().and_then(|span| text.get(span))
    {
        message = format!("duplicate key `{name}`");
    }
    ConfigError::Malformed { file: file.to_owned(), position: position.unwrap_or_default(), key, message }
}

/// Takes an error out of a document, so that the rest can be read: removes the value at a path, or gives it the field
/// that it misses. Elements of lists stay, for those after them to keep their index. `false` if there is no such value.
fn repair_table(table: &mut DeTable<'_>, path: &[Segment], missing: Option<&str>) -> bool {
    let [Segment::Map { key }, rest @ ..] = path else { return false };
    let Some(value) = table.get_mut(key.as_str()) else { return false };
    (!rest.is_empty() && repair_value(value, rest, missing)) || table.remove(key.as_str()).is_some()
}

fn repair_value(value: &mut Spanned<DeValue<'_>>, path: &[Segment], missing: Option<&str>) -> bool {
    match (value.get_mut(), path) {
        (DeValue::Table(table), path) => repair_table(table, path, missing),
        (DeValue::Array(array), [Segment::Seq { index }, rest @ ..]) => {
            let Some(element) = array.get_mut(*index) else { return false };
            if !rest.is_empty() {
                return repair_value(element, rest, missing);
            }
            let empty = DeValue::String(Cow::Borrowed(""));
            match (element.get_mut(), missing) {
                (DeValue::Table(table), Some(field)) => {
                    let key = Spanned::new(0..0, Cow::Owned(field.to_owned()));
                    table.insert(key, Spanned::new(0..0, empty)).is_none()
                }
                // It was repaired before: the list is one of something else.
                (DeValue::String(text), _) if text.is_empty() => false,
                (other, _) => {
                    *other = empty;
                    true
                }
            }
        }
        _ => false,
    }
}

/// The values of a document by key, as text; lists as a whole.
fn values(table: &DeTable<'_>) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut waiting: Vec<(String, &DeTable<'_>)> = vec![(String::new(), table)];
    while let Some((prefix, table)) = waiting.pop() {
        for (key, value) in table {
            let key = format!("{prefix}{}", key.get_ref());
            match value.get_ref() {
                DeValue::Table(table) => waiting.push((format!("{key}."), table)),
                value => drop(values.insert(key, text(value))),
            }
        }
    }
    values
}

fn text(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(array) => {
            let elements: Vec<String> = array.iter().map(|element| text(element.get_ref())).collect();
            format!("[{}]", elements.join(", "))
        }
        DeValue::Table(table) => {
            let pairs: Vec<String> = values(table).iter().map(|(key, value)| format!("{key} = {value}")).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}

/// The parser's message in one line, with names of TOML types in place of Rust's.
fn plain(message: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((found, expected)) = line.rsplit_once(", expected ") else {
        return match line.as_str() {
            "wanted string or table" => "expected a string".to_owned(),
            _ => line,
        };
    };
    let expected = match expected {
        "usize" | "u64" => "a whole number from 0",
        "u32" => "a whole number from 0 to 4294967295",
        "u8" => "a whole number from 0 to 255",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "path string" => "a string",
        other if other.starts_with("struct ") || other == "a map" => "a table",
        other => other,
    };
    let found = match found {
        "invalid type: map" => "invalid type: table",
        "invalid type: sequence" => "invalid type: list",
        other => other.strip_suffix(" as i128").unwrap_or(other),
    };
    format!("{found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The errors in the text of a file, checked without the files that it names.
    fn errors(text: &str) -> Vec<String> {
        let (file, errors) = (Path::new("f"), ErrorList::default());
        let config = parse(file, text, &errors);
        validate(file, &config, &errors);
        let all = errors.into_result(()).err();
        all.iter().flat_map(ConfigErrors::iter).map(ToString::to_string).collect()
    }

    #[test]
    fn every_error_of_a_file_is_reported_with_the_element_of_a_list() {
        let text = "[web]\nlisten-adress = 3\nmax-requests = -3\n[policy]\ndevices = [\"a\", 1, \"b\", 2, 3]\n\
                    [[policy.port]]\nmatch = \"a\"\n[[policy.port]]\nup = true\n[[policy.port]]\nmatch = \"b\"\n\
                    rate = 200\n[[policy.port]]\nmatch = \"[\"\nrate = \"fast\"\n[probe]\nsize = 0\n";
        let found = errors(text);
        let starts = [
            "f:5:17: policy.devices[1]: ",
            "f:5:25: policy.devices[3]: ",
            "f:5:28: policy.devices[4]: ",
            "f:8:1: policy.port[1]: missing field `match`",
            "f:12:8: policy.port[2].rate: ",
            "f:2:1: web.listen-adress: unknown field",
            "f:3:16: web.max-requests: ",
        ];
        for start in starts {
            assert!(found.iter().any(|error| error.starts_with(start)), "{start} not in {found:#?}");
        }
        for key in ["match", "rate"] {
            assert!(found.iter().any(|error| error.starts_with(&format!("f: policy.port[3].{key}: "))), "{found:#?}");
        }
        assert!(found.iter().any(|error| error == "f: probe.size: 0 is not between 1 and 1073741824"), "{found:#?}");
        assert_eq!(found.len(), 10, "{found:#?}");
    }

    #[test]
    fn the_element_of_a_list_is_named() {
        let rules = "[[policy.port]]\nmatch = \"a\"\n[[policy.port]]\nmatch = \"b\"\n[[policy.port]]\nmatch = \"c\"\n\
                     rate = \"fast\"\n";
        assert!(errors(rules)[0].starts_with("f: policy.port[2].rate: \"fast\" is not a rate"));
        let addresses = errors("[web]\nlisten-address = [\":1\", \"x\", \"y\"]\n");
        assert!(addresses[0].starts_with("f: web.listen-address[1]: \"x\" is not an address"), "{addresses:?}");
        assert!(addresses[1].starts_with("f: web.listen-address[2]: "), "{addresses:?}");
    }

    #[test]
    fn a_duplicate_key_is_named_with_its_line() {
        assert_eq!(errors("[log]\nlevel = \"info\"\nlevel = \"warn\"\n"), ["f:3:1: duplicate key `level`"]);
        assert_eq!(errors("[log]\n[web]\n[log]\n"), ["f:3:2: duplicate key `log`"]);
    }

    #[test]
    fn values_are_compared_by_key() {
        let parsed = |text: &str| parse(Path::new("f"), text, &ErrorList::default()).values;
        let values =
            parsed("probe.size = 4096\n[web]\nlisten-address = [\":1\", \":2\"]\n[[policy.port]]\nmatch = \"a\"\n");
        let expected =
            [("policy.port", "[{match = \"a\"}]"), ("probe.size", "4096"), ("web.listen-address", "[\":1\", \":2\"]")];
        assert_eq!(values.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn every_counter_of_the_catalogue_can_have_a_limit() {
        let limit = |counter: &str| errors(&format!("[policy.threshold.errors]\n{counter} = 5"));
        let mut count = 0;
        for (counter, _) in crate::model::counter::catalogue::names() {
            assert_eq!(limit(counter), [""; 0], "{counter}");
            count += 1;
        }
        assert!(count > 400, "{count}");
        assert_eq!(limit("no_such_counter").len(), 1);
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in any::<String>(), like in "([\\[\\]a-z.=\"0-9 -]{0,20}\n){0,5}") {
            let _ = (errors(&text), errors(&like));
        }

        #[test]
        fn no_value_breaks_a_policy(value in "[ -!#-\\[\\]-~\u{e4}]{0,20}", number in any::<i64>()) {
            let known = ["[[policy.port]]\nmatch = \"a\"\nrate", "[[policy.link]]\nmatch = \"a\"\nspeed", "[[policy.port]]\nmatch"];
            let more = ["[policy.hold]\nirq_remote", "[policy.severity]\nirq_remote", "[policy.threshold]\nsettle"];
            let rest = ["[web]\ntelemetry-path", "[collector]\ndevice-include", "[log]\nlevel"];
            for key in known.into_iter().chain(more).chain(rest) {
                errors(&format!("{key} = \"{value}\""));
                prop_assert!(!errors(&format!("{key} = {number}")).is_empty(), "{}", key);
            }
            prop_assert!(!errors("[web]\nlisten-address = [\"\"]").is_empty());
            errors(&format!("[web]\nlisten-address = [\"{value}\"]"));
            errors(&format!("[policy.threshold.errors]\nsymbol_error = {number}"));
            errors(&format!("[[policy.link]]\nmatch = \"a\"\nwidth = {number}"));
        }
    }
}

//! The list of peers, in the format of Prometheus' file-based service discovery.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use crate::host::fs::read_regular;

/// Longest file, in bytes.
const LONGEST: u64 = 8 << 20;
/// Most hosts.
const MOST: usize = 20_000;

/// One group; its labels are of no interest.
#[derive(Debug, Deserialize)]
struct Group {
    targets: Vec<String>,
}

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PeerListError(String);

/// Reads a list: JSON, or YAML.
///
/// # Errors
/// The file cannot be read, or is none.
pub fn read(path: &Path) -> Result<BTreeSet<Arc<str>>, PeerListError> {
    let wrong = |why: &dyn std::fmt::Display| PeerListError(format!("{}: {why}", path.display()));
    let bytes = read_regular(path, LONGEST).map_err(|error| wrong(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong(&"it is not UTF-8"))?;
    parse(&text).map_err(|PeerListError(why)| wrong(&why))
}

/// Reads the text of a list.
///
/// # Errors
/// It is neither JSON nor YAML of that form, or names something that is no host with a port.
pub fn parse(text: &str) -> Result<BTreeSet<Arc<str>>, PeerListError> {
    let form = "a list of groups such as [{\"targets\": [\"node17:10015\"]}]";
    let groups: Vec<Group> = if text.trim_start().starts_with('[') {
        // JSON is YAML, but its own parser is faster by far and says better where it is wrong.
        serde_json::from_str(text).map_err(|error| PeerListError(format!("it is not {form}: {error}")))?
    } else {
        serde_saphyr::from_str(text).map_err(|error| PeerListError(format!("it is not {form}: {error}")))?
    };
    let mut hosts = BTreeSet::new();
    for target in groups.into_iter().flat_map(|group| group.targets) {
        if split(&target).is_none() {
            return Err(PeerListError(format!("{target:?} is not host:port, such as node17:10015")));
        }
        hosts.insert(Arc::from(target));
        if hosts.len() > MOST {
            return Err(PeerListError(format!("more than {MOST} hosts")));
        }
    }
    Ok(hosts)
}

/// Host and port of a target: a name, an address, or an IPv6 address in brackets, which are left out.
pub fn split(target: &str) -> Option<(&str, u16)> {
    let (host, port) = target.rsplit_once(':')?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let sound = match inner {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        // A name that begins with a dash would be taken for an option.
        None => !host.is_empty() && host.len() <= 253 && !host.starts_with('-') && host.chars().all(named),
    };
    sound.then_some((inner.unwrap_or(host), port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        parse(text).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn both_forms_say_the_same() {
        let json = "[{\"targets\": [\"b:10015\", \"a:10015\"], \"labels\": {\"rack\": \"7\"}}, {\"targets\": [\"[2001:db8::1]:9\"]}]";
        let yaml = "- targets: ['b:10015', 'a:10015', 'a:10015']\n  labels:\n    rack: '7'\n- targets:\n  - '[2001:db8::1]:9'\n";
        assert_eq!(names(json), ["[2001:db8::1]:9", "a:10015", "b:10015"]);
        assert_eq!(names(json), names(yaml));
        assert!(names("[]").is_empty());
    }

    #[test]
    fn what_is_no_list_is_said() {
        for (text, part) in [
            ("{\"targets\": []}", "it is not a list of groups"),
            ("[{\"targets\": [\"a\"]}]", "\"a\" is not host:port"),
            ("[{\"targets\": [\"-x:1\"]}]", "\"-x:1\""),
            ("[{\"targets\": [\"http://a:1\"]}]", "\"http://a:1\""),
            ("[{\"targets\": [\"a b:1\"]}]", "\"a b:1\""),
            ("[{\"targets\": [\"a:0\"]}]", "\"a:0\""),
            ("[{\"labels\": {}}]", "targets"),
            ("- targets: 5\n", "it is not"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn targets() {
        assert_eq!(split("node17:10015"), Some(("node17", 10_015)));
        assert_eq!(split("[2001:db8::1]:9"), Some(("2001:db8::1", 9)));
        assert_eq!(split("2001:db8::1:9"), None);
        assert_eq!(split("node17"), None);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in any::<String>(), like in "[\\[{\"targets: a1,\\]}\n-]{0,60}") {
            let _ = (parse(&text), parse(&like), split(&text));
        }
    }
}

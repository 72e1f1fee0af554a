//! The queries, in PromQL that Prometheus, Thanos, Mimir and VictoriaMetrics all know.
//!
//! Every one takes the maximum by the labels that matter, so that a host that two servers scrape comes once.

use std::iter::Peekable;
use std::str::CharIndices;

/// Families with a value that matters.
const VALUES: &[&str] = &[
    "lanewatch_port_rate_bytes_per_second",
    "lanewatch_port_ceiling_bytes_per_second",
    "lanewatch_port_share_bytes_per_second",
    "lanewatch_pcie_path_bandwidth_bytes_per_second",
    "lanewatch_pcie_link_current_bandwidth_bytes_per_second",
    "lanewatch_pcie_link_capable_bandwidth_bytes_per_second",
    "lanewatch_pcie_link_max_speed_transfers_per_second",
    "lanewatch_pcie_link_max_width_lanes",
    "lanewatch_sriov_vfs",
    "lanewatch_sriov_vfs_limit",
    "lanewatch_evaluation_timestamp_seconds",
];
const VALUE_LABELS: &[&str] = &["__name__", "device", "port", "pci_address", "pf", "kind"];

/// Families with labels that matter.
const INFOS: &[&str] = &["lanewatch_device_info", "lanewatch_port_info", "lanewatch_pcie_path_info"];
const INFO_LABELS: &[&str] = &[
    "__name__",
    "device",
    "port",
    "pci_address",
    "driver",
    "firmware_version",
    "board_id",
    "hca_type",
    "node_guid",
    "numa_node",
    "function",
    "link_layer",
    "uplink",
    "limiting_pci_address",
];

/// Errors of a line before correction, and data lost after it, by interface.
pub const LINE_RATIOS: [&str; 2] = ["lanewatch_netdev_raw_bit_error_ratio", "lanewatch_netdev_lost_codeword_ratio"];

/// Checks whose findings matter.
const CHECKS: &str = "port_down|device_missing|pcie_below_port_rate";

/// Labels of a device by which a fleet can be grouped; all others are the host's.
pub const DEVICE_LABELS: &[&str] =
    &["hca_type", "board_id", "firmware_version", "driver", "device", "numa_node", "function", "link_layer"];

/// What every query is about.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Further matchers, as in a selector: `site="ams"`; empty for all.
    pub matchers: String,
    /// The labels that tell one host from another.
    pub identity: Vec<String>,
    /// The labels of hosts by which the fleet is grouped.
    pub by: Vec<String>,
}

impl Scope {
    fn selector(&self, own: &[String]) -> String {
        let given = Some(self.matchers.clone()).filter(|matchers| !matchers.is_empty());
        own.iter().cloned().chain(given).collect::<Vec<_>>().join(",")
    }

    /// The labels that tell hosts apart, and others.
    fn labels(&self, others: &[&str]) -> String {
        let own = self.identity.iter().map(String::as_str);
        let others = others.iter().copied().filter(|label| !self.identity.iter().any(|own| own == label));
        own.chain(others).collect::<Vec<_>>().join(",")
    }

    /// The jobs that scrape agents, or did within the last hour.
    pub fn jobs(&self) -> String {
        format!("count by (job) (last_over_time(lanewatch_build_info{{{}}}[1h]))", self.selector(&[]))
    }

    /// Every host, with the labels to group by.
    pub fn hosts(&self) -> String {
        let mut labels: Vec<&str> = self.by.iter().map(String::as_str).collect();
        labels.extend(["instance", "version"]);
        format!("max by ({}) (lanewatch_build_info{{{}}})", self.labels(&labels), self.selector(&[]))
    }

    /// One host with all of its labels.
    pub fn any_host(&self) -> String {
        format!("topk(1, lanewatch_build_info{{{}}})", self.selector(&[]))
    }

    /// Which targets of these jobs answer.
    pub fn up(&self, jobs: &[String]) -> String {
        let jobs = [format!("job=~\"{}\"", alternatives(jobs.iter().map(String::as_str)))];
        format!("max by ({}) (up{{{}}})", self.labels(&["instance"]), self.selector(&jobs))
    }

    /// The numbers of these hosts.
    pub fn values(&self, instances: &[&str]) -> String {
        let own = [named(VALUES), these(instances)];
        format!("max by ({}) ({{{}}})", self.labels(VALUE_LABELS), self.selector(&own))
    }

    /// What the devices, ports and paths of these hosts are; VFs and sub-functions, which may be hundreds, left out.
    pub fn infos(&self, instances: &[&str]) -> String {
        let own = [named(INFOS), "function!~\"vf|sf\"".to_owned(), these(instances)];
        format!("max by ({}) ({{{}}})", self.labels(INFO_LABELS), self.selector(&own))
    }

    /// What was found on these hosts.
    pub fn findings(&self, instances: &[&str]) -> String {
        let own = [format!("check=~\"{CHECKS}\""), these(instances)];
        let labels = self.labels(&["check", "reason", "device", "port"]);
        format!("max by ({labels}) (lanewatch_finding{{{}}}) > 0", self.selector(&own))
    }

    /// How many VFs of each PF are held by whom.
    pub fn holders(&self, instances: &[&str]) -> String {
        let (each, all) = (self.labels(&["pf", "vf", "holder_kind"]), self.labels(&["pf", "holder_kind"]));
        let selector = self.selector(&[these(instances)]);
        format!("count by ({all}) (max by ({each}) (lanewatch_vf_holder_info{{{selector}}}))")
    }

    /// A ratio of errors at both ends of every cable that joins two ports of these hosts: its serial number is read twice.
    pub fn cables(&self, ratio: &str) -> String {
        const CABLE: &str = "vendor,part_number,serial_number";
        let (end, selector) = (self.labels(&["netdev"]), self.selector(&["serial_number!=\"\"".to_owned()]));
        let modules = format!("max by ({end},{CABLE}) (lanewatch_module_info{{{selector}}})");
        let ratio = format!("max by ({end}) ({ratio}{{{}}})", self.selector(&[]));
        format!("{modules} * on ({end}) group_left () {ratio} and on ({CABLE}) count by ({CABLE}) ({modules}) == 2")
    }

    /// The last rate of every wire of these hosts within a time such as `7d`.
    pub fn past_rates(&self, instances: &[&str], within: &str) -> String {
        let labels = self.labels(&["device", "port", "pci_address", "netdev"]);
        let selector = self.selector(&[these(instances)]);
        format!("max by ({labels}) (last_over_time(lanewatch_wire_rate_bytes_per_second{{{selector}}}[{within}]))")
    }
}

fn named(families: &[&str]) -> String {
    format!("__name__=~\"{}\"", families.join("|"))
}

/// A matcher for these instances. Servers look literal alternatives up one by one and compile no pattern.
fn these(instances: &[&str]) -> String {
    format!("instance=~\"{}\"", alternatives(instances.iter().copied()))
}

/// A pattern for exactly these texts, ready to stand between double quotes.
fn alternatives<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for (index, text) in texts.enumerate() {
        if index > 0 {
            out.push('|');
        }
        for char in text.chars() {
            match char {
                // A backslash of the pattern, which the string needs twice.
                '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$' => {
                    out.push_str("\\\\");
                    out.push(char);
                }
                '\\' => out.push_str("\\\\\\\\"),
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                char => out.push(char),
            }
        }
    }
    out
}

/// Whether a text is the name of a label.
pub fn is_label(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// What a person wrote, without the braces and the commas at its ends.
///
/// # Errors
/// It is not a list of matchers: where, and what is missing. Whether a pattern is one, the server says.
pub fn matchers(text: &str) -> Result<String, String> {
    let text = text.trim();
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
    let inner = inner.trim().trim_end_matches(',').trim_end();
    let mut rest = MatcherParser { text: inner, chars: inner.char_indices().peekable() };
    rest.space();
    while rest.chars.peek().is_some() {
        rest.matcher()?;
        rest.space();
        match rest.chars.next() {
            None | Some((_, ',')) => rest.space(),
            Some((at, _)) => return Err(rest.wrong(at, "a comma")),
        }
    }
    Ok(inner.to_owned())
}

/// What is still to be read.
struct MatcherParser<'a> {
    text: &'a str,
    chars: Peekable<CharIndices<'a>>,
}

impl MatcherParser<'_> {
    fn space(&mut self) {
        while self.chars.next_if(|(_, c)| c.is_ascii_whitespace()).is_some() {}
    }

    fn wrong(&self, at: usize, needed: &str) -> String {
        let found = self.text.get(at..).filter(|rest| !rest.is_empty()).unwrap_or("the end");
        format!("{:?} is not a list of matchers: expected {needed} at {found:?} (site=\"ams\",env!=\"lab\")", self.text)
    }

    fn here(&mut self) -> usize {
        self.chars.peek().map_or(self.text.len(), |(at, _)| *at)
    }

    fn matcher(&mut self) -> Result<(), String> {
        let start = self.here();
        if !self.string() {
            let mut name = String::new();
            while let Some((_, c)) = self.chars.next_if(|(_, c)| c.is_ascii_alphanumeric() || *c == '_') {
                name.push(c);
            }
            if !is_label(&name) {
                return Err(self.wrong(start, "the name of a label"));
            }
        }
        self.space();
        let at = self.here();
        let first = self.chars.next_if(|(_, c)| matches!(c, '=' | '!')).map(|(_, c)| c);
        let second = self.chars.next_if(|(_, c)| matches!(c, '=' | '~')).map(|(_, c)| c);
        if !matches!((first, second), (Some('='), None | Some('~')) | (Some('!'), Some(_))) {
            return Err(self.wrong(at, "=, !=, =~ or !~"));
        }
        self.space();
        let at = self.here();
        if self.string() { Ok(()) } else { Err(self.wrong(at, "a value in quotes")) }
    }

    /// Takes a text in quotes; false where there is none, or it has no end.
    fn string(&mut self) -> bool {
        let Some((_, quote)) = self.chars.next_if(|(_, c)| matches!(c, '"' | '\'' | '`')) else { return false };
        while let Some((_, c)) = self.chars.next() {
            match c {
                '\\' if quote != '`' => drop(self.chars.next()),
                c if c == quote => return true,
                _ => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod query_tests {
    use super::*;

    fn scope() -> Scope {
        Scope {
            matchers: "site=\"ams\"".to_owned(),
            identity: vec!["job".to_owned(), "instance".to_owned()],
            by: vec!["rack".to_owned()],
        }
    }

    #[test]
    fn queries_name_what_tells_hosts_apart_and_keep_to_the_scope() {
        let scope = scope();
        assert_eq!(scope.hosts(), "max by (job,instance,rack,version) (lanewatch_build_info{site=\"ams\"})");
        assert_eq!(
            scope.up(&["lane.watch".to_owned()]),
            "max by (job,instance) (up{job=~\"lane\\\\.watch\",site=\"ams\"})"
        );
        let instances = ["10.0.0.1:10015", "n2"];
        let shard = "instance=~\"10\\\\.0\\\\.0\\\\.1:10015|n2\",site=\"ams\"";
        for query in
            [scope.values(&instances), scope.infos(&instances), scope.findings(&instances), scope.holders(&instances)]
        {
            assert!(query.contains(shard), "{query}");
            assert!(query.contains(" by (job,instance,"), "{query}");
        }
        let all = Scope { matchers: String::new(), ..scope };
        assert!(all.jobs().contains("lanewatch_build_info{}"));
    }

    #[test]
    fn odd_texts_stay_themselves() {
        assert_eq!(alternatives(["a\"b\\c\n", "x|y"].into_iter()), "a\\\"b\\\\\\\\c\\n|x\\\\|y");
        assert!(is_label("rack") && is_label("_a1") && !is_label("1a") && !is_label("a-b") && !is_label(""));
    }
}

#[cfg(test)]
mod matchers_tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_of_matchers() {
        for (text, inner) in [
            ("", ""),
            ("{}", ""),
            ("site=\"ams\"", "site=\"ams\""),
            ("{site=\"ams\", env!=\"lab\",}", "site=\"ams\", env!=\"lab\""),
            ("a =~ 'x|y' , b!~`\\d`", "a =~ 'x|y' , b!~`\\d`"),
            ("\"my.label\"=\"a\\\"b,c}\"", "\"my.label\"=\"a\\\"b,c}\""),
        ] {
            assert_eq!(matchers(text).as_deref(), Ok(inner), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_said_where() {
        for (text, part) in [
            ("site=ams", "expected a value in quotes at \"ams\""),
            ("site", "expected =, !=, =~ or !~ at \"the end\""),
            ("site==\"a\"", "=, !=, =~ or !~"),
            ("site!\"a\"", "=, !=, =~ or !~"),
            ("a=\"b\" c=\"d\"", "expected a comma at \"c=\\\"d\\\"\""),
            ("a=\"b", "a value in quotes"),
            ("1a=\"b\"", "the name of a label"),
            (",a=\"b\"", "the name of a label"),
            ("a=\"b\"}) or vector(1", "a comma"),
        ] {
            let why = matchers(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_them(text in any::<String>(), like in "[a-z=!~\"'`\\\\, {}]{0,24}") {
            let _ = (matchers(&text).is_ok(), matchers(&like).is_ok());
        }
    }
}

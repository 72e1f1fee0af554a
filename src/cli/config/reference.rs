//! The reference of configuration keys: what each is, its default and what is allowed. `docs/configuration.md` is made
//! of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::bench::peers::request::MOST_SECONDS;
use crate::host::{COLLECTORS, ON_DEMAND};
use crate::model::benchmark::Benchmark;
use crate::model::check::Check;
use crate::model::policy::{Allowance, FEWEST, Thresholds};

/// A configuration key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its whole name; `[]` stands for each element of a list of tables.
    pub name: &'static str,
    /// Its type in TOML.
    pub kind: &'static str,
    /// The default as TOML, or in words; `None` if the key is required.
    pub default: Option<&'static str>,
    /// Values that are allowed.
    pub allowed: &'static str,
    /// What it is for.
    pub about: &'static str,
}

impl Key {
    /// Whether a change applies only after a restart. A reload applies the policy; all else is set up once.
    pub fn needs_restart(&self) -> bool {
        needs_restart(self.name)
    }
}

fn needs_restart(key: &str) -> bool {
    !key.starts_with("policy.")
}

const fn key(
    name: &'static str,
    kind: &'static str,
    default: Option<&'static str>,
    allowed: &'static str,
    about: &'static str,
) -> Key {
    Key { name, kind, default, allowed, about }
}

/// Every key, by table.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("path.rootfs", "string", Some("\"/\""), "a directory", "root of the host to read, with `sys` and `proc` below it"),
    key("path.sysfs", "string", Some("`sys` below `path.rootfs`"), "a directory", "the host's /sys"),
    key("path.procfs", "string", Some("`proc` below `path.rootfs`"), "a directory", "the host's /proc"),
    key("log.level", "string", Some("\"info\""), "`error`, `warn`, `info`, `debug`, `trace`", "least severe messages that are logged"),
    key("log.format", "string", Some("\"logfmt\""), "`logfmt`, `json`", "format of log lines"),
    key("web.listen-address", "list of strings", Some("[\":10015\"]"), "`HOST:PORT`, or `:PORT` for every address", "addresses to listen on"),
    key("web.telemetry-path", "string", Some("\"/metrics\""), "a path; `/`, `/-/…` and `/api/…` are reserved", "path of the metrics"),
    key("web.config-file", "string", Some("none: plain HTTP for everyone"), "a YAML file", "TLS, users, headers and rate limit, in the format of Prometheus exporters"),
    key("web.max-requests", "integer", Some("512"), "0 to 100000; 0 is no limit", "maximum concurrent requests"),
    key("web.systemd-socket", "boolean", Some("false"), "", "take the listening sockets from systemd"),
    key("web.allow-weaker-reload", "boolean", Some("false"), "", "apply a changed web configuration even if it asks clients for less than before"),
    key("web.public-snapshot", "boolean", Some("false"), "", "serve `/api/v1/snapshot` to clients that do not authenticate"),
    key("collector.device-include", "string", Some("all devices"), "a regular expression", "read only RDMA devices whose whole name matches"),
    key("collector.device-exclude", "string", Some("no device"), "a regular expression", "skip RDMA devices whose whole name matches"),
    key("collector.vf-ports", "boolean", Some("false"), "", "all metrics of VFs' ports, about 60 series per VF; by default only their states and rate, and the traffic that the PF counts"),
    key("collector.disabled", "list of strings", Some("[]"), "names of collectors", "collectors that do not run"),
    key("collector.enabled", "list of strings", Some("[]"), "names of collectors", "collectors that run although they are off by default"),
    key("collector.kubelet-socket", "string", Some("none: the kubelet is not queried"), "an absolute path", "socket of the kubelet's PodResources API, usually /var/lib/kubelet/pod-resources/kubelet.sock"),
    key("collector.qid-map.path", "string", None, "an absolute path, with `*` and `?` in its names", "queue pair maps of an out-of-tree driver"),
    key("collector.qid-map.columns", "list of strings", None, "`vf`, `local`, `global`, `state`, `-`; `global` is required", "columns of the maps, from the left"),
    key("collector.qid-map.hexadecimal", "boolean", Some("false"), "", "whether numbers without `0x` are hexadecimal"),
    key("storage.path", "string", Some("\"/var/lib/lanewatch\""), "an absolute path", "state directory: baseline, events"),
    key("policy.devices", "list of strings", Some("[]"), "names of RDMA devices", "devices that must be present"),
    key("policy.port[].match", "string", None, "a regular expression", "ports of the rule, by whole name: `mlx5_[0-3]/1`"),
    key("policy.port[].up", "boolean", Some("not expected"), "", "whether the ports must be up"),
    key("policy.port[].rate", "string", Some("not expected"), "`\"0.1 Gb/s\"` to `\"100000 Gb/s\"`", "minimum rate of the ports"),
    key("policy.link[].match", "string", None, "a regular expression", "devices of the rule, by whole name"),
    key("policy.link[].speed", "string", Some("not expected"), "`2.5`, `5`, `8`, `16`, `32` or `64 GT/s`", "minimum speed of the PCIe link"),
    key("policy.link[].width", "integer", Some("not expected"), "1, 2, 4, 8, 12, 16, 32", "minimum width of the PCIe link, in lanes"),
    key("policy.vfs[].match", "string", None, "a regular expression", "PFs of the rule, by whole PCI address, RDMA device or interface: `0000:98:00\\.0`"),
    key("policy.vfs[].count", "integer", None, "1 to 65535", "minimum number of VFs of each of these PFs"),
    key("policy.exception[].match", "string", None, "a regular expression", "subjects of the exception, by whole name: `mlx5_3`, `mlx5_3/1`, `0000:98:00.0`"),
    key("policy.exception[].checks", "list of strings", Some("every check"), "names of checks", "checks whose findings are accepted"),
    key("policy.exception[].reason", "string", None, "a text", "the reason; shown with the finding"),
    key("policy.severity.CHECK", "string", Some("see the table of checks"), "`info`, `warning`, `critical`", "severity of a check's findings"),
    key("policy.hold.CHECK", "string", Some("see the table of checks"), "a time from 0s to 7d", "how long a condition must last to be a finding"),
    key("policy.threshold.flaps-critical", "integer", Some("3"), "1 to 1000", "link flaps in 12 hours that are critical"),
    key("policy.threshold.settle", "string", Some("\"30m\""), "a time from 0s to 1d", "time after boot in which flaps are not counted"),
    key("policy.threshold.correctable-aer-per-hour", "integer", Some("10"), "0 to 1000000000", "correctable AER errors per hour above which they are a warning"),
    key("policy.threshold.errors.COUNTER", "integer", Some("see METRICS.md"), "0 to 1000000000000", "errors of a counter allowed in its window"),
    key("policy.maintenance.file", "string", Some("none"), "an absolute path", "the host is in maintenance while this file exists"),
    key("policy.maintenance.windows", "list of strings", Some("[]"), "`\"Sat 02:00-04:00\"`, or `\"02:00-04:00\"` for every day", "maintenance windows, in UTC"),
    key("probe.enabled", "boolean", Some("false"), "", "whether the agent runs benchmarks by itself"),
    key("probe.probes", "list of strings", Some("[\"rdma_loopback\"]"), "names of benchmarks", "benchmarks that run"),
    key("probe.devices", "string", Some("all devices"), "a regular expression", "devices that are benchmarked, by whole name"),
    key("probe.interval", "string", Some("\"6h\""), "a time from 1m to 30d", "approximate time between two runs of a benchmark"),
    key("probe.budget", "float", Some("0.001"), "0.00001 to 0.1", "share of a day's time that benchmarks may use of a port"),
    key("probe.size", "integer", Some("1048576"), "1 to 1073741824", "message size in bytes"),
    key("probe.queue-pairs", "integer", Some("4"), "1 to 1024", "queue pairs"),
    key("probe.duration", "string", Some("\"5s\""), "whole seconds from 1s to 10m", "duration of a bandwidth measurement"),
    key("probe.patience", "string", Some("by step"), "a time from 1s to 10m", "how long a program may take beyond its measurement"),
    key("probe.both", "boolean", Some("false"), "", "also measure both directions at once"),
    key("probe.gid-index", "integer", Some("a RoCE v2 GID"), "0 to 255", "GID index on Ethernet"),
    key("probe.lock", "string", Some("`lanewatch-probe.lock` in /run/lock or /tmp"), "an absolute path", "lock that allows one benchmark at a time on a host"),
    key("probe.busy-files", "list of strings", Some("[]"), "absolute paths", "no benchmark runs while one of these exists"),
    key("probe.busy-command", "list of strings", Some("[]"), "a program and its arguments", "no benchmark runs unless this command succeeds"),
    key("probe.most-load", "float", Some("0.5"), "0.01 to 100", "load per CPU above which no benchmark runs"),
    key("probe.peers.serve", "boolean", Some("false"), "needs `key-file`, or a web configuration that verifies clients", "start servers for peers that ask"),
    key("probe.peers.list", "string", Some("none"), "a file in the format of file-based service discovery", "hosts that benchmark each other"),
    key("probe.peers.name", "string", Some("the host name"), "not empty", "name of this host in the list"),
    key("probe.peers.key-file", "string", Some("none"), "a file that only the agent's user can read", "key that the hosts share"),
    key("probe.peers.slot", "string", Some("\"2h\""), "a time from 10s to 7d, at least four times `probe.duration`", "length of a time slot; in each a host has at most one partner"),
    key("probe.peers.concurrency", "integer", Some("64"), "2 to 100000", "hosts that measure at the same time"),
    key("probe.peers.tls.ca-file", "string", Some("the system's"), "a PEM file", "CA certificates that the peers' certificates are verified with"),
    key("probe.peers.tls.cert-file", "string", Some("none"), "a PEM file; needs `key-file`", "certificate of this host"),
    key("probe.peers.tls.key-file", "string", Some("none"), "a PEM file; needs `cert-file`", "key of the certificate"),
];

/// Keys whose values differ and that need a restart.
pub fn restart_keys(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
    keys.sort();
    keys.dedup();
    let changed = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
    changed.filter(|key| needs_restart(key)).cloned().collect()
}

/// The reference in Markdown: a table of keys, and the names that some of them take.
pub fn markdown() -> String {
    let mut out =
        String::from("| key | type | default | allowed | restart | what it is for |\n|---|---|---|---|---|---|\n");
    for key in KEYS {
        let default = key.default.map_or("required".to_owned(), |default| {
            let is_toml = default.starts_with(['"', '[']) || default.parse::<f64>().is_ok() || default == "false";
            if is_toml { format!("`{default}`") } else { default.to_owned() }
        });
        let allowed = if key.allowed.is_empty() { "`true`, `false`" } else { key.allowed };
        let restart = if key.needs_restart() { "yes" } else { "no" };
        let _ = writeln!(out, "| `{}` | {} | {default} | {allowed} | {restart} | {} |", key.name, key.kind, key.about);
    }
    let checks: Vec<String> = Check::ALL.iter().map(|check| format!("`{}`", check.as_str())).collect();
    let counters: Vec<String> = Thresholds::default()
        .errors
        .iter()
        .map(|limit| {
            let window = humantime::format_duration(std::time::Duration::from_secs(limit.window.as_secs()));
            match limit.allowed {
                Allowance::Count(most) => format!("`{}` ({most} in {window})", limit.counter),
                Allowance::OfBits(_) => {
                    format!("`{}` ({} of the port's rate in {window}, at least {FEWEST})", limit.counter, limit.text)
                }
            }
        })
        .collect();
    let probes: Vec<String> = Benchmark::ALL.iter().map(|probe| format!("`{}`", probe.as_str())).collect();
    let _ = write!(
        out,
        "\n- Checks: {}.\n- Counters of `policy.threshold.errors`, with their defaults: {}.\n- Benchmarks of \
         `probe.probes`: {}. A peer measures for at most {MOST_SECONDS} s.\n\n| collector | what it reads |\n|---|---|\n",
        checks.join(", "),
        counters.join(", "),
        probes.join(", ")
    );
    for spec in COLLECTORS {
        let off = if ON_DEMAND.contains(&spec.name) { " (off by default)" } else { "" };
        let _ = writeln!(out, "| `{}` | {}{off} |", spec.name, spec.about);
    }
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::error::{ConfigErrors, ErrorList};
    use super::super::{parse, validate};
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        let errors = ErrorList::default();
        let config = parse(Path::new("f"), text, &errors);
        validate(Path::new("f"), &config, &errors);
        let all = errors.into_result(()).err();
        all.iter().flat_map(ConfigErrors::iter).map(ToString::to_string).collect()
    }

    /// The keys that the parser knows in a table, from its error on a key that it does not know.
    fn known(table: &str, required: &str) -> Vec<String> {
        let all = errors(&format!("{table}\n{required}unknown-key = 1\n"));
        let error = all.iter().find(|error| error.contains("unknown-key: unknown field")).unwrap();
        error.split_once("expected ").unwrap().1.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn every_key_of_the_parser_is_in_the_reference_and_no_other() {
        let mut found = Vec::new();
        for (table, required) in [
            ("[path]", ""),
            ("[log]", ""),
            ("[web]", ""),
            ("[collector]", ""),
            ("[collector.qid-map]", "path = \"/x\"\ncolumns = [\"global\"]\n"),
            ("[storage]", ""),
            ("[policy]", ""),
            ("[[policy.port]]", "match = \"x\"\n"),
            ("[[policy.link]]", "match = \"x\"\n"),
            ("[[policy.vfs]]", "match = \"x\"\ncount = 1\n"),
            ("[[policy.exception]]", "match = \"x\"\nreason = \"x\"\n"),
            ("[policy.threshold]", ""),
            ("[policy.maintenance]", ""),
            ("[probe]", ""),
            ("[probe.peers]", ""),
            ("[probe.peers.tls]", ""),
        ] {
            let name = table.trim_matches(['[', ']']);
            let list = if table.starts_with("[[") { "[]" } else { "" };
            found.extend(known(table, required).into_iter().map(|key| format!("{name}{list}.{key}")));
        }
        let in_reference = |key: &String| {
            KEYS.iter().any(|known| {
                let rest = known.name.strip_prefix(key.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || rest.starts_with("[]"))
            })
        };
        let missing: Vec<&String> = found.iter().filter(|key| !in_reference(key)).collect();
        assert!(missing.is_empty(), "not in the reference: {missing:?}");
        for key in KEYS {
            let name = key.name.trim_end_matches(".CHECK").trim_end_matches(".COUNTER");
            assert!(found.iter().any(|found| found == name), "{} is not a key", key.name);
        }
    }

    #[test]
    fn defaults_are_the_programs_own() {
        let debug = |text: &str| {
            let errors = ErrorList::default();
            let config = parse(Path::new("f"), text, &errors);
            let read = |table| super::super::TableReader::new(&errors, Path::new("f"), table);
            let policy = super::super::policy::policy(&read("policy."), &config.policy);
            let probe = super::super::probe::probe(&read("probe."), &config.probe);
            errors.into_result(format!("{policy:?} {probe:?}")).map_err(|errors| errors.to_string())
        };
        let usual = debug("").unwrap();
        for key in KEYS {
            let Some(default) = key.default else { continue };
            let is_toml = default.starts_with(['"', '[']) || default.parse::<f64>().is_ok() || default == "false";
            if is_toml && !key.name.contains("[]") && !key.name.contains("qid-map") {
                let text = format!("{} = {default}\n", key.name);
                assert_eq!(debug(&text), Ok(usual.clone()), "{text}");
            }
        }
    }

    #[test]
    fn keys_that_need_a_restart_are_told_from_those_of_the_policy() {
        let values = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let before =
            values(&[("log.level", "1"), ("policy.devices", "1"), ("probe.size", "1"), ("web.max-requests", "1")]);
        let after = values(&[("log.level", "1"), ("policy.devices", "2"), ("probe.size", "2"), ("storage.path", "1")]);
        assert_eq!(restart_keys(&before, &after), ["probe.size", "storage.path", "web.max-requests"]);
        assert!(restart_keys(&before, &before).is_empty());
    }
}

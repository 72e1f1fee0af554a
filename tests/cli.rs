//! What a person types, and what they are told when it is wrong: one line, and an exit code that says whose fault it is.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::host::HostTree;
use common::run::{Group, Output, Server, free_address, lanewatch, lanewatch_in, program, to_its_end};
use tempfile::TempDir;

/// A host with two cards; its root is `host` in the directory, so that commands there can name it.
fn place() -> TempDir {
    let directory = TempDir::new().unwrap();
    HostTree::new(2).write(&directory.path().join("host")).unwrap();
    directory
}

/// Runs in a directory with its `host`, keeping state out of the way.
fn run(place: &TempDir, arguments: &[&str]) -> Output {
    let mut all = arguments.to_vec();
    all.extend(["--path.rootfs", "host", "--storage.path", "state"]);
    lanewatch_in(place.path(), &all)
}

fn is_one_line(text: &str) -> bool {
    text.starts_with("lanewatch: ") && text.ends_with('\n') && text.matches('\n').count() == 1
}

/// The command fails with this code and this one line, after `lanewatch: `.
fn refuses(output: &Output, code: i32, line: &str) {
    assert_eq!((output.code, output.stderr.as_str()), (Some(code), format!("lanewatch: {line}\n").as_str()));
    assert_eq!(output.stdout, "");
}

#[test]
fn a_wrong_command_line_is_one_line_and_exit_2_or_3_of_check() {
    let command = lanewatch::cli::args::command();
    let commands: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    for (arguments, line) in [
        (vec!["--bogus"], "unexpected argument '--bogus' found"),
        (vec!["frobnicate"], &format!("\"frobnicate\" is not a command; the commands are {}", commands.join(", "))),
        (
            vec!["metrics", "--log.level", "loud"],
            "invalid value 'loud' for '--log.level <LEVEL>'; [possible values: error, warn, info, debug, trace]",
        ),
        (
            vec!["serve", "--web.listen-address", "nonsense"],
            "command line: --web.listen-address: \"nonsense\" is not an address such as :10015, 127.0.0.1:10015 or \
             [::1]:10015",
        ),
        (
            vec!["demo", "--web.listen-address", ":70000"],
            "command line: --web.listen-address: \":70000\" is not an address such as :10015, 127.0.0.1:10015 or \
             [::1]:10015",
        ),
        (
            vec!["--web.telemetry-path", "metrics"],
            "command line: --web.telemetry-path: \"metrics\" is not a path such as /metrics; / alone, /-/ and /api/ are reserved",
        ),
        (
            vec!["--web.max-requests", "1000000"],
            "command line: --web.max-requests: 1000000 is not between 0 and 100000",
        ),
        (
            vec!["bench", "--gid-index", "999999"],
            "invalid value '999999' for '--gid-index <N>': 999999 is not in 0..=255",
        ),
        (vec!["metrics", "--path.rootfs", "nowhere"], "command line: --path.rootfs: nowhere is not a directory"),
        (
            vec!["metrics", "--collector.device-include", "mlx5_("],
            "command line: --collector.device-include: \"mlx5_(\" is not a regular expression: found open group without \
             closing ')'",
        ),
        (
            vec!["metrics", "--textfile", "a", "--openmetrics"],
            "the argument '--textfile <PATH>' cannot be used with '--openmetrics'",
        ),
        (vec!["config"], "config needs one of these commands: check"),
        (vec!["baseline"], "baseline needs one of these commands: show, diff, accept"),
        (vec!["baseline", "--demo"], "baseline needs one of these commands: show, diff, accept"),
        (vec!["snapshot"], "the following required arguments were not provided: --output <FILE>"),
        (vec!["metrics", "extra"], "unexpected argument 'extra' found"),
        (vec!["metrics", "--config.file", "none.toml"], "none.toml: No such file or directory (os error 2)"),
    ] {
        refuses(&lanewatch(&arguments), 2, line);
    }
    for (arguments, line) in [
        (vec!["check", "--bogus"], "unexpected argument '--bogus' found"),
        (
            vec!["check", "--timeout", "soon"],
            "invalid value 'soon' for '--timeout <TIME>': \"soon\" is not a time such as 500ms, 5s or 2m",
        ),
        (
            vec!["check", "--sample", "500ms"],
            "invalid value '500ms' for '--sample <TIME>': \"500ms\" is not 0 or a time from 1s to 10m",
        ),
        (vec!["--config.file", "none.toml", "check"], "none.toml: No such file or directory (os error 2)"),
        (vec!["check", "--path.sysfs", "nowhere"], "command line: --path.sysfs: nowhere is not a directory"),
    ] {
        refuses(&lanewatch(&arguments), 3, line);
    }
}

#[test]
fn a_root_without_sysfs_is_unknown_and_not_ok() {
    let place = place();
    fs::create_dir(place.path().join("empty")).unwrap();
    for format in ["text", "nagios", "npd"] {
        let output = lanewatch_in(place.path(), &["check", "--path.rootfs", "empty", "--format", format]);
        let line = output.stdout.lines().next().unwrap();
        assert!(line.contains("no sysfs at empty/sys"), "{line}");
        assert_eq!(output.code, Some(if format == "npd" { 2 } else { 3 }), "{line}");
    }
    fs::create_dir_all(place.path().join("empty/sys/class/net")).unwrap();
    let output = lanewatch_in(place.path(), &["check", "--path.rootfs", "empty"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "OK: no RDMA devices found\n"));
    let output = run(&place, &["check", "--no-collector.rdma"]);
    assert_eq!(output.stdout.lines().next(), Some("OK: RDMA devices are not read (collector rdma is off)"));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_wrong_file_is_named_with_its_key_and_what_is_allowed() {
    let place = place();
    let collectors: Vec<&str> = lanewatch::host::COLLECTORS.iter().map(|spec| spec.name).collect();
    let collectors = collectors.join(", ");
    let checks = "port_down, port_rate_low, port_flapping";
    for (text, line) in [
        (
            "\n[web]\nlisten-adress = [\":1\"]\n",
            ":3:1: web.listen-adress: unknown field `listen-adress`, expected one of `listen-address`, `telemetry-path`",
        ),
        ("[path\n", ":1:6: unclosed table, expected `]`"),
        (
            "[log]\nlevel = \"loud\"\n",
            ":2:9: log.level: unknown variant `loud`, expected one of `error`, `warn`, `info`",
        ),
        ("[web]\nlisten-address = \":1\"\n", ":2:18: web.listen-address: invalid type: string \":1\", expected a list"),
        (
            "[web]\nmax-requests = -3\n",
            ":2:16: web.max-requests: invalid value: integer `-3`, expected a whole number from 0",
        ),
        ("[web]\nlisten-address = [\"nonsense\"]\n", ": web.listen-address[0]: \"nonsense\" is not an address such as"),
        ("[web]\ntelemetry-path = \"/api/v1/x\"\n", ": web.telemetry-path: \"/api/v1/x\" is not a path such as"),
        ("[collector]\ndevice-exclude = \"(\"\n", ": collector.device-exclude: \"(\" is not a regular expression"),
        (
            "[collector]\ndisabled = [\"pcie\"]\n",
            &format!(": collector.disabled[0]: \"pcie\" is not a collector; the collectors are {collectors}"),
        ),
        (
            "[probe]\nprobes = [\"rdma_lopback\"]\n",
            ": probe.probes[0]: \"rdma_lopback\" is not one of rdma_loopback, rdma_peer, tcp_peer, memory",
        ),
        ("[probe]\ninterval = \"5s\"\n", ": probe.interval: \"5s\" is not a time from 1m to 30d, such as 6h"),
        (
            "[probe]\nduration = \"1500ms\"\n",
            ": probe.duration: \"1500ms\" is not a whole number of seconds from 1s to 10m",
        ),
        ("[probe]\nbudget = 0.5\n", ": probe.budget: 0.5 is not between 0.00001 and 0.1"),
        ("[probe]\nbudget = 1e-300\n", ": probe.budget: 0.000"),
        ("[probe]\nbudget = nan\n", ": probe.budget: NaN is not between 0.00001 and 0.1"),
        ("[probe]\nmost-load = 0.0\n", ": probe.most-load: 0 is not between 0.01 and 100"),
        ("[probe]\ninterval = \"10y\"\n", ": probe.interval: \"10y\" is not a time from 1m to 30d, such as 6h"),
        ("[probe]\nduration = \"11m\"\n", ": probe.duration: \"11m\" is not a whole number of seconds from 1s to 10m"),
        ("[probe]\nqueue-pairs = 1025\n", ": probe.queue-pairs: 1025 is not between 1 and 1024"),
        ("[probe]\ngid-index = 999999\n", ": probe.gid-index: 999999 is not between 0 and 255"),
        ("[web]\nmax-requests = 100001\n", ": web.max-requests: 100001 is not between 0 and 100000"),
        ("[web]\ntelemetry-path = \"/\"\n", ": web.telemetry-path: \"/\" is not a path such as /metrics; / alone, /-/"),
        ("[web]\ntelemetry-path = \"/a/../b\"\n", ": web.telemetry-path: \"/a/../b\" is not a path such as"),
        ("[web]\ntelemetry-path = \"/metrics/\"\n", ": web.telemetry-path: \"/metrics/\" is not a path such as"),
        (
            "[web]\ntelemetry-path = \"/m\u{e9}trics\"\n",
            ": web.telemetry-path: \"/m\u{e9}trics\" is not a path such as",
        ),
        ("[policy.threshold]\nflaps-critical = 0\n", ": policy.threshold.flaps-critical: 0 is not between 1 and 1000"),
        (
            "[policy.threshold]\ncorrectable-aer-per-hour = 1000000001\n",
            ": policy.threshold.correctable-aer-per-hour: 1000000001 is not between 0 and 1000000000",
        ),
        (
            "[policy.threshold.errors]\nsymbol_error = 1000000000001\n",
            ": policy.threshold.errors.symbol_error: 1000000000001 is not between 0 and 1000000000000",
        ),
        (
            "[[policy.port]]\nmatch = \".*\"\nrate = \"1e300 Gb/s\"\n",
            ": policy.port[0].rate: \"1e300 Gb/s\" is not a rate such as \"200 Gb/s\", from 0.1 to 100000",
        ),
        ("[policy.hold]\nport_down = \"1y\"\n", ": policy.hold.port_down: \"1y\" is not a time from 0s to 7d"),
        ("[policy.threshold]\nsettle = \"2d\"\n", ": policy.threshold.settle: \"2d\" is not a time from 0s to 1d"),
        ("[path]\nsysfs = \"/nowhere\"\n", ": path.sysfs: /nowhere is not a directory"),
        ("[probe]\npatience = \"1h\"\n", ": probe.patience: \"1h\" is not a time from 1s to 10m"),
        ("[probe]\nsize = 0\n", ": probe.size: 0 is not between 1 and 1073741824"),
        (
            "[probe]\nprobes = [\"rdma_peer\"]\n",
            ": probe.peers.list: is missing: rdma_peer needs the list of hosts that benchmark each other",
        ),
        (
            "[probe]\nprobes = [\"tcp_peer\"]\n[probe.peers]\nlist = \"p\"\n",
            ": probe.peers.key-file: is missing: peers accept requests that are signed with a key, or come with",
        ),
        (
            "[probe]\nprobes = [\"tcp_peer\"]\nduration = \"2m\"\n[probe.peers]\nlist = \"p\"\n",
            ": probe.duration: 2m is too long: a peer measures for at most 60s",
        ),
        (
            "[probe.peers]\nslot = \"5s\"\n",
            ": probe.peers.slot: \"5s\" is not a time from 10s to 7d, at least four times probe.duration, such as 2h",
        ),
        (
            "[probe.peers]\nconcurrency = 1\n",
            ": probe.peers.concurrency: 1 is not between 2 and 100000: a pair is two hosts",
        ),
        ("[probe.peers]\nname = \"\"\n", ": probe.peers.name: \"\" is not a name of this host, such as node17"),
        ("[probe.peers.tls]\ncert-file = \"c\"\n", ": probe.peers.tls.key-file: is missing: cert-file needs its key"),
        (
            "[probe.peers]\nkey = \"x\"\n",
            ":2:1: probe.peers.key: unknown field `key`, expected one of `serve`, `list`, `name`",
        ),
        ("[probe]\ndevices = \"[\"\n", ": probe.devices: \"[\" is not a regular expression"),
        (
            "[policy.maintenance]\nwindows = [\"Saturday\"]\n",
            ": policy.maintenance.windows[0]: \"Saturday\" is not a window in UTC such as \"Sat 02:00-04:00\"",
        ),
        ("web = 3\n", ":1:7: web: invalid type: integer `3`, expected a table"),
        ("[policy.exception]\nmatch = \"x\"\n", ":1:1: policy.exception: invalid type: table, expected a list"),
        ("[log]\nformat = 3\n", ":2:10: log.format: expected a string"),
        ("[path]\nrootfs = 3\n", ":2:10: path.rootfs: invalid type: integer `3`, expected a string"),
        ("[probe]\nboth = \"x\"\n", ":2:8: probe.both: invalid type: string \"x\", expected true or false"),
        ("[probe]\nqueue-pairs = []\n", ":2:15: probe.queue-pairs: invalid type: list, expected a whole number"),
        ("[policy]\ndevices = [\"a\", 1]\n", ":2:17: policy.devices[1]: invalid type: integer `1`, expected a string"),
        ("[[policy.port]]\nup = true\n", ":1:1: policy.port[0]: missing field `match`"),
        ("[[policy.port]]\nmatch = \"[\"\n", ": policy.port[0].match: \"[\" is not a regular expression"),
        (
            "[[policy.port]]\nmatch = \".*\"\nrate = \"fast\"\n",
            ": policy.port[0].rate: \"fast\" is not a rate such as \"200 Gb/s\"",
        ),
        (
            "[[policy.link]]\nmatch = \".*\"\nspeed = \"7 GT/s\"\n",
            ": policy.link[0].speed: \"7 GT/s\" is not one of 2.5 GT/s, 5 GT/s, 8 GT/s",
        ),
        (
            "[[policy.link]]\nmatch = \".*\"\nwidth = 3\n",
            ": policy.link[0].width: 3 is not one of 1, 2, 4, 8, 12, 16, 32",
        ),
        (
            "[[policy.exception]]\nmatch = \".*\"\nchecks = [\"port_dwn\"]\nreason = \"x\"\n",
            &format!(": policy.exception[0].checks[0]: \"port_dwn\" is not a check; the checks are {checks}"),
        ),
        (
            "[policy.severity]\nport_down = \"fatal\"\n",
            ": policy.severity.port_down: \"fatal\" is not info, warning or critical",
        ),
        (
            "[policy.hold]\nport_down = \"soon\"\n",
            ": policy.hold.port_down: \"soon\" is not a time from 0s to 7d, such as 30s",
        ),
        (
            "[policy.threshold]\nsettle = \"x\"\n",
            ": policy.threshold.settle: \"x\" is not a time from 0s to 1d, such as 30m",
        ),
        (
            "[policy.threshold.errors]\nsymbols = 1\n",
            ": policy.threshold.errors.symbols: \"symbols\" is not one of symbol_error, link_error_recovery",
        ),
    ] {
        fs::write(place.path().join("lanewatch.toml"), text).unwrap();
        let wanted = format!("lanewatch: lanewatch.toml{line}");
        let checked = lanewatch_in(place.path(), &["config", "check", "lanewatch.toml"]);
        assert_eq!((checked.code, checked.stdout.as_str()), (Some(2), ""), "{text}");
        let lines: Vec<&str> = checked.stderr.lines().collect();
        assert!(lines.iter().any(|line| line.starts_with(&wanted)), "{wanted}\nnot in\n{}", checked.stderr);
        assert!(lines.iter().all(|line| line.starts_with("lanewatch: lanewatch.toml")), "{}", checked.stderr);
        for (arguments, code) in [(["metrics"], 2), (["check"], 3), (["serve"], 2)] {
            let mut all = arguments.to_vec();
            all.extend(["--config.file", "lanewatch.toml"]);
            let output = run(&place, &all);
            assert_eq!(output.code, Some(code), "{arguments:?}: {}", output.stderr);
            // `config check` looks at the files that are named, too.
            assert!(output.stderr.lines().all(|line| lines.contains(&line)), "{arguments:?}: {}", output.stderr);
        }
    }
    fs::write(place.path().join("lanewatch.toml"), b"\xff\n").unwrap();
    let output = lanewatch_in(place.path(), &["config", "check", "lanewatch.toml"]);
    refuses(&output, 2, "lanewatch.toml: invalid utf-8 sequence of 1 bytes from index 0");
    fs::write(place.path().join("lanewatch.toml"), "[policy.hold]\nport_down = \"1m\"\n").unwrap();
    let output = lanewatch_in(place.path(), &["config", "check", "lanewatch.toml"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "lanewatch.toml: ok\n"));
}

#[test]
fn every_error_of_a_file_is_reported_at_once() {
    let place = place();
    let text = "[log]\nlevel = \"loud\"\n[[policy.port]]\nmatch = \"a\"\nrate = \"fast\"\n[probe]\nsize = 0\n\
                [probe.peers]\nserve = true\n";
    fs::write(place.path().join("lanewatch.toml"), text).unwrap();
    let checked = lanewatch_in(place.path(), &["config", "check", "lanewatch.toml"]);
    let keys: Vec<&str> = ["log.level", "policy.port[0].rate", "probe.size", "probe.peers.key-file"].to_vec();
    let found: Vec<&str> = checked.stderr.lines().map(|line| line.split(": ").nth(2).unwrap_or(line)).collect();
    assert_eq!((checked.code, found), (Some(2), keys), "{}", checked.stderr);
    let output = run(&place, &["metrics", "--config.file", "lanewatch.toml"]);
    assert_eq!((output.code, output.stderr.lines().count()), (Some(2), 3), "{}", output.stderr);
}

#[test]
fn a_check_without_files_opens_no_other_file() {
    let place = place();
    fs::write(
        place.path().join("web.yml"),
        "tls_server_config: {cert_file: none.crt, key_file: none.key}\nhttp_server_config: {headers: {X-Frame-Options: deny}}\n",
    )
    .unwrap();
    let check = |more: &[&str]| {
        let mut all = vec!["config", "check", "web.yml"];
        all.extend(more);
        lanewatch_in(place.path(), &all)
    };
    assert_eq!(check(&["--no-files"]).code, Some(0), "{}", check(&["--no-files"]).stderr);
    assert!(check(&[]).stderr.contains("none.crt"), "{}", check(&[]).stderr);
}

#[test]
fn keys_that_need_a_restart_are_named() {
    let place = place();
    fs::write(place.path().join("old.toml"), "[log]\nlevel = \"info\"\n").unwrap();
    for (text, last) in [
        ("[log]\nlevel = \"warn\"\n[policy]\ndevices = [\"a\"]\n", "a restart is needed to apply log.level"),
        ("[log]\nlevel = \"info\"\n[policy]\ndevices = [\"a\"]\n", "a reload applies every change"),
    ] {
        fs::write(place.path().join("new.toml"), text).unwrap();
        let output = lanewatch_in(place.path(), &["config", "check", "new.toml", "--against", "old.toml"]);
        assert_eq!((output.code, output.stdout.lines().last()), (Some(0), Some(last)), "{}", output.stderr);
    }
}

#[test]
fn read_commands_answer_from_the_example_host() {
    let place = place();
    let demo = |arguments: &[&str]| {
        let mut all = arguments.to_vec();
        all.push("--demo");
        lanewatch_in(place.path(), &all)
    };
    let check = demo(&["check"]);
    assert_eq!(check.code, Some(2), "{}", check.stderr);
    assert!(check.stdout.contains("pcie_degraded 0000:b2:00.0"), "{}", check.stdout);
    for (arguments, code, part) in [
        (&["explain", "mlx5_1"][..], 0, "63.0 Gb/s"),
        (&["metrics"], 0, "lanewatch_device_info{device=\"mlx5_1\""),
        (&["vf"], 0, ""),
        (&["baseline", "show"], 0, "mlx5_1"),
        (&["baseline", "diff"], 1, "pcie_drifted"),
    ] {
        let output = demo(arguments);
        assert_eq!((output.code, output.stdout.contains(part)), (Some(code), true), "{arguments:?}: {output:?}");
    }
    refuses(&demo(&["baseline", "accept"]), 2, "the example host has no baseline to accept");
    refuses(&demo(&["serve"]), 2, "serve reads this host; `lanewatch demo` serves the example host");
    refuses(
        &lanewatch(&["explain", "--demo", "--path.rootfs", "/"]),
        2,
        "the argument '--demo' cannot be used with '--path.rootfs <DIR>'",
    );
    let twice = [demo(&["explain"]), demo(&["explain"])].map(|output| output.stdout);
    assert_eq!(twice[0], twice[1]);
}

#[test]
fn an_exit_map_that_is_given_applies_to_every_format() {
    let code = |arguments: &[&str]| {
        let mut all = vec!["check", "--demo"];
        all.extend(arguments);
        lanewatch(&all).code
    };
    assert_eq!(code(&["--format", "npd"]), Some(1));
    assert_eq!(code(&["--format", "npd", "--exit-map", "nagios"]), Some(2));
    assert_eq!(code(&["--format", "npd", "--exit-map", "binary"]), Some(1));
    assert_eq!(code(&["--exit-map", "npd"]), Some(1));
}

#[test]
fn help_version_completions_and_manual_are_there() {
    let help = lanewatch(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for word in ["serve", "check", "explain", "demo", "--path.rootfs", "--no-collector.NAME", "LANEWATCH_CONFIG_FILE"] {
        assert!(help.stdout.contains(word), "{word}");
    }
    for command in ["serve", "check", "explain", "metrics", "baseline", "snapshot", "demo", "config", "man"] {
        let help = lanewatch(&[command, "--help"]);
        assert_eq!(
            (help.code, help.stdout.contains(&format!("Usage: lanewatch {command}"))),
            (Some(0), true),
            "{command}"
        );
    }
    for flag in ["--version", "-V"] {
        assert_eq!(lanewatch(&[flag]).stdout, concat!("lanewatch ", env!("CARGO_PKG_VERSION"), "\n"));
    }
    for (shell, part) in
        [("bash", "complete -F _lanewatch"), ("zsh", "#compdef lanewatch"), ("fish", "complete -c lanewatch")]
    {
        let script = lanewatch(&["completions", shell]);
        assert_eq!(script.code, Some(0));
        assert!(script.stdout.contains(part) && script.stdout.contains("path.rootfs"), "{shell}");
    }
    let page = lanewatch(&["man", "check"]);
    assert_eq!(page.code, Some(0));
    for part in ["lanewatch\\-check", "exit\\-map", "path.rootfs"] {
        assert!(page.stdout.contains(part), "{part} is not in {}", page.stdout);
    }
    assert!(lanewatch(&["man", "chek"]).stderr.starts_with("lanewatch: \"chek\" is not a command; the commands are "));
    let manual = lanewatch(&["man"]);
    assert!(manual.code == Some(0) && manual.stdout.contains(".SH NAME\nlanewatch"), "{}", manual.stdout);
}

/// Samples of a collector's own metrics say whether it ran.
fn runs(exposition: &str, collector: &str) -> bool {
    exposition.contains(&format!("lanewatch_collector_success{{collector=\"{collector}\"}}"))
}

#[test]
fn collectors_are_switched_at_any_place_and_the_last_word_holds() {
    let place = place();
    for (arguments, wanted) in [
        (vec!["metrics"], true),
        (vec!["--no-collector.pci", "metrics"], false),
        (vec!["metrics", "--no-collector.pci"], false),
        (vec!["--collector.pci", "metrics", "--no-collector.pci"], false),
        (vec!["metrics", "--no-collector.pci", "--collector.pci"], true),
    ] {
        let output = run(&place, &arguments);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert!(runs(&output.stdout, "rdma"));
        assert_eq!(runs(&output.stdout, "pci"), wanted, "{arguments:?}");
    }
}

#[test]
fn flags_go_before_the_environment_before_the_file_before_the_defaults() {
    let place = place();
    fs::write(
        place.path().join("lanewatch.toml"),
        "[collector]\ndevice-include = \"mlx5_0\"\ndisabled = [\"pci\", \"numa\"]\n",
    )
    .unwrap();
    let devices = |variable: Option<&str>, flags: &[&str]| {
        let mut command = program();
        command.args(["metrics", "--path.rootfs", "host", "--storage.path", "state"]).args(flags);
        command.current_dir(place.path());
        if let Some(pattern) = variable {
            command.env("LANEWATCH_COLLECTOR_DEVICE_INCLUDE", pattern);
        }
        let text = to_its_end(command, Duration::from_secs(60)).stdout;
        let here = |name: &str| text.contains(&format!("lanewatch_device_info{{device=\"{name}\""));
        (here("mlx5_0"), here("mlx5_1"), runs(&text, "pci"), runs(&text, "numa"))
    };
    let file = ["--config.file", "lanewatch.toml"];
    assert_eq!(devices(None, &[]), (true, true, true, true), "defaults");
    assert_eq!(devices(None, &file), (true, false, false, false), "the file");
    assert_eq!(devices(Some("mlx5_1"), &file), (false, true, false, false), "the environment");
    let flags = [file[0], file[1], "--collector.device-include", "mlx5_.*", "--collector.pci"];
    assert_eq!(devices(Some("mlx5_1"), &flags), (true, true, true, false), "flags");
}

#[test]
fn serve_is_meant_where_no_command_is_named() {
    // The name of a command is only a value here.
    let (address, directory) = (free_address(), place());
    let mut command = program();
    command.args(["--storage.path", "check", "--path.rootfs"]).arg(directory.path().join("host"));
    command.arg("--web.listen-address").arg(address.to_string());
    let server = Server::spawn(command, address, directory, "/-/ready");
    assert!(server.get("/metrics").text().contains("lanewatch_device_info{device=\"mlx5_0\""));
    assert!(server.directory.path().join("check").is_dir(), "{}", server.log());
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let place = place();
    for arguments in [&["metrics"][..], &["metrics", "--openmetrics"], &["completions", "bash"], &["--help"], &["man"]]
    {
        let mut command = program();
        command.args(arguments).current_dir(place.path()).env("LANEWATCH_PATH_ROOTFS", "host");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut group = Group::spawn(&mut command);
        drop(group.child.stdout.take());
        let mut said = String::new();
        BufReader::new(group.child.stderr.take().unwrap()).read_line(&mut said).unwrap();
        let status = group.wait(Duration::from_secs(60)).unwrap();
        assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn a_full_disk_is_said() {
    let place = place();
    for arguments in ["metrics", "--help", "man"] {
        let mut command = Command::new("sh");
        let script = format!("exec {} {arguments} >/dev/full", common::run::PROGRAM);
        command.args(["-c", &script]).current_dir(place.path()).env("LANEWATCH_PATH_ROOTFS", "host");
        let output = to_its_end(command, Duration::from_secs(60));
        refuses(&output, 1, "No space left on device (os error 28)");
    }
}

/// Names in a directory, hidden ones too.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_textfile_is_there_whole_or_as_it_was() {
    let place = place();
    let out = place.path().join("out");
    fs::create_dir(&out).unwrap();
    let written = run(&place, &["metrics", "--textfile", "out/lanewatch.prom"]);
    assert_eq!((written.code, written.stdout.as_str(), written.stderr.as_str()), (Some(0), "", ""));
    let text = fs::read_to_string(out.join("lanewatch.prom")).unwrap();
    assert!(text.contains("lanewatch_device_info{device=\"mlx5_1\"") && !text.contains("# EOF"));
    assert_eq!(names(&out), ["lanewatch.prom"]);

    fs::create_dir(out.join("taken.prom")).unwrap();
    fs::write(out.join("taken.prom/old"), "old").unwrap();
    refuses(
        &run(&place, &["metrics", "--textfile", "out/taken.prom"]),
        1,
        "cannot write out/taken.prom: not a regular file",
    );
    refuses(
        &run(&place, &["metrics", "--textfile", "none/x.prom"]),
        1,
        "cannot write none/x.prom: No such file or directory (os error 2)",
    );
    assert_eq!(names(&out), ["lanewatch.prom", "taken.prom"], "nothing is left behind");
    assert_eq!(fs::read_to_string(out.join("taken.prom/old")).unwrap(), "old");
    assert_eq!(fs::read_to_string(out.join("lanewatch.prom")).unwrap(), text);
}

#[test]
fn what_cannot_be_kept_is_said_once() {
    let place = place();
    fs::write(place.path().join("file"), "").unwrap();
    let all = ["baseline", "accept", "--path.rootfs", "host", "--storage.path", "file/state"];
    let output = lanewatch_in(place.path(), &all);
    assert_eq!(output.code, Some(1));
    for why in ["no state yet: ", "state/state.json cannot be read ("] {
        let shown = lanewatch_in(place.path(), &["baseline", "show", "--storage.path", "state"]);
        assert_eq!((shown.code, shown.stdout.as_str()), (Some(1), ""));
        assert!(is_one_line(&shown.stderr) && shown.stderr.contains(why), "{}", shown.stderr);
        fs::create_dir_all(place.path().join("state")).unwrap();
        fs::write(place.path().join("state/state.json"), "{broken").unwrap();
    }
    assert!(is_one_line(&output.stderr) && output.stderr.matches("os error").count() == 1, "{}", output.stderr);
}

#[test]
fn the_module_reader_takes_no_arguments_and_no_socket_of_its_own() {
    use std::os::unix::process::CommandExt as _;
    let reader = |arguments: &[&str]| {
        let mut command = program();
        command.arg0("lanewatch-module-reader").args(arguments).env_remove("LISTEN_FDS");
        to_its_end(command, Duration::from_secs(20))
    };
    let output = reader(&["eth2"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""));
    assert!(output.stderr.starts_with("lanewatch-module-reader takes no arguments"), "{}", output.stderr);
    let output = reader(&[]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.starts_with("lanewatch-module-reader has no socket"), "{}", output.stderr);
}

/// The module reader with a listening socket as systemd hands it over, until it is dropped.
struct ModuleReader {
    child: std::process::Child,
    socket: std::path::PathBuf,
}

impl ModuleReader {
    fn start(directory: &Path) -> Self {
        use std::os::fd::AsRawFd as _;
        let socket = directory.join("reader.sock");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        // `exec` keeps the process, which LISTEN_PID must name.
        let script = format!(
            "exec 3<&{}; LISTEN_FDS=1 LISTEN_PID=$$ exec -a lanewatch-module-reader {}",
            listener.as_raw_fd(),
            program().get_program().display()
        );
        rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).unwrap();
        let child = std::process::Command::new("bash").args(["-c", &script]).spawn().unwrap();
        Self { child, socket }
    }

    fn ask(&self, request: &str) -> String {
        use std::io::{Read as _, Write as _};
        let mut stream = std::os::unix::net::UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// A line of `/proc/PID/status`.
    fn status(&self, key: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.unwrap().trim().to_owned()
    }
}

impl Drop for ModuleReader {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

#[test]
fn the_module_reader_has_one_capability_and_refuses_everything_but_its_requests() {
    const NET_ADMIN: u64 = 1 << 12;
    let place = place();
    let reader = ModuleReader::start(place.path());
    for request in ["values\n", "values lo\n", "write eth0\n", "identity ../x\n", "GET / HTTP/1.1\r\n\r\n", "\n"] {
        assert_eq!(reader.ask(request), "refused\n", "{request:?}");
    }
    // Once it answers, it has given up what it was started with.
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let set = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let ours = own.lines().find_map(|line| line.strip_prefix("CapEff:")).map(|text| set(text.trim())).unwrap();
    for key in ["CapEff", "CapPrm"] {
        assert_eq!(set(&reader.status(key)), ours & NET_ADMIN, "{key}");
    }
    assert_eq!((set(&reader.status("CapInh")), reader.status("Threads")), (0, "1".to_owned()));
}

#[test]
fn explain_reads_what_other_tools_printed() {
    let place = place();
    let file = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    file(
        "mstlink.json",
        r#"{"result":{"output":{"Operational Info":{"State":"Polling"},"Troubleshooting Info":{"Status Opcode":"1024",
        "Recommendation":"Cable is unplugged"}}},"status":{"code":0,"message":"success"}}"#,
    );
    file("statistics.txt", "NIC statistics:\n     rx_packets: 12\n     rx_corrected_bits_phy: 0\n");
    file("other.txt", "hello\n");
    let output = lanewatch_in(place.path(), &["explain", "--read", "mstlink.json", "statistics.txt"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(
        output.stdout.contains("mstlink.json:\n  link: Polling\n  firmware: Cable is unplugged\n"),
        "{}",
        output.stdout
    );
    assert!(output.stdout.contains("  ! no link: no cable detected. Plug it in or reseat it"), "{}", output.stdout);
    let output = lanewatch_in(place.path(), &["explain", "--read", "statistics.txt"]);
    assert_eq!(output.code, Some(0), "{}", output.stdout);
    let output = lanewatch_in(place.path(), &["explain", "--read", "other.txt"]);
    assert!(output.code == Some(1) && output.stdout.contains("not the output of mstlink --json"), "{}", output.stdout);
    let output = lanewatch_in(place.path(), &["explain", "--read", "missing.txt"]);
    refuses(&output, 2, "--read missing.txt: no such file");
}

//! The help of every command: only flags that it uses; `-h` fits a screen, `--help` lists all flags with examples.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::{Arg, Command};

use crate::host::{COLLECTORS, ON_DEMAND};

/// Commands that read a host.
const READERS: [&str; 8] = ["check", "explain", "vf", "topo", "bench", "metrics", "baseline", "snapshot"];

/// What every long help ends with.
const ENVIRONMENT: &str = "A flag with a dot in its name can also be set in the environment: --config.file is \
                           LANEWATCH_CONFIG_FILE. The command line wins.";

/// What the full help of `audit` ends with.
const AUDIT_ENVIRONMENT: &str =
    "LANEWATCH_PROMETHEUS, _BEARER_TOKEN_FILE, _USERNAME, _PASSWORD_FILE and _TENANT set these flags, too.";

/// Examples by command.
const EXAMPLES: [(&str, &str); 14] = [
    (
        "",
        "lanewatch check --demo             see what a fault looks like\nlanewatch check                    check this host\nlanewatch help COMMAND             all flags of a command, with examples",
    ),
    (
        "serve",
        "lanewatch serve\nlanewatch serve --web.listen-address 127.0.0.1:10015 --config.file /etc/lanewatch/lanewatch.toml\nlanewatch serve --path.rootfs /host --no-collector.holders",
    ),
    (
        "check",
        "lanewatch check\nlanewatch check --demo\nlanewatch check --format nagios --sample 0\nlanewatch check --format json | jq '.findings[].check'\nlanewatch check --path.rootfs DIR      a host recorded with `lanewatch snapshot`",
    ),
    ("explain", "lanewatch explain mlx5_1\nlanewatch explain 0000:98:00.0\nlanewatch explain --demo mlx5_1"),
    (
        "topo",
        "lanewatch topo\nlanewatch topo --demo\nlanewatch topo --format json\nlanewatch explain node0      the PCIe tree of a NUMA node",
    ),
    ("vf", "lanewatch vf\nlanewatch vf 0000:98:00.0 --since 2h\nlanewatch vf --format json"),
    (
        "bench",
        "lanewatch bench mlx5_1\nlanewatch bench memory\nlanewatch bench mlx5_1 --peer node18\nib_write_bw node18 | lanewatch bench --read - mlx5_1",
    ),
    (
        "metrics",
        "lanewatch metrics\nlanewatch metrics --demo --openmetrics\nlanewatch metrics --textfile /var/lib/node_exporter/lanewatch.prom",
    ),
    (
        "baseline",
        "lanewatch baseline show\nlanewatch baseline diff\nlanewatch baseline accept      after a planned change of hardware",
    ),
    ("snapshot", "lanewatch snapshot --output host.tar.gz"),
    ("demo", "lanewatch demo\nlanewatch demo --pace 10 --web.listen-address 127.0.0.1:10015"),
    (
        "audit",
        "lanewatch audit --prometheus http://prometheus:9090\nlanewatch audit --prometheus http://prometheus:9090 --by site,rack\nlanewatch audit --prometheus http://mimir/prometheus --tenant hpc --fail-on 'stranded>5%'",
    ),
    (
        "config",
        "lanewatch config check /etc/lanewatch/lanewatch.toml\nlanewatch config check --no-files node17.toml\nlanewatch config check new.toml --against /etc/lanewatch/lanewatch.toml",
    ),
    ("completions", "lanewatch completions bash > /etc/bash_completion.d/lanewatch"),
];

/// Gives every command its own help.
pub(super) fn tailor(mut root: Command) -> Command {
    let shared: Vec<Arg> = root.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    let names: Vec<String> = root.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in names {
        root = root.mut_subcommand(&name, |command| tailored(command, &name, &shared));
    }
    let hidden = |arg: Arg| if arg.get_id() == "demo" { arg.hide(true) } else { arg.hide_short_help(true) };
    root.mut_args(described)
        .mut_args(|arg| if arg.is_global_set() { hidden(arg) } else { arg })
        .after_long_help(long_end("", true))
}

/// A command, or one of its own commands, whose path is `baseline show`.
fn tailored(mut command: Command, path: &str, shared: &[Arg]) -> Command {
    for arg in shared {
        command = command.arg(arg.clone().hide(arg.is_hide_set() || !uses(path, arg.get_id().as_str())));
    }
    let own: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in own {
        command = command.mut_subcommand(&name, |command| tailored(command, &format!("{path} {name}"), shared));
    }
    let collectors = uses(path, "device_include");
    let more = format!("More flags and examples: lanewatch {path} --help");
    let short = if collectors { format!("{COLLECTOR_FLAGS}\n{more}") } else { more };
    command.mut_args(described).after_help(short).after_long_help(long_end(path, collectors))
}

const COLLECTOR_FLAGS: &str = "Collectors: --collector.NAME and --no-collector.NAME switch one on or off.";

/// The full help that these arguments ask for, one line per flag; `None` if they ask for the short one (`-h`).
pub fn full(arguments: &[OsString]) -> Option<String> {
    if !arguments.iter().skip(1).any(|word| word == "--help" || word == "help") {
        return None;
    }
    let mut command = super::command();
    command.build();
    let mut path: Vec<String> = Vec::new();
    for word in arguments.iter().skip(1).filter(|word| *word != "help") {
        if let Some(own) = word.to_str().and_then(|word| command.find_subcommand(word)).cloned() {
            path.push(own.get_name().to_owned());
            command = own;
        }
    }
    Some(expanded(command, &path.join(" ")))
}

/// The help of a built command with all of its flags.
fn expanded(command: Command, path: &str) -> String {
    let end = long_end(path, path.is_empty() || uses(path, "device_include"));
    let help = command.mut_args(|arg| arg.hide_short_help(false)).after_help(end).render_help().to_string();
    help.replace("(see more with '--help')", "(see a summary with '-h')")
}

/// Whether a command uses a shared flag.
fn uses(path: &str, flag: &str) -> bool {
    let name = path.split(' ').next().unwrap_or_default();
    let reads = READERS.contains(&name) && path != "baseline show";
    match flag {
        "demo" => READERS.contains(&name) && path != "baseline accept",
        "rootfs" | "sysfs" | "procfs" => reads || name == "serve",
        "config" => READERS.contains(&name) || matches!(name, "serve" | "demo"),
        "storage" => name != "snapshot" && (READERS.contains(&name) || name == "serve"),
        "log_level" | "log_format" => matches!(name, "serve" | "demo"),
        _ => reads || matches!(name, "serve" | "demo"),
    }
}

/// An argument whose environment variable is in its long help only, and whose values its own text names.
fn described(mut arg: Arg) -> Arg {
    if arg.get_action().takes_values() {
        arg = arg.hide_possible_values(true);
    }
    let Some(variable) = arg.get_env().map(|name| name.to_string_lossy().into_owned()) else {
        return arg;
    };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let more = arg.get_long_help().map_or(help, ToString::to_string);
    arg.hide_env(true).long_help(format!("{more}\n\n[env: {variable}]"))
}

/// What the long help of a command ends with.
fn long_end(path: &str, collectors: bool) -> String {
    let name = path.split(' ').next().unwrap_or_default();
    let mut end = Vec::new();
    if collectors {
        let names: Vec<&str> = COLLECTORS.iter().map(|spec| spec.name).collect();
        end.push(format!(
            "Collectors, switched on or off by --collector.NAME and --no-collector.NAME; the last one given wins:\n  {}. \
             Off by default: {}",
            names.join(", "),
            ON_DEMAND.join(", ")
        ));
    }
    if let Some((_, lines)) = EXAMPLES.iter().find(|(command, _)| *command == name) {
        let lines: Vec<String> = lines.lines().map(|line| format!("  {line}")).collect();
        end.push(format!("Examples:\n{}", lines.join("\n")));
    }
    if collectors {
        end.push(ENVIRONMENT.to_owned());
    } else if name == "audit" {
        end.push(AUDIT_ENVIRONMENT.to_owned());
    }
    end.join("\n\n")
}

/// Every command with its flags, in Markdown.
pub fn markdown(mut program: Command) -> String {
    program.build();
    let mut out = String::new();
    let mut waiting: Vec<Command> = program.get_subcommands().cloned().collect();
    waiting.reverse();
    while let Some(mut command) = waiting.pop() {
        let mut own: Vec<Command> = command.get_subcommands().filter(|own| own.get_name() != "help").cloned().collect();
        if command.get_name() == "help" {
            continue;
        }
        let usage = command.render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ");
        let title = command.get_bin_name().unwrap_or_default().to_owned();
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = write!(out, "\n### `{title}`\n\n{about}.\n\n```text\n{usage}\n```\n");
        if own.is_empty() {
            out.push_str(&flags(&command));
        }
        own.reverse();
        waiting.extend(own);
    }
    out
}

/// The table of a command's arguments and flags.
fn flags(command: &Command) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let mut out = String::from("\n| flag | what it is for | environment |\n|---|---|---|\n");
    for arg in
        command.get_arguments().filter(|arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version"))
    {
        let value = arg.get_value_names().unwrap_or_default().first().filter(|_| arg.get_action().takes_values());
        let value = value.map(|name| format!("<{name}>")).unwrap_or_default();
        let flag = match (arg.get_short(), arg.get_long()) {
            (_, None) => value,
            (short, Some(long)) => {
                let short = short.map(|short| format!("-{short}, ")).unwrap_or_default();
                format!("{short}--{long}{}{value}", if value.is_empty() { "" } else { " " })
            }
        };
        let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let shown = !defaults.is_empty() && arg.get_action().takes_values() && !arg.is_hide_default_value_set();
        let default = if shown { format!(" [default: {}]", defaults.join(",")) } else { String::new() };
        let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
        let _ = writeln!(out, "| `{flag}` | {}{default} | {variable} |", cell(&about));
    }
    if command.get_arguments().any(|arg| arg.get_id() == "device_include" && !arg.is_hide_set()) {
        out.push_str("| `--collector.NAME`, `--no-collector.NAME` | Switch a collector on or off | |\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::command;
    use super::*;

    /// Every command with its whole name, built.
    fn all() -> Vec<Command> {
        let mut program = command().term_width(80);
        program.build();
        let mut commands = vec![program];
        let mut next = 0;
        while let Some(command) = commands.get(next).cloned() {
            let own = command.get_subcommands().filter(|command| command.get_name() != "help");
            commands.extend(own.cloned());
            next += 1;
        }
        commands
    }

    #[test]
    fn the_short_help_of_every_command_fits_a_screen() {
        for mut command in all() {
            let help = command.render_help().to_string();
            let (lines, widest) = (help.lines().count(), help.lines().map(|line| line.chars().count()).max());
            let limit = if command.get_name() == "audit" { 30 } else { 24 };
            assert!(lines <= limit && widest <= Some(80), "{}: {lines} lines, {widest:?}:\n{help}", command.get_name());
        }
    }

    /// The full help of a command.
    fn listed(path: &str) -> String {
        let words = ["lanewatch", path, "--help"].join(" ");
        full(&words.split_whitespace().map(Into::into).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn the_full_help_of_every_command_fits_a_tall_screen() {
        let names: Vec<String> = command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
        for name in names.iter().map(String::as_str).chain(["", "baseline diff", "config check"]) {
            let help = listed(name);
            assert!(help.lines().count() <= 50, "{name}: {} lines:\n{help}", help.lines().count());
            assert!(help.contains(format!("Usage: lanewatch {name}").trim()), "{help}");
        }
        assert_eq!(full(&["lanewatch".into(), "check".into(), "-h".into()]), None);
    }

    #[test]
    fn a_command_lists_only_flags_that_it_uses() {
        for (command, flag, there) in [
            ("check", "--path.rootfs", true),
            ("check", "--demo", true),
            ("check", "--log.level", false),
            ("check", "--web.listen-address", false),
            ("serve", "--log.level", true),
            ("serve", "--demo", false),
            ("demo", "--path.rootfs", false),
            ("demo", "--storage.path", false),
            ("snapshot", "--storage.path", false),
            ("audit", "--path.rootfs", false),
            ("audit", "--collector.", false),
            ("completions", "--config.file", false),
            ("config", "--path.rootfs", false),
        ] {
            assert_eq!(listed(command).contains(flag), there, "{command} {flag}");
        }
        let check = listed("check");
        assert_eq!(check.matches("--no-collector.").count(), 1, "{check}");
        for spec in COLLECTORS {
            assert!(check.contains(spec.name), "{}", spec.name);
        }
        assert!(check.contains("Examples:") && check.contains("LANEWATCH_CONFIG_FILE"), "{check}");
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        for (name, lines) in EXAMPLES {
            assert!(name.is_empty() || command().find_subcommand(name).is_some(), "{name}");
            for line in lines.lines() {
                let words = line.split("  ").next().unwrap().split(" > ").next().unwrap().split(" | ");
                let ours = words.map(str::trim).find(|part| part.starts_with("lanewatch")).unwrap();
                let words: Vec<std::ffi::OsString> =
                    ours.replace("help COMMAND", "help check").replace('\'', "").split(' ').map(Into::into).collect();
                if let Err(error) = super::super::parse(words) {
                    assert!(!error.use_stderr(), "{line}: {error}");
                }
            }
        }
    }
}

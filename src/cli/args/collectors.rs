//! Flags that switch collectors on and off.

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::host::COLLECTORS;

/// Adds a pair of flags for each collector. Their help is one entry for all of them, so that it stays short.
pub fn add_flags(mut command: Command) -> Command {
    for spec in COLLECTORS {
        let arg = |name: String, help: String| {
            Arg::new(name.clone()).long(name).help(help).action(ArgAction::SetTrue).global(true).hide(true)
        };
        let (on, off) = (format!("collector.{}", spec.name), format!("no-collector.{}", spec.name));
        command = command
            .arg(arg(on.clone(), format!("Switch on: {}", spec.about)).overrides_with(off.clone()))
            .arg(arg(off, format!("Switch off: {}", spec.about)).overrides_with(on));
    }
    command
}

/// The collectors that the command line switches on or off, in the order of the catalogue.
pub fn collector_flags(matches: &ArgMatches) -> Vec<(&'static str, bool)> {
    let deepest = std::iter::successors(Some(matches), |m| m.subcommand().map(|(_, m)| m)).last().unwrap_or(matches);
    let given = |name: &str| {
        deepest.try_contains_id(name).is_ok_and(|known| known)
            && deepest.value_source(name) == Some(clap::parser::ValueSource::CommandLine)
            && deepest.get_flag(name)
    };
    let mut flags = Vec::new();
    for spec in COLLECTORS {
        if given(&format!("collector.{}", spec.name)) {
            flags.push((spec.name, true));
        }
        if given(&format!("no-collector.{}", spec.name)) {
            flags.push((spec.name, false));
        }
    }
    flags
}

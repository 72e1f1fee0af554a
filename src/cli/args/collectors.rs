//! Flags that switch collectors on and off.

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::host::{COLLECTORS, ON_DEMAND};

/// A command with a pair of flags for each collector.
pub fn add_flags(mut command: Command) -> Command {
    for spec in COLLECTORS {
        let arg = |name: String, help: String| {
            let heading = "Collectors";
            Arg::new(name.clone()).long(name).help(help).action(ArgAction::SetTrue).global(true).help_heading(heading)
        };
        let about = within(spec.about);
        let default = if ON_DEMAND.contains(&spec.name) { "" } else { " (default)" };
        let (on, off) = (format!("collector.{}", spec.name), format!("no-collector.{}", spec.name));
        command = command
            .arg(arg(on.clone(), format!("Read {about}{default}")).overrides_with(off.clone()))
            .arg(arg(off, format!("Do not read {about}")).overrides_with(on));
    }
    command
}

/// A text as it goes on in a sentence: its first word without a capital, unless it is a name such as PCIe.
fn within(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

/// Collectors that the command line switches on or off.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_goes_on_in_a_sentence() {
        assert_eq!(within("Who holds VFs"), "who holds VFs");
        assert_eq!(within("PCIe link speed"), "PCIe link speed");
        assert_eq!((within("PFs"), within("A"), within("")), ("PFs".to_owned(), "A".to_owned(), String::new()));
    }

    #[test]
    fn help_texts_are_of_one_style() {
        let mut commands = vec![super::super::command()];
        while let Some(command) = commands.pop() {
            let of_command = command.get_about().map(ToString::to_string).unwrap_or_default();
            let of_arguments = command.get_arguments().map(|argument| {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                (argument.get_id().to_string(), help)
            });
            for (name, help) in of_arguments.chain([(command.get_name().to_owned(), of_command)]) {
                let begins = help.chars().next().is_some_and(char::is_uppercase);
                assert!(begins && !help.ends_with('.') && help.is_ascii(), "{name}: {help:?}");
                let wrong = help.strip_prefix("Read ").or(help.strip_prefix("Do not read ")).is_some_and(|rest| {
                    let mut chars = rest.chars();
                    chars.next().is_some_and(char::is_uppercase) && chars.next().is_some_and(char::is_lowercase)
                });
                assert!(!wrong, "{name}: {help:?}");
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }
}

//! Manual pages, made of the command line's own definition.

use super::args;
use super::error::{self, CliError};

/// The page of a command, in roff; the program's own where none is named.
///
/// # Errors
/// There is no such command.
pub(super) fn page(of: Option<&str>) -> Result<Vec<u8>, CliError> {
    let mut program = args::command().disable_help_subcommand(true);
    // Gives the commands the flags that all have, and names as `lanewatch-check`.
    program.build();
    let command = match of {
        None => program,
        Some(name) => program.find_subcommand(name).cloned().ok_or_else(|| error::not_a_command(name))?,
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(page)
}

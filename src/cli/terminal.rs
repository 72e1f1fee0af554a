//! What the terminal, and whoever set it up, can show and wants.

use std::ffi::OsString;
use std::io::IsTerminal;

/// Whether the locale's characters are Unicode: what is set first of these says so, and where nothing is, none are.
pub fn writes_unicode() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Whether a stream is a terminal that knows more than lines of text.
pub fn is_capable(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && set("TERM").is_some_and(|kind| kind != "dumb")
}

/// Whether a stream should get colours, where nobody said.
pub fn wants_colour(stream: &impl IsTerminal) -> bool {
    is_capable(stream) && set("NO_COLOR").is_none()
}

fn set(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

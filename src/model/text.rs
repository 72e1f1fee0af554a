//! Free text of others: names of machines and processes, firmware strings, kernel messages, answers of servers.
//!
//! Whoever chose it must not be able to move the reader's cursor, forge a line, turn letters around or fill a label. So
//! it is bounded where it comes in ([`name`], [`bounded`]), and everything that leaves the program passes
//! [`visible_lines`] or [`visible`].

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

/// Longest name, in bytes: of a machine, a process, a device, a firmware.
pub const LONGEST_NAME: usize = 256;
/// Longest sentence, in bytes: of an event or a finding.
pub const LONGEST_SENTENCE: usize = 4096;
/// What stands at the end of a text that was cut.
pub const CUT: char = '\u{2026}';

/// Whether a character acts on the terminal or on the letters around it instead of being seen.
const fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{0}'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
    )
}

/// A text of one line: what would not be seen is written as in JSON, `\u001b`.
pub fn visible(text: &str) -> Cow<'_, str> {
    escape(text, is_hidden)
}

/// A text of any number of lines: the same, but newlines and tabs stay.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_hidden(c) && c != '\n' && c != '\t')
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    // Nearly every text.
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) || !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// A text of one line of at most so many bytes; one that was cut ends with [`CUT`].
pub fn bounded(text: &str, longest: usize) -> Cow<'_, str> {
    let text = visible(text);
    if text.len() <= longest {
        return text;
    }
    let room = longest.saturating_sub(CUT.len_utf8());
    let end = (0..=room).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let mut cut = text.get(..end).unwrap_or_default().to_owned();
    cut.push(CUT);
    Cow::Owned(cut)
}

/// A name that others chose.
pub fn name(text: &str) -> Arc<str> {
    Arc::from(bounded(text, LONGEST_NAME))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_seen() {
        let table = [
            ("mlx5_0", "mlx5_0"),
            ("\u{e4}\u{4e2d}\u{2026}", "\u{e4}\u{4e2d}\u{2026}"),
            ("\x1b[2J\x1b]0;x\x07", "\\u001b[2J\\u001b]0;x\\u0007"),
            ("a\nb\tc", "a\\u000ab\\u0009c"),
            ("\u{9b}31m\u{202e}gro", "\\u009b31m\\u202egro"),
        ];
        for (text, seen) in table {
            assert_eq!(visible(text), seen);
        }
        assert_eq!(visible_lines("a\nb\t\r\x1b"), "a\nb\t\\u000d\\u001b");
    }

    #[test]
    fn long_names_are_cut_with_a_marker() {
        assert_eq!(&*name(&"x".repeat(256)), "x".repeat(256));
        let cut = name(&"\u{e4}".repeat(60_000));
        assert!(cut.len() <= LONGEST_NAME && cut.ends_with(CUT), "{cut}");
    }

    proptest! {
        #[test]
        fn no_control_character_ever_leaves(text in any::<String>(), longest in 3_usize..100) {
            let one = visible(&text);
            prop_assert!(!one.chars().any(|c| c.is_control() || is_hidden(c)));
            let lines = visible_lines(&text);
            prop_assert!(!lines.chars().any(|c| (c.is_control() || is_hidden(c)) && c != '\n' && c != '\t'));
            prop_assert_eq!(lines.matches('\n').count(), text.matches('\n').count());
            prop_assert!(bounded(&text, longest).len() <= longest);
        }
    }
}

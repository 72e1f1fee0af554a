//! The kernel's format strings as patterns: `Slot(%s): Power fault` fits `Slot(2): Power fault`.

/// What stands for a value in a format string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// `%d`, `%u`, `%lld` and the like.
    Decimal,
    /// `%x`, with or without `0x`.
    Hex,
    /// `%s`, `%pR`, `%p` and whatever else prints words.
    Words,
}

impl Value {
    fn fits(self, text: &str) -> bool {
        match self {
            Self::Decimal => {
                let digits = text.trim_start().trim_start_matches('-');
                !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
            }
            Self::Hex => {
                let digits = text.trim().trim_start_matches("0x");
                !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            }
            Self::Words => true,
        }
    }
}

/// Part of a format string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// Printed as it is.
    Literal(&'a str),
    /// A value.
    Value(Value),
}

/// The parts of a format string in their order.
pub fn parts(format: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = format;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(conversion) = rest.strip_prefix('%') else {
            let (literal, after) = rest.split_at(rest.find('%').unwrap_or(rest.len()));
            rest = after;
            return Some(Part::Literal(literal));
        };
        if let Some(after) = conversion.strip_prefix('%') {
            rest = after;
            return Some(Part::Literal("%"));
        }
        let flags = |letter: char| {
            letter.is_ascii_digit() || matches!(letter, '#' | '.' | '-' | '+' | ' ' | 'l' | 'h' | 'z' | 'L')
        };
        let letters = conversion.trim_start_matches(flags);
        let mut chars = letters.chars();
        let value = match chars.next() {
            Some('d' | 'u' | 'i') => Value::Decimal,
            Some('x' | 'X') => Value::Hex,
            _ => Value::Words,
        };
        rest = chars.as_str();
        // `%pR`, `%pI6`, `%pM`: the letters say what is printed.
        if letters.starts_with('p') {
            rest = rest.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric());
        }
        Some(Part::Value(value))
    })
}

/// The words of a text: letters, digits and underscores.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !is_of_word(letter)).filter(|word| !word.is_empty())
}

fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The longest word that [`words`] finds in every text that a format string prints; `None` if there is none. A word
/// that touches a value is not whole.
pub fn longest_word(format: &str) -> Option<&str> {
    let mut found: Option<&str> = None;
    let (mut after_value, mut parts) = (false, parts(format).peekable());
    while let Some(part) = parts.next() {
        let Part::Literal(mut text) = part else {
            after_value = true;
            continue;
        };
        if after_value {
            text = text.trim_start_matches(is_of_word);
        }
        if matches!(parts.peek(), Some(Part::Value(_))) {
            text = text.trim_end_matches(is_of_word);
        }
        after_value = false;
        found = words(text).chain(found).max_by_key(|word| word.len());
    }
    found
}

/// Whether a text has been printed with a format string. Other words may stand before and after: drivers put the name
/// of the function there, and a line may have been cut.
pub fn fits(format: &str, text: &str) -> bool {
    let mut rest = text;
    let mut value = Some(Value::Words);
    for part in parts(format) {
        match part {
            Part::Value(next) => value = Some(if value.is_none() { next } else { Value::Words }),
            Part::Literal(literal) => {
                let Some((between, after)) = rest.split_once(literal) else { return false };
                if value.take().is_some_and(|value| !value.fits(between)) {
                    return false;
                }
                rest = after;
            }
        }
    }
    true
}

#[cfg(test)]
pub(super) fn printed(format: &str) -> String {
    parts(format)
        .map(|part| match part {
            Part::Literal(text) => text,
            Part::Value(Value::Decimal) => "12",
            Part::Value(Value::Hex) => "1f",
            Part::Value(Value::Words) => "some words",
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_what_their_conversion_prints() {
        let table = [
            ("insufficient power on the PCIe slot (%uW).", "Detected insufficient power on the PCIe slot (27W).", true),
            ("insufficient power on the PCIe slot (%uW).", "insufficient power on the PCIe slot (27.5W).", false),
            ("insufficient power on the PCIe slot (%uW).", "insufficient power on the PCIe slot (W).", false),
            ("cmdq[%#x]=%#x status %#x", "QPLIB: cmdq[0xd3a]=0x9 status 0x3", true),
            ("cmdq[%#x]=%#x status %#x", "QPLIB: cmdq[0xd3a]=0x9 send failed", false),
            (
                "can't enable %d VFs (bus %02x out of range of %pR)",
                "can't enable 16 VFs (bus 41 out of range of [bus 40])",
                true,
            ),
            ("%s: FW STALL Detected. cmdq[%#x]=%#x waited", "w: FW STALL Detected. cmdq[0x1]=0x9 waited (9", true),
            ("%lld%% of %zu", "-5% of 9", true),
            ("Link down", "Link up", false),
        ];
        for (format, text, expected) in table {
            assert_eq!(fits(format, text), expected, "{format} | {text}");
        }
    }

    #[test]
    fn the_longest_whole_word() {
        let table = [
            ("cmdq[%#x]=%#x status %#x", Some("status")),
            ("%s: FW STALL Detected. cmdq[%#x]=%#x waited", Some("Detected")),
            ("port%d is gone", Some("gone")),
            ("%dms", None),
            ("%s%d", None),
            ("100%% of mlx5_%s", Some("100")),
        ];
        for (format, word) in table {
            assert_eq!(longest_word(format), word, "{format}");
        }
    }

    proptest! {
        #[test]
        fn a_longest_word_is_in_all_that_is_printed(format in "[A-Za-z_: (]{0,12}(%[dxs%][)A-Za-z: ]{0,8}){0,4}") {
            if let Some(word) = longest_word(&format) {
                let text = printed(&format);
                prop_assert!(words(&text).any(|other| other == word), "{format} | {text} | {word}");
            }
        }

        #[test]
        fn no_text_breaks_it(format in any::<String>(), like in "[%a-z0-9.#: ]{0,20}", text in any::<String>()) {
            let _ = (fits(&format, &text), fits(&like, &text), fits(&like, &like));
        }

        #[test]
        fn what_a_format_prints_fits_it(format in "[A-Z:(]{1,8}(%[dxs][)A-Z:]{2,8}){0,4}") {
            prop_assert!(fits(&format, &printed(&format)), "{format} | {}", printed(&format));
        }
    }
}

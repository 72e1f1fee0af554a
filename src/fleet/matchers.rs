//! Matchers as they stand between braces in PromQL: `site="ams",env!="lab"`.

use std::iter::Peekable;
use std::str::CharIndices;

use super::query::is_label;

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
mod tests {
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

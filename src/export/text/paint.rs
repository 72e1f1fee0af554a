//! Colours on a terminal (ANSI); nothing at all where they are not wanted.

use std::fmt;

use crate::model::check::Severity;

/// Whether to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint(pub bool);

/// A text in a colour.
struct Painted<'a> {
    code: Option<&'static str>,
    text: &'a str,
}

impl fmt::Display for Painted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "\x1b[{code}m{}\x1b[0m", self.text),
            None => f.write_str(self.text),
        }
    }
}

impl Paint {
    fn with<'a>(self, code: &'static str, text: &'a str) -> impl fmt::Display + 'a {
        Painted { code: self.0.then_some(code), text }
    }

    /// What stands out without judgement.
    pub fn bold(self, text: &str) -> impl fmt::Display + '_ {
        self.with("1", text)
    }

    /// What may be passed over.
    pub fn dim(self, text: &str) -> impl fmt::Display + '_ {
        self.with("2", text)
    }

    /// What is well.
    pub fn good(self, text: &str) -> impl fmt::Display + '_ {
        self.with("32", text)
    }

    /// What is in the way.
    pub fn bad(self, text: &str) -> impl fmt::Display + '_ {
        self.with("1;31", text)
    }

    /// What is worth a look.
    pub fn fair(self, text: &str) -> impl fmt::Display + '_ {
        self.with("33", text)
    }

    /// A severity's word, in a field of eight characters.
    pub fn severity(self, severity: Severity) -> impl fmt::Display {
        let code = match severity {
            Severity::Critical => "1;31",
            Severity::Warning => "33",
            Severity::Info => "36",
        };
        let word = match severity {
            Severity::Critical => "critical",
            Severity::Warning => "warning ",
            Severity::Info => "info    ",
        };
        self.with(code, word)
    }
}

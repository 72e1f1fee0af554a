//! How text is laid out: colour (ANSI), line width and time zone, each as the reader has it.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::tz::TimeZone;

use crate::model::check::Severity;
use crate::model::time::{BootTime, Timestamp, rfc3339};

/// Widest line where the reader's terminal has no width of its own: a pipe or a file.
pub const DEFAULT_WIDTH: usize = 100;

/// Lines are never narrower than this, however narrow the terminal is.
const LEAST_WIDTH: usize = 40;

/// What paragraphs below the column of severities begin with.
const INDENT: &str = "         ";

/// How to lay text out.
#[derive(Debug, Clone)]
pub struct Style {
    /// Whether to colour.
    pub color: bool,
    /// Characters in a line.
    pub width: usize,
    /// The zone that times are shown in.
    pub zone: TimeZone,
}

impl Default for Style {
    /// No colour, lines of [`DEFAULT_WIDTH`], times in UTC.
    fn default() -> Self {
        Self { color: false, width: DEFAULT_WIDTH, zone: TimeZone::UTC }
    }
}

/// Text in a colour.
struct Colored<'a> {
    code: Option<&'static str>,
    text: &'a str,
}

impl fmt::Display for Colored<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "\x1b[{code}m{}\x1b[0m", self.text),
            None => f.write_str(self.text),
        }
    }
}

impl Style {
    fn with<'a>(&self, code: &'static str, text: &'a str) -> impl fmt::Display + use<'a> {
        Colored { code: self.color.then_some(code), text }
    }

    /// Stands out, without a judgement.
    pub fn bold<'a>(&self, text: &'a str) -> impl fmt::Display + use<'a> {
        self.with("1", text)
    }

    /// Can be skipped.
    pub fn dim<'a>(&self, text: &'a str) -> impl fmt::Display + use<'a> {
        self.with("2", text)
    }

    /// Is healthy.
    pub fn good<'a>(&self, text: &'a str) -> impl fmt::Display + use<'a> {
        self.with("32", text)
    }

    /// Is the problem.
    pub fn bad<'a>(&self, text: &'a str) -> impl fmt::Display + use<'a> {
        self.with("1;31", text)
    }

    /// Needs attention.
    pub fn caution<'a>(&self, text: &'a str) -> impl fmt::Display + use<'a> {
        self.with("33", text)
    }

    /// Text in the colour of a severity.
    pub fn of_severity<'a>(&self, severity: Severity, text: &'a str) -> impl fmt::Display + use<'a> {
        self.with(
            match severity {
                Severity::Critical => "1;31",
                Severity::Warning => "33",
                Severity::Info => "36",
            },
            text,
        )
    }

    /// A severity's word, in a field of eight characters.
    pub fn severity(&self, severity: Severity) -> impl fmt::Display + use<> {
        self.of_severity(
            severity,
            match severity {
                Severity::Critical => "critical",
                Severity::Warning => "warning ",
                Severity::Info => "info    ",
            },
        )
    }

    /// Breaks text into lines that fit; each begins with `indent`.
    pub fn wrap(&self, text: &str, indent: &str) -> String {
        let width = self.width.max(LEAST_WIDTH);
        let mut out = String::new();
        let mut line = String::from(indent);
        for word in text.split_whitespace() {
            if line.chars().count() + word.chars().count() >= width && line.len() > indent.len() {
                // Writing to a string cannot fail, here and below.
                let _ = writeln!(out, "{}", line.trim_end());
                line = String::from(indent);
            }
            let _ = write!(line, "{word} ");
        }
        let _ = writeln!(out, "{}", line.trim_end());
        out
    }

    /// What missing permissions hide, in one paragraph; `more` says where every file is listed.
    pub(super) fn limits(&self, limited: &[Arc<str>], more: bool) -> String {
        let mut out = String::new();
        for (n, limit) in limited.iter().enumerate() {
            let lines = self.wrap(limit, INDENT);
            out.push_str(&if n == 0 { lines.replacen(INDENT, "\nlimited  ", 1) } else { lines });
        }
        if more && !limited.is_empty() {
            let _ = writeln!(out, "{INDENT}(lanewatch check --verbose lists every file)");
        }
        out
    }

    /// Since when something holds: `since 15:07 (2 h)`; `first seen now` if it began with this run, which `began` at
    /// that tick: nothing earlier is remembered of it.
    pub fn since(&self, taken: Timestamp, since: BootTime, began: Option<BootTime>) -> String {
        if began.is_some_and(|began| since >= began) {
            return "first seen now".to_owned();
        }
        let time = self.time(taken.wall_time(since), taken.wall);
        format!("since {time} ({})", span(taken.tick.since(since)))
    }

    /// A time in the reader's zone: `15:07` on the day of `now`, else `2026-11-28 15:07`.
    pub fn time(&self, wall: SystemTime, now: SystemTime) -> String {
        let local = |wall: SystemTime| Some(jiff::Timestamp::try_from(wall).ok()?.to_zoned_datetime(self.zone.clone()));
        match (local(wall), local(now)) {
            (Some(wall), Some(now)) if wall.date() == now.date() => wall.strftime("%H:%M").to_string(),
            (Some(wall), _) => wall.strftime("%Y-%m-%d %H:%M").to_string(),
            (None, _) => rfc3339(wall),
        }
    }
}

/// A length of time in its largest unit: `40 s`, `3 min`, `5 h`, `12 d`.
pub fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        let spans = [5, 119, 120, 7_199, 7_200, 172_799, 172_800].map(|s| span(Duration::from_secs(s)));
        assert_eq!(spans, ["5 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d"]);
    }

    #[test]
    fn times_are_those_of_the_reader() {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let taken = Timestamp { tick: BootTime(86_400_000), wall };
        let style = Style { zone: TimeZone::fixed(jiff::tz::offset(2)), ..Style::default() };
        assert_eq!(rfc3339(wall), "2026-09-21T14:13:20Z");
        assert_eq!(style.since(taken, BootTime(79_200_000), None), "since 14:13 (2 h)");
        assert_eq!(style.since(taken, BootTime(-86_400_000), None), "since 2026-09-19 16:13 (2 d)");
        assert_eq!(style.since(taken, BootTime(79_200_000), Some(BootTime(79_200_001))), "since 14:13 (2 h)");
        assert_eq!(style.since(taken, BootTime(86_399_000), Some(BootTime(86_398_000))), "first seen now");
    }

    #[test]
    fn lines_fit_and_long_words_stay_whole() {
        let style = Style { width: 40, ..Style::default() };
        let text = style.wrap("the PCIe link of mlx5_3 (0000:98:00.0) runs at 8 GT/s x8", "  ");
        assert_eq!(text, "  the PCIe link of mlx5_3\n  (0000:98:00.0) runs at 8 GT/s x8\n");
        assert_eq!(Style { width: 1, ..style }.wrap("ab cd", ""), "ab cd\n");
        assert_eq!(Style::default().wrap(&"x".repeat(200), "  ").trim().len(), 200);
    }
}

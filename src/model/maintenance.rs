//! When a host is in maintenance: by a marker file, or by a window of the week.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60;
const WEEK: u64 = 7 * DAY;
/// The days by name; 1970 began on a Thursday.
const DAYS: [&str; 7] = ["thu", "fri", "sat", "sun", "mon", "tue", "wed"];

/// A span of every week or every day, in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintenanceWindow {
    text: Arc<str>,
    /// Minutes from the beginning of the week (Thursday) or day.
    begin: u64,
    length: u64,
    period: u64,
}

impl MaintenanceWindow {
    /// Reads `Sat 02:00-04:00` or, for every day, `02:00-04:00`. One that ends before it begins goes over midnight.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (day, span) = match text.split_once(' ') {
            Some((day, span)) => (Some(DAYS.iter().position(|name| day.eq_ignore_ascii_case(name))?), span.trim()),
            None => (None, text),
        };
        let (begin, end) = span.split_once('-')?;
        let (begin, end) = (minutes(begin)?, minutes(end)?);
        let length = (end + DAY - begin) % DAY;
        let length = if length == 0 { DAY } else { length };
        let offset = u64::try_from(day.unwrap_or(0)).ok()? * DAY;
        let period = if day.is_some() { WEEK } else { DAY };
        Some(Self { text: Arc::from(text), begin: offset + begin, length, period })
    }

    /// Whether a moment lies in it.
    pub fn covers(&self, now: SystemTime) -> bool {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / MINUTE;
        (since + self.period - self.begin) % self.period < self.length
    }
}

/// `02:00`, up to `24:00`, in minutes.
fn minutes(text: &str) -> Option<u64> {
    let (hours, minutes) = text.split_once(':')?;
    let two = |digits: &str| (digits.len() == 2).then(|| digits.parse::<u64>().ok()).flatten();
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    (minutes < 60 && hours * 60 + minutes <= DAY).then_some(hours * 60 + minutes)
}

/// What puts the host into maintenance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// It is while this file is there.
    pub file: Option<PathBuf>,
    /// It is within these.
    pub windows: Vec<MaintenanceWindow>,
}

impl Maintenance {
    /// Why the host is in maintenance, if it is.
    pub fn why(&self, now: SystemTime, exists: impl Fn(&Path) -> bool) -> Option<Arc<str>> {
        if let Some(file) = self.file.as_deref().filter(|file| exists(file)) {
            return Some(Arc::from(format!("in maintenance while {} is there", file.display())));
        }
        let window = self.windows.iter().find(|window| window.covers(now))?;
        Some(Arc::from(format!("in maintenance ({} UTC)", window.text)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> SystemTime {
        humantime::parse_rfc3339(text).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    fn covers(window: &str, time: &str) -> Option<bool> {
        MaintenanceWindow::parse(window).map(|window| window.covers(at(time)))
    }

    #[test]
    fn windows() {
        // 2026-11-28 is a Saturday.
        for (window, time, expected) in [
            ("Sat 02:00-04:00", "2026-11-28T02:00:00Z", Some(true)),
            ("sat 02:00-04:00", "2026-11-28T03:59:59Z", Some(true)),
            ("Sat 02:00-04:00", "2026-11-28T04:00:00Z", Some(false)),
            ("Sat 02:00-04:00", "2026-11-27T03:00:00Z", Some(false)),
            ("Sat 22:00-02:00", "2026-11-29T01:00:00Z", Some(true)),
            ("Sat 22:00-02:00", "2026-11-28T01:00:00Z", Some(false)),
            ("Wed 23:00-01:00", "2026-11-26T00:30:00Z", Some(true)),
            ("02:00-04:00", "2026-11-25T03:00:00Z", Some(true)),
            ("23:30-00:30", "2026-11-25T00:10:00Z", Some(true)),
            ("Sun 00:00-24:00", "2026-11-29T12:00:00Z", Some(true)),
            ("Someday 02:00-04:00", "2026-11-28T02:00:00Z", None),
            ("2:00-4:00", "2026-11-28T02:00:00Z", None),
            ("02:00-25:00", "2026-11-28T02:00:00Z", None),
            ("02:60-03:00", "2026-11-28T02:00:00Z", None),
            ("", "2026-11-28T02:00:00Z", None),
        ] {
            assert_eq!(covers(window, time), expected, "{window} at {time}");
        }
    }

    #[test]
    fn a_marker_file_comes_first() {
        let windows = MaintenanceWindow::parse("00:00-24:00").into_iter().collect();
        let maintenance = Maintenance { file: Some(PathBuf::from("/run/m")), windows };
        let why = |there| maintenance.why(SystemTime::UNIX_EPOCH, |_| there);
        assert_eq!(why(true).as_deref(), Some("in maintenance while /run/m is there"));
        assert_eq!(why(false).as_deref(), Some("in maintenance (00:00-24:00 UTC)"));
        assert_eq!(Maintenance::default().why(SystemTime::UNIX_EPOCH, |_| true), None);
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in ".{0,24}", seconds in any::<u32>()) {
            if let Some(window) = MaintenanceWindow::parse(&text) {
                let _ = window.covers(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into()));
            }
        }
    }
}

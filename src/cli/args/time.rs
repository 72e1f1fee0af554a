//! A moment on the command line.

use std::time::SystemTime;

/// A time (RFC 3339), or how long ago.
///
/// # Errors
/// It is neither.
pub fn parse_time(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    let ago = humantime::parse_duration(text).ok().and_then(|time| now.checked_sub(time));
    ago.or_else(|| humantime::parse_rfc3339_weak(text).ok()).ok_or_else(|| {
        format!("{text:?} is not a time: give an age (30m, 2h, 1d) or a date such as 2026-01-31T12:00:00Z")
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::model::time::rfc3339;

    #[test]
    fn moments() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        assert_eq!(parse_time("1h", now).ok(), Some(now - Duration::from_secs(3600)));
        assert_eq!(parse_time(&rfc3339(now), SystemTime::UNIX_EPOCH).ok(), Some(now));
        assert!(parse_time("yesterday", now).is_err());
        for (text, time) in [("90000d", "1970-01-01T00:00:00Z"), ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z")] {
            assert_eq!(parse_time(text, now).map(rfc3339).ok().as_deref(), Some(time), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_a_parse_time(text in any::<String>(), like in "[0-9]{1,22}(ns|s|m|h|d|y|T|Z|-|:){0,3}") {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
            let _ = (parse_time(&text, now).map(rfc3339).is_ok(), parse_time(&like, now).map(rfc3339).is_ok());
        }
    }
}

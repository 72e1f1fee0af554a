//! A bucket of tokens: so many at once, and one more with every interval.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::file::{RateLimit, WebError};

/// The bucket.
#[derive(Debug)]
pub struct Bucket {
    interval: Duration,
    burst: u32,
    /// When the bucket was, or will be, full: each token taken moves it on by an interval.
    full: Mutex<Option<Instant>>,
}

impl Bucket {
    /// A full one.
    pub fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst, full: Mutex::new(None) }
    }

    /// Takes a token if there is one.
    pub fn take(&self, now: Instant) -> bool {
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        let after = full.map_or(now, |full| full.max(now)) + self.interval;
        let allowed = after.duration_since(now) <= self.interval * self.burst;
        if allowed {
            *full = Some(after);
        }
        allowed
    }

    /// Gives a token back.
    pub fn give_back(&self) {
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        *full = full.and_then(|full| full.checked_sub(self.interval));
    }

    /// Whether it is full.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|full| full <= now)
    }
}

/// The bucket of `rate_limit`; none where the interval is 0.
pub(super) fn limit(path: &Path, written: &RateLimit) -> Result<Option<Bucket>, WebError> {
    let text = written.interval.as_deref().unwrap_or("0s").trim();
    let interval = if text == "0" { Ok(Duration::ZERO) } else { humantime::parse_duration(text) };
    let Ok(interval) = interval else {
        let message = format!("{text:?} is not a time such as 1s, 500ms or 1m (0 for no limit)");
        return Err(WebError::value(path, "rate_limit.interval", message));
    };
    if interval.is_zero() {
        return Ok(None);
    }
    match written.burst.unwrap_or(0) {
        0 => {
            let message = "with an interval it is a whole number from 1: with 0 no request would be answered";
            Err(WebError::value(path, "rate_limit.burst", message))
        }
        burst => Ok(Some(Bucket::new(interval, burst))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn so_many_at_once_and_one_an_interval() {
        let (bucket, start) = (Bucket::new(Duration::from_secs(1), 3), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!([0, 0, 0, 0, 999].map(|millis| bucket.take(at(millis))), [true, true, true, false, false]);
        assert_eq!([1_000, 1_001, 2_000].map(|millis| bucket.take(at(millis))), [true, false, true]);
        assert!(!bucket.is_full(at(2_000)) && bucket.is_full(at(6_000)));
        // However long it was left alone, it holds no more than it can.
        assert_eq!([0; 5].map(|_| bucket.take(at(1_000_000))), [true, true, true, false, false]);
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let (bucket, now) = (Bucket::new(Duration::from_secs(1), 1), Instant::now());
        assert!(bucket.take(now) && !bucket.take(now));
        bucket.give_back();
        assert!(bucket.take(now) && !bucket.take(now));
    }

    proptest! {
        #[test]
        fn never_more_than_burst_and_time_allow(
            burst in 1_u32..20,
            steps in proptest::collection::vec(0_u64..3_000, 1..200),
        ) {
            let (bucket, start) = (Bucket::new(Duration::from_secs(1), burst), Instant::now());
            let (mut elapsed, mut taken) = (0, 0);
            for step in steps {
                elapsed += step;
                taken += u64::from(bucket.take(start + Duration::from_millis(elapsed)));
                prop_assert!(taken <= u64::from(burst) + elapsed / 1_000);
            }
        }
    }
}

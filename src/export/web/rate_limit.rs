//! Rate limits: of all requests, and of attempts with unknown passwords by address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::file::{RateLimit, WebError};
use crate::model::time::LONGEST;

/// A token bucket: a burst at once, and one more with every interval.
#[derive(Debug)]
pub struct TokenBucket {
    interval: Duration,
    burst: u32,
    /// When the bucket was, or will be, full: each token taken moves it on by an interval.
    full: Mutex<Option<Instant>>,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst, full: Mutex::new(None) }
    }

    /// Takes a token if there is one.
    pub fn take(&self, now: Instant) -> bool {
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(after) = full.map_or(now, |full| full.max(now)).checked_add(self.interval) else {
            // Longer than the clock goes: what is taken is never replaced.
            let first = full.is_none();
            *full = full.or(Some(now));
            return first;
        };
        let allowed = after.duration_since(now) <= self.interval.saturating_mul(self.burst);
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

/// The bucket of `rate_limit`; `None` if the interval is 0.
pub(super) fn parse(
    path: &Path,
    written: &RateLimit,
    remarks: &mut Vec<String>,
) -> Result<Option<TokenBucket>, WebError> {
    let text = written.interval.as_deref().unwrap_or("0s").trim();
    let Some(interval) = go_duration(text).or_else(|| humantime::parse_duration(text).ok()) else {
        let message = format!("{text:?} is not a time such as 1s, 500ms or 1m (0 for no limit)");
        return Err(WebError::value(path, "rate_limit.interval", message));
    };
    if interval.is_zero() {
        return Ok(None);
    }
    if interval > LONGEST {
        return Err(WebError::value(path, "rate_limit.interval", format!("{text:?} is longer than 100 years")));
    }
    match written.burst.unwrap_or(0) {
        0 => {
            let key = "rate_limit.burst";
            remarks.push(format!("{}: {key}: is 0, so every request is answered with 429", path.display()));
            Ok(Some(TokenBucket::new(interval, 0)))
        }
        burst if interval.saturating_mul(burst) > LONGEST => {
            let message = format!("{burst} intervals of {text} are longer than 100 years");
            Err(WebError::value(path, "rate_limit.burst", message))
        }
        burst => Ok(Some(TokenBucket::new(interval, burst))),
    }
}

/// A time as Go writes it, such as 1m30s, 1.5s or 100us; a number alone is nanoseconds.
fn go_duration(text: &str) -> Option<Duration> {
    if let Ok(nanoseconds) = text.parse() {
        return Some(Duration::from_nanos(nanoseconds));
    }
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let unit = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at_checked(unit)?;
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(end)?;
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(total)
}

/// Attempts at once.
const BURST: u32 = 10;
/// It gets one more with each interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// Most buckets; beyond that, full ones are dropped first.
const MOST: usize = 1_024;
/// A token bucket for each address: one limit, whatever names are tried.
#[derive(Debug, Default)]
pub(in crate::export) struct AttemptLimits(Mutex<HashMap<[u8; 8], Arc<TokenBucket>>>);

impl AttemptLimits {
    /// The bucket of an address.
    pub(in crate::export) fn of(&self, peer: Option<IpAddr>, now: Instant) -> Arc<TokenBucket> {
        let key = origin(peer);
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MOST && !buckets.contains_key(&key) {
            buckets.retain(|_, bucket| !bucket.is_full(now));
            if buckets.len() >= MOST {
                // Attempts from a thousand addresses within seconds: the lanes bound what they can cost.
                buckets.clear();
            }
        }
        Arc::clone(buckets.entry(key).or_insert_with(|| Arc::new(TokenBucket::new(INTERVAL, BURST))))
    }
}

/// An IPv4 address, or the network part of an IPv6 one: a single host has all the addresses below it.
pub(in crate::export) fn origin(peer: Option<IpAddr>) -> [u8; 8] {
    let mut origin = [0; 8];
    match peer.map(|peer| peer.to_canonical()) {
        Some(IpAddr::V4(peer)) => origin.iter_mut().zip(peer.octets()).for_each(|(to, from)| *to = from),
        Some(IpAddr::V6(peer)) => origin.iter_mut().zip(peer.octets()).for_each(|(to, from)| *to = from),
        None => {}
    }
    origin
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn so_many_at_once_and_one_an_interval() {
        let (bucket, start) = (TokenBucket::new(Duration::from_secs(1), 3), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!([0, 0, 0, 0, 999].map(|millis| bucket.take(at(millis))), [true, true, true, false, false]);
        assert_eq!([1_000, 1_001, 2_000].map(|millis| bucket.take(at(millis))), [true, false, true]);
        assert!(!bucket.is_full(at(2_000)) && bucket.is_full(at(6_000)));
        // However long it was left alone, it holds no more than it can.
        assert_eq!([0; 5].map(|_| bucket.take(at(1_000_000))), [true, true, true, false, false]);
    }

    #[test]
    fn a_limit_of_any_length_answers_as_many_as_its_burst() {
        let centuries = Duration::from_secs(5_000_000_000);
        for (interval, burst) in [(centuries, 3), (Duration::MAX, 1), (Duration::MAX / 2, 3), (centuries, u32::MAX)] {
            let (bucket, now) = (TokenBucket::new(interval, burst), Instant::now());
            assert!(bucket.take(now), "{interval:?} {burst}");
            let more = (0..5).filter(|_| bucket.take(now)).count();
            assert!(more < usize::try_from(burst).unwrap(), "{interval:?} {burst}");
            bucket.give_back();
            assert!(bucket.is_full(now) || !bucket.is_full(now));
        }
    }

    #[test]
    fn times_as_go_writes_them() {
        let table = [
            ("0", Some(0)),
            ("1s", Some(1_000_000)),
            ("1.5s", Some(1_500_000)),
            ("1m30s", Some(90_000_000)),
            ("100us", Some(100)),
            ("2000000", Some(2_000)),
            ("1h0.5s", Some(3_600_500_000)),
            ("", None),
            ("s", None),
            ("1", Some(0)),
            ("1x", None),
            ("1s1", None),
            ("-1s", None),
            ("999999999999999999999999h", None),
        ];
        for (text, micros) in table {
            assert_eq!(go_duration(text).map(|time| time.as_micros()), micros, "{text}");
        }
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let (bucket, now) = (TokenBucket::new(Duration::from_secs(1), 1), Instant::now());
        assert!(bucket.take(now) && !bucket.take(now));
        bucket.give_back();
        assert!(bucket.take(now) && !bucket.take(now));
    }

    #[test]
    fn each_address_has_its_own_and_the_table_stays_small() {
        let (attempts, now) = (AttemptLimits::default(), Instant::now());
        let peer = |n: u32| Some(IpAddr::from(n.to_be_bytes()));
        let took = (0..50).filter(|_| attempts.of(peer(1), now).take(now)).count();
        assert_eq!(took, 10);
        assert!(attempts.of(peer(2), now).take(now) && !attempts.of(peer(1), now).take(now));
        for n in 0..5_000 {
            attempts.of(peer(n), now).take(now);
        }
        assert!(attempts.0.lock().unwrap().len() <= MOST);
    }

    #[test]
    fn an_ipv6_network_is_one_origin() {
        let address = |text: &str| origin(Some(text.parse().unwrap()));
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:2"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:1::1"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
    }

    proptest! {
        #[test]
        fn never_more_than_burst_and_time_allow(
            burst in 1_u32..20,
            steps in proptest::collection::vec(0_u64..3_000, 1..200),
        ) {
            let (bucket, start) = (TokenBucket::new(Duration::from_secs(1), burst), Instant::now());
            let (mut elapsed, mut taken) = (0, 0);
            for step in steps {
                elapsed += step;
                taken += u64::from(bucket.take(start + Duration::from_millis(elapsed)));
                prop_assert!(taken <= u64::from(burst) + elapsed / 1_000);
            }
        }
    }
}

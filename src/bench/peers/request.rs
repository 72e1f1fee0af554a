//! What is asked of a peer, and what it answers. Both are small JSON documents.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::assess::benchmark::Ceiling;
use crate::bench::rdma::{BenchmarkTool, TestPlan};
use crate::model::units::BytesPerSecond;

/// Where requests go.
pub const PATH: &str = "/api/v1/probe-server";
/// Headers of a request: whom it is meant for, when it was signed, a number that is used once, and the signature. An
/// answer has the last.
pub const TO: &str = "x-lanewatch-to";
/// See [`TO`]; in milliseconds since 1970.
pub const TIME: &str = "x-lanewatch-time";
/// See [`TO`].
pub const NONCE: &str = "x-lanewatch-nonce";
/// See [`TO`].
pub const SIGNATURE: &str = "x-lanewatch-signature";
/// Longest request or answer, in bytes.
pub const LONGEST: usize = 4_096;
/// Largest message, in bytes.
pub const LARGEST: u64 = 1 << 30;
/// Most queue pairs.
pub const MOST_QUEUE_PAIRS: u32 = 1_024;
/// Longest measurement, in seconds: a peer gives no more of its time.
pub const MOST_SECONDS: u64 = 60;
/// Most ports that are counted.
const MOST_RAILS: u32 = 1_024;

/// A request for the server of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerRequest {
    program: BenchmarkTool,
    size: u64,
    queue_pairs: u32,
    seconds: u64,
    both: bool,
    /// Which of its active ports, in the order of their names: that of the client among its own.
    rail: u32,
}

impl ServerRequest {
    /// The request for a plan.
    pub fn new(plan: &TestPlan, rail: u32) -> Self {
        Self {
            program: plan.program,
            size: plan.size,
            queue_pairs: plan.queue_pairs,
            seconds: plan.duration.as_secs(),
            both: plan.both,
            rail,
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is too long, no such document, or has a value that is not allowed; one sentence.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        if body.len() > LONGEST {
            return Err(format!("longer than {LONGEST} bytes"));
        }
        let request: Self = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        request.within_bounds()?;
        Ok(request)
    }

    /// Whether all of it is allowed.
    ///
    /// # Errors
    /// What is not, and what would be.
    pub fn within_bounds(&self) -> Result<(), String> {
        let within = |name: &str, value: u64, least: u64, most: u64| {
            let within = (least..=most).contains(&value);
            if within { Ok(()) } else { Err(format!("{name} {value} is outside {least} to {most}")) }
        };
        within("size", self.size, 1, LARGEST)?;
        within("queue_pairs", self.queue_pairs.into(), 1, MOST_QUEUE_PAIRS.into())?;
        within("seconds", self.seconds, 1, MOST_SECONDS)?;
        within("rail", self.rail.into(), 0, MOST_RAILS.into())
    }

    /// The plan that it asks for.
    pub fn plan(&self) -> TestPlan {
        TestPlan {
            program: self.program,
            size: self.size,
            queue_pairs: self.queue_pairs,
            duration: Duration::from_secs(self.seconds),
            both: self.both,
        }
    }

    /// The port that it asks for, of so many.
    pub fn port_of(&self, ports: usize) -> Option<usize> {
        usize::try_from(self.rail).ok()?.checked_rem(ports)
    }
}

/// A server that was started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartedServer {
    /// The TCP port that it listens on.
    pub tcp_port: u16,
    /// What its lane carries, in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<PathCapacity>,
}

/// What a lane carries, in bytes per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathCapacity {
    payload: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<f64>,
    by_path: bool,
}

impl From<&Ceiling> for PathCapacity {
    fn from(ceiling: &Ceiling) -> Self {
        Self {
            payload: ceiling.payload.0,
            path: ceiling.path.map(|path| path.0),
            rate: ceiling.rate.map(|rate| rate.0),
            by_path: ceiling.by_path,
        }
    }
}

impl PathCapacity {
    /// The ceiling, unless it is none.
    pub fn ceiling(&self) -> Option<Ceiling> {
        let all = [Some(self.payload), self.path, self.rate];
        let sound = all.into_iter().flatten().all(|value| value.is_finite() && value > 0.0);
        sound.then(|| Ceiling {
            payload: BytesPerSecond(self.payload),
            path: self.path.map(BytesPerSecond),
            rate: self.rate.map(BytesPerSecond),
            by_path: self.by_path,
        })
    }
}

/// A request that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDocument {
    /// Why, by a word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
    /// The server's clock, in milliseconds since 1970, where the clocks are the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<u64>,
}

/// How a request ended: the `result` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestResult {
    /// A server was started.
    Started,
    /// Too many requests, of one address or in all.
    RateLimited,
    /// The request is longer than it may be, or took too long to arrive.
    TooLong,
    /// It is no request, or asks for something that is not allowed.
    Malformed,
    /// It has no signature and no certificate.
    Unsigned,
    /// Its signature is wrong.
    WrongSignature,
    /// It was meant for another host.
    WrongHost,
    /// It was signed too long ago, or in the future: the clocks differ, or it was kept back.
    ClockSkew,
    /// It came before.
    Replayed,
    /// The host, its port or another probe is at work, or it is in maintenance.
    Busy,
    /// There is no such program or port here.
    Unavailable,
    /// The server did not start.
    NotStarted,
}

impl RequestResult {
    /// All, in the order of the metrics.
    pub const ALL: [Self; 12] = [
        Self::Started,
        Self::RateLimited,
        Self::TooLong,
        Self::Malformed,
        Self::Unsigned,
        Self::WrongSignature,
        Self::WrongHost,
        Self::ClockSkew,
        Self::Replayed,
        Self::Busy,
        Self::Unavailable,
        Self::NotStarted,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::RateLimited => "rate_limited",
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::Unsigned => "unsigned",
            Self::WrongSignature => "wrong_signature",
            Self::WrongHost => "wrong_host",
            Self::ClockSkew => "clock_skew",
            Self::Replayed => "replayed",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
            Self::NotStarted => "not_started",
        }
    }
}

/// How many requests ended how.
#[derive(Debug, Default)]
pub struct RequestCounts([AtomicU64; RequestResult::ALL.len()]);

impl RequestCounts {
    /// RequestCounts one.
    pub fn add(&self, result: RequestResult) {
        for (count, known) in self.0.iter().zip(RequestResult::ALL) {
            if known == result {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The counts, in the order of [`RequestResult::ALL`].
    pub fn all(&self) -> [u64; RequestResult::ALL.len()] {
        std::array::from_fn(|index| self.0.get(index).map_or(0, |count| count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan() -> TestPlan {
        TestPlan {
            program: BenchmarkTool::ReadLatency,
            size: 65_536,
            queue_pairs: 2,
            duration: Duration::from_secs(3),
            both: true,
        }
    }

    #[test]
    fn a_plan_goes_there_and_back() {
        let body = serde_json::to_vec(&ServerRequest::new(&plan(), 5)).unwrap();
        let read = ServerRequest::parse(&body).unwrap();
        assert_eq!(read.plan(), plan());
        assert_eq!((read.port_of(4), read.port_of(8), read.port_of(0)), (Some(1), Some(5), None));
    }

    #[test]
    fn odd_arguments_are_refused() {
        let sound = "{\"program\": \"ib_write_bw\", \"size\": 1, \"queue_pairs\": 1, \"seconds\": 1, \"both\": false, \"rail\": 0}";
        assert!(ServerRequest::parse(sound.as_bytes()).is_ok());
        for (from, to, part) in [
            ("ib_write_bw", "sh", "unknown variant"),
            ("ib_write_bw", "ib_write_bw; reboot", "unknown variant"),
            ("ib_write_bw", "../../bin/sh", "unknown variant"),
            ("\"size\": 1", "\"size\": 0", "size 0 is outside 1 to 1073741824"),
            ("\"size\": 1", "\"size\": \"1 -F\"", "invalid type"),
            ("\"size\": 1", "\"size\": -1", "invalid value"),
            ("\"queue_pairs\": 1", "\"queue_pairs\": 5000", "queue_pairs 5000 is outside 1 to 1024"),
            ("\"seconds\": 1", "\"seconds\": 61", "seconds 61 is outside 1 to 60"),
            ("\"rail\": 0", "\"rail\": 4096", "rail 4096"),
            ("\"rail\": 0", "\"rail\": 0, \"arguments\": [\"--version\"]", "unknown field"),
            (", \"rail\": 0", "", "missing field"),
        ] {
            let error = ServerRequest::parse(sound.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.contains(part), "{to}: {error}");
        }
        assert!(ServerRequest::parse(&[b' '; LONGEST + 1]).unwrap_err().contains("longer than"));
    }

    #[test]
    fn a_lane_of_nonsense_is_none() {
        let ceiling = Ceiling::new(Some(BytesPerSecond(25e9)), Some(BytesPerSecond(7.9e9)), 0.9).unwrap();
        let lane = PathCapacity::from(&ceiling);
        assert_eq!(lane.ceiling(), Some(ceiling));
        for payload in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(PathCapacity { payload, ..lane.clone() }.ceiling(), None);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_within_bounds(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            program in "(ib_write_bw|ib_write_lat|ib_read_lat|iperf3|[a-z_;/ ]{0,12})",
            numbers in proptest::array::uniform4(prop_oneof![any::<i64>(), 0i64..100]),
        ) {
            let _ = ServerRequest::parse(&bytes);
            let [size, queue_pairs, seconds, rail] = numbers;
            let text = format!(
                "{{\"program\": {program:?}, \"size\": {size}, \"queue_pairs\": {queue_pairs}, \"seconds\": {seconds}, \
                 \"both\": true, \"rail\": {rail}}}"
            );
            if let Ok(request) = ServerRequest::parse(text.as_bytes()) {
                let plan = request.plan();
                prop_assert!((1..=LARGEST).contains(&plan.size) && (1..=1_024).contains(&plan.queue_pairs));
                prop_assert!((1..=60).contains(&plan.duration.as_secs()));
                prop_assert_eq!(ServerRequest::new(&plan, u32::try_from(rail).unwrap()), request);
            }
        }
    }
}

//! Whether a request may be followed: who signed it, for whom, when, and whether it came before.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::key::{PeerKey, RequestStamp};
use super::list::split;
use super::request::RequestResult;

/// How far clocks may be apart, either way.
pub const WINDOW: Duration = Duration::from_secs(30);
/// Most nonces that are remembered; while there are so many no other request is followed.
const MOST_NONCES: usize = 4_096;
/// Hexadecimal digits of a nonce.
const NONCE: usize = 32;

/// What a request came with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The host that it is meant for.
    pub to: Option<String>,
    /// When it was signed, in milliseconds since 1970.
    pub time: Option<u64>,
    /// A number that is used once.
    pub nonce: Option<String>,
    /// Its signature.
    pub signature: Option<String>,
    /// Whether the connection's client showed a certificate that was verified.
    pub certified: bool,
}

/// How requests are known to be a peer's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerTrust {
    /// They are signed with the key in this file.
    Key(PathBuf),
    /// They come over connections with a client certificate that was verified.
    Certificate,
}

/// Why a request is not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// A word for it.
    pub result: RequestResult,
    /// One sentence.
    pub text: String,
}

impl Rejection {
    /// Puts one together.
    pub fn new(result: RequestResult, text: impl Into<String>) -> Self {
        Self { result, text: text.into() }
    }
}

/// The authenticator.
#[derive(Debug)]
pub struct RequestAuthenticator {
    trust: PeerTrust,
    /// Names of this host.
    names: Vec<String>,
    /// When it began to remember nonces, in milliseconds since 1970.
    since: u64,
    /// Nonces that were used, and when they may be forgotten, in milliseconds since 1970.
    used: Mutex<HashMap<String, u64>>,
}

impl RequestAuthenticator {
    /// One for a host of these names, that begins now.
    pub fn new(trust: PeerTrust, names: Vec<String>, now: SystemTime) -> Self {
        Self { trust, names, since: millis(now), used: Mutex::default() }
    }

    /// Judges a request. The key comes back that it was signed with, to sign the answer with. The key file is read each
    /// time, so that a new key counts at once.
    ///
    /// # Errors
    /// Why it is not followed.
    pub fn judge(&self, shown: &Credentials, body: &[u8], now: SystemTime) -> Result<Option<PeerKey>, Rejection> {
        match &self.trust {
            PeerTrust::Certificate if shown.certified => Ok(None),
            PeerTrust::Certificate => {
                Err(Rejection::new(RequestResult::Unsigned, "the connection has no verified client certificate"))
            }
            PeerTrust::Key(path) => {
                let key = PeerKey::read(path).map_err(|error| {
                    tracing::error!("requests of peers are rejected: {error}");
                    Rejection::new(RequestResult::NotStarted, "this host's key is unusable: see its log")
                })?;
                self.signed(&key, shown, body, now)?;
                Ok(Some(key))
            }
        }
    }

    fn signed(&self, key: &PeerKey, shown: &Credentials, body: &[u8], now: SystemTime) -> Result<(), Rejection> {
        let Credentials { to: Some(to), time: Some(time), nonce: Some(nonce), signature: Some(signature), .. } = shown
        else {
            return Err(Rejection::new(RequestResult::Unsigned, "the request is not signed"));
        };
        if nonce.len() != NONCE || !nonce.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Rejection::new(
                RequestResult::Malformed,
                format!("the nonce is not {NONCE} hexadecimal digits"),
            ));
        }
        if !key.is_right(signature, &RequestStamp { to, time: *time, nonce }, body) {
            return Err(Rejection::new(
                RequestResult::WrongSignature,
                "the signature is wrong: the hosts have different keys",
            ));
        }
        if !self.is_here(to) {
            return Err(Rejection::new(
                RequestResult::WrongHost,
                format!("the request is for {to}, which is not this host"),
            ));
        }
        let clock = millis(now);
        if clock.abs_diff(*time) > millis_of(WINDOW) {
            return Err(Rejection::new(RequestResult::ClockSkew, "the clocks differ by more than 30 s"));
        }
        if *time < self.since {
            let text = "the request was signed before this agent started, so it may be a replay";
            return Err(Rejection::new(RequestResult::Replayed, text));
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, until| *until >= clock);
        if used.contains_key(nonce) {
            return Err(Rejection::new(RequestResult::Replayed, "the request was already received"));
        }
        if used.len() >= MOST_NONCES {
            return Err(Rejection::new(RequestResult::RateLimited, "too many requests"));
        }
        // As long as its time would be accepted.
        used.insert(nonce.clone(), time.saturating_add(millis_of(WINDOW)));
        Ok(())
    }

    /// Whether a host of the list is this one: by a name that it was given, or since an address of it can be bound.
    fn is_here(&self, to: &str) -> bool {
        let Some((host, port)) = split(to) else { return false };
        if self.names.iter().any(|name| name == host || name == to) {
            return true;
        }
        let bound = |address: IpAddr| {
            let special = address.is_unspecified() || address.is_multicast();
            !special && UdpSocket::bind((address, 0)).is_ok()
        };
        match host.parse::<IpAddr>() {
            Ok(address) => bound(address),
            Err(_) => (host, port).to_socket_addrs().is_ok_and(|mut all| all.any(|socket| bound(socket.ip()))),
        }
    }
}

/// A moment in milliseconds since 1970.
pub fn millis(moment: SystemTime) -> u64 {
    millis_of(moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn millis_of(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use proptest::prelude::*;

    use super::*;

    const SECRET: &[u8] = b"fedcba9876543210fedcba9876543210";
    const NOW: u64 = 1_790_000_000_000;

    struct Scene {
        authenticator: RequestAuthenticator,
        _directory: tempfile::TempDir,
    }

    fn scene() -> Scene {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, SECRET).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        Scene {
            authenticator: RequestAuthenticator::new(PeerTrust::Key(path), vec!["node18".to_owned()], at(NOW - 40_000)),
            _directory: directory,
        }
    }

    fn at(millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
    }

    fn signed(to: &str, time: u64, nonce: u128, body: &[u8]) -> Credentials {
        let nonce = format!("{nonce:032x}");
        let signature = PeerKey::new(SECRET).unwrap().sign(&RequestStamp { to, time, nonce: &nonce }, body);
        Credentials {
            to: Some(to.to_owned()),
            time: Some(time),
            nonce: Some(nonce),
            signature: Some(signature),
            certified: false,
        }
    }

    impl Scene {
        fn says(&self, shown: &Credentials, now: u64) -> Option<RequestResult> {
            self.authenticator.judge(shown, b"{}", at(now)).err().map(|rejection| rejection.result)
        }
    }

    #[test]
    fn a_request_is_followed_once() {
        let scene = scene();
        let request = signed("node18:10015", NOW, 1, b"{}");
        assert_eq!(scene.says(&request, NOW + 10), None);
        assert_eq!(scene.says(&request, NOW + 11), Some(RequestResult::Replayed));
        assert_eq!(scene.says(&request, NOW + 30_000), Some(RequestResult::Replayed), "while its time would do");
        assert_eq!(scene.says(&request, NOW + 30_001), Some(RequestResult::ClockSkew), "and then its time will not");
        assert_eq!(scene.says(&signed("node18:10015", NOW, 2, b"{}"), NOW), None);
        let old = signed("node18:10015", NOW - 40_001, 3, b"{}");
        assert_eq!(
            scene.says(&old, NOW - 20_000),
            Some(RequestResult::Replayed),
            "before a restart it may have come already"
        );
    }

    #[test]
    fn times_and_hosts_and_keys() {
        let scene = scene();
        for (time, result) in [
            (NOW - 30_000, None),
            (NOW - 30_001, Some(RequestResult::ClockSkew)),
            (NOW + 30_001, Some(RequestResult::ClockSkew)),
        ] {
            assert_eq!(scene.says(&signed("node18:10015", time, u128::from(time), b"{}"), NOW), result);
        }
        assert_eq!(scene.says(&signed("node19.invalid:10015", NOW, 3, b"{}"), NOW), Some(RequestResult::WrongHost));
        assert_eq!(scene.says(&signed("0.0.0.0:10015", NOW, 4, b"{}"), NOW), Some(RequestResult::WrongHost));
        assert_eq!(scene.says(&signed("127.0.0.1:10015", NOW, 5, b"{}"), NOW), None, "an address of this host");
        assert_eq!(scene.says(&signed("node18:10015", NOW, 6, b"{ }"), NOW), Some(RequestResult::WrongSignature));
        assert_eq!(scene.says(&Credentials::default(), NOW), Some(RequestResult::Unsigned));
        let certified = Credentials { certified: true, ..Credentials::default() };
        assert_eq!(
            scene.says(&certified, NOW),
            Some(RequestResult::Unsigned),
            "a certificate does not stand for a key"
        );
        let authenticator = RequestAuthenticator::new(PeerTrust::Certificate, Vec::new(), at(NOW));
        assert!(authenticator.judge(&certified, b"{}", at(NOW)).is_ok_and(|key| key.is_none()));
        let refused = authenticator.judge(&signed("node18:10015", NOW, 7, b"{}"), b"{}", at(NOW)).unwrap_err();
        assert_eq!(refused.result, RequestResult::Unsigned);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let scene = scene();
        let request = |n: u128, time| signed("node18:10015", time, n, b"{}");
        let ends: Vec<_> = (0..5_000).map(|n| scene.says(&request(n, NOW), NOW)).collect();
        assert_eq!(ends.iter().filter(|end| end.is_none()).count(), MOST_NONCES);
        assert_eq!(ends.last(), Some(&Some(RequestResult::RateLimited)));
        assert_eq!(scene.says(&request(0, NOW), NOW), Some(RequestResult::Replayed), "none is forgotten for another");
        assert_eq!(scene.says(&request(9_999, NOW + 30_001), NOW + 30_001), None);
    }

    proptest! {
        #[test]
        fn nothing_gets_through_without_the_key(
            to in ".{0,20}",
            time in any::<u64>(),
            nonce in "[0-9a-f]{32}|.{0,40}",
            signature in "[0-9a-f]{64}|.{0,70}",
        ) {
            let shown = Credentials {
                to: Some(to),
                time: Some(time),
                nonce: Some(nonce),
                signature: Some(signature),
                certified: false,
            };
            let judged = scene().authenticator.judge(&shown, b"{}", at(NOW));
            prop_assert!(judged.is_err());
        }
    }
}

//! The key that hosts share, signatures with it (HMAC-SHA256 over everything that a request is), and the checks of a
//! request: who signed it, for whom, when, and whether it was received before.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ring::hmac;

use super::request::{PATH, RequestResult};
use super::schedule::split;
use crate::host::fs::read_regular;

/// Longest key file, in bytes.
const LONGEST: u64 = 4_096;
/// Shortest key, in bytes.
const SHORTEST: usize = 32;
/// What requests are signed as, so that no signature is good for anything else.
const REQUEST: &str = "lanewatch probe request 1";
/// What answers are signed as.
const ANSWER: &str = "lanewatch probe answer 1";

/// A key.
pub struct PeerKey(hmac::Key);

impl std::fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerKey")
    }
}

/// Why there is no key. It never says what is in the file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PeerKeyError(String);

/// What is signed of a request beside its method, path and body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestStamp<'a> {
    /// The host that it is meant for, as the list names it.
    pub to: &'a str,
    /// When it was signed, in milliseconds since 1970.
    pub time: u64,
    /// A number that is used once.
    pub nonce: &'a str,
}

impl PeerKey {
    /// Makes a key.
    ///
    /// # Errors
    /// It is too short to be one.
    pub fn new(secret: &[u8]) -> Result<Self, PeerKeyError> {
        let secret = secret.trim_ascii();
        if secret.len() < SHORTEST {
            return Err(PeerKeyError(format!("a key needs at least {SHORTEST} bytes (openssl rand -hex 32)")));
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    /// Reads a key file; white space around the key is none of it.
    ///
    /// # Errors
    /// It cannot be read, others may read or write it, or it holds no key.
    pub fn read(path: &Path) -> Result<Self, PeerKeyError> {
        let wrong = |why: &dyn std::fmt::Display| PeerKeyError(format!("{}: {why}", path.display()));
        let bytes = read_regular(path, LONGEST).map_err(|error| wrong(&error))?;
        let mode = std::fs::metadata(path).map_err(|error| wrong(&error))?.permissions().mode();
        if mode & 0o007 != 0 {
            return Err(wrong(&"other users can read the key: remove their access (chmod o=)"));
        }
        Self::new(&bytes).map_err(|PeerKeyError(why)| wrong(&why))
    }

    /// The signature of a request, as hexadecimal digits.
    pub fn sign(&self, stamp: &RequestStamp<'_>, body: &[u8]) -> String {
        hex(hmac::sign(&self.0, &message(stamp, body)).as_ref())
    }

    /// Whether a signature of a request is right; how much of it is cannot be told from the time it takes.
    pub fn is_right(&self, signature: &str, stamp: &RequestStamp<'_>, body: &[u8]) -> bool {
        self.verify(signature, &message(stamp, body))
    }

    /// The signature of an answer to the request with a nonce.
    pub fn sign_answer(&self, nonce: &str, body: &[u8]) -> String {
        hex(hmac::sign(&self.0, &answer(nonce, body)).as_ref())
    }

    /// Whether a signature of an answer is right.
    pub fn is_right_answer(&self, signature: &str, nonce: &str, body: &[u8]) -> bool {
        self.verify(signature, &answer(nonce, body))
    }

    fn verify(&self, signature: &str, message: &[u8]) -> bool {
        unhex(signature).is_some_and(|tag| hmac::verify(&self.0, message, &tag).is_ok())
    }
}

/// The fields with their lengths: no two requests are the same message.
fn message(stamp: &RequestStamp<'_>, body: &[u8]) -> Vec<u8> {
    let RequestStamp { to, time, nonce } = stamp;
    let mut message = format!("{REQUEST}\nPOST {PATH}\n{}:{to}\n{time}\n{}:{nonce}\n", to.len(), nonce.len());
    let _ = writeln!(message, "{}", body.len());
    let mut message = message.into_bytes();
    message.extend_from_slice(body);
    message
}

fn answer(nonce: &str, body: &[u8]) -> Vec<u8> {
    let mut message = format!("{ANSWER}\n{}:{nonce}\n{}\n", nonce.len(), body.len()).into_bytes();
    message.extend_from_slice(body);
    message
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The 32 bytes of 64 hexadecimal digits.
fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

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
    /// Whether it came from this host itself, over loopback.
    pub local: bool,
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

/// Checks the signatures of requests, and remembers their nonces so that none is accepted twice.
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
        if !self.is_here(to, shown.local) {
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

    /// Whether a host of the list is this one: by a name that it was given, or since an address of it can be bound. Every
    /// host is its own localhost, so only a request that came over loopback can mean that: one that was signed for it
    /// could be sent to any host with the same key.
    fn is_here(&self, to: &str, local: bool) -> bool {
        let Some((host, port)) = split(to) else { return false };
        if self.names.iter().any(|name| name == host || name == to) {
            return true;
        }
        let bound = |address: IpAddr| {
            let address = address.to_canonical();
            let special = address.is_unspecified() || address.is_multicast() || (address.is_loopback() && !local);
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
mod key_tests {
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> PeerKey {
        PeerKey::new(text.as_bytes()).unwrap()
    }

    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    const STAMP: RequestStamp<'_> = RequestStamp { to: "node18:10015", time: 1_790_000_000_123, nonce: "00ff" };

    #[test]
    fn only_the_same_request_under_the_same_key() {
        let signature = key(SECRET).sign(&STAMP, b"{}");
        assert!(key(SECRET).is_right(&signature, &STAMP, b"{}"));
        assert!(key(&format!("\n{SECRET} \n")).is_right(&signature, &STAMP, b"{}"), "white space is no key");
        assert!(!key("another key that is long enough..").is_right(&signature, &STAMP, b"{}"));
        assert!(!key(SECRET).is_right(&signature, &STAMP, b"{ }"));
        let others = [
            RequestStamp { to: "node19:10015", ..STAMP },
            RequestStamp { time: STAMP.time + 1, ..STAMP },
            RequestStamp { nonce: "00fe", ..STAMP },
        ];
        assert!(others.iter().all(|other| !key(SECRET).is_right(&signature, other, b"{}")));
        assert!(!key(SECRET).is_right_answer(&signature, "00ff", b"{}"), "a request is no answer");
    }

    #[test]
    fn it_is_hmac_sha256() {
        // RFC 4231, test case 6 has the key of 131 bytes 0xaa.
        let key = PeerKey::new(&[0xaa; 131]).unwrap();
        let tag = hmac::sign(&key.0, b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(hex(tag.as_ref()), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    #[test]
    fn key_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let read = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            PeerKey::read(&path).map_err(|error| error.to_string())
        };
        assert!(read(SECRET, 0o640).is_ok());
        assert!(read(SECRET, 0o644).unwrap_err().contains("chmod o="));
        let short = read("secret", 0o600).unwrap_err();
        assert!(short.contains("at least 32 bytes") && !short.contains("secret"), "{short}");
        assert!(PeerKey::read(&directory.path().join("none")).unwrap_err().to_string().contains("none"));
    }

    proptest! {
        #[test]
        fn no_other_signature_will_do(signature in "[0-9a-fA-F]{64}|\\PC{0,80}") {
            let right = key(SECRET).is_right(&signature, &STAMP, b"{}");
            prop_assert!(!right);
        }

        #[test]
        fn fields_do_not_run_into_each_other(to in "[a-z:0-9\n]{0,9}", nonce in "[a-z:0-9\n]{0,9}", body in "[a-z:0-9\n]{0,9}") {
            let stamp = RequestStamp { to: &to, time: 5, nonce: &nonce };
            let signature = key(SECRET).sign(&stamp, body.as_bytes());
            let other = RequestStamp { to: "a", time: 5, nonce: "b:c" };
            let same = stamp == other && body == "d";
            prop_assert_eq!(key(SECRET).is_right(&signature, &other, b"d"), same);
        }
    }
}

#[cfg(test)]
mod authenticator_tests {
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
            local: false,
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
        for (nonce, to) in [(7, "localhost:10015"), (8, "127.0.0.1:10015"), (9, "[::1]:10015"), (10, "127.9.9.9:10015")]
        {
            let says = scene.says(&signed(to, NOW, nonce, b"{}"), NOW);
            assert_eq!(says, Some(RequestResult::WrongHost), "{to} is every host");
        }
        let local = Credentials { local: true, ..signed("127.0.0.1:10015", NOW, 5, b"{}") };
        assert_eq!(scene.says(&local, NOW), None, "an address of this host");
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
                local: false,
            };
            let judged = scene().authenticator.judge(&shown, b"{}", at(NOW));
            prop_assert!(judged.is_err());
        }
    }
}

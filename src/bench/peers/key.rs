//! The key that hosts share, and signatures with it: HMAC-SHA256 over everything that a request is.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ring::hmac;

use super::request::PATH;
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

#[cfg(test)]
mod tests {
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

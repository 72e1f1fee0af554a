//! Users and their passwords. CredentialCache passwords cost a hash of microseconds; unknown ones cost a bcrypt on another
//! thread, one at a time, and only so many of them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bcrypt::HashParts;
use hyper::header::HeaderValue;
use ring::rand::SystemRandom;
use ring::{digest, hmac};
use tokio::sync::Semaphore;

use super::file::{Secret, WebError};
use super::rate_limit::AttemptLimits;

/// Highest cost of a bcrypt hash; each step doubles the time, and 16 takes seconds.
const HIGHEST_COST: u32 = 16;
/// Wrong passwords that are cached.
const REMEMBERED: usize = 128;
/// Passwords that may wait for bcrypt.
const WAITING: usize = 16;

/// The outcome of an authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthOutcome {
    /// The credentials are right.
    Accepted,
    /// The credentials are wrong or missing.
    Rejected,
    /// Too many attempts; the client should retry later.
    TooManyAttempts,
}

/// The users who may ask.
pub struct Users {
    hashes: BTreeMap<String, Arc<str>>,
    /// The costliest of the hashes: an unknown name is checked against it, so that it takes as long as a known one.
    decoy: Arc<str>,
    seal: hmac::Key,
    known: Mutex<CredentialCache>,
    attempts: AttemptLimits,
    turn: Semaphore,
    waiting: AtomicUsize,
}

type Tag = [u8; digest::SHA256_OUTPUT_LEN];

/// Credentials with a known outcome, as keyed hashes.
#[derive(Default)]
struct CredentialCache {
    right: HashMap<String, Tag>,
    wrong: VecDeque<Tag>,
}

impl Users {
    pub(super) fn new(path: &Path, written: BTreeMap<String, Secret>) -> Result<Self, WebError> {
        let mut hashes = BTreeMap::new();
        let mut costliest: Option<(u32, Arc<str>)> = None;
        for (name, hash) in written {
            let key = format!("basic_auth_users.{name}");
            if name.is_empty() || name.contains(':') {
                return Err(WebError::value(path, key, "a name is not empty and has no colon"));
            }
            let Ok(parts) = HashParts::from_str(hash.expose()) else {
                let message = "is not a bcrypt hash ($2y$10$..., 60 characters), as htpasswd -nBC 10 '' makes it";
                return Err(WebError::value(path, key, message));
            };
            let cost = parts.get_cost();
            if !(4..=HIGHEST_COST).contains(&cost) {
                return Err(WebError::value(path, key, format!("has cost {cost}; 4 to {HIGHEST_COST} are allowed")));
            }
            let hash: Arc<str> = Arc::from(hash.expose());
            if costliest.as_ref().is_none_or(|(most, _)| cost > *most) {
                costliest = Some((cost, Arc::clone(&hash)));
            }
            hashes.insert(name, hash);
        }
        let seal = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| WebError::value(path, "basic_auth_users", "the system has no random numbers"))?;
        Ok(Self {
            hashes,
            decoy: costliest.map_or_else(|| Arc::from(""), |(_, hash)| hash),
            seal,
            known: Mutex::default(),
            attempts: AttemptLimits::default(),
            turn: Semaphore::new(1),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Checks the `Authorization` header of a client.
    pub async fn authenticate(&self, peer: Option<IpAddr>, header: Option<&HeaderValue>) -> AuthOutcome {
        let Some((name, password)) = header.and_then(credentials) else { return AuthOutcome::Rejected };
        let tag = self.tag(&name, &password);
        if let Some(verdict) = self.known(&name, &tag) {
            return verdict;
        }
        let now = Instant::now();
        let group = hmac::sign(&self.seal, name.as_bytes()).as_ref().first().copied().unwrap_or_default();
        let attempts = self.attempts.of(peer, group, now);
        if !attempts.take(now) {
            return AuthOutcome::TooManyAttempts;
        }
        let Some(_slot) = WaitingSlot::take(&self.waiting) else { return AuthOutcome::TooManyAttempts };
        let Ok(_turn) = self.turn.acquire().await else { return AuthOutcome::TooManyAttempts };
        // While this request waited, another may have tried the same credentials.
        let verdict = match self.known(&name, &tag) {
            Some(verdict) => verdict,
            None => self.verify(&name, password, tag).await,
        };
        if verdict == AuthOutcome::Accepted {
            attempts.give_back();
        }
        verdict
    }

    async fn verify(&self, name: &str, password: String, tag: Tag) -> AuthOutcome {
        let exists = self.hashes.contains_key(name);
        let hash = Arc::clone(self.hashes.get(name).unwrap_or(&self.decoy));
        let matches = tokio::task::spawn_blocking(move || bcrypt::verify(password, &hash).unwrap_or(false)).await;
        let right = matches.unwrap_or(false) && exists;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if right {
            known.right.insert(name.to_owned(), tag);
            return AuthOutcome::Accepted;
        }
        if known.wrong.len() >= REMEMBERED {
            known.wrong.pop_front();
        }
        known.wrong.push_back(tag);
        AuthOutcome::Rejected
    }

    fn known(&self, name: &str, tag: &Tag) -> Option<AuthOutcome> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.right.get(name) == Some(tag) {
            return Some(AuthOutcome::Accepted);
        }
        known.wrong.contains(tag).then_some(AuthOutcome::Rejected)
    }

    fn tag(&self, name: &str, password: &str) -> Tag {
        let mut sealed = hmac::Context::with_key(&self.seal);
        // A name has no colon.
        for part in [name.as_bytes(), b":", password.as_bytes()] {
            sealed.update(part);
        }
        sealed.sign().as_ref().try_into().unwrap_or_default()
    }
}

/// Name and password of `Basic bmFtZTpwYXNzd29yZA==`.
fn credentials(header: &HeaderValue) -> Option<(String, String)> {
    let (scheme, encoded) = header.to_str().ok()?.split_once(' ')?;
    let decoded = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(encoded.trim()).ok()).flatten()?;
    let text = String::from_utf8(decoded).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

/// One of the requests that may wait for bcrypt.
struct WaitingSlot<'a>(&'a AtomicUsize);

impl<'a> WaitingSlot<'a> {
    fn take(count: &'a AtomicUsize) -> Option<Self> {
        let slot = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < WAITING).then_some(slot)
    }
}

impl Drop for WaitingSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

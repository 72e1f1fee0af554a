//! Users and their passwords. Known passwords cost a hash of microseconds; unknown ones cost a bcrypt on another
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

use super::attempts::Attempts;
use super::file::{Secret, WebError};

/// Dearest hash that is accepted; each step doubles the time, and 16 takes seconds.
const DEAREST: u32 = 16;
/// Wrong passwords that are remembered.
const REMEMBERED: usize = 128;
/// Passwords that may wait for their bcrypt.
const WAITING: usize = 16;

/// What is made of credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// They are right.
    Right,
    /// They are wrong, or there are none.
    Wrong,
    /// There were too many wrong ones; ask again later.
    Later,
}

/// Who may ask.
pub struct Users {
    hashes: BTreeMap<String, Arc<str>>,
    /// The dearest of the hashes: what an unknown name is held against, so that it takes as long as a known one.
    decoy: Arc<str>,
    seal: hmac::Key,
    known: Mutex<Known>,
    attempts: Attempts,
    turn: Semaphore,
    waiting: AtomicUsize,
}

type Tag = [u8; digest::SHA256_OUTPUT_LEN];

/// Credentials of which the outcome is known; sealed, never as they are.
#[derive(Default)]
struct Known {
    right: HashMap<String, Tag>,
    wrong: VecDeque<Tag>,
}

impl Users {
    pub(super) fn new(path: &Path, written: BTreeMap<String, Secret>) -> Result<Self, WebError> {
        let mut hashes = BTreeMap::new();
        let mut dearest: Option<(u32, Arc<str>)> = None;
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
            if !(4..=DEAREST).contains(&cost) {
                return Err(WebError::value(path, key, format!("has cost {cost}; 4 to {DEAREST} are allowed")));
            }
            let hash: Arc<str> = Arc::from(hash.expose());
            if dearest.as_ref().is_none_or(|(most, _)| cost > *most) {
                dearest = Some((cost, Arc::clone(&hash)));
            }
            hashes.insert(name, hash);
        }
        let seal = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| WebError::value(path, "basic_auth_users", "the system has no random numbers"))?;
        Ok(Self {
            hashes,
            decoy: dearest.map_or_else(|| Arc::from(""), |(_, hash)| hash),
            seal,
            known: Mutex::default(),
            attempts: Attempts::default(),
            turn: Semaphore::new(1),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Judges what a client says in `Authorization`.
    pub async fn judge(&self, peer: Option<IpAddr>, header: Option<&HeaderValue>) -> Verdict {
        let Some((name, password)) = header.and_then(credentials) else { return Verdict::Wrong };
        let tag = self.tag(&name, &password);
        if let Some(verdict) = self.known(&name, &tag) {
            return verdict;
        }
        let now = Instant::now();
        let lane = hmac::sign(&self.seal, name.as_bytes()).as_ref().first().copied().unwrap_or_default();
        let attempts = self.attempts.of(peer, lane, now);
        if !attempts.take(now) {
            return Verdict::Later;
        }
        let Some(_place) = Place::take(&self.waiting) else { return Verdict::Later };
        let Ok(_turn) = self.turn.acquire().await else { return Verdict::Later };
        // While this one waited, another may have brought the same.
        let verdict = match self.known(&name, &tag) {
            Some(verdict) => verdict,
            None => self.try_out(&name, password, tag).await,
        };
        if verdict == Verdict::Right {
            attempts.give_back();
        }
        verdict
    }

    async fn try_out(&self, name: &str, password: String, tag: Tag) -> Verdict {
        let exists = self.hashes.contains_key(name);
        let hash = Arc::clone(self.hashes.get(name).unwrap_or(&self.decoy));
        let matches = tokio::task::spawn_blocking(move || bcrypt::verify(password, &hash).unwrap_or(false)).await;
        let right = matches.unwrap_or(false) && exists;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if right {
            known.right.insert(name.to_owned(), tag);
            return Verdict::Right;
        }
        if known.wrong.len() >= REMEMBERED {
            known.wrong.pop_front();
        }
        known.wrong.push_back(tag);
        Verdict::Wrong
    }

    fn known(&self, name: &str, tag: &Tag) -> Option<Verdict> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.right.get(name) == Some(tag) {
            return Some(Verdict::Right);
        }
        known.wrong.contains(tag).then_some(Verdict::Wrong)
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

/// A place among those that wait.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(count: &'a AtomicUsize) -> Option<Self> {
        let place = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < WAITING).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

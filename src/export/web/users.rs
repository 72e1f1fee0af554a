//! Users and their passwords. Known passwords cost a hash of microseconds; unknown ones cost a bcrypt on another thread.
//!
//! An address gets only so many attempts, whatever names it tries. Those wait in three lanes, each with one bcrypt at a
//! time: addresses that logged in before, addresses that never failed, and all others. So whoever tries passwords keeps
//! nobody else waiting. What is known, and of whom, survives a reload.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr as _;
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
use super::rate_limit::{AttemptLimits, origin};

/// Costs that bcrypt knows; each step doubles the time.
const COSTS: std::ops::RangeInclusive<u32> = 4..=31;
/// A hash of this cost takes seconds to verify.
const SLOW_COST: u32 = 14;
/// Wrong passwords that are cached.
const REMEMBERED: usize = 128;
/// Passwords that may wait in a lane.
const WAITING: usize = 16;
/// Addresses whose attempts are remembered.
const ORIGINS: usize = 1_024;

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
    logins: Arc<Logins>,
}

type Tag = [u8; digest::SHA256_OUTPUT_LEN];

/// Credentials with a known outcome, as keyed hashes of name, password and the hash they were checked against.
#[derive(Default)]
struct CredentialCache {
    right: HashMap<String, Tag>,
    wrong: VecDeque<Tag>,
}

/// What is known of credentials and addresses; the same for a configuration and the next.
struct Logins {
    seal: hmac::Key,
    known: Mutex<CredentialCache>,
    attempts: AttemptLimits,
    origins: Mutex<HashMap<[u8; 8], Origin>>,
    lanes: [Lane; 3],
}

/// What is known of an address.
#[derive(Debug, Clone, Copy, Default)]
struct Origin {
    succeeded: bool,
    failed: bool,
    /// Attempts that wait or are checked.
    pending: usize,
}

struct Lane {
    turn: Semaphore,
    room: Arc<Semaphore>,
}

impl Users {
    pub(super) fn new(
        path: &Path,
        written: BTreeMap<String, Secret>,
        remarks: &mut Vec<String>,
    ) -> Result<Self, WebError> {
        let mut hashes = BTreeMap::new();
        let mut costliest: Option<(u32, Arc<str>)> = None;
        for (name, hash) in written {
            let key = format!("basic_auth_users.{name}");
            if name.is_empty() || name.contains(':') {
                return Err(WebError::value(path, key, "a user name must not be empty or contain a colon"));
            }
            let Ok(parts) = HashParts::from_str(hash.expose()) else {
                let message = "is not a bcrypt hash ($2y$10$..., 60 characters), as htpasswd -nBC 10 '' makes it";
                return Err(WebError::value(path, key, message));
            };
            let cost = parts.get_cost();
            if !COSTS.contains(&cost) {
                let (least, most) = (COSTS.start(), COSTS.end());
                return Err(WebError::value(path, key, format!("has cost {cost}; {least} to {most} are allowed")));
            }
            if cost >= SLOW_COST {
                remarks.push(format!(
                    "{}: {key}: has cost {cost}: the first login takes seconds or longer; 10 is usual",
                    path.display()
                ));
            }
            let hash: Arc<str> = Arc::from(hash.expose());
            if costliest.as_ref().is_none_or(|(most, _)| cost > *most) {
                costliest = Some((cost, Arc::clone(&hash)));
            }
            hashes.insert(name, hash);
        }
        let seal = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| WebError::value(path, "basic_auth_users", "the system provides no random numbers"))?;
        let lane = |_| Lane { turn: Semaphore::new(1), room: Arc::new(Semaphore::new(WAITING)) };
        Ok(Self {
            hashes,
            decoy: costliest.map_or_else(|| Arc::from(""), |(_, hash)| hash),
            logins: Arc::new(Logins {
                seal,
                known: Mutex::default(),
                attempts: AttemptLimits::default(),
                origins: Mutex::default(),
                lanes: std::array::from_fn(lane),
            }),
        })
    }

    /// Knows what `before` knew. A user whose hash has changed must log in again.
    pub(super) fn inherit(&mut self, before: &Self) {
        self.logins = Arc::clone(&before.logins);
    }

    /// Checks the `Authorization` header of a client.
    pub async fn authenticate(&self, peer: Option<IpAddr>, header: Option<&HeaderValue>) -> AuthOutcome {
        let Some((name, password)) = header.and_then(credentials) else { return AuthOutcome::Rejected };
        let hash = self.hashes.get(&name);
        let attempt = Attempt { exists: hash.is_some(), hash: Arc::clone(hash.unwrap_or(&self.decoy)), name, password };
        let tag = self.logins.tag(&attempt);
        if let Some(verdict) = self.logins.known(&attempt.name, &tag) {
            return verdict;
        }
        let logins = Arc::clone(&self.logins);
        if !logins.attempts.of(peer, Instant::now()).take(Instant::now()) {
            return AuthOutcome::TooManyAttempts;
        }
        let Some((lane, room)) = logins.enter(peer) else { return AuthOutcome::TooManyAttempts };
        // On a task of its own: a client that does not wait for a costly hash finds the outcome when it asks next.
        let checked = tokio::spawn(async move {
            let verdict = logins.check(lane, attempt, tag).await;
            logins.leave(peer, verdict);
            drop(room);
            verdict
        });
        checked.await.unwrap_or(AuthOutcome::TooManyAttempts)
    }
}

/// Credentials that are to be checked.
struct Attempt {
    name: String,
    password: String,
    /// The user's, or that of someone else for a name that does not exist.
    hash: Arc<str>,
    exists: bool,
}

impl Logins {
    async fn check(&self, lane: usize, attempt: Attempt, tag: Tag) -> AuthOutcome {
        let Some(lane) = self.lanes.get(lane) else { return AuthOutcome::TooManyAttempts };
        let Ok(_turn) = lane.turn.acquire().await else { return AuthOutcome::TooManyAttempts };
        // While this one waited, another may have tried the same credentials.
        if let Some(verdict) = self.known(&attempt.name, &tag) {
            return verdict;
        }
        let Attempt { name, password, hash, exists } = attempt;
        let matches = tokio::task::spawn_blocking(move || bcrypt::verify(password, &hash).unwrap_or(false)).await;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if matches.unwrap_or(false) && exists {
            known.right.insert(name, tag);
            return AuthOutcome::Accepted;
        }
        if known.wrong.len() >= REMEMBERED {
            known.wrong.pop_front();
        }
        known.wrong.push_back(tag);
        AuthOutcome::Rejected
    }

    /// The lane of an attempt and its place there; `None` if the lane is full. An address that never failed has one
    /// attempt in the second lane; more at a time wait with those who failed.
    fn enter(&self, peer: Option<IpAddr>) -> Option<(usize, tokio::sync::OwnedSemaphorePermit)> {
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        let key = origin(peer);
        if origins.len() >= ORIGINS && !origins.contains_key(&key) {
            origins.retain(|_, origin| origin.succeeded || origin.pending > 0);
            if origins.len() >= ORIGINS {
                origins.clear();
            }
        }
        let origin = origins.entry(key).or_default();
        let lane = match origin {
            Origin { succeeded: true, .. } => 0,
            Origin { failed: false, pending: 0, .. } => 1,
            Origin { .. } => 2,
        };
        let room = Arc::clone(&self.lanes.get(lane)?.room).try_acquire_owned().ok()?;
        origin.pending += 1;
        Some((lane, room))
    }

    fn leave(&self, peer: Option<IpAddr>, verdict: AuthOutcome) {
        if verdict == AuthOutcome::Accepted {
            self.attempts.of(peer, Instant::now()).give_back();
        }
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        let origin = origins.entry(origin(peer)).or_default();
        origin.pending = origin.pending.saturating_sub(1);
        origin.succeeded |= verdict == AuthOutcome::Accepted;
        origin.failed |= verdict == AuthOutcome::Rejected;
    }

    fn known(&self, name: &str, tag: &Tag) -> Option<AuthOutcome> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.right.get(name) == Some(tag) {
            return Some(AuthOutcome::Accepted);
        }
        known.wrong.contains(tag).then_some(AuthOutcome::Rejected)
    }

    fn tag(&self, attempt: &Attempt) -> Tag {
        let mut sealed = hmac::Context::with_key(&self.seal);
        // Neither a name nor a hash has a colon.
        for part in [attempt.name.as_bytes(), b":", attempt.hash.as_bytes(), b":", attempt.password.as_bytes()] {
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

//! How often someone may try a password that is not known yet.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::bucket::Bucket;

/// Attempts at once.
const BURST: u32 = 10;
/// And one more with each of these.
const INTERVAL: Duration = Duration::from_secs(1);
/// Most buckets; beyond, full ones are forgotten first.
const MOST: usize = 1_024;
/// Buckets of one address: names fall into them by hash, so that whoever tries one name does not use up the attempts
/// of all others, and no bucket tells whether a name exists.
const LANES: u8 = 8;

type Key = ([u8; 8], u8);

#[derive(Debug, Default)]
pub(in crate::export) struct Attempts(Mutex<HashMap<Key, Arc<Bucket>>>);

impl Attempts {
    /// The bucket of an address and a name, the name given as a hash.
    pub(in crate::export) fn of(&self, peer: Option<IpAddr>, name: u8, now: Instant) -> Arc<Bucket> {
        let key = (origin(peer), name % LANES);
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MOST && !buckets.contains_key(&key) {
            buckets.retain(|_, bucket| !bucket.is_full(now));
            if buckets.len() >= MOST {
                // Attempts from a thousand addresses within seconds: one semaphore bounds what they can cost.
                buckets.clear();
            }
        }
        Arc::clone(buckets.entry(key).or_insert_with(|| Arc::new(Bucket::new(INTERVAL, BURST))))
    }
}

/// An IPv4 address, or the network part of an IPv6 one: a single host has all the addresses below it.
fn origin(peer: Option<IpAddr>) -> [u8; 8] {
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
    use super::*;

    #[test]
    fn each_address_has_its_own_and_the_table_stays_small() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let peer = |n: u32| Some(IpAddr::from(n.to_be_bytes()));
        let took = (0..50).filter(|_| attempts.of(peer(1), 0, now).take(now)).count();
        assert_eq!(took, 10);
        assert!(attempts.of(peer(2), 0, now).take(now) && attempts.of(peer(1), 1, now).take(now));
        for n in 0..5_000 {
            attempts.of(peer(n), 0, now).take(now);
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
}

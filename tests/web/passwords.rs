//! Wrong passwords, and what they cost others: nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Connection, authorization, trust};
use super::fixture::{Fixture, PASSWORD, tls, users};
use crate::common::http;

/// How long the flood lasts in which scrapes are counted.
const SCRAPES: usize = 100;

/// The middle of scrapes one after the other.
fn typical(connection: &mut Connection, user: &str) -> Duration {
    let mut took: Vec<Duration> = (0..SCRAPES)
        .map(|_| {
            let began = Instant::now();
            assert_eq!(connection.get("/metrics", Some(user)).unwrap(), 200);
            took_since(began)
        })
        .collect();
    took.sort_unstable();
    took[SCRAPES / 2]
}

fn took_since(began: Instant) -> Duration {
    let took = began.elapsed();
    thread::sleep(Duration::from_millis(10));
    took
}

#[test]
fn a_flood_of_wrong_passwords_slows_nobody_else_down() {
    let fixture = Fixture::new().start(&format!("{}{}", tls(&[]), users()));
    let (trust, user) = (trust(&fixture.ca), format!("alice:{PASSWORD}"));
    let mut scraper = Connection::open(fixture.address, &trust).unwrap();
    assert_eq!(scraper.get("/metrics", Some(&user)).unwrap(), 200);
    let before = typical(&mut scraper, &user);

    let (stop, wrong, later) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let flood: Vec<_> = (0..4)
        .map(|thread| {
            let (stop, wrong, later) = (Arc::clone(&stop), Arc::clone(&wrong), Arc::clone(&later));
            let (trust, address) = (Arc::clone(&trust), fixture.address);
            thread::spawn(move || {
                let mut connection = Connection::open(address, &trust).unwrap();
                let mut number = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    number += 1;
                    match connection.get("/metrics", Some(&format!("alice:{thread}-{number}"))).unwrap() {
                        401 => wrong.fetch_add(1, Ordering::Relaxed),
                        429 => later.fetch_add(1, Ordering::Relaxed),
                        status => panic!("a wrong password got {status}"),
                    };
                    thread::sleep(Duration::from_millis(20));
                }
            })
        })
        .collect();
    let began = Instant::now();
    while later.load(Ordering::Relaxed) == 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "the flood is never told to wait");
        thread::sleep(Duration::from_millis(20));
    }
    let under = typical(&mut scraper, &user);
    // A new connection is served as well.
    assert_eq!(Connection::open(fixture.address, &trust).unwrap().get("/metrics", Some(&user)).unwrap(), 200);
    let seconds = began.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    for thread in flood {
        thread.join().unwrap();
    }
    let (wrong, later) = (wrong.load(Ordering::Relaxed), later.load(Ordering::Relaxed));
    println!(
        "a scrape takes {before:.1?} alone, {under:.1?} under {wrong} wrong passwords tried and {later} sent away"
    );
    assert!(later > wrong, "{wrong} were tried, {later} sent away");
    // Ten at once, and one a second.
    assert!(f64::from(u32::try_from(wrong).unwrap()) <= 10.0 + seconds + 2.0, "{wrong} tried in {seconds:.1} s");
}

#[test]
fn passwords_work_without_encryption_and_that_is_remarked_on() {
    let fixture = Fixture::new().start(&users());
    let ask = |user: &str| {
        let header = authorization(user);
        let value = header.trim_end().split_once(": ").unwrap().1.to_owned();
        http::request(fixture.address, "GET", "/metrics", &[("Authorization", &value)]).unwrap()
    };
    assert_eq!(ask(&format!("alice:{PASSWORD}")).status, 200);
    let refused = ask("alice:wrong");
    assert_eq!(refused.status, 401);
    assert!(refused.header("www-authenticate").unwrap().starts_with("Basic"));
    assert_eq!(http::get(fixture.address, "/metrics").unwrap().status, 401);
    assert!(fixture.log().contains("passwords cross the network in clear text"), "{}", fixture.log());
}

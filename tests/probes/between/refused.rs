//! Requests that are not a peer's: refused, counted, and nothing is started.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lanewatch::bench::peers::authentication::{PeerKey, RequestStamp};
use lanewatch::bench::peers::request::{NONCE, PATH, SIGNATURE, TIME, TO};
use serde_json::Value;

use super::super::common::http::{Response, exchange, request};
use super::super::common::run::{Server, free_address};
use super::super::{Scene, is_alive};
use super::{KEY, configure, end, may_mount, requests, serve, stage, until};

const SOUND: &str = r#"{"program":"ib_write_bw","size":65536,"queue_pairs":1,"seconds":1,"both":false,"rail":0}"#;

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// A request as it is signed and sent.
struct Asked<'a> {
    key: &'a str,
    to: String,
    time: u64,
    nonce: String,
    body: &'a str,
}

impl<'a> Asked<'a> {
    fn new(address: SocketAddr, nonce: u32, body: &'a str) -> Self {
        Self { key: KEY, to: address.to_string(), time: now(), nonce: format!("{nonce:032x}"), body }
    }

    fn send(&self, address: SocketAddr) -> Response {
        let stamp = RequestStamp { to: &self.to, time: self.time, nonce: &self.nonce };
        let signature = PeerKey::new(self.key.as_bytes()).unwrap().sign(&stamp, self.body.as_bytes());
        let (length, time) = (self.body.len().to_string(), self.time.to_string());
        let headers = [
            ("Content-Length", length.as_str()),
            (TO, &self.to),
            (TIME, &time),
            (NONCE, &self.nonce),
            (SIGNATURE, &signature),
        ];
        exchange(address, "POST", PATH, &headers, self.body).unwrap()
    }
}

fn reason(answer: &Response) -> String {
    let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    document["reason"].as_str().unwrap_or_default().to_owned()
}

/// Nothing was started: no fake noted itself, and the agent has no child.
fn nothing_started(scene: &Scene, agent: &Server) {
    assert!(scene.notes().is_empty(), "{:?}", scene.notes());
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        assert_ne!(parent, Some(agent.group.pid()), "a child: {stat}");
    }
}

#[test]
fn requests_that_are_not_a_peers_start_nothing() {
    if !may_mount() {
        return;
    }
    let scene = stage("ok");
    let address = free_address();
    let agent = serve(&scene, address, &configure(&scene, address, "", "serve = true"));
    assert_eq!(requests(&agent, "started"), Some(0.0), "there from the start");
    let asked = |nonce, body| Asked::new(address, nonce, body);
    let says = |asked: &Asked<'_>, status: u16, word: &str| {
        let answer = asked.send(address);
        assert_eq!((answer.status, reason(&answer).as_str()), (status, word), "{}", answer.text());
        nothing_started(&scene, &agent);
        answer
    };
    says(&Asked { key: "not the key that the two hosts share", ..asked(1, SOUND) }, 401, "wrong_signature");
    let old = says(&Asked { time: now() - 60_000, ..asked(2, SOUND) }, 401, "clock_skew");
    let clock = serde_json::from_slice::<Value>(&old.body).unwrap()["clock"].as_u64().unwrap();
    assert!(clock.abs_diff(now()) < 5_000, "the answer says the server's clock");
    says(&Asked { to: "192.0.2.77:10015".to_owned(), ..asked(3, SOUND) }, 421, "wrong_host");
    // Of what is right in all but its arguments nothing starts either, nor when it comes again.
    let odd = SOUND.replace("ib_write_bw", "/bin/sh");
    let odd = asked(4, &odd);
    says(&odd, 400, "malformed");
    says(&odd, 401, "replayed");
    let option = SOUND.replace("65536", "\"65536 --run_infinitely\"");
    says(&asked(5, &option), 400, "malformed");
    let huge = format!("{SOUND}{}", " ".repeat(5_000));
    says(&asked(6, &huge), 413, "too_long");
    let unsigned = exchange(address, "POST", PATH, &[("Content-Length", "2")], "{}").unwrap();
    assert_eq!((unsigned.status, reason(&unsigned).as_str()), (401, "unsigned"));
    assert_eq!(request(address, "GET", PATH, &[]).unwrap().status, 405);
    for (result, count) in [
        ("started", 0.0),
        ("wrong_signature", 1.0),
        ("clock_skew", 1.0),
        ("wrong_host", 1.0),
        ("malformed", 2.0),
        ("replayed", 1.0),
        ("too_long", 1.0),
        ("unsigned", 1.0),
        ("rate_limited", 0.0),
    ] {
        assert_eq!(requests(&agent, result), Some(count), "{result}");
    }
    nothing_started(&scene, &agent);
}

#[test]
fn a_server_whose_client_does_not_come_is_ended() {
    if !may_mount() {
        return;
    }
    let scene = stage("ok");
    let address = free_address();
    let agent = serve(&scene, address, &configure(&scene, address, "patience = '30s'", "serve = true"));
    let asked = Asked::new(address, 1, SOUND);
    let answer = asked.send(address);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let signature = answer.header(SIGNATURE).unwrap();
    let key = PeerKey::new(KEY.as_bytes()).unwrap();
    assert!(key.is_right_answer(signature, &asked.nonce, &answer.body), "the answer is signed, too");
    let port = serde_json::from_slice::<Value>(&answer.body).unwrap()["tcp_port"].to_string();
    assert_eq!(scene.notes()[0][1], port);
    // One at a time, under the lock of the host.
    let busy = Asked::new(address, 2, SOUND).send(address);
    assert_eq!((busy.status, reason(&busy).as_str()), (503, "busy"));
    assert_eq!(scene.notes().len(), 1);
    let began = Instant::now();
    until(Duration::from_secs(60), "its end", || (!is_alive(&scene.notes()[0][0])).then_some(()));
    println!("ended after {:?}", began.elapsed());
    scene.is_clean();
    drop(agent);
}

#[test]
fn a_server_outlives_the_request_that_started_it() {
    if !may_mount() {
        return;
    }
    let scene = stage("ok");
    let address = free_address();
    let agent = serve(&scene, address, &configure(&scene, address, "patience = '90s'", "serve = true"));
    assert_eq!(Asked::new(address, 1, SOUND).send(address).status, 200);
    // Threads that work on requests are kept for ten seconds; the client may take thirty to come.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        assert!(is_alive(&scene.notes()[0][0]), "ended after {:?}", began.elapsed());
        std::thread::sleep(Duration::from_millis(200));
    }
    // And it does not outlive the agent, nor leaves anything.
    end(agent.group);
    scene.is_clean();
}

#[test]
fn a_request_is_not_followed_again_after_a_restart() {
    if !may_mount() {
        return;
    }
    let scene = stage("ok");
    let address = free_address();
    let config = configure(&scene, address, "", "serve = true");
    let agent = serve(&scene, address, &config);
    let asked = Asked::new(address, 1, SOUND);
    assert_eq!(asked.send(address).status, 200);
    assert_eq!(scene.notes().len(), 1);
    drop(agent);
    let agent = serve(&scene, address, &config);
    let again = asked.send(address);
    assert_eq!((again.status, reason(&again).as_str()), (401, "replayed"), "{}", again.text());
    assert!(again.text().contains("signed before this agent started"), "{}", again.text());
    assert_eq!((scene.notes().len(), requests(&agent, "replayed")), (1, Some(1.0)));
}

#[test]
fn a_thousand_requests_cost_little_and_start_nothing() {
    if !may_mount() {
        return;
    }
    let scene = stage("ok");
    let address = free_address();
    let agent = serve(&scene, address, &configure(&scene, address, "", "serve = true"));
    let began = Instant::now();
    let send = |lane: u32| {
        let ask = move |n: u32| {
            let key = "not the key that the two hosts share";
            Asked { key, ..Asked::new(address, lane * 1_000 + n, SOUND) }.send(address).status
        };
        std::thread::spawn(move || (0..125).map(ask).collect::<Vec<u16>>())
    };
    let lanes: Vec<_> = (0..8).map(send).collect();
    let statuses: Vec<u16> = lanes.into_iter().flat_map(|lane| lane.join().unwrap()).collect();
    let took = began.elapsed();
    println!("1000 requests took {took:?}");
    let count = |status: u16| statuses.iter().filter(|other| **other == status).count();
    // Ten at once and one a second of one address are looked at; the others are sent away before.
    let looked_at = 10 + usize::try_from(took.as_secs()).unwrap() + 1;
    assert!((1..=looked_at).contains(&count(401)), "{} in {took:?}", count(401));
    assert_eq!(count(401) + count(429), 1_000, "{statuses:?}");
    assert!(agent.get("/metrics").status == 200 && took < Duration::from_secs(60));
    #[expect(clippy::cast_precision_loss, reason = "a thousand")]
    let expected = [("wrong_signature", count(401) as f64), ("rate_limited", count(429) as f64), ("started", 0.0)];
    for (result, expected) in expected {
        assert_eq!(requests(&agent, result), Some(expected), "{result}");
    }
    nothing_started(&scene, &agent);
}

#[test]
fn a_flood_of_unsigned_requests_takes_nothing_from_signed_ones() {
    if !may_mount() {
        return;
    }
    let scene = stage("ok");
    let address = free_address();
    let agent = serve(&scene, address, &configure(&scene, address, "", "serve = true"));
    let unsigned = || exchange(address, "POST", PATH, &[("Content-Length", "2")], "{}").unwrap().status;
    let statuses: Vec<u16> = (0..300).map(|_| unsigned()).collect();
    assert!(statuses.ends_with(&[429; 100]), "{statuses:?}");
    let answer = Asked::new(address, 1, SOUND).send(address);
    assert_eq!(answer.status, 200, "{}", answer.text());
    end(agent.group);
    scene.is_clean();
}

#[test]
fn by_default_there_is_no_such_path() {
    if !may_mount() {
        return;
    }
    let scene = stage("ok");
    let address = free_address();
    let agent = serve(&scene, address, &configure(&scene, address, "", ""));
    assert_eq!(Asked::new(address, 1, SOUND).send(address).status, 404);
    assert_eq!(requests(&agent, "started"), None);
    nothing_started(&scene, &agent);
}

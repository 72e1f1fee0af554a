//! A crowd of encrypted connections that say nothing.

use std::fs;

use super::client::{Connection, trust};
use super::fixture::{Fixture, tls};

const CROWD: usize = 500;

#[test]
fn encrypted_connections_that_idle_cost_little_and_stop_nobody() {
    let fixture = Fixture::new().start(&tls(&[]));
    let trust = trust(&fixture.ca);
    let resident = || {
        let pid = fixture.group.as_ref().unwrap().pid();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let mut scraper = Connection::open(fixture.address, &trust).unwrap();
    for _ in 0..20 {
        assert_eq!(scraper.get("/metrics", None).unwrap(), 200);
    }
    let before = resident();
    let crowd: Vec<Connection> = (0..CROWD)
        .map(|_| {
            let mut connection = Connection::open(fixture.address, &trust).unwrap();
            assert_eq!(connection.get("/-/healthy", None).unwrap(), 200);
            connection
        })
        .collect();
    let grown = resident().saturating_sub(before);
    println!("{CROWD} encrypted connections: {grown} KiB more");
    assert_eq!(scraper.get("/metrics", None).unwrap(), 200);
    assert!(grown < 40 * 1024, "{grown} KiB more for {CROWD} connections");
    drop(crowd);
}

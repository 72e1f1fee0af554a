//! Builds of the program beside each other on the same host, scraped in turn: size, memory and CPU, as ratios to the first.
//!
//! `LANEWATCH_BUILDS=glibc=PATH:musl=PATH` names them; without it nothing is measured. A build for another architecture runs under
//! QEMU's user-mode emulation if that is registered (`tests/arm64.sh`); its memory is then QEMU's, too.
//! `SCRAPES` and `CARDS` change the numbers.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a bench")]

#[path = "../tests/common/mod.rs"]
mod common;
mod limits;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::cost::{cpu_time, peak_memory};
use common::host::HostTree;
use common::run::{Server, free_address};
use limits::{median, mib};
use tempfile::TempDir;

/// Apart enough that each scrape is a reading of its own.
const APART: Duration = Duration::from_millis(1100);

/// After so long nothing runs any more that a scrape has set off.
const SETTLED: Duration = Duration::from_millis(100);

struct Build {
    name: String,
    size: u64,
    server: Server,
    costs: Vec<Duration>,
}

fn main() {
    let Ok(builds) = std::env::var("LANEWATCH_BUILDS") else { return };
    let (scrapes, cards) = (limits::setting("SCRAPES", 30), limits::setting("CARDS", 8));
    let host = limits::scratch();
    HostTree::new(cards).write(host.path()).unwrap();
    let build = |text: &str| {
        let (name, program) = text.split_once('=').unwrap_or_else(|| panic!("LANEWATCH_BUILDS: {text}: no NAME=PATH"));
        let (address, directory) = (free_address(), TempDir::new().unwrap());
        let mut command = Command::new(program);
        command.args(["serve", "--web.listen-address", &address.to_string()]);
        command.arg("--path.rootfs").arg(host.path()).arg("--storage.path").arg(directory.path().join("state"));
        let server = Server::spawn(command, address, directory, "/-/ready");
        Build { name: name.to_owned(), size: fs::metadata(program).unwrap().len(), server, costs: Vec::new() }
    };
    let mut builds: Vec<Build> = builds.split(':').map(build).collect();
    for round in 0..=scrapes {
        for build in &mut builds {
            let before = cpu_time(build.server.group.pid());
            assert_eq!(build.server.get("/metrics").status, 200);
            thread::sleep(SETTLED);
            // The first scrape finds nothing prepared.
            if round > 0 {
                build.costs.push(cpu_time(build.server.group.pid()).saturating_sub(before));
            }
        }
        thread::sleep(APART);
    }
    println!("{cards} cards, {scrapes} scrapes over a second apart, medians:");
    println!("| build | size | peak memory | CPU a scrape | of the first |");
    println!("|---|---|---|---|---|");
    let mut first = None;
    for build in builds {
        let (memory, cost) = (peak_memory(build.server.group.pid()), median(build.costs).as_secs_f64() * 1e3);
        let ratio = cost / *first.get_or_insert(cost);
        println!(
            "| {} | {:.1} MiB | {:.1} MiB | {cost:.2} ms | {ratio:.2} |",
            build.name,
            mib(build.size),
            mib(memory)
        );
    }
}

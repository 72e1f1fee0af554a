//! What the agent costs on a real kernel, beside a recorded host of the same machine: prints, shows nothing.

use std::thread;
use std::time::Duration;

use crate::guest::{Guest, Kernel};

const SCRAPES: u32 = 10;

/// Apart enough that each scrape is a reading of its own.
const APART: Duration = Duration::from_millis(1500);

/// CPU time of the agent so far, in nanoseconds.
const SPENT: &str =
    "cat /proc/$(pgrep -x lanewatch)/task/*/schedstat | awk '{ spent += $1 } END { printf \"%.0f\", spent }'";

/// CPU time of a scrape with the pass that it asks for, in milliseconds; samples; system calls a sample. The cheapest
/// scrape counts: what else the host does only adds to it.
fn measure(guest: &mut Guest, config: &str) -> (f64, usize, f64) {
    guest.serve(config);
    let spent = |guest: &mut Guest| guest.sh(SPENT).trim().parse::<f64>().unwrap();
    let (mut least, mut samples) = (f64::INFINITY, guest.scrape().len());
    for _ in 0..SCRAPES {
        thread::sleep(APART);
        let before = spent(guest);
        samples = guest.scrape().len();
        least = least.min(spent(guest) - before);
    }
    guest.sh("(setsid strace -f -c -qq -o /run/calls -p $(pgrep -x lanewatch) >/run/strace.log 2>&1 &); \
         for i in $(seq 400); do grep -q 'TracerPid:.[1-9]' /proc/$(pgrep -x lanewatch)/status && exit 0; sleep 0.1; done; exit 1");
    let mut traced = 0;
    for _ in 0..SCRAPES {
        thread::sleep(APART);
        traced += guest.scrape().len();
    }
    let total = guest
        .sh("pkill -TERM -x strace; for i in $(seq 400); do pgrep -x strace >/dev/null || break; sleep 0.1; done; \
         awk '$NF == \"total\" { print $4 }' /run/calls");
    let calls: f64 = total.trim().parse().unwrap_or_else(|_| panic!("{total}"));
    guest.stop("TERM");
    #[expect(clippy::cast_precision_loss, reason = "few")]
    let calls = calls / traced as f64;
    (least / 1e6, samples, calls)
}

#[test]
#[ignore = "measures"]
fn cost() {
    let Some(mut guest) = Guest::boot(Kernel::V6_12) else { return };
    guest.stand_in();
    let real = measure(&mut guest, "");
    guest.sh("cd /run; lanewatch snapshot -o host.tar.gz; mkdir tree; tar -xzf host.tar.gz -C tree");
    let root = guest
        .sh("for d in /run/tree /run/tree/*; do [ -d $d/sys/class ] && echo $d && exit 0; done; exit 1")
        .trim()
        .to_owned();
    let recorded = measure(&mut guest, &format!("[path]\nrootfs = \"{root}\"\n"));
    println!("in an emulated machine with 2 stand-in cards, the cheapest of {SCRAPES} scrapes {APART:?} apart:");
    for (what, (cpu, samples, calls)) in [("its kernel", real), ("a recording of it", recorded)] {
        println!("{what}: {cpu:.1} ms of CPU a scrape, {samples} samples, {calls:.2} system calls a sample");
    }
}

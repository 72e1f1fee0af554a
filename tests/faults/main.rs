//! One odd file never costs more than itself: every fault at every path that is read of a host with eight cards.

#![allow(unreachable_pub, reason = "modules of one program, which is no library")]
#![allow(clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod derived;
mod hosts;
mod table;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::Duration;

use bench::{Bench, Seen};
use common::exposition::{Sample, parse};
use common::faulty::Op;
use derived::{Plan, of_the_reading};
use lanewatch::model::reading::Reason;
use table::Kind;

/// When a host is read first, after its boot, and when again: by then nothing is left alone for an earlier refusal.
const FIRST: Duration = Duration::from_secs(3600);
const AGAIN: Duration = Duration::from_secs(3 * 3600);

/// What is expected of the whole sweep, and what was wrong.
struct Sweep<'a> {
    bench: &'a Bench,
    plan: &'a Plan,
    clean: [HashSet<String>; 2],
    tried: usize,
    wrong: Vec<String>,
}

impl Sweep<'_> {
    /// Spoils a path in every way.
    fn try_all(&mut self, path: &Path, kind: Kind) {
        let rules = self.plan.of(path);
        let mut judged: Vec<(Seen, Vec<String>)> = Vec::new();
        for (name, fault) in table::faults(kind) {
            self.tried += 1;
            self.bench.io.spoil(path, &fault);
            let mut trial = self.bench.trial(Some(path));
            let spoilt = trial.read(FIRST);
            self.bench.io.mend(path);
            let expected = self.expected(path, kind, name);
            let mut wrong = Vec::new();
            if spoilt.errors != expected {
                wrong.push(format!("counted {:?}, not {expected:?}", spoilt.errors));
            }
            match judged.iter().find(|(seen, _)| *seen == spoilt) {
                Some((_, found)) => wrong.extend(found.clone()),
                None => {
                    let lines = trial.say(&spoilt);
                    let allowed = |sample: &Sample| rules.iter().any(|rule| rule.names(sample));
                    let mut found = unexpected(&lines, &self.clean[0], allowed);
                    // Once for each outcome: it leaves nothing behind.
                    let mended = trial.read(AGAIN);
                    let lines = trial.say(&mended);
                    let left = unexpected(&lines, &self.clean[1], |_| false);
                    found.extend(left.into_iter().map(|line| format!("afterwards: {line}")));
                    if !mended.errors.is_empty() {
                        found.push(format!("afterwards: counted {:?}", mended.errors));
                    }
                    wrong.extend(found.clone());
                    judged.push((spoilt, found));
                }
            }
            if !wrong.is_empty() {
                self.wrong.push(format!("{name} at {}:\n  {}", path.display(), wrong.join("\n  ")));
            }
        }
    }

    /// Each collector that asks for the path counts the fault once.
    fn expected(&self, path: &Path, kind: Kind, fault: &str) -> BTreeMap<(&'static str, Reason), u64> {
        let Some(reason) = table::reason(kind, fault) else { return BTreeMap::new() };
        let ops: &[Op] = match kind {
            Kind::Directory => &[Op::List, Op::Stamp],
            Kind::Link | Kind::Driver => &[Op::Link],
            _ => &[Op::Open],
        };
        // It asks for links to know where they lead, and does without that; but not without its directory.
        let needs = |collector: &str| {
            let own = path.starts_with("/sys/class/infiniband") && fault == "looping";
            collector != "rdma" || kind != Kind::Link || own
        };
        let collectors = self.bench.who_asks(path, ops).into_keys().filter(|collector| needs(collector));
        collectors.map(|collector| ((collector, reason), 1)).collect()
    }
}

/// Samples that have changed and may not.
fn unexpected(lines: &[String], clean: &HashSet<String>, allowed: impl Fn(&Sample) -> bool) -> Vec<String> {
    let mut changed: Vec<&str> = lines.iter().filter(|line| !clean.contains(*line)).map(String::as_str).collect();
    if lines.len() - changed.len() < clean.len() {
        let now: HashSet<&str> = lines.iter().map(String::as_str).collect();
        changed.extend(clean.iter().map(String::as_str).filter(|line| !now.contains(line)));
    }
    let samples = parse(&changed.join("\n")).unwrap();
    let odd = samples.iter().zip(changed).filter(|(sample, _)| !of_the_reading(sample) && !allowed(sample));
    odd.map(|(_, line)| line.to_owned()).collect()
}

#[test]
fn one_odd_file_never_costs_more_than_itself() {
    let (io, plan) = hosts::eight_cards();
    let bench = Bench::new(io);
    let mut clean = bench.trial(None);
    let clean = [FIRST, AGAIN].map(|since| {
        let seen = clean.read(since);
        clean.say(&seen).into_iter().collect()
    });
    let mut sweep = Sweep { bench: &bench, plan: &plan, clean, tried: 0, wrong: Vec::new() };
    let begun = std::time::Instant::now();
    for (path, ops) in bench.paths() {
        let entry = bench.io.original(&path);
        // What was asked for and is not there is no file to spoil.
        if entry.is_some() || ops.contains(&Op::List) || ops.contains(&Op::Stamp) {
            sweep.try_all(&path, table::kind(&path, entry));
        }
    }
    println!("{} faults in {:?}", sweep.tried, begun.elapsed());
    let wrong = &sweep.wrong;
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), sweep.tried, wrong.join("\n"));
}

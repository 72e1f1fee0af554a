//! One odd file never costs more than itself: every fault at every path that is read of a host with eight cards.

#![allow(unreachable_pub, reason = "modules of one program, which is no library")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod derived;
mod hang;
mod hosts;
mod setup;
mod table;
mod vfs;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use bench::{Bench, Seen, Trial};
use common::exposition::{Sample, parse};
use common::faulty::{Fault, Op};
use derived::{Plan, Rule, of_the_reading};
use lanewatch::model::reading::ReadError;
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
        let rules = self.rules(path);
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
            if let Some((_, found)) = judged.iter().find(|(seen, _)| *seen == spoilt) {
                wrong.extend(found.clone());
            } else {
                let mut found = self.changed(&trial.say(&spoilt), 0, &rules);
                if judged.is_empty() {
                    found.extend(self.left(&mut trial));
                }
                wrong.extend(found.clone());
                judged.push((spoilt, found));
            }
            if !wrong.is_empty() {
                self.wrong.push(format!("{name} at {}:\n  {}", path.display(), wrong.join("\n  ")));
            }
        }
    }

    /// What changed that may not.
    fn changed(&self, lines: &[String], moment: usize, rules: &[Rule]) -> Vec<String> {
        unexpected(lines, &self.clean[moment], |sample| rules.iter().any(|rule| rule.names(sample)))
    }

    /// What is left of a fault when it is over.
    fn left(&self, trial: &mut Trial<'_>) -> Vec<String> {
        let mended = trial.read(AGAIN);
        let left = self.changed(&trial.say(&mended), 1, &[]);
        let mut found: Vec<_> = left.into_iter().map(|line| format!("afterwards: {line}")).collect();
        if !mended.errors.is_empty() {
            found.push(format!("afterwards: counted {:?}", mended.errors));
        }
        found
    }

    /// Lets a file fail that was read before. It counts if it is read again, then once.
    fn break_open(&mut self, path: &Path, kind: Kind) {
        let rules = self.rules(path);
        let errnos = ["EIO", "ENODEV"];
        let mut judged: Option<Seen> = None;
        for (name, fault) in table::faults(kind).into_iter().filter(|(name, _)| errnos.contains(name)) {
            self.tried += 1;
            let mut trial = self.bench.trial(Some(path));
            trial.read(FIRST);
            self.bench.io.spoil(path, &fault);
            let reads = self.bench.io.reads(path);
            let broken = trial.read(AGAIN);
            let is_read = self.bench.io.reads(path) > reads;
            self.bench.io.mend(path);
            let mut wrong = Vec::new();
            if judged.as_ref() != Some(&broken) {
                wrong.extend(self.changed(&trial.say(&broken), 1, &rules));
            }
            let expected = if is_read { self.expected(path, kind, name) } else { BTreeMap::new() };
            if broken.errors != expected {
                wrong.push(format!("counted {:?}, not {expected:?}", broken.errors));
            }
            judged = Some(broken);
            if !wrong.is_empty() {
                self.wrong.push(format!("{name} at {}:\n  {}", path.display(), wrong.join("\n  ")));
            }
        }
    }

    /// What follows from a path, and how much is seen by those who ask for it.
    fn rules(&self, path: &Path) -> Vec<Rule> {
        let askers = self.bench.who_asks(path, &Op::ALL);
        self.plan.of(path).into_iter().chain(askers.into_keys().map(Rule::of_sight)).collect()
    }

    /// Each collector that asks for the path counts the fault once.
    fn expected(&self, path: &Path, kind: Kind, fault: &str) -> BTreeMap<(&'static str, ReadError), u64> {
        let Some(reason) = table::reason(kind, fault) else { return BTreeMap::new() };
        let ops: &[Op] = match kind {
            Kind::Directory => &[Op::List, Op::Timestamp],
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

/// Threads that share the work, each with a host of its own.
const WORKERS: usize = 3;

/// Does a part of the work on each of some threads; what was wrong, and how much was done.
fn share_out(work: impl Fn(usize) -> (Vec<String>, usize) + Sync) {
    let begun = Instant::now();
    let (wrong, done) = thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..WORKERS).map(|worker| scope.spawn(move || work(worker))).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, (Vec<String>, usize)>| worker.join().unwrap();
        workers.into_iter().map(join).fold((Vec::new(), 0), |(mut wrong, done), (more, tried)| {
            wrong.extend(more);
            (wrong, done + tried)
        })
    });
    println!("{done} faults in {:?}", begun.elapsed());
    assert!(wrong.is_empty(), "{} of {done} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The paths that are there, and what is at each.
fn paths(bench: &Bench) -> impl Iterator<Item = (PathBuf, Kind)> {
    bench.paths().into_iter().filter_map(|(path, ops)| {
        let entry = bench.io.original(&path);
        // What was asked for and is not there is no file to spoil.
        let there = entry.is_some() || ops.contains(&Op::List) || ops.contains(&Op::Timestamp);
        let kind = table::kind(&path, entry);
        there.then_some((path, kind))
    })
}

/// What is said of the clean host at each moment.
fn clean(bench: &Bench) -> [HashSet<String>; 2] {
    let mut trial = bench.trial(None);
    [FIRST, AGAIN].map(|since| {
        let seen = trial.read(since);
        trial.say(&seen).into_iter().collect()
    })
}

#[test]
fn one_odd_file_never_costs_more_than_itself() {
    share_out(|worker| {
        let (io, plan) = hosts::eight_cards();
        let bench = Bench::new(io);
        let mut sweep = Sweep { bench: &bench, plan: &plan, clean: clean(&bench), tried: 0, wrong: Vec::new() };
        for (path, kind) in paths(&bench).skip(worker).step_by(WORKERS) {
            sweep.try_all(&path, kind);
        }
        (sweep.wrong, sweep.tried)
    });
}

#[test]
fn a_file_that_breaks_while_it_is_open_costs_only_itself() {
    share_out(|worker| {
        let (io, plan) = hosts::eight_cards();
        let bench = Bench::new(io);
        let mut sweep = Sweep { bench: &bench, plan: &plan, clean: clean(&bench), tried: 0, wrong: Vec::new() };
        for (path, kind) in paths(&bench).skip(worker).step_by(WORKERS).filter(|(_, kind)| kind.is_file()) {
            sweep.break_open(&path, kind);
        }
        (sweep.wrong, sweep.tried)
    });
}

#[test]
fn files_that_are_not_read_matter_to_nobody() {
    let (io, _) = hosts::eight_cards();
    let bench = Bench::new(io);
    let [clean, _] = clean(&bench);
    let read: HashSet<PathBuf> = bench.paths().into_keys().collect();
    let unread: Vec<PathBuf> = bench.io.files().filter(|path| !read.contains(path)).collect();
    assert!(unread.len() > 100, "{unread:?}");
    for path in unread {
        bench.io.spoil(&path, &Fault::Content(vec![0xff; 8192]));
    }
    let mut trial = bench.trial(Some(Path::new("/")));
    let seen = trial.read(FIRST);
    assert_eq!(unexpected(&trial.say(&seen), &clean, |_| false), [""; 0]);
    assert!(seen.errors.is_empty());
}

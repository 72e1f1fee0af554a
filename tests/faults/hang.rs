//! A read that never answers, an entry that is never listed, a directory that is never looked at: through the poller.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lanewatch::export::{Format, Process, encode};
use lanewatch::host::Spec;
use lanewatch::host::collector::{Filter, Setup};
use lanewatch::model::reading::ReadError;
use lanewatch::watch::clock::ManualClock;
use lanewatch::watch::{Engine, HostReport, Poller};

use super::bench::{Bench, specs};
use super::common::faulty::{Fault, Faulty, Op};
use super::derived::{Plan, Rule};
use super::{hosts, table, unexpected};

/// A lane that has not answered by then is stuck. The longer ones are for a machine so busy that others are late too.
const DEADLINES: [Duration; 3] = [Duration::from_millis(600), Duration::from_secs(3), Duration::from_secs(10)];

/// Longer than any pass that does not wait for what is stuck.
const NEVER: Duration = Duration::from_secs(60);

/// Pollers at a time: they mostly wait.
const AT_A_TIME: usize = 10;

fn poller(io: &Arc<Faulty>, deadline: Duration) -> Poller {
    let setup = Setup { host: io.host(), filter: Filter::default() };
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH, Duration::from_secs(3600));
    let specs = specs().map(|spec| Spec { deadline, ..*spec });
    Poller::new(&setup, specs, Arc::new(clock), Engine::new(Arc::default(), true), None).unwrap()
}

fn lines(report: &Arc<HostReport>) -> Vec<String> {
    let mut text = String::new();
    encode(Format::Text, report, &Arc::default(), Process::default(), &mut text).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn stuck(report: &HostReport) -> BTreeMap<&'static str, Vec<String>> {
    let keys = |keys: &[Arc<str>]| keys.iter().map(ToString::to_string).collect::<BTreeSet<_>>().into_iter().collect();
    let all = report.snapshot.collectors.iter().map(|collector| (collector.name, keys(&collector.stuck)));
    all.filter(|(_, keys): &(_, Vec<String>)| !keys.is_empty()).collect()
}

/// Read errors of each collector that has any, by reason.
fn errors(report: &HostReport) -> BTreeMap<&'static str, Vec<(ReadError, u64)>> {
    let counted =
        |errors: [u64; ReadError::ALL.len()]| ReadError::ALL.into_iter().zip(errors).filter(|(_, n)| *n > 0).collect();
    let all = report.snapshot.collectors.iter().map(|collector| (collector.name, counted(collector.errors)));
    all.filter(|(_, errors): &(_, Vec<_>)| !errors.is_empty()).collect()
}

/// What asks for a path, and hence waits: the listing of a collector, which has no lanes until it answers, or lanes.
fn expected(bench: &Bench, path: &Path) -> BTreeMap<&'static str, Vec<String>> {
    let ops: &[Op] = match table::kind(path, bench.io.original(path)) {
        table::Kind::Directory => &[Op::List, Op::Timestamp],
        table::Kind::Link | table::Kind::Driver => &[Op::Link],
        _ => &[Op::Open],
    };
    let who = bench.who_asks(path, ops).into_iter();
    who.map(|(collector, (listing, lanes))| {
        let mut keys =
            if listing { vec!["listing".to_owned()] } else { lanes.iter().map(ToString::to_string).collect() };
        keys.sort();
        (collector, keys)
    })
    .collect()
}

fn rules(plan: &Plan, stuck: &BTreeMap<&'static str, Vec<String>>) -> Vec<Rule> {
    let of = |collector: &&'static str, key: &String| match key.as_str() {
        "listing" => plan.of_listing(collector),
        key => plan.of_lane(collector, key),
    };
    let own = |collector: &&str| [Rule::of_collector(collector), Rule::of_sight(collector)];
    let lanes = stuck.iter().flat_map(|(collector, keys)| keys.iter().flat_map(move |key| of(collector, key)));
    lanes.chain(stuck.keys().flat_map(own)).collect()
}

/// A host, and what is known of it.
struct Clean {
    io: Arc<Faulty>,
    plan: Plan,
    bench: Bench,
    lines: HashSet<String>,
}

/// Lets a path hang from the start; what is wrong.
fn hang(clean: &Clean, path: &Path, deadline: Duration) -> Vec<String> {
    let Clean { io, plan, bench, lines: clean } = clean;
    let mut wrong = Vec::new();
    let mut check = |what: &str, right: bool, got: String| {
        if !right {
            wrong.push(format!("{what}: {got}"));
        }
    };
    let expected = expected(bench, path);
    let timeouts = expected.iter().map(|(name, keys)| (*name, vec![(ReadError::Timeout, keys.len() as u64)])).collect();
    let rules = rules(plan, &expected);
    io.spoil(path, &Fault::Hang);
    let mut poller = poller(io, deadline);
    let begun = Instant::now();
    let mut reports = vec![poller.pass(NEVER)];
    let first = begun.elapsed();
    check("too late", first < deadline * 2 + Duration::from_secs(2), format!("{first:?}"));
    let begun = Instant::now();
    reports.push(poller.pass(NEVER));
    check("waited for what is stuck", begun.elapsed() < NEVER / 2, format!("{:?}", begun.elapsed()));
    for report in &reports {
        check("stuck", stuck(report) == expected, format!("{:?}, not {expected:?}", stuck(report)));
        check("counted", errors(report) == timeouts, format!("{:?}", errors(report)));
        let odd = unexpected(&lines(report), clean, |sample| rules.iter().any(|rule| rule.names(sample)));
        check("samples", odd.is_empty(), odd.join("\n    "));
    }
    io.mend(path);
    let mut left = Vec::new();
    for _ in 0..100 {
        let report = poller.pass(NEVER);
        left = unexpected(&lines(&report), clean, |_| false);
        if left.is_empty() && stuck(&report).is_empty() {
            check("counted again", errors(&report) == timeouts, format!("{:?}", errors(&report)));
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    check("does not recover", left.is_empty(), left.join("\n    "));
    wrong.into_iter().map(|what| format!("{}: {what}", path.display())).collect()
}

/// The same with more and more time; what is wrong with the most.
fn patiently(clean: &Clean, path: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    for deadline in DEADLINES {
        wrong = hang(clean, path, deadline);
        if wrong.is_empty() {
            break;
        }
    }
    wrong
}

/// Every kind of path of every device, and of all that is no device's; each counter directory by its first file.
fn kinds(bench: &Bench, plan: &Plan) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let mut kinds = Vec::new();
    for (path, _) in super::paths(bench) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let parent = path.parent().unwrap();
        let counter = parent.ends_with("counters") || parent.ends_with("hw_counters");
        let name = if counter { "counter" } else { name };
        let owner = plan.owner(&path);
        let directory = parent.file_name().filter(|_| owner.is_some() && !counter).unwrap_or_default();
        if seen.insert((owner, directory.to_owned(), name.to_owned())) {
            kinds.push(path);
        }
    }
    kinds
}

#[test]
fn what_never_answers_costs_only_its_own_lane() {
    let (io, plan) = hosts::eight_cards();
    let kinds = kinds(&Bench::new(io), &plan);
    let begun = Instant::now();
    let wrong: Vec<String> = thread::scope(|scope| {
        let kinds = &kinds;
        let work = move |worker: usize| {
            let (io, plan) = hosts::eight_cards();
            let bench = Bench::new(Arc::clone(&io));
            let lines = lines(&poller(&io, NEVER).pass(NEVER)).into_iter().collect();
            let clean = Clean { io, plan, bench, lines };
            let paths = kinds.iter().skip(worker).step_by(AT_A_TIME);
            paths.flat_map(|path| patiently(&clean, path)).collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..AT_A_TIME).map(|worker| scope.spawn(move || work(worker))).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    println!("{} paths in {:?}", kinds.len(), begun.elapsed());
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

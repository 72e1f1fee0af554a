//! Workers: a thread for each lane and one for each collector's listing. A worker that blocks in the kernel blocks
//! alone.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::host::{Collector, Depth, Found, Host, Lane, Pass};
use crate::model::reading::Reason;
use crate::model::snapshot::{Fact, Fault};
use crate::model::time::Tick;

/// Readers need little stack.
const STACK: usize = 256 * 1024;

/// Something that was found, with a lane where its key was not known.
pub type Opened = (Found, Option<Box<dyn Lane>>);

/// What a worker sends back.
pub enum Done {
    /// A collector listed what is there.
    Listed {
        /// Index of the collector.
        collector: usize,
        /// What it found, with a new lane for each key that was not known; or why it could not list.
        found: Result<Vec<Opened>, Reason>,
        /// What could not be read on the way.
        faults: Vec<Fault>,
    },
    /// A lane was read.
    Read {
        /// Index of the collector.
        collector: usize,
        /// Key of the lane.
        key: Arc<str>,
        /// Which lane of that key: one that was replaced meanwhile has an older number.
        generation: u64,
        /// The facts.
        facts: Vec<Fact>,
        /// What could not be read.
        faults: Vec<Fault>,
        /// Files that are left alone for now.
        quarantined: usize,
        /// How long it took.
        took: Duration,
    },
}

/// A listing to make: which keys have lanes already.
pub struct List {
    /// When.
    pub now: Tick,
    /// Keys that need no new lane.
    pub known: BTreeSet<Arc<str>>,
}

/// A reading to make.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// When.
    pub now: Tick,
    /// How deep.
    pub depth: Depth,
}

/// Starts the worker that lists for a collector.
///
/// # Errors
/// The system has no more threads.
pub fn lister<M: From<Done> + Send + 'static>(
    index: usize,
    name: &'static str,
    mut collector: Box<dyn Collector>,
    host: Host,
    done: Sender<M>,
) -> io::Result<SyncSender<List>> {
    let (jobs, inbox) = sync_channel::<List>(1);
    thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(move || {
        while let Ok(job) = inbox.recv() {
            let mut pass = Pass::new(&host, job.now, Depth::Full);
            let found = collector.discover(&mut pass).map(|found| {
                let open = |found: Found| {
                    let lane = (!job.known.contains(&found.key)).then(|| collector.open(&found));
                    (found, lane)
                };
                found.into_iter().map(open).collect()
            });
            if done.send(Done::Listed { collector: index, found, faults: pass.faults }.into()).is_err() {
                return;
            }
        }
    })?;
    Ok(jobs)
}

/// Starts the worker of a lane.
///
/// # Errors
/// The system has no more threads.
pub fn lane<M: From<Done> + Send + 'static>(
    collector: usize,
    key: Arc<str>,
    generation: u64,
    lane: Box<dyn Lane>,
    host: Host,
    done: Sender<M>,
) -> io::Result<SyncSender<Read>> {
    let (jobs, inbox) = sync_channel::<Read>(1);
    let name: String = key.chars().filter(|c| *c != '\0').take(15).collect();
    let body = move || read_lane(collector, &key, generation, lane, &host, &inbox, &done);
    thread::Builder::new().name(name).stack_size(STACK).spawn(body)?;
    Ok(jobs)
}

fn read_lane<M: From<Done>>(
    collector: usize,
    key: &Arc<str>,
    generation: u64,
    mut lane: Box<dyn Lane>,
    host: &Host,
    inbox: &Receiver<Read>,
    done: &Sender<M>,
) {
    let mut pass = Pass::new(host, Tick::default(), Depth::Full);
    while let Ok(job) = inbox.recv() {
        let began = Instant::now();
        (pass.now, pass.depth) = (job.now, job.depth);
        let facts = lane.read(&mut pass);
        let message = Done::Read {
            collector,
            key: Arc::clone(key),
            generation,
            facts,
            faults: std::mem::take(&mut pass.faults),
            quarantined: lane.quarantined(),
            took: began.elapsed(),
        };
        if done.send(message.into()).is_err() {
            return;
        }
    }
}

//! Threads that run readings.
//!
//! One worker runs everything as long as nothing blocks, which costs a handful of context switches a pass however many
//! readers there are. When readings take long or hang, [`ReaderPool::add_workers`] starts more workers, so that slow
//! readers run side by side and one that hangs blocks nobody else. A reader is moved into its task and comes back with
//! the result, so nothing reads a device twice at a time.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Readers need little stack.
const STACK: usize = 256 * 1024;

/// Workers that stay when there is nothing to do.
const MAX_IDLE: usize = 1;

/// How often [`ReaderPool::add_workers`] leaves a queue alone whose tasks finish. On a host whose CPUs are busy, a worker
/// that waits for its turn looks like a slow device, and more threads would only add work.
const PATIENCE: u32 = 4;

type Task<T> = Box<dyn FnOnce() -> T + Send>;

/// Worker threads and their queue.
pub struct ReaderPool<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    work: Condvar,
    on_idle: Box<dyn Fn() + Send + Sync>,
}

struct State<T> {
    queue: VecDeque<Task<T>>,
    results: Vec<T>,
    busy: usize,
    idle: usize,
    closed: bool,
    /// Whether a task has finished since [`ReaderPool::add_workers`] was last called.
    progressed: bool,
    /// How often no workers were added to this queue because tasks had finished.
    skipped: u32,
}

impl<T: Send + 'static> ReaderPool<T> {
    /// A pool with one worker. `on_idle` is called whenever the queue has run empty.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn new(on_idle: impl Fn() + Send + Sync + 'static) -> io::Result<Self> {
        let state = State {
            queue: VecDeque::new(),
            results: Vec::new(),
            busy: 0,
            idle: 0,
            closed: false,
            progressed: false,
            skipped: 0,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), work: Condvar::new(), on_idle: Box::new(on_idle) });
        let pool = Self { shared };
        pool.spawn_worker()?;
        Ok(pool)
    }

    fn spawn_worker(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        thread::Builder::new().name("reader".to_owned()).stack_size(STACK).spawn(move || shared.work())?;
        Ok(())
    }

    /// Queues tasks and wakes a worker.
    pub fn add(&self, tasks: impl IntoIterator<Item = Task<T>>) {
        let mut state = self.shared.lock();
        if state.queue.is_empty() {
            (state.progressed, state.skipped) = (false, 0);
        }
        state.queue.extend(tasks);
        if !state.queue.is_empty() {
            self.shared.work.notify_one();
        }
    }

    /// The results since the last call.
    pub fn collect(&self) -> Vec<T> {
        std::mem::take(&mut self.shared.lock().results)
    }

    /// Called when some time has passed: while tasks wait and no worker is idle, starts as many workers as are busy. As
    /// long as tasks finish, it does so only after some calls without progress.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn add_workers(&self) -> io::Result<()> {
        let mut state = self.shared.lock();
        let (waiting, busy, idle) = (state.queue.len(), state.busy, state.idle);
        let patient = std::mem::take(&mut state.progressed) && state.skipped < PATIENCE;
        state.skipped += u32::from(patient);
        drop(state);
        if idle == 0 && !patient {
            for _ in 0..busy.max(1).min(waiting) {
                self.spawn_worker()?;
            }
        }
        Ok(())
    }
}

impl<T> Drop for ReaderPool<T> {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker: runs the queue, then waits; ends if enough others wait already.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if state.closed {
                return;
            }
            if let Some(task) = state.queue.pop_front() {
                state.busy += 1;
                drop(state);
                let result = task();
                state = self.lock();
                state.busy -= 1;
                state.results.push(result);
                state.progressed = true;
                if state.queue.is_empty() {
                    drop(state);
                    (self.on_idle)();
                    state = self.lock();
                }
            } else if state.idle >= MAX_IDLE {
                return;
            } else {
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    fn task(number: u32) -> Task<u32> {
        Box::new(move || number)
    }

    #[test]
    fn one_worker_runs_everything_and_reports_idle_once() {
        let (report, idle) = channel();
        let pool = ReaderPool::new(move || report.send(()).unwrap()).unwrap();
        pool.add((0..100).map(task));
        idle.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(pool.collect(), (0..100).collect::<Vec<_>>());
        assert!(idle.try_recv().is_err());
    }

    #[test]
    fn a_queue_whose_tasks_finish_gets_more_workers_only_after_a_while() {
        let pool = ReaderPool::<u32>::new(|| ()).unwrap();
        let workers = || Arc::strong_count(&pool.shared) - 1;
        let (release, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let (began, started) = channel();
        pool.add((0..20).map(|number| -> Task<u32> {
            let (gate, began) = (Arc::clone(&gate), began.clone());
            Box::new(move || {
                let _ = began.send(());
                let _ = gate.lock().unwrap().recv();
                number
            })
        }));
        started.recv().unwrap();
        for _ in 0..PATIENCE {
            // One task ends, and the next one is at work.
            release.send(()).unwrap();
            started.recv().unwrap();
            pool.add_workers().unwrap();
            assert_eq!(workers(), 1);
        }
        release.send(()).unwrap();
        started.recv().unwrap();
        pool.add_workers().unwrap();
        assert_eq!(workers(), 2, "slow tasks run side by side in the end");
        // Nothing has ended since: help comes at once.
        started.recv().unwrap();
        pool.add_workers().unwrap();
        assert_eq!(workers(), 4);
        (0..20).for_each(|_| _ = release.send(()));
    }

    #[test]
    fn tasks_that_hang_block_nobody() {
        let (report, idle) = channel();
        let pool = ReaderPool::new(move || _ = report.send(())).unwrap();
        let (release, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let hang = |number: u32| -> Task<u32> {
            let gate = Arc::clone(&gate);
            Box::new(move || {
                let _ = gate.lock().map(|gate| gate.recv());
                number
            })
        };
        pool.add([hang(0), hang(1), hang(2), task(3), task(4)]);
        let mut results = Vec::new();
        for _ in 0..500 {
            if idle.recv_timeout(Duration::from_millis(10)).is_err() {
                pool.add_workers().unwrap();
            }
            results.extend(pool.collect());
            if results.len() == 2 {
                break;
            }
        }
        assert_eq!(results, [3, 4]);
        drop(release);
        while results.len() < 5 {
            idle.recv_timeout(Duration::from_secs(10)).unwrap();
            results.extend(pool.collect());
        }
    }
}

//! The crew: threads that lanes borrow for as long as a reading takes.
//!
//! One hand runs everything as long as nothing blocks, which costs a handful of context switches a pass however many
//! lanes there are. When readings take long or do not come back, [`ReaderPool::relieve`] puts more hands to the queue, so that
//! slow lanes run side by side and one that hangs holds up nobody else. A lane is moved into its reading and comes back with it: it can't be read twice
//! at a time.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Readers need little stack.
const STACK: usize = 256 * 1024;

/// Hands that stay when there is nothing to do.
const SPARE: usize = 1;

type Task<T> = Box<dyn FnOnce() -> T + Send>;

/// Threads and their queue.
pub struct ReaderPool<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    work: Condvar,
    bell: Box<dyn Fn() + Send + Sync>,
}

struct State<T> {
    queue: VecDeque<Task<T>>,
    results: Vec<T>,
    busy: usize,
    idle: usize,
    closed: bool,
}

impl<T: Send + 'static> ReaderPool<T> {
    /// A crew with one hand. `bell` is rung whenever the queue has run empty.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn new(bell: impl Fn() + Send + Sync + 'static) -> io::Result<Self> {
        let state = State { queue: VecDeque::new(), results: Vec::new(), busy: 0, idle: 0, closed: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), work: Condvar::new(), bell: Box::new(bell) });
        let crew = Self { shared };
        crew.hire()?;
        Ok(crew)
    }

    fn hire(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        thread::Builder::new().name("reader".to_owned()).stack_size(STACK).spawn(move || shared.work())?;
        Ok(())
    }

    /// Puts tasks to the queue and wakes a hand.
    pub fn add(&self, tasks: impl IntoIterator<Item = Task<T>>) {
        let mut state = self.shared.lock();
        state.queue.extend(tasks);
        if !state.queue.is_empty() {
            self.shared.work.notify_one();
        }
    }

    /// What was finished since the last call.
    pub fn collect(&self) -> Vec<T> {
        std::mem::take(&mut self.shared.lock().results)
    }

    /// Called when some time has passed: while tasks wait, as many hands come as are at work, or held up.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn relieve(&self) -> io::Result<()> {
        let state = self.shared.lock();
        let (waiting, busy, idle) = (state.queue.len(), state.busy, state.idle);
        drop(state);
        if idle == 0 {
            for _ in 0..busy.max(1).min(waiting) {
                self.hire()?;
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

    /// What a hand does: the queue, then wait; one hand too many goes home.
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
                if state.queue.is_empty() {
                    drop(state);
                    (self.bell)();
                    state = self.lock();
                }
            } else if state.idle >= SPARE {
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
    fn one_hand_runs_everything_and_rings_once() {
        let (ring, bell) = channel();
        let crew = ReaderPool::new(move || ring.send(()).unwrap()).unwrap();
        crew.add((0..100).map(task));
        bell.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(crew.collect(), (0..100).collect::<Vec<_>>());
        assert!(bell.try_recv().is_err());
    }

    #[test]
    fn tasks_that_hang_hold_up_nobody() {
        let (ring, bell) = channel();
        let crew = ReaderPool::new(move || _ = ring.send(())).unwrap();
        let (release, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let hang = |number: u32| -> Task<u32> {
            let gate = Arc::clone(&gate);
            Box::new(move || {
                let _ = gate.lock().map(|gate| gate.recv());
                number
            })
        };
        crew.add([hang(0), hang(1), hang(2), task(3), task(4)]);
        let mut results = Vec::new();
        for _ in 0..500 {
            if bell.recv_timeout(Duration::from_millis(10)).is_err() {
                crew.relieve().unwrap();
            }
            results.extend(crew.collect());
            if results.len() == 2 {
                break;
            }
        }
        assert_eq!(results, [3, 4]);
        drop(release);
        while results.len() < 5 {
            bell.recv_timeout(Duration::from_secs(10)).unwrap();
            results.extend(crew.collect());
        }
    }
}

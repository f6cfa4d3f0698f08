//! Threads that read what others wait for: a queue, and threads that take from it. Only these threads meet
//! the disk, so that a thread that waits for a read can give up, though the reading thread hangs in the
//! kernel.
//!
//! ```text
//!   add_errands(errands)         [errand][errand]  a worker's (`errands`): reads where it has no ring, keys that are tried again
//!   call(read, gives_up)         [call]  a thread waits for its end as it likes: a snapshot for its next read; in front of all
//!                                        what a command waits for under its locks. One thread does nothing else (`help_held`):
//!                                        the others may wait for those locks
//!   ask_probe()                  [probe]
//!   forget_unwanted()            what is not waited for any more leaves the queue
//! ```
//! A push wakes as many resting threads as it brings work for. Invariant: no more threads rest unwoken than
//! `resting` says.

use isotherm_commands::call::ColdKey;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::errands::Errand;
use super::target::Fetched;

/// Reads under way: an SSD answers some 30 at once as fast as one.
pub const READERS: usize = 16;
/// Time between two looks at whether to give a call up.
const CALL_LOOK: Duration = Duration::from_millis(20);

/// Returns whether a thread that has waited for the disk for this time gives up.
pub type GivesUp<'g> = dyn Fn(Duration) -> bool + 'g;

/// A call that a thread has yet to make, with what all of them share.
type Call<T> = Mutex<Option<Box<dyn FnOnce(&T) + Send>>>;

/// Locks of a thread that waits for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// Holding what readers may wait for.
    Holding,
    Free,
}

enum Work<T> {
    Errand(Errand),
    /// Gone when its waiting thread has given it up.
    Call(Weak<Call<T>>, Waits),
    Probe,
}

struct Queue<T> {
    works: VecDeque<Work<T>>,
    /// Threads that wait for any work and were not woken yet. After one has gone on without cause it may say
    /// more.
    resting: usize,
}

/// `T` is what all threads share.
pub struct Reads<T> {
    queue: Mutex<Queue<T>>,
    /// Something has come; something that is waited for under locks.
    some: Condvar,
    held: Condvar,
    /// Commands that gave up.
    timeouts: AtomicU64,
    begun: Instant,
    /// End of the last errand that was read, in time since `begun`.
    moved_ms: AtomicU64,
    /// No thread reads: the thread that waits for a value reads it.
    #[cfg(debug_assertions)]
    pub is_alone: std::sync::atomic::AtomicBool,
}

/// Operations of the threads that read.
pub trait Reader {
    /// The value of a key, wherever it is by now, tried more than once. `None`: it needs no reading any more.
    fn read_key(&self, cold: &ColdKey) -> Option<Fetched>;
    /// Makes a call for which a command waits under its locks.
    fn time(&self, call: impl FnOnce());
    /// Returns whether anything can be read.
    fn probe(&self) -> bool;
    /// Errands of this worker have ended.
    fn notify(&self, worker: u16);
}

impl<T> Default for Reads<T> {
    fn default() -> Reads<T> {
        let (some, held) = Default::default();
        Reads {
            queue: Mutex::new(Queue { works: VecDeque::new(), resting: 0 }),
            some,
            held,
            timeouts: AtomicU64::new(0),
            begun: Instant::now(),
            moved_ms: AtomicU64::new(0),
            #[cfg(debug_assertions)]
            is_alone: Default::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Reads<T> {
    /// Their worker is notified when they have ended.
    pub fn add_errands(&self, errands: impl ExactSizeIterator<Item = Errand>) {
        let count = errands.len();
        let mut queue = lock(&self.queue);
        queue.works.extend(errands.map(Work::Errand));
        self.wake(queue, count);
    }

    /// Wakes threads for `works` new works. Threads that do not rest look into the queue before they do.
    fn wake(&self, mut queue: MutexGuard<'_, Queue<T>>, works: usize) {
        let woken = works.min(queue.resting);
        queue.resting -= woken;
        let is_all = queue.resting == 0;
        drop(queue);
        match woken {
            2.. if is_all => self.some.notify_all(),
            _ => (0..woken).for_each(|_| self.some.notify_one()),
        }
    }

    /// Makes a call on a thread that reads, and waits for it until `gives_up`, which gets to know for how
    /// long by now. `None`: it was given up.
    pub fn call<V: Send + 'static>(
        &self,
        shared: &T,
        waits: Waits,
        call: impl FnOnce(&T) -> V + Send + 'static,
        gives_up: &GivesUp<'_>,
    ) -> Option<V> {
        if self.is_alone() {
            return Some(call(shared));
        }
        let (answer, answered) = sync_channel(1);
        let call: Box<dyn FnOnce(&T) + Send> = Box::new(move |shared| _ = answer.send(call(shared)));
        let call: Arc<Call<T>> = Arc::new(Mutex::new(Some(call)));
        let (work, mut queue) = (Work::Call(Arc::downgrade(&call), waits), lock(&self.queue));
        match waits {
            Waits::Holding => self.add_front(work, queue),
            Waits::Free => {
                queue.works.push_back(work);
                self.wake(queue, 1);
            }
        }
        let began = Instant::now();
        loop {
            match answered.recv_timeout(CALL_LOOK) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Timeout) if !gives_up(began.elapsed()) => {}
                Err(_) => return None,
            }
        }
    }

    /// Returns whether no thread reads: the thread that waits for a value reads it.
    #[cfg(debug_assertions)]
    pub fn is_alone(&self) -> bool {
        self.is_alone.load(Ordering::Relaxed)
    }

    /// Returns that threads read.
    #[cfg(not(debug_assertions))]
    pub fn is_alone(&self) -> bool {
        false
    }

    /// A reader looks whether the disk works.
    pub fn ask_probe(&self) {
        let queue = lock(&self.queue);
        // While all readers hang none is taken.
        if !matches!(queue.works.front(), Some(Work::Probe)) {
            self.add_front(Work::Probe, queue);
        }
    }

    fn add_front(&self, work: Work<T>, mut queue: MutexGuard<'_, Queue<T>>) {
        queue.works.push_front(work);
        self.wake(queue, 1);
        self.held.notify_one();
    }

    /// Takes out what is not waited for any more: what hangs would keep it in the queue for as long.
    pub fn forget_unwanted(&self) {
        let is_wanted = |work: &Work<T>| match work {
            Work::Errand(errand) => errand.is_wanted(),
            Work::Call(call, _) => call.strong_count() > 0,
            Work::Probe => true,
        };
        lock(&self.queue).works.retain(is_wanted);
    }

    /// Counts a caller that has given up what others were to read for it.
    pub fn note_timeout(&self) {
        self.timeouts.fetch_add(1, Ordering::Relaxed);
    }

    /// Commands that gave up since the start.
    pub fn timeouts(&self) -> u64 {
        self.timeouts.load(Ordering::Relaxed)
    }

    /// Places in the queue.
    pub fn waiting(&self) -> usize {
        lock(&self.queue).works.len()
    }

    /// Waits for work, and does it.
    pub fn help(&self, shared: &T, reader: &impl Reader) {
        let work = self.take();
        let is_read = matches!(&work, Work::Errand(errand) if errand.is_wanted());
        do_work(work, shared, reader);
        if is_read {
            self.moved_ms.store(self.begun.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
    }

    /// Returns whether threads have read something for workers since then.
    pub fn has_moved_since(&self, then: Instant) -> bool {
        self.begun + Duration::from_millis(self.moved_ms.load(Ordering::Relaxed)) >= then
    }

    /// Waits for what is waited for under locks, and does it: other readers may wait for these locks.
    pub fn help_held(&self, shared: &T, reader: &impl Reader) {
        do_work(self.take_held(), shared, reader);
    }

    fn take_held(&self) -> Work<T> {
        let mut queue = lock(&self.queue);
        loop {
            let is_held = |work: &mut Work<T>| matches!(work, Work::Call(_, Waits::Holding) | Work::Probe);
            if let Some(work) = queue.works.pop_front_if(is_held) {
                return work;
            }
            isotherm_allocator::settle();
            queue = self.held.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn take(&self) -> Work<T> {
        let mut queue = lock(&self.queue);
        loop {
            match queue.works.pop_front() {
                Some(work) => return work,
                None => {
                    // Memory that a thread has lent to others is to be counted while it rests.
                    isotherm_allocator::settle();
                    queue.resting = (queue.resting + 1).min(READERS);
                    queue = self.some.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

fn do_work<T>(work: Work<T>, shared: &T, reader: &impl Reader) {
    match work {
        Work::Errand(errand) => errand.run(reader).into_iter().for_each(|worker| reader.notify(worker)),
        Work::Call(call, waits) => {
            // Its one owner can release it without a wait for the disk.
            let call = call.upgrade().and_then(|call| lock(&call).take());
            match (call, waits) {
                (Some(call), Waits::Holding) => reader.time(|| call(shared)),
                (Some(call), Waits::Free) => call(shared),
                (None, _) => {}
            }
        }
        Work::Probe => _ = reader.probe(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reader without errands.
    struct Idle;

    impl Reader for Idle {
        fn read_key(&self, _: &ColdKey) -> Option<Fetched> {
            panic!("there is no errand")
        }

        fn time(&self, call: impl FnOnce()) {
            call();
        }

        fn probe(&self) -> bool {
            true
        }

        fn notify(&self, _: u16) {}
    }

    #[test]
    fn a_call_is_waited_for_so_long_and_no_longer() {
        let reads: Arc<Reads<u8>> = Arc::default();
        let add = |to: u8| move |shared: &u8| shared + to;
        let gives_up = |waited: Duration| waited > Duration::from_millis(5);
        for waits in [Waits::Holding, Waits::Free] {
            assert_eq!(reads.call(&1, waits, add(1), &gives_up), None);
        }
        assert_eq!(reads.waiting(), 2);
        // A call that is not waited for any more is not made, and leaves the queue.
        reads.forget_unwanted();
        assert_eq!(reads.waiting(), 0);
        reads.ask_probe();
        reads.ask_probe();
        assert_eq!(reads.waiting(), 1);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..3).for_each(|_| reads.help(&1, &Idle)));
            assert_eq!(reads.call(&1, Waits::Holding, add(2), &|_| false), Some(3));
            assert_eq!(reads.call(&1, Waits::Free, add(3), &|_| false), Some(4));
        });
        assert_eq!(reads.waiting(), 0);
        // The thread for such calls alone leaves others in the queue.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                reads.help_held(&1, &Idle);
                reads.help(&1, &Idle);
            });
            let free = scope.spawn(|| reads.call(&1, Waits::Free, add(4), &|_| false));
            assert_eq!(reads.call(&1, Waits::Holding, add(5), &|_| false), Some(6));
            assert_eq!(free.join().expect("it has waited"), Some(5));
        });
    }
}

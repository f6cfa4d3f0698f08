//! Threads that read what others wait for: a queue, and threads that take from it. Only these threads meet the disk, so that
//! who waits for a read can give up, though the thread hangs in the kernel.
//!
//! ```text
//!   add_errands(errands)         [errand][errand]  a worker's (`errands`): reads where it has no ring, keys that are tried again
//!   read_now(place, key)         [now]  in front of all: a command waits for it under its locks. One thread reads nothing else
//!                                       (`help_now`): the others may wait for those locks
//!   call(read, gives_up)         [call]  a snapshot's next read, for whose end its thread waits as it likes
//!   ask_probe()                  [probe]
//!   forget_unwanted()            what is not waited for any more leaves the queue
//! ```
//! As many threads are woken as there is work for, of those that rest. Invariant: no more threads rest unwoken than
//! `resting` says.

use isotherm_commands::call::ColdKey;
use isotherm_keyspace::ColdRef;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::errands::Errand;
use super::files::ReadError;
use super::target::Fetched;

/// Reads under way: an SSD answers some 30 at once as fast as one.
pub const READERS: usize = 16;
/// Time between two looks at whether to give a call up.
const CALL_LOOK: Duration = Duration::from_millis(20);

/// What becomes of a read that a command waits for under its locks.
enum Answer {
    Awaited,
    Read(Result<Vec<u8>, ReadError>),
    /// It is not waited for any more.
    GivenUp,
}

struct Now {
    /// `None`: whether anything can be read.
    reference: Option<ColdRef>,
    key: Box<[u8]>,
    answer: Mutex<Answer>,
    answered: Condvar,
}

/// Returns whether a thread that has waited so long for the disk waits no longer.
pub type GivesUp<'g> = dyn Fn(Duration) -> bool + 'g;

/// A call that a thread has yet to make.
type Call = Mutex<Option<Box<dyn FnOnce() + Send>>>;

enum Work {
    Now(Arc<Now>),
    Errand(Errand),
    /// Gone when its waiting thread has given it up.
    Call(Weak<Call>),
    Probe,
}

#[derive(Default)]
struct Queue {
    works: VecDeque<Work>,
    /// Threads that wait for any work and were not woken yet. After one has gone on without cause it may say more.
    resting: usize,
}

#[derive(Default)]
pub struct Reads {
    queue: Mutex<Queue>,
    /// Something has come; something that a command waits for under its locks.
    some: Condvar,
    now: Condvar,
    /// Commands that gave up.
    timeouts: AtomicU64,
    /// No thread reads: who waits for a value reads it.
    #[cfg(test)]
    pub is_alone: std::sync::atomic::AtomicBool,
}

/// What a reader can do.
pub trait Reader {
    /// The value of a key, wherever it is by now, tried more than once. `None`: it needs no reading any more.
    fn read_key(&self, cold: &ColdKey) -> Option<Fetched>;
    /// The value at a place that does not change meanwhile.
    fn read_at(&self, reference: ColdRef, key: &[u8]) -> Result<Vec<u8>, ReadError>;
    /// Whether anything can be read.
    fn probe(&self) -> bool;
    /// Errands of this worker have ended.
    fn notify(&self, worker: u16);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reads {
    /// Their worker is notified when they have ended.
    pub fn add_errands(&self, errands: impl ExactSizeIterator<Item = Errand>) {
        let count = errands.len();
        let mut queue = lock(&self.queue);
        queue.works.extend(errands.map(Work::Errand));
        self.wake(queue, count);
    }

    /// So much has come. Threads that do not rest look into the queue before they do.
    fn wake(&self, mut queue: MutexGuard<'_, Queue>, works: usize) {
        let woken = works.min(queue.resting);
        queue.resting -= woken;
        let is_all = queue.resting == 0;
        drop(queue);
        match woken {
            2.. if is_all => self.some.notify_all(),
            _ => (0..woken).for_each(|_| self.some.notify_one()),
        }
    }

    /// Waits for a value, so long at most (`None`: as long as it takes). The caller holds its partition. `None`: it did not come.
    pub fn read_now(
        &self,
        reference: ColdRef,
        key: &[u8],
        at_most: Option<Duration>,
    ) -> Option<Result<Vec<u8>, ReadError>> {
        self.await_now(Some(reference), key, at_most)
    }

    /// Waits for a probe in the same way. Whether it has come, and anything can be read.
    pub fn probe_now(&self, at_most: Option<Duration>) -> bool {
        matches!(self.await_now(None, &[], at_most), Some(Ok(_)))
    }

    fn await_now(
        &self,
        reference: Option<ColdRef>,
        key: &[u8],
        at_most: Option<Duration>,
    ) -> Option<Result<Vec<u8>, ReadError>> {
        let now = Arc::new(Now {
            reference,
            key: key.into(),
            answer: Mutex::new(Answer::Awaited),
            answered: Condvar::new(),
        });
        self.add_front(Work::Now(Arc::clone(&now)), lock(&self.queue));
        let is_awaited = |answer: &mut Answer| matches!(answer, Answer::Awaited);
        let answer = lock(&now.answer);
        let mut answer = match at_most {
            None => now.answered.wait_while(answer, is_awaited).unwrap_or_else(PoisonError::into_inner),
            Some(at_most) => {
                let waited = now.answered.wait_timeout_while(answer, at_most, is_awaited);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        match std::mem::replace(&mut *answer, Answer::GivenUp) {
            Answer::Read(value) => Some(value),
            Answer::Awaited | Answer::GivenUp => {
                self.timeouts.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Makes a call on a thread that reads, and waits for it until `gives_up`, which gets to know for how
    /// long by now. The caller holds nothing. `None`: it was given up.
    pub fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
        gives_up: &GivesUp<'_>,
    ) -> Option<T> {
        #[cfg(test)]
        if self.is_alone.load(Ordering::Relaxed) {
            return Some(call());
        }
        let (answer, answered) = sync_channel(1);
        let call: Box<dyn FnOnce() + Send> = Box::new(move || _ = answer.send(call()));
        let call: Arc<Call> = Arc::new(Mutex::new(Some(call)));
        let mut queue = lock(&self.queue);
        queue.works.push_back(Work::Call(Arc::downgrade(&call)));
        self.wake(queue, 1);
        let began = Instant::now();
        loop {
            match answered.recv_timeout(CALL_LOOK) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Timeout) if !gives_up(began.elapsed()) => {}
                Err(_) => return None,
            }
        }
    }

    /// A reader looks whether the disk works.
    pub fn ask_probe(&self) {
        let queue = lock(&self.queue);
        // While all readers hang none is taken.
        if !matches!(queue.works.front(), Some(Work::Probe)) {
            self.add_front(Work::Probe, queue);
        }
    }

    fn add_front(&self, work: Work, mut queue: MutexGuard<'_, Queue>) {
        queue.works.push_front(work);
        self.wake(queue, 1);
        self.now.notify_one();
    }

    /// Takes out what is not waited for any more: what hangs would keep it in the queue for as long.
    pub fn forget_unwanted(&self) {
        let is_wanted = |work: &Work| match work {
            Work::Errand(errand) => errand.is_wanted(),
            Work::Now(now) => matches!(*lock(&now.answer), Answer::Awaited),
            Work::Call(call) => call.strong_count() > 0,
            Work::Probe => true,
        };
        lock(&self.queue).works.retain(is_wanted);
    }

    /// So many have given up what others were to read for them.
    pub fn note_timeouts(&self, count: u64) {
        self.timeouts.fetch_add(count, Ordering::Relaxed);
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
    pub fn help(&self, reader: &impl Reader) {
        Reads::do_work(self.take(), reader);
    }

    /// Waits for what commands wait for under their locks, and does it: other readers may wait for these locks.
    pub fn help_now(&self, reader: &impl Reader) {
        Reads::do_work(self.take_now(), reader);
    }

    fn do_work(work: Work, reader: &impl Reader) {
        match work {
            Work::Now(now) => {
                if matches!(*lock(&now.answer), Answer::Awaited) {
                    let value = match now.reference {
                        Some(reference) => reader.read_at(reference, &now.key),
                        None => reader.probe().then(Vec::new).ok_or(ReadError::NoFile),
                    };
                    *lock(&now.answer) = Answer::Read(value);
                    now.answered.notify_one();
                }
            }
            Work::Errand(errand) => errand.run(reader).into_iter().for_each(|worker| reader.notify(worker)),
            Work::Call(call) => {
                // Its one owner does not wait for the disk to let go of it.
                let call = call.upgrade().and_then(|call| lock(&call).take());
                if let Some(call) = call {
                    call();
                }
            }
            Work::Probe => _ = reader.probe(),
        }
    }

    fn take_now(&self) -> Work {
        let mut queue = lock(&self.queue);
        loop {
            let is_now = |work: &mut Work| matches!(work, Work::Now(_) | Work::Probe);
            if let Some(work) = queue.works.pop_front_if(is_now) {
                return work;
            }
            isotherm_allocator::settle();
            queue = self.now.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn take(&self) -> Work {
        let mut queue = lock(&self.queue);
        loop {
            match queue.works.pop_front() {
                Some(work) => return work,
                None => {
                    // What a thread has lent to others is to be counted while it rests.
                    isotherm_allocator::settle();
                    queue.resting = (queue.resting + 1).min(READERS);
                    queue = self.some.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the first byte of a key.
    struct First;

    impl Reader for First {
        fn read_key(&self, _: &ColdKey) -> Option<Fetched> {
            panic!("there is no errand")
        }

        fn read_at(&self, _: ColdRef, key: &[u8]) -> Result<Vec<u8>, ReadError> {
            Ok(vec![key[0]])
        }

        fn probe(&self) -> bool {
            true
        }

        fn notify(&self, _: u16) {}
    }

    #[test]
    fn a_read_under_a_lock_waits_so_long_and_no_longer() {
        let reads: Arc<Reads> = Arc::default();
        let reference = ColdRef::new(1 << 40);
        let at_most = Some(Duration::from_millis(5));
        assert!(reads.read_now(reference, b"a", at_most).is_none() && !reads.probe_now(at_most));
        assert_eq!((reads.timeouts(), reads.waiting()), (2, 2));
        reads.forget_unwanted();
        assert_eq!(reads.waiting(), 0);
        std::thread::scope(|scope| {
            let reader = Arc::clone(&reads);
            scope.spawn(move || (0..2).for_each(|_| reader.help(&First)));
            assert!(
                reads.read_now(reference, b"b", None).is_some_and(|value| value.is_ok_and(|it| it == b"b"))
            );
            assert!(reads.probe_now(None));
        });
        assert_eq!(reads.waiting(), 0);
    }
}

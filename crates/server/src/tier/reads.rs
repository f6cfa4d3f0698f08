//! Reads that others wait for: a queue, and threads that take from it. Only these threads meet the disk, so that who waits for a read
//! can give up, though the thread hangs in the kernel.
//!
//! ```text
//!   add(keys, worker, message)   [job][job][job]   one place in the queue for each thread that may help
//!                                   |
//!   reader: next key of the job, read; the last one to end hands all over, then posts the message
//!
//!   read_now(place, key)         [now]  in front of all: a command waits for it under its locks. One thread reads nothing else (`help_now`):
//!                                       the others may wait for those locks
//!   add_errands(errands)         [errand][errand]  reads of a worker without a ring (`errands`): a thread notifies it
//!   call(read, gives_up)         [call]  a snapshot's next read, for whose end its thread waits as it likes
//!   ask_probe()                  [probe]
//!   expire(before)               jobs of which nothing was read since: their messages, and what was read
//! ```
//! All values of a command are handed over at one moment, so that the first one is not dropped while the last one is read.
//! As many threads are woken as there is work for, of those that rest. Invariants: a job has its message until it ends or is given up: it
//! comes once. No more threads rest unwoken than `resting` says.

use isotherm_commands::call::{ColdKey, ColdKeys};
use isotherm_keyspace::ColdRef;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::errands::Errand;
use super::files::ReadError;

/// Reads under way: an SSD answers some 30 at once as fast as one.
pub const READERS: usize = 16;
/// Time between two looks at whether to give a call up.
const CALL_LOOK: Duration = Duration::from_millis(20);

/// The values of one command. `M` is the message that ends it, `F` what was read of a key.
struct Job<M, F> {
    keys: ColdKeys,
    next: AtomicUsize,
    left: AtomicUsize,
    fetched: Mutex<Progress<F>>,
    end: Mutex<Option<(u16, M)>>,
}

/// Values read of a job, and when one was last, or the job was added.
struct Progress<F> {
    values: Vec<(usize, F)>,
    moved: Instant,
}

/// A job that was given up, for a worker.
#[derive(PartialEq, Eq, Debug)]
pub struct Late<M, F> {
    pub worker: u16,
    pub message: M,
    pub read: Vec<(ColdKey, F)>,
}

impl<M, F> Job<M, F> {
    fn has_begun(&self) -> bool {
        self.next.load(Ordering::Relaxed) > 0
    }

    /// Takes what was read of it.
    fn take_read(&self) -> Vec<(ColdKey, F)> {
        let values = std::mem::take(&mut lock(&self.fetched).values);
        values.into_iter().map(|(at, value)| (self.keys.keys[at].clone(), value)).collect()
    }

    fn is_over(&self) -> bool {
        lock(&self.end).is_none()
    }
}

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

enum Work<M, F> {
    Job(Arc<Job<M, F>>),
    Now(Arc<Now>),
    Errand(Errand),
    /// Gone when its waiting thread has given it up.
    Call(Weak<Call>),
    Probe,
}

struct Queue<M, F> {
    works: VecDeque<Work<M, F>>,
    /// In the order in which they were added; some are over.
    jobs: VecDeque<Weak<Job<M, F>>>,
    /// Threads that wait for any work and were not woken yet. After one has gone on without cause it may say more.
    resting: usize,
}

pub struct Reads<M, F> {
    queue: Mutex<Queue<M, F>>,
    /// Something has come; something that a command waits for under its locks.
    some: Condvar,
    now: Condvar,
    /// Moment at which a read of any job ended last.
    moved: Mutex<Instant>,
    /// Commands that gave up.
    timeouts: AtomicU64,
    /// No thread reads: who waits for a value reads it.
    #[cfg(test)]
    pub is_alone: std::sync::atomic::AtomicBool,
}

/// What a reader can do.
pub trait Reader<F> {
    /// The value of a key, wherever it is by now. `None`: it needs no reading any more.
    fn read_key(&self, cold: &ColdKey) -> Option<F>;
    /// The value at a place that does not change meanwhile.
    fn read_at(&self, reference: ColdRef, key: &[u8]) -> Result<Vec<u8>, ReadError>;
    /// Whether anything can be read.
    fn probe(&self) -> bool;
    /// Errands of this worker have ended.
    fn notify(&self, worker: u16);
}

/// A job whose keys were all read.
pub struct Done<M, F> {
    job: Arc<Job<M, F>>,
}

impl<M, F> Default for Reads<M, F> {
    fn default() -> Reads<M, F> {
        let queue = Queue { works: VecDeque::new(), jobs: VecDeque::new(), resting: 0 };
        let (some, now) = Default::default();
        Reads {
            queue: Mutex::new(queue),
            some,
            now,
            moved: Mutex::new(Instant::now()),
            timeouts: AtomicU64::new(0),
            #[cfg(test)]
            is_alone: Default::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M, F> Reads<M, F> {
    /// The message goes to the worker when all of it is there.
    pub fn add(&self, keys: ColdKeys, worker: u16, message: M) {
        self.add_since(keys, worker, message, Instant::now());
    }

    /// Adds a job of which nothing has come since then.
    pub fn add_since(&self, keys: ColdKeys, worker: u16, message: M, since: Instant) {
        let count = keys.keys.len();
        let job = Arc::new(Job {
            keys,
            next: AtomicUsize::new(0),
            left: AtomicUsize::new(count),
            fetched: Mutex::new(Progress { values: Vec::new(), moved: since }),
            end: Mutex::new(Some((worker, message))),
        });
        let helpers = count.clamp(1, READERS);
        let mut queue = lock(&self.queue);
        queue.jobs.push_back(Arc::downgrade(&job));
        queue.works.extend((0..helpers).map(|_| Work::Job(Arc::clone(&job))));
        self.wake(queue, helpers);
    }

    /// Their worker is notified when they have ended.
    pub fn add_errands(&self, errands: impl ExactSizeIterator<Item = Errand>) {
        let count = errands.len();
        let mut queue = lock(&self.queue);
        queue.works.extend(errands.map(Work::Errand));
        self.wake(queue, count);
    }

    /// So much has come. Threads that do not rest look into the queue before they do.
    fn wake(&self, mut queue: MutexGuard<'_, Queue<M, F>>, works: usize) {
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

    fn add_front(&self, work: Work<M, F>, mut queue: MutexGuard<'_, Queue<M, F>>) {
        queue.works.push_front(work);
        self.wake(queue, 1);
        self.now.notify_one();
    }

    /// Jobs of which nothing was read since then are over; of one whose turn has not come if nothing was read
    /// at all. Others that have ended are forgotten.
    pub fn expire(&self, before: Option<Instant>) -> Vec<Late<M, F>> {
        let mut expired = Vec::new();
        let is_stuck = before.is_some_and(|before| *lock(&self.moved) < before);
        let mut queue = lock(&self.queue);
        queue.jobs.retain(|job| {
            let Some(job) = job.upgrade() else { return false };
            let mut end = lock(&job.end);
            // One that is being handed over has come.
            let is_awaited = job.left.load(Ordering::Acquire) > 0 && (job.has_begun() || is_stuck);
            if before.is_some_and(|before| is_awaited && lock(&job.fetched).moved < before)
                && let Some((worker, message)) = end.take()
            {
                expired.push(Late { worker, message, read: job.take_read() });
            }
            end.is_some()
        });
        if !expired.is_empty() {
            // What hangs would keep them in the queue for as long.
            queue.works.retain(|work| match work {
                Work::Job(job) => !job.is_over(),
                Work::Now(now) => matches!(*lock(&now.answer), Answer::Awaited),
                Work::Call(call) => call.strong_count() > 0,
                Work::Errand(_) | Work::Probe => true,
            });
        }
        self.timeouts.fetch_add(expired.len() as u64, Ordering::Relaxed);
        expired
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

    /// Waits for work, and does it. A job is done for the one that has read its last key.
    pub fn help(&self, reader: &impl Reader<F>) -> Option<Done<M, F>> {
        self.do_work(self.take(), reader)
    }

    /// The same of what commands wait for under their locks alone: other readers may wait for these locks.
    pub fn help_now(&self, reader: &impl Reader<F>) {
        _ = self.do_work(self.take_now(), reader);
    }

    fn do_work(&self, work: Work<M, F>, reader: &impl Reader<F>) -> Option<Done<M, F>> {
        match work {
            Work::Job(job) => self.help_job(job, reader),
            Work::Now(now) => {
                if matches!(*lock(&now.answer), Answer::Awaited) {
                    let value = match now.reference {
                        Some(reference) => reader.read_at(reference, &now.key),
                        None => reader.probe().then(Vec::new).ok_or(ReadError::NoFile),
                    };
                    *lock(&now.answer) = Answer::Read(value);
                    now.answered.notify_one();
                }
                None
            }
            Work::Errand(errand) => {
                errand.run().into_iter().for_each(|worker| reader.notify(worker));
                None
            }
            Work::Call(call) => {
                // Its one owner does not wait for the disk to let go of it.
                let call = call.upgrade().and_then(|call| lock(&call).take());
                if let Some(call) = call {
                    call();
                }
                None
            }
            Work::Probe => {
                _ = reader.probe();
                None
            }
        }
    }

    fn help_job(&self, job: Arc<Job<M, F>>, reader: &impl Reader<F>) -> Option<Done<M, F>> {
        loop {
            let at = job.next.fetch_add(1, Ordering::Relaxed);
            let cold = job.keys.keys.get(at)?;
            let value = reader.read_key(cold);
            let now = Instant::now();
            *lock(&self.moved) = now;
            let mut fetched = lock(&job.fetched);
            fetched.moved = now;
            fetched.values.extend(value.map(|value| (at, value)));
            drop(fetched);
            if job.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                return Some(Done { job });
            }
            if job.is_over() {
                return None;
            }
        }
    }

    fn take_now(&self) -> Work<M, F> {
        let mut queue = lock(&self.queue);
        loop {
            let is_now = |work: &mut Work<M, F>| matches!(work, Work::Now(_) | Work::Probe);
            if let Some(work) = queue.works.pop_front_if(is_now) {
                return work;
            }
            isotherm_allocator::settle();
            queue = self.now.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn take(&self) -> Work<M, F> {
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

impl<M, F> Done<M, F> {
    /// What was read; then the message, and for which worker. Nothing of a job that was given up.
    pub fn end(self, mut hand_over: impl FnMut(&ColdKey, &F)) -> Option<(u16, M)> {
        let job = &self.job;
        if job.is_over() {
            return None;
        }
        let values = std::mem::take(&mut lock(&job.fetched).values);
        for (at, fetched) in values {
            hand_over(&job.keys.keys[at], &fetched);
        }
        lock(&job.end).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_commands::spec::Need;
    use isotherm_keyspace::Db;

    fn keys(count: u8) -> ColdKeys {
        let key = |number| ColdKey::of(Db(0), &[number], Need::All, false);
        ColdKeys { keys: (0..count).map(key).collect() }
    }

    /// Reads the first byte of a key.
    struct First;

    impl Reader<u8> for First {
        fn read_key(&self, cold: &ColdKey) -> Option<u8> {
            Some(cold.key[0])
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
    fn what_is_given_up_is_not_handed_over() {
        let reads: Reads<usize, u8> = Reads::default();
        reads.add(keys(20), 3, 1);
        reads.add(keys(1), 4, 2);
        assert_eq!(reads.expire(None), []);
        assert_eq!(reads.waiting(), READERS + 1);
        // The first key of the first job is being read when both are given up.
        let Work::Job(job) = reads.take() else { panic!("it is a job") };
        let late = |worker, message, read: &[u8]| {
            let of = |byte: &u8| (ColdKey::of(Db(0), &[*byte], Need::All, false), *byte);
            Late { worker, message, read: read.iter().map(of).collect() }
        };
        let soon = || Some(Instant::now() + Duration::from_secs(1));
        assert_eq!(reads.expire(soon()), [late(3, 1, &[]), late(4, 2, &[])]);
        assert_eq!((reads.waiting(), reads.timeouts()), (0, 2));
        assert!(reads.help_job(job, &First).is_none());
        reads.add(keys(2), 3, 3);
        let done = reads.help(&First).expect("it has read both");
        assert_eq!(reads.expire(soon()), [], "it is about to be handed over");
        let mut handed = Vec::new();
        assert_eq!(done.end(|_, read| handed.push(*read)), Some((3, 3)));
        assert_eq!(handed, [0, 1]);
    }

    #[test]
    fn a_read_under_a_lock_waits_so_long_and_no_longer() {
        let reads: Arc<Reads<usize, u8>> = Arc::default();
        let reference = ColdRef::new(1 << 40);
        let at_most = Some(Duration::from_millis(5));
        assert!(reads.read_now(reference, b"a", at_most).is_none());
        assert_eq!(reads.timeouts(), 1);
        // It is in front of what came before it; the one that was given up reads nothing.
        reads.add(keys(1), 3, 1);
        std::thread::scope(|scope| {
            let reader = Arc::clone(&reads);
            scope.spawn(move || (0..3).for_each(|_| drop(reader.help(&First))));
            assert!(
                reads.read_now(reference, b"b", None).is_some_and(|value| value.is_ok_and(|it| it == b"b"))
            );
        });
        assert_eq!(reads.waiting(), 0);
    }

    /// Several threads, many jobs: each key is read once, each message comes once, behind all of its keys.
    #[test]
    fn each_key_is_read_once_and_each_message_comes_once() {
        let reads: Arc<Reads<usize, u8>> = Arc::default();
        let places: usize = (0..100).map(|number: usize| (number % 40).clamp(1, READERS)).sum();
        (0..100).for_each(|number| reads.add(keys((number % 40).max(1) as u8), 3, number));
        let ended = Mutex::new(vec![0; 100]);
        std::thread::scope(|scope| {
            for thread in 0..5 {
                let (reads, ended) = (&reads, &ended);
                scope.spawn(move || {
                    for _ in 0..places / 5 + usize::from(thread < places % 5) {
                        let Some(done) = reads.help(&First) else { continue };
                        let mut seen = Vec::new();
                        let (worker, number) = done
                            .end(|cold, read| {
                                assert_eq!(cold.key[0], *read);
                                seen.push(*read);
                            })
                            .expect("it comes once");
                        seen.sort_unstable();
                        assert_eq!(seen, (0..(number % 40).max(1) as u8).collect::<Vec<_>>());
                        assert_eq!(worker, 3);
                        ended.lock().unwrap()[number] += 1;
                    }
                });
            }
        });
        assert_eq!(reads.waiting(), 0);
        assert!(ended.lock().unwrap().iter().all(|count| *count == 1));
    }
}

//! Reads that a worker hands to the threads of the tier: all of them where it has no ring, and keys that
//! could not be read at once.
//!
//! ```text
//!   begin(file, at, len)   [room 0: errand][room 1: errand] ...    kept
//!   begin_again(key)       [room 2: errand]                        a thread looks where the key is, tries again, and judges
//!   submit()               all of them go into the queue of the threads (`reads`), and as many of those are woken
//!   a thread               reads one and lays it into `ends`; where there was none, the worker gets a message
//!   next_ended()           takes what lies there, all of it, and shows one after the other
//! ```
//! A room is a number: the bytes of a read come with its end, so one that hangs holds nothing of the worker's
//! but that.
//!
//! Invariant: a room is free, or one errand of its number is kept, queued, with a thread, or ended and not
//! shown. An errand that is dropped has ended.

use isotherm_commands::call::ColdKey;
use isotherm_disk::{File, RING_READ_BYTES_MAX, RING_READS_MAX, Refusal, read_exact_at};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::vec;

use super::fetches::{Port, Read, Sign};
use super::reads::{Reader, Reads};
use super::target::Fetched;

/// End of a read.
enum End {
    Bytes(io::Result<Vec<u8>>),
    Value(Option<Fetched>),
}

/// Ends that the worker has not taken.
struct Ends {
    worker: u16,
    ended: Mutex<Ended>,
}

#[derive(Default)]
struct Ended {
    rooms: Vec<(u32, End)>,
    /// The worker is about to look.
    is_notified: bool,
}

impl Ends {
    fn lock(&self) -> MutexGuard<'_, Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Order for a thread.
enum Order {
    Bytes {
        file: Arc<dyn File>,
        at: u64,
        len: usize,
        job: Weak<Sign>,
    },
    /// Key of a job, whose sign is gone if it was given up.
    Key {
        cold: ColdKey,
        job: Weak<Sign>,
    },
}

/// Read of a key that its job counts.
struct Counted(Weak<Sign>);

impl Counted {
    fn new(job: Weak<Sign>) -> Counted {
        job.upgrade().inspect(|sign| _ = sign.reading.fetch_add(1, Relaxed));
        Counted(job)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.upgrade().inspect(|sign| _ = sign.reading.fetch_sub(1, Relaxed));
    }
}

/// A read for a thread.
pub struct Errand {
    room: u32,
    /// Gone when it has begun.
    order: Option<Order>,
    ends: Arc<Ends>,
}

impl Errand {
    /// Returns whether anything waits for it.
    pub fn is_wanted(&self) -> bool {
        !matches!(&self.order, Some(Order::Key { job, .. }) if job.strong_count() == 0)
    }

    /// Reads. Returns the worker that is to be notified, if it is not about to look anyway.
    pub fn run(mut self, reader: &impl Reader) -> Option<u16> {
        if !self.is_wanted() {
            return None;
        }
        let end = match self.order.take()? {
            Order::Bytes { file, at, len, job } => {
                let _counted = Counted::new(job);
                let mut bytes = vec![0; len];
                End::Bytes(read_exact_at(&*file, &mut bytes, at).map(|()| bytes))
            }
            Order::Key { cold, job } => {
                let _counted = Counted::new(job);
                End::Value(reader.read_key(&cold))
            }
        };
        let mut ended = self.ends.lock();
        ended.rooms.push((self.room, end));
        (!std::mem::replace(&mut ended.is_notified, true)).then_some(self.ends.worker)
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        if self.order.is_some() {
            self.ends.lock().rooms.push((self.room, End::Value(None)));
        }
    }
}

/// Errands of one worker.
pub struct Errands {
    ends: Arc<Ends>,
    /// Number of rooms that there have been, and those of them that are free.
    rooms: u32,
    free: Vec<u32>,
    begun: Vec<Errand>,
    taken: vec::IntoIter<(u32, End)>,
    /// Bytes that [`Port::next_ended`] has shown last.
    shown: Vec<u8>,
}

impl Errands {
    pub fn new(worker: u16) -> Errands {
        Errands {
            ends: Arc::new(Ends { worker, ended: Mutex::default() }),
            rooms: 0,
            free: Vec::new(),
            begun: Vec::new(),
            taken: Vec::new().into_iter(),
            shown: Vec::new(),
        }
    }

    pub fn under_way(&self) -> usize {
        self.rooms as usize - self.free.len()
    }

    /// Hands over what was begun.
    pub fn submit<T>(&mut self, reads: &Reads<T>) {
        if !self.begun.is_empty() {
            reads.add_errands(self.begun.drain(..));
        }
    }

    fn add(&mut self, order: Order) -> usize {
        let room = self.free.pop().unwrap_or_else(|| {
            self.rooms += 1;
            self.rooms - 1
        });
        self.begun.push(Errand { room, order: Some(order), ends: Arc::clone(&self.ends) });
        room as usize
    }
}

impl Port<Fetched> for Errands {
    fn has_turns(&self) -> bool {
        true
    }

    fn begin(
        &mut self,
        file: &Arc<dyn File>,
        at: u64,
        len: usize,
        job: Weak<Sign>,
    ) -> Result<usize, Refusal> {
        // A read that is to fail, or is long, is for the threads that try again.
        if file.raw().is_none() || len > RING_READ_BYTES_MAX {
            return Err(Refusal::NotHere);
        }
        match self.is_full() {
            true => Err(Refusal::Full),
            false => Ok(self.add(Order::Bytes { file: Arc::clone(file), at, len, job })),
        }
    }

    fn begin_again(&mut self, cold: &ColdKey, job: Weak<Sign>) -> usize {
        self.add(Order::Key { cold: cold.clone(), job })
    }

    fn is_full(&self) -> bool {
        self.under_way() >= RING_READS_MAX
    }

    fn next_ended(&mut self) -> Option<(usize, Read<'_, Fetched>)> {
        if self.under_way() == 0 {
            return None;
        }
        if self.taken.as_slice().is_empty() {
            self.taken = std::mem::take(&mut *self.ends.lock()).rooms.into_iter();
        }
        let (room, end) = self.taken.next()?;
        self.free.push(room);
        let read = match end {
            End::Bytes(read) => Read::Bytes(read.map(|bytes| {
                self.shown = bytes;
                &self.shown[..]
            })),
            End::Value(value) => Read::Value(value),
        };
        Some((room as usize, read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_commands::spec::Need;
    use isotherm_disk::{Disk, Mode, OsDisk, SimDisk, write_all_at};
    use isotherm_keyspace::{ColdRef, Db};
    use std::path::{Path, PathBuf};
    use std::sync::mpsc::{Receiver, Sender, channel};

    const THREADS: usize = 4;

    /// Sends on what it is notified of.
    struct Notifier(Sender<u16>);

    impl Reader for Notifier {
        fn read_key(&self, cold: &ColdKey) -> Option<Fetched> {
            let (from, value) = (ColdRef::new(1 << 40), Some(cold.key.to_vec()));
            Some(Fetched { from, is_bundle: false, value, is_lost: false })
        }

        fn time(&self, call: impl FnOnce()) {
            call();
        }

        fn probe(&self) -> bool {
            true
        }

        fn notify(&self, worker: u16) {
            self.0.send(worker).expect("it is awaited");
        }
    }

    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// A file in which each byte says where it is.
    fn written() -> (Scratch, Arc<dyn File>) {
        let name = format!("isotherm-errands-{}", std::process::id());
        let path = Scratch(std::env::temp_dir().join(name));
        let file = OsDisk.open(&path.0, Mode::Truncate).expect("it is made");
        let bytes: Vec<u8> = (0..=255).collect();
        write_all_at(&*file, &bytes, 0).expect("it is written");
        (path, file)
    }

    /// Threads that read for ever; what they send.
    fn threads(reads: &Arc<Reads<()>>) -> Receiver<u16> {
        let (sender, notified) = channel();
        for _ in 0..THREADS {
            let (reads, notifier) = (Arc::clone(reads), Notifier(sender.clone()));
            std::thread::spawn(move || {
                loop {
                    reads.help(&(), &notifier);
                }
            });
        }
        notified
    }

    /// Many rounds of a few and of all that can be under way: each read ends once, and a worker that sleeps
    /// until it is notified misses none.
    #[test]
    fn each_errand_ends_once_and_the_worker_hears_of_it() {
        let reads = Arc::default();
        let (_path, file) = written();
        let notified = threads(&reads);
        let mut errands = Errands::new(7);
        for round in 0..200 {
            let count = if round % 3 == 0 { RING_READS_MAX } else { round % 5 + 1 };
            let mut wanted = vec![None; RING_READS_MAX];
            for number in 0..count {
                let at = (round + number) % 250;
                let room = errands.begin(&file, at as u64, 3, Weak::new()).expect("there is room");
                assert!(wanted[room].replace(at).is_none(), "its room is free");
            }
            assert_eq!(errands.is_full(), count == RING_READS_MAX);
            errands.submit(&reads);
            while errands.under_way() > 0 {
                assert_eq!(notified.recv(), Ok(7));
                while let Some((room, read)) = errands.next_ended() {
                    let at = wanted[room].take().expect("it ends once");
                    let Read::Bytes(bytes) = read else { panic!("it has no key") };
                    assert_eq!(bytes.expect("it is there")[..], [at as u8, at as u8 + 1, at as u8 + 2]);
                }
            }
            assert!(wanted.iter().all(Option::is_none));
        }
        assert_eq!(reads.waiting(), 0);
    }

    #[test]
    fn what_is_not_there_is_an_error_and_what_is_for_others_is_refused() {
        let reads = Arc::default();
        let (_path, file) = written();
        let notified = threads(&reads);
        let mut errands = Errands::new(7);
        assert_eq!(errands.begin(&file, 0, RING_READ_BYTES_MAX + 1, Weak::new()), Err(Refusal::NotHere));
        let simulated = SimDisk::new(1, isotherm_disk::Plan::default());
        let other = simulated.open(Path::new("file"), Mode::Create).expect("it is made");
        assert_eq!(errands.begin(&other, 0, 1, Weak::new()), Err(Refusal::NotHere));
        for _ in 0..RING_READS_MAX {
            errands.begin(&file, 250, 10, Weak::new()).expect("there is room");
        }
        assert_eq!(errands.begin(&file, 0, 1, Weak::new()), Err(Refusal::Full));
        errands.submit(&reads);
        while errands.under_way() > 0 {
            notified.recv().expect("it is notified");
            while let Some((_, read)) = errands.next_ended() {
                let Read::Bytes(bytes) = read else { panic!("it has no key") };
                assert_eq!(bytes.expect_err("the file ends").kind(), io::ErrorKind::UnexpectedEof);
            }
        }
    }

    /// A key is read, however many are under way; one whose job was given up is not, and its room is free
    /// again.
    #[test]
    fn keys_are_read_for_jobs_that_wait() {
        let reads: Arc<Reads<()>> = Arc::default();
        let mut errands = Errands::new(7);
        let key = |byte: usize| ColdKey::of(Db(0), &[byte as u8], Need::All, false);
        let (job, gone) = (Arc::<Sign>::default(), Weak::new());
        let rooms: Vec<usize> = (0..RING_READS_MAX + 2)
            .map(|byte| errands.begin_again(&key(byte), Arc::downgrade(&job)))
            .collect();
        let unwanted = [errands.begin_again(&key(0), gone.clone()), errands.begin_again(&key(0), gone)];
        errands.submit(&reads);
        reads.forget_unwanted();
        assert_eq!(reads.waiting(), RING_READS_MAX + 2);
        let notified = threads(&reads);
        let mut ended = Vec::new();
        while errands.under_way() > 0 {
            notified.recv().expect("it is notified");
            while let Some((room, read)) = errands.next_ended() {
                let Read::Value(value) = read else { panic!("it is a key's") };
                let value = value.and_then(|fetched| fetched.value);
                assert_eq!(value, rooms.iter().position(|of| *of == room).map(|byte| vec![byte as u8]));
                ended.push(room);
            }
        }
        ended.sort_unstable();
        let mut all = [rooms, unwanted.to_vec()].concat();
        all.sort_unstable();
        assert_eq!(ended, all);
    }
}

//! Reads that a worker hands to the threads of the tier, where it has no ring (`fetches::Port`).
//!
//! ```text
//!   begin(file, at, len)   [room 0: errand][room 1: errand] ...    kept
//!   submit()               all of them go into the queue of the threads (`reads`), and as many of those are woken
//!   a thread               reads one and lays it into `ends`; where there was none, the worker gets a message
//!   next_ended()           takes what lies there, all of it, and shows one after the other
//! ```
//! A room is a number: the bytes of a read come with its end, so one that hangs holds nothing of the worker's but that.
//!
//! Invariant: a room is free, or one errand of its number is kept, queued, with a thread, or ended and not shown.

use isotherm_disk::{Ended, File, RING_READ_BYTES_MAX, RING_READS_MAX, Refusal, read_exact_at};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::vec;

use super::fetches::Port;
use super::reads::Reads;

/// What was read for a room.
type End = (u32, io::Result<Vec<u8>>);

/// Those that the worker has not taken.
struct Ends {
    worker: u16,
    ended: Mutex<Vec<End>>,
}

/// A read for a thread.
pub struct Errand {
    room: u32,
    file: Arc<dyn File>,
    at: u64,
    len: usize,
    ends: Arc<Ends>,
}

impl Errand {
    /// Reads. The worker that is to be notified, if it is not about to look anyway.
    pub fn run(self) -> Option<u16> {
        let Errand { room, file, at, len, ends } = self;
        let mut bytes = vec![0; len];
        let read = read_exact_at(&*file, &mut bytes, at).map(|()| bytes);
        let mut ended = ends.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.push((room, read));
        (ended.len() == 1).then_some(ends.worker)
    }
}

/// Of one worker.
pub struct Errands {
    ends: Arc<Ends>,
    free: Vec<u32>,
    begun: Vec<Errand>,
    taken: vec::IntoIter<End>,
    /// What [`Port::next_ended`] has shown last.
    shown: Vec<u8>,
}

impl Errands {
    pub fn new(worker: u16) -> Errands {
        Errands {
            ends: Arc::new(Ends { worker, ended: Mutex::default() }),
            free: (0..RING_READS_MAX as u32).rev().collect(),
            begun: Vec::new(),
            taken: Vec::new().into_iter(),
            shown: Vec::new(),
        }
    }

    pub fn under_way(&self) -> usize {
        RING_READS_MAX - self.free.len()
    }

    /// Hands over what was begun.
    pub fn submit<M, F>(&mut self, reads: &Reads<M, F>) {
        if !self.begun.is_empty() {
            reads.add_errands(self.begun.drain(..));
        }
    }
}

impl Port for Errands {
    fn begin(&mut self, file: &Arc<dyn File>, at: u64, len: usize) -> Result<usize, Refusal> {
        // One that is to fail, or long, is for those who try again, or share the work.
        if file.raw().is_none() || len > RING_READ_BYTES_MAX {
            return Err(Refusal::NotHere);
        }
        let room = self.free.pop().ok_or(Refusal::Full)?;
        self.begun.push(Errand { room, file: Arc::clone(file), at, len, ends: Arc::clone(&self.ends) });
        Ok(room as usize)
    }

    fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    fn next_ended(&mut self) -> Option<Ended<'_>> {
        if self.taken.as_slice().is_empty() {
            let ended = std::mem::take(&mut *self.ends.ended.lock().unwrap_or_else(PoisonError::into_inner));
            self.taken = ended.into_iter();
        }
        let (room, read) = self.taken.next()?;
        self.free.push(room);
        let bytes = read.map(|bytes| {
            self.shown = bytes;
            &self.shown[..]
        });
        Some(Ended { room: room as usize, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::files::ReadError;
    use crate::tier::reads::Reader;
    use isotherm_commands::call::ColdKey;
    use isotherm_disk::{Disk, Mode, OsDisk, SimDisk, write_all_at};
    use isotherm_keyspace::ColdRef;
    use std::path::{Path, PathBuf};
    use std::sync::mpsc::{Receiver, Sender, channel};

    const THREADS: usize = 4;

    /// Sends on what it is notified of.
    struct Notifier(Sender<u16>);

    impl Reader<()> for Notifier {
        fn read_key(&self, _: &ColdKey) -> Option<()> {
            panic!("there is no job")
        }

        fn read_at(&self, _: ColdRef, _: &[u8]) -> Result<Vec<u8>, ReadError> {
            Err(ReadError::NoFile)
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

    /// A file of which each byte says where it is.
    fn written() -> (Scratch, Arc<dyn File>) {
        let name = format!("isotherm-errands-{}", std::process::id());
        let path = Scratch(std::env::temp_dir().join(name));
        let file = OsDisk.open(&path.0, Mode::Truncate).expect("it is made");
        let bytes: Vec<u8> = (0..=255).collect();
        write_all_at(&*file, &bytes, 0).expect("it is written");
        (path, file)
    }

    /// Threads that read for ever; what they send.
    fn threads(reads: &Arc<Reads<(), ()>>) -> Receiver<u16> {
        let (sender, notified) = channel();
        for _ in 0..THREADS {
            let (reads, notifier) = (Arc::clone(reads), Notifier(sender.clone()));
            std::thread::spawn(move || {
                loop {
                    _ = reads.help(&notifier);
                }
            });
        }
        notified
    }

    /// Many rounds of a few and of all that can be under way: each read ends once, and a worker that sleeps until it is notified misses none.
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
                let room = errands.begin(&file, at as u64, 3).expect("there is room");
                assert!(wanted[room].replace(at).is_none(), "its room is free");
            }
            assert_eq!(errands.is_full(), count == RING_READS_MAX);
            errands.submit(&reads);
            while errands.under_way() > 0 {
                assert_eq!(notified.recv(), Ok(7));
                while let Some(Ended { room, bytes }) = errands.next_ended() {
                    let at = wanted[room].take().expect("it ends once");
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
        assert_eq!(errands.begin(&file, 0, RING_READ_BYTES_MAX + 1), Err(Refusal::NotHere));
        let simulated = SimDisk::new(1, isotherm_disk::Plan::default());
        let other = simulated.open(Path::new("file"), Mode::Create).expect("it is made");
        assert_eq!(errands.begin(&other, 0, 1), Err(Refusal::NotHere));
        for _ in 0..RING_READS_MAX {
            errands.begin(&file, 250, 10).expect("there is room");
        }
        assert_eq!(errands.begin(&file, 0, 1), Err(Refusal::Full));
        errands.submit(&reads);
        while errands.under_way() > 0 {
            notified.recv().expect("it is notified");
            while let Some(end) = errands.next_ended() {
                assert_eq!(end.bytes.expect_err("the file ends").kind(), io::ErrorKind::UnexpectedEof);
            }
        }
    }
}

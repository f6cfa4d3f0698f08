//! A disk in front of another one that fails while it runs, as a switch says: for tests of a whole server.
//!
//! ```text
//!   FaultyDisk --+-- switch of reads:   none | io | hang | slow (the next so many calls, or all until it is set again)
//!        |       |-- switch of writes:  none | io | short | full | hang
//!        |       '-- switch of syncs:   none | io | hang      (of files, and of folders)
//!   the disk behind it
//! ```
//! `SimDisk` fails by a seed, in one thread. This one knows no seed, and calls of many threads may wait in it
//! at once. Without a fault a call costs one load more.

use crate::{Disk, File, Lock, Mode, RawFile};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Duration of a call on a slow disk.
const SLOW: Duration = Duration::from_millis(1);

/// Trouble that calls of a kind meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    Io,
    /// A write accepts the first half of its bytes; what follows is an error.
    Short,
    NoSpace,
    /// The call ends when the switch is set again, and does its work then.
    Hang,
    /// The call takes [`SLOW`] longer, if the switch is not set again meanwhile.
    Slow,
}

impl Trouble {
    fn error(self) -> io::Error {
        let errno = if self == Trouble::NoSpace { Errno::NOSPC } else { Errno::IO };
        io::Error::from_raw_os_error(errno.raw_os_error())
    }
}

/// Switch for the trouble of one kind of calls.
#[derive(Default)]
pub struct TroubleSwitch {
    is_on: AtomicBool,
    state: Mutex<Switched>,
    changed: Condvar,
}

#[derive(Default)]
struct Switched {
    /// And how many calls are to meet it.
    trouble: Option<(Trouble, u64)>,
    /// Number of times that the trouble was set.
    times: u64,
}

impl TroubleSwitch {
    /// The next `calls` calls meet it. A call that hangs continues.
    pub fn set(&self, trouble: Option<(Trouble, u64)>) {
        let mut state = self.lock();
        *state = Switched { trouble, times: state.times + 1 };
        self.is_on.store(trouble.is_some(), Ordering::Release);
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Switched> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the trouble of this call, after the call has hung if it is to hang.
    #[inline]
    fn meet(&self) -> Option<Trouble> {
        if self.is_on.load(Ordering::Acquire) { self.take() } else { None }
    }

    #[cold]
    fn take(&self) -> Option<Trouble> {
        let mut state = self.lock();
        let (trouble, left) = state.trouble?;
        state.trouble = (left > 1).then(|| (trouble, left - 1));
        self.is_on.store(left > 1, Ordering::Release);
        let times = state.times;
        let hangs = |state: &mut Switched| state.times == times;
        match trouble {
            Trouble::Hang => {
                drop(self.changed.wait_while(state, hangs).unwrap_or_else(PoisonError::into_inner));
            }
            Trouble::Slow => {
                let waited = self.changed.wait_timeout_while(state, SLOW, hangs);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
            _ => return Some(trouble),
        }
        None
    }
}

#[derive(Default)]
pub struct Troubles {
    pub reads: TroubleSwitch,
    pub writes: TroubleSwitch,
    pub syncs: TroubleSwitch,
    /// Maximum number of bytes that the file system has left; 0: as it is.
    pub free_bytes: AtomicU64,
}

impl Troubles {
    fn sync(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.syncs.meet().map_or_else(sync, |trouble| Err(trouble.error()))
    }
}

/// Reads, writes and syncs of files meet `Troubles`; names do not, but that a file which is made is a write.
pub struct FaultyDisk {
    behind: Arc<dyn Disk>,
    troubles: Arc<Troubles>,
}

impl FaultyDisk {
    pub fn new(behind: Arc<dyn Disk>, troubles: Arc<Troubles>) -> FaultyDisk {
        FaultyDisk { behind, troubles }
    }
}

struct FaultyFile {
    behind: Arc<dyn File>,
    troubles: Arc<Troubles>,
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>> {
        let behind = self.behind.open(path, mode)?;
        Ok(Arc::new(FaultyFile { behind, troubles: Arc::clone(&self.troubles) }))
    }

    fn open_direct(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>> {
        let behind = self.behind.open_direct(path, mode)?;
        Ok(Arc::new(FaultyFile { behind, troubles: Arc::clone(&self.troubles) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.behind.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.behind.remove(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.behind.list(folder)
    }

    fn create_dir(&self, folder: &Path) -> io::Result<()> {
        self.behind.create_dir(folder)
    }

    fn sync_dir(&self, folder: &Path) -> io::Result<()> {
        self.troubles.sync(|| self.behind.sync_dir(folder))
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let bytes = self.behind.free_bytes(folder)?;
        match self.troubles.free_bytes.load(Ordering::Relaxed) {
            0 => Ok(bytes),
            bytes_max => Ok(bytes.min(bytes_max)),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.behind.lock(path)
    }
}

impl File for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        match self.troubles.reads.meet() {
            Some(trouble) => Err(trouble.error()),
            None => self.behind.len(),
        }
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        match self.troubles.reads.meet() {
            Some(trouble) => Err(trouble.error()),
            None => self.behind.read_at(bytes, at),
        }
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        match self.troubles.writes.meet() {
            Some(Trouble::Short) => {
                self.behind.write_at(&bytes[..bytes.len() / 2], at)?;
                Err(Trouble::Short.error())
            }
            Some(trouble) => Err(trouble.error()),
            None => self.behind.write_at(bytes, at),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.behind.set_len(len)
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        self.behind.allocate(at, len)
    }

    /// Returns none while reads are to fail: reads through a ring would not meet the trouble.
    fn raw(&self) -> Option<RawFile<'_>> {
        self.behind.raw().filter(|_| !self.troubles.reads.is_on.load(Ordering::Acquire))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.troubles.sync(|| self.behind.sync_data())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.troubles.sync(|| self.behind.sync_all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, SimDisk, read_exact_at, write_all_at};
    use std::sync::mpsc;

    #[test]
    fn calls_fail_hang_and_go_on() {
        let troubles = Arc::<Troubles>::default();
        let disk = FaultyDisk::new(Arc::new(SimDisk::new(1, Plan::default())), Arc::clone(&troubles));
        let file = disk.open(Path::new("file"), Mode::Create).expect("it is made");
        write_all_at(&*file, b"0123", 0).expect("no fault is set");
        troubles.writes.set(Some((Trouble::Short, 1)));
        assert!(write_all_at(&*file, b"abcd", 0).is_err());
        write_all_at(&*file, b"x", 3).expect("it was one call");
        troubles.reads.set(Some((Trouble::Io, u64::MAX)));
        let mut bytes = [0; 4];
        assert!(read_exact_at(&*file, &mut bytes, 0).is_err());
        troubles.reads.set(Some((Trouble::Hang, 1)));
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            scope.spawn(move || {
                let mut bytes = [0; 4];
                read_exact_at(&*file, &mut bytes, 0).expect("it goes on");
                sender.send(bytes).expect("it is awaited");
            });
            assert!(receiver.try_recv().is_err());
            troubles.reads.set(None);
            assert_eq!(&receiver.recv().expect("it ends"), b"ab2x");
        });
    }
}

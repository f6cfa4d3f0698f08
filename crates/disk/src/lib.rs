//! Files and folders behind one interface, so that a test can put a disk behind it that loses power at any
//! call.
//!
//! ```text
//!   AOF writer, RDB writer, recovery
//!                |
//!        Disk (names), File (bytes)
//!           |              |
//!        OsDisk         SimDisk(seed, plan)
//!        the machine    two images of each file, durable and cached; crashes, errors, full disks
//!           |
//!        FaultyDisk     in front of one: fails or hangs while a server runs, as a switch says
//!
//!        Ring           many reads of one thread at once, of files of the machine (io_uring)
//! ```
//! **Architecture invariant:** `disk` does not know what the bytes mean. It knows files, folders, names and
//! errors of the operating system; formats and policies (what is synced when, what a failed sync means) are
//! for the crates above.
//!
//! A method is one system call: a write may be short or interrupted, and a name is durable only after
//! `sync_dir` on its folder. [`write_all_at`] and [`read_exact_at`] repeat what may be repeated.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

mod direct;
mod faulty;
mod os;
mod ring;
mod sim;

pub use direct::{BLOCK_BYTES, direct_rooms_bytes};
pub use faulty::{FaultyDisk, Trouble, TroubleSwitch, Troubles};
pub use os::OsDisk;
pub use ring::{Ended, RING_READ_BYTES_MAX, RING_READS_MAX, Refusal, Ring};
pub use sim::{Call, Damage, Fault, FullDisk, Plan, RandomFault, SECTOR_BYTES, SimDisk};

/// Way to open a file. A file that may be written may be read too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Existing file that is only read.
    Read,
    /// Existing file.
    Update,
    /// File that is created if it does not exist.
    Create,
    /// File that is created, or emptied if it exists.
    Truncate,
    /// File that is created; an error if it exists.
    CreateNew,
}

/// Folders and names. A path is relative to the folder of the process, or absolute.
pub trait Disk: Send + Sync {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>>;

    /// Opens a file that is to be read and written past the page cache, if there is one. Only whole blocks of
    /// [`BLOCK_BYTES`] are written to it. Returns an error if the file system cannot do that.
    fn open_direct(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>> {
        self.open(path, mode)
    }

    /// Atomic: after a crash the new name stands for the old file or for the renamed one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names of the files and folders in a folder, sorted.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// An error of kind `AlreadyExists` if there is one of that name.
    fn create_dir(&self, folder: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable: what was created, renamed and removed there.
    fn sync_dir(&self, folder: &Path) -> io::Result<()>;

    /// Returns the bytes that may still be written on the file system of a folder.
    fn free_bytes(&self, folder: &Path) -> io::Result<u64>;

    /// Locks the file of this name, which is created if there is none, until what is returned is dropped or
    /// the process ends. An error of kind `WouldBlock` if it is locked.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>>;

    /// Returns whether there is a file or a folder of this name.
    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.open(path, Mode::Read) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A file that this process has locked.
pub trait Lock: Send {}

/// The bytes of an open file. It stays readable and writable after its name is removed.
pub trait File: Send + Sync {
    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns how many bytes were read: 0 at the end of the file, sometimes fewer than asked for.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize>;

    /// Returns how many bytes were written, sometimes fewer than given. A gap before `at` reads as zeros.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;

    /// Writes at the end of the file as `write_at` does; for files with a single writer.
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write_at(bytes, self.len()?)
    }

    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves blocks for `at..at + len`; a file that is shorter grows, by zeros.
    fn allocate(&self, at: u64, len: u64) -> io::Result<()>;

    /// Returns the file as a [`Ring`] needs it. `None`: the file is read by `read_at` alone.
    fn raw(&self) -> Option<RawFile<'_>> {
        None
    }

    /// Makes the bytes and the length durable. After an error nothing is known of what was written since the
    /// last sync, and a second call that succeeds says nothing about those bytes: the kernel may have dropped
    /// them.
    fn sync_data(&self) -> io::Result<()>;

    /// `sync_data`, and times and rights too.
    fn sync_all(&self) -> io::Result<()>;
}

/// A file as the operating system knows it.
#[derive(Clone, Copy, Debug)]
pub struct RawFile<'f> {
    pub descriptor: BorrowedFd<'f>,
    /// Past the page cache: whole blocks are read, into memory that begins at one.
    pub is_direct: bool,
}

/// A write that ended early.
#[derive(Debug)]
pub struct WriteError {
    /// Number of bytes that were accepted before the error.
    pub written: usize,
    pub error: io::Error,
}

/// Writes all bytes: continues after short writes and interruptions. A write that accepts nothing is a full
/// disk.
pub fn write_all_at(file: &dyn File, bytes: &[u8], at: u64) -> Result<(), WriteError> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write_at(&bytes[written..], at + written as u64) {
            Ok(0) => {
                let error = io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
                return Err(WriteError { written, error });
            }
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(WriteError { written, error }),
        }
    }
    Ok(())
}

/// Fills all bytes; an error of kind `UnexpectedEof` if the file ends before.
pub fn read_exact_at(file: &dyn File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], at + read as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

//! The writer of the append-only file as a machine without I/O: what is written when, what is synced, what is
//! durable, and what happens when the disk refuses.
//!
//! ```text
//!                            inputs: Collected, FileEnd, results, time
//!                                           |
//!   log thread  <-- Create, Write, SetLen, List, Remove --  AofWriter  -- Sync -->  sync thread
//!                     (one at a time)                           |                   (one at a time)
//!                              Durable, Release, RefuseWrites, AcceptWrites, GiveUp, Exit
//!
//!   offsets      durable          written      collected
//!                   |                |             |
//!   file  [.........|................|]            the bytes behind `durable` are still in memory
//! ```
//! **Group commit.** A sync covers all that was written when it began. Writes go on during a sync.
//!
//! **A failed sync is never repeated on its file.** The kernel may have dropped the pages and marked them
//! clean, so a second sync would succeed without them. All that is not durable goes from memory into a new
//! file, and the old one is cut to its durable length.
//!
//! **A failed write** is cut off and repeated each second. Meanwhile commands that write are refused, as
//! after a failed sync; reads continue. Under `always` a failure of ten seconds ends the process, as nothing
//! can be answered any more; but if the disk is full only the replies that wait are given up, and the writer
//! continues when there is room.
//!
//! **A file ends** exactly at the cut of a snapshot that becomes the base. It is synced to its end before the
//! next one is created, and that is listed before a byte is written to it. So of the listed files only the
//! last can have a damaged tail, and damage in another one is never taken for the end of the log. Each file
//! but the last has its length in the list: bytes after it are not part of the log.
//!
//! **A start that finds the disk full** may have to give the history of the last file another name first.
//! The writer begins as after a list that failed: writes are refused, and nothing is written to that file,
//! until the list is written.
//!
//! **Switched on while there is data**, the writer lists its files only with the first base: until then a
//! start reads what was there before.
//!
//! The caller decides how records are framed in a file, how the list is written and what a file is called.
//!
//! Invariants: `durable <= written <= collected`; what is released is durable, or under `no` written; offsets
//! announced as durable only grow; each file begins where the one before it ends.

mod machine;

pub use machine::AofWriter;

use crate::offset::LogOffset;
use std::io::ErrorKind;

/// A file of the AOF: the number in its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u64);

/// Milliseconds of a clock that never runs backwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Ms(pub u64);

/// `appendfsync`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FsyncPolicy {
    Always,
    EverySecond,
    No,
}

/// The call that failed, and the operating system's number of the error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    pub call: FailedCall,
    pub errno: i32,
}

impl Failure {
    /// Returns whether there is no room, or no more is allowed.
    pub fn is_full_disk(self) -> bool {
        let kind = std::io::Error::from_raw_os_error(self.errno).kind();
        matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailedCall {
    Write,
    Sync,
    Create,
    List,
}

impl FailedCall {
    /// Returns its order by what has to succeed before all is well again.
    fn rank(self) -> u8 {
        match self {
            FailedCall::Create | FailedCall::List => 0,
            FailedCall::Write => 1,
            FailedCall::Sync => 2,
        }
    }
}

/// An entry of the list of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    pub file: FileId,
    /// The place in the log of its first record.
    pub start: LogOffset,
    /// Number of bytes of a complete file that belong to the log.
    pub len: Option<u64>,
}

/// Contents of the manifest. It is written whole: to a temporary file that is synced and renamed. The folder
/// is synced before the rename, so that a listed file has its name, and after it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct List {
    /// The base, by the number that `BaseSaved` gave it.
    pub base: Option<u64>,
    pub segments: Vec<Segment>,
}

#[derive(Clone, Debug)]
pub enum Input {
    /// Only time has passed.
    Tick,
    /// Frames end here, and are in memory.
    Collected(LogOffset),
    /// A cut: a file ends here. It was collected to exactly this place.
    FileEnd(LogOffset),
    /// A snapshot of this cut is durable: the files before it are of no more use.
    BaseSaved {
        base: u64,
        cut: LogOffset,
    },
    Policy(FsyncPolicy),
    /// All is to be synced, under every policy; `Flushed` answers.
    Flush,
    /// The write was accepted whole, and has added `file_bytes` bytes to the file: those of the log, and
    /// their framing.
    Wrote {
        file_bytes: u64,
    },
    /// The other call of the log thread has ended (`Create`, `SetLen`, `List`).
    Done,
    /// The call of the log thread has failed.
    Failed {
        errno: i32,
    },
    Synced,
    SyncFailed {
        errno: i32,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Creation of a file, durably; if one was left by an earlier run it is emptied: its bytes must not come
    /// back once it is listed.
    Create {
        file: FileId,
    },
    /// The bytes `from..to` of the log are to stand in the file from `at` on.
    Write {
        file: FileId,
        at: u64,
        from: LogOffset,
        to: LogOffset,
    },
    /// Call for the log thread, like the two above: one call at a time, then `Wrote`, `Done` or `Failed`.
    SetLen {
        file: FileId,
        len: u64,
    },
    List(List),
    /// Call for the sync thread: fdatasync, then `Synced` or `SyncFailed`.
    Sync {
        file: FileId,
    },
    /// End of the calls on a file; it has no answer.
    Close {
        file: FileId,
    },
    /// Removal of a file that is not listed any more. It has no answer, and a failure does no harm.
    Remove {
        file: FileId,
    },
    /// A power failure takes nothing before this place.
    Durable(LogOffset),
    /// The memory before this place is not needed any more.
    Release(LogOffset),
    /// Commands that write are to be refused (MISCONF).
    RefuseWrites(Failure),
    AcceptWrites,
    /// All that was collected when `Flush` came is durable.
    Flushed,
    /// Need of a new base: data written under `no` may be lost, and memory has it no more.
    BaseNeeded,
    /// The disk is full, under `always`, and has been in trouble for long: replies that wait are to say that
    /// their changes are applied and not durable, and until `AcceptWrites` none waits. Those changes are
    /// written when there is room.
    GiveUp,
    /// End of the process: under `always` no reply can be sent.
    Exit(Failure),
}

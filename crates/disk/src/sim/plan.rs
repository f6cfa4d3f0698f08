//! Plan of the faults of a simulated disk.

use rustix::io::Errno;

/// The kinds of calls, as faults name them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Open,
    Read,
    Write,
    SetLen,
    Allocate,
    Sync,
    Rename,
    Remove,
    List,
    CreateDir,
    SyncDir,
    FreeBytes,
}

impl Call {
    /// Returns whether the call is refused on a file system that is mounted read-only. A sync is not. Nor is
    /// an open, which itself says whether it would write.
    pub(super) fn changes(self) -> bool {
        matches!(
            self,
            Call::Write | Call::SetLen | Call::Allocate | Call::Rename | Call::Remove | Call::CreateDir
        )
    }
}

/// Fault that a call returns instead of doing its work.
///
/// A sync that fails leaves the pages clean, as the kernel does: each sector that was to be written is lost
/// with probability 1/2, reads still show it until the crash, and the next sync succeeds without it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Io,
    NoSpace,
    /// The call has done nothing.
    Interrupted,
    /// A write that accepts some of its bytes; other calls do their work.
    Short,
}

impl Fault {
    pub(super) fn errno(self) -> Errno {
        match self {
            Fault::Io => Errno::IO,
            Fault::NoSpace => Errno::NOSPC,
            Fault::Interrupted | Fault::Short => Errno::INTR,
        }
    }
}

/// A fault that calls of one kind meet now and then.
#[derive(Clone, Copy, Debug)]
pub struct RandomFault {
    pub call: Call,
    pub fault: Fault,
    /// Average number of calls per fault.
    pub one_in: u64,
}

/// Moment at which a disk beyond its quota reports an error.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum FullDisk {
    /// A short write, then an error.
    #[default]
    AtWrite,
    /// Writes succeed and the sync fails: blocks are allocated late.
    AtSync,
}

/// Damage of a crash to data that was not synced. Without any of these, all changes from some point on are
/// lost, and whole.
#[derive(Clone, Copy, Default, Debug)]
pub struct Damage {
    /// A sector may hold the beginning of its new bytes and the end of its old ones.
    pub torn: bool,
    /// Each sector, and each change of a name, is written or lost independently of those before it.
    pub reordered: bool,
    /// A sector of a file that has grown may hold what the block held for a file before, rather than zeros.
    pub old_blocks: bool,
}

impl Damage {
    pub const ALL: Damage = Damage { torn: true, reordered: true, old_blocks: true };
}

/// The faults of one run. The default has none.
#[derive(Clone, Default, Debug)]
pub struct Plan {
    /// The machine stops at the call of this number (from 0), before or after its effect.
    pub crash_at: Option<u64>,
    /// Faults by the number of the call.
    pub faults: Vec<(u64, Fault)>,
    pub random_faults: Vec<RandomFault>,
    /// Bytes that all files together may have.
    pub quota_bytes: Option<u64>,
    pub full_disk: FullDisk,
    /// Mounted read-only: calls that change something fail.
    pub is_read_only: bool,
    pub damage: Damage,
    /// Average number of calls per write of dirty sectors without a sync, as the kernel does it after a
    /// while. 0: never.
    pub writeback_one_in: u64,
}

//! Run of a script.
//!
//! ```text
//!   Guards      the partitions of its keys are locked, and those of keys that it meets if no thread has them
//!     | takes more than a millisecond, or needs a partition that another thread has
//!     v
//!   Leases      its keys are leased (`keyspace::lease`); partitions are locked for one command at a time; suspended in between
//!
//!   Everything  within EXEC: the gate is held
//!     | takes more than ten milliseconds
//!     v
//!   Leases      of all keys there are; the transaction stands in its middle (`SuspendedExec`)
//! ```
//! A suspended run belongs to its worker's list (`runs::Runs`), with all state that it needs to continue.

use isotherm_commands::spec::Flags;
use isotherm_keyspace::{LeasePlace, Slot, SuspendedReady, UnixMs};
use isotherm_resp::{ArgsBuf, Reply};
use std::sync::Arc;

use super::callee::Callee;
use isotherm_config::Writing;
use isotherm_node::effects::change_log::SuspendedFrame;
use isotherm_node::effects::tracking::Tracker;
use isotherm_node::observe::slot_stats::SlotsMet;
use isotherm_node::request::entry::Entry;
use isotherm_node::request::next::Ticket;
use isotherm_node::scripting::registry::RunMark;
use isotherm_node::session::{Multi, Session};

/// Permissions of a script besides reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowed {
    pub writes: bool,
    /// Commands that may take memory, as long as it has not written.
    pub growth: bool,
    /// Keys of different slots, in a member of a cluster.
    pub crossing: bool,
}

impl Allowed {
    pub fn refuses_write(self, flags: Flags) -> bool {
        !self.writes && flags.has(Flags::WRITE.or(Flags::MAY_REPLICATE))
    }
}

/// Means by which the keys of a run stay its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    Everything,
    Guards,
    Leases,
}

/// Reason why a run does not continue at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaits {
    /// Next turn of the run.
    Nothing,
    /// The end of another's leases.
    Leases,
    /// A word from the user who debugs it.
    User,
}

/// State of a run so far.
pub struct RunState {
    pub mark: Arc<RunMark>,
    /// True if the run may lease keys that it was not called with (`runs`).
    pub has_token: bool,
    pub allowed: Allowed,
    pub kept: Kept,
    /// Guards: keys that it was not called with. Leases: all its keys.
    pub places: Vec<LeasePlace>,
    /// True once the run has asked for something that depends on all keys.
    pub needs_all: bool,
    /// Slot of the keys so far, in a member of a cluster.
    pub slot: Option<Slot>,
    /// Slots of the keys of its commands so far, where slots are counted.
    pub met: SlotsMet,
    /// Keys that are waited for and that it has changed, while it is suspended.
    pub ready: SuspendedReady,
    /// The caller tracks what it reads.
    pub reader: Option<Tracker>,
    /// Time at which others have their turn, in ticks.
    pub pause_at: u64,
    pub awaits: Awaits,
}

/// The time of a script, which stands still: most never ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScriptTime {
    /// No script runs.
    None,
    /// The script has not asked.
    Unread,
    /// Time in Unix microseconds.
    At(i64),
}

/// A run that takes long.
pub struct SuspendedRun {
    pub ticket: Ticket,
    pub callee: Callee,
    pub state: RunState,
    /// Session of the caller as its commands see it; the caller may be gone.
    pub session: Session,
    pub command: &'static Entry,
    pub args: ArgsBuf,
    pub key_count: usize,
    /// Changes that the run has recorded; `None` if nothing is logged.
    pub frame: Option<SuspendedFrame>,
    /// The time stands still in a script.
    pub now: UnixMs,
    pub time: ScriptTime,
    pub began: u64,
    /// Time that the run itself has taken, without the pauses, in ticks.
    pub ticks: u64,
    /// True once the run takes longer than others wait for without an answer.
    pub is_slow: bool,
    pub reply: Reply,
    /// Within EXEC: what follows.
    pub transaction: Option<Box<SuspendedExec>>,
}

/// A transaction that stands in the middle of one of its scripts. Its connection stays until it is over.
pub struct SuspendedExec {
    /// EXEC itself.
    pub command: &'static Entry,
    pub args: ArgsBuf,
    pub multi: Box<Multi>,
    /// Place in the queue after the script.
    pub next: usize,
    /// Bytes of the reply in front of that of the script.
    pub replied_bytes: usize,
    /// The right to change parameters, if a command of the queue does.
    pub writing: Option<Writing<'static>>,
    /// ASKINGs of its session so far.
    pub asking: u32,
    pub is_logging: bool,
}

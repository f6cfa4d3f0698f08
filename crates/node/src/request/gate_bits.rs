//! Bits of the gates that can matter for a session, a worker or a command, one for each gate. `gates` has the
//! questions that the gates ask, and their order.

use isotherm_commands::Flags;
use isotherm_commands::spec::{Reach, Spec};

/// Gates, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Gates(u32);

impl Gates {
    pub const NONE: Gates = Gates(0);
    pub const ALL: Gates = Gates(u32::MAX);
    /// The session listens: it hears first what was said before, and what it has read is noted afterwards.
    pub const MAILBOX: Gates = Gates(1);
    pub const HTTP: Gates = Gates(1 << 1);
    pub const AUTHENTICATION: Gates = Gates(1 << 2);
    pub const EXISTENCE: Gates = Gates(1 << 3);
    pub const ARITY: Gates = Gates(1 << 4);
    pub const PROTECTION: Gates = Gates(1 << 5);
    pub const NO_MULTI: Gates = Gates(1 << 6);
    /// Memory was short when the batch began.
    pub const MEMORY: Gates = Gates(1 << 7);
    pub const REPLICAS: Gates = Gates(1 << 8);
    pub const SUBSCRIBER: Gates = Gates(1 << 9);
    pub const MONITOR: Gates = Gates(1 << 10);
    pub const BACKPRESSURE: Gates = Gates(1 << 11);
    pub const PAUSE: Gates = Gates(1 << 12);
    pub const QUEUE: Gates = Gates(1 << 13);
    /// Memory is limited: a command that may take memory checks whether some is left.
    pub const GROWTH: Gates = Gates(1 << 14);
    /// A file is being loaded.
    pub const LOADING: Gates = Gates(1 << 15);
    /// Saving has failed.
    pub const SAVE_FAILED: Gates = Gates(1 << 16);
    /// The node follows another and takes no writes of clients.
    pub const READ_ONLY: Gates = Gates(1 << 17);
    /// The node follows another, from which it is cut off.
    pub const STALE: Gates = Gates(1 << 18);
    /// The client can follow a redirection to the primary.
    pub const REDIRECT: Gates = Gates(1 << 19);
    /// A script takes longer than clients are to wait for.
    pub const BUSY: Gates = Gates(1 << 20);
    /// The command has keys or runs commands that have, and this node is a member of a cluster. This gate is
    /// always asked once any gate is.
    pub const SLOT: Gates = Gates(1 << 21);
    /// Gate `SLOT` for a command whose slot is not simply that of its first key.
    pub const SLOTS: Gates = Gates(1 << 22);
    /// The session has sent ASKING: it is over with its next command. No gate asks.
    pub const ASKING: Gates = Gates(1 << 23);
    /// The user of the session may not do everything.
    pub const PERMISSION: Gates = Gates(1 << 24);
    /// Gates of the node's tasks.
    pub const OF_TASKS: Gates =
        Gates::BACKPRESSURE.or(Gates::BUSY).or(Gates::PAUSE).or(Gates::LOADING).or(Gates::SAVE_FAILED);

    /// Gates for requests that are not a known command with a right number of arguments.
    pub const UNRESOLVED: Gates = Gates::HTTP.or(Gates::EXISTENCE).or(Gates::ARITY);

    pub const fn or(self, other: Gates) -> Gates {
        Gates(self.0 | other.0)
    }

    pub const fn and(self, other: Gates) -> Gates {
        Gates(self.0 & other.0)
    }

    pub const fn when(self, is_so: bool) -> Gates {
        if is_so { self } else { Gates::NONE }
    }

    pub const fn has(self, any: Gates) -> bool {
        self.0 & any.0 != 0
    }
}

/// Flags of commands that may see or change keys.
pub const LOOKS_AT_KEYS: Flags = Flags::WRITE.or(Flags::READONLY).or(Flags::MAY_REPLICATE);

/// `has_first_key`: all its keys are found from the first on.
fn slot_gates_of(spec: &Spec, has_first_key: bool) -> Gates {
    let has_keys = !spec.key_specs.is_empty() || spec.key_positions.is_some() || spec.reach == Reach::Queue;
    Gates::SLOT.when(has_keys).or(Gates::SLOTS.when(has_keys && !has_first_key))
}

/// The gates that can matter for a command. Those of EXEC are those of anything that it may run, and so are
/// those of EVAL and FCALL.
pub fn gates_of(spec: &Spec, has_first_key: bool) -> Gates {
    let flags = spec.flags;
    let runs_any = matches!(spec.reach, Reach::Queue | Reach::Script);
    slot_gates_of(spec, has_first_key)
        .or(Gates::ASKING)
        .or(Gates::MAILBOX)
        .or(Gates::MEMORY)
        .or(Gates::BACKPRESSURE)
        .or(Gates::PAUSE)
        .or(Gates::AUTHENTICATION.or(Gates::PERMISSION).when(!flags.has(Flags::NO_AUTH)))
        .or(Gates::PROTECTION.when(flags.has(Flags::PROTECTED)))
        .or(Gates::NO_MULTI.when(flags.has(Flags::NO_MULTI)))
        .or(Gates::GROWTH.when(runs_any || flags.has(Flags::DENYOOM)))
        .or(Gates::REPLICAS.when(runs_any || flags.has(Flags::WRITE)))
        .or(Gates::READ_ONLY.when(runs_any || flags.has(Flags::WRITE)))
        .or(Gates::REDIRECT.when(runs_any || flags.has(Flags::WRITE.or(Flags::READONLY))))
        .or(Gates::STALE.when(runs_any || !flags.has(Flags::STALE)))
        .or(Gates::SAVE_FAILED.when(runs_any || flags.has(Flags::WRITE.or(Flags::REPORTS_DISK_ERRORS))))
        .or(Gates::LOADING.when(runs_any || !flags.has(Flags::LOADING)))
        .or(Gates::BUSY.when(!flags.has(Flags::ALLOW_BUSY)))
        .or(Gates::SUBSCRIBER.when(!flags.has(Flags::FOR_SUBSCRIBERS)))
        .or(Gates::MONITOR.when(runs_any || flags.has(LOOKS_AT_KEYS)))
        .or(Gates::QUEUE.when(!flags.has(Flags::NEVER_QUEUED)))
}

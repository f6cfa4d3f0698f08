//! Tasks that all workers have to check before a command runs; mostly none.

/// Tasks of the whole node that every command has to check; mostly none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tasks(pub u32);

impl Tasks {
    /// CLIENT PAUSE.
    pub const PAUSE_ALL: Tasks = Tasks(1);
    pub const PAUSE_WRITE: Tasks = Tasks(2);
    /// Undelivered messages take much memory: commands that cause more of them wait.
    pub const BACKPRESSURE: Tasks = Tasks(4);
    /// The log, a snapshot or the disk of values lags: commands that write wait.
    pub const WRITERS_WAIT: Tasks = Tasks(256);
    /// A client wants a line for every command.
    pub const MONITORED: Tasks = Tasks(8);
    /// A file is being loaded: only commands that need no data run.
    pub const LOADING: Tasks = Tasks(16);
    /// The last save in the background failed: commands that write may be refused.
    pub const SAVE_FAILED: Tasks = Tasks(32);
    /// The append-only file cannot be written: commands that write are refused.
    pub const LOG_FAILED: Tasks = Tasks(64);
    /// Scripts that take long have leases of keys: what needs one of these waits.
    pub const LEASED: Tasks = Tasks(128);
    /// Either pause.
    pub const PAUSES: Tasks = Tasks::PAUSE_ALL.or(Tasks::PAUSE_WRITE);
    /// The log of changes has a reader. It holds up no command, so it is not among `ANY`. It changes while
    /// all partitions are held, so that of the commands that hold some, all see it or none.
    pub const LOGGED: Tasks = Tasks(1 << 31);
    /// Replies wait until what they show is durable. Like `LOGGED` it holds up no command.
    pub const GATED: Tasks = Tasks(1 << 30);
    /// The node follows a primary. It changes while everything is held; a worker notices under its locks that
    /// it has prepared for the other role (`Exec::knows_role`).
    pub const REPLICA: Tasks = Tasks(1 << 29);
    pub const NONE: Tasks = Tasks(0);
    pub const ANY: Tasks = Tasks(u32::MAX ^ Tasks::LOGGED.0 ^ Tasks::GATED.0 ^ Tasks::REPLICA.0);

    pub const fn or(self, other: Tasks) -> Tasks {
        Tasks(self.0 | other.0)
    }
    /// Returns whether at least one of `tasks` is set.
    pub const fn has(self, tasks: Tasks) -> bool {
        self.0 & tasks.0 != 0
    }
}

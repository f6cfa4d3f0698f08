//! Actions of a worker after a command, and reasons why a connection's next command does not run now.

/// Next action of the worker after a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The next command.
    Go,
    /// Much has been answered: it is to be written before the next command runs.
    Write,
    /// No further command runs until the cause is over.
    Park(WaitReason),
    /// Close the connection, after its replies if `after_replies`.
    Close { after_replies: bool },
}

/// Why no further command of a connection runs. With `Key`, `Script`, `Exec`, `Debugger` and `Leaving` the
/// command has run, or is running, and is not
/// answered; with the others it has not, and runs again when the cause is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitReason {
    /// CLIENT PAUSE.
    Pause,
    /// Undelivered messages take much memory (`Tasks::BACKPRESSURE`).
    Backpressure,
    /// Too much is to be written, kept or moved already for a command that writes (`Tasks::WRITERS_WAIT`).
    Writers,
    /// Messages for the session lie in the mailbox.
    Mailbox,
    /// The session waits for a key.
    Key,
    /// Values that it needs are fetched.
    Cold(Ticket),
    /// Another's script has leased what it needs, or is to end before its own may begin.
    Lease,
    /// The script of the session takes long.
    Script(Ticket),
    /// A script of its transaction takes long.
    Exec(Ticket),
    /// A client that debugs its script, which takes long.
    Debugger(Ticket),
    /// The session has become a replica: it leaves its worker.
    Leaving,
}

/// End of a wait for values on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    All,
    /// At least one cannot be read.
    Not,
    /// Ended since nothing came for too long. Values that had come by then are kept.
    Late,
}

/// Number of one fetch, or of one script that takes long, of a worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket(pub u64);

impl WaitReason {
    /// Returns whether the command that was to run has run.
    pub fn has_run(self) -> bool {
        matches!(
            self,
            WaitReason::Key
                | WaitReason::Script(_)
                | WaitReason::Exec(_)
                | WaitReason::Debugger(_)
                | WaitReason::Leaving
        )
    }
}

//! Interface from scripts to the server: the only way out of an interpreter.

use isotherm_resp::{Args, Reply};

/// Destinations of the changes of later commands: `redis.set_repl`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replication {
    pub aof: bool,
    pub replicas: bool,
}

impl Replication {
    /// Initial setting of a script: REPL_ALL.
    pub const ALL: Replication = Replication { aof: true, replicas: true };

    /// `REPL_AOF` is 1, `REPL_REPLICA` 2; the caller has refused all other bits.
    pub fn of_flags(flags: u8) -> Replication {
        Replication { aof: flags & 1 != 0, replicas: flags & 2 != 0 }
    }
}

/// Log levels in the order of the numbers of `redis.LOG_DEBUG` and its siblings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    Debug,
    Verbose,
    Notice,
    Warning,
}

impl LogLevel {
    pub fn of_number(level: u8) -> Option<LogLevel> {
        [LogLevel::Debug, LogLevel::Verbose, LogLevel::Notice, LogLevel::Warning].get(level as usize).copied()
    }
}

/// Result of a command of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Called {
    Done,
    /// Wait of the command, which has done nothing: the run is suspended, and the command is tried again when
    /// it is resumed.
    Later,
}

/// Next step of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checkpoint {
    GoOn,
    /// The run is suspended; when it is resumed, this is asked again.
    Pause,
    /// End of the run, whatever errors the script catches.
    Stop,
}

/// The world of one run. No method may call the interpreter that calls it.
pub trait Host {
    /// Runs one command of the script: `redis.call` and `redis.pcall`. `words` is a request in wire form
    /// (`Args::wire` gives its bytes), never empty. `reply` is empty, speaks the protocol that the script
    /// chose with `redis.setresp`, and takes exactly one value. An error is a reply too, with the text that a
    /// script is to see: instead of "unknown command ..." `ERR Unknown command called from script`, and so
    /// on.
    fn call(&mut self, words: Args<'_>, reply: &mut Reply) -> Called;

    /// Returns the text that a debugging user is shown for a command that `call` refuses, if it is more than
    /// the script sees.
    fn shown_refusal(&mut self, _words: Args<'_>) -> Option<Vec<u8>> {
        None
    }

    /// `redis.set_repl`; a script begins with `Replication::ALL`.
    fn set_replication(&mut self, replication: Replication);

    /// `redis.log`: one line, without its end.
    fn log(&mut self, level: LogLevel, text: &[u8]);

    /// `redis.acl_check_cmd`: whether the caller may run this command; `None` if there is no such command or
    /// it cannot have this number of arguments.
    fn may_run(&mut self, words: Args<'_>) -> Option<bool>;

    /// Asked every 100,000 instructions, steps of pattern matching included, and every 10,000 once it was
    /// suspended.
    fn checkpoint(&mut self) -> Checkpoint;
}

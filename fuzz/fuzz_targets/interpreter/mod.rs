//! Interpreters for targets: bounded in memory and in time, with commands that reply in each type.
// A target uses a part.
#![allow(dead_code)]

use isotherm_resp::{Args, ArgsBuf, Protocol, Reply};
use isotherm_script::{
    Called, Checkpoint, Ended, Host, Identity, Interpreter, Limits, LogLevel, Progress, Replication, Sha,
};

/// Questions of `checkpoint`, the first after 100,000 instructions.
const TURNS_MAX: u32 = 3;
const MEMORY_BYTES_MAX: usize = 8 << 20;

const SHA: Sha = [b'0'; 40];

#[derive(Default)]
struct Commands {
    turns: u32,
    calls: usize,
    /// The run was suspended, and asks again.
    is_retry: bool,
}

impl Commands {
    /// Every other time the run is suspended first.
    fn suspends(&mut self) -> bool {
        self.is_retry = !self.is_retry;
        self.is_retry
    }
}

impl Host for Commands {
    fn call(&mut self, words: Args<'_>, reply: &mut Reply) -> Called {
        if self.suspends() {
            return Called::Later;
        }
        self.calls += 1;
        match (self.calls + words.len()) % 8 {
            0 => reply.null(),
            1 => reply.integer(-1),
            2 => reply.error("ERR no"),
            3 => reply.bulk(&words[0]),
            4 => {
                reply.array(3);
                reply.null();
                reply.bulk(b"x");
                reply.integer(7);
            }
            5 => reply.ok(),
            6 => {
                reply.map(1);
                reply.bulk(b"k");
                reply.bulk(&words[words.len() - 1]);
            }
            _ => reply.double(0.5),
        }
        Called::Done
    }

    fn set_replication(&mut self, _: Replication) {}
    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn may_run(&mut self, words: Args<'_>) -> Option<bool> {
        (words.len() < 3).then_some(words.len() == 1)
    }

    fn checkpoint(&mut self) -> Checkpoint {
        if self.suspends() {
            return Checkpoint::Pause;
        }
        self.turns += 1;
        if self.turns > TURNS_MAX { Checkpoint::Stop } else { Checkpoint::GoOn }
    }
}

pub fn interpreter() -> Interpreter {
    let identity = Identity { server_name: "valkey", redis_version: "7.2.4", valkey_version: "9.1.2" };
    Interpreter::new(&Limits { memory_bytes: MEMORY_BYTES_MAX, insecure_api: false }, &identity)
        .expect("there is memory")
}

/// Compiles and runs a text, and drops it. `None`: it does not compile.
pub fn run(lua: &mut Interpreter, text: &[u8], args: &[&[u8]], proto: Protocol) -> Option<(Ended, Vec<u8>)> {
    lua.compile(&SHA, text).ok()?;
    let words: ArgsBuf = args.iter().copied().collect();
    let mut reply = Reply::new(proto);
    let mut host = Commands::default();
    let mut progress = lua.run(&SHA, words.args(), args.len().min(1), &mut host, &mut reply);
    let ended = loop {
        match progress {
            Progress::Ended(ended) => break ended,
            Progress::Suspended => progress = lua.resume(&mut host, &mut reply),
        }
    };
    lua.forget(&SHA);
    assert!(!reply.out.is_empty());
    Some((ended, reply.out))
}

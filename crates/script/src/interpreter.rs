//! One Lua state with its books, and the scripts that it has compiled.

use std::fmt;

use isotherm_resp::Reply;

use crate::host::Host;

/// The SHA-1 of a script's text in hexadecimal digits.
pub type Sha = [u8; 40];

/// What an interpreter is made with.
#[derive(Clone, Debug)]
pub struct Limits {
    /// What it may allocate, all in all; 0: no limit.
    pub memory_bytes: usize,
    /// `lua-enable-insecure-api`: newproxy, setfenv and getfenv exist.
    pub insecure_api: bool,
}

/// Under what name and versions scripts find the server: `redis.REDIS_VERSION` and the like.
#[derive(Clone, Debug)]
pub struct Identity {
    /// `SERVER_NAME`: "valkey", as INFO's `server_name`.
    pub server_name: &'static str,
    /// `REDIS_VERSION`, as INFO's `redis_version`: "7.2.4".
    pub redis_version: &'static str,
    /// `VALKEY_VERSION`: "9.1.2".
    pub valkey_version: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory;

/// Why a script does not compile: "user_script:1: unexpected symbol near '<eof>'", to follow "ERR Error compiling script (new
/// function): ".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompileError {
    pub text: Vec<u8>,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

/// How a run came to its end. The reply is written in each case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    Returned,
    /// The reply is an error. `is_counted`: a command that the script called has counted it in its own statistics already.
    Failed {
        is_counted: bool,
    },
    /// `Host::is_to_stop` ended it; the reply is an error that says so.
    Stopped,
}

/// One Lua state: the globals of the sandbox, and compiled scripts.
pub struct Interpreter {
    limits: Limits,
}

impl Interpreter {
    pub fn new(limits: Limits, identity: &Identity) -> Result<Interpreter, OutOfMemory> {
        let _ = identity;
        Ok(Interpreter { limits })
    }

    /// All that its Lua state and its buffers have allocated.
    pub fn used_bytes(&self) -> usize {
        self.limits.memory_bytes
    }

    pub fn is_compiled(&self, sha: &Sha) -> bool {
        let _ = sha;
        false
    }

    /// Compiles a script and keeps it under `sha`, unless it is kept already. `body` is what Lua is to see: without the
    /// line `#!lua ...`, whose end of line stays.
    pub fn compile(&mut self, sha: &Sha, body: &[u8]) -> Result<(), CompileError> {
        let _ = (sha, body);
        Ok(())
    }

    /// Drops one compiled script, as when the cache of EVAL texts drops it.
    pub fn forget(&mut self, sha: &Sha) {
        let _ = sha;
    }

    /// Drops all compiled scripts and collects what they left.
    pub fn forget_all(&mut self) {}

    /// Runs a compiled script (panics if it is not) and writes its result, or its error, to `reply`: one value, in the
    /// protocol of `reply`.
    pub fn run(
        &mut self,
        sha: &Sha,
        keys: &[&[u8]],
        argv: &[&[u8]],
        host: &mut dyn Host,
        reply: &mut Reply,
    ) -> Ended {
        let _ = (sha, keys, argv, host);
        reply.null();
        Ended::Returned
    }
}

//! Lua state with its memory accounted for, and the scripts that it has compiled.

use std::collections::HashMap;
use std::fmt;

use isotherm_resp::{Args, Reply};

use crate::debugger::Debugger;
use crate::host::Host;
use crate::lua::{Run, State, Status};
use crate::result;

/// The SHA-1 of a script's text in hexadecimal digits.
pub type Sha = [u8; 40];

/// Parameters of an interpreter.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum memory in total; 0 for no limit.
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

/// Why a script does not compile: "user_script:1: unexpected symbol near '<eof>'", to follow "ERR Error
/// compiling script (new function): ".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompileError {
    pub text: Vec<u8>,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

/// End of a run. The reply is written in each case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    Returned,
    /// The reply is an error. `is_counted`: a command that the script called has counted it in its own
    /// statistics already.
    Failed {
        is_counted: bool,
    },
    /// `Host::checkpoint` ended it; the reply is an error that says so.
    Stopped,
}

/// Progress of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    Ended(Ended),
    /// The host has asked for it: `resume` continues, and nothing else may be run meanwhile.
    Suspended,
}

// COMPAT(scripts): string.find and its siblings fail with "pattern too complex" where a pattern has more than
// some 1,000 optional or repeated items; Valkey overflows its stack there and ends. Why: one script must not
// end the server.
//
// COMPAT(scripts): SCRIPT KILL also ends a script within one call of string.find, string.gsub, table.sort,
// table.insert or string.rep, in the handler of an xpcall, or in the conversion of its result. Why: in Valkey
// such a script cannot be ended.
//
// COMPAT(scripts): collectgarbage changes how garbage is collected for the rest of the script only; Valkey
// keeps what it has set for all scripts. Why: a script that stops the collector would fill the memory for
// others.
//
// COMPAT(scripts): What cjson.encode_sparse_array, decode_max_depth and the like set holds for the rest of
// the script; in Valkey for all that come after it. Why: a worker has interpreters of its own, so others
// would have it or not by chance.
//
// COMPAT(scripts): pcall() without an argument is an error of the script. Why: Valkey reads past the end of
// its stack there.
//
// COMPAT(scripts): math.random has a sequence for each interpreter, which begins as Valkey's does after its
// start. Why: a worker has interpreters of its own.

/// Lua state with the globals of the sandbox and compiled scripts.
pub struct Interpreter {
    pub(crate) lua: State,
    scripts: HashMap<Sha, i32>,
    /// The script that ran last, and its reference: most workers run one script many times.
    last: Option<(Sha, i32)>,
}

/// Buffers above this are given back after a run.
pub(crate) const BUFFER_KEPT_MAX: usize = 64 * 1024;

impl Interpreter {
    pub fn new(limits: &Limits, identity: &Identity) -> Result<Interpreter, OutOfMemory> {
        Interpreter::open(limits, identity, false)
    }

    /// `runs_functions`: of libraries (`crate::functions`), and no scripts.
    pub(crate) fn open(
        limits: &Limits,
        identity: &Identity,
        runs_functions: bool,
    ) -> Result<Interpreter, OutOfMemory> {
        let lua = State::open(limits, identity, runs_functions)?;
        Ok(Interpreter { lua, scripts: HashMap::new(), last: None })
    }

    /// All that its Lua state and its buffers have allocated, in bytes that were asked for.
    pub fn used_bytes(&self) -> usize {
        // An entry of the map, and its byte of control.
        let script_bytes = size_of::<(Sha, i32)>() + 1;
        self.lua.used_bytes() + self.scripts.capacity() * script_bytes
    }

    /// 0: no limit. Memory that is allocated already stays.
    pub fn set_memory_limit(&mut self, memory_bytes: usize) {
        self.lua.set_limit(memory_bytes);
    }

    pub fn is_compiled(&self, sha: &Sha) -> bool {
        matches!(&self.last, Some((last, _)) if last == sha) || self.scripts.contains_key(sha)
    }

    /// Compiles a script and keeps it under `sha`, unless it is kept already. `body` is what Lua is to see:
    /// without the line `#!lua ...`, whose end of line stays.
    pub fn compile(&mut self, sha: &Sha, body: &[u8]) -> Result<(), CompileError> {
        if self.is_compiled(sha) {
            return Ok(());
        }
        let reference = self.lua.compile(body).map_err(|text| CompileError { text })?;
        self.scripts.insert(*sha, reference);
        Ok(())
    }

    /// Drops one compiled script, as when the cache of EVAL texts drops it.
    pub fn forget(&mut self, sha: &Sha) {
        self.last = None;
        if let Some(reference) = self.scripts.remove(sha) {
            self.lua.forget(reference);
        }
    }

    /// Drops all compiled scripts and collects what they left.
    pub fn forget_all(&mut self) {
        self.last = None;
        for (_, reference) in std::mem::take(&mut self.scripts) {
            self.lua.forget(reference);
        }
        self.lua.collect();
    }

    /// A full collection.
    pub fn collect(&mut self) {
        self.lua.collect();
    }

    /// Runs a compiled script (panics if it is not) and writes its result, or its error, to `reply`: one
    /// value, in the protocol of `reply`. `words` are the keys, `key_count` of them, then the arguments. A
    /// run that is suspended has written nothing.
    pub fn run(
        &mut self,
        sha: &Sha,
        words: Args<'_>,
        key_count: usize,
        host: &mut dyn Host,
        reply: &mut Reply,
    ) -> Progress {
        let reference = self.reference(sha);
        self.run_compiled(&Run { reference, words, key_count }, host, reply)
    }

    /// Runs what is compiled already.
    pub(crate) fn run_compiled(&mut self, run: &Run<'_>, host: &mut dyn Host, reply: &mut Reply) -> Progress {
        self.lua.reset_libraries();
        let (status, result) = self.lua.run(run, host);
        let (progress, result_bytes) = (finish(status, result, reply), result.len());
        self.lua.trim_after(result_bytes);
        progress
    }

    /// Continues the run that is suspended.
    pub fn resume(&mut self, host: &mut dyn Host, reply: &mut Reply) -> Progress {
        let (status, result) = self.lua.resume(host);
        let (progress, result_bytes) = (finish(status, result, reply), result.len());
        self.lua.trim_after(result_bytes);
        progress
    }

    /// The next run is debugged. It is suspended while its user is waited for.
    pub fn debug(&mut self, debugger: Debugger) {
        self.lua.debug(debugger);
    }

    /// Returns the debugger of the suspended run.
    pub fn debugger(&mut self) -> Option<&mut Debugger> {
        self.lua.debugger().as_deref_mut()
    }

    /// Takes the debugger of the run that has ended.
    pub fn take_debugger(&mut self) -> Option<Box<Debugger>> {
        assert!(!self.is_suspended(), "its run is over");
        self.lua.debugger().take()
    }

    pub fn is_suspended(&self) -> bool {
        self.lua.is_suspended()
    }
}

fn finish(status: Status, result: &[u8], reply: &mut Reply) -> Progress {
    let ended = match status {
        Status::Suspended => return Progress::Suspended,
        // It has returned what pcall gave it of a command.
        Status::Ran if result::is_counted_error(result) => Ended::Failed { is_counted: true },
        Status::Ran => Ended::Returned,
        Status::Failed => Ended::Failed { is_counted: result::is_counted_error(result) },
        Status::Stopped => Ended::Stopped,
    };
    result::write(result, reply);
    Progress::Ended(ended)
}

impl Interpreter {
    /// Runs the code of a library: what it has registered, as C lists it.
    pub(crate) fn load_library(&mut self, code: &[u8], host: &mut dyn Host) -> Result<&[u8], Vec<u8>> {
        self.lua.load(code, host)
    }

    /// Returns the reference of a compiled script.
    fn reference(&mut self, sha: &Sha) -> i32 {
        match &self.last {
            Some((last, reference)) if last == sha => *reference,
            _ => {
                let reference = *self.scripts.get(sha).expect("a script is compiled before it is run");
                self.last = Some((*sha, reference));
                reference
            }
        }
    }
}

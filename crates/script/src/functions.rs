//! Libraries of functions: an interpreter in which the code of a library is run once, and its functions as
//! often as they are called.
//!
//! ```text
//!   code --load--> [name, description, flags, reference] ...        while it loads there is server.register_function
//!   reference, keys, arguments --run--> reply                       while a function runs there is what scripts have
//! ```
//! A library that fails while it loads leaves nothing. The values that its functions share (their upvalues)
//! stay as long as the library; two libraries share nothing.

use isotherm_resp::{Args, Reply};
use std::fmt;

use crate::host::Host;
use crate::interpreter::{Identity, Interpreter, Limits, OutOfMemory, Progress};
use crate::lua::Run;

/// A function of a library that is loaded, in the interpreter that has loaded it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference(i32);

/// Function that a library has registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registered {
    pub name: Vec<u8>,
    pub description: Option<Vec<u8>>,
    /// Flags by bit: no-writes, allow-oom, allow-stale, no-cluster, allow-cross-slot-keys.
    pub flags: u8,
    pub reference: Reference,
}

/// "Error compiling function: user_function:1: ...", or "Error registering functions: ERR ...".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadError {
    pub text: Vec<u8>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

// COMPAT(scripts): server.log may be called while a library of functions loads. Why: Valkey 9.1.2 ends there
// by an assertion.
/// Lua state for functions.
pub struct FunctionInterpreter(Interpreter);

impl FunctionInterpreter {
    pub fn new(limits: &Limits, identity: &Identity) -> Result<FunctionInterpreter, OutOfMemory> {
        Interpreter::open(limits, identity, true).map(FunctionInterpreter)
    }

    /// Runs the code of a library: without its first line, whose end of line stays. `host` is asked whether
    /// it is to stop, and logs; no command can be called.
    pub fn load(&mut self, code: &[u8], host: &mut dyn Host) -> Result<Vec<Registered>, LoadError> {
        let listed = self.0.load_library(code, host).map(registered);
        self.0.lua.trim_after(usize::MAX);
        listed.map_err(|text| LoadError { text })
    }

    /// Calls a function and writes its result, or its error, to `reply`: one value, in the protocol of
    /// `reply`. `words` are the keys, `key_count` of them, then the arguments. One that is suspended has
    /// written nothing.
    pub fn run(
        &mut self,
        reference: Reference,
        words: Args<'_>,
        key_count: usize,
        host: &mut dyn Host,
        reply: &mut Reply,
    ) -> Progress {
        self.0.run_compiled(&Run { reference: reference.0, words, key_count }, host, reply)
    }

    /// Continues the call that is suspended.
    pub fn resume(&mut self, host: &mut dyn Host, reply: &mut Reply) -> Progress {
        self.0.resume(host, reply)
    }

    /// The function is not called again.
    pub fn forget(&mut self, reference: Reference) {
        self.0.lua.forget(reference.0);
    }

    /// A full collection.
    pub fn collect(&mut self) {
        self.0.collect();
    }

    /// All that its Lua state and its buffers have allocated, in bytes that were asked for.
    pub fn used_bytes(&self) -> usize {
        self.0.used_bytes()
    }

    /// 0: no limit. Memory that is allocated already stays.
    pub fn set_memory_limit(&mut self, memory_bytes: usize) {
        self.0.set_memory_limit(memory_bytes);
    }
}

/// Reads the list that `lua/glue/glue.h` draws.
fn registered(mut list: &[u8]) -> Vec<Registered> {
    let mut all = Vec::new();
    while !list.is_empty() {
        let name = text(&mut list);
        let [has_description] = take(&mut list);
        let description = text(&mut list);
        let flags = number(&mut list) as u8;
        let reference = Reference(number(&mut list) as i32);
        all.push(Registered {
            name,
            description: (has_description != 0).then_some(description),
            flags,
            reference,
        });
    }
    all
}

fn take<const N: usize>(list: &mut &[u8]) -> [u8; N] {
    let (head, rest) = list.split_first_chunk().expect("C writes whole entries");
    *list = rest;
    *head
}

fn number(list: &mut &[u8]) -> u64 {
    u64::from_le_bytes(take(list))
}

fn text(list: &mut &[u8]) -> Vec<u8> {
    let len = number(list) as usize;
    let (text, rest) = list.split_at(len);
    *list = rest;
    text.to_vec()
}

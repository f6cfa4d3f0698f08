//! Lua scripts: interpreters that run what a client sent, behind a [`Host`] that carries out their commands.
//!
//! ```text
//!   server  --run(sha, KEYS, ARGV)-->  Interpreter  --Host::call(words, reply)-->  server
//!                                       |      |
//!                       lua (the room)  |      |  libraries (safe)
//!        C: Lua 5.1.5, patched, + glue.c|      |cjson, cmsgpack, struct, bit
//!                                       +-tape-+
//! ```
//! **Architecture invariant:** `script` knows no keyspace, no sessions, no sockets and no clock. A script
//! reaches the outside through the trait [`Host`] alone, and the CPU time of the process by `os.clock`.
//!
//! Reading order: what a script is run with (`host`), the interpreter (`interpreter`), the one of libraries
//! of functions (`functions`), how its result becomes a reply (`result`), the debugger (`debugger`), how
//! values go between Lua and Rust (`tape`), the libraries in Rust (`libraries`), the room (`lua`).

pub mod host;
pub mod libraries;
pub mod tape;

pub mod functions;

pub mod interpreter;

pub mod debugger;

mod lua;
mod result;

pub use debugger::Debugger;
pub use functions::{FunctionInterpreter, LoadError, Reference, Registered};
pub use host::{Called, Checkpoint, Host, LogLevel, Replication};
pub use interpreter::{CompileError, Ended, Identity, Interpreter, Limits, OutOfMemory, Progress, Sha};

//! The process: arguments, then configuration, then a node that runs until a shutdown is asked for.
//!
//! ```text
//! process     start, listeners, signals, the end
//! worker      one thread with its event loop and its connections
//! request     lookup, gates, locks, execution, waiting
//! scripting   scripts: their cache, a worker's interpreter
//! admin       the commands about the server
//! session     what a connection has asked for so far
//! effects     what follows from a change: events, pub/sub, tracking
//! observe     counters, logs, reports
//! persistence RDB files: written and loaded
//! cluster     its slots and its topology, where it is a member of a cluster
//! replication the role of the node, its primary and its replicas
//! tls         what connections under TLS are made with
//! tier        values that are not in memory: files, reads, what leaves
//! room        memory that counts, and what gives way when it is short
//! upkeep      expiry, eviction, compaction
//! config      parameters: declared, read, set, written
//! mail        messages between threads
//! node        what all of them share
//! ```

mod admin;
mod observe;
mod process;
#[cfg(test)]
mod sim;
mod upkeep;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(panic = "unwind")]
    abort_after_panics();
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    process::start::run(&program, &words.collect::<Vec<_>>())
}

/// Makes a panic of any thread end the process, as it does in a release (`panic = "abort"`). Builds for tests
/// unwind, since the tests inside this crate are built with them; these do not come through `main`.
#[cfg(panic = "unwind")]
fn abort_after_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

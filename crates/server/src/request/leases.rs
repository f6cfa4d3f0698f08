//! Keys that scripts have leased, as other commands meet them.
//!
//! A command that has its locks, and finds that it needs such a key, has done nothing yet: it lets go of what it holds, and its
//! connection is parked until scripts have ended. What changes or freezes the whole node waits for all of them.

use isotherm_resp::Args;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::request::entry::{Entry, Locks};
use crate::request::execute::Exec;
use crate::scripting::cache::Script;
use crate::session::Session;

/// Commands that hold everything at some moment, by themselves: no script may be in the middle of its work then.
const STOPS_ALL: [&str; 7] = ["bgrewriteaof", "bgsave", "config|set", "psync", "save", "shutdown", "sync"];

/// How long a script waits for the end of another, of which most are over in some microseconds, before its connection is parked.
const TOKEN_WAIT: Duration = Duration::from_micros(50);

/// Whether a script may begin; it has the token then, if it needs that. If not, what it waits for is going to be reported to its
/// worker.
pub fn admits_script(exec: &mut Exec, command: &Entry, args: Args<'_>) -> bool {
    let (runs, keyspace) = (&exec.node.runs, &exec.node.keyspace);
    if exec.runs.are_many() || keyspace.is_gate_awaited() {
        return false;
    }
    exec.runs.found = find_script(exec, command, args);
    if exec.runs.found.as_ref().is_some_and(|script| script.is_bound) {
        return true;
    }
    let has_token = runs.try_take_token() || {
        // Who has it may want what this batch holds.
        exec.release();
        wait_for_token(exec)
    };
    exec.runs.has_token = has_token;
    has_token
}

/// The script that is to run, if it has run or was loaded before.
fn find_script(exec: &Exec, command: &Entry, args: Args<'_>) -> Option<Arc<Script>> {
    let scripts = &exec.node.scripts;
    match &*command.name {
        "evalsha" | "evalsha_ro" => scripts.find(args.get(1)),
        "eval" | "eval_ro" => scripts.find_text(args.get(1)),
        _ => None,
    }
}

#[cold]
fn wait_for_token(exec: &mut Exec) -> bool {
    let runs = &exec.node.runs;
    let until = Instant::now() + TOKEN_WAIT;
    while Instant::now() < until {
        std::hint::spin_loop();
        if runs.try_take_token() {
            exec.clock.outdate();
            return true;
        }
    }
    runs.take_token_or_wait()
}

/// Whether the command, whose partitions are held, has to wait for the end of a script.
#[cold]
pub fn holds_up(exec: &mut Exec, session: &Session, command: &Entry, args: Args<'_>) -> bool {
    if !exec.node.keyspace.has_leases() {
        return false;
    }
    let queue = session.multi.as_ref().filter(|_| command.locks == Locks::Queue);
    match queue {
        Some(multi) => multi.queue.iter().any(|queued| {
            let args = queued.args.args();
            matches!(queued.command.locks, Locks::Each | Locks::Script)
                || needs_leased(exec, queued.command, args)
        }),
        None => needs_leased(exec, command, args),
    }
}

fn needs_leased(exec: &mut Exec, command: &Entry, args: Args<'_>) -> bool {
    match command.locks {
        Locks::One | Locks::Keys | Locks::Script => names_leased(exec, command, args),
        Locks::All => true,
        Locks::None | Locks::Each | Locks::Queue => {
            let is_end =
                &*command.name == "shutdown" && args.iter().any(|word| word.eq_ignore_ascii_case(b"nosave"));
            STOPS_ALL.contains(&&*command.name) && !is_end
        }
    }
}

/// The same for a command of a primary, or of a log.
pub fn holds_up_log(exec: &mut Exec, command: &Entry, args: Args<'_>) -> bool {
    exec.node.keyspace.has_leases() && needs_leased(exec, command, args)
}

/// Whether one of the command's keys, as far as they are held, is leased.
pub fn names_leased(exec: &mut Exec, command: &Entry, args: Args<'_>) -> bool {
    let Exec { node, held, locks, .. } = exec;
    let Ok(positions) = locks.find_keys(command, args) else {
        // All others are held as well, or it is refused.
        return command.locks != Locks::Script;
    };
    positions.iter().any(|(at, _)| {
        let key = node.keyspace.key(args.get(*at));
        held.holds(&key) && held.is_leased(&key, None)
    })
}

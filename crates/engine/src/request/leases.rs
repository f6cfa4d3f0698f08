//! Keys that scripts have leased, as other commands meet them.
//!
//! A command that has its locks, and finds that it needs such a key, has done nothing yet: it releases what
//! it holds, and its connection is parked until scripts have ended. Work that changes or freezes the whole
//! node waits for all of them.

use isotherm_commands::Flags;
use isotherm_commands::spec::{Group, Reach};
use isotherm_keyspace::Held;
use isotherm_resp::Args;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::request::execute::Exec;
use isotherm_node::Node;
use isotherm_node::request::entry::{Entry, Locks};
use isotherm_node::scripting::cache::Script;
use isotherm_node::session::Session;
use isotherm_runtime::routines;

/// Time for which a script waits for the end of another before its connection is parked. Most scripts are
/// over in some microseconds.
const TOKEN_WAIT: Duration = Duration::from_micros(50);

/// Returns whether a script may begin. If it may, it has the token if it needs that, as does a script whose
/// user may have it do anything (`debugs`). If not, the end of what it waits for is going to be reported to
/// its worker.
pub fn admits_script(exec: &mut Exec, command: &Entry, args: Args<'_>, debugs: bool) -> bool {
    let (runs, keyspace) = (&exec.node.runs, &exec.node.keyspace);
    // Where a script takes too long, a client that waits gets an error: what wants an end of all scripts
    // waits alone then.
    let has_precedence = || keyspace.is_gate_awaited() || runs.is_end_awaited();
    if exec.runs.are_many() || runs.is_exclusive() || has_precedence() && !runs.is_busy() {
        return false;
    }
    let script = find_script(exec, command, args);
    if debugs || script.as_ref().is_none_or(|script| !script.is_bound) {
        let has_token = runs.try_take_token() || {
            // The script that has it may want what this batch holds.
            exec.release();
            wait_for_token(exec)
        };
        if !has_token {
            return false;
        }
        exec.runs.has_token = true;
    }
    // Not before it is admitted: a script of EXEC, which looks for its own, would take it for that.
    exec.runs.found = script;
    true
}

/// The script that is to run, if it has run or was loaded before.
fn find_script(exec: &Exec, command: &Entry, args: Args<'_>) -> Option<Arc<Script>> {
    let scripts = &exec.node.scripts;
    let names = command.spec.arguments.first()?;
    match names.name {
        "sha1" => scripts.find(args.get(1)),
        "script" => scripts.find_text(args.get(1)),
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

/// Time for which a separate thread asks for the gate, in which no script begins; and its rest between two
/// attempts.
pub const GATE_TRY: Duration = Duration::from_millis(20);
pub const GATE_REST: Duration = Duration::from_millis(10);

/// Asks for the gate for [`GATE_TRY`], on behalf of a thread that asks again. Returns whether the gate is
/// held: if not, no script begins until those in their middle have ended, or one takes too long.
pub fn try_gate(node: &Node, held: &mut Held<'_>) -> bool {
    let is_had = held.gate_within(GATE_TRY);
    if !is_had {
        node.runs.await_end();
    }
    is_had
}

/// Locks everything once no script is in its middle, for a thread that no worker waits for. `is_wanted` is
/// asked between two attempts, and under the locks: once it is false, nothing is held. Returns whether
/// everything is.
pub fn await_gate(node: &Node, held: &mut Held<'_>, is_wanted: impl Fn() -> bool) -> bool {
    while !try_gate(node, held) {
        if !is_wanted() {
            return false;
        }
        routines::pause(GATE_REST);
    }
    let is_wanted = is_wanted();
    if !is_wanted {
        held.release();
    }
    is_wanted
}

/// Returns whether the command, whose partitions are held, has to wait for the end of a script.
#[cold]
pub fn holds_up(exec: &mut Exec, session: &Session, command: &Entry, args: Args<'_>) -> bool {
    if !exec.node.keyspace.has_leases() {
        return false;
    }
    let queue = session.multi.as_ref().filter(|_| command.locks == Locks::Queue);
    let needs_all = match queue {
        Some(multi) => multi.queue.iter().any(|queued| {
            matches!(queued.command.locks, Locks::Each | Locks::Script)
                || needs_no_leases(queued.command, queued.args.args())
        }),
        None => needs_no_leases(command, args),
    };
    if needs_all {
        exec.node.runs.await_end();
        return true;
    }
    match queue {
        // The keys of its conditions are its own.
        Some(multi) => {
            exec.names_leased(command, args)
                || multi.queue.iter().any(|queued| needs_leased(exec, queued.command, queued.args.args()))
        }
        None => needs_leased(exec, command, args),
    }
}

/// Returns whether the command runs only where there are no leases at all.
fn needs_no_leases(command: &Entry, args: Args<'_>) -> bool {
    match command.locks {
        Locks::All => true,
        Locks::One | Locks::Keys | Locks::Script => false,
        Locks::None | Locks::Each | Locks::Queue => {
            // SHUTDOWN NOSAVE ends scripts too, and SHUTDOWN ABORT is about no key.
            let is_end = command.parent.is_none()
                && args
                    .iter()
                    .any(|word| word.eq_ignore_ascii_case(b"nosave") || word.eq_ignore_ascii_case(b"abort"));
            command.spec.flags.has(Flags::STOPS_ALL) && !is_end
        }
    }
}

fn needs_leased(exec: &mut Exec, command: &Entry, args: Args<'_>) -> bool {
    match command.locks {
        // Or it was admitted before a transaction was suspended, and then waited for its locks.
        Locks::Script if exec.node.runs.is_exclusive() => true,
        Locks::One | Locks::Keys | Locks::Script => exec.names_leased(command, args),
        Locks::All | Locks::None | Locks::Each | Locks::Queue => {
            // A suspended transaction may be about to write the first key of a slot.
            exec.node.runs.is_exclusive() && asks_for_keys_of_slot(command) || needs_no_leases(command, args)
        }
    }
}

/// Returns whether a command of a cluster shows, counts or flushes the keys of a slot.
fn asks_for_keys_of_slot(command: &Entry) -> bool {
    command.spec.group == Group::Cluster && command.spec.reach == Reach::Each
}

/// Returns whether a command of a primary, or of a log, has to wait for the end of a script.
pub fn holds_up_log(exec: &mut Exec, command: &Entry, args: Args<'_>) -> bool {
    exec.node.keyspace.has_leases() && needs_leased(exec, command, args)
}

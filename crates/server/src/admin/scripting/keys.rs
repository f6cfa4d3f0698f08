//! Keys for the next command of a script: their partitions are locked, and no other script has leased one of
//! the keys.
//!
//! ```text
//!   Guards   the keys that it was called with: held, and looked at when it began
//!            another: its partition is locked if no thread has it; else the run goes on with leases
//!   Leases   lock what the command names | no other script's? lease it | run | unlock
//! ```
//! A thread with guards never waits for another partition: it locks in any order, but only if that needs no
//! waiting. A run with leases holds nothing when it locks, so it locks in ascending order as any command
//! does.

use isotherm_resp::Args;

use super::host::ScriptHost;
use isotherm_engine::request::execute::Exec;
use isotherm_engine::request::lock_set::try_extend;
use isotherm_engine::scripting::run::{Awaits, Kept};
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::request::entry::{Entry, Handler, Locks};

/// Commands of the session and the server that look at no key, of those that a script may call.
const KEYLESS: [&str; 7] = ["echo", "lolwut", "ping", "publish", "select", "spublish", "time"];

/// Returns whether a command that locks nothing needs no lock in a script either. Other commands report on
/// the whole server.
pub fn looks_at_no_key(command: &Entry) -> bool {
    matches!(command.handler, Some(Handler::Data(_))) || KEYLESS.contains(&&*command.name)
}

enum Needs {
    Nothing,
    /// `LockSet::find_keys` has them.
    Keys,
    All,
}

fn needs_of(exec: &mut Exec, command: &Entry, words: Args<'_>) -> Needs {
    match command.locks {
        Locks::One | Locks::Keys => match exec.locks.find_keys(command, words) {
            Ok([]) => Needs::Nothing,
            Ok(_) => Needs::Keys,
            // The handler knows a better answer; whatever it looks at on the way is held.
            Err(_) => Needs::All,
        },
        Locks::None if looks_at_no_key(command) => Needs::Nothing,
        Locks::None | Locks::All | Locks::Each | Locks::Queue | Locks::Script => Needs::All,
    }
}

// COMPAT(scripts): A script whose text shows that each key is KEYS[...] runs beside others; should it reach
// another key all the same, while another script may do so, it gets an error there. No such text is known;
// INFO counts it as `total_script_keys_refused`. Why: two scripts that meet keys could wait for each other.
/// Error for a script that reaches a key which its text was shown not to reach, while another script may
/// reach such keys.
pub const REFUSED: &str =
    "ERR Script attempted to access a key that it was not called with, while another script may do so";

/// Returns whether the run may reach keys that it was not called with. Takes the token for that if it is
/// free; does not wait.
fn may_meet(host: &mut ScriptHost<'_, '_>) -> bool {
    let state = &mut *host.state;
    state.has_token = state.has_token || host.call.node.runs.try_take_token();
    if state.kept == Kept::Guards {
        host.call.exec.runs.has_token = state.has_token;
    }
    state.has_token
}

/// Returns whether the command needs keys that the run may not have.
pub fn is_refused(host: &mut ScriptHost<'_, '_>, command: &'static Entry, words: Args<'_>) -> bool {
    let has_all = host.state.kept == Kept::Everything || host.state.needs_all;
    if host.state.has_token || has_all || names_declared(host, command, words) {
        return false;
    }
    let declared = host.keys;
    let exec = &mut *host.call.exec;
    let meets = match needs_of(exec, command, words) {
        Needs::Nothing => false,
        Needs::Keys => exec.locks.names(words).any(|name| !declared.iter().any(|key| key == name)),
        Needs::All => true,
    };
    let is_refused = meets && !may_meet(host);
    if is_refused {
        host.call.node.runs.note_refused_key();
    }
    is_refused
}

/// Sees to it that the command may run: what it needs is held, and no other script's. If not, `awaits` says
/// what for.
pub fn secure(host: &mut ScriptHost<'_, '_>, command: &'static Entry, words: Args<'_>) -> bool {
    let is_secured = match host.state.kept {
        Kept::Everything => true,
        Kept::Guards => extend(host, command, words),
        Kept::Leases => lease(host, command, words),
    };
    if !is_secured {
        // With guards it continues as soon as it has leases.
        let awaits = if host.state.kept == Kept::Guards { Awaits::Nothing } else { Awaits::Leases };
        host.state.awaits = awaits;
    }
    is_secured
}

/// Returns whether the command has one key, and the script was called with that key.
fn names_declared(host: &ScriptHost<'_, '_>, command: &Entry, words: Args<'_>) -> bool {
    let first = usize::from(command.first_key);
    first > 0 && command.has_one_key(words.len()) && host.keys.iter().any(|key| key == &words[first])
}

// ---- with guards ----

fn extend(host: &mut ScriptHost<'_, '_>, command: &'static Entry, words: Args<'_>) -> bool {
    if names_declared(host, command, words) {
        return true;
    }
    let declared = host.keys;
    let is_declared = |name: &[u8]| declared.iter().any(|key| key == name);
    let (exec, state) = (&mut *host.call.exec, &mut *host.state);
    match needs_of(exec, command, words) {
        Needs::Nothing => true,
        Needs::All => {
            let is_had = exec.held.try_extend_all() && !exec.node.keyspace.has_leases();
            state.needs_all |= is_had;
            is_had
        }
        Needs::Keys => {
            let Exec { node, held, locks, .. } = exec;
            let is_leasing = node.mail.tasks().has(Tasks::LEASED);
            locks.names(words).filter(|name| !is_declared(name)).all(|name| {
                let key = node.keyspace.key(name);
                let place = node.keyspace.lease_place(&key);
                let is_had = try_extend(held, place.partition) && !(is_leasing && held.is_leased(&key, None));
                if is_had && state.places.last() != Some(&place) {
                    state.places.push(place);
                }
                is_had
            })
        }
    }
}

/// The run releases its guards: the keys that it was called with, and has met, are leased instead. Within
/// EXEC that is everything.
pub fn lease_all_met(host: &mut ScriptHost<'_, '_>) {
    let (exec, state) = (&mut *host.call.exec, &mut *host.state);
    let Exec { node, held, .. } = exec;
    let id = state.mark.id;
    if state.kept == Kept::Everything {
        state.needs_all = true;
        node.runs.set_exclusive(true);
    }
    node.runs.begin_leases(&node.keyspace, &node.mail);
    let declared = host.keys.iter().map(|name| node.keyspace.lease_place(&node.keyspace.key(name)));
    state.places.extend(declared);
    state.places.retain(|place| held.lease(*place, id));
    if state.needs_all {
        held.lease_all(id);
    }
    state.ready = held.suspend_ready();
    state.kept = Kept::Leases;
}

// ---- with leases ----

fn lease(host: &mut ScriptHost<'_, '_>, command: &'static Entry, words: Args<'_>) -> bool {
    let (exec, state) = (&mut *host.call.exec, &mut *host.state);
    let (node, id) = (exec.node, state.mark.id);
    match needs_of(exec, command, words) {
        Needs::Nothing => return true,
        Needs::All => {
            exec.held.acquire_beside_leases();
            // With all keys leased, others have leases of none.
            if state.needs_all || node.keyspace.lease_holders() == 1 {
                exec.held.lease_all(id);
                state.needs_all = true;
                return true;
            }
            // Or scripts that begin meanwhile could keep it waiting for ever.
            node.runs.await_end();
        }
        Needs::Keys => {
            exec.locks.clear();
            exec.locks.add_command(&node.keyspace, command, words);
            exec.acquire();
            let Exec { held, locks, .. } = &mut *exec;
            let key = |name| node.keyspace.key(name);
            if !locks.names(words).any(|name| held.is_leased(&key(name), Some(id))) {
                let places = locks.names(words).map(|name| node.keyspace.lease_place(&key(name)));
                state.places.extend(places.filter(|place| held.lease(*place, id)));
                return true;
            }
        }
    }
    exec.release();
    false
}

/// Notes the keys again that the run has changed so far, so that the changes of the next command follow them.
pub fn begin_command(host: &mut ScriptHost<'_, '_>) {
    if host.state.kept == Kept::Leases {
        host.call.exec.held.resume_ready(std::mem::take(&mut host.state.ready));
    }
}

pub fn end_command(host: &mut ScriptHost<'_, '_>) {
    if host.state.kept == Kept::Leases {
        host.state.ready = host.call.exec.held.suspend_ready();
        host.call.exec.release();
    }
}

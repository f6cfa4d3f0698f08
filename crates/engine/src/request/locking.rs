//! Locking what a command needs that has not simply one key.

use arrayvec::ArrayVec;
use isotherm_commands::Flags;
use isotherm_keyspace::{Db, Key, Slot};
use isotherm_resp::Args;
use std::time::Duration;

use crate::request::admin_call::AdminTable;
use crate::request::beside_locks::RIGHT_MAX;
use crate::request::execute::Exec;
use crate::request::{prefetch, transaction};
use isotherm_node::observe::facts::Facts;
use isotherm_node::observe::holds;
use isotherm_node::request::entry::{Entry, Locks};
use isotherm_node::request::gate_bits::Gates;
use isotherm_node::session::{Queued, Session};

/// Keys of one command that are hashed once only, 32 B each.
const KEYS_HASHED_MAX: usize = 128;

pub type HashedOnce<'k> = ArrayVec<Key<'k>, KEYS_HASHED_MAX>;

/// Locks what a command needs. `facts`: what the system says, if a command of a queue reports it.
#[inline(never)]
pub fn lock(
    exec: &mut Exec,
    (admin, facts): (&AdminTable, &mut Option<Facts>),
    session: &Session,
    command: &'static Entry,
    args: Args<'_>,
) {
    exec.locks.clear();
    // They are of the moment of the EXEC that was asked for them.
    *facts = None;
    match command.locks {
        // It may take its time, or look at anything.
        Locks::None | Locks::Each => {
            exec.held.release();
            hold_slot(exec, command);
            holds::enter_command(command.index);
        }
        Locks::Queue => {
            *facts = facts_ahead(exec, admin, session);
            transaction::add_locks(&mut exec.locks, &exec.node.keyspace, session, args);
            // A shard channel of the queue has one too.
            let slot = exec.route.slot.map(|slot| exec.node.keyspace.partition_of(slot));
            slot.into_iter().for_each(|partition| exec.locks.add(partition));
            exec.acquire();
            exec.meter.begin_hold(&exec.clock);
        }
        Locks::Script => {
            let keyspace = &exec.node.keyspace;
            exec.locks.add_script(keyspace, command, args);
            exec.acquire();
            prefetch::prefetch_names(keyspace, session.db, exec.locks.names(args).skip(1), command.intent);
        }
        Locks::One | Locks::Keys | Locks::All => {
            let keyspace = &exec.node.keyspace;
            exec.locks.add_command(keyspace, command, args);
            exec.acquire();
            if command.locks == Locks::Keys {
                prefetch::prefetch_names(keyspace, session.db, exec.locks.names(args), command.intent);
            }
        }
    }
}

/// Locks the partition of the slot for a command that names a shard channel, in a member of a cluster, so
/// that the slot stays as it is while the command runs.
fn hold_slot(exec: &mut Exec, command: &Entry) {
    if command.gates.has(Gates::SLOTS)
        && let Some(slot) = exec.route.slot
    {
        exec.held.acquire_one(exec.node.keyspace.partition_of(slot));
    }
}

/// Asks the system for the facts that a command of a transaction will report, while nothing is locked.
fn facts_ahead(exec: &mut Exec, admin: &AdminTable, session: &Session) -> Option<Facts> {
    let multi = session.multi.as_ref().filter(|multi| asks_system(&multi.queue))?;
    // The batch may have locked something before.
    exec.held.release();
    let facts = (admin.facts_for)(exec.node, &multi.queue);
    exec.clock.outdate();
    Some(facts)
}

/// Returns whether a command of a transaction reports facts that only the operating system knows.
fn asks_system(queue: &[Queued]) -> bool {
    queue.iter().any(|queued| queued.command.spec.flags.has(Flags::ASKS_SYSTEM))
}

/// Returns whether the command runs a queue that changes parameters.
pub fn takes_writing(admin: &AdminTable, session: &Session, command: &Entry) -> bool {
    let queue = session.multi.as_ref().filter(|_| command.locks == Locks::Queue);
    queue.is_some_and(|multi| (admin.writes_config)(&multi.queue))
}

/// Takes the right to change parameters for a transaction, before anything is locked. False while another
/// thread has it, but not for long: the connection waits. After [`RIGHT_MAX`] it continues without the right.
pub fn take_writing(exec: &mut Exec) -> bool {
    let config = &exec.node.config;
    exec.transaction.writing = config.begin_writing(Duration::ZERO).or_else(|| {
        // The cron has it look again.
        config.await_writing();
        config.begin_writing(Duration::ZERO)
    });
    exec.transaction.writing.is_some() || config.is_written_since(RIGHT_MAX)
}

/// Locks the keys of a command that has several in a row, `first_key` and those in `args` after it. Each is
/// hashed once: for its lock, the prefetch and the handler, which gets `keys`.
#[inline]
pub fn lock_several<'b>(
    exec: &mut Exec,
    db: Db,
    command: &'static Entry,
    args: Args<'b>,
    first_key: Key<'b>,
    keys: &mut HashedOnce<'b>,
) {
    let mut names = args.from(usize::from(command.first_key)).iter().step_by(usize::from(command.key_step));
    names.next();
    let keyspace = &exec.node.keyspace;
    keys.push(first_key);
    keys.extend(names.by_ref().take(KEYS_HASHED_MAX - 1).map(|name| keyspace.key(name)));
    exec.locks.clear();
    if keyspace.partition_count() == 1 {
        exec.locks.add(0);
    } else {
        keys.iter().for_each(|key| exec.locks.add(keyspace.partition_of(key.slot)));
        names.clone().for_each(|name| exec.locks.add(keyspace.partition_of(Slot::of_key(name))));
    }
    exec.acquire();
    prefetch::prefetch_keys(keyspace, db, keys, command.intent);
    prefetch::prefetch_names(keyspace, db, names, command.intent);
}

/// Returns whether all keys of a command lie in the slot of the first. `keys`: those that were hashed.
pub fn are_of_one_slot(command: &Entry, args: Args<'_>, keys: &HashedOnce<'_>) -> bool {
    let first = keys.first().map(|key| key.slot);
    let names = args.from(usize::from(command.first_key)).iter().step_by(usize::from(command.key_step));
    keys.iter().all(|key| Some(key.slot) == first)
        && names.skip(keys.len()).all(|name| Some(Slot::of_key(name)) == first)
}

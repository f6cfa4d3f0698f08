//! Transactions: MULTI, EXEC, DISCARD, WATCH and UNWATCH.
//!
//! Between MULTI and EXEC commands are checked and queued. EXEC locks the partitions of everything that is
//! queued or watched - the gate if one of the commands needs it - looks whether a watched key has changed,
//! and runs the queue without unlocking, all of it at one moment in time.
//!
//! A watched key's change raises the session's flag under the lock of the key's partition. EXEC takes that
//! lock before it looks at the flag, so what was changed before is seen, and nothing changes after.
//!
//! **WATCH of many keys** does not stop the others: it lists its keys partition by partition, some hundreds
//! under one lock. Its promise concerns changes after its reply, and then all are listed. A change while it
//! runs raises the flag or not, as if it had come after WATCH or before it; where several fall differently
//! the transaction fails, which it always may. UNWATCH and a connection's end take them out in the same way,
//! and EXEC does if they are many.

use isotherm_acl::{Context, Reason};
use isotherm_commands::Outcome;
use isotherm_commands::call::{ColdKeys, HashedKeys};
use isotherm_commands::spec::*;
use isotherm_keyspace::{
    Conditions, Db, ExpiryMode, Held, KEYS_PER_HOLD_MAX, Keyspace, NoEffects, Slot, Txn, UnixMs, Want,
    Watcher,
};
use isotherm_resp::{Args, ArgsBuf, errors};
use isotherm_stdx::steps;
use std::collections::HashSet;
use std::sync::Arc;

use crate::request::admin_call::{AdminCall, AdminHandler};
use crate::request::exec_conditions;
use crate::request::follow_up;
use crate::request::lock_set::LockSet;
use crate::request::metering::{Part, Timed};
use crate::request::script_flags::flags_of_script;
use crate::request::turn::Turn;
use crate::scripting::run::SuspendedExec;
use isotherm_allocator::class_bytes;
use isotherm_node::Node;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::request::entry::Entry;
use isotherm_node::request::gate_bits::Gates;
use isotherm_node::session::{Multi, Queued, Session, WatchList};
use isotherm_node::users::{noting, permission};

/// Bytes that a watched key takes in addition to its name: its place in the session's set (24 B and a byte of
/// the table) and in the partition's table (a pointer to the name, a list of one, a byte), where a third of
/// the places is empty.
const WATCHED_KEY_BYTES: usize = (25 + 16 + 16 + 1) * 3 / 2;

pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::new(MULTI, multi),
    Command::new(EXEC, exec),
    Command::new(DISCARD, discard),
    Command::new(WATCH, watch),
    Command::new(UNWATCH, unwatch),
];

const MULTI: Spec = Spec {
    name: "multi",
    summary: "Begins a transaction: commands are queued until EXEC.",
    since: "1.2.0",
    group: Group::Transactions,
    complexity: "O(1)",
    flags: Flags::NOSCRIPT
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::FAST)
        .or(Flags::NO_MULTI)
        .or(Flags::ALLOW_BUSY),
    acl: AclCategories::TRANSACTION,
    ..Spec::BASE
};

fn multi(call: &mut AdminCall<'_>) -> Outcome {
    call.session.multi = Some(Box::new(Multi::new(call.session.db)));
    call.reply.ok();
    Outcome::Done
}

const DISCARD: Spec = Spec {
    name: "discard",
    summary: "Drops the queued commands of a transaction and ends it.",
    since: "2.0.0",
    group: Group::Transactions,
    complexity: "O(N), N the queued commands",
    flags: Flags::NOSCRIPT
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::FAST)
        .or(Flags::ALLOW_BUSY)
        .or(Flags::NEVER_QUEUED),
    acl: AclCategories::TRANSACTION,
    ..Spec::BASE
};

fn discard(call: &mut AdminCall<'_>) -> Outcome {
    if call.session.multi.is_none() {
        call.reply.error(errors::DISCARD_WITHOUT_MULTI);
    } else {
        leave(call.session, &mut call.exec.held);
        call.reply.ok();
    }
    Outcome::Done
}

const WATCH: Spec = Spec {
    name: "watch",
    summary: "Lets the next EXEC fail when one of these keys changes before it.",
    since: "2.2.0",
    group: Group::Transactions,
    complexity: "O(1) for each key",
    arity: -2,
    flags: Flags::NOSCRIPT
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::FAST)
        .or(Flags::NO_MULTI)
        .or(Flags::ALLOW_BUSY),
    acl: AclCategories::TRANSACTION,
    key_specs: &[KeySpec::range(1, -1, 1, KeyFlags::RO)],
    arguments: &[Argument::key("key", 0).multiple()],
    reach: Reach::Parts,
    ..Spec::BASE
};

fn watch(call: &mut AdminCall<'_>) -> Outcome {
    // A session whose transaction fails anyway need not watch more.
    if !call.session.watched_key_changed() {
        let (keyspace, db) = (call.exec.held.keyspace(), call.session.db);
        let list = call.session.watch.get_or_insert_with(|| {
            Box::new(WatchList { watcher: Arc::new(Watcher::default()), keys: HashSet::new(), bytes: 0 })
        });
        let mut keys = Vec::new();
        for name in call.args.from(1).iter() {
            let key = (db, Arc::from(name));
            if list.keys.insert(key.clone()) {
                list.bytes += WATCHED_KEY_BYTES + class_bytes(2 * size_of::<usize>() + name.len());
                keys.push((keyspace.partition_of(Slot::of_key(name)), key));
            }
        }
        let watcher = Arc::clone(&list.watcher);
        let (conditions, sink) = (call.conditions, &mut call.exec.pump);
        part_by_part(&mut call.exec.held, keys, |held, (db, name)| {
            Txn::new(held, conditions, sink).watch(*db, name, &watcher);
        });
        if !still_has_slot(call) {
            watcher.mark_dirty();
        }
    }
    call.reply.ok();
    Outcome::Done
}

/// Returns whether this member of a cluster still has the slot of the command. A slot that has left before
/// its keys were listed is noticed here; one that leaves later finds them in the lists.
fn still_has_slot(call: &mut AdminCall<'_>) -> bool {
    let Some(slot) = call.exec.route.slot else { return true };
    let partition = call.exec.node.keyspace.partition_of(slot);
    call.exec.held.acquire(Want::One(partition));
    let has_it = call.exec.admits(call.session, call.command, call.args, slot);
    call.exec.held.release();
    has_it
}

type WatchedKey = (Db, Arc<[u8]>);

/// Does something with each key under the lock of its partition, with some of them at a time. Nothing is held
/// afterwards.
fn part_by_part(
    held: &mut Held<'static>,
    mut keys: Vec<(u16, WatchedKey)>,
    mut each: impl FnMut(&mut Held<'static>, &WatchedKey),
) {
    held.release();
    keys.sort_by_key(|(partition, _)| *partition);
    let parts = keys.chunk_by(|(a, _), (b, _)| a == b);
    for part in parts.flat_map(|part| part.chunks(KEYS_PER_HOLD_MAX)) {
        held.acquire(Want::One(part[0].0));
        part.iter().for_each(|(_, key)| each(held, key));
        held.release();
    }
}

const UNWATCH: Spec = Spec {
    name: "unwatch",
    summary: "Drops all watches of this connection.",
    since: "2.2.0",
    group: Group::Transactions,
    complexity: "O(1)",
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE).or(Flags::FAST).or(Flags::ALLOW_BUSY),
    acl: AclCategories::TRANSACTION,
    ..Spec::BASE
};

fn unwatch(call: &mut AdminCall<'_>) -> Outcome {
    unwatch_all(call.session, &mut call.exec.held);
    call.reply.ok();
    Outcome::Done
}

/// Leaves the transaction, if there is one, and forgets the watched keys.
pub fn leave(session: &mut Session, held: &mut Held<'static>) {
    session.multi = None;
    unwatch_all(session, held);
}

/// Takes the session's watched keys out of the keyspace. Nothing is held afterwards.
pub fn unwatch_all(session: &mut Session, held: &mut Held<'static>) {
    if let Some(list) = session.watch.take() {
        unlist(*list, held);
    }
}

pub fn unlist(list: WatchList, held: &mut Held<'static>) {
    let keyspace = held.keyspace();
    let partition_of = |key: &WatchedKey| keyspace.partition_of(Slot::of_key(&key.1));
    let keys = list.keys.into_iter().map(|key| (partition_of(&key), key)).collect();
    part_by_part(held, keys, |held, key| unlist_key(held, key, &list.watcher));
}

/// The key's partition is held.
fn unlist_key(held: &mut Held<'static>, (db, name): &WatchedKey, watcher: &Arc<Watcher>) {
    let key = held.keyspace().key(name);
    Txn::new(held, forgetting(), &mut NoEffects).unwatch(*db, &key, watcher);
}

/// Forgetting a watched key looks at nothing else, so any conditions do.
fn forgetting() -> Conditions {
    Conditions { now: UnixMs(0), expiry_mode: ExpiryMode::Keep, no_touch: true }
}

// ---- the queue ----

/// A command between MULTI and EXEC is kept.
/// `slot`: that of its keys, in a member of a cluster.
pub fn queue(
    node: &Node,
    session: &mut Session,
    command: &'static Entry,
    args: Args<'_>,
    slot: Option<Slot>,
) {
    let changed = session.watched_key_changed();
    let multi = session.multi.as_mut().expect("only sessions in MULTI queue");
    // What fails anyway need not take memory.
    if !changed && !multi.dirty_exec {
        let flags = match command.spec.reach {
            Reach::Script => flags_of_script(node, command, args),
            _ => command.spec.flags,
        };
        multi.db = selected(node, command, args, multi.db);
        multi.push(command, args, flags, slot);
    }
    session.last_command = command.index;
}

/// Everything that the session's transaction touches, and the keys of the conditions of its EXEC.
pub fn add_locks(locks: &mut LockSet, keyspace: &Keyspace, session: &Session, args: Args<'_>) {
    let mut conditions = Vec::new();
    exec_conditions::key_positions(args, &mut conditions);
    for (at, _) in conditions {
        locks.add(keyspace.partition_of(Slot::of_key(args.get(at))));
    }
    let Some(multi) = &session.multi else { return };
    for queued in &multi.queue {
        locks.add_command(keyspace, queued.command, queued.args.args());
    }
    for (_, name) in session.watch.iter().flat_map(|list| &list.keys) {
        locks.add(keyspace.partition_of(Slot::of_key(name)));
    }
}

const EXEC: Spec = Spec {
    name: "exec",
    summary: "Runs the queued commands without others in between. Null when a watched key has changed.",
    since: "1.2.0",
    group: Group::Transactions,
    complexity: "That of the queued commands",
    arity: -1,
    flags: Flags::NOSCRIPT
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::SKIP_SLOWLOG)
        .or(Flags::NEVER_QUEUED),
    acl: AclCategories::TRANSACTION,
    key_positions: Some(exec_conditions::key_positions),
    need: NeedFrom::Stated(Need::All),
    reach: Reach::Queue,
    history: &[("9.2.0", "Added the `IFEQ`, `IFNE`, `NX` and `XX` conditions.")],
    arguments: &[Argument::one_of(
        "condition",
        &[
            Argument::block("ifeq", &[Argument::string("key"), Argument::string("value")]).token("IFEQ"),
            Argument::block("ifne", &[Argument::string("key"), Argument::string("value")]).token("IFNE"),
            Argument::string("nx-key").token("NX"),
            Argument::string("xx-key").token("XX"),
        ],
    )
    .optional()
    .multiple()],
    ..Spec::BASE
};

/// Everything that the queue touches, all that is watched, and the keys of its conditions are held.
// COMPAT(keys): EXEC has the conditions IFEQ, IFNE, NX and XX of Valkey 9.2, built from its sources and not
// compared with a running server. Why: programs for 9.2 run here.
fn exec(call: &mut AdminCall<'_>) -> Outcome {
    if call.session.multi.is_none() {
        call.reply.error(errors::EXEC_WITHOUT_MULTI);
        return Outcome::Done;
    }
    // Before anything is done: a transaction is not interrupted.
    if let Some(keys) = cold_keys(call) {
        return Outcome::Cold(keys);
    }
    let looked_before = steps::looked();
    let has_changed = watched_key_expired(call) || call.session.watched_key_changed();
    if let Some(list) = call.session.watch.take() {
        match list.keys.len() <= KEYS_PER_HOLD_MAX {
            true => list.keys.iter().for_each(|key| unlist_key(&mut call.exec.held, key, &list.watcher)),
            // Too many for the locks of EXEC. Their flag is of no concern to anything any more.
            false => call.exec.transaction.unwatched = Some(list),
        }
    }
    // As many as its client has watched.
    call.exec.held.exempt(steps::looked().wrapping_sub(looked_before));
    let multi = call.session.multi.take().expect("it was there");
    if multi.dirty_exec {
        call.reply.error(errors::EXEC_ABORT);
        return Outcome::Done;
    }
    let (db, args) = (call.session.db, call.args);
    let holds = match has_changed {
        true => Ok(false),
        false if args.len() == 1 => Ok(true),
        false => {
            let looked_before = steps::looked();
            call.exec.held.take_missing();
            let holds = exec_conditions::hold(&mut call.txn(), db, args);
            // As many as its client has named.
            call.exec.held.exempt(steps::looked().wrapping_sub(looked_before));
            // Of those that are frozen.
            if call.exec.forget_missing() { Err(errors::UNREADABLE) } else { holds }
        }
    };
    if let Err(why) = holds {
        call.reply.error(errors::exec_abort_because(why.as_bytes()));
    } else if holds == Ok(false) {
        call.reply.null_array();
    } else {
        let mark = call.reply.len();
        call.reply.array(multi.queue.len());
        open_frame(call);
        return run_queue(call, multi, 0, mark);
    }
    Outcome::Done
}

/// Runs the queue from `next` on: to its end, or until a script of it takes long. Its reply begins at `mark`;
/// all that it needs is held, and its frame is open.
pub fn run_queue(call: &mut AdminCall<'_>, multi: Box<Multi>, mut next: usize, mark: usize) -> Outcome {
    call.session.in_exec = true;
    // What follows is the time of its commands.
    call.exec.clock.lap();
    let was_replica = is_replica(call);
    let (mut is_suspended, mut has_changed_role) = (false, false);
    while next < multi.queue.len() && !is_suspended {
        has_changed_role |= is_replica(call) != was_replica;
        is_suspended = match has_changed_role {
            true => run_in_other_role(call, &multi.queue[next]),
            false => run_queued(call, &multi.queue[next]),
        };
        next += 1;
    }
    call.session.in_exec = false;
    call.exec.transaction.quiet = None;
    call.session.last_command = call.command.index;
    if is_suspended {
        suspend(call, multi, next, mark);
        return Outcome::Later;
    }
    close_frame(call);
    Outcome::Done
}

/// Opens the frame of the transaction, if the log has a reader and it is not open.
fn open_frame(call: &mut AdminCall<'_>) {
    let pump = &mut call.exec.pump;
    if pump.is_logging() && !pump.log.is_in_transaction() {
        pump.log.begin_transaction();
    }
}

/// Appends the frame of the transaction, if it is open: at its end, and before this node follows another, as
/// its log is that one's from there on.
pub fn close_frame(call: &mut AdminCall<'_>) {
    if call.exec.pump.log.is_in_transaction() {
        call.exec.pump.log.end_transaction();
        // Each of its commands with keys has noted it for what it has read. One that has logged nothing, as
        // REPLICAOF NO ONE of a sentinel, waits for no replica: there may be none yet.
        if call.exec.pump.log.has_end() {
            call.exec.note_gate();
        }
    }
}

fn is_replica(call: &AdminCall<'_>) -> bool {
    call.node.mail.tasks().has(Tasks::REPLICA)
}

// COMPAT(replication): In a transaction, commands that write behind a REPLICAOF to another server are refused
// by -READONLY, as they are outside of one. Valkey runs them on the replica. Why: the data would differ from
// the primary's.
/// Runs a command behind one of its transaction that has changed the role of this node.
#[cold]
fn run_in_other_role(call: &mut AdminCall<'_>, queued: &Queued) -> bool {
    call.exec.refresh();
    open_frame(call);
    // A script asks for itself.
    if call.exec.hot.gates.has(Gates::READ_ONLY) && queued.command.spec.flags.has(Flags::WRITE) {
        call.reply.error(errors::READONLY);
        call.exec.stats.count_error(call.reply.last_error().as_bytes());
        return false;
    }
    run_queued(call, queued)
}

/// The script that was suspended last is one of the transaction: the rest waits with it.
#[cold]
fn suspend(call: &mut AdminCall<'_>, multi: Box<Multi>, next: usize, mark: usize) {
    let replied = call.reply.split_off(mark);
    let transaction = SuspendedExec {
        command: call.command,
        args: ArgsBuf::from(call.args),
        multi,
        next,
        replied_bytes: replied.len(),
        writing: call.exec.transaction.writing.take(),
        asking: call.session.asking,
        is_logging: call.exec.pump.is_logging(),
    };
    call.exec.runs.suspend_exec(transaction, replied);
}

/// All that is known of the values that the whole queue needs and that are not in memory.
fn cold_keys(call: &mut AdminCall<'_>) -> Option<Box<ColdKeys>> {
    call.node.tier()?;
    let (multi, mut db) = (call.session.multi.as_ref()?, call.session.db);
    let own = call.exec.cold_keys(call.command, call.args, db);
    let mut all: Vec<_> = own.into_iter().flat_map(|cold| cold.keys).collect();
    for queued in &multi.queue {
        let args = queued.args.args();
        let cold = call.exec.cold_keys(queued.command, args, db);
        all.extend(cold.into_iter().flat_map(|cold| cold.keys));
        all.extend(call.exec.records_for(queued.command, args, (db, call.now)));
        db = selected(call.node, queued.command, args, db);
    }
    (!all.is_empty()).then(|| Box::new(ColdKeys { keys: all }))
}

/// The database in which the command after this one runs.
fn selected(node: &Node, command: &Entry, args: Args<'_>, db: Db) -> Db {
    let Some(Databases::Selects(number)) = command.spec.databases.map(|find| find(args, db.0)) else {
        return db;
    };
    u16::try_from(number).ok().filter(|number| *number < node.config.databases()).map_or(db, Db)
}

/// Runs one command of the transaction. True if it is a script that takes long.
fn run_queued(call: &mut AdminCall<'_>, queued: &Queued) -> bool {
    let (command, args) = (queued.command, queued.args.args());
    let (mark, bytes_before) = (call.reply.len(), call.reply.bytes());
    if !call.session.user.permits_everything() && !is_permitted(call, command, args) {
        return false;
    }
    let AdminCall { exec, session, reply, audience, facts, handlers, now, .. } = call;
    let has_ended = session.close_after_reply;
    let mut turn = Turn { exec, session, reply, audience, facts: *facts, handlers };
    // It reads only what its declaration does not name: keys of another database, or such as it has read from
    // a value.
    let outcome = turn.run_to_end(command, args, HashedKeys::NONE, *now, false);
    if let Outcome::Later = outcome {
        return true;
    }
    assert!(matches!(outcome, Outcome::Done), "a command that may not wait is answered");
    if has_ended {
        // It has killed itself, and still does what it began; but its client gets no more replies.
        reply.truncate(mark);
    }
    follow_up::observe(exec, session, command, args);
    let (ticks, reply_bytes) = (exec.clock.lap(), reply.bytes().saturating_sub(bytes_before));
    let timed = Timed {
        client: &session.shared,
        db: session.db,
        command,
        args,
        ticks,
        reply_bytes,
        part: Part::Queued,
    };
    exec.meter.count_time(&exec.clock, &exec.hot, &mut exec.prng, &timed);
    false
}

/// Returns whether a command that was permitted when it was queued is still permitted; if not, answers with
/// the error.
#[cold]
fn is_permitted(call: &mut AdminCall<'_>, command: &'static Entry, args: Args<'_>) -> bool {
    let (node, db) = (call.node, call.session.db);
    let Err(denial) = permission::check_session(node, call.session, command, args, db) else { return true };
    let reason = match denial.reason {
        Reason::Command => "no permission to execute the command or subcommand",
        Reason::Key => "no permission to touch the specified keys",
        Reason::Channel => "no permission to access one of the channels used as arguments",
        Reason::Database => "no permission",
    };
    noting::denied(node, call.session, call.command, (command, args), denial, Context::Multi);
    call.reply.error(format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no \
         longer allowed for the following reason: {reason}"
    ));
    call.exec.stats.count_error(call.reply.last_error().as_bytes());
    false
}

/// A watched key whose time has come is a changed one, unless it was past its time already at WATCH.
fn watched_key_expired(call: &mut AdminCall<'_>) -> bool {
    let Some(list) = call.session.watch.as_ref().filter(|list| !list.watcher.is_dirty()) else {
        return false;
    };
    let mut txn = Txn::new(&mut call.exec.held, call.conditions, &mut call.exec.pump);
    list.keys.iter().any(|(db, name)| {
        let key = txn.key(name);
        txn.watched_key_expired(*db, &key, &list.watcher)
    })
}

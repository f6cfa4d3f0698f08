//! Transactions: MULTI, EXEC, DISCARD, WATCH and UNWATCH.
//!
//! Between MULTI and EXEC commands are checked and queued. EXEC locks the partitions of everything that is queued or
//! watched - the gate if one of the commands needs it - looks whether a watched key has changed, and runs the queue
//! without letting go, all of it at one moment in time.
//!
//! A watched key's change raises the session's flag under the lock of the key's partition. EXEC takes that lock before
//! it looks at the flag, so what was changed before is seen, and nothing changes after.
//!
//! **WATCH of many keys** does not stop the others: it lists its keys partition by partition, some hundreds under one
//! lock. What it promises concerns changes after its reply, and then all are listed. A change while it runs raises the flag
//! or not, as if it had come behind WATCH or before it; where several fall differently the transaction fails, which it
//! always may. UNWATCH and a connection's end take them out in the same way, and EXEC does if they are many.

use isotherm_commands::Outcome;
use isotherm_commands::spec::Command;
use isotherm_keyspace::{
    Conditions, Db, ExpiryMode, Held, KEYS_PER_HOLD_MAX, NoEffects, Slot, Txn, UnixMs, Want, Watcher,
};
use isotherm_resp::{Args, Reply, errors};
use isotherm_stdx::steps;
use std::collections::HashSet;
use std::sync::Arc;

use crate::admin::{self, AdminCall, specs};
use crate::node::Tasks;
use crate::request::dispatch::Dispatcher;
use crate::request::registry::{Entry, Handler};
use crate::session::{Multi, Session, WatchList};
use isotherm_allocator::class_bytes;
use isotherm_commands::spec::{Reach, Spec};

/// What a watched key takes beside its name: its place in the session's set (24 B and a byte of the table) and in the
/// partition's table (a pointer to the name, a list of one, a byte), where a third of the places is empty.
const WATCHED_KEY_BYTES: usize = (25 + 16 + 16 + 1) * 3 / 2;

pub const COMMANDS: &[Command<Handler>] = &[
    Command { spec: specs::MULTI, handler: Some(Handler::Admin(multi)), subcommands: &[] },
    Command { spec: specs::EXEC, handler: Some(Handler::Exec), subcommands: &[] },
    Command { spec: specs::DISCARD, handler: Some(Handler::Admin(discard)), subcommands: &[] },
    Command {
        spec: Spec { reach: Reach::Parts, ..specs::WATCH },
        handler: Some(Handler::Admin(watch)),
        subcommands: &[],
    },
    Command { spec: specs::UNWATCH, handler: Some(Handler::Admin(unwatch)), subcommands: &[] },
];

fn multi(call: &mut AdminCall<'_>) -> Outcome {
    call.session.multi = Some(Box::default());
    call.reply.ok();
    Outcome::Done
}

fn discard(call: &mut AdminCall<'_>) -> Outcome {
    if call.session.multi.is_none() {
        call.reply.error(errors::DISCARD_WITHOUT_MULTI);
    } else {
        leave(call.session, call.held);
        call.reply.ok();
    }
    Outcome::Done
}

fn watch(call: &mut AdminCall<'_>) -> Outcome {
    // A session whose transaction fails anyway need not watch more.
    if !call.session.watched_key_changed() {
        let (keyspace, db) = (call.held.keyspace(), call.session.db);
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
        let (conditions, sink) = (call.conditions, &mut *call.sink);
        part_by_part(call.held, keys, |held, (db, name)| {
            Txn::new(held, conditions, sink).watch(*db, name, &watcher);
        });
    }
    call.reply.ok();
    Outcome::Done
}

type WatchedKey = (Db, Arc<[u8]>);

/// Does something with each key under the lock of its partition, with some of them at a time. Nothing is held afterwards.
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

fn unwatch(call: &mut AdminCall<'_>) -> Outcome {
    unwatch_all(call.session, call.held);
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

fn unlist(list: WatchList, held: &mut Held<'static>) {
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

/// How EXEC ends, if not with the replies of its commands.
enum Refused {
    /// A watched key has changed.
    Changed,
    /// A command could not be queued.
    Aborted,
}

impl Dispatcher {
    /// EXEC. Returns the ticks that its commands took; `None` if nothing was done, as `call_locked` says.
    pub(crate) fn exec(
        &mut self,
        session: &mut Session,
        command: &'static Entry,
        unless: Tasks,
    ) -> Option<u64> {
        let Some(multi) = session.multi.take() else {
            if self.is_held_up(session, unless) {
                return None;
            }
            self.reply.error(errors::EXEC_WITHOUT_MULTI);
            return Some(0);
        };
        self.ask_ahead(&multi);
        self.lock_transaction(session, &multi);
        if self.is_held_up(session, unless) {
            self.facts = None;
            session.multi = Some(multi);
            return None;
        }
        // It may have waited for its locks. What it sees is how things stand now.
        let mut taken = self.clock.lap();
        let now = self.clock.now();
        self.begin_hold();
        let looked_before = steps::looked();
        let checked = self.check_transaction(session, &multi, now);
        let mut watched = session.watch.take();
        if let Some(list) = watched.take_if(|list| list.keys.len() <= KEYS_PER_HOLD_MAX) {
            list.keys.iter().for_each(|key| unlist_key(&mut self.held, key, &list.watcher));
        }
        // As many as its client has watched.
        self.held.exempt(steps::looked().wrapping_sub(looked_before));
        if let Err(refused) = checked {
            self.facts = None;
            self.note_hold(command, self.hold_from());
            self.unlist_later(watched);
            refuse(&mut self.reply, refused);
            return Some(0);
        }
        self.reply.array(multi.queue.len());
        session.in_exec = true;
        for queued in &multi.queue {
            taken += self.run_queued(session, queued, now);
        }
        session.in_exec = false;
        self.facts = None;
        if self.held.has_ready() {
            self.serve_waiters();
        }
        self.note_hold(command, self.hold_from());
        if self.held.has_flushed() {
            self.free_flushed();
        }
        self.unlist_later(watched);
        Some(taken)
    }

    /// What a command of the transaction will tell of the system is asked for while nothing is locked.
    fn ask_ahead(&mut self, multi: &Multi) {
        if admin::tells_facts(&multi.queue) {
            // The batch may have locked something before.
            self.held.release();
            self.facts = Some(admin::facts_for(self.node, &multi.queue));
        }
    }

    /// Watched keys that are too many for the locks of EXEC. Their flag is of no concern to anyone any more.
    fn unlist_later(&mut self, watched: Option<Box<WatchList>>) {
        if let Some(list) = watched {
            self.release();
            unlist(*list, &mut self.held);
        }
    }

    /// Everything that the transaction touches, in ascending order, at once.
    fn lock_transaction(&mut self, session: &Session, multi: &Multi) {
        self.wanted.clear();
        for queued in &multi.queue {
            self.want(queued.command, queued.args.args());
        }
        let keyspace = &self.node.keyspace;
        for (_, name) in session.watch.iter().flat_map(|list| &list.keys) {
            self.wanted.add(keyspace.partition_of(Slot::of_key(name)));
        }
        self.wanted.acquire(&mut self.held);
    }

    fn check_transaction(&mut self, session: &Session, multi: &Multi, now: UnixMs) -> Result<(), Refused> {
        let expired = self.watched_key_expired(session, now);
        match () {
            _ if multi.dirty_exec => Err(Refused::Aborted),
            _ if expired || session.watched_key_changed() => Err(Refused::Changed),
            _ => Ok(()),
        }
    }

    /// A watched key whose time has come is a changed one, unless it was past its time already at WATCH.
    fn watched_key_expired(&mut self, session: &Session, now: UnixMs) -> bool {
        let Some(list) = session.watch.as_ref().filter(|list| !list.watcher.is_dirty()) else { return false };
        let conditions = self.conditions(session, now);
        let mut txn = Txn::new(&mut self.held, conditions, &mut self.pump);
        list.keys.iter().any(|(db, name)| {
            let key = txn.key(name);
            txn.watched_key_expired(*db, &key, &list.watcher)
        })
    }
}

fn refuse(reply: &mut Reply, refused: Refused) {
    match refused {
        Refused::Changed => reply.null_array(),
        Refused::Aborted => reply.error(errors::EXEC_ABORT),
    }
}

/// What a queue's commands take, for CLIENT LIST and the limit on queries.
pub fn queued_bytes(args: Args<'_>) -> usize {
    args.bytes_total() + args.len() * size_of::<isotherm_resp::Span>()
}

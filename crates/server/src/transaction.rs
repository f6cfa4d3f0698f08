//! Transactions: MULTI, EXEC, DISCARD, WATCH and UNWATCH.
//!
//! Between MULTI and EXEC commands are checked and queued. EXEC locks the partitions of everything that is queued or
//! watched - the gate if one of the commands needs it - looks whether a watched key has changed, and runs the queue
//! without letting go, all of it at one moment in time.
//!
//! A watched key's change raises the session's flag under the lock of the key's partition. EXEC takes that lock before
//! it looks at the flag, so what was changed before is seen, and nothing changes after.

use isotherm_commands::Outcome;
use isotherm_commands::spec::Command;
use isotherm_keyspace::{Conditions, ExpiryMode, Held, NoEffects, Slot, Txn, UnixMs, Want, Watcher};
use isotherm_resp::{Args, Reply, errors};
use std::sync::Arc;

use crate::admin::AdminCall;
use crate::admin::specs;
use crate::dispatch::Dispatcher;
use crate::registry::Handler;
use crate::session::{Multi, Session, WatchList};

/// What a watched key takes beside its name, which lies here and in its partition: a `Box` and a number of a database,
/// and an entry of the partition's table with the watcher's `Arc`.
const WATCHED_KEY_BYTES: usize = 24 + 48;

pub const COMMANDS: &[Command<Handler>] = &[
    Command { spec: specs::MULTI, handler: Some(Handler::Admin(multi)), subcommands: &[] },
    Command { spec: specs::EXEC, handler: Some(Handler::Exec), subcommands: &[] },
    Command { spec: specs::DISCARD, handler: Some(Handler::Admin(discard)), subcommands: &[] },
    Command { spec: specs::WATCH, handler: Some(Handler::Admin(watch)), subcommands: &[] },
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
    let args = call.args.from(1);
    // A session whose transaction fails anyway need not watch more.
    if !call.session.watched_key_changed() {
        for name in args.iter() {
            watch_key(call, name);
        }
    }
    call.reply.ok();
    Outcome::Done
}

fn watch_key(call: &mut AdminCall<'_>, name: &[u8]) {
    let db = call.session.db;
    let list = call.session.watch.get_or_insert_with(|| {
        Box::new(WatchList { watcher: Arc::new(Watcher::default()), keys: Vec::new(), bytes: 0 })
    });
    if list.keys.iter().any(|(watched_db, key)| *watched_db == db && **key == *name) {
        return;
    }
    list.keys.push((db, name.into()));
    list.bytes += WATCHED_KEY_BYTES + 2 * name.len();
    let watcher = Arc::clone(&list.watcher);
    let mut txn = call.txn();
    let key = txn.key(name);
    txn.watch(db, &key, &watcher);
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

/// Takes the session's watched keys out of the keyspace. Inside EXEC their partitions are held; otherwise each is locked
/// in turn.
pub fn unwatch_all(session: &mut Session, held: &mut Held<'static>) {
    let Some(list) = session.watch.take() else { return };
    let keyspace = held.keyspace();
    for (db, name) in &list.keys {
        let key = keyspace.key(name);
        held.acquire(Want::One(keyspace.partition_of(key.slot)));
        let (conditions, mut nobody) = (forgetting(), NoEffects);
        Txn::new(held, conditions, &mut nobody).unwatch(*db, &key, &list.watcher);
    }
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
    /// EXEC. Returns the ticks that its commands took.
    pub(crate) fn exec(&mut self, session: &mut Session) -> u64 {
        let Some(multi) = session.multi.take() else {
            self.reply.error(errors::EXEC_WITHOUT_MULTI);
            return 0;
        };
        let now = self.clock.now();
        self.lock_transaction(session, &multi);
        if let Err(refused) = self.check_transaction(session, &multi, now) {
            unwatch_all(session, &mut self.held);
            refuse(&mut self.reply, refused);
            return 0;
        }
        unwatch_all(session, &mut self.held);
        self.reply.array(multi.queue.len());
        session.in_exec = true;
        let mut taken = 0;
        for queued in &multi.queue {
            taken += self.run_queued(session, queued, now);
        }
        session.in_exec = false;
        if self.held.has_ready() {
            self.serve_waiters();
        }
        taken
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
        let Some(list) = &session.watch else { return false };
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

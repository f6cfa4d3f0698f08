//! Blocked clients: whoever waits for a key (BLPOP and its kin), and how he is answered.
//!
//! ```text
//! worker 0                                   worker 1
//! BLPOP a 5   nothing there
//!   listed under `a`, in a's partition  ...  LPUSH a x, and before a's partition is let go:
//!                                            BLPOP a 5 again, for the client of worker 0
//!   writes the reply  <---- letter --------  its reply
//! ```
//! Three ways lead to an answer: somebody else's command serves the client (`Letter::Served`); CLIENT UNBLOCK, from
//! anywhere (`Letter::Unblocked`); its time is over, which its own worker sees. The waiter's one byte of state decides
//! between them. Where a command needs a key that whoever pushed does not hold (BLMOVE to another partition), it is run
//! again by its own worker, with all locks (`Letter::Look`); nobody behind it is served before.

use isotherm_commands::call::HashedKeys;
use isotherm_commands::spec::key_positions;
use isotherm_commands::wait::Wait;
use isotherm_commands::{Call, Flags, Outcome};
use isotherm_keyspace::{Conditions, Db, ExpiryMode, Key, Lookup, Txn, UnixMs, Waiter};
use isotherm_resp::reply::Protocol;
use isotherm_resp::{Args, ArgsBuf, Reply};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::dispatch::Dispatcher;
use crate::latency::monitor::Event;
use crate::node::Node;
use crate::registry::{Entry, Handler};
use crate::session::{ClientShared, ReplyMode, Session};
use crate::tracking::Tracker;
use crate::worker::Letter;

/// What a session keeps of its waiting.
pub struct Blocked {
    pub waiter: Arc<Waiter>,
    pub deadline: Option<UnixMs>,
    /// Its worker has noted the deadline.
    pub is_noted: bool,
}

/// What is needed to run the command again, on any worker.
struct Client {
    node: &'static Node,
    shared: Arc<ClientShared>,
    command: &'static Entry,
    args: ArgsBuf,
    db: Db,
    proto: Protocol,
    no_touch: bool,
    import_source: bool,
    /// It tracks what it reads.
    reader: Option<Tracker>,
}

impl Client {
    fn of(waiter: &Waiter) -> &Client {
        waiter.client.downcast_ref().expect("every waiter is made by `block`")
    }

    fn post(&self, letter: Letter) {
        self.node.post(usize::from(self.shared.worker), letter);
    }
}

/// How a client is answered whose keys did not come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Without {
    TimedOut,
    /// CLIENT UNBLOCK ... ERROR
    Error,
}

/// CLIENT UNBLOCK. Whether the client was blocked.
pub fn unblock(client: &ClientShared, how: Without) -> bool {
    let Some(waiter) = client.waiter().clone() else { return false };
    let ended = waiter.end();
    if ended {
        let of = Client::of(&waiter);
        of.post(Letter::Unblocked { waiter: Arc::clone(&waiter), how });
    }
    ended
}

/// What became of trying to serve a waiter.
#[derive(PartialEq, Eq)]
enum Tried {
    /// It was answered, or has ended otherwise.
    Ended,
    /// There was nothing for it.
    Waits,
    /// It needs keys that are not held.
    NeedsMore,
}

impl Dispatcher {
    /// The command has found nothing: the session waits. The partitions of its keys are still held, so nothing was pushed
    /// meanwhile.
    #[cold]
    pub(crate) fn block(
        &mut self,
        session: &mut Session,
        command: &'static Entry,
        args: Args<'_>,
        wait: Wait,
    ) {
        let keys = wait.keys.map(|at| (session.db, Box::from(args.get(at)))).collect();
        let client = Client {
            node: self.node,
            shared: Arc::clone(&session.shared),
            command,
            args: wait.instead.unwrap_or_else(|| ArgsBuf::from(args)),
            db: session.db,
            proto: session.proto,
            no_touch: session.no_touch,
            import_source: session.import_source,
            reader: session.reader(),
        };
        let wake = |waiter: &Arc<Waiter>| {
            Client::of(waiter).post(Letter::Look { waiter: Arc::clone(waiter) });
        };
        let waiter = Waiter::new(wait.kind, wait.on_removal, keys, wake, Box::new(client));
        self.held.wait(&waiter);
        *session.shared.waiter() = Some(Arc::clone(&waiter));
        self.node.clients.blocked.fetch_add(1, Ordering::AcqRel);
        session.blocked = Some(Box::new(Blocked { waiter, deadline: wait.deadline, is_noted: false }));
    }

    /// The session waits no longer: it has been or is about to be answered, or is gone. No locks are held.
    pub(crate) fn stop_waiting(&mut self, session: &mut Session) -> Option<Box<Blocked>> {
        let blocked = session.blocked.take()?;
        blocked.waiter.end();
        *session.shared.waiter() = None;
        self.node.clients.blocked.fetch_sub(1, Ordering::AcqRel);
        self.held.forget(&blocked.waiter);
        Some(blocked)
    }

    // ---- serving ----

    /// Serves those who wait for keys that were changed: first the key that was changed first, of its waiters the oldest
    /// first. What serving one changes may serve others. Their commands run at their own time: a transaction may have
    /// taken so long that what it pushed has expired.
    #[cold]
    pub(crate) fn serve_waiters(&mut self) {
        self.clock.begin();
        let now = self.clock.now();
        while let Some((db, name)) = self.held.take_ready() {
            let key = self.node.keyspace.key(&name);
            for waiter in self.held.waiters(db, &key) {
                if waiter.has_ended() || !self.is_worth_a_try(&waiter, db, &key, now) {
                    continue;
                }
                // It stands first, and its own worker is about to look.
                if waiter.is_woken() {
                    break;
                }
                if self.serve(&waiter, now) == Tried::NeedsMore {
                    waiter.wake();
                    break;
                }
            }
        }
    }

    fn is_worth_a_try(&mut self, waiter: &Waiter, db: Db, key: &Key<'_>, now: UnixMs) -> bool {
        let conditions = Conditions { now, expiry_mode: ExpiryMode::Hide, no_touch: true };
        let mut txn = Txn::new(&mut self.held, conditions, &mut self.pump);
        let found = txn.find(db, key, Lookup::Silent);
        waiter.on_removal || found.is_some_and(|entry| entry.kind() == waiter.kind)
    }

    /// Runs a waiter's command again.
    fn serve(&mut self, waiter: &Arc<Waiter>, now: UnixMs) -> Tried {
        let client = Client::of(waiter);
        let (command, args) = (client.command, client.args.args());
        if command.spec.key_specs.len() > 1 && !self.holds_keys(command, args) {
            return Tried::NeedsMore;
        }
        if !waiter.claim() {
            return Tried::Ended;
        }
        let noted = self.held.ready_len();
        let Some(reply) = self.run_again(client, now) else {
            // A consumer that was seen is a change too (XREADGROUP), but nothing that anybody waits for.
            self.held.forget_ready(noted);
            waiter.release();
            return Tried::Waits;
        };
        waiter.finish();
        self.held.forget_here(waiter);
        let counters = &self.stats.commands[usize::from(command.index)];
        counters.calls.add(1);
        let taken = self.clock.lap();
        self.count_time(&client.shared, client.db, command, args, taken, reply.len());
        self.node.note_latency(Event::CommandUnblocking, Duration::from_nanos(self.clock.nanos(taken)));
        if reply.error_count() > 0 {
            counters.failed.add(1);
            self.stats.count_error(reply.last_error().as_bytes());
        }
        client.post(Letter::Served { waiter: Arc::clone(waiter), reply: reply.out });
        Tried::Ended
    }

    fn holds_keys(&self, command: &Entry, args: Args<'_>) -> bool {
        let mut positions = Vec::new();
        key_positions(command.spec, args, &mut positions).is_ok()
            && positions.iter().all(|(at, _)| self.held.holds(&self.node.keyspace.key(args.get(*at))))
    }

    /// The reply; `None` if the command would wait again.
    fn run_again(&mut self, client: &Client, now: UnixMs) -> Option<Reply> {
        let Some(Handler::Data(handler)) = client.command.handler else {
            unreachable!("only data commands wait");
        };
        let conditions = Conditions {
            now,
            expiry_mode: self.expiry_mode_of(client.import_source),
            no_touch: client.no_touch,
        };
        let mut reply = Reply::new(client.proto);
        let author = std::mem::replace(&mut self.pump.author, client.shared.id);
        let mut txn = Txn::new(&mut self.held, conditions, &mut self.pump);
        let outcome = handler(&mut Call {
            txn: &mut txn,
            db: client.db,
            args: client.args.args(),
            keys: HashedKeys::NONE,
            reply: &mut reply,
            prng: &mut self.prng,
            settings: &self.hot.settings,
            may_wait: true,
            wait: None,
        });
        self.stats.count_txn(txn.hits, txn.misses, txn.expired, txn.dirty);
        self.pump.author = author;
        if outcome != Outcome::Done {
            return None;
        }
        if let Some(reader) = client.reader.filter(|_| client.command.spec.flags.has(Flags::READONLY)) {
            self.note_reads(reader, client.command, client.args.args());
        }
        Some(reply)
    }

    // ---- what the waiter's own worker does ----

    /// Its keys may be there, and whoever saw it did not hold all of them.
    pub fn look_for(&mut self, waiter: &Arc<Waiter>) {
        let client = Client::of(waiter);
        self.refresh();
        self.clock.begin();
        let now = self.clock.now();
        waiter.has_heard();
        self.wanted.clear();
        self.want(client.command, client.args.args());
        self.wanted.acquire(&mut self.held);
        self.serve(waiter, now);
        // Those behind it had to wait for this.
        self.held.pass_on(waiter);
        self.serve_waiters();
        self.release();
    }

    /// Writes the reply of a session that was served.
    pub fn answer(&mut self, session: &mut Session, reply: &[u8]) {
        let mark = self.reply.len();
        self.reply.out.extend_from_slice(reply);
        session.commands += 1;
        if session.reply_mode != ReplyMode::On {
            self.drop_reply(session, mark);
        }
    }

    /// Writes the reply of a session that was not served.
    pub fn answer_without(&mut self, session: &mut Session, waiter: &Waiter, how: Without) {
        let mut reply = Reply::new(session.proto);
        let client = Client::of(waiter);
        let counters = &self.stats.commands[usize::from(client.command.index)];
        counters.calls.add(1);
        match how {
            Without::TimedOut => reply.null_array(),
            Without::Error => {
                reply.error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
                counters.rejected.add(1);
                self.stats.count_error(reply.last_error().as_bytes());
            }
        }
        self.count_time(&client.shared, client.db, client.command, client.args.args(), 0, reply.len());
        self.answer(session, &reply.out);
    }
}

/// The connection that a waiter belongs to: its number at its worker, and its id.
pub fn owner(waiter: &Waiter) -> (usize, u64) {
    let shared = &Client::of(waiter).shared;
    (shared.token.load(Ordering::Acquire), shared.id)
}

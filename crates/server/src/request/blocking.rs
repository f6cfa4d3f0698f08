//! Blocked clients: those that wait for a key (BLPOP and its kin), and how they are answered.
//!
//! ```text
//! worker 0                                   worker 1
//! BLPOP a 5   nothing there
//!   listed under `a`, in a's partition  ...  LPUSH a x, and before a's partition is let go:
//!                                            BLPOP a 5 again, for the client of worker 0
//!   writes the reply  <---- letter --------  its reply
//! ```
//! Three ways lead to an answer: another client's command serves this one (`Letter::Served`); CLIENT UNBLOCK, from
//! anywhere (`Letter::Unblocked`); its time is over, which its own worker sees. The waiter's one byte of state decides
//! between them. Where its own worker has to run the command, with all locks, it is asked to (`Letter::Look`). Who serves
//! whom, and in which order, is the keyspace's (`serving`); here are the commands, the mailboxes and the sessions.
//!
//! A client that is killed, for whatever reason, waits no longer from that moment on, and takes nothing. What was served to
//! it before is on its way: its worker awaits that and writes it, then closes.

use isotherm_commands::call::HashedKeys;
use isotherm_commands::spec::key_positions;
use isotherm_commands::wait::Wait;
use isotherm_commands::{Call, Flags, Outcome};
use isotherm_keyspace::{
    Conditions, Db, ExpiryMode, Held, Key, Lookup, Serve, Txn, Type, UnixMs, Waiter, look, serve_ready,
};
use isotherm_resp::reply::Protocol;
use isotherm_resp::{Args, ArgsBuf, Reply};
use isotherm_stdx::steps;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::effects::tracking::Tracker;
use crate::node::Node;
use crate::observe::latency::monitor::Event;
use crate::request::dispatch::Dispatcher;
use crate::request::registry::{Entry, Handler};
use crate::session::{Attention, ClientShared, ReplyMode, Session};
use crate::worker::Letter;
use isotherm_allocator::class_bytes;

/// What a session keeps of its waiting.
pub struct Blocked {
    pub waiter: Arc<Waiter>,
    pub deadline: Option<UnixMs>,
    /// Its worker has noted the deadline.
    pub is_noted: bool,
    /// The bytes of the arguments that are kept.
    pub argument_bytes: usize,
    /// What waiting takes in all: the arguments, the waiter, and its keys in the lists of partitions.
    pub bytes: usize,
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

    fn memory_bytes(&self) -> usize {
        class_bytes(size_of::<Client>()) + class_bytes(self.args.memory_bytes())
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
    let ended = waiter.answer_otherwise();
    if ended {
        let of = Client::of(&waiter);
        of.post(Letter::Unblocked { waiter: Arc::clone(&waiter), how });
    }
    ended
}

/// The client is killed: from now on nothing is served to it.
pub fn end(client: &ClientShared) {
    if let Some(waiter) = client.waiter().clone() {
        waiter.end();
    }
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
        let keys = wait.keys.map(|at| (session.db, args.get(at)));
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
        let (argument_bytes, client_bytes) = (client.args.args().bytes_total(), client.memory_bytes());
        let keyspace = &self.node.keyspace;
        let waiter = Waiter::new(keyspace, wait.kind, wait.on_removal, keys, wake, Box::new(client));
        self.held.wait(&waiter);
        *session.shared.waiter() = Some(Arc::clone(&waiter));
        // A kill that did not find the waiter has left its mark before it looked for it.
        if session.shared.is_asked(Attention::KILL) {
            waiter.end();
        }
        self.node.clients.blocked.fetch_add(1, Ordering::AcqRel);
        let bytes = client_bytes + waiter.memory_bytes(class_bytes);
        let deadline = wait.deadline;
        session.blocked =
            Some(Box::new(Blocked { waiter, deadline, is_noted: false, argument_bytes, bytes }));
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

    /// Serves the waiters of keys that were changed. Their commands run at their own time: a transaction may have taken so
    /// long that what it pushed has expired.
    #[cold]
    pub(crate) fn serve_waiters(&mut self) {
        self.clock.begin();
        let now = self.clock.now();
        serve_ready(&mut Serving { dispatcher: self, now });
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
        let looked_before = steps::looked();
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
        self.note_own_work(client.command, client.args.args(), looked_before, 0);
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

    /// Its keys may be there, and the thread that saw it could not serve.
    pub fn look_for(&mut self, waiter: &Arc<Waiter>) {
        self.refresh();
        // The time is read when the locks are had.
        look(&mut Serving { dispatcher: self, now: UnixMs(0) }, waiter);
        self.note_hold(Client::of(waiter).command, self.hold_from());
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

/// A worker that serves, at this time.
struct Serving<'d> {
    dispatcher: &'d mut Dispatcher,
    now: UnixMs,
}

impl Serve<'static> for Serving<'_> {
    type Answer = Reply;

    fn held(&mut self) -> &mut Held<'static> {
        &mut self.dispatcher.held
    }

    fn acquire(&mut self, waiter: &Waiter) {
        let client = Client::of(waiter);
        self.dispatcher.wanted.clear();
        self.dispatcher.want(client.command, client.args.args());
        let Dispatcher { wanted, held, clock, .. } = &mut *self.dispatcher;
        wanted.acquire(held);
        clock.begin();
        self.now = clock.now();
        self.dispatcher.begin_hold();
    }

    fn reaches(&mut self, waiter: &Waiter) -> bool {
        let client = Client::of(waiter);
        // COMPAT(blocking): A client that waits for several keys (BLPOP, BZPOPMIN, XREAD) is served from the keys
        // that the pushing command has locked; its other keys count as absent, as they were when it began to wait.
        // Why: locking more keys in the middle of a command could deadlock.
        client.command.spec.key_specs.len() <= 1
            || self.dispatcher.holds_keys(client.command, client.args.args())
    }

    fn kind_of(&mut self, db: Db, key: &Key<'_>) -> Option<Type> {
        let conditions = Conditions { now: self.now, expiry_mode: ExpiryMode::Hide, no_touch: true };
        let Dispatcher { held, pump, .. } = &mut *self.dispatcher;
        Txn::new(held, conditions, pump).find(db, key, Lookup::Silent).map(|entry| entry.kind())
    }

    fn run(&mut self, waiter: &Waiter) -> Option<Reply> {
        self.dispatcher.run_again(Client::of(waiter), self.now)
    }

    fn answer(&mut self, waiter: &Arc<Waiter>, reply: Reply) {
        let client = Client::of(waiter);
        let dispatcher = &mut *self.dispatcher;
        let counters = &dispatcher.stats.commands[usize::from(client.command.index)];
        counters.calls.add(1);
        let taken = dispatcher.clock.lap();
        let args = client.args.args();
        dispatcher.count_time(&client.shared, client.db, client.command, args, taken, reply.len());
        let took = Duration::from_nanos(dispatcher.clock.nanos(taken));
        dispatcher.node.note_latency(Event::CommandUnblocking, took);
        if reply.error_count() > 0 {
            counters.failed.add(1);
            dispatcher.stats.count_error(reply.last_error().as_bytes());
        }
        client.post(Letter::Served { waiter: Arc::clone(waiter), reply: reply.out });
    }
}

/// The connection that a waiter belongs to: its number at its worker, and its id.
pub fn owner(waiter: &Waiter) -> (usize, u64) {
    let shared = &Client::of(waiter).shared;
    (shared.token.load(Ordering::Acquire), shared.id)
}

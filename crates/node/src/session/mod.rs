//! A session: what the server remembers of one connection between two requests.
//!
//! The state is split in two. `Session` belongs to the worker that owns the connection, and only that worker
//! touches it. `ClientShared` is what other threads may see (CLIENT LIST) or do (CLIENT KILL): atomics, and a
//! mutex for the names. An idle connection costs both and nothing else, so what few connections need is
//! boxed.

pub mod client;
pub mod client_memory;
pub mod clients;
pub mod errand;
pub mod line;
pub mod listening;
pub mod replica;
mod tracking;

use isotherm_acl::User;
use isotherm_allocator::class_bytes;
use isotherm_keyspace::{Db, Slot, SteadyMs, UnixMs, Waiter, Watcher};
use isotherm_log::LogOffset;
use isotherm_replication::acks::Wish;
use isotherm_resp::{Args, ArgsBuf, Protocol, Span};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::migration::job::Order;
use crate::request::caller::{Authority, Caller};
use crate::request::entry::Entry;
use crate::request::gate_bits::Gates;
use crate::users::Users;
pub use client::{Attention, ClientShared, NO_COMMAND, Seen, Transport};
use errand::Errand;
pub use listening::Listening;
use replica::ReplicaTalk;

/// Replies that CLIENT REPLY has asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReplyMode {
    #[default]
    On,
    Off,
    /// The next command's reply is dropped (CLIENT REPLY SKIP was this one).
    SkipNext,
    /// Mode in which this command's reply is dropped.
    Skip,
}

/// State of a session that waits.
pub struct Blocked {
    pub waiter: Arc<Waiter>,
    pub deadline: Option<SteadyMs>,
    /// True once the worker of the session has noted the deadline.
    pub is_noted: bool,
    /// The bytes of the arguments that are kept.
    pub argument_bytes: usize,
    /// Bytes that waiting takes in all: the arguments, the waiter, and its keys in the lists of partitions.
    pub bytes: usize,
}

pub struct Session {
    pub shared: Arc<ClientShared>,
    pub db: Db,
    pub proto: Protocol,
    /// User of the session: the default user until the client authenticates as another.
    pub user: Arc<User>,
    /// Generation of the users (`Users::generation`) at the session's last look-up of its user.
    pub users_seen: u64,
    pub authenticated: bool,
    /// True if the user may read every key: always, or with the current command.
    pub may_read_all: bool,
    /// True once the client has authenticated, even if it has to authenticate again (RESET).
    pub was_authenticated: bool,
    pub reply_mode: ReplyMode,
    /// True once it has tracked: what it has read may be noted.
    pub has_tracked: bool,
    /// CLIENT NO-TOUCH, NO-EVICT, IMPORT-SOURCE.
    pub no_touch: bool,
    pub no_evict: bool,
    pub import_source: bool,
    /// CLIENT CAPA REDIRECT: it can follow a redirection to another server.
    pub redirects: bool,
    /// READONLY: a replica answers what only reads.
    pub reads_of_replica: bool,
    /// The connection ends once what it has been answered is written (QUIT, protocol errors, CLIENT KILL of
    /// oneself).
    pub close_after_reply: bool,
    /// Between MULTI and EXEC.
    pub multi: Option<Box<Multi>>,
    /// After WATCH.
    pub watch: Option<Box<WatchList>>,
    /// Wait of the session, while it waits for a key.
    pub blocked: Option<Box<Blocked>>,
    /// True while the session's transaction is being run.
    pub in_exec: bool,
    /// True for the session as which the commands of a script run.
    pub in_script: bool,
    /// SCRIPT DEBUG SYNC: its next EVAL is debugged.
    pub debugs: bool,
    /// State of a session that listens to channels, to commands, or to changes of keys.
    pub listening: Option<Box<Listening>>,
    /// Offset in the log at which the session's last change ends.
    pub written: LogOffset,
    /// Wait that WAIT has asked for and that is about to begin.
    pub wish: Option<Box<Wish>>,
    /// True if the session is about to wait for the answer of the cluster bus.
    pub asks_bus: bool,
    /// MIGRATE whose end the session is about to wait for.
    pub migration: Option<Box<Order>>,
    /// Errand whose end it is about to wait for.
    pub errand: Option<Box<Errand>>,
    /// Number of times that ASKING was sent since it last ended. While it is not 0, commands may run in a
    /// slot that is being imported by this node.
    pub asking: u32,
    /// State of a session that has spoken as a replica does.
    pub replica: Option<Box<ReplicaTalk>>,
    /// Pushes in the reply of this command, which CLIENT REPLY does not drop; kept once it drops replies.
    pub pushed: Vec<u8>,
    /// Commands run so far, and the last that was asked for (`Entry::index`); copied to `shared` once a
    /// batch.
    pub commands: u64,
    pub last_command: u16,
    /// Number of times that the current command was parked for values on disk.
    pub fetches: u8,
    /// The gates that can matter to it: `gates_now`, as it was when the session was changed last.
    pub gates: Gates,
}

/// The queue between MULTI and EXEC.
#[derive(Default)]
pub struct Multi {
    pub queue: Vec<Queued>,
    /// The database that will be selected after the queued commands.
    pub db: Db,
    /// A command could not be queued: EXEC will refuse.
    pub dirty_exec: bool,
    /// The flags of all queued commands together.
    pub flags: isotherm_commands::Flags,
    /// True if a queued command does not run on a replica that is cut off from its primary (`Flags::STALE`).
    pub needs_fresh: bool,
    /// True if a queued command does not run while a file is loaded (`Flags::LOADING`).
    pub needs_data: bool,
    /// Bytes of the queue as Valkey counts them, for `multi-mem` and the limit on queries.
    pub bytes: usize,
    /// Bytes that the allocator has given for the arguments.
    argument_bytes: usize,
}

impl Multi {
    pub fn new(db: Db) -> Multi {
        Multi { db, ..Multi::default() }
    }

    /// `flags`: those of the command, or what its script has declared.
    pub fn push(
        &mut self,
        command: &'static Entry,
        args: Args<'_>,
        flags: isotherm_commands::Flags,
        slot: Option<Slot>,
    ) {
        let queued = Queued { command, args: ArgsBuf::from(args), slot };
        self.bytes += args.bytes_total() + args.len() * size_of::<Span>();
        self.argument_bytes += queued.args.memory_bytes(class_bytes);
        self.flags = self.flags.or(flags);
        self.needs_fresh |= !flags.has(isotherm_commands::Flags::STALE);
        self.needs_data |= !flags.has(isotherm_commands::Flags::LOADING);
        self.queue.push(queued);
    }

    /// Returns the bytes that the queue takes.
    pub fn memory_bytes(&self) -> usize {
        let queue = class_bytes(self.queue.capacity() * size_of::<Queued>());
        class_bytes(size_of::<Multi>()) + queue + self.argument_bytes
    }

    /// A command could not be queued: the rest is not worth its memory.
    pub fn abort(&mut self) {
        *self = Multi { dirty_exec: true, db: self.db, ..Multi::default() };
    }
}

pub struct Queued {
    pub command: &'static Entry,
    pub args: ArgsBuf,
    /// Slot of the command's keys, in a member of a cluster; `None` if it has no keys.
    pub slot: Option<Slot>,
}

/// The keys of WATCH, and the flag that their changes raise.
pub struct WatchList {
    pub watcher: Arc<Watcher>,
    pub keys: HashSet<(Db, Arc<[u8]>)>,
    /// Bytes that the keys take, here and where they are watched.
    pub bytes: usize,
}

impl Session {
    /// Begins the session of a client that has just connected and is known to `Clients`. Its user is the
    /// default user, and it is authenticated if that user needs no password.
    pub fn begin(shared: Arc<ClientShared>, users: &Users) -> Session {
        let users_seen = users.generation();
        let user = users.set_default_user(&shared);
        Session { users_seen, ..Session::new(shared, user, !users.auth_required()) }
    }

    pub fn new(shared: Arc<ClientShared>, user: Arc<User>, authenticated: bool) -> Session {
        let mut session = Session {
            may_read_all: user.permits_everything(),
            user,
            users_seen: 0,
            shared,
            db: Db(0),
            proto: Protocol::Resp2,
            authenticated,
            was_authenticated: authenticated,
            reply_mode: ReplyMode::On,
            has_tracked: false,
            no_touch: false,
            no_evict: false,
            import_source: false,
            redirects: false,
            reads_of_replica: false,
            close_after_reply: false,
            multi: None,
            watch: None,
            blocked: None,
            in_exec: false,
            in_script: false,
            debugs: false,
            listening: None,
            written: LogOffset::default(),
            wish: None,
            asks_bus: false,
            migration: None,
            errand: None,
            asking: 0,
            replica: None,
            pushed: Vec::new(),
            commands: 0,
            fetches: 0,
            last_command: NO_COMMAND,
            gates: Gates::NONE,
        };
        session.note_gates();
        session
    }

    /// Returns a session as which the commands of a script of `caller` run. `caller` may leave before the
    /// script ends.
    pub fn of_script(caller: &Session) -> Session {
        Session {
            db: caller.db,
            proto: caller.proto,
            no_touch: caller.no_touch,
            import_source: caller.import_source,
            reads_of_replica: caller.reads_of_replica,
            asking: caller.asking,
            users_seen: caller.users_seen,
            in_exec: true,
            in_script: true,
            ..Session::new(Arc::clone(&caller.shared), Arc::clone(&caller.user), true)
        }
    }

    /// Makes `user` the user of the session from now on.
    pub fn set_user(&mut self, user: Arc<User>) {
        self.may_read_all = user.permits_everything();
        self.user = user;
        self.note_gates();
    }

    /// Does what the session is asked to do (`Attention`). Returns false if the session runs no further
    /// command.
    #[cold]
    pub fn heeds(&mut self, users: &Users) -> bool {
        if !self.shared.is_asked(Attention::KILL) && self.shared.is_asked(Attention::USER) {
            // Before the look: a change after it raises the mark again.
            self.shared.clear(Attention::USER);
            if !self.look_up_user(users) {
                self.shared.ask(Attention::KILL);
            }
        }
        !self.shared.is_asked(Attention::KILL)
    }

    // COMPAT(users): A subscriber is closed when it sees that its user may not listen to one of its channels
    // any more. If the right is given back before that, it stays. Why: each connection belongs to one thread,
    // which looks at its channels.
    /// Looks up the user of the session again, because it may have changed. Returns false if the session is
    /// to be closed: there is no such user any more, or the session listens to a channel that the user may
    /// not listen to any more.
    #[cold]
    pub fn look_up_user(&mut self, users: &Users) -> bool {
        self.users_seen = users.generation();
        let Some(user) = users.current(&self.shared, &self.user) else {
            // A script or a transaction that is under way for it goes no further.
            self.set_user(Arc::new(users.powerless(&self.user.name)));
            return false;
        };
        let keeps_channels = user.keeps_channels_of(&self.user) || self.may_listen_on(&user);
        self.set_user(user);
        keeps_channels
    }

    /// Updates the gates after a change of the session, by a handler or by the end of its transaction.
    pub fn note_gates(&mut self) {
        self.gates = self.gates_now();
    }

    pub fn gates_now(&self) -> Gates {
        let listens = self.listening.is_some();
        Gates::AUTHENTICATION
            .when(!self.authenticated)
            .or(Gates::PERMISSION.when(!self.user.permits_everything()))
            .or(Gates::NO_MULTI.or(Gates::QUEUE).when(self.multi.is_some()))
            .or(Gates::REDIRECT.when(self.redirects))
            .or(Gates::MAILBOX.when(self.listening.as_ref().is_some_and(|it| it.awaits_mail())))
            .or(Gates::SUBSCRIBER.when(listens && self.proto == Protocol::Resp2 && self.is_subscriber()))
            .or(Gates::MONITOR.when(listens && self.monitors()))
            .or(Gates::ASKING.when(self.asking > 0))
    }

    /// Returns the caller as which its commands see the session.
    #[inline]
    pub fn caller(&self, may_wait: bool) -> Caller {
        Caller {
            id: self.id(),
            may_wait,
            in_script: self.in_script,
            no_touch: self.no_touch,
            may_read_all: self.may_read_all,
            authority: self.authority(),
        }
    }

    #[inline]
    pub fn authority(&self) -> Authority {
        if self.import_source { Authority::ImportSource } else { Authority::Server }
    }

    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// Returns whether the session has asked for the replication stream: it is no client any more then.
    pub fn asks_for_stream(&self) -> bool {
        self.replica.as_ref().is_some_and(|replica| replica.request.is_some())
    }

    /// A key of WATCH has been changed since.
    pub fn watched_key_changed(&self) -> bool {
        self.watch.as_ref().is_some_and(|list| list.watcher.is_dirty())
    }

    /// Returns whether other threads see the session as it stands after its last command.
    #[inline]
    pub fn is_shown(&self) -> bool {
        self.shared.seen.commands_total.load(Ordering::Relaxed) == self.commands
    }

    /// Shows other threads where the session stands.
    #[inline]
    pub fn publish(&self, now: UnixMs) {
        let seen = &self.shared.seen;
        seen.note_interaction(now);
        seen.commands_total.store(self.commands, Ordering::Relaxed);
        seen.command.store(self.last_command, Ordering::Relaxed);
        seen.db.store(self.db.0, Ordering::Relaxed);
        seen.resp.store(self.proto.version() as u8, Ordering::Relaxed);
        let (multi, watch) = (self.multi.as_ref(), self.watch.as_ref());
        seen.in_multi.store(multi.is_some(), Ordering::Relaxed);
        seen.multi_queued.store(multi.map_or(0, |multi| multi.queue.len() as u32), Ordering::Relaxed);
        // COMPAT(protocol): CLIENT LIST shows that a watched key has changed (flag `d`) from the next command
        // of its client on, counts the keys until then (`watch`), and has `multi=-1` outside of MULTI. Valkey
        // shows it at once, counts such keys no more, and has `multi=0` for a client that watches. Why: what
        // a session watches belongs to its worker, and -1 is what the documentation says.
        seen.watched.store(watch.map_or(0, |watch| watch.keys.len() as u32), Ordering::Relaxed);
        seen.marks.store(self.marks(), Ordering::Relaxed);
    }

    fn marks(&self) -> u16 {
        let mark = |is: bool, mark: u16| if is { mark } else { 0 };
        mark(self.no_touch, Seen::NO_TOUCH)
            | mark(self.no_evict, Seen::NO_EVICT)
            | mark(self.import_source, Seen::IMPORT_SOURCE)
            | mark(self.close_after_reply, Seen::CLOSES)
            | mark(self.watched_key_changed(), Seen::DIRTY)
            | mark(self.redirects, Seen::REDIRECTS)
            | mark(self.reads_of_replica, Seen::READS_OF_REPLICA)
    }
}

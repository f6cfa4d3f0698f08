//! A session: what the server remembers of one connection between two requests.
//!
//! It is split in two. `Session` belongs to the worker that owns the connection, and only that worker touches it.
//! `ClientShared` is what other threads may see (CLIENT LIST) or do (CLIENT KILL): atomics, and a mutex for the names.
//! An idle connection costs both and nothing else, so what few connections need is boxed.

use isotherm_keyspace::{Db, UnixMs, Waiter, Watcher};
use isotherm_resp::{ArgsBuf, Protocol};
use std::collections::HashSet;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::effects::pubsub::{Listening, SeenListening};
use crate::request::caller::Caller;
use crate::request::gate_bits::Gates;
use crate::request::registry::Entry;

/// What CLIENT REPLY has asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReplyMode {
    #[default]
    On,
    Off,
    /// The next command's reply is dropped (CLIENT REPLY SKIP was this one).
    SkipNext,
    /// This command's reply is dropped.
    Skip,
}

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

pub struct Session {
    pub shared: Arc<ClientShared>,
    pub db: Db,
    pub proto: Protocol,
    pub authenticated: bool,
    /// It is no stranger, even if it has to authenticate again (RESET).
    pub was_authenticated: bool,
    pub reply_mode: ReplyMode,
    /// CLIENT NO-TOUCH, NO-EVICT, IMPORT-SOURCE.
    pub no_touch: bool,
    pub no_evict: bool,
    pub import_source: bool,
    /// CLIENT CAPA REDIRECT: it can follow a redirection to another server.
    pub redirects: bool,
    /// The connection ends once what it has been answered is written (QUIT, protocol errors, CLIENT KILL of oneself).
    pub close_after_reply: bool,
    /// Between MULTI and EXEC.
    pub multi: Option<Box<Multi>>,
    /// After WATCH.
    pub watch: Option<Box<WatchList>>,
    /// It waits for a key.
    pub blocked: Option<Box<Blocked>>,
    /// Its transaction is being run.
    pub in_exec: bool,
    /// It listens to channels, to commands, or to changes of keys.
    pub listening: Option<Box<Listening>>,
    /// The command has answered with pushes, which CLIENT REPLY does not drop.
    pub pushed: bool,
    /// Commands run so far, and the last that was asked for (`Entry::index`); copied to `shared` once a batch.
    pub commands: u64,
    pub last_command: u16,
    /// The gates that can matter to it: `gates_now`, as it was when the session was changed last.
    pub gates: Gates,
}

/// The queue between MULTI and EXEC.
#[derive(Default)]
pub struct Multi {
    pub queue: Vec<Queued>,
    /// A command could not be queued: EXEC will refuse.
    pub dirty_exec: bool,
    /// The flags of all queued commands together.
    pub flags: isotherm_commands::Flags,
    /// What the queue takes.
    pub bytes: usize,
}

impl Multi {
    /// A command could not be queued: the rest is not worth its memory.
    pub fn abort(&mut self) {
        *self = Multi { dirty_exec: true, ..Multi::default() };
    }
}

pub struct Queued {
    pub command: &'static Entry,
    pub args: ArgsBuf,
}

/// The keys of WATCH, and the flag that their changes raise.
pub struct WatchList {
    pub watcher: Arc<Watcher>,
    pub keys: HashSet<(Db, Arc<[u8]>)>,
    /// What the keys take, here and where they are watched.
    pub bytes: usize,
}

impl Session {
    pub fn new(shared: Arc<ClientShared>, authenticated: bool) -> Session {
        let mut session = Session {
            shared,
            db: Db(0),
            proto: Protocol::Resp2,
            authenticated,
            was_authenticated: authenticated,
            reply_mode: ReplyMode::On,
            no_touch: false,
            no_evict: false,
            import_source: false,
            redirects: false,
            close_after_reply: false,
            multi: None,
            watch: None,
            blocked: None,
            in_exec: false,
            listening: None,
            pushed: false,
            commands: 0,
            last_command: NO_COMMAND,
            gates: Gates::NONE,
        };
        session.note_gates();
        session
    }

    /// What it is was changed: by a handler, or by the end of its transaction.
    pub fn note_gates(&mut self) {
        self.gates = self.gates_now();
    }

    pub fn gates_now(&self) -> Gates {
        let listens = self.listening.is_some();
        Gates::AUTHENTICATION
            .when(!self.authenticated)
            .or(Gates::NO_MULTI.or(Gates::QUEUE).when(self.multi.is_some()))
            .or(Gates::MAILBOX.when(listens))
            .or(Gates::SUBSCRIBER.when(listens && self.proto == Protocol::Resp2 && self.is_subscriber()))
            .or(Gates::MONITOR.when(listens && self.monitors()))
    }

    /// As its commands see it.
    #[inline]
    pub fn caller(&self, may_wait: bool) -> Caller {
        let (no_touch, import_source) = (self.no_touch, self.import_source);
        Caller { id: self.id(), may_wait, no_touch, import_source }
    }

    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// A key of WATCH has been changed since.
    pub fn watched_key_changed(&self) -> bool {
        self.watch.as_ref().is_some_and(|list| list.watcher.is_dirty())
    }

    /// Shows other threads where the session stands.
    #[inline]
    pub fn publish(&self, now_ms: i64) {
        let seen = &self.shared.seen;
        seen.last_interaction_ms.store(now_ms, Ordering::Relaxed);
        seen.commands_total.store(self.commands, Ordering::Relaxed);
        seen.command.store(self.last_command, Ordering::Relaxed);
        seen.db.store(self.db.0, Ordering::Relaxed);
        seen.resp.store(self.proto.version() as u8, Ordering::Relaxed);
        let (multi, watch) = (self.multi.as_ref(), self.watch.as_ref());
        seen.in_multi.store(multi.is_some(), Ordering::Relaxed);
        seen.multi_queued.store(multi.map_or(0, |multi| multi.queue.len() as u32), Ordering::Relaxed);
        seen.watched.store(watch.map_or(0, |watch| watch.keys.len() as u32), Ordering::Relaxed);
        seen.marks.store(self.marks(), Ordering::Relaxed);
    }

    fn marks(&self) -> u8 {
        let mark = |is: bool, mark: u8| if is { mark } else { 0 };
        mark(self.no_touch, Seen::NO_TOUCH)
            | mark(self.no_evict, Seen::NO_EVICT)
            | mark(self.import_source, Seen::IMPORT_SOURCE)
            | mark(self.close_after_reply, Seen::CLOSES)
            | mark(self.watched_key_changed(), Seen::DIRTY)
            | mark(self.redirects, Seen::REDIRECTS)
    }
}

/// What CLIENT KILL and others ask of the connection's owner; looked at before every command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attention(pub u32);

impl Attention {
    pub const KILL: Attention = Attention(1);
}

/// One connection, as any thread may see it.
pub struct ClientShared {
    pub id: u64,
    /// The worker that owns it, and its number there.
    pub worker: u16,
    pub token: AtomicUsize,
    pub fd: i32,
    pub addr: Box<str>,
    pub laddr: Box<str>,
    pub is_unix: bool,
    /// A unix socket, or from this machine.
    is_local: bool,
    pub created_ms: i64,
    attention: AtomicU32,
    names: Mutex<Names>,
    waiter: Mutex<Option<Arc<Waiter>>>,
    /// What CLIENT LIST shows; written by the owner, once a batch.
    pub seen: Seen,
    /// The same, written when it changes.
    pub listening: SeenListening,
}

/// What a client says of itself.
#[derive(Clone, Default)]
pub struct Names {
    pub name: Box<str>,
    pub lib_name: Box<str>,
    pub lib_ver: Box<str>,
}

#[derive(Default)]
pub struct Seen {
    pub last_interaction_ms: AtomicI64,
    pub commands_total: AtomicU64,
    pub input_total_bytes: AtomicU64,
    pub output_total_bytes: AtomicU64,
    /// What it takes, for itself and for its parts (`Taken`).
    pub query_bytes: AtomicU64,
    pub query_free_bytes: AtomicU64,
    pub argument_bytes: AtomicU64,
    pub output_bytes: AtomicU64,
    pub output_chunks: AtomicU32,
    pub multi_bytes: AtomicU64,
    pub total_bytes: AtomicU64,
    pub multi_queued: AtomicU32,
    pub watched: AtomicU32,
    pub db: AtomicU16,
    /// `Entry::index` of the last command, or `NO_COMMAND`.
    pub command: AtomicU16,
    pub resp: AtomicU8,
    /// `NO_TOUCH` and so on.
    pub marks: AtomicU8,
    pub in_multi: AtomicBool,
    /// It waits for the end of CLIENT PAUSE, or of a crowd of messages.
    pub waits: AtomicBool,
}

impl Seen {
    pub const NO_TOUCH: u8 = 1;
    pub const NO_EVICT: u8 = 2;
    pub const IMPORT_SOURCE: u8 = 4;
    pub const CLOSES: u8 = 8;
    pub const DIRTY: u8 = 16;
    pub const REDIRECTS: u8 = 32;
}

pub const NO_COMMAND: u16 = u16::MAX;

impl ClientShared {
    /// `addresses`: the peer's and ours.
    pub fn new(
        id: u64,
        worker: u16,
        fd: i32,
        addresses: (Box<str>, Box<str>),
        is_unix: bool,
        is_local: bool,
        now_ms: i64,
    ) -> ClientShared {
        let seen = Seen::default();
        seen.last_interaction_ms.store(now_ms, Ordering::Relaxed);
        seen.resp.store(2, Ordering::Relaxed);
        seen.command.store(NO_COMMAND, Ordering::Relaxed);
        ClientShared {
            id,
            worker,
            token: AtomicUsize::new(usize::MAX),
            fd,
            addr: addresses.0,
            laddr: addresses.1,
            is_unix,
            is_local,
            created_ms: now_ms,
            attention: AtomicU32::new(0),
            names: Mutex::new(Names::default()),
            waiter: Mutex::new(None),
            seen,
            listening: SeenListening::default(),
        }
    }

    pub fn is_local(&self) -> bool {
        self.is_local
    }

    pub fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it waits for, if it does.
    pub fn waiter(&self) -> MutexGuard<'_, Option<Arc<Waiter>>> {
        self.waiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is killed: from now on nothing is served to it.
    pub fn end_waiting(&self) {
        if let Some(waiter) = self.waiter().clone() {
            waiter.end();
        }
    }

    pub fn is_blocked(&self) -> bool {
        self.waiter().as_ref().is_some_and(|waiter| !waiter.has_ended())
    }

    /// From now on the owner runs no further command of it, and closes it (see `Node::kill`, which also wakes him).
    pub fn ask(&self, what: Attention) {
        self.attention.fetch_or(what.0, Ordering::AcqRel);
    }

    #[inline]
    pub fn is_asked(&self, what: Attention) -> bool {
        self.attention.load(Ordering::Acquire) & what.0 != 0
    }
}

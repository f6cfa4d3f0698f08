//! State of one connection that any thread may read: its addresses and names, the values that CLIENT LIST
//! shows, and the requests of CLIENT KILL to its owner. It consists of atomics, and of a mutex for the names.

use isotherm_acl::User;
use isotherm_keyspace::{SteadyMs, UnixMs, Waiter};
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::effects::pubsub::message::Kind;

/// Requests to the owner of the connection, from CLIENT KILL and others. The owner checks them before every
/// command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attention(pub u32);

impl Attention {
    pub const KILL: Attention = Attention(1);
    /// Request to look up the user of the connection again, because the user has changed.
    pub const USER: Attention = Attention(2);
    pub const ANY: Attention = Attention(u32::MAX);
}

/// Transport of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    Tcp,
    Unix,
    Tls,
}

/// State of one connection that any thread may read.
pub struct ClientShared {
    pub id: u64,
    /// The worker that owns it, and its number there.
    pub worker: u16,
    pub token: AtomicUsize,
    pub fd: i32,
    pub addr: Box<str>,
    pub laddr: Box<str>,
    pub transport: Transport,
    /// A unix socket, or from this machine.
    is_local: bool,
    /// Moment at which it came, for its age.
    created: SteadyMs,
    attention: AtomicU32,
    names: Mutex<Names>,
    waiter: Mutex<Option<Arc<Waiter>>>,
    /// Values that CLIENT LIST shows. The owner writes them once a batch.
    pub seen: Seen,
    /// Values of what the session listens to, for CLIENT LIST. The owner writes them when they change.
    pub listening: SeenListening,
}

/// User of a connection, and what the client says of itself.
#[derive(Clone, Default)]
pub struct Names {
    /// User of the connection; the link to a primary has none.
    pub user: Option<Arc<User>>,
    pub name: Box<str>,
    pub lib_name: Box<str>,
    pub lib_ver: Box<str>,
}

#[derive(Default)]
pub struct Seen {
    /// Moment of its last sign of life, as a `SteadyMs`.
    last_interaction_ms: AtomicI64,
    pub commands_total: AtomicU64,
    pub input_total_bytes: AtomicU64,
    pub output_total_bytes: AtomicU64,
    /// Bytes that the connection takes, for itself and for its parts (`Taken`).
    pub query_bytes: AtomicU64,
    pub query_free_bytes: AtomicU64,
    pub argument_bytes: AtomicU64,
    pub output_bytes: AtomicU64,
    pub output_chunks: AtomicU32,
    pub multi_bytes: AtomicU64,
    pub shared_bytes: AtomicU64,
    pub total_bytes: AtomicU64,
    pub multi_queued: AtomicU32,
    pub watched: AtomicU32,
    pub db: AtomicU16,
    /// `Entry::index` of the last command, or `NO_COMMAND`.
    pub command: AtomicU16,
    pub resp: AtomicU8,
    /// `NO_TOUCH` and so on.
    pub marks: AtomicU16,
    pub in_multi: AtomicBool,
    /// True while the connection waits for the end of CLIENT PAUSE or of backpressure.
    pub waits: AtomicBool,
}

impl Seen {
    pub const NO_TOUCH: u16 = 1;
    pub const NO_EVICT: u16 = 2;
    pub const IMPORT_SOURCE: u16 = 4;
    pub const CLOSES: u16 = 8;
    pub const DIRTY: u16 = 16;
    pub const REDIRECTS: u16 = 32;
    /// Mark of the link to the primary.
    pub const PRIMARY: u16 = 64;
    /// Mark of a connection that gets the log and is no client any more.
    pub const REPLICA: u16 = 128;
    pub const READS_OF_REPLICA: u16 = 256;

    /// Notes a sign of life.
    #[inline]
    pub fn note_interaction(&self, now: UnixMs) {
        self.last_interaction_ms.store(SteadyMs::of(now).0, Ordering::Relaxed);
    }

    /// Returns for how long there was none.
    pub fn idle_ms(&self, now: UnixMs) -> i64 {
        SteadyMs::of(now).0 - self.last_interaction_ms.load(Ordering::Relaxed)
    }

    /// Returns the same in seconds, as Valkey counts them: how many have begun since.
    pub fn idle_seconds(&self, now: UnixMs) -> i64 {
        seconds_between(SteadyMs(self.last_interaction_ms.load(Ordering::Relaxed)), now)
    }
}

impl ClientShared {
    pub fn is_primary(&self) -> bool {
        self.seen.marks.load(Ordering::Relaxed) & Seen::PRIMARY != 0
    }

    pub fn is_replica(&self) -> bool {
        self.seen.marks.load(Ordering::Relaxed) & Seen::REPLICA != 0
    }
}

pub const NO_COMMAND: u16 = u16::MAX;

/// Returns how many whole seconds of the clock have begun between two moments.
fn seconds_between(then: SteadyMs, now: UnixMs) -> i64 {
    (SteadyMs::of(now).0.div_euclid(1000) - then.0.div_euclid(1000)).max(0)
}

impl ClientShared {
    /// Returns how old the connection is.
    pub fn age_seconds(&self, now: UnixMs) -> i64 {
        seconds_between(self.created, now)
    }

    /// `addresses`: the peer's and ours.
    pub fn new(
        id: u64,
        worker: u16,
        fd: i32,
        addresses: (Box<str>, Box<str>),
        transport: Transport,
        is_local: bool,
        now: UnixMs,
    ) -> ClientShared {
        let seen = Seen::default();
        seen.note_interaction(now);
        seen.resp.store(2, Ordering::Relaxed);
        seen.command.store(NO_COMMAND, Ordering::Relaxed);
        ClientShared {
            id,
            worker,
            token: AtomicUsize::new(usize::MAX),
            fd,
            addr: addresses.0,
            laddr: addresses.1,
            transport,
            is_local,
            created: SteadyMs::of(now),
            attention: AtomicU32::new(0),
            names: Mutex::new(Names::default()),
            waiter: Mutex::new(None),
            seen,
            listening: SeenListening::default(),
        }
    }

    pub fn is_unix(&self) -> bool {
        self.transport == Transport::Unix
    }

    pub fn is_local(&self) -> bool {
        self.is_local
    }

    pub fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the wait of the client under its lock: the waiter if the client waits, else `None`.
    pub fn waiter(&self) -> MutexGuard<'_, Option<Arc<Waiter>>> {
        self.waiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_blocked(&self) -> bool {
        self.waiter().as_ref().is_some_and(|waiter| !waiter.has_ended())
    }

    /// The client is killed: from now on nothing is served to it.
    pub fn end_waiting(&self) {
        if let Some(waiter) = self.waiter().clone() {
            waiter.end();
        }
    }

    /// Asks the owner to do `what` before it runs the next command of the connection. See `Clients::kill`,
    /// which also wakes the owner.
    pub fn ask(&self, what: Attention) {
        self.attention.fetch_or(what.0, Ordering::AcqRel);
    }

    /// The owner is about to do it.
    pub fn clear(&self, what: Attention) {
        self.attention.fetch_and(!what.0, Ordering::AcqRel);
    }

    #[inline]
    pub fn is_asked(&self, what: Attention) -> bool {
        self.attention.load(Ordering::Acquire) & what.0 != 0
    }
}

/// State of what the session listens to, for other threads (CLIENT LIST).
#[derive(Default)]
pub struct SeenListening {
    pub(super) counts: [AtomicU32; Kind::COUNT],
    pub(super) bytes: AtomicU64,
    /// `MONITORS` and so on.
    pub(super) marks: AtomicU8,
    /// Client to which invalidations go.
    pub(super) redirect: AtomicI64,
}

impl SeenListening {
    pub const MONITORS: u8 = 1;
    pub const TRACKS: u8 = 2;
    pub const BROKEN: u8 = 4;
    pub const BROADCAST: u8 = 8;

    pub fn marks(&self) -> u8 {
        self.marks.load(Ordering::Relaxed)
    }

    /// The session that gets the invalidations of one that tracks: 0 for none, -1 if it does not track.
    pub fn redirect(&self) -> i64 {
        match self.marks() & SeenListening::TRACKS {
            0 => -1,
            _ => self.redirect.load(Ordering::Relaxed),
        }
    }

    pub fn count(&self, kind: Kind) -> u32 {
        self.counts[kind as usize].load(Ordering::Relaxed)
    }

    pub fn any(&self) -> bool {
        Kind::ALL.iter().any(|kind| self.count(*kind) > 0)
    }

    /// Returns the bytes that the subscriptions take.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

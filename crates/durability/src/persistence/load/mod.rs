//! Reading an RDB file into the keyspace: at start, for DEBUG RELOAD, and from a primary.
//!
//! ```text
//!   Portions --> FileReader --> pieces --> large strings, collections: stored one by one
//!                                  \-----> short strings: gathered by slot, their pages built at the end (`gathering`)
//! ```
//! The file is read in portions; a large collection is stored in pieces. So loading takes the memory of what
//! it builds, and little more. Between some hundred keys the partition's lock is released: INFO looks at
//! partitions too.
//!
//! **What this module does not know:** where the bytes come from, and what follows from a failure.

mod cold;
mod gathering;
mod portions;
pub mod room;
mod texts;

pub use portions::{FilePortions, Portions};

use isotherm_codec::{FileTerms, Loaded, load_piece};
use isotherm_commands::call::{ColdKey, ColdKeys};
use isotherm_commands::spec::Need;
use isotherm_keyspace::{
    Conditions, Db, ExpiryMode, Held, Key, NoEffects, OnCold, Txn, UnixMs, Want, Whereabouts,
};
use isotherm_persist::Limits;
pub use isotherm_persist::rdb::file::MAGIC_BYTES;
use isotherm_persist::rdb::file::{
    FileError, FileReader, Item, KEY_SECRET_BYTES, Options, Piece, PieceValue, SWAP_KEY_SECRET, Step,
};
use isotherm_stdx::{parse_i64, steps};
use std::io;
use std::sync::atomic::Ordering::Relaxed;

use gathering::Gathering;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::persistence::Store;
use isotherm_node::scripting::function_engine::{FunctionEngine, LoadTime};
use isotherm_node::tier::files::Durable;
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::time::unix_now;
use texts::Texts;

/// Secret that keys are hashed with.
pub type KeySecret = [u8; KEY_SECRET_BYTES];

/// Read at once.
const PORTION_BYTES: usize = 128 << 10;
/// Keys, or pieces of keys, that are stored in one hold.
const PIECES_PER_HOLD: u32 = 100;

/// Why a file could not be loaded: lines for the log. The last one says what follows from it.
#[derive(Debug)]
pub struct LoadFailure(pub Vec<String>);

/// Counts of what was loaded.
#[derive(Default, Clone, Copy, Debug)]
pub struct Counts {
    pub loaded: u64,
    pub expired: u64,
    pub empty: u64,
    pub fields_expired: u64,
}

/// A file that was loaded.
#[derive(Debug)]
pub struct Ended {
    pub counts: Counts,
    /// Offset at which the file ended in the bytes of the portions.
    pub end: u64,
    /// Bytes that were read and lie after the end.
    pub rest: Vec<u8>,
    pub history: History,
}

/// Place of the file in a log of changes (`repl-id`, `repl-offset`, `repl-stream-db`), as far as the file
/// states it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct History {
    pub id: Option<Vec<u8>>,
    pub offset: Option<i64>,
    pub db: Option<i64>,
}

/// Destination of the keys, and the locks that are held meanwhile.
pub enum Target<'h> {
    /// An empty keyspace. Clients see nothing of it during the load (-LOADING). Locks are taken, and released
    /// soon.
    Empty,
    /// Keyspace of a thread that holds everything and keeps doing so. Keys that are there are replaced.
    Held(&'h mut Held<'static>),
    /// Keyspace as for `Held`. Libraries of functions that are there are replaced too.
    Merged(&'h mut Held<'static>),
}

/// Treatment of keys and fields that have expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expired {
    /// Not loaded, unless replicas may continue from this data.
    Dropped,
    /// Not loaded in any case: no replica and no log has them.
    DroppedHere,
    /// A log of changes follows, which removes them, or has given them more time.
    Kept,
}

/// Checks that a file begins as an RDB file does. Called before data makes way for the file.
pub fn check_head(file: &FilePortions, strict_version: bool) -> Result<(), LoadFailure> {
    let unread = |error| LoadFailure(vec![format!("{}: {}", file.name(), os_text(&error))]);
    let head = file.head::<MAGIC_BYTES>().map_err(unread)?;
    check_magic(&head, &file.name(), strict_version)
}

/// Checks the first `MAGIC_BYTES` bytes of a file.
pub fn check_magic(head: &[u8], name: &str, strict_version: bool) -> Result<(), LoadFailure> {
    let limits = Limits::default();
    let mut reader = FileReader::new(Options { limits, strict_version, checksum: false, references: false });
    reader.feed(head);
    let refused = |error: FileError| LoadFailure(vec![format!("{} ({name})", error.cause)]);
    reader.step().map(drop).map_err(refused)
}

/// Returns whether a file has no key. Reads only what comes before the first key.
pub fn is_empty(portions: &mut dyn Portions) -> io::Result<bool> {
    let mut reader = FileReader::new(Options {
        limits: Limits::default(),
        strict_version: false,
        checksum: false,
        references: false,
    });
    let mut portion = vec![0; 4096];
    loop {
        match reader.step() {
            Ok(Step::Item(Item::Piece(_) | Item::Empty(_) | Item::Cold { .. } | Item::Bundle(_))) => {
                return Ok(false);
            }
            Ok(Step::Item(_)) => {}
            Ok(Step::End) => return Ok(true),
            Ok(Step::NeedsMore) => match portions.read(&mut portion)? {
                0 => reader.end(),
                count => reader.feed(&portion[..count]),
            },
            // The reason is found when it is loaded.
            Err(_) => return Ok(false),
        }
    }
}

/// Loads all of it, and counts in `store.state.loading` as it goes. After a failure the keyspace has a part
/// of the file.
pub fn load(
    store: Store<'static>,
    portions: &mut dyn Portions,
    target: Target<'_>,
    expired: Expired,
    checks_sum: bool,
) -> Result<Ended, LoadFailure> {
    load_options(store, portions, target, expired, (checks_sum, false))
}

/// Loads the base of the append-only file, which may refer to values in the swap log.
pub fn load_base(
    store: Store<'static>,
    portions: &mut dyn Portions,
    target: Target<'_>,
) -> Result<Ended, LoadFailure> {
    load_options(store, portions, target, Expired::Kept, (true, true))
}

fn load_options(
    store: Store<'static>,
    portions: &mut dyn Portions,
    target: Target<'_>,
    expired: Expired,
    (checks_sum, references): (bool, bool),
) -> Result<Ended, LoadFailure> {
    let now = unix_now();
    store.state.loading.begin(now, portions.bytes_total().unwrap_or(0));
    // A packed node may be longer than any string; what is too long for the keyspace is refused there. Memory
    // is taken as the bytes come.
    let limits = Limits { text_bytes_max: u64::from(u32::MAX), unfolded_bytes_max: u64::MAX };
    let reader = FileReader::new(Options {
        limits,
        strict_version: store.config.checks_rdb_version(),
        checksum: checks_sum && store.config.sums_rdb_files(),
        references,
    });
    let limits = store.config.collection_limits();
    let merges = matches!(target, Target::Merged(_));
    let replaces = merges || matches!(target, Target::Held(_));
    let mut own = Held::new(store.keyspace);
    let (held, is_held) = match target {
        Target::Empty => (&mut own, false),
        Target::Held(held) | Target::Merged(held) => (held, true),
    };
    // A replica's keys are deleted by what its primary sends.
    let drops = expired != Expired::Kept && !store.mail.tasks().has(Tasks::REPLICA);
    let keeps_from = drops.then_some(now);
    let mut load = Load {
        texts: Texts { store, name: portions.name() },
        store,
        portions,
        gathering: (!is_held).then(|| Gathering::new(store, now)),
        held,
        functions: FunctionEngine::new(store.libraries),
        now,
        is_held,
        merges,
        terms: FileTerms { limits: &limits, keeps_from, replaces },
        expired,
        counts: Counts::default(),
        history: History::default(),
        pieces: 0,
        durable: None,
        key_secret: None,
    };
    let loaded = load.run(reader);
    if !is_held {
        load.held.release();
    }
    let ended = loaded?;
    texts::log_counts(&ended.counts);
    Ok(ended)
}

struct Load<'l> {
    texts: Texts,
    store: Store<'static>,
    portions: &'l mut dyn Portions,
    held: &'l mut Held<'static>,
    is_held: bool,
    merges: bool,
    /// Engine that the libraries of the file are loaded with.
    functions: FunctionEngine,
    /// Strings that are gathered and stored together. `None`: keys may be there already, and are replaced.
    gathering: Option<Gathering>,
    now: UnixMs,
    terms: FileTerms<'l>,
    expired: Expired,
    counts: Counts,
    history: History,
    /// Since the lock was taken.
    pieces: u32,
    /// Durable part of the swap log, to which a key on disk may refer. Set from the first such key on.
    durable: Option<Durable>,
    /// Secret with which keys on disk are hashed.
    key_secret: Option<KeySecret>,
}

impl Load<'_> {
    fn run(&mut self, mut reader: FileReader) -> Result<Ended, LoadFailure> {
        let mut portion = vec![0; PORTION_BYTES];
        let mut at = 0;
        loop {
            match reader.step() {
                Ok(Step::End) => {
                    self.build()?;
                    self.note_progress(at);
                    let (counts, history) = (self.counts, std::mem::take(&mut self.history));
                    return Ok(Ended { counts, end: reader.offset(), rest: reader.rest().to_vec(), history });
                }
                Ok(Step::NeedsMore) => {
                    match self.read(&mut portion, at)? {
                        0 => reader.end(),
                        count => {
                            reader.feed(&portion[..count]);
                            at += count as u64;
                        }
                    }
                    self.note_progress(at);
                    self.keep_below_limit()?;
                }
                Ok(Step::Item(Item::Piece(piece))) => self.take_piece(&piece)?,
                Ok(Step::Item(Item::Cold { key, form_number, reference, due_ms })) => {
                    self.take_cold(&key, (form_number, reference, due_ms))?;
                }
                Ok(Step::Item(Item::Bundle(bundle))) => self.take_bundle(&bundle)?,
                Ok(Step::Item(item)) => self.note(&item)?,
                Err(error) => {
                    let failure = self.texts.failure_of(&error);
                    // An error in the keys before it comes first.
                    self.build()?;
                    return Err(failure);
                }
            }
        }
    }

    fn read(&mut self, portion: &mut [u8], at: u64) -> Result<usize, LoadFailure> {
        let read = self.portions.read(portion);
        read.map_err(|why| LoadFailure(vec![self.portions.failure(at, &why)]))
    }

    /// Waits while memory is short: values leave memory as the file is read.
    fn keep_below_limit(&mut self) -> Result<(), LoadFailure> {
        if self.is_held || !room::is_short(self.store) {
            return Ok(());
        }
        self.build()?;
        room::await_sinker(self.store);
        Ok(())
    }

    fn note_progress(&self, at: u64) {
        let loading = &self.store.state.loading;
        loading.loaded_bytes.store(at, Relaxed);
        loading.keys_loaded.store(self.counts.loaded, Relaxed);
        loading.keys_expired.store(self.counts.expired, Relaxed);
    }

    /// Stores what was gathered.
    fn build(&mut self) -> Result<(), LoadFailure> {
        let Some(gathering) = &mut self.gathering else { return Ok(()) };
        self.held.release();
        gathering.build().map_err(|not| self.texts.failure_to_build(not))
    }

    fn take_piece(&mut self, piece: &Piece<'_>) -> Result<(), LoadFailure> {
        let db = Db(u16::try_from(piece.key.db).expect("the database was checked"));
        let loaded = match self.gather(db, piece)? {
            Some(loaded) => loaded,
            None => self.store_piece(db, piece)?,
        };
        let counter = match loaded {
            Loaded::Stored => &mut self.counts.loaded,
            Loaded::Expired => &mut self.counts.expired,
            Loaded::FieldsExpired => &mut self.counts.fields_expired,
        };
        *counter += u64::from(piece.is_last);
        if piece.is_last {
            self.delay();
        }
        Ok(())
    }

    /// Gathers a string. Returns `None` if the piece is to be stored at once.
    fn gather(&mut self, db: Db, piece: &Piece<'_>) -> Result<Option<Loaded>, LoadFailure> {
        let (Some(gathering), PieceValue::Text(text)) = (&mut self.gathering, piece.value) else {
            return Ok(None);
        };
        if let (Some(at), Some(from)) = (piece.key.expiry_ms, self.terms.keeps_from)
            && UnixMs(at) < from
        {
            return Ok(Some(Loaded::Expired));
        }
        if !Gathering::takes(piece.key.name.len(), text.len()) {
            return Ok(None);
        }
        // Others may wait for its partition, and this thread for them.
        self.held.release();
        gathering.add(db, &piece.key, text).map_err(|not| self.texts.failure_to_build(not))?;
        Ok(Some(Loaded::Stored))
    }

    fn store_piece(&mut self, db: Db, piece: &Piece<'_>) -> Result<Loaded, LoadFailure> {
        let key = self.store.keyspace.key(piece.key.name);
        self.held.acquire(Want::One(self.store.keyspace.partition_of(key.slot)));
        let conditions = Conditions { now: self.now, expiry_mode: ExpiryMode::Keep, no_touch: true };
        let mut effects = NoEffects;
        let looked_before = steps::looked();
        if !piece.is_first {
            self.bring_home(db, &key);
        }
        let mut txn = Txn::new(self.held, conditions, &mut effects);
        // With what cannot be read the load fails.
        txn.on_cold = OnCold::Read;
        let loaded = load_piece(&mut txn, db, piece, &self.terms);
        // No command waits for it: what it does in one hold has the bound of a piece.
        self.held.exempt(steps::looked().wrapping_sub(looked_before));
        self.pieces += 1;
        let is_collection = matches!(piece.value, PieceValue::Collection(_));
        if !self.is_held && (self.pieces >= PIECES_PER_HOLD || is_collection) {
            self.held.release();
            self.pieces = 0;
        }
        loaded.map_err(|error| self.texts.failure_to_store(db, piece.key.name, error))
    }

    /// Brings back what the key has of earlier pieces, if that has left memory since: a collection that is
    /// small so far does so as a whole.
    fn bring_home(&mut self, db: Db, key: &Key<'_>) {
        let Some(tier) = self.store.tier else { return };
        if let Whereabouts::Away(_) | Whereabouts::Frozen(..) = self.held.whereabouts(db, key, true) {
            let keys = vec![ColdKey::of(db, key.bytes, Need::All, true)];
            tier.fetch_held(self.held, &ColdKeys { keys }, true);
        }
    }

    /// `key-load-delay`, for tests.
    fn delay(&mut self) {
        let micros = self.store.config.load_delay_us();
        let every = if micros < 0 { micros.unsigned_abs() } else { 1 };
        if micros != 0 && self.counts.loaded.is_multiple_of(every) {
            if !self.is_held {
                self.held.release();
            }
            std::thread::sleep(std::time::Duration::from_micros(micros.max(1).unsigned_abs()));
        }
    }

    /// Notes an item that is not a value.
    fn note(&mut self, item: &Item<'_>) -> Result<(), LoadFailure> {
        match *item {
            Item::Aux { name, value } if name == SWAP_KEY_SECRET.as_bytes() => {
                self.key_secret = value.try_into().ok();
            }
            Item::Aux { name, value } => {
                self.history.note_aux(name, value);
                if self.history.id.is_some() && self.expired == Expired::Dropped {
                    // COMPAT(persistence): From an RDB file that names a replication history, keys whose time
                    // is over are loaded, not counted in `rdb_last_load_keys_expired`, and removed by the
                    // expiry cycle. Valkey removes and counts them while it loads, as DEBUG RELOAD does here
                    // without replicas and without an append-only file. Why: replicas that go on behind this
                    // data have them, and lose them by the log only.
                    self.terms.keeps_from = None;
                }
                self.texts.note_aux(name, value);
            }
            Item::Database(db) if db >= u64::from(self.store.config.databases()) => {
                return Err(LoadFailure(vec![format!(
                    "FATAL: Data file was created with a server configured to handle more than {} databases. Exiting",
                    self.store.config.databases()
                )]));
            }
            Item::Database(_) | Item::Sizes { .. } | Item::Piece(_) | Item::Cold { .. } | Item::Bundle(_) => {
            }
            Item::Function(code) => {
                let (libraries, functions) = (self.store.libraries, &mut self.functions);
                let added = libraries.add(code, self.merges, LoadTime::Unlimited, functions);
                added.map_err(|why| self.texts.failure_of_library(&why))?;
            }
            Item::Empty(key) => {
                self.counts.empty += 1;
                self.texts.note_empty(self.counts.empty, key.name);
            }
            Item::NoChecksum => log::notice("RDB file was saved with checksum disabled: no check performed."),
        }
        Ok(())
    }
}

impl History {
    fn note_aux(&mut self, name: &[u8], value: &[u8]) {
        match name.to_ascii_lowercase().as_slice() {
            b"repl-id" => self.id = Some(value.to_vec()),
            b"repl-offset" => self.offset = parse_i64(value),
            b"repl-stream-db" => self.db = parse_i64(value),
            _ => {}
        }
    }
}

//! Reading a file into the keyspace: at start on a thread of its own, and for DEBUG RELOAD under all locks.
//!
//! The file is read in portions; a large collection is stored in pieces. So loading takes the memory of what it
//! builds, and little beside it. Between some hundred keys the partition's lock is let go: INFO looks at partitions too.

use isotherm_codec::{FileTerms, LoadError, Loaded, load_piece};
use isotherm_disk::{File, Mode};
use isotherm_keyspace::{Conditions, Db, ExpiryMode, Held, NoEffects, Txn, Want};
use isotherm_persist::Limits;
use isotherm_persist::rdb::file::{FileCause, FileError, FileReader, Item, Options, Piece, PieceValue, Step};
use isotherm_persist::rdb::{RdbError, is_foreign};
use isotherm_stdx::{parse_i64, steps};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Store;
use crate::process::listeners::os_text;
use crate::process::log;
use crate::process::time::unix_now;

/// What names the format and its version.
const MAGIC_BYTES: usize = 9;
/// Read at once.
const PORTION_BYTES: usize = 128 << 10;
/// Keys, or pieces of keys, that are stored in one hold.
const PIECES_PER_HOLD: u32 = 100;
/// Skipped keys that are named in the log.
const EMPTY_NAMED_MAX: u64 = 10;

/// Why a file could not be loaded: lines for the log, the last of which says what follows from it.
pub struct LoadFailure(pub Vec<String>);

/// Why RESTORE has refused a payload.
pub fn log_refused_payload(why: &RdbError) {
    let why = FileCause::Value(why.clone());
    log::verbose(format!("Internal error in RDB reading offset 0, function at restore -> {why}"));
}

/// What was loaded.
#[derive(Default, Clone, Copy, Debug)]
pub struct Counts {
    pub loaded: u64,
    pub expired: u64,
    pub empty: u64,
    pub fields_expired: u64,
    /// Where the file ends; what lies behind is not read.
    pub end: u64,
}

/// Opens the file; `None` if there is none.
pub fn open(store: Store<'static>) -> Result<Option<Source>, LoadFailure> {
    open_at(store, store.file())
}

/// The same of any RDB file.
pub fn open_at(store: Store<'static>, path: PathBuf) -> Result<Option<Source>, LoadFailure> {
    let opened = store.state.disk.open(&path, Mode::Read).and_then(|file| Ok((file.len()?, file)));
    match opened {
        Ok((bytes, file)) => Ok(Some(Source { path, file, bytes })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LoadFailure(vec![format!(
            "Fatal error: can't open the RDB file {} for reading: {}",
            path.display(),
            os_text(&error)
        )])),
    }
}

/// A file that is to be loaded.
pub struct Source {
    path: PathBuf,
    file: Arc<dyn File>,
    bytes: u64,
}

impl Source {
    /// Whether a file begins like this: asked before data makes way for it.
    pub fn check_head(&self, strict_version: bool) -> Result<(), LoadFailure> {
        let mut head = [0; MAGIC_BYTES];
        let unread = |error| LoadFailure(vec![format!("{}: {}", self.path.display(), os_text(&error))]);
        let count = self.file.read_at(&mut head, 0).map_err(unread)?;
        let limits = Limits::default();
        let mut reader = FileReader::new(Options { limits, strict_version, checksum: false });
        reader.feed(&head[..count]);
        let refused =
            |error: FileError| LoadFailure(vec![format!("{} ({})", error.cause, self.path.display())]);
        reader.step().map(drop).map_err(refused)
    }
}

/// How it is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Alone, into an empty keyspace.
    AtStart,
    /// By a thread that holds everything and goes on doing so; keys that are there are replaced.
    Held,
}

/// Loads all of it. After a failure the keyspace holds a part.
pub fn load(
    store: Store<'static>,
    source: &Source,
    held: &mut Held<'static>,
    how: How,
    checks_sum: bool,
) -> Result<Counts, LoadFailure> {
    let loading = &store.state.loading;
    loading.started_seconds.store((unix_now().0 / 1000) as u64, Relaxed);
    loading.total_bytes.store(source.bytes, Relaxed);
    for counter in
        [&loading.loaded_bytes, &loading.used_memory_bytes, &loading.keys_loaded, &loading.keys_expired]
    {
        counter.store(0, Relaxed);
    }
    // A packed node may be longer than any string; what is too long for the keyspace is refused there. Memory is taken as the
    // bytes come.
    let limits = Limits { text_bytes_max: u64::from(u32::MAX), unfolded_bytes_max: u64::MAX };
    let reader = FileReader::new(Options {
        limits,
        strict_version: store.config.checks_rdb_version(),
        checksum: checks_sum && store.config.sums_rdb_files(),
    });
    let limits = store.config.collection_limits();
    let terms = FileTerms { limits: &limits, keeps_from: Some(unix_now()), replaces: how == How::Held };
    let mut load = Load { store, source, held, how, terms, counts: Counts::default(), pieces: 0 };
    let loaded = load.run(reader);
    let counts = load.counts;
    if how == How::AtStart {
        held.release();
    }
    loaded?;
    log_counts(&counts);
    Ok(counts)
}

fn log_counts(counts: &Counts) {
    let Counts { loaded, expired, empty, fields_expired, .. } = counts;
    let empty = if *empty > 0 { format!(" empty keys skipped: {empty},") } else { String::new() };
    log::notice(format!(
        "Done loading RDB, keys loaded: {loaded}, keys expired: {expired},{empty} all fields expired hashes: \
         {fields_expired}."
    ));
}

struct Load<'l> {
    store: Store<'static>,
    source: &'l Source,
    held: &'l mut Held<'static>,
    how: How,
    terms: FileTerms<'l>,
    counts: Counts,
    /// Since the lock was taken.
    pieces: u32,
}

impl Load<'_> {
    fn run(&mut self, mut reader: FileReader) -> Result<(), LoadFailure> {
        let mut portion = vec![0; PORTION_BYTES];
        let mut at = 0;
        loop {
            match reader.step() {
                Ok(Step::End) => {
                    self.note_progress(at);
                    self.counts.end = reader.offset();
                    return Ok(());
                }
                Ok(Step::NeedsMore) => {
                    let count = self.read(&mut portion, at)?;
                    match count {
                        0 => reader.end(),
                        count => reader.feed(&portion[..count]),
                    }
                    at += count as u64;
                    self.note_progress(at);
                }
                Ok(Step::Item(Item::Piece(piece))) => self.store_piece(&piece)?,
                Ok(Step::Item(item)) => self.note(&item)?,
                Err(error) => return Err(self.failure_of(&error)),
            }
        }
    }

    fn read(&self, portion: &mut [u8], at: u64) -> Result<usize, LoadFailure> {
        loop {
            match self.source.file.read_at(portion, at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let (path, why) = (self.source.path.display(), os_text(&error));
                    return Err(LoadFailure(vec![format!(
                        "Error reading the RDB file {path} at offset {at}: {why}"
                    )]));
                }
                Ok(count) => return Ok(count),
            }
        }
    }

    fn note_progress(&self, at: u64) {
        let loading = &self.store.state.loading;
        loading.loaded_bytes.store(at, Relaxed);
        loading.keys_loaded.store(self.counts.loaded, Relaxed);
        loading.keys_expired.store(self.counts.expired, Relaxed);
    }

    fn store_piece(&mut self, piece: &Piece<'_>) -> Result<(), LoadFailure> {
        let db = Db(u16::try_from(piece.key.db).expect("the database was checked"));
        let key = self.store.keyspace.key(piece.key.name);
        self.held.acquire(Want::One(self.store.keyspace.partition_of(key.slot)));
        let now = self.terms.keeps_from.expect("what has expired stays behind");
        let conditions = Conditions { now, expiry_mode: ExpiryMode::Keep, no_touch: true };
        let mut effects = NoEffects;
        let looked_before = steps::looked();
        let loaded = load_piece(&mut Txn::new(self.held, conditions, &mut effects), db, piece, &self.terms);
        // No command waits for it: what it does in one hold has the bound of a piece.
        self.held.exempt(steps::looked().wrapping_sub(looked_before));
        self.pieces += 1;
        let is_collection = matches!(piece.value, PieceValue::Collection(_));
        if self.how == How::AtStart && (self.pieces >= PIECES_PER_HOLD || is_collection) {
            self.held.release();
            self.pieces = 0;
        }
        let counter = match loaded {
            Ok(Loaded::Stored) => &mut self.counts.loaded,
            Ok(Loaded::Expired) => &mut self.counts.expired,
            Ok(Loaded::FieldsExpired) => &mut self.counts.fields_expired,
            Err(error) => return Err(self.failure_to_store(piece, error)),
        };
        *counter += u64::from(piece.is_last);
        if piece.is_last {
            self.delay();
        }
        Ok(())
    }

    /// `key-load-delay`, for tests.
    fn delay(&mut self) {
        let micros = self.store.config.load_delay_us();
        let every = if micros < 0 { micros.unsigned_abs() } else { 1 };
        if micros != 0 && self.counts.loaded.is_multiple_of(every) {
            if self.how == How::AtStart {
                self.held.release();
            }
            std::thread::sleep(std::time::Duration::from_micros(micros.max(1).unsigned_abs()));
        }
    }

    /// What is beside the values.
    fn note(&mut self, item: &Item<'_>) -> Result<(), LoadFailure> {
        match *item {
            Item::Aux { name, value } => self.note_aux(name, value),
            Item::Database(db) if db >= u64::from(self.store.config.databases()) => {
                return Err(LoadFailure(vec![format!(
                    "FATAL: Data file was created with a server configured to handle more than {} databases. Exiting",
                    self.store.config.databases()
                )]));
            }
            Item::Database(_) | Item::Sizes { .. } | Item::Piece(_) => {}
            // COMPAT(persistence): Libraries of functions in an RDB file are skipped with a warning, and are not in the
            // files that are written. Why: there are no functions yet.
            Item::Function(code) => {
                let first = code.split(|&byte| byte == b'\n').next().unwrap_or_default();
                log::warning(format!(
                    "Skipping a library of functions in the RDB file: {}",
                    first.escape_ascii()
                ));
            }
            Item::Empty(key) => {
                self.counts.empty += 1;
                if self.counts.empty <= EMPTY_NAMED_MAX {
                    let name = self.name_of(key.name);
                    log::notice(format!(
                        "rdbLoadObject skipping empty key{}",
                        name.map_or(String::new(), |name| format!(": {name}"))
                    ));
                }
            }
            Item::NoChecksum => log::notice("RDB file was saved with checksum disabled: no check performed."),
        }
        Ok(())
    }

    fn note_aux(&self, name: &[u8], value: &[u8]) {
        let shown = value.escape_ascii();
        match name.to_ascii_lowercase().as_slice() {
            b"redis-ver" => log::notice(format!("Loading RDB produced by Redis version {shown}")),
            b"valkey-ver" => log::notice(format!("Loading RDB produced by Valkey version {shown}")),
            b"ctime" => {
                let created = parse_i64(value).unwrap_or_default();
                let age = (unix_now().0 / 1000).saturating_sub(created).max(0);
                log::notice(format!("RDB age {age} seconds"));
            }
            b"used-mem" => {
                let bytes = parse_i64(value).and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default();
                self.store.state.loading.used_memory_bytes.store(bytes, Relaxed);
                log::notice(format!(
                    "RDB memory usage when created {:.2} Mb",
                    bytes as f64 / (1 << 20) as f64
                ));
            }
            b"aof-base" if value == b"1" => log::notice("RDB is base AOF"),
            b"aof-preamble" if value == b"1" => log::notice("RDB has an AOF tail"),
            _ if name.starts_with(b"%") => log::notice(format!("RDB '{}': {shown}", name.escape_ascii())),
            _ => {}
        }
    }

    // ---- failures ----

    /// A key's name, unless it is to stay out of the log.
    fn name_of(&self, name: &[u8]) -> Option<String> {
        (!self.store.config.hides_user_data()).then(|| name.escape_ascii().to_string())
    }

    fn of_key(&self, db: u64, name: Option<&[u8]>) -> String {
        match name.map(|name| self.name_of(name)) {
            Some(Some(name)) => format!(", key '{name}' in DB {db}"),
            Some(None) => format!(", a key in DB {db}"),
            None => String::new(),
        }
    }

    fn failure_of(&self, error: &FileError) -> LoadFailure {
        let path = self.source.path.display();
        if let FileCause::Signature(_) | FileCause::Version(_) | FileCause::Envelope = error.cause {
            return LoadFailure(vec![format!("{} ({path})", error.cause)]);
        }
        let FileError { offset, cause, .. } = error;
        let mut lines = Vec::new();
        match cause {
            FileCause::Value(RdbError::Short) => {
                lines.push("Short read or OOM loading DB. Unrecoverable error, aborting now.".to_string());
            }
            FileCause::Checksum { .. } => lines.push(format!("RDB CRC error: {cause}")),
            _ => {}
        }
        let of_key = self.of_key(error.db, error.key.as_deref());
        lines.push(format!("Internal error in RDB reading offset {offset}, file {path}{of_key} -> {cause}"));
        if let FileCause::UnreadType { name: None, version, .. } = cause
            && (version.is_valkey || !is_foreign(version.number))
        {
            let line = "Unknown type or opcode when loading DB. Unrecoverable error, aborting now.";
            lines.push(line.to_string());
        }
        if let FileCause::Value(RdbError::Corrupt(_)) = cause {
            // As `check-rdb` shows it, which Valkey runs here.
            lines.push(format!("[offset {offset}] {cause}"));
            lines.push("Terminating server after rdb file reading failure.".to_string());
        }
        LoadFailure(lines)
    }

    fn failure_to_store(&self, piece: &Piece<'_>, error: LoadError) -> LoadFailure {
        let (path, db) = (self.source.path.display(), piece.key.db);
        let key = self.of_key(db, Some(piece.key.name));
        let what = match error {
            LoadError::RepeatedKey => match self.name_of(piece.key.name) {
                Some(name) => format!("RDB has duplicated key '{name}' in DB {db}"),
                None => format!("RDB has duplicated key in DB {db}"),
            },
            LoadError::RepeatedElement => format!("RDB has a duplicated element{key}"),
            LoadError::Full => {
                let loading = &self.store.state.loading;
                format!(
                    "Out of memory loading DB{key}: {} of {} bytes of the file are loaded",
                    loading.loaded_bytes.load(Relaxed),
                    loading.total_bytes.load(Relaxed)
                )
            }
        };
        LoadFailure(vec![format!("{what} ({path})")])
    }
}

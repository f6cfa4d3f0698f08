//! Writing a file: the cut, the walk in steps, the bytes to disk.
//!
//! A step encodes some hundred items into memory under one partition's lock; what it made is written when the
//! lock is gone. The file begins as version 11, which every Valkey and Redis 7.2 read. Whether a hash has a
//! field with a TTL is known only after the last key: then the file's first nine bytes are written again, and
//! the sum is corrected for them.

use isotherm_codec::{CommandWriter, ItemWriter};
use isotherm_disk::{File, Mode, WriteError, write_all_at};
use isotherm_keyspace::{Conditions, Db, ExpiryMode, Held, NoEffects, Snapshot, SnapshotItem, Txn};
use isotherm_persist::rdb::Writer;
use isotherm_persist::rdb::file::Replication as FilePlace;
use isotherm_persist::rdb::file::{self, FileHead, FileVersion, LogMark};
use isotherm_replication::feed::Filter;
use isotherm_stdx::crc64::crc64;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Instant;

use super::away::{self, Reading};
use super::delay::delay;
use super::items::Items;
use isotherm_config::{Id, id};
use isotherm_node::observe::latency::monitor::Event;
use isotherm_node::persistence::Store;
use isotherm_node::persistence::state::Persistence;
use isotherm_node::replication::state::Place;
use isotherm_node::scripting::libraries::Catalog;
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::time::unix_now;

/// Items of one step: some 20 us of small keys.
const STEP_ITEMS: u64 = 500;
/// Bytes that are gathered for one write.
const WRITE_BYTES: usize = 256 << 10;
/// With `rdb-save-incremental-fsync`: written bytes reach the disk in such portions, instead of all at the
/// end.
const SYNC_BYTES: u64 = 16 << 20;

/// The state at one moment, which is still to be walked.
pub struct Cut {
    snapshot: Snapshot<'static>,
    /// Keys of each database, and how many of them expire.
    sizes: Vec<(u64, u64)>,
    libraries: Arc<Catalog>,
    /// Keys lie outside memory with their values.
    has_bundles: bool,
    /// `Values::dirty` at this moment.
    pub changes: u64,
    used_memory_bytes: u64,
    /// Unix time of the cut.
    seconds: i64,
    log: Option<LogMark>,
    /// Place of the log at the cut, if it is a log that replicas may follow.
    pub place: Option<Place>,
}

/// Takes the cut. Everything is held afterwards. `None` if another snapshot is under way.
pub fn cut(store: Store<'static>, held: &mut Held<'static>, used_memory_bytes: u64) -> Option<Cut> {
    // The time that the locks were waited for is in it too: some were held already.
    let from = Instant::now();
    let snapshot = Snapshot::begin_in(held)?;
    store.keyspace.limit_kept(store.config.snapshot_memory_bytes(used_memory_bytes));
    let conditions = Conditions { now: unix_now(), expiry_mode: ExpiryMode::Keep, no_touch: true };
    let mut effects = NoEffects;
    let mut txn = Txn::new(held, conditions, &mut effects);
    let sizes: Vec<(u64, u64)> =
        (0..txn.databases()).map(|db| (txn.len(Db(db)), txn.volatile_len(Db(db)))).collect();
    let has_bundles = held.has_frozen();
    let changes = store.stats.changes();
    store.state.progress.keys_total.store(keys_of(&sizes), Relaxed);
    let took = from.elapsed();
    store.spikes.note(Event::Fork, took);
    let (seconds, log) = store.state.saving().note_cut(took);
    let libraries = store.libraries.catalog();
    let place = store.replication.place(store.log);
    Some(Cut { snapshot, sizes, libraries, has_bundles, changes, used_memory_bytes, seconds, log, place })
}

impl Cut {
    /// Ends it, for a thread that holds partitions: to drop it would wait for itself.
    pub fn abort_in(self, held: &mut Held<'static>) {
        self.snapshot.abort_in(held);
    }
}

fn keys_of(sizes: &[(u64, u64)]) -> u64 {
    sizes.iter().map(|(keys, _)| keys).sum()
}

/// Why there is no new file.
#[derive(Debug)]
pub enum SaveError {
    Cancelled,
    /// The log says what has failed.
    Failed,
}

/// Walks the rest of a cut: by steps of its own, or under what is held (DEBUG RELOAD).
type Step<'s> = dyn FnMut(&mut Snapshot<'static>, u64, &mut dyn FnMut(SnapshotItem<'_>)) -> bool + 's;

/// Format of a written file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Rdb,
    /// RDB, as the base of an append-only file.
    AofBase,
    /// A base as commands (`aof-use-rdb-preamble no`).
    Commands,
}

/// Paths and purpose of a file that is written.
#[derive(Clone)]
pub struct Target {
    /// Written first, then renamed to `path`; both are in `folder`.
    pub temporary: PathBuf,
    pub path: PathBuf,
    pub folder: PathBuf,
    pub format: Format,
    /// Written bytes reach the disk in portions, instead of all at the end.
    pub syncs: bool,
    /// Description of the swap log, for a base that refers to values in it.
    pub swap_log: Option<Vec<u8>>,
}

impl Target {
    /// The file that `dbfilename` names.
    pub fn db_file(store: Store<'_>) -> Target {
        let folder = store.folder();
        let temporary = folder.join(format!("temp-{}.rdb", std::process::id()));
        let syncs = store.config.syncs_while_saving();
        Target { temporary, path: store.file(), folder, format: Format::Rdb, syncs, swap_log: None }
    }
}

/// Writes the file, in steps under locks of its own.
pub fn write(store: Store<'static>, cut: Cut) -> Result<(), SaveError> {
    let target = Target::db_file(store);
    let mut writing = Writing::new(store, cut, target);
    writing.all_by(&mut |snapshot, items, visit| snapshot.step(items, visit)).map(drop)
}

/// Writes the file for a thread that holds everything.
pub fn write_held(store: Store<'static>, cut: Cut, held: &mut Held<'static>) -> Result<(), SaveError> {
    let mut writing = Writing::new(store, cut, Target::db_file(store));
    let written = writing.all_by(&mut |snapshot, items, visit| snapshot.step_in(held, items, visit));
    if let Some(snapshot) = writing.left.take() {
        snapshot.abort_in(held);
    }
    written.map(drop)
}

/// A file on its way, from the cut to its name.
pub struct Writing {
    store: Store<'static>,
    target: Target,
    stage: Stage,
    /// Snapshot of a file that failed; it is not over yet.
    left: Option<Snapshot<'static>>,
}

enum Stage {
    Begin(Cut),
    Walk(Output, Snapshot<'static>, Items),
    End(Output, Items),
    /// File that has this many bytes, and no name yet.
    Move(u64),
    Over,
}

impl Writing {
    pub fn new(store: Store<'static>, cut: Cut, target: Target) -> Writing {
        Writing { store, target, stage: Stage::Begin(cut), left: None }
    }

    /// Ends one that has made no step, for a thread that holds partitions.
    pub fn abort_in(self, held: &mut Held<'static>) {
        if let Stage::Begin(cut) = self.stage {
            cut.abort_in(held);
        }
    }

    /// All of it. The file's bytes.
    fn all_by(&mut self, step: &mut Step<'_>) -> Result<u64, SaveError> {
        loop {
            if let Some(bytes) = self.step_by(step)? {
                return Ok(bytes);
            }
        }
    }

    /// The next part of it, under locks of its own. The file's bytes when it is complete and has its name.
    pub fn step(&mut self) -> Result<Option<u64>, SaveError> {
        let stepped = self.step_by(&mut |snapshot, items, visit| snapshot.step(items, visit));
        // Nothing is held here: it ends where it is dropped.
        self.left = None;
        stepped
    }

    /// After a failure the temporary file is gone, and the cut is to be ended (`left`).
    fn step_by(&mut self, step: &mut Step<'_>) -> Result<Option<u64>, SaveError> {
        let is_beginning = matches!(self.stage, Stage::Begin(_));
        let stepped = self.try_step(step);
        if stepped.is_err() && !is_beginning {
            // Left behind it would only take room; that it cannot be removed changes nothing.
            let (disk, temporary) = (&self.store.state.disk, &self.target.temporary);
            let _ = self.store.spikes.time(Event::RdbUnlinkTempFile, || disk.remove(temporary));
        }
        if !matches!(stepped, Ok(None)) {
            self.stage = Stage::Over;
            let_writers_go_on(self.store);
        }
        if let (Ok(Some(_)), Format::Rdb) = (&stepped, self.target.format) {
            log::notice("DB saved on disk");
        }
        stepped
    }

    fn try_step(&mut self, step: &mut Step<'_>) -> Result<Option<u64>, SaveError> {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Begin(cut) => {
                let file = match create(self.store, &self.target) {
                    Ok(file) => file,
                    Err(error) => {
                        self.left = Some(cut.snapshot);
                        return Err(error);
                    }
                };
                let output = Output::new(self.store, file, &self.target);
                let (snapshot, items) = output.items(cut, self.target.swap_log.as_deref());
                Stage::Walk(output, snapshot, items)
            }
            Stage::Walk(mut output, mut snapshot, mut items) => {
                match output.walk(&mut snapshot, &mut items, step) {
                    Ok(true) => Stage::Walk(output, snapshot, items),
                    Ok(false) => Stage::End(output, items),
                    Err(error) => {
                        self.left = Some(snapshot);
                        return Err(error);
                    }
                }
            }
            Stage::End(output, items) => Stage::Move(output.end(items)?),
            Stage::Move(_) if self.store.state.is_cancelled.load(Relaxed) => {
                return Err(SaveError::Cancelled);
            }
            Stage::Move(bytes) => {
                move_into_place(self.store.state, &self.target)?;
                return Ok(Some(bytes));
            }
            Stage::Over => unreachable!("a file is written once"),
        };
        Ok(None)
    }
}

fn create(store: Store<'_>, target: &Target) -> Result<Arc<dyn File>, SaveError> {
    store.state.disk.open(&target.temporary, Mode::Truncate).map_err(|error| {
        log::warning(format!(
            "Failed opening the temp RDB file {} (in server root dir {}) for saving: {}",
            target.temporary.file_name().unwrap_or_default().display(),
            target.folder.display(),
            os_text(&error)
        ));
        SaveError::Failed
    })
}

/// Commands that write may run again, if they waited for the snapshot and what it keeps has become less.
pub fn let_writers_go_on(store: Store<'_>) {
    if store.mail.is_snapshot_full() && !store.keyspace.is_kept_full() {
        store.mail.set_snapshot_full(false);
    }
}

fn move_into_place(state: &Persistence, target: &Target) -> Result<(), SaveError> {
    let Target { temporary, path, folder, format, .. } = target;
    let disk = &*state.disk;
    // Before the rename: one that finds the old count has seen the old file.
    let replaced = u64::from(*format == Format::Rdb);
    state.replaced.fetch_add(replaced, SeqCst);
    disk.rename(temporary, path).map_err(|error| {
        state.replaced.fetch_sub(replaced, SeqCst);
        log::warning(format!(
            "Error moving temp DB file {} on the final destination {} (in server root dir {}): {}",
            temporary.file_name().unwrap_or_default().display(),
            path.file_name().unwrap_or_default().display(),
            folder.display(),
            os_text(&error)
        ));
        SaveError::Failed
    })?;
    disk.sync_dir(folder).map_err(|error| {
        log::warning(format!("Failed to fsync directory while saving DB: {}", os_text(&error)));
        SaveError::Failed
    })
}

/// A step of the walk, in memory. Whether there is more, and how many keys it met.
fn walk(
    store: Store<'static>,
    snapshot: &mut Snapshot<'static>,
    (items, reading): (&mut Items, &mut Reading),
    step: &mut Step<'_>,
) -> Result<(bool, u64), SaveError> {
    let progress = &store.state.progress;
    let mut keys = 0;
    let mut unreadable = None;
    let more = step(snapshot, STEP_ITEMS, &mut |item| {
        if unreadable.is_some() {
            return;
        }
        keys += match &item {
            SnapshotItem::Entry(_) | SnapshotItem::End => 1,
            SnapshotItem::Bundle(bundle) => bundle.keys(),
            SnapshotItem::Begin { .. } | SnapshotItem::Part(_) | SnapshotItem::Node(_) => 0,
        };
        reading.note(&item);
        if items.refers() && !matches!(item, SnapshotItem::Node(_)) {
            items.item(item);
        } else if let Err(error) = away::with_value(store, reading, item, |item| items.item(item)) {
            unreadable = Some((reading.owner_of(store, &item), error));
        }
    });
    if store.state.is_cancelled.load(Relaxed) {
        return Err(SaveError::Cancelled);
    }
    // A file without a key that is there would be taken for all that there is.
    if let Some((owner, error)) = unreadable {
        log::warning(format!("A value on disk that belongs into the file cannot be read ({error}): {owner}"));
        return Err(SaveError::Failed);
    }
    progress.keys.fetch_add(keys, Relaxed);
    progress.steps.fetch_add(1, Relaxed);
    let_writers_go_on(store);
    Ok((more, keys))
}

/// An RDB file that is begun.
fn rdb(
    store: Store<'static>,
    cut: Cut,
    version: FileVersion,
    is_aof_base: bool,
    swap_log: Option<&[u8]>,
) -> (Snapshot<'static>, Items) {
    let Cut { snapshot, sizes, libraries, used_memory_bytes, seconds, log, place, .. } = cut;
    let functions: Vec<&[u8]> = libraries.libraries().map(|library| &library.text[..]).collect();
    let mut writer = Writer::new(store.config.compresses_rdb_files());
    let id = place.map(|place| place.id.to_string());
    let place = place.zip(id.as_deref());
    let head = FileHead {
        version,
        valkey_version: store.valkey_version,
        created_seconds: seconds,
        used_memory_bytes,
        replication: place.map(|(place, id)| FilePlace {
            id,
            offset: place.offset.0 as i64,
            db: i64::from(place.db),
        }),
        log: log.filter(|_| !is_aof_base),
        is_aof_base,
        swap_log,
        key_secret: version.has_bundles().then_some(store.keyspace.config().hash_secret),
        functions: &functions,
    };
    file::head(&mut writer, &head);
    let mut items = ItemWriter::new(writer, store.config.collection_limits().list_max_listpack_size);
    items.announce(sizes);
    items.note_use(unix_now());
    if swap_log.is_some() {
        items.refer();
    }
    (snapshot, Items::Rdb(Box::new(items)))
}

/// An RDB file on its way to a place that takes bytes in order only. So its version is decided beforehand:
/// 80, or 11, which has no place for fields with a TTL.
pub struct Streaming {
    store: Store<'static>,
    is_80: bool,
    sum: Option<u64>,
    /// Without a snapshot nothing is walked: the file says only where the log stands.
    snapshot: Option<Snapshot<'static>>,
    items: Option<Items>,
    reading: Reading,
}

/// Takes bytes, and empties what they lie in.
pub type Put<'p> = dyn FnMut(&mut Vec<u8>) -> Result<(), SaveError> + 'p;

impl Streaming {
    pub fn new(store: Store<'static>, mut cut: Cut, is_80: bool, filter: Filter) -> Streaming {
        if filter.without_functions {
            cut.libraries = Arc::default();
        }
        let version = if is_80 { FileVersion::FIELD_EXPIRY } else { FileVersion::PLAIN };
        let (snapshot, items) = rdb(store, cut, version, false, None);
        let sum = store.config.sums_rdb_files().then_some(0);
        Streaming {
            store,
            is_80,
            sum,
            snapshot: Some(snapshot).filter(|_| !filter.without_data),
            items: Some(items),
            reading: Reading::of_walk(store),
        }
    }

    /// The next part of it. Whether there is more.
    pub fn step(&mut self, put: &mut Put<'_>) -> Result<bool, SaveError> {
        let stepped = self.try_step(put);
        if !matches!(stepped, Ok(true)) {
            self.snapshot = None;
            let_writers_go_on(self.store);
        }
        stepped
    }

    fn try_step(&mut self, put: &mut Put<'_>) -> Result<bool, SaveError> {
        let mut items = self.items.take().expect("a file is written once");
        let Some(snapshot) = &mut self.snapshot else {
            self.check(&items)?;
            let Items::Rdb(items) = items else { unreachable!("it was made so") };
            self.put(&mut items.finish(), put)?;
            put(&mut file::end(self.sum.unwrap_or(0)).to_vec())?;
            return Ok(false);
        };
        let mut step =
            |snapshot: &mut Snapshot<'static>, count: u64, visit: &mut dyn FnMut(SnapshotItem<'_>)| {
                snapshot.step(count, visit)
            };
        let (more, keys) = walk(self.store, snapshot, (&mut items, &mut self.reading), &mut step)?;
        if !more {
            self.snapshot = None;
        }
        self.check(&items)?;
        if items.sink_mut().len() >= WRITE_BYTES {
            self.put(items.sink_mut(), put)?;
        }
        self.items = Some(items);
        delay(self.store, keys);
        Ok(true)
    }

    fn check(&self, items: &Items) -> Result<(), SaveError> {
        if let Some((db, key)) = items.field_expiry()
            && !self.is_80
        {
            let name = match self.store.config.hides_user_data() {
                true => String::new(),
                false => format!("'{}' ", key.escape_ascii()),
            };
            log::warning(format!("Can't store key {name}(db {}) in RDB version 11", db.0));
            return Err(SaveError::Failed);
        }
        Ok(())
    }

    fn put(&mut self, bytes: &mut Vec<u8>, put: &mut Put<'_>) -> Result<(), SaveError> {
        if let Some(sum) = &mut self.sum {
            *sum = crc64(*sum, bytes);
        }
        put(bytes)
    }
}

/// The file on its way.
struct Output {
    store: Store<'static>,
    file: Arc<dyn File>,
    at: u64,
    synced: u64,
    sum: u64,
    sums: bool,
    syncs: bool,
    format: Format,
    refers: bool,
    reading: Reading,
}

impl Output {
    fn new(store: Store<'static>, file: Arc<dyn File>, target: &Target) -> Output {
        let sums = store.config.sums_rdb_files();
        let Target { syncs, format, .. } = *target;
        let refers = target.swap_log.is_some();
        let reading = Reading::of_walk(store);
        Output { store, file, at: 0, synced: 0, sum: 0, sums, syncs, format, refers, reading }
    }

    fn items(&self, cut: Cut, swap_log: Option<&[u8]>) -> (Snapshot<'static>, Items) {
        match self.format {
            Format::Commands => {
                let items = Items::Commands(self.commands(&cut.libraries));
                (cut.snapshot, items)
            }
            Format::Rdb | Format::AofBase => {
                let version = match (self.refers, cut.has_bundles) {
                    (false, _) => FileVersion::PLAIN,
                    (true, false) => FileVersion::REFERRING,
                    (true, true) => FileVersion::REFERRING_TO_BUNDLES,
                };
                rdb(self.store, cut, version, self.format == Format::AofBase, swap_log)
            }
        }
    }

    /// A step of the walk. Whether there is more.
    fn walk(
        &mut self,
        snapshot: &mut Snapshot<'static>,
        items: &mut Items,
        step: &mut Step<'_>,
    ) -> Result<bool, SaveError> {
        let (more, keys) = walk(self.store, snapshot, (items, &mut self.reading), step)?;
        if items.sink_mut().len() >= WRITE_BYTES {
            self.put(items.sink_mut())?;
        }
        if more {
            delay(self.store, keys);
        }
        Ok(more)
    }

    /// Ends the file after the last item. Returns its bytes, which are durable.
    fn end(mut self, items: Items) -> Result<u64, SaveError> {
        match items {
            Items::Rdb(items) => {
                // One that refers has a version of its own, which knows all.
                let has_field_expiry = !self.refers && items.field_expiry().is_some();
                self.put(&mut items.finish())?;
                self.end_rdb(has_field_expiry)
            }
            Items::Commands(mut items) => {
                self.put(items.sink_mut())?;
                self.file.sync_all().map_err(|error| failed("fsync", &error))?;
                Ok(self.at)
            }
        }
    }

    /// A file of commands that is begun; with `aof-timestamp-enabled` it says when.
    fn commands(&self, libraries: &Catalog) -> CommandWriter {
        const HAS_TIMESTAMPS: Id = id("aof-timestamp-enabled");
        let mut writer = CommandWriter::default();
        if self.store.config.flag(HAS_TIMESTAMPS) {
            let line = format!("#TS:{}\r\n", unix_now().0 / 1000);
            writer.sink_mut().extend_from_slice(line.as_bytes());
        }
        libraries.libraries().for_each(|library| writer.function(&library.text));
        writer
    }

    /// Writes what was gathered, and empties it.
    fn put(&mut self, bytes: &mut Vec<u8>) -> Result<(), SaveError> {
        if self.sums {
            self.sum = crc64(self.sum, bytes);
        }
        self.put_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        self.store.state.progress.bytes.store(self.at, Relaxed);
        bytes.clear();
        // One long string is no reason to keep as much.
        bytes.shrink_to(4 * WRITE_BYTES);
        if self.syncs && self.at - self.synced >= SYNC_BYTES {
            self.file.sync_data().map_err(|error| failed("fsync", &error))?;
            self.synced = self.at;
        }
        Ok(())
    }

    fn put_at(&self, bytes: &[u8], at: u64) -> Result<(), SaveError> {
        write_all_at(&*self.file, bytes, at).map_err(|WriteError { error, .. }| failed("rdbSaveRio", &error))
    }

    /// Writes the sum after the end mark, and the magic if it has to be another one.
    fn end_rdb(mut self, has_field_expiry: bool) -> Result<u64, SaveError> {
        if has_field_expiry {
            let (before, after) = (FileVersion::PLAIN, FileVersion::FIELD_EXPIRY);
            if self.sums {
                self.sum = file::sum_with_magic(self.sum, self.at, before, after);
            }
            self.put_at(&after.magic(), 0)?;
        }
        let end = file::end(self.sum);
        self.put_at(&end, self.at)?;
        self.file.sync_all().map_err(|error| failed("fsync", &error))?;
        Ok(self.at + end.len() as u64)
    }
}

fn failed(operation: &str, error: &io::Error) -> SaveError {
    log::warning(format!("Write error while saving DB to the disk({operation}): {}", os_text(error)));
    SaveError::Failed
}

//! Short strings are gathered by slot while they come, and their pages built at the end.
//!
//! ```text
//!   reader --> batch of some hundred keys --> helper: gathers by slot  |  all are through:
//!                                         \-> helper                   |  each takes slots, and builds their pages
//! ```
//! With one worker, and for a small file, the reader does it all. The gathered strings take about the memory
//! of the pages that are made of them. They go as the pages come, and their memory is given back to the
//! system: freed memory that the allocator keeps would count twice.

use isotherm_keyspace::{
    AccessNote, BuildError, Builder, Db, NewString, Repeats, STAGED_GROUPS, StagedGroup, Staging, UnixMs,
};
use isotherm_persist::rdb::file::Key;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder as Threads, JoinHandle};

use isotherm_node::persistence::Store;
use isotherm_runtime::routines;

/// Size of a full batch. It has seven keys of each group, of 32 B each, and stays in the cache from the
/// reader to the helper.
const BATCH_BYTES: usize = 256 << 10;
/// Size of a full batch in a simulation, whose files are small, and are to have several batches.
const SIMULATED_BATCH_BYTES: usize = 64;
/// Batches that wait at most.
const BATCHES_MAX: usize = 8;
/// The reader keeps no more of them busy.
const HELPERS_MAX: usize = 2;
/// Freed memory is given back once it is this much.
const RETURNED_BYTES_MIN: u64 = 16 << 20;

/// A key that could not be stored.
pub struct NotStored {
    pub db: Db,
    pub error: BuildError,
}

/// Keys in the order of the file.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    keys: Vec<BatchKey>,
}

struct BatchKey {
    /// Offset in the bytes at which its name begins; the text follows the name.
    at: u32,
    key_bytes: u8,
    text_bytes: u8,
    expiry: Option<UnixMs>,
    note: Option<AccessNote>,
}

pub struct Gathering {
    store: Store<'static>,
    now: UnixMs,
    db: Db,
    batch: Batch,
    /// Keys that the reader has gathered itself.
    own: Option<Gatherer>,
    helpers: Option<Helpers>,
}

impl Gathering {
    pub fn new(store: Store<'static>, now: UnixMs) -> Gathering {
        Gathering { store, now, db: Db(0), batch: Batch::default(), own: None, helpers: None }
    }

    /// Returns whether a string of this size is for `add`.
    pub fn takes(key_bytes: usize, text_bytes: usize) -> bool {
        Staging::takes(key_bytes, text_bytes)
    }

    /// No partition may be held.
    pub fn add(&mut self, db: Db, key: &Key<'_>, text: &[u8]) -> Result<(), NotStored> {
        if self.db != db {
            self.build()?;
            self.db = db;
        }
        self.batch.push(key, text);
        let full_bytes = if routines::is_simulated() { SIMULATED_BATCH_BYTES } else { BATCH_BYTES };
        if self.batch.bytes.len() >= full_bytes { self.hand_on() } else { Ok(()) }
    }

    fn hand_on(&mut self) -> Result<(), NotStored> {
        let workers = self.store.config.workers();
        if self.helpers.is_none() && workers > 1 {
            // Without threads the reader does it.
            self.helpers = Helpers::start(self.store, self.db, self.now, (workers - 1).min(HELPERS_MAX));
        }
        let Some(helpers) = &self.helpers else { return self.gather() };
        let next = helpers.free.lock().expect("a panic ends the process").pop().unwrap_or_default();
        let full = std::mem::replace(&mut self.batch, next);
        // One that has failed takes no more, and says why at the end.
        if helpers.batches.send(full).is_err() || helpers.has_failed.load(Relaxed) {
            self.build()
        } else {
            Ok(())
        }
    }

    /// The reader gathers its batch itself.
    fn gather(&mut self) -> Result<(), NotStored> {
        let Gathering { store, now, db, batch, own, .. } = self;
        let own = own.get_or_insert_with(|| Gatherer::new(*store, *db, *now));
        let gathered = own.gather(batch);
        batch.clear();
        gathered.map_err(|error| NotStored { db: *db, error })
    }

    /// Builds all that was gathered. No partition may be held.
    pub fn build(&mut self) -> Result<(), NotStored> {
        self.gather()?;
        let mut gathered: Vec<Staging> = self.own.take().map(|own| own.staging).into_iter().collect();
        let threads = self.helpers.as_ref().map_or(1, |_| self.store.config.workers());
        if let Some(helpers) = self.helpers.take() {
            let db = self.db;
            gathered.extend(helpers.end().map_err(|error| NotStored { db, error })?);
        }
        let build = Build::new(self.store, self.now, gathered, threads);
        build.run_with(threads).map_err(|error| NotStored { db: self.db, error })
    }
}

impl Batch {
    fn push(&mut self, key: &Key<'_>, text: &[u8]) {
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key.name);
        self.bytes.extend_from_slice(text);
        self.keys.push(BatchKey {
            at,
            key_bytes: key.name.len() as u8,
            text_bytes: text.len() as u8,
            expiry: key.expiry_ms.map(UnixMs),
            note: access_note(key),
        });
    }

    fn string(&self, number: usize) -> NewString<'_> {
        let BatchKey { at, key_bytes, text_bytes, expiry, note } = self.keys[number];
        let (key, behind) = self.bytes[at as usize..].split_at(usize::from(key_bytes));
        NewString { key, text: &behind[..usize::from(text_bytes)], expiry, note }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.keys.clear();
    }
}

/// Returns the use of a key, as the file has it.
fn access_note(key: &Key<'_>) -> Option<AccessNote> {
    match (key.frequency, key.idle_seconds) {
        (Some(frequency), _) => Some(AccessNote::Frequency(frequency)),
        (None, Some(seconds)) => Some(AccessNote::IdleSeconds(seconds)),
        (None, None) => None,
    }
}

/// Keys that one thread gathers.
struct Gatherer {
    store: Store<'static>,
    now: UnixMs,
    staging: Staging,
    builder: Builder,
}

impl Gatherer {
    fn new(store: Store<'static>, db: Db, now: UnixMs) -> Gatherer {
        let staging = Staging::new(store.keyspace, db, now, Repeats::Refused);
        Gatherer { store, now, staging, builder: Builder::default() }
    }

    fn gather(&mut self, batch: &Batch) -> Result<(), BuildError> {
        let string = |number: usize| batch.string(number);
        for &number in &self.staging.add(batch.keys.len(), string).to_vec() {
            let group = self.staging.take(number);
            self.store.keyspace.build(&group, &mut self.builder, self.now)?;
        }
        Ok(())
    }
}

/// Threads that gather what the reader hands on.
struct Helpers {
    batches: SyncSender<Batch>,
    free: Arc<Mutex<Vec<Batch>>>,
    has_failed: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Staging, BuildError>>>,
}

impl Helpers {
    /// Starts the helpers. Returns `None` if the system gives no thread.
    fn start(store: Store<'static>, db: Db, now: UnixMs, count: usize) -> Option<Helpers> {
        let (batches, waiting) = sync_channel(BATCHES_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        let (free, has_failed) = (Arc::default(), Arc::<AtomicBool>::default());
        let threads = (0..count).map_while(|_| {
            let (waiting, free, failed) = (Arc::clone(&waiting), Arc::clone(&free), Arc::clone(&has_failed));
            let mut gatherer = Gatherer::new(store, db, now);
            let run = move || {
                let gathered = gatherer.gather_all(&waiting, &free);
                failed.fetch_or(gathered.is_err(), Relaxed);
                gathered.map(|()| gatherer.staging)
            };
            Threads::new().name("loader-helper".into()).spawn(run).ok()
        });
        let threads: Vec<_> = threads.collect();
        (!threads.is_empty()).then_some(Helpers { batches, free, has_failed, threads })
    }

    fn end(self) -> Result<Vec<Staging>, BuildError> {
        drop(self.batches);
        let ended = self.threads.into_iter().map(|thread| thread.join().expect("a panic ends the process"));
        ended.collect()
    }
}

impl Gatherer {
    fn gather_all(
        &mut self,
        waiting: &Mutex<Receiver<Batch>>,
        free: &Mutex<Vec<Batch>>,
    ) -> Result<(), BuildError> {
        loop {
            let next = waiting.lock().expect("a panic ends the process").recv();
            let Ok(mut batch) = next else { return Ok(()) };
            self.gather(&batch)?;
            batch.clear();
            free.lock().expect("a panic ends the process").push(batch);
        }
    }
}

/// Groups that several threads build.
struct Build {
    store: Store<'static>,
    now: UnixMs,
    groups: Vec<Mutex<Option<StagedGroup>>>,
    /// Threads begin so far apart that they seldom meet in a partition.
    stride: usize,
    next: AtomicUsize,
    freed_bytes: AtomicU64,
    has_failed: AtomicBool,
}

impl Build {
    fn new(store: Store<'static>, now: UnixMs, mut gathered: Vec<Staging>, threads: usize) -> Build {
        let mut group = |number: usize| {
            gathered.iter_mut().map(|staging| staging.take(number)).reduce(|mut group, other| {
                group.append(other);
                group
            })
        };
        Build {
            store,
            now,
            groups: (0..STAGED_GROUPS).map(|number| Mutex::new(group(number))).collect(),
            stride: STAGED_GROUPS / threads.clamp(1, STAGED_GROUPS),
            next: AtomicUsize::new(0),
            freed_bytes: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        }
    }

    fn run_with(&self, threads: usize) -> Result<(), BuildError> {
        std::thread::scope(|scope| {
            // Where the system gives no thread, the others do it.
            let spawn =
                |_| Threads::new().name("loader-helper".into()).spawn_scoped(scope, || self.run()).ok();
            let helpers: Vec<_> = (1..threads).map_while(spawn).collect();
            let built = self.run();
            helpers
                .into_iter()
                .fold(built, |built, helper| built.and(helper.join().expect("a panic ends the process")))
        })
    }

    fn run(&self) -> Result<(), BuildError> {
        let mut builder = Builder::default();
        while let Some(group) = self.take() {
            let built = self.store.keyspace.build(&group, &mut builder, self.now);
            if built.is_err() {
                self.has_failed.store(true, Relaxed);
                return built;
            }
            self.free(group);
        }
        Ok(())
    }

    /// The next group that has keys.
    fn take(&self) -> Option<StagedGroup> {
        while !self.has_failed.load(Relaxed) {
            let turn = self.next.fetch_add(1, Relaxed);
            if turn >= self.groups.len() {
                return None;
            }
            let group = self.groups[self.number_of(turn)].lock().expect("a panic ends the process").take();
            if let Some(group) = group.filter(|group| !group.is_empty()) {
                return Some(group);
            }
        }
        None
    }

    /// 0, stride, 2 stride, ..., 1, stride + 1, ...: each once.
    fn number_of(&self, turn: usize) -> usize {
        let rounds = self.groups.len() / self.stride;
        match turn < rounds * self.stride {
            true => turn % rounds * self.stride + turn / rounds,
            false => turn,
        }
    }

    fn free(&self, group: StagedGroup) {
        let bytes = group.bytes();
        drop(group);
        let freed = self.freed_bytes.fetch_add(bytes, Relaxed);
        if freed / RETURNED_BYTES_MIN != (freed + bytes) / RETURNED_BYTES_MIN {
            isotherm_allocator::purge();
        }
    }
}

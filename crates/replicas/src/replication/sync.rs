//! A full synchronization: the primary's snapshot is received, then takes the place of all data.
//!
//! ```text
//!   receive     temp-<seconds>.<pid>.rdb, written as it comes; its end mark and its checksum are looked at   old data is served
//!   keep        fsync, rename to `dbfilename`, fsync of the folder
//!   install     saves end, the append-only file rests; flush; load                                           -LOADING
//!   go on       the log goes on at the primary's place; the file becomes the base of the append-only file, or it gets a new one
//! ```
//! A snapshot that did not arrive whole replaces nothing: the old data stays, and the next attempt begins
//! anew.

use isotherm_disk::{File, Mode, WriteError, write_all_at};
use isotherm_keyspace::{Conditions, ExpiryMode, Txn};
use isotherm_replication::link::Position;
use isotherm_stdx::crc64::crc64;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::replication::{feeder, role};
use isotherm_config::{Id, id};
use isotherm_durability::aof::applier::Generation;
use isotherm_durability::aof::rewrite;
use isotherm_durability::aof::switch;
use isotherm_durability::aof::switch::Received;
use isotherm_durability::persistence::background;
use isotherm_durability::persistence::load;
use isotherm_durability::persistence::load::{Expired, FilePortions, LoadFailure, Portions, Target};
use isotherm_engine::request::blocking;
use isotherm_engine::request::execute::Exec;
use isotherm_engine::request::leases::await_gate;
use isotherm_node::Node;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::persistence::state::{Ended, Job};
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::time::unix_now;

/// Written bytes reach the disk in such portions.
const SYNC_BYTES: u64 = 8 << 20;
/// Bytes at the end of an RDB file: a mark, and the checksum of everything before it.
const END_BYTES: usize = 9;
const END_MARK: u8 = 0xff;

/// The snapshot does not take the place of the data; why stands in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The received bytes are no snapshot that this node reads.
    Unusable,
    /// The node cannot take the snapshot.
    GivenUp,
}

/// A snapshot as it is loaded.
pub trait Snapshot: Portions {
    /// Returns the number of bytes after the snapshot that are no part of it, once all was read.
    fn mark_bytes(&self) -> usize;

    /// Returns the name of the snapshot's source in the log.
    fn from(&self) -> &'static str;

    /// Returns the file of the snapshot, if it holds the snapshot alone and is durable.
    fn file(&self) -> Option<&Received>;
}

/// A snapshot that is being received into a file.
pub struct Receiving {
    node: &'static Node,
    file: Arc<dyn File>,
    path: PathBuf,
    at: u64,
    synced: u64,
    /// Checksum of all bytes but `tail`, which may be the end of the file, and a mark after it.
    sum: u64,
    tail: Vec<u8>,
    is_kept: bool,
}

/// A snapshot that has come as a whole.
pub struct Kept {
    /// Bytes of the file, whatever has its name by now: a save of this node may.
    pub portions: FilePortions,
    pub path: PathBuf,
    /// Received file, if it holds the snapshot alone and is durable.
    pub received: Option<Received>,
}

/// The last bytes that are kept out of the sum: the end of the file, and the mark after it.
const TAIL_BYTES: usize = END_BYTES + isotherm_replication::link::MARK_BYTES;

impl Receiving {
    pub fn begin(node: &'static Node) -> Result<Receiving, Why> {
        let store = node.store();
        let name = format!("temp-{}.{}.rdb", unix_now().0 / 1000, std::process::id());
        let path = store.folder().join(name);
        let file = store.state.disk.open(&path, Mode::Truncate).map_err(|error| {
            log::warning(format!(
                "Opening the temp file needed for PRIMARY <-> REPLICA synchronization: {}",
                os_text(&error)
            ));
            Why::GivenUp
        })?;
        Ok(Receiving { node, file, path, at: 0, synced: 0, sum: 0, tail: Vec::new(), is_kept: false })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Why> {
        write_all_at(&*self.file, bytes, self.at).map_err(|WriteError { error, .. }| {
            log::warning(format!(
                "Write error or short write writing to the DB dump file needed for PRIMARY <-> REPLICA synchronization: {}",
                os_text(&error)
            ));
            Why::GivenUp
        })?;
        self.at += bytes.len() as u64;
        self.add_to_sum(bytes);
        if self.at - self.synced >= SYNC_BYTES {
            self.file.sync_data().map_err(|error| self.cannot_sync(&error))?;
            self.synced = self.at;
        }
        Ok(())
    }

    fn add_to_sum(&mut self, bytes: &[u8]) {
        let from_tail = (self.tail.len() + bytes.len()).saturating_sub(TAIL_BYTES);
        let (out, _) = self.tail.split_at(from_tail.min(self.tail.len()));
        self.sum = crc64(self.sum, out);
        self.tail.drain(..from_tail.min(self.tail.len()));
        let direct = bytes.len().saturating_sub(TAIL_BYTES);
        self.sum = crc64(self.sum, &bytes[..direct]);
        self.tail.extend_from_slice(&bytes[direct..]);
    }

    fn cannot_sync(&self, error: &io::Error) -> Why {
        log::warning(format!(
            "Failed trying to sync the temp DB to disk in PRIMARY <-> REPLICA synchronization: {}",
            os_text(error)
        ));
        Why::GivenUp
    }

    // COMPAT(replication): A snapshot that is received to disk is checked by its checksum before it takes the
    // place of the file and the data; Valkey finds a damaged one when its data is gone already. Why: the data
    // that there is is better than none.
    /// Keeps a snapshot once all has come; the last `mark_bytes` are no part of it. The file is `dbfilename`
    /// afterwards, if no save is under way that may replace it.
    pub fn keep(mut self, mark_bytes: usize, position: Position) -> Result<Kept, Why> {
        self.tail.truncate(self.tail.len().saturating_sub(mark_bytes));
        let Some((rest, end)) = self.tail.split_last_chunk::<END_BYTES>() else {
            log::warning("The snapshot from the primary is too short to be one");
            return Err(Why::Unusable);
        };
        let [mark, sum @ ..] = *end;
        let (stated, sum) = (u64::from_le_bytes(sum), crc64(crc64(self.sum, rest), &[mark]));
        if mark != END_MARK || stated != 0 && stated != sum {
            log::warning(format!(
                "The snapshot from the primary is damaged or incomplete: checksum {sum:016x}, it states {stated:016x}"
            ));
            return Err(Why::Unusable);
        }
        self.check_version()?;
        self.check_keys(position)?;
        let store = self.node.store();
        let bytes = self.at - mark_bytes as u64;
        let cut = if mark_bytes > 0 { self.file.set_len(bytes) } else { Ok(()) };
        cut.map_err(|error| {
            let why = os_text(&error);
            log::warning(format!("Error truncating the RDB file received from the primary for SYNC: {why}"));
            Why::GivenUp
        })?;
        self.file.sync_all().map_err(|error| self.cannot_sync(&error))?;
        let (disk, path) = (&store.state.disk, store.file());
        let portions = FilePortions::open_at(store, self.path.clone()).ok().flatten();
        let portions = portions.map(|portions| portions.renamed(path.clone())).ok_or_else(|| {
            log::warning("Failed trying to open the temp DB in PRIMARY <-> REPLICA synchronization");
            Why::GivenUp
        })?;
        let saving = store.state.saving();
        let (saves, running) = (saving.saves, saving.running);
        drop(saving);
        disk.rename(&self.path, &path).map_err(|error| {
            log::warning(format!(
                "Failed trying to rename the temp DB into {} in PRIMARY <-> REPLICA synchronization: {}",
                path.display(),
                os_text(&error)
            ));
            Why::GivenUp
        })?;
        self.is_kept = true;
        disk.sync_dir(&store.folder()).map_err(|error| {
            log::warning(format!(
                "Failed trying to sync DB directory {} in PRIMARY <-> REPLICA synchronization: {}",
                store.folder().display(),
                os_text(&error)
            ));
            Why::GivenUp
        })?;
        let is_saving = running.is_some_and(|running| running.job != Job::Rewrite);
        let received = (!is_saving).then(|| Received { path: path.clone(), saves });
        Ok(Kept { portions, path, received })
    }
}

impl Receiving {
    // COMPAT(replication): A replica that has data does not follow the same primary when that comes back with
    // another history and without a key (`replica-refuse-empty-primary`, on by default): its link is down
    // until there is data, or REPLICAOF is repeated. Valkey empties itself. Why: a primary without
    // persistence that is started again soon enough empties all its replicas.
    fn check_keys(&self, position: Position) -> Result<(), Why> {
        if !refuses_empty(self.node, position) {
            return Ok(());
        }
        let file = FilePortions::open_at(self.node.store(), self.path.clone());
        let is_empty = file.ok().flatten().is_some_and(|mut file| load::is_empty(&mut file).unwrap_or(false));
        if !is_empty {
            return Ok(());
        }
        log::warning(
            "The primary has come back with another history and without a key, and this replica has data: it is not followed \
             until it has some, or REPLICAOF is repeated (replica-refuse-empty-primary).",
        );
        self.node.replication.link.refuses_empty.store(true, Relaxed);
        Err(Why::GivenUp)
    }

    fn check_version(&self) -> Result<(), Why> {
        let store = self.node.store();
        let file = FilePortions::open_at(store, self.path.clone()).and_then(|file| {
            let file = file.ok_or_else(|| LoadFailure(vec!["The temp DB is gone".into()]))?;
            load::check_head(&file, store.config.checks_rdb_version())
        });
        file.map_err(|LoadFailure(lines)| {
            lines.iter().for_each(log::warning);
            log::notice("PRIMARY <-> REPLICA sync: Skipping flush, no new data was loaded.");
            Why::Unusable
        })
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = self.node.persistence.disk.remove(&self.path);
        }
    }
}

/// Replaces all data by that of a snapshot of the primary, which was taken at `position`.
pub fn install(
    exec: &mut Exec,
    generation: Generation,
    position: Position,
    snapshot: &mut dyn Snapshot,
    checks_sum: bool,
) -> Result<(), Why> {
    let node = exec.node;
    // The link to a former primary may still load.
    let _alone = node.replication.installing();
    make_way(exec, generation)?;
    log::notice("PRIMARY <-> REPLICA sync: Loading DB in memory");
    let loaded = load::load(node.store(), snapshot, Target::Empty, Expired::Kept, checks_sum);
    let ended = loaded.and_then(|ended| match bytes_behind(snapshot, ended.rest.len()) {
        Ok(bytes) if bytes == snapshot.mark_bytes() => Ok(ended),
        Ok(_) => Err(LoadFailure(vec!["Replication stream EOF marker is broken".into()])),
        Err(error) => Err(LoadFailure(vec![format!("Reading the end of the snapshot: {}", os_text(&error))])),
    });
    let installed = match ended {
        Ok(ended) => go_on(exec, generation, position, ended.history.db),
        Err(LoadFailure(lines)) => {
            lines.iter().for_each(log::warning);
            log::warning(format!(
                "Failed trying to load the PRIMARY synchronization DB from {}, check server logs.",
                snapshot.from()
            ));
            Err(Why::Unusable)
        }
    };
    if installed.is_err() {
        // Whichever primary is followed now: all that there is was loaded here.
        log::notice("PRIMARY <-> REPLICA sync: Discarding the half-loaded data");
        let stays = || !node.runs.are_abandoned();
        if await_gate(node, &mut exec.held, stays) {
            flush(exec);
        }
    }
    if installed.is_ok()
        && let Some(file) = snapshot.file()
    {
        // While no save can put another file in its place. If this fails, `resume` has a base written.
        switch::begin_behind(node, file, position.end);
    }
    node.mail.set_tasks(Tasks::LOADING, Tasks::NONE);
    if installed.is_ok() {
        log::notice("PRIMARY <-> REPLICA sync: Finished with success");
        switch::resume(node, generation);
    }
    installed
}

/// Reads to the end. Returns how many bytes stand after the snapshot; `read` of them were read with it.
fn bytes_behind(snapshot: &mut dyn Snapshot, read: usize) -> io::Result<usize> {
    let (mut portion, mut bytes) = ([0; 256], read);
    loop {
        match snapshot.read(&mut portion)? {
            0 => return Ok(bytes),
            count => bytes += count,
        }
    }
}

/// Returns whether this node refuses an empty primary: it has data of that primary, which has come back with
/// another history and no data.
pub fn refuses_empty(node: &Node, position: Position) -> bool {
    const REFUSES: Id = id("replica-refuse-empty-primary");
    let state = node.replication.state();
    let is_other = state.is_synced && state.has_position && state.history.id() != position.id;
    drop(state);
    let accepts = &node.replication.link.accepts_empty;
    is_other && node.config.flag(REFUSES) && !accepts.load(Relaxed) && node.keyspace.has_keys()
}

/// Commands get -LOADING, and the data goes.
fn make_way(exec: &mut Exec, generation: Generation) -> Result<(), Why> {
    let node = exec.node;
    if node.persistence.saving().running.is_some() {
        log::notice(format!(
            "Replica is about to load the RDB file received from the primary, but there is a pending RDB child running. Killing \
             process {} and removing its temp file to avoid any race",
            std::process::id()
        ));
    }
    // No command changes the primary from here on: what follows may wait for the disk.
    hold_all_if_current(exec, generation)?;
    node.mail.set_tasks(Tasks::LOADING, Tasks::LOADING);
    exec.release();
    let made = end_others(exec, generation);
    match made {
        Ok(()) => {
            role::lose_place(node);
            flush(exec);
        }
        Err(_) => node.mail.set_tasks(Tasks::LOADING, Tasks::NONE),
    }
    made
}

/// Longest wait for the disk that a save of the former data writes to. This thread is the link's own.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Ends all else that walks or writes the data. Everything is held afterwards, if there was no error.
fn end_others(exec: &mut Exec, generation: Generation) -> Result<(), Why> {
    let node = exec.node;
    // A walk that is left behind would continue with the former data.
    let is_stopped = background::stop(node.store(), END_PATIENCE);
    if !is_stopped || rewrite::stop(node, END_PATIENCE) == Ended::LeftBehind {
        return Err(Why::GivenUp);
    }
    switch::suspend(node, generation).map_err(|_| Why::GivenUp)?;
    // They begin anew too.
    feeder::let_go(node);
    hold_all_if_current(exec, generation).inspect_err(|_| switch::resume(node, generation))
}

/// Holds everything, unless another primary is followed by now, or none.
fn hold_all_if_current(exec: &mut Exec, generation: Generation) -> Result<(), Why> {
    let node = exec.node;
    let is_current = || node.replication.generation() == generation.0;
    match await_gate(node, &mut exec.held, is_current) {
        true => Ok(()),
        false => Err(Why::GivenUp),
    }
}

/// Removes all data. Everything is held before, and nothing afterwards.
fn flush(exec: &mut Exec) {
    let node = exec.node;
    let conditions = Conditions { now: unix_now(), expiry_mode: ExpiryMode::Keep, no_touch: true };
    let mut txn = Txn::new(&mut exec.held, conditions, &mut exec.pump);
    txn.flush(None);
    node.libraries.clear();
    node.replication.own_keys.clear();
    if exec.held.has_ready() {
        blocking::serve_waiters(exec);
    }
    exec.release();
    free_flushed(node);
}

/// Frees the entries that were removed: by the time the snapshot is loaded, or (`replica-lazy-flush`) while
/// it is.
fn free_flushed(node: &'static Node) {
    /// Entries freed in one hold: some 20 us.
    const STEPS_A_HOLD: usize = 200;
    const IS_LAZY: Id = id("replica-lazy-flush");
    let free = move || {
        for partition in 0..node.keyspace.partition_count() as u16 {
            while node.keyspace.has_unfreed(partition) {
                node.keyspace.free_step(partition, STEPS_A_HOLD);
            }
        }
    };
    let is_lazy = node.config.flag(IS_LAZY);
    if !is_lazy || std::thread::Builder::new().name("lazy-free".into()).spawn(free).is_err() {
        free();
    }
}

/// The data is that of the primary at `position`: from here on the log is its.
fn go_on(
    exec: &mut Exec,
    generation: Generation,
    position: Position,
    stream_db: Option<i64>,
) -> Result<(), Why> {
    const BACKLOG_BYTES: Id = id("repl-backlog-size");
    let node = exec.node;
    hold_all_if_current(exec, generation)?;
    let stream_db = stream_db.and_then(|db| u32::try_from(db).ok()).unwrap_or(0);
    node.log.go_on_at(position.end, stream_db);
    node.log.close_gap();
    node.log.set_backlog_bytes(node.config.number(BACKLOG_BYTES).unsigned_abs());
    let mut state = node.replication.state();
    state.history.replace(position.id);
    (state.has_position, state.is_synced) = (true, true);
    drop(state);
    let view = &node.replication.link;
    view.refuses_empty.store(false, Relaxed);
    view.accepts_empty.store(false, Relaxed);
    node.persistence.saving().saved_changes = node.stats.changes();
    node.replication.link.read_offset.store(position.end.0, Relaxed);
    exec.release();
    feeder::keep_now(node);
    Ok(())
}

//! DEBUG LOADAOF: the data goes, and comes back from the append-only file, as if the server had stopped in
//! between.
//!
//! ```text
//!   all partitions held --> what was logged is synced --> the log loses its reader --> flush, base, log files --> the log goes on
//! ```
//! Everything stays locked, so no client sees a part of the data, and nothing is logged meanwhile: what is
//! played back stands in the file already. It is for tests: nothing else waits for a disk under a lock.

use isotherm_keyspace::{Conditions, Held, Txn};
use isotherm_persist::aof::manifest::{AofFile, Manifest};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use isotherm_disk::File;

use super::applier::Applier;
use super::load::{self, LoadError, LogFile};
use super::{open, settings};
use crate::persistence::load::{self as rdb, FilePortions, LoadFailure, Target};
use isotherm_node::Node;
use isotherm_node::aof::files::{AofFiles, Logged};
use isotherm_node::aof::request::Request;
use isotherm_node::effects::pump::Pump;
use isotherm_node::mail::tasks::Tasks;
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::routines;
use isotherm_runtime::time::{elapsed, instant};

/// The files could not be loaded; why stands in the log. The data is what could be read.
pub struct CannotReload;

/// Replaces all data by that of the append-only file. `held` has all partitions, and keeps them.
pub fn reload(
    node: &'static Node,
    held: &mut Held<'static>,
    conditions: Conditions,
    pump: &mut Pump,
) -> Result<(), CannotReload> {
    make_durable(node)?;
    let was_logging = node.mail.tasks().has(Tasks::LOGGED);
    node.mail.set_tasks(Tasks::LOGGED, Tasks::NONE);
    let mut txn = Txn::new(held, conditions, pump);
    txn.flush(None);
    txn.free_flushed_now();
    node.libraries.clear();
    let loaded = load_all(node, held);
    let logged = if was_logging { Tasks::LOGGED } else { Tasks::NONE };
    node.mail.set_tasks(Tasks::LOGGED, logged);
    node.persistence.saving().saved_changes = node.stats.changes();
    loaded
}

/// Waits until the file holds all that was logged. Nothing is appended meanwhile.
fn make_durable(node: &'static Node) -> Result<(), CannotReload> {
    const PATIENCE: Duration = Duration::from_secs(10);
    if !node.aof.is_on() {
        return Ok(());
    }
    node.aof.inbox.post(&node.log, Request::Flush);
    let begun = instant();
    while node.aof.durable() < node.log.end() {
        if elapsed(begun) > PATIENCE {
            log::warning("The append-only file could not be synced: it is not reloaded.");
            return Err(CannotReload);
        }
        routines::pause(routines::LOOK);
    }
    Ok(())
}

fn load_all(node: &'static Node, held: &mut Held<'static>) -> Result<(), CannotReload> {
    let mut files = settings::files(node);
    let Some(manifest) = files.manifest().map_err(|Logged| CannotReload)? else {
        log::warning("There is no append-only file.");
        return Err(CannotReload);
    };
    let mut logs = open_logs(&files, &manifest)?;
    if let Some(base) = &manifest.base {
        let mut base = open_log(&files, base)?;
        if open::starts_with_rdb(&*base.file) {
            base.start = load_snapshot(node, &files, &base.name, held)?;
        }
        logs.insert(0, base);
    }
    let mut applier = Applier::within(node, std::mem::replace(held, Held::new(&node.keyspace)));
    let played_back = logs.iter().try_for_each(|log| log.play_back(&mut applier, node.aof.has_lines()));
    *held = applier.into_held();
    played_back
}

/// Log file that exists.
struct Log {
    name: String,
    file: Arc<dyn File>,
    /// Offset of the first command.
    start: u64,
    /// Bytes of the file that count.
    bytes: u64,
    is_ours: bool,
}

fn open_logs(files: &AofFiles, manifest: &Manifest) -> Result<Vec<Log>, CannotReload> {
    manifest.incr.iter().map(|listed| open_log(files, listed)).collect()
}

fn open_log(files: &AofFiles, listed: &AofFile) -> Result<Log, CannotReload> {
    let name = String::from_utf8_lossy(&listed.name).into_owned();
    match files.open_to_read(&listed.name).and_then(|file| Ok((file.len()?, file))) {
        Ok((len, file)) => {
            let bytes = listed.place.and_then(|place| place.len).map_or(len, |bytes| bytes.min(len));
            Ok(Log { name, file, start: 0, bytes, is_ours: listed.place.is_some() })
        }
        Err(error) => {
            log::warning(format!("Can't open the append log file {name}: {}", os_text(&error)));
            Err(CannotReload)
        }
    }
}

/// Returns where it ends.
fn load_snapshot(
    node: &'static Node,
    files: &AofFiles,
    name: &str,
    held: &mut Held<'static>,
) -> Result<u64, CannotReload> {
    let opened = FilePortions::open_at(node.store(), files.path(name.as_bytes()));
    let loaded = opened.and_then(|source| match source {
        Some(mut source) => rdb::load_base(node.store(), &mut source, Target::Held(held)),
        None => Err(LoadFailure(vec![format!("The append log file {name} doesn't exist")])),
    });
    loaded.map(|ended| ended.end).map_err(|LoadFailure(lines)| {
        lines.iter().for_each(log::warning);
        log::warning(format!("Error reading the RDB base file {name}, AOF loading aborted"));
        CannotReload
    })
}

impl Log {
    fn play_back(&self, applier: &mut Applier, checks_commits: bool) -> Result<(), CannotReload> {
        let read_bytes = AtomicU64::new(0);
        let Log { file, start, bytes, is_ours, .. } = self;
        let source =
            LogFile { file: &**file, start: *start, bytes: *bytes, is_ours: *is_ours, checks_commits };
        match source.load(applier, &read_bytes) {
            // It was synced: what is torn in it was never logged.
            Ok(_) | Err(LoadError::Torn { .. }) => Ok(()),
            Err(error) => {
                load::report(&self.name, &error);
                Err(CannotReload)
            }
        }
    }
}

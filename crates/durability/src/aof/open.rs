//! Starting with an append-only file: the files are read, then the log continues after them.
//!
//! ```text
//!   manifest --> base --> log files, in order --> the last one is cut where it is torn, and synced --> the log goes on in it
//!   single file of versions before 7.0 --> becomes the base
//!   no file, or one that was switched off before the RDB file was written: the RDB file --> a first base --> the log begins
//! ```
//! The last log file may end within a command (`aof-load-truncated`): it is cut there. Anything else that
//! cannot be read ends the start.

use isotherm_log::LogOffset;
use isotherm_log::writer::List;
use isotherm_persist::aof::commit::durable_by;
use isotherm_persist::aof::manifest::{AofFile, Manifest};
use std::borrow::Cow;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use isotherm_disk::{File, read_exact_at, write_all_at};

use super::applier::Applier;
use super::driver::{self, First};
use super::ended::{self, Newest};
use super::load::{self, LoadError, Loaded, LogFile};
use super::{reference, rewrite, settings};
use crate::persistence::load::{self as rdb, Expired, FilePortions, History, LoadFailure, Target};
use isotherm_config::{Id, id};
use isotherm_engine::request::gating;
use isotherm_node::Node;
use isotherm_node::aof::files::{AofFiles, Logged, segments};
use isotherm_node::effects::change_log::LogReader;
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::routines;

/// The start cannot continue; the reason stands in the log.
pub struct CannotLoad;

/// Files that were read, and where the log continues. Nothing is written to them yet.
pub struct Opened {
    files: AofFiles,
    list: List,
    pub end: LogOffset,
    /// Place in a history that the files state.
    pub history: History,
    /// The manifest says that the log has ended.
    is_ended: bool,
    /// Number of the log in the manifest.
    run: Option<u64>,
}

/// Reads the files that the manifest lists, or `rdb` without a manifest.
pub fn open(node: &'static Node, rdb: Option<FilePortions>) -> Result<Opened, CannotLoad> {
    let mut files = settings::files(node);
    let lock = files.lock().map_err(|Logged| CannotLoad)?;
    files.set_run(ended::draw());
    node.aof.keep_folder(&files, lock);
    files.remove_leftovers();
    let manifest = match files.manifest().map_err(|Logged| CannotLoad)? {
        None if exists(node, &node.config.folder().join(files.old_name()))? => Some(adopt(node, &mut files)?),
        found => found,
    };
    let is_older = match &manifest {
        Some(manifest) => is_rdb_newer(node, manifest)?,
        None => false,
    };
    let mut is_ended = false;
    let run = manifest.as_ref().and_then(|manifest| manifest.run);
    let (list, end, history) = match manifest {
        Some(manifest) if !is_older => {
            // The process that wrote it may have ended before its name was durable.
            files.sync_folder().map_err(|Logged| CannotLoad)?;
            move_old(node, &files, &manifest)?;
            let loaded = load_all(node, &files, &manifest)?;
            files.remove_outdated();
            is_ended = manifest.ended.is_some();
            loaded
        }
        older => {
            let list = begin_anew(node, &mut files, rdb, older)?;
            (list, LogOffset::default(), History::default())
        }
    };
    Ok(Opened { files, list, end, history, is_ended, run })
}

impl Opened {
    /// Begins to write after the files. `is_renamed`: the history has a new name from here on.
    pub fn go_on(self, node: &'static Node, is_renamed: bool) -> Result<(), CannotLoad> {
        begin(node, self, is_renamed).map_err(|error| {
            log::warning(format!("Can't open the append-only file: {}", os_text(&error)));
            CannotLoad
        })
    }
}

// COMPAT(persistence): With `appendonly yes` an RDB file that was begun after the append-only file was
// switched off is loaded, and becomes the first base; Valkey loads the append-only file, and writes that over
// the RDB file later. Why: the data since would be lost.
/// Returns whether the RDB file is newer than the log, because that was switched off.
fn is_rdb_newer(node: &Node, manifest: &Manifest) -> Result<bool, CannotLoad> {
    let newest = ended::newest(node.store(), manifest).map_err(|why| {
        log::warning(why);
        CannotLoad
    })?;
    Ok(newest == Newest::Rdb)
}

/// Makes the first base of the RDB file, if there is one, in place of `older` files.
fn begin_anew(
    node: &'static Node,
    files: &mut AofFiles,
    rdb: Option<FilePortions>,
    older: Option<Manifest>,
) -> Result<List, CannotLoad> {
    files.begin().map_err(|Logged| CannotLoad)?;
    if let Some(mut source) = rdb {
        log::notice(match older {
            None => "There is no append-only file: its first base is made of the RDB file.",
            Some(_) => {
                "The append-only file was switched off before the RDB file was written: its first base is made of that."
            }
        });
        let loaded = rdb::load(node.store(), &mut source, Target::Empty, Expired::Dropped, true);
        loaded.map_err(|LoadFailure(lines)| {
            lines.iter().for_each(log::warning);
            CannotLoad
        })?;
    }
    let base = rewrite::write_first(node, files).map_err(|_| CannotLoad)?;
    log::notice("Creating AOF base file on server start");
    let list = List { base: Some(base), segments: Vec::new() };
    if let Some(older) = older {
        // The log begins under the names of its files, with a history of its own.
        files.set_replid(node.replication.state().history.id());
        save(files, &list)?;
        older.incr.iter().for_each(|file| files.remove_named(&file.name));
        // A start before this one may have got no further than that.
        files.remove_outdated();
        if let Some(tier) = node.tier() {
            tier.is_restoring.store(false, Relaxed);
            reference::in_force(node, false);
        }
    }
    Ok(list)
}

/// Writes the manifest; the log says why not.
fn save(files: &mut AofFiles, list: &List) -> Result<(), CannotLoad> {
    files.save(list).map_err(|error| {
        log::warning(format!("Can't write the AOF manifest file: {}", os_text(&error)));
        CannotLoad
    })
}

/// The list while the last file is written.
fn going_on(list: &List) -> List {
    let mut list = list.clone();
    if let Some(last) = list.segments.last_mut() {
        last.len = None;
    }
    list
}

/// A disk that does not answer whether there is a file is no reason to start without it.
fn exists(node: &Node, path: &Path) -> Result<bool, CannotLoad> {
    node.persistence.disk.exists(path).map_err(|error| {
        log::warning(format!("Can't look for {}: {}", path.display(), os_text(&error)));
        CannotLoad
    })
}

/// The single file of versions before 7.0 becomes the base. The manifest is first: `move_old` moves the file
/// after a crash.
fn adopt(node: &Node, files: &mut AofFiles) -> Result<Manifest, CannotLoad> {
    let base = AofFile { name: files.old_name().as_os_str().as_bytes().to_vec(), seq: 1, place: None };
    files.announce_base(base.clone());
    save(files, &List { base: Some(1), segments: Vec::new() })?;
    log::notice(format!(
        "Successfully migrated an old-style AOF file ({}) into the AOF directory ({}).",
        files.old_name().display(),
        node.config.folder().join(files.folder()).display()
    ));
    Ok(Manifest { base: Some(base), ..Manifest::default() })
}

/// Moves the single file of versions before 7.0 to where the manifest has it, if that was not done.
fn move_old(node: &Node, files: &AofFiles, manifest: &Manifest) -> Result<(), CannotLoad> {
    let Some(base) = &manifest.base else { return Ok(()) };
    let (from, to) = (node.config.folder().join(files.old_name()), files.path(&base.name));
    let is_old = base.name == files.old_name().as_os_str().as_bytes();
    if !is_old || exists(node, &to)? || !exists(node, &from)? {
        return Ok(());
    }
    let disk = &node.persistence.disk;
    let moved = disk
        .rename(&from, &to)
        .and_then(|()| disk.sync_dir(files.folder()))
        .and_then(|()| disk.sync_dir(&node.config.folder()));
    moved.map_err(|error| {
        log::warning(format!(
            "Error trying to move the old AOF file {}: {}",
            from.display(),
            os_text(&error)
        ));
        CannotLoad
    })
}

/// Returns whether there is no room, or no more is allowed. It may come later, and what is read needs none.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns the starting point of the writer after the list could not be written. `is_needed`: nothing may be
/// logged before it is, because the history has another name, or the log had ended.
fn unlisted(list: List, end: LogOffset, error: io::Error, is_needed: bool) -> io::Result<First> {
    if is_needed && !is_full(&error) {
        return Err(error);
    }
    log::warning(format!("Can't write the AOF manifest file: {}", os_text(&error)));
    Ok(if is_needed { First::Unlisted(list, end, error) } else { First::Behind(list, end) })
}

/// Starts the writer. From here on changes are logged.
fn begin(node: &'static Node, opened: Opened, is_renamed: bool) -> io::Result<()> {
    let Opened { mut files, list, end, is_ended, run: run_before, .. } = opened;
    if is_renamed {
        files.set_replid(node.replication.state().history.id());
    }
    node.set_durable(end);
    settings::frame(node);
    node.aof.base_number.store(files.last_base().max(list.base.unwrap_or(0)), Relaxed);
    let log_bytes: u64 = list.segments.iter().filter_map(|segment| segment.len).sum();
    node.aof.log_bytes.store(log_bytes, Relaxed);
    {
        let mut rewrites = node.aof.rewrites();
        rewrites.size_then_bytes = rewrites.base_bytes + log_bytes;
    }
    // Before anything is logged of it.
    let first = match files.save(&going_on(&list)) {
        Ok(()) => First::Behind(list, end),
        Err(error) => {
            // An RDB file that is begun after the log's end is to be known by the number that is listed.
            files.set_run(run_before.or(files.run()));
            unlisted(list, end, error, is_renamed || is_ended)?
        }
    };
    let run = files.run();
    let writer = driver::start(node.store(), &node.log, &node.aof, files, first, settings::policy(node))?;
    node.aof.set_on(writer);
    ended::begin(node.store(), run);
    node.log.set_read_by(&node.mail, LogReader::Aof, true);
    node.log.close_gap();
    gating::apply(node);
    Ok(())
}

/// File that the manifest lists and that exists.
struct Found<'m> {
    listed: &'m AofFile,
    name: String,
    file: Arc<dyn File>,
    /// Offset of the first command.
    start: u64,
    /// Bytes of the file that count.
    bytes: u64,
}

fn find<'m>(files: &AofFiles, listed: &'m AofFile) -> Result<Found<'m>, CannotLoad> {
    let name = String::from_utf8_lossy(&listed.name).into_owned();
    let opened = files.open_to_read(&listed.name).and_then(|file| Ok((file.len()?, file)));
    match opened {
        Ok((len, file)) => {
            let bytes = listed.place.and_then(|place| place.len).unwrap_or(len);
            if bytes > len {
                log::warning(format!(
                    "Fatal error: {name} has {len} bytes of the {bytes} that its manifest lists"
                ));
                return Err(CannotLoad);
            }
            Ok(Found { listed, name, file, start: 0, bytes })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            log::warning(format!("The append log file {name} doesn't exist: {}", os_text(&error)));
            Err(CannotLoad)
        }
        Err(error) => {
            let why = os_text(&error);
            log::warning(format!("Fatal error: can't open the append log file {name} for reading: {why}"));
            Err(CannotLoad)
        }
    }
}

/// Loads all that counts. Returns the files, and where the log continues.
fn load_all(
    node: &'static Node,
    files: &AofFiles,
    manifest: &Manifest,
) -> Result<(List, LogOffset, History), CannotLoad> {
    let found = manifest.incr.iter().map(|listed| find(files, listed)).collect::<Result<Vec<_>, _>>()?;
    let mut history = History::default();
    if let Some(base) = &manifest.base {
        let loaded;
        (loaded, history) = load_base(node, files, base, found.is_empty())?;
        node.aof.rewrites().base_bytes = loaded;
    }
    let loading = &node.persistence.loading;
    loading.loaded_bytes.store(0, Relaxed);
    loading.total_bytes.store(found.iter().map(|file| file.bytes).sum(), Relaxed);
    let mut applier = Applier::new(node);
    // The log after the base may be the stream of a primary, which selects a database only where it changes.
    applier.select_db(history.db);
    let mut end = LogOffset(history.offset.and_then(|offset| u64::try_from(offset).ok()).unwrap_or(0));
    let (mut starts, mut lengths) = (Vec::new(), Vec::new());
    for (at, found_file) in found.iter().enumerate() {
        let start = found_file.listed.place.map_or(end, |place| LogOffset(place.start));
        if at > 0 && start != end {
            let name = &found_file.name;
            log::warning(format!(
                "Fatal error: {name} begins at {start} in the log, the file before it ends at {end}"
            ));
            return Err(CannotLoad);
        }
        if routines::is_simulated() {
            // As Valkey reads it: what is selected where it begins has to stand in it. Files of earlier
            // versions may lack that.
            applier.select_db(None);
        }
        let loaded = load_log(node, files, found_file, &mut applier, at + 1 == found.len())?;
        starts.push(start);
        lengths.push(loaded.file_bytes);
        end = start + loaded.log_bytes;
    }
    if let (Some(last), Some(bytes)) = (manifest.incr.last(), lengths.last()) {
        // The log continues in it, and counts its bytes as durable.
        make_durable(node, files, last, *bytes).map_err(|error| {
            log::warning(format!("Can't sync the append-only file: {}", os_text(&error)));
            CannotLoad
        })?;
    }
    if applier.failed > 0 {
        log::warning(format!("{} commands of the append-only file replied with an error.", applier.failed));
    }
    // The commands that were played back are no client's, and are on disk already.
    node.stats.reset();
    node.persistence.saving().saved_changes = node.stats.changes();
    let base = manifest.base.as_ref().map(|base| base.seq as u64);
    let id = manifest.replid.map(|id| id.to_vec()).or(history.id);
    let (offset, db) = (i64::try_from(end.0).ok(), Some(i64::from(applier.db().0)));
    let list = List { base, segments: segments(manifest, &starts, &lengths) };
    Ok((list, end, History { id, offset, db }))
}

/// A process before this one may have ended after a sync that failed: then the kernel has pages that it takes
/// for clean, and no sync writes them. So bytes that no commit says to have been durable are written once
/// more, as they are, before they are synced.
fn make_durable(node: &Node, files: &AofFiles, last: &AofFile, bytes: u64) -> io::Result<()> {
    /// More than some seconds of commits that are too small to have a line.
    const IN_DOUBT_BYTES_MAX: u64 = 16 << 20;
    let file = files.open_to_cut(&last.name)?;
    let from = bytes.saturating_sub(IN_DOUBT_BYTES_MAX);
    let mut tail = vec![0; (bytes - from) as usize];
    read_exact_at(&*file, &mut tail, from)?;
    let durable = durable_by(&tail, from).unwrap_or(0).clamp(from, bytes);
    if let Err(failed) = write_all_at(&*file, &tail[(durable - from) as usize..], durable) {
        log::warning(format!("Can't write the end of {} once more: {}", shown(last), os_text(&failed.error)));
        // A file system that never overwrites wants room for it. The bytes stay as they are, and that is no
        // reason not to start.
        if !is_full(&failed.error) {
            return Err(failed.error);
        }
        node.aof.rewrites().is_scheduled = true;
    }
    file.sync_all()
}

fn shown(file: &AofFile) -> Cow<'_, str> {
    String::from_utf8_lossy(&file.name)
}

/// Loads the data on which the log files build: a snapshot, commands, or commands after a snapshot. Returns
/// the file's bytes, and where a snapshot stands in the log.
fn load_base(
    node: &'static Node,
    files: &AofFiles,
    base: &AofFile,
    is_last: bool,
) -> Result<(u64, History), CannotLoad> {
    let begun = Instant::now();
    let mut found = find(files, base)?;
    let name = found.name.clone();
    let mut history = History::default();
    if starts_with_rdb(&*found.file) {
        log::notice("Reading RDB base file on AOF loading...");
        let loaded = FilePortions::open_at(node.store(), files.path(&base.name)).and_then(|source| {
            let mut source = source
                .ok_or_else(|| LoadFailure(vec![format!("The append log file {name} doesn't exist")]))?;
            rdb::load_base(node.store(), &mut source, Target::Empty)
        });
        match loaded {
            Ok(ended) => {
                (found.start, history) = (ended.end, ended.history);
                if let Some(tier) = node.tier() {
                    tier.is_restoring.store(false, Relaxed);
                }
            }
            Err(LoadFailure(lines)) => {
                lines.iter().for_each(log::warning);
                log::warning(format!("Error reading the RDB base file {name}, AOF loading aborted"));
                return Err(CannotLoad);
            }
        }
        if found.start < found.bytes {
            log::notice("Reading the remaining AOF tail...");
        }
    }
    let bytes = if found.start < found.bytes {
        let loading = &node.persistence.loading;
        loading.total_bytes.store(found.bytes, Relaxed);
        let mut applier = Applier::new(node);
        load_commands(node, files, &found, &mut applier, is_last)?.file_bytes
    } else {
        found.bytes
    };
    log::notice(format!("DB loaded from base file {name}: {:.3} seconds", begun.elapsed().as_secs_f64()));
    Ok((bytes, history))
}

/// Returns whether a base is a snapshot, or begins with one.
pub fn starts_with_rdb(file: &dyn File) -> bool {
    let mut magic = [0; 6];
    let read = file.read_at(&mut magic, 0).unwrap_or(0);
    [&b"REDIS"[..], b"VALKEY", b"ISOTHE"].iter().any(|line| magic[..read].starts_with(line))
}

/// Loads one log file. Returns how much of it counts.
fn load_log(
    node: &Node,
    files: &AofFiles,
    found: &Found<'_>,
    applier: &mut Applier,
    is_last: bool,
) -> Result<Loaded, CannotLoad> {
    let begun = Instant::now();
    let loaded = load_commands(node, files, found, applier, is_last)?;
    let (name, seconds) = (&found.name, begun.elapsed().as_secs_f64());
    log::notice(format!("DB loaded from incr file {name}: {seconds:.3} seconds"));
    Ok(loaded)
}

/// Applies the commands of a file.
fn load_commands(
    node: &Node,
    files: &AofFiles,
    found: &Found<'_>,
    applier: &mut Applier,
    is_last: bool,
) -> Result<Loaded, CannotLoad> {
    let Found { name, file, start, bytes, listed } = found;
    let is_ours = listed.place.is_some();
    let checks_commits = settings::has_lines(node);
    let log_file = LogFile { file: &**file, start: *start, bytes: *bytes, is_ours, checks_commits };
    let error = match log_file.load(applier, &node.persistence.loading.loaded_bytes) {
        Ok(loaded) => {
            if is_last && loaded.file_bytes < *bytes {
                cut_unused(files, found, loaded.file_bytes)?;
            }
            return Ok(loaded);
        }
        Err(error) => error,
    };
    load::report(name, &error);
    match error {
        LoadError::Torn { valid, .. } => {
            cut_off(node, files, found, valid.file_bytes, is_last)?;
            Ok(valid)
        }
        _ => Err(CannotLoad),
    }
}

/// Cuts off the sectors after the last commit of a prepared file, which were never written.
fn cut_unused(files: &AofFiles, found: &Found<'_>, file_bytes: u64) -> Result<(), CannotLoad> {
    let name = &found.name;
    let cut = files.open_to_cut(&found.listed.name).and_then(|file| file.set_len(file_bytes));
    cut.map_err(|error| {
        log::warning(format!("Error truncating the AOF file {name}: {}", os_text(&error)));
        CannotLoad
    })
}

/// Cuts off the bytes after the last whole command, if that is allowed: the file ends within a command.
fn cut_off(
    node: &Node,
    files: &AofFiles,
    found: &Found<'_>,
    valid_bytes: u64,
    is_last: bool,
) -> Result<(), CannotLoad> {
    const LOADS_TRUNCATED: Id = id("aof-load-truncated");
    let name = &found.name;
    if !is_last {
        log::warning("Fatal error: the truncated file is not the last file");
        return Err(CannotLoad);
    }
    if node.config.flag(LOADS_TRUNCATED) {
        log::warning(format!("!!! Warning: short read while loading the AOF file {name}!!!"));
        log::warning(format!("!!! Truncating the AOF {name} at offset {valid_bytes} !!!"));
        let cut = files
            .open_to_cut(&found.listed.name)
            .and_then(|file| file.set_len(valid_bytes).and_then(|()| file.sync_all()));
        match cut {
            Ok(()) => {
                log::warning(format!("AOF {name} loaded anyway because aof-load-truncated is enabled"));
                return Ok(());
            }
            Err(error) => {
                log::warning(format!("Error truncating the AOF file {name}: {}", os_text(&error)));
            }
        }
    }
    log::warning(format!(
        "Unexpected end of file reading the append only file {name}. You can: 1) Make a backup of your AOF file, then use \
         ./isotherm-check-aof --fix <filename.manifest>. 2) Alternatively you can set the 'aof-load-truncated' configuration \
         option to yes and restart the server."
    ));
    Err(CannotLoad)
}

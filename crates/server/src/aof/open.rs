//! Starting with an append-only file: the files are read, then the log goes on behind them.
//!
//! ```text
//!   manifest --> log files, in order --> the last one is cut where it is torn, and synced --> the log goes on in it
//! ```
//! The last log file may end within a command (`aof-load-truncated`): it is cut there. What else cannot be read ends the start.

use isotherm_keyspace::{Held, Want};
use isotherm_log::LogOffset;
use isotherm_log::writer::{FsyncPolicy, List};
use isotherm_persist::aof::manifest::{AofFile, Manifest};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use isotherm_disk::File;

use super::applier::Applier;
use super::driver::{self, Request};
use super::files::{AofFiles, ReadError, segments};
use super::load::{self, LoadError, Loaded, LogFile};
use crate::config::{Id, id};
use crate::mail::tasks::Tasks;
use crate::node::Node;
use crate::persistence::load::{self as rdb, How, LoadFailure};
use crate::process::listeners::os_text;
use crate::process::log;

const ALWAYS: i64 = 1;
const NEVER: i64 = 2;

/// The start cannot go on; why stands in the log.
pub struct CannotLoad;

pub fn policy(node: &Node) -> FsyncPolicy {
    const FSYNC: Id = id("appendfsync");
    match node.config.number(FSYNC) {
        ALWAYS => FsyncPolicy::Always,
        NEVER => FsyncPolicy::No,
        _ => FsyncPolicy::EverySecond,
    }
}

pub fn files(node: &Node) -> AofFiles {
    const FOLDER: Id = id("appenddirname");
    const NAME: Id = id("appendfilename");
    let folder = node.config.folder().join(String::from_utf8_lossy(&node.config.text(FOLDER)).as_ref());
    AofFiles::new(Arc::clone(&node.persistence.disk), folder, &node.config.text(NAME))
}

/// Whether there is a manifest.
pub fn is_there(node: &Node) -> bool {
    !matches!(files(node).read(), Ok(None))
}

/// Reads what the manifest lists, and begins to write behind it.
pub fn open(node: &'static Node) -> Result<(), CannotLoad> {
    let mut files = files(node);
    let listed = match files.read() {
        Ok(listed) => listed,
        Err(error) => return Err(report_manifest(&files, &error)),
    };
    let (list, end) = match listed {
        Some(manifest) => load_all(node, &files, &manifest)?,
        None if node.config.folder().join(files.old_name()).exists() => {
            log::warning("There is an append-only file of a version before 7.0, which can't be read yet.");
            return Err(CannotLoad);
        }
        None => (List { base: None, segments: Vec::new() }, LogOffset::default()),
    };
    begin(node, files, list, end).map_err(|error| {
        log::warning(format!("Can't open the append-only file: {}", os_text(&error)));
        CannotLoad
    })
}

/// From here on changes are logged.
fn begin(node: &'static Node, files: AofFiles, list: List, end: LogOffset) -> io::Result<()> {
    files.prepare()?;
    node.log.go_on_at(end);
    node.aof.set_durable(end, |_| {});
    let policy = policy(node);
    node.aof.set_has_lines(has_lines(node));
    node.aof.set_has_timestamps(has_timestamps(node));
    let writer = driver::start(node.store(), &node.log, &node.aof, files, list, policy, end)?;
    node.aof.set_on(writer);
    node.mail.set_tasks(Tasks::LOGGED, Tasks::LOGGED);
    gate_replies(node, policy);
    Ok(())
}

/// Whether replies wait until what they show is durable.
fn gate_replies(node: &Node, policy: FsyncPolicy) {
    let gated = if policy == FsyncPolicy::Always { Tasks::GATED } else { Tasks::NONE };
    node.mail.set_tasks(Tasks::GATED, gated);
}

/// `aof-integrity-check`: commits have lines, and are checked.
fn has_lines(node: &Node) -> bool {
    const HAS_LINES: Id = id("aof-integrity-check");
    node.config.flag(HAS_LINES)
}

/// `aof-timestamp-enabled`: the seconds stand in the file.
fn has_timestamps(node: &Node) -> bool {
    const HAS_TIMESTAMPS: Id = id("aof-timestamp-enabled");
    node.config.flag(HAS_TIMESTAMPS)
}

/// `appendfsync`, `aof-integrity-check` or `aof-timestamp-enabled` was changed.
pub fn apply_policy(node: &'static Node) {
    if node.aof.is_on() {
        node.aof.set_has_lines(has_lines(node));
        node.aof.set_has_timestamps(has_timestamps(node));
        node.aof.inbox.post(&node.log, Request::Policy(policy(node)));
        gate_replies(node, policy(node));
    }
}

/// The process is about to end: no further command runs, and all that was logged is made durable.
pub fn close(node: &'static Node) {
    /// A disk that does not answer does not keep the process.
    const PATIENCE: Duration = Duration::from_secs(10);
    let Some(writer) = node.aof.take_writer() else { return };
    log::notice("Calling fsync() on the AOF file.");
    node.pause.begin(&node.mail, i64::MAX, false);
    // What had its locks before has ended.
    Held::new(&node.keyspace).acquire(Want::All);
    node.aof.inbox.post(&node.log, Request::Stop);
    let begun = Instant::now();
    while !writer.is_finished() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
    if !writer.is_finished() {
        log::warning("The append-only file could not be synced: what was written last may be lost.");
    }
}

fn report_manifest(files: &AofFiles, error: &ReadError) -> CannotLoad {
    match error {
        ReadError::Io(error) => log::warning(format!(
            "Fatal error: can't open the AOF manifest file in {} for reading: {}",
            files.folder().display(),
            os_text(error)
        )),
        ReadError::Manifest(error) => {
            log::warning("\n*** FATAL AOF MANIFEST FILE ERROR ***\n");
            log::warning(error.to_string());
        }
    }
    CannotLoad
}

/// One file of the manifest that is there.
struct Found<'m> {
    listed: &'m AofFile,
    name: String,
    file: Arc<dyn File>,
    /// What of it counts.
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
            Ok(Found { listed, name, file, bytes })
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

/// Loads all that counts. Returns the files, and where the log goes on.
fn load_all(
    node: &'static Node,
    files: &AofFiles,
    manifest: &Manifest,
) -> Result<(List, LogOffset), CannotLoad> {
    let found = manifest.incr.iter().map(|listed| find(files, listed)).collect::<Result<Vec<_>, _>>()?;
    if let Some(base) = &manifest.base {
        load_base(node, files, base)?;
    }
    let loading = &node.persistence.loading;
    loading.loaded_bytes.store(0, Relaxed);
    loading.total_bytes.store(found.iter().map(|file| file.bytes).sum(), Relaxed);
    let mut applier = Applier::new(node);
    let mut end = LogOffset::default();
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
        let loaded = load_log(node, files, found_file, &mut applier, at + 1 == found.len())?;
        starts.push(start);
        lengths.push(loaded.file_bytes);
        end = start + loaded.log_bytes;
    }
    if let Some(last) = manifest.incr.last() {
        // The log goes on in it, and counts what is there as durable.
        let synced = files.open_to_cut(&last.name).and_then(|file| file.sync_all());
        synced.map_err(|error| {
            log::warning(format!("Can't sync the append-only file: {}", os_text(&error)));
            CannotLoad
        })?;
    }
    if applier.failed > 0 {
        log::warning(format!("{} commands of the append-only file replied with an error.", applier.failed));
    }
    // What was played back is no client's command, and on disk already.
    node.stats.reset();
    node.persistence.saving().saved_changes = node.stats.changes();
    let base = manifest.base.as_ref().map(|base| base.seq as u64);
    Ok((List { base, segments: segments(manifest, &starts, &lengths) }, end))
}

/// Loads the snapshot on which the log files build.
fn load_base(node: &'static Node, files: &AofFiles, base: &AofFile) -> Result<(), CannotLoad> {
    let begun = Instant::now();
    let name = String::from_utf8_lossy(&base.name);
    // COMPAT(persistence): A base of the append-only file has to be an RDB file; Valkey also reads commands
    // (`aof-use-rdb-preamble no`), and the single file of versions before 7.0. Why: there is no reader for them yet.
    if !base.name.ends_with(b".rdb") {
        log::warning(format!("The base file {name} is no RDB file: it can't be read yet."));
        return Err(CannotLoad);
    }
    log::notice("Reading RDB base file on AOF loading...");
    let loaded = rdb::open_at(node.store(), files.path(&base.name)).and_then(|source| {
        let source =
            source.ok_or_else(|| LoadFailure(vec![format!("The append log file {name} doesn't exist")]))?;
        rdb::load(node.store(), &source, &mut Held::new(&node.keyspace), How::AtStart, true)
    });
    if let Err(LoadFailure(lines)) = loaded {
        lines.iter().for_each(log::warning);
        log::warning(format!("Error reading the RDB base file {name}, AOF loading aborted"));
        return Err(CannotLoad);
    }
    log::notice(format!("DB loaded from base file {name}: {:.3} seconds", begun.elapsed().as_secs_f64()));
    Ok(())
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
    let Found { name, file, bytes, listed } = found;
    let log_file = LogFile {
        file: &**file,
        bytes: *bytes,
        is_ours: listed.place.is_some(),
        checks_commits: has_lines(node),
    };
    let loaded = match log_file.load(applier, &node.persistence.loading.loaded_bytes) {
        Ok(loaded) => loaded,
        Err(error) => {
            load::report(name, &error);
            match error {
                LoadError::Torn { valid, .. } => {
                    cut_off(node, files, found, valid.file_bytes, is_last)?;
                    valid
                }
                _ => return Err(CannotLoad),
            }
        }
    };
    log::notice(format!("DB loaded from incr file {name}: {:.3} seconds", begun.elapsed().as_secs_f64()));
    Ok(loaded)
}

/// The file ends within a command: what is behind the last whole one is cut off, if that is allowed.
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

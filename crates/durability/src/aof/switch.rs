//! Switching the append-only file on and off while commands run, and from when on replies wait for it.
//!
//! ```text
//!   CONFIG SET appendonly yes   the log gets its writer, a first base is begun; until that is listed a start reads what it would have
//!   CONFIG SET appendonly no    no more is logged; the writer makes durable what was, and ends
//!   a full sync                 the same, then yes again; a file that was received is the first base (`begin_behind`)
//! ```
//! The state that commands see changes while everything is held. One thread at a time switches
//! (`AofState::switching`): that of a CONFIG SET, of a link, or one that the control thread starts for what a
//! synchronization has suspended.

use isotherm_disk::Lock;
use isotherm_keyspace::Held;
use isotherm_log::LogOffset;
use isotherm_log::writer::{FsyncPolicy, List};
use isotherm_persist::aof::manifest::{AofFile, Manifest};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::applier::Generation;
use super::driver::{self, First};
use super::{ended, rewrite, settings};
use crate::persistence::background::Asked;
use isotherm_config::{Id, id};
use isotherm_engine::request::gating;
use isotherm_node::Node;
use isotherm_node::aof::files::{AofFiles, Logged, segments};
use isotherm_node::aof::request::{Request, Stop};
use isotherm_node::aof::state::{Ending, Left, NOT_SYNCED};
use isotherm_node::effects::change_log::LogReader;
use isotherm_node::mail::message::ControlMessage;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::persistence::state::{END_MAX, Ended, Job};
use isotherm_node::process::hold_all;
use isotherm_node::request::pause::Cause;
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::routines::{self, Routine, Running};
use isotherm_runtime::time::{elapsed, instant};

/// The reply to CONFIG SET.
const CANNOT_SWITCH_ON: &str = "Unable to turn on AOF. Check server logs.";

/// Makes `appendonly` and `appendfsync` hold, for a thread that no other waits for. The caller holds nothing.
pub fn apply(node: &'static Node) -> Result<(), &'static str> {
    if node.aof.is_suspended() {
        // `resume` asks for this again. The synchronization that suspends it may wait for the disk.
        return Ok(());
    }
    let applied = match node.aof.switching_within(END_MAX) {
        Some(_alone) => apply_alone(node, Patient::Waits),
        // The other one waits for a disk.
        None => None,
    };
    applied.unwrap_or_else(|| {
        // The control thread has it tried until it is done.
        node.mail.post_control(ControlMessage::Aof);
        Ok(())
    })
}

/// Starts a thread that does the same for the control thread, and tries until it is done.
pub fn start_applying(node: &'static Node) -> io::Result<Running> {
    routines::start("aof-switch", Applying { node })
}

struct Applying {
    node: &'static Node,
}

impl Routine for Applying {
    fn step(&mut self) -> bool {
        let applied = match self.node.aof.try_switching() {
            Some(_alone) => apply_alone(self.node, Patient::Tries),
            None => None,
        };
        if let Some(Err(why)) = applied {
            log::warning(why);
        }
        applied.is_none()
    }

    fn rest(&mut self) {
        routines::pause(NEXT_TRY);
    }
}

/// Time between two attempts at what waits for the end of scripts, or of another switch.
const NEXT_TRY: Duration = Duration::from_millis(10);

/// Patience of a thread with scripts that are in their middle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Patient {
    Waits,
    Tries,
}

impl Patient {
    /// Locks everything. False if scripts are in the way.
    fn lock_all(self, held: &mut Held<'static>) -> bool {
        match self {
            Patient::Waits => held.gate_within(END_MAX),
            Patient::Tries => held.try_gate(),
        }
    }
}

/// Makes `appendonly` and the other settings hold. Returns `None` if scripts are in the way; nothing was done
/// then.
fn apply_alone(node: &'static Node, patient: Patient) -> Option<Result<(), &'static str>> {
    if node.aof.is_suspended() {
        return Some(Ok(()));
    }
    Some(match (node.config.flag(settings::APPEND_ONLY), node.aof.is_on()) {
        (true, false) => switch_on(node, patient)?.map_err(|Logged| CANNOT_SWITCH_ON),
        (false, true) => {
            switch_off(node, true, patient)?;
            Ok(())
        }
        (false, false) => Ok(()),
        (true, true) => {
            settings::frame(node);
            let was_gated = node.mail.tasks().has(Tasks::GATED);
            let policy = settings::policy(node);
            node.aof.inbox.post(&node.log, Request::Policy(policy));
            gating::apply(node);
            if was_gated && policy != FsyncPolicy::Always {
                // Replies of commands that have begun before still wait, and under `no` nothing else would
                // sync. Changes by scripts in their middle are logged at their end.
                Held::new(&node.keyspace).acquire_beside_leases();
                node.aof.inbox.post(&node.log, Request::Flush);
            }
            Ok(())
        }
    })
}

fn switch_on(node: &'static Node, patient: Patient) -> Option<Result<(), Logged>> {
    // Before the folder is looked at: that is not to be done again and again.
    if patient == Patient::Tries && node.keyspace.has_leases() {
        return None;
    }
    if rewrite::is_running(node) {
        log::notice(
            "AOF was enabled but there is already an AOF rewriting in background. Stopping it and starting a rewrite now.",
        );
        if rewrite::stop(node, END_MAX) == Ended::LeftBehind {
            return Some(Err(Logged));
        }
    }
    if patient == Patient::Waits {
        await_ending(node, ENDING_MAX);
    }
    look_at_ending(node);
    match (node.aof.has_ending(), patient) {
        (false, _) => {}
        (true, Patient::Tries) => return None,
        (true, Patient::Waits) => {
            log::warning("The disk has not answered since the append-only file was switched off.");
            return Some(Err(Logged));
        }
    }
    let Ok(folder) = Folder::open(node) else { return Some(Err(Logged)) };
    let mut held = Held::new(&node.keyspace);
    if !patient.lock_all(&mut held) {
        return None;
    }
    if folder.begin(node).is_err() {
        return Some(Err(Logged));
    }
    let asked = rewrite::begin(node, &mut held);
    if asked != Asked::Failed {
        held.release();
    }
    Some(match asked {
        Asked::Started => Ok(()),
        Asked::Busy => {
            node.aof.rewrites().is_scheduled = true;
            log::notice(
                "AOF was enabled but there is already another background operation. An AOF background was scheduled to start \
                 when possible.",
            );
            Ok(())
        }
        Asked::Failed => {
            log::warning(
                "AOF was enabled, but its first base can't be written. Check the above logs for the reason.",
            );
            node.aof.rewrites().is_scheduled = false;
            held.acquire_beside_leases();
            end_logging(node, &mut held, true);
            Err(Logged)
        }
    })
}

/// The files of a node that has data. They have nothing of that data.
struct Folder {
    files: AofFiles,
    lock: Box<dyn Lock>,
    before: List,
}

impl Folder {
    fn open(node: &Node) -> Result<Folder, Logged> {
        let mut files = settings::files(node);
        let lock = files.lock()?;
        files.remove_leftovers();
        let before = match files.manifest()? {
            Some(manifest) => unread(&manifest),
            None => {
                files.begin()?;
                List::default()
            }
        };
        files.set_run(ended::draw());
        node.aof.base_number.store(files.last_base(), Relaxed);
        Ok(Folder { files, lock, before })
    }

    /// The log is written from here on; nothing of it counts before a base is listed. Everything is held.
    /// Returns the place.
    fn begin(self, node: &'static Node) -> Result<LogOffset, Logged> {
        let Folder { files, lock, before } = self;
        let names = files.clone();
        let start = node.log.cut(false);
        // Another reader may not have taken all of it yet.
        node.log.gather();
        node.set_durable(start);
        settings::frame(node);
        let first = First::AwaitingBase { before, start };
        let writer = driver::start(node.store(), &node.log, &node.aof, files, first, settings::policy(node));
        let writer = writer.map_err(|error| {
            log::warning(format!("Can't start the AOF writer: {error}"));
            Logged
        })?;
        node.aof.keep_folder(&names, lock);
        node.aof.awaits_base.store(true, Relaxed);
        node.aof.set_on(writer);
        node.log.set_read_by(&node.mail, LogReader::Aof, true);
        Ok(start)
    }
}

/// The list of a manifest whose files are not read.
fn unread(manifest: &Manifest) -> List {
    let none = vec![LogOffset::default(); manifest.incr.len()];
    let lengths = vec![0; manifest.incr.len()];
    let base = manifest.base.as_ref().map(|base| base.seq as u64);
    List { base, segments: segments(manifest, &none, &lengths) }
}

/// Ends the suspension by the link of this generation. The control thread makes `appendonly` hold again.
pub fn resume(node: &Node, generation: Generation) {
    if node.aof.resume(generation.0) {
        node.mail.post_control(ControlMessage::Aof);
    }
}

/// Ends the suspension by any link: none is followed any more. The control thread makes `appendonly` hold
/// again.
pub fn resume_any(node: &Node) {
    node.aof.resume_any();
    node.mail.post_control(ControlMessage::Aof);
}

/// The RDB file as a full synchronization has left it.
pub struct Received {
    pub path: PathBuf,
    /// Saves had begun then. One that begins later may put its file there.
    pub saves: u64,
}

/// Begins the append-only file at `place` of the log. The RDB file has the data there, durably: it becomes
/// the base, and no other is written. An append-only file that was suspended stays so. Returns false if
/// another base is needed: the file may be where it was then, or not.
///
/// ```text
///   rename to ...base.rdb, sync both folders     a start reads the list of before, or without one begins empty
///   the writer lists it                          a start reads this base, and the log from `place` on
/// ```
pub fn begin_behind(node: &'static Node, rdb: &Received, place: LogOffset) -> bool {
    const PREAMBLE: Id = id("aof-use-rdb-preamble");
    let _alone = node.aof.switching();
    if !node.config.flag(settings::APPEND_ONLY)
        || !node.config.flag(PREAMBLE)
        || rewrite::is_running(node)
        || !node.persistence.begin(Job::Rewrite)
    {
        return false;
    }
    // From here on nothing else is saved, so the file stays what it is.
    let is_there = node.persistence.saving().saves == rdb.saves;
    let begun = is_there && begin_with(node, &rdb.path, place).is_ok();
    node.persistence.saving().running = None;
    begun
}

fn begin_with(node: &'static Node, rdb: &Path, place: LogOffset) -> Result<(), Logged> {
    let began = instant();
    let folder = Folder::open(node)?;
    let base = adopt(node, &folder.files, rdb)?;
    let bytes = folder.files.open_to_read(&base.name).and_then(|file| file.len()).unwrap_or(0);
    let mut held = Held::new(&node.keyspace);
    if !held.gate_within(END_MAX) || node.log.end() != place {
        return Err(Logged);
    }
    folder.begin(node)?;
    rewrite::announce_received(node, base, bytes, place, began);
    Ok(())
}

/// Gives a complete snapshot the name of the next base.
fn adopt(node: &Node, files: &AofFiles, rdb: &Path) -> Result<AofFile, Logged> {
    let number = node.aof.base_number.fetch_add(1, Relaxed) + 1;
    let base = files.base_file(number, true);
    // One of the other form may have been left by a rewrite that was killed before its base was listed.
    files.remove_named(&files.base_file(number, false).name);
    let (disk, path) = (&node.persistence.disk, files.path(&base.name));
    let renamed = disk.rename(rdb, &path).and_then(|()| {
        disk.sync_dir(files.folder())?;
        disk.sync_dir(&node.config.folder())
    });
    renamed.map_err(|error| {
        log::warning(format!(
            "Error trying to rename the RDB file {} into {}: {}",
            rdb.display(),
            path.display(),
            os_text(&error)
        ));
        Logged
    })?;
    Ok(base)
}

/// Ends the writing for a while: another history is about to begin. The files stay as they are, and are what
/// a start reads; `resume` begins anew. The caller holds nothing. An error if the disk does not answer.
pub fn suspend(node: &'static Node, generation: Generation) -> Result<(), Logged> {
    let _alone = node.aof.switching();
    node.aof.suspend(generation.0);
    if node.aof.is_on() && switch_off(node, false, Patient::Waits).is_none() {
        log::warning(
            "A script does not end: the append-only file cannot be switched off for a synchronization.",
        );
        resume(node, generation);
        return Err(Logged);
    }
    if node.aof.is_writer_ending() {
        log::warning("The disk has not answered since the append-only file was switched off.");
        return Err(Logged);
    }
    Ok(())
}

/// `is_for_good`: it does not only rest for the data of another history. `None`: scripts are in the way.
fn switch_off(node: &'static Node, is_for_good: bool, patient: Patient) -> Option<()> {
    // One that is left behind announces nothing.
    rewrite::stop(node, END_MAX);
    // A rewrite that is asked for from here on is one of a node without a log.
    node.aof.rewrites().is_scheduled = false;
    let mut held = Held::new(&node.keyspace);
    if !patient.lock_all(&mut held) {
        return None;
    }
    end_logging(node, &mut held, is_for_good);
    Some(())
}

/// The rest of it. Everything is held before, and nothing afterwards.
fn end_logging(node: &'static Node, held: &mut Held<'static>, is_for_good: bool) {
    node.log.set_read_by(&node.mail, LogReader::Aof, false);
    // Before its first base the log of before is the one that a start reads.
    if !node.aof.awaits_base.load(Relaxed) {
        ended::end(node.store(), is_for_good);
    }
    let end = node.log.end();
    let ended = is_for_good.then(|| ended::moment(node.store()));
    held.release();
    node.aof.awaits_base.store(false, Relaxed);
    let is_written = end_writer(node, Stop { end, ended }, if is_for_good { SYNC_MAX } else { PATIENCE });
    gating::apply(node);
    node.mail.set_tasks(Tasks::LOG_FAILED, Tasks::NONE);
    node.aof.refuse_writes(None);
    node.gate.go_on(&node.mail);
    node.mail.set_log_full(false);
    // No reply waits for a file that is not written any more.
    node.set_durable(LogOffset(u64::MAX));
    node.look_at_waits();
    node.aof.rewrites().listing = None;
    if is_written {
        node.aof.give_folder_back();
    }
}

// COMPAT(persistence): CONFIG SET appendonly no waits half a second for the last fsync. Behind that the file
// is off, the fsync goes on, and the log says how it ends; until then it is not switched on again. Valkey
// waits for the disk with all its clients. Why: a disk that hangs costs those who need it.
/// Longest wait of a switch for the last sync. The rest of the sync is done without it.
const SYNC_MAX: Duration = Duration::from_millis(500);
/// Longest wait for that of a client that switches it on again: less than for its errand.
const ENDING_MAX: Duration = Duration::from_secs(3);
/// Time after which a disk that has not answered is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ends the writer once it has made the log durable up to `stop`. The log after that is not for it. Returns
/// false if it has not ended yet (`watch_ending`), or was given up.
fn end_writer(node: &'static Node, stop: Stop, at_most: Duration) -> bool {
    let Some(writer) = node.aof.take_writer() else { return true };
    log::notice("Calling fsync() on the AOF file.");
    node.aof.inbox.post(&node.log, Request::Stop(stop));
    let begun = instant();
    if writer.ends_within(at_most) {
        return true;
    }
    let is_given_up = at_most >= PATIENCE;
    if is_given_up {
        log::warning(NOT_SYNCED);
        node.aof.inbox.post(&node.log, Request::Abandon);
    } else {
        log::warning("The append-only file is off, and its last fsync is still under way.");
    }
    node.aof.set_ending(Ending { writer, begun, is_given_up });
    false
}

/// Looks after a writer that was switched off while its disk did not answer, for the control thread.
pub fn watch_ending(node: &'static Node) {
    if !node.aof.has_ending() {
        return;
    }
    // No other writer begins meanwhile, which would be asked in its place.
    if let Some(_alone) = node.aof.try_switching() {
        look_at_ending(node);
    }
}

fn look_at_ending(node: &Node) {
    match node.aof.look_at_ending(PATIENCE) {
        Left::Writes => {}
        Left::Late => {
            log::warning(NOT_SYNCED);
            node.aof.inbox.post(&node.log, Request::Abandon);
        }
        Left::Ended { is_given_up } => {
            if !is_given_up {
                log::notice("The last fsync of the append-only file has ended.");
            }
            if !node.aof.is_on() {
                node.aof.give_folder_back();
            }
        }
    }
}

/// The process is about to end: no further command runs, and all that was logged is made durable.
pub fn close(node: &'static Node) {
    // One that was switched off a moment ago is still written; and what waits for this switches nothing on
    // any more.
    std::mem::forget(await_switch(node));
    if !node.aof.is_on() {
        return await_ending(node, PATIENCE);
    }
    rewrite::stop(node, END_MAX);
    node.pause.begin(&node.mail, Cause::Shutdown, i64::MAX, false);
    hold_all::await_commands(node);
    end_writer(node, Stop { end: node.log.end(), ended: None }, PATIENCE);
}

/// Waits for a writer that was switched off while its disk did not answer: it has what was answered then.
fn await_ending(node: &Node, at_most: Duration) {
    let begun = instant();
    while node.aof.is_writer_ending() && elapsed(begun) < at_most {
        routines::pause(routines::LOOK);
    }
}

/// Waits for the right to switch. Returns `None` if another thread has it and waits for a disk that does not
/// answer, or for a script that SHUTDOWN NOSAVE has given up.
fn await_switch(node: &'static Node) -> Option<MutexGuard<'static, ()>> {
    let begun = instant();
    loop {
        let alone = node.aof.try_switching();
        if alone.is_some() || node.runs.are_abandoned() || elapsed(begun) > PATIENCE {
            return alone;
        }
        routines::pause(routines::LOOK);
    }
}

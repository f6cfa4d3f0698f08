//! Moments at which a file is written, and the threads that write it.
//!
//! ```text
//! SHUTDOWN               on the thread that asks
//! SAVE                   on a thread of its own, for which that of its client waits while it comes on
//! FLUSHALL               on a thread of its own, for which the one that asks waits a moment
//! BGSAVE                 the cut where it is asked for, the rest on a thread of its own
//! save points            the same, by the cron
//! ```

use isotherm_disk::{File, Mode};
use isotherm_keyspace::Held;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use super::save::{self, Cut, SaveError, Target, Writing};
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::persistence::Store;
use isotherm_node::persistence::state::{Asker, END_MAX, Ended, Job, READ_MAX};
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::routines::{self, Routine, Running};
use isotherm_runtime::time::{elapsed, instant, unix_now};

/// Rest of the save points after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// Result of a save that a client has asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    Started,
    /// Another save is under way.
    Busy,
    Failed,
}

fn now_seconds() -> i64 {
    unix_now().0 / 1000
}

// ---- on the thread that asks ----

/// The last file. Nothing is held afterwards.
pub fn save_now(
    store: Store<'static>,
    held: &mut Held<'static>,
    asker: Asker,
    used_memory_bytes: u64,
) -> Asked {
    if !store.state.begin(Job::Save(asker)) {
        return Asked::Busy;
    }
    let cut = save::cut(store, held, used_memory_bytes);
    held.release();
    let saved = match cut {
        Some(cut) => save_cut(store, cut, save::write),
        None => Err(SaveError::Failed),
    };
    end_foreground(store, saved.is_ok())
}

/// DEBUG RELOAD: under what is held, so that nothing is written before the data is replaced.
pub fn save_held(store: Store<'static>, held: &mut Held<'static>, used_memory_bytes: u64) -> Asked {
    if !store.state.begin(Job::Save(Asker::Holder)) {
        return Asked::Busy;
    }
    let saved = match save::cut(store, held, used_memory_bytes) {
        Some(cut) => save_cut(store, cut, |store, cut| save::write_held(store, cut, held)),
        None => Err(SaveError::Failed),
    };
    end_foreground(store, saved.is_ok())
}

fn end_foreground(store: Store<'static>, is_saved: bool) -> Asked {
    store.state.saving().running = None;
    if is_saved { Asked::Started } else { Asked::Failed }
}

/// Writes the file, and notes that there is one.
fn save_cut(
    store: Store<'static>,
    cut: Cut,
    write: impl FnOnce(Store<'static>, Cut) -> Result<(), SaveError>,
) -> Result<(), SaveError> {
    let changes = cut.changes;
    write(store, cut)?;
    note_saved(store, changes);
    Ok(())
}

/// Notes that the file has all but the changes after these.
fn note_saved(store: Store<'static>, changes: u64) {
    let mut saving = store.state.saving();
    (saving.last_save_seconds, saving.last_save) = (now_seconds(), instant());
    (saving.saved_changes, saving.last_failed) = (changes, false);
    store.mail.set_tasks(Tasks::SAVE_FAILED, Tasks::NONE);
}

// ---- on a thread of its own ----

/// BGSAVE. Everything is held afterwards.
pub fn save_in_background(store: Store<'static>, held: &mut Held<'static>, used_memory_bytes: u64) -> Asked {
    if !store.state.begin(Job::BackgroundSave) {
        return Asked::Busy;
    }
    let Some(cut) = save::cut(store, held, used_memory_bytes) else {
        end_background(store, &Err(SaveError::Failed));
        return Asked::Failed;
    };
    match start_writing(store, cut, None) {
        Ok(()) => Asked::Started,
        Err(writing) => {
            writing.abort_in(held);
            end_background(store, &Err(SaveError::Failed));
            Asked::Failed
        }
    }
}

/// Called with the file of a save that has ended, opened before another save could take its name; `None`: the
/// save has failed.
pub type Then = Box<dyn FnMut(Option<io::Result<Arc<dyn File>>>) + Send>;

/// The rest of a save in the background that has its cut. The caller holds nothing.
pub fn write_in_background(store: Store<'static>, cut: Cut, then: Then) -> Asked {
    match start_writing(store, cut, Some(then)) {
        Ok(()) => Asked::Started,
        Err(writing) => {
            drop(writing);
            end_background(store, &Err(SaveError::Failed));
            Asked::Failed
        }
    }
}

/// Starts the thread of a save, or returns what it would have done.
fn start_writing(store: Store<'static>, cut: Cut, then: Option<Then>) -> Result<(), Box<Writing>> {
    let changes = cut.changes;
    let target = Target::db_file(store);
    let path = target.path.clone();
    let writing = Writing::new(store, cut, target);
    match routines::try_start("rdb-save", BackgroundSave { store, changes, writing, path, then }) {
        Ok(_) => {
            log::notice(format!("Background saving started by pid {}", std::process::id()));
            Ok(())
        }
        Err((error, save)) => {
            log::warning(format!("Can't save in background: {}", os_text(&error)));
            Err(Box::new(save.writing))
        }
    }
}

struct BackgroundSave {
    store: Store<'static>,
    changes: u64,
    writing: Writing,
    /// Name of the file when it is whole.
    path: PathBuf,
    then: Option<Then>,
}

impl Routine for BackgroundSave {
    fn step(&mut self) -> bool {
        let saved = match self.writing.step() {
            Ok(None) => return true,
            Ok(Some(_)) => {
                note_saved(self.store, self.changes);
                log::notice("Background saving terminated with success");
                Ok(())
            }
            Err(error) => {
                log::warning(match error {
                    SaveError::Cancelled => "Background saving was cancelled",
                    SaveError::Failed => "Background saving error",
                });
                Err(error)
            }
        };
        let disk = &self.store.state.disk;
        let written = (self.then.is_some() && saved.is_ok()).then(|| disk.open(&self.path, Mode::Read));
        end_background(self.store, &saved);
        if let Some(then) = &mut self.then {
            then(written);
        }
        false
    }
}

fn end_background(store: Store<'static>, saved: &Result<(), SaveError>) {
    let mut saving = store.state.saving();
    if matches!(saved, Err(SaveError::Failed)) {
        saving.last_failed = true;
        store.mail.set_tasks(Tasks::SAVE_FAILED, Tasks::SAVE_FAILED);
    }
    if let Some(running) = saving.running.take() {
        saving.last_took_seconds = elapsed(running.began).as_secs() as i64;
    }
}

/// Outcome of SAVE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saved {
    Done,
    /// Another save is under way.
    Busy,
    Failed,
    /// Given up: a disk does not answer. No other save begins until it does; if the file lacked its name
    /// alone by then, it gets that.
    Late,
}

/// Time in which a save that makes progress does something. A sync has 16 MB at most; without
/// `rdb-save-incremental-fsync` the last one has the whole file. 6 GB take a slow disk a minute.
const STEP_MAX: Duration = Duration::from_secs(5);
const LAST_SYNC_MAX: Duration = Duration::from_secs(60);
/// Time between two looks at what it has done.
const STEP_LOOK: Duration = Duration::from_millis(500);

/// SAVE, for a thread that waits for it. Everything is held before, and nothing afterwards.
pub fn save_watched(store: Store<'static>, held: &mut Held<'static>, used_memory_bytes: u64) -> Saved {
    if !store.state.begin(Job::Save(Asker::Client)) {
        return Saved::Busy;
    }
    let cut = save::cut(store, held, used_memory_bytes);
    held.release();
    let Some(cut) = cut else {
        store.state.saving().running = None;
        return Saved::Failed;
    };
    let asked = AskedSave::new(store, cut);
    let is_saved = Arc::clone(&asked.is_saved);
    let running = match routines::try_start("rdb-save", asked) {
        Ok(running) => running,
        Err((error, asked)) => {
            log::warning(format!("Can't start a thread for SAVE: {}", os_text(&error)));
            drop(asked);
            store.state.saving().running = None;
            return Saved::Failed;
        }
    };
    if !await_progress(store, &running) {
        return Saved::Late;
    }
    if is_saved.load(Acquire) { Saved::Done } else { Saved::Failed }
}

/// Waits for the end of a save while it makes progress. Returns false if it makes none: then it is left
/// behind.
fn await_progress(store: Store<'static>, running: &Running) -> bool {
    let done = || {
        let progress = &store.state.progress;
        [&progress.steps, &progress.bytes, &progress.moves].map(|count| count.load(Relaxed))
    };
    let sync_max = if store.config.syncs_while_saving() { STEP_MAX } else { LAST_SYNC_MAX };
    // A value on disk is given up by the save itself.
    let read_max = store
        .tier
        .map_or(Duration::ZERO, |_| store.config.swap_read_timeout().unwrap_or(READ_MAX) + STEP_MAX);
    let still_max = sync_max.max(read_max);
    let (mut seen, mut since) = (done(), instant());
    while !running.ends_within(STEP_LOOK) {
        let now = done();
        if now != seen {
            (seen, since) = (now, instant());
        } else if elapsed(since) > still_max {
            log::warning("SAVE is given up: a disk does not answer");
            store.state.cancel(|job| job == Job::Save(Asker::Client));
            return false;
        }
    }
    true
}

/// The file of a SAVE, or of what is left by FLUSHALL.
struct AskedSave {
    store: Store<'static>,
    changes: u64,
    writing: Writing,
    is_saved: Arc<AtomicBool>,
}

impl AskedSave {
    fn new(store: Store<'static>, cut: Cut) -> AskedSave {
        let changes = cut.changes;
        let writing = Writing::new(store, cut, Target::db_file(store));
        AskedSave { store, changes, writing, is_saved: Arc::default() }
    }
}

impl Routine for AskedSave {
    fn step(&mut self) -> bool {
        let stepped = self.writing.step();
        if let Ok(None) = stepped {
            return true;
        }
        match stepped {
            Ok(_) => {
                note_saved(self.store, self.changes);
                self.is_saved.store(true, Release);
            }
            Err(SaveError::Cancelled) => log::warning("SAVE was cancelled"),
            Err(SaveError::Failed) => {}
        }
        self.store.state.saving().running = None;
        false
    }
}

/// State of saving that BGSAVE CANCEL has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancelled {
    Running,
    Scheduled,
    Nothing,
}

pub fn cancel(store: Store<'static>) -> Cancelled {
    let mut saving = store.state.saving();
    if saving.running.is_some_and(|running| running.job == Job::BackgroundSave) {
        log::notice("Background saving will be aborted due to user request");
        store.state.is_cancelled.store(true, Relaxed);
        return Cancelled::Running;
    }
    if std::mem::take(&mut saving.is_scheduled) {
        log::notice("Scheduled background saving will be cancelled due to user request");
        return Cancelled::Scheduled;
    }
    Cancelled::Nothing
}

/// After FLUSHALL: a save under way is of data that is gone, and with save points the file is replaced by one
/// without keys, so that a restart does not bring them back.
pub fn forget_saved(store: Store<'static>, held: &mut Held<'static>) {
    let is_save = |job| matches!(job, Job::BackgroundSave | Job::Save(Asker::Client));
    if store.config.save_points().is_empty() {
        store.state.cancel(is_save);
        return;
    }
    // One that was cancelled before, and is still there, is not awaited again.
    let was_left = store.state.is_cancelled.load(Relaxed) && store.state.cancel(is_save);
    let is_left = was_left || store.state.end(END_MAX, is_save) == Ended::LeftBehind;
    let replaced = if is_left { None } else { replace_saved(store, held) };
    if replaced.is_none() {
        // Another walk is under way, of a rewrite, for replicas, or of a disk that hangs: the cron saves
        // after it.
        store.state.saving().is_scheduled = true;
    }
}

/// Writes the file of the current data, and waits a moment for it. `None` if it could not be begun.
fn replace_saved(store: Store<'static>, held: &mut Held<'static>) -> Option<()> {
    if !store.state.begin(Job::Save(Asker::Client)) {
        return None;
    }
    let cut = save::cut(store, held, 0);
    held.release();
    let Some(cut) = cut else {
        store.state.saving().running = None;
        return None;
    };
    match routines::try_start("rdb-save", AskedSave::new(store, cut)) {
        Ok(running) => {
            if !running.ends_within(END_MAX) {
                log::warning("The RDB file of before FLUSHALL is there until its disk answers");
            }
        }
        // The flushed data still fills memory, and there is no room for a thread.
        Err((_, mut replacing)) => while replacing.step() {},
    }
    Some(())
}

/// Ends the walk that is under way, and waits for it, no longer than `at_most`. Returns whether nothing is
/// left.
pub fn stop(store: Store<'static>, at_most: Duration) -> bool {
    let Some(running) = store.state.saving().running else { return true };
    log::warning(match running.job {
        Job::Rewrite => "There is a child rewriting the AOF. Killing it!",
        Job::Save(_) | Job::BackgroundSave | Job::Stream => "There is a save in the background. Ending it!",
    });
    store.state.end(at_most, |_| true) != Ended::LeftBehind
}

// ---- the cron ----

/// Time without a step after which the disk of a save counts as hanging. Writers wait for a save that makes
/// progress.
const STALL_MS: u128 = 2000;

fn watch_writers(store: Store<'static>) {
    let mut saving = store.state.saving();
    let steps = store.state.progress.steps.load(Relaxed);
    if steps != saving.seen_steps || !store.mail.is_snapshot_full() {
        (saving.seen_steps, saving.seen_at) = (steps, instant());
    } else if elapsed(saving.seen_at).as_millis() > STALL_MS {
        log::warning("The save does not come on: snapshot-memory-limit is lifted until it ends");
        store.keyspace.limit_kept(u64::MAX);
    }
    drop(saving);
    save::let_writers_go_on(store);
}

/// Begins what was scheduled, or what a save point asks for. Whether it has to wait for scripts; nothing was
/// done then.
pub fn tick(store: Store<'static>, used_memory_bytes: u64) -> bool {
    watch_writers(store);
    let saving = store.state.saving();
    if saving.running.is_some() {
        return false;
    }
    let rests = saving.last_failed && saving.last_try.is_some_and(|last| elapsed(last) <= RETRY);
    let may_retry = !rests;
    let is_scheduled = may_retry && saving.is_scheduled;
    let (last_save, saved_changes) = (elapsed(saving.last_save), saving.saved_changes);
    drop(saving);
    let mut point = None;
    if !is_scheduled {
        let points = store.config.save_points();
        if points.is_empty() || !may_retry {
            return false;
        }
        let changes = store.stats.changes().saturating_sub(saved_changes);
        let is_due = |(seconds, least): &(i64, i64)| {
            changes >= least.unsigned_abs() && last_save > Duration::from_secs(seconds.unsigned_abs())
        };
        point = points.into_iter().find(is_due);
        if point.is_none() {
            return false;
        }
    }
    // This thread takes new connections too.
    let mut held = Held::new(store.keyspace);
    if !held.try_gate() {
        return true;
    }
    if is_scheduled {
        store.state.saving().is_scheduled = false;
    }
    if let Some((seconds, changes)) = point {
        log::notice(format!("{changes} changes in {seconds} seconds. Saving..."));
    }
    let asked = save_in_background(store, &mut held, used_memory_bytes);
    if is_scheduled && asked == Asked::Busy {
        // Another walk has begun while this thread waited for the gate.
        store.state.saving().is_scheduled = true;
    }
    false
}

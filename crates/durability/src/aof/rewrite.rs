//! A new base: the data as it is at a cut, so that the log files before the cut are of no more use.
//!
//! ```text
//!   everything is held       cut; the log's file ends here          (nothing else waits)
//!   a thread of its own      temp-rewriteaof-bg-<pid>.aof  ->  appendonly.aof.<n>.base.rdb
//!   the writer's thread      lists the base and the files behind the cut; removes the others; `finish`
//! ```
//! With `swap-checkpoint` the base refers to values on disk (`reference`).
//!
//! Until the new list is durable, a start reads the old files, which are complete too. A rewrite that fails
//! or is ended leaves them.

use isotherm_disk::Lock;
use isotherm_keyspace::Held;
use isotherm_log::LogOffset;
use isotherm_log::writer::List;
use isotherm_persist::aof::manifest::{AofFile, Manifest};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::ended;
use super::reference::{self, Reference};
use super::settings;
use crate::persistence::background::Asked;
use crate::persistence::save::{self, Cut, Format, SaveError, Target, Writing};
use isotherm_config::{Id, id};
use isotherm_engine::request::gating;
use isotherm_node::Node;
use isotherm_node::aof::files::{AofFiles, Logged};
use isotherm_node::aof::request::{Base, Moment, Request};
use isotherm_node::effects::change_log::LogReader;
use isotherm_node::persistence::state::{END_MAX, Ended, Job};
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::routines::{self, Routine};
use isotherm_runtime::time::{elapsed, instant};

/// Returns whether a rewrite is under way, up to its last step.
pub fn is_running(node: &Node) -> bool {
    let walks = node.persistence.saving().running.is_some_and(|running| running.job == Job::Rewrite);
    walks || node.aof.rewrites().listing.is_some()
}

/// Begins one, unless the append-only file is being switched on or off: its folder changes hands then.
/// Everything is held afterwards, or nothing was done.
pub fn ask(node: &'static Node, held: &mut Held<'static>) -> Asked {
    match node.aof.try_switching() {
        Some(_alone) => begin(node, held),
        None => Asked::Busy,
    }
}

/// Begins a rewrite for the thread that switches.
pub fn begin(node: &'static Node, held: &mut Held<'static>) -> Asked {
    if node.aof.rewrites().listing.is_some() || !node.persistence.begin(Job::Rewrite) {
        return Asked::Busy;
    }
    node.aof.rewrites().begun += 1;
    let Some(cut) = save::cut(node.store(), held, node.used_memory_bytes()) else {
        return failed(node);
    };
    // Everything is held: what is in the log before this place is in the cut.
    let place = node.aof.is_on().then(|| node.log.cut(true));
    node.log.wake(LogReader::Aof);
    let began = instant();
    let stage = Stage::Begin(cut, has_rdb_base(node));
    let job = Rewrite { node, place, began, stage, reference: Reference::new(node) };
    match routines::try_start("aof-rewrite", job) {
        Ok(_) => {
            let pid = std::process::id();
            log::notice(format!("Background append only file rewriting started by pid {pid}"));
            Asked::Started
        }
        Err((error, job)) => {
            log::warning(format!("Can't rewrite append only file in background: {}", os_text(&error)));
            if let Stage::Begin(cut, _) = job.stage {
                cut.abort_in(held);
            }
            failed(node)
        }
    }
}

/// Ends a rewrite that is under way, and has the cron begin it again. The caller holds nothing.
pub fn postpone(node: &Node) {
    if stop(node, END_MAX) != Ended::Nothing {
        node.aof.rewrites().is_scheduled = true;
    }
}

/// Ends a rewrite that is under way, and waits for its thread, no longer than `at_most`. The caller holds
/// nothing.
pub fn stop(node: &Node, at_most: Duration) -> Ended {
    let is_rewrite = |job| job == Job::Rewrite;
    if node.persistence.cancel(is_rewrite) {
        // Valkey's words: tools wait for them.
        log::notice(format!("Killing running AOF rewrite child: {}", std::process::id()));
    }
    node.persistence.end(at_most, is_rewrite)
}

fn failed(node: &'static Node) -> Asked {
    end(node, &Err(SaveError::Failed), instant());
    node.persistence.saving().running = None;
    Asked::Failed
}

/// The thread of a rewrite.
struct Rewrite {
    node: &'static Node,
    /// The cut in the log, if there is one.
    place: Option<LogOffset>,
    began: Instant,
    stage: Stage,
    reference: Reference,
}

enum Stage {
    /// And whether the base is RDB.
    Begin(Cut, bool),
    /// The log of values on disk is asked what may be referred to.
    Name(Cut),
    Write(Box<(BaseWriting, Option<Alone>)>),
    Over,
}

impl Routine for Rewrite {
    fn step(&mut self) -> bool {
        let stepped = self.try_step();
        if let Ok(true) = stepped {
            return true;
        }
        let written = stepped.map(drop);
        if written.is_err() {
            self.reference.give_up();
        }
        match &written {
            Ok(()) => {}
            Err(SaveError::Cancelled) => log::warning("Background AOF rewrite was cancelled"),
            Err(SaveError::Failed) => log::warning("Background AOF rewrite terminated with error"),
        }
        // An announced base ends its rewrite when it is listed.
        if written.is_err() || self.place.is_none() {
            end(self.node, &written, self.began);
        }
        // Only this thread ends its walk: a walk that begins after it is another thread's.
        self.node.persistence.saving().running = None;
        false
    }
}

impl Rewrite {
    /// A folder that a base refers to is said to be that of a manifest. After a crash before the first one
    /// was listed there would be a folder without it, which a start refuses: the first base has all values.
    /// So has each one of a manifest that stands elsewhere than the start has found it (CONFIG SET dir).
    fn has_manifest(&self) -> bool {
        let mut files = settings::files(self.node);
        let is_known = self.node.tier().is_some_and(|tier| tier.files.is_of(&files.manifest_path()));
        is_known && matches!(files.manifest(), Ok(Some(_)))
    }

    /// Makes one step. Returns whether there is more to do.
    fn try_step(&mut self) -> Result<bool, SaveError> {
        let node = self.node;
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Begin(cut, is_rdb) => {
                let may_refer = is_rdb && self.place.is_some() && self.has_manifest();
                self.stage = match may_refer && self.reference.ask() {
                    true => Stage::Name(cut),
                    false => self.begin_writing(cut, is_rdb)?,
                };
                Ok(true)
            }
            Stage::Name(cut) => {
                self.stage = match self.reference.is_answered()? {
                    true => self.begin_writing(cut, true)?,
                    false => Stage::Name(cut),
                };
                Ok(true)
            }
            Stage::Write(mut writing) => {
                let Some((base, bytes)) = writing.0.step()? else {
                    self.stage = Stage::Write(writing);
                    return Ok(true);
                };
                match (self.place, writing.1) {
                    (Some(place), _) => {
                        if let Err(failed) = self.reference.sync() {
                            // It was never listed.
                            writing.0.files.remove_named(&base.name);
                            return Err(failed);
                        }
                        self.announce(&writing.0.files, base, bytes, place)?;
                    }
                    (None, alone) => {
                        let alone = alone.expect("it was begun");
                        let log = alone.log;
                        alone.list(base)?;
                        ended::follow(node.store(), log);
                        reference::in_force(node, false);
                    }
                }
                Ok(false)
            }
            Stage::Over => unreachable!("a rewrite ends once"),
        }
    }

    /// While the append-only file is on: its writer lists the base.
    fn announce(
        &mut self,
        files: &AofFiles,
        file: AofFile,
        bytes: u64,
        place: LogOffset,
    ) -> Result<(), SaveError> {
        let (node, began) = (self.node, self.began);
        node.aof.rewrites().listing = Some(began);
        // Under the mutex: the thread that has cancelled this rewrite may have left it behind, and the
        // current writer is another one.
        let saving = node.persistence.saving();
        if node.persistence.is_cancelled.load(Relaxed) {
            drop(saving);
            files.remove_named(&file.name);
            return Err(SaveError::Cancelled);
        }
        let refers = self.reference.hand_over();
        let finish = Box::new(move || finish(node, bytes, refers, began));
        node.aof.inbox.post(&node.log, Request::BaseSaved(Base { file, cut: place, finish }));
        drop(saving);
        // Switched off meanwhile: nothing reads the request any more.
        if node.persistence.is_cancelled.load(Relaxed) && !node.aof.is_on() {
            return Err(SaveError::Cancelled);
        }
        Ok(())
    }

    fn begin_writing(&self, cut: Cut, is_rdb: bool) -> Result<Stage, SaveError> {
        let node = self.node;
        let (files, number, alone) = match self.place {
            Some(_) => {
                let number = node.aof.base_number.fetch_add(1, Relaxed) + 1;
                (settings::files(node), number, None)
            }
            None => {
                let alone = Alone::begin(node)?;
                (alone.files.clone(), alone.files.last_base() + 1, Some(alone))
            }
        };
        let base = BaseWriting::new(node, files, cut, number, (is_rdb, self.reference.swap_log()));
        Ok(Stage::Write(Box::new((base, alone))))
    }
}

fn end(node: &Node, result: &Result<(), SaveError>, began: Instant) {
    let mut rewrites = node.aof.rewrites();
    rewrites.listing = None;
    rewrites.last_took_seconds = elapsed(began).as_secs() as i64;
    match result {
        Ok(()) => (rewrites.last_failed, rewrites.failures_in_row) = (false, 0),
        Err(SaveError::Failed) => {
            rewrites.last_failed = true;
            rewrites.failures_in_row += 1;
        }
        // Like a child that was killed on purpose in Valkey.
        Err(SaveError::Cancelled) => {}
    }
}

/// Returns whether a rewrite that begins now writes its base as RDB.
fn has_rdb_base(node: &Node) -> bool {
    const PREAMBLE: Id = id("aof-use-rdb-preamble");
    node.config.flag(PREAMBLE)
}

/// A base on its way, under the next number.
struct BaseWriting {
    files: AofFiles,
    base: AofFile,
    /// Base of the other form. A rewrite that was killed before its base was listed may have left such a
    /// file.
    other: AofFile,
    temporary: String,
    writing: Writing,
}

impl BaseWriting {
    /// `swap_log`: what it says of the log that it refers to.
    fn new(
        node: &'static Node,
        files: AofFiles,
        cut: Cut,
        number: u64,
        (is_rdb, swap_log): (bool, Option<Vec<u8>>),
    ) -> BaseWriting {
        const SYNCS: Id = id("aof-rewrite-incremental-fsync");
        let (base, other) = (files.base_file(number, is_rdb), files.base_file(number, !is_rdb));
        let target = Target {
            temporary: files.temporary_base(),
            path: files.path(&base.name),
            folder: files.folder().to_path_buf(),
            format: if is_rdb { Format::AofBase } else { Format::Commands },
            syncs: node.config.flag(SYNCS),
            swap_log,
        };
        let temporary = target.temporary.display().to_string();
        BaseWriting { files, base, other, temporary, writing: Writing::new(node.store(), cut, target) }
    }

    /// The base with its size when it is complete.
    fn step(&mut self) -> Result<Option<(AofFile, u64)>, SaveError> {
        let Some(bytes) = self.writing.step()? else { return Ok(None) };
        self.files.remove_named(&self.other.name);
        log::notice("Background AOF rewrite terminated with success");
        let (temporary, name) = (&self.temporary, String::from_utf8_lossy(&self.base.name));
        log::notice(format!("Successfully renamed the temporary AOF base file {temporary} into {name}"));
        Ok(Some((self.base.clone(), bytes)))
    }

    fn write(mut self) -> Result<(AofFile, u64), SaveError> {
        loop {
            if let Some(written) = self.step()? {
                return Ok(written);
            }
        }
    }
}

/// The file of a full synchronization is the base of the files that begin at `place`; the writer lists it.
pub fn announce_received(node: &'static Node, file: AofFile, bytes: u64, place: LogOffset, began: Instant) {
    node.aof.rewrites().listing = Some(began);
    let name = String::from_utf8_lossy(&file.name).into_owned();
    let finish = Box::new(move || {
        list_first(node, bytes, false, began);
        log::notice(format!("Reused RDB file from primary sync as AOF base file: {name}"));
    });
    node.aof.inbox.post(&node.log, Request::BaseSaved(Base { file, cut: place, finish }));
}

/// The base is listed. On the writer's thread.
fn finish(node: &'static Node, base_bytes: u64, refers: bool, began: Instant) {
    list_first(node, base_bytes, refers, began);
    log::notice("Background AOF rewrite finished successfully");
}

fn list_first(node: &'static Node, base_bytes: u64, refers: bool, began: Instant) {
    reference::in_force(node, refers);
    if node.aof.awaits_base.swap(false, Relaxed) {
        // Until now an RDB file was one behind the end of the log before.
        ended::begin(node.store(), node.aof.files().and_then(|files| files.run()));
        gating::apply(node);
    }
    let mut rewrites = node.aof.rewrites();
    rewrites.base_bytes = base_bytes;
    rewrites.size_then_bytes = base_bytes + node.aof.log_bytes.load(Relaxed);
    // `swap-mode no` came before the folder had an owner: a start without it needs a base that has all
    // values.
    rewrites.is_scheduled |= refers && !node.config.swaps();
    drop(rewrites);
    end(node, &Ok(()), began);
}

/// While the append-only file is off: the next start that has it on finds the base.
struct Alone {
    files: AofFiles,
    before: Option<Manifest>,
    /// Number of the log that ends with the base.
    log: Option<u64>,
    _lock: Box<dyn Lock>,
}

impl Alone {
    fn begin(node: &Node) -> Result<Alone, SaveError> {
        let mut files = settings::files(node);
        files.set_replid(node.replication.state().history.id());
        let lock = files.lock().map_err(|Logged| SaveError::Failed)?;
        let before = files.manifest().map_err(|Logged| SaveError::Failed)?;
        if before.is_none() {
            files.begin().map_err(|Logged| SaveError::Failed)?;
        }
        // No RDB file is written before it is over.
        let log = ended::draw();
        let moment = Moment { log, ..ended::moment(node.store()) };
        files.set_ended(Some(ended::note(moment, node.store())));
        Ok(Alone { files, before, log, _lock: lock })
    }

    fn list(mut self, base: AofFile) -> Result<(), SaveError> {
        let list = List { base: Some(base.seq as u64), segments: Vec::new() };
        self.files.announce_base(base);
        self.files.save(&list).map_err(|error| {
            log::warning(format!("Can't write the AOF manifest file: {}", os_text(&error)));
            SaveError::Failed
        })?;
        for file in self.before.into_iter().flat_map(|manifest| manifest.incr) {
            self.files.remove_named(&file.name);
        }
        log::notice("Background AOF rewrite finished successfully");
        Ok(())
    }
}

/// The first base, while nothing else runs yet. Returns its number.
pub fn write_first(node: &'static Node, files: &mut AofFiles) -> Result<u64, SaveError> {
    node.persistence.begin(Job::Rewrite);
    let mut held = Held::new(&node.keyspace);
    let cut = save::cut(node.store(), &mut held, node.used_memory_bytes());
    held.release();
    let number = files.last_base() + 1;
    let written = cut.ok_or(SaveError::Failed).and_then(|cut| {
        BaseWriting::new(node, files.clone(), cut, number, (has_rdb_base(node), None)).write()
    });
    node.persistence.saving().running = None;
    let (base, bytes) = written?;
    files.announce_base(base);
    node.aof.rewrites().base_bytes = bytes;
    Ok(number)
}

// ---- the cron ----

/// Begins what was scheduled, or what the growth of the files asks for. Whether it has to wait for scripts;
/// nothing was done then.
pub fn tick(node: &'static Node) -> bool {
    const PERCENT: Id = id("auto-aof-rewrite-percentage");
    const LEAST: Id = id("auto-aof-rewrite-min-size");
    if node.persistence.saving().running.is_some() || node.aof.rewrites().listing.is_some() {
        return false;
    }
    let awaits = node.aof.is_on() && node.aof.awaits_base.load(Relaxed);
    let mut is_due = node.aof.rewrites().is_scheduled || awaits;
    // Switched off it leaves a base that keeps files of swap-dir: that is given up for one with all values.
    if !is_due && (node.aof.is_on() || reference::wants_base(node)) {
        let (percent, least) = (node.config.number(PERCENT) as u64, node.config.number(LEAST) as u64);
        let (now_bytes, then_bytes) = (node.aof.current_bytes(), node.aof.rewrites().size_then_bytes.max(1));
        let growth = (now_bytes.saturating_mul(100) / then_bytes).saturating_sub(100);
        let grows = node.aof.is_on() && percent > 0 && now_bytes > least && growth >= percent;
        let why = match () {
            () if grows => format!("on {growth}% growth"),
            () if reference::wants_base(node) => "to free files of swap-dir".to_string(),
            () => return false,
        };
        if !node.aof.rewrites().rests(instant()) {
            let mut held = Held::new(&node.keyspace);
            if !held.try_gate() {
                return true;
            }
            log::notice(format!("Starting automatic rewriting of AOF {why}"));
            ask(node, &mut held);
        }
        return false;
    }
    is_due = is_due && !node.aof.rewrites().rests(instant());
    if is_due {
        let mut held = Held::new(&node.keyspace);
        if !held.try_gate() {
            return true;
        }
        node.aof.rewrites().is_scheduled = false;
        if ask(node, &mut held) == Asked::Busy {
            // Another walk has begun while this thread waited for the gate, or a switch.
            node.aof.rewrites().is_scheduled = true;
        }
    }
    false
}

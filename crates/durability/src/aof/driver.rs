//! The threads of the append-only file: one that writes, one that syncs. The machine
//! (`isotherm_log::writer::AofWriter`) decides what is done when; this module does it.
//!
//! ```text
//!   workers --append--> log --collect--> AofWriter --Write, Create, List--> this thread --> disk
//!           --wake-->                              --Sync----------------> aof-sync     --> disk
//!           <--Durable, RefuseWrites---------------
//! ```
//! Under `everysec` and `no` the writer sleeps a moment after it has written, so that a busy server makes one
//! write of many commands; answered commands are in the kernel that moment later. Under `always` it is woken
//! by each batch.

use isotherm_disk::File;
use isotherm_log::writer::{AofWriter, FileId, FsyncPolicy, Input, List, Ms, Output};
use isotherm_log::{Collected, Database, LogOffset, ReaderId, ReaderKind, select};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use super::commit::{Commit, Layout, unlogged};
use super::ended;
use super::prepare::Preparation;
use super::syncs::{Syncs, ToSync};
use isotherm_node::aof::files::AofFiles;
use isotherm_node::aof::request::{Base, Request, Stop};
use isotherm_node::aof::state::{AofState, NOT_SYNCED};
use isotherm_node::effects::change_log::{ChangeLog, LogReader};
use isotherm_node::mail::Mail;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::observe::latency::monitor::Event;
use isotherm_node::persistence::Store;
use isotherm_node::replication::waits;
use isotherm_node::request::reply_gate::Part;
use isotherm_runtime::log::{self as report, os_text};
use isotherm_runtime::routines::{self, Routine, Running};
use isotherm_runtime::time::{elapsed, instant, unix_now};

// COMPAT(persistence): Under `appendfsync everysec` and `no` a reply may leave a millisecond before its write
// to the file: a killed process loses that. Valkey writes first, or waits up to two seconds for an fsync.
// Why: workers write no files; replies that wait for the write cost CPU (docs/design/durability.md).
/// Between two writes of a busy log.
const GATHERING: Duration = Duration::from_millis(1);

/// Starting point of the writer.
pub enum First {
    /// Start after the last of these files, at this place of the log; the files are loaded.
    Behind(List, LogOffset),
    /// Start as behind these, once their list is written: this is the error of the first attempt.
    Unlisted(List, LogOffset, io::Error),
    /// Start without a base: there is data that these files do not have.
    AwaitingBase { before: List, start: LogOffset },
}

/// The writing thread. A step is what was asked for and what was appended meanwhile.
pub struct Driver {
    store: Store<'static>,
    log: &'static ChangeLog,
    state: &'static AofState,
    mail: &'static Mail,
    files: AofFiles,
    preparation: Preparation,
    /// Bytes that are written of the log file.
    used_bytes: u64,
    /// Previous file from the first attempt to begin the next one until it is closed: the bytes that count of
    /// it, if it was prepared.
    closing: Option<Option<u64>>,
    machine: AofWriter,
    reader: ReaderId,
    /// Databases that are selected at places of the log where a file may begin without a SELECT: within the
    /// stream of a primary, or after a failed sync. Places where 0 is selected are left out.
    selected: BTreeMap<LogOffset, Database>,
    /// A file, and its bytes before the first write: they have its SELECT.
    begun: Option<(FileId, u64)>,
    open: BTreeMap<FileId, Arc<dyn File>>,
    /// Queue of the sync thread; `None` after the thread's end.
    sync: Option<Sender<ToSync>>,
    syncing: Running,
    is_syncing: bool,
    policy: FsyncPolicy,
    began: Instant,
    /// The last second that stands in the file.
    stamped_seconds: i64,
    has_begun: bool,
    /// The last step has written something.
    has_written: bool,
    /// Place at which the thread ends, once all before it is durable.
    stop: Option<Stop>,
    is_abandoned: bool,
    /// The base that is to be listed.
    base: Option<Base>,
}

/// Starts both threads.
pub fn start(
    store: Store<'static>,
    log: &'static ChangeLog,
    state: &'static AofState,
    files: AofFiles,
    first: First,
    policy: FsyncPolicy,
) -> io::Result<Running> {
    // The last requests to the previous writer are not for this one.
    state.inbox.take();
    let (sync, to_sync) = channel();
    let mut outputs = Vec::new();
    let (start, mut machine) = match first {
        First::Behind(list, start) => (start, AofWriter::resume(policy, list, start, Ms(0))),
        First::Unlisted(list, start, error) => {
            (start, AofWriter::unlisted(policy, list, start, errno(&error), &mut outputs))
        }
        First::AwaitingBase { before, start } => {
            (start, AofWriter::awaiting_base(policy, before, start, Ms(0)))
        }
    };
    machine.skip_to(files.last_log());
    let reader = log.add_reader(ReaderKind::Writer, start).expect("the log begins here");
    let syncs =
        Syncs { files: to_sync, state, spikes: store.spikes, log, next: None, ended: None, is_over: false };
    let syncing = routines::start("aof-sync", syncs)?;
    let mut driver = Driver {
        store,
        log,
        state,
        mail: store.mail,
        preparation: Preparation::new(Arc::clone(files.disk()), files.prepared_path()),
        used_bytes: 0,
        closing: None,
        files,
        machine,
        reader,
        selected: BTreeMap::new(),
        begun: None,
        open: BTreeMap::new(),
        sync: Some(sync),
        syncing,
        is_syncing: false,
        policy,
        began: instant(),
        stamped_seconds: 0,
        has_begun: false,
        has_written: false,
        stop: None,
        is_abandoned: false,
        base: None,
    };
    driver.note_selected(start, log.stream_database());
    outputs.into_iter().for_each(|refusal| _ = driver.perform(refusal));
    routines::start("aof-write", driver)
}

impl Routine for Driver {
    fn step(&mut self) -> bool {
        if !std::mem::replace(&mut self.has_begun, true) {
            // Before it can rest: what wakes it has to find it.
            let this = std::thread::current();
            self.log.set_reader(LogReader::Aof, move || this.unpark());
        }
        self.has_written = self.turn(&mut Vec::new());
        let is_over = self.is_abandoned || !self.has_written && self.is_all_done();
        if !is_over {
            return true;
        }
        self.end_prepared();
        self.note_end();
        self.log.remove_reader(self.reader);
        // Later reports of the sync thread are of no interest to the next writer.
        self.sync = None;
        self.syncing.join();
        self.state.inbox.take();
        false
    }

    /// Sleeps until there is something to do.
    fn rest(&mut self) {
        if self.has_written && self.policy != FsyncPolicy::Always {
            std::thread::sleep(GATHERING);
            return;
        }
        if self.stop.is_none() {
            self.log.fall_asleep(LogReader::Aof);
            if self.log.has_more_to_collect() {
                return;
            }
        }
        match self.machine.next_tick() {
            Some(tick) => {
                let wait = tick.0.saturating_sub(self.now().0);
                std::thread::park_timeout(Duration::from_millis(wait.max(1)));
            }
            None => std::thread::park(),
        }
    }
}

impl Driver {
    fn now(&self) -> Ms {
        Ms(elapsed(self.began).as_millis() as u64)
    }

    /// Returns whether it is to stop, and nothing that was logged before is left to do.
    fn is_all_done(&self) -> bool {
        let Some(Stop { end, .. }) = self.stop else { return false };
        match self.machine.is_awaiting_base() {
            // The earlier files count, and the commands that were logged after them do not.
            true => self.machine.written() >= end,
            false => self.machine.durable() >= end,
        }
    }

    /// All is durable: the last file is cut to what it holds.
    fn end_prepared(&mut self) {
        self.preparation.finish();
        if self.preparation.current_bytes().is_some()
            && !self.is_abandoned
            && self.used_bytes > 0
            && let Some(file) = self.open.values().next_back()
        {
            // If it fails, the next start does it.
            let _ = file.set_len(self.used_bytes).and_then(|()| file.sync_all());
        }
    }

    /// Notes in the manifest that the log was switched off. Before its first base the files of before count,
    /// and stay as they are.
    fn note_end(&mut self) {
        let Some(ended) = self.stop.and_then(|stop| stop.ended) else { return };
        if self.is_abandoned || self.machine.is_awaiting_base() {
            return;
        }
        self.files.set_ended(Some(ended::note(ended, self.store)));
        if let Err(error) = self.files.save(self.machine.list()) {
            report::warning(format!(
                "Can't note in the manifest that the append-only file was switched off: {}",
                os_text(&error)
            ));
        }
    }

    /// Runs one round: handles the requests, writes what was appended, and does what follows from it. Returns
    /// whether something was written.
    fn turn(&mut self, outputs: &mut Vec<Output>) -> bool {
        // Writers wait when twice as much is not durable.
        self.machine.set_unsynced_bytes_max(self.log.limit_bytes() / 2);
        for request in self.state.inbox.take() {
            let input = match request {
                Request::Policy(policy) => {
                    self.policy = policy;
                    if policy != FsyncPolicy::Always {
                        self.preparation.discard();
                    }
                    Input::Policy(policy)
                }
                Request::SyncEnded(synced) => {
                    self.is_syncing = false;
                    match synced {
                        Ok(()) => {
                            self.preparation.count_sync();
                            self.state.commits.fetch_add(1, Ordering::Relaxed);
                            Input::Synced
                        }
                        Err(error) => Input::SyncFailed { errno: errno(&error) },
                    }
                }
                Request::Flush => {
                    self.collect(outputs);
                    Input::Flush
                }
                Request::BaseSaved(base) => {
                    self.files.announce_base(base.file.clone());
                    // The cut is in the log already, and the base is listed after it.
                    self.collect(outputs);
                    let saved = Input::BaseSaved { base: base.file.seq as u64, cut: base.cut };
                    self.base = Some(base);
                    saved
                }
                Request::Abandon => {
                    self.is_abandoned = true;
                    continue;
                }
                Request::Prepared(prepared) => {
                    self.preparation.end(prepared);
                    Input::Tick
                }
                Request::Stop(stop) => {
                    self.collect(outputs);
                    self.stop = Some(stop);
                    Input::Flush
                }
            };
            self.step(input, outputs);
        }
        let before = self.machine.written();
        self.prepare();
        self.collect(outputs);
        self.step(Input::Tick, outputs);
        self.state.log_bytes.store(self.machine.log_bytes(), Ordering::Relaxed);
        self.end_rewrite();
        self.machine.written() > before
    }

    /// Ends the rewrite if the new base is listed and the files before it are removed.
    fn end_rewrite(&mut self) {
        let number = self.files.base_number();
        if let Some(base) = self.base.take_if(|base| base.file.seq as u64 == number) {
            (base.finish)();
        }
    }

    /// Under `always` with many commits the log continues in files that were prepared.
    fn prepare(&mut self) {
        if self.policy != FsyncPolicy::Always || self.stop.is_some() || self.machine.failure().is_some() {
            return;
        }
        if self.preparation.ends_file(self.used_bytes) {
            self.log.cut(true);
        }
        let (log, state) = (self.log, self.state);
        self.preparation.begin(state.prepare_bytes(), self.used_bytes, |prepared| {
            state.inbox.post(log, Request::Prepared(prepared));
        });
    }

    fn collect(&mut self, outputs: &mut Vec<Output>) {
        // Replicas may have more of the log for ever.
        if self.stop.is_some() {
            return;
        }
        let mut collected = Vec::new();
        self.log.collect(|one| collected.push(one));
        for one in collected {
            let input = match one {
                Collected::Frames(end, database) => {
                    self.note_selected(end, database);
                    Input::Collected(end)
                }
                Collected::FileEnd(end, database) => {
                    self.note_selected(end, database);
                    Input::FileEnd(end)
                }
            };
            self.step(input, outputs);
        }
    }

    /// Returns the bytes that stand before the first command in a file that begins at `start`.
    fn unlogged_at(&self, start: LogOffset) -> Vec<u8> {
        self.selected.get(&start).map(|database| unlogged(&select(*database))).unwrap_or_default()
    }

    /// Notes the database that is selected at `start`. An earlier note of the same place is of no more
    /// interest: a file ends there, and what follows brings its SELECT.
    fn note_selected(&mut self, start: LogOffset, database: Database) {
        match database {
            0 => _ = self.selected.remove(&start),
            _ => _ = self.selected.insert(start, database),
        }
    }

    /// Makes a file, with the SELECT that its first command needs: durable, and never written again. It may
    /// stay the last without a command, or with one that was torn, and a base of commands does not say which
    /// database is selected after it.
    fn create(&mut self, file: FileId) -> io::Result<()> {
        // What is known of the one before it is gone after the first attempt.
        if self.closing.is_none() && !self.open.is_empty() {
            let was_prepared = self.preparation.current_bytes().is_some();
            self.closing = Some(was_prepared.then_some(self.used_bytes));
        }
        (self.used_bytes, self.begun) = (0, None);
        let start = self.machine.next_file_start();
        let beginning = start.map(|start| self.unlogged_at(start)).unwrap_or_default();
        let prepared = self.preparation.take(&self.files.log_path(file));
        let opened = match (prepared, self.preparation.current_bytes()) {
            (Some(prepared), Some(file_bytes)) => {
                self.used_bytes = begin_prepared(&*prepared, file_bytes, &beginning)?;
                prepared
            }
            _ => {
                self.used_bytes = beginning.len() as u64;
                self.files.create(file, &beginning)?
            }
        };
        self.begun = (self.used_bytes > 0).then_some((file, self.used_bytes));
        self.open.insert(file, opened);
        Ok(())
    }

    /// Returns how many bytes of a file stand before the first write. The places of the state machine do not
    /// count them.
    fn begun_bytes(&self, file: FileId) -> u64 {
        self.begun.filter(|begun| begun.0 == file).map_or(0, |begun| begun.1)
    }

    fn step(&mut self, input: Input, outputs: &mut Vec<Output>) {
        // A write and a sync may both have a result at once.
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.machine.step(input, self.now(), outputs);
            for output in std::mem::take(outputs) {
                inputs.extend(self.perform(output));
            }
        }
    }

    /// Carries out one output. Returns its result, if it has one at once.
    fn perform(&mut self, output: Output) -> Option<Input> {
        match output {
            Output::Create { file } => Some(self.ended(|driver| driver.create(file))),
            Output::Write { file, at, from, to } => Some(self.write(file, at, from, to)),
            Output::SetLen { file, len } => Some(self.ended(|driver| {
                let len = len.max(driver.begun_bytes(file));
                driver.file(file)?.set_len(len)
            })),
            Output::List(list) => Some(self.ended(|driver| {
                let spikes = driver.store.spikes;
                // A file has bytes of one history only: where it changes a file ends, and is listed with
                // this.
                driver.files.set_replid(driver.store.replication.state().history.id());
                spikes.time(Event::AofRename, || driver.files.save(&list))
            })),
            Output::Sync { file } => match self.file(file) {
                Ok(file) => {
                    self.is_syncing = true;
                    let sync = self.sync.as_ref().expect("it goes on to the end");
                    sync.send((file, self.policy)).expect("the sync thread ends last");
                    None
                }
                Err(error) => Some(Input::SyncFailed { errno: errno(&error) }),
            },
            Output::Close { file } => {
                let closed = self.open.remove(&file);
                if let (Some(closed), Some(Some(len))) = (closed, self.closing.take()) {
                    // The list has the length; after it are sectors that were never written.
                    let _ = closed.set_len(len);
                }
                None
            }
            Output::Remove { file } => {
                self.files.remove(file);
                None
            }
            Output::Durable(offset) => {
                if !self.state.note_durable(offset) {
                    return None;
                }
                self.store.gate.set(self.mail, Part::Durable, offset);
                let primary = &self.store.replication.primary;
                primary.waits.look(|wish| wish.is_met(waits::reached(primary, wish, Some(offset))));
                None
            }
            Output::Release(offset) => {
                self.log.advance(self.reader, offset);
                // A file that begins there may have to be begun again.
                self.selected = self.selected.split_off(&offset);
                if self.mail.is_log_full() && self.log.has_room() {
                    self.mail.set_log_full(false);
                }
                None
            }
            // It was switched off while the disk did not answer: what comes of its last requests concerns no
            // write.
            Output::RefuseWrites(_) | Output::GiveUp if self.state.is_writer_ending() => None,
            Output::Exit(_) if self.state.is_writer_ending() => {
                if self.state.fail_ending() {
                    report::warning(NOT_SYNCED);
                }
                self.is_abandoned = true;
                None
            }
            Output::RefuseWrites(failure) => {
                report::warning(format!(
                    "The append-only file can't be written ({:?}: {}): writes are refused until it can.",
                    failure.call,
                    os_text(&io::Error::from_raw_os_error(failure.errno))
                ));
                self.state.refuse_writes(Some(failure));
                self.mail.set_tasks(Tasks::LOG_FAILED, Tasks::LOG_FAILED);
                None
            }
            Output::GiveUp => {
                report::warning(
                    "The disk of the append-only file is full: what could not be written stays in memory and is written when there \
                     is room. Until then reads show it, writes are refused, and this process should not be ended.",
                );
                self.store.gate.give_up(self.mail);
                None
            }
            Output::AcceptWrites => {
                report::warning("The append-only file can be written again.");
                self.store.gate.go_on(self.mail);
                self.mail.set_tasks(Tasks::LOG_FAILED, Tasks::NONE);
                self.state.refuse_writes(None);
                None
            }
            Output::Flushed => None,
            Output::BaseNeeded => {
                report::warning(
                    "Writes to the append-only file since its last fsync may be lost if the machine stops: it is rewritten.",
                );
                self.state.rewrites().is_scheduled = true;
                None
            }
            Output::Exit(failure) => {
                report::warning(format!(
                    "Can't recover from an error of the append-only file while the fsync policy is 'always': {}. Exiting...",
                    os_text(&io::Error::from_raw_os_error(failure.errno))
                ));
                routines::exit(1);
                self.is_abandoned = true;
                None
            }
        }
    }

    fn file(&mut self, file: FileId) -> io::Result<Arc<dyn File>> {
        if let Some(open) = self.open.get(&file) {
            return Ok(Arc::clone(open));
        }
        let opened = self.files.open(file)?;
        self.open.insert(file, Arc::clone(&opened));
        Ok(opened)
    }

    fn ended(&mut self, call: impl FnOnce(&mut Driver) -> io::Result<()>) -> Input {
        match call(self) {
            Ok(()) => Input::Done,
            Err(error) => Input::Failed { errno: errno(&error) },
        }
    }

    fn write(&mut self, file: FileId, at: u64, from: LogOffset, to: LogOffset) -> Input {
        let pieces = self.log.read(from, to).expect("what is not written is in memory");
        let timestamp_seconds = self.next_timestamp();
        let durable_bytes = self.machine.durable_bytes();
        let begun_bytes = if at == 0 { self.begun_bytes(file) } else { 0 };
        let unlogged = if at == 0 && begun_bytes == 0 { self.unlogged_at(from) } else { Vec::new() };
        let place = at + begun_bytes;
        let commit =
            Commit { at: place, durable_bytes, unlogged: &unlogged, pieces: &pieces, timestamp_seconds };
        let layout = match self.preparation.current_bytes() {
            Some(file_bytes) => Layout::Prepared { file_bytes },
            None if self.state.has_lines() => Layout::WithLines,
            None => Layout::Plain,
        };
        let begun = instant();
        let written = self.file(file).and_then(|file| commit.write(&*file, layout));
        self.note_write(elapsed(begun));
        self.used_bytes = place + *written.as_ref().unwrap_or(&0);
        match written {
            Ok(file_bytes) => {
                self.stamped_seconds = timestamp_seconds.unwrap_or(self.stamped_seconds);
                Input::Wrote { file_bytes: begun_bytes + file_bytes }
            }
            Err(error) => Input::Failed { errno: errno(&error) },
        }
    }

    /// Valkey's two events of a write: what else the disk had to do is the usual reason for a slow one.
    fn note_write(&self, took: Duration) {
        let Store { spikes, state, config, .. } = self.store;
        if config.latency_threshold_ms().is_none_or(|ms| took.as_millis() < u128::from(ms)) {
            return;
        }
        spikes.note(Event::AofWrite, took);
        spikes.note(
            match () {
                () if self.is_syncing => Event::AofWritePendingFsync,
                () if state.saving().running.is_some() => Event::AofWriteActiveChild,
                () => Event::AofWriteAlone,
            },
            took,
        );
    }

    // COMPAT(persistence): With `aof-timestamp-enabled` a timestamp is that of the write that has the
    // commands behind it, some milliseconds after they ran. Why: workers do not write the file.
    /// Returns the second, unless it stands in the file. A clock that goes back adds nothing.
    fn next_timestamp(&self) -> Option<i64> {
        let now_seconds = unix_now().0 / 1000;
        (self.state.has_timestamps() && now_seconds > self.stamped_seconds).then_some(now_seconds)
    }
}

/// The SELECT of a prepared file is a commit of its own. Returns how much of it is used then.
fn begin_prepared(prepared: &dyn File, file_bytes: u64, beginning: &[u8]) -> io::Result<u64> {
    if beginning.is_empty() {
        return Ok(0);
    }
    let commit =
        Commit { at: 0, durable_bytes: 0, unlogged: beginning, pieces: &[], timestamp_seconds: None };
    let used_bytes = commit.write(prepared, Layout::Prepared { file_bytes })?;
    prepared.sync_data()?;
    Ok(used_bytes)
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

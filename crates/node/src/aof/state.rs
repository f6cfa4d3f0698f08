//! State of the append-only file that other threads see, and their requests to its writer.

use isotherm_disk::Lock;
use isotherm_log::LogOffset;
use isotherm_log::writer::Failure;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::files::AofFiles;
use super::request::Inbox;
use super::rewrites::Rewrites;
use isotherm_config::{Config, Id, id};
use isotherm_runtime::routines::{self, Running};
use isotherm_runtime::time::elapsed;

/// Number of `always` as a value of `appendfsync`.
pub const ALWAYS: i64 = 1;

pub struct AofState {
    pub inbox: Inbox,
    /// Also says whether there is an append-only file.
    writer: Mutex<Option<Running>>,
    /// Held by the thread that switches it on or off: that of a CONFIG SET, of the control thread, or of the
    /// link to a primary.
    switching: Mutex<()>,
    /// A writer that was switched off, and still waits for the disk.
    ending: Mutex<Option<Ending>>,
    /// A power failure takes nothing before this place of the log.
    durable: AtomicU64,
    failure: Mutex<Option<Failure>>,
    /// `aof-integrity-check`: commits are written with their lines.
    has_lines: AtomicBool,
    /// `aof-timestamp-enabled`: a line at the beginning of each second that has commands.
    has_timestamps: AtomicBool,
    /// `aof-prepare-bytes`
    prepare_bytes: AtomicU64,
    /// The append-only file was switched on while there was data. It does not count before its first base.
    pub awaits_base: AtomicBool,
    /// The generation of replication that suspended it last (`switch::suspend`): it rests until the data of
    /// another history is there. 0: none did, for no link has that generation.
    suspended_by: AtomicU64,
    /// Bytes of the listed log files.
    pub log_bytes: AtomicU64,
    /// Syncs that have succeeded.
    pub commits: AtomicU64,
    /// The number of the last base, whether it is listed or not.
    pub base_number: AtomicU64,
    rewrites: Mutex<Rewrites>,
    /// The files that the writer writes, and their lock, for as long as they are this process's.
    folder: Mutex<Option<(AofFiles, Box<dyn Lock>)>>,
}

pub const NOT_SYNCED: &str = "The append-only file could not be synced: what was written last may be lost.";

/// A writer that was asked to end while its disk did not answer.
pub struct Ending {
    pub writer: Running,
    pub begun: Instant,
    /// True if it ends as soon as the disk answers, whatever is left to do.
    pub is_given_up: bool,
}

/// State of such a writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    Writes,
    /// Overdue: the caller is to give it up.
    Late,
    Ended {
        is_given_up: bool,
    },
}

impl Default for AofState {
    fn default() -> AofState {
        AofState {
            inbox: Inbox::default(),
            writer: Mutex::new(None),
            switching: Mutex::new(()),
            ending: Mutex::new(None),
            durable: AtomicU64::new(0),
            failure: Mutex::new(None),
            has_lines: AtomicBool::new(true),
            has_timestamps: AtomicBool::new(false),
            prepare_bytes: AtomicU64::new(0),
            awaits_base: AtomicBool::new(false),
            suspended_by: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            base_number: AtomicU64::new(0),
            rewrites: Mutex::new(Rewrites::default()),
            folder: Mutex::new(None),
        }
    }
}

impl AofState {
    /// Waits until no other thread switches the file on or off: for the thread of a link. The caller holds
    /// nothing. A switch takes no longer than its wait for the writer's last sync (`switch::end_writer`) and
    /// the base that it stops.
    pub fn switching(&self) -> MutexGuard<'_, ()> {
        routines::lock(&self.switching)
    }

    /// Takes the right to switch, after a wait of `at_most` at the longest.
    pub fn switching_within(&self, at_most: Duration) -> Option<MutexGuard<'_, ()>> {
        routines::lock_within(&self.switching, at_most)
    }

    /// Takes the right to switch, without waiting. Returns `None` if another thread has it.
    pub fn try_switching(&self) -> Option<MutexGuard<'_, ()>> {
        routines::try_lock(&self.switching)
    }

    /// A link of this generation suspends it. One that was superseded meanwhile changes nothing.
    pub fn suspend(&self, generation: u64) {
        self.suspended_by.fetch_max(generation, SeqCst);
    }

    /// Ends the suspension by this generation. Returns whether no other one has suspended the file since.
    pub fn resume(&self, generation: u64) -> bool {
        self.suspended_by.compare_exchange(generation, 0, SeqCst, SeqCst).is_ok()
    }

    /// No link loads any more, whichever has suspended it.
    pub fn resume_any(&self) {
        self.suspended_by.store(0, SeqCst);
    }

    pub fn is_suspended(&self) -> bool {
        self.suspended_by.load(SeqCst) != 0
    }

    pub fn set_on(&self, writer: Running) {
        *self.writer() = Some(writer);
    }

    pub fn is_on(&self) -> bool {
        self.writer().is_some()
    }

    /// The writing thread, which is to end.
    pub fn take_writer(&self) -> Option<Running> {
        self.writer().take()
    }

    /// Notes a writer that was asked to end and waits for the disk.
    pub fn set_ending(&self, ending: Ending) {
        *self.ending() = Some(ending);
    }

    pub fn is_writer_ending(&self) -> bool {
        self.ending().as_ref().is_some_and(|ending| !ending.writer.has_ended())
    }

    /// Returns whether there is one to look after.
    pub fn has_ending(&self) -> bool {
        self.ending().is_some()
    }

    /// Returns its state; the end is returned once only. It is late after `patience`.
    pub fn look_at_ending(&self, patience: Duration) -> Left {
        let mut place = self.ending();
        let Some(ending) = place.as_mut() else { return Left::Writes };
        if ending.writer.has_ended() {
            let is_given_up = ending.is_given_up;
            *place = None;
            return Left::Ended { is_given_up };
        }
        if !ending.is_given_up && elapsed(ending.begun) > patience {
            ending.is_given_up = true;
            return Left::Late;
        }
        Left::Writes
    }

    /// Notes that the writer ends without its last sync. Returns whether that is news: one that was given up
    /// has been reported.
    pub fn fail_ending(&self) -> bool {
        self.ending().as_mut().is_some_and(|ending| !std::mem::replace(&mut ending.is_given_up, true))
    }

    fn ending(&self) -> MutexGuard<'_, Option<Ending>> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Option<Running>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held for a moment only.
    pub fn rewrites(&self) -> MutexGuard<'_, Rewrites> {
        self.rewrites.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the files that are written from now on, by this process alone.
    pub fn keep_folder(&self, files: &AofFiles, lock: Box<dyn Lock>) {
        *self.folder() = Some((files.clone(), lock));
    }

    /// The files are no longer written: others may.
    pub fn give_folder_back(&self) {
        *self.folder() = None;
    }

    /// The files that are written, if any are.
    pub fn files(&self) -> Option<AofFiles> {
        self.folder().as_ref().map(|(files, _)| files.clone())
    }

    fn folder(&self) -> MutexGuard<'_, Option<(AofFiles, Box<dyn Lock>)>> {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn durable(&self) -> LogOffset {
        LogOffset(self.durable.load(SeqCst))
    }

    /// Returns the bytes of the base and of the log files after it.
    pub fn current_bytes(&self) -> u64 {
        self.rewrites().base_bytes + self.log_bytes.load(Relaxed)
    }

    /// Notes that the writer has made more durable. Returns false, and changes nothing, for a writer that was
    /// switched off meanwhile.
    pub fn note_durable(&self, offset: LogOffset) -> bool {
        let next = |now| (now != u64::MAX).then_some(offset.0);
        self.durable.fetch_update(SeqCst, SeqCst, next).is_ok()
    }

    /// Sets the place before which the log counts as durable.
    pub fn set_durable(&self, offset: LogOffset) {
        self.durable.store(offset.0, SeqCst);
    }

    /// `appendfsync always`: a change is synced before its reply leaves.
    pub fn awaits_each_sync(&self, config: &Config) -> bool {
        const FSYNC: Id = id("appendfsync");
        config.number(FSYNC) == ALWAYS
    }

    pub fn has_lines(&self) -> bool {
        self.has_lines.load(SeqCst)
    }

    /// Returns the length of a prepared file; 0 if none is to be prepared.
    pub fn prepare_bytes(&self) -> u64 {
        self.prepare_bytes.load(SeqCst)
    }

    pub fn set_format(&self, has_lines: bool, prepare_bytes: u64) {
        self.has_lines.store(has_lines, SeqCst);
        // In a prepared file each commit has its line.
        self.prepare_bytes.store(if has_lines { prepare_bytes } else { 0 }, SeqCst);
    }

    pub fn has_timestamps(&self) -> bool {
        self.has_timestamps.load(SeqCst)
    }

    pub fn set_has_timestamps(&self, has_timestamps: bool) {
        self.has_timestamps.store(has_timestamps, SeqCst);
    }

    pub fn refuse_writes(&self, failure: Option<Failure>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// Why writes are refused, if they are.
    pub fn failure(&self) -> Option<Failure> {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_runtime::time::instant;
    use std::sync::mpsc::{Receiver, channel};

    /// Ends when the test says so.
    struct Writer(Receiver<()>);

    impl routines::Routine for Writer {
        fn step(&mut self) -> bool {
            let _ = self.0.recv();
            false
        }
    }

    #[test]
    fn a_failed_last_sync_is_reported_once() {
        let check = |is_late: bool| {
            let (aof, (end, may_end)) = (AofState::default(), channel());
            assert!(!aof.fail_ending(), "no writer is to end");
            let writer = routines::start("writer", Writer(may_end)).expect("a thread");
            aof.set_ending(Ending { writer, begun: instant(), is_given_up: false });
            if is_late {
                routines::pause(routines::LOOK);
                assert_eq!(aof.look_at_ending(Duration::ZERO), Left::Late);
            }
            assert_eq!(aof.fail_ending(), !is_late);
            assert!(!aof.fail_ending() && aof.look_at_ending(Duration::ZERO) == Left::Writes);
            drop(end);
            while aof.is_writer_ending() {
                routines::pause(routines::LOOK);
            }
            assert_eq!(aof.look_at_ending(Duration::ZERO), Left::Ended { is_given_up: true });
        };
        check(true);
        check(false);
    }

    #[test]
    fn only_the_newest_link_resumes_what_it_has_suspended() {
        let aof = AofState::default();
        aof.suspend(1);
        aof.suspend(2);
        assert!(!aof.resume(1) && aof.is_suspended());
        // The superseded one comes late.
        aof.suspend(1);
        assert!(!aof.resume(1) && aof.is_suspended());
        assert!(aof.resume(2) && !aof.is_suspended());
        aof.suspend(1);
        aof.resume_any();
        assert!(!aof.is_suspended());
    }
}

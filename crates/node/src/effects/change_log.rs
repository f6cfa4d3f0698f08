//! The log of changes, as the server writes it: the records of a command, and the keys that leave by
//! themselves, become one frame of the log before their partitions are released.
//!
//! ```text
//!   a command        keys that expired under it, its records   -> a frame at its end
//!   EXEC             the same of all its commands              -> one frame, in MULTI and EXEC
//!   a waiter served  its own records                           -> a frame behind that of the command which served it
//!   cron, eviction   a key that expired or was evicted         -> a frame each
//! ```
//! **What this module does not know:** what the frames become (append-only file, backlog, replicas), and
//! their readers. While the log has no reader, a command costs one test of a task.

use isotherm_commands::Records;
use isotherm_keyspace::Db;
use isotherm_log::{Frame, Log, LogOffset, SleepMarks};
use isotherm_resp::Args;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use crate::mail::Mail;
use crate::mail::tasks::Tasks;

/// A thread that reads the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogReader {
    /// The writer of the append-only file.
    Aof,
    /// The thread that sends the log to replicas.
    Feeder,
}

const READERS: [LogReader; 2] = [LogReader::Aof, LogReader::Feeder];

/// Ends a reader's sleep.
type Wake = Box<dyn Fn() + Send>;

/// The log of the node, and the threads that read it.
pub struct ChangeLog {
    log: Log,
    readers: [Mutex<Option<Wake>>; READERS.len()],
    asleep: SleepMarks,
    demand: Mutex<Demand>,
}

/// Why commands write frames, or do not.
#[derive(Default)]
struct Demand {
    read_by: [bool; READERS.len()],
    /// The node follows another, whose bytes its log takes over.
    follows: bool,
    /// Commands may have run, since the current history began, that were not logged.
    has_gap: bool,
}

impl Deref for ChangeLog {
    type Target = Log;

    #[inline]
    fn deref(&self) -> &Log {
        &self.log
    }
}

impl ChangeLog {
    pub fn new(start: LogOffset, memory_bytes_max: u64) -> ChangeLog {
        let log = Log::new(start, memory_bytes_max);
        ChangeLog {
            log,
            readers: READERS.map(|_| Mutex::new(None)),
            asleep: SleepMarks::default(),
            // Without a reader nothing is logged.
            demand: Mutex::new(Demand { has_gap: true, ..Demand::default() }),
        }
    }

    /// A reader begins, or ends. Everything is held, here and below, so that of the commands that hold
    /// something all see it or none.
    pub fn set_read_by(&self, mail: &Mail, reader: LogReader, is_read: bool) {
        self.set_demand(mail, |demand| demand.read_by[reader as usize] = is_read);
    }

    /// Sets whether the log takes over the bytes of another node, or those of its own commands.
    pub fn set_follows(&self, mail: &Mail, follows: bool) {
        self.set_demand(mail, |demand| demand.follows = follows);
    }

    /// Returns whether `reader` reads the log.
    pub fn is_read_by(&self, reader: LogReader) -> bool {
        self.demand.lock().unwrap_or_else(PoisonError::into_inner).read_by[reader as usize]
    }

    /// Returns whether the log may lack a part of the current history.
    pub fn has_gap(&self) -> bool {
        self.demand.lock().unwrap_or_else(PoisonError::into_inner).has_gap
    }

    /// A history begins here, and all of it is going to be logged; or it continues from a file, and nothing
    /// has run yet.
    pub fn close_gap(&self) {
        self.demand.lock().unwrap_or_else(PoisonError::into_inner).has_gap = false;
    }

    fn set_demand(&self, mail: &Mail, change: impl FnOnce(&mut Demand)) {
        let mut demand = self.demand.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut demand);
        let is_read = demand.read_by.contains(&true);
        demand.has_gap |= !is_read && !demand.follows;
        let is_logged = is_read && !demand.follows;
        mail.set_tasks(Tasks::LOGGED, if is_logged { Tasks::LOGGED } else { Tasks::NONE });
    }

    /// Sets the function that wakes a reader when something is appended while it sleeps.
    pub fn set_reader(&self, reader: LogReader, wake: impl Fn() + Send + 'static) {
        *self.readers[reader as usize].lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(wake));
    }

    /// The reader is about to look whether there is more, and to sleep if there is not.
    pub fn fall_asleep(&self, reader: LogReader) {
        self.asleep.set(reader as usize);
    }

    /// Something was appended.
    #[inline]
    pub fn wake_readers(&self) {
        let asleep = self.asleep.take();
        if asleep != 0 {
            self.wake_all(asleep);
        }
    }

    /// Wakes all sleeping readers, and `reader` in any case: it does not have to be woken again for what was
    /// appended before.
    pub fn wake_readers_and(&self, reader: LogReader) {
        self.wake_all(self.asleep.take() | 1 << reader as usize);
    }

    /// Readers by their bits.
    fn wake_all(&self, asleep: u64) {
        let is_asleep = |reader: &LogReader| asleep & 1 << *reader as usize != 0;
        READERS.into_iter().filter(is_asleep).for_each(|reader| self.wake(reader));
    }

    /// Wakes a reader, which may sleep, because there is work for it.
    #[cold]
    pub fn wake(&self, reader: LogReader) {
        if let Some(wake) = &*self.readers[reader as usize].lock().unwrap_or_else(PoisonError::into_inner) {
            wake();
        }
    }
}

const UNLINK: &[u8] = b"UNLINK";
const DEL: &[u8] = b"DEL";

/// Writer of one thread's frames into the log.
pub struct LogWriter {
    log: &'static ChangeLog,
    /// Something was appended since the reader was last woken.
    has_appended: bool,
    /// End of the last frame in the log.
    end: Option<LogOffset>,
    /// End of the last frame that the current command or transaction has made.
    written: LogOffset,
    frame: Frame,
    open: Open,
    /// True if the records of commands are dropped, because a script has asked for that.
    is_muted: bool,
    /// Command words that remove a key that has expired or was evicted. They do the same where the log is
    /// played back.
    expired_word: &'static [u8],
    evicted_word: &'static [u8],
}

/// Records of a transaction so far.
#[derive(Default)]
pub struct SuspendedFrame {
    frame: Frame,
    is_muted: bool,
}

/// The frame under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Open {
    /// No frame is open: the next record is a frame of its own.
    Nothing,
    Command,
    Transaction,
}

impl LogWriter {
    pub fn new(log: &'static ChangeLog) -> LogWriter {
        let (expired_word, evicted_word) = (UNLINK, UNLINK);
        let frame = Frame::default();
        LogWriter {
            log,
            has_appended: false,
            end: None,
            written: LogOffset::default(),
            frame,
            open: Open::Nothing,
            is_muted: false,
            expired_word,
            evicted_word,
        }
    }

    /// `lazyfree-lazy-expire` and `lazyfree-lazy-eviction`: Valkey shows them in its log, and so replicas get
    /// them.
    pub fn set_lazy(&mut self, expires_lazily: bool, evicts_lazily: bool) {
        self.expired_word = if expires_lazily { UNLINK } else { DEL };
        self.evicted_word = if evicts_lazily { UNLINK } else { DEL };
    }

    /// Sets whether the records of commands are dropped from now on. Keys that expire are still removed at
    /// the readers of the log.
    pub fn set_muted(&mut self, is_muted: bool) {
        self.is_muted = is_muted;
    }

    /// A command begins; its partitions are held.
    #[inline]
    pub fn begin_command(&mut self) {
        if self.open == Open::Nothing {
            self.open = Open::Command;
        }
    }

    /// The command is over, and has made `changes` changes. `stands_alone`: its records need not take effect
    /// together. Its partitions are still held. Returns what its records take.
    pub fn end_command(
        &mut self,
        db: Db,
        args: Args<'_>,
        changes: u64,
        records: &mut Records,
        stands_alone: bool,
    ) -> usize {
        let (frame, is_muted) = (&mut self.frame, self.is_muted);
        let bytes_before = frame.entry_bytes();
        records.take(args, changes, |record| match record.wire() {
            _ if is_muted => {}
            Some(wire) => frame.push_wire(u32::from(db.0), wire),
            None => frame.push(u32::from(db.0), record.args().iter()),
        });
        let bytes = self.frame.entry_bytes() - bytes_before;
        if self.open == Open::Command {
            if stands_alone {
                self.frame.stand_alone();
            }
            self.close();
        }
        bytes
    }

    /// A transaction begins; all that it needs is held.
    pub fn begin_transaction(&mut self) {
        debug_assert_eq!(self.open, Open::Nothing, "transactions do not nest");
        self.open = Open::Transaction;
    }

    pub fn end_transaction(&mut self) {
        debug_assert_eq!(self.open, Open::Transaction);
        self.close();
    }

    /// Returns whether a transaction is under way.
    pub fn is_in_transaction(&self) -> bool {
        self.open == Open::Transaction
    }

    /// The transaction under way is a script's that lets others run: its frame is kept until it continues.
    pub fn suspend_transaction(&mut self) -> SuspendedFrame {
        assert_eq!(self.open, Open::Transaction, "its frame is open while the log has a reader");
        self.open = Open::Nothing;
        SuspendedFrame {
            frame: std::mem::take(&mut self.frame),
            is_muted: std::mem::take(&mut self.is_muted),
        }
    }

    pub fn resume_transaction(&mut self, suspended: SuspendedFrame) {
        debug_assert!(self.open == Open::Nothing && self.frame.is_empty(), "nothing else is under way");
        self.open = Open::Transaction;
        (self.frame, self.is_muted) = (suspended.frame, suspended.is_muted);
    }

    /// The key's time has come. Its partition is held, here and below. Returns where the frame ends, if it is
    /// not part of a command's.
    pub fn expired(&mut self, db: Db, key: &[u8]) -> Option<LogOffset> {
        self.add(db, [self.expired_word, key].into_iter())
    }

    pub fn evicted(&mut self, db: Db, key: &[u8]) -> Option<LogOffset> {
        self.add(db, [self.evicted_word, key].into_iter())
    }

    /// The key was deleted, and no command records it.
    pub fn deleted(&mut self, db: Db, key: &[u8]) {
        self.add(db, [DEL, key].into_iter());
    }

    /// A message to subscribers, whom replicas have too. Something is held.
    pub fn message(&mut self, db: Db, args: Args<'_>) {
        self.add(db, args.iter());
    }

    /// A command that changes no keys, as it came: one of the libraries of functions. Everything is held.
    pub fn request(&mut self, db: Db, args: Args<'_>) {
        self.frame.push(u32::from(db.0), args.iter());
        if self.open == Open::Nothing {
            self.close();
        }
    }

    /// The time of fields of a hash has come. A hash without fields is gone, here and there.
    pub fn fields_expired(&mut self, db: Db, key: &[u8], fields: &[Vec<u8>]) -> Option<LogOffset> {
        let words: Vec<&[u8]> =
            [&b"HDEL"[..], key].into_iter().chain(fields.iter().map(Vec::as_slice)).collect();
        self.add(db, words.into_iter())
    }

    fn add<'w>(&mut self, db: Db, words: impl ExactSizeIterator<Item = &'w [u8]>) -> Option<LogOffset> {
        self.frame.push(u32::from(db.0), words);
        if self.open != Open::Nothing {
            return None;
        }
        self.close();
        self.take_end()
    }

    fn close(&mut self) {
        self.open = Open::Nothing;
        if !self.frame.is_empty() {
            let end = self.log.append(&mut self.frame).end;
            (self.end, self.written) = (Some(end), end);
            self.has_appended = true;
        }
    }

    /// Returns whether frames were appended whose end was not taken.
    pub fn has_end(&self) -> bool {
        self.end.is_some()
    }

    /// Takes the end of the frames that were appended since this was last asked.
    #[inline]
    pub fn take_end(&mut self) -> Option<LogOffset> {
        self.end.take()
    }

    /// Takes the end of the last frame that was appended since this was last asked; 0 for none.
    #[inline]
    pub fn take_written(&mut self) -> LogOffset {
        std::mem::take(&mut self.written)
    }

    /// A batch is over, and nothing is held.
    #[inline]
    pub fn settle(&mut self, mail: &Mail) {
        if self.has_appended {
            self.has_appended = false;
            self.log.wake_readers();
            if !self.log.has_room() {
                mail.set_log_full(true);
                // The reader looks at the mark after each step; its last one may have been before.
                if self.log.has_room() {
                    mail.set_log_full(false);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_without_a_command_names_its_place() {
        let log: &'static ChangeLog = Box::leak(Box::new(ChangeLog::new(LogOffset(0), 1 << 20)));
        let mut writer = LogWriter::new(log);
        assert_eq!(writer.expired(Db(0), b"key"), Some(log.end()));
        assert_eq!(writer.evicted(Db(0), b"key"), Some(log.end()));
        assert_eq!(writer.fields_expired(Db(0), b"key", &[b"field".to_vec()]), Some(log.end()));
        assert_eq!(writer.take_end(), None, "the place is no other command's");
        let before = log.end();
        writer.begin_command();
        assert_eq!(writer.expired(Db(0), b"key"), None, "it is part of the command's frame");
        assert_eq!(log.end(), before);
        writer.close();
        assert_eq!(writer.take_end(), Some(log.end()));
    }
}

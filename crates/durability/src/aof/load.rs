//! Reading the log files of an append-only file: each command is handed on as it is parsed, to be applied
//! (`replay`).
//!
//! ```text
//!   #TS:1700000000 | *3 SET a b | *1 MULTI | ... | *1 EXEC | *3 SET c         torn
//!        skipped        run          kept           run        |
//!                                                         valid |<- cut off, in the last file only
//! ```
//! A file may end in the middle of a command or a transaction: a machine that loses power leaves that. Of a
//! commit of several sectors it may leave any part; so a commit is checked before its first command is
//! applied. Anything else that cannot be read ends the start, for the commands after it would be lost without
//! a word.

use isotherm_disk::File;
use isotherm_persist::aof::commit::{CommitCheck, LINE_BYTES_MAX, Lines, durable_by};
use isotherm_persist::aof::stream::{End, Item, StreamError, StreamParser, UNLOGGED};
use isotherm_resp::limits;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::applier::{Applier, Refused};
use super::replay::{Failed, Replay};
use isotherm_runtime::log::{self, os_text};

/// Read at once.
const PORTION_BYTES: usize = 1 << 20;

// COMPAT(persistence): Commits of the append-only file that cover more than one sector of 512 B begin with a
// comment line that Valkey skips (`#isotherm commit`, with a checksum); a last file of which zeros or a torn
// commit are the end is cut there under `aof-load-truncated`, where Valkey refuses it or loads wrong values.
// Under `aof-prepare-bytes` a file is filled by comments ahead; its end is cut to what was written when it is
// complete, at a shutdown, and at the next start. Why: a power failure leaves that.
// COMPAT(persistence): An append-only file whose lines do not end in CR LF, or that has a MULTI in a
// transaction or an EXEC without one, is refused; Valkey's loader takes it, `valkey-check-aof` does not. Why:
// no server writes it, so it is damage.
/// Why a log file is not loaded. The lines for the log are Valkey's.
#[derive(Debug)]
pub enum LoadError {
    Io(io::Error),
    Format(StreamError),
    /// The command at this place.
    Command(u64, Refused),
    /// The file ends within a command or a transaction, or its last commits were torn; what is valid ends
    /// here.
    Torn {
        valid: Loaded,
        in_transaction: bool,
    },
    /// Unreadable bytes at `at` that were durable once: the file was durable up to `durable` at least.
    Damaged {
        at: u64,
        durable: u64,
    },
}

impl From<Failed> for LoadError {
    fn from(Failed { place, why }: Failed) -> LoadError {
        LoadError::Command(place, why)
    }
}

/// Extent of a file that was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Loaded {
    pub file_bytes: u64,
    /// Bytes of the file that are part of the log: all but comments, and the commands that comments take out
    /// (`UNLOGGED`).
    pub log_bytes: u64,
}

/// Log file that is loaded from its start.
pub struct LogFile<'f> {
    pub file: &'f dyn File,
    /// Offset of the first command.
    pub start: u64,
    /// The bytes that count.
    pub bytes: u64,
    /// The manifest shows that this server's writer has made it.
    pub is_ours: bool,
    /// `aof-integrity-check`
    pub checks_commits: bool,
}

struct Reading<'r> {
    source: &'r LogFile<'r>,
    replay: Replay<'r>,
    parser: StreamParser,
    check: Option<CommitCheck>,
    /// The commits before this place are sound.
    trusted_to: u64,
    /// Bytes of the file that are not done with.
    buffer: Vec<u8>,
    read_bytes: u64,
    log_bytes: u64,
    /// The next command is not part of the log.
    is_unlogged: bool,
    /// To here the file can be kept.
    valid: Loaded,
}

impl LogFile<'_> {
    /// Applies all of it, and adds the bytes that were read to `loaded_bytes`.
    pub fn load(&self, applier: &mut Applier, loaded_bytes: &AtomicU64) -> Result<Loaded, LoadError> {
        let mut check = self.checks_commits.then(|| CommitCheck::new(Lines::WhereNeeded));
        if let Some(check) = check.as_mut().filter(|_| self.is_ours) {
            check.expect_lines();
        }
        let mut reading = Reading {
            source: self,
            replay: Replay::new(applier),
            parser: StreamParser::new(self.start, limits::REQUEST_BYTES_MAX),
            check,
            trusted_to: 0,
            buffer: Vec::new(),
            read_bytes: self.start,
            log_bytes: 0,
            is_unlogged: false,
            valid: Loaded { file_bytes: self.start, log_bytes: 0 },
        };
        let ended = loop {
            if let Err(error) = reading.run_buffered() {
                break Err(error);
            }
            match self.read(&mut reading.buffer, reading.read_bytes) {
                Ok(0) => break reading.end(),
                Ok(count) => {
                    reading.read_bytes += count;
                    loaded_bytes.fetch_add(count, Relaxed);
                }
                Err(error) => break Err(LoadError::Io(error)),
            }
        };
        // It ends within one, or what is bad stands in one.
        if ended.is_err() {
            reading.replay.abandon_transaction();
        }
        // A command that cannot be run stands before bytes that cannot be read.
        reading.replay.end()?;
        ended
    }

    /// Reads the next portion after the buffered bytes.
    fn read(&self, buffer: &mut Vec<u8>, at: u64) -> io::Result<u64> {
        let portion = usize::try_from(self.bytes.saturating_sub(at)).unwrap_or(usize::MAX).min(PORTION_BYTES);
        let before = buffer.len();
        buffer.resize(before + portion, 0);
        let read = loop {
            match self.file.read_at(&mut buffer[before..], at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        buffer.truncate(before + *read.as_ref().unwrap_or(&0));
        read.map(|count| count as u64)
    }

    /// Looks through what stands from `at` on, which is bad there.
    fn rest(&self, at: u64) -> io::Result<Rest> {
        let mut rest = Rest { durable: None, is_zeros: true };
        let (mut buffer, mut place) = (Vec::new(), at);
        loop {
            // A line may begin in one portion and end in the next.
            let kept = buffer.len().min(LINE_BYTES_MAX);
            buffer.drain(..buffer.len() - kept);
            let count = self.read(&mut buffer, place)?;
            if count == 0 {
                return Ok(rest);
            }
            rest.is_zeros &= buffer[kept..].iter().all(|byte| *byte == 0);
            rest.durable = rest.durable.max(durable_by(&buffer, place - kept as u64));
            place += count;
        }
    }
}

/// Bytes after the sound part of a file.
struct Rest {
    /// Durable length of the file, as its commits state it; `None` without a commit.
    durable: Option<u64>,
    is_zeros: bool,
}

impl Reading<'_> {
    /// Runs what is complete in the buffer.
    fn run_buffered(&mut self) -> Result<(), LoadError> {
        let mut done = 0;
        let ended = loop {
            let place = self.parser.position();
            let (item, len) = match self.parser.next(&self.buffer[done..]) {
                Ok((Item::NeedMore, _)) => break Ok(()),
                Ok(found) => found,
                Err(error) => return Err(self.bad(LoadError::Format(error))),
            };
            self.check(place, done..done + len, item)?;
            match item {
                Item::Command(_) => {
                    self.replay.run(place, &self.buffer[done..], self.parser.args())?;
                    self.log_bytes += if std::mem::take(&mut self.is_unlogged) { 0 } else { len as u64 };
                }
                Item::Comment { line_bytes } => {
                    self.is_unlogged |= self.buffer[done..done + line_bytes] == *UNLOGGED;
                }
                Item::NeedMore => {}
            }
            done += len;
            let is_unused = self.check.as_ref().is_some_and(|check| check.unused_from().is_some());
            // The comment takes the command after it out of the log. With a cut between the two it would take
            // out the next command of the log.
            if self.parser.end_of_valid() == self.parser.position() && !is_unused && !self.is_unlogged {
                self.valid = Loaded { file_bytes: self.parser.position(), log_bytes: self.log_bytes };
            }
        };
        self.buffer.drain(..done);
        ended
    }

    /// The item at `place` may be applied: the commit that it is part of is what was written.
    fn check(&mut self, place: u64, range: Range<usize>, item: Item) -> Result<(), LoadError> {
        let Some(check) = &mut self.check else { return Ok(()) };
        let end = place + range.len() as u64;
        if place < self.trusted_to {
            // The written part has whole frames.
            return if end <= self.trusted_to { Ok(()) } else { Err(self.bad_commit(place)) };
        }
        let behind = range.end;
        let begun = check.item(place, &self.buffer[range], item);
        let rest_bytes = check.rest_bytes();
        if begun.is_ok() && rest_bytes == 0 {
            return Ok(());
        }
        if begun.is_err() || !self.look_ahead(behind).map_err(LoadError::Io)? {
            return Err(self.bad_commit(place));
        }
        self.trusted_to = end + rest_bytes;
        Ok(())
    }

    /// Reads the rest of a commit, whose beginning is in the buffer from `from` on. Returns whether it is
    /// sound. Its length, which nothing vouches for yet, takes no memory.
    fn look_ahead(&mut self, from: usize) -> io::Result<bool> {
        let check = self.check.as_mut().expect("a commit has begun");
        let rest_bytes = |check: &CommitCheck| usize::try_from(check.rest_bytes()).unwrap_or(usize::MAX);
        let buffered = &self.buffer[from..];
        if check.feed(&buffered[..buffered.len().min(rest_bytes(check))]).is_err() {
            return Ok(false);
        }
        let (mut portion, mut place) = (Vec::new(), self.read_bytes);
        while check.rest_bytes() > 0 {
            portion.clear();
            let count = self.source.read(&mut portion, place)?;
            if count == 0 || check.feed(&portion[..portion.len().min(rest_bytes(check))]).is_err() {
                return Ok(false);
            }
            place += count;
        }
        Ok(true)
    }

    fn bad_commit(&self, at: u64) -> LoadError {
        self.bad(LoadError::Damaged { at, durable: 0 })
    }

    /// Returns the error for unreadable bytes after the valid part. In a file whose writer writes lines, they
    /// are a write that a power failure has torn, unless a later line says that it had been durable.
    fn bad(&self, error: LoadError) -> LoadError {
        let Some(check) = &self.check else { return error };
        let at = self.valid.file_bytes;
        let rest = match self.source.rest(at) {
            Ok(rest) => rest,
            Err(error) => return LoadError::Io(error),
        };
        let in_transaction = self.parser.position() != self.parser.end_of_valid();
        match (rest.durable, error) {
            (Some(durable), _) if durable > at => LoadError::Damaged { at, durable },
            (None, error @ LoadError::Format(_)) if !rest.is_zeros && !check.has_lines() => error,
            _ => LoadError::Torn { valid: self.valid, in_transaction },
        }
    }

    fn end(&mut self) -> Result<Loaded, LoadError> {
        match self.parser.end(self.buffer.len()) {
            End::Complete => Ok(self.valid),
            End::Truncated { in_transaction, .. } => {
                Err(self.bad(LoadError::Torn { valid: self.valid, in_transaction }))
            }
        }
    }
}

/// Writes into the log what Valkey would of this error.
pub fn report(name: &str, error: &LoadError) {
    match error {
        LoadError::Io(error) => log::warning(format!(
            "Unrecoverable error reading the append only file {name}: {}",
            os_text(error)
        )),
        LoadError::Format(error) => log::warning(format!(
            "Bad file format reading the append only file {name} at offset {} ({:?}): make a backup of your AOF file, then \
             use ./isotherm-check-aof --fix <filename.manifest>",
            error.at, error.fault
        )),
        LoadError::Command(place, why) => {
            log::warning(format!(
                "Error reading the append only file {name} at offset {place}, error: {why}"
            ));
            if matches!(why, Refused::Failed(_) | Refused::HalfFailed(_)) {
                log::warning(
                    "The command has changed data where it was recorded, so what is loaded is not what was logged. With \
                     `propagation-error-behavior ignore` the start passes over such commands.",
                );
            }
        }
        LoadError::Damaged { at, durable } => log::warning(format!(
            "The append only file {name} is damaged at offset {at}: a later commit shows that it was durable to offset \
             {durable}. What stands there is not what was written: restore the file from a backup or a replica, or cut it \
             there by ./isotherm-check-aof --fix <filename.manifest>, which loses all that follows"
        )),
        LoadError::Torn { in_transaction, .. } => {
            if *in_transaction {
                log::warning(format!("Revert incomplete MULTI/EXEC transaction in AOF file {name}"));
            }
        }
    }
}

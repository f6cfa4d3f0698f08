//! Reading the log files of an append-only file: each command is applied as it is parsed.
//!
//! ```text
//!   #TS:1700000000 | *3 SET a b | *1 MULTI | ... | *1 EXEC | *3 SET c         torn
//!        skipped        run          kept           run        |
//!                                                         valid |<- cut off, in the last file only
//! ```
//! A file may end in the middle of a command or a transaction: a machine that loses power leaves that. Anything else that cannot
//! be read ends the start, for what stands behind it would be lost without a word.

use isotherm_disk::File;
use isotherm_persist::aof::stream::{End, Item, StreamError, StreamParser};
use isotherm_resp::request::Span;
use isotherm_resp::{Args, limits};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::applier::{Applier, Refused};
use crate::process::listeners::os_text;
use crate::process::log;

/// Read at once.
const PORTION_BYTES: usize = 1 << 20;
/// Others may look at partitions between so many commands.
const COMMANDS_PER_HOLD: u32 = 100;

// COMPAT(persistence): An append-only file whose lines do not end in CR LF, or that has a MULTI in a transaction or an EXEC
// without one, is refused; Valkey's loader takes it, `valkey-check-aof` does not. Why: no server writes it, so it is damage.
/// Why a log file is not loaded. The lines for the log are Valkey's.
#[derive(Debug)]
pub enum LoadError {
    Io(io::Error),
    Format(StreamError),
    /// The command at this place.
    Command(u64, Refused),
    /// The file ends within a command or a transaction; what is valid ends here.
    Torn {
        valid_bytes: u64,
        in_transaction: bool,
    },
}

/// One log file, from its start.
pub struct LogFile<'f> {
    pub file: &'f dyn File,
    /// The bytes that count.
    pub bytes: u64,
}

struct Reading<'r> {
    applier: &'r mut Applier,
    parser: StreamParser,
    spans: Vec<Span>,
    /// Bytes of the file that are not done with.
    buffer: Vec<u8>,
    commands: u32,
}

impl LogFile<'_> {
    /// Applies all of it, and adds the bytes that were read to `loaded_bytes`.
    pub fn load(&self, applier: &mut Applier, loaded_bytes: &AtomicU64) -> Result<(), LoadError> {
        let mut reading = Reading {
            applier,
            parser: StreamParser::new(0, limits::REQUEST_BYTES_MAX),
            spans: Vec::new(),
            buffer: Vec::new(),
            commands: 0,
        };
        let mut read_bytes = 0;
        let ended = loop {
            if let Err(error) = reading.run_buffered() {
                break Err(error);
            }
            match self.read(&mut reading.buffer, read_bytes) {
                Ok(0) => break reading.end(),
                Ok(count) => {
                    read_bytes += count;
                    loaded_bytes.fetch_add(count, Relaxed);
                }
                Err(error) => break Err(LoadError::Io(error)),
            }
        };
        applier.release();
        ended
    }

    /// Reads the next portion behind what is buffered.
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
}

impl Reading<'_> {
    /// Runs what is complete in the buffer.
    fn run_buffered(&mut self) -> Result<(), LoadError> {
        let mut done = 0;
        loop {
            let place = self.parser.position();
            match self.parser.next(&self.buffer[done..]).map_err(LoadError::Format)? {
                (Item::NeedMore, _) => break,
                (Item::Comment { .. }, len) => done += len,
                (Item::Command(_), len) => {
                    self.run_one(done).map_err(|why| LoadError::Command(place, why))?;
                    done += len;
                }
            }
        }
        self.buffer.drain(..done);
        Ok(())
    }

    /// Runs the command that was found at `from` in the buffer.
    fn run_one(&mut self, from: usize) -> Result<(), Refused> {
        let span = |range: &Range<usize>| Span { start: range.start as u32, len: range.len() as u32 };
        self.spans.clear();
        self.spans.extend(self.parser.args().iter().map(span));
        self.applier.apply(Args::new(&self.buffer[from..], &self.spans))?;
        self.commands += 1;
        if self.commands.is_multiple_of(COMMANDS_PER_HOLD) {
            self.applier.release();
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), LoadError> {
        match self.parser.end(self.buffer.len()) {
            End::Complete => Ok(()),
            End::Truncated { valid_bytes, in_transaction } => {
                self.applier.abandon_transaction();
                Err(LoadError::Torn { valid_bytes, in_transaction })
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
            log::warning(format!("Error reading the append only file {name} at offset {place}, error: {why}"))
        }
        LoadError::Torn { in_transaction, .. } => {
            if *in_transaction {
                log::warning(format!("Revert incomplete MULTI/EXEC transaction in AOF file {name}"));
            }
        }
    }
}

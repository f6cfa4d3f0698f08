//! The part of the log that has left memory and that a replica still lacks: a ring in a file without a name.
//!
//! ```text
//!   offset    first                    end        writing.to
//!   log       [  ring, at offset % size ][ on its way ][  memory: repl-backlog-size  ]
//!   file      ...end][ ....... ][first...      a byte of the log has its place; what is `size` further writes over it
//! ```
//! The file gets no byte while all replicas have what leaves memory. Bytes that a replica may lack - one that
//! is slow, waits for its snapshot, or left a while ago - are written as they leave, so the ring is
//! contiguous with memory.
//!
//! The spill does no I/O: it says what is to be written or read where, and hears what became of it. Jobs are
//! carried out in the order in which they were made, so one that reads has what it was to read, even where a
//! later one writes over it.
//!
//! Invariants: `end - first <= size`; with what is being written too; the ring ends where memory begins, or
//! is empty.

use isotherm_disk::{Disk, File, write_all_at};
use isotherm_log::{LogOffset, Piece};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::spool::open_nameless;

/// Maximum of bytes that are read at once.
const READ_BYTES_MAX: u64 = 256 << 10;

pub struct Spill {
    file: Option<Arc<dyn File>>,
    size: u64,
    first: LogOffset,
    end: LogOffset,
    writing: Option<Writing>,
    /// Another one whenever what it has is given up: what is on its way then is of no use.
    generation: u64,
}

struct Writing {
    to: LogOffset,
    since: Instant,
}

/// Bytes of the log that are to be written.
pub struct RingWrite {
    pub generation: u64,
    file: Option<Arc<dyn File>>,
    size: u64,
    at: LogOffset,
    pieces: Vec<Piece>,
}

/// Bytes of a file that are to be read: `len` at most, at `place`.
pub struct FileRange {
    pub file: Arc<dyn File>,
    pub place: u64,
    pub len: usize,
}

impl Default for Spill {
    fn default() -> Spill {
        let start = LogOffset(0);
        Spill { file: None, size: 0, first: start, end: start, writing: None, generation: 0 }
    }
}

impl Spill {
    pub fn is_empty(&self) -> bool {
        self.first >= self.end
    }

    pub fn first(&self) -> LogOffset {
        self.first.min(self.end)
    }

    pub fn end(&self) -> LogOffset {
        self.end
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub fn covers(&self, at: LogOffset) -> bool {
        self.first <= at && at < self.end
    }

    /// Since when bytes have been on their way to the file.
    pub fn writing_since(&self) -> Option<Instant> {
        self.writing.as_ref().map(|writing| writing.since)
    }

    /// No replica lacks what it has, or all of it is of another history, or the disk has failed.
    pub fn clear(&mut self) {
        (self.file, self.first, self.writing) = (None, self.end, None);
        self.generation += 1;
    }

    /// Returns the job that adds the bytes of the log from `from` on, `size` of them at most. If they are not
    /// those after the ring's end, the ring begins anew. Bytes that they write over are gone from now on,
    /// whatever comes of the job.
    pub fn begin_write(&mut self, size: u64, from: LogOffset, pieces: Vec<Piece>) -> RingWrite {
        assert!(self.writing.is_none(), "one after the other");
        if from != self.end || size != self.size {
            // A ring of another size has other places: what it has is given up.
            self.clear();
            (self.first, self.end, self.size) = (from, from, size);
        }
        let len: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        assert!(len <= size, "{len} B for a ring of {size} B");
        let to = from + len;
        self.first = self.first.max(LogOffset(to.0.saturating_sub(size)));
        self.writing = Some(Writing { to, since: Instant::now() });
        self.check_invariants();
        RingWrite { generation: self.generation, file: self.file.clone(), size, at: from, pieces }
    }

    /// The job has come to its end, of this generation and without an error.
    pub fn written(&mut self, file: Arc<dyn File>) {
        let writing = self.writing.take().expect("it was on its way");
        (self.file, self.end) = (Some(file), writing.to);
        self.check_invariants();
    }

    /// Returns the place in the file of bytes from `at` on, an offset that the ring covers.
    pub fn range_at(&self, at: LogOffset) -> FileRange {
        assert!(self.covers(at), "{at}");
        let file = Arc::clone(self.file.as_ref().expect("what it covers was written"));
        let place = at.0 % self.size;
        let len = (self.end - at).min(READ_BYTES_MAX).min(self.size - place);
        FileRange { file, place, len: len as usize }
    }

    pub fn check_invariants(&self) {
        let end = self.writing.as_ref().map_or(self.end, |writing| writing.to);
        assert!(self.first <= end && end - self.first <= self.size);
        assert!(self.is_empty() || self.file.is_some());
    }
}

impl RingWrite {
    /// Writes them, to a new file if there is none yet, and returns it.
    pub fn run(self, disk: &dyn Disk, folder: &Path) -> io::Result<Arc<dyn File>> {
        let file = self.file.map_or_else(|| open_nameless(disk, folder), Ok)?;
        let mut at = self.at.0;
        for piece in &self.pieces {
            let mut bytes = &piece[..];
            while !bytes.is_empty() {
                let place = at % self.size;
                let (now, rest) = bytes.split_at(bytes.len().min((self.size - place) as usize));
                write_all_at(&*file, now, place).map_err(|failed| failed.error)?;
                at += now.len() as u64;
                bytes = rest;
            }
        }
        Ok(file)
    }
}

impl FileRange {
    /// Reads what there is. An end of the file before its first byte is an error.
    pub fn read(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        bytes.resize(self.len, 0);
        let count = self.file.read_at(bytes, self.place)?;
        bytes.truncate(count);
        if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_disk::OsDisk;
    use isotherm_log::{Frame, Log, ReaderKind};
    use isotherm_stdx::Prng;

    /// A log with one random command after the other. A part of it is spilled each time.
    #[test]
    fn a_ring_has_the_last_bytes() {
        const SIZE: u64 = 10_000;
        let (log, mut prng) = (Log::new(LogOffset(777), u64::MAX), Prng::new(3));
        let reader = log.add_reader(ReaderKind::Follower, LogOffset(777)).unwrap();
        let mut spill = Spill::default();
        let (mut all, mut frame) = (Vec::new(), Frame::default());
        for round in 0..300 {
            frame.push_wire(0, &vec![round as u8; 1 + prng.below(900) as usize]);
            log.append(&mut frame);
            log.gather();
            let (from, end) = (if spill.is_empty() { LogOffset(777) } else { spill.end() }, log.end());
            let to = from + prng.below(end - from + 1);
            let pieces = log.read(from, to).unwrap();
            pieces.iter().for_each(|piece| all.extend_from_slice(piece));
            let write = spill.begin_write(SIZE, from, pieces);
            assert!(spill.writing_since().is_some() && !spill.covers(from));
            assert!(spill.is_empty() || spill.end() == from);
            let file = write.run(&OsDisk, &std::env::temp_dir()).unwrap();
            spill.written(file);
            log.advance(reader, to);
            assert_eq!(spill.end(), to);
            if !spill.is_empty() {
                assert_eq!(to - spill.first(), SIZE.min(to.0 - 777));
                let mut at = spill.first() + prng.below(to - spill.first());
                while at < to {
                    let mut bytes = Vec::new();
                    spill.range_at(at).read(&mut bytes).unwrap();
                    let place = (at.0 - 777) as usize;
                    assert!(bytes == all[place..place + bytes.len()], "{at}");
                    at = at + bytes.len() as u64;
                }
            }
        }
        assert!(!spill.covers(spill.end()) && spill.covers(spill.first()));
        spill.clear();
        assert!(spill.is_empty());
    }

    /// A write that is on its way when the ring is given up goes to a file that nothing else uses.
    #[test]
    fn a_write_that_was_given_up_changes_nothing() {
        let log = Log::new(LogOffset(0), u64::MAX);
        let _reader = log.add_reader(ReaderKind::Follower, LogOffset(0)).unwrap();
        let mut frame = Frame::default();
        frame.push_wire(0, &[7; 500]);
        log.append(&mut frame);
        log.gather();
        let mut spill = Spill::default();
        let late = spill.begin_write(1000, LogOffset(0), log.read(LogOffset(0), LogOffset(200)).unwrap());
        spill.clear();
        let next = spill.begin_write(1000, LogOffset(200), log.read(LogOffset(200), LogOffset(500)).unwrap());
        assert_ne!(late.generation, spill.generation());
        late.run(&OsDisk, &std::env::temp_dir()).unwrap();
        let file = next.run(&OsDisk, &std::env::temp_dir()).unwrap();
        spill.written(file);
        assert!(spill.covers(LogOffset(200)) && !spill.covers(LogOffset(199)));
        let mut bytes = Vec::new();
        spill.range_at(LogOffset(200)).read(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 300);
    }
}

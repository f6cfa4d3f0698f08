//! Chunks that the log thread has taken from the tail, and that any number of readers share.
//!
//! ```text
//!             first                                              end
//!   chunks      [ 256 KB ][ 256 KB ][ 90 KB ][ 256 KB ][ 700 B ]
//!                             ^                   ^
//!   readers                   a replica           the AOF writer: appends wait for it above a limit
//!               |<-- backlog: kept with and without readers ---->|
//! ```
//! A reader is an offset. Its bytes are read as pieces that share the chunk's memory, so they are written or
//! sent without any lock. A small chunk is joined with the one before it as soon as no piece of either is
//! held.
//!
//! Invariants: the chunks are contiguous and end at `end`; no chunk that a reader still needs, or that
//! belongs to the backlog, is dropped; `memory_bytes` is the sum of what the chunks have allocated.

use crate::offset::LogOffset;
use crate::tail::{Block, CHUNK_BYTES_MAX};
use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A block with fewer bytes is copied, so that its memory serves the tail again.
const MOVED_BYTES_MIN: usize = CHUNK_BYTES_MAX / 2;

/// Neighbours that one push may join.
const PAIRS_PER_PUSH: usize = 8;

/// Bytes of the log, held as long as this lives.
#[derive(Clone)]
pub struct Piece {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

/// The bytes at an offset are no longer in memory: they are in a file, or nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReaderKind {
    /// Appends wait for it: what it has not read is bounded by `log-memory-limit`.
    Writer,
    /// Appends do not wait for the reader: it has a limit of its own, or another place to read from.
    Follower,
}

/// The number of a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReaderId(usize);

struct Reader {
    kind: ReaderKind,
    position: LogOffset,
}

struct Chunk {
    start: LogOffset,
    bytes: Arc<Vec<u8>>,
    /// Place in `bytes` at which the frames begin.
    from: usize,
}

impl Chunk {
    fn end(&self) -> LogOffset {
        self.start + (self.bytes.len() - self.from) as u64
    }

    fn memory_bytes(&self) -> u64 {
        self.bytes.capacity() as u64
    }
}

pub(crate) struct Chunks {
    chunks: VecDeque<Chunk>,
    end: LogOffset,
    backlog_bytes: u64,
    readers: Vec<Option<Reader>>,
    memory_bytes: u64,
}

impl Chunks {
    pub fn new(start: LogOffset) -> Chunks {
        Chunks { chunks: VecDeque::new(), end: start, backlog_bytes: 0, readers: Vec::new(), memory_bytes: 0 }
    }

    pub fn end(&self) -> LogOffset {
        self.end
    }

    /// The oldest offset that can be read.
    pub fn first(&self) -> LogOffset {
        self.chunks.front().map_or(self.end, |chunk| chunk.start)
    }

    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Adds a block at the end. Returns memory that the tail may use again.
    pub fn push(&mut self, block: Block) -> Option<Vec<u8>> {
        let len = block.len() as u64;
        let (bytes, from, spare) = if block.len() < MOVED_BYTES_MIN {
            (block.bytes[block.from..].to_vec(), 0, Some(block.bytes))
        } else {
            (block.bytes, block.from, None)
        };
        let chunk = Chunk { start: self.end, bytes: Arc::new(bytes), from };
        self.memory_bytes += chunk.memory_bytes();
        self.chunks.push_back(chunk);
        self.end = self.end + len;
        self.join();
        spare
    }

    /// Joins small neighbours among the last chunks. A piece that is being written keeps a pair apart, so
    /// older pairs get another chance.
    fn join(&mut self) {
        let mut pairs = self.chunks.len().saturating_sub(1);
        for _ in 0..PAIRS_PER_PUSH {
            if pairs == 0 {
                return;
            }
            pairs -= 1;
            self.join_pair(pairs);
        }
    }

    /// Joins a chunk with the next one. But for the last pair only if it is not much larger than what is
    /// copied, so that no byte is copied more than some ten times.
    fn join_pair(&mut self, at: usize) {
        let is_last = at + 2 == self.chunks.len();
        let mut pair = self.chunks.range_mut(at..at + 2);
        let (Some(before), Some(next)) = (pair.next(), pair.next()) else { return };
        let (before_len, len) = (before.bytes.len(), next.bytes.len() - next.from);
        let memory_bytes = before.memory_bytes() + next.memory_bytes();
        if before_len + len > CHUNK_BYTES_MAX || !is_last && before_len > 2 * len {
            return;
        }
        // A chunk that is held would have to be kept in addition to its copy.
        if Arc::get_mut(&mut next.bytes).is_none() {
            return;
        }
        let Some(bytes) = Arc::get_mut(&mut before.bytes) else { return };
        bytes.extend_from_slice(&next.bytes[next.from..]);
        self.memory_bytes = self.memory_bytes - memory_bytes + before.memory_bytes();
        self.chunks.remove(at + 1);
    }

    /// The bytes `from..to`, as pieces.
    pub fn read(&self, from: LogOffset, to: LogOffset, pieces: &mut Vec<Piece>) -> Result<(), Gone> {
        if from < self.first() || from > to || to > self.end {
            return Err(Gone);
        }
        let first = self.chunks.partition_point(|chunk| chunk.end() <= from);
        for chunk in self.chunks.iter().skip(first).take_while(|chunk| chunk.start < to) {
            let place = |offset: LogOffset| chunk.from + (offset - chunk.start) as usize;
            let range = place(from.max(chunk.start))..place(to.min(chunk.end()));
            pieces.push(Piece { bytes: chunk.bytes.clone(), range });
        }
        Ok(())
    }

    /// A reader that continues from an offset; the bytes after it are kept until it advances.
    pub fn add_reader(&mut self, kind: ReaderKind, from: LogOffset) -> Result<ReaderId, Gone> {
        if from < self.first() || from > self.end {
            return Err(Gone);
        }
        let reader = Some(Reader { kind, position: from });
        let free = self.readers.iter().position(Option::is_none);
        let number = free.unwrap_or(self.readers.len());
        match free {
            Some(number) => self.readers[number] = reader,
            None => self.readers.push(reader),
        }
        Ok(ReaderId(number))
    }

    pub fn advance(&mut self, id: ReaderId, to: LogOffset) {
        let end = self.end;
        let reader = self.readers[id.0].as_mut().expect("a reader is removed once");
        assert!(reader.position <= to && to <= end, "a reader advances within the log");
        reader.position = to;
    }

    pub fn remove_reader(&mut self, id: ReaderId) {
        self.readers[id.0].take().expect("a reader is removed once");
    }

    /// The position of the slowest reader for which appends wait.
    pub fn slowest_writer(&self) -> Option<LogOffset> {
        let writers = self.readers.iter().flatten().filter(|reader| reader.kind == ReaderKind::Writer);
        writers.map(|reader| reader.position).min()
    }

    pub fn has_readers(&self) -> bool {
        self.readers.iter().any(Option::is_some)
    }

    pub fn backlog_bytes(&self) -> u64 {
        self.backlog_bytes
    }

    pub fn set_backlog_bytes(&mut self, backlog_bytes: u64) {
        self.backlog_bytes = backlog_bytes;
    }

    /// Takes out the chunks that are of no more use; they are freed where no lock is held.
    pub fn trim(&mut self, dropped: &mut Vec<Arc<Vec<u8>>>) {
        let slowest = self.readers.iter().flatten().map(|reader| reader.position).min();
        let backlog = LogOffset(self.end.0.saturating_sub(self.backlog_bytes));
        let needed = slowest.unwrap_or(self.end).min(backlog);
        while self.chunks.front().is_some_and(|chunk| chunk.end() <= needed) {
            let chunk = self.chunks.pop_front().expect("it was there");
            self.memory_bytes -= chunk.memory_bytes();
            dropped.push(chunk.bytes);
        }
    }

    pub fn check_invariants(&self) {
        let mut at = self.first();
        for chunk in &self.chunks {
            assert_eq!(chunk.start, at, "contiguous");
            assert!(chunk.end() > at, "not empty");
            at = chunk.end();
        }
        assert_eq!(at, self.end);
        assert_eq!(self.memory_bytes, self.chunks.iter().map(Chunk::memory_bytes).sum::<u64>());
        for reader in self.readers.iter().flatten() {
            assert!(self.first() <= reader.position && reader.position <= self.end);
        }
    }
}

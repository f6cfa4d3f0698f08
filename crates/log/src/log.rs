//! The log as the server holds it: the tail, the chunks behind it, and the limit on what is not written yet.
//!
//! ```text
//!   worker          has_room?  ->  locks its partitions  ->  runs a command  ->  append
//!   log thread      collect  ->  read  ->  (write, send)  ->  advance
//! ```
//! `has_room` is asked before locks are taken, so a full log makes writes wait where they hold nothing. What commands append
//! that were admitted before may exceed the limit, by one command a worker.
//!
//! Lock order: chunks, tail. An append takes the tail alone.

use crate::chunks::{Chunks, Gone, Piece, ReaderId, ReaderKind};
use crate::frame::Frame;
use crate::offset::LogOffset;
use crate::sync::{AtomicU64, Mutex, MutexGuard};
use crate::tail::{Appended, Tail};
use std::sync::atomic::Ordering;

/// What the log thread has got from the tail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collected {
    /// Frames, to this place.
    Frames(LogOffset),
    /// The mark of a cut: a file ends here.
    FileEnd(LogOffset),
}

pub struct Log {
    tail: Tail,
    chunks: Mutex<Chunks>,
    /// The position of the slowest writer; `u64::MAX` without one.
    written: AtomicU64,
    limit_bytes: AtomicU64,
}

impl Log {
    /// A log that begins, or goes on, at `start`. `limit_bytes`: `log-memory-limit`.
    pub fn new(start: LogOffset, limit_bytes: u64) -> Log {
        Log {
            tail: Tail::new(start),
            chunks: Mutex::new(Chunks::new(start)),
            written: AtomicU64::new(u64::MAX),
            limit_bytes: AtomicU64::new(limit_bytes),
        }
    }

    fn chunks(&self) -> MutexGuard<'_, Chunks> {
        self.chunks.lock().expect("no panic under the lock of the chunks")
    }

    /// Whether another command may append.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.unwritten_bytes() < self.limit_bytes.load(Ordering::Relaxed)
    }

    /// What was appended and is still needed by a writer.
    #[inline]
    pub fn unwritten_bytes(&self) -> u64 {
        self.tail.end().0.saturating_sub(self.written.load(Ordering::Relaxed))
    }

    pub fn set_limit_bytes(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// A log to which nothing was appended, and which has no reader, goes on at `start`.
    pub fn go_on_at(&self, start: LogOffset) {
        let mut chunks = self.chunks();
        *chunks = Chunks::new(start);
        self.tail.go_on_at(start);
    }

    /// Appends a frame and empties it.
    #[inline]
    pub fn append(&self, frame: &mut Frame) -> Appended {
        self.tail.append(frame)
    }

    /// Appends whole frames of another log as they are.
    pub fn append_stream(&self, bytes: Vec<u8>) -> Appended {
        self.tail.append_stream(bytes)
    }

    /// A place from which the log can be read alone; with `ends_file` a file of the AOF ends there too.
    pub fn cut(&self, ends_file: bool) -> LogOffset {
        self.tail.cut(ends_file)
    }

    #[inline]
    pub fn end(&self) -> LogOffset {
        self.tail.end()
    }

    /// The oldest offset that is in memory.
    pub fn first(&self) -> LogOffset {
        self.chunks().first()
    }

    /// Moves what was appended into the chunks. `each`: the places where frames end at which a write may stop, among them each
    /// cut.
    pub fn collect(&self, mut each: impl FnMut(Collected)) {
        let (mut blocks, mut spares, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
        let mut chunks = self.chunks();
        self.tail.collect(&mut blocks);
        for block in blocks {
            if block.ends_file {
                each(Collected::FileEnd(chunks.end()));
            } else {
                spares.extend(chunks.push(block));
                each(Collected::Frames(chunks.end()));
            }
        }
        chunks.trim(&mut dropped);
        drop(chunks);
        spares.into_iter().for_each(|spare| self.tail.recycle(spare));
    }

    /// The bytes `from..to`, as pieces that need no lock. `to` lies within what was collected.
    pub fn read(&self, from: LogOffset, to: LogOffset) -> Result<Vec<Piece>, Gone> {
        let mut pieces = Vec::new();
        self.chunks().read(from, to, &mut pieces)?;
        Ok(pieces)
    }

    /// How far the log can be read.
    pub fn collected(&self) -> LogOffset {
        self.chunks().end()
    }

    pub fn add_reader(&self, kind: ReaderKind, from: LogOffset) -> Result<ReaderId, Gone> {
        let mut chunks = self.chunks();
        let id = chunks.add_reader(kind, from)?;
        self.note_writers(&chunks);
        Ok(id)
    }

    /// A reader needs nothing before `to` any more.
    pub fn advance(&self, id: ReaderId, to: LogOffset) {
        self.change(|chunks| chunks.advance(id, to));
    }

    pub fn remove_reader(&self, id: ReaderId) {
        self.change(|chunks| chunks.remove_reader(id));
    }

    /// What stays in memory behind all readers (`repl-backlog-size`).
    pub fn set_backlog_bytes(&self, backlog_bytes: u64) {
        self.change(|chunks| chunks.set_backlog_bytes(backlog_bytes));
    }

    fn change(&self, change: impl FnOnce(&mut Chunks)) {
        let mut dropped = Vec::new();
        let mut chunks = self.chunks();
        change(&mut chunks);
        chunks.trim(&mut dropped);
        self.note_writers(&chunks);
        // What is freed is freed without the lock.
        drop(chunks);
    }

    fn note_writers(&self, chunks: &Chunks) {
        let written = chunks.slowest_writer().map_or(u64::MAX, |position| position.0);
        self.written.store(written, Ordering::Relaxed);
    }

    /// What the log has allocated.
    pub fn memory_bytes(&self) -> u64 {
        self.chunks().memory_bytes() + self.tail.memory_bytes()
    }

    pub fn check_invariants(&self) {
        let chunks = self.chunks();
        chunks.check_invariants();
        assert!(chunks.end() <= self.tail.end());
    }
}

//! The log as the server holds it: the tail, the chunks behind it, and the limit on bytes that are not
//! written yet.
//!
//! ```text
//!   worker          has_room?  ->  locks its partitions  ->  runs a command  ->  append
//!   log thread      collect  ->  read  ->  (write, send)  ->  advance
//! ```
//! `has_room` is asked before locks are taken, so a full log makes writes wait where they hold nothing. The
//! records of commands that were admitted before may exceed the limit, by one command a worker.
//!
//! Each consumer may gather what was appended into the chunks. Only the writer of the AOF asks where frames
//! and files end: for it these places are kept (`Marks`) until it collects them, no matter which consumer has
//! gathered the bytes.
//!
//! Lock order: chunks, tail. An append takes the tail alone.

use crate::chunks::{Chunks, Gone, Piece, ReaderId, ReaderKind};
use crate::frame::{Database, Frame};
use crate::offset::LogOffset;
use crate::sync::{AtomicU64, Mutex, MutexGuard};
use crate::tail::{Appended, Block, CHUNK_BYTES_MAX, Tail};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Mark in the stream that the log thread has collected from the tail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collected {
    /// Frames, to this place. After it this database is selected, for a reader of the frames.
    Frames(LogOffset, Database),
    /// The mark of a cut: a file ends here. The commands that follow are for this database until their first
    /// SELECT.
    FileEnd(LogOffset, Database),
}

/// The places that the writer has not collected yet.
#[derive(Default)]
struct Marks {
    list: VecDeque<Collected>,
    /// Place of the last mark that was not joined with its neighbour.
    kept_end: LogOffset,
}

impl Marks {
    /// Adds a mark. Of the ends of frames, one is kept for each `CHUNK_BYTES_MAX`: a write may stop there.
    fn push(&mut self, mark: Collected) {
        match (mark, self.list.back_mut()) {
            (Collected::Frames(end, selected), Some(Collected::Frames(last, last_selected)))
                if end - self.kept_end < CHUNK_BYTES_MAX as u64 =>
            {
                (*last, *last_selected) = (end, selected);
            }
            (Collected::Frames(end, _) | Collected::FileEnd(end, _), _) => {
                self.kept_end = match self.list.back() {
                    Some(Collected::Frames(last, _) | Collected::FileEnd(last, _)) => *last,
                    None => end,
                };
                self.list.push_back(mark);
            }
        }
    }
}

/// Data under one lock.
struct Gathered {
    chunks: Chunks,
    marks: Marks,
}

impl Deref for Gathered {
    type Target = Chunks;

    fn deref(&self) -> &Chunks {
        &self.chunks
    }
}

impl DerefMut for Gathered {
    fn deref_mut(&mut self) -> &mut Chunks {
        &mut self.chunks
    }
}

pub struct Log {
    tail: Tail,
    gathered: Mutex<Gathered>,
    /// The position of the slowest writer; `u64::MAX` without one.
    written: AtomicU64,
    limit_bytes: AtomicU64,
}

impl Log {
    /// A log that begins, or continues, at `start`. `limit_bytes`: `log-memory-limit`.
    pub fn new(start: LogOffset, limit_bytes: u64) -> Log {
        Log {
            tail: Tail::new(start),
            gathered: Mutex::new(Gathered { chunks: Chunks::new(start), marks: Marks::default() }),
            written: AtomicU64::new(u64::MAX),
            limit_bytes: AtomicU64::new(limit_bytes),
        }
    }

    fn chunks(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().expect("no panic under the lock of the chunks")
    }

    /// Returns whether a further command may append.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.unwritten_bytes() < self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether twice as much waits as may, for what is appended whether there is room or not.
    pub fn is_twice_full(&self) -> bool {
        self.unwritten_bytes() / 2 >= self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes that were appended and that a writer still needs.
    #[inline]
    pub fn unwritten_bytes(&self) -> u64 {
        self.tail.end().0.saturating_sub(self.written.load(Ordering::Relaxed))
    }

    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    pub fn set_limit_bytes(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// Continues a log without readers at `start`, with another history, whose stream has `stream_database`
    /// selected there: its contents are gone, but for the size of the backlog.
    pub fn go_on_at(&self, start: LogOffset, stream_database: Database) {
        let mut gathered = self.chunks();
        assert!(!gathered.has_readers(), "a reader knows the places of one history");
        let backlog_bytes = gathered.backlog_bytes();
        self.note_freed(gathered.memory_bytes());
        *gathered = Gathered { chunks: Chunks::new(start), marks: Marks::default() };
        gathered.set_backlog_bytes(backlog_bytes);
        self.tail.go_on_at(start, stream_database);
    }

    /// Appends a frame and empties it.
    #[inline]
    pub fn append(&self, frame: &mut Frame) -> Appended {
        self.tail.append(frame)
    }

    /// Appends whole frames of another log as they are. After them `database` is selected.
    #[inline]
    pub fn append_stream(&self, bytes: &[u8], database: Database) -> Appended {
        self.tail.append_stream(bytes, database)
    }

    /// The database that commands after the end are for, until their first SELECT: the one that the stream of
    /// a primary has selected; 0 after own frames, which bring theirs.
    pub fn stream_database(&self) -> Database {
        self.tail.stream_database()
    }

    /// Appends a short command that is the same in every database.
    pub fn append_beside(&self, command: &[u8]) -> Appended {
        self.tail.append_beside(command)
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

    /// Moves what was appended into the chunks, from which every reader may read it then.
    pub fn gather(&self) {
        let mut gathered = self.chunks();
        let dropped = self.gather_in(&mut gathered);
        drop(gathered);
        self.free(dropped);
    }

    /// Moves what was appended into the chunks, for the writer. `each` gets the places at which a write may
    /// stop: ends of frames, among them each cut.
    pub fn collect(&self, each: impl FnMut(Collected)) {
        let mut gathered = self.chunks();
        let is_kept = gathered.slowest_writer().is_some();
        let (dropped, marks) = match is_kept {
            true => (self.gather_in(&mut gathered), std::mem::take(&mut gathered.marks.list)),
            // A consumer without a place in the log, as tests have one.
            false => {
                let mut marks = Marks::default();
                let dropped = self.move_blocks(&mut gathered.chunks, |mark| marks.push(mark));
                (dropped, marks.list)
            }
        };
        drop(gathered);
        self.free(dropped);
        marks.into_iter().for_each(each);
    }

    /// Returns whether `collect` has something new for the writer.
    pub fn has_more_to_collect(&self) -> bool {
        let gathered = self.chunks();
        !gathered.marks.list.is_empty() || gathered.end() < self.tail.end()
    }

    fn gather_in(&self, gathered: &mut Gathered) -> Vec<Arc<Vec<u8>>> {
        let is_kept = gathered.slowest_writer().is_some();
        let Gathered { chunks, marks } = gathered;
        self.move_blocks(chunks, |mark| {
            if is_kept {
                marks.push(mark);
            }
        })
    }

    /// Moves the blocks of the tail into the chunks. Returns the buffers to free, so that the caller frees
    /// them without a lock.
    fn move_blocks(&self, chunks: &mut Chunks, mut each: impl FnMut(Collected)) -> Vec<Arc<Vec<u8>>> {
        let (mut blocks, mut spares, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
        self.tail.collect(&mut blocks);
        let came_bytes: u64 = blocks.iter().map(Block::memory_bytes).sum();
        let before_bytes = chunks.memory_bytes();
        for block in blocks {
            if let Some(database) = block.ends_file {
                each(Collected::FileEnd(chunks.end(), database));
            } else {
                let selected = block.selected;
                spares.extend(chunks.push(block));
                each(Collected::Frames(chunks.end(), selected));
            }
        }
        // Copied bytes are there twice until the spares are given back.
        let spare_bytes: u64 = spares.iter().map(|spare| spare.capacity() as u64).sum();
        let after_bytes = chunks.memory_bytes() + spare_bytes;
        self.tail.memory_bytes.fetch_add(after_bytes, Ordering::Relaxed);
        self.note_freed(before_bytes + came_bytes);
        chunks.trim(&mut dropped);
        spares.into_iter().for_each(|spare| self.tail.recycle(spare));
        dropped
    }

    /// No lock is held. Counted as long as it is there, so what is compared with a limit without the log is
    /// never too much.
    fn free(&self, dropped: Vec<Arc<Vec<u8>>>) {
        let bytes = dropped.iter().map(|bytes| bytes.capacity() as u64).sum();
        drop(dropped);
        self.note_freed(bytes);
    }

    fn note_freed(&self, bytes: u64) {
        self.tail.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The bytes `from..to`, as pieces that need no lock. `to` lies within what was collected.
    pub fn read(&self, from: LogOffset, to: LogOffset) -> Result<Vec<Piece>, Gone> {
        let mut pieces = Vec::new();
        self.chunks().read(from, to, &mut pieces)?;
        Ok(pieces)
    }

    /// Returns the offset up to which the log can be read.
    pub fn collected(&self) -> LogOffset {
        self.chunks().end()
    }

    pub fn add_reader(&self, kind: ReaderKind, from: LogOffset) -> Result<ReaderId, Gone> {
        let mut gathered = self.chunks();
        if kind == ReaderKind::Writer {
            assert!(gathered.slowest_writer().is_none(), "one writer collects the marks");
            gathered.marks = Marks::default();
        }
        let id = gathered.add_reader(kind, from)?;
        self.note_writers(&gathered);
        Ok(id)
    }

    /// A reader needs nothing before `to` any more.
    pub fn advance(&self, id: ReaderId, to: LogOffset) {
        self.change(|chunks| chunks.advance(id, to));
    }

    pub fn remove_reader(&self, id: ReaderId) {
        self.change(|chunks| chunks.remove_reader(id));
    }

    /// Sets how many bytes stay in memory after all readers have read them (`repl-backlog-size`).
    pub fn set_backlog_bytes(&self, backlog_bytes: u64) {
        self.change(|chunks| chunks.set_backlog_bytes(backlog_bytes));
    }

    fn change(&self, change: impl FnOnce(&mut Chunks)) {
        let mut dropped = Vec::new();
        let mut chunks = self.chunks();
        change(&mut chunks);
        chunks.trim(&mut dropped);
        self.note_writers(&chunks);
        drop(chunks);
        self.free(dropped);
    }

    fn note_writers(&self, chunks: &Chunks) {
        let written = chunks.slowest_writer().map_or(u64::MAX, |position| position.0);
        self.written.store(written, Ordering::Relaxed);
    }

    /// Bytes that the log has allocated. Reading them takes no lock.
    #[inline]
    pub fn memory_bytes(&self) -> u64 {
        self.tail.memory_bytes.load(Ordering::Relaxed)
    }

    pub fn check_invariants(&self) {
        let chunks = self.chunks();
        chunks.check_invariants();
        assert!(chunks.end() <= self.tail.end());
        assert!(self.memory_bytes() >= chunks.memory_bytes());
    }
}

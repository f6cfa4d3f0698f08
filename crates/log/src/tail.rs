//! The tail: where frames of all workers become one sequence of bytes.
//!
//! ```text
//!   worker, under its partitions' locks      append: lock, head, copy, unlock
//!                                                    |
//!        full   [ frames ][ frames ]   open   [ frames ... |      to CHUNK_BYTES_MAX each
//!                    |                              |
//!   log thread       +------- collect --------------+             takes the blocks as they are
//! ```
//! The order of the log is the order in which the lock was taken, which is an order in which the commands can
//! have run one after the other: each is appended before its partitions are released. Offsets are exact as
//! soon as a command is over.
//!
//! **Why a lock.** Its rival was a reservation by compare-and-swap, with buffers of each worker that the log
//! thread merged. The process's CPU time for one append of 59 B, the log thread's included, by
//! `examples/append` (2 cores, best of 5; its neighbour in `git log` measured both):
//!
//! ```text
//!                                          no log    lock    compare-and-swap
//!   1 thread, nothing else                      0     19     318 ns
//!   2 threads, nothing else                     0     18     582
//!   16 threads, nothing else                    0     26    1196
//!   2 threads, some 450 ns of work between    452    453     467
//!   16 threads, some 450 ns of work between   421    439     508
//! ```
//! A holder that is preempted stops the others until it runs again, as the holder of a partition's lock does.
//!
//! Invariants: a block holds whole frames, so each of its ends is a place where a reader may stop and a file
//! may end. Under the lock at most `COPIED_BYTES_MAX` are copied and one block is allocated; a larger frame
//! becomes a block itself. `tests/shuttle` explores appends, cuts and readers in random interleavings.

use crate::frame::{Database, Frame};
use crate::offset::LogOffset;
use crate::sync::{AtomicU64, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of bytes of a chunk of small frames. The model check fills several with a few frames.
pub const CHUNK_BYTES_MAX: usize = if cfg!(shuttle) { 256 } else { 256 << 10 };

/// A frame of more bytes is moved, not copied.
const COPIED_BYTES_MAX: usize = CHUNK_BYTES_MAX / 4;

/// Empty blocks that wait for their next use.
const SPARES_MAX: usize = 4;

/// Some frames, one after the other.
#[derive(Default)]
pub struct Block {
    pub bytes: Vec<u8>,
    /// Place in `bytes` at which the frames begin: a frame that was moved has room before it.
    pub from: usize,
    /// Database that is selected after the block, for a reader of the log to there.
    pub selected: Database,
    /// A file ends after the block, where the stream of a primary has this database selected. Such a block is
    /// empty.
    pub ends_file: Option<Database>,
}

impl Block {
    pub fn len(&self) -> usize {
        self.bytes.len() - self.from
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn memory_bytes(&self) -> u64 {
        self.bytes.capacity() as u64
    }
}

/// Result of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// The place after the frame.
    pub end: LogOffset,
    /// The log thread had collected all that was before: it may have to be woken.
    pub was_empty: bool,
}

pub struct Tail {
    state: Mutex<State>,
    /// A copy of the state's, for callers that only ask.
    end: AtomicU64,
    /// Bytes that the log has allocated, here and in the chunks: kept by both, for callers that only ask.
    pub memory_bytes: Arc<AtomicU64>,
}

struct State {
    end: LogOffset,
    /// The database that a reader of the log has selected at its end; unknown after a cut.
    database: Option<Database>,
    /// Database at the end of the stream of a primary, whose next command brings no SELECT. 0 where own
    /// frames end: these bring a SELECT.
    stream_database: Database,
    /// Database that a reader of the whole log has selected at its end, in own frames and in streams. A cut
    /// does not change it.
    selected: Database,
    full: Vec<Block>,
    open: Vec<u8>,
    spares: Vec<Vec<u8>>,
    memory_bytes: Arc<AtomicU64>,
}

impl Tail {
    /// An empty tail of a log that begins, or continues, at `start`.
    pub fn new(start: LogOffset) -> Tail {
        let memory_bytes = Arc::new(AtomicU64::new(0));
        let state = State {
            end: start,
            database: None,
            stream_database: 0,
            selected: 0,
            full: Vec::new(),
            open: Vec::new(),
            spares: Vec::new(),
            memory_bytes: Arc::clone(&memory_bytes),
        };
        Tail { state: Mutex::new(state), end: AtomicU64::new(start.0), memory_bytes }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under the tail's lock")
    }

    /// Continues the log at `start`, with another history, whose stream has `stream_database` selected there.
    /// Frames that were not collected are gone.
    pub fn go_on_at(&self, start: LogOffset, stream_database: Database) {
        let mut state = self.lock();
        state.open.clear();
        let full_bytes: u64 = state.full.iter().map(Block::memory_bytes).sum();
        self.memory_bytes.fetch_sub(full_bytes, Ordering::Relaxed);
        state.full.clear();
        (state.end, state.database) = (start, None);
        (state.stream_database, state.selected) = (stream_database, stream_database);
        self.end.store(start.0, Ordering::Release);
    }

    /// The place after all that was appended.
    #[inline]
    pub fn end(&self) -> LogOffset {
        LogOffset(self.end.load(Ordering::Acquire))
    }

    /// The database that the stream of a primary has selected at the end.
    pub fn stream_database(&self) -> Database {
        self.lock().stream_database
    }

    /// Appends a frame and empties it.
    #[inline]
    pub fn append(&self, frame: &mut Frame) -> Appended {
        frame.seal();
        let appended = {
            let mut state = self.lock();
            let was_empty = state.is_empty();
            let from = frame.write_head(state.database);
            let (len, selected) = (frame.bytes().len() - from, frame.database_last());
            if len > COPIED_BYTES_MAX {
                state.push_block(Block { bytes: frame.take_bytes(), from, selected, ends_file: None });
            } else {
                state.copy(&frame.bytes()[from..]);
            }
            // Not before: a block that has just been closed ends with what was selected then.
            (state.database, state.stream_database, state.selected) = (Some(selected), 0, selected);
            self.advance(&mut state, len, was_empty)
        };
        frame.clear();
        appended
    }

    /// Appends whole frames of another log as they are: a replica's log has the bytes of its primary. After
    /// them `database` is selected.
    #[inline]
    pub fn append_stream(&self, bytes: &[u8], database: Database) -> Appended {
        let large = (bytes.len() > COPIED_BYTES_MAX).then(|| bytes.to_vec());
        let mut state = self.lock();
        let was_empty = state.is_empty();
        match large {
            Some(bytes) => state.push_block(Block { bytes, selected: database, ..Block::default() }),
            None => state.copy(bytes),
        }
        (state.database, state.stream_database, state.selected) = (None, database, database);
        self.advance(&mut state, bytes.len(), was_empty)
    }

    /// Appends a command that is the same in every database, as PING is: what follows needs no other SELECT
    /// for it.
    pub fn append_beside(&self, command: &[u8]) -> Appended {
        debug_assert!(command.len() <= COPIED_BYTES_MAX, "such commands are short");
        let mut state = self.lock();
        let was_empty = state.is_empty();
        state.copy(command);
        self.advance(&mut state, command.len(), was_empty)
    }

    #[inline]
    fn advance(&self, state: &mut State, len: usize, was_empty: bool) -> Appended {
        state.end = state.end + len as u64;
        self.end.store(state.end.0, Ordering::Release);
        Appended { end: state.end, was_empty }
    }

    /// A place from which the log can be read alone: what follows brings its SELECT. `ends_file`: here a file
    /// of the AOF ends too, which `collect` reports in its turn.
    pub fn cut(&self, ends_file: bool) -> LogOffset {
        let mut state = self.lock();
        state.close_block();
        if ends_file {
            let ends_file = Some(state.stream_database);
            state.full.push(Block { ends_file, ..Block::default() });
        }
        state.database = None;
        state.end
    }

    /// Takes all blocks, the oldest first. Their memory continues to count: the caller says what becomes of
    /// it.
    pub fn collect(&self, blocks: &mut Vec<Block>) {
        let mut state = self.lock();
        state.close_block();
        blocks.append(&mut state.full);
    }

    /// Gives the memory of a block back for a later one, or frees it.
    pub fn recycle(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut state = self.lock();
        if bytes.capacity() == CHUNK_BYTES_MAX && state.spares.len() < SPARES_MAX {
            return state.spares.push(bytes);
        }
        drop(state);
        let freed_bytes = bytes.capacity() as u64;
        drop(bytes);
        self.memory_bytes.fetch_sub(freed_bytes, Ordering::Relaxed);
    }
}

impl State {
    #[inline]
    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.full.is_empty()
    }

    #[inline]
    fn copy(&mut self, bytes: &[u8]) {
        // A log without a reader takes no memory.
        if self.open.capacity() == 0 {
            self.open = self.allocated();
        }
        if self.open.len() + bytes.len() > CHUNK_BYTES_MAX {
            self.close_block();
        }
        self.open.extend_from_slice(bytes);
    }

    #[cold]
    fn allocated(&self) -> Vec<u8> {
        self.memory_bytes.fetch_add(CHUNK_BYTES_MAX as u64, Ordering::Relaxed);
        Vec::with_capacity(CHUNK_BYTES_MAX)
    }

    #[cold]
    fn push_block(&mut self, block: Block) {
        self.close_block();
        self.memory_bytes.fetch_add(block.memory_bytes(), Ordering::Relaxed);
        self.full.push(block);
    }

    #[cold]
    fn close_block(&mut self) {
        if !self.open.is_empty() {
            let next = self.spares.pop().unwrap_or_else(|| self.allocated());
            let bytes = std::mem::replace(&mut self.open, next);
            self.full.push(Block { bytes, selected: self.selected, ..Block::default() });
        }
    }
}

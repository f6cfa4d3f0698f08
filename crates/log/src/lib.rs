//! The log of changes: one sequence of bytes for the AOF, the backlog and all replicas.
//!
//! ```text
//!   a command's records -> Frame -> Tail -> Chunks -> pieces by offset
//!                          workers, under   the log thread     the AOF's writer, the backlog, replicas
//!                          their locks
//! ```
//! **Architecture invariant:** `log` knows no commands, no files, no sockets and no clock. A frame is bytes,
//! a place in the log is an offset, a time is an argument.

mod frame;
mod offset;
mod tail;

mod chunks;
mod log;
mod sync;
mod wake;

pub mod writer;

pub use chunks::{Gone, Piece, ReaderId, ReaderKind};
pub use frame::{Database, Frame, select};
pub use log::{Collected, Log};
pub use offset::LogOffset;
pub use tail::{Appended, Block, CHUNK_BYTES_MAX, Tail};
pub use wake::SleepMarks;

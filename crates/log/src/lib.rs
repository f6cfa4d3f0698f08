//! The log of changes: one sequence of bytes for the AOF, the backlog and all replicas.
//!
//! ```text
//!   a command's records -> Frame -> Tail       workers, under their partitions' locks
//! ```
//! **Architecture invariant:** `log` knows no commands, no files, no sockets and no clock. A frame is bytes, a place in the log
//! is an offset, a time is an argument.

pub mod frame;
pub mod offset;
pub mod reserved;
pub mod tail;

pub use frame::{Database, Frame};
pub use offset::LogOffset;
pub use tail::{Appended, Block, CHUNK_BYTES_MAX, Tail};

//! Replication as state machines: which history a node is part of, and what primary and replica say to each
//! other.
//!
//! ```text
//!   replica   link: handshake, PSYNC, RDB, stream, ACKs    <-- bytes -->    feed: REPLCONF, PSYNC, RDB, stream   primary
//! ```
//! Each machine is a function `step(input, now) -> outputs`; threads, sockets and files are the server's. So
//! a seed can run a primary and its replicas in one thread, with links that fail.
//!
//! **Architecture invariant:** `replication` knows ids, offsets and bytes. It knows no sockets, no files, no
//! clock, no keys and no commands but those of the protocol.

pub mod acks;
pub mod feed;

mod history;
mod id;
pub mod link;

pub use history::{Continuation, History, Refusal};
pub use id::ReplId;
pub use isotherm_log::writer::Ms;

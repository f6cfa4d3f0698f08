//! Values that are not in memory: the files they lie in, the threads that read and write them, and what the
//! rest of the server asks.
//!
//! ```text
//!   memory is short        sinker (1 thread)   keyspace::SlotHand -> tier::Log -> segment files -> keyspace::chill
//!   a command needs some   its worker          its ring -> record verified -> keyspace::lend or warm; its connection goes on (`fetches`)
//!                          readers (`reads`)   read for workers without a ring, and try again what does not go well (`errands`)
//!   disk space is short    sinker              segment -> what lives of it -> other segment -> keyspace::move_cold
//!   nothing dead is left   sinker              segment written first -> its keys are evicted (`dropping`)
//!   a snapshot is written  its thread          reads in stretches (`in_order`), without a lock
//!   the disk fails         all of them         events -> health::Health -> state
//!   the disk hangs         its worker          who waits for a value gives up
//!                          watch (1 thread)    who waits for memory gives up
//!   SWAP VERIFY, or off    round (1 thread)    goes over all cold entries, and reads their values
//!   fields are due         round               the active cycle asked -> read -> keyspace::warm
//! ```
//! Without `swap-checkpoint` the files are scratch: the append-only file or the RDB file is durable, and has
//! all values. So they are removed at start, and never synced. With it a base of the append-only file refers
//! to them (`checkpoint`, `owner`).
//!
//! **Who waits.** A client whose value is read: its connection is parked, no thread of a worker waits.
//! Writers, while memory is above its limit by more than [`pace`] allows and the sinker can still free some.
//! Under a partition's lock nothing is read from disk, but by scripts and transactions that have begun
//! (`fetch_held`).
//!
//! **What this folder does not know:** commands and sessions.

pub mod cleaner;
#[cfg(test)]
mod crashes;
mod dropping;
pub mod due;
pub mod freezing;
pub mod frozen;
mod holds;
mod look;
mod nodes;
mod records;
pub mod round;
pub mod sinker;
pub mod space;
pub mod together;
pub mod watch;

//! Values that are not in memory: the files they lie in, the threads that read and write them, and what the
//! rest of the server asks.
//!
//! ```text
//!   memory is short        sinker (1 thread)   keyspace::sink_step -> tier::Log -> segment files -> keyspace::chill
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

mod asked;
pub mod checkpoint;
pub mod cleaner;
pub mod copies;
#[cfg(test)]
mod crashes;
mod damaged;
mod dropping;
pub mod due;
pub mod errands;
pub mod fetches;
pub mod files;
pub mod freezing;
pub mod frozen;
pub mod handing;
pub mod health;
mod holds;
pub mod homes;
pub mod in_order;
mod keeper;
mod kept_segments;
pub mod lent;
mod look;
mod nodes;
pub mod open_files;
pub mod owner;
pub mod pace;
mod read_warnings;
mod reading;
pub mod reads;
mod records;
pub mod rings;
pub mod round;
pub mod sinker;
pub mod space;
pub mod state;
pub mod target;
pub mod times;
pub mod together;
pub mod verify;
pub mod watch;

pub use damaged::text as damaged_text;
pub use files::ReadError;
pub use health::State;
pub use state::Tier;

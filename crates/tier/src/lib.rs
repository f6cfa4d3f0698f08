//! The log of values that are not in memory: what lies where on disk, what of it is dead, and what to clean.
//!
//! ```text
//!   values that leave memory          survivors of cleaning
//!            |                                 |
//!         Stream::Fresh                  Stream::Survivors      a group of 1 MB each, being filled (of survivors two)
//!            |                                 |
//!   segment  [group][group][group] ...   64 MB, append only; a place is (segment, offset), 40 bits
//!            |
//!   record   [crc][length][form][expiry][database][slot][key length][key][payload]
//! ```
//! A value's life here: [`Log::append`] gives it a place in a group. The group is written
//! ([`Log::next_write`]). When the disk has it ([`Log::written`]), the caller lets each entry whose value is
//! still that of the group point there, and reports the others as dead ([`Live::retire`]). So the entry is in
//! memory until its bytes are on disk, and no entry is "moving".
//!
//! **Architecture invariant:** `tier` knows no files, no threads, no clock and no keyspace. It makes bytes
//! and says where they belong; the caller writes, reads and knows which entry points where. A key is bytes
//! that must come back equal.

mod checkpoint;
mod cleaning;
mod config;
mod group;
mod live;
mod log;
mod place;
mod policy;
mod record;
mod segments;

pub use checkpoint::{
    CHECKPOINT_BYTES_MAX, Checkpoint, CheckpointError, LOG_ID_BYTES, LogId, NamedSegment, OWNER_BYTES_MAX,
    OWNER_FILE_NAME, block_sum,
};
pub use cleaning::{Cleaning, Stretch};
pub use config::LogConfig;
pub use group::{BLOCK_BYTES, GROUP_BYTES, Group};
pub use live::Live;
pub use log::{Full, GROUPS_WAITING_MAX, Log, Stream, Ticket, Write, Written};
pub use place::{
    ADDRESS_UNIT_BYTES, PAYLOAD_BYTES_MAX, Place, SEGMENT_BYTES, SEGMENT_FILE_SUFFIX, SEGMENTS_MAX,
    SegmentNumber,
};
pub use record::{Damage, HEAD_BYTES, KEY_BYTES_MAX, Record, record_bytes};
pub use segments::{Named, SegmentState, Snapshots};

/// Formats of the log of values on disk.
pub const FORMATS: &[isotherm_stdx::format::FormatPart] =
    &[place::FORMAT, record::FORMAT, group::FORMAT, checkpoint::FORMAT];

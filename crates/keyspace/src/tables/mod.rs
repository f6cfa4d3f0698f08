//! Layer 4 of 7: one database of one partition: its slots, and finding, storing and removing entries there.

pub(crate) mod counters;
pub(crate) mod flushed;
pub(crate) mod frozen;
pub(crate) mod geometry;
pub(crate) mod location;
pub(crate) mod table;

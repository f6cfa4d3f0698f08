//! Work that no request asks for: expiry, eviction, compaction.

pub mod compaction;
pub mod cron;

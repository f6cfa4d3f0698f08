//! Work that no request asks for: expiry, eviction, compaction, and the memory of connections.

pub mod client_memory;
pub mod compaction;
pub mod cron;
pub mod eviction;
pub mod memory;
pub mod shortage;

//! What the server reports of itself: counters, histograms and logs that are kept while it works, and the reports that are
//! made from them. Nothing here decides anything.

pub mod arena_sums;
pub mod command_log;
pub mod counter;
pub mod error_counts;
pub mod facts;
pub mod hold_causes;
pub mod hold_table;
pub mod holds;
pub mod hot_keys;
pub mod info;
pub mod latency;
pub mod memory_map;
pub mod metrics;
pub mod resident;
pub mod sample;
pub mod slot_stats;
pub mod stats;

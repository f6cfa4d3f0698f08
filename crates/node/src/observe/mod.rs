//! Reports of the server about itself, and the counters, histograms and logs from which they are made. The
//! server decides nothing by them.

pub mod arena_sums;
pub mod command_log;
pub mod counter;
pub mod error_counts;
pub mod facts;
pub mod hold_causes;
pub mod hold_table;
pub mod holds;
pub mod hot_keys;
pub mod latency;
pub mod memory_map;
pub mod resident;
pub mod slot_stats;
pub mod stats;

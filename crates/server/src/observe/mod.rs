//! Reports: INFO, the map of memory, metrics.

pub mod info;
pub mod memory_map;
pub mod metrics;

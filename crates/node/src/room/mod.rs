//! Room: how much memory counts for `maxmemory`, and what gives way when memory or disk is short. Others act
//! by it: `request::eviction` for a command, the cron, and the threads of values on disk.

pub mod memory;
pub mod shortage;

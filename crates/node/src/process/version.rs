//! Version of Valkey that this server speaks like.

/// Clients decide by it what they may send.
pub const VALKEY_VERSION: &str = "9.1.2";
/// Version for clients that only know Redis, as in Valkey.
pub const REDIS_VERSION: &str = "7.2.4";

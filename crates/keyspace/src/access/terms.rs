//! The terms of a transaction: at which moment it runs, what becomes of expired keys, how its lookups count, and what it
//! came to.

use isotherm_stdx::UnixMs;

/// What becomes of a key that is met after its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpiryMode {
    /// It leaves, as an effect (a primary).
    Delete,
    /// It is absent, but stays (a replica, a paused or loading server).
    Hide,
    /// It is still there (the replication stream, import mode).
    Keep,
}

/// How a lookup counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// For reading: counts as hit or miss and refreshes the access stamp.
    Read,
    /// For reading, without refreshing the access stamp (TTL, EXISTS).
    Peek,
    /// As `Peek`, but the absence of the key is no event (TYPE, OBJECT).
    Quiet,
    /// As `Quiet`, and counts neither as hit nor as miss.
    Silent,
    /// For a write: refreshes the access stamp, no hit or miss.
    Write,
}

/// What holds while a transaction runs; nothing below asks for any of it.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    pub now: UnixMs,
    pub expiry_mode: ExpiryMode,
    /// CLIENT NO-TOUCH: lookups leave access stamps alone.
    pub no_touch: bool,
}

/// What a command comes to in the statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxnCounts {
    /// Changes (rdb_changes_since_last_save).
    pub dirty: u64,
    pub hits: u64,
    pub misses: u64,
    /// Keys that left because their time had come.
    pub expired: u64,
    /// Fields that a command has deleted or replaced because their time is over.
    pub expired_fields: u64,
}

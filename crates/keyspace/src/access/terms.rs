//! The terms of a transaction: at which moment it runs, what becomes of expired keys, how its lookups count, and what it
//! came to; what is shown of values that are not in memory, and which it has met.

use crate::layout::bundle::BundleName;
use crate::layout::cold::{ColdRef, ColdValue};
use crate::layout::kind::Db;
use crate::layout::node_name::NodeAt;
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

/// What a command is shown of an entry whose value is not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnCold {
    /// Its type and length, as `Value::Cold`.
    Show,
    /// Nothing: what it meets is collected, its reply is thrown away, and it runs again. For commands that only read.
    Collect,
    /// The value, which is waited for under the lock. What is to be changed was fetched before, as far as its declaration leads to it.
    Read,
}

/// A value that a command met and that is not in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    pub db: Db,
    pub key: Box<[u8]>,
    /// It is a part of a collection, whose key is not named.
    pub node: Option<NodeAt>,
    /// Or its keeper has tried.
    pub is_readable: bool,
}

/// Where the value of a key is, for a command that needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    /// In memory, or lent; or there is no such key.
    Here,
    /// Its keeper has it.
    Away(ColdValue),
    /// The key itself may be in a record of this name with its value: that is known when it was read.
    Frozen(ColdRef, BundleName),
    /// Its keeper could not read it.
    Unreadable,
}

/// Where the value of an entry is that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ColdAt {
    Here,
    Away,
    Unreadable,
}

/// What became of a value that was written out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chilled {
    /// Its entry refers to it.
    Small,
    /// The same, of a collection all of whose elements were looked at.
    Large,
    /// It is another one by now, or there was no memory.
    No,
}

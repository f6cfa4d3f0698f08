//! The terms of a transaction: at which moment it runs, what becomes of expired keys, how its lookups count,
//! and what it came to; what is shown of values that are not in memory, and which it has met.

use crate::layout::bundle::BundleName;
use crate::layout::cold::{ColdRef, ColdValue};
use crate::layout::kind::Db;
use crate::layout::node_name::NodeAt;
use isotherm_stdx::UnixMs;

/// Treatment of a key that is met after its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpiryMode {
    /// The key leaves, as an effect (a primary).
    Delete,
    /// The key is absent, but stays (a replica, a paused or loading server).
    Hide,
    /// The key is still there (the replication stream, import mode).
    Keep,
}

/// Way in which a lookup counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// A read: counts as hit or miss and refreshes the access stamp.
    Read,
    /// A read that does not refresh the access stamp (TTL, EXISTS).
    Peek,
    /// Like `Peek`, but the absence of the key is no event (TYPE, OBJECT).
    Quiet,
    /// Like `Quiet`, and counts neither as hit nor as miss.
    Silent,
    /// A write: refreshes the access stamp, no hit or miss.
    Write,
}

/// Conditions that hold while a transaction runs; nothing below asks for any of them.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    pub now: UnixMs,
    pub expiry_mode: ExpiryMode,
    /// CLIENT NO-TOUCH: lookups leave access stamps alone.
    pub no_touch: bool,
}

/// Counts of a command for the statistics.
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

/// Treatment of an entry that a command meets and whose value is not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnCold {
    /// Shows its type and length, as `Value::Cold`.
    Show,
    /// Shows nothing. Values that the command meets are collected, its reply is thrown away, and it runs
    /// again. Only used by commands that only read.
    Collect,
    /// The value, which is waited for under the lock. Values that are to be changed were fetched before, as
    /// far as the command's declaration leads to them.
    Read,
}

/// A value that a command met and that is not in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    pub db: Db,
    pub key: Box<[u8]>,
    /// Node that is missing, a part of a collection whose key is not named.
    pub node: Option<NodeAt>,
    /// False if its keeper has tried to read it, without success.
    pub is_readable: bool,
}

/// Place of the value of a key, for a command that needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    /// The value is in memory, or lent; or there is no such key.
    Here,
    /// The value is with its keeper.
    Away(ColdValue),
    /// The key itself may be in a record of this name with its value: that is known when it was read.
    Frozen(ColdRef, BundleName),
    /// The keeper could not read the value.
    Unreadable,
}

/// Place of the value of an entry that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ColdAt {
    Here,
    Away,
    Unreadable,
}

/// Outcome of the attempt to replace a value that was written out by a reference to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chilled {
    /// The entry refers to the value.
    Small,
    /// The entry refers to the value, a collection all of whose elements were looked at.
    Large,
    /// The value is another one by now, or there was no memory.
    No,
}

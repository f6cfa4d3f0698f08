//! The data model: keys and values of every type in packed pages, slot by slot, behind lock stripes.
//!
//! **Architecture invariant:** `keyspace` knows no sockets, no RESP, no files and no clock: time is an argument of
//! every transaction, and so is what happens to expired keys. It never asks who is calling. The same inputs, time and
//! seed give the same bytes.
//!
//! The way in is [`Keyspace::key`] (hash once), [`Held::acquire`] (lock what the command needs) and [`Txn`] (change
//! it). The way out is [`Effect`]: what changed, told to an [`EffectSink`] while the locks are still held.

mod key;
mod value;

mod entry;
mod heap;
mod large;
#[allow(dead_code, reason = "its users come one by one")]
mod object;
#[allow(dead_code, reason = "its users come one by one")]
mod packed;
mod page;
mod record;

mod directory;
mod linear;
mod store;
mod table;
mod tally;

mod access;
mod age;
mod attribution;
mod flushed;
mod geometry;
mod idle;
mod partition;

mod books;

mod compact;
mod element_prefetch;
mod evict;
mod expire;
mod prefetch;
mod scan;
mod sizes;
mod slot_size;
mod snapshot;
mod survey;

mod chain;
mod collection;
mod cut;
mod edit;
mod fields;
mod hash;
#[allow(dead_code, reason = "its users come one by one")]
mod list;
mod listpack;
mod nodes;
mod pile;
mod set;
#[allow(dead_code, reason = "its users come one by one")]
mod stream;
mod zset;

mod effect;
mod lock;
mod ready;
mod serving;
mod sync;
mod txn;
mod upkeep;
mod waiter;
mod watch;

#[cfg(test)]
mod directory_tests;
#[cfg(test)]
mod flood_tests;
// So that the support of tests/ serves the tests in here too.
#[cfg(test)]
extern crate self as isotherm_keyspace;

pub use access::{AccessMode, AccessNote};
pub use age::{AgeHand, AgeStep, LRU_ROUND_SECONDS};
pub use attribution::{
    LargeKey, LargestKeys, PREFIX_DEPTH_MAX, PREFIX_PINS_MAX, PrefixError, PrefixReport, PrefixSettings,
    PrefixShare,
};
pub use books::{Books, ClassBooks};
pub use collection::{EditError, Edited, Limits};
pub use compact::CompactStep;
pub use effect::{Effect, EffectMask, EffectSink, EventClass, NoEffects};
pub use evict::{Evicted, EvictionPolicy};
pub use expire::ExpireStep;
pub use hash::{Draws, FieldSet, HashEdit, HashView};
pub use idle::IdleTimes;
pub use isotherm_arena::{ArenaStats, RESERVE_BYTES_MAX as ARENA_BYTES_MAX};
pub use isotherm_stdx::{Slot, UnixMs};
pub use key::{Key, KeyHasher};
pub use list::{Elements, End, ListEdit, ListView};
pub use lock::{Config, HOLD_LOOKS_MAX, HOLD_STEPS_MAX, Held, HoldWatch, KEYS_PER_HOLD_MAX, Keyspace, Want};
pub use packed::{Element, TextRoom};
pub use prefetch::{Intent, PREFETCH_KEYS_MAX};
pub use serving::{Serve, WAITERS_PER_HOLD_MAX, look, serve_ready};
pub use set::{SetEdit, SetView};
pub use sizes::{SIZE_BINS, SIZED_TYPES};
pub use slot_size::SlotSize;
pub use snapshot::{Snapshot, SnapshotEntry, SnapshotItem, SnapshotPart};
pub use stream::{
    Consumer, ConsumerGroup, ConsumerGroups, GroupEdit, NewBlock, Pending, StreamBlock, StreamEdit,
    StreamEntry, StreamId, StreamPart, StreamState, StreamView, Trim,
};
pub use survey::{DatabaseKeys, Sizes, Survey};
pub use tally::ClassSums;
pub use txn::{Conditions, ExpiryMode, Lookup, Txn};
pub use value::{Db, Encoding, Entry, Expiry, Full, NewValue, PackedValue, Type, Value};
pub use waiter::{Claim, WaitedKey, Waiter};
pub use watch::Watcher;
pub use zset::{ZsetBound, ZsetEdit, ZsetUpdate, ZsetView};

/// A key is at most this long; a value too (the protocol's own limit, proto-max-bulk-len).
pub const STRING_BYTES_MAX: usize = 512 << 20;

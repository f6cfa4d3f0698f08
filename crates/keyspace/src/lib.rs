//! The data model: keys and values of every type in packed pages, slot by slot, behind lock stripes.
//!
//! **Architecture invariant:** `keyspace` knows no sockets, no RESP, no files and no clock: time is an
//! argument of every transaction, and so is what happens to expired keys. It never asks who is calling. The
//! same inputs, time and seed give the same bytes.
//!
//! The way in is [`Keyspace::key`] (hash once), [`Held::acquire`] (lock what the command needs) and [`Txn`]
//! (change it). The way out is [`Effect`]: what changed, passed to an [`EffectSink`] while the locks are
//! still held.
//!
//! ```text
//!   reports      what is there, how large, how long unused            imports only go down, which
//!   upkeep       expiry, eviction, compaction, snapshots              `cargo xtask tidy` checks
//!   access       partitions, locks, transactions, waiting clients
//!   tables       the slots of one database of one partition
//!   values       collections and strings: views, edits, large forms
//!   accounting   counters kept by every change
//!   layout       the bytes of entries and pages, and their memory
//! ```

mod layout;

mod accounting;

mod values;

mod tables;

mod access;

mod upkeep;

mod reports;

// So that the support of tests/ serves the tests in here too.
#[cfg(test)]
extern crate self as isotherm_keyspace;

pub use access::budget::{HOLD_LOOKS_MAX, HOLD_STEPS_MAX};
pub use access::cold::NotPut;
pub use access::effect::{Effect, EffectMask, EffectSink, EventClass, NoEffects};
pub use access::element_prefetch::{prefetch_elements, prefetch_streams};
pub use access::frozen::StoredBundle;
pub use access::keyspace::Keyspace;
pub use access::lease::{LeaseId, LeasePlace};
pub use access::lock::{Held, KEYS_PER_HOLD_MAX, SuspendedReady, Want};
pub use access::lost::{Forgotten, LastRead, LostRecords};
pub use access::nodes::{HeldNode, NodeNeed};
pub use access::prefetch::{Intent, PREFETCH_KEYS_MAX};
pub use access::serving::{Attempt, Serve, WAITERS_PER_HOLD_MAX, look, serve_ready};
pub use access::shared::Config;
pub use access::slot_keys::{SlotKeys, thaw_slot};
pub use access::staging::{BuildError, Builder, NewString, Repeats, STAGED_GROUPS, StagedGroup, Staging};
pub use access::terms::{Chilled, Conditions, ExpiryMode, Lookup, Missing, OnCold, TxnCounts, Whereabouts};
pub use access::txn::Txn;
pub use access::waiter::{Claim, WaitedKey, Waiter};
pub use access::walk::{WALK_BYTES_MAX, Walk, WalkProgress, WalkRecord};
pub use access::watch::Watcher;
pub use access::work_guard::HoldWatch;
pub use accounting::attribution::{
    LargeKey, LargestKeys, PREFIX_DEPTH_MAX, PREFIX_PINS_MAX, PrefixError, PrefixReport, PrefixSettings,
    PrefixShare,
};
pub use accounting::sizes::{SIZE_BINS, SIZED_TYPES};
pub use accounting::tally::ClassSums;
pub use isotherm_arena::{ArenaStats, RESERVE_BYTES_MAX as ARENA_BYTES_MAX};
pub use isotherm_stdx::{Slot, SteadyMs, UnixMs};
pub use layout::FORMATS;
#[cfg(fuzzing)]
pub use layout::bundle::fuzz_bundle;
pub use layout::bundle::{BundleAt, BundleName, Expiring};
pub use layout::cold::{ColdKeeper, ColdRef, ColdValue};
pub use layout::key::{Key, KeyHasher};
pub use layout::kind::{Db, Encoding, Expiry, Full, NewValue, PackedValue, Type};
pub use layout::large::{Lent, RequestMemory, SharedText};
pub use layout::last_used::{AccessMode, AccessNote, AccessStamp};
pub use layout::node_name::{NodeAt, NodeName};
pub use layout::packed::{Element, TextRoom};
pub use reports::breakdown::{Breakdown, ClassBreakdown};
pub use reports::idle::IdleTimes;
pub use reports::slot_size::SlotSize;
pub use reports::survey::{DatabaseKeys, Sizes, Survey};
pub use upkeep::age::{AgeHand, AgeStep, LRU_ROUND_SECONDS};
pub use upkeep::compact::CompactStep;
pub use upkeep::due::{DueHand, thaw_due};
pub use upkeep::evict::{Evicted, EvictionGain, EvictionPolicy};
pub use upkeep::expire::ExpireStep;
pub use upkeep::freeze::{Freezable, FreezeLimits};
pub use upkeep::sink::{DropLimits, DroppedCopies, Payload, SinkLimits, SinkRoom, Sinkable};
pub use upkeep::sink_nodes::{ByNodes, NodeHand, SinkableNode};
pub use upkeep::slot_hand::SlotHand;
pub use upkeep::snapshot::{Snapshot, SnapshotBundle, SnapshotEntry, SnapshotItem, SnapshotNode};
pub use values::cold::ColdCounts;
pub use values::cold::GIVEN_MS;
pub use values::collection::{EditError, Edited, Limits};
pub use values::hash::{Draws, FieldSet, HashEdit, HashView};
pub use values::list::{Elements, End, ListEdit, ListView};
pub use values::parts::{Outline, Part};
pub use values::set::{SetEdit, SetView};
pub use values::stream::{
    Consumer, ConsumerGroup, ConsumerGroups, GroupEdit, NewBlock, Pending, StreamBlock, StreamEdit,
    StreamEntry, StreamId, StreamPart, StreamState, StreamView, Trim,
};
pub use values::value::{Entry, ReadValue, Value};
pub use values::zset::{ZsetBound, ZsetEdit, ZsetUpdate, ZsetView};

/// Length of keys and of values that the protocol takes by default (proto-max-bulk-len).
pub const STRING_BYTES_MAX: usize = 512 << 20;
/// Length of a value, with its key if that is kept with it, that an entry can state. A longer one is refused
/// as if memory were full.
pub const BODY_BYTES_MAX: usize = u32::MAX as usize;

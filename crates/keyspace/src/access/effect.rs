//! Effects: what changed in the keyspace, reported upwards while the partitions are locked.
//!
//! ```text
//!   a command's handler     its keyspace event                 Event ------------------------+
//!   Txn                     new, keymiss, del of an emptied    Event ------------------------+--> EffectSink
//!   Followers::changed      one key, one cause                 Written, Expired, Evicted, ...+    (the server's pump)
//! ```
//! Their consumers (log, replicas, subscribers of events, tracking) are the server's business. Without a
//! consumer an effect costs one test of a mask.

use crate::layout::kind::Db;
use std::ops::BitOr;

/// The classes of keyspace events, as `notify-keyspace-events` names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventClass {
    /// `g`: DEL, EXPIRE, RENAME, ...
    Generic,
    /// `$`: strings.
    String,
    /// `l`: lists.
    List,
    /// `s`: sets.
    Set,
    /// `h`: hashes.
    Hash,
    /// `z`: sorted sets.
    Zset,
    /// `t`: streams.
    Stream,
    /// `x`: a key expired.
    Expired,
    /// `e`: a key was evicted.
    Evicted,
    /// `n`: a key was created.
    New,
    /// `m`: a key that was to be read is not there.
    KeyMiss,
}

/// Effect that the keyspace reports. Closed: each consumer decides about every variant. The log record of a
/// command is not here: only a command knows its canonical form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect<'a> {
    /// A keyspace event.
    Event { class: EventClass, name: &'static str, db: Db, key: &'a [u8] },
    /// A command has written or removed a key. Reported only while changes are reported
    /// (`Held::report_changes`), whatever the mask.
    Written { db: Db, key: &'a [u8] },
    /// A key was removed because its time had come. While changes are reported, so is this, whatever the
    /// mask.
    Expired { db: Db, key: &'a [u8] },
    /// A key was removed because memory was short. Reported as `Expired` is.
    Evicted { db: Db, key: &'a [u8] },
    /// Fields of a hash were removed because their time had come; with the last of them the hash. Reported as
    /// `Expired` is.
    FieldsExpired { db: Db, key: &'a [u8], fields: &'a [Vec<u8>], is_emptied: bool },
    /// All keys of a database, or of all of them, have left. Reported as `Written` is.
    Flushed { db: Option<Db> },
}

/// The kinds of effects that have a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EffectMask(u8);

impl EffectMask {
    pub const NONE: EffectMask = EffectMask(0);
    /// Keyspace events.
    pub const EVENTS: EffectMask = EffectMask(1);
    /// Effects that the log holds in addition to the records of commands: keys and fields that left by
    /// themselves.
    pub const LOG: EffectMask = EffectMask(2);
    pub const ALL: EffectMask = EffectMask(3);

    #[inline]
    pub fn has(self, other: EffectMask) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for EffectMask {
    type Output = EffectMask;
    fn bitor(self, other: EffectMask) -> EffectMask {
        EffectMask(self.0 | other.0)
    }
}

/// Receiver of effects. Called while partitions are locked: it may queue, but never wait.
pub trait EffectSink {
    fn mask(&self) -> EffectMask;
    fn effect(&mut self, effect: Effect<'_>);
}

/// No consumer.
pub struct NoEffects;

impl EffectSink for NoEffects {
    fn mask(&self) -> EffectMask {
        EffectMask::NONE
    }
    fn effect(&mut self, _: Effect<'_>) {}
}

//! Effects: what a command changed, told upwards while its locks are held.
//!
//! A handler says what happened; who listens (AOF, replicas, keyspace events, tracking) is the server's business. With
//! nobody listening an effect costs one test of a mask.

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

/// One thing that happened. Closed: whoever consumes effects decides about each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect<'a> {
    /// A keyspace event (also what tracking listens to).
    Event { class: EventClass, name: &'static str, db: Db, key: &'a [u8] },
    /// The log gets the request as it came.
    LogVerbatim { db: Db },
    /// The log gets this command instead: the canonical form (SET k v EX 10 -> SET k v PXAT 1700000000000).
    Log { db: Db, command: &'a [&'a [u8]] },
    /// A key left because its time had come.
    Expired { db: Db, key: &'a [u8] },
    /// A key left because memory was short.
    Evicted { db: Db, key: &'a [u8] },
    /// A key was changed or has left by a command. Told only while somebody has asked for changes, whatever the mask
    /// (`Held::tell_changes`); then expired and evicted keys are told in any case too.
    Touched { db: Db, key: &'a [u8] },
    /// All keys of a database, or of all of them, have left. Told as `Touched` is.
    Flushed { db: Option<Db> },
}

/// The kinds of effects that somebody listens to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EffectMask(u8);

impl EffectMask {
    pub const NONE: EffectMask = EffectMask(0);
    pub const EVENTS: EffectMask = EffectMask(1);
    pub const LOG: EffectMask = EffectMask(2);
    pub const ALL: EffectMask = EffectMask(3);

    #[inline]
    pub fn wants(self, effect: &Effect<'_>) -> bool {
        let needed = match effect {
            Effect::Event { .. } => EffectMask::EVENTS.0,
            Effect::LogVerbatim { .. } | Effect::Log { .. } => EffectMask::LOG.0,
            Effect::Expired { .. } | Effect::Evicted { .. } => EffectMask::ALL.0,
            Effect::Touched { .. } | Effect::Flushed { .. } => EffectMask::ALL.0,
        };
        self.0 & needed != 0
    }
}

impl BitOr for EffectMask {
    type Output = EffectMask;
    fn bitor(self, other: EffectMask) -> EffectMask {
        EffectMask(self.0 | other.0)
    }
}

/// Where effects go. Called while partitions are locked: it may queue, never wait.
pub trait EffectSink {
    fn mask(&self) -> EffectMask;
    fn effect(&mut self, effect: Effect<'_>);
}

/// Nobody listens.
pub struct NoEffects;

impl EffectSink for NoEffects {
    fn mask(&self) -> EffectMask {
        EffectMask::NONE
    }
    fn effect(&mut self, _: Effect<'_>) {}
}

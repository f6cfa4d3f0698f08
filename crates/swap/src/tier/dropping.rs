//! The thread that writes, where keys leave with the segment that they lie in: nothing dead is left to be
//! cleaned, and values keep coming from memory.
//!
//! ```text
//!   the segment filled first     [ passed: gone, or copied ][ next ][ lives ...            ]
//!   the segment being filled     [ values from memory      ]      as many bytes of one go as come to the other
//! ```
//! A full log loses as much as it gains, first the records that were written first, and the disk keeps
//! taking values: memory need not give up keys that were used a moment ago. The segment is read like one that
//! is cleaned. Keys that the policy spares are copied, as by cleaning:
//!
//! * keys that were used since: idle for less than half as long as most of the stretch before (by LFU: used
//!   more than that often);
//! * keys without a time, under volatile-*;  keys that a script needs;  parts of large collections.
//!
//! Frozen keys go as they lie, all of a record: none of them was used since it was written.
//!
//! Records that cannot be read name no key. The keys whose values these are, are found by a walk over all
//! keys, once for such a segment, and go whenever they were used: their values are lost. Frozen keys in them
//! stay, as only the records say what they are called.
//!
//! A segment from which hardly anything may go is not worth it: for a while the disk counts as full. While a
//! snapshot keeps segments that are empty already, none is dropped: it would be kept too. Nor is one in a
//! file system that is short: values could not follow.

use isotherm_keyspace::{ColdRef, Db, EvictionPolicy, Held, SlotHand, Want};
use isotherm_tier::{Cleaning, Place, Record, SegmentNumber, Stream};
use std::time::{Duration, Instant};

use super::holds::LOOKS_PER_HOLD;
use super::records::db_of;
use super::sinker::Sinker;
use super::{frozen, nodes};
use isotherm_node::Node;
use isotherm_node::effects::events::Events;
use isotherm_node::effects::pump::Pump;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::observe::holds;
use isotherm_node::observe::holds::Work;
use isotherm_runtime::log;
use isotherm_runtime::time::{elapsed, instant, unix_now};

/// A segment was not worth it if less than one part in `GAIN_DIVISOR` of it has gone.
const GAIN_DIVISOR: u64 = 8;
/// Rest until another one is tried then.
const VAIN_REST: Duration = Duration::from_secs(10);

pub struct Dropping {
    pump: Pump,
    /// Keys with a lower score are spared: half of what most had in the stretch before.
    score_min: u64,
    scores: Vec<u64>,
    /// Bytes of values of the segment under way: evicted, and looked at.
    gone_bytes: u64,
    passed_bytes: u64,
    vain_since: Option<Instant>,
}

impl Dropping {
    pub fn new(node: &'static Node) -> Dropping {
        Dropping {
            pump: Pump::new(node, None),
            score_min: 0,
            scores: Vec::new(),
            gone_bytes: 0,
            passed_bytes: 0,
            vain_since: None,
        }
    }

    /// Finds from the stretch that has ended what is spared in the next.
    fn judge(&mut self) {
        let middle = self.scores.len() / 2;
        self.score_min = match self.scores.is_empty() {
            true => 0,
            false => *self.scores.select_nth_unstable(middle).1 / 2,
        };
        self.scores.clear();
    }
}

impl Sinker {
    /// Returns whether keys may leave for the sake of space on disk.
    pub(super) fn may_drop(&self) -> bool {
        let is_vain = self.dropping.vain_since.is_some_and(|since| elapsed(since) < VAIN_REST);
        // In a file system that is short an emptied segment is room for others, and none for values.
        let is_vain = is_vain || self.snapshot_keeps_segments() || !self.log.may_grow();
        !is_vain && self.may_clean() && self.drop_policy().is_some()
    }

    /// Returns the policy if it may act, as for the sake of memory, and while the log has room for what it
    /// does.
    fn drop_policy(&self) -> Option<EvictionPolicy> {
        let node = self.node;
        let is_kept = node.mail.tasks().has(Tasks::PAUSES.or(Tasks::LOADING))
            || node.config.import_mode()
            || node.leaves_memory_to_primary()
            || !node.log.has_room();
        node.config.eviction_policy().filter(|_| !is_kept)
    }

    /// Begins with the segment that was filled first, and continues until values from memory have room.
    /// Returns whether they have.
    pub(super) fn drop_for_room(&mut self) -> bool {
        if self.cleaning.is_some() || !self.begin_dropping() {
            return false;
        }
        while !self.log.has_room() && self.cleaning.is_some() && self.may_clean() {
            self.clean_stretch();
            self.settle_writes();
        }
        self.log.has_room()
    }

    /// Begins a stretch. `None`: nothing may be dropped any more, and all that lives is copied.
    pub(super) fn begin_drops(&mut self) -> Option<EvictionPolicy> {
        let policy = self.drop_policy()?;
        self.dropping.pump.listen(Events::chosen(&self.node.config));
        Some(policy)
    }

    /// Evicts the key that refers to a record. Returns whether it did.
    pub(super) fn drop_record(&mut self, place: Place, record: &Record<'_>, policy: EvictionPolicy) -> bool {
        let bytes = record.payload.len() as u64;
        self.dropping.passed_bytes += bytes;
        if record.form == frozen::FORM {
            return self.drop_bundle(place, record, policy);
        }
        if record.form == nodes::FORM {
            return false;
        }
        let keyspace = &self.node.keyspace;
        let (key, reference, now) = (keyspace.key(record.key), ColdRef::new(place.raw()), unix_now());
        let _working = holds::working(Work::Eviction);
        let mut held = Held::new(keyspace);
        held.acquire(Want::One(keyspace.partition_of(key.slot)));
        let Some(db) = held.database_of(db_of(record), &key, reference) else { return false };
        let Some(score) = held.eviction_score(db, &key, reference, policy, now) else { return false };
        let Dropping { pump, score_min, scores, gone_bytes, .. } = &mut self.dropping;
        scores.push(score);
        if score < *score_min || !held.evict_key(db, &key, now, pump) {
            return false;
        }
        *gone_bytes += bytes;
        self.node.tier_stats().values.evicted_keys.add(1);
        true
    }

    /// Evicts the keys of a bundle. Returns whether none is left.
    fn drop_bundle(&mut self, place: Place, record: &Record<'_>, policy: EvictionPolicy) -> bool {
        let _working = holds::working(Work::Eviction);
        let Dropping { pump, gone_bytes, .. } = &mut self.dropping;
        let (evicted, is_gone) = frozen::evict(&self.node.keyspace, place, record, policy, pump);
        if is_gone && evicted > 0 {
            *gone_bytes += record.payload.len() as u64;
        }
        self.node.tier_stats().values.evicted_keys.add(evicted);
        is_gone
    }

    /// Evicts the keys whose values lie where a segment could not be read, as it is through. Nothing is held.
    pub(super) fn drop_unread(&mut self, cleaning: &Cleaning) {
        if !cleaning.is_damaged() {
            return;
        }
        let segment = cleaning.segment();
        // Spared keys lie elsewhere as soon as their copies are written.
        self.log.seal(Stream::Survivors);
        self.settle_writes();
        if self.log.is_writing() {
            return;
        }
        let (live, mut hand, mut keys) = (self.log.live(), SlotHand::default(), 0);
        while hand.rounds == 0
            && live.units(segment) > 0
            && let Some(policy) = self.begin_drops()
        {
            keys += self.drop_unread_step(segment, policy, &mut hand);
            self.dropping.pump.flush();
        }
        if hand.rounds > 0 && live.units(segment) > 0 {
            self.log.note_stuck(cleaning);
        }
        if keys > 0 {
            let number = segment.0;
            log::warning(format!("swap: segment {number} could not be read, {keys} keys of it were evicted"));
        }
    }

    /// Evicts those of one hold of the hand's slot. Returns how many.
    fn drop_unread_step(
        &mut self,
        segment: SegmentNumber,
        policy: EvictionPolicy,
        hand: &mut SlotHand,
    ) -> u64 {
        let (keyspace, now) = (&self.node.keyspace, unix_now());
        let Dropping { pump, gone_bytes, passed_bytes, .. } = &mut self.dropping;
        let mut held = Held::new(keyspace);
        held.acquire(Want::One(keyspace.partition_of(hand.slot())));
        let _working = holds::working(Work::Eviction);
        let mut found: Vec<(Db, Box<[u8]>, ColdRef)> = Vec::new();
        hand.show_cold(&mut held, LOOKS_PER_HOLD, &mut |db, key, reference| {
            if Place::from_raw(reference.raw()).segment() == segment {
                found.push((db, key.into(), reference));
            }
        });
        let mut evicted = 0;
        for (db, name, reference) in found {
            let key = keyspace.key(&name);
            let bytes = reference.value_bytes() as u64;
            *passed_bytes += bytes;
            let may_leave = held.eviction_score(db, &key, reference, policy, now).is_some();
            if may_leave && held.evict_key(db, &key, now, pump) {
                *gone_bytes += bytes;
                evicted += 1;
            }
        }
        self.node.tier_stats().values.evicted_keys.add(evicted);
        evicted
    }

    /// Ends a stretch. Nothing is held.
    pub(super) fn end_drops(&mut self) {
        self.dropping.pump.flush();
        self.dropping.judge();
    }

    /// Looks whether it was worth it, as the segment is through.
    pub(super) fn judge_drops(&mut self) {
        let dropping = &mut self.dropping;
        let is_vain = dropping.gone_bytes < dropping.passed_bytes / GAIN_DIVISOR;
        dropping.vain_since = is_vain.then(instant);
        (dropping.gone_bytes, dropping.passed_bytes) = (0, 0);
    }
}

//! The thread that writes: values leave memory, segments are cleaned, files go.
//!
//! ```text
//!   memory above the limit's lower share:   gather (a group, under the locks of its slots, a slot at a time)
//!                                           write  (no lock)
//!                                           flip   (entries whose bytes are still those of the group, some under each lock)
//!   a group was written, little is free:    clean as much as wins its space again (`cleaner`)
//! ```
//! An entry is in memory until the disk has its bytes; no entry is "moving".
//!
//! Values leave that were not used for `threshold` at least. It falls when a stretch of slots shows too
//! little and rises when memory is below the limit.

use isotherm_keyspace::{
    ByNodes, Chilled, ColdRef, Held, Key, NodeHand, SinkLimits, SinkRoom, Sinkable, SlotHand, Survey, Want,
};
use isotherm_tier::{Full, Group, Log, PAYLOAD_BYTES_MAX, Place, Record, Stream, Written};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::cleaner::{Hurry, UnderWay};
use super::dropping::Dropping;
use super::freezing::Freezing;
use super::frozen;
use super::holds::{BYTES_PER_ELEMENT, BYTES_PER_HOLD, LOOKS_PER_HOLD, flips_per_hold};
use super::look::Look;
use super::nodes;
use super::records::{append, db_of};
use super::space::SpaceWatch;
use isotherm_config::FreezeRule;
use isotherm_node::Node;
use isotherm_node::room::shortage;
use isotherm_node::room::shortage::{SpaceRelief, SpaceShort};
use isotherm_node::tier::checkpoint::Ask;
use isotherm_node::tier::health::{Event, State};
use isotherm_node::tier::pace;
use isotherm_node::tier::state::Tier;
use isotherm_runtime::routines::{self, Routine};
use isotherm_runtime::time::unix_now;

/// Without large collections, slots that are passed for one look whether there are any.
const SLOTS_PER_NODE_LOOK: u32 = 16;
/// Slots that are gone through in one step of the routine.
const SLOTS_PER_STEP: u32 = 256;
/// Slots of one step while writers wait. They continue when the values that the step found are on disk, 2 ms
/// later.
const SLOTS_PER_STEP_BEHIND: u32 = 64;
/// Slots that are looked at before they are judged. If they have given less than a part in [`LITTLE_DIVISOR`]
/// of what could leave, more recent values go too.
const SLOTS_PER_JUDGEMENT: u32 = 1024;
const SLOTS_PER_JUDGEMENT_BEHIND: u32 = 64;
const LITTLE_DIVISOR: u64 = 8;
/// A threshold to begin with; it falls by halves.
const THRESHOLD_MAX_S: u32 = 3600;
/// Without work.
const REST: Duration = Duration::from_millis(100);
/// After two rounds that found nothing.
const REST_IDLE: Duration = Duration::from_secs(1);
/// Shortest and longest rest after rounds that found nothing, however much others ask.
const REST_IDLE_MIN: Duration = Duration::from_millis(20);
const REST_IDLE_MAX: Duration = Duration::from_secs(2);
/// Rest if nothing asks, as a multiple of the time that the last look took.
const REST_IDLE_FACTOR: u32 = 20;
/// Rest while nothing can leave before a snapshot has made progress.
const REST_SNAPSHOT: Duration = Duration::from_millis(5);
/// DEBUG SWAP-CHAOS
const REST_CHAOS: Duration = Duration::from_millis(1);
/// Without a disk that takes anything.
const REST_FAILED: Duration = Duration::from_secs(1);
/// Rest of that, however much others ask.
const REST_FAILED_MIN: Duration = Duration::from_millis(20);
/// Longest wait of writers without free segments, for a base or a snapshot that frees some; then the disk
/// counts as full.
pub(super) const SEGMENTS_WAIT_MS_MAX: u64 = 10_000;

pub struct Sinker {
    pub(super) node: &'static Node,
    pub(super) tier: Arc<Tier>,
    pub(super) log: Log,
    /// The segment that is being cleaned.
    pub(super) cleaning: Option<UnderWay>,
    /// Cleaning for values that have had no room lately.
    pub(super) hurry: Option<Hurry>,
    hand: SlotHand,
    /// Hand for parts of large collections. It makes a step with each step of the other hand.
    node_hand: NodeHand,
    /// Hand for keys that freeze: in the slot of the other hand, and ahead of it.
    freeze_hand: SlotHand,
    /// Keys of the slot in hand are on their way: its small values are not to leave alone.
    freezes_slot: bool,
    freezing: Freezing,
    /// The last step of the node hand has shown some nodes.
    has_nodes: bool,
    /// Nodes were met that can leave in a moment.
    has_awaited: bool,
    threshold_s: u32,
    room: SinkRoom,
    node_room: Vec<u8>,
    /// Since the last judgement.
    slots_seen: u32,
    shown_bytes: u64,
    taken_bytes: u64,
    /// The round in which something left last.
    last_round: u64,
    look: Look,
    /// Keys that leave with the segment that they lie in.
    pub(super) dropping: Dropping,
    pub(super) space: SpaceWatch,
}

impl Routine for Sinker {
    fn step(&mut self) -> bool {
        let is_short = self.is_short();
        if !is_short || self.tier.state() == State::Idle {
            self.begin_look();
        }
        self.look_at_space();
        self.sink_asked();
        if is_short && self.tier.may_write() {
            self.sink();
        } else if !is_short {
            self.threshold_s = (self.threshold_s + 1).min(THRESHOLD_MAX_S);
            // There is nothing to look for.
            self.tier.end_idle();
        }
        self.settle_writes();
        self.answer();
        // The live records are not known before the base that refers to them was loaded.
        if !self.tier.is_restoring.load(Relaxed) {
            self.clean_if_due();
            self.collect();
        }
        self.publish();
        true
    }

    #[cfg(debug_assertions)]
    fn check(&self) {
        self.log.check_invariants();
    }

    fn rest(&mut self) {
        isotherm_allocator::settle();
        match self.tier.state() {
            // Cleaning continues by steps, and ends it.
            State::Full if self.cleaning.is_some() && self.may_clean() => {
                std::thread::sleep(REST_FAILED_MIN);
                self.tier.await_wake(REST);
            }
            // A thread that is short of memory wakes it: records that died meanwhile may make room.
            State::Full | State::Degraded | State::Failed => {
                std::thread::sleep(REST_FAILED_MIN);
                self.tier.await_wake(REST_FAILED);
            }
            State::Idle if self.node.debug.swap_chaos.is_on() => std::thread::sleep(REST_CHAOS),
            State::Idle => {
                // To look without effect takes as long as there are keys: it is no more than a part of the
                // time.
                self.rest_idle(self.look.took().clamp(REST_IDLE_MIN, REST_IDLE_MAX));
                self.tier.await_wake((self.look.took() * REST_IDLE_FACTOR).max(REST_IDLE));
            }
            State::Works if self.tier.is_awaiting_segments.load(Relaxed) => {
                self.tier.await_wake(REST_SNAPSHOT)
            }
            State::Works if self.is_short() => {}
            State::Works | State::Off if self.has_asked_work() => {}
            State::Works | State::Off => self.tier.await_wake(REST),
        }
    }
}

impl Sinker {
    pub fn new(node: &'static Node, tier: Arc<Tier>, log: Log) -> Sinker {
        Sinker {
            node,
            tier,
            log,
            cleaning: None,
            hurry: None,
            hand: SlotHand::default(),
            node_hand: NodeHand::default(),
            freeze_hand: SlotHand::default(),
            freezes_slot: false,
            freezing: Freezing::default(),
            has_nodes: false,
            has_awaited: false,
            room: SinkRoom::default(),
            node_room: Vec::new(),
            threshold_s: THRESHOLD_MAX_S,
            slots_seen: 0,
            shown_bytes: 0,
            taken_bytes: 0,
            last_round: 0,
            look: Look::new(),
            dropping: Dropping::new(node),
            space: SpaceWatch::default(),
        }
    }

    fn begin_look(&mut self) {
        self.look.begin(self.node.pressing_used_bytes());
    }

    /// Rests for `rest`, or until memory has grown.
    fn rest_idle(&self, rest: Duration) {
        let began = Instant::now();
        while began.elapsed() < rest && self.tier.state() == State::Idle {
            std::thread::sleep(REST_SNAPSHOT);
        }
    }

    fn is_short(&self) -> bool {
        if self.tier.is_off() {
            return false;
        }
        if self.node.debug.swap_chaos.is_on() {
            return true;
        }
        let limit = self.node.config.memory_target_bytes();
        let lower_percent = self.node.config.swap_lower_percent();
        limit > 0 && self.node.pressing_memory_bytes() > share(limit, lower_percent)
    }

    /// Writers and readers see where memory stands.
    fn publish(&mut self) {
        self.bound_groups();
        let (node, tier) = (self.node, &self.tier);
        let (limit, used) = (node.config.memory_target_bytes(), node.counted_memory_bytes());
        let upper = node.config.swap_upper_percent();
        tier.homes.judge(limit == 0 || upper == 0 || used < share(limit, upper));
        self.relieve();
        tier.counters.file_bytes.store(self.log.file_bytes(), Relaxed);
        tier.counters.dead_bytes.store(self.log.dead_bytes(), Relaxed);
        tier.counters.table_bytes.store(self.log.table_bytes(), Relaxed);
        tier.counters.free_segments.store(u64::from(self.log.free_segments()), Relaxed);
        tier.counters.segments.store(u64::from(self.log.segments_max()), Relaxed);
        tier.counters.usable_bytes.store(self.log.usable_bytes(), Relaxed);
        if !tier.checkpoints.has_asks() {
            tier.counters.waiting_segments.store(u64::from(self.log.waiting_for_base()), Relaxed);
        }
    }

    /// Returns whether segments become free by themselves, soon: as the next base of the append-only file is
    /// in force, or as a snapshot is through that was cut before they were empty.
    fn awaits_segments(&self) -> bool {
        let by_base = self.log.waiting_for_base() > 0
            && self.tier.can_have_base()
            && !self.node.aof.rewrites().last_failed;
        let are_kept = by_base || self.snapshot_keeps_segments();
        let kept_ms = self.tier.note_segments_kept(are_kept);
        let awaits = are_kept && kept_ms < SEGMENTS_WAIT_MS_MAX;
        self.tier.is_awaiting_segments.store(awaits, Relaxed);
        awaits
    }

    pub(super) fn snapshot_keeps_segments(&self) -> bool {
        self.log.waiting_for_snapshot() > 0 && self.node.keyspace.is_snapshot_active()
    }

    /// Answers what the writers of bases have asked, and notes what they have said. All that entries refer to
    /// is on disk.
    fn answer(&mut self) {
        let snapshots = self.snapshots();
        let Sinker { tier, log, .. } = self;
        for ask in tier.checkpoints.take() {
            match ask {
                Ask::Name(ticket) => {
                    let can_refer = log.doubtful_segments() == 0 && !tier.files.is_doubtful();
                    let answer = can_refer.then(|| tier.files.checkpoint(&log.name(snapshots)));
                    tier.checkpoints.answer(ticket, answer);
                }
                Ask::InForce { refers: true } => log.named(true),
                Ask::InForce { refers: false } => {
                    log.unnamed();
                    tier.files.forget_owner();
                }
                Ask::GivenUp => log.named(false),
                Ask::Doubt(segment) => log.doubt(segment),
            }
        }
    }

    /// Lets writers continue if enough has left, or nothing more can.
    fn relieve(&self) {
        let (mail, limit) = (&self.node.mail, self.node.config.memory_target_bytes());
        if !mail.is_sinker_behind() {
            return;
        }
        let is_enough = limit == 0 || self.node.pressing_memory_bytes() <= pace::goes_on_below(limit);
        if is_enough || self.tier.state() != State::Works {
            mail.set_sinker_behind(false);
            self.tier.note_slowed(false);
        }
    }

    fn has_asked_work(&self) -> bool {
        let leaves = !self.tier.is_off() && self.tier.to_leave.count() > 0;
        self.tier.may_write() && (leaves || self.wants_cleaning())
    }

    // ---- values leave memory ----

    /// Gathers from some slots, as far as there is room for their values.
    fn sink(&mut self) {
        for number in 0..SLOTS_PER_STEP {
            // Writers may have begun to wait meanwhile.
            let is_behind = self.node.mail.is_sinker_behind();
            if is_behind && number >= SLOTS_PER_STEP_BEHIND {
                break;
            }
            let slots_judged = if is_behind { SLOTS_PER_JUDGEMENT_BEHIND } else { SLOTS_PER_JUDGEMENT };
            let slot = self.hand.slot();
            let gathered = self.gather_nodes(number).and_then(|()| self.gather());
            self.publish_groups();
            if let Err(full) = gathered {
                self.log.seal(Stream::Fresh);
                if full == Full::Segments {
                    self.find_segment();
                }
                return;
            }
            if self.hand.slot() != slot {
                self.slots_seen += 1;
            }
            if self.slots_seen >= slots_judged {
                self.judge();
            }
            // A group that is ready is written first: writers may wait for it.
            if self.log.is_writing() {
                break;
            }
            if self.hand.rounds > self.last_round + 1 && self.threshold_s == 0 {
                self.log.seal(Stream::Fresh);
                self.last_round = self.hand.rounds;
                // Values that a snapshot has yet to see may leave after it, and values that a command waits
                // for when that ran.
                let has_more =
                    self.node.keyspace.is_snapshot_active() || std::mem::take(&mut self.has_awaited);
                match has_more {
                    true => routines::pause(REST_SNAPSHOT),
                    // Keys go with their values from the next round on.
                    false if self.wants_to_freeze() => {}
                    false => {
                        self.tier.set_idle(self.look.end(self.node.pressing_used_bytes()));
                    }
                }
                return;
            }
        }
        self.tier.end_idle();
    }

    /// Looks for a segment for what leaves memory, as none is left.
    fn find_segment(&mut self) {
        let seen = SpaceShort {
            has_cleaned: self.hurry_cleaning(),
            awaits_others: self.awaits_segments(),
            may_drop: self.may_drop(),
        };
        match shortage::for_space(seen) {
            SpaceRelief::UnderWay => {}
            SpaceRelief::DropSegment if self.drop_for_room() => {}
            SpaceRelief::DropSegment | SpaceRelief::Full => self.tier.note(Event::NoSegment),
        }
    }

    /// STORETOSSDB: values that were named leave memory, however recent they are.
    fn sink_asked(&mut self) {
        if self.tier.is_off() || !self.tier.may_write() {
            return;
        }
        let asked = self.tier.to_leave.take(usize::MAX);
        if asked.is_empty() {
            return;
        }
        let Sinker { node, log, room, .. } = self;
        let limits = SinkLimits {
            value_bytes_min: node.config.swap_min_value_bytes(),
            value_bytes_max: PAYLOAD_BYTES_MAX,
            by_nodes: by_nodes(node),
        };
        for (db, name) in asked {
            let key = node.keyspace.key(&name);
            let mut held = Held::new(&node.keyspace);
            held.acquire(Want::One(node.keyspace.partition_of(key.slot)));
            // Without room it stays: the hand comes by.
            if let Some(value) = Sinkable::of(&mut held, db, &key, limits, unix_now()) {
                _ = append(log, &value, room);
            }
        }
        self.log.seal(Stream::Fresh);
    }

    /// Returns whether keys freeze now because nothing else can leave.
    fn wants_to_freeze(&mut self) -> bool {
        let is_auto = self.node.config.swap_freeze_rule() == FreezeRule::Auto;
        is_auto && !self.is_in_haste() && self.freezing.note_want()
    }

    fn judge(&mut self) {
        let (limit, used) = (self.node.config.memory_target_bytes(), self.node.counted_memory_bytes());
        let cold_keys = Survey::new(&mut Held::new(&self.node.keyspace)).cold().keys;
        self.freezing.judge(cold_keys, used, limit);
        if self.taken_bytes < self.shown_bytes / LITTLE_DIVISOR || self.shown_bytes == 0 {
            self.threshold_s /= 2;
        }
        (self.slots_seen, self.shown_bytes, self.taken_bytes) = (0, 0, 0);
    }

    /// Gathers values in one hold of the hand's slot.
    fn gather(&mut self) -> Result<(), Full> {
        if self.node.debug.swap_chaos.is_on() {
            self.threshold_s = 0;
        }
        if self.freezing.is_on(self.node.config.swap_freeze_rule())
            && self.freeze_hand.slot() == self.hand.slot()
        {
            return self.gather_frozen();
        }
        let freezes_slot = self.freezes_slot;
        let freezes = frozen::limits(0, self.is_in_haste());
        let slot = self.hand.slot();
        let Sinker { node, log, hand, threshold_s, room, shown_bytes, .. } = self;
        let limits = SinkLimits {
            value_bytes_min: node.config.swap_min_value_bytes(),
            value_bytes_max: PAYLOAD_BYTES_MAX,
            by_nodes: by_nodes(node),
        };
        let mut held = Held::new(&node.keyspace);
        held.acquire(Want::One(node.keyspace.partition_of(hand.slot())));
        let (mut result, mut taken, mut worked) = (Ok(()), 0, 0);
        hand.show_sinkable(&mut held, limits, LOOKS_PER_HOLD, unix_now(), &mut |value: Sinkable<'_>| {
            let bytes = value.bytes as u64;
            if freezes_slot && value.may_freeze(freezes) {
                return;
            }
            *shown_bytes += bytes;
            if value.idle_seconds < *threshold_s || result.is_err() || worked >= BYTES_PER_HOLD {
                return;
            }
            worked += bytes + value.gathered_elements() * BYTES_PER_ELEMENT;
            match append(log, &value, room) {
                Ok(_) => taken += bytes,
                Err(full) => result = Err(full),
            }
        });
        if self.hand.slot() != slot {
            (self.freeze_hand, self.freezes_slot) = (SlotHand::at(self.hand.slot()), false);
        }
        self.note_taken(taken);
        result
    }

    /// Gathers keys that leave with their values, in one hold of the hand's slot.
    fn gather_frozen(&mut self) -> Result<(), Full> {
        let limits = frozen::limits(self.threshold_s, self.is_in_haste());
        let Sinker { node, log, freeze_hand, .. } = self;
        let (gathered, result) = frozen::gather((&node.keyspace, log), freeze_hand, limits);
        self.freezes_slot |= gathered.keys > 0;
        self.shown_bytes += gathered.bytes;
        self.note_taken(gathered.bytes);
        result
    }

    /// A step over parts of large collections: in each slot while there are some, else in some slots.
    fn gather_nodes(&mut self, number: u32) -> Result<(), Full> {
        if !self.has_nodes && !number.is_multiple_of(SLOTS_PER_NODE_LOOK) {
            return Ok(());
        }
        let Sinker { node, log, node_hand, threshold_s, node_room, .. } = self;
        let limits = nodes::Limits {
            by_nodes: by_nodes(node),
            idle_seconds_min: *threshold_s,
            looks_max: LOOKS_PER_HOLD,
            bytes_max: BYTES_PER_HOLD,
        };
        let (gathered, result) = nodes::gather((&node.keyspace, log), node_hand, limits, node_room);
        self.has_nodes = gathered.shown_bytes > 0;
        self.has_awaited |= gathered.has_awaited;
        self.tier.counters.clean_nodes.fetch_add(gathered.clean, Relaxed);
        self.shown_bytes += gathered.shown_bytes;
        self.note_taken(gathered.taken_bytes);
        result
    }

    fn note_taken(&mut self, bytes: u64) {
        if bytes > 0 {
            self.begin_look();
            self.taken_bytes += bytes;
            self.last_round = self.hand.rounds;
        }
    }

    /// Writes what is ready, and turns its entries over.
    pub(super) fn settle_writes(&mut self) {
        if self.is_short() {
            self.log.seal(Stream::Fresh);
        }
        while self.tier.may_write()
            && let Some(write) = self.log.next_write()
        {
            let (ticket, bytes) = (write.ticket, write.bytes.len() as u64);
            let written = self.tier.call_disk(|files| files.write(write.segment, write.offset, write.bytes));
            self.tier.counters.written_bytes.fetch_add(bytes, Relaxed);
            self.note_write(&written);
            if let Written::Done(group) = self.log.written(ticket, written.is_ok()) {
                self.flip(&group);
            }
            self.publish_groups();
        }
    }

    fn publish_groups(&self) {
        self.tier.counters.group_bytes.store(self.log.group_bytes(), Relaxed);
    }

    /// Entries refer to what is on disk now, if they are still as they were.
    fn flip(&mut self, group: &Group) {
        let keyspace = &self.node.keyspace;
        let records: Vec<_> = group.records().collect();
        self.tier.homes.note_left(&records);
        let mut rest = &records[..];
        while let Some(count) = flips_per_hold(rest.iter().map(|(_, record, _)| record.payload.len())) {
            let some = rest.split_off(..count).expect("there are so many");
            let mut held = Held::new(keyspace);
            for (place, record, before) in some {
                if record.form == frozen::FORM {
                    held.release();
                    self.flip_bundle(record, *before, *place);
                    continue;
                }
                let partition = keyspace.partition_of(record.slot);
                if !held.covers(Want::One(partition)) {
                    held.release();
                    held.acquire(Want::One(partition));
                }
                if record.form == nodes::FORM {
                    self.flip_node(&mut held, record, *before, *place);
                    continue;
                }
                let key = keyspace.key(record.key);
                let to = ColdRef::new(place.raw());
                match before {
                    Some(before) => {
                        let before = ColdRef::new(before.raw());
                        let db = held.database_of(db_of(record), &key, before);
                        held.move_cold(db.unwrap_or(db_of(record)), &key, before, to);
                    }
                    // A look at many elements stands alone.
                    None if self.chill(&mut held, record, &key, to) != Chilled::Small => held.release(),
                    None => {}
                }
            }
            drop(held);
            // Writers continue with the first of a group.
            self.relieve();
        }
    }

    fn is_in_haste(&self) -> bool {
        self.node.debug.swap_chaos.is_on()
    }

    fn flip_bundle(&self, record: &Record<'_>, before: Option<Place>, to: Place) {
        let keys_min = frozen::keys_min(self.is_in_haste());
        let keys = frozen::flip(&self.node.keyspace, record, before, to, keys_min);
        if keys > 0 {
            self.tier.counters.frozen_keys.fetch_add(keys as u64, Relaxed);
            self.tier.counters.sunk_values.fetch_add(keys as u64, Relaxed);
            self.tier.counters.sunk_bytes.fetch_add(record.payload.len() as u64, Relaxed);
        }
    }

    fn flip_node(&self, held: &mut Held<'_>, record: &Record<'_>, before: Option<Place>, to: Place) {
        if nodes::flip(held, record, before, to) {
            self.tier.counters.sunk_values.fetch_add(1, Relaxed);
            self.tier.counters.sunk_bytes.fetch_add(record.payload.len() as u64, Relaxed);
        }
    }

    fn chill(&self, held: &mut Held<'_>, record: &Record<'_>, key: &Key<'_>, to: ColdRef) -> Chilled {
        let chilled = held.chill(db_of(record), key, record.payload, record.form, to, unix_now());
        if chilled != Chilled::No {
            self.tier.counters.sunk_values.fetch_add(1, Relaxed);
            self.tier.counters.sunk_bytes.fetch_add(record.payload.len() as u64, Relaxed);
        }
        chilled
    }
}

/// Returns which collections leave by nodes.
fn by_nodes(node: &Node) -> ByNodes {
    if node.debug.swap_chaos_nodes.is_on() { ByNodes::Some } else { ByNodes::Large }
}

pub(super) fn share(limit: u64, percent: u64) -> u64 {
    (u128::from(limit) * u128::from(percent) / 100) as u64
}

//! The thread that writes, where it cleans: what lives in a segment is copied, then the segment is free.
//!
//! ```text
//!   due (as much as wins the space of what was just written)   read a stretch, append what lives     again and again
//!   the segment is through                                     write, flip, free
//! ```
//! Stretches of one segment come one after the other between groups of values that leave memory, so that
//! these, and threads that wait for them, hardly wait for cleaning. If a segment is lacking all the same,
//! cleaning continues until one is free. A segment that is emptied while a snapshot is under way is kept
//! until that has ended, as it may have places there that no entry has any more.

use isotherm_keyspace::{ColdRef, Held, Want};
use isotherm_tier::{Cleaning, Full, Place, Record, SEGMENT_BYTES, SegmentNumber, Snapshots, Stream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::frozen;
use super::nodes;
use super::records::db_of;
use super::sinker::{SEGMENTS_WAIT_MS_MAX, Sinker};
use super::space::Space;
use isotherm_node::tier::health::{Event, State};
use isotherm_node::tier::reading::READS_MAX;
use isotherm_runtime::log;
use isotherm_runtime::time::{elapsed, instant};

/// Segments that are kept free ahead of the writers: with fewer of them writers would wait, with more of them
/// cleaning would copy more.
const SEGMENTS_AHEAD: u32 = 1;
/// With `swap-checkpoint` the segments ahead are one part in `CHECKPOINT_AHEAD_DIVISOR` of the log: a cleaned
/// segment is free only when the next base is in force, and until then others have to do.
const CHECKPOINT_AHEAD_DIVISOR: u32 = 8;
/// Bytes that have to be dead in segments that can be cleaned, unless the log is full.
const USEFUL_BYTES: u64 = SEGMENT_BYTES / 2;
/// Part of what cleaning wins that does not count as dead: keys and padding.
const UNSEEN_DIVISOR: u64 = 8;
/// Stretches that are cleaned in one step of the thread.
const STRETCHES_PER_STEP: u32 = 16;
/// SWAP CLEAN, and cleaning that gives space back, leave one part in `DEAD_LEFT_DIVISOR` dead.
const DEAD_LEFT_DIVISOR: u64 = 20;
/// A pause between two calls for room that makes the second one the beginning of another shortage.
const HURRY_GAP_MAX: Duration = Duration::from_secs(1);

/// A segment that is being cleaned.
pub struct UnderWay {
    cleaning: Cleaning,
    /// The stretch that was read.
    bytes: Vec<u8>,
    /// The segment is cleaned to its end, due or not: it was asked for by name, or a sync of it failed.
    is_wanted: bool,
    /// Keys that the policy does not spare are evicted instead of copied (`dropping`).
    drops: bool,
    /// Reads of the current stretch that have failed.
    failed_reads: u32,
}

/// Cleaning while values from memory have no room.
#[derive(Clone, Copy)]
pub(super) struct Hurry {
    begun: Instant,
    last: Instant,
}

impl Sinker {
    pub(super) fn clean_if_due(&mut self) {
        self.end_if_dead();
        for _ in 0..STRETCHES_PER_STEP {
            if !self.may_clean() || !self.begins_or_goes_on() {
                return;
            }
            self.clean_stretch();
        }
    }

    /// Ends the cleaning of a segment in which nothing lives any more.
    fn end_if_dead(&mut self) {
        let live = self.log.live();
        if let Some(it) = self.cleaning.take_if(|it| live.units(it.cleaning.segment()) == 0) {
            self.end_cleaning(it.cleaning);
        }
    }

    /// Values from memory find no room: a segment is cleaned to its end, at once. Returns whether there is
    /// room now, or will be when more are cleaned, a segment each time this is called.
    pub(super) fn hurry_cleaning(&mut self) -> bool {
        if self.cleaning.as_ref().is_some_and(|it| it.drops) && !self.log.may_grow() {
            return false;
        }
        let is_going_on = |hurry: &Hurry| elapsed(hurry.last) < HURRY_GAP_MAX;
        let begun = self.hurry.filter(is_going_on).map_or_else(instant, |hurry| hurry.begun);
        let has_room = self.clean_segment(begun);
        self.hurry = (!self.log.has_room()).then(|| Hurry { begun, last: instant() });
        has_room
    }

    fn clean_segment(&mut self, begun: Instant) -> bool {
        self.settle_writes();
        while self.may_clean() && (self.cleaning.is_some() || self.begin_if_useful(true)) {
            let is_through = self.clean_stretch();
            // Else copies of 16 MB wait for the disk: memory is short.
            self.settle_writes();
            if self.cleaning.is_none() {
                return self.log.has_room() || is_through && self.has_more_to_clean(begun);
            }
        }
        self.log.has_room()
    }

    /// Returns whether to continue although the segment that was cleaned has made no room: no longer than
    /// writers wait for segments (`SEGMENTS_WAIT_MS_MAX`).
    fn has_more_to_clean(&mut self, begun: Instant) -> bool {
        let most = Duration::from_millis(SEGMENTS_WAIT_MS_MAX);
        elapsed(begun) < most && self.may_clean() && self.is_useful(true)
    }

    pub(super) fn may_clean(&self) -> bool {
        let tier = &self.tier;
        tier.may_write() && !tier.suspects_reads() && !tier.is_restoring.load(Relaxed)
    }

    fn ahead(&self) -> u32 {
        match self.node.config.swap_checkpoints() {
            true => SEGMENTS_AHEAD.max(self.log.segments_max() / CHECKPOINT_AHEAD_DIVISOR),
            false => SEGMENTS_AHEAD,
        }
    }

    fn begins_or_goes_on(&mut self) -> bool {
        let cleaning = self.cleaning.as_ref().map(|it| &it.cleaning);
        let is_due = self.log.is_cleaning_due(self.ahead(), cleaning);
        match &self.cleaning {
            // Dropped keys make no room for values while these may not begin a segment.
            Some(it) if it.drops => self.log.may_grow() && self.log.is_dropping_due(&it.cleaning),
            Some(it) => {
                let goes_on =
                    is_due || it.is_wanted || self.wants_cleaning() || self.log.can_clean_doubtful();
                // The dead bytes of this one no longer count as bytes that can be cleaned.
                goes_on || self.space.space != Space::Ample
            }
            None => {
                self.begin_wanted()
                    || ((is_due || self.gives_back())
                        && self.begin_if_useful(self.tier.state() == State::Full))
            }
        }
    }

    /// Returns whether SWAP CLEAN continues.
    pub(super) fn wants_cleaning(&self) -> bool {
        let is_wanted = self.cleaning.as_ref().is_some_and(|it| it.is_wanted);
        is_wanted || self.tier.cleanings_wanted.load(Relaxed) > 0
    }

    fn begin_if_useful(&mut self, is_full: bool) -> bool {
        self.is_useful(is_full) && self.begin(false)
    }

    /// Returns whether enough is dead: to copy a segment that lives wins nothing. A log that is full needs no
    /// more than it lacks for the next segment: in a small one that, and what is dead in all others, can be
    /// less than is useful otherwise.
    fn is_useful(&self, is_full: bool) -> bool {
        let useful_bytes = match self.log.lacking_bytes() {
            lacking @ 1.. if is_full => (lacking - lacking / UNSEEN_DIVISOR).min(USEFUL_BYTES),
            _ => USEFUL_BYTES,
        };
        self.log.cleanable_bytes() >= useful_bytes
    }

    /// Begins to clean a segment that a sync failed for, or one for SWAP CLEAN: as long as there is much to
    /// win, and no longer than one round. Returns whether it has begun one.
    fn begin_wanted(&mut self) -> bool {
        if self.log.free_segments() > 0 && self.log.can_clean_doubtful() {
            return self.begin(true);
        }
        if self.tier.cleanings_wanted.load(Relaxed) == 0 {
            return false;
        }
        let has_much = self.log.dead_bytes() > self.log.file_bytes() / DEAD_LEFT_DIVISOR;
        if has_much && self.begin(true) {
            return true;
        }
        // Nothing has anything to win.
        self.tier.cleanings_wanted.store(0, Relaxed);
        false
    }

    /// Others need what is dead here.
    fn gives_back(&self) -> bool {
        let has_much = || self.log.cleanable_bytes() > self.log.file_bytes() / DEAD_LEFT_DIVISOR;
        self.space.space != Space::Ample && has_much()
    }

    fn begin(&mut self, is_wanted: bool) -> bool {
        let begun = self.log.begin_cleaning();
        let under_way =
            |cleaning| UnderWay { cleaning, bytes: Vec::new(), is_wanted, drops: false, failed_reads: 0 };
        self.cleaning = begun.map(under_way);
        self.cleaning.is_some()
    }

    /// The segment that was filled first gives way to what comes.
    pub(super) fn begin_dropping(&mut self) -> bool {
        let begun = self.log.begin_dropping();
        let under_way = |cleaning| UnderWay {
            cleaning,
            bytes: Vec::new(),
            is_wanted: false,
            drops: true,
            failed_reads: 0,
        };
        self.cleaning = begun.map(under_way);
        self.cleaning.is_some()
    }

    /// Cleans the next stretch. Returns whether the segment is through.
    pub(super) fn clean_stretch(&mut self) -> bool {
        let Some(mut it) = self.cleaning.take() else { return false };
        let Some(stretch) = it.cleaning.next_read() else {
            self.tier.counters.cleaned_segments.fetch_add(1, Relaxed);
            if it.drops {
                self.drop_unread(&it.cleaning);
                self.judge_drops();
            }
            if it.is_wanted {
                let wanted = &self.tier.cleanings_wanted;
                wanted.store(wanted.load(Relaxed).saturating_sub(1), Relaxed);
            }
            self.end_cleaning(it.cleaning);
            return true;
        };
        it.bytes.resize(stretch.bytes, 0);
        let read =
            self.tier.call_disk(|files| files.read_stretch(stretch.segment, stretch.offset, &mut it.bytes));
        match read {
            Ok(()) => {
                it.failed_reads = 0;
                let drops = it.drops.then(|| self.begin_drops()).flatten();
                for (place, record) in it.cleaning.records(&it.bytes) {
                    if drops.is_some_and(|policy| self.drop_record(place, &record, policy)) {
                        continue;
                    }
                    if self.lives(place, &record) && !self.copy(place, &record) {
                        self.end_cleaning(it.cleaning);
                        return false;
                    }
                }
                if it.drops {
                    self.end_drops();
                }
            }
            Err(error) => {
                self.tier.note_read_error();
                log::warning(format!("A part of swap-dir cannot be read: {error}"));
                it.failed_reads += 1;
                // The disk may be away for a moment, and what is skipped may be lost (`drop_unread`).
                if it.failed_reads == READS_MAX {
                    it.failed_reads = 0;
                    it.cleaning.skip();
                }
            }
        }
        self.cleaning = Some(it);
        false
    }

    /// Ends a cleaning. Records that could not be copied live where they are: the segment is not free before
    /// they are gone.
    fn end_cleaning(&mut self, cleaning: Cleaning) {
        self.log.seal(Stream::Survivors);
        self.settle_writes();
        self.log.end_cleaning(cleaning);
        // Emptied, it is none that could be cleaned.
        self.collect();
    }

    fn lives(&self, place: Place, record: &Record<'_>) -> bool {
        let (keyspace, reference) = (&self.node.keyspace, ColdRef::new(place.raw()));
        if record.form == frozen::FORM {
            return frozen::lives(keyspace, place, record);
        }
        if record.form == nodes::FORM {
            return nodes::lives(keyspace, place, record);
        }
        let key = keyspace.key(record.key);
        let mut held = Held::new(keyspace);
        held.acquire(Want::One(keyspace.partition_of(key.slot)));
        held.database_of(db_of(record), &key, reference).is_some()
    }

    fn copy(&mut self, place: Place, record: &Record<'_>) -> bool {
        loop {
            match self.log.append(Stream::Survivors, record, Some(place)) {
                Ok(_) => {
                    let bytes = record.payload.len() as u64;
                    self.tier.counters.survivor_bytes.fetch_add(bytes, Relaxed);
                    return true;
                }
                Err(Full::Writes) if self.tier.may_write() => self.settle_writes(),
                Err(_) => return false,
            }
        }
    }

    /// Files of segments in which nothing lives go, unless a snapshot may need them.
    pub(super) fn collect(&mut self) {
        for segment in self.unneeded() {
            if let Err(error) = self.tier.call_disk(|files| files.remove(segment)) {
                log::warning(format!("Can't remove a file of swap-dir: {error}"));
            }
            self.look_again();
        }
        if self.log.has_room() {
            self.tier.note_segments_kept(false);
            self.tier.is_awaiting_segments.store(false, Relaxed);
            if self.tier.state() == State::Full {
                self.tier.note(Event::SegmentFreed);
            }
        }
    }

    /// Returns the state of the snapshots. There is one at a time. One that is not cut yet counts as the last
    /// one: what waits for that one waits a little longer then.
    pub(super) fn snapshots(&self) -> Snapshots {
        let keyspace = &self.node.keyspace;
        let begun = keyspace.snapshots_begun();
        Snapshots { begun, oldest: keyspace.is_snapshot_active().then_some(begun) }
    }

    fn unneeded(&mut self) -> Vec<SegmentNumber> {
        // No snapshot is cut while a partition is held: one that begins later refers to nothing that is found
        // empty here.
        let mut held = Held::new(&self.node.keyspace);
        held.acquire(Want::One(0));
        let snapshots = self.snapshots();
        self.log.collect(snapshots)
    }
}

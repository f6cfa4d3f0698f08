//! The segments: which are free, which are being filled, which are full, and which is worth cleaning.
//!
//! ```text
//!   Free -> Open -> Full -> Cleaning -> Free
//!                     |          \ (damaged) -> Full, never again a victim
//!                     '- nothing in it lives -> Free
//!   and instead of Free: Waiting, as long as a base of the AOF names it, or a snapshot may read from it
//! ```
//! A base that is being written names segments beside the one in force. What became of it may stay unknown (its list was written, and
//! the disk did not say so): then both go on counting until a later one is in force.
//!
//! Which one is cleaned, and when: `policy`.

use crate::config::LogConfig;
use crate::live::{self, Live};
use crate::place::{ADDRESS_UNIT_BYTES, Place, SEGMENT_BYTES, SegmentNumber};
use std::collections::BTreeSet;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentState {
    Free,
    /// Groups are being written to it.
    Open,
    Full,
    Cleaning,
    /// Nothing in it lives, but a base of the AOF refers to it, or a snapshot may.
    Waiting,
}

/// Snapshots of the data: they may refer to values that no entry refers to any more. Counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Snapshots {
    /// So many have begun.
    pub begun: u64,
    /// The oldest one that is under way.
    pub oldest: Option<u64>,
}

/// How often a value was copied by cleaning: the more often, the longer it will live. Each lies with its like.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Generation {
    /// It comes from memory.
    Fresh,
    Once,
    Often,
}

impl Generation {
    pub const ALL: [Generation; 3] = [Generation::Fresh, Generation::Once, Generation::Often];
    pub const SURVIVORS: [Generation; 2] = [Generation::Once, Generation::Often];

    pub fn next(self) -> Generation {
        if self == Generation::Fresh { Generation::Once } else { Generation::Often }
    }
}

/// Bytes of a segment that were never written, as the disk failed: from, to.
pub(crate) type Hole = (u64, u64);

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub state: SegmentState,
    /// What it is filled with.
    pub generation: Generation,
    /// Its length so far.
    pub bytes: u64,
    /// Of all records that were appended, living or not.
    pub units: u32,
    /// How many segments were full before it.
    pub sequence: u64,
    /// One for each group that failed: at most as many as a segment has blocks.
    holes: Vec<Hole>,
    pub is_damaged: bool,
    /// So many snapshots had begun when it was found empty: only these may refer to it.
    snapshots_before: u64,
    /// The base that is in force refers to it.
    is_named: bool,
    /// The base that is being written does.
    is_named_next: bool,
    /// A sync of it failed: what the disk has of it is not known, and no base may name it.
    is_doubtful: bool,
}

const FREE: Segment = Segment {
    state: SegmentState::Free,
    generation: Generation::Fresh,
    bytes: 0,
    units: 0,
    sequence: 0,
    holes: Vec::new(),
    is_damaged: false,
    snapshots_before: 0,
    is_named: false,
    is_named_next: false,
    is_doubtful: false,
};

impl Segment {
    /// One that waits: a snapshot may refer to it that was cut before it was found empty.
    fn is_read_by(&self, snapshots: Snapshots) -> bool {
        snapshots.oldest.is_some_and(|oldest| oldest <= self.snapshots_before)
    }
}

/// A segment as a base refers to it: what lies beyond the length is none of its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    pub segment: SegmentNumber,
    pub bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Segments {
    pub segment_bytes: u64,
    pub list: Vec<Segment>,
    free: BTreeSet<u32>,
    /// Those that are being filled: at most one of each generation.
    open: Vec<SegmentNumber>,
    pub sealed: u64,
}

impl Segments {
    pub fn new(config: LogConfig) -> Segments {
        let (count, segment_bytes) = (config.segments_max(), config.segment_bytes());
        Segments {
            segment_bytes,
            list: vec![FREE; count as usize],
            free: (0..count).collect(),
            open: Vec::new(),
            sealed: 0,
        }
    }

    pub fn free_count(&self) -> u32 {
        self.free.len() as u32
    }

    pub fn count(&self, state: SegmentState) -> u32 {
        self.list.iter().filter(|segment| segment.state == state).count() as u32
    }

    /// What this takes, about: a number that is free has some 8 B in its tree.
    pub fn table_bytes(&self) -> u64 {
        (self.list.capacity() * size_of::<Segment>() + self.free.len() * 8) as u64
    }

    /// The bytes of files: of all segments that are not free.
    pub fn file_bytes(&self) -> u64 {
        self.list.iter().map(|segment| segment.bytes).sum()
    }

    /// What cleaning could win: heads and payloads that came to segments and live no longer.
    pub fn dead_bytes(&self, live: &Live) -> u64 {
        let dead = |(number, segment): (usize, &Segment)| {
            u64::from(segment.units.saturating_sub(live.units(SegmentNumber(number as u32))))
        };
        self.list.iter().enumerate().map(dead).sum::<u64>() * ADDRESS_UNIT_BYTES
    }

    pub fn bytes(&self, number: SegmentNumber) -> u64 {
        self.list[number.0 as usize].bytes
    }

    pub fn state(&self, number: SegmentNumber) -> SegmentState {
        self.list[number.0 as usize].state
    }

    pub fn holes(&self, number: SegmentNumber) -> &[Hole] {
        &self.list[number.0 as usize].holes
    }

    pub fn add_hole(&mut self, number: SegmentNumber, hole: Hole) {
        self.list[number.0 as usize].holes.push(hole);
    }

    /// A segment that the base of the AOF refers to, after a start.
    pub fn restore(&mut self, named: Named) {
        assert!(self.free.remove(&named.segment.0), "{named:?} twice, or beyond the log");
        let (state, sequence) = (SegmentState::Full, self.sealed);
        self.sealed += 1;
        let segment = &mut self.list[named.segment.0 as usize];
        // How much came to it is not known any more: as much as it can hold.
        let units = (named.bytes / ADDRESS_UNIT_BYTES) as u32;
        let generation = Generation::Once;
        *segment = Segment { state, generation, bytes: named.bytes, units, sequence, is_named: true, ..FREE };
    }

    /// The lowest number first, so that a log that shrank has few files.
    pub fn open(&mut self, generation: Generation) -> Option<SegmentNumber> {
        let number = self.free.pop_first()?;
        self.list[number as usize] = Segment { state: SegmentState::Open, generation, ..FREE };
        self.open.push(SegmentNumber(number));
        Some(SegmentNumber(number))
    }

    pub fn generation(&self, number: SegmentNumber) -> Generation {
        self.list[number.0 as usize].generation
    }

    /// Bytes that are left in those that are being filled with one of these.
    pub fn open_room(&self, generations: &[Generation]) -> u64 {
        let open = self.open.iter().map(|number| &self.list[number.0 as usize]);
        let of_them = open.filter(|segment| generations.contains(&segment.generation));
        of_them.map(|segment| self.segment_bytes - segment.bytes).sum()
    }

    pub fn grow(&mut self, number: SegmentNumber, bytes: usize) {
        let segment = &mut self.list[number.0 as usize];
        segment.bytes += bytes as u64;
        assert!(segment.state == SegmentState::Open && segment.bytes <= self.segment_bytes);
    }

    pub fn note_appended(&mut self, place: Place) {
        self.list[place.segment().0 as usize].units += live::units(place);
    }

    pub fn close(&mut self, number: SegmentNumber) {
        let segment = &mut self.list[number.0 as usize];
        assert_eq!(segment.state, SegmentState::Open);
        self.open.retain(|open| *open != number);
        segment.state = SegmentState::Full;
        segment.sequence = self.sealed;
        self.sealed += 1;
    }

    /// Nothing more is written to it. Its values are to be copied elsewhere.
    pub fn doubt(&mut self, number: SegmentNumber) {
        let segment = &mut self.list[number.0 as usize];
        segment.is_doubtful = segment.state != SegmentState::Free;
    }

    pub fn doubtful_count(&self) -> u32 {
        self.list.iter().filter(|segment| segment.is_doubtful).count() as u32
    }

    /// Whether one that a sync failed of can be cleaned.
    pub fn can_clean_doubtful(&self, is_written_to: impl Fn(SegmentNumber) -> bool) -> bool {
        self.doubtful(&is_written_to).is_some()
    }

    /// One that a sync failed of, if it can be cleaned.
    fn doubtful(&self, is_written_to: &impl Fn(SegmentNumber) -> bool) -> Option<SegmentNumber> {
        let is_next = |segment: &Segment| {
            segment.is_doubtful && segment.state == SegmentState::Full && !segment.is_damaged
        };
        let numbers = (0..self.list.len() as u32).map(SegmentNumber);
        numbers.zip(&self.list).find(|(number, it)| is_next(it) && !is_written_to(*number)).map(|it| it.0)
    }

    /// The full segment that is best cleaned now; none that is still written to. `None`: none has anything to win. One that a sync
    /// failed of comes first.
    pub fn victim(
        &mut self,
        live: &Live,
        is_written_to: impl Fn(SegmentNumber) -> bool,
    ) -> Option<SegmentNumber> {
        if let Some(number) = self.doubtful(&is_written_to) {
            self.list[number.0 as usize].state = SegmentState::Cleaning;
            return Some(number);
        }
        let number = self.best_victim(live, is_written_to)?;
        self.list[number.0 as usize].state = SegmentState::Cleaning;
        Some(number)
    }

    /// The full segment that was filled first; none that is still written to. It is being cleaned from then
    /// on.
    pub fn oldest(&mut self, is_written_to: impl Fn(SegmentNumber) -> bool) -> Option<SegmentNumber> {
        let is_one = |(number, segment): &(usize, &Segment)| {
            segment.state == SegmentState::Full
                && !segment.is_damaged
                && !is_written_to(SegmentNumber(*number as u32))
        };
        let candidates = self.list.iter().enumerate().filter(is_one);
        let number = candidates.min_by_key(|(_, segment)| segment.sequence).map(|(number, _)| number)?;
        self.list[number].state = SegmentState::Cleaning;
        Some(SegmentNumber(number as u32))
    }

    /// A cleaning is over. What still lives there could not be read.
    pub fn cleaned(&mut self, number: SegmentNumber, is_damaged: bool) {
        let segment = &mut self.list[number.0 as usize];
        assert_eq!(segment.state, SegmentState::Cleaning);
        segment.state = SegmentState::Full;
        segment.is_damaged |= is_damaged;
    }

    /// Full segments in which nothing lives become free, or wait: for the base that names them, for snapshots that had begun by then, or
    /// for writes to them that are under way, which would else hit the next segment of that number. Returns the freed ones. While this
    /// is called no snapshot begins.
    pub fn collect(
        &mut self,
        live: &Live,
        snapshots: Snapshots,
        is_written_to: impl Fn(SegmentNumber) -> bool,
    ) -> Vec<SegmentNumber> {
        self.revive(live);
        let mut freed = Vec::new();
        for (number, segment) in self.list.iter_mut().enumerate() {
            let number = SegmentNumber(number as u32);
            if segment.state == SegmentState::Full && live.units(number) == 0 {
                segment.state = SegmentState::Waiting;
                segment.snapshots_before = snapshots.begun;
            }
            let is_needed = segment.is_named || segment.is_named_next || segment.is_read_by(snapshots);
            if segment.state == SegmentState::Waiting && !is_needed && !is_written_to(number) {
                *segment = FREE;
                self.free.insert(number.0);
                freed.push(number);
            }
        }
        freed
    }

    /// The base in force was loaded meanwhile, and has brought values back that had been given up.
    fn revive(&mut self, live: &Live) {
        for (number, segment) in self.list.iter_mut().enumerate() {
            let lives = || live.units(SegmentNumber(number as u32)) > 0;
            if segment.state == SegmentState::Waiting && lives() {
                segment.state = SegmentState::Full;
            }
        }
    }

    /// So many are kept only because a base names them.
    pub fn waiting_for_base(&self) -> u32 {
        let waits = |segment: &&Segment| segment.state == SegmentState::Waiting && segment.is_named;
        self.list.iter().filter(waits).count() as u32
    }

    /// What a base that is being written refers to: all that is there, and what was emptied since its snapshot was cut.
    pub fn name(&mut self, live: &Live, snapshots: Snapshots) -> Vec<Named> {
        self.revive(live);
        let mut named = Vec::new();
        for (number, segment) in self.list.iter_mut().enumerate() {
            // What became of the last one is not known.
            segment.is_named |= segment.is_named_next;
            segment.is_named_next = match segment.state {
                SegmentState::Free => false,
                SegmentState::Waiting => segment.is_read_by(snapshots),
                SegmentState::Open | SegmentState::Full | SegmentState::Cleaning => true,
            };
            if segment.is_named_next {
                named.push(Named { segment: SegmentNumber(number as u32), bytes: segment.bytes });
            }
        }
        named
    }

    /// That base is in force, or was given up.
    pub fn named(&mut self, in_force: bool) {
        for segment in &mut self.list {
            if in_force {
                segment.is_named = segment.is_named_next;
            }
            segment.is_named_next = false;
        }
    }

    /// A base that names no segment is in force. One before it whose fate was not known is not; none is being written.
    pub fn unnamed(&mut self) {
        self.list.iter_mut().for_each(|segment| (segment.is_named, segment.is_named_next) = (false, false));
    }

    pub fn check_invariants(&self, live: &Live) {
        for (number, segment) in self.list.iter().enumerate() {
            let number = SegmentNumber(number as u32);
            assert_eq!(segment.state == SegmentState::Free, self.free.contains(&number.0), "{number:?}");
            assert!(u64::from(live.units(number)) <= SEGMENT_BYTES / ADDRESS_UNIT_BYTES, "{number:?}");
            let is_free = segment.state == SegmentState::Free;
            assert!(!is_free || live.units(number) == 0, "{number:?} {segment:?}");
            assert!(!is_free || (segment.bytes == 0 && !segment.is_named && !segment.is_named_next));
            // A base that is loaded again brings values back to what waits.
            let waits = segment.state == SegmentState::Waiting;
            assert!(!waits || segment.is_named || segment.is_named_next || live.units(number) == 0);
        }
    }
}

//! The segments: which are free, which are being filled, which are full, and which is worth cleaning.
//!
//! ```text
//!   Free -> Open -> Full -> Cleaning -> Free
//!                     |          \ (damaged) -> Full, never again a victim, but dropped in its turn
//!                     '- nothing in it lives -> Free
//!   and instead of Free: Waiting, as long as a base of the AOF names it, or a snapshot may read from it
//! ```
//! A base that is being written names segments in addition to the one in force. Its outcome may stay unknown
//! (its list was written, and the disk did not say so): then both continue to count until a later one is in
//! force.
//!
//! Few of very many segments change between two steps of the thread that writes: it reads sums, and looks at
//! those that began to live or died (`Live::take_turned`), that were closed, or that wait.
//!
//! `policy` decides which segment is cleaned, and when.

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
    /// No record in it lives, but a base of the AOF refers to it, or a snapshot may.
    Waiting,
}

impl SegmentState {
    const COUNT: usize = 5;
}

/// Snapshots of the data: they may refer to values that no entry refers to any more. Counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Snapshots {
    /// Number of snapshots that have begun.
    pub begun: u64,
    /// The oldest one that is under way.
    pub oldest: Option<u64>,
}

/// Number of times that cleaning has copied a value: the more often, the longer it will live. Values of the
/// same generation lie together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Generation {
    /// Value from memory.
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
    /// Generation of the values with which the segment is filled.
    pub generation: Generation,
    /// Length so far.
    pub bytes: u64,
    /// Units of all records that were appended, living or not.
    pub units: u32,
    /// Number of segments that were full before this one.
    pub sequence: u64,
    /// Holes of the groups that failed, one each: at most as many as a segment has blocks.
    holes: Vec<Hole>,
    pub is_damaged: bool,
    /// Dropping could not empty it either.
    is_stuck: bool,
    /// Number of snapshots that had begun when the segment was found empty: only these may refer to it.
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
    is_stuck: false,
    snapshots_before: 0,
    is_named: false,
    is_named_next: false,
    is_doubtful: false,
};

impl Segment {
    /// Returns whether a snapshot may refer to this waiting segment: one that was cut before the segment was
    /// found empty.
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

/// Sums over all segments.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Sums {
    bytes: u64,
    units: u64,
    /// Units of segments that wait.
    waiting_units: u64,
    by_state: [u32; SegmentState::COUNT],
    doubtful: u32,
    /// Segments that wait and are named by the base in force.
    waiting_named: u32,
}

impl Sums {
    fn add(&mut self, segment: &Segment) {
        let is_waiting = segment.state == SegmentState::Waiting;
        self.bytes += segment.bytes;
        self.units += u64::from(segment.units);
        self.waiting_units += if is_waiting { u64::from(segment.units) } else { 0 };
        self.by_state[segment.state as usize] += 1;
        self.doubtful += u32::from(segment.is_doubtful);
        self.waiting_named += u32::from(is_waiting && segment.is_named);
    }

    fn subtract(&mut self, segment: &Segment) {
        let is_waiting = segment.state == SegmentState::Waiting;
        self.bytes -= segment.bytes;
        self.units -= u64::from(segment.units);
        self.waiting_units -= if is_waiting { u64::from(segment.units) } else { 0 };
        self.by_state[segment.state as usize] -= 1;
        self.doubtful -= u32::from(segment.is_doubtful);
        self.waiting_named -= u32::from(is_waiting && segment.is_named);
    }
}

#[derive(Debug)]
pub(crate) struct Segments {
    pub segment_bytes: u64,
    /// Values from memory may begin segments, as far as the file system is concerned.
    pub may_grow: bool,
    list: Vec<Segment>,
    sums: Sums,
    free: BTreeSet<u32>,
    /// Segments that are being filled: at most one of each generation.
    open: Vec<SegmentNumber>,
    /// The one that is being cleaned: at most one.
    cleaning: Option<SegmentNumber>,
    waiting: BTreeSet<u32>,
    /// Snapshots that waiting segments were last held against; `None`: something else has changed since.
    waited_for: Option<Snapshots>,
    /// Segments that may be empty, in addition to those that `Live` names.
    to_look: Vec<SegmentNumber>,
    pub sealed: u64,
}

impl Segments {
    pub fn new(config: LogConfig) -> Segments {
        let (count, segment_bytes) = (config.segments_max(), config.segment_bytes());
        let mut sums = Sums::default();
        sums.by_state[SegmentState::Free as usize] = count;
        Segments {
            segment_bytes,
            may_grow: true,
            list: vec![FREE; count as usize],
            sums,
            free: (0..count).collect(),
            open: Vec::new(),
            cleaning: None,
            waiting: BTreeSet::new(),
            waited_for: None,
            to_look: Vec::new(),
            sealed: 0,
        }
    }

    /// Each change of a segment goes through here, as the sums follow.
    fn change<R>(&mut self, number: SegmentNumber, change: impl FnOnce(&mut Segment) -> R) -> R {
        let segment = &mut self.list[number.0 as usize];
        self.sums.subtract(segment);
        let result = change(segment);
        self.sums.add(segment);
        result
    }

    /// All of them, with their numbers.
    pub fn all(&self) -> impl Iterator<Item = (SegmentNumber, &Segment)> {
        (0..).map(SegmentNumber).zip(&self.list)
    }

    pub fn free_count(&self) -> u32 {
        self.free.len() as u32
    }

    pub fn count(&self, state: SegmentState) -> u32 {
        self.sums.by_state[state as usize]
    }

    /// Returns about how many bytes the tables take: a number that is free has some 8 B in its tree.
    pub fn table_bytes(&self) -> u64 {
        (self.list.capacity() * size_of::<Segment>() + self.free.len() * 8) as u64
    }

    /// The bytes of files: of all segments that are not free.
    pub fn file_bytes(&self) -> u64 {
        self.sums.bytes
    }

    /// Returns the bytes that cleaning could win: heads and payloads that were written to segments and live
    /// no longer.
    pub fn dead_bytes(&self, live: &Live) -> u64 {
        (self.sums.units * ADDRESS_UNIT_BYTES).saturating_sub(live.bytes())
    }

    /// Dead bytes of full segments.
    pub fn cleanable_bytes(&self, live: &Live) -> u64 {
        let dead_units = |number: &SegmentNumber| {
            u64::from(self.list[number.0 as usize].units.saturating_sub(live.units(*number)))
        };
        let others = self.open.iter().chain(&self.cleaning).map(dead_units).sum::<u64>();
        let others_bytes = (self.sums.waiting_units + others) * ADDRESS_UNIT_BYTES;
        self.dead_bytes(live).saturating_sub(others_bytes)
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
        self.change(number, |segment| segment.holes.push(hole));
    }

    /// A segment that the base of the AOF refers to, after a start.
    pub fn restore(&mut self, named: Named) {
        assert!(self.free.remove(&named.segment.0), "{named:?} twice, or beyond the log");
        let (state, sequence) = (SegmentState::Full, self.sealed);
        self.sealed += 1;
        // How much came to it is not known any more: as much as it can hold.
        let units = (named.bytes / ADDRESS_UNIT_BYTES) as u32;
        let generation = Generation::Once;
        let found =
            Segment { state, generation, bytes: named.bytes, units, sequence, is_named: true, ..FREE };
        self.change(named.segment, |segment| *segment = found);
        self.to_look.push(named.segment);
    }

    /// The lowest number first, so that a log that shrank has few files.
    pub fn open(&mut self, generation: Generation) -> Option<SegmentNumber> {
        let number = SegmentNumber(self.free.pop_first()?);
        self.change(number, |segment| *segment = Segment { state: SegmentState::Open, generation, ..FREE });
        self.open.push(number);
        Some(number)
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
        let segment_bytes = self.segment_bytes;
        self.change(number, |segment| {
            segment.bytes += bytes as u64;
            assert!(segment.state == SegmentState::Open && segment.bytes <= segment_bytes);
        });
    }

    pub fn note_appended(&mut self, place: Place) {
        // For each record: without the other sums.
        let units = live::units(place);
        self.list[place.segment().0 as usize].units += units;
        self.sums.units += u64::from(units);
    }

    pub fn close(&mut self, number: SegmentNumber) {
        self.open.retain(|open| *open != number);
        let sequence = self.sealed;
        self.sealed += 1;
        self.change(number, |segment| {
            assert_eq!(segment.state, SegmentState::Open);
            (segment.state, segment.sequence) = (SegmentState::Full, sequence);
        });
        self.to_look.push(number);
    }

    /// Marks a segment for which a sync failed: nothing more is written to it, and its values are to be
    /// copied elsewhere.
    pub fn doubt(&mut self, number: SegmentNumber) {
        self.change(number, |segment| segment.is_doubtful = segment.state != SegmentState::Free);
    }

    pub fn doubtful_count(&self) -> u32 {
        self.sums.doubtful
    }

    /// Returns whether a segment for which a sync failed can be cleaned.
    pub fn can_clean_doubtful(&self, is_written_to: impl Fn(SegmentNumber) -> bool) -> bool {
        self.doubtful(&is_written_to).is_some()
    }

    /// Returns a segment for which a sync failed, if one can be cleaned.
    fn doubtful(&self, is_written_to: &impl Fn(SegmentNumber) -> bool) -> Option<SegmentNumber> {
        if self.sums.doubtful == 0 {
            return None;
        }
        let is_next = |segment: &Segment| {
            segment.is_doubtful && segment.state == SegmentState::Full && !segment.is_damaged
        };
        self.all().find(|(number, it)| is_next(it) && !is_written_to(*number)).map(|it| it.0)
    }

    /// The full segment that is best cleaned now; none that is still written to. `None`: none has anything to
    /// win. One that a sync failed of comes first.
    pub fn victim(
        &mut self,
        live: &Live,
        is_written_to: impl Fn(SegmentNumber) -> bool,
    ) -> Option<SegmentNumber> {
        let number = self.doubtful(&is_written_to).or_else(|| self.best_victim(live, is_written_to))?;
        Some(self.clean(number))
    }

    /// Marks it as being cleaned.
    fn clean(&mut self, number: SegmentNumber) -> SegmentNumber {
        self.change(number, |segment| segment.state = SegmentState::Cleaning);
        assert!(self.cleaning.replace(number).is_none(), "one at a time");
        number
    }

    /// The full segment that was filled first, damaged or not; none that is still written to, or that
    /// dropping could not empty. It is being cleaned from then on.
    pub fn oldest(&mut self, is_written_to: impl Fn(SegmentNumber) -> bool) -> Option<SegmentNumber> {
        let is_one = |(number, segment): &(SegmentNumber, &Segment)| {
            segment.state == SegmentState::Full && !segment.is_stuck && !is_written_to(*number)
        };
        let number = self.all().filter(is_one).min_by_key(|(_, segment)| segment.sequence)?.0;
        Some(self.clean(number))
    }

    /// Notes that what lives in a segment cannot be dropped.
    pub fn note_stuck(&mut self, number: SegmentNumber) {
        self.change(number, |segment| segment.is_stuck = true);
    }

    /// A cleaning is over. Values that still live there could not be read.
    pub fn cleaned(&mut self, number: SegmentNumber, is_damaged: bool) {
        self.change(number, |segment| {
            assert_eq!(segment.state, SegmentState::Cleaning);
            segment.state = SegmentState::Full;
            segment.is_damaged |= is_damaged;
        });
        self.cleaning = None;
        self.to_look.push(number);
    }

    /// Full segments in which nothing lives become free, or wait: for the base that names them, for snapshots
    /// that had begun by then, or for writes to them that are under way, which would else hit the next
    /// segment of that number. Returns the freed ones. While this is called no snapshot begins.
    pub fn collect(
        &mut self,
        live: &Live,
        snapshots: Snapshots,
        is_written_to: impl Fn(SegmentNumber) -> bool,
    ) -> Vec<SegmentNumber> {
        for number in self.look(live) {
            let segment_state = (SegmentState::Waiting, snapshots.begun);
            self.change(number, |segment| (segment.state, segment.snapshots_before) = segment_state);
            self.waiting.insert(number.0);
            self.waited_for = None;
        }
        let mut freed = Vec::new();
        if self.waited_for == Some(snapshots) {
            return freed;
        }
        let mut is_held_by_writes = false;
        for number in self.waiting.iter().copied().map(SegmentNumber) {
            let segment = &self.list[number.0 as usize];
            let is_needed = segment.is_named || segment.is_named_next || segment.is_read_by(snapshots);
            let is_written = !is_needed && is_written_to(number);
            is_held_by_writes |= is_written;
            if !is_needed && !is_written {
                freed.push(number);
            }
        }
        for &number in &freed {
            self.change(number, |segment| *segment = FREE);
            self.waiting.remove(&number.0);
            self.free.insert(number.0);
        }
        self.waited_for = (!is_held_by_writes).then_some(snapshots);
        freed
    }

    /// Looks at segments that have changed. Those that waited and live again are full: the base in force was
    /// loaded meanwhile, and has brought values back that had been given up. Returns full ones in which
    /// nothing lives.
    fn look(&mut self, live: &Live) -> Vec<SegmentNumber> {
        let mut numbers = std::mem::take(&mut self.to_look);
        numbers.extend(live.take_turned());
        numbers.retain(|number| {
            let lives = live.units(*number) > 0;
            if self.state(*number) == SegmentState::Waiting && lives {
                self.change(*number, |segment| segment.state = SegmentState::Full);
                self.waiting.remove(&number.0);
            }
            self.state(*number) == SegmentState::Full && !lives
        });
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Returns how many segments are kept only because a base names them.
    pub fn waiting_for_base(&self) -> u32 {
        self.sums.waiting_named
    }

    /// Returns how many only a snapshot keeps, or for a moment a write.
    pub fn waiting_for_snapshot(&self) -> u32 {
        self.waiting.len() as u32 - self.sums.waiting_named
    }

    /// Returns the segments that a base being written refers to: all that are there, and those that were
    /// emptied after its snapshot was cut.
    pub fn name(&mut self, live: &Live, snapshots: Snapshots) -> Vec<Named> {
        // Whether they wait is for `collect`, when all that lives is known.
        self.to_look = self.look(live);
        let mut named = Vec::new();
        self.change_all(|number, segment| {
            // The outcome of the last one is not known.
            segment.is_named |= segment.is_named_next;
            segment.is_named_next = match segment.state {
                SegmentState::Free => false,
                SegmentState::Waiting => segment.is_read_by(snapshots),
                SegmentState::Open | SegmentState::Full | SegmentState::Cleaning => true,
            };
            if segment.is_named_next {
                named.push(Named { segment: number, bytes: segment.bytes });
            }
        });
        named
    }

    /// Notes that the base being written is in force, or was given up.
    pub fn named(&mut self, in_force: bool) {
        self.change_all(|_, segment| {
            if in_force {
                segment.is_named = segment.is_named_next;
            }
            segment.is_named_next = false;
        });
    }

    /// A base that names no segment is in force. One before it whose fate was not known is not; none is being
    /// written.
    pub fn unnamed(&mut self) {
        self.change_all(|_, segment| (segment.is_named, segment.is_named_next) = (false, false));
    }

    /// Once for each base.
    fn change_all(&mut self, mut change: impl FnMut(SegmentNumber, &mut Segment)) {
        (0..self.list.len() as u32).map(SegmentNumber).for_each(|number| {
            self.change(number, |segment| change(number, segment));
        });
        self.waited_for = None;
    }

    pub fn check_invariants(&self, live: &Live) {
        let mut sums = Sums::default();
        self.list.iter().for_each(|segment| sums.add(segment));
        assert_eq!(sums, self.sums);
        let units: u64 = self.all().map(|(number, _)| u64::from(live.units(number))).sum();
        assert_eq!(units * ADDRESS_UNIT_BYTES, live.bytes());
        for (number, segment) in self.all() {
            assert_eq!(
                segment.state == SegmentState::Waiting,
                self.waiting.contains(&number.0),
                "{number:?}"
            );
            assert_eq!(segment.state == SegmentState::Cleaning, self.cleaning == Some(number), "{number:?}");
            let lives = live.units(number) > 0;
            let is_to_look = live.has_turned(number) || self.to_look.contains(&number);
            assert!(segment.state != SegmentState::Full || lives || is_to_look, "{number:?} is empty");
            assert!(segment.state != SegmentState::Waiting || !lives || is_to_look, "{number:?} lives");
        }
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

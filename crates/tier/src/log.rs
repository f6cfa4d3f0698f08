//! The log as a whole: gives places, orders writes, frees segments.
//!
//! ```text
//!   append -> a group of its stream -> sealed -> next_write -> the disk -> written -> the caller turns entries over
//!                                                                            |
//!                                                             failed: its segment is closed, its records get other places
//! ```
//! Invariants: a record's bytes are in memory, in its group, until `written` returned the group; so a failed
//! write loses nothing. At most [`GROUPS_WAITING_MAX`] groups wait in memory, or as many as the caller sets
//! below that. Values that come from memory never take the reserve of cleaning.

use crate::cleaning::Cleaning;
use crate::config::LogConfig;
use crate::group::{GROUP_BYTES, Group};
use crate::live::Live;
use crate::place::{Place, SegmentNumber};
use crate::record::Record;
use crate::segments::{Generation, Named, SegmentState, Segments, Snapshots};
use std::collections::VecDeque;
use std::sync::Arc;

/// Groups that are sealed and not yet on disk. 16 of 1 MB; of the largest records 16 x 16 MB.
pub const GROUPS_WAITING_MAX: usize = 16;

/// Smallest rest of a segment that is still used; a smaller one is given up.
const TAIL_BYTES_MIN: usize = 64 << 10;

/// Values that leave memory and values that survived a cleaning lie apart: the latter will live longer, and
/// longer still those that survived more than one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    Fresh = 0,
    Survivors = 1,
}

/// Why a record cannot be taken now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// No segment is left for this stream.
    Segments,
    /// The maximum number of groups wait for the disk.
    Writes,
}

/// Names a write under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(u64);

/// Bytes for the disk. The segment's file is created if this is its first group.
#[derive(Debug)]
pub struct Write<'a> {
    pub ticket: Ticket,
    pub segment: SegmentNumber,
    pub offset: u64,
    pub bytes: &'a [u8],
}

/// Result of a write.
#[derive(Debug)]
pub enum Written {
    /// The disk has it: entries may point there.
    Done(Group),
    /// The write failed. The records have other places and will be written there.
    Again,
    /// The write failed, and there is no room elsewhere: the records are where they were before, in memory or
    /// in their old segment.
    GivenUp(Group),
}

#[derive(Debug)]
struct Filling {
    segment: SegmentNumber,
    /// Offset at which the next group of the segment begins.
    end: u64,
    group: Option<Group>,
}

#[derive(Debug)]
pub struct Log {
    config: LogConfig,
    segments: Segments,
    live: Arc<Live>,
    /// Segments that are being filled, by generation.
    filling: [Option<Filling>; Generation::ALL.len()],
    ready: VecDeque<(Generation, Group)>,
    writing: Vec<(Ticket, Generation, Group)>,
    groups_waiting_max: usize,
    next_ticket: u64,
    /// Bytes of records that came from memory.
    fresh_bytes: u64,
    /// The segment that is emptied though what is in it lives, and `fresh_bytes` when that began.
    dropping: Option<(SegmentNumber, u64)>,
}

impl Log {
    pub fn new(config: LogConfig) -> Log {
        let segments = config.segments_max();
        Log {
            config,
            segments: Segments::new(config),
            live: Arc::new(Live::new(segments)),
            filling: [None, None, None],
            ready: VecDeque::new(),
            writing: Vec::new(),
            groups_waiting_max: GROUPS_WAITING_MAX,
            next_ticket: 0,
            fresh_bytes: 0,
            dropping: None,
        }
    }

    /// The log as a base of the AOF refers to it. The caller reports what it loads by [`Live::add`]; then
    /// [`Log::collect`] frees the rest. Panics if a segment is named twice or lies beyond the log.
    pub fn restored(config: LogConfig, named: &[Named]) -> Log {
        let mut log = Log::new(config);
        named.iter().for_each(|named| log.segments.restore(*named));
        log
    }

    /// Returns the counts of living records, for the threads that delete, overwrite and promote values.
    pub fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live)
    }

    /// Gives the record a place. `before`: where it lies now, of a survivor, and of survivors always.
    pub fn append(
        &mut self,
        stream: Stream,
        record: &Record<'_>,
        before: Option<Place>,
    ) -> Result<Place, Full> {
        assert_eq!(stream == Stream::Survivors, before.is_some());
        let generation = match before {
            None => Generation::Fresh,
            Some(before) => self.segments.generation(before.segment()).next(),
        };
        let generation = self.make_room(generation, record.bytes())?;
        if before.is_none() {
            self.fresh_bytes += record.bytes() as u64;
        }
        let filling = self.filling[generation as usize].as_mut().expect("a group was begun");
        let place = filling.group.as_mut().expect("a group was begun").push(record, before);
        self.note_appended(place);
        Ok(place)
    }

    /// Makes room for `record_bytes` bytes more in a group. Without a free segment survivors of all kinds lie
    /// together.
    fn make_room(&mut self, generation: Generation, record_bytes: usize) -> Result<Generation, Full> {
        let mut result = self.make_room_of(generation, record_bytes);
        for other in Generation::SURVIVORS {
            if result == Err(Full::Segments) && generation != Generation::Fresh && other != generation {
                result = self.make_room_of(other, record_bytes);
            }
        }
        result
    }

    fn make_room_of(&mut self, generation: Generation, record_bytes: usize) -> Result<Generation, Full> {
        let filling = self.filling[generation as usize].as_ref();
        let group = filling.and_then(|filling| filling.group.as_ref());
        if !group.is_some_and(|group| group.takes(record_bytes)) {
            self.seal_group(generation);
            self.begin_group(generation, record_bytes)?;
        }
        Ok(generation)
    }

    fn note_appended(&mut self, place: Place) {
        self.live.add(place);
        self.segments.note_appended(place);
    }

    /// Marks the records appended so far for writing, although their group is not full.
    pub fn seal(&mut self, stream: Stream) {
        match stream {
            Stream::Fresh => self.seal_group(Generation::Fresh),
            Stream::Survivors => Generation::SURVIVORS.into_iter().for_each(|it| self.seal_group(it)),
        }
    }

    fn seal_group(&mut self, generation: Generation) {
        let Some(filling) = &mut self.filling[generation as usize] else { return };
        let Some(mut group) = filling.group.take() else { return };
        group.seal();
        filling.end += group.bytes().len() as u64;
        self.segments.grow(filling.segment, group.bytes().len());
        self.ready.push_back((generation, group));
    }

    fn begin_group(&mut self, generation: Generation, record_bytes: usize) -> Result<(), Full> {
        if self.ready.len() + self.writing.len() >= self.groups_waiting_max {
            return Err(Full::Writes);
        }
        let needed = Group::bytes_with(record_bytes).max(TAIL_BYTES_MIN) as u64;
        let segment_bytes = self.config.segment_bytes();
        let has_room = |filling: &Filling| filling.end + needed <= segment_bytes;
        if !self.filling[generation as usize].as_ref().is_some_and(has_room) {
            if !self.segments.may_open(generation, self.reserve()) {
                self.close_exhausted(generation);
                return Err(Full::Segments);
            }
            let segment = self.segments.open(generation).expect("one is free");
            let next = Filling { segment, end: 0, group: None };
            if let Some(full) = self.filling[generation as usize].replace(next) {
                self.segments.close(full.segment);
            }
        }
        let filling = self.filling[generation as usize].as_mut().expect("it has room");
        filling.group = Some(Group::new(filling.segment, filling.end, segment_bytes - filling.end));
        Ok(())
    }

    /// Closes a segment that takes no further group, though no other takes its place: in a small log what is
    /// dead in it may be most of what cleaning can win.
    fn close_exhausted(&mut self, generation: Generation) {
        let segment_bytes = self.config.segment_bytes();
        let is_exhausted = |filling: &mut Filling| filling.end + GROUP_BYTES as u64 > segment_bytes;
        if let Some(filling) = self.filling[generation as usize].take_if(is_exhausted) {
            assert!(filling.group.is_none(), "it was sealed");
            self.segments.close(filling.segment);
        }
    }

    /// The next group for the disk, in the order in which they were sealed.
    pub fn next_write(&mut self) -> Option<Write<'_>> {
        let (generation, group) = self.ready.pop_front()?;
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.writing.push((ticket, generation, group));
        let (_, _, group) = self.writing.last()?;
        Some(Write { ticket, segment: group.segment(), offset: group.offset(), bytes: group.bytes() })
    }

    /// The write of a ticket ended.
    pub fn written(&mut self, ticket: Ticket, is_on_disk: bool) -> Written {
        let at = self.writing.iter().position(|(other, ..)| *other == ticket).expect("it is under way");
        let (_, generation, group) = self.writing.remove(at);
        if is_on_disk {
            return Written::Done(group);
        }
        self.give_up(group.segment());
        let end = group.offset() + group.bytes().len() as u64;
        self.segments.add_hole(group.segment(), (group.offset(), end));
        for (place, ..) in group.records() {
            self.live.retire(place);
        }
        match self.append_again(generation, &group) {
            Ok(()) => Written::Again,
            Err(Full::Segments | Full::Writes) => Written::GivenUp(group),
        }
    }

    /// Ends the writing to a segment. Its records stay.
    fn give_up(&mut self, segment: SegmentNumber) {
        for generation in Generation::ALL {
            let filling = self.filling[generation as usize].as_ref();
            if filling.is_some_and(|filling| filling.segment == segment) {
                self.seal_group(generation);
                self.filling[generation as usize] = None;
                self.segments.close(segment);
            }
        }
    }

    /// All records of a group, or none: those that got a place before the room ended lose it again.
    fn append_again(&mut self, generation: Generation, group: &Group) -> Result<(), Full> {
        self.seal_group(generation);
        self.begin_group(generation, group.bytes().len())?;
        for (_, record, before) in group.records() {
            let filling = self.filling[generation as usize].as_mut().expect("a group was begun");
            let place = filling.group.as_mut().expect("a group was begun").push(&record, before);
            self.note_appended(place);
        }
        self.seal_group(generation);
        Ok(())
    }

    /// Returns whether to clean now, so that the reserve and `ahead` segments stay free (`policy`).
    /// `cleaning`: the cleaning in progress.
    pub fn is_cleaning_due(&self, ahead: u32, cleaning: Option<&Cleaning>) -> bool {
        self.segments.is_cleaning_due(self.config.reserve_segments(), ahead, cleaning)
    }

    /// Sets how many groups may wait for the disk, at most [`GROUPS_WAITING_MAX`]. With one there is always
    /// progress.
    pub fn set_groups_waiting_max(&mut self, groups: usize) {
        self.groups_waiting_max = groups.clamp(1, GROUPS_WAITING_MAX);
    }

    /// Lets values from memory begin segments, or not, while others need the space of the file system.
    /// Survivors of cleaning may.
    pub fn set_may_grow(&mut self, may_grow: bool) {
        self.segments.may_grow = may_grow;
    }

    /// Returns whether values from memory may begin segments, as far as there are some.
    pub fn may_grow(&self) -> bool {
        self.segments.may_grow
    }

    /// Bytes of values that the log takes from memory before it is full, if all of them live: without what is
    /// kept for survivors.
    pub fn usable_bytes(&self) -> u64 {
        let segments = (self.config.segments_max() + 1).saturating_sub(self.config.reserve_segments());
        u64::from(segments) * self.config.segment_bytes()
    }

    /// Returns whether values from memory could begin a further segment.
    pub fn has_room(&self) -> bool {
        self.segments.may_open(Generation::Fresh, self.reserve())
    }

    /// Returns bytes that cleaning has to win before values from memory can begin another segment. 0: what it
    /// wins is not what they lack.
    pub fn lacking_bytes(&self) -> u64 {
        self.segments.lacking_bytes(self.reserve())
    }

    /// Segments kept for survivors. One that is being dropped gives back one of these.
    fn reserve(&self) -> u32 {
        self.config.reserve_segments() - u32::from(self.dropping.is_some())
    }

    /// Begins to clean the segment that is worth most. The caller reads it, appends what lives to the
    /// survivors, waits until their groups are written and turned over, and ends it with
    /// [`Log::end_cleaning`].
    pub fn begin_cleaning(&mut self) -> Option<Cleaning> {
        let written_to = self.written_to();
        let segment = self.segments.victim(&self.live, |segment| written_to.contains(&segment))?;
        let holes = self.segments.holes(segment).to_vec();
        Some(Cleaning::new(segment, self.segments.bytes(segment), holes))
    }

    /// Begins to empty the full segment that was filled first, though what is in it lives: the caller goes
    /// through it as through one that is cleaned, and releases the values that it does not copy. Until that
    /// is ended values from memory may begin a segment of the reserve, and it proceeds as fast as these come
    /// ([`Log::is_dropping_due`]). `None`: nothing would be won before the emptied segments become free.
    pub fn begin_dropping(&mut self) -> Option<Cleaning> {
        assert!(self.dropping.is_none(), "one at a time");
        let lends_reserve = self.segments.may_open(Generation::Fresh, self.config.reserve_segments() - 1);
        if !lends_reserve && self.segments.count(SegmentState::Waiting) > 0 {
            return None;
        }
        let written_to = self.written_to();
        let segment = self.segments.oldest(|segment| written_to.contains(&segment))?;
        self.dropping = Some((segment, self.fresh_bytes));
        let holes = self.segments.holes(segment).to_vec();
        Some(Cleaning::new(segment, self.segments.bytes(segment), holes))
    }

    /// Returns whether more has come from memory since it began than was gone through.
    pub fn is_dropping_due(&self, cleaning: &Cleaning) -> bool {
        self.dropping.is_some_and(|(_, from)| cleaning.passed_bytes() < self.fresh_bytes - from)
    }

    /// Notes that what lives in this segment can neither be read nor dropped: none is begun with it again.
    pub fn note_stuck(&mut self, cleaning: &Cleaning) {
        self.segments.note_stuck(cleaning.segment());
    }

    pub fn end_cleaning(&mut self, cleaning: Cleaning) {
        self.dropping.take_if(|(segment, _)| *segment == cleaning.segment());
        // One that was not gone through, without room for what lives in it, is cleaned another time.
        self.segments.cleaned(cleaning.segment(), cleaning.is_damaged() && cleaning.is_through());
    }

    /// Frees segments in which nothing lives, and that none of these snapshots can read from; the caller
    /// removes their files, or will write over them. No snapshot begins while this is called.
    pub fn collect(&mut self, snapshots: Snapshots) -> Vec<SegmentNumber> {
        let written_to = self.written_to();
        self.segments.collect(&self.live, snapshots, |segment| written_to.contains(&segment))
    }

    /// Segments of groups that are not yet on disk: at most [`GROUPS_WAITING_MAX`].
    fn written_to(&self) -> Vec<SegmentNumber> {
        let (ready, writing) = (self.ready.iter(), self.writing.iter());
        let groups = ready.map(|(_, group)| group).chain(writing.map(|(_, _, group)| group));
        groups.map(Group::segment).collect()
    }

    /// A base of the AOF begins: what it may refer to. Call when all that entries point to is written, and
    /// while the base's snapshot is under way.
    pub fn name(&mut self, snapshots: Snapshots) -> Vec<Named> {
        self.segments.name(&self.live, snapshots)
    }

    /// Notes that the base of `name` is in force from now on, or was given up. Not called if that is not
    /// known.
    pub fn named(&mut self, in_force: bool) {
        self.segments.named(in_force);
    }

    /// A base that has all values itself is in force from now on.
    pub fn unnamed(&mut self) {
        self.segments.unnamed();
    }

    /// Returns how many segments are kept only because the base in force names them.
    pub fn waiting_for_base(&self) -> u32 {
        self.segments.waiting_for_base()
    }

    /// Returns how many segments only a snapshot keeps.
    pub fn waiting_for_snapshot(&self) -> u32 {
        self.segments.waiting_for_snapshot()
    }

    /// A sync of a segment failed: nothing more is written to it, and it is the next to be cleaned. A failed
    /// sync is not repeated: one that succeeds says nothing of what the first one was for.
    pub fn doubt(&mut self, segment: SegmentNumber) {
        self.give_up(segment);
        self.segments.doubt(segment);
    }

    /// Returns the number of segments for which a sync failed. As long as there are any, no base can refer to
    /// the log.
    pub fn doubtful_segments(&self) -> u32 {
        self.segments.doubtful_count()
    }

    /// Returns whether the next cleaning empties a segment for which a sync failed. That is not so if a part
    /// of it cannot be read, or if nothing is left in it.
    pub fn can_clean_doubtful(&self) -> bool {
        if self.segments.doubtful_count() == 0 {
            return false;
        }
        let written_to = self.written_to();
        self.segments.can_clean_doubtful(|segment| written_to.contains(&segment))
    }

    pub fn segments_max(&self) -> u32 {
        self.config.segments_max()
    }

    /// With so much room or less, in segments, only survivors of cleaning get any.
    pub fn reserve_segments(&self) -> u32 {
        self.config.reserve_segments()
    }

    pub fn free_segments(&self) -> u32 {
        self.segments.free_count()
    }

    pub fn segments(&self, state: SegmentState) -> u32 {
        self.segments.count(state)
    }

    pub fn state(&self, segment: SegmentNumber) -> SegmentState {
        self.segments.state(segment)
    }

    /// Returns the bytes of records that do not live any more.
    pub fn dead_bytes(&self) -> u64 {
        self.segments.dead_bytes(&self.live)
    }

    /// Returns the bytes of dead records in segments that can be cleaned.
    pub fn cleanable_bytes(&self) -> u64 {
        self.segments.cleanable_bytes(&self.live)
    }

    pub fn file_bytes(&self) -> u64 {
        self.segments.file_bytes()
    }

    /// Returns whether groups wait for the disk, or for the end of their write.
    pub fn is_writing(&self) -> bool {
        !self.ready.is_empty() || !self.writing.is_empty()
    }

    /// Returns the bytes of groups that are in memory.
    pub fn group_bytes(&self) -> u64 {
        let filling = self.filling.iter().flatten().filter_map(|filling| filling.group.as_ref());
        let ready = self.ready.iter().map(|(_, group)| group);
        let writing = self.writing.iter().map(|(_, _, group)| group);
        filling.chain(ready).chain(writing).map(Group::memory_bytes).sum()
    }

    /// Returns the bytes of the tables of segments and of living records in each.
    pub fn table_bytes(&self) -> u64 {
        self.segments.table_bytes() + 4 * u64::from(self.segments_max())
    }

    pub fn check_invariants(&self) {
        self.segments.check_invariants(&self.live);
        assert!(self.ready.len() + self.writing.len() <= GROUPS_WAITING_MAX + Generation::ALL.len());
        for filling in self.filling.iter().flatten() {
            assert_eq!(self.segments.state(filling.segment), SegmentState::Open);
            assert_eq!(self.segments.bytes(filling.segment), filling.end);
        }
        for (_, group) in &self.ready {
            assert!(self.segments.bytes(group.segment()) >= group.offset() + group.bytes().len() as u64);
        }
    }
}

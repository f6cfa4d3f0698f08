//! The log as a whole: gives places, orders writes, frees segments.
//!
//! ```text
//!   append -> a group of its stream -> sealed -> next_write -> the disk -> written -> the caller turns entries over
//!                                                                            |
//!                                                             failed: its segment is closed, its records get other places
//! ```
//! Invariants: a record's bytes are in memory, in its group, until `written` returned the group; so a failed write loses nothing.
//! At most [`GROUPS_WAITING_MAX`] groups are in memory. Values that come from memory never take the reserve of cleaning.

use crate::cleaning::Cleaning;
use crate::config::LogConfig;
use crate::group::{GROUP_BYTES, Group};
use crate::live::Live;
use crate::place::{Place, SEGMENT_BYTES, SegmentNumber};
use crate::record::Record;
use crate::segments::{Named, SegmentState, Segments};
use std::collections::VecDeque;
use std::sync::Arc;

/// Groups that are sealed and not yet on disk. 16 of 1 MB; of the largest records 16 x 16 MB.
pub const GROUPS_WAITING_MAX: usize = 16;

/// Values that leave memory and values that survived a cleaning lie apart: the latter will live longer.
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
    /// So many groups wait for the disk.
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

/// What became of a write.
#[derive(Debug)]
pub enum Written {
    /// The disk has it: entries may point there.
    Done(Group),
    /// It failed. The records have other places, and will be written there.
    Again,
    /// It failed, and there is no room elsewhere: the records are where they were before, in memory or in their old segment.
    GivenUp(Group),
}

#[derive(Debug)]
struct Filling {
    segment: SegmentNumber,
    /// Where the next group of the segment begins.
    end: u64,
    group: Option<Group>,
}

#[derive(Debug)]
pub struct Log {
    config: LogConfig,
    segments: Segments,
    live: Arc<Live>,
    filling: [Option<Filling>; 2],
    ready: VecDeque<(Stream, Group)>,
    writing: Vec<(Ticket, Stream, Group)>,
    next_ticket: u64,
}

impl Log {
    pub fn new(config: LogConfig) -> Log {
        let segments = config.segments_max();
        Log {
            config,
            segments: Segments::new(segments),
            live: Arc::new(Live::new(segments)),
            filling: [None, None],
            ready: VecDeque::new(),
            writing: Vec::new(),
            next_ticket: 0,
        }
    }

    /// The log as a base of the AOF refers to it. The caller reports what it loads by [`Live::add`]; then [`Log::collect`]
    /// frees the rest. Panics if a segment is named twice or lies beyond the log.
    pub fn restored(config: LogConfig, named: &[Named]) -> Log {
        let mut log = Log::new(config);
        named.iter().for_each(|named| log.segments.restore(*named));
        log
    }

    /// For the threads that delete, write over and bring home.
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
        let bytes = record.bytes();
        let is_begun = self.filling[stream as usize]
            .as_ref()
            .is_some_and(|filling| filling.group.as_ref().is_some_and(|group| group.takes(bytes)));
        if !is_begun {
            self.seal(stream);
            self.begin_group(stream, bytes)?;
        }
        let filling = self.filling[stream as usize].as_mut().expect("a group was begun");
        let place = filling.group.as_mut().expect("a group was begun").push(record, before);
        self.note_appended(place);
        Ok(place)
    }

    fn note_appended(&mut self, place: Place) {
        self.live.add(place);
        self.segments.note_appended(place);
    }

    /// What was appended so far is to be written, though its group is not full.
    pub fn seal(&mut self, stream: Stream) {
        let Some(filling) = &mut self.filling[stream as usize] else { return };
        let Some(mut group) = filling.group.take() else { return };
        group.seal();
        filling.end += group.bytes().len() as u64;
        self.segments.grow(filling.segment, group.bytes().len());
        self.ready.push_back((stream, group));
    }

    fn begin_group(&mut self, stream: Stream, record_bytes: usize) -> Result<(), Full> {
        if self.ready.len() + self.writing.len() >= GROUPS_WAITING_MAX {
            return Err(Full::Writes);
        }
        let needed = Group::bytes_with(record_bytes).max(GROUP_BYTES) as u64;
        let has_room = |filling: &Filling| filling.end + needed <= SEGMENT_BYTES;
        if !self.filling[stream as usize].as_ref().is_some_and(has_room) {
            let reserve = if stream == Stream::Fresh { self.config.reserve_segments() } else { 0 };
            if self.segments.free_count() <= reserve {
                return Err(Full::Segments);
            }
            let segment = self.segments.open().expect("one is free");
            let next = Filling { segment, end: 0, group: None };
            if let Some(full) = self.filling[stream as usize].replace(next) {
                self.segments.close(full.segment);
            }
        }
        let filling = self.filling[stream as usize].as_mut().expect("it has room");
        filling.group = Some(Group::new(filling.segment, filling.end));
        Ok(())
    }

    /// The next group for the disk, in the order in which they were sealed.
    pub fn next_write(&mut self) -> Option<Write<'_>> {
        let (stream, group) = self.ready.pop_front()?;
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.writing.push((ticket, stream, group));
        let (_, _, group) = self.writing.last()?;
        Some(Write { ticket, segment: group.segment(), offset: group.offset(), bytes: group.bytes() })
    }

    /// The write of a ticket ended.
    pub fn written(&mut self, ticket: Ticket, is_on_disk: bool) -> Written {
        let at = self.writing.iter().position(|(other, ..)| *other == ticket).expect("it is under way");
        let (_, stream, group) = self.writing.remove(at);
        if is_on_disk {
            return Written::Done(group);
        }
        self.give_up(group.segment());
        let end = group.offset() + group.bytes().len() as u64;
        self.segments.add_hole(group.segment(), (group.offset(), end));
        for (place, ..) in group.records() {
            self.live.retire(place);
        }
        match self.append_again(stream, &group) {
            Ok(()) => Written::Again,
            Err(Full::Segments | Full::Writes) => Written::GivenUp(group),
        }
    }

    /// Nothing more is written to a segment. What lies in it stays.
    fn give_up(&mut self, segment: SegmentNumber) {
        for stream in [Stream::Fresh, Stream::Survivors] {
            if self.filling[stream as usize].as_ref().is_some_and(|filling| filling.segment == segment) {
                self.seal(stream);
                self.filling[stream as usize] = None;
                self.segments.close(segment);
            }
        }
    }

    /// All records of a group, or none: those that got a place before the room ended lose it again.
    fn append_again(&mut self, stream: Stream, group: &Group) -> Result<(), Full> {
        self.seal(stream);
        self.begin_group(stream, group.bytes().len())?;
        for (_, record, before) in group.records() {
            let filling = self.filling[stream as usize].as_mut().expect("a group was begun");
            let place = filling.group.as_mut().expect("a group was begun").push(&record, before);
            self.note_appended(place);
        }
        self.seal(stream);
        Ok(())
    }

    /// Begins to clean the segment that is worth most. The caller reads it, appends what lives to the survivors, waits until
    /// their groups are written and turned over, and ends it with [`Log::end_cleaning`].
    pub fn begin_cleaning(&mut self) -> Option<Cleaning> {
        let written_to = self.written_to();
        let segment = self.segments.victim(&self.live, |segment| written_to.contains(&segment))?;
        let holes = self.segments.holes(segment).to_vec();
        Some(Cleaning::new(segment, self.segments.bytes(segment), holes))
    }

    pub fn end_cleaning(&mut self, cleaning: Cleaning) {
        self.segments.cleaned(cleaning.segment(), cleaning.is_damaged());
    }

    /// Frees segments in which nothing lives; the caller removes their files, or will write over them.
    pub fn collect(&mut self) -> Vec<SegmentNumber> {
        let written_to = self.written_to();
        self.segments.collect(&self.live, |segment| written_to.contains(&segment))
    }

    /// Segments of groups that are not yet on disk: at most [`GROUPS_WAITING_MAX`].
    fn written_to(&self) -> Vec<SegmentNumber> {
        let (ready, writing) = (self.ready.iter(), self.writing.iter());
        let groups = ready.map(|(_, group)| group).chain(writing.map(|(_, _, group)| group));
        groups.map(Group::segment).collect()
    }

    /// A base of the AOF begins: what it may refer to. Call when all that entries point to is written.
    pub fn name(&mut self) -> Vec<Named> {
        self.segments.name(&self.live)
    }

    /// That base is in force from now on, or it was given up. If that is not known, neither is said.
    pub fn named(&mut self, in_force: bool) {
        self.segments.named(in_force);
    }

    /// A base that has all values itself is in force from now on.
    pub fn unnamed(&mut self) {
        self.segments.unnamed();
    }

    /// So many segments are kept only because the base in force names them.
    pub fn waiting_for_base(&self) -> u32 {
        self.segments.waiting_for_base()
    }

    /// A sync of a segment failed: nothing more is written to it, and it is the next to be cleaned. A failed sync is not repeated: one
    /// that succeeds says nothing of what the first one was for.
    pub fn doubt(&mut self, segment: SegmentNumber) {
        self.give_up(segment);
        self.segments.doubt(segment);
    }

    /// As long as there are such, no base can refer to the log.
    pub fn doubtful_segments(&self) -> u32 {
        self.segments.doubtful_count()
    }

    /// Whether the next cleaning empties one of them: not where a part of it cannot be read, or nothing is left in it.
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

    /// So many of the free ones are for survivors of cleaning.
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

    /// What cleaning could win.
    pub fn dead_bytes(&self) -> u64 {
        self.segments.dead_bytes(&self.live)
    }

    pub fn file_bytes(&self) -> u64 {
        self.segments.file_bytes()
    }

    /// Whether groups wait for the disk, or for their end.
    pub fn is_writing(&self) -> bool {
        !self.ready.is_empty() || !self.writing.is_empty()
    }

    /// Of groups that are in memory.
    pub fn group_bytes(&self) -> u64 {
        let filling = self.filling.iter().flatten().filter_map(|filling| filling.group.as_ref());
        let ready = self.ready.iter().map(|(_, group)| group);
        let writing = self.writing.iter().map(|(_, _, group)| group);
        filling.chain(ready).chain(writing).map(Group::memory_bytes).sum()
    }

    /// Of what is known of segments, and of how much lives in each.
    pub fn table_bytes(&self) -> u64 {
        self.segments.table_bytes() + 4 * u64::from(self.segments_max())
    }

    pub fn check_invariants(&self) {
        self.segments.check_invariants(&self.live);
        assert!(self.ready.len() + self.writing.len() <= GROUPS_WAITING_MAX + 2);
        for filling in self.filling.iter().flatten() {
            assert_eq!(self.segments.state(filling.segment), SegmentState::Open);
            assert_eq!(self.segments.bytes(filling.segment), filling.end);
        }
        for (_, group) in &self.ready {
            assert!(self.segments.bytes(group.segment()) >= group.offset() + group.bytes().len() as u64);
        }
    }
}

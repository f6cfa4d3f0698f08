//! A stream as commands see it.

use super::Stream;
use super::block::{NewBlock, StreamBlock};
use super::edit::Trim;
use super::group::{ConsumerGroup, ConsumerGroups, GroupEdit};
use super::id::StreamId;
use super::image::StreamImage;
use super::shown::{Range, RangeBack, Shown, StreamState};
use crate::layout::kind::{Encoding, Full};
use crate::values::blocks::{reading_of, reading_to_change, room_of};
use crate::values::collection::{EditBody, Editing, Stored};
use crate::values::nodes::Room;
use crate::values::object::{Footprint, Object, Structure};
use crate::values::receiver::Receiver;
use crate::values::store::Store;
use isotherm_arena::Handle;
use isotherm_stdx::UnixMs;
use std::sync::Arc;

/// Time of a change that is made without a command.
const NO_TIME: UnixMs = UnixMs(0);

/// A stream to read.
#[derive(Clone, Copy)]
pub struct StreamView<'a> {
    shown: Shown<'a>,
}

impl PartialEq for StreamView<'_> {
    /// Returns whether both views have the same state in memory.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.shown.state, other.shown.state)
    }
}

impl Eq for StreamView<'_> {}

impl std::fmt::Debug for StreamView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StreamView").field(&self.len()).finish()
    }
}

impl<'a> StreamView<'a> {
    #[inline]
    pub(crate) fn new(stored: Stored<'a>) -> StreamView<'a> {
        let Stored::Object(root, store) = stored else { unreachable!("a stream is never packed") };
        let Object::Stream(stream) = &root.body else { unreachable!("a stream's entry names a stream") };
        StreamView { shown: stream.shown(reading_of(store)) }
    }

    /// Makes a view of a stream that is not in memory, from its image and the bytes of the image.
    pub(crate) fn of_image(image: &'a StreamImage, bytes: &'a [u8]) -> StreamView<'a> {
        StreamView { shown: image.shown(bytes) }
    }

    /// Entries.
    pub fn len(&self) -> u64 {
        self.shown.chain.count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn state(&self) -> StreamState {
        *self.shown.state
    }

    pub fn groups(&self) -> &'a ConsumerGroups {
        self.shown.groups
    }

    pub fn group(&self, name: &[u8]) -> Option<&'a ConsumerGroup> {
        self.groups().get(name)
    }

    /// Entries from the lower to the higher id, both included.
    pub fn range(&self, from: StreamId, to: StreamId) -> Range<'a> {
        self.shown.range(from, to)
    }

    /// Returns the entries from the higher to the lower id, both included.
    pub fn range_back(&self, from: StreamId, to: StreamId) -> RangeBack<'a> {
        self.shown.range_back(from, to)
    }

    /// The first id of each block.
    pub fn blocks(&self) -> impl Iterator<Item = StreamId> + 'a {
        self.shown.chain.iter().map(|piece| piece.first)
    }

    /// All entries, block by block.
    pub fn whole_blocks(&self) -> impl Iterator<Item = StreamBlock<'a>> + 'a {
        self.shown.whole_blocks()
    }
}

/// A stream to change.
pub struct StreamEdit<'c, 'e> {
    pub(crate) editing: &'c mut Editing<'e>,
}

impl StreamEdit<'_, '_> {
    /// Makes the stream if it is not there: from now on the key is.
    pub fn create(&mut self) -> Result<(), Full> {
        self.editing.changed |= self.is_absent();
        self.editing.promote(|_, number, _| Ok(Object::Stream(Stream::new(number))))
    }

    /// Returns whether the stream is not there (yet).
    pub fn is_absent(&self) -> bool {
        matches!(self.editing.body, EditBody::Packed(_))
    }

    fn stream(&self) -> &Stream {
        let EditBody::Object(_, root) = &self.editing.body else { unreachable!("a stream is never packed") };
        let Object::Stream(stream) = &root.body else { unreachable!("a stream's entry names a stream") };
        stream
    }

    fn parts(&mut self) -> (&mut Stream, Room<'_>) {
        let now = self.editing.now;
        let EditBody::Object(_, root) = &mut self.editing.body else {
            unreachable!("a stream is never packed")
        };
        let Object::Stream(stream) = &mut root.body else { unreachable!("a stream's entry names a stream") };
        (stream, room_of(self.editing.store, now))
    }

    pub fn len(&self) -> u64 {
        if self.is_absent() { 0 } else { self.stream().len() }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn state(&self) -> StreamState {
        if self.is_absent() { StreamState::default() } else { self.stream().state }
    }

    /// Returns the state, to set ids and counters. The stream is there.
    pub fn state_mut(&mut self) -> &mut StreamState {
        self.editing.changed = true;
        &mut self.parts().0.state
    }

    pub fn groups(&self) -> Option<&ConsumerGroups> {
        (!self.is_absent()).then(|| &*self.stream().groups)
    }

    /// A new group; the stream is there. Clients that watch the key are not flagged by changes of groups, as
    /// in Valkey.
    pub fn add_group(&mut self, name: &[u8], group: ConsumerGroup) {
        Arc::make_mut(&mut self.parts().0.groups).insert(name, group);
    }

    /// All groups of a stream that has none yet, in the order of their names.
    pub fn set_groups(&mut self, groups: impl Iterator<Item = (Box<[u8]>, ConsumerGroup)>) {
        self.parts().0.groups = Arc::new(ConsumerGroups::of(groups));
    }

    pub fn group_mut(&mut self, name: &[u8]) -> Option<GroupEdit<'_>> {
        if self.groups().is_none_or(|groups| !groups.contains_key(name)) {
            return None;
        }
        Arc::make_mut(&mut self.parts().0.groups).edit(name)
    }

    /// Removes a group. Returns whether it was there.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        self.groups().is_some_and(|groups| groups.contains_key(name)) && self.parts().0.remove_group(name)
    }

    /// Puts an entry after all others: names and values in turns.
    pub fn add(&mut self, id: StreamId, fields: &[&[u8]]) -> Result<(), Full> {
        let (was_absent, was_changed) = (self.is_absent(), self.editing.changed);
        self.create()?;
        let limits = self.editing.limits;
        let (stream, mut room) = self.parts();
        let added =
            stream.add(&mut room, id, fields, limits.stream_node_max_bytes, limits.stream_node_max_entries);
        if added.is_err() && was_absent {
            self.editing.demote();
            self.editing.changed = was_changed;
        } else {
            self.editing.changed |= added.is_ok();
        }
        added
    }

    /// Notes the blocks that a command is about to change and that are not in memory: it runs again when they
    /// were read. Here an entry is put after the others, then some are taken from the front.
    pub fn want_add(&self, trim: Option<(Trim, bool, u64)>) -> Result<(), Full> {
        if self.is_absent() {
            return Ok(());
        }
        let (stream, reading) = (self.stream(), reading_to_change(self.editing.store));
        let last = stream.want_last(reading);
        let trimmed =
            trim.map_or(Ok(()), |(keep, whole, limit)| stream.want_trim(reading, keep, (whole, limit), 1));
        // Both are read at once.
        last.and(trimmed)
    }

    /// Notes the blocks of entries that are deleted, if they are not in memory: the command runs again when
    /// they were read.
    pub fn want_ids(&self, ids: &[StreamId]) -> Result<(), Full> {
        let reading = reading_to_change(self.editing.store);
        if self.is_absent() { Ok(()) } else { self.stream().want_ids(reading, ids) }
    }

    /// Notes the blocks of entries that are looked at, if they are not in memory. Returns whether all are
    /// there.
    pub fn wants(&self, ids: impl Iterator<Item = StreamId>) -> bool {
        if self.has_away() {
            let (stream, reading) = (self.stream(), reading_to_change(self.editing.store));
            ids.for_each(|id| _ = stream.want_block(reading, stream.find(id)));
        }
        self.was_shown()
    }

    /// Returns whether a block is not in memory.
    #[inline]
    pub fn has_away(&self) -> bool {
        !self.is_absent() && self.stream().nodes.away() > 0
    }

    /// Returns whether all that the command has looked at was in memory. If not it must change nothing.
    pub fn was_shown(&self) -> bool {
        !self.editing.store.cold.has_failed()
    }

    /// Puts a block of entries after all others.
    pub fn put_block(&mut self, block: &NewBlock) -> Result<(), Full> {
        self.create()?;
        self.editing.changed = true;
        let (stream, mut room) = self.parts();
        stream.put_block(&mut room, block)
    }

    /// Deletes an entry. Returns whether it was there.
    pub fn delete(&mut self, id: StreamId) -> Result<bool, Full> {
        let (stream, mut room) = self.parts();
        let deleted = stream.delete(&mut room, id)?;
        self.editing.changed |= deleted;
        Ok(deleted)
    }

    /// The id of the first entry that is in a block, deleted or not; the highest possible one if there is
    /// none.
    pub fn first_of_blocks(&self) -> StreamId {
        self.stream().blocks().next().unwrap_or(StreamId::MAX)
    }

    /// Takes entries from the front. `whole`: only whole blocks. At most `limit` entries, if it is not 0.
    /// Returns how many went.
    pub fn trim(&mut self, keep: Trim, whole: bool, limit: u64) -> Result<u64, Full> {
        let (stream, mut room) = self.parts();
        let gone = stream.trim(&mut room, keep, whole, limit)?;
        self.editing.changed |= gone > 0;
        Ok(gone)
    }

    /// Entries from the lower to the higher id, both included.
    pub fn range(&self, from: StreamId, to: StreamId) -> Range<'_> {
        self.stream().range(reading_to_change(self.editing.store), from, to)
    }

    /// Returns the entries from the higher to the lower id, both included.
    pub fn range_back(&self, from: StreamId, to: StreamId) -> RangeBack<'_> {
        self.stream().range_back(reading_to_change(self.editing.store), from, to)
    }
}

impl Structure for Stream {
    fn len(&self) -> u64 {
        Stream::len(self)
    }

    fn memory_bytes(&self) -> u64 {
        Stream::memory_bytes(self) as u64
    }

    fn footprint(&self) -> Footprint {
        let malloc_bytes = self.nodes.table_bytes() + self.table_bytes();
        Footprint { malloc_bytes: malloc_bytes as u64, ..Footprint::default() }
    }

    fn encoding(&self) -> Encoding {
        Encoding::Stream
    }

    fn nodes(&self) -> u64 {
        self.chain.items()
    }

    fn away_nodes(&self) -> u64 {
        u64::from(self.nodes.away())
    }

    fn relocate(&mut self, store: &mut Store, id: u32, handle: Handle) -> bool {
        let size = super::Block(store.heap.bytes(handle, super::block::SHARED_HEAD_BYTES)).room();
        let Ok((moved, _)) = store.heap.reallocate(handle, size, size) else { return false };
        if moved != handle {
            self.nodes.relocate(id, handle, moved);
        }
        moved != handle
    }

    fn free_step(&mut self, store: &mut Store, nodes_max: usize) -> bool {
        self.free_pieces(&mut room_of(store, NO_TIME), nodes_max)
    }

    fn set_saving(&mut self, saving: bool) {
        self.keep_cut(saving);
    }

    fn emit_step(&mut self, store: &mut Store, _: &mut u64, receiver: &mut dyn Receiver) -> bool {
        self.emit_cut(&mut room_of(store, NO_TIME), receiver)
    }

    fn duplicate(&self, store: &mut Store, number: u32) -> Result<Object, Full> {
        self.nodes.refuse_away(reading_of(store))?;
        self.copied(None, store, number)
    }

    fn duplicate_from(&self, from: &Store, store: &mut Store, number: u32) -> Result<Object, Full> {
        self.nodes.refuse_away(reading_of(from))?;
        self.copied(Some(reading_of(from)), store, number)
    }

    fn forget_step(&mut self, store: &mut Store, nodes_max: usize) -> bool {
        self.forget_cut(&mut room_of(store, NO_TIME), nodes_max)
    }

    fn kept_bytes(&self) -> u64 {
        self.cut.as_ref().map_or(0, |cut| cut.blocks.kept_bytes())
    }

    /// Pending entries outlive those of the stream.
    fn parts(&self) -> u64 {
        Stream::len(self) + self.groups.iter().map(|(_, group)| group.parts()).sum::<u64>()
    }

    fn has_garbage(&self) -> bool {
        Stream::has_garbage(self)
    }

    fn sweep_step(&mut self, store: &mut Store, nodes_max: usize) -> bool {
        self.sweep(&mut room_of(store, NO_TIME), nodes_max)
    }

    fn check_invariants(&self, store: &Store, _: u32) -> u64 {
        Stream::check_invariants(self, reading_of(store));
        self.nodes.len() as u64
    }

    fn large_bodies(&self, _: &Store) -> u64 {
        self.large
    }
}

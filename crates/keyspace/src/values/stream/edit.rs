//! Changes of a stream's entries. Whatever can fail for want of memory comes before the first change.

use super::Stream;
use super::block::{self, Block, HEAD_BYTES, NewBlock, SHARED_HEAD_BYTES};
use super::group::ConsumerGroups;
use super::id::StreamId;
use super::image::{self, StreamImage};
use super::shown::{Piece, Shown};
use crate::layout::chain::{At, Chain};
use crate::layout::kind::Full;
use crate::values::blocks::room_of;
use crate::values::nodes::{NODE_HEAD_BYTES, Reading, Room, node_bytes};
use crate::values::object::Object;
use crate::values::store::Store;
use isotherm_arena::OBJECT_BYTES_MAX;
use isotherm_stdx::UnixMs;
use std::sync::Arc;

/// Pieces of debris that are freed with the command that made them, and with each one after it.
const DEBRIS_AT_ONCE: usize = 256;
const DEBRIS_LATER: usize = 16;
/// Groups of pending entries that count as a piece.
const PENDING_AT_ONCE: usize = 4;
/// Pending entries of removed consumers that count as a piece.
const GHOSTS_AT_ONCE: usize = 2;
/// Valkey's block is never larger, whatever the configuration says.
const LISTPACK_BYTES_MAX: usize = 1 << 30;

/// Entries that XTRIM keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trim {
    /// The given number of entries.
    Len(u64),
    /// The entries from this id on.
    From(StreamId),
}

impl Stream {
    /// Puts an entry after all others; its id is higher. `fields` are names and values in turns.
    pub fn add(
        &mut self,
        room: &mut Room<'_>,
        id: StreamId,
        fields: &[&[u8]],
        node_bytes_max: usize,
        node_entries_max: usize,
    ) -> Result<(), Full> {
        debug_assert!(id > self.state.last_id);
        self.want_last(room.reading())?;
        self.sweep(room, DEBRIS_LATER);
        let text_bytes: usize = fields.iter().map(|text| text.len()).sum();
        let last = self.chain.last().filter(|&at| {
            let block = self.block(room.reading(), self.chain.get(at));
            let most =
                if node_bytes_max == 0 { LISTPACK_BYTES_MAX } else { node_bytes_max.min(LISTPACK_BYTES_MAX) };
            let entries = block.live() as usize + block.deleted() as usize;
            (block.listpack() as usize) + text_bytes < most
                && (node_entries_max == 0 || entries < node_entries_max)
        });
        let mut bytes = Vec::with_capacity(block::addition_bytes(fields.len(), text_bytes));
        match last {
            Some(at) => self.add_to_block(room, at, id, fields, &mut bytes)?,
            None => self.add_block(room, id, fields, &mut bytes)?,
        }
        if self.len() == 1 {
            self.state.first_id = id;
        }
        self.state.last_id = id;
        self.count_added(1);
        Ok(())
    }

    fn add_to_block(
        &mut self,
        room: &mut Room<'_>,
        at: At,
        id: StreamId,
        fields: &[&[u8]],
        bytes: &mut Vec<u8>,
    ) -> Result<(), Full> {
        self.before_change(room, *self.chain.get(at));
        let block = self.block(room.reading(), self.chain.get(at));
        let addition = block::addition(block, id, fields, bytes);
        let need = block.used() + addition.bytes.len();
        self.make_room(room, at, need)?;
        block::append(self.bytes_mut(room, at)?, &addition);
        self.chain.update(at, |piece| piece.live += 1);
        *bytes = addition.bytes;
        Ok(())
    }

    fn add_block(
        &mut self,
        room: &mut Room<'_>,
        id: StreamId,
        fields: &[&[u8]],
        bytes: &mut Vec<u8>,
    ) -> Result<(), Full> {
        let addition = block::begin(id, fields, bytes);
        let need = HEAD_BYTES + addition.bytes.len();
        let piece = self.new_piece(room, id, need)?;
        if let Some(last) = self.chain.last() {
            self.tighten(room, last);
        }
        self.chain.push_back(Piece { live: 1, ..piece });
        let at = self.chain.last().expect("it was just put there");
        let target = self.bytes_mut(room, at)?;
        block::init(target, id);
        block::append(target, &addition);
        Ok(())
    }

    /// Puts a block after all others; its ids are higher, and it has an entry.
    pub fn put_block(&mut self, room: &mut Room<'_>, new: &NewBlock) -> Result<(), Full> {
        let block = new.block();
        debug_assert!(block.first() > self.state.last_id && block.live() > 0);
        self.sweep(room, DEBRIS_LATER);
        let piece = self.new_piece(room, block.first(), block.used())?;
        self.chain.push_back(Piece { live: block.live(), ..piece });
        let at = self.chain.last().expect("it was just put there");
        let target = self.bytes_mut(room, at)?;
        target[SHARED_HEAD_BYTES..block.used()].copy_from_slice(&block.0[SHARED_HEAD_BYTES..]);
        if self.state.first_id == StreamId::MIN {
            self.state.first_id = block.first();
        }
        self.state.last_id = block.last();
        self.count_added(u64::from(block.live()));
        Ok(())
    }

    /// A payload may bring the highest number of all: it stays.
    fn count_added(&mut self, entries: u64) {
        self.state.entries_added = self.state.entries_added.saturating_add(entries);
    }

    fn new_piece(&mut self, room: &mut Room<'_>, first: StreamId, bytes: usize) -> Result<Piece, Full> {
        if bytes > OBJECT_BYTES_MAX {
            let number = room.large.insert(bytes)?;
            (self.large, self.large_bytes) = (self.large + 1, self.large_bytes + bytes as u64);
            return Ok(Piece { first, number, large: true, live: 0 });
        }
        let (number, _) = self.nodes.allocate(room, bytes)?;
        let handle = self.nodes.handle(number);
        let size = node_bytes(bytes);
        let now = room.now;
        let node = room.heap.bytes_mut(handle, size);
        block::set_room(node);
        block::set_stamp(node, now);
        Ok(Piece { first, number, large: false, live: 0 })
    }

    /// Makes a block able to hold `need` bytes; a quarter more if it has to move.
    fn make_room(&mut self, room: &mut Room<'_>, at: At, need: usize) -> Result<(), Full> {
        let piece = *self.chain.get(at);
        let block = self.block(room.reading(), &piece);
        let (used, size) = (block.used(), block.0.len());
        if need <= size {
            return Ok(());
        }
        if piece.large {
            room.large.grow(piece.number, need)?;
            self.large_bytes += (need - size) as u64;
            return Ok(());
        }
        if need <= OBJECT_BYTES_MAX {
            let bytes = (need + need / 4).min(OBJECT_BYTES_MAX);
            return self.resize(room, piece.number, size, used, bytes);
        }
        let copy = block.0[..used].to_vec();
        let new = self.new_piece(room, piece.first, need)?;
        room.large.grow(new.number, 0)?[..used].copy_from_slice(&copy);
        self.nodes.release(room, piece.number, size);
        self.chain.update(at, |found| *found = Piece { live: piece.live, ..new });
        Ok(())
    }

    fn resize(
        &mut self,
        room: &mut Room<'_>,
        node: u32,
        size: usize,
        used: usize,
        bytes: usize,
    ) -> Result<(), Full> {
        self.nodes.replace(room, node, size, bytes, |old, new| {
            new[NODE_HEAD_BYTES..used].copy_from_slice(&old[NODE_HEAD_BYTES..used]);
            block::set_room(new);
        })
    }

    /// A block that gets no more entries needs no more room than it has in use.
    fn tighten(&mut self, room: &mut Room<'_>, at: At) {
        let piece = *self.chain.get(at);
        let block = self.block(room.reading(), &piece);
        let (used, size) = (block.used(), block.0.len());
        if !piece.large && node_bytes(used) < size {
            self.before_change(room, piece);
            // Without memory for a smaller block the larger one stays.
            let _ = self.resize(room, piece.number, size, used, used);
        }
    }

    fn bytes_mut<'r>(&self, room: &'r mut Room<'_>, at: At) -> Result<&'r mut [u8], Full> {
        let piece = *self.chain.get(at);
        if piece.large {
            return room.large.grow(piece.number, 0);
        }
        let handle = self.nodes.handle(piece.number);
        let size = Block(room.heap.bytes(handle, HEAD_BYTES)).room();
        Ok(room.heap.bytes_mut(handle, size))
    }

    /// Deletes an entry. Returns whether it was there.
    pub fn delete(&mut self, room: &mut Room<'_>, id: StreamId) -> Result<bool, Full> {
        let Some(at) = self.find(id) else { return Ok(false) };
        self.want_block(room.reading(), Some(at))?;
        let piece = *self.chain.get(at);
        let block = self.block(room.reading(), &piece);
        let found = block.entries().find(|entry| entry.id >= id);
        let Some(entry) = found.filter(|entry| entry.id == id && !entry.is_deleted()) else {
            return Ok(false);
        };
        let start = entry.start;
        if piece.live == 1 && id == self.state.first_id {
            self.want_block(room.reading(), self.chain.next(at))?;
        }
        self.delete_at(room, at, start)?;
        if id == self.state.first_id {
            self.find_first(room);
        }
        Ok(true)
    }

    fn delete_at(&mut self, room: &mut Room<'_>, at: At, start: usize) -> Result<(), Full> {
        if self.chain.get(at).live == 1 {
            let piece = self.chain.remove(at);
            self.free_piece(room, piece);
            return Ok(());
        }
        self.before_change(room, *self.chain.get(at));
        block::delete(self.bytes_mut(room, at)?, start);
        self.chain.update(at, |piece| piece.live -= 1);
        Ok(())
    }

    fn find_first(&mut self, room: &Room<'_>) {
        let mut entries = self.range(room.reading(), StreamId::MIN, StreamId::MAX).at_most(1);
        let first = entries.next().map(|entry| entry.id);
        self.state.first_id = first.unwrap_or(StreamId::MIN);
    }

    /// Takes entries from the front. `whole`: only whole blocks (XTRIM ~). At most `limit` entries, if it is
    /// not 0. Returns how many went.
    pub fn trim(&mut self, room: &mut Room<'_>, keep: Trim, whole: bool, limit: u64) -> Result<u64, Full> {
        self.want_trim(room.reading(), keep, (whole, limit), 0)?;
        self.sweep(room, DEBRIS_LATER);
        let (mut gone, mut next) = (0, self.chain.first());
        let mut stopped = true;
        while let Some(at) = next {
            let live = self.chain.get(at).live.into();
            let left = self.len() - gone;
            if matches!(keep, Trim::Len(len) if left <= len) || limit > 0 && gone + live > limit {
                break;
            }
            if !self.goes_whole(room.reading(), at, keep, left, live) {
                stopped = false;
                break;
            }
            gone += live;
            next = self.chain.next(at);
        }
        if let Some(at) = next.filter(|&at| !stopped && !whole && self.chain.get(at).large) {
            // It may be shared: without memory for a copy nothing is trimmed.
            self.before_change(room, *self.chain.get(at));
            self.bytes_mut(room, at)?;
        }
        if let Some(first) = self.chain.first().filter(|&first| next != Some(first)) {
            let cut = self.chain.remove_range(first, next);
            self.debris.append(cut);
            self.sweep(room, DEBRIS_AT_ONCE);
        }
        if !stopped && !whole {
            gone += self.trim_first_block(room, keep)?;
        }
        if gone > 0 {
            self.find_first(room);
        }
        Ok(gone)
    }

    /// Returns whether a block of `live` entries goes as a whole, if `left` entries are left.
    pub(super) fn goes_whole(&self, reading: Reading<'_>, at: At, keep: Trim, left: u64, live: u64) -> bool {
        match keep {
            Trim::Len(len) => left - live >= len,
            Trim::From(id) if self.chain.get(at).first >= id => false,
            Trim::From(id) => match self.chain.next(at) {
                Some(next) if self.chain.get(next).first <= id => true,
                _ => self.block(reading, self.chain.get(at)).last() < id,
            },
        }
    }

    /// Entry by entry, within the block that does not go as a whole.
    fn trim_first_block(&mut self, room: &mut Room<'_>, keep: Trim) -> Result<u64, Full> {
        let Some(at) = self.chain.first() else { return Ok(0) };
        if matches!(keep, Trim::From(id) if self.chain.get(at).first >= id) {
            return Ok(0);
        }
        let most = match keep {
            Trim::Len(len) => self.len() - len,
            Trim::From(_) => u64::MAX,
        };
        let block = self.block(room.reading(), self.chain.get(at));
        let starts: Vec<usize> = block
            .entries()
            .filter(|entry| !entry.is_deleted())
            .take_while(|entry| !matches!(keep, Trim::From(id) if entry.id >= id))
            .take(usize::try_from(most).unwrap_or(usize::MAX))
            .map(|entry| entry.start)
            .collect();
        for &start in &starts {
            self.delete_at(room, at, start)?;
        }
        Ok(starts.len() as u64)
    }

    /// Frees what was cut off, up to `pieces_max` pieces. Returns true when there is nothing left of it.
    pub fn sweep(&mut self, room: &mut Room<'_>, pieces_max: usize) -> bool {
        for _ in 0..pieces_max {
            if let Some(piece) = self.cut.as_mut().and_then(|cut| cut.blocks.take_waste()) {
                self.release(room, piece);
            } else if let Some(at) = self.debris.last() {
                let piece = self.debris.remove(at);
                self.free_piece(room, piece);
            } else if !self.drop_gone() && !self.sweep_groups() {
                return true;
            }
        }
        !self.has_garbage()
    }

    /// Returns whether something is to be freed, in steps.
    pub fn has_garbage(&self) -> bool {
        !self.debris.is_empty() || !self.gone.is_empty() || self.groups.has_garbage()
    }

    /// Takes out some entries that were pending with consumers that are gone. Returns false if there are
    /// none.
    fn sweep_groups(&mut self) -> bool {
        self.groups.has_garbage() && Arc::make_mut(&mut self.groups).sweep(GHOSTS_AT_ONCE)
    }

    /// Drops some of the groups that are gone. Returns false if there are none.
    fn drop_gone(&mut self) -> bool {
        let Some(last) = self.gone.last_mut() else { return false };
        // One that a snapshot shares is the snapshot's to drop.
        if Arc::get_mut(last).is_none_or(|group| group.drop_step(PENDING_AT_ONCE)) {
            self.gone.pop();
        }
        true
    }

    /// Removes a group. Returns whether it was there.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        let removed = Arc::make_mut(&mut self.groups).remove(name);
        let there = removed.is_some();
        self.gone.extend(removed);
        there
    }

    /// Frees everything in steps of `pieces_max` pieces. Returns true when it is done.
    pub fn free_pieces(&mut self, room: &mut Room<'_>, pieces_max: usize) -> bool {
        self.debris.append(std::mem::replace(&mut self.chain, Chain::new()));
        self.state.first_id = StreamId::MIN;
        let groups = std::mem::take(&mut self.groups);
        self.gone.extend(Arc::into_inner(groups).into_iter().flat_map(ConsumerGroups::into_groups));
        self.sweep(room, pieces_max)
    }

    fn free_piece(&mut self, room: &mut Room<'_>, piece: Piece) {
        if !self.is_kept(room, piece) {
            self.release(room, piece);
        }
    }

    fn release(&mut self, room: &mut Room<'_>, piece: Piece) {
        let size = self.block(room.reading(), &piece).0.len();
        if piece.large {
            (self.large, self.large_bytes) = (self.large - 1, self.large_bytes - size as u64);
            room.large.remove(piece.number);
        } else {
            self.nodes.release(room, piece.number, size);
        }
    }

    /// Writes its image after the bytes in `out`.
    pub fn write_image(&self, reading: Reading<'_>, out: &mut Vec<u8>) {
        image::write(&self.shown(reading), out);
    }

    /// The stream of an image, under a number that is reserved for it.
    pub fn of_image(number: u32, room: &mut Room<'_>, bytes: &[u8]) -> Result<Stream, Full> {
        let image = StreamImage::open(bytes);
        let mut stream = Stream::new(number);
        if let Err(full) = stream.copy_from(room, &image.shown(bytes)) {
            while !stream.free_pieces(room, usize::MAX) {}
            return Err(full);
        }
        stream.groups = Arc::new(image.into_groups());
        Ok(stream)
    }

    /// Fills this empty stream with copies of the blocks of one that lies elsewhere. Groups are the caller's
    /// to set.
    pub fn copy_from(&mut self, room: &mut Room<'_>, other: &Shown<'_>) -> Result<(), Full> {
        for piece in other.chain.iter() {
            let block = other.bodies.block(piece);
            let used = block.used();
            let copy = self.new_piece(room, piece.first, used)?;
            self.chain.push_back(Piece { live: piece.live, ..copy });
            let at = self.chain.last().expect("it was just put there");
            let target = self.bytes_mut(room, at)?;
            target[SHARED_HEAD_BYTES..used].copy_from_slice(&block.0[SHARED_HEAD_BYTES..used]);
        }
        self.state = *other.state;
        Ok(())
    }

    /// Makes the same stream again in `store`. `from`: where this one lies, if that is another store.
    pub fn copied(&self, from: Option<Reading<'_>>, store: &mut Store, number: u32) -> Result<Object, Full> {
        let mut copy = Stream::new(number);
        let mut room = room_of(store, UnixMs(0));
        match copy.copy_of(&mut room, self, from) {
            Ok(()) => Ok(Object::Stream(copy)),
            Err(full) => {
                while !copy.free_pieces(&mut room, usize::MAX) {}
                Err(full)
            }
        }
    }

    /// Fills this empty stream with copies of another one's blocks; large ones are shared. `from`: where that
    /// one lies, if it is in another store.
    fn copy_of(
        &mut self,
        room: &mut Room<'_>,
        other: &Stream,
        from: Option<Reading<'_>>,
    ) -> Result<(), Full> {
        for piece in other.chain.iter() {
            let number = if piece.large {
                let body = from.map_or(&*room.large, |from| from.large).share(piece.number);
                (self.large, self.large_bytes) = (self.large + 1, self.large_bytes + body.len() as u64);
                room.large.adopt(body)
            } else {
                let size = other.block(from.unwrap_or(room.reading()), piece).room();
                let (copy, _) = self.nodes.allocate(room, size)?;
                let (source, target) = (other.nodes.handle(piece.number), self.nodes.handle(copy));
                let (source, target) = match from {
                    Some(from) => (from.heap.bytes(source, size), room.heap.bytes_mut(target, size)),
                    None => room.heap.bytes_pair((source, size), (target, size)),
                };
                target[NODE_HEAD_BYTES..].copy_from_slice(&source[NODE_HEAD_BYTES..]);
                copy
            };
            self.chain.push_back(Piece { number, ..*piece });
        }
        (self.state, self.groups) = (other.state, other.groups.clone());
        Ok(())
    }
}

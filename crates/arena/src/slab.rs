//! The side table: one record per chunk of 16 KB, in a reservation of its own that is committed as the arena
//! grows.
//!
//! ```text
//!   Record, 32 B = 0.2 % of a chunk
//!    0 shape u16 | 2 live u16 | 4 next u32 | 8 prev u32 | 12 state u8 | 13 list u8 | 14 order u8 | 15 resident u8
//!   16 room [u64; 2]     bit i set = object i is free; a slab of more than 128 objects has its bits in the slab
//! ```
//!
//! A slab of several chunks uses the record of its first one; the others only carry the shape, whose slab
//! size leads to the first, because slabs are aligned to their size. The table is address space (32 B x 4 M
//! chunks = 128 MB for an arena of 64 GB), so it never moves and growing it never copies.
//!
//! `next` and `prev` are chunk numbers; 0 ends a list, because chunk 0 is never given out.

#![allow(unsafe_code)]

use crate::class::{CHUNK_BYTES, CLASS_COUNT, ORDERS, SHAPES, Shape};
use crate::handle::UNIT_BYTES;
use crate::heap::ClassState;
use crate::reserve::Region;
use crate::{Exhausted, ReserveError};
use std::ops::Range;

pub(crate) const UNITS_PER_CHUNK: u32 = (CHUNK_BYTES / UNIT_BYTES) as u32;

/// The table grows by 64 KB: the records of 2048 chunks, 32 MB of arena.
#[cfg(not(miri))]
const TABLE_STEP: usize = 64 << 10;
#[cfg(miri)]
const TABLE_STEP: usize = 4 << 10;

/// States of a chunk. 0 is a chunk that was never touched, so a fresh table is a valid one.
pub(crate) mod state {
    pub const FRESH: u8 = 0;
    /// First chunk of a free block of `1 << order` chunks.
    pub const FREE: u8 = 1;
    /// The rest of a free block.
    pub const FREE_REST: u8 = 2;
    /// First chunk of a slab in service.
    pub const SLAB: u8 = 3;
    /// First chunk of the slab that compaction is emptying: nothing is allocated from it.
    pub const EVACUATING: u8 = 4;
    /// The rest of a slab, whichever of the two.
    pub const SLAB_REST: u8 = 5;
    /// On its way back to the kernel, in no list.
    pub const LEAVING: u8 = 6;
    /// Chunk 0.
    pub const NEVER: u8 = 7;
}

/// `list` of a chunk that is in no list.
pub(crate) const NO_LIST: u8 = u8::MAX;

#[derive(Copy, Clone, Debug)]
#[repr(C)]
pub(crate) struct Record {
    /// Class and order of the slab.
    pub shape: u16,
    /// Objects not free, the hot one included.
    pub live: u16,
    pub next: u32,
    pub prev: u32,
    pub state: u8,
    /// Slab: one of its class's. Free block: the list of the pool.
    pub list: u8,
    pub order: u8,
    /// 1 if the kernel may have pages behind this chunk.
    pub resident: u8,
    pub room: [u64; 2],
}

const _: () = assert!(size_of::<Record>() == 32);
const _: () = assert!(CLASS_COUNT * ORDERS <= u16::MAX as usize);

pub(crate) struct Table {
    region: Region,
}

impl Table {
    /// A table for an arena of `arena_bytes`.
    pub fn new(arena_bytes: usize) -> Result<Table, ReserveError> {
        let bytes = (arena_bytes / CHUNK_BYTES * size_of::<Record>()).next_multiple_of(4096);
        Ok(Table { region: Region::reserve(bytes, TABLE_STEP)? })
    }

    /// Makes the records of the first `chunks` chunks usable.
    pub fn commit_to(&mut self, chunks: u32) -> Result<(), Exhausted> {
        self.region.commit_to(chunks as usize * size_of::<Record>())
    }

    pub fn get(&self, chunk: u32) -> &Record {
        &self.records()[chunk as usize]
    }

    pub fn get_mut(&mut self, chunk: u32) -> &mut Record {
        &mut self.records_mut()[chunk as usize]
    }

    /// Bytes of the table that hold records of chunks below `chunks`, in whole pages of the system.
    pub fn touched_bytes(&self, chunks: u32) -> usize {
        (chunks as usize * size_of::<Record>()).next_multiple_of(4096)
    }

    pub fn addresses(&self) -> Range<usize> {
        self.region.addresses()
    }

    pub fn reserved_bytes(&self) -> usize {
        self.region.reserved()
    }

    fn records(&self) -> &[Record] {
        let count = self.region.committed() / size_of::<Record>();
        // SAFETY: the bytes are committed, aligned to a page, and zero or written through `records_mut`;
        // every bit pattern is a Record. The table is reached only through the arena's lock, so `&self`
        // excludes writers.
        unsafe { std::slice::from_raw_parts(self.region.base().as_ptr().cast::<Record>(), count) }
    }

    fn records_mut(&mut self) -> &mut [Record] {
        let count = self.region.committed() / size_of::<Record>();
        // SAFETY: as above; `&mut self` excludes every other access.
        unsafe { std::slice::from_raw_parts_mut(self.region.base().as_ptr().cast::<Record>(), count) }
    }
}

/// A doubly linked list of chunks, threaded through their records.
pub(crate) fn link(table: &mut Table, head: &mut u32, chunk: u32) {
    let next = *head;
    if next != 0 {
        table.get_mut(next).prev = chunk;
    }
    let record = table.get_mut(chunk);
    record.next = next;
    record.prev = 0;
    *head = chunk;
}

pub(crate) fn unlink(table: &mut Table, head: &mut u32, chunk: u32) {
    let Record { next, prev, .. } = *table.get(chunk);
    if next != 0 {
        table.get_mut(next).prev = prev;
    }
    if prev != 0 {
        table.get_mut(prev).next = next;
    } else {
        assert!(*head == chunk, "a chunk is unlinked from a list that it is not in");
        *head = next;
    }
}

/// Place of an object.
#[derive(Copy, Clone)]
pub(crate) struct Place {
    /// First chunk of its slab.
    pub chunk: u32,
    pub index: usize,
    pub shape: &'static Shape,
}

impl Place {
    /// The place that a handle names. A handle that names none is a bug of the caller.
    pub fn of(table: &Table, handle_raw: u32) -> Place {
        let (chunk, shape, offset) = slab_around(table, handle_raw).expect("the handle points to no slab");
        Place { chunk, index: shape.index_at(offset), shape }
    }

    /// Returns the place that a number names. The number may name no object: a victim that was freed before
    /// its owner's lock was taken.
    pub fn find(table: &Table, handle_raw: u32) -> Option<Place> {
        let (chunk, shape, offset) = slab_around(table, handle_raw)?;
        shape.starts_object(offset).then(|| Place { chunk, index: shape.index_at(offset), shape })
    }

    pub fn handle_raw(self) -> u32 {
        let offset = self.shape.object_offset(self.index);
        self.chunk * UNITS_PER_CHUNK + (offset / UNIT_BYTES) as u32
    }

    pub fn class(self) -> usize {
        self.shape.class as usize
    }

    fn byte_offset(self) -> usize {
        self.chunk as usize * CHUNK_BYTES
    }

    pub fn owner(self, memory: &Region) -> u16 {
        let at = memory.at(self.byte_offset() + 2 * self.index, 2).cast::<u16>();
        // SAFETY: committed and aligned (chunks are aligned to 4 KB). The header of a slab is touched only
        // under the arena's lock, and no object overlaps it.
        unsafe { at.read() }
    }

    pub fn set_owner(self, memory: &Region, owner: u16) {
        let at = memory.at(self.byte_offset() + 2 * self.index, 2).cast::<u16>();
        // SAFETY: as above.
        unsafe { at.write(owner) }
    }
}

/// The slab that an address lies in: its first chunk, its shape, and the bytes from its start.
fn slab_around(table: &Table, handle_raw: u32) -> Option<(u32, &'static Shape, usize)> {
    let record = table.get(handle_raw / UNITS_PER_CHUNK);
    if !matches!(record.state, state::SLAB | state::EVACUATING | state::SLAB_REST) {
        return None;
    }
    let shape = &SHAPES[record.shape as usize];
    let slab_units = UNITS_PER_CHUNK << shape.order;
    let chunk = (handle_raw & !(slab_units - 1)) / UNITS_PER_CHUNK;
    Some((chunk, shape, (handle_raw & (slab_units - 1)) as usize * UNIT_BYTES))
}

/// The room bits of a slab: in the record, or after the owners in the slab.
pub(crate) fn room_word(table: &Table, memory: &Region, chunk: u32, shape: &Shape, word: usize) -> u64 {
    if shape.room_is_inline() {
        return table.get(chunk).room[word];
    }
    // SAFETY: see `room_address`.
    unsafe { room_address(memory, chunk, shape, word).read() }
}

pub(crate) fn set_room_word(
    table: &mut Table,
    memory: &Region,
    chunk: u32,
    shape: &Shape,
    word: usize,
    bits: u64,
) {
    if shape.room_is_inline() {
        table.get_mut(chunk).room[word] = bits;
        return;
    }
    // SAFETY: see `room_address`.
    unsafe { room_address(memory, chunk, shape, word).write(bits) }
}

/// The address is committed and aligned to 8 (`owners_bytes` is rounded to it); it lies in the slab's header,
/// which no object overlaps and which is touched only under the arena's lock.
fn room_address(memory: &Region, chunk: u32, shape: &Shape, word: usize) -> std::ptr::NonNull<u64> {
    debug_assert!(word < shape.room_words());
    memory.at(chunk as usize * CHUNK_BYTES + shape.room_offset() + 8 * word, 8).cast::<u64>()
}

/// Class states that are zero without being touched: 29 KB (457 x 64 B) that an arena in use touches a few
/// pages of.
pub(crate) fn zeroed_class_states() -> Box<[ClassState]> {
    let states = Box::<[ClassState]>::new_zeroed_slice(CLASS_COUNT);
    // SAFETY: a ClassState consists of integers, for which zero is a value.
    unsafe { states.assume_init() }
}

//! What leaves, inner nodes and index pages have in common: a head, a number, and a table that says where each is.
//!
//! ```text
//!   0            4            8        9      10      12     13
//!   [object u32][number u32][version][count][used u16][class] ...
//!
//!   number   0 .. 2^24        a leaf                 class   x 32 B: the node's size, whatever is used of it
//!            2^30 + n         inner node n           version of the last snapshot that saw it (leaves)
//!            2^31 + n         index page n
//! ```
//!
//! Nodes refer to each other by number only, so that compaction moves a node by changing one word of a table.

use crate::heap::Heap;
use crate::key::KeyHasher;
use crate::value::Full;
use isotherm_arena::{Handle, Kind};

const OBJECT: usize = 0;
const NUMBER: usize = 4;
const VERSION: usize = 8;
const COUNT: usize = 9;
const USED: usize = 10;
const CLASS: usize = 12;
pub(super) const HEAD_BYTES: usize = 13;

/// Nodes come in classes of so many bytes and multiples.
const CLASS_UNIT_BYTES: usize = 32;
pub(super) const NODE_BYTES_MAX: usize = 255 * CLASS_UNIT_BYTES;

pub(super) const INNER: u32 = 1 << 30;
pub(super) const INDEX: u32 = 1 << 31;
/// A leaf's number takes 24 bits in the member index.
pub(super) const LEAVES_MAX: u32 = 1 << 24;

/// What a change of a sorted set needs from its partition.
pub(crate) struct Room<'a> {
    pub heap: &'a mut Heap,
    pub hasher: &'a KeyHasher,
    /// The version that nodes are born with.
    pub version: u8,
}

// ---- the head ----

#[inline]
pub(super) fn count(node: &[u8]) -> usize {
    usize::from(node[COUNT])
}
#[inline]
pub(super) fn set_count(node: &mut [u8], count: usize) {
    node[COUNT] = u8::try_from(count).expect("a node counts to 255");
}
#[inline]
pub(super) fn used(node: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([node[USED], node[USED + 1]]))
}
#[inline]
pub(super) fn set_used(node: &mut [u8], used: usize) {
    debug_assert!(used <= node.len());
    node[USED..USED + 2].copy_from_slice(&(used as u16).to_le_bytes());
}
#[inline]
pub(super) fn version(node: &[u8]) -> u8 {
    node[VERSION]
}
#[inline]
pub(super) fn set_version(node: &mut [u8], version: u8) {
    node[VERSION] = version;
}
#[inline]
pub(super) fn word(node: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(node[at..at + 4].try_into().expect("four bytes"))
}
#[inline]
pub(super) fn set_word(node: &mut [u8], at: usize, word: u32) {
    node[at..at + 4].copy_from_slice(&word.to_le_bytes());
}
/// The object that the node belongs to, and its number there.
pub(super) fn identity(node: &[u8]) -> (u32, u32) {
    (word(node, OBJECT), word(node, NUMBER))
}

// ---- nodes in the arena ----

#[inline]
pub(super) fn bytes(heap: &Heap, handle: Handle) -> &[u8] {
    let class = heap.bytes(handle, HEAD_BYTES)[CLASS];
    heap.bytes(handle, usize::from(class) * CLASS_UNIT_BYTES)
}

#[inline]
pub(super) fn bytes_mut(heap: &mut Heap, handle: Handle) -> &mut [u8] {
    let class = heap.bytes(handle, HEAD_BYTES)[CLASS];
    heap.bytes_mut(handle, usize::from(class) * CLASS_UNIT_BYTES)
}

/// Nodes of one sorted set, and what they take.
pub(super) struct Nodes {
    pub object: u32,
    /// Class-rounded.
    pub live_bytes: usize,
}

impl Nodes {
    /// A node of at least `size` bytes, its head written, nothing used yet.
    pub fn allocate(&mut self, room: &mut Room<'_>, number: u32, size: usize) -> Result<Handle, Full> {
        let (handle, class_bytes) = room.heap.allocate(Kind::Node, size)?;
        let node = room.heap.bytes_mut(handle, class_bytes);
        set_word(node, OBJECT, self.object);
        set_word(node, NUMBER, number);
        set_version(node, room.version);
        set_count(node, 0);
        set_used(node, HEAD_BYTES);
        set_class(node);
        self.live_bytes += class_bytes;
        Ok(handle)
    }

    /// Moves a node, with its first `used` bytes, to the class that `size` bytes need.
    pub fn resize(
        &mut self,
        room: &mut Room<'_>,
        handle: Handle,
        used: usize,
        size: usize,
    ) -> Result<Handle, Full> {
        let old_bytes = bytes(room.heap, handle).len();
        let (handle, class_bytes) = room.heap.reallocate(handle, used, size)?;
        set_class(room.heap.bytes_mut(handle, class_bytes));
        self.live_bytes = self.live_bytes - old_bytes + class_bytes;
        Ok(handle)
    }

    /// A copy of another set's node, as of this one and just born.
    pub fn copy(&mut self, room: &mut Room<'_>, source: &[u8]) -> Result<Handle, Full> {
        let handle = self.allocate(room, word(source, NUMBER), source.len())?;
        let node = bytes_mut(room.heap, handle);
        node[COUNT..CLASS].copy_from_slice(&source[COUNT..CLASS]);
        node[HEAD_BYTES..source.len()].copy_from_slice(&source[HEAD_BYTES..]);
        Ok(handle)
    }

    pub fn release(&mut self, heap: &mut Heap, handle: Handle) {
        self.live_bytes -= bytes(heap, handle).len();
        heap.release(handle);
    }

    /// Whether a node of `have` bytes that needs only `need` is worth a copy: two classes are saved.
    pub fn is_loose(have: usize, need: usize) -> bool {
        isotherm_arena::class_bytes(Kind::Node, need) + 2 * CLASS_UNIT_BYTES <= have
    }
}

fn set_class(node: &mut [u8]) {
    debug_assert!(node.len().is_multiple_of(CLASS_UNIT_BYTES));
    node[CLASS] = u8::try_from(node.len() / CLASS_UNIT_BYTES).expect("no node is larger than 8160 B");
}

// ---- numbers ----

/// Where the nodes of one sort are. Chunks of 4 KB, so that no growth copies much; the last one grows by an eighth,
/// so that a set of a thousand members does not pay for one of a million.
#[derive(Default)]
pub(super) struct Table {
    chunks: Vec<Vec<u32>>,
    len: u32,
    free: Vec<u32>,
}

const CHUNK: usize = 1024;

impl Table {
    /// Numbers given out so far, free ones included.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Numbers in use.
    pub fn live(&self) -> usize {
        self.len as usize - self.free.len()
    }

    #[inline]
    pub fn get(&self, number: u32) -> Handle {
        self.find(number).expect("the number is in use")
    }

    #[inline]
    pub fn find(&self, number: u32) -> Option<Handle> {
        Handle::from_raw(self.chunks[number as usize / CHUNK][number as usize % CHUNK])
    }

    #[inline]
    pub fn set(&mut self, number: u32, handle: Handle) {
        self.chunks[number as usize / CHUNK][number as usize % CHUNK] = handle.raw();
    }

    /// The number that the next `insert` takes.
    pub fn next(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.len)
    }

    /// Gives `next()` a place.
    pub fn insert(&mut self, handle: Handle) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.set(number, handle);
                number
            }
            None => self.push(handle.raw()),
        }
    }

    fn push(&mut self, raw: u32) -> u32 {
        if self.len as usize == self.chunks.len() * CHUNK {
            self.chunks.push(Vec::new());
        }
        let chunk = self.chunks.last_mut().expect("a chunk was just made");
        if chunk.len() == chunk.capacity() {
            let more = (chunk.len() / 8 + 4).min(CHUNK - chunk.len());
            chunk.reserve_exact(more);
        }
        chunk.push(raw);
        self.len += 1;
        self.len - 1
    }

    /// Takes a number out of use.
    pub fn remove(&mut self, number: u32) -> Handle {
        let handle = self.get(number);
        if number + 1 == self.len {
            self.drop_last();
        } else {
            self.chunks[number as usize / CHUNK][number as usize % CHUNK] = 0;
            self.free.push(number);
        }
        handle
    }

    /// Takes the last number away; what was there, if it was in use. Only for tables that are being emptied.
    pub fn pop(&mut self) -> Option<Option<Handle>> {
        let number = self.len.checked_sub(1)?;
        let handle = self.find(number);
        self.drop_last();
        Some(handle)
    }

    fn drop_last(&mut self) {
        self.len -= 1;
        let chunk = self.chunks.last_mut().expect("it held the last number");
        chunk.pop();
        if chunk.is_empty() {
            self.chunks.pop();
        }
    }

    /// The same numbers, each at the place that `copy` finds for it. On an error, as far as it came.
    pub fn duplicate(
        &self,
        target: &mut Table,
        mut copy: impl FnMut(Handle) -> Result<Handle, Full>,
    ) -> Result<(), Full> {
        for number in 0..self.len {
            match self.find(number) {
                Some(handle) => {
                    target.push(copy(handle)?.raw());
                }
                None => {
                    let unused = target.push(0);
                    target.free.push(unused);
                }
            }
        }
        Ok(())
    }

    pub fn memory_bytes(&self) -> usize {
        let words: usize = self.chunks.last().map_or(0, Vec::capacity)
            + self.chunks.len().saturating_sub(1) * CHUNK
            + self.free.capacity();
        words * size_of::<u32>() + self.chunks.capacity() * size_of::<Vec<u32>>()
    }

    pub fn check_invariants(&self) {
        assert_eq!(self.chunks.iter().map(Vec::len).sum::<usize>(), self.len as usize);
        let unused = (0..self.len).filter(|&number| self.find(number).is_none()).count();
        assert_eq!(unused, self.free.len(), "what is not in use is free");
        assert!(self.free.iter().all(|&number| self.find(number).is_none()));
    }
}

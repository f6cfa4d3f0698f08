//! Parts that leaves, inner nodes and index pages share: a head, a number, and a table with the place of each
//! node.
//!
//! ```text
//!   0            4            8        9      10      12     13
//!   [object u32][number u32][version][count][used u16][class] ...
//!
//!   number   0 .. 2^24        a leaf                 class   x 32 B: the node's size, whatever is used of it
//!            2^30 + n         inner node n           version of the last snapshot that saw it (leaves)
//!            2^31 + n         index page n           used    0: the stub of a leaf that is not in memory (`away`)
//! ```
//!
//! Nodes refer to each other by number only, so that compaction moves a node by changing one word of a table.

use crate::layout::heap::Heap;
use crate::layout::key::KeyHasher;
use crate::layout::kind::Full;
use crate::values::cold::Cold;
use isotherm_arena::{Handle, Kind};
use isotherm_stdx::UnixMs;

const OBJECT: usize = 0;
const NUMBER: usize = 4;
const VERSION: usize = 8;
const COUNT: usize = 9;
const USED: usize = 10;
const CLASS: usize = 12;
pub(super) const HEAD_BYTES: usize = 13;

/// Unit of the size classes of nodes, which are its multiples.
const CLASS_UNIT_BYTES: usize = 32;
pub(super) const NODE_BYTES_MAX: usize = 255 * CLASS_UNIT_BYTES;

pub(super) const INNER: u32 = 1 << 30;
pub(super) const INDEX: u32 = 1 << 31;
/// A leaf's number takes 24 bits in the member index.
pub(super) const LEAVES_MAX: u32 = 1 << 24;

/// Access to the parts of a partition that a change of a sorted set needs.
pub(crate) struct Room<'a> {
    pub heap: &'a mut Heap,
    pub hasher: &'a KeyHasher,
    /// State of what is not in memory.
    pub cold: &'a mut Cold,
    /// The version that nodes are born with.
    pub version: u8,
    pub now: UnixMs,
}

/// Access to the parts of a partition that a read of a sorted set needs.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub heap: &'a Heap,
    pub hasher: &'a KeyHasher,
    pub cold: &'a Cold,
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
/// The part of a node's bytes that says what is in it: in its head only count and used.
pub(super) fn bare(node: &[u8], into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&node[..used(node)]);
    into[..COUNT].fill(0);
    into[CLASS] = 0;
}
/// Writes these to a node of the same number again.
pub(super) fn restore(node: &mut [u8], bare: &[u8]) {
    node[COUNT..CLASS].copy_from_slice(&bare[COUNT..CLASS]);
    node[HEAD_BYTES..bare.len()].copy_from_slice(&bare[HEAD_BYTES..]);
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

    /// Returns whether a node of `have` bytes that needs only `need` is worth a copy: two classes are saved.
    pub fn is_loose(have: usize, need: usize) -> bool {
        isotherm_arena::class_bytes(Kind::Node, need) + 2 * CLASS_UNIT_BYTES <= have
    }
}

fn set_class(node: &mut [u8]) {
    debug_assert!(node.len().is_multiple_of(CLASS_UNIT_BYTES));
    node[CLASS] = u8::try_from(node.len() / CLASS_UNIT_BYTES).expect("no node is larger than 8160 B");
}

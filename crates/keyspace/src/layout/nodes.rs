//! The nodes of one collection: movable objects of the arena, known by small numbers.
//!
//! ```text
//!   node      [object u32][id u32][version u8] ...          whose it is, which one, and the snapshot that saw it last
//!   handles   id -> where it lies now                       4 B a node; the only reference to it
//! ```
//!
//! Compaction meets a node by its address, reads from its head whose it is, and has that object change its table.
//! Whatever else refers to a node does so by its id.

use crate::layout::heap::Heap;
use crate::layout::kind::Full;
use crate::layout::large::Large;
use crate::layout::pile::Pile;
use isotherm_arena::{Handle, Kind, class_bytes, prefetch_value};

/// Bytes at the beginning of every node.
pub(crate) const NODE_HEAD_BYTES: usize = 9;

/// Where a structure keeps its nodes and its large elements, to change them.
pub(crate) struct Room<'a> {
    pub heap: &'a mut Heap,
    pub large: &'a mut Large,
    /// Carried by whatever the latest snapshot has seen, and by what was born since it began.
    pub epoch: u8,
}

/// The same to read.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub heap: &'a Heap,
    pub large: &'a Large,
}

impl Room<'_> {
    pub fn reading(&self) -> Reading<'_> {
        Reading { heap: self.heap, large: self.large }
    }
}

/// A node's number within its object.
pub(crate) type NodeId = u32;

pub(crate) struct Nodes {
    object: u32,
    handles: Table,
    /// Bytes of the classes of all nodes.
    bytes: u64,
}

impl Nodes {
    pub fn new(object: u32) -> Nodes {
        Nodes { object, handles: Table::default(), bytes: 0 }
    }

    pub fn len(&self) -> usize {
        self.handles.live()
    }

    /// Class-rounded bytes in the arena, and those of the table.
    pub fn memory_bytes(&self) -> usize {
        self.bytes as usize + self.table_bytes()
    }

    /// Of the global allocator.
    pub fn table_bytes(&self) -> usize {
        self.handles.memory_bytes()
    }

    #[inline]
    pub fn handle(&self, id: NodeId) -> Handle {
        self.handles.get(id)
    }

    /// Asks for the line from which `handle` reads.
    #[inline]
    pub fn prefetch_handle(&self, id: NodeId) {
        self.handles.prefetch(id);
    }

    /// A new node of at least `bytes`: its number and what it really has. Only its head is written.
    pub fn allocate(&mut self, room: &mut Room<'_>, bytes: usize) -> Result<(NodeId, usize), Full> {
        let (handle, size) = room.heap.allocate(Kind::Node, bytes)?;
        let id = self.handles.insert(handle);
        self.bytes += size as u64;
        self.write_head(room, handle, id);
        Ok((id, size))
    }

    fn write_head(&self, room: &mut Room<'_>, handle: Handle, id: NodeId) {
        let epoch = room.epoch;
        let head = room.heap.bytes_mut(handle, NODE_HEAD_BYTES);
        head[..4].copy_from_slice(&self.object.to_le_bytes());
        head[4..8].copy_from_slice(&id.to_le_bytes());
        head[8] = epoch;
    }

    /// Gives a node another area, of at least `bytes`; `fill` makes the new one's bytes of the old one's.
    pub fn replace(
        &mut self,
        room: &mut Room<'_>,
        id: NodeId,
        old_size: usize,
        bytes: usize,
        fill: impl FnOnce(&[u8], &mut [u8]),
    ) -> Result<(), Full> {
        let old = self.handle(id);
        let (handle, size) = room.heap.allocate(Kind::Node, bytes)?;
        self.write_head(room, handle, id);
        let (from, to) = room.heap.bytes_pair((old, old_size), (handle, size));
        fill(from, to);
        room.heap.release(old);
        self.handles.set(id, handle);
        self.bytes = self.bytes + size as u64 - old_size as u64;
        Ok(())
    }

    pub fn release(&mut self, room: &mut Room<'_>, id: NodeId, size: usize) {
        room.heap.release(self.handles.remove(id));
        self.bytes -= size as u64;
        if self.handles.live() == 0 {
            self.handles = Table::default();
        }
    }

    /// Compaction has moved a node.
    pub fn relocate(&mut self, id: NodeId, from: Handle, to: Handle) {
        assert_eq!(self.handles.get(id), from, "the table leads to the node");
        self.handles.set(id, to);
    }

    /// Whose node this is, and which one.
    pub fn owner(heap: &Heap, handle: Handle) -> (u32, NodeId) {
        let head = heap.bytes(handle, NODE_HEAD_BYTES);
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        (word(0), word(4))
    }

    pub fn version(&self, heap: &Heap, id: NodeId) -> u8 {
        heap.bytes(self.handle(id), NODE_HEAD_BYTES)[8]
    }

    pub fn set_version(&self, heap: &mut Heap, id: NodeId, version: u8) {
        heap.bytes_mut(self.handle(id), NODE_HEAD_BYTES)[8] = version;
    }

    /// Asserts that a node's head says what the table says.
    pub fn check(&self, heap: &Heap, id: NodeId) {
        assert_eq!(Nodes::owner(heap, self.handle(id)), (self.object, id));
    }

    /// Asserts that nodes of these sizes are all there are.
    pub fn check_sum(&self, nodes: usize, sizes: usize) {
        assert_eq!((self.len(), self.bytes), (nodes, sizes as u64));
    }
}

/// The bytes that a node of `bytes` really takes.
pub(crate) const fn node_bytes(bytes: usize) -> usize {
    class_bytes(Kind::Node, bytes)
}

// ---- numbers ----

/// Where nodes are, by number: the only reference to each. Chunks of 4 KB, so that no growth copies much; the last one grows by an eighth,
/// so that a set of a thousand members does not pay for one of a million.
#[derive(Default)]
pub(crate) struct Table {
    chunks: Vec<Vec<u32>>,
    len: u32,
    /// Numbers that are out of use.
    free: Pile<u32>,
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

    /// Asks for the line from which `find` reads.
    #[inline]
    pub fn prefetch(&self, number: u32) {
        prefetch_value(&self.chunks[number as usize / CHUNK][number as usize % CHUNK]);
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
        let words: usize =
            self.chunks.last().map_or(0, Vec::capacity) + self.chunks.len().saturating_sub(1) * CHUNK;
        words * size_of::<u32>() + self.chunks.capacity() * size_of::<Vec<u32>>() + self.free.memory_bytes()
    }

    pub fn check_invariants(&self) {
        assert_eq!(self.chunks.iter().map(Vec::len).sum::<usize>(), self.len as usize);
        let unused = (0..self.len).filter(|&number| self.find(number).is_none()).count();
        assert_eq!(unused, self.free.len(), "what is not in use is free");
        assert!(self.free.iter().all(|&number| self.find(number).is_none()));
    }
}

//! The nodes of one collection: movable objects of the arena, known by small numbers.
//!
//! ```text
//!   node      [object u32][id u32][version u8] ...          whose it is, which one, and the snapshot that saw it last
//!   handles   id -> where it lies now                       4 B a node; the only reference to it
//! ```
//!
//! Compaction meets a node by its address, reads from its head whose it is, and has that object change its table.
//! Whatever else refers to a node does so by its id.

use crate::layout::handles::Table;
use crate::layout::heap::Heap;
use crate::layout::kind::Full;
use crate::layout::large::Large;
use isotherm_arena::{Handle, Kind, class_bytes};

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

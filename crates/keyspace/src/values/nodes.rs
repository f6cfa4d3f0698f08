//! The nodes of one collection: movable objects of the arena, known by small numbers.
//!
//! ```text
//!   node      [object u32][id u32][version u8][flags u8] ...     whose it is, which one, and the snapshot that saw it last
//!   handles   id -> where it lies now                            4 B a node; the only reference to it
//!
//!   stub      0       9            10            12   16            18        24
//!             [as any][flags: AWAY][32 u16]      [-]  [32 u16]      [-]       [reference u64]      32 B, of a node that is not in memory
//! ```
//! A stub says its own size where blocks of streams (10) and of lists (16) say theirs.
//!
//!
//! Compaction meets a node by its address, reads from its head whose it is, and has that object change its
//! table. Whatever else refers to a node does so by its id.

use crate::layout::cold::ColdRef;
use crate::layout::handles::Table;
use crate::layout::heap::Heap;
use crate::layout::kind::Full;
use crate::layout::large::Large;
use crate::layout::node_name::NodeName;
use crate::values::cold::Cold;
use isotherm_arena::{Handle, Kind, class_bytes};
use isotherm_stdx::UnixMs;

/// Bytes at the beginning of every node.
pub(crate) const NODE_HEAD_BYTES: usize = 9;
const FLAGS: usize = NODE_HEAD_BYTES;
/// The node is not in memory.
pub(crate) const AWAY: u8 = 0x80;
const SIZES: [usize; 2] = [10, 16];
const REFERENCE: usize = 24;
const STUB_BYTES: usize = REFERENCE + size_of::<ColdRef>();
const _: () = assert!(node_bytes(STUB_BYTES) == STUB_BYTES);

/// Access to the nodes and the large elements of a structure, to change them.
pub(crate) struct Room<'a> {
    pub heap: &'a mut Heap,
    pub large: &'a mut Large,
    pub cold: &'a mut Cold,
    pub now: UnixMs,
    /// Carried by whatever the latest snapshot has seen, and by what was born since it began.
    pub epoch: u8,
}

/// Access to the nodes and the large elements of a structure, to read them.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub heap: &'a Heap,
    pub large: &'a Large,
    pub cold: &'a Cold,
    /// A change is about to come: what it meets that is not in memory is read before, and the command runs
    /// again.
    pub wants: bool,
}

impl Room<'_> {
    pub fn reading(&self) -> Reading<'_> {
        Reading { heap: self.heap, large: self.large, cold: self.cold, wants: true }
    }
}

/// A node's number within its object.
pub(crate) type NodeId = u32;

pub(crate) struct Nodes {
    object: u32,
    handles: Table,
    /// Bytes of the classes of all nodes.
    bytes: u64,
    /// Number of nodes that are stubs.
    away: u32,
}

impl Nodes {
    pub fn new(object: u32) -> Nodes {
        Nodes { object, handles: Table::default(), bytes: 0, away: 0 }
    }

    pub fn len(&self) -> usize {
        self.handles.live()
    }

    /// Class-rounded bytes in the arena, and those of the table.
    pub fn memory_bytes(&self) -> usize {
        self.bytes as usize + self.table_bytes()
    }

    /// Returns the bytes that the table takes from the global allocator.
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
        let head = room.heap.bytes_mut(handle, FLAGS + 1);
        head[..4].copy_from_slice(&self.object.to_le_bytes());
        head[4..8].copy_from_slice(&id.to_le_bytes());
        (head[8], head[FLAGS]) = (epoch, 0);
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
        match self.reference_at(room.heap, id) {
            Some(reference) => {
                room.cold.retire_node(reference);
                self.away -= 1;
            }
            None => self.drop_clean(room.cold, id),
        }
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

    /// Returns the object that a node belongs to, and the node's id.
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

    // ---- nodes that are not in memory ----

    pub fn away(&self) -> u32 {
        self.away
    }

    /// Numbers that nodes may have: all below it.
    pub fn numbers(&self) -> u32 {
        self.handles.len()
    }

    pub fn find(&self, id: NodeId) -> Option<Handle> {
        (id < self.handles.len()).then(|| self.handles.find(id))?
    }

    pub fn name(&self, id: NodeId) -> NodeName {
        NodeName::new(self.object, id)
    }

    /// Returns the reference to a node, if it is not in memory.
    #[inline]
    pub fn reference_at(&self, heap: &Heap, id: NodeId) -> Option<ColdRef> {
        if self.away == 0 { None } else { self.stub_at(heap, id) }
    }

    #[cold]
    fn stub_at(&self, heap: &Heap, id: NodeId) -> Option<ColdRef> {
        let handle = self.find(id)?;
        let is_away = heap.bytes(handle, FLAGS + 1)[FLAGS] & AWAY != 0;
        is_away.then(|| {
            let bytes = &heap.bytes(handle, STUB_BYTES)[REFERENCE..];
            ColdRef::new(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
        })
    }

    /// Returns whether a node is in memory. If it is not, that is noted: the command runs again when the node
    /// was read.
    #[inline]
    pub fn is_shown(&self, reading: Reading<'_>, id: NodeId) -> bool {
        let Some(reference) = self.reference_at(reading.heap, id) else { return true };
        match reading.wants {
            true => reading.cold.note_wanted(self.name(id), reference),
            false => reading.cold.note_missed(self.name(id), reference),
        }
        false
    }

    /// All nodes were to be read before a copy: two collections cannot have the same record.
    pub fn refuse_away(&self, reading: Reading<'_>) -> Result<(), Full> {
        if self.away == 0 {
            return Ok(());
        }
        (0..self.numbers()).for_each(|id| _ = self.is_shown(reading, id));
        Err(Full)
    }

    /// A node is about to change, or to go: what was read from disk is no longer what it is.
    #[inline]
    pub fn drop_clean(&self, cold: &mut Cold, id: NodeId) {
        if cold.has_clean() {
            cold.drop_clean(self.name(id));
        }
    }

    /// Puts a stub in the place of a node of this size. Returns whether there was memory for it.
    pub fn put_stub(&mut self, room: &mut Room<'_>, id: NodeId, size: usize, reference: ColdRef) -> bool {
        let version = self.version(room.heap, id);
        self.drop_clean(room.cold, id);
        let stub = |_: &[u8], bytes: &mut [u8]| {
            bytes[NODE_HEAD_BYTES..STUB_BYTES].fill(0);
            bytes[FLAGS] = AWAY;
            SIZES.into_iter().for_each(|at| bytes[at] = STUB_BYTES as u8);
            bytes[REFERENCE..STUB_BYTES].copy_from_slice(&reference.raw().to_le_bytes());
        };
        if self.replace(room, id, size, STUB_BYTES, stub).is_err() {
            return false;
        }
        self.set_version(room.heap, id, version);
        self.away += 1;
        room.cold.note_node(reference);
        true
    }

    pub fn set_reference(&self, heap: &mut Heap, id: NodeId, to: ColdRef) {
        let stub = heap.bytes_mut(self.handle(id), STUB_BYTES);
        stub[REFERENCE..].copy_from_slice(&to.raw().to_le_bytes());
    }

    /// A node of `bytes` takes the place of its stub, if that still refers there; `fill` writes it. Returns
    /// whether it did. `keeps`: its record stays until it changes.
    pub fn take_stub(
        &mut self,
        room: &mut Room<'_>,
        id: NodeId,
        (from, keeps): (ColdRef, bool),
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Full> {
        if self.reference_at(room.heap, id) != Some(from) {
            return Ok(false);
        }
        let version = self.version(room.heap, id);
        self.replace(room, id, STUB_BYTES, bytes, |_, node| fill(node))?;
        self.set_version(room.heap, id, version);
        self.away -= 1;
        room.cold.node_came_home(self.name(id), from, keeps);
        Ok(true)
    }

    /// Asserts that `away` counts the nodes that are not in memory.
    pub fn check_away(&self, heap: &Heap) {
        let away = (0..self.numbers()).filter(|id| self.reference_at(heap, *id).is_some()).count();
        assert_eq!(away, self.away as usize);
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

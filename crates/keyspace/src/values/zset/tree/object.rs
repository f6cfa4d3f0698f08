//! The tree as one of the large collections of a partition.

use super::node::{self, INDEX, INNER, NODE_BYTES_MAX, Nodes, Reading, Room};
use super::{ZsetTree, check};
use crate::layout::handles::Table;
use crate::layout::kind::{Encoding, Full};
use crate::values::object::{Footprint, Object, Structure};
use crate::values::receiver::Receiver;
use crate::values::store::Store;
use isotherm_arena::Handle;
use isotherm_stdx::UnixMs;

/// Returns access to the parts of the store that a change of a sorted set needs; the objects are left alone.
pub(crate) fn room_of(store: &mut Store, now: UnixMs) -> Room<'_> {
    let Store { heap, hasher, cold, snapshot, .. } = store;
    Room { heap, hasher, cold, version: snapshot.version(), now }
}

/// Returns access to the parts of the store that a read of a sorted set needs.
#[inline]
pub(crate) fn reading_of(store: &Store) -> Reading<'_> {
    Reading { heap: &store.heap, hasher: &store.hasher, cold: &store.cold }
}

/// Time for a change that gives no leaf a time of its own.
const NO_TIME: UnixMs = UnixMs(0);

impl Structure for ZsetTree {
    fn len(&self) -> u64 {
        self.len
    }

    fn nodes(&self) -> u64 {
        0
    }

    fn memory_bytes(&self) -> u64 {
        // The root itself is counted by its holder.
        self.bytes_outside() as u64
    }

    fn footprint(&self) -> Footprint {
        let malloc_bytes = self.bytes_outside() - self.nodes.live_bytes;
        Footprint { malloc_bytes: malloc_bytes as u64, ..Footprint::default() }
    }

    fn encoding(&self) -> Encoding {
        if self.compact { Encoding::Listpack } else { Encoding::Skiplist }
    }

    fn relocate(&mut self, store: &mut Store, id: u32, handle: Handle) -> bool {
        let size = node::bytes(&store.heap, handle).len();
        let Ok((moved, _)) = store.heap.reallocate(handle, size, size) else { return false };
        self.moved(id, moved);
        moved != handle
    }

    fn free_step(&mut self, store: &mut Store, nodes_max: usize) -> bool {
        self.free_nodes(&mut room_of(store, NO_TIME), nodes_max)
    }

    fn duplicate(&self, store: &mut Store, number: u32) -> Result<Object, Full> {
        self.refuse_away(store)?;
        self.copy_with(store, number, |nodes, room, handle| {
            let mut node = [0; NODE_BYTES_MAX];
            let source = node::bytes(room.heap, handle);
            let size = source.len();
            node[..size].copy_from_slice(source);
            nodes.copy(room, &node[..size])
        })
    }

    fn duplicate_from(&self, from: &Store, store: &mut Store, number: u32) -> Result<Object, Full> {
        self.refuse_away(from)?;
        // The index holds hashes of members: both stores hash under the same secret.
        self.copy_with(store, number, |nodes, room, handle| nodes.copy(room, node::bytes(&from.heap, handle)))
    }

    fn set_saving(&mut self, saving: bool) {
        self.saving = saving;
    }

    fn emit_step(&mut self, store: &mut Store, cursor: &mut u64, receiver: &mut dyn Receiver) -> bool {
        self.emit_leaf(&mut room_of(store, NO_TIME), cursor, receiver)
    }

    fn forget_step(&mut self, _: &mut Store, nodes_max: usize) -> bool {
        if self.saving {
            return true;
        }
        (0..nodes_max).any(|_| self.saved.pop().is_none())
    }

    fn kept_bytes(&self) -> u64 {
        self.saved.bytes()
    }

    fn away_nodes(&self) -> u64 {
        u64::from(self.away)
    }

    fn parts(&self) -> u64 {
        Structure::len(self)
    }

    /// Returns false: parts are never cut off the set, but freed at once when they leave.
    fn has_garbage(&self) -> bool {
        false
    }

    fn sweep_step(&mut self, _: &mut Store, _: usize) -> bool {
        true
    }

    /// Long members lie in a table of its own.
    fn large_bodies(&self, _: &Store) -> u64 {
        0
    }

    fn check_invariants(&self, store: &Store, number: u32) -> u64 {
        assert_eq!(self.nodes.object, number);
        // One that is being freed is no longer a tree.
        if self.len > 0 {
            check::check_tree(self, reading_of(store));
        }
        [&self.leaves, &self.inners, &self.pages].map(Table::live).iter().sum::<usize>() as u64
    }
}

impl ZsetTree {
    /// A node has moved.
    pub(super) fn moved(&mut self, id: u32, to: Handle) {
        match id {
            INDEX.. => self.pages.set(id - INDEX, to),
            INNER.. => self.inners.set(id - INNER, to),
            _ => self.leaves.set(id, to),
        }
    }

    /// All leaves were to be read before a copy: two sets cannot have the same record.
    fn refuse_away(&self, store: &Store) -> Result<(), Full> {
        if self.away == 0 {
            return Ok(());
        }
        (0..self.leaves.len()).for_each(|leaf| self.note_missed(reading_of(store), leaf));
        Err(Full)
    }

    /// Makes a copy of the set: every node is copied by `copy`, under the same number.
    fn copy_with(
        &self,
        store: &mut Store,
        number: u32,
        mut copy: impl FnMut(&mut Nodes, &mut Room<'_>, Handle) -> Result<Handle, Full>,
    ) -> Result<Object, Full> {
        let mut target = ZsetTree::new(number);
        target.longs = self.longs.clone();
        (target.len, target.root, target.height) = (self.len, self.root, self.height);
        target.compact = self.compact;
        let room = &mut room_of(store, NO_TIME);
        let ZsetTree { nodes, leaves, inners, pages, .. } = &mut target;
        let copied = [(&self.leaves, leaves), (&self.inners, inners), (&self.pages, pages)]
            .into_iter()
            .try_for_each(|(from, to)| from.duplicate(to, |handle| copy(nodes, room, handle)));
        if copied.is_err() {
            target.free(room);
            return Err(Full);
        }
        Ok(Object::Zset(target))
    }
}

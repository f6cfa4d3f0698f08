//! The tree as one of the large collections of a partition.

use super::ZsetTree;
use super::node::{self, INDEX, INNER, Room, Table};
use crate::object::{Object, Structure};
use crate::store::Store;
use crate::value::{Encoding, Full};
use isotherm_arena::Handle;

impl Store {
    /// What a change of a sorted set needs; with the objects left alone.
    pub(crate) fn zset_room(&mut self) -> Room<'_> {
        Room {
            version: self.snapshot.version(),
            saving: self.snapshot.is_active(),
            heap: &mut self.heap,
            hasher: &self.hasher,
        }
    }
}

impl Structure for ZsetTree {
    fn len(&self) -> u64 {
        self.len
    }

    fn memory_bytes(&self) -> u64 {
        // The root itself is counted by whoever holds it.
        self.bytes_outside() as u64
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
        self.free_nodes(&mut store.heap, nodes_max)
    }

    fn duplicate(&self, store: &mut Store, number: u32) -> Result<Object, Full> {
        let mut copy = ZsetTree::new(number, store.snapshot.version());
        match self.copy_to(&mut copy, &mut store.zset_room()) {
            Ok(()) => Ok(Object::Zset(copy)),
            Err(full) => {
                copy.free(&mut store.heap);
                Err(full)
            }
        }
    }

    fn check_invariants(&self, store: &Store, number: u32) -> u64 {
        assert_eq!(self.nodes.object, number);
        self.check_tree(&store.heap, &store.hasher);
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

    fn copy_to(&self, copy: &mut ZsetTree, room: &mut Room<'_>) -> Result<(), Full> {
        (copy.len, copy.root, copy.height, copy.compact) = (self.len, self.root, self.height, self.compact);
        copy.longs = self.longs.clone();
        let ZsetTree { nodes, leaves, inners, pages, .. } = copy;
        let pairs = [(&self.leaves, leaves), (&self.inners, inners), (&self.pages, pages)];
        for (from, to) in pairs {
            from.duplicate(to, |handle| nodes.copy(room, handle))?;
        }
        Ok(())
    }
}

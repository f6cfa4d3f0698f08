//! Redis 3.2: a skip list ordered by slot, then by key; each node points at a key object of its own.
//!
//! ```text
//!   node    [object 8][slot as a double 8][backward 8] then for each level [forward 8][span 4][padding 4]
//!   object  [header 16][length 3][key 32][0]                                   52 B
//! ```
//!
//! Levels are drawn with p = 1/4, so a node has 1.33 of them: 45 B, 49 with the classes of jemalloc. Spans
//! are room here: ranks are not asked for.

use isotherm_stdx::Prng;

use super::ids::Id;
use super::nodes::{Nodes, POINTER};

const LEVELS_MAX: usize = 32;
const OBJECT: usize = 0;
const SLOT: usize = 8;
const BACKWARD: usize = 16;
const LEVELS: usize = 24;
const LEVEL_BYTES: usize = 16;
const OBJECT_HEAD: usize = 16 + 3;

/// No node: the head is number 0 and follows no other.
const NIL: u64 = 0;

pub struct SkipList {
    nodes: Nodes,
    levels: usize,
    prng: Prng,
}

impl SkipList {
    pub fn new(keys: u64) -> SkipList {
        let mut nodes = Nodes::new(2 * keys as usize + 1);
        nodes.add(LEVELS + LEVELS_MAX * LEVEL_BYTES);
        SkipList { nodes, levels: 1, prng: Prng::new(7) }
    }

    /// Nodes besides the head; each has an object too.
    pub fn len(&self) -> usize {
        (self.nodes.len() - 1) / 2
    }

    pub fn insert(&mut self, slot: u16, id: &Id) {
        let mut before = [0; LEVELS_MAX];
        let mut node = 0;
        for level in (0..self.levels).rev() {
            node = self.last_before(node, level, slot, id);
            before[level] = node;
        }
        let levels = self.draw_levels();
        self.levels = self.levels.max(levels);
        let new = self.new_node(slot, id, levels);
        for (level, &node) in before.iter().enumerate().take(levels) {
            let next = self.nodes.pointer(node, forward(level));
            self.nodes.set_pointer(new, forward(level), next);
            self.nodes.set_pointer(node, forward(level), new);
        }
        self.nodes.set_pointer(new, BACKWARD, before[0]);
    }

    fn last_before(&self, mut node: u64, level: usize, slot: u16, id: &Id) -> u64 {
        loop {
            let next = self.nodes.pointer(node, forward(level));
            if next == NIL || !self.is_before(next, slot, id) {
                return node;
            }
            node = next;
        }
    }

    fn is_before(&self, node: u64, slot: u16, id: &Id) -> bool {
        let node_slot = self.nodes.pointer(node, SLOT) as u16;
        if node_slot != slot {
            return node_slot < slot;
        }
        let object = self.nodes.bytes(self.nodes.pointer(node, OBJECT));
        object[OBJECT_HEAD..OBJECT_HEAD + id.len()] < id[..]
    }

    fn new_node(&mut self, slot: u16, id: &Id, levels: usize) -> u64 {
        let object = self.nodes.add(OBJECT_HEAD + id.len() + 1);
        self.nodes.bytes_mut(object)[OBJECT_HEAD..OBJECT_HEAD + id.len()].copy_from_slice(id);
        let node = self.nodes.add(LEVELS + levels * LEVEL_BYTES);
        self.nodes.set_pointer(node, OBJECT, object);
        self.nodes.set_pointer(node, SLOT, u64::from(slot));
        node
    }

    fn draw_levels(&mut self) -> usize {
        let mut levels = 1;
        while levels < LEVELS_MAX && self.prng.one_in(4) {
            levels += 1;
        }
        levels
    }

    #[cfg(test)]
    fn keys(&self) -> Vec<(u16, Vec<u8>)> {
        let mut keys = Vec::new();
        let mut node = self.nodes.pointer(0, forward(0));
        while node != NIL {
            let object = self.nodes.bytes(self.nodes.pointer(node, OBJECT));
            keys.push((
                self.nodes.pointer(node, SLOT) as u16,
                object[OBJECT_HEAD..object.len() - 1].to_vec(),
            ));
            node = self.nodes.pointer(node, forward(0));
        }
        keys
    }
}

fn forward(level: usize) -> usize {
    const _: () = assert!(POINTER <= LEVEL_BYTES);
    LEVELS + level * LEVEL_BYTES
}

#[cfg(test)]
mod tests {
    use super::super::ids::{Ids, SlotsBy};
    use super::*;

    #[test]
    fn it_is_in_order_and_whole() {
        let mut list = SkipList::new(2000);
        let mut expected: Vec<(u16, Vec<u8>)> = Vec::new();
        for (slot, id) in Ids::new(3, 2000, SlotsBy::Crc) {
            // Many keys a slot.
            let slot = slot % 16;
            list.insert(slot, &id);
            expected.push((slot, id.to_vec()));
        }
        expected.sort();
        assert_eq!(list.keys(), expected);
        assert_eq!(list.len(), 2000);
    }
}

//! What a snapshot sees of a sorted set while it changes.
//!
//! ```text
//!   leaf.version != the snapshot's   not seen yet: the walk emits its members and stamps it;
//!                                    a writer copies them aside first (`before_change`) and stamps it
//! ```
//!
//! The walk goes over leaves by number, not by order: the reader of the members puts them in order again. A number that
//! is given out anew belongs to a leaf that carries the snapshot's version, and is passed over. The index and the inner
//! nodes follow from the leaves and are not saved.

use super::leaf::Leaf;
use super::node::{self, Room};
use super::{ZsetTree, score};
use crate::layout::heap::Heap;

/// Members of one leaf as they were: [score bits u64][len u32][member] one behind another.
pub(super) struct SavedLeaf(Box<[u8]>);

impl SavedLeaf {
    fn of(leaf: &Leaf<'_>) -> SavedLeaf {
        let mut bytes = Vec::with_capacity(leaf.used() + 12 * leaf.len());
        for (index, cell) in leaf.cells().enumerate() {
            let member = leaf.resolve(cell);
            bytes.extend_from_slice(&leaf.bits(index).to_le_bytes());
            bytes.extend_from_slice(&(member.len() as u32).to_le_bytes());
            bytes.extend_from_slice(member);
        }
        SavedLeaf(bytes.into())
    }

    pub fn memory_bytes(&self) -> usize {
        self.0.len()
    }

    fn emit(&self, visit: &mut dyn FnMut(&[u8], f64)) {
        let mut rest = &self.0[..];
        while let Some((bits, tail)) = rest.split_first_chunk::<8>() {
            let (len, tail) = tail.split_first_chunk::<4>().expect("a length follows the score");
            let (member, tail) = tail.split_at(u32::from_le_bytes(*len) as usize);
            visit(member, score::score_of(u64::from_le_bytes(*bits)));
            rest = tail;
        }
    }
}

impl ZsetTree {
    /// Has to be called before a leaf changes or goes.
    #[inline]
    pub(super) fn before_change(&mut self, room: &mut Room<'_>, leaf: u32) {
        if self.saving {
            self.save(room, leaf);
        }
    }

    #[cold]
    fn save(&mut self, room: &mut Room<'_>, number: u32) {
        let handle = self.leaves.get(number);
        if node::version(node::bytes(room.heap, handle)) == room.version {
            return;
        }
        let saved = SavedLeaf::of(&self.leaf(room.heap, number));
        self.saved.push(saved);
        node::set_version(node::bytes_mut(room.heap, handle), room.version);
    }

    /// Emits the members of saved leaves and of up to `leaves_max` others; `at` begins at 0 and is the walk's own.
    /// Whether all have been emitted.
    pub(super) fn emit_leaves(
        &mut self,
        heap: &mut Heap,
        version: u8,
        at: &mut u64,
        leaves_max: usize,
        visit: &mut dyn FnMut(&[u8], f64),
    ) -> bool {
        let mut leaves_max = leaves_max;
        while let Some(some) = self.saved.take_some() {
            some.iter().for_each(|saved| saved.emit(visit));
            leaves_max = leaves_max.saturating_sub(some.len());
            if leaves_max == 0 {
                return false;
            }
        }
        let numbers = u64::from(self.leaves.len());
        let end = numbers.min(at.saturating_add(leaves_max as u64));
        for number in *at as u32..end as u32 {
            let Some(handle) = self.leaves.find(number) else { continue };
            if node::version(node::bytes(heap, handle)) == version {
                continue;
            }
            let leaf = self.leaf(heap, number);
            for (index, cell) in leaf.cells().enumerate() {
                visit(leaf.resolve(cell), leaf.score(index));
            }
            node::set_version(node::bytes_mut(heap, handle), version);
        }
        *at = end.max(*at);
        *at >= numbers
    }
}

//! State of a sorted set that a snapshot sees while the set changes.
//!
//! ```text
//!   leaf.version != the snapshot's   not seen yet: the walk emits its members and stamps it;
//!                                    a writer copies them aside first (`before_change`) and stamps it
//! ```
//!
//! The walk goes over leaves by number, not by order: the reader of the members puts them in order again. A
//! number that is given out anew belongs to a leaf that carries the snapshot's version, and is passed over.
//! The index and the inner nodes follow from the leaves and are not saved.

use super::leaf::Leaf;
use super::node::{self, Room};
use super::{ZsetTree, leaf, score};
use crate::layout::last_used;
use crate::layout::packed::Element;
use crate::layout::pile::Pile;
use crate::values::parts::Part;
use crate::values::receiver::{LongPart, NodeOf, NodePart, Receiver, SHORT_BYTES_MAX};
use std::sync::Arc;

/// Members of one leaf as they were: [score bits u64][len u32][member] one after another. Long members are
/// shared.
pub(super) struct SavedLeaf {
    bytes: Box<[u8]>,
    longs: Vec<(f64, Arc<[u8]>)>,
}

impl SavedLeaf {
    fn of(leaf: &Leaf<'_>) -> SavedLeaf {
        let mut bytes = Vec::with_capacity(leaf.used() + 12 * leaf.len());
        let mut longs = Vec::new();
        for (index, cell) in leaf.cells().enumerate() {
            if let Some(member) = leaf.share(cell) {
                longs.push((leaf.score(index), member));
                continue;
            }
            bytes.extend_from_slice(&leaf.bits(index).to_le_bytes());
            bytes.extend_from_slice(&(cell.raw.len() as u32).to_le_bytes());
            bytes.extend_from_slice(cell.raw);
        }
        SavedLeaf { bytes: bytes.into(), longs }
    }

    fn memory_bytes(&self) -> u64 {
        let longs = self.longs.len() * size_of::<(f64, Arc<[u8]>)>();
        (size_of::<SavedLeaf>() + self.bytes.len() + longs) as u64
    }

    fn emit(self, receiver: &mut dyn Receiver) {
        let mut rest = &self.bytes[..];
        while let Some((bits, tail)) = rest.split_first_chunk::<8>() {
            let (len, tail) = tail.split_first_chunk::<4>().expect("a length follows the score");
            let (member, tail) = tail.split_at(u32::from_le_bytes(*len) as usize);
            let score = score::score_of(u64::from_le_bytes(*bits));
            receiver.part(Part::Scored(Element::Bytes(member), score));
            rest = tail;
        }
        self.longs.into_iter().for_each(|(score, member)| emit_shared(member, score, receiver));
    }
}

/// Leaves that a snapshot under way has yet to emit, as they were. `bytes` is the memory of all.
#[derive(Default)]
pub(super) struct SavedLeaves {
    leaves: Pile<SavedLeaf>,
    bytes: u64,
}

impl SavedLeaves {
    fn push(&mut self, leaf: SavedLeaf) {
        self.bytes += leaf.memory_bytes();
        self.leaves.push(leaf);
    }

    pub fn pop(&mut self) -> Option<SavedLeaf> {
        let leaf = self.leaves.pop()?;
        self.bytes -= leaf.memory_bytes();
        Some(leaf)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn check_invariants(&self) {
        assert_eq!(self.leaves.iter().map(SavedLeaf::memory_bytes).sum::<u64>(), self.bytes);
    }
}

fn emit(leaf: &Leaf<'_>, receiver: &mut dyn Receiver) {
    for (index, cell) in leaf.cells().enumerate() {
        match leaf.share(cell) {
            Some(member) => emit_shared(member, leaf.score(index), receiver),
            None => receiver.part(Part::Scored(Element::Bytes(cell.raw), leaf.score(index))),
        }
    }
}

/// A leaf may have dozens of them.
fn emit_shared(member: Arc<[u8]>, score: f64, receiver: &mut dyn Receiver) {
    if receiver.is_full() || member.len() > SHORT_BYTES_MAX {
        receiver.long(LongPart::Scored(member, score));
    } else {
        receiver.part(Part::Scored(Element::Bytes(&member), score));
    }
}

impl ZsetTree {
    /// Has to be called before a leaf changes or goes, which is in memory.
    #[inline]
    pub(super) fn before_change(&mut self, room: &mut Room<'_>, number: u32) {
        if self.saving {
            self.save(room, number);
        }
        // Where no leaf ever leaves memory, none has a record, and no one asks when it was changed.
        if room.cold.keeper.is_some() {
            self.note_change(room, number);
        }
    }

    #[inline(never)]
    fn note_change(&self, room: &mut Room<'_>, number: u32) {
        self.drop_clean(room, number);
        let bytes = node::bytes_mut(room.heap, self.leaves.get(number));
        leaf::set_stamp(bytes, last_used::stamp(room.now));
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

    /// Emits the members of a saved leaf, or else of the next other one; `at` begins at 0 and is the walk's
    /// own. Returns whether all have been emitted.
    pub(super) fn emit_leaf(
        &mut self,
        room: &mut Room<'_>,
        at: &mut u64,
        receiver: &mut dyn Receiver,
    ) -> bool {
        if let Some(saved) = self.saved.pop() {
            saved.emit(receiver);
            return false;
        }
        let numbers = u64::from(self.leaves.len());
        if *at < numbers
            && let Some(handle) = self.leaves.find(*at as u32)
            && node::version(node::bytes(room.heap, handle)) != room.version
        {
            let number = *at as u32;
            match self.reference_at(room.heap, number) {
                Some(reference) => {
                    let name = self.name_of(number);
                    receiver.long(LongPart::Node(NodePart { name, reference, of: NodeOf::Zset }));
                }
                None => emit(&self.leaf(room.heap, number), receiver),
            }
            node::set_version(node::bytes_mut(room.heap, handle), room.version);
        }
        *at += 1;
        *at >= numbers
    }
}

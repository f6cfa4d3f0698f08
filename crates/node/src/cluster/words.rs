//! Words of the slots, one each: its owner, and whether it is on its way. A word is a byte, since every
//! command reads one: 16 KB lie in the nearest cache. Only a member of a cluster has them.
//!
//! Invariant: a word is written while the lock of its slot's partition is held. A thread that reads it under
//! that lock reads a state that holds until the lock is released. Without the lock the word is a hint.

use isotherm_cluster::topology::Topology;
use isotherm_cluster::{NodeId, Slot};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// Owner of a slot, as far as its commands are concerned. The topology says where the other nodes are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Owner {
    #[default]
    Unassigned,
    Myself,
    /// Primary of this node, which is a replica.
    MyPrimary,
    Other,
}

/// State of a slot, as far as commands have to know it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SlotState {
    pub owner: Owner,
    /// The slot's keys are on their way to another node: a key that is not here any more is there.
    pub migrating: bool,
    /// The slot's keys are on their way to this node.
    pub importing: bool,
}

impl SlotState {
    pub const MINE: SlotState = SlotState { owner: Owner::Myself, migrating: false, importing: false };

    pub const fn of(owner: Owner) -> SlotState {
        SlotState { owner, migrating: false, importing: false }
    }

    /// Returns what a topology says of a slot.
    pub fn in_topology(topology: &Topology, slot: Slot) -> SlotState {
        let is_open = |open: &[(Slot, NodeId)]| open.binary_search_by_key(&slot, |(slot, _)| *slot).is_ok();
        let owner = match topology.owners[slot.index()] {
            None => Owner::Unassigned,
            Some(owner) if owner == topology.myself => Owner::Myself,
            Some(owner) if topology.me().primary == Some(owner) => Owner::MyPrimary,
            Some(_) => Owner::Other,
        };
        SlotState { owner, migrating: is_open(&topology.migrating), importing: is_open(&topology.importing) }
    }
}

/// State of a slot as one byte.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Word(u8);

const OWNER_BITS: u8 = 3;
const MIGRATING: u8 = 4;
const IMPORTING: u8 = 8;

impl Word {
    /// Word of a slot that is this node's and not on its way: any command runs.
    pub const MINE: Word = Word::new(SlotState::MINE);

    pub const fn new(state: SlotState) -> Word {
        let owner = match state.owner {
            Owner::Unassigned => 0,
            Owner::Myself => 1,
            Owner::MyPrimary => 2,
            Owner::Other => 3,
        };
        let migrating = if state.migrating { MIGRATING } else { 0 };
        let importing = if state.importing { IMPORTING } else { 0 };
        Word(owner | migrating | importing)
    }

    pub fn state(self) -> SlotState {
        let owner = match self.0 & OWNER_BITS {
            0 => Owner::Unassigned,
            1 => Owner::Myself,
            2 => Owner::MyPrimary,
            _ => Owner::Other,
        };
        SlotState { owner, migrating: self.0 & MIGRATING != 0, importing: self.0 & IMPORTING != 0 }
    }
}

pub struct SlotWords(Box<[AtomicU8]>);

impl SlotWords {
    pub const BYTES: usize = Slot::COUNT * size_of::<AtomicU8>();

    /// Makes the words with which a process starts.
    pub fn of(topology: &Topology) -> SlotWords {
        let word = |slot| Word::new(SlotState::in_topology(topology, slot));
        SlotWords(Slot::all().map(|slot| AtomicU8::new(word(slot).0)).collect())
    }

    #[inline(always)]
    pub fn get(&self, slot: Slot) -> Word {
        Word(self.0[slot.index()].load(Relaxed))
    }

    /// The lock of the slot's partition is held.
    pub fn set(&self, slot: Slot, word: Word) {
        self.0[slot.index()].store(word.0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_state() {
        for owner in [Owner::Unassigned, Owner::Myself, Owner::MyPrimary, Owner::Other] {
            for (migrating, importing) in [(false, false), (true, false), (false, true), (true, true)] {
                let state = SlotState { owner, migrating, importing };
                assert_eq!(Word::new(state).state(), state);
                assert_eq!(Word::new(state) == Word::MINE, state == SlotState::MINE);
            }
        }
        assert_eq!(size_of::<Word>() * Slot::COUNT, 16 << 10);
    }
}

//! A set of slots: 16384 bits, 2 KB, in the order of a message's bitmap (slot 0 is the lowest bit of the
//! first byte).

use crate::Slot;

#[derive(Clone, PartialEq, Eq)]
pub struct SlotSet([u64; SlotSet::WORDS]);

impl SlotSet {
    const WORDS: usize = Slot::COUNT / 64;
    /// Length of a set in a message, in bytes: 16384 / 8.
    pub const BYTES: usize = Slot::COUNT / 8;

    pub const fn new() -> SlotSet {
        SlotSet([0; SlotSet::WORDS])
    }

    pub fn from_bytes(bytes: &[u8; SlotSet::BYTES]) -> SlotSet {
        let (words, _) = bytes.as_chunks::<8>();
        SlotSet(std::array::from_fn(|at| u64::from_le_bytes(words[at])))
    }

    pub fn to_bytes(&self) -> [u8; SlotSet::BYTES] {
        let mut bytes = [0; SlotSet::BYTES];
        let (words, _) = bytes.as_chunks_mut::<8>();
        words.iter_mut().zip(&self.0).for_each(|(to, word)| *to = word.to_le_bytes());
        bytes
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }

    pub fn has(&self, slot: Slot) -> bool {
        self.0[slot.index() / 64] >> (slot.index() % 64) & 1 == 1
    }

    /// Adds a slot. Returns whether it was not in the set before.
    pub fn insert(&mut self, slot: Slot) -> bool {
        let was = self.has(slot);
        self.0[slot.index() / 64] |= 1 << (slot.index() % 64);
        !was
    }

    /// Removes a slot. Returns whether it was in the set.
    pub fn remove(&mut self, slot: Slot) -> bool {
        let was = self.has(slot);
        self.0[slot.index() / 64] &= !(1 << (slot.index() % 64));
        was
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// The slots of both.
    pub fn intersection(&self, other: &SlotSet) -> SlotSet {
        SlotSet(std::array::from_fn(|at| self.0[at] & other.0[at]))
    }

    /// Iterates over the slots in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            std::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)))
                .take_while(|rest| *rest != 0)
                .map(move |rest| Slot::new((at * 64) as u16 + rest.trailing_zeros() as u16))
        })
    }

    /// Runs of neighbours, first and last slot of each, ascending.
    pub fn ranges(&self) -> Vec<(Slot, Slot)> {
        let mut ranges: Vec<(Slot, Slot)> = Vec::new();
        for slot in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if last.get() + 1 == slot.get() => *last = slot,
                _ => ranges.push((slot, slot)),
            }
        }
        ranges
    }
}

impl Default for SlotSet {
    fn default() -> SlotSet {
        SlotSet::new()
    }
}

impl std::fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.ranges().iter().map(|(first, last)| first.get()..=last.get())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_ranges_and_bytes() {
        let mut set = SlotSet::new();
        for slot in [0, 1, 2, 63, 64, 700, 16383] {
            assert!(set.insert(Slot::new(slot)));
        }
        assert!(!set.insert(Slot::new(64)));
        assert!(set.remove(Slot::new(1)) && !set.remove(Slot::new(1)));
        let ranges: Vec<_> = set.ranges().iter().map(|(first, last)| (first.get(), last.get())).collect();
        assert_eq!(ranges, [(0, 0), (2, 2), (63, 64), (700, 700), (16383, 16383)]);
        assert_eq!(set.len(), 6);
        let mut bytes = Vec::new();
        set.write(&mut bytes);
        assert_eq!((bytes[0], bytes[7], bytes[8]), (0b101, 0x80, 1));
        assert_eq!(set.to_bytes().as_slice(), bytes);
        assert_eq!(SlotSet::from_bytes(bytes.as_slice().try_into().unwrap()), set);
    }
}

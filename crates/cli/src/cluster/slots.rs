//! A set of slots, as a bit for each, and the two ways in which valkey-cli writes one.

use isotherm_stdx::Slot;

const WORDS: usize = Slot::COUNT / 64;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotSet {
    words: Box<[u64; WORDS]>,
}

impl Default for SlotSet {
    fn default() -> SlotSet {
        SlotSet { words: Box::new([0; WORDS]) }
    }
}

impl SlotSet {
    pub fn has(&self, slot: u16) -> bool {
        self.words[usize::from(slot) / 64] & (1 << (slot % 64)) != 0
    }

    pub fn insert(&mut self, slot: u16) {
        self.words[usize::from(slot) / 64] |= 1 << (slot % 64);
    }

    pub fn remove(&mut self, slot: u16) {
        self.words[usize::from(slot) / 64] &= !(1 << (slot % 64));
    }

    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Iterates over the slots in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        Slot::all().map(Slot::get).filter(|&slot| self.has(slot))
    }

    pub fn ranges(&self) -> Vec<(u16, u16)> {
        ranges(self.iter())
    }

    /// `[0-5460],[5462]`.
    pub fn in_brackets(&self) -> String {
        let text = |&(first, last): &(u16, u16)| match first == last {
            true => format!("[{first}]"),
            false => format!("[{first}-{last}]"),
        };
        self.ranges().iter().map(text).collect::<Vec<_>>().join(",")
    }
}

impl FromIterator<u16> for SlotSet {
    fn from_iter<T: IntoIterator<Item = u16>>(slots: T) -> SlotSet {
        let mut set = SlotSet::default();
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

/// Runs of slots that ascend by one.
pub fn ranges(slots: impl IntoIterator<Item = u16>) -> Vec<(u16, u16)> {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for slot in slots {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == slot => *last = slot,
            _ => ranges.push((slot, slot)),
        }
    }
    ranges
}

/// `0-5460 5462-5462`.
pub fn spaced(ranges: &[(u16, u16)]) -> String {
    ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_as_runs() {
        let set: SlotSet = [0, 1, 2, 63, 64, 16383].into_iter().collect();
        assert_eq!(set.in_brackets(), "[0-2],[63-64],[16383]");
        assert_eq!(spaced(&set.ranges()), "0-2 63-64 16383-16383");
        assert_eq!((set.len(), set.has(63), set.has(62)), (6, true, false));
        assert_eq!(SlotSet::default().in_brackets(), "");
    }

    #[test]
    fn as_a_set_of_the_library() {
        let mut prng = isotherm_stdx::Prng::new(1);
        let (mut set, mut model) = (SlotSet::default(), std::collections::BTreeSet::new());
        for _ in 0..20_000 {
            let slot = prng.below(Slot::COUNT as u64) as u16;
            if prng.one_in(3) {
                set.remove(slot);
                model.remove(&slot);
            } else {
                set.insert(slot);
                model.insert(slot);
            }
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
        assert_eq!((set.len(), set.is_empty()), (model.len(), false));
    }
}

//! Histograms of the sizes of a table's keys: one for each type, with a bin for every power of two.
//!
//! ```text
//!   bin   0: 0    1: 1    2: 2, 3    3: 4 to 7    4: 8 to 15   ...   33: 2^32 and more
//! ```
//! The size of a string is the bytes that it is stored in (1 to 8 for an integer), that of a collection its
//! elements. A type costs 136 B, from its first key on.

use crate::accounting::tally::{Account, CLASSES};
use crate::layout::kind::Type;

pub const SIZE_BINS: usize = 34;

/// The types that have a histogram, in the order in which they are shown.
pub const SIZED_TYPES: [Type; 5] = [Type::String, Type::List, Type::Set, Type::Zset, Type::Hash];

/// Position of each class's type in `SIZED_TYPES`, or past its end.
const PLACES: [u8; CLASSES.len()] = {
    let (mut places, mut class) = ([SIZED_TYPES.len() as u8; CLASSES.len()], 0);
    while class < CLASSES.len() {
        let mut kind = 0;
        while kind < SIZED_TYPES.len() {
            if CLASSES[class].0 as u8 == SIZED_TYPES[kind] as u8 {
                places[class] = kind as u8;
            }
            kind += 1;
        }
        class += 1;
    }
    places
};

#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Sizes([Option<Box<[u32; SIZE_BINS]>>; SIZED_TYPES.len()]);

/// Returns whether collections (or strings) of this many elements (or bytes) are in one bin.
#[inline]
pub(crate) fn are_alike(items: u64, others: u64) -> bool {
    bin_of(items) == bin_of(others)
}

#[inline]
fn bin_of(items: u64) -> usize {
    (u64::BITS - items.leading_zeros()).min(SIZE_BINS as u32 - 1) as usize
}

#[inline]
fn place_of(account: &Account) -> Option<(usize, usize)> {
    let place = usize::from(PLACES[account.class.number()]);
    (place < SIZED_TYPES.len()).then(|| (place, bin_of(account.items)))
}

impl Sizes {
    /// An entry has come, has gone, or is another now.
    #[inline(always)]
    pub fn note(&mut self, old: Option<&Account>, new: Option<&Account>) {
        if let (Some(old), Some(new)) = (old, new)
            && old.class == new.class
            && are_alike(old.items, new.items)
        {
            return;
        }
        self.move_between(old.and_then(place_of), new.and_then(place_of));
    }

    fn move_between(&mut self, old: Option<(usize, usize)>, new: Option<(usize, usize)>) {
        if let Some((kind, bin)) = old {
            self.bins(kind)[bin] -= 1;
        }
        if let Some((kind, bin)) = new {
            self.bins(kind)[bin] += 1;
        }
    }

    #[inline]
    fn bins(&mut self, kind: usize) -> &mut [u32; SIZE_BINS] {
        self.0[kind].get_or_insert_with(|| Box::new([0; SIZE_BINS]))
    }

    pub fn add_to(&self, sums: &mut [[u64; SIZE_BINS]; SIZED_TYPES.len()]) {
        for (sums, bins) in sums.iter_mut().zip(&self.0) {
            for (sum, count) in sums.iter_mut().zip(bins.iter().flat_map(|bins| bins.iter())) {
                *sum += u64::from(*count);
            }
        }
    }

    /// Returns the bytes that it takes from the global allocator.
    pub fn memory_bytes(&self) -> usize {
        self.0.iter().flatten().count() * size_of::<[u32; SIZE_BINS]>()
    }

    /// Asserts that it counts what `counted` does, which was made anew of the entries.
    pub fn check_invariants(&self, counted: &Sizes) {
        let sums = |sizes: &Sizes| {
            let mut sums = [[0; SIZE_BINS]; SIZED_TYPES.len()];
            sizes.add_to(&mut sums);
            sums
        };
        assert_eq!(sums(self), sums(counted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_powers_of_two() {
        let check = |items, bin| assert_eq!(bin_of(items), bin, "{items}");
        let bins = [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4), (1 << 31, 32), (u64::MAX, 33)];
        bins.into_iter().for_each(|(items, bin)| check(items, bin));
    }
}

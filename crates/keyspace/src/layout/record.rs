//! A slot's record: everything that a slot costs while its keys fit one page.
//!
//! ```text
//!   0        4         8        12            16             22                24         28
//!   [root u32][pages u32][keys u32][volatile u32][page bytes u48][outside, high u16][bound u32][outside, low u32]
//! ```                                                                                             32 B, x 64 = a run
//!
//! root      pages = 1: the page's handle; more: the directory's root node (see `directory`); pages = 0: empty slot
//! page bytes  sum of `used` over the pages: 256 TB, where an arena has 64 GB
//! outside   bodies outside the pages, in units of 16 B: 4 PB. More than the machine has: keys that were copied share a
//!           large body, and each counts it (128 of 512 MB are the 64 GB that 32 bits could say)
//! bound     lower bound of every expiry in the slot, in units of 256 ms; `NEVER` if there is none
//!
//! A copy in registers has the same 32 B: with 40 B, commands that change lengths took 2 to 4 % more.
//!
//! `pages` is the whole state of linear hashing: 2^k + s pages; the first s and the last s are split. 16384
//! slots x 32 B = 512 KB in a full node, 0.08 B a key at 6.32 M keys; a run of 64 comes with its first key.

pub(crate) use crate::layout::bound::{NEVER, bound_of, is_due};

pub(crate) const RECORD_BYTES: usize = 32;
/// The unit of `Record::outside`.
pub(crate) const UNIT_BYTES: u64 = 16;
/// The bits of the page bytes and of what lies outside.
const SUM_BITS: u32 = 48;
const SUM_MASK: u64 = (1 << SUM_BITS) - 1;
const _: () =
    assert!(16 + 2 * SUM_BITS as usize / 8 + 4 == RECORD_BYTES && size_of::<Record>() == RECORD_BYTES);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub root: u32,
    pub pages: u32,
    pub keys: u32,
    pub volatile: u32,
    /// The page bytes, and above them the high 16 bits of what lies outside.
    sums: u64,
    pub bound: u32,
    outside_low: u32,
}

impl Record {
    pub const EMPTY: Record =
        Record { root: 0, pages: 0, keys: 0, volatile: 0, sums: 0, bound: NEVER, outside_low: 0 };

    #[inline]
    pub fn read(bytes: &[u8]) -> Record {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let sums = u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes"));
        Record {
            root: word(0),
            pages: word(4),
            keys: word(8),
            volatile: word(12),
            sums,
            bound: word(24),
            outside_low: word(28),
        }
    }

    #[inline]
    pub fn write(&self, bytes: &mut [u8]) {
        bytes[0..4].copy_from_slice(&self.root.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.pages.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.keys.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.volatile.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sums.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.bound.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.outside_low.to_le_bytes());
    }

    #[inline]
    pub fn page_bytes(&self) -> u64 {
        self.sums & SUM_MASK
    }

    /// Pages that had `before` bytes in use have `now`.
    #[inline]
    pub fn change_page_bytes(&mut self, before: u64, now: u64) {
        debug_assert!(self.page_bytes() + now >= before && self.page_bytes() + now - before <= SUM_MASK);
        self.sums = self.sums.wrapping_add(now).wrapping_sub(before);
    }

    /// Returns the size of the bodies outside, in units of 16 B.
    #[inline]
    pub fn outside(&self) -> u64 {
        self.sums >> SUM_BITS << 32 | u64::from(self.outside_low)
    }

    /// Bodies outside that had `before` units have `now`.
    #[inline]
    pub fn change_outside(&mut self, before: u64, now: u64) {
        let units = self.outside() + now - before;
        debug_assert!(units <= SUM_MASK);
        self.sums = self.sums & SUM_MASK | units >> 32 << SUM_BITS;
        self.outside_low = units as u32;
    }

    /// Makes a record with `page_bytes` bytes in its pages, and nothing outside.
    pub fn of_pages(root: u32, pages: u32, keys: u32, page_bytes: u64) -> Record {
        Record { root, pages, keys, sums: page_bytes & SUM_MASK, ..Record::EMPTY }
    }
}

/// A count of units, where a record's is 6 B too: next to a byte it takes no more than 8.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Units([u8; 6]);

const _: () = assert!(size_of::<Units>() * 8 == SUM_BITS as usize);

impl Units {
    /// Returns the units that `bytes` bytes take, rounded up.
    pub fn of(bytes: u64) -> Units {
        let [low @ .., high, highest] = bytes.div_ceil(UNIT_BYTES).to_le_bytes();
        assert_eq!((high, highest), (0, 0), "no machine has so much");
        Units(low)
    }

    #[inline]
    pub fn get(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

/// The page that holds `hash` among `pages`.
#[inline]
pub(crate) fn page_index(hash: u64, pages: u32) -> u32 {
    let mask = u32::MAX >> (pages.leading_zeros());
    let index = hash as u32 & mask;
    if index < pages { index } else { hash as u32 & (mask >> 1) }
}

/// The page that page `index` (>= 1) was split from, and goes back to.
#[inline]
pub(crate) fn buddy(index: u32) -> u32 {
    index & !(1 << (31 - index.leading_zeros()))
}

/// A walk over pages that meets every entry, however many pages there are at each step (see `scan`): the page
/// that a position is in, and the position after it (0: none).
pub(crate) fn advance(position: u32, pages: u32) -> (u32, u32) {
    let low_mask = u32::MAX >> pages.leading_zeros() >> 1;
    let split = pages - (low_mask + 1);
    let mask = if position & low_mask < split { low_mask * 2 + 1 } else { low_mask };
    let page = position & mask;
    // Count up in the bits of the mask, from the highest down.
    let next = (position | !mask).reverse_bits().wrapping_add(1).reverse_bits();
    (page, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for (page_bytes, outside, bound) in [
            (0, 0, NEVER),
            (SUM_MASK, 0, 0),
            (0, SUM_MASK, 0),
            (1, 1 << 32, 1),
            (1 << 47, (1 << 47) + 5, 7),
            (SUM_MASK, SUM_MASK, 9),
        ] {
            let mut record = Record { bound, ..Record::of_pages(1, 2, 3, page_bytes) };
            record.change_outside(0, outside);
            let mut bytes = [0xaa; RECORD_BYTES];
            record.write(&mut bytes);
            assert_eq!(Record::read(&bytes), record);
            assert_eq!((record.page_bytes(), record.outside(), record.bound), (page_bytes, outside, bound));
            record.change_page_bytes(page_bytes, 0);
            record.change_outside(outside, 7);
            assert_eq!((record.page_bytes(), record.outside(), record.bound), (0, 7, bound));
        }
    }

    #[test]
    fn units_pass_64_gb() {
        for (bytes, units) in [(0, 0), (1, 1), (16, 1), (17, 2), (64 << 30, 1 << 32), (700 << 30, 700 << 26)]
        {
            assert_eq!(Units::of(bytes).get(), units, "{bytes}");
        }
    }

    #[test]
    fn a_split_moves_keys_only_between_buddies() {
        for pages in 1..200 {
            for hash in 0..4000u64 {
                let hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let (before, after) = (page_index(hash, pages), page_index(hash, pages + 1));
                assert!(before < pages);
                assert!(after == before || (after == pages && before == buddy(pages)));
            }
        }
    }

    /// Without changes in between every page is met exactly once.
    #[test]
    fn a_quiet_walk_meets_every_page_once() {
        for pages in 1..300 {
            let (mut position, mut met) = (0, vec![0; pages as usize]);
            loop {
                let (page, next) = advance(position, pages);
                met[page as usize] += 1;
                position = next;
                if position == 0 {
                    break;
                }
            }
            assert!(met.iter().all(|&n| n == 1), "{pages}: {met:?}");
        }
    }

    /// Whatever the number of pages does between the calls, a hash is met.
    #[test]
    fn growth_and_shrinking_never_hide_a_hash() {
        let mut prng = isotherm_stdx::Prng::new(1);
        for _ in 0..400 {
            let hashes: Vec<u64> = (0..200).map(|_| prng.next_u64()).collect();
            let (mut position, mut met) = (0u32, vec![false; hashes.len()]);
            loop {
                let pages = 1 + prng.below(90) as u32;
                let (page, next) = advance(position, pages);
                for (hash, met) in hashes.iter().zip(&mut met) {
                    *met |= page_index(*hash, pages) == page;
                }
                position = next;
                if position == 0 {
                    break;
                }
            }
            assert!(met.iter().all(|&met| met));
        }
    }
}

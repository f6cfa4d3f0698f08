//! A slot's record: everything that a slot costs while its keys fit one page.
//!
//! ```text
//!   0        4         8        12            16             24           28
//!   [root u32][pages u32][keys u32][volatile u32][page bytes u64][bound u32][outside u32]     32 B, x 64 = a run
//! ```
//!
//! root      pages = 1: the page's handle; more: the directory's root node (see `directory`); pages = 0: empty slot
//! page bytes  sum of `used` over the pages
//! bound     lower bound of every expiry in the slot, in units of 256 ms; `NEVER` if there is none
//! outside   bodies outside the pages, in units of 16 B
//!
//! `pages` is the whole state of linear hashing: 2^k + s pages, of which the first s and the last s are split.
//! 16384 slots x 32 B = 512 KB in a full node, 0.08 B a key at 6.32 M keys; a run of 64 comes with its first key.

use isotherm_stdx::UnixMs;

pub(crate) const RECORD_BYTES: usize = 32;
/// No expiry below this.
pub(crate) const NEVER: u32 = u32::MAX;

/// The unit of bounds: 256 ms, so that 40 bits of milliseconds become 32.
const BOUND_SHIFT: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub root: u32,
    pub pages: u32,
    pub keys: u32,
    pub volatile: u32,
    pub page_bytes: u64,
    pub bound: u32,
    pub outside: u32,
}

impl Record {
    pub const EMPTY: Record =
        Record { root: 0, pages: 0, keys: 0, volatile: 0, page_bytes: 0, bound: NEVER, outside: 0 };

    #[inline]
    pub fn read(bytes: &[u8]) -> Record {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let page_bytes = u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes"));
        Record {
            root: word(0),
            pages: word(4),
            keys: word(8),
            volatile: word(12),
            page_bytes,
            bound: word(24),
            outside: word(28),
        }
    }

    #[inline]
    pub fn write(&self, bytes: &mut [u8]) {
        bytes[0..4].copy_from_slice(&self.root.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.pages.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.keys.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.volatile.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.page_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.bound.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.outside.to_le_bytes());
    }
}

/// The bound of an expiry: rounded down, so that it is a lower bound.
#[inline]
pub(crate) fn bound_of(expiry: UnixMs) -> u32 {
    let since = expiry.0.saturating_sub(crate::entry::EPOCH_MS) >> BOUND_SHIFT;
    since.clamp(0, i64::from(NEVER) - 1) as u32
}

/// Whether everything that shares this bound is due: its whole unit has passed. (Keys leave at most 256 ms late by
/// this way; whoever asks for one meets it expired to the millisecond.)
#[inline]
pub(crate) fn is_due(bound: u32, now: UnixMs) -> bool {
    bound < bound_of(now) && bound != NEVER
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

#[cfg(test)]
mod tests {
    use super::*;

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
}

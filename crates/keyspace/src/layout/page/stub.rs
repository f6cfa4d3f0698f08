//! Stub of a page of an object, which stays in memory while the page does not: a page without entries, with
//! the place of its bytes.
//!
//! ```text
//!   0                                 8          12              20         24          25       27
//!   [header: n 0, cap 0, with owner]  [owner u32][reference u64][index u32][entries u8][used u16]
//! ```
//! The directory leads to a stub as to any page, and compaction finds its owner in the same place. The number
//! of the page, by which compaction finds the directory's place without an entry to hash, stays the same:
//! only pages in memory are split or merged.

use super::{CLASS, HEADER_BYTES, OWNER_BYTES, Page, init, set_owner, set_version};
use crate::layout::cold::ColdRef;

const REFERENCE: usize = HEADER_BYTES + OWNER_BYTES;
const INDEX: usize = REFERENCE + 8;
const ENTRIES: usize = INDEX + 4;
const USED_THERE: usize = ENTRIES + 1;
pub(crate) const STUB_BYTES: usize = USED_THERE + 2;
const _: () = assert!(STUB_BYTES <= 32, "the smallest class");

/// Makes all of `bytes` the stub of a page.
pub(crate) fn write(bytes: &mut [u8], owner: u32, page: Page<'_>, reference: ColdRef, index: u32) {
    let (version, stamp, entries, used) = (page.version(), page.stamp(), page.0[super::N], page.used());
    init(bytes, 0, 0, version, stamp);
    set_owner(bytes, owner);
    bytes[INDEX..INDEX + 4].copy_from_slice(&index.to_le_bytes());
    bytes[ENTRIES] = entries;
    bytes[USED_THERE..STUB_BYTES].copy_from_slice(&(used as u16).to_le_bytes());
    set_reference(bytes, reference);
}

pub(crate) fn set_reference(bytes: &mut [u8], reference: ColdRef) {
    bytes[REFERENCE..INDEX].copy_from_slice(&reference.raw().to_le_bytes());
}

/// The page again, of its bytes as they left memory (`bare`), in all of `bytes`.
pub(crate) fn restore(bytes: &mut [u8], bare: &[u8], owner: u32, version: u8, stamp: u16) {
    bytes[..bare.len()].copy_from_slice(bare);
    super::set_class(bytes);
    set_version(bytes, version);
    super::set_stamp(bytes, stamp);
    let at = Page(bytes).columns_end();
    bytes[at..at + OWNER_BYTES].copy_from_slice(&owner.to_le_bytes());
}

/// The bytes of a page that say what is in it: without its class, its version, its last change and its owner.
pub(crate) fn bare(page: Page<'_>, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&page.0[..page.used()]);
    into[CLASS..HEADER_BYTES].fill(0);
    let at = page.columns_end();
    into[at..at + page.owner_bytes()].fill(0);
}

impl Page<'_> {
    /// Returns the reference to the page that is not in memory, if this is the stub of one.
    #[inline]
    pub fn away(self) -> Option<ColdRef> {
        if self.len() > 0 || self.cap() > 0 || self.owner_bytes() == 0 {
            return None;
        }
        Some(ColdRef::new(u64::from_le_bytes(self.0[REFERENCE..INDEX].try_into().expect("eight bytes"))))
    }

    /// Returns the number of the page that this stub stands for.
    pub fn away_index(self) -> u32 {
        u32::from_le_bytes(self.0[INDEX..ENTRIES].try_into().expect("four bytes"))
    }

    /// Returns the number of entries of the page that this stub stands for.
    pub fn away_entries(self) -> usize {
        usize::from(self.0[ENTRIES])
    }

    /// Returns the number of bytes in use in the page that this stub stands for.
    pub fn away_used(self) -> usize {
        usize::from(u16::from_le_bytes([self.0[USED_THERE], self.0[USED_THERE + 1]]))
    }
}

//! Attribution of memory to prefixes of keys and to single keys. Updated by every change of an entry that
//! changes its size or whether it has an expiry, under the lock of its partition; kept for the whole
//! keyspace, at a fixed size.
//!
//! ```text
//!   change  ->  sizes      histograms of the table itself                                   (`sizes`)
//!           ->  largest    a comparison; only those that enter or leave go on, to a lock    (`largest`)
//!           ->  prefixes   one key of 16 by its tag, and the large; only those go on        (`prefixes`)
//! ```
//! The entry alone decides how far it goes, never the time at which it is looked at. So the amount added when
//! it comes is the amount taken off when it leaves.

mod largest;
mod prefixes;
mod sketch;

use crate::accounting::tally::Account;
use crate::layout::key::KeyHasher;

pub(crate) use largest::Largest;
pub use largest::{LargeKey, LargestKeys};
pub(crate) use prefixes::Prefixes;
pub use prefixes::{
    PREFIX_DEPTH_MAX, PREFIX_PINS_MAX, PrefixError, PrefixReport, PrefixSettings, PrefixShare,
};

/// Below this a change matters to the sample and to pinned prefixes only.
const BYTES_MIN: u64 = if largest::LISTED_BYTES_MIN < prefixes::LARGE_BYTES {
    largest::LISTED_BYTES_MIN
} else {
    prefixes::LARGE_BYTES
};

pub(crate) struct Attribution {
    pub largest: Largest,
    pub prefixes: Prefixes,
}

/// Size of an entry, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    pub bytes: u64,
    pub is_volatile: bool,
}

impl Size {
    #[inline]
    pub fn of(account: &Account) -> Size {
        Size { bytes: account.memory_bytes(), is_volatile: account.expiry_bytes > 0 }
    }
}

/// An entry whose size is another now, or that was not there, or is no longer.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    /// Number of the table that the key is in: `Table::number`.
    pub table: u32,
    pub key: &'a [u8],
    /// The tag of its hash.
    pub tag: u8,
    pub old: Option<Size>,
    pub new: Option<Size>,
}

impl Attribution {
    pub fn new(hasher: KeyHasher) -> Attribution {
        Attribution { largest: Largest::new(hasher), prefixes: Prefixes::new(hasher) }
    }

    #[inline(always)]
    pub fn note(&self, change: &Change<'_>) {
        if change.old == change.new {
            return;
        }
        // Most are too small for the first, and not of the sample.
        let bytes = |size: Option<Size>| size.map_or(0, |size| size.bytes);
        if self.is_concerned(change.tag, bytes(change.old).max(bytes(change.new))) {
            self.note_further(change);
        }
    }

    /// Returns whether a change has to be noted of an entry with this tag that took and takes `bytes_max` at
    /// most.
    #[inline(always)]
    pub fn is_concerned(&self, tag: u8, bytes_max: u64) -> bool {
        bytes_max >= BYTES_MIN || self.prefixes.counts_small(tag)
    }

    #[inline(never)]
    fn note_further(&self, change: &Change<'_>) {
        self.largest.note(change);
        self.prefixes.note(change);
    }

    /// All keys are gone.
    pub fn clear(&self) {
        self.largest.clear();
        self.prefixes.clear();
    }

    /// Returns the bytes that it takes from the global allocator.
    pub fn memory_bytes(&self) -> usize {
        self.largest.memory_bytes() + self.prefixes.memory_bytes()
    }
}

/// A key that is there, with what its entry takes.
pub(crate) struct Counted<'a> {
    pub table: u32,
    pub key: &'a [u8],
    pub tag: u8,
    pub size: Size,
}

//! Layer 1 of 7: bytes. How keys, entries, pages, directories and packed elements lie in memory, and the
//! memory itself.
//!
//! ```text
//!   kind                            databases, types, forms: what all layers name
//!   key, entry, packed, page, ..    what the bytes of one thing mean
//!   cold                            how an entry refers to a value that is not in memory
//!   bundle                          several small keys as one record outside memory
//!   bound                           what comes due at the earliest
//!   record, directory               how the pages of one slot or one object are found
//!   heap, large, pile, handles      where the bytes lie: the arena, the global allocator
//!   chain                           sequences of nodes
//! ```
//!
//! The layer does not know databases, locks or clients.

pub(crate) mod bound;
pub(crate) mod bundle;
pub(crate) mod chain;
pub(crate) mod cold;
pub(crate) mod directory;
pub(crate) mod entry;
pub(crate) mod handles;
pub(crate) mod heap;
pub(crate) mod key;
pub(crate) mod kind;
pub(crate) mod large;
pub(crate) mod last_used;
pub(crate) mod listpack;
pub(crate) mod node_name;
pub(crate) mod packed;
pub(crate) mod packed_ints;
pub(crate) mod page;
pub(crate) mod pile;
pub(crate) mod record;

use isotherm_stdx::format::FormatPart;

/// Formats of this crate that lie on disk too: values go there as they lie in memory.
pub const FORMATS: &[FormatPart] =
    &[entry::FORMAT, kind::FORMAT, packed::FORMAT, page::FORMAT, node_name::FORMAT, bundle::FORMAT];

#[cfg(test)]
mod directory_tests;

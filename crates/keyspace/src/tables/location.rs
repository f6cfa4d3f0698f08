//! Where a key is in a table, or would be.

use crate::layout::page::Spot;
use crate::layout::record::Record;
use isotherm_arena::Handle;

/// A slot of a table: its place in the partition, and its record as it was read.
#[derive(Clone, Copy)]
pub(crate) struct SlotRef {
    pub at: usize,
    /// Where the record lies, with those of its neighbours; none while they all have no keys.
    pub run: Option<Handle>,
    pub record: Record,
}

/// Where a key is, or would be.
#[derive(Clone, Copy)]
pub(crate) struct Location {
    pub slot: SlotRef,
    pub page_index: u32,
    pub page: Option<Handle>,
    pub spot: Option<Spot>,
}

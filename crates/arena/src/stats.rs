//! Memory of an arena, in parts that add up.
//!
//! ```text
//!   slab_bytes = live_bytes + partial_free_bytes + tail_bytes + headers (part of metadata_bytes)
//!   resident  <= slab_bytes + free_slab_bytes + table and class states (the rest of metadata_bytes)
//! ```
//!
//! The second line is an inequality because a young slab has not touched all of its pages yet.

use crate::class::{CHUNK_BYTES, CLASSES, KIND_COUNT, ORDERS, SHAPES, shape_of};
use crate::heap::{ClassState, Heap};
use crate::reserve::Region;
use crate::slab::Table;
use std::ops::Range;

#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct KindStats {
    /// Rounded to classes.
    pub live_bytes: u64,
    pub live_objects: u64,
}

#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct ArenaStats {
    /// Bytes of live objects of all kinds, rounded to classes.
    pub live_bytes: u64,
    pub live_objects: u64,
    /// Indexed by `Kind as usize`.
    pub by_kind: [KindStats; KIND_COUNT],
    /// Slabs in use, whole.
    pub slab_bytes: u64,
    /// Bytes after the last object of each slab.
    pub tail_bytes: u64,
    /// Free objects in slabs in use.
    pub partial_free_bytes: u64,
    /// Chunks in no slab that the kernel may have pages for: what `trim` can give back.
    pub free_slab_bytes: u64,
    /// Address space opened for reading and writing; RSS is less.
    pub committed_bytes: u64,
    /// Headers of slabs, the side table as far as it is used, the class states.
    pub metadata_bytes: u64,
    /// Address space, the side table's included.
    pub reserved_bytes: u64,
}

impl Heap {
    pub fn stats(&self, memory: &Region) -> ArenaStats {
        let mut stats = ArenaStats {
            free_slab_bytes: self.pool.resident_chunks() as u64 * CHUNK_BYTES as u64,
            committed_bytes: memory.committed() as u64,
            reserved_bytes: (memory.reserved() + self.table.reserved_bytes()) as u64,
            metadata_bytes: self.own_bytes() as u64,
            ..ArenaStats::default()
        };
        for (class, info) in CLASSES.iter().enumerate() {
            let state = &self.classes[class];
            if state.slabs == [0; ORDERS] {
                continue;
            }
            let (live, bytes) = (state.live as u64, info.bytes as u64);
            stats.live_objects += live;
            stats.live_bytes += live * bytes;
            stats.by_kind[info.kind as usize].live_objects += live;
            stats.by_kind[info.kind as usize].live_bytes += live * bytes;
            stats.partial_free_bytes += self.free_objects(class) * bytes;
            for (order, &slabs) in state.slabs.iter().enumerate() {
                let shape = &SHAPES[shape_of(class, order as u32)];
                stats.slab_bytes += slabs as u64 * shape.slab_bytes() as u64;
                stats.metadata_bytes += slabs as u64 * shape.header_bytes() as u64;
                stats.tail_bytes += slabs as u64 * shape.tail_bytes() as u64;
            }
        }
        stats
    }

    pub fn table_addresses(&self) -> Range<usize> {
        self.table.addresses()
    }

    /// Free objects of a class, in the slab under evacuation too.
    pub fn free_objects(&self, class: usize) -> u64 {
        let evacuating = self.evacuation.map(|e| *self.table.get(e.chunk));
        let leaving = match evacuating {
            Some(record) if self.evacuated_order(class).is_some() => {
                SHAPES[record.shape as usize].count - record.live
            }
            _ => 0,
        };
        self.classes[class].free as u64 + leaving as u64
    }

    /// Bytes of the bookkeeping outside the slabs.
    fn own_bytes(&self) -> usize {
        let table: &Table = &self.table;
        table.touched_bytes(self.pool.frontier()) + self.classes.len() * size_of::<ClassState>()
    }
}

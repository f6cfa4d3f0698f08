//! What the commands of each slot have cost: CLUSTER SLOT-STATS.
//!
//! ```text
//!   a worker   [ticks u64][input u64][output u64] x 16384    24 B a slot = 384 KB, taken with the first command counted
//! ```
//! Counted only where `cluster-slot-stats-enabled` says so, each worker for itself. A command counts for the slot of its
//! first key. Keys and bytes of a slot are not kept here: the keyspace knows them in any case.

use isotherm_stdx::Slot;
use std::sync::OnceLock;

use crate::observe::counter::Counter;

#[derive(Default)]
pub struct SlotCounters {
    pub ticks: Counter,
    pub input_bytes: Counter,
    pub output_bytes: Counter,
}

const _: () = assert!(size_of::<SlotCounters>() == 24);

/// Those of one worker.
#[derive(Default)]
pub struct SlotTable(OnceLock<Box<[SlotCounters]>>);

impl SlotTable {
    pub fn of(&self, slot: Slot) -> &SlotCounters {
        &self.0.get_or_init(|| Slot::all().map(|_| SlotCounters::default()).collect())[slot.index()]
    }

    /// Nothing until a command was counted.
    pub fn memory_bytes(&self) -> usize {
        self.0.get().map_or(0, |counters| size_of_val(&**counters))
    }

    pub fn add_to(&self, sums: &mut [SlotUse]) {
        let counters = self.0.get().into_iter().flatten();
        for (sum, counters) in sums.iter_mut().zip(counters) {
            sum.ticks += counters.ticks.get();
            sum.input_bytes += counters.input_bytes.get();
            sum.output_bytes += counters.output_bytes.get();
        }
    }
}

/// The counts of a slot, added up over the workers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SlotUse {
    pub ticks: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
}

impl SlotUse {
    /// Nothing where `before` is later: a reset between two looks.
    pub fn since(&self, before: &SlotUse) -> SlotUse {
        SlotUse {
            ticks: self.ticks.saturating_sub(before.ticks),
            input_bytes: self.input_bytes.saturating_sub(before.input_bytes),
            output_bytes: self.output_bytes.saturating_sub(before.output_bytes),
        }
    }
}

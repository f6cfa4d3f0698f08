//! Cost of the commands of each slot: CLUSTER SLOT-STATS.
//!
//! ```text
//!   a worker   [ticks u64][input u64][output u64] x 16384    24 B a slot = 384 KB, taken with the first command counted
//! ```
//! Commands are counted only if `cluster-slot-stats-enabled` is on. Each worker counts for itself, and so
//! does the link to a primary. A command counts for the slot of its first key. The parts of a transaction or
//! a script count with it:
//!
//! ```text
//!              time            bytes in                 bytes out
//!   SET        its own         its own                  its reply
//!   BLPOP      both its runs   its own                  its reply             when it is answered
//!   EXEC       its own         MULTI, queued, EXEC      its reply             in the slot of the first queued key
//!   EVAL       its own         its own                  its reply             in the slot of all its keys, if it is one
//!   SPUBLISH   its own         its own                  its reply, and what each subscriber of this node is sent
//! ```
//! The bytes of a command that are sent to replicas count as bytes out, once for each replica. Keys and bytes
//! of a slot are not kept here, because the keyspace counts them anyway.

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

/// The slots that the keys of one thing are in.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SlotsMet {
    #[default]
    None,
    One(Slot),
    Several,
}

impl SlotsMet {
    pub fn note(&mut self, slot: Slot) {
        *self = match *self {
            SlotsMet::None => SlotsMet::One(slot),
            SlotsMet::One(other) if other == slot => SlotsMet::One(slot),
            _ => SlotsMet::Several,
        };
    }

    /// Returns the slot that the work counts for, if it is one.
    pub fn one(self) -> Option<Slot> {
        match self {
            SlotsMet::One(slot) => Some(slot),
            SlotsMet::None | SlotsMet::Several => None,
        }
    }
}

/// Counters of the slots of one worker.
#[derive(Default)]
pub struct SlotTable(OnceLock<Box<[SlotCounters]>>);

impl SlotTable {
    pub fn of(&self, slot: Slot) -> &SlotCounters {
        &self.0.get_or_init(|| Slot::all().map(|_| SlotCounters::default()).collect())[slot.index()]
    }

    /// Returns the bytes of the counters; 0 until a command was counted.
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
    /// Returns the use since `before`; 0 where `before` is later because of a reset between two looks.
    pub fn since(&self, before: &SlotUse) -> SlotUse {
        SlotUse {
            ticks: self.ticks.saturating_sub(before.ticks),
            input_bytes: self.input_bytes.saturating_sub(before.input_bytes),
            output_bytes: self.output_bytes.saturating_sub(before.output_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_met_several_slots_counts_for_none() {
        let mut met = SlotsMet::default();
        assert_eq!(met.one(), None);
        for (slot, one) in [(3, Some(3)), (3, Some(3)), (4, None), (3, None)] {
            met.note(Slot::new(slot));
            assert_eq!(met.one(), one.map(Slot::new));
        }
    }
}
